//! What is said of lost telemetry: while it is lost for the same reason, at once and then ever more seldom; and that it is back.

use headroom_units::{Part, Seconds};
use std::collections::BTreeMap;

/// How long nothing more is said of a kind of loss after it was, the first time, the second, and each further.
const WAITS: [Seconds; 3] = [Seconds::new(10.0), Seconds::new(60.0), Seconds::new(600.0)];

/// So many kinds are told apart; further ones are one.
const MOST_KINDS: usize = 16;

/// The periods without telemetry, in a row.
#[derive(Debug, Default)]
pub(super) struct Outage {
    kinds: BTreeMap<String, Kind>,
    /// Periods of which it was not said yet that they are over.
    periods: u64,
    is_said: bool,
}

#[derive(Clone, Copy, Debug)]
struct Kind {
    said: Seconds,
    /// How often, since telemetry was there last.
    times: usize,
}

impl Outage {
    /// A period is lost in this way at a time: whether to say so.
    pub fn note(&mut self, kind: &str, at: Seconds) -> bool {
        self.periods += 1;
        let kind = match self.kinds.contains_key(kind) || self.kinds.len() < MOST_KINDS {
            true => kind,
            false => "",
        };
        let of_kind = self.kinds.get_mut(kind);
        let times = match of_kind {
            // One that comes and goes waits as long as one that has begun.
            Some(before) if at - before.said < WAITS[before.times.saturating_sub(1).min(WAITS.len() - 1)] => {
                return false;
            }
            Some(before) => before.times + 1,
            None => 1,
        };
        self.kinds.insert(kind.to_owned(), Kind { said: at, times });
        self.is_said = true;
        true
    }

    /// A period is not lost: how many were, where it was said that they are.
    pub fn over(&mut self) -> Option<u64> {
        if !std::mem::take(&mut self.is_said) {
            return None;
        }
        for kind in self.kinds.values_mut() {
            kind.times = 0;
        }
        Some(std::mem::take(&mut self.periods))
    }
}

/// The kind of a loss: whose telemetry it is and why, without figures and examples, which change each period, and by which rule it is
/// decided without it.
pub(super) fn kind(parts: &[Part], rule: &str) -> String {
    let mut kind = rule.to_owned();
    for part in parts {
        let Some(trouble) = part.trouble.first() else {
            continue;
        };
        let (why, _) = trouble.split_once(':').unwrap_or((trouble, ""));
        kind.extend(["; ", &part.name, ": "]);
        kind.extend(why.chars().filter(|c| !c.is_ascii_digit() && *c != '.'));
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_units::Role;
    use proptest::prelude::*;

    /// When it is said in so many seconds, each of a kind or none.
    fn said(seconds: u32, kind: impl Fn(u32) -> Option<&'static str>) -> (Vec<u32>, Vec<u64>) {
        let mut outage = Outage::default();
        let (mut said, mut over) = (Vec::new(), Vec::new());
        for second in 0..seconds {
            match kind(second) {
                Some(kind) if outage.note(kind, Seconds::new(second.into())) => said.push(second),
                Some(_) => {}
                None => over.extend(outage.over()),
            }
        }
        (said, over)
    }

    #[test]
    fn what_goes_on_is_said_ever_more_seldom_and_once_that_it_is_over() {
        let (at, over) = said(2_000, |second| (second < 1_900).then_some("a"));
        assert_eq!(at, [0, 10, 70, 670, 1_270, 1_870]);
        assert_eq!(over, [1_900]);
        // Another cause, and the first once more.
        let (at, _) = said(8, |second| Some(if second == 4 { "b" } else { "a" }));
        assert_eq!(at, [0, 4]);
        // One that comes later begins anew.
        let (at, over) = said(140, |second| matches!(second, 0..20 | 100..103).then_some("a"));
        assert_eq!((at, over), (vec![0, 10, 100], vec![20, 3]));
    }

    #[test]
    fn what_comes_and_goes_each_second_is_said_every_ten() {
        let (at, over) = said(40, |second| (second % 2 == 0).then_some("a"));
        assert_eq!((at, over), (vec![0, 10, 20, 30], vec![1, 5, 5, 5]));
    }

    #[test]
    fn figures_and_examples_do_not_make_another_kind() {
        let part = |trouble: &str| {
            let mut part = Part::new("haproxy", Role::Gateway);
            part.trouble = vec![trouble.to_owned()];
            kind(&[Part::new("g2", Role::Gateway), part], "hold")
        };
        let counted =
            |requests: u32| format!("HAProxy counted {requests} ended requests, but 0 log lines came: check");
        assert_eq!(part(&counted(61)), part(&counted(113)));
        let unlike = |example: &str| {
            format!("4 of 5 log lines do not fit the log format, such as: {example}. Remedy: x")
        };
        assert_eq!(part(&unlike("a")), part(&unlike("b: c")));
        assert_ne!(part(&unlike("a")), part(&counted(61)));
        assert_ne!(kind(&[], "hold"), kind(&[], "full"));
    }

    proptest! {
        #[test]
        fn no_kinds_make_more_than_a_few_lines(kinds in prop::collection::vec("[a-z]{1,2}", 1..200)) {
            let mut outage = Outage::default();
            let times = kinds.iter().enumerate();
            let said = times.filter(|(at, kind)| outage.note(kind, Seconds::new(*at as f64 / 100.0))).count();
            prop_assert!((1..=MOST_KINDS + 1).contains(&said));
            prop_assert_eq!(outage.over(), Some(kinds.len() as u64));
            prop_assert_eq!(outage.over(), None);
        }
    }
}
