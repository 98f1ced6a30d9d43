//! Which interval is tried next, and what it may cost.

use super::{Least, STEP};
use crate::batching::hold::is_same;

/// The fraction of the range from one interval that is tried to the next, wrapped around.
const GOLDEN: f64 = 0.618_033_988_749_894_9;
/// Without batches: the longest interval that is tried, as a share of what a response takes.
const TRIED_SHARE: f64 = 0.5;
/// Periods, or holds where these are more, that a try may wait for its cost: it is made shorter until it need not wait for longer.
const PATIENCE: (f64, f64) = (60.0, 4.0);
/// What a shorter interval may add, as a share of the mean.
const SHORTER_ADDS: f64 = 0.25;

impl Least {
    /// What is tried next, if there is something that is not too dear; what came before it `saves`.
    pub(super) fn next(&self, limit: f64, usual: f64, saves: bool) -> Option<f64> {
        let left = self.cost.left(self.budget);
        let requests = self.rate * self.pace.hold();
        if self.is_off() {
            return self.next_from_none(limit, usual, saves && left > 0.0);
        }
        let mean = self.without_try()?;
        let shortest = self.shortest();
        let none = || {
            let adds = (usual - mean).max(0.0) * requests;
            ((self.is_other && left > 0.0) || adds <= left).then(|| self.none())
        };
        let longer = || {
            let longer = self.fit((self.base * STEP).min(limit));
            let adds = 0.5 * (longer - self.base) * requests;
            (!is_same(longer, self.base) && longer > self.base && adds <= left).then_some(longer)
        };
        let shorter = || {
            let shorter = self.fit(self.base / STEP);
            (shorter >= shortest && SHORTER_ADDS * mean * requests <= left).then_some(shorter)
        };
        match self.tried % 3 {
            _ if self.is_other => none().or_else(longer).or_else(shorter),
            0 => none().or_else(longer).or_else(shorter),
            1 => longer().or_else(shorter).or_else(none),
            _ => shorter().or_else(none).or_else(longer),
        }
    }

    /// Whether a response is so quick that the shortest interval is a longer part of it than is tried.
    pub(super) fn is_too_quick(&self) -> bool {
        let longest = TRIED_SHARE * self.usual.unwrap_or(0.0);
        self.usual.is_some() && self.none() + longest < self.shortest()
    }

    /// The same while there are no batches.
    fn next_from_none(&self, limit: f64, usual: f64, saves: bool) -> Option<f64> {
        let (none, left) = (self.none(), self.cost.left(self.budget));
        let (requests, hold) = (self.rate * self.pace.hold(), self.pace.hold());
        if self.is_too_quick() {
            return None;
        }
        let longest = limit.min(none + TRIED_SHARE * usual);
        let longest = match self.learned.model() {
            Some(_) => longest,
            None => longest.min(self.explore_most),
        };
        // The first is half of the longest; all of them cover the range.
        let share = (0.5 + f64::from(self.tried) * GOLDEN).fract() * self.reach;
        let soon = left + self.budget * usual * self.rate * PATIENCE.0.max(PATIENCE.1 * hold);
        let affordable = if requests > 0.0 {
            2.0 * soon / requests
        } else {
            0.0
        };
        let wanted = (none + (longest - none) * share).min(none + affordable);
        let next = self.fit(wanted.max(self.shortest()));
        let adds = 0.5 * (next - none) * requests;
        (next > none && next <= limit && (saves || adds <= left)).then_some(next)
    }
}
