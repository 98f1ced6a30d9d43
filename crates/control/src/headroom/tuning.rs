//! The parameters of Headroom's own law. None of them describes a trace or a machine.

use crate::parameter::{Bound, OutOfRange, Parameters, refused};
use serde::{Deserialize, Serialize};

/// The parameters; the keys are those of the configuration file's `[law.headroom]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HeadroomTuning {
    /// The share of the target that the period's percentile is to stay under. 1.
    pub guard: f64,
    /// With which probability it is to stay under it in each period, at least. 0.995.
    pub confidence: f64,
    /// Periods with everything on before the law decides for the first time. 3.
    pub warm_up_periods: u32,
    /// Another point is taken only where it saves at least this share of the power above the idle machine's, so that
    /// cores and frequency do not flutter. 0.02.
    pub least_gain: f64,
    /// How far the cap lies above what the point can draw with all its cores busy, at least. 0.02.
    pub cap_margin: f64,
    /// Whether cores and frequency are raised between two decisions when more requests are in flight than expected. true.
    pub reflex: bool,
}

impl Default for HeadroomTuning {
    fn default() -> Self {
        Self {
            guard: 1.0,
            confidence: 0.995,
            warm_up_periods: 3,
            least_gain: 0.02,
            cap_margin: 0.02,
            reflex: true,
        }
    }
}

impl Parameters for HeadroomTuning {
    fn outside(&self) -> Vec<OutOfRange> {
        refused([
            Bound::Share.check("guard", self.guard),
            Bound::Between(0.5, 0.999_9).check("confidence", self.confidence),
            Bound::Between(1.0, 1_000.0).check("warm_up_periods", f64::from(self.warm_up_periods)),
            Bound::Between(0.0, 0.5).check("least_gain", self.least_gain),
            Bound::Between(0.0, 1.0).check("cap_margin", self.cap_margin),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::assert_refused;

    #[test]
    fn the_defaults_pass_and_what_is_out_of_range_is_named() {
        assert_refused(
            HeadroomTuning::check,
            &[
                (
                    r#"{"confidence": 1}"#,
                    "confidence is 1: it must be between 0.5 and 0.9999",
                ),
                (r#"{"guard": 0}"#, "guard is 0"),
                (r#"{"warm_up_periods": 0}"#, "warm_up_periods is 0"),
                (r#"{"least_gain": -0.1}"#, "least_gain is -0.1"),
                (r#"{"cap_margin": 2}"#, "cap_margin is 2"),
            ],
        );
    }

    #[test]
    fn an_unknown_key_is_refused() {
        assert!(serde_json::from_str::<HeadroomTuning>(r#"{"confidense": 0.9}"#).is_err());
        let tuning: HeadroomTuning = serde_json::from_str(r#"{"confidence": 0.9}"#).unwrap();
        assert_eq!(tuning.confidence, 0.9);
    }
}
