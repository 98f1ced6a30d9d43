//! An emulated server that can be switched off: its hardware, its wiki, its agent, and what it draws at the plug.

use super::super::wiki::Wiki;
use super::companion::Companion;
use super::hardware::CORES;
use crate::emulator::{Emulator, EmulatorOptions};
use anyhow::{Context, bail};
use headroom_node::switch::{PowerSwitch, SwitchError};
use headroom_physics::MachineFigures;
use headroom_sim::EnergyByCause;
use headroom_units::{Joules, Seconds, Watts};
use headroom_wire::Address;
use std::ffi::OsString;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The control group of the wiki on the emulated machine.
const GROUP: &str = "web";
/// Threads of the wiki that render: as many as the emulated server has cores.
const WORKERS: usize = CORES as usize;
const AGENT_WITHIN: Duration = Duration::from_secs(20);

/// What a server is made of.
#[derive(Clone, Debug)]
pub struct ServerPlan {
    /// Its name within its cluster.
    pub name: String,
    /// What it is emulated by, and where.
    pub emulator: EmulatorOptions,
    /// What it draws.
    pub figures: MachineFigures,
    /// What its wiki's pages cost: arguments of `headroom service wiki`.
    pub pages: Vec<String>,
    /// A folder that ends with the demo: the agent's socket and its record of what is to be put back.
    pub parts: PathBuf,
    /// A folder that stays: configurations and logs.
    pub kept: PathBuf,
}

/// An emulated server. Dropped, it takes everything away.
#[derive(Debug)]
pub struct Server {
    plan: ServerPlan,
    wiki: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    // Last: what runs on it ends first.
    emulator: Emulator,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Power {
    Off,
    Booting,
    On,
    ShuttingDown,
}

#[derive(Debug)]
struct State {
    wanted: bool,
    over: bool,
    power: Power,
    since: Instant,
    /// What was drawn before `since`.
    drawn: Counted,
    /// What the hardware had counted then, where it is on.
    counted: EnergyByCause,
    pids: Vec<u32>,
    pages: Vec<String>,
    trouble: Option<String>,
}

/// What a meter counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counted {
    /// Energy by its cause.
    pub energy: EnergyByCause,
    /// Time for which the server was on.
    pub on: Seconds,
}

impl Counted {
    /// With another server's.
    pub fn with(self, other: Self) -> Self {
        Self {
            energy: self.energy + other.energy,
            on: self.on + other.on,
        }
    }

    /// Since an earlier count.
    pub fn since(self, before: Self) -> Self {
        Self {
            energy: self.energy - before.energy,
            on: self.on - before.on,
        }
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    figures: MachineFigures,
    /// What the emulated hardware says of itself.
    truth: PathBuf,
}

impl Server {
    /// Starts it and begins to boot it.
    ///
    /// # Errors
    /// Hardware that cannot be emulated here, no free port, a folder that cannot be made.
    pub fn start(plan: ServerPlan) -> anyhow::Result<Self> {
        fs::create_dir_all(&plan.parts).with_context(|| plan.parts.display().to_string())?;
        let emulator = Emulator::start(EmulatorOptions {
            groups: vec![GROUP.to_owned()],
            ..plan.emulator.clone()
        })?;
        // Free until it is booted; nobody else is given it meanwhile.
        let wiki = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                wanted: true,
                over: false,
                power: Power::Off,
                since: Instant::now(),
                drawn: Counted::default(),
                counted: EnergyByCause::default(),
                pids: Vec::new(),
                pages: Vec::new(),
                trouble: None,
            }),
            changed: Condvar::new(),
            figures: plan.figures.clone(),
            truth: emulator.roots().sys.join("headroom-testbed/state"),
        });
        let theirs = Arc::clone(&shared);
        let of_thread = plan.clone();
        let thread = std::thread::Builder::new()
            .name(format!("server-{}", plan.name))
            .spawn(move || live(&of_thread, wiki, &theirs))?;
        Ok(Self {
            plan,
            wiki,
            shared,
            thread: Some(thread),
            emulator,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.plan.name
    }

    /// Where its wiki listens while it is on.
    pub fn wiki(&self) -> SocketAddr {
        self.wiki
    }

    /// Where its agent listens while it is on.
    pub fn agent(&self) -> Address {
        Address::Unix(socket(&self.plan))
    }

    /// Its processes.
    pub fn pids(&self) -> Vec<u32> {
        let mut pids = self.shared.lock().pids.clone();
        pids.extend(self.emulator.pid());
        pids
    }

    /// Waits until it is on; the paths of its wiki's pages.
    ///
    /// # Errors
    /// Why it does not boot.
    pub fn booted(&self, within: Duration) -> anyhow::Result<Vec<String>> {
        let until = Instant::now() + within;
        let mut state = self.shared.lock();
        loop {
            if let Some(why) = &state.trouble {
                bail!("{} does not boot: {why}", self.plan.name);
            }
            if state.power == Power::On {
                return Ok(state.pages.clone());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!("{} has not booted within {} s", self.plan.name, within.as_secs());
            }
            state = self
                .shared
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// What its service has used of its cores up to now.
    ///
    /// # Errors
    /// Where the file that says it cannot be read.
    pub fn core_time(&self) -> anyhow::Result<Seconds> {
        let stat = self
            .emulator
            .roots()
            .sys
            .join("fs/cgroup")
            .join(GROUP)
            .join("cpu.stat");
        let text = fs::read_to_string(&stat).with_context(|| stat.display().to_string())?;
        let used = text
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec ")?.parse::<f64>().ok());
        let micros = used.with_context(|| format!("{}: no usage_usec", stat.display()))?;
        Ok(Seconds::from_millis(micros / 1e3))
    }

    /// Its power switch.
    pub fn switch(&self) -> Switch {
        Switch(Arc::clone(&self.shared))
    }

    /// Its meter.
    pub fn meter(&self) -> Meter {
        Meter(Arc::clone(&self.shared))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
        // What cannot be removed is by the next demo.
        let _ = fs::remove_dir_all(&self.plan.parts);
    }
}

/// A server's power switch.
#[derive(Debug)]
pub struct Switch(Arc<Shared>);

impl PowerSwitch for Switch {
    fn on(&mut self) -> Result<(), SwitchError> {
        self.0.want(true);
        Ok(())
    }

    fn off(&mut self, _force: bool) -> Result<(), SwitchError> {
        self.0.want(false);
        Ok(())
    }

    fn state(&mut self) -> Result<Option<bool>, SwitchError> {
        let state = self.0.lock();
        Ok(Some(state.power != Power::Off || state.wanted))
    }
}

/// A server's meter at the plug: it counts whatever state the server is in.
#[derive(Clone, Debug)]
pub struct Meter(Arc<Shared>);

impl Meter {
    /// Everything drawn since the server was there; `None` while its hardware does not answer.
    pub fn counted(&self) -> Option<Counted> {
        let state = self.0.lock();
        self.0.drawn_by_now(&state)
    }

    /// What it draws now beside the processors and their memory, which caps are on: all of it where it is not on.
    pub fn beside_caps(&self) -> Watts {
        self.0.constant(self.0.lock().power)
    }

    /// Whether it is on.
    pub fn is_on(&self) -> bool {
        self.0.lock().power == Power::On
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn want(&self, on: bool) {
        let mut state = self.lock();
        state.wanted = on;
        state.trouble = None;
        drop(state);
        self.changed.notify_all();
    }

    /// What the processors and their memory have drawn, as the emulated hardware counts it.
    fn counted(&self) -> Option<EnergyByCause> {
        let text = fs::read_to_string(&self.truth).ok()?;
        let truth: serde_json::Value = serde_json::from_str(&text).ok()?;
        let part = |name: &str| truth["energy_by"][name].as_f64().map(Joules::new);
        Some(EnergyByCause {
            work: part("work")?,
            idle_cores: part("idle_cores")?,
            packages: part("packages")?,
            ..EnergyByCause::default()
        })
    }

    /// What a server draws whatever its processors do.
    fn constant(&self, power: Power) -> Watts {
        let server = &self.figures.server;
        match power {
            Power::Off => server.off,
            Power::Booting => server.booting,
            Power::ShuttingDown => server.shutting_down,
            Power::On => self.figures.platform,
        }
    }

    fn drawn_by_now(&self, state: &State) -> Option<Counted> {
        let length = Seconds::from(state.since.elapsed());
        let drawn = self.constant(state.power) * length;
        let mut since = Counted::default();
        match state.power {
            Power::Off => since.energy.off = drawn,
            Power::Booting | Power::ShuttingDown => since.energy.switching = drawn,
            Power::On => {
                let counted = self.counted()? - state.counted;
                // Less than before: hardware that was started anew counts from nothing.
                if counted.total() < Joules::ZERO {
                    return None;
                }
                since.energy = EnergyByCause {
                    platform: drawn,
                    ..counted
                };
                since.on = length;
            }
        }
        Some(state.drawn.with(since))
    }

    fn becomes(&self, power: Power) {
        let mut state = self.lock();
        // Where the hardware does not answer, what it drew since then is lost: the run says so when it reads the meter.
        state.drawn = self.drawn_by_now(&state).unwrap_or(state.drawn);
        state.since = Instant::now();
        if power == Power::On {
            state.counted = self.counted().unwrap_or_default();
        }
        state.power = power;
        drop(state);
        self.changed.notify_all();
    }
}

/// What runs on a server.
struct Services {
    // Ends first: it puts everything back.
    agent: Companion,
    wiki: Wiki,
}

fn socket(plan: &ServerPlan) -> PathBuf {
    plan.parts.join("agent.sock")
}

fn live(plan: &ServerPlan, wiki: SocketAddr, shared: &Shared) {
    let mut services: Option<Services> = None;
    // The first boot is the building of the cluster, and of no day.
    let mut boot = Duration::ZERO;
    loop {
        let mut state = shared.lock();
        while !state.over && state.wanted == services.is_some() {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.over {
            return;
        }
        let on = state.wanted;
        drop(state);
        if !on {
            let begun = Instant::now();
            shared.becomes(Power::ShuttingDown);
            shared.lock().pids.clear();
            drop(services.take());
            let least = Duration::from_secs_f64(plan.figures.server.shutdown.get());
            std::thread::sleep(least.saturating_sub(begun.elapsed()));
            shared.becomes(Power::Off);
            continue;
        }
        shared.becomes(Power::Booting);
        std::thread::sleep(boot);
        boot = Duration::from_secs_f64(plan.figures.server.boot.get());
        match start(plan, wiki) {
            Ok(started) => {
                let mut state = shared.lock();
                state.pids = started.agent.pids().into();
                state.pids.push(started.wiki.pid());
                state.pages.clone_from(&started.wiki.pages);
                drop(state);
                services = Some(started);
                shared.becomes(Power::On);
            }
            Err(why) => {
                tracing::warn!("{} does not boot: {why:#}", plan.name);
                let mut state = shared.lock();
                (state.wanted, state.trouble) = (false, Some(format!("{why:#}")));
                drop(state);
                shared.becomes(Power::Off);
            }
        }
    }
}

fn start(plan: &ServerPlan, address: SocketAddr) -> anyhow::Result<Services> {
    let sys = plan.emulator.roots().sys;
    let log = plan.kept.join(format!("wiki-{}.log", plan.name));
    let wiki = Wiki::serve(address, WORKERS, &plan.pages, Some(&log))?;
    let procs = sys.join("fs/cgroup").join(GROUP).join("cgroup.procs");
    fs::write(&procs, format!("{}\n", wiki.pid())).with_context(|| procs.display().to_string())?;
    let file = plan.kept.join(format!("agent-{}.toml", plan.name));
    fs::write(&file, configuration(plan)).with_context(|| file.display().to_string())?;
    let flag = |name: &str, value: &Path| [OsString::from(name), value.into()];
    let mut arguments: Vec<OsString> = vec!["agent".into()];
    arguments.extend(flag("--config", &file));
    arguments.extend(flag("--run-dir", &plan.parts.join("run")));
    arguments.extend(flag("--sys", &sys));
    arguments.extend(flag("--proc", &plan.emulator.roots().proc_));
    let log = plan.kept.join(format!("agent-{}.log", plan.name));
    let agent = Companion::start(&arguments, &log)?;
    agent.said("listening on ", AGENT_WITHIN)?;
    Ok(Services { agent, wiki })
}

/// The agent's configuration, which stays for whoever wants to read it.
fn configuration(plan: &ServerPlan) -> String {
    let socket = serde_json::Value::from(format!("unix:{}", socket(plan).display()));
    format!(
        "# The agent of an emulated server of `headroom demo`.\n[agent]\nlisten = [{socket}]\nname = \"{}\"\n\n[service]\n\
         cgroup = \"/{GROUP}\"\n",
        plan.name
    )
}
