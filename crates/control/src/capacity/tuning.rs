//! The parameters of queue monitoring.

use crate::parameter::{Bound, OutOfRange};
use serde::{Deserialize, Serialize};

/// Which queue monitoring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueKind {
    /// The paper's: Equations 1 to 5.
    Published,
    /// Ours: the rate of accepts while somebody waits.
    #[default]
    BusyTime,
}

/// The parameters of queue monitoring, by default the paper's where it prints them. The keys are those of the
/// configuration file's `[capacity.queue]` table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueTuning {
    /// Which of the two ways. "published", or "busy-time", which needs neither the limit, nor the forecast, nor alpha, nor the
    /// drop ratio.
    pub kind: QueueKind,
    /// K, the places of the accept queue. Where absent, what the observation says that the listener was given. 128 on
    /// the paper's servers, where the C library allowed no more.
    pub queue_limit: Option<u32>,
    /// T, seconds between two samples. 1. A sample that comes before half of it is joined with the next one (Figure 6:
    /// intervals between 0 and 2 s on an overloaded server); the equations take the length that a step really had.
    pub sampling_period_s: f64,
    /// The drop ratio at which capacity is exceeded. 0.01.
    pub drop_ratio: f64,
    /// T_c, seconds by which the queue length is forecast: the time that another server takes to start. 60, the
    /// start-up delay of Section 7.5.4 that is kept while the shutdown delay varies.
    pub forecast_s: f64,
    /// Alpha, the share of itself that an estimate keeps when it is adapted, from 0 to below 1. 0.9: the paper prints
    /// none.
    pub keep: f64,
    /// The highest plausible rate of connections, per second: a counter that moved faster did not count connections.
    /// 1,000,000.
    pub most_per_s: f64,
    /// Seconds for which the estimate is held when there is no usable observation; unknown after that. And, with
    /// "busy-time", for which a server may stand still at once without being taken for a slow one. 10.
    pub hold_s: f64,
    /// With "busy-time": seconds after which a capacity that nothing has confirmed since is stale. 5.
    pub stale_s: f64,
    /// With "busy-time": seconds after which a stale one, and what was served at least, are forgotten. 3600.
    pub forget_s: f64,
}

impl Default for QueueTuning {
    fn default() -> Self {
        Self {
            kind: QueueKind::BusyTime,
            queue_limit: None,
            sampling_period_s: 1.0,
            drop_ratio: 0.01,
            forecast_s: 60.0,
            keep: 0.9,
            most_per_s: 1e6,
            hold_s: 10.0,
            stale_s: 5.0,
            forget_s: 3_600.0,
        }
    }
}

impl QueueTuning {
    /// Checks every parameter's range.
    ///
    /// # Errors
    /// The first that is outside.
    pub fn check(&self) -> Result<(), OutOfRange> {
        if self.queue_limit == Some(0) {
            return Err(OutOfRange::new("queue_limit", 0.0, "1 or more"));
        }
        Bound::Seconds(0.001, 3_600.0).check("sampling_period_s", self.sampling_period_s)?;
        Bound::Share.check("drop_ratio", self.drop_ratio)?;
        Bound::Seconds(0.0, 3_600.0).check("forecast_s", self.forecast_s)?;
        Bound::BelowOne.check("keep", self.keep)?;
        Bound::Between(1.0, 1e9).check("most_per_s", self.most_per_s)?;
        Bound::Seconds(0.0, 3_600.0).check("hold_s", self.hold_s)?;
        Bound::Seconds(1.0, 86_400.0).check("stale_s", self.stale_s)?;
        Bound::Seconds(self.stale_s, 31.0 * 86_400.0).check("forget_s", self.forget_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::assert_refused;

    #[test]
    fn the_defaults_pass_and_what_is_outside_is_named() {
        assert_refused(
            QueueTuning::check,
            &[
                (r#"{"queue_limit": 0}"#, "queue_limit is 0"),
                (r#"{"sampling_period_s": 0}"#, "sampling_period_s is 0"),
                (r#"{"drop_ratio": 1.5}"#, "drop_ratio is 1.5"),
                (r#"{"forecast_s": -1}"#, "forecast_s is -1"),
                (r#"{"keep": 1}"#, "keep is 1:"),
                (r#"{"most_per_s": 0}"#, "most_per_s is 0"),
                (r#"{"hold_s": -1}"#, "hold_s is -1"),
                (r#"{"stale_s": 0}"#, "stale_s is 0"),
                (r#"{"forget_s": 4}"#, "forget_s is 4"),
            ],
        );
    }

    #[test]
    fn a_table_keeps_the_defaults_of_what_it_leaves_out_and_refuses_what_it_does_not_know() {
        let tuning: QueueTuning = serde_json::from_str(r#"{"queue_limit": 511, "keep": 0.5}"#).unwrap();
        assert_eq!((tuning.queue_limit, tuning.keep), (Some(511), 0.5));
        assert_eq!((tuning.drop_ratio, tuning.kind), (0.01, QueueKind::BusyTime));
        let tuning: QueueTuning = serde_json::from_str(r#"{"kind": "published"}"#).unwrap();
        assert_eq!(tuning.kind, QueueKind::Published);
        assert!(serde_json::from_str::<QueueTuning>(r#"{"alpha": 0.5}"#).is_err());
    }
}
