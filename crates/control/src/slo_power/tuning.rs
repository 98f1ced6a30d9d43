//! The parameters of SLO-Power.

use crate::parameter::{Bound, OutOfRange, Parameters, refused, require};
use serde::{Deserialize, Serialize};

/// The T of Equation 4's second row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PowerReference {
    /// The target T, as published. The raise is then small where the latency lies close to T.
    #[default]
    Target,
    /// The guarded target αT, as in the authors' code.
    Guarded,
}

/// The longest window of an estimator, periods.
const MAX_WINDOW: usize = 10_000;

/// The parameters, by default those of the authors' own runs. The keys are those of the configuration file's
/// `[law.slo-power]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tuning {
    /// α, the guard: latency above α times the target is repaired. 0.8.
    pub guard: f64,
    /// β: a utilisation forecast above it adds cores before latency suffers. 0.85.
    pub utilisation_threshold: f64,
    /// D: periods under both thresholds before cores are taken away. 5.
    pub sustained_periods: u32,
    /// Periods that the arrival rate's line is fitted to. 5.
    pub request_window_periods: usize,
    /// Periods that the utilisation's line is fitted to. 3.
    pub utilisation_window_periods: usize,
    /// η, watts per core in Equation 4. The paper's definition, the most that one core can need, is taken from the
    /// machine's power envelope where this is absent; the authors ran 3 on a machine of 2.86.
    pub power_step_w_per_core: Option<f64>,
    /// How near to the limit for its cores a cap counts as at the limit. The authors took 6 W on nodes of 92 W; where
    /// absent, the same share of the machine's limit.
    pub at_limit_margin_w: Option<f64>,
    /// Nothing changes while the latency lies under the guard by at most this. 100 ms in the authors' code; 0 turns
    /// it off (the paper has no such band).
    pub hold_band_ms: f64,
    /// The cap is not lowered under this multiple of the power last measured. 1.1 in the authors' code; 0 turns it
    /// off (the paper has no such floor).
    pub cap_floor_over_consumed: f64,
    /// The T of Equation 4's second row.
    pub power_reference: PowerReference,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            guard: 0.8,
            utilisation_threshold: 0.85,
            sustained_periods: 5,
            request_window_periods: 5,
            utilisation_window_periods: 3,
            power_step_w_per_core: None,
            at_limit_margin_w: None,
            hold_band_ms: 100.0,
            cap_floor_over_consumed: 1.1,
            power_reference: PowerReference::Target,
        }
    }
}

impl Tuning {
    /// What the paper's text has and nothing that only the authors' code has: no hold band, no floor under the cap.
    pub fn paper_only() -> Self {
        Self {
            hold_band_ms: 0.0,
            cap_floor_over_consumed: 0.0,
            ..Self::default()
        }
    }
}

impl Parameters for Tuning {
    fn outside(&self) -> Vec<OutOfRange> {
        let window = |key, periods: usize| {
            let range = format!("between 2 and {MAX_WINDOW} periods");
            require(key, periods as f64, (2..=MAX_WINDOW).contains(&periods), range)
        };
        let (step, margin) = (self.power_step_w_per_core, self.at_limit_margin_w);
        refused([
            Bound::Share.check("guard", self.guard),
            Bound::Share.check("utilisation_threshold", self.utilisation_threshold),
            require("sustained_periods", 0.0, self.sustained_periods > 0, "1 or more"),
            window("request_window_periods", self.request_window_periods),
            window("utilisation_window_periods", self.utilisation_window_periods),
            Bound::Positive.check("power_step_w_per_core", step.unwrap_or(1.0)),
            Bound::NotNegative.check("at_limit_margin_w", margin.unwrap_or(0.0)),
            Bound::NotNegative.check("hold_band_ms", self.hold_band_ms),
            Bound::NotNegative.check("cap_floor_over_consumed", self.cap_floor_over_consumed),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::assert_refused;

    #[test]
    fn the_defaults_pass_and_a_value_out_of_range_is_named() {
        assert_eq!(Tuning::paper_only().check(), Ok(()));
        assert_refused(
            Tuning::check,
            &[
                (
                    r#"{"guard": 1.5}"#,
                    "guard is 1.5: it must be greater than 0 and at most 1",
                ),
                (r#"{"utilisation_threshold": 0}"#, "utilisation_threshold is 0"),
                (r#"{"sustained_periods": 0}"#, "sustained_periods is 0"),
                (r#"{"request_window_periods": 1}"#, "request_window_periods is 1"),
                (
                    r#"{"utilisation_window_periods": 10001}"#,
                    "utilisation_window_periods is 10001: it must be between 2 and 10000 periods",
                ),
                (r#"{"power_step_w_per_core": 0}"#, "power_step_w_per_core is 0"),
                (r#"{"at_limit_margin_w": -1}"#, "at_limit_margin_w is -1"),
                (r#"{"hold_band_ms": -1}"#, "hold_band_ms is -1"),
                (
                    r#"{"cap_floor_over_consumed": -0.1}"#,
                    "cap_floor_over_consumed is -0.1",
                ),
            ],
        );
    }
}
