//! Parameters of the law that seeks the interval of least cost.

use crate::batching::tuning::{LOOK_S, MOST_LOOK_S};
use crate::parameter::{Bound, OutOfRange, Parameters, refused, require};
use serde::Deserialize;

/// `[law.seek]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SeekTuning {
    /// The longest interval. The SLO's target, or the longest that the gateway holds requests for, where absent.
    pub max_interval_ms: Option<f64>,
    /// What trying other intervals may add to the response times, as a share of all response times so far. 0.01.
    pub budget: f64,
    /// What a percent of energy per request is worth, in percents of the mean response time; power counts where it is observed. 0.1.
    pub energy_weight: f64,
    /// The first interval that is tried while none is in force, as a share of the mean response time. 0.25.
    pub first_share: f64,
    /// The factor from one interval to the next. 1.6; near an optimum its root.
    pub ratio: f64,
    /// Periods after a change of the interval that are not counted, for what was in flight; two mean response times where these are more. 1.
    pub settle_periods: u32,
    /// The fewest periods that are then measured; four mean response times where these are more. 4.
    pub block_periods: u32,
    /// Standard errors by which an interval must be better to be taken, as for many measurements; of few more, and 0.8 more to hold
    /// requests at all. 2.2.
    pub significance: f64,
    /// What an interval must promise to be worth measuring further, as a share of the cost. 0.01.
    pub least_gain: f64,
    /// Measurements of an interval after which it is decided. 24.
    pub max_pairs: u32,
    /// Requests for the same in a batch, in the mean, below which there is nothing to group. 1.05.
    pub least_group: f64,
    /// Periods from one attempt that finds nothing to the next: 30, and twice as many after each, up to 1920; more, up to that, where
    /// blocks are longer.
    pub retry_periods: u32,
    /// The most of them.
    pub max_retry_periods: u32,
    /// Seconds without batches, now and then, to see whether what they save lasts; eight mean response times where these are more. 90; 0 for
    /// never.
    pub look_s: f64,
    /// Seed of the coin that says in which order two intervals are compared, and for how long. 1.
    pub seed: u64,
}

impl Default for SeekTuning {
    fn default() -> Self {
        Self {
            max_interval_ms: None,
            budget: 0.01,
            energy_weight: 0.1,
            first_share: 0.25,
            ratio: 1.6,
            settle_periods: 1,
            block_periods: 4,
            significance: 2.2,
            least_gain: 0.01,
            max_pairs: 24,
            least_group: 1.05,
            retry_periods: 30,
            max_retry_periods: 1_920,
            look_s: LOOK_S,
            seed: 1,
        }
    }
}

impl Parameters for SeekTuning {
    fn outside(&self) -> Vec<OutOfRange> {
        let (first, most) = (f64::from(self.retry_periods), f64::from(self.max_retry_periods));
        // Whoever writes the one alone may not know the other.
        let range =
            format!("between 1 and {most}, max_retry_periods, to which it doubles: or raise that too");
        let fits = (1.0..=most).contains(&first) || most < 1.0;
        refused([
            Bound::Between(LEAST_MS, MOST_MS)
                .check("max_interval_ms", self.max_interval_ms.unwrap_or(LEAST_MS)),
            Bound::Between(0.0001, 0.5).check("budget", self.budget),
            Bound::Between(0.0, 1.0).check("energy_weight", self.energy_weight),
            Bound::Share.check("first_share", self.first_share),
            Bound::Between(1.1, 4.0).check("ratio", self.ratio),
            Bound::Between(0.0, 100.0).check("settle_periods", f64::from(self.settle_periods)),
            Bound::Between(1.0, 1_000.0).check("block_periods", f64::from(self.block_periods)),
            Bound::Between(0.5, 10.0).check("significance", self.significance),
            Bound::Between(0.0, 0.5).check("least_gain", self.least_gain),
            Bound::Between(f64::from(MIN_PAIRS), 1_000.0).check("max_pairs", f64::from(self.max_pairs)),
            Bound::Between(0.0, MOST_LOOK_S).check("look_s", self.look_s),
            Bound::Between(1.0, 100.0).check("least_group", self.least_group),
            Bound::Between(1.0, 1e6).check("max_retry_periods", most),
            require("retry_periods", first, fits, range),
        ])
    }
}

/// The shortest interval that is not none, and the longest that anybody may ask for, in ms.
const LEAST_MS: f64 = super::LEAST_S * 1e3;
const MOST_MS: f64 = 3_600_000.0;

/// Measurements before anything is decided by them.
pub(super) const MIN_PAIRS: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::assert_refused;

    #[test]
    fn the_key_that_was_written_is_the_one_that_is_refused() {
        assert_refused(
            SeekTuning::check,
            &[
                (
                    r#"{"retry_periods": 4000}"#,
                    "retry_periods is 4000: it must be between 1 and 1920, max_retry_periods",
                ),
                (r#"{"max_retry_periods": 0}"#, "max_retry_periods is 0"),
                (r#"{"retry_periods": 0}"#, "retry_periods is 0"),
            ],
        );
    }
}
