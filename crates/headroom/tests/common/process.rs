//! Processes: what /proc says of them, signals, stopped threads.

use super::until;
use anyhow::{Context, bail};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::time::{Duration, Instant};

/// Sends a signal to a process, which may be gone: that is as good.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Kills it, as kill -9 does.
pub fn kill(pid: u32) {
    signal(pid, Signal::KILL);
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
    /// One of them; none where it is gone.
    pub fn read(pid: u32) -> Option<Self> {
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
pub fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(Process::read).collect()
}

/// The processes whose parent this is, zombies too.
pub fn children(parent: u32) -> Vec<Process> {
    all()
        .into_iter()
        .filter(|process| process.parent == parent)
        .collect()
}

/// Their numbers.
pub fn children_of(parent: u32) -> Vec<u32> {
    children(parent).into_iter().map(|child| child.pid).collect()
}

/// Whether a process runs: a zombie, which nobody of ours can wait for, does not.
pub fn is_alive(pid: u32) -> bool {
    Process::read(pid).is_some_and(|process| !process.is_zombie)
}

/// The process that watches over a running program and puts back what it leaves when it is killed.
pub fn guard_of(program: u32) -> u32 {
    let watches = |process: &Process| process.args.windows(2).any(|pair| pair == ["guard", "--run-dir"]);
    until("the guard", || children(program).into_iter().find(watches)).pid
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
        Self::stop(chosen.0, chosen.1)
    }

    /// Stops the thread with this number, which sleeps: stopped in the midst of a period it may hold a lock that others
    /// need. Says where it cannot.
    pub fn asleep_or_skipped(tid: u32) -> Option<Self> {
        until("it sleeps", || {
            let stat = fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
            stat.rsplit_once(") ")?.1.starts_with('S').then_some(())
        });
        let stopped = Self::stop(tid, String::new());
        if let Err(why) = &stopped {
            println!("skipped: a thread cannot be traced: {why:#}");
        }
        stopped.ok()
    }

    fn stop(thread: u32, name: String) -> anyhow::Result<Self> {
        let thread = nix::unistd::Pid::from_raw(i32::try_from(thread)?);
        ptrace::seize(thread, ptrace::Options::empty()).context("PTRACE_SEIZE")?;
        let stopped = Self { thread, name };
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
