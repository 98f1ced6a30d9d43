//! What a control loop sets and reads: a device for each group of levers that belong together.

use super::telemetry::TrafficPeriod;
use super::tick::{BackendTick, Levers};
use headroom_control::resize::PowerState;
use headroom_control::{Decision, NodeObservation, OncallObservation, Plant};
use headroom_gateway::QueueCounts;
use headroom_units::{Cores, Hertz, Joules, Part, PerSecond, Ratio, Reading, Seconds, Setting, Watts};
use std::collections::BTreeMap;

/// Whatever has levers, and says what it sees once a period: a service's machine, many of them, servers with power switches.
pub trait Device {
    /// A run begins. Which meter its energy is of, with the zones that count, where it has one: while another answers, or others
    /// count, energy is unknown.
    fn begin(&mut self) -> Option<String> {
        None
    }

    /// Another plant than before, where more machines are known now than at the start.
    fn grown(&mut self) -> Option<Plant> {
        None
    }

    /// Adds what it saw since the last call to what the devices before it saw.
    fn observe(&mut self, period: &mut DevicePeriod);

    /// What is in force of its levers.
    fn in_force(&self) -> Setting;

    /// Puts a decision's values of its levers in force. What it does otherwise, and why, it writes into the decision.
    ///
    /// # Errors
    /// Where it refuses; what was in force before stays so as far as it lets.
    fn apply(&mut self, decision: &mut Decision) -> anyhow::Result<()>;
}

/// What the devices saw in one period. What could not be read is absent, never zero.
#[derive(Clone, Debug, Default)]
pub struct DevicePeriod {
    /// CPU time of the service.
    pub cpu_time: Option<Seconds>,
    /// Busy share of what could be used: of the allocated cores, or of the quota where a cap holds it lower. A cap
    /// that slows the processor down makes it busier in the same way.
    pub utilisation: Option<Ratio>,
    /// Mean power.
    pub power: Option<Reading<Watts>>,
    /// Energy.
    pub energy: Option<Reading<Joules>>,
    /// Share of the quota's periods in which the service was throttled.
    pub throttled: Option<Ratio>,
    /// Mean frequency.
    pub frequency: Option<Reading<Hertz>>,
    /// Which part of the machine the meter speaks of.
    pub zone: String,
    /// Readings that meters refused, for each node and its meter.
    pub refused: Vec<Refused>,
    /// What keeps the levers from being moved.
    pub levers: Levers,
    /// Whether a lever was not in force, or another one than at the start held the cap.
    pub levers_lost: bool,
    /// Nodes that could not be reached.
    pub missing: Missing,
    /// What the meter counts beside what caps are on, as the rest of a server at its plug, and servers that are off: it is allocated
    /// whatever the caps.
    pub beside_caps: Watts,
    /// Nodes that are off, boot or shut down as they were commanded: without an agent they are not missing.
    pub switched: BTreeMap<String, PowerState>,
    /// Requests that arrive at the whole cluster, where that is counted otherwise than by the telemetry.
    pub demand: Option<PerSecond>,
    /// Requests as a balancer counts them, for a run without other telemetry.
    pub traffic: Option<TrafficPeriod>,
    /// Requests that the telemetry counted, where it came.
    pub arrivals: Option<u64>,
    /// Over how long all that the telemetry counted was, where it tells: longer than the period where the one before was not whole.
    pub counted_over: Option<Seconds>,
    /// What the telemetry counted of each backend, where it came.
    pub backends: Vec<BackendTick>,
    /// What the telemetry counted of requests that found no backend with room, where it came and tells.
    pub queue: Option<QueueCounts>,
    /// The servers of a cluster that is resized, as its law is given them.
    pub nodes: Vec<NodeObservation>,
    /// The server on call.
    pub oncall: Option<OncallObservation>,
    /// The nodes and the balancer, for whoever records and shows them.
    pub parts: Vec<Part>,
}

impl DevicePeriod {
    /// The name of the part that is the whole cluster.
    pub const CLUSTER: &str = "cluster";

    /// The requests that the telemetry counted, a second, where it tells over how long.
    pub fn arrival_rate(&self) -> Option<PerSecond> {
        let over = self.counted_over.filter(|over| *over > Seconds::ZERO)?;
        Some(PerSecond::new(self.arrivals? as f64 / over.get()))
    }

    /// Adds what is said of a part to what was said of it before.
    pub fn add(&mut self, part: Part) {
        let same = |one: &&mut Part| (one.role, &one.name) == (part.role, &part.name);
        match self.parts.iter_mut().find(same) {
            Some(one) => one.join(part),
            None => self.parts.push(part),
        }
    }
}

/// Nodes of a run that could not be reached in a period: each counts as having everything on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Missing {
    /// How many.
    pub nodes: u64,
    /// All their cores.
    pub cores: Cores,
    /// What those can need.
    pub cap: Watts,
}

/// Readings of one node's meter that cannot be true and were left out, in one period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The node's name.
    pub node: String,
    /// The meter: `rapl`, `hwmon`.
    pub meter: String,
    /// How many.
    pub count: u64,
}
