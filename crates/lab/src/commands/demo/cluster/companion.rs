//! This program again, as an agent or a gateway: a child that ends when the demo does, however that ends.

use anyhow::{Context, bail};
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Says the program's process id, waits until standard input closes (which it does when the demo dies, even by SIGKILL), tells
/// the program to end, and waits until it has: so that it puts everything back.
const WATCH_OVER: &str = "log=$1; shift; \"$@\" </dev/null >\"$log\" 2>&1 & child=$!; echo $child; \
                          while read -r _; do :; done; kill $child 2>/dev/null; wait $child";
/// How long it may take to end by itself.
const END_WITHIN: Duration = Duration::from_secs(8);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A child. Dropped, it ends.
#[derive(Debug)]
pub struct Companion {
    shell: Child,
    pid: u32,
    log: PathBuf,
}

impl Companion {
    /// Starts this program with these arguments; what it says goes to the file `log`.
    ///
    /// # Errors
    /// No shell, or no process can be started.
    pub fn start(arguments: &[OsString], log: &Path) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("this program's own file cannot be found")?;
        let mut shell = Command::new("/bin/sh")
            .args(["-c", WATCH_OVER, "sh"])
            .arg(log)
            .arg(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // What a terminal sends to its foreground (Ctrl-C) is for the demo alone.
            .process_group(0)
            .spawn()
            .context("/bin/sh cannot be started")?;
        let mut line = String::new();
        if let Some(output) = shell.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let Ok(pid) = line.trim().parse() else {
            drop(shell.stdin.take());
            let _ = shell.wait();
            bail!("/bin/sh could not start {arguments:?}: it said {line:?}");
        };
        Ok(Self {
            shell,
            pid,
            log: log.to_owned(),
        })
    }

    /// The processes: the shell and the program.
    pub fn pids(&self) -> [u32; 2] {
        [self.shell.id(), self.pid]
    }

    /// Waits until its log has a line with this beginning; what follows it.
    ///
    /// # Errors
    /// It ended or said nothing of the kind in time: with all that it said.
    pub fn said(&self, beginning: &str, within: Duration) -> anyhow::Result<String> {
        let until = Instant::now() + within;
        loop {
            let text = fs::read_to_string(&self.log).unwrap_or_default();
            // A line that is not whole yet has no end.
            let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
            if let Some(rest) = whole.lines().find_map(|line| line.strip_prefix(beginning)) {
                return Ok(rest.trim().to_owned());
            }
            let ended = !Path::new(&format!("/proc/{}", self.pid)).exists();
            if ended || Instant::now() >= until {
                let how = if ended { "ended" } else { "is not ready" };
                bail!("it {how}; {} has: {}", self.log.display(), text.trim());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let until = Instant::now() + END_WITHIN;
        while Instant::now() < until {
            if !matches!(self.shell.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        if let Some(pid) = rustix::process::Pid::from_raw(self.pid as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
