//! `headroom wrap` of servers that the preload library does not reach, or whose clients it does not see: said in words.

use crate::common::{Program, assert_has, headroom, until, wait};
use rustix::process::Signal;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A server with a thread per connection; as `raw` it calls the kernel by instructions of its own.
const THREADS: &str = "../../../oncall/tests/thread_server.c";

/// A server in C, by its file as seen from this folder, compiled; `None` where there is no compiler.
fn compiled(source: &str, folder: &Path) -> Option<PathBuf> {
    let program = folder.join("server");
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/binary")
        .join(source);
    let run = Command::new("cc")
        .args(["-O1", "-Wall", "-pthread"])
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .output();
    match run {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
            Some(program)
        }
        Err(error) => {
            println!("skipped: {}: cc cannot be run: {error}", source.display());
            None
        }
    }
}

/// A wrapped server of C, and its client.
struct Wrapped {
    program: Program,
    client: TcpStream,
    _folder: TempDir,
}

impl Wrapped {
    /// Starts the server between these words, and asks it once; `None` where it cannot be had here.
    fn start(source: &str, before: &[&str], after: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        // Whoever it runs as executes it, and loads the library.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let server = compiled(source, folder.path())?;
        let at = folder.path().display();
        let mut command = headroom(format!(
            "wrap --run-dir {at} --db {at}/record.db --concurrency 1 --batch 1 --"
        ));
        let program = Program::start(command.args(before).arg(server).args(after));
        let port = until("it says its port, or that it cannot be run", || {
            let said = program.out();
            let port = said.lines().next().and_then(|line| line.parse::<u16>().ok());
            match program.err().contains("io_uring_setup:") {
                true => Some(None),
                false => port.map(Some),
            }
        });
        let Some(port) = port else {
            println!("skipped: {source}: {}", program.err());
            return None;
        };
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut wrapped = Self {
            program,
            client,
            _folder: folder,
        };
        wrapped.ask();
        Some(wrapped)
    }

    fn ask(&mut self) {
        self.client.write_all(b"one\n").unwrap();
        let mut answer = [0; 3];
        self.client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"ok\n");
    }

    /// Waits until it is said, has the server end, and says what was said of it.
    fn says(mut self, what: &str) -> String {
        wait(what, || self.program.err().contains(what));
        self.ask();
        self.program.signal(Signal::TERM);
        self.program.wait();
        self.program.err()
    }
}

#[test]
fn a_server_that_talks_to_its_clients_through_io_uring_is_noticed() {
    for after in [&[][..], &["accept"]] {
        let Some(wrapped) = Wrapped::start("ring_server.c", &[], after) else {
            return;
        };
        let said = wrapped.says("talks to its clients through io_uring, which is not put on call");
        assert_has(&said, &["server (pid ", "0 queries answered"]);
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_server_that_reads_by_system_calls_of_its_own_is_noticed() {
    let Some(wrapped) = Wrapped::start(THREADS, &[], &["raw"]) else {
        return;
    };
    let said = wrapped.says("waits for none of them where the library sees it");
    assert!(!said.contains("io_uring"), "{said}");
}

#[test]
fn a_server_that_cannot_reach_the_region_is_noticed_with_the_remedy() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: a server that becomes another user: this takes root");
        return;
    }
    // All descriptors are closed, as some that become another user do.
    let script = "for fd in /proc/$$/fd/*; do fd=${fd##*/}; [ $fd -gt 2 ] && eval \"exec $fd>&-\"; done; \
                  exec setpriv --reuid=65534 --regid=65534 --clear-groups -- \"$0\" \"$@\"";
    let Some(wrapped) = Wrapped::start(THREADS, &["bash", "-c", script], &["serve", "0"]) else {
        return;
    };
    let said = wrapped.says("user 65534) has loaded the library and cannot reach");
    assert_has(&said, &["/region", "Start wrap as that user"]);
}
