//! The process of a server that is wrapped: started with the library, watched, sent what this program is sent, waited for.

use super::costs::ProgramCounts;
use super::doubts::Doubts;
use super::folder::{Folder, LIBRARY_FILE};
use super::listeners::survivors;
use super::log::ServerLog;
use super::signals::{PassedOn, send};
use headroom_console::{Stop, say};
use headroom_node::Roots;
use headroom_node::ours::NotOurs;
use headroom_oncall::{Inherited, Levers, Steering, VARIABLE, ignore_in};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// After how long it is said that a server that was asked to end has not.
const SAY_AFTER: Duration = Duration::from_secs(2);
/// How often it is looked whether it can be helped, and whether its log has become too long.
const EVERY: Duration = Duration::from_secs(2);

/// What still runs so long after the server has ended goes on.
const SURVIVE_FOR: Duration = Duration::from_millis(500);
/// Processes that are named in a line.
const MOST_NAMED: usize = 4;

/// Why a server was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The folder of the library.
    #[error("{path}: the preload library cannot be written there: {source}: give --run-dir a folder that can be", path = path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The run folder can be changed by others, who could put another library there.
    #[error(transparent)]
    NotOurs(#[from] NotOurs),
    /// The folder's name has what separates libraries for the loader.
    #[error("{path}: the loader separates preloaded libraries at spaces and colons: give --run-dir a folder without either", path = path.display())]
    Separator {
        /// The folder.
        path: PathBuf,
    },
    /// Nothing may be loaded from the folder.
    #[error("{path}: its file system is mounted noexec, and no library can be loaded from it: give --run-dir a folder on another", path = path.display())]
    NoExec {
        /// The folder.
        path: PathBuf,
    },
    /// The file that the server's log is to be.
    #[error("{path}: the server's log cannot be written there: {source}: give --run-dir a folder that can be written, or go without --view", path = path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The server itself.
    #[error("{path}: it cannot be started: {source:#}", path = path.display())]
    Server {
        /// The program.
        path: PathBuf,
        /// Why.
        source: anyhow::Error,
    },
    /// This program was asked to end before.
    #[error("{path}: it was not started: signal {signal} came before", path = path.display())]
    AskedToEnd {
        /// The program.
        path: PathBuf,
        /// The signal's number.
        signal: u8,
    },
}

/// Why something is not done that takes a thread.
pub fn no_thread(error: &std::io::Error) -> anyhow::Error {
    anyhow::anyhow!("cannot start a thread: {error} (a limit of processes, of this user or control group?)")
}

/// Signals that ask a program to end.
const ASKED: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::QUIT, Signal::HUP];

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    status: ExitStatus,
    /// Whether it ended after it was asked to.
    is_asked: bool,
}

impl Ended {
    /// The exit status as a shell says it.
    pub fn code(self) -> i32 {
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => code,
            (None, signal) => 128 + signal.unwrap_or(0),
        }
    }

    /// How it ended, where nobody asked it to, or not so; `None` where it ended as one does.
    pub fn in_words(self) -> Option<String> {
        let how = match (self.status.code(), self.status.signal()) {
            (Some(0), _) => return None,
            (Some(code), _) => format!("the server ended with status {code}"),
            (None, signal) => {
                let signal = signal.unwrap_or(0);
                if self.is_asked && ASKED.iter().any(|asked| asked.as_raw() == signal) {
                    return None;
                }
                format!("the server was killed by signal {signal}")
            }
        };
        Some(match self.is_asked {
            true => format!("{how} after it was asked to end"),
            false => how,
        })
    }
}

/// A server that runs.
#[derive(Debug)]
pub struct Server {
    child: Child,
    steering: Arc<Steering>,
    folder: PathBuf,
    log: Option<ServerLog>,
    /// Whether a signal that ends it was passed on to it.
    signalled: Arc<AtomicBool>,
}

impl Server {
    /// Starts it with the library and the descriptor of the region, and counts what it costs from its first instruction on; with what cannot be
    /// counted, in words. Where there is a log, it says there what it would say on this program's outputs. What this program is sent from then on,
    /// and was sent since `signals` were caught, is passed on to it; one that ends a server raises `stop`.
    ///
    /// # Errors
    /// [`StartError::Server`]; [`StartError::AskedToEnd`] where a signal came that ends a server which is not there yet.
    pub fn start(
        program: &Path,
        arguments: &[OsString],
        folder: &Folder,
        (steering, inherited): (Arc<Steering>, &Inherited),
        log: Option<ServerLog>,
        (mut signals, stop): (PassedOn, &Stop),
    ) -> Result<(Self, ProgramCounts, Vec<String>), StartError> {
        let failed = |source| StartError::Server {
            path: program.to_owned(),
            source,
        };
        let preload = preloads(&folder.path().join(LIBRARY_FILE));
        if let Some(signal) = signals.end() {
            return Err(StartError::AskedToEnd {
                path: program.to_owned(),
                signal,
            });
        }
        let spawn = || {
            let mut command = Command::new(program);
            command
                .args(arguments)
                .env(VARIABLE, steering.path())
                .env("LD_PRELOAD", &preload);
            inherited.pass_on(&mut command);
            ignore_in(&mut command, signals.ignored().to_vec());
            if let Some(log) = &log {
                let [out, err] = log.outputs()?;
                command.stdout(out).stderr(err);
            }
            command.spawn()
        };
        let (counts, child, notes) =
            ProgramCounts::around(&Roots::default(), spawn, Child::id).map_err(failed)?;
        let server = Self {
            child,
            steering,
            folder: folder.path().to_owned(),
            log,
            signalled: Arc::default(),
        };
        signals
            .pass_on_to(server.pid(), stop, &server.signalled)
            .map_err(|error| failed(error.into()))?;
        Ok((server, counts, notes))
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its log, where it has one of its own.
    pub const fn log(&self) -> Option<&ServerLog> {
        self.log.as_ref()
    }

    /// [`watch`](Self::watch) on a thread of its own while `work` is done on this one. Where there is no thread for it `work` is not done, which
    /// `without` is told, and it is watched here: a server is never ended for a thread of ours.
    ///
    /// # Errors
    /// As of [`watch`](Self::watch).
    pub fn watch_while<T>(
        &mut self,
        stop: &Stop,
        work: impl FnOnce() -> T,
        without: impl FnOnce(anyhow::Error),
    ) -> (anyhow::Result<Ended>, Option<T>) {
        let watched = std::thread::scope(|scope| {
            let watch = std::thread::Builder::new().spawn_scoped(scope, || self.watch(stop))?;
            let done = work();
            let ended = watch
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok((ended, done))
        });
        match watched {
            Ok((ended, done)) => (ended, Some(done)),
            Err(error) => {
                without(no_thread(&error));
                (self.watch(stop), None)
            }
        }
    }

    /// Waits for its end, which raises `stop`; where that is raised first, lets its workers go and has it shut down.
    ///
    /// # Errors
    /// It cannot be waited for or stopped.
    pub fn watch(&mut self, stop: &Stop) -> anyhow::Result<Ended> {
        let (ended, end) = mpsc::sync_channel(1);
        let pid = self.pid();
        let wait = {
            let (stop, ended) = (stop.clone(), ended.clone());
            move || {
                // Nothing can be done with either error: the other side looks for itself.
                let _ = ended.send(wait_for_end(pid));
                stop.raise();
            }
        };
        // It ends with the server, or with this program.
        let is_waited_for = std::thread::Builder::new()
            .name("server's end".to_owned())
            .spawn(wait)
            .is_ok();
        let mut doubts = Doubts::new(self.pid(), &self.folder);
        while !stop.wait_until(Instant::now() + EVERY) {
            doubts.raise(&self.steering.totals());
            if let Some(log) = &self.log {
                log.keep_short();
            }
            // Without a thread it is looked for now and then.
            if !is_waited_for && self.child.try_wait()?.is_some() {
                let _ = ended.send(Ok(()));
                break;
            }
        }
        drop(ended);
        doubts.raise_counted(&self.steering.totals());
        let result = self.end_after(&end);
        stop.raise();
        result
    }

    /// Lets its workers go, has it shut down where it runs, and waits for its end.
    fn end_after(&mut self, end: &mpsc::Receiver<std::io::Result<()>>) -> anyhow::Result<Ended> {
        let mut waited = end.try_recv().ok();
        let is_asked = waited.is_none();
        if waited.is_none() {
            self.steering.command(Levers::default(), None);
            // A signal to us was passed on to it already. Its own handler shuts it down.
            if !self.signalled.load(Relaxed)
                && let Err(error) = self.send(Signal::TERM)
            {
                anyhow::bail!("the server (pid {}) cannot be stopped: {error}", self.pid());
            }
            waited = end.recv_timeout(SAY_AFTER).ok();
        }
        if waited.is_none() {
            say::note!(
                "the server (pid {}) has not ended yet, and serves as without us until it does: the law and the record have ended. Each further \
                 signal is passed on to it; mariadbd ends at SIGTERM, and not at SIGINT (Ctrl-C); PostgreSQL waits for its clients at SIGTERM, and ends them at SIGINT; runuser and su take SIGTERM alone, and leave SIGINT to the terminal",
                self.pid()
            );
            waited = end.recv().ok();
        }
        if let Some(Err(error)) = waited {
            anyhow::bail!("the server (pid {}) cannot be waited for: {error}", self.pid());
        }
        let ended = Ended {
            status: self.child.wait()?,
            is_asked: is_asked || self.signalled.load(Relaxed),
        };
        say_survivors(&self.folder);
        Ok(ended)
    }

    fn send(&self, signal: Signal) -> rustix::io::Result<()> {
        send(self.pid(), signal)
    }
}

/// Says which processes of a server go on after its end, as where a script started it in its background: nobody steers them any more, or sends
/// them what this program is sent.
fn say_survivors(folder: &Path) {
    let Some(name) = folder.file_name().and_then(OsStr::to_str) else {
        return;
    };
    let look = || survivors(&Roots::default(), name);
    if look().is_empty() {
        return;
    }
    // Those that end with it may take their time.
    std::thread::sleep(SURVIVE_FOR);
    let left = look();
    if left.is_empty() {
        return;
    }
    let each: Vec<String> = left
        .iter()
        .take(MOST_NAMED)
        .map(|(pid, name)| format!("{name} (pid {pid})"))
        .collect();
    let more = match left.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    say::note!(
        "warning: what was started has ended, and {}{more} of it still runs, as without us: nothing regulates or records it any more, and no \
         signal reaches it from here. Have the server stay in the foreground: exec it at the end of a script, without & and without an \
         option to detach",
        each.join(", ")
    );
}

/// Sleeps until a child of this program has ended, and leaves its exit status to whoever asks for it.
fn wait_for_end(pid: u32) -> std::io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| std::io::Error::other("its number is none of a process"))?;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    rustix::io::retry_on_intr(|| waitid(WaitId::Pid(pid), options))?;
    Ok(())
}

impl Drop for Server {
    /// Whoever started it does not leave it behind where the run could not begin.
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.send(Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

/// What is preloaded already comes first.
fn preloads(library: &Path) -> OsString {
    let mut all = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    if !all.is_empty() {
        all.push(OsStr::new(":"));
    }
    all.push(library);
    all
}
