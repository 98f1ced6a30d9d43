//! The parameters of the joint law.

use crate::parameter::{Bound, OutOfRange, Parameters, refused};
use serde::{Deserialize, Serialize};

/// The parameters; the keys are those of the configuration file's `[law.joint]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JointTuning {
    /// The share of periods that may be late. 0.005.
    pub late: f64,
    /// The share of the target that the model aims at. 1.
    pub guard: f64,
    /// Periods with everything on before the law decides for the first time. 3.
    pub warm_up_periods: u32,
    /// Servers beyond those that the load needs. 0.
    pub spare: usize,
    /// What the load may grow to within a boot whatever was observed, as a factor: servers stay on for it. A crowd that is larger
    /// than anything before finds too few servers until others have booted; only whoever knows that it may come can say so. 1.
    pub surge: f64,
    /// Seconds of load, observed or recalled, before the law goes by how fast it grows: until then every server is on, also those that
    /// were off. 1800.
    pub learn_s: f64,
    /// From the first answer of a server until it counts, seconds. 10.
    pub warm_s: f64,
    /// Whether cores and frequency are raised between two decisions when more requests are in flight than expected. true.
    pub reflex: bool,
}

impl Default for JointTuning {
    fn default() -> Self {
        Self {
            late: 0.005,
            guard: 1.0,
            warm_up_periods: 3,
            spare: 0,
            surge: 1.0,
            learn_s: 1800.0,
            warm_s: 10.0,
            reflex: true,
        }
    }
}

impl Parameters for JointTuning {
    fn outside(&self) -> Vec<OutOfRange> {
        refused([
            Bound::Between(1e-4, 0.5).check("late", self.late),
            Bound::Share.check("guard", self.guard),
            Bound::Between(1.0, 1_000.0).check("warm_up_periods", f64::from(self.warm_up_periods)),
            Bound::Between(1.0, 1e3).check("surge", self.surge),
            Bound::Between(0.0, 1e6).check("learn_s", self.learn_s),
            Bound::Between(0.0, 600.0).check("warm_s", self.warm_s),
        ])
    }
}
