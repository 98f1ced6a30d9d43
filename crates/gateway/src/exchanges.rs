//! What the exchanges of a core with its backends tell of how many at a time they bear: for the one that paces what it lets go.

use std::cell::Cell;
use std::time::Duration;

/// What was seen since it was asked last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    /// Answers that are not failures, over connections on which nothing was sent again.
    pub answers: u32,
    /// The sum of their times, from the request's head to the answer's end, seconds; connecting is no part of it.
    pub sum_s: f64,
    /// The sum of the squares.
    pub squares_s2: f64,
    /// A listen queue ran over. So many exchanges were in flight when its connection was begun; of several the least.
    pub overrun: Option<usize>,
}

impl Seen {
    /// What was seen then, and after it.
    pub(crate) fn and(self, later: Self) -> Self {
        Self {
            answers: self.answers.saturating_add(later.answers),
            sum_s: self.sum_s + later.sum_s,
            squares_s2: self.squares_s2 + later.squares_s2,
            overrun: match (self.overrun, later.overrun) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            },
        }
    }
}

/// The exchanges of one core.
#[derive(Debug, Default)]
pub(crate) struct Exchanges {
    seen: Cell<Seen>,
    is_failing: Cell<bool>,
}

impl Exchanges {
    /// A backend answered, so long after it was asked.
    pub(crate) fn answered(&self, after: Duration) {
        let seconds = after.as_secs_f64();
        self.is_failing.set(false);
        self.add(Seen {
            answers: 1,
            sum_s: seconds,
            squares_s2: seconds * seconds,
            overrun: None,
        });
    }

    /// A connection could not be opened in time, or only after its SYN was sent again; `in_flight` when it was begun.
    pub(crate) fn overran(&self, in_flight: usize) {
        self.add(Seen {
            overrun: Some(in_flight),
            ..Seen::default()
        });
    }

    /// A backend could not be asked, did not answer, or with a failure.
    pub(crate) fn failed(&self) {
        self.is_failing.set(true);
    }

    /// Whether the last that was heard of a backend is a failure. It comes sooner than an answer, and makes room for nothing.
    pub(crate) fn is_failing(&self) -> bool {
        self.is_failing.get()
    }

    /// What was seen since the last time.
    pub(crate) fn take(&self) -> Seen {
        self.seen.take()
    }

    fn add(&self, more: Seen) {
        self.seen.set(self.seen.get().and(more));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_overruns_the_one_with_the_least_in_flight_counts() {
        let exchanges = Exchanges::default();
        exchanges.answered(Duration::from_secs(2));
        exchanges.answered(Duration::from_secs(3));
        for in_flight in [40, 38, 41] {
            exchanges.overran(in_flight);
        }
        let seen = exchanges.take();
        assert_eq!((seen.answers, seen.overrun), (2, Some(38)));
        assert_eq!((seen.sum_s, seen.squares_s2), (5.0, 13.0));
        assert_eq!(exchanges.take(), Seen::default());
    }
}
