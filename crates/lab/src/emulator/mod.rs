//! Emulated hardware in a process of its own: this program again, as `headroom emulate --worker`. It is watched, and
//! started again where it dies; where this program dies, however that happens, it takes everything away and ends.

mod clear_leftovers;
mod worker;

pub use clear_leftovers::{REMAINS, demo_folder, parts_of, server_folder, take_and_clear};
pub use worker::work;

use anyhow::{Context, bail};
use headroom_node::Roots;
use headroom_testbed::hardware::{HardwareConfig, detach_dead, recover};
use headroom_units::Cores;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a worker prints when its tree can be used.
const READY: &str = "ready";
/// How long a worker may take until its tree can be used.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// What a mount point's name is followed by in that of its undo record.
const RECORD: &str = ".undo.json";
/// How often it is looked whether the worker lives: the most that a service stays slowed after its emulator died.
const WATCH: Duration = Duration::from_millis(50);
/// How long a worker may take to end by itself, and one that is stopped before its tree could be used.
const END_WITHIN: Duration = Duration::from_secs(5);
const END_UNREADY_WITHIN: Duration = Duration::from_secs(1);
/// A worker that died so often within [`DEATHS_WITHIN`] is not started again.
const MAX_DEATHS: usize = 5;
const DEATHS_WITHIN: Duration = Duration::from_secs(60);

/// What is emulated, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct EmulatorOptions {
    /// The machine.
    pub hardware: HardwareConfig,
    /// The mount point: in the place of `/sys`.
    pub at: PathBuf,
    /// Control groups that the emulated machine has from the start.
    pub groups: Vec<String>,
    /// The real control group that holds the emulated ones, and the one it is made in; nothing where nothing is to be
    /// slowed.
    pub real: Option<(String, String)>,
}

impl EmulatorOptions {
    /// The trees in the place of `/sys` and `/proc`.
    pub fn roots(&self) -> Roots {
        Roots::at(&self.at, self.at.join("headroom-testbed/proc"))
    }

    /// The record of what was changed in real control groups: beside the mount point.
    pub fn record(&self) -> PathBuf {
        record_of(&self.at)
    }

    /// One line about the machine.
    pub fn describe(&self) -> String {
        let HardwareConfig {
            packages,
            cores_per_package,
            frequency,
            ..
        } = &self.hardware;
        format!(
            "an emulated server of {packages} x {cores_per_package} cores, {:.1} to {:.1} GHz{}",
            frequency.min.get() / 1e9,
            frequency.max.get() / 1e9,
            match (&self.real, self.hardware.real_cores) {
                (None, _) => ", figures only: nothing is slowed".to_owned(),
                (Some(_), Some(cores)) => format!(", for which {:.2} real cores stand", cores.get()),
                (Some(_), None) => String::new(),
            }
        )
    }
}

/// The real cores that stand for an emulated server where nobody says how many: the rest is for the gateway and the load
/// generator, which run on this machine too.
pub fn default_real_cores() -> Cores {
    let cpus = std::thread::available_parallelism().map_or(1.0, |cpus| cpus.get() as f64);
    Cores::new(cpus * 0.6)
}

fn record_of(at: &Path) -> PathBuf {
    let mut record = at.as_os_str().to_owned();
    record.push(RECORD);
    record.into()
}

/// Takes away by hand what an emulator that was killed, and whose parent was killed too, left: its mount, its control
/// groups and their limits. The answer says what, a line each.
///
/// # Errors
/// An emulator that still runs; a mount or a group that cannot be taken away.
pub fn clean(at: &Path) -> anyhow::Result<Vec<String>> {
    let mut done = Vec::new();
    let recovered = recover(&record_of(at))?;
    let removed = recovered.removed.iter();
    done.extend(removed.map(|dir| format!("removed {}", dir.display())));
    if !recovered.moved.is_empty() {
        done.push(format!(
            "moved {} processes to the group above",
            recovered.moved.len()
        ));
    }
    if detach_dead(at)? {
        done.push(format!("detached {}", at.display()));
    }
    Ok(done)
}

/// An emulator that runs. Dropped, it takes away everything it made.
#[derive(Debug)]
pub struct Emulator {
    options: EmulatorOptions,
    shared: Arc<Shared>,
    watcher: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    stopping: bool,
    worker: Option<Worker>,
    given_up: Option<String>,
}

#[derive(Debug)]
struct Worker {
    child: Child,
    /// Closing it ends the worker, as does the death of this process.
    input: Option<ChildStdin>,
    /// Its tree can be used.
    ready: bool,
}

/// How a worker is started.
type Program = fn(&EmulatorOptions) -> anyhow::Result<Command>;

impl Emulator {
    /// Starts it and waits until its tree can be used.
    ///
    /// # Errors
    /// A machine without `/dev/fuse` or without rights, a mount point in use: with the worker's own words.
    pub fn start(options: EmulatorOptions) -> anyhow::Result<Self> {
        Self::start_as(options, this_program)
    }

    fn start_as(options: EmulatorOptions, program: Program) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared::default());
        shared.start_worker(&options, program)?;
        let mut emulator = Self {
            options: options.clone(),
            shared: Arc::clone(&shared),
            watcher: None,
        };
        let watcher = std::thread::Builder::new()
            .name("emulator".to_owned())
            .spawn(move || watch(&options, program, &shared))?;
        emulator.watcher = Some(watcher);
        Ok(emulator)
    }

    /// The trees in the place of `/sys` and `/proc`.
    pub fn roots(&self) -> Roots {
        self.options.roots()
    }

    /// What is emulated, and where.
    pub fn options(&self) -> &EmulatorOptions {
        &self.options
    }

    /// The process behind it; one that is started again has another.
    pub fn pid(&self) -> Option<u32> {
        self.shared.lock().worker.as_ref().map(|worker| worker.child.id())
    }

    /// Why it is not started again, where it is not.
    pub fn given_up(&self) -> Option<String> {
        self.shared.lock().given_up.clone()
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let worker = {
            let mut state = self.shared.lock();
            state.stopping = true;
            state.worker.take()
        };
        if let Some(watcher) = self.watcher.take() {
            // It has nothing to say.
            let _ = watcher.join();
        }
        if let Some(worker) = worker {
            let within = if worker.ready {
                END_WITHIN
            } else {
                END_UNREADY_WITHIN
            };
            worker.end(within);
        }
        match clean(&self.options.at) {
            Ok(done) => done
                .iter()
                .for_each(|line| tracing::warn!("left by the emulator: {line}")),
            Err(error) => tracing::error!("the emulated hardware could not be taken away: {error:#}"),
        }
    }
}

/// Starts the worker again where it dies: the next one lifts what the last one limited, and takes the groups over.
fn watch(options: &EmulatorOptions, program: Program, shared: &Shared) {
    let mut deaths: Vec<Instant> = Vec::new();
    loop {
        std::thread::sleep(WATCH);
        let status = {
            let mut state = shared.lock();
            if state.stopping {
                return;
            }
            let Some(worker) = state.worker.as_mut() else {
                return;
            };
            let Ok(Some(status)) = worker.child.try_wait() else {
                continue;
            };
            status
        };
        deaths.retain(|death| death.elapsed() < DEATHS_WITHIN);
        deaths.push(Instant::now());
        tracing::warn!("the emulated hardware died ({status}); it is started again, without any limit");
        let again = match deaths.len() {
            ..=MAX_DEATHS => shared.start_worker(options, program),
            deaths => Err(anyhow::anyhow!(
                "it died {deaths} times within {} s",
                DEATHS_WITHIN.as_secs()
            )),
        };
        if let Err(error) = again {
            let mut state = shared.lock();
            if state.stopping {
                return;
            }
            state.worker = None;
            state.given_up = Some(format!("{error:#}"));
            drop(state);
            tracing::error!("the emulated hardware is not started again: {error:#}");
            match clean(&options.at) {
                Ok(done) => done.iter().for_each(|line| tracing::warn!("{line}")),
                Err(error) => tracing::error!("{error:#}"),
            }
            return;
        }
    }
}

/// This program, as a worker.
fn this_program(options: &EmulatorOptions) -> anyhow::Result<Command> {
    let program = std::env::current_exe().context("this program's own file cannot be found")?;
    let mut command = Command::new(program);
    command
        .args(["emulate", "--worker", "--at"])
        .arg(&options.at)
        .arg("--hardware-json")
        .arg(serde_json::to_string(&options.hardware)?);
    for group in &options.groups {
        command.args(["--group", group]);
    }
    match &options.real {
        Some((name, parent)) => command.args(["--name", name, "--parent", parent]),
        None => command.arg("--figures-only"),
    };
    Ok(command)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a worker and waits until its tree can be used. The state is not locked while it waits, and the worker is in it
    /// from the start, so that whoever stops the emulator can end it.
    ///
    /// # Errors
    /// A worker that cannot be started or is not ready in time; an emulator that was stopped meanwhile.
    fn start_worker(&self, options: &EmulatorOptions, program: Program) -> anyhow::Result<()> {
        let (worker, output) = Worker::spawn(options, program)?;
        let mut state = self.lock();
        if state.stopping {
            drop(state);
            worker.end(END_UNREADY_WITHIN);
            bail!("the emulated hardware was stopped")
        }
        state.worker = Some(worker);
        drop(state);
        let why = match self.until_ready(output) {
            Ok(()) => return Ok(()),
            Err(why) => why,
        };
        // Nobody's, where the emulator was stopped: it is ended there.
        let worker = self.lock().worker.take();
        let killed = worker.is_some_and(|worker| worker.end(END_UNREADY_WITHIN));
        if killed && let Err(error) = clean(&options.at) {
            tracing::error!("what it had made could not be taken away: {error:#}");
        }
        Err(why)
    }

    fn until_ready(&self, output: ChildStdout) -> anyhow::Result<()> {
        let (said, hears) = std::sync::mpsc::channel();
        std::thread::Builder::new()
            .name("emulator-ready".to_owned())
            .spawn(move || {
                let mut line = String::new();
                let _ = BufReader::new(output).read_line(&mut line);
                let _ = said.send(line);
            })?;
        let until = Instant::now() + READY_WITHIN;
        loop {
            let heard = hears.recv_timeout(WATCH);
            let mut state = self.lock();
            let Some(worker) = state.worker.as_mut() else {
                bail!("the emulated hardware was stopped")
            };
            match heard {
                Ok(line) if line.trim() == READY => {
                    worker.ready = true;
                    return Ok(());
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < until => {}
                Err(RecvTimeoutError::Timeout) => bail!(
                    "the emulated hardware was not ready within {} s",
                    READY_WITHIN.as_secs()
                ),
                Ok(_) | Err(RecvTimeoutError::Disconnected) => {
                    bail!("the emulated hardware could not be started; its own message stands above")
                }
            }
        }
    }
}

impl Worker {
    /// A worker that has just been started, and its standard output.
    fn spawn(options: &EmulatorOptions, program: Program) -> anyhow::Result<(Self, ChildStdout)> {
        if let Some(parent) = options.at.parent() {
            fs::create_dir_all(parent)
                .with_context(|| format!("cannot make {}: choose another --at", parent.display()))?;
        }
        let mut child = program(options)?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Signals of the terminal are for this process: it ends the worker when nobody needs it any more.
            .process_group(0)
            .spawn()
            .context("the emulated hardware could not be started")?;
        let output = child
            .stdout
            .take()
            .context("the emulated hardware has no standard output")?;
        let worker = Self {
            input: child.stdin.take(),
            child,
            ready: false,
        };
        Ok((worker, output))
    }

    /// Asks it to end, and kills it where it has not after so long; whether it had to be killed.
    fn end(mut self, within: Duration) -> bool {
        drop(self.input.take());
        let until = Instant::now() + within;
        while Instant::now() < until {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(dir: &Path) -> EmulatorOptions {
        EmulatorOptions {
            hardware: HardwareConfig::default(),
            at: dir.join("sys"),
            groups: Vec::new(),
            real: None,
        }
    }

    /// Ready and dead at once the first time; never ready, and deaf, each time after it.
    fn dies_and_hangs(options: &EmulatorOptions) -> anyhow::Result<Command> {
        let script =
            "[ -e \"$0.first\" ] && { : > \"$0.second\"; exec sleep 60; }; : > \"$0.first\"; echo ready";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(&options.at);
        Ok(command)
    }

    #[test]
    fn an_emulator_that_is_started_again_and_hangs_is_stopped_long_before_it_had_to_be_ready() {
        let dir = tempfile::tempdir().unwrap();
        let emulator = Emulator::start_as(options(dir.path()), dies_and_hangs).unwrap();
        let second = dir.path().join("sys.second");
        let until = Instant::now() + Duration::from_secs(60);
        while !second.exists() {
            assert!(Instant::now() < until, "it is not started again");
            std::thread::sleep(Duration::from_millis(10));
        }
        let hanging = emulator.pid().expect("it is known while it starts");
        let began = Instant::now();
        drop(emulator);
        assert!(began.elapsed() < READY_WITHIN / 2, "{:?}", began.elapsed());
        assert!(!Path::new(&format!("/proc/{hanging}")).exists(), "it is killed");
    }

    #[test]
    fn one_that_cannot_be_started_is_an_error_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let error = Emulator::start_as(options(dir.path()), |_| Ok(Command::new("false"))).unwrap_err();
        assert!(error.to_string().contains("could not be started"), "{error}");
    }
}
