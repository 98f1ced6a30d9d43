//! How many requests a server is given at a time, so that the rest waits where it can be told what is important, and is turned away with
//! a word, and not in an accept queue that is first come, first served and drops what it has no place for.
//!
//! By Little's law a server that takes `C` requests a second and has `n` in hand answers each after `n / C`: with `C T` it is busy all
//! the time, and whatever more it is given waits there for longer than `T`. That many and half as many again are let in, so that its
//! accept queue goes on showing whether it is busy, on which the estimate of `C` rests. Three things correct it, for `C` may be wrong
//! and `T` shorter than a request takes:
//!
//! * what it was seen to work on at a time (in flight and not in its accept queue) and a quarter more is never refused: as long as a
//!   bound is met by a server with an empty queue, it is the bound that holds it back, and it grows;
//! * where its queue dropped connections, it had too many: fewer are let in from then on, until a few minutes have gone by without;
//! * where connections carry several requests, a capacity in connections bounds no requests, and there is no bound.

use crate::capacity::Capacity;
use headroom_units::Seconds;

/// What is let in beside what a server answers within the time given.
const BEYOND: f64 = 1.5;
/// What is let in beside what it was seen to work on.
const MORE_THAN_WORKED_ON: f64 = 1.25;
/// So many periods in a row it was seen to work on that many: while a queue grows what is in flight at a period's end is more than its
/// mean length explains.
const IN_A_ROW: usize = 3;
/// For so long after a connection was dropped what is in flight may be one that TCP tries again: that is not worked on.
const TRIED_AGAIN_S: f64 = 10.0;
/// The time in which what was learned is forgotten by a factor of e.
const FORGET_S: f64 = 300.0;
/// What is let in of what was in hand when connections were dropped.
const LESS_THAN_DROPPED: f64 = 0.9;
/// So large a share of the requests comes on connections of their own where a capacity in connections is one in requests.
const OWN_CONNECTIONS: f64 = 0.8;
/// The time over which that share is counted.
const SHARE_S: f64 = 10.0;

/// What a server did in one period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InHandPeriod {
    /// How long it was.
    pub length: Seconds,
    /// What it takes, in connections a second.
    pub capacity: Capacity,
    /// Connections that it accepted.
    pub accepts: f64,
    /// Connections that its accept queue dropped.
    pub drops: f64,
    /// Connections that waited there; `None` where that is not known.
    pub waiting: Option<f64>,
    /// Requests that it answered: one that found no place in its accept queue was on no connection.
    pub answered: f64,
    /// Requests that it has, in its accept queue or worked on; `None` where that is not known.
    pub in_flight: Option<f64>,
}

/// How many requests one server is given at a time.
#[derive(Clone, Debug)]
pub struct InHand {
    within: Seconds,
    /// What it was seen to work on in the last periods.
    seen: Vec<f64>,
    /// The most of it, as far as it is not forgotten.
    worked_on: f64,
    /// With so many it dropped none.
    without_drops: f64,
    /// How long ago it dropped one, in seconds.
    dropped_ago_s: f64,
    accepts: f64,
    answered: f64,
}

impl InHand {
    /// For requests that are to be answered within this time of their coming to the server.
    pub const fn new(within: Seconds) -> Self {
        Self {
            within,
            seen: Vec::new(),
            worked_on: 0.0,
            without_drops: f64::INFINITY,
            dropped_ago_s: f64::INFINITY,
            accepts: 0.0,
            answered: 0.0,
        }
    }

    /// Nothing is known: another server listens there, or the same started anew.
    pub fn forget(&mut self) {
        *self = Self::new(self.within);
    }

    /// How many it may have from now on; `None` for as many as come.
    pub fn observe(&mut self, period: &InHandPeriod) -> Option<u32> {
        let length_s = period.length.get().max(0.0);
        let kept = (-length_s / SHARE_S).exp();
        self.accepts = self.accepts * kept + period.accepts;
        self.answered = self.answered * kept + period.answered;
        self.work(period, length_s);
        if self.accepts < OWN_CONNECTIONS * self.answered {
            return None;
        }
        let by_capacity = match period.capacity.met() {
            Some(capacity) => BEYOND * capacity.get() * self.within.get(),
            None => f64::INFINITY,
        };
        let most = by_capacity
            .min(self.without_drops)
            .max(MORE_THAN_WORKED_ON * self.worked_on + 1.0);
        // Without a bound by what it takes or dropped, what it works on is none.
        (by_capacity.min(self.without_drops) < f64::from(u32::MAX)).then(|| most.ceil() as u32)
    }

    fn work(&mut self, period: &InHandPeriod, length_s: f64) {
        let forgotten = (-length_s / FORGET_S).exp();
        self.worked_on *= forgotten;
        self.without_drops /= forgotten;
        let Some(in_flight) = period.in_flight else {
            self.seen.clear();
            return;
        };
        self.dropped_ago_s += length_s;
        if period.drops > 0.0 {
            self.dropped_ago_s = 0.0;
            let fewer = LESS_THAN_DROPPED * in_flight;
            self.without_drops = self.without_drops.min(fewer.max(1.0));
        }
        let waiting = period.waiting.filter(|_| self.dropped_ago_s >= TRIED_AGAIN_S);
        let Some(waiting) = waiting else {
            self.seen.clear();
            return;
        };
        self.seen.push((in_flight - waiting).max(0.0));
        if self.seen.len() > IN_A_ROW {
            self.seen.remove(0);
        }
        if self.seen.len() == IN_A_ROW {
            let least = self.seen.iter().copied().fold(f64::INFINITY, f64::min);
            self.worked_on = self.worked_on.max(least);
        }
    }
}

#[cfg(test)]
#[path = "in_hand_tests.rs"]
mod tests;
