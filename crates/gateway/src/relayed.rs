//! Whether clients may have left of which that is not to be seen.
//!
//! A client that has closed its side waits for its answer, or has left: its machine acknowledges the answer, or resets the connection. Behind
//! a proxy that passes TCP it is the proxy's machine that acknowledges, whoever is behind it, and the proxy passes on no reset once both
//! sides have ended. Then the line keeps those that have left as long as the others. What remains is to say so, where many of those
//! that have closed their side are turned away, and all of the others take their answers.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// The time over which they are counted, in seconds.
const COUNTED_S: f64 = 10.0;
/// With fewer that took their answers it is not said.
const MANY: f64 = 20.0;
/// So large a share of those that were answered resets the connection where that is to be seen.
const LEAVE: f64 = 0.1;

/// So many for each of those are turned away where there is no room for all.
const TURNED_AWAY: f64 = 0.3;

/// It is said once, whichever core finds it.
static IS_SAID: AtomicBool = AtomicBool::new(false);

/// What became of clients that had closed their side and waited for a backend.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Outcome {
    /// It took its answer.
    Took,
    /// It had left.
    Left,
    /// It was turned away when it had waited for as long as one may.
    TurnedAway,
}

/// How many each of these were, in the last seconds.
#[derive(Debug, Clone, Copy)]
struct Counted {
    at: Instant,
    took: f64,
    left: f64,
    turned_away: f64,
}

/// What one core has seen of such clients.
#[derive(Debug, Default)]
pub(crate) struct Relayed(Cell<Option<Counted>>);

impl Relayed {
    /// One was sent its answer, and had left or took it.
    pub(crate) fn note_answered(&self, had_left: bool) {
        self.note(match had_left {
            true => Outcome::Left,
            false => Outcome::Took,
        });
    }

    /// One was turned away when it had waited for as long as one may.
    pub(crate) fn note_turned_away(&self) {
        self.note(Outcome::TurnedAway);
    }

    fn note(&self, outcome: Outcome) {
        if !IS_SAID.load(Relaxed) && self.is_likely(outcome, Instant::now()) && !IS_SAID.swap(true, Relaxed) {
            tracing::warn!(
                "many clients that close their side are turned away, and the others take their answers: if a proxy that passes TCP is in \
                 front, they may have left all the same, and their requests wait in vain; cancel_on_fin = true takes them for gone"
            );
        }
    }

    /// Whether such clients may have left unseen, with this one.
    fn is_likely(&self, outcome: Outcome, now: Instant) -> bool {
        let kept = self.0.get().map_or(0.0, |known| {
            (-now.saturating_duration_since(known.at).as_secs_f64() / COUNTED_S).exp()
        });
        let of = |count: fn(&Counted) -> f64, one: Outcome| {
            self.0.get().as_ref().map_or(0.0, count) * kept + f64::from(u8::from(outcome == one))
        };
        let counted = Counted {
            at: now,
            took: of(|known| known.took, Outcome::Took),
            left: of(|known| known.left, Outcome::Left),
            turned_away: of(|known| known.turned_away, Outcome::TurnedAway),
        };
        self.0.set(Some(counted));
        let is_unseen = counted.left < LEAVE * counted.took;
        counted.took >= MANY && is_unseen && counted.turned_away >= TURNED_AWAY * counted.took
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Whether it is likely after so many that took their answers, had left, and were turned away, one after the other.
    fn is_likely(took: usize, left: usize, turned_away: usize, apart: Duration) -> bool {
        let (relayed, start) = (Relayed::default(), Instant::now());
        let outcomes = [
            (took, Outcome::Took),
            (left, Outcome::Left),
            (turned_away, Outcome::TurnedAway),
        ];
        let all = outcomes
            .into_iter()
            .flat_map(|(count, outcome)| vec![outcome; count]);
        let mut is_likely = false;
        for (number, outcome) in (0..).zip(all) {
            is_likely = relayed.is_likely(outcome, start + apart * number);
        }
        is_likely
    }

    #[test]
    fn clients_may_have_left_unseen_where_many_take_their_answers_and_many_are_turned_away() {
        let soon = Duration::from_millis(1);
        assert!(is_likely(30, 0, 40, soon));
        assert!(!is_likely(10, 0, 40, soon), "few");
        assert!(!is_likely(30, 0, 5, soon), "most are answered");
        assert!(!is_likely(30, 10, 40, soon), "who leaves is seen");
        assert!(!is_likely(30, 0, 40, Duration::from_secs(5)), "long ago");
    }
}
