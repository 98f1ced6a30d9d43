//! What a run comes to.

use super::counts::Counts;
use crate::energy::EnergyByCause;
use crate::histogram::LatencyHistogram;
use headroom_units::{Joules, Ratio, Seconds, Watts};
use serde::Serialize;

/// What one sample is over.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TiersSample {
    /// Its end, from the start of the run.
    pub at: Seconds,
    /// Users at its end.
    pub users: u32,
    /// What was counted in it.
    pub counts: Counts,
    /// Busy share of each tier's cores: front, application, database.
    pub utilisation: [Ratio; 3],
    /// Mean power of the machine.
    pub power: Watts,
    /// The machine's energy.
    pub energy: Joules,
}

impl TiersSample {
    /// Busy share of all tiers' cores together, each tier with as many.
    pub fn mean_utilisation(&self) -> Ratio {
        Ratio::new(
            self.utilisation.iter().map(|share| share.get()).sum::<f64>() / self.utilisation.len() as f64,
        )
    }
}

/// One tier over a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TierTotals {
    /// Requests that it served.
    pub requests: u64,
    /// Busy share of its cores.
    pub utilisation: f64,
    /// Requests at it, in the mean.
    pub mean_jobs: f64,
    /// Work done, seconds at the highest frequency.
    pub work_s: f64,
}

/// A run, from the end of its warm-up on.
#[derive(Clone, Debug)]
pub struct TiersTotals {
    /// What was counted.
    pub counts: Counts,
    /// From sent to answered.
    pub latency: LatencyHistogram,
    /// Each tier: front, application, database.
    pub tiers: [TierTotals; 3],
    /// The machine's energy by its cause.
    pub energy: EnergyByCause,
    /// The paper's own way, "estimated based on the configured frequency": all cores as if busy at the frequency in force, whatever
    /// they did. An estimate, never to be added to the energy.
    pub energy_by_frequency: Joules,
    /// Sample by sample, the warm-up's included.
    pub samples: Vec<TiersSample>,
    /// Decisions.
    pub periods: u64,
}

impl TiersTotals {
    /// Mean power.
    pub fn mean_power(&self) -> Watts {
        Watts::new(self.energy.total().get() / self.counts.length_s)
    }

    /// Energy over the requests answered.
    pub fn energy_per_request(&self) -> Joules {
        Joules::new(self.energy.total().get() / self.counts.completions as f64)
    }
}
