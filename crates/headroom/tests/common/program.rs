//! One run of a program, with its output in files (so that it never waits for a reader) and a certain end.

use super::{PATIENCE, assert_has, guard_of, kill, signal, until, within};
use rustix::process::Signal;
use std::borrow::BorrowMut;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A command of words that spaces part, without what this process's environment would change about the binary.
pub fn command(words: impl AsRef<str>) -> Command {
    let mut words = words.as_ref().split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    command
        .args(words)
        .env_remove("RUST_LOG")
        .env_remove("RUST_BACKTRACE");
    command
}

/// The binary, with the words that spaces part.
pub fn headroom(words: impl AsRef<str>) -> Command {
    let mut command = command(env!("CARGO_BIN_EXE_headroom"));
    command.args(words.as_ref().split_whitespace());
    // Where the tests themselves run in a container, no guard is outside.
    let here = fs::read_link("/proc/self/ns/pid");
    if here.is_ok_and(|namespace| namespace.as_os_str() != "pid:[4026531836]") {
        command.env("HEADROOM_ALLOW_GUARD_INSIDE", "1");
    }
    command
}

/// Whether a program of another package is installed, asked with these words; says so where it is not.
pub fn program_or_skipped(words: &str, from: &str) -> bool {
    let asked = command(words).stdin(Stdio::null()).output();
    let is_there = asked.is_ok_and(|output| output.status.success());
    if !is_there {
        println!("skipped: `{words}` does not work here ({from})");
    }
    is_there
}

/// A running program; dropped, it is killed.
pub struct Program {
    child: Child,
    /// Its output; its own folder, where it has one.
    files: PathBuf,
    what: String,
    /// How it ended, once that was asked for.
    status: Option<ExitStatus>,
    _dir: Option<TempDir>,
}

impl Program {
    /// Starts a command.
    pub fn start(mut command: impl BorrowMut<Command>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let what = format!("{:?}", command.borrow_mut());
        Self::start_in(command.borrow_mut(), dir.path().join("output"), what, Some(dir))
    }

    /// The same with its output in files of a folder that have its name.
    pub fn start_named(mut command: impl BorrowMut<Command>, dir: &Path, name: &str) -> Self {
        Self::start_in(command.borrow_mut(), dir.join(name), name.to_owned(), None)
    }

    fn start_in(command: &mut Command, files: PathBuf, what: String, dir: Option<TempDir>) -> Self {
        let file = |end: &str| File::create(files.with_extension(end)).unwrap();
        let command = command
            .stdin(Stdio::null())
            .stdout(file("out"))
            .stderr(file("err"));
        let started = command.spawn();
        let child = started.unwrap_or_else(|error| panic!("{what} does not start: {error}"));
        Self {
            child,
            files,
            what,
            status: None,
            _dir: dir,
        }
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it is called here.
    pub fn what(&self) -> &str {
        &self.what
    }

    fn text(&self, end: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.files.with_extension(end)).unwrap()).into_owned()
    }

    /// Its standard output up to now.
    pub fn out(&self) -> String {
        self.text("out")
    }

    /// Its standard error up to now.
    pub fn err(&self) -> String {
        self.text("err")
    }

    /// Both.
    pub fn all(&self) -> String {
        self.out() + &self.err()
    }

    /// The last lines of both, in one.
    pub fn last_words(&self) -> String {
        let all = self.all();
        let lines: Vec<&str> = all.lines().collect();
        lines[lines.len().saturating_sub(4)..].join(" | ")
    }

    /// The only JSON document on its standard output.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        let out = self.out();
        serde_json::from_str(&out)
            .unwrap_or_else(|error| panic!("{}: {error}\nout: {out}\nerr: {}", self.what, self.err()))
    }

    /// Waits until its standard error holds an answer.
    #[track_caller]
    pub fn says<T>(&mut self, what: &str, find: impl Fn(&str) -> Option<T>) -> T {
        until(&format!("{} says {what}", self.what), || {
            // What it said last may have come before its end was seen.
            let ended = self.ended();
            let found = find(&self.err());
            let (name, err) = (&self.what, self.err());
            assert!(
                found.is_some() || ended.is_none(),
                "{name} ended ({ended:?}) before it said {what}: {err}"
            );
            found
        })
    }

    /// Waits until a line of either output holds this; the rest of that line.
    #[track_caller]
    pub fn said(&mut self, start: &str) -> String {
        until(&format!("{} says {start:?}", self.what), || {
            let ended = self.ended();
            let all = self.all();
            let mut whole = all
                .split_inclusive('\n')
                .filter_map(|line| line.strip_suffix('\n'));
            let found = whole.find_map(|line| Some(line.split_once(start)?.1.to_owned()));
            assert!(
                found.is_some() || ended.is_none(),
                "it ended before it said {start:?}: {all}"
            );
            found
        })
    }

    /// Sends a signal; that it is gone already is as good.
    pub fn signal(&self, which: Signal) {
        signal(self.pid(), which);
    }

    /// Has it end, and expects that it does so without an error.
    #[track_caller]
    pub fn ends_well(&mut self) {
        self.signal(Signal::TERM);
        let status = self.wait();
        assert_eq!(status.code(), Some(0), "{}", self.err());
    }

    /// Whether it has ended, and how.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.status = self.child.try_wait().unwrap();
        self.status
    }

    /// Waits for its end, so long at most.
    pub fn wait_for(&mut self, most: Duration) -> Option<ExitStatus> {
        within(most, || self.ended())
    }

    /// Waits for its end, long enough for a whole demo.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let status = self.wait_for(PATIENCE * 4);
        status.unwrap_or_else(|| panic!("{} does not end: {}", self.what, self.err()))
    }

    /// The exit status with which it had ended when that was asked for; none where it had not, or by a signal.
    pub fn code(&self) -> Option<i32> {
        self.status?.code()
    }

    /// Waits for its end, which must be exit status 0.
    #[track_caller]
    pub fn succeeds(&mut self) {
        let status = self.wait();
        let (what, out, err) = (&self.what, self.out(), self.err());
        assert!(
            status.success(),
            "{what} ended with {status}\nout: {out}\nerr: {err}"
        );
    }

    /// Ends it by SIGTERM, as which it must end well.
    #[track_caller]
    pub fn stop(&mut self) {
        self.signal(Signal::TERM);
        self.succeeds();
    }

    /// Kills it, as kill -9 does.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.wait();
    }

    /// Kills it together with the process that watches over it, which would put everything back at once.
    pub fn kill_with_guard(&mut self) {
        // Stopped first: it would lift everything and get another guard.
        self.signal(Signal::STOP);
        kill(guard_of(self.pid()));
        self.kill();
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
#[track_caller]
pub fn run(command: impl BorrowMut<Command>) -> Program {
    let mut program = Program::start(command);
    program.wait();
    program
}

/// Runs a command to its end, which must be exit status 0.
#[track_caller]
pub fn succeeds(command: impl BorrowMut<Command>) -> Program {
    let mut program = Program::start(command);
    program.succeeds();
    program
}

/// Runs a command that must be refused: with exit status 2, saying all of this.
#[track_caller]
pub fn refused(command: impl BorrowMut<Command>, said: &[&str]) -> Program {
    let program = run(command);
    let (code, err) = (program.code(), program.err());
    assert_eq!(code, Some(2), "{}: {err}", program.what);
    assert_has(err, said);
    program
}

/// The binary, without any word.
pub fn bare() -> Command {
    headroom("")
}

/// Runs a command to its end: how it ended, and the rest.
#[track_caller]
pub fn ended(command: impl BorrowMut<Command>) -> (ExitStatus, Program) {
    let mut program = Program::start(command);
    (program.wait(), program)
}
