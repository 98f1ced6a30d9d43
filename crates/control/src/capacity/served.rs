//! What a server has shown to serve at least, whether or not anybody waited.
//!
//! Over a time T it accepts no more than its capacity times T and as many as its idle workers take at once. The latter count
//! less the longer the time is, and are no more than the capacity times the time of a request: over [`WINDOW_S`] a server
//! whose requests take 100 ms has shown at most 1 % too much.

use headroom_units::{PerSecond, Seconds};
use std::collections::VecDeque;

/// The time over which what was served is a bound.
const WINDOW_S: f64 = 8.0;
/// What was served is at least the mean less this many standard errors of a Poisson count,
const BOUND_ERRORS: f64 = 2.0;
/// and it proves an estimate too low where it is above it by this many,
const ERRORS: f64 = 3.0;
/// and by what idle workers may take at once: requests are presumed to take no longer than this.
const AT_ONCE_S: f64 = 0.5;
/// A time in which somebody waited for more than this share says less than the waiting does.
const WAITING_SHARE: f64 = 0.2;

/// What was served in the last seconds, and the most of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Served {
    /// Length, accepts, and for how long somebody waited.
    steps: VecDeque<[f64; 3]>,
    /// The bound and when it was found.
    bound: Option<(PerSecond, f64)>,
}

impl Served {
    /// Takes a step that ends now; a bound older than `forget_s` is forgotten.
    pub(super) fn take(&mut self, now_s: f64, length: Seconds, accepts: f64, waited: Seconds, forget_s: f64) {
        self.steps.push_back([length.get(), accepts, waited.get()]);
        while self.steps.len() > 1 && self.sum(self.steps.len() - 1)[0] >= WINDOW_S * (1.0 - 1e-6) {
            self.steps.pop_front();
        }
        self.bound = self.bound.filter(|(_, found_s)| now_s - found_s <= forget_s);
        let [length_s, accepts, _] = self.sum(self.steps.len());
        // What came before the first step is not known: as if it had been nothing.
        let least = (accepts - BOUND_ERRORS * accepts.max(0.0).sqrt()) / length_s.max(WINDOW_S);
        if least >= self.bound.map_or(0.0, |(bound, _)| bound.get()) {
            self.bound = Some((PerSecond::new(least.max(0.0)), now_s));
        }
    }

    /// Of the last so many steps.
    fn sum(&self, steps: usize) -> [f64; 3] {
        let add = |sum: [f64; 3], one: &[f64; 3]| [sum[0] + one[0], sum[1] + one[1], sum[2] + one[2]];
        self.steps.iter().rev().take(steps).fold([0.0; 3], add)
    }

    /// What it serves at least; 0 where nothing was shown.
    pub(super) fn bound(&self) -> PerSecond {
        self.bound.map_or(PerSecond::ZERO, |(bound, _)| bound)
    }

    /// When that was shown.
    pub(super) fn shown_s(&self) -> Option<f64> {
        self.bound.map(|(_, shown_s)| shown_s)
    }

    /// Whether more was served than a server of this rate can, without anybody's waiting; what was.
    pub(super) fn exceeds(&self, rate: PerSecond) -> Option<PerSecond> {
        (1..=self.steps.len()).find_map(|steps| {
            let [length_s, accepts, waited_s] = self.sum(steps);
            let expected = rate.get() * length_s;
            let most = expected + ERRORS * expected.sqrt() + rate.get() * AT_ONCE_S;
            let alone = waited_s <= WAITING_SHARE * length_s;
            (alone && accepts > most).then(|| PerSecond::new(accepts / length_s))
        })
    }

    /// Nothing of it holds any more.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}
