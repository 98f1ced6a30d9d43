//! What it says of its decisions.

use super::compare::{Comparison, Stage, Verdict};
use super::{Phase, Seek};
use crate::decision::Reason;
use headroom_units::Lever;
use std::borrow::Cow;

/// Why it waits.
pub(super) type Why = Cow<'static, str>;

impl Seek {
    /// Why it does what it does.
    pub(super) fn why(&self) -> Reason {
        let spent = self.ledger.spent_share();
        let now = self.interval * 1e3;
        match &self.phase {
            Phase::Compare(comparison) => {
                let (base, other) = (comparison.base * 1e3, comparison.other * 1e3);
                let done = comparison.differences.len();
                let how = match comparison.stage {
                    Stage::Search if comparison.seeks_large() => ", for a large gain",
                    Stage::Search => "",
                    Stage::Check => " again, in longer blocks",
                };
                let text = match comparison.waits() {
                    true => format!(
                        "{base:.0} ms until {other:.0} ms can be afforded, to compare the two{how}: {done} measurements"
                    ),
                    false => format!(
                        "compares {other:.0} ms with {base:.0} ms{how}: {done} measurements, the next of {:.0} ms",
                        comparison.wanted() * 1e3
                    ),
                };
                let numbers = [
                    ("interval_ms", comparison.wanted() * 1e3),
                    ("other_ms", other),
                    ("measurements", done as f64),
                    ("spent_share", spent),
                ];
                reason("seek-compare", text, &numbers)
            }
            Phase::Wait(left, why) => {
                let numbers = [
                    ("interval_ms", now),
                    ("periods", f64::from(*left)),
                    ("spent_share", spent),
                ];
                match (self.is_off(), *left) {
                    (true, 0) => reason("seek-off", format!("no batches: {why}"), &numbers),
                    (true, _) => reason("seek-off", format!("batching is off: {why}"), &numbers),
                    (false, _) => reason("seek-on", format!("{now:.0} ms: {why}"), &numbers),
                }
            }
        }
    }
}

impl Seek {
    /// Why nothing is tried where nothing is in force.
    pub(super) fn why_none(&self) -> String {
        let response = self.load.response().unwrap_or(0.0);
        let (shortest, most) = (self.shortest(response), self.bounds.most.get());
        let ms = shortest * 1e3;
        match self.limit() {
            _ if most < shortest => {
                format!(
                    "the longest interval, {:.1} ms, is shorter than the shortest of use here, {ms:.0} ms",
                    most * 1e3
                )
            }
            Some(limit) if limit < shortest => format!(
                "the SLO leaves no time to hold requests; what they would make of it is tried in {:.0} s at the earliest",
                self.keep.tries_in().get()
            ),
            _ => format!("not even the shortest interval of use, {ms:.0} ms, can be afforded soon"),
        }
    }
}

impl Comparison {
    /// Why the interval stays after a comparison.
    pub(super) fn why(&self, verdict: Verdict) -> String {
        let (from, to) = (self.base * 1e3, self.other * 1e3);
        match verdict {
            Verdict::NothingToGroup(size) => {
                format!("requests held for {to:.0} ms came in groups of {size:.2}: nothing to group")
            }
            Verdict::TooDear => {
                format!("{to:.0} ms adds more to the response times than may be spent on trying it")
            }
            Verdict::NotFollowed => format!("the gateway did not hold requests for {to:.0} ms when asked to"),
            Verdict::MissesSlo(left) => {
                format!(
                    "slow periods leave {:.0} ms to the target, and not {to:.0} ms",
                    left * 1e3
                )
            }
            Verdict::Better(share) | Verdict::NotBetter(share) => {
                format!(
                    "{to:.0} ms costs {:+.1} % against {from:.0} ms: no gain that is certain",
                    -share * 100.0
                )
            }
        }
    }
}

/// Why it waits where the next comparison needs nothing but a few periods.
pub(super) const OBSERVES: Why =
    Cow::Borrowed("it is observed what the load does by itself before other intervals are tried");

/// A reason of the one lever that it moves.
pub(super) fn reason(rule: &'static str, text: String, numbers: &[(&'static str, f64)]) -> Reason {
    Reason::new(rule, text, numbers).of(&[Lever::BatchInterval])
}
