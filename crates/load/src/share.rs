//! Several threads that share one load: what each sends, and that they begin together.

use crate::clock::Moment;
use headroom_units::Seconds;
use headroom_workload::Arrivals;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How long the connections that are opened together before the start are waited for, seconds: longer than it takes TCP to
/// try again once. A server that does not even accept delays the start by no more.
pub(crate) const WARM_UP_S: f64 = 1.5;

/// Every n-th arrival of a process, which each of n threads draws by itself from the same seed: together they send
/// exactly what one would.
#[derive(Debug)]
pub(crate) struct ArrivalShare {
    arrivals: Box<Arrivals>,
    others: usize,
}

impl ArrivalShare {
    /// The arrivals `thread`, `thread + threads`, ... counted from 0.
    pub(crate) fn new(mut arrivals: Box<Arrivals>, thread: usize, threads: usize) -> Self {
        for _ in 0..thread {
            arrivals.next();
        }
        Self {
            arrivals,
            others: threads - 1,
        }
    }

    /// When the next is due, from the load's start.
    pub(crate) fn peek(&mut self) -> Option<Seconds> {
        self.arrivals.peek()
    }

    pub(crate) fn next(&mut self) -> Option<Seconds> {
        let due = self.arrivals.next();
        for _ in 0..self.others {
            self.arrivals.next();
        }
        due
    }

    pub(crate) fn duration(&self) -> Seconds {
        self.arrivals.duration()
    }
}

/// So many things divided as evenly as can be: the part of the n-th.
pub(crate) fn part(whole: usize, thread: usize, threads: usize) -> usize {
    whole / threads + usize::from(thread < whole % threads)
}

/// Threads that begin together, once the last has opened its connections.
#[derive(Debug)]
pub(crate) struct Beginning {
    missing: AtomicUsize,
    origin: OnceLock<Moment>,
}

impl Beginning {
    pub(crate) fn of(threads: usize) -> Self {
        Self {
            missing: AtomicUsize::new(threads),
            origin: OnceLock::new(),
        }
    }

    /// A thread is ready, or will never be. Each calls it once.
    pub(crate) fn arrive(&self) {
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.origin.get_or_init(Moment::now);
        }
    }

    /// When all began; none while some are missing.
    pub(crate) fn origin(&self) -> Option<Moment> {
        self.origin.get().copied()
    }
}

/// Arrives when it is dropped, so that a thread which breaks keeps no other waiting.
pub(crate) struct Arrival<'a>(pub(crate) &'a Beginning);

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        self.0.arrive();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_units::PerSecond;
    use headroom_workload::{Spacing, Trace};

    #[test]
    fn shares_are_together_the_whole() {
        let trace = Trace::constant(PerSecond::new(200.0), Seconds::new(1.0)).unwrap();
        let arrivals = Arrivals::new(trace, Spacing::Poisson, 5);
        let mut together = Vec::new();
        for thread in 0..3 {
            let mut share = ArrivalShare::new(Box::new(arrivals.clone()), thread, 3);
            while let Some(due) = share.peek() {
                assert_eq!(share.next(), Some(due));
                together.push(due.get());
            }
        }
        together.sort_by(f64::total_cmp);
        let whole: Vec<f64> = arrivals.map(Seconds::get).collect();
        assert_eq!(together, whole);
        assert_eq!([0, 1, 2].map(|thread| part(5, thread, 3)), [2, 2, 1]);
    }

    #[test]
    fn nobody_begins_before_the_last() {
        let beginning = Beginning::of(2);
        drop(Arrival(&beginning));
        assert_eq!(beginning.origin(), None);
        drop(Arrival(&beginning));
        assert!(beginning.origin().is_some());
    }
}
