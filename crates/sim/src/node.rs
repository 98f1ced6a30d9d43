//! One node: a processor-sharing server with a power state, a frequency, a cap and a meter.

use crate::capping::{Capping, Governor};
use crate::power::{Level, PowerModel};
use crate::scenario::NodeGroup;
use crate::server::Server;
use headroom_control::{Allocation, NodeCapacity};
use headroom_units::{Cores, Hertz, Watts};
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
    pub(crate) energy_j: f64,
    pub(crate) busy_core_s: f64,
    pub(crate) allocated_core_s: f64,
    /// ∫ frequency dt, gigahertz-seconds, while it served.
    pub(crate) ghz_s: f64,
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
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) server: Server,
    pub(crate) model: PowerModel,
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
    settled_s: f64,
    settled_busy_core_s: f64,
    observed: Observed,
    since_read: Metered,
    energy_j: f64,
    ledger: Ledger,
}

/// Where the governor last looked.
#[derive(Clone, Copy, Debug, Default)]
struct Observed {
    at_s: f64,
    busy_core_s: f64,
    work_s: f64,
    energy_j: f64,
}

impl Node {
    pub(crate) fn new(group: &NodeGroup, insensitive_share: f64) -> Self {
        let model = PowerModel::new(group.power, insensitive_share);
        let capacity = group.capacity();
        let top = model.top();
        let levels = model.paces().len();
        Self {
            server: Server::new(group.cores, group.speed).held_by(group.quota),
            told: full(&capacity),
            capacity,
            boot_s: group.boot_s,
            shutdown_s: group.shutdown_s,
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
            settled_s: 0.0,
            settled_busy_core_s: 0.0,
            observed: Observed::default(),
            since_read: Metered::default(),
            energy_j: 0.0,
            ledger: Ledger {
                state_s: [0.0; STATES],
                allocated_core_s: 0.0,
                busy_core_s: vec![0.0; levels],
            },
            model,
        }
    }

    /// Watts apart from what busy cores draw.
    fn standing_w(&self) -> f64 {
        let figures = self.model.figures();
        match self.state {
            NodeState::On | NodeState::Draining => self.model.watts(self.server.cores(), 0.0, self.level),
            NodeState::ShuttingDown => figures.shutting_down_w,
            NodeState::Off => figures.off_w,
            NodeState::Booting => figures.booting_w,
            NodeState::Lost => 0.0,
        }
    }

    /// Brings the meter up to `now_s`; to be called before anything changes that the power depends on.
    pub(crate) fn settle(&mut self, now_s: f64) {
        self.server.advance(now_s);
        let dt_s = now_s - self.settled_s;
        let busy_core_s = self.server.busy_core_s() - self.settled_busy_core_s;
        self.settled_s = now_s;
        self.settled_busy_core_s = self.server.busy_core_s();
        let pace = self.model.at(self.level);
        let energy_j = self.standing_w() * dt_s + pace.dynamic_w * busy_core_s;
        self.energy_j += energy_j;
        self.ledger.state_s[self.state as usize] += dt_s;
        let read = &mut self.since_read;
        read.energy_j += energy_j;
        if self.state.serves() {
            let allocated_core_s = self.server.cores() * dt_s;
            self.ledger.allocated_core_s += allocated_core_s;
            self.ledger.busy_core_s[self.level.0] += busy_core_s;
            read.busy_core_s += busy_core_s;
            read.allocated_core_s += allocated_core_s;
            read.ghz_s += pace.ghz * dt_s;
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

    /// All energy, and the same from time in each state and work at each level.
    pub(crate) fn energy_both_ways_j(&self) -> (f64, f64) {
        let figures = self.model.figures();
        let seconds = |state: NodeState| self.ledger.state_s[state as usize];
        let states = figures.base_w * (seconds(NodeState::On) + seconds(NodeState::Draining))
            + figures.shutting_down_w * seconds(NodeState::ShuttingDown)
            + figures.off_w * seconds(NodeState::Off)
            + figures.booting_w * seconds(NodeState::Booting);
        let cores = figures.static_per_core_w * self.ledger.allocated_core_s;
        let levels = self.ledger.busy_core_s.iter().zip(self.model.paces());
        let busy: f64 = levels.map(|(core_s, pace)| core_s * pace.dynamic_w).sum();
        (self.energy_j, states + cores + busy)
    }

    fn observe(&mut self, now_s: f64) {
        let now = Observed {
            at_s: now_s,
            busy_core_s: self.server.busy_core_s(),
            work_s: self.server.work_s(),
            energy_j: self.energy_j,
        };
        let before = std::mem::replace(&mut self.observed, now);
        let dt_s = now_s - before.at_s;
        if dt_s > 0.0 {
            self.governor.observe(
                &self.capping,
                dt_s,
                self.server.cores(),
                (now.busy_core_s - before.busy_core_s) / dt_s,
                // In cores at this node's own full speed.
                (now.work_s - before.work_s) / dt_s / (self.own_speed * self.slowed),
                (now.energy_j - before.energy_j) / dt_s,
            );
        }
    }

    /// Chooses the level that cap and frequency limit leave, and puts `cores` in force; when the next request is done.
    fn regulate(&mut self, now_s: f64, cores: f64) -> f64 {
        self.settle(now_s);
        let need_w = self.model.watts(cores, cores, self.ceiling);
        self.holding = self.state.serves() && !self.cap_ignored && self.cap_w < need_w - 1e-9;
        self.level = if self.holding {
            self.observe(now_s);
            self.governor.choose(&self.model, self.cap_w, cores, self.ceiling)
        } else {
            self.ceiling
        };
        let speed = self.own_speed * self.slowed * self.model.at(self.level).speed;
        self.server.set(now_s, cores, speed)
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
        limit.map_or(self.model.top(), |limit| self.model.at_most(limit.get() / 1e9))
    }

    /// A frequency limit as the node has it: one of its own frequencies; `None` where it limits nothing.
    pub(crate) fn frequency_read_back(&self, limit: Option<Hertz>) -> Option<Hertz> {
        let level = self.level_within(limit);
        (level < self.model.top()).then(|| Hertz::new((self.model.at(level).ghz * 1e9).round()))
    }

    /// Another state from now on.
    pub(crate) fn set_state(&mut self, now_s: f64, state: NodeState) {
        self.settle(now_s);
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
