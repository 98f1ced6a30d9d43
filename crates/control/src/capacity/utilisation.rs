//! CPU-utilisation-based estimation (Section 5.2): throughput over utilisation is what a fully utilised CPU would serve.
//!
//! Kept as a baseline. It holds only where the CPU is the bottleneck: with requests that wait for a disk or a database
//! it overestimates without bound (Figure 10), and near saturation it forgets that the queue is limited.

use super::{Capacity, Estimate};
use crate::decision::Reason;
use crate::parameter::{Bound, OutOfRange};
use headroom_units::{PerSecond, Ratio, Seconds};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

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

/// The most readings in a window.
const MAX_READINGS: usize = 4_096;

/// What was read at the end of a sampling step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UtilisationReading {
    /// The time since the reading before.
    pub length: Seconds,
    /// Which counters these are: under another number they were started anew.
    pub identity: u64,
    /// Requests or connections served since the counters were started; `None` where it could not be read.
    pub served: Option<u64>,
    /// Share of the time for which the CPUs were not idle, since the reading before that had one; `None` where there is
    /// no new one.
    pub utilisation: Option<Ratio>,
}

/// Makes steps of readings, over a window: of a source that itself reads only now and then, such as an SNMP agent with a
/// cache of five seconds, a single interval shows nothing or twice as much.
#[derive(Clone, Debug)]
pub struct UtilisationMeter {
    window_s: f64,
    base: Option<UtilisationReading>,
    window: VecDeque<Interval>,
    /// Since the last reading with a utilisation.
    unknown_s: f64,
}

/// Between two readings.
#[derive(Clone, Copy, Debug)]
struct Interval {
    length_s: f64,
    served: f64,
    /// The utilisation, and the time that it is of.
    busy: Option<(f64, f64)>,
}

impl UtilisationMeter {
    /// A meter with a window of this length; 0 for the newest reading alone.
    ///
    /// # Errors
    /// A length outside its range.
    pub fn new(window: Seconds) -> Result<Self, OutOfRange> {
        Bound::Seconds(0.0, 3_600.0).check("window_s", window.get())?;
        Ok(Self {
            window_s: window.get(),
            base: None,
            window: VecDeque::new(),
            unknown_s: 0.0,
        })
    }

    /// Takes the newest reading.
    pub fn take(&mut self, reading: &UtilisationReading) -> UtilisationStep {
        let nothing = UtilisationStep {
            throughput: None,
            utilisation: None,
        };
        let length_s = reading.length.get();
        let before = self.base.replace(*reading);
        let usable = |before: &UtilisationReading| {
            before.identity == reading.identity && length_s > 0.0 && length_s.is_finite()
        };
        let served = |before: &UtilisationReading| reading.served?.checked_sub(before.served?);
        let Some(served) = before.filter(usable).as_ref().and_then(served) else {
            self.window.clear();
            self.unknown_s = 0.0;
            return nothing;
        };
        self.unknown_s += length_s;
        let busy = reading
            .utilisation
            .map(|busy| (busy.get(), std::mem::take(&mut self.unknown_s)));
        self.window.push_back(Interval {
            length_s,
            served: served as f64,
            busy,
        });
        let length = |window: &VecDeque<Interval>| window.iter().map(|one| one.length_s).sum::<f64>();
        while self.window.len() > MAX_READINGS
            || (self.window.len() > 1 && length(&self.window) - self.window[0].length_s >= self.window_s)
        {
            self.window.pop_front();
        }
        let whole_s = length(&self.window);
        // A window that is not full is none: a source that reads now and then has shown nothing yet.
        if whole_s < self.window_s {
            return nothing;
        }
        let served: f64 = self.window.iter().map(|one| one.served).sum();
        let (busy, of_s) = self
            .window
            .iter()
            .filter_map(|one| one.busy)
            .fold((0.0, 0.0), |sum, (busy, of_s)| {
                (sum.0 + busy * of_s, sum.1 + of_s)
            });
        UtilisationStep {
            throughput: Some(PerSecond::new(served / whole_s)),
            utilisation: (of_s > 0.0).then(|| Ratio::new(busy / of_s)),
        }
    }
}

/// The estimator: it remembers nothing.
#[derive(Clone, Copy, Debug)]
pub struct UtilisationEstimator {
    tuning: UtilisationTuning,
}

impl UtilisationEstimator {
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
        Estimate::plain(
            Capacity::Exact(PerSecond::new(capacity)),
            Reason::new("utilisation", text, &numbers),
        )
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
        }
        let estimator = UtilisationEstimator::new(UtilisationTuning::default()).unwrap();
        let unread = UtilisationStep {
            throughput: None,
            utilisation: Some(Ratio::new(0.5)),
        };
        assert_eq!(estimator.observe(&unread).reason.rule, "unread");
    }

    fn reading(identity: u64, served: Option<u64>, utilisation: Option<f64>) -> UtilisationReading {
        UtilisationReading {
            length: Seconds::new(1.0),
            identity,
            served,
            utilisation: utilisation.map(Ratio::new),
        }
    }

    #[test]
    fn a_reading_alone_is_its_difference_to_the_one_before() {
        let mut meter = UtilisationMeter::new(Seconds::ZERO).unwrap();
        let step = |throughput: Option<f64>, utilisation: Option<f64>| UtilisationStep {
            throughput: throughput.map(PerSecond::new),
            utilisation: utilisation.map(Ratio::new),
        };
        assert_eq!(meter.take(&reading(1, Some(100), None)), step(None, None));
        assert_eq!(
            meter.take(&reading(1, Some(160), Some(0.2))),
            step(Some(60.0), Some(0.2))
        );
        assert_eq!(meter.take(&reading(1, Some(170), None)), step(Some(10.0), None));
        // The counters were started anew, or went back: nothing is subtracted.
        assert_eq!(meter.take(&reading(2, Some(900), Some(0.2))), step(None, None));
        assert_eq!(meter.take(&reading(2, Some(800), Some(0.2))), step(None, None));
        assert_eq!(meter.take(&reading(2, None, Some(0.2))), step(None, None));
        assert_eq!(meter.take(&reading(2, Some(1_000), Some(0.2))), step(None, None));
        assert_eq!(
            meter.take(&reading(2, Some(1_030), Some(0.1))),
            step(Some(30.0), Some(0.1))
        );
        assert!(UtilisationMeter::new(Seconds::new(f64::NAN)).is_err());
    }

    /// An agent that reads every fifth second: 50 requests a second and 0.3 of the CPUs, of which it shows nothing four
    /// times and everything at the fifth.
    #[test]
    fn a_window_evens_out_what_a_cache_shows_in_jumps() {
        let mut meter = UtilisationMeter::new(Seconds::new(10.0)).unwrap();
        let mut last = Vec::new();
        for second in 0..40u64 {
            let fresh = second % 5 == 0;
            let step = meter.take(&reading(1, Some(second / 5 * 250), fresh.then_some(0.3)));
            last.push(step);
        }
        assert!(
            last[..10].iter().all(|step| step.throughput.is_none()),
            "the window fills"
        );
        for step in &last[10..] {
            assert_eq!(step.throughput, Some(PerSecond::new(50.0)), "{last:?}");
            assert!((step.utilisation.unwrap().get() - 0.3).abs() < 1e-12);
        }
    }

    #[test]
    fn a_parameter_outside_its_range_is_refused() {
        let tuning = UtilisationTuning {
            least_utilisation: 0.0,
        };
        assert!(UtilisationEstimator::new(tuning).is_err());
    }
}
