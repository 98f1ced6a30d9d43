//! A setting that stays: a value for each lever that is named, whatever happens. Beside another law it holds the levers that
//! nothing steers, such as a network card's interrupt coalescing.
//!
//! ```
//! use headroom_control::{Constant, Law, Observation};
//! use headroom_units::{Lever, Setting};
//!
//! let mut law = Constant::new(Setting::default().with(Lever::Coalescing, Some(50.0))).unwrap();
//! assert_eq!(law.levers(), [Lever::Coalescing]);
//! assert_eq!(law.decide(&Observation::default()).setting.get(Lever::Coalescing), Some(50.0));
//! ```

use crate::decision::{Decision, Reason};
use crate::law::Law;
use crate::observation::Observation;
use headroom_units::{Lever, Setting};
use serde::Deserialize;

/// `[law.constant]`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConstantConfig {
    /// The setting: lever names with values in their units, as in `{ coalescing = 50 }`.
    pub setting: Setting,
}

/// A law that holds a constant.
#[derive(Clone, Debug)]
pub struct Constant {
    setting: Setting,
    levers: Vec<Lever>,
}

impl Constant {
    /// Holds this setting; `None` where it names no lever.
    pub fn new(setting: Setting) -> Option<Self> {
        let levers: Vec<Lever> = setting.iter().map(|(lever, _)| lever).collect();
        (!levers.is_empty()).then_some(Self { setting, levers })
    }
}

impl Law for Constant {
    fn name(&self) -> &'static str {
        "constant"
    }

    fn levers(&self) -> &[Lever] {
        &self.levers
    }

    fn decide(&mut self, _: &Observation) -> Decision {
        Decision {
            reasons: vec![Reason::new("constant", format!("{} stays", self.setting), &[])],
            ..Decision::of(self.setting)
        }
    }

    fn forget(&mut self) {}
}
