//! Whether what a server has answered can be counted as what it serves, instead of what it has accepted.
//!
//! What is accepted may be no request: a part of one, or nothing. A server that accepts all who wait and then serves them in turn accepts
//! in bunches, and no more than those it has. What it has answered it has served. But a connection is known to be answered when the
//! server is done with it: where it is kept open for another request, or for good, that is later than the answer, or never. So over some
//! seconds as many have to be answered as were accepted, but those that are worked on and those whose clients have left unanswered.

use super::step::{Connections, Listener};
use std::collections::VecDeque;

/// Over how long both are compared, and how often what was counted is kept for it.
const WINDOW_S: f64 = 10.0;
const EVERY_S: f64 = 0.5;
/// The share of what was accepted that may be missing in what was answered, or be too much: an estimate is off by no more.
const SHARE: f64 = 0.1;
/// And as many, for counters are not read at one instant.
const SKEW: f64 = 3.0;

/// What was counted until a time.
#[derive(Clone, Copy, Debug)]
struct Counted {
    at_s: f64,
    accepts: u64,
    answered: u64,
    unasked: u64,
    /// Those worked on, where they are known.
    on_hand: Option<u64>,
    /// The most that were accepted at once since the one before.
    bunch: f64,
}

/// What was counted of late.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    now_s: f64,
    kept: VecDeque<Counted>,
    /// The most that were accepted at once since the newest of them.
    bunch: f64,
    counts: bool,
    open: f64,
    left: f64,
}

impl Answers {
    /// Takes what was read now, so long after it was read before, since when so many were accepted.
    pub(super) fn take(&mut self, length_s: f64, accepts: f64, now: &Listener) {
        self.now_s += length_s;
        self.bunch = self.bunch.max(accepts);
        let (Some(accepts), Some(answered)) = (now.accepts, now.answered) else {
            *self = Self::default();
            return;
        };
        let counted = Counted {
            at_s: self.now_s,
            accepts,
            answered,
            unasked: now.unasked.unwrap_or(0),
            on_hand: now.connections.map(Connections::on_hand),
            bunch: self.bunch,
        };
        let since = |one: &Counted| self.now_s - one.at_s;
        while self.kept.get(1).is_some_and(|one| since(one) >= WINDOW_S) {
            self.kept.pop_front();
        }
        if self.kept.back().is_none_or(|one| since(one) >= EVERY_S) {
            self.kept.push_back(counted);
            self.bunch = 0.0;
        }
        self.compare(&counted);
    }

    fn compare(&mut self, now: &Counted) {
        let Some(then) = self.kept.front() else {
            return;
        };
        let grown = |now: u64, then: u64| now.saturating_sub(then) as f64;
        let accepts = grown(now.accepts, then.accepts);
        let answered = grown(now.answered, then.answered);
        let unasked = grown(now.unasked, then.unasked);
        // Where it is not known how many were worked on then, all that are may have come since.
        let on_hand = |one: &Counted| one.on_hand.unwrap_or(0) as f64;
        let more = (on_hand(now) - on_hand(then)).max(0.0);
        let fewer = match now.on_hand {
            Some(_) => (on_hand(then) - on_hand(now)).max(0.0),
            None => on_hand(then),
        };
        let bunch = self.kept.iter().map(|one| one.bunch).fold(now.bunch, f64::max);
        let slack = SHARE * accepts + SKEW + bunch;
        let missing = accepts - answered - unasked - more;
        self.counts = missing <= slack && answered - accepts - fewer <= slack;
        let share = |many: f64| match accepts > 0.0 {
            true => (many / accepts).clamp(0.0, 1.0),
            false => 0.0,
        };
        self.open = if self.counts { 0.0 } else { share(missing) };
        self.left = match self.counts {
            true => share(unasked.min(accepts - answered - more - SKEW)),
            false => 0.0,
        };
    }

    /// What was answered between two readings; `None` where that does not tell what was served.
    pub(super) fn between(&self, before: &Listener, now: &Listener) -> Option<f64> {
        let by = now.answered?.checked_sub(before.answered?)?;
        self.counts.then_some(by as f64)
    }

    /// Whether they are counted.
    pub(super) const fn count(&self) -> bool {
        self.counts
    }

    /// The share of what was accepted that was kept open after the answer, as far as is known, where that is why they are not counted.
    pub(super) const fn kept_open(&self) -> f64 {
        self.open
    }

    /// The share of what was accepted whose clients have left before it was answered, where answers are counted.
    pub(super) const fn left(&self) -> f64 {
        self.left
    }

    /// Nothing that was counted goes with what comes.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}
