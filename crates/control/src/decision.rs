//! What a law answers: an allocation and the reasons for it.

use headroom_units::{Cores, Hertz, PerSecond, Watts};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What the service may use.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Allocation {
    /// Cores allocated to the service.
    pub cores: Cores,
    /// Power cap of the machine.
    pub cap: Watts,
    /// The highest frequency that the processors may run at; `None` where nothing is limited. It is absent in
    /// recordings that are older than it.
    #[serde(default)]
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

    /// Whether it leaves the service less of anything than `now` does. No limit of the frequency is more than any.
    pub fn takes_from(&self, now: &Self) -> bool {
        let slower = self
            .frequency
            .is_some_and(|limit| now.frequency.is_none_or(|before| limit < before));
        self.cores < now.cores || self.cap < now.cap || slower
    }

    /// Of everything the more generous of the two.
    pub fn most(self, other: Self) -> Self {
        Self {
            cores: self.cores.max(other.cores),
            cap: self.cap.max(other.cap),
            frequency: self.frequency.zip(other.frequency).map(|(one, two)| one.max(two)),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn allocation(cores: f64, cap: f64, ghz: Option<f64>) -> Allocation {
        Allocation {
            frequency: ghz.map(|ghz| Hertz::new(ghz * 1e9)),
            ..Allocation::new(Cores::new(cores), Watts::new(cap))
        }
    }

    #[test]
    fn no_limit_of_the_frequency_is_more_than_any() {
        let (free, slow) = (allocation(2.0, 40.0, None), allocation(2.0, 40.0, Some(1.2)));
        assert!(slow.takes_from(&free) && !free.takes_from(&slow) && !slow.takes_from(&slow));
        assert_eq!(slow.most(free), free);
        let slower = allocation(3.0, 30.0, Some(0.8));
        assert!(slower.takes_from(&slow) && slow.takes_from(&slower));
        assert_eq!(slow.most(slower), allocation(3.0, 40.0, Some(1.2)));
    }

    #[test]
    fn a_recording_from_before_frequencies_limits_none() {
        let old: Allocation = serde_json::from_str(r#"{"cores": 2.0, "cap": 40.0}"#).unwrap();
        assert_eq!(old, allocation(2.0, 40.0, None));
    }
}
