//! Programs under a mark in their environment, by which everything that they start is found again.

use anyhow::{Context, bail};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The variable that marks what belongs to a run.
const MARK: &str = "HEADROOM_FAULT_RUN";

/// The binary.
pub fn headroom() -> Command {
    Command::new(env!("CARGO_BIN_EXE_headroom"))
}

/// Whether the binary has a guard that can stand by itself.
pub fn has_guard_service() -> bool {
    let help = headroom().args(["guard", "--help"]).output();
    help.is_ok_and(|help| help.status.success() && String::from_utf8_lossy(&help.stdout).contains("--serve"))
}

/// Sends a signal to a process, which may be gone.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // Gone already is as good.
        let _ = kill_process(pid, signal);
    }
}

/// A running program with its output in files; dropped, it is killed.
pub struct Program {
    child: Child,
    err: PathBuf,
    what: String,
}

impl Program {
    /// Starts a command under a mark, without what this process's environment would change about it; its output goes to files in `dir` that begin with `name`.
    pub fn start(mut command: Command, mark: &str, dir: &Path, name: &str) -> anyhow::Result<Self> {
        let file = |end: &str| dir.join(format!("{name}.{end}"));
        let child = command
            .env(MARK, mark)
            .env_remove("RUST_LOG")
            .env_remove("RUST_BACKTRACE")
            .stdin(Stdio::null())
            .stdout(File::create(file("out"))?)
            .stderr(File::create(file("err"))?)
            .spawn()
            .with_context(|| format!("{command:?} does not start"))?;
        Ok(Self {
            child,
            err: file("err"),
            what: name.to_owned(),
        })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its name here.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Its standard output and standard error up to now.
    pub fn said(&self) -> String {
        let text = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        text(&self.err.with_extension("out")) + &text(&self.err)
    }

    /// The last words of its standard error.
    pub fn last_words(&self) -> String {
        let said = self.said();
        let lines: Vec<&str> = said.lines().collect();
        lines[lines.len().saturating_sub(4)..].join(" | ")
    }

    /// Whether it has ended, and how.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for its end, so long at most.
    pub fn wait(&mut self, most: Duration) -> Option<ExitStatus> {
        until(most, || self.ended())
    }

    /// Sends a signal.
    pub fn signal(&self, which: Signal) {
        signal(self.pid(), which);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks every 20 ms until there is an answer, so long at most.
pub fn until<T>(most: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + most;
    loop {
        let answer = ask();
        if answer.is_some() || Instant::now() >= deadline {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A process, as /proc describes it.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its parent's.
    pub parent: u32,
    /// Whether it has ended and nobody has asked how.
    pub is_zombie: bool,
    /// Its command line.
    pub args: Vec<String>,
}

impl Process {
    fn read(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may itself hold spaces and parentheses.
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_whitespace();
        let is_zombie = matches!(fields.next()?, "Z" | "X");
        let parent = fields.next()?.parse().ok()?;
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let args = line.split(|byte| *byte == 0).filter(|arg| !arg.is_empty());
        Some(Self {
            pid,
            parent,
            is_zombie,
            args: args
                .map(|arg| String::from_utf8_lossy(arg).into_owned())
                .collect(),
        })
    }

    /// Whether it watches over another and puts back what that one leaves.
    pub fn is_guard(&self) -> bool {
        self.args.iter().any(|arg| arg == "--when-input-closes") || self.is_command("guard")
    }

    /// Whether it is a command of the binary.
    pub fn is_command(&self, command: &str) -> bool {
        self.args.get(1).is_some_and(|arg| arg == command)
    }
}

/// Every process there is.
fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(Process::read).collect()
}

/// The processes that carry a mark, or that name the run's folder on their command line. Zombies carry nothing any more.
pub fn marked(mark: &str, dir: &Path) -> Vec<Process> {
    let wanted = format!("{MARK}={mark}");
    let dir = dir.display().to_string();
    let belongs = |process: &Process| {
        let environment = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        let is_marked = environment
            .split(|byte| *byte == 0)
            .any(|variable| variable == wanted.as_bytes());
        is_marked || process.args.iter().any(|arg| arg.contains(&dir))
    };
    all().into_iter().filter(belongs).collect()
}

/// The processes whose parent this is, zombies too.
pub fn children_of(parent: u32) -> Vec<Process> {
    all()
        .into_iter()
        .filter(|process| process.parent == parent)
        .collect()
}

/// Names of threads that decide or write; where a program has none of these, its first thread does.
const CONTROL_THREADS: [&str; 5] = ["control", "control-loop", "live", "agent-machine", "keeper"];

/// One stopped thread, by ptrace; dropped, it runs again. It belongs to the thread that made it.
pub struct StoppedThread {
    thread: nix::unistd::Pid,
    /// Its name.
    pub name: String,
}

impl StoppedThread {
    /// Stops the thread of a process that controls.
    pub fn control_of(pid: u32) -> anyhow::Result<Self> {
        let mut chosen = (pid, "first thread".to_owned());
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            let path = task?.path();
            let name = fs::read_to_string(path.join("comm"))?.trim().to_owned();
            let number = path.file_name().and_then(|name| name.to_str()?.parse().ok());
            if let Some(number) = number
                && CONTROL_THREADS.contains(&name.as_str())
            {
                chosen = (number, name);
            }
        }
        let thread = nix::unistd::Pid::from_raw(i32::try_from(chosen.0)?);
        ptrace::seize(thread, ptrace::Options::empty()).context("PTRACE_SEIZE")?;
        let stopped = Self {
            thread,
            name: chosen.1,
        };
        ptrace::interrupt(thread).context("PTRACE_INTERRUPT")?;
        // The stop is reported to us as an end would be; it must be taken before anybody asks for that.
        let deadline = Instant::now() + Duration::from_secs(10);
        while waitpid(thread, Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL))?
            == nix::sys::wait::WaitStatus::StillAlive
        {
            if Instant::now() > deadline {
                bail!("thread {thread} does not stop");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(stopped)
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        // It may have been killed meanwhile.
        let _ = ptrace::detach(self.thread, None);
    }
}
