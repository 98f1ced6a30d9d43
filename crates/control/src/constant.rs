//! A setting that stays: what is wanted of each lever that is named, whatever happens.

use crate::decision::{Decision, Reason};
use crate::law::Law;
use crate::observation::Observation;
use headroom_units::{Lever, Setting};
use serde::Deserialize;

/// `[law.constant]`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConstantConfig {
    /// The setting.
    pub setting: Setting,
}

/// A law that holds a constant.
#[derive(Clone, Debug)]
pub struct Constant {
    setting: Setting,
    levers: &'static [Lever],
}

impl Constant {
    /// Holds this setting.
    pub fn new(setting: Setting) -> Self {
        let levers: Vec<Lever> = setting.iter().map(|(lever, _)| lever).collect();
        Self { setting, levers: levers.leak() }
    }
}

impl Law for Constant {
    fn name(&self) -> &'static str {
        "constant"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["constant"]
    }

    fn levers(&self) -> &'static [Lever] {
        self.levers
    }

    fn decide(&mut self, _: &Observation) -> Decision {
        Decision {
            reasons: vec![Reason::new("constant", format!("{} stays", self.setting), &[])],
            ..Decision::of(self.setting)
        }
    }

    fn forget(&mut self) {}
}
