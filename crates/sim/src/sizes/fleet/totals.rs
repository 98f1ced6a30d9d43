//! What a period and a run come to.

use super::super::machine::SizesEnergy;
use crate::histogram::LatencyHistogram;
use headroom_control::{Decision, Observation};
use headroom_units::Seconds;

/// What the fleet did in a period.
#[derive(Clone, Debug)]
pub struct FleetStep<'a> {
    /// What the law was given.
    pub observation: &'a Observation,
    /// What it decided.
    pub decision: &'a Decision,
    /// What each machine drew in the period.
    pub energy: &'a [SizesEnergy],
}

/// What a run comes to for one group of routes.
#[derive(Clone, Debug)]
pub struct GroupTotals {
    /// Its name.
    pub name: String,
    /// Requests answered.
    pub completed: u64,
    /// Their content, bytes.
    pub bytes: f64,
    /// Their latency.
    pub latency: LatencyHistogram,
    /// Of these requests, those of each machine.
    pub machines: Vec<u64>,
}

/// What a run comes to for one machine.
#[derive(Clone, Debug)]
pub struct MachineTotals {
    /// Its kind.
    pub name: String,
    /// What it drew, by cause.
    pub energy: SizesEnergy,
    /// Requests that it answered.
    pub completed: u64,
    /// For how long it was on.
    pub on: Seconds,
}

/// What a run comes to.
#[derive(Clone, Debug)]
pub struct FleetTotals {
    /// Decisions.
    pub periods: u64,
    /// Requests that came.
    pub requests: u64,
    /// Those that were answered.
    pub completed: u64,
    /// Those that found no machine that takes requests.
    pub refused: u64,
    /// Those that were lost with the power of their machine.
    pub lost: u64,
    /// Those that are on their way at the end.
    pub in_flight: u64,
    /// From their arrival to the end of their answers, of all.
    pub latency: LatencyHistogram,
    /// By group of routes.
    pub groups: Vec<GroupTotals>,
    /// By machine.
    pub machines: Vec<MachineTotals>,
    /// Periods in which the SLO's percentile was over the target.
    pub periods_missed: u64,
}

impl FleetTotals {
    /// What all machines drew.
    pub fn energy(&self) -> SizesEnergy {
        let mut sum = SizesEnergy::default();
        self.machines.iter().for_each(|machine| sum += machine.energy);
        sum
    }
}
