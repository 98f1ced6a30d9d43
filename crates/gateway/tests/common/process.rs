//! Processes of a test's own: other products, and backends that can be killed.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::eventually;

/// A process that is killed when it is dropped.
pub struct Process {
    pub child: Child,
    /// What it reads.
    _folder: Option<TempDir>,
}

impl Process {
    pub fn spawn(command: &mut Command) -> Self {
        Self {
            child: command.spawn().unwrap(),
            _folder: None,
        }
    }

    /// A server whose configuration is in `folder`, once it accepts at each of these addresses.
    pub fn serving(command: &mut Command, folder: TempDir, listens: &[SocketAddr]) -> Self {
        let mut process = Self::spawn(command.stdout(Stdio::null()).stderr(Stdio::piped()));
        process._folder = Some(folder);
        eventually(&format!("{command:?} listens"), || {
            if let Some(status) = process.child.try_wait().unwrap() {
                let mut said = String::new();
                let mut stderr = process.child.stderr.take().unwrap();
                let _ = stderr.read_to_string(&mut said);
                panic!("{command:?} ended with {status}: {said}");
            }
            let accepts = |address: &SocketAddr| TcpStream::connect(address).is_ok();
            std::thread::sleep(Duration::from_millis(15));
            listens.iter().all(accepts)
        });
        // What it says later nobody reads, and it must not wait for a reader.
        let mut stderr = process.child.stderr.take().unwrap();
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        process
    }

    /// An HAProxy with this configuration, which says that it listens at these addresses.
    pub fn haproxy(config: &str, listens: &[SocketAddr]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("haproxy.cfg");
        std::fs::write(&path, config).unwrap();
        let mut command = Command::new("haproxy");
        Self::serving(command.arg("-db").arg("-f").arg(path), folder, listens)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address for another process to listen at. No client connects from there by itself, so that none takes the port in the
/// meantime.
pub fn free_address() -> SocketAddr {
    TcpListener::bind("127.66.0.1:0").unwrap().local_addr().unwrap()
}

/// The version that a program says it has; `None` where it is not installed.
pub fn version(program: &str, argument: &str) -> Option<String> {
    let output = Command::new(program).arg(argument).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let is_number =
        |word: &&str| word.contains('.') && word.starts_with(|first: char| first.is_ascii_digit());
    let word = text.split([' ', '/', '\n', '-']).find(is_number)?;
    Some(word.to_owned())
}
