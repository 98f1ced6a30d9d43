//! What a law answers: a setting and the reasons for it.

use headroom_units::{Cores, Hertz, Lever, PerSecond, Setting, Watts};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Cores, cap and frequency together: what the laws of one service compute with. [`Plant::allocation`](crate::Plant::allocation)
/// makes it of a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allocation {
    /// Cores allocated to the service.
    pub cores: Cores,
    /// Power cap of the machine.
    pub cap: Watts,
    /// The highest frequency that the processors may run at; `None` where nothing is limited.
    pub frequency: Option<Hertz>,
}

impl Allocation {
    /// These cores under this cap, at any frequency.
    pub const fn new(cores: Cores, cap: Watts) -> Self {
        Self {
            cores,
            cap,
            frequency: None,
        }
    }
}

impl From<Allocation> for Setting {
    fn from(allocation: Allocation) -> Self {
        Self::default()
            .with(Lever::Cores, Some(allocation.cores.get()))
            .with(Lever::Cap, Some(allocation.cap.get()))
            .with(Lever::Frequency, allocation.frequency.map(Hertz::get))
    }
}

/// What to do in the next period, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// What is to be in force from now on, of the law's own levers; whatever else it has a value for is not carried out.
    pub setting: Setting,
    /// The arrival rate that the law expects in the next period, where it forecasts.
    pub expected_rate: Option<PerSecond>,
    /// Why; at least one.
    pub reasons: Vec<Reason>,
}

impl Decision {
    /// A setting that no law decided, as at the start and the end of a run.
    pub fn of(setting: impl Into<Setting>) -> Self {
        Self {
            setting: setting.into(),
            expected_rate: None,
            reasons: Vec::new(),
        }
    }

    /// The foremost reason of a lever's value; `None` where its law did not decide in this period.
    pub fn reason_of(&self, lever: Lever) -> Option<&Reason> {
        self.reasons.iter().find(|reason| reason.levers.contains(&lever))
    }
}

/// Why a decision was taken, as data: which rule, which numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// The rule's name: stable, one of the texts of the code and so one of few; the label of
    /// `headroom_decisions_total`.
    pub rule: Cow<'static, str>,
    /// One sentence for people, with its numbers.
    pub text: String,
    /// The numbers, by name with the unit last.
    pub numbers: Vec<(Cow<'static, str>, f64)>,
    /// The levers of the law that gives it, as a [`Stack`](crate::Stack) joins several; empty where it is of none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levers: Vec<Lever>,
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
            levers: Vec::new(),
        }
    }

    /// The same of a law of these levers.
    #[must_use]
    pub fn of(mut self, levers: &[Lever]) -> Self {
        self.levers = levers.to_vec();
        self
    }
}
