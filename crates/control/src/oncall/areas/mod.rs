//! Core areas: which connections' workers run on how many cores of their own, how fast, and how many of them at once.
//!
//! Source: REEF Sections 3.5, 4 and 5.1 (hot, warm and cold areas) \[F\]; that areas take the first cores in their order is ours \[D\].
//! [`AreaDecision`] is what the simulator's machine carries out; a server on call has no frequencies of single cores and no weights, and carries
//! out the rest. Laws that answer it are [`AreaLaw`]s: pure state machines like every law, beside the one that moves C, N and D, which
//! runs them. They take what they decided last to be in force.

mod cgroup;
mod demeter;
mod gaussian;
mod reef;
mod satori;
#[cfg(test)]
mod tests;

pub use cgroup::CgroupWeights;
pub use demeter::{DemeterStyle, DemeterTuning};
pub use reef::{ConsolidationTuning, QosConsolidation};
pub use satori::{SatoriError, SatoriStyle, SatoriTuning};

use super::policy::Connection;
use crate::decision::Reason;
use crate::observation::Observation;
use headroom_units::{Hertz, PerSecond};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Cores and the connections whose workers run there, and nowhere else.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CoreArea {
    /// Its name, such as `hot`.
    pub name: String,
    /// How many cores it has.
    pub cores: u32,
    /// Its connections, by id.
    pub connections: Vec<u64>,
    /// C of the area alone; `None`: as the lever of all says.
    pub workers: Option<u32>,
    /// The highest frequency of its cores; `None`: not limited.
    pub frequency: Option<Hertz>,
}

/// What an [`AreaLaw`] answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AreaDecision {
    /// The areas, the strictest first; each has the cores after those of the area before it, from core 0 on. Cores that are left over run
    /// nothing of the server. Without any, everybody runs on all cores. A connection that is in none runs in the last.
    pub areas: Vec<CoreArea>,
    /// `cpu.weight` of each thread of a class over that of the others, by the class's name; 1 where it is not named.
    pub weights: BTreeMap<String, f64>,
    /// Why; at least one.
    pub reasons: Vec<Reason>,
}

/// Areas that no machine can have.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AreaDecisionError {
    /// More cores than there are.
    #[error("the areas have {asked} cores together, and there are {cores}")]
    Cores {
        /// Those of all areas.
        asked: u64,
        /// Those of the machine.
        cores: u32,
    },
    /// Connections without a core.
    #[error("the area {0:?} has connections and no core: give it 1 or more")]
    NoCore(String),
    /// No worker may run.
    #[error("the area {0:?} may have 0 workers at once: give it 1 or more")]
    NoWorker(String),
    /// A connection that is in two areas.
    #[error("connection {0} is in two areas")]
    Twice(u64),
    /// A weight that is none.
    #[error("the weight of class {0:?} is {1}: it must be above 0 and finite")]
    Weight(String, f64),
}

impl AreaDecision {
    /// Everybody on all cores with the same weight.
    pub fn everywhere(reason: Reason) -> Self {
        Self {
            reasons: vec![reason],
            ..Self::default()
        }
    }

    /// The cores of each area, by number.
    pub fn cpusets(&self) -> Vec<Range<u32>> {
        let mut next = 0;
        let each = self.areas.iter().map(|area| {
            let first = next;
            next += area.cores;
            first..next
        });
        each.collect()
    }

    /// Whether a machine with so many cores can have these areas.
    ///
    /// # Errors
    /// [`AreaDecisionError`] with what cannot be.
    pub fn check(&self, cores: u32) -> Result<(), AreaDecisionError> {
        let asked: u64 = self.areas.iter().map(|area| u64::from(area.cores)).sum();
        if asked > u64::from(cores) {
            return Err(AreaDecisionError::Cores { asked, cores });
        }
        let mut known = BTreeSet::new();
        for (at, area) in self.areas.iter().enumerate() {
            let is_last = at + 1 == self.areas.len();
            if area.cores == 0 && (is_last || !area.connections.is_empty()) {
                return Err(AreaDecisionError::NoCore(area.name.clone()));
            }
            if area.workers == Some(0) {
                return Err(AreaDecisionError::NoWorker(area.name.clone()));
            }
            if let Some(id) = area.connections.iter().find(|id| !known.insert(**id)) {
                return Err(AreaDecisionError::Twice(*id));
            }
        }
        let bad = |weight: &f64| !(*weight > 0.0 && weight.is_finite());
        match self.weights.iter().find(|(_, weight)| bad(weight)) {
            Some((class, weight)) => Err(AreaDecisionError::Weight(class.clone(), *weight)),
            None => Ok(()),
        }
    }
}

/// A law that divides the cores of a server on call among its connections: a deterministic state machine, one call a period.
pub trait AreaLaw: Send {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Takes one period's observation and answers the areas of the next; `None` leaves them as they are.
    fn decide(&mut self, observation: &Observation) -> Option<AreaDecision>;
}

/// No areas: everybody runs everywhere, as a server alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoAreas;

impl AreaLaw for NoAreas {
    fn name(&self) -> &'static str {
        "no-areas"
    }

    fn decide(&mut self, _: &Observation) -> Option<AreaDecision> {
        None
    }
}

/// The connections of a period in two parts: those with an SLO and those without.
struct Parts<'a> {
    sensitive: Vec<&'a Connection>,
    best_effort: Vec<&'a Connection>,
    length_s: f64,
}

impl<'a> Parts<'a> {
    /// `None` where nothing is known of the server, or its period had no length.
    fn of(observation: &'a Observation) -> Option<Self> {
        let oncall = observation.oncall.as_ref()?;
        let length_s = observation.length.get();
        let (sensitive, best_effort) = oncall.each.iter().partition(|of| !of.slos.is_empty());
        (length_s > 0.0).then_some(Self {
            sensitive,
            best_effort,
            length_s,
        })
    }

    fn violates(&self) -> bool {
        self.sensitive.iter().any(|of| of.violates())
    }

    fn throughput(&self, of: &[&Connection]) -> PerSecond {
        let queries: u64 = of.iter().map(|of| of.queries).sum();
        PerSecond::new(queries as f64 / self.length_s)
    }

    fn best_effort_throughput(&self) -> PerSecond {
        self.throughput(&self.best_effort)
    }
}

/// The ids of connections.
fn ids(of: &[&Connection]) -> Vec<u64> {
    of.iter().map(|of| of.id).collect()
}
