//! The parameters of cluster resizing.

use crate::parameter::{Bound, OutOfRange, Parameters, refused};
use serde::{Deserialize, Serialize};

/// The most servers of a cluster.
pub const MAX_SERVERS: usize = 4_096;

/// A day: the longest wait.
const DAY_S: f64 = 86_400.0;

/// The parameters of the static and the dynamic controller, by default the paper's. The keys are those of the
/// configuration file's `[resize]` table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ResizeTuning {
    /// The fewest servers that are on. 1.
    pub min_servers: usize,
    /// Seconds after a server began to take requests before the next change. 10.
    pub warm_up_s: f64,
    /// How many servers may be on their way at once. 1, for the paper changes the number by one and waits; more follow a
    /// steeper rise.
    pub starts_at_once: usize,
    /// The same while no server takes requests, or where several were lost at once: as many as took what came before are
    /// started together, and no more than this. 4096, as many as there are.
    pub starts_in_outage: usize,
    /// The share of the capacity that is kept free: safety against an estimate that is too high. 0, as in the paper.
    pub margin: f64,
    /// Seconds for which a server must have been one too many before it is turned off. 0, as in the paper.
    pub spare_for_s: f64,
    /// Seconds without any server's capacity after which all servers are turned on, for lost telemetry costs energy, never
    /// latency; where no guardian stands before the law, without the arrival rate too. 10.
    pub blind_s: f64,
}

impl Default for ResizeTuning {
    fn default() -> Self {
        Self {
            min_servers: 1,
            warm_up_s: 10.0,
            starts_at_once: 1,
            starts_in_outage: MAX_SERVERS,
            margin: 0.0,
            spare_for_s: 0.0,
            blind_s: 10.0,
        }
    }
}

impl Parameters for ResizeTuning {
    fn outside(&self) -> Vec<OutOfRange> {
        let servers =
            |key, servers: usize| Bound::Between(1.0, MAX_SERVERS as f64).check(key, servers as f64);
        let within_a_day = |key, value| Bound::Seconds(0.0, DAY_S).check(key, value);
        refused([
            servers("min_servers", self.min_servers),
            servers("starts_at_once", self.starts_at_once),
            servers("starts_in_outage", self.starts_in_outage),
            within_a_day("warm_up_s", self.warm_up_s),
            Bound::BelowOne.check("margin", self.margin),
            within_a_day("spare_for_s", self.spare_for_s),
            within_a_day("blind_s", self.blind_s),
        ])
    }
}

/// The time limits of a server's power states. The keys are those of the configuration file's `[power]` table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PowerTuning {
    /// Seconds after which a server that was powered on and does not answer has failed to boot. 300.
    pub boot_timeout_s: f64,
    /// Seconds between its first answer and its counting as warm. 10, the paper's.
    pub warm_up_s: f64,
    /// Seconds without an answer after which a server that served has failed. 10.
    pub lost_s: f64,
    /// Seconds after which a draining server is stopped although it still has connections. 60.
    pub drain_timeout_s: f64,
    /// Seconds for which a server that was drained stays powered, so that it can come back at once: a trial of doing without it.
    /// Without it those of the law: `law.elastic.trial_s`, and 0, the paper's, of the other laws.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drained_for_s: Option<f64>,
    /// Seconds that a shutdown takes where nobody can say whether the power is off. 60, the paper's shutdown delay.
    pub shutdown_s: f64,
    /// Seconds after which a server that is said to be still powered has failed to stop. 300.
    pub stop_timeout_s: f64,
    /// Seconds before the first retry after a failure; each further failure doubles them. 30.
    pub backoff_s: f64,
    /// The most seconds before a retry. 3600.
    pub backoff_most_s: f64,
    /// Seconds of service after which earlier failures are forgotten. 300.
    pub forgive_s: f64,
}

impl Default for PowerTuning {
    fn default() -> Self {
        Self {
            boot_timeout_s: 300.0,
            warm_up_s: 10.0,
            lost_s: 10.0,
            drain_timeout_s: 60.0,
            drained_for_s: None,
            shutdown_s: 60.0,
            stop_timeout_s: 300.0,
            backoff_s: 30.0,
            backoff_most_s: 3_600.0,
            forgive_s: 300.0,
        }
    }
}

impl PowerTuning {
    /// Checks every parameter's range.
    ///
    /// # Errors
    /// The first that is outside.
    pub fn check(&self) -> Result<(), OutOfRange> {
        let from_nothing = Bound::Seconds(0.0, DAY_S);
        let some_time = Bound::Seconds(1.0, DAY_S);
        some_time.check("boot_timeout_s", self.boot_timeout_s)?;
        from_nothing.check("warm_up_s", self.warm_up_s)?;
        from_nothing.check("lost_s", self.lost_s)?;
        from_nothing.check("drain_timeout_s", self.drain_timeout_s)?;
        from_nothing.check("drained_for_s", self.drained_for_s.unwrap_or(0.0))?;
        from_nothing.check("shutdown_s", self.shutdown_s)?;
        some_time.check("stop_timeout_s", self.stop_timeout_s)?;
        some_time.check("backoff_s", self.backoff_s)?;
        Bound::Seconds(self.backoff_s, DAY_S).check("backoff_most_s", self.backoff_most_s)?;
        from_nothing.check("forgive_s", self.forgive_s)
    }

    /// Checks that a boot that takes so long is waited for.
    ///
    /// # Errors
    /// Why `boot_timeout_s` is too short, with both figures.
    pub fn waits_for(&self, boot_s: f64) -> Result<(), String> {
        // What no boot takes is refused where it stands.
        if boot_s < self.boot_timeout_s || !(0.0..=DAY_S).contains(&boot_s) {
            return Ok(());
        }
        Err(format!(
            "is {}, and a server boots in {boot_s} s, so each of its boots would be given up: give more than {boot_s}",
            self.boot_timeout_s
        ))
    }

    /// The wait before a retry after this many failures in a row.
    pub(super) fn backoff_s(&self, failures: u32) -> f64 {
        let doublings = failures.saturating_sub(1).min(32);
        (self.backoff_s * f64::from(doublings).exp2()).min(self.backoff_most_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::assert_refused;

    #[test]
    fn a_boot_that_takes_too_long_is_named_and_one_that_none_takes_is_refused_elsewhere() {
        let tuning = PowerTuning::default();
        let limit_s = tuning.boot_timeout_s;
        assert!(tuning.waits_for(limit_s - 1.0).is_ok());
        assert!(tuning.waits_for(limit_s).unwrap_err().contains("give more than"));
        for boot_s in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
            assert!(tuning.waits_for(boot_s).is_ok(), "{boot_s}");
        }
    }

    #[test]
    fn the_defaults_pass_and_what_is_outside_is_named() {
        assert_refused(
            ResizeTuning::check,
            &[
                (r#"{"min_servers": 0}"#, "min_servers is 0"),
                (r#"{"margin": 1}"#, "margin is 1"),
                (r#"{"blind_s": -1}"#, "blind_s is -1"),
            ],
        );
        assert_refused(
            PowerTuning::check,
            &[
                (r#"{"boot_timeout_s": 0}"#, "boot_timeout_s is 0"),
                (r#"{"backoff_most_s": 10}"#, "backoff_most_s is 10"),
            ],
        );
        assert!(serde_json::from_str::<ResizeTuning>(r#"{"warm_up": 3}"#).is_err());
        assert!(serde_json::from_str::<PowerTuning>(r#"{"boot": 3}"#).is_err());
    }

    #[test]
    fn the_wait_doubles_up_to_its_limit() {
        let power = PowerTuning::default();
        let waits: Vec<f64> = (1..=9).map(|failures| power.backoff_s(failures)).collect();
        assert_eq!(
            waits,
            [30.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1_920.0, 3_600.0, 3_600.0]
        );
        assert_eq!(power.backoff_s(u32::MAX), 3_600.0);
    }
}
