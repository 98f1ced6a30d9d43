//! One run of the binary, with its output in files (so that it never waits for a reader) and a certain end.

use super::{PATIENCE, until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The binary, without what this process's environment would change about it.
pub fn headroom() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headroom"));
    command.env_remove("RUST_LOG").env_remove("RUST_BACKTRACE");
    // Where the tests themselves run in a container, no guard is outside.
    let here = fs::read_link("/proc/self/ns/pid");
    if here.is_ok_and(|namespace| namespace.as_os_str() != "pid:[4026531836]") {
        command.env("HEADROOM_ALLOW_GUARD_INSIDE", "1");
    }
    command
}

/// A running program; dropped, it is killed.
pub struct Program {
    child: Child,
    dir: TempDir,
    what: String,
}

impl Program {
    /// Starts a command.
    pub fn start(command: &mut Command) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| File::create(dir.path().join(name)).unwrap();
        let what = format!("{command:?}");
        let child = command
            .stdin(Stdio::null())
            .stdout(file("out"))
            .stderr(file("err"))
            .spawn()
            .unwrap_or_else(|error| panic!("{what} does not start: {error}"));
        Self { child, dir, what }
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn text(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.dir.path().join(name)).unwrap()).into_owned()
    }

    /// Its standard output up to now.
    pub fn out(&self) -> String {
        self.text("out")
    }

    /// Its standard error up to now.
    pub fn err(&self) -> String {
        self.text("err")
    }

    /// The only JSON document on its standard output.
    pub fn json(&self) -> serde_json::Value {
        let out = self.out();
        serde_json::from_str(&out)
            .unwrap_or_else(|error| panic!("{}: {error}\nout: {out}\nerr: {}", self.what, self.err()))
    }

    /// Waits until its standard error holds an answer.
    pub fn said<T>(&mut self, what: &str, find: impl Fn(&str) -> Option<T>) -> T {
        until(&format!("{} says {what}", self.what), || {
            let found = find(&self.err());
            if found.is_none()
                && let Some(status) = self.child.try_wait().unwrap()
            {
                // What it said last may have come between the two looks.
                let found = find(&self.err());
                assert!(
                    found.is_some(),
                    "{} ended ({status}) before it said {what}: {}",
                    self.what,
                    self.err()
                );
                return found;
            }
            found
        })
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Whether it has ended, and how.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for its end, long enough for a whole demo.
    pub fn wait(&mut self) -> ExitStatus {
        self.wait_at_most(PATIENCE * 4)
    }

    fn wait_at_most(&mut self, patience: Duration) -> ExitStatus {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(
                Instant::now() < deadline,
                "{} does not end: {}",
                self.what,
                self.err()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for its end, which must be exit status 0.
    pub fn succeeds(&mut self) {
        let status = self.wait();
        assert!(
            status.success(),
            "{} ended with {status}\nout: {}\nerr: {}",
            self.what,
            self.out(),
            self.err()
        );
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{} had said:\n{}", self.what, self.err());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Copies the binary to where another user may run it. By another process: if a test beside this one forked while the file
/// was open for writing here, it could not be run.
pub fn copy_headroom(to: &Path) {
    let mut copy = Command::new("cp");
    copy.arg(env!("CARGO_BIN_EXE_headroom")).arg(to);
    assert!(copy.status().unwrap().success());
}

/// Runs a command to its end.
pub fn run(command: &mut Command) -> (ExitStatus, Program) {
    let mut program = Program::start(command);
    (program.wait_at_most(PATIENCE), program)
}

/// The processes whose parent this is.
pub fn children_of(parent: u32) -> Vec<u32> {
    let stat = |pid: u32| fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            // The name, in parentheses, may itself hold spaces and parentheses.
            stat(*pid).is_some_and(|stat| {
                stat.rsplit_once(')')
                    .and_then(|(_, rest)| rest.split_whitespace().nth(1))
                    .is_some_and(|ppid| ppid == parent.to_string())
            })
        })
        .collect()
}

/// Whether a process runs: a zombie, which nobody of ours can wait for, does not.
pub fn is_alive(pid: u32) -> bool {
    let path = PathBuf::from(format!("/proc/{pid}/stat"));
    fs::read_to_string(path).is_ok_and(|stat| {
        stat.rsplit_once(')')
            .is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
    })
}

/// The process that watches over a running program and puts back what it leaves when it is killed.
pub fn guard_of(program: u32) -> u32 {
    let watches = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.contains("\0guard\0--run-dir\0"))
    };
    until("the guard", || children_of(program).into_iter().find(watches))
}
