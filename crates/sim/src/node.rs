//! One node: a processor-sharing server with a power state, a frequency, a cap and a meter.

use crate::capping::{Capping, Governor, Happened};
use crate::drawn::Drawn;
use crate::energy::EnergyByCause;
use crate::power::{Draw, Level, NodeModel};
use crate::scenario::{NodeGroup, Parking};
use crate::server::{Job, Server};
use headroom_control::{Allocation, NodeCapacity};
use headroom_physics::expected::{Load, idle_power_at};
use headroom_physics::{CoreTracker, MachineFigures, Placement};
use headroom_units::{Cores, Hertz, Joules, PerSecond, Seconds, Watts};
use serde::{Deserialize, Serialize};

/// Whether a node serves, and what it draws for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// It is on, and gets requests.
    On,
    /// It is on, finishes what it has, and gets no more.
    Draining,
    /// It shuts down.
    ShuttingDown,
    /// It is switched off.
    Off,
    /// It boots.
    Booting,
    /// It has no power.
    Lost,
}

const STATES: usize = 6;

impl NodeState {
    /// Whether it has cores that work.
    pub const fn serves(self) -> bool {
        matches!(self, Self::On | Self::Draining)
    }
}

/// What a node did since its meter was last read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Metered {
    pub(crate) energy: EnergyByCause,
    pub(crate) busy_core_s: f64,
    pub(crate) allocated_core_s: f64,
    /// ∫ frequency dt, hertz-seconds, while it served.
    pub(crate) hertz_s: f64,
    pub(crate) serving_s: f64,
    /// While its cores were being stopped to hold a cap.
    pub(crate) throttled_s: f64,
}

/// Time in each state and work at each level: what the energy is checked against.
#[derive(Clone, Debug)]
struct Ledger {
    state_s: [f64; STATES],
    allocated_core_s: f64,
    busy_core_s: Vec<f64>,
    /// What a machine's idle cores and packages drew, by their tracker.
    idle: Joules,
}

/// The cores of a machine, one by one.
#[derive(Clone, Debug)]
struct Tracked {
    cores: CoreTracker,
    placement: Placement,
    parking: Parking,
    /// What the tracker had drawn when the meter was last brought up to date.
    mark: Drawn,
}

impl Tracked {
    fn new(machine: &MachineFigures, placement: Placement, parking: Parking, now_s: f64) -> Self {
        Self {
            cores: CoreTracker::new(machine, placement, now_s),
            placement,
            parking,
            mark: Drawn::default(),
        }
    }

    /// What was drawn since this was last asked.
    fn since(&mut self, now_s: f64) -> Drawn {
        Drawn::since(&mut self.cores, now_s, &mut self.mark)
    }

    /// The service runs on the first so many cores; the rest are parked as the node parks them.
    fn set_on(&mut self, now_s: f64, cores: f64) {
        let on = cores.ceil() as usize;
        match self.parking {
            Parking::Cpuset => self.cores.set_on(now_s, on),
            Parking::Offline => {
                self.cores.set_online(now_s, on);
                self.cores.set_on(now_s, on);
            }
        }
    }
}

/// Cores for which fewer real ones stand: what is known of them is how much they worked.
#[derive(Clone, Copy, Debug)]
struct Rated {
    wakeups_per_busy_s: f64,
    /// Busy cores, smoothed: no idle state is chosen by what one moment was like.
    busy: f64,
}

impl Rated {
    /// Time constant of that, seconds: that of the emulated hardware.
    const SMOOTHING_S: f64 = 0.1;

    /// What idle cores and packages drew while so much was worked, at a voltage over that at the highest frequency.
    fn drawn(&mut self, machine: &MachineFigures, dt_s: f64, busy_core_s: f64, voltage: f64) -> Drawn {
        if dt_s <= 0.0 {
            return Drawn::default();
        }
        let weight = 1.0 - (-dt_s / Self::SMOOTHING_S).exp();
        self.busy += (busy_core_s / dt_s - self.busy) * weight;
        let load = Load {
            busy: Cores::new(self.busy),
            wakeups: PerSecond::new(self.busy * self.wakeups_per_busy_s),
            on: machine.processor.cores,
        };
        let power = idle_power_at(machine, load, voltage);
        Drawn {
            running: Seconds::new(busy_core_s),
            idle: power.cores * Seconds::new(dt_s),
            packages: power.uncore * Seconds::new(dt_s),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) server: Server,
    pub(crate) model: NodeModel,
    pub(crate) capacity: NodeCapacity,
    pub(crate) boot_s: f64,
    pub(crate) shutdown_s: f64,
    pub(crate) state: NodeState,
    /// What the node was last told, as it reads back; it takes effect after its delay.
    pub(crate) told: Allocation,
    /// A boot or shutdown that was overtaken by something else has an older number.
    pub(crate) change: u32,
    pub(crate) capping: Capping,
    /// A fault: caps do nothing.
    cap_ignored: bool,
    /// A fault: the factor on its speed, 1 without.
    slowed: f64,
    own_speed: f64,
    cap_w: f64,
    ceiling: Level,
    level: Level,
    governor: Governor,
    /// Whether a cap is being held, so that levels are chosen at intervals.
    pub(crate) holding: bool,
    /// Whether the next such choice is on the agenda.
    pub(crate) hold_due: bool,
    /// Requests that arrived in this period.
    pub(crate) requests: u64,
    settled_s: f64,
    settled_busy_core_s: f64,
    observed: Observed,
    since_read: Metered,
    energy: EnergyByCause,
    ledger: Ledger,
    tracked: Option<Tracked>,
    rated: Option<Rated>,
}

/// Where the governor last looked.
#[derive(Clone, Copy, Debug, Default)]
struct Observed {
    at_s: f64,
    busy_core_s: f64,
    work_s: f64,
    energy_j: f64,
    work_j: f64,
}

impl Node {
    pub(crate) fn new(group: &NodeGroup, insensitive_share: f64) -> Self {
        let model = NodeModel::new(group, insensitive_share);
        let (boot_s, shutdown_s) = model.switch_times_s();
        let rated = group
            .quota
            .filter(|quota| quota.request_cores.is_some() && model.machine().is_some())
            .map(|quota| Rated {
                wakeups_per_busy_s: quota.wakeups_per_busy_s,
                busy: 0.0,
            });
        let tracked = model
            .machine()
            .filter(|_| rated.is_none())
            .map(|machine| Tracked::new(machine, group.placement, group.parking, 0.0));
        let capacity = group.capacity();
        let top = model.top();
        let levels = model.paces().len();
        Self {
            server: Server::new(group.cores, group.speed).held_by(group.quota),
            told: full(&capacity),
            capacity,
            boot_s,
            shutdown_s,
            state: NodeState::On,
            change: 0,
            capping: group.capping,
            cap_ignored: false,
            slowed: 1.0,
            own_speed: group.speed,
            cap_w: f64::INFINITY,
            ceiling: top,
            level: top,
            governor: Governor::default(),
            holding: false,
            hold_due: false,
            requests: 0,
            settled_s: 0.0,
            settled_busy_core_s: 0.0,
            observed: Observed::default(),
            since_read: Metered::default(),
            energy: EnergyByCause::default(),
            tracked,
            rated,
            ledger: Ledger {
                idle: Joules::ZERO,
                state_s: [0.0; STATES],
                allocated_core_s: 0.0,
                busy_core_s: vec![0.0; levels],
            },
            model,
        }
    }

    /// Lets time pass until `now_s`: where a quota stops and starts the cores meanwhile, their idle states follow.
    fn follow(&mut self, now_s: f64) {
        if let Some(tracked) = &mut self.tracked
            && self.state.serves()
        {
            let jobs = self.server.jobs();
            // Without a request nothing runs whatever the quota does.
            let mut until_s = match jobs {
                0 => f64::INFINITY,
                _ => self.server.running(jobs).1,
            };
            while until_s <= now_s {
                self.server.advance(until_s);
                let running = self.server.running(jobs);
                tracked.cores.run(until_s, running.0);
                until_s = running.1;
            }
        }
        self.server.advance(now_s);
    }

    /// As many cores run as the requests of now keep busy; how long the slowest of those woken took.
    fn run(&mut self, now_s: f64, jobs: usize) -> Seconds {
        let Some(tracked) = &mut self.tracked else {
            return Seconds::ZERO;
        };
        tracked.cores.run(now_s, self.server.running(jobs).0)
    }

    /// A request arrives; when the next one is done, and the request's size with the time for which it waited for a core
    /// to wake.
    #[inline]
    pub(crate) fn arrive(&mut self, now_s: f64, size_s: f64, job: Job) -> (f64, f64) {
        self.requests += 1;
        if self.tracked.is_none() {
            return (self.server.arrive(now_s, size_s, job), size_s);
        }
        self.follow(now_s);
        let woken = self.run(now_s, self.server.jobs() + 1);
        let speed = self.own_speed * self.slowed * self.model.at(self.level).speed;
        let size_s = size_s + woken.get() * speed;
        (self.server.arrive(now_s, size_s, job), size_s)
    }

    /// The request that is due is done; when the next one is.
    #[inline]
    pub(crate) fn complete(&mut self, now_s: f64) -> Option<(Job, f64)> {
        self.follow(now_s);
        let done = self.server.complete(now_s);
        self.run(now_s, self.server.jobs());
        done
    }

    /// All requests are lost: those that there were, and the work that remained to be done for them.
    pub(crate) fn lose(&mut self, now_s: f64) -> (Vec<Job>, f64) {
        self.settle(now_s);
        let lost = self.server.lose(now_s);
        self.run(now_s, 0);
        lost
    }

    /// Brings the meter up to `now_s`; to be called before anything changes that the power depends on.
    pub(crate) fn settle(&mut self, now_s: f64) {
        self.follow(now_s);
        let dt_s = now_s - self.settled_s;
        let busy_core_s = self.server.busy_core_s() - self.settled_busy_core_s;
        self.settled_s = now_s;
        self.settled_busy_core_s = self.server.busy_core_s();
        let pace = self.model.at(self.level);
        let idle = self.tracked.as_mut().map(|tracked| tracked.since(now_s));
        let dt = Seconds::new(dt_s);
        let mut drawn = EnergyByCause::default();
        match (self.state, &self.model.draw) {
            (NodeState::On | NodeState::Draining, Draw::Line(line)) => {
                drawn.work = Joules::new(pace.busy.get() * busy_core_s);
                drawn.idle_cores = Joules::new(line.static_per_core_w * self.server.cores() * dt_s);
                drawn.platform = Joules::new(line.base_w * dt_s);
            }
            (NodeState::On | NodeState::Draining, Draw::Machine(machine)) => {
                let idle = match &mut self.rated {
                    Some(rated) => rated.drawn(machine, dt_s, busy_core_s, pace.voltage),
                    None => idle.unwrap_or_default(),
                };
                drawn.work = Joules::new(pace.busy.get() * busy_core_s);
                // A core that a share of a core holds back is up, and idle in the shallowest state.
                let held_s = (idle.running.get() - busy_core_s).max(0.0);
                drawn.idle_cores = idle.idle + machine.processor.idle_states[0].power * Seconds::new(held_s);
                drawn.packages = idle.packages;
                drawn.platform = machine.platform * dt;
            }
            (state, draw) => {
                let (off_w, booting_w, shutting_down_w) = match draw {
                    Draw::Line(line) => (line.off_w, line.booting_w, line.shutting_down_w),
                    Draw::Machine(machine) => (
                        machine.server.off.get(),
                        machine.server.booting.get(),
                        machine.server.shutting_down.get(),
                    ),
                };
                match state {
                    NodeState::Off => drawn.off = Joules::new(off_w * dt_s),
                    NodeState::Booting => drawn.switching = Joules::new(booting_w * dt_s),
                    NodeState::ShuttingDown => drawn.switching = Joules::new(shutting_down_w * dt_s),
                    NodeState::On | NodeState::Draining | NodeState::Lost => {}
                }
            }
        }
        self.energy += drawn;
        self.ledger.state_s[self.state as usize] += dt_s;
        let read = &mut self.since_read;
        read.energy += drawn;
        if self.state.serves() {
            let allocated_core_s = self.server.cores() * dt_s;
            self.ledger.allocated_core_s += allocated_core_s;
            self.ledger.busy_core_s[self.level.0] += busy_core_s;
            self.ledger.idle += drawn.idle_cores + drawn.packages;
            read.busy_core_s += busy_core_s;
            read.allocated_core_s += allocated_core_s;
            read.hertz_s += pace.frequency.get() * dt_s;
            read.serving_s += dt_s;
            read.throttled_s += if pace.duty < 1.0 { dt_s } else { 0.0 };
        }
    }

    /// Reads the meter: what there was since the last reading.
    pub(crate) fn read(&mut self, now_s: f64) -> Metered {
        self.settle(now_s);
        if !self.holding {
            self.observe(now_s);
        }
        std::mem::take(&mut self.since_read)
    }

    /// All energy so far, joules.
    pub(crate) fn energy_j(&self) -> f64 {
        self.energy.total().get()
    }

    /// All energy, and the same from time in each state and work at each level.
    pub(crate) fn energy_both_ways_j(&self) -> (f64, f64) {
        let seconds = |state: NodeState| self.ledger.state_s[state as usize];
        let serving_s = seconds(NodeState::On) + seconds(NodeState::Draining);
        let ([shutting_down_w, off_w, booting_w], standing_j) = match &self.model.draw {
            Draw::Line(line) => (
                [line.shutting_down_w, line.off_w, line.booting_w],
                line.base_w * serving_s + line.static_per_core_w * self.ledger.allocated_core_s,
            ),
            Draw::Machine(machine) => (
                [
                    machine.server.shutting_down,
                    machine.server.off,
                    machine.server.booting,
                ]
                .map(Watts::get),
                machine.platform.get() * serving_s + self.ledger.idle.get(),
            ),
        };
        let states = shutting_down_w * seconds(NodeState::ShuttingDown)
            + off_w * seconds(NodeState::Off)
            + booting_w * seconds(NodeState::Booting);
        let levels = self.ledger.busy_core_s.iter().zip(self.model.paces());
        let busy: f64 = levels.map(|(core_s, pace)| core_s * pace.busy.get()).sum();
        (self.energy.total().get(), states + standing_j + busy)
    }

    fn observe(&mut self, now_s: f64) {
        let now = Observed {
            at_s: now_s,
            busy_core_s: self.server.busy_core_s(),
            work_s: self.server.work_s(),
            energy_j: self.energy.total().get(),
            work_j: self.energy.work.get(),
        };
        let before = std::mem::replace(&mut self.observed, now);
        let dt_s = now_s - before.at_s;
        if dt_s > 0.0 {
            self.governor.observe(
                &self.capping,
                dt_s,
                Happened {
                    cores: self.server.cores(),
                    busy: (now.busy_core_s - before.busy_core_s) / dt_s,
                    // In cores at this node's own full speed.
                    work: (now.work_s - before.work_s) / dt_s / (self.own_speed * self.slowed),
                    power_w: (now.energy_j - before.energy_j) / dt_s,
                    standing_w: (now.energy_j - now.work_j - before.energy_j + before.work_j) / dt_s,
                },
            );
        }
    }

    /// Chooses the level that cap and frequency limit leave, and puts `cores` in force; when the next request is done.
    fn regulate(&mut self, now_s: f64, cores: f64) -> f64 {
        self.settle(now_s);
        let need_w = self.model.most_w(cores, self.ceiling);
        self.holding = self.state.serves() && !self.cap_ignored && self.cap_w < need_w - 1e-9;
        self.level = if self.holding {
            self.observe(now_s);
            self.governor.choose(&self.model, self.cap_w, cores, self.ceiling)
        } else {
            self.ceiling
        };
        let pace = self.model.at(self.level);
        let due_s = self
            .server
            .set(now_s, cores, self.own_speed * self.slowed * pace.speed);
        if let Some(tracked) = &mut self.tracked
            && self.state.serves()
        {
            tracked.cores.set_voltage(now_s, pace.voltage);
            // A quota parks nobody: all cores may run, for part of the time.
            if !self.server.is_held() {
                tracked.set_on(now_s, cores);
            }
            self.run(now_s, self.server.jobs());
        }
        due_s
    }

    /// The time has come to choose a level again.
    pub(crate) fn hold_cap(&mut self, now_s: f64) -> f64 {
        self.regulate(now_s, self.server.cores())
    }

    pub(crate) fn set_cores(&mut self, now_s: f64, cores: f64) -> f64 {
        self.regulate(now_s, cores)
    }

    pub(crate) fn set_cap(&mut self, now_s: f64, cap_w: f64) -> f64 {
        self.cap_w = cap_w;
        self.regulate(now_s, self.server.cores())
    }

    /// Limits the frequency; `None` lifts the limit.
    pub(crate) fn set_frequency(&mut self, now_s: f64, limit: Option<Hertz>) -> f64 {
        self.ceiling = self.level_within(limit);
        self.regulate(now_s, self.server.cores())
    }

    pub(crate) fn set_cap_ignored(&mut self, now_s: f64, ignored: bool) -> f64 {
        self.cap_ignored = ignored;
        self.regulate(now_s, self.server.cores())
    }

    pub(crate) fn set_slowed(&mut self, now_s: f64, factor: f64) -> f64 {
        self.settle(now_s);
        self.slowed = factor;
        self.regulate(now_s, self.server.cores())
    }

    fn level_within(&self, limit: Option<Hertz>) -> Level {
        limit.map_or(self.model.top(), |limit| self.model.at_most(limit))
    }

    /// A frequency limit as the node has it: one of its own frequencies; `None` where it limits nothing.
    pub(crate) fn frequency_read_back(&self, limit: Option<Hertz>) -> Option<Hertz> {
        let level = self.level_within(limit);
        (level < self.model.top()).then(|| self.model.at(level).frequency)
    }

    /// Another state from now on.
    pub(crate) fn set_state(&mut self, now_s: f64, state: NodeState) {
        self.settle(now_s);
        if !self.state.serves()
            && state.serves()
            && let Some(tracked) = &mut self.tracked
            && let Some(machine) = self.model.machine()
        {
            *tracked = Tracked::new(machine, tracked.placement, tracked.parking, now_s);
        }
        self.state = state;
        self.change += 1;
        self.holding = false;
    }

    /// All cores and no limit, at once: as a node is after booting; when the next request is done.
    pub(crate) fn unlimit(&mut self, now_s: f64) -> f64 {
        self.told = full(&self.capacity);
        self.cap_w = f64::INFINITY;
        self.ceiling = self.model.top();
        self.governor = Governor::default();
        self.regulate(now_s, self.capacity.most.get())
    }
}

fn full(capacity: &NodeCapacity) -> Allocation {
    Allocation::new(capacity.most, capacity.power.limit(capacity.most))
}

/// What a node was like at the end of a period.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeOutcome {
    /// Its state.
    pub state: NodeState,
    /// Cores in force.
    pub cores: Cores,
    /// The cap that it was told last.
    pub cap: Watts,
    /// Requests that it was serving.
    pub in_flight: u64,
    /// Mean power in the period.
    pub power: Watts,
    /// Mean frequency in the period while it served; zero where it did not.
    pub frequency: Hertz,
}
