//! The parameters of Headroom's own law. None of them describes a trace or a machine.

use crate::parameter::OutOfRange;
use serde::{Deserialize, Serialize};

/// The law cannot be built from these values.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum HeadroomError {
    /// A parameter lies outside its range.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
    /// The service rate is not one.
    #[error("a service rate of {0} requests/s per core cannot be: it must be greater than 0")]
    ServiceRate(f64),
}

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
}

impl Default for HeadroomTuning {
    fn default() -> Self {
        Self {
            guard: 1.0,
            confidence: 0.995,
            warm_up_periods: 3,
            least_gain: 0.02,
            cap_margin: 0.02,
        }
    }
}

impl HeadroomTuning {
    /// Checks every parameter's range.
    ///
    /// # Errors
    /// [`OutOfRange`] for the first that is outside.
    pub fn check(&self) -> Result<(), OutOfRange> {
        let checks = [
            (
                "guard",
                self.guard,
                self.guard > 0.0 && self.guard <= 1.0,
                "greater than 0 and at most 1",
            ),
            (
                "confidence",
                self.confidence,
                (0.5..=0.999_9).contains(&self.confidence),
                "between 0.5 and 0.9999",
            ),
            (
                "warm_up_periods",
                f64::from(self.warm_up_periods),
                (1..=1_000).contains(&self.warm_up_periods),
                "between 1 and 1000",
            ),
            (
                "least_gain",
                self.least_gain,
                (0.0..=0.5).contains(&self.least_gain),
                "between 0 and 0.5",
            ),
            (
                "cap_margin",
                self.cap_margin,
                (0.0..=1.0).contains(&self.cap_margin),
                "between 0 and 1",
            ),
        ];
        match checks.into_iter().find(|(_, _, fits, _)| !fits) {
            Some((key, value, _, range)) => Err(OutOfRange::new(key, value, range)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_pass_and_what_is_out_of_range_is_named() {
        assert_eq!(HeadroomTuning::default().check(), Ok(()));
        let refused = |tuning: HeadroomTuning| tuning.check().unwrap_err().to_string();
        let with = HeadroomTuning::default;
        assert_eq!(
            refused(HeadroomTuning {
                confidence: 1.0,
                ..with()
            }),
            "confidence is 1: it must be between 0.5 and 0.9999"
        );
        assert!(
            refused(HeadroomTuning {
                guard: f64::NAN,
                ..with()
            })
            .starts_with("guard is NaN")
        );
        assert!(
            refused(HeadroomTuning {
                warm_up_periods: 0,
                ..with()
            })
            .starts_with("warm_up_periods is 0")
        );
        assert!(
            refused(HeadroomTuning {
                least_gain: -0.1,
                ..with()
            })
            .starts_with("least_gain is -0.1")
        );
        assert!(
            refused(HeadroomTuning {
                cap_margin: 2.0,
                ..with()
            })
            .starts_with("cap_margin is 2")
        );
    }

    #[test]
    fn an_unknown_key_is_refused() {
        assert!(serde_json::from_str::<HeadroomTuning>(r#"{"confidense": 0.9}"#).is_err());
        let tuning: HeadroomTuning = serde_json::from_str(r#"{"confidence": 0.9}"#).unwrap();
        assert_eq!(tuning.confidence, 0.9);
    }
}
