//! Commands: run within a time limit, their output captured, their process group killed at the limit.

use super::{PowerSwitch, SwitchError, limit, quoted};
use crate::process::installed;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Access, OFlags, access, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// What is kept of a command's output, each of standard output and standard error; more is read and thrown away.
const MAX_BYTES: usize = 64 << 10;
/// After SIGTERM a process group has this long before SIGKILL.
const GRACE: Duration = Duration::from_millis(500);
/// The most words of a command.
const MAX_WORDS: usize = 256;

/// What a command that ended said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// The beginning of its standard output.
    pub out: String,
    /// The beginning of its standard error.
    pub err: String,
}

impl Output {
    /// What it said, to put behind a message.
    fn said(&self) -> String {
        said(&self.err, &self.out)
    }
}

fn said(err: &str, out: &str) -> String {
    let text = quoted(if err.trim().is_empty() { out } else { err });
    if text.is_empty() {
        ", and said nothing".into()
    } else {
        format!(", saying: {text}")
    }
}

/// Runs a command in a process group of its own until it ends, at most for `limit`; then the group is asked to end
/// (SIGTERM), and killed half a second later.
///
/// Standard input is empty. What a command leaves running after its own end is left alone, and its output is read no more:
/// a daemon that it starts must write elsewhere.
///
/// # Errors
/// [`SwitchError::Program`] where it cannot be started, [`SwitchError::TimeLimit`]. Its exit status is no error here.
pub fn run(argv: &[String], environment: &[(&str, String)], limit: Duration) -> Result<Output, SwitchError> {
    let Some((program, arguments)) = argv.split_first() else {
        return Err(SwitchError::Value {
            key: "a command",
            value: "[]".into(),
            expected: "a program and its arguments, each a text of its own".into(),
        });
    };
    let failed = |cause: std::io::Error| SwitchError::Program {
        program: program.clone(),
        remedy: match cause.kind() {
            ErrorKind::NotFound => "install it, or give its whole path".into(),
            ErrorKind::PermissionDenied => "may this user execute it?".into(),
            _ => "try it by hand".into(),
        },
        cause: cause.to_string(),
    };
    let deadline = Instant::now() + limit;
    let child = Command::new(program)
        .args(arguments)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let mut running = Running { child, group: None };
    let mut pipes = (
        Pipe::of(running.child.stdout.take().map(OwnedFd::from)).map_err(failed)?,
        Pipe::of(running.child.stderr.take().map(OwnedFd::from)).map_err(failed)?,
    );
    let pid = i32::try_from(running.child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| failed(ErrorKind::InvalidData.into()))?;
    running.group = Some(pid);
    let ended = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| failed(error.into()))?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let is_over = {
            let mut waited = vec![PollFd::new(&ended, PollFlags::IN)];
            for pipe in [&pipes.0, &pipes.1] {
                waited.extend(pipe.pipe.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
            }
            let timeout = left
                .try_into()
                .map_err(|_| failed(ErrorKind::InvalidInput.into()))?;
            match poll(&mut waited, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(failed(error.into())),
            }
            !waited[0].revents().is_empty()
        };
        pipes.0.read();
        pipes.1.read();
        if is_over {
            break;
        }
        if left.is_zero() {
            running.end();
            return Err(SwitchError::TimeLimit {
                program: program.clone(),
                limit_s: limit.as_secs_f64(),
                said: said(&pipes.1.text(), &pipes.0.text()),
            });
        }
    }
    let status = running.child.wait().map_err(failed)?;
    // Whatever it left running is its owner's.
    running.group = None;
    Ok(Output {
        status,
        out: pipes.0.text(),
        err: pipes.1.text(),
    })
}

/// A command under way; dropped, its group is ended.
struct Running {
    child: Child,
    group: Option<Pid>,
}

impl Running {
    /// Ends the group, and waits for the command itself.
    fn end(&mut self) {
        let Some(group) = self.group.take() else { return };
        // It may be gone already; then there is nobody to end.
        let _ = kill_process_group(group, Signal::TERM);
        let until = Instant::now() + GRACE;
        while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        // Children of a command that ended at once may still be there.
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// One end of a pipe that is read without waiting.
struct Pipe {
    pipe: Option<File>,
    kept: Vec<u8>,
}

impl Pipe {
    fn of(pipe: Option<OwnedFd>) -> std::io::Result<Self> {
        if let Some(pipe) = &pipe {
            let flags = fcntl_getfl(pipe)?;
            fcntl_setfl(pipe, flags | OFlags::NONBLOCK)?;
        }
        Ok(Self {
            pipe: pipe.map(File::from),
            kept: Vec::new(),
        })
    }

    /// Reads what is there, at most what a pipe holds, so that one that never falls silent keeps nobody.
    fn read(&mut self) {
        let mut chunk = [0; 4096];
        for _ in 0..32 {
            let Some(pipe) = &mut self.pipe else { return };
            match pipe.read(&mut chunk) {
                Ok(0) => self.pipe = None,
                Ok(length) => {
                    let room = MAX_BYTES.saturating_sub(self.kept.len());
                    self.kept.extend_from_slice(&chunk[..length.min(room)]);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.kept).into_owned()
    }
}

/// Runs a command that must succeed.
pub(super) fn must_succeed(
    argv: &[String],
    environment: &[(&str, String)],
    limit: Duration,
) -> Result<Output, SwitchError> {
    let output = run(argv, environment, limit)?;
    if output.status.success() {
        return Ok(output);
    }
    Err(SwitchError::Failed {
        program: argv.first().cloned().unwrap_or_default(),
        status: output.status.to_string(),
        said: output.said(),
    })
}

/// Asks a state command: exit status 0 is on; 1 or 3 (as of `systemctl is-active` and of init scripts) is off.
pub(super) fn ask_state(argv: &[String], limit: Duration) -> Result<Option<bool>, SwitchError> {
    let output = run(argv, &[], limit)?;
    match output.status.code() {
        Some(0) => Ok(Some(true)),
        Some(1 | 3) => Ok(Some(false)),
        _ => Err(SwitchError::Failed {
            program: argv.first().cloned().unwrap_or_default(),
            status: output.status.to_string(),
            said: format!(
                "{}; a state command ends with 0 where the machine is on and with 1 or 3 where it is off",
                output.said()
            ),
        }),
    }
}

/// Refuses a command that cannot be one, or whose program is not there: it may be needed only once its server is off.
pub(super) fn check_argv(key: &'static str, argv: &[String]) -> Result<(), SwitchError> {
    let wrong = argv.is_empty()
        || argv.len() > MAX_WORDS
        || argv[0].is_empty()
        || argv.iter().any(|word| word.contains('\0'));
    if wrong {
        return Err(SwitchError::Value {
            key,
            value: format!("{:?}", argv.iter().take(3).collect::<Vec<_>>()),
            expected: format!("a program and its arguments as a list of texts, at most {MAX_WORDS}"),
        });
    }
    let program = match argv[0].contains('/') {
        true => Some(PathBuf::from(&argv[0])),
        false => installed(&argv[0]),
    };
    let runs = |file: &PathBuf| file.is_file() && access(file, Access::EXEC_OK).is_ok();
    if !program.as_ref().is_some_and(runs) {
        return Err(SwitchError::Value {
            key,
            value: format!("{:?}", argv[0]),
            expected: "it cannot be run: it is no executable file; install it, or give its whole path".into(),
        });
    }
    Ok(())
}

/// Commands of the user's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandConfig {
    /// Switches the machine on, and returns: the machine may take its time to boot after that. No shell is between: a
    /// program and its arguments.
    pub start: Vec<String>,
    /// Shuts it down, and returns.
    pub stop: Vec<String>,
    /// Cuts its power where `stop` did not help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_stop: Option<Vec<String>>,
    /// Ends with 0 where the machine is on, with 1 or 3 where it is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Vec<String>>,
    /// Seconds that each of them has. 30.
    #[serde(default = "default_limit_s")]
    pub limit_s: f64,
}

pub(super) const fn default_limit_s() -> f64 {
    30.0
}

/// Switches by commands.
#[derive(Debug)]
pub struct CommandSwitch {
    config: CommandConfig,
    limit: Duration,
}

impl CommandSwitch {
    /// A switch with these commands.
    ///
    /// # Errors
    /// [`SwitchError::Value`].
    pub fn open(config: CommandConfig) -> Result<Self, SwitchError> {
        check_argv("start", &config.start)?;
        check_argv("stop", &config.stop)?;
        for (key, argv) in [("force_stop", &config.force_stop), ("state", &config.state)] {
            argv.as_deref().map_or(Ok(()), |argv| check_argv(key, argv))?;
        }
        let limit = limit("limit_s", config.limit_s)?;
        Ok(Self { config, limit })
    }
}

impl PowerSwitch for CommandSwitch {
    fn on(&mut self) -> Result<(), SwitchError> {
        must_succeed(&self.config.start, &[], self.limit).map(drop)
    }

    fn off(&mut self, force: bool) -> Result<(), SwitchError> {
        let stop = match &self.config.force_stop {
            Some(forced) if force => forced,
            _ => &self.config.stop,
        };
        must_succeed(stop, &[], self.limit).map(drop)
    }

    fn state(&mut self) -> Result<Option<bool>, SwitchError> {
        match &self.config.state {
            Some(state) => ask_state(state, self.limit),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
