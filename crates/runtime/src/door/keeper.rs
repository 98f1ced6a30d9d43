//! The control side: launches the gateway, takes over one that serves already, starts it again when it dies.

use super::{Launch, RECORD, Record, Report, SERVICES, identity, started};
use crate::cluster::{GatewayLevers, Gateways};
use crate::live::{Telemetry, TrafficPeriod, Watch, silence};
use anyhow::{Context, anyhow};
use headroom_console::say;
use headroom_gateway::GatewayConfig;
use headroom_wire::Address;
use headroom_wire::client::ClientOptions;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::BTreeSet;
use std::fs;
use std::fs::DirBuilder;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a thread that waits for the gateway's end hears that it is to stop waiting.
const STEP: Duration = Duration::from_millis(100);
/// The pause before a gateway that died right after its start is started again; doubled each time.
const MIN_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// One that served for so long is started again without a pause.
const STEADY: Duration = Duration::from_secs(10);
/// How long a new gateway's counters are waited for.
const FIRST_ANSWER: Duration = Duration::from_secs(5);
/// What a drain may take beyond its own time.
const DRAIN_MARGIN: Duration = Duration::from_secs(2);

/// The gateways' processes of this `up`, for whoever ends in a hurry.
static RUNNING: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

fn running() -> MutexGuard<'static, BTreeSet<u32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells the gateways to end, for a program that leaves without ceremony.
pub fn end_now() {
    for pid in running().iter() {
        if let Some(pid) = i32::try_from(*pid).ok().and_then(Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
    }
}

/// A gateway that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It refused its configuration, or what that asks of the machine.
    #[error("{key}: {why}")]
    Refused {
        /// The key that is to blame.
        key: String,
        /// The gateway's objection.
        why: String,
    },
    /// Its process could not be started or watched.
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

/// What is known of the gateway's process, for the admin port.
#[derive(Debug, Default)]
pub struct Watched {
    pid: AtomicU32,
    serving: AtomicBool,
    adopted: AtomicBool,
    restarts: AtomicU64,
    /// It was asked for its counters for long enough, and did not answer.
    hangs: AtomicBool,
}

impl Watched {
    /// How often it was started again.
    pub fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// Its process, its state (`serving` or `restarting`), whether an earlier `up` had started it, and its restarts.
    pub fn json(&self) -> serde_json::Value {
        let serving = self.serving.load(Ordering::Relaxed);
        serde_json::json!({
            "pid": self.pid.load(Ordering::Relaxed),
            "state": if serving { "serving" } else { "restarting" },
            "adopted": self.adopted.load(Ordering::Relaxed),
            "restarts": self.restarts(),
        })
    }

    /// It answers no more: it is killed, and another one started.
    fn hangs(&self) {
        self.hangs.store(true, Ordering::Relaxed);
    }

    fn serves(&self, process: &Process) {
        self.hangs.store(false, Ordering::Relaxed);
        self.pid.store(process.pid, Ordering::Relaxed);
        self.adopted.store(process.child.is_none(), Ordering::Relaxed);
        self.serving.store(true, Ordering::Relaxed);
        running().insert(process.pid);
    }

    fn ended(&self) {
        self.serving.store(false, Ordering::Relaxed);
        running().remove(&self.pid.load(Ordering::Relaxed));
    }
}

/// A gateway's process: our child, or one that an `up` before us had started.
struct Process {
    pid: u32,
    pidfd: OwnedFd,
    child: Option<Child>,
    since: Instant,
}

impl Process {
    fn of_child(child: Child) -> anyhow::Result<Self> {
        let (pid, pidfd) = (child.id(), pidfd(child.id())?);
        let since = Instant::now();
        Ok(Self {
            pid,
            pidfd,
            child: Some(child),
            since,
        })
    }

    /// The process of a record, if it still runs.
    fn of_record(record: &Record) -> Option<Self> {
        let pidfd = pidfd(record.pid).ok()?;
        // Looked at while it is held: its number cannot have gone to another in between.
        (started(record.pid) == Some(record.started)).then(|| Self {
            pid: record.pid,
            pidfd,
            child: None,
            since: Instant::now(),
        })
    }

    fn signal(&self, signal: Signal) {
        // One that has ended needs no signal.
        let _ = pidfd_send_signal(&self.pidfd, signal);
    }

    /// Waits for its end, at most so long; whether it has ended.
    fn ends_within(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
            match poll(&mut fds, Some(&timeout)) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(0) | Err(_) if left.is_zero() => return false,
                Ok(0) => {}
                Ok(_) => return true,
                Err(_) => std::thread::sleep(left.min(STEP)),
            }
        }
    }

    /// How it ended, where that is known.
    fn reap(&mut self) -> String {
        match self.child.as_mut().map(Child::wait) {
            Some(Ok(status)) => status.to_string(),
            Some(Err(error)) => error.to_string(),
            None => "it was started by an earlier run".to_owned(),
        }
    }

    /// Lets requests finish, at most so long.
    fn drain(mut self, patience: Duration) {
        self.signal(Signal::TERM);
        if !self.ends_within(patience) {
            tracing::warn!(pid = self.pid, "the gateway does not end, and is killed");
            self.signal(Signal::KILL);
        }
        if self.child.is_some() {
            self.reap();
        }
    }
}

fn pidfd(pid: u32) -> anyhow::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.context("a process has no number")?;
    pidfd_open(pid, PidfdFlags::empty()).context("the gateway's process cannot be watched")
}

/// The front door. Dropped without [`Door::close`], it is left open: the gateway serves on.
pub struct Door {
    watched: Arc<Watched>,
    listen: Vec<SocketAddr>,
    socket: PathBuf,
    run_dir: PathBuf,
    drain: Duration,
    stop: Arc<AtomicBool>,
    current: Arc<Mutex<Option<Process>>>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    /// Takes over the gateway that an earlier run of this run folder left serving, where it has the same configuration;
    /// else starts one, beside such a one where there is one, which then finishes what it serves.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(gateway: &GatewayConfig, run_dir: &Path, own_log: bool) -> Result<Self, OpenError> {
        let identity = identity(gateway).context("the gateway's configuration cannot be written")?;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(run_dir)
            .with_context(|| format!("{} cannot be made", run_dir.display()))?;
        let left = Record::read(run_dir).and_then(|record| Some((Process::of_record(&record)?, record)));
        let mut launcher = Launcher {
            launch: Launch {
                gateway: gateway.clone(),
                identity,
                socket: run_dir.join(format!("gateway-{}.sock", std::process::id())),
                predecessor: None,
                record: run_dir.join(RECORD),
            },
            own_log,
        };
        let (process, listen) = match left {
            Some((process, record)) if record.identity == launcher.launch.identity => {
                say::note!("taking over the gateway that serves (pid {})", process.pid);
                launcher.launch.socket = record.socket;
                launcher.listens(&record.listen);
                (process, record.listen)
            }
            left => {
                if let Some((old, record)) = &left {
                    say::note!(
                        "starting a second gateway to replace the one that serves (pid {})",
                        old.pid
                    );
                    launcher.launch.gateway.takeover = true;
                    launcher.launch.predecessor = record.offer.clone();
                }
                let (process, listen, handed_over) = launcher.start()?;
                if let Some((old, _)) = left.as_ref().filter(|_| !handed_over) {
                    old.signal(Signal::USR1);
                }
                launcher.launch.predecessor = None;
                launcher.launch.gateway.takeover = gateway.takeover;
                launcher.listens(&listen);
                (process, listen)
            }
        };
        remove_stale_sockets(run_dir, Some(&launcher.launch.socket));
        let watched = Arc::new(Watched::default());
        watched.serves(&process);
        let mut door = Self {
            watched: Arc::clone(&watched),
            listen,
            socket: launcher.launch.socket.clone(),
            run_dir: run_dir.to_owned(),
            drain: Duration::from_millis(gateway.drain_timeout_ms),
            stop: Arc::default(),
            current: Arc::new(Mutex::new(Some(process))),
            thread: None,
        };
        let (current, stop) = (Arc::clone(&door.current), Arc::clone(&door.stop));
        let thread = std::thread::Builder::new()
            .name("gateway-keeper".to_owned())
            .spawn(move || keep(&launcher, &current, &watched, &stop));
        door.thread = Some(thread.context("the thread that watches the gateway cannot be started")?);
        Ok(door)
    }

    /// Where it serves: the addresses of `listen`, then those of `tls`.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.listen
    }

    /// What is known of its process.
    pub fn watched(&self) -> Arc<Watched> {
        Arc::clone(&self.watched)
    }

    /// What it counts, in periods of this length; and its levers, which are set for as long as a control loop may be silent.
    ///
    /// # Errors
    /// A thread that cannot be started.
    pub fn telemetry(&self, period: Duration) -> std::io::Result<(impl Telemetry + use<>, GatewayLevers)> {
        let address = Address::Unix(self.socket.clone());
        let gateways = vec![("gateway".to_owned(), address)];
        let telemetry = Gateways::start(gateways, &ClientOptions::default(), period)?;
        for why in telemetry.connect(FIRST_ANSWER, || false) {
            tracing::warn!("{why}");
        }
        let levers = telemetry.levers(silence(period));
        let listening = Listening {
            telemetry,
            watched: self.watched(),
            silent: None,
        };
        Ok((listening, levers))
    }

    /// Closes it in order: no new clients, requests being served are finished, and nothing is left.
    pub fn close(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that watches the gateway had panicked");
        }
        // Before it is asked to end: a successor must not take over one that ends.
        let _ = fs::remove_file(self.run_dir.join(RECORD));
        let process = self.current.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(process) = process {
            process.drain(self.drain + DRAIN_MARGIN);
        }
        self.watched.ended();
        remove_stale_sockets(&self.run_dir, None);
        // The folder of one of several services goes with it; a run folder has other things in it.
        if self
            .run_dir
            .parent()
            .is_some_and(|parent| parent.ends_with(SERVICES))
        {
            let _ = fs::remove_dir(&self.run_dir);
            let _ = self.run_dir.parent().map(fs::remove_dir);
        }
    }
}

/// How long gateways that nobody will have are waited for: by then they listen no more.
const STRANGERS_END: Duration = Duration::from_secs(2);

/// Ends the gateways that a killed run of this folder left and that none of these folders will take over: that run had other
/// services. They finish what they serve.
pub fn end_strangers(run_dir: &Path, ours: &[&Path]) {
    let services = fs::read_dir(run_dir.join(SERVICES))
        .into_iter()
        .flatten()
        .flatten();
    let dirs = services.map(|entry| entry.path()).chain([run_dir.to_owned()]);
    for dir in dirs.filter(|dir| !ours.contains(&&**dir)) {
        let Some(record) = Record::read(&dir) else {
            continue;
        };
        if let Some(process) = Process::of_record(&record) {
            tracing::warn!(
                pid = process.pid,
                "the gateway of a killed run with other services is ended"
            );
            process.signal(Signal::TERM);
            process.ends_within(STRANGERS_END);
        }
        let _ = fs::remove_file(dir.join(RECORD));
        remove_stale_sockets(&dir, None);
        if dir != run_dir {
            let _ = fs::remove_dir(&dir);
        }
    }
}

/// A gateway that answers nothing in so many periods in a row, and for so long, hangs.
const MIN_SILENT_PERIODS: u32 = 5;
const MIN_HANG: Duration = Duration::from_secs(10);

/// The gateway's telemetry, and whether it is silent.
struct Listening {
    telemetry: Gateways,
    watched: Arc<Watched>,
    /// Since when, and in how many periods: a control side that was stopped itself asked for none meanwhile.
    silent: Option<(Instant, u32)>,
}

impl Telemetry for Listening {
    fn take(&mut self, patience: Duration) -> Option<TrafficPeriod> {
        let period = self.telemetry.take(patience);
        if period.is_some() || !self.watched.serving.load(Ordering::Relaxed) {
            self.silent = None;
            return period;
        }
        let (since, periods) = self.silent.unwrap_or((Instant::now(), 0));
        self.silent = Some((since, periods + 1));
        if periods + 1 >= MIN_SILENT_PERIODS && since.elapsed() >= MIN_HANG {
            self.silent = None;
            self.watched.hangs();
        }
        None
    }

    fn watch(&mut self, watch: Option<Watch>) {
        self.telemetry.watch(watch);
    }
}

/// Takes away the sockets of gateways that are gone, all but one.
fn remove_stale_sockets(run_dir: &Path, but: Option<&Path>) {
    let but = but.and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
    for entry in fs::read_dir(run_dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let ours = name.starts_with("gateway-")
            && [".sock", ".sock.lock", ".sock.fds", ".sock.fds.new"]
                .iter()
                .any(|end| name.ends_with(end));
        if ours && but.as_deref().is_none_or(|but| !name.starts_with(but)) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Starts the gateway again whenever it dies, until it is stopped.
fn keep(launcher: &Launcher, current: &Mutex<Option<Process>>, watched: &Watched, stop: &AtomicBool) {
    let mut pause = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let mut now = current.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(process) = now.as_mut() else { return };
        if watched.hangs.swap(false, Ordering::Relaxed) {
            tracing::error!(
                pid = process.pid,
                "the gateway answers nothing for {} s and is killed",
                MIN_HANG.as_secs()
            );
            process.signal(Signal::KILL);
        }
        if !process.ends_within(STEP) {
            continue;
        }
        watched.ended();
        let how = process.reap();
        tracing::error!(pid = process.pid, "the gateway died ({how}) and is started again");
        if process.since.elapsed() > STEADY {
            pause = Duration::ZERO;
        }
        *now = None;
        drop(now);
        let process = loop {
            let until = Instant::now() + pause;
            while Instant::now() < until {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::sleep(STEP.min(pause));
            }
            // The first is at once; the next, if this one does not hold, is not.
            pause = longer(pause);
            match launcher.start() {
                Ok((process, ..)) => break process,
                Err(error) => tracing::error!("the gateway cannot be started again: {error}"),
            }
        };
        tracing::warn!(pid = process.pid, "the gateway serves again");
        watched.restarts.fetch_add(1, Ordering::Relaxed);
        watched.serves(&process);
        *current.lock().unwrap_or_else(PoisonError::into_inner) = Some(process);
    }
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).clamp(MIN_PAUSE, MAX_PAUSE)
}

/// Starts gateways of one configuration.
struct Launcher {
    launch: Launch,
    /// Its lines go through this process: it is to have no terminal, and while the live view has that they are held back.
    own_log: bool,
}

impl Launcher {
    /// The next one listens where this one does, also where the kernel chose the port.
    fn listens(&mut self, addresses: &[SocketAddr]) {
        let gateway = &mut self.launch.gateway;
        let wanted = gateway.listen.iter_mut();
        let wanted = wanted.chain(gateway.tls.iter_mut().map(|tls| &mut tls.listen));
        for (wanted, bound) in wanted.zip(addresses) {
            *wanted = *bound;
        }
    }

    /// Its process, where it serves, and whether the one that it replaces handed over its sockets and drains by itself.
    fn start(&self) -> Result<(Process, Vec<SocketAddr>, bool), OpenError> {
        // This very program, also where its file was replaced since by another version.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("headroom").env_clear();
        // Whoever gets into it finds no secret of ours there.
        command.envs(std::env::vars_os().filter(|(name, _)| {
            let name = name.to_string_lossy();
            ["RUST_LOG", "RUST_BACKTRACE", "TZ"].contains(&&*name) || name.starts_with("HEADROOM_")
        }));
        let level = tracing::level_filters::LevelFilter::current();
        if level >= tracing::level_filters::LevelFilter::INFO {
            command.arg(if level == tracing::level_filters::LevelFilter::INFO {
                "-v"
            } else {
                "-vv"
            });
        }
        let mut child = command
            .args(["gateway", "--launched"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(match self.own_log {
                true => Stdio::piped(),
                false => Stdio::inherit(),
            })
            .spawn()
            .context("the gateway's process cannot be started")?;
        if let Some(lines) = child.stderr.take() {
            pass_on(lines).context("the gateway's log cannot be passed on")?;
        }
        let answer = self.ask(&mut child);
        match answer {
            Ok(Report::Serving { listen, handed_over }) => {
                Ok((Process::of_child(child)?, listen, handed_over))
            }
            Ok(Report::Refused { key, why }) => {
                let _ = child.wait();
                Err(OpenError::Refused { key, why })
            }
            Err(error) => {
                let _ = child.kill();
                let how = child
                    .wait()
                    .map_or_else(|error| error.to_string(), |status| status.to_string());
                Err(error
                    .context(format!("the gateway's process ended ({how}) before it served"))
                    .into())
            }
        }
    }

    /// Sends a child its configuration; what it says.
    fn ask(&self, child: &mut Child) -> anyhow::Result<Report> {
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (mut stdin, stdout) = stdin.zip(stdout).context("it has no pipes")?;
        stdin.write_all(&serde_json::to_vec(&self.launch)?)?;
        drop(stdin);
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        serde_json::from_str(&line).map_err(|error| anyhow!("it answered {line:?}: {error}"))
    }
}

/// The longest line of a gateway's log that is passed on whole.
const MAX_LINE: u64 = 8 * 1024;

/// Writes a child's log where this process's goes, line by line: of a bounded length, and with nothing that a terminal would
/// take for a command, as whoever got into the gateway may have written it.
fn pass_on(log: impl Read + Send + 'static) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name("gateway-log".to_owned());
    thread.spawn(move || {
        let mut log = BufReader::new(log);
        let mut line = Vec::new();
        while let Ok(1..) = log.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            let text = String::from_utf8_lossy(&line);
            let plain: String = text.trim_end().chars().map(plain).collect();
            say::note!("{plain}");
            line.clear();
        }
    })?;
    Ok(())
}

fn plain(character: char) -> char {
    match character.is_control() && character != '\t' {
        true => char::REPLACEMENT_CHARACTER,
        false => character,
    }
}
