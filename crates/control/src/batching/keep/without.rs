//! What is seen without batches, and what is put up with for that with them.

use super::{ENOUGH, ENOUGH_AGAIN, ONE_IN, REMEMBERED};

/// With batches so many times the odds of a period over the target are put up with.
const EXCUSED: f64 = 2.0;
/// The weight of periods from which on those of ten minutes say more than those of one.
const LONG_SAYS: f64 = 120.0;
/// Where more of the periods without batches are missed, and so many were seen, no interval causes it: of those of ten minutes and of the last
/// one, or of the last one alone, of which half may be missed by chance.
const MOSTLY: (f64, f64) = (0.5, 0.75);
const MOSTLY_LONG: f64 = 0.6;
const SAID_BY: f64 = 6.0;
/// Below this those of the last minute say that those of ten are of another time.
const HARDLY: f64 = 0.25;
/// The share of the periods with batches over the target from which on it is of interest whether they are so without.
const MISSED_STILL: f64 = 0.2;

/// The periods without batches, by their weight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Without {
    seen: f64,
    needed: f64,
    /// Whether these are to be seen before there are batches again.
    looks_again: bool,
    /// The share of them over the target, by those of the last minute and by those of the last ten, and the weight of the latter.
    missed: f64,
    missed_long: f64,
    long: f64,
    /// The weight of all periods since, and of those of them over the target.
    since: f64,
    missed_since: f64,
    /// The weight of the periods with batches that are missed, by no wait alone, less of those that are put up with.
    excess: f64,
}

impl Default for Without {
    fn default() -> Self {
        Self {
            seen: 0.0,
            needed: ENOUGH,
            looks_again: false,
            missed: 0.0,
            missed_long: 0.0,
            long: 0.0,
            since: 0.0,
            missed_since: 0.0,
            excess: 0.0,
        }
    }
}

impl Without {
    /// It is looked at again, before there are batches again.
    pub(super) fn look_again(&mut self) {
        self.need(ENOUGH_AGAIN);
        self.looks_again = true;
    }

    /// Whether it is.
    pub(super) fn looks_again(&self) -> bool {
        self.looks_again && !self.is_known()
    }

    /// So much is to be seen anew.
    fn need(&mut self, needed: f64) {
        *self = Self {
            needed,
            missed_long: self.missed_long,
            long: self.long,
            ..Self::default()
        };
    }

    /// The load is another.
    pub(super) fn forget(&mut self) {
        let was_free = self.is_free();
        self.need(SAID_BY);
        if was_free {
            // Believed until a few periods without batches say otherwise.
            (self.seen, self.missed) = (SAID_BY, 1.0);
        }
    }

    /// Takes a period without batches.
    pub(super) fn observe(&mut self, weight: f64, is_missed: bool) {
        let missed = f64::from(u8::from(is_missed));
        self.seen += weight;
        self.long = (self.long + weight).min(ONE_IN);
        // A mean at first, which then forgets as slowly as what bounds.
        self.missed += weight / self.seen.min(REMEMBERED) * (missed - self.missed);
        self.missed_long += weight / self.long * (missed - self.missed_long);
        (self.since, self.missed_since) = (0.0, 0.0);
        if self.is_known() && self.missed < HARDLY && self.missed_long > 2.0 * HARDLY {
            (self.missed_long, self.long) = (self.missed, self.seen.min(ONE_IN));
        }
    }

    /// Takes any other.
    pub(super) fn pass(&mut self, weight: f64, is_missed: bool) {
        self.since += weight;
        self.missed_since += if is_missed { weight } else { 0.0 };
        self.excess = (self.excess - weight * (1.0 / ONE_IN + self.excused())).max(0.0);
    }

    /// One with batches is missed: the weight of what is so beyond what is put up with, where that is more than is allowed; it is counted anew
    /// then. A cumulative sum: what is missed at once, as while a queue drains, counts as what is missed in a minute.
    pub(super) fn exceeds(&mut self, weight: f64, allowed: f64) -> Option<f64> {
        self.excess += weight;
        let beyond = self.excess - REMEMBERED * self.excused();
        (beyond > allowed).then(|| {
            self.excess = 0.0;
            beyond
        })
    }

    /// The share of periods with batches over the target that is put up with: twice the odds of those without, so that it never comes to all;
    /// one in ten minutes comes to it.
    fn excused(&self) -> f64 {
        let missed = if self.long < LONG_SAYS {
            self.missed.max(self.missed_long)
        } else {
            self.missed_long
        };
        EXCUSED * missed / (1.0 + (EXCUSED - 1.0) * missed)
    }

    pub(super) fn is_known(&self) -> bool {
        // Sums of lengths are rounded. Where all are missed when it is looked at again, that is said sooner.
        let is_plain = self.looks_again && self.missed > 1.0 - 1e-6;
        self.seen > if is_plain { SAID_BY } else { self.needed } - 1e-6
    }

    /// Whether the target is mostly missed.
    pub(super) fn is_free(&self) -> bool {
        let lasts = self.long >= LONG_SAYS && self.missed_long > MOSTLY_LONG;
        self.missed > if lasts { MOSTLY.0 } else { MOSTLY.1 } && self.seen > SAID_BY - 1e-6
    }

    /// Whether that was so many seconds or periods ago, and the target is missed still, with batches: by more periods than come of the change from
    /// none.
    pub(super) fn is_old(&self, most: f64) -> bool {
        self.is_known()
            && self.is_free()
            && self.since >= most
            && self.missed_since > MISSED_STILL * self.since
    }
}
