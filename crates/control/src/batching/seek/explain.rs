//! What it says of its decisions.

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
                let text = format!("compares {other:.0} ms with {base:.0} ms: {done} measurements");
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
                    (true, left) => {
                        let text = format!("batching is off: {why}; it is tried again in {left} periods");
                        reason("seek-off", text, &numbers)
                    }
                    (false, 0) => reason("seek-on", format!("{now:.0} ms: {why}"), &numbers),
                    (false, left) => {
                        let text = format!("{now:.0} ms: {why}; it seeks again in {left} periods");
                        reason("seek-on", text, &numbers)
                    }
                }
            }
        }
    }
}

/// Why it waits where the next comparison needs nothing but a few periods.
pub(super) const OBSERVES: Why = Cow::Borrowed("a few periods are observed before other intervals are tried");

/// A reason of the one lever that it moves.
pub(super) fn reason(rule: &'static str, text: String, numbers: &[(&'static str, f64)]) -> Reason {
    Reason::new(rule, text, numbers).of(&[Lever::BatchInterval])
}
