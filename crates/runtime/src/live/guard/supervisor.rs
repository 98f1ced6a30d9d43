//! The owner's side: it has a guard, watches it, and gets another where it is gone. While none stands nothing is limited.

use super::link::{Lines, send};
use super::namespace::Place;
use super::{FromGuard, Hello, SOCKET, ToGuard, apart};
use anyhow::{Context, anyhow, bail};
use headroom_node::Roots;
use headroom_node::restore::{self, Beat, Watch};
use serde_json::json;
use std::io::ErrorKind;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A guard is there within this time of its start, on a machine however busy.
const STANDS_WITHIN: Duration = Duration::from_secs(20);
/// How often the guard is asked for an answer.
const PING_EVERY: Duration = Duration::from_secs(2);
/// A guard without an answer for so long hangs.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_secs(1);
/// Between attempts to get another guard; doubled after each that fails, up to the largest.
const MIN_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// A guard whose owner has put everything back ends at once.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// A guard that stands.
struct Standing {
    lines: Lines,
    stream: UnixStream,
    child: Option<Child>,
    what: String,
}

impl Standing {
    /// Ends it: an orderly end where it has nothing to put back, the other where it hangs.
    fn end(mut self, within: Duration) {
        let _ = self.stream.shutdown(Shutdown::Both);
        let Some(child) = &mut self.child else { return };
        let until = Instant::now() + within;
        while Instant::now() < until && matches!(child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        // It has ended, or hangs: nothing else is done with it than to leave no zombie.
        let _ = child.kill();
        let _ = child.wait();
    }
}

#[derive(Debug)]
struct WatchState {
    /// The guard that stands, in words; why none does.
    state: Result<String, String>,
    /// To wake the thread at the end.
    stream: Option<UnixStream>,
    ending: bool,
    thread: Option<JoinHandle<()>>,
}

impl Default for WatchState {
    fn default() -> Self {
        Self {
            state: Err("none was started yet".to_owned()),
            stream: None,
            ending: false,
            thread: None,
        }
    }
}

/// The guard of this process.
#[derive(Debug)]
struct Supervisor {
    run_dir: PathBuf,
    roots: Roots,
    place: Place,
    watch: Watch,
    restarts: AtomicU64,
    state: Mutex<WatchState>,
}

static SUPERVISOR: OnceLock<Supervisor> = OnceLock::new();

/// How this process is watched over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The guard that stands, in words; why none does.
    pub guard: Result<String, String>,
    /// How often another one was needed.
    pub restarts: u64,
    /// Why nothing may be limited now.
    pub hindrance: Option<String>,
}

impl State {
    /// For `/status`.
    pub fn json(&self) -> serde_json::Value {
        json!({
            "up": self.guard.is_ok(),
            "what": self.guard.as_ref().unwrap_or_else(|why| why),
            "restarts": self.restarts,
            "hindrance": self.hindrance,
        })
    }
}

/// How this process is watched over; nothing where it needs no guard.
pub fn state() -> Option<State> {
    let supervisor = SUPERVISOR.get()?;
    let guard = supervisor.state().state.clone();
    Some(State {
        guard,
        restarts: supervisor.restarts.load(Ordering::Relaxed),
        hindrance: supervisor.watch.hindrance(),
    })
}

/// Gets a guard for this process, and watches it from now on.
///
/// # Errors
/// No guard stands, with the reason and the remedy: nothing may be limited then.
pub fn start(run_dir: PathBuf, roots: &Roots, place: Place) -> anyhow::Result<()> {
    let supervisor = SUPERVISOR.get_or_init(|| Supervisor {
        run_dir,
        roots: roots.clone(),
        place,
        watch: restore::global().watch().clone(),
        restarts: AtomicU64::new(0),
        state: Mutex::new(WatchState::default()),
    });
    let standing = supervisor.find()?;
    supervisor.found(&standing);
    let thread = std::thread::Builder::new()
        .name("guard".to_owned())
        .spawn(move || supervisor.watch_it(standing))?;
    supervisor.state().thread = Some(thread);
    Ok(())
}

/// Lets the guard go, once everything is put back.
pub fn end() {
    let Some(supervisor) = SUPERVISOR.get() else {
        return;
    };
    let mut state = supervisor.state();
    state.ending = true;
    if let Some(stream) = state.stream.take() {
        let _ = stream.shutdown(Shutdown::Both);
    }
    let thread = state.thread.take();
    drop(state);
    if let Some(thread) = thread
        && thread.join().is_err()
    {
        tracing::warn!("the thread that watches the guard had panicked");
    }
}

impl Supervisor {
    fn state(&self) -> MutexGuard<'_, WatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A guard that stands: the service, where one is there, else a child.
    fn find(&self) -> anyhow::Result<Standing> {
        let at = self.run_dir.join(SOCKET);
        let service = match UnixStream::connect(&at) {
            Ok(stream) => self.greet(stream, None),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                Err(anyhow!("nobody listens at {}", at.display()))
            }
            Err(error) => Err(anyhow!("{}: {error}", at.display())),
        };
        let why = match service {
            Ok(standing) => return Ok(standing),
            Err(why) => why,
        };
        if self.place == Place::Outside {
            bail!(
                "the guard, which lifts the limits of this process if it is killed, would be killed with it at the end of \
                 this PID namespace (container), and limits would stay in force: run `headroom guard --serve --run-dir \
                 {0}` in the host's PID namespace with {0} and the host's control groups mounted for both, or accept that \
                 with --allow-guard-inside ({why:#})",
                self.run_dir.display()
            );
        }
        tracing::debug!("the guard is a child: {why:#}");
        let (ours, theirs) = UnixStream::pair()?;
        let child = self.spawn(theirs).context("the guard cannot be started")?;
        self.greet(ours, Some(child))
    }

    fn spawn(&self, stream: UnixStream) -> anyhow::Result<Child> {
        let program = std::env::current_exe()?;
        // The file may have been replaced by a newer one since: then what runs here is still there.
        let program = match program.exists() {
            true => program,
            false => PathBuf::from("/proc/self/exe"),
        };
        let mut command = Command::new(program);
        command
            .args(["guard", "--run-dir"])
            .arg(&self.run_dir)
            .arg("--sys")
            .arg(&self.roots.sys)
            .arg("--proc")
            .arg(&self.roots.proc_)
            .env_remove("NOTIFY_SOCKET")
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(stream)))
            .stdout(Stdio::null());
        Ok(command.spawn()?)
    }

    fn greet(&self, stream: UnixStream, child: Option<Child>) -> anyhow::Result<Standing> {
        let hello = ToGuard::Hello(Hello {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            sys: self.roots.sys.clone(),
            proc: self.roots.proc_.clone(),
            hierarchies: apart::mounted_here(),
        });
        let is_child = child.is_some();
        let mut standing = Standing {
            lines: Lines::new(stream.try_clone()?),
            stream,
            child,
            what: String::new(),
        };
        let answer = match send(&standing.stream, &hello) {
            Ok(()) => standing.lines.next(STANDS_WITHIN),
            Err(error) => Err(error),
        };
        let why = match answer {
            Ok(Some(FromGuard::Standing { pid, note })) => {
                if let Some(note) = note {
                    tracing::warn!("the guard lives no life apart: {note}");
                }
                standing.what = match is_child {
                    true => format!("a child, process {pid}"),
                    false => format!("the service at {}", self.run_dir.join(SOCKET).display()),
                };
                return Ok(standing);
            }
            Ok(Some(FromGuard::Refused { why })) => anyhow!("the guard refuses: {why}"),
            Ok(_) => anyhow!("the guard does not say that it stands"),
            Err(error) => anyhow!("the guard has ended at once: {error}"),
        };
        standing.end(Duration::ZERO);
        Err(why)
    }

    /// From now on limits may be in force.
    fn found(&self, standing: &Standing) {
        let mut state = self.state();
        state.state = Ok(standing.what.clone());
        match standing.stream.try_clone() {
            Ok(stream) => state.stream = Some(stream),
            Err(error) => tracing::warn!(%error, "the end will have to wait for the guard"),
        }
        drop(state);
        match standing.stream.try_clone() {
            Ok(stream) => self.watch.attach(move |beat| pass_on(&stream, beat)),
            Err(error) => {
                return self
                    .watch
                    .hinder(Some(format!("no guard hears of this process: {error}")));
            }
        }
        self.watch.hinder(None);
    }

    /// Watches a guard, and gets another one where it is gone, until the end.
    fn watch_it(&self, mut standing: Standing) {
        loop {
            let why = self.attend(&mut standing);
            if self.state().ending {
                // What could not be put back stays recorded, and the guard waits for the end of this process to try again.
                if restore::is_recorded(&self.run_dir) {
                    return drop(standing.stream.shutdown(Shutdown::Both));
                }
                return standing.end(ENDS_WITHIN);
            }
            self.lost(&format!("the guard ({}) {why}", standing.what));
            standing.end(Duration::ZERO);
            let mut pause = MIN_PAUSE;
            standing = loop {
                match self.find() {
                    Ok(standing) => break standing,
                    Err(error) => {
                        tracing::error!("no guard stands: {error:#}");
                        self.state().state = Err(format!("{error:#}"));
                    }
                }
                std::thread::sleep(pause);
                if self.state().ending {
                    return;
                }
                pause = (pause * 2).min(MAX_PAUSE);
            };
            self.restarts.fetch_add(1, Ordering::Relaxed);
            self.found(&standing);
            tracing::warn!(
                "a guard stands again ({}): limits may be in force again",
                standing.what
            );
            if self.state().ending {
                return standing.end(ENDS_WITHIN);
            }
        }
    }

    /// Until the guard is gone or hangs; which of the two.
    fn attend(&self, standing: &mut Standing) -> String {
        let mut asked = Instant::now();
        let mut unanswered: Option<Instant> = None;
        loop {
            restore::global().tend();
            // What has come is heard before it is judged: this process may have been stopped itself.
            match standing.lines.next(TICK) {
                Ok(Some(FromGuard::Lifted { why })) => {
                    self.watch
                        .hinder(Some(format!("the guard has lifted all limits: {why}")));
                    tracing::error!("the guard has lifted all limits: {why}");
                }
                Ok(Some(FromGuard::Rearmed)) => {
                    self.watch.hinder(None);
                    tracing::warn!("limits may be in force again: signs of life have reached the guard");
                }
                Ok(Some(FromGuard::Alive)) => unanswered = None,
                Ok(Some(FromGuard::Standing { .. } | FromGuard::Refused { .. }) | None) => {
                    if unanswered.is_some_and(|since| since.elapsed() > ANSWERS_WITHIN) {
                        return format!("gave no answer for {} s", ANSWERS_WITHIN.as_secs());
                    }
                }
                Err(_) => return "has ended".to_owned(),
            }
            if asked.elapsed() >= PING_EVERY {
                asked = Instant::now();
                unanswered.get_or_insert(asked);
                // A guard that does not read is found by its silence.
                let _ = send(&standing.stream, &ToGuard::Ping);
            }
        }
    }

    /// From now on nothing may be limited, and what is limited is lifted at once.
    fn lost(&self, why: &str) {
        tracing::error!("{why}: nothing is limited until one stands again");
        self.watch.hinder(Some(format!(
            "{why}, and until one stands again nobody would lift the limits"
        )));
        self.watch.detach();
        self.state().state = Err(why.to_owned());
        match restore::lift(&self.run_dir, &self.roots) {
            Ok(report) => {
                for outcome in &report.outcomes {
                    tracing::warn!("without a guard: {outcome}");
                }
            }
            Err(error) => tracing::error!("limits could not be lifted without a guard: {error}"),
        }
    }
}

/// What the guard does not read is lost: the guard is found by its own silence, and hears the next one.
fn pass_on(stream: &UnixStream, beat: Beat) {
    let Beat { pulse, name, within } = beat;
    let message = match within {
        Some(within) => ToGuard::Beat {
            pulse,
            name: name.to_owned(),
            within_ms: u64::try_from(within.as_millis()).unwrap_or(u64::MAX),
        },
        None => ToGuard::Rest { pulse },
    };
    if let Err(error) = send(stream, &message) {
        tracing::debug!(%error, "a sign of life did not reach the guard");
    }
}
