//! Offline static estimation (Section 5.1): a benchmark under a rising load, once, and its result for ever.
//!
//! Section 7.4: the load rises linearly, the drop ratio is watched over a window of a minute, and once it violates the
//! service level the average throughput is called the capacity; ten such ramps are averaged.

use super::step::Step;
use super::{Capacity, Estimate};
use crate::decision::Reason;
use crate::parameter::{Bound, OutOfRange};
use headroom_units::{PerSecond, Seconds};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The most steps in a window.
const MAX_STEPS: usize = 4_096;

/// The parameters. The keys are those of the configuration file's `[capacity.ramp]` table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RampTuning {
    /// Seconds over which the drop ratio is taken. 60.
    pub window_s: f64,
    /// The drop ratio at which capacity is exceeded. 0.01.
    pub drop_ratio: f64,
}

impl Default for RampTuning {
    fn default() -> Self {
        Self {
            window_s: 60.0,
            drop_ratio: 0.01,
        }
    }
}

impl RampTuning {
    /// Checks every parameter's range.
    ///
    /// # Errors
    /// The first that is outside.
    pub fn check(&self) -> Result<(), OutOfRange> {
        Bound::Seconds(0.1, 3_600.0).check("window_s", self.window_s)?;
        Bound::Share.check("drop_ratio", self.drop_ratio)
    }
}

/// Why a ramp cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum RampError {
    /// The steps are so short that the window would hold too many.
    #[error(
        "the window of {window_s} s holds more than {MAX_STEPS} steps: sample less often, or shorten window_s"
    )]
    TooManySteps {
        /// Its length.
        window_s: f64,
    },
    /// A step's numbers cannot be.
    #[error("the benchmark's step cannot be used: {0}")]
    Step(super::unusable::Unusable),
}

/// One ramp of a benchmark, fed a step at a time.
#[derive(Clone, Debug)]
pub struct Ramp {
    tuning: RampTuning,
    window: VecDeque<Step>,
    found: Option<PerSecond>,
    /// The highest throughput of a full window so far.
    best: PerSecond,
}

impl Ramp {
    /// A ramp at its start.
    ///
    /// # Errors
    /// A parameter outside its range.
    pub fn new(tuning: RampTuning) -> Result<Self, OutOfRange> {
        tuning.check()?;
        Ok(Self {
            tuning,
            window: VecDeque::new(),
            found: None,
            best: PerSecond::ZERO,
        })
    }

    /// Takes one step: exact once the drop ratio over the window reaches its threshold (whatever follows), a lower bound
    /// before, unknown until a window is full.
    ///
    /// # Errors
    /// [`RampError`]
    pub fn step(&mut self, step: &Step) -> Result<Capacity, RampError> {
        if let Some(found) = self.found {
            return Ok(Capacity::Exact(found));
        }
        step.check().map_err(RampError::Step)?;
        if self.window.len() == MAX_STEPS {
            return Err(RampError::TooManySteps {
                window_s: self.tuning.window_s,
            });
        }
        self.window.push_back(*step);
        let length = |window: &VecDeque<Step>| window.iter().map(|one| one.length).sum::<Seconds>();
        // The shortest run of steps that still covers the window; a rounding is no step.
        let whole = Seconds::new(self.tuning.window_s * (1.0 - 1e-9));
        while self
            .window
            .front()
            .is_some_and(|first| length(&self.window) - first.length >= whole)
        {
            self.window.pop_front();
        }
        let covered = length(&self.window);
        if covered < whole {
            return Ok(Capacity::Unknown);
        }
        let sum = |of: fn(&Step) -> f64| self.window.iter().map(of).sum::<f64>();
        let (arrivals, drops) = (sum(|one| one.arrivals), sum(|one| one.drops));
        let throughput = PerSecond::new(sum(|one| one.accepts) / covered.get());
        if arrivals > 0.0 && drops / arrivals >= self.tuning.drop_ratio {
            self.found = Some(throughput);
            return Ok(Capacity::Exact(throughput));
        }
        self.best = self.best.max(throughput);
        Ok(Capacity::LowerBound(self.best))
    }
}

/// Mean and spread of several ramps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// How many ramps there were.
    pub ramps: usize,
    /// Their mean.
    pub mean: PerSecond,
    /// Their sample standard deviation; 0 for one.
    pub deviation: PerSecond,
    /// The lowest.
    pub least: PerSecond,
    /// The highest.
    pub most: PerSecond,
}

impl Spread {
    /// Of these results; `None` of none.
    pub fn of(found: &[PerSecond]) -> Option<Self> {
        let (least, most) = (
            found.iter().copied().reduce(PerSecond::min)?,
            found.iter().copied().reduce(PerSecond::max)?,
        );
        let mean = found.iter().copied().sum::<PerSecond>() / found.len() as f64;
        let squares = found.iter().map(|one| (*one - mean).get().powi(2)).sum::<f64>();
        let deviation = PerSecond::new((squares / (found.len() - 1).max(1) as f64).sqrt());
        Some(Self {
            ramps: found.len(),
            mean,
            deviation,
            least,
            most,
        })
    }
}

/// The estimator that a benchmark leaves behind: always the same answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StaticCapacity {
    capacity: PerSecond,
}

impl StaticCapacity {
    /// The capacity that was found, or is claimed.
    ///
    /// # Errors
    /// Where it is not above 0.
    pub fn new(capacity: PerSecond) -> Result<Self, OutOfRange> {
        Bound::Positive.check("capacity_per_s", capacity.get())?;
        Ok(Self { capacity })
    }

    /// The estimate, whatever happens.
    pub fn estimate(&self) -> Estimate {
        let now = self.capacity.get();
        Estimate::plain(
            Capacity::Exact(self.capacity),
            Reason::new(
                "static",
                format!("{now:.1}/s, as the benchmark found it, whatever happens"),
                &[("capacity_per_s", now)],
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(arrivals: f64, drops: f64) -> Step {
        Step {
            length: Seconds::new(1.0),
            limit: 128.0,
            queue_mean: Some(0.0),
            arrivals,
            accepts: arrivals - drops,
            drops,
            unasked: None,
            busy: None,
        }
    }

    const fn per_s(value: f64) -> PerSecond {
        PerSecond::new(value)
    }

    #[test]
    fn the_capacity_is_the_mean_throughput_of_the_minute_that_violates() {
        let mut ramp = Ramp::new(RampTuning::default()).unwrap();
        for second in 1..=59 {
            assert_eq!(ramp.step(&step(500.0, 0.0)), Ok(Capacity::Unknown), "{second}");
        }
        assert_eq!(
            ramp.step(&step(500.0, 0.0)),
            Ok(Capacity::LowerBound(per_s(500.0)))
        );
        // 100 more arrive each second, and 10 % are dropped: after six such seconds 360 of 30,600 arrivals, 1.18 %.
        for _ in 0..5 {
            let found = ramp.step(&step(600.0, 60.0)).unwrap();
            assert!(matches!(found, Capacity::LowerBound(_)), "{found:?}");
        }
        let expected = per_s((54.0 * 500.0 + 6.0 * 540.0) / 60.0);
        assert_eq!(ramp.step(&step(600.0, 60.0)), Ok(Capacity::Exact(expected)));
        assert_eq!(ramp.step(&step(10.0, 0.0)), Ok(Capacity::Exact(expected)));
    }

    #[test]
    fn a_window_of_too_many_steps_and_an_impossible_step_are_refused() {
        let mut ramp = Ramp::new(RampTuning::default()).unwrap();
        let short = Step {
            length: Seconds::new(0.001),
            ..step(1.0, 0.0)
        };
        let error = (0..MAX_STEPS + 1).find_map(|_| ramp.step(&short).err()).unwrap();
        assert!(error.to_string().contains("sample less often"), "{error}");
        let mut ramp = Ramp::new(RampTuning::default()).unwrap();
        let more = Step {
            drops: 2.0,
            ..step(1.0, 0.0)
        };
        let error = ramp.step(&more).unwrap_err().to_string();
        assert!(error.contains("2 drops of 1 arrivals"), "{error}");
    }

    #[test]
    fn mean_and_spread_of_ten_ramps() {
        let found: Vec<PerSecond> = (0..10).map(|at| per_s(590.0 + f64::from(at))).collect();
        let spread = Spread::of(&found).unwrap();
        assert_eq!(
            (spread.mean, spread.least, spread.most),
            (per_s(594.5), per_s(590.0), per_s(599.0))
        );
        assert!((spread.deviation.get() - (82.5f64 / 9.0).sqrt()).abs() < 1e-9);
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&found[..1]).unwrap().deviation, PerSecond::ZERO);
    }

    #[test]
    fn the_static_estimate_never_changes() {
        let estimate = StaticCapacity::new(per_s(595.0)).unwrap().estimate();
        assert_eq!(estimate.capacity, Capacity::Exact(per_s(595.0)));
        assert!(StaticCapacity::new(PerSecond::ZERO).is_err());
    }
}
