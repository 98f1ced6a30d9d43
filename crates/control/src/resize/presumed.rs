//! What a server is presumed to take that joins, until it has shown it itself: what it took when it served last, else the least that any of
//! its equals takes, else the least that any server takes. Machines that nobody has told apart need not be alike, and of one that is
//! presumed to take less than it does no request is lost.
//!
//! It is no measurement: how many requests a server is given at a time follows it, and what is shown of it; a law that switches servers off
//! is told only what each has shown. The published estimator starts with the mean of the others instead ([`exact_mean`](super::exact_mean)).

use crate::capacity::{Capacity, Estimate};
use crate::decision::Reason;
use crate::observation::NodeObservation;
use headroom_units::PerSecond;

/// The rule of an estimate that is presumed.
const RULE: &str = "presumed";
/// The rules of an estimator that has not seen enough yet: with any other it has something to say of the server, or cannot read it.
const NOTHING_SHOWN: [&str; 3] = ["first-sample", "no-request-yet", "served"];

/// Whose capacity it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Own,
    Equal,
    Other,
}

/// What a server is presumed to take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Presumed {
    /// Requests a second.
    pub per_s: PerSecond,
    whose: Whose,
}

impl Presumed {
    /// Why it is presumed.
    pub fn reason(&self) -> Reason {
        let per_s = self.per_s.get();
        let text = match self.whose {
            Whose::Own => format!(
                "{per_s:.1}/s is what it took when it served before: nothing has shown it since it joined"
            ),
            Whose::Equal => format!(
                "{per_s:.1}/s is the least that a server of its kind takes: nothing has shown yet what this one takes"
            ),
            Whose::Other => format!(
                "{per_s:.1}/s is the least that any other server takes: nothing has shown yet what this one takes"
            ),
        };
        Reason::new(RULE, text, &[("capacity_per_s", per_s)])
    }

    /// Why it is presumed of a server whose own estimate is this; `None` where that says something itself.
    pub fn unless_shown(&self, own: Option<&Estimate>) -> Option<Reason> {
        let is_shown = own.is_some_and(|own| match own.capacity {
            Capacity::LowerBound(bound) if bound >= self.per_s => true,
            Capacity::LowerBound(_) | Capacity::Unknown => !NOTHING_SHOWN.contains(&own.reason.rule.as_ref()),
            _ => true,
        });
        (!is_shown).then(|| self.reason())
    }
}

/// What was met of each server in a run.
#[derive(Clone, Debug, Default)]
pub struct Met {
    last: Vec<Option<PerSecond>>,
    kinds: Vec<usize>,
}

impl Met {
    /// Of servers of these kinds; equal ones have the same number.
    pub const fn of_kinds(kinds: Vec<usize>) -> Self {
        Self {
            last: Vec::new(),
            kinds,
        }
    }

    /// Takes what each one's own estimator says.
    pub fn observe(&mut self, nodes: &[NodeObservation]) {
        self.last.resize(nodes.len(), None);
        for (last, node) in self.last.iter_mut().zip(nodes) {
            if node.state.takes_requests() {
                *last = node.capacity.met().or(*last);
            }
        }
    }

    /// What a server is presumed to take; `None` where no limit of any server was met.
    pub fn presumed(&self, server: usize) -> Option<Presumed> {
        let kind = |at: usize| self.kinds.get(at).copied().unwrap_or(0);
        let least = |of_kind: Option<usize>| {
            let all = self.last.iter().enumerate();
            all.filter(|(at, _)| of_kind.is_none_or(|of_kind| kind(*at) == of_kind))
                .filter_map(|(_, last)| *last)
                .reduce(PerSecond::min)
        };
        let own = self.last.get(server).copied().flatten();
        let found = own.map(|per_s| (per_s, Whose::Own));
        let found = found.or_else(|| Some((least(Some(kind(server)))?, Whose::Equal)));
        let (per_s, whose) = found.or_else(|| Some((least(None)?, Whose::Other)))?;
        Some(Presumed { per_s, whose })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resize::PowerState;

    fn node(state: PowerState, capacity: Capacity) -> NodeObservation {
        NodeObservation::new(state, capacity)
    }

    fn about(per_s: f64) -> Capacity {
        Capacity::About(PerSecond::new(per_s))
    }

    #[test]
    fn it_is_its_own_last_capacity_else_the_least_of_its_equals_else_of_all() {
        let mut met = Met::of_kinds(vec![0, 0, 0, 3]);
        assert_eq!(met.presumed(0), None);
        let off = node(PowerState::Off, Capacity::Unknown);
        let serving = |capacity| node(PowerState::Serving, capacity);
        met.observe(&[serving(about(100.0)), serving(about(50.0)), off, off]);
        // It drains, and what it says meanwhile is no capacity.
        let draining = node(PowerState::Draining, about(7.0));
        met.observe(&[serving(about(100.0)), draining, off, off]);
        let said = |met: &Met, at: usize| {
            let presumed = met.presumed(at).unwrap();
            (presumed.per_s.get(), presumed.whose)
        };
        assert_eq!(said(&met, 0), (100.0, Whose::Own));
        assert_eq!(said(&met, 1), (50.0, Whose::Own));
        assert_eq!(said(&met, 2), (50.0, Whose::Equal));
        assert_eq!(said(&met, 3), (50.0, Whose::Other));
        met.observe(&[off, off, off, serving(about(20.0))]);
        assert_eq!((said(&met, 2).0, said(&met, 3).0), (50.0, 20.0));
    }

    #[test]
    fn whatever_it_has_shown_itself_takes_its_place() {
        let presumed = Presumed {
            per_s: PerSecond::new(50.0),
            whose: Whose::Own,
        };
        let own = |capacity, rule: &'static str| {
            let estimate = Estimate::plain(capacity, Reason::new(rule, String::new(), &[]));
            presumed
                .unless_shown(Some(&estimate))
                .map(|reason| reason.rule.to_string())
        };
        let least = |per_s| Capacity::LowerBound(PerSecond::new(per_s));
        for (capacity, rule) in [(Capacity::Unknown, "no-request-yet"), (least(12.0), "served")] {
            assert_eq!(own(capacity, rule).as_deref(), Some("presumed"));
        }
        for (capacity, rule) in [
            (about(27.0), "unsure"),
            (least(51.0), "served"),
            (Capacity::Unknown, "none-accepted"),
            (Capacity::Unknown, "nobody-listens"),
        ] {
            assert_eq!(own(capacity, rule), None, "{rule}");
        }
        assert!(presumed.unless_shown(None).is_some());
    }
}
