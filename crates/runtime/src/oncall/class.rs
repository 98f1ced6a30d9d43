//! What a configuration says of a class of connections: whom it has, and which SLOs.

use super::classes::REST;
use super::clients::Clients;
use headroom_control::oncall::tail::{Disengagement, TailError};
use headroom_units::{Ratio, Seconds};
use serde::Deserialize;

/// `[[oncall.class]]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Its clients.
    pub clients: Vec<Clients>,
    /// What each connection weighs beside others.
    #[serde(default = "one")]
    pub weight: f64,
    /// 95 % of each connection's queries within this, in milliseconds.
    pub p95_ms: Option<f64>,
    /// The same of 99 %.
    pub p99_ms: Option<f64>,
    /// The same of 99.9 %.
    pub p999_ms: Option<f64>,
    /// How many of its users may give up.
    pub disengagement: Option<DisengagementSlo>,
}

/// `disengagement` of a class: the SLO that UTSLO keeps.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DisengagementSlo {
    /// The share of a connection's queries at most whose users give up.
    pub at_most: f64,
    /// How many give up at a latency: pairs of milliseconds and a share, joined by straight lines.
    pub points: Vec<(f64, f64)>,
}

impl DisengagementSlo {
    pub(super) fn table(&self) -> Result<Disengagement, TailError> {
        let points = self.points.iter();
        Disengagement::new(
            points
                .map(|(ms, share)| (Seconds::from_millis(*ms), Ratio::new(*share)))
                .collect(),
        )
    }
}

const fn one() -> f64 {
    1.0
}

impl Class {
    /// The targets of P95, P99 and P99.9, where it has them.
    pub(super) fn targets(&self) -> [Option<Seconds>; 3] {
        [self.p95_ms, self.p99_ms, self.p999_ms].map(|target| target.map(Seconds::from_millis))
    }

    pub(super) fn slos(&self) -> impl Iterator<Item = (f64, Seconds)> + use<> {
        let all = [0.95, 0.99, 0.999].into_iter().zip(self.targets());
        all.filter_map(|(share, target)| Some((share, target?)))
    }

    /// A query that waits for longer is late by each of its SLOs: beyond the target of its highest percentile, and where it has none beyond
    /// the latency at which its users have given up.
    pub(super) fn longest(&self) -> Option<Seconds> {
        let given_up = || {
            Some(Seconds::from_millis(
                self.disengagement.as_ref()?.points.last()?.0,
            ))
        };
        self.slos().map(|(_, target)| target).last().or_else(given_up)
    }

    /// Whether it has an SLO of a percentile.
    pub fn has_percentile(&self) -> bool {
        self.slos().next().is_some()
    }

    /// Whether it has any SLO.
    pub fn has_slo(&self) -> bool {
        self.has_percentile() || self.disengagement.is_some()
    }

    /// Whether all its clients are another class's, too.
    pub fn is_within(&self, other: &Self) -> bool {
        let mut clients = self.clients.iter();
        clients.all(|clients| other.clients.iter().any(|others| clients.are_within(others)))
    }

    /// What is wrong with it, by its key.
    pub fn mistake(&self) -> Option<(&'static str, String)> {
        if self.name.is_empty() || self.name == REST {
            let why = format!(
                "is {:?}: give it a name other than {REST:?}, which is the class of all others",
                self.name
            );
            return Some(("name", why));
        }
        if self.clients.is_empty() {
            let why = "is empty: no connection belongs to it: name its clients, as in [\"10.0.0.0/8\"], [\"unix\"] or [\"user:shop\"]";
            return Some(("clients", why.to_owned()));
        }
        if !(self.weight > 0.0 && self.weight.is_finite()) {
            return Some(("weight", format!("is {}: it must be greater than 0", self.weight)));
        }
        let targets = [
            ("p95_ms", self.p95_ms),
            ("p99_ms", self.p99_ms),
            ("p999_ms", self.p999_ms),
        ];
        let mut before: Option<(&str, f64)> = None;
        for (key, target) in targets {
            let Some(target) = target else { continue };
            if !(target > 0.0 && target.is_finite()) {
                return Some((key, format!("is {target}: it must be greater than 0")));
            }
            if let Some((lower, of_lower)) = before.filter(|(_, of_lower)| target <= *of_lower) {
                let why = format!(
                    "is {target}, and {lower} {of_lower}: give it more than that, or leave {lower} out, which then says nothing"
                );
                return Some((key, why));
            }
            before = Some((key, target));
        }
        let slo = self.disengagement.as_ref()?;
        if !(slo.at_most > 0.0 && slo.at_most < 1.0) {
            let why = format!("is {}: it must be greater than 0 and below 1", slo.at_most);
            return Some(("disengagement.at_most", why));
        }
        let error = slo.table().err()?;
        Some(("disengagement.points", format!("cannot be used: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::gold;
    use super::*;

    #[test]
    fn a_class_with_a_target_below_that_of_a_lower_percentile_is_a_mistake() {
        assert_eq!(gold().mistake(), None);
        let wrong = Class {
            p999_ms: Some(10.0),
            ..gold()
        };
        assert_eq!(wrong.mistake().unwrap().0, "p999_ms");
        let rest = Class {
            name: REST.to_owned(),
            ..gold()
        };
        assert_eq!(rest.mistake().unwrap().0, "name");
        let nobody = Class {
            clients: Vec::new(),
            ..gold()
        };
        let (key, why) = nobody.mistake().unwrap();
        assert!(key == "clients" && why.contains("user:shop"), "{why}");
    }
}
