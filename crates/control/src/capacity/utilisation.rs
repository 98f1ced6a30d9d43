//! CPU-utilisation-based estimation (Section 5.2): throughput over utilisation is what a fully utilised CPU would serve.
//!
//! Kept as a baseline. It holds only where the CPU is the bottleneck: with requests that wait for a disk or a database
//! it overestimates without bound (Figure 10), and near saturation it forgets that the queue is limited.

use super::{Capacity, Estimate};
use crate::decision::Reason;
use crate::parameter::{Bound, OutOfRange};
use headroom_units::{PerSecond, Ratio};
use serde::{Deserialize, Serialize};

/// The parameters. The keys are those of the configuration file's `[capacity.utilisation]` table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UtilisationTuning {
    /// The least utilisation that is divided by: below it, a few ticks of the kernel's clock decide. 0.01.
    pub least_utilisation: f64,
}

impl Default for UtilisationTuning {
    fn default() -> Self {
        Self {
            least_utilisation: 0.01,
        }
    }
}

impl UtilisationTuning {
    /// Checks every parameter's range.
    ///
    /// # Errors
    /// The first that is outside.
    pub fn check(&self) -> Result<(), OutOfRange> {
        Bound::Share.check("least_utilisation", self.least_utilisation)
    }
}

/// What one sampling step shows of throughput and CPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UtilisationStep {
    /// Requests or connections served each second; `None` where it could not be read.
    pub throughput: Option<PerSecond>,
    /// Share of the time for which the CPUs were not idle; `None` where it could not be read.
    pub utilisation: Option<Ratio>,
}

/// The estimator: it remembers nothing.
#[derive(Clone, Copy, Debug)]
pub struct UtilisationEstimator {
    tuning: UtilisationTuning,
}

impl UtilisationEstimator {
    /// All rules that an estimate's reason can name.
    pub const RULES: [&'static str; 4] = ["utilisation", "unread", "idle", "inconsistent"];

    /// An estimator.
    ///
    /// # Errors
    /// A parameter outside its range.
    pub fn new(tuning: UtilisationTuning) -> Result<Self, OutOfRange> {
        tuning.check()?;
        Ok(Self { tuning })
    }

    /// Takes one sampling step.
    pub fn observe(&self, step: &UtilisationStep) -> Estimate {
        let (Some(throughput), Some(utilisation)) = (step.throughput, step.utilisation) else {
            let text = "throughput or utilisation could not be read".to_owned();
            return Estimate::unknown("unread", text);
        };
        let (served, busy) = (throughput.get(), utilisation.get());
        // Ticks are counted for whole CPUs at slightly different times: a hundredth over 1 is still 1.
        if !(served >= 0.0 && served.is_finite() && (0.0..=1.01).contains(&busy)) {
            let text = format!("{served} requests/s at a utilisation of {busy} cannot be");
            return Estimate::unknown("inconsistent", text);
        }
        if busy < self.tuning.least_utilisation || served == 0.0 {
            let text = format!("{served:.1} requests/s at a utilisation of {busy:.4}: too idle to tell");
            return Estimate::unknown("idle", text);
        }
        let capacity = served / busy.min(1.0);
        let text = format!("{served:.1} requests/s at a utilisation of {busy:.3}: {capacity:.1}/s at 1");
        let numbers = [
            ("capacity_per_s", capacity),
            ("service_rate_per_s", served),
            ("utilisation", busy),
        ];
        Estimate {
            capacity: Capacity::Exact(PerSecond::new(capacity)),
            reason: Reason::new("utilisation", text, &numbers),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(throughput: f64, utilisation: f64) -> Estimate {
        let estimator = UtilisationEstimator::new(UtilisationTuning::default()).unwrap();
        estimator.observe(&UtilisationStep {
            throughput: Some(PerSecond::new(throughput)),
            utilisation: Some(Ratio::new(utilisation)),
        })
    }

    #[test]
    fn throughput_over_utilisation() {
        assert_eq!(
            estimate(150.0, 0.25).capacity,
            Capacity::Exact(PerSecond::new(600.0))
        );
        assert_eq!(
            estimate(595.0, 1.005).capacity,
            Capacity::Exact(PerSecond::new(595.0))
        );
    }

    #[test]
    fn what_says_nothing_gives_nothing() {
        for (throughput, utilisation, rule) in [
            (10.0, 0.005, "idle"),
            (0.0, 0.5, "idle"),
            (10.0, 1.5, "inconsistent"),
            (-1.0, 0.5, "inconsistent"),
            (f64::NAN, 0.5, "inconsistent"),
            (10.0, f64::NAN, "inconsistent"),
        ] {
            let estimate = estimate(throughput, utilisation);
            assert_eq!(
                (estimate.capacity, estimate.reason.rule.as_ref()),
                (Capacity::Unknown, rule)
            );
            assert!(UtilisationEstimator::RULES.contains(&rule));
        }
        let estimator = UtilisationEstimator::new(UtilisationTuning::default()).unwrap();
        let unread = UtilisationStep {
            throughput: None,
            utilisation: Some(Ratio::new(0.5)),
        };
        assert_eq!(estimator.observe(&unread).reason.rule, "unread");
    }

    #[test]
    fn a_parameter_outside_its_range_is_refused() {
        let tuning = UtilisationTuning {
            least_utilisation: 0.0,
        };
        assert!(UtilisationEstimator::new(tuning).is_err());
    }
}
