//! What a law answers: an allocation and the reasons for it.

use headroom_units::{Cores, PerSecond, Watts};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What the service may use.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Allocation {
    /// Cores allocated to the service.
    pub cores: Cores,
    /// Power cap of the machine.
    pub cap: Watts,
}

/// What to do in the next period, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// What the service may use from now on.
    pub allocation: Allocation,
    /// The arrival rate that the law expects in the next period, where it forecasts.
    pub expected_rate: Option<PerSecond>,
    /// Why; at least one.
    pub reasons: Vec<Reason>,
}

/// Why a decision was taken, as data: which rule, which numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// The rule's name: stable, one of the law's [`crate::Law::rules`]; the label of
    /// `headroom_decisions_total`.
    pub rule: Cow<'static, str>,
    /// One sentence for people, with its numbers.
    pub text: String,
    /// The numbers, by name with the unit last.
    pub numbers: Vec<(Cow<'static, str>, f64)>,
}

impl Reason {
    /// A reason of a rule.
    pub fn new(rule: &'static str, text: String, numbers: &[(&'static str, f64)]) -> Self {
        Self {
            rule: Cow::Borrowed(rule),
            text,
            numbers: numbers
                .iter()
                .map(|(name, value)| (Cow::Borrowed(*name), *value))
                .collect(),
        }
    }
}
