//! What a law answers: a setting and the reasons for it.

use crate::oncall::areas::CoreArea;
use crate::oncall::policy::Grant;
use crate::placement::Routes;
use crate::reflex::Reflex;
use crate::resize::Leave;
use headroom_units::{Comparison, Cores, Hertz, Lever, PerSecond, Seconds, Setting, Watts};
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
    /// What is to be in force before the next decision if more requests are in flight than expected; `None` where the law
    /// has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reflex: Option<Reflex>,
    /// What each connection of a server on call may do until the next decision; without one it has what all have. Not recorded: there
    /// may be thousands.
    #[serde(skip)]
    pub grants: Vec<Grant>,
    /// What was compared by having it in force in turn, of the comparisons that ended with this period.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comparisons: Vec<Comparison>,
    /// The areas of cores that the connections of a server on call run in until the next decision, the strictest first: see
    /// [`AreaDecision`](crate::oncall::areas::AreaDecision); without any, everybody runs everywhere. Not recorded, as grants.
    #[serde(skip)]
    pub areas: Vec<CoreArea>,
    /// Where requests go by the size of their answers, of a law of [`Lever::Placement`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routes: Option<Routes>,
    /// In what order servers are kept on, of a law of [`Lever::Servers`] that knows them apart: each one's rank, the smallest is kept
    /// longest. Without it those first in the list are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server_ranks: Vec<u16>,
    /// When each server goes that an operator takes out, of a law of [`Lever::Servers`] that knows whether the others do without it. Without
    /// it they go when as many others as are decided take requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leave: Vec<Leave>,
    /// Why; at least one.
    pub reasons: Vec<Reason>,
}

impl Decision {
    /// A setting that no law decided, as at the start and the end of a run.
    pub fn of(setting: impl Into<Setting>) -> Self {
        Self {
            setting: setting.into(),
            expected_rate: None,
            reflex: None,
            grants: Vec::new(),
            comparisons: Vec::new(),
            areas: Vec::new(),
            routes: None,
            server_ranks: Vec::new(),
            leave: Vec::new(),
            reasons: Vec::new(),
        }
    }

    /// Gives it a reflex, where that would give anything, and says how often the last one fired.
    pub(crate) fn arm(&mut self, reflex: Option<Reflex>, fired: u32) {
        self.reflex = reflex.filter(|reflex| reflex.gives(&self.setting));
        if fired > 0 {
            let text = "more requests were in flight, or older, than expected: everything was raised within the period";
            let numbers = [("reflexes", f64::from(fired))];
            self.reasons.push(Reason::new(FIRED, text.to_owned(), &numbers));
        }
        if let (Some(reflex), Some(reason)) = (self.reflex, self.reasons.first_mut()) {
            let bounds = [
                ("reflex_in_flight", Some(reflex.bound as f64)),
                ("reflex_oldest_ms", reflex.oldest.map(Seconds::as_millis)),
            ];
            let bounds = bounds
                .into_iter()
                .filter_map(|(name, bound)| Some((Cow::Borrowed(name), bound?)));
            reason.numbers.extend(bounds);
        }
    }

    /// The foremost reason of a lever's value; `None` where its law did not decide in this period.
    pub fn reason_of(&self, lever: Lever) -> Option<&Reason> {
        self.reasons.iter().find(|reason| reason.levers.contains(&lever))
    }
}

/// The rule of a period in which a reflex fired.
const FIRED: &str = "reflex-fired";

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
    /// The levers that it is of: where the law names none, all of the law's, as a [`Stack`](crate::Stack) joins several.
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
