//! What a server has shown to serve at least, whether or not anybody waited.
//!
//! Over a time T it accepts no more than its capacity times T and as many as its idle workers take at once. Those are at most
//! the capacity times the mean time of a request (Little's law), so that the bound is too high by no more than that time over T: one
//! twentieth over [`SERVICES`] of it. Where the connections that the server has open are counted, the mean time is their number over
//! their rate; else it is presumed to be [`PRESUMED_SERVICE_S`] at most, and of a server whose requests take longer the bound may be too
//! high by more.

use headroom_units::{PerSecond, Seconds};
use std::collections::VecDeque;

/// The time over which what was served is a bound, in times of a request,
const SERVICES: f64 = 20.0;
/// of which one takes no longer, on average, where that is not known.
const PRESUMED_SERVICE_S: f64 = 1.5;
/// The longest time over which what was served is added up: of a server whose requests take longer on average than a twentieth of
/// it nothing is a bound.
const MAX_WINDOW_S: f64 = 600.0;
/// What was served is at least the mean less this many standard errors of its count: the largest of an hour is taken,
const BOUND_ERRORS: f64 = 3.0;
/// and it proves an estimate too low where it is above it by this many.
const ERRORS: f64 = 3.0;
/// A time in which somebody waited for more than this share says less than the waiting does.
const WAITING_SHARE: f64 = 0.2;

/// A sampling step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServedStep {
    pub length: Seconds,
    pub accepts: f64,
    /// For how long somebody waited.
    pub waited: Seconds,
    /// The connections that the server has accepted and not closed, where they are counted.
    pub open: Option<u64>,
}

/// What was served in the last seconds, and the most of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Served {
    /// Length, accepts, and for how long somebody waited.
    steps: VecDeque<[f64; 3]>,
    /// The mean time of a request, where it was observed.
    service_s: Option<f64>,
    /// The bound and when it was found.
    bound: Option<(PerSecond, f64)>,
}

impl Served {
    /// Takes a step that ends now, of a server whose accepts have this index of dispersion; a bound older than `forget_s` is
    /// forgotten.
    pub(super) fn take(&mut self, now_s: f64, step: ServedStep, dispersion: f64, forget_s: f64) {
        self.steps
            .push_back([step.length.get(), step.accepts, step.waited.get()]);
        let mut kept_s = self.sum(self.steps.len())[0];
        while let Some([first_s, ..]) = self.steps.front().copied() {
            if kept_s - first_s < MAX_WINDOW_S * (1.0 - 1e-6) {
                break;
            }
            kept_s -= first_s;
            self.steps.pop_front();
        }
        self.bound = self.bound.filter(|(_, found_s)| now_s - found_s <= forget_s);
        if let Some(open) = step.open.filter(|_| step.accepts > 0.0) {
            // Over as long a time as the last one took: what was accepted before may be closed.
            let over_s = self.service_s.unwrap_or(PRESUMED_SERVICE_S).max(1.0);
            let [length_s, accepts, _] = self.last(over_s);
            // More may have left of what came before than came.
            if accepts > 0.0 {
                self.service_s = Some(open as f64 * length_s / accepts);
            }
        }
        let window_s = self.window_s();
        if window_s > MAX_WINDOW_S {
            return;
        }
        let [length_s, accepts, _] = self.last(window_s);
        // What came before the first step is not known: as if it had been nothing.
        let errors = BOUND_ERRORS * (dispersion.max(1.0) * accepts.max(0.0)).sqrt();
        let least = (accepts - errors) / length_s.max(window_s);
        if least >= self.bound.map_or(0.0, |(bound, _)| bound.get()) {
            self.bound = Some((PerSecond::new(least.max(0.0)), now_s));
        }
    }

    /// The mean time of a request, where it was observed.
    pub(super) const fn service_s(&self) -> Option<f64> {
        self.service_s
    }

    /// What was accepted a second over this last time.
    pub(super) fn rate(&self, last_s: f64) -> PerSecond {
        let [length_s, accepts, _] = self.last(last_s);
        match length_s > 0.0 {
            true => PerSecond::new((accepts / length_s).max(0.0)),
            false => PerSecond::ZERO,
        }
    }

    fn window_s(&self) -> f64 {
        SERVICES * self.service_s.unwrap_or(0.0).max(PRESUMED_SERVICE_S)
    }

    /// Of the last steps that are together as long as this, or of all.
    fn last(&self, length_s: f64) -> [f64; 3] {
        let mut sum = [0.0; 3];
        for one in self.steps.iter().rev() {
            if sum[0] >= length_s * (1.0 - 1e-6) {
                break;
            }
            sum = add(sum, one);
        }
        sum
    }

    /// Of the last so many steps.
    fn sum(&self, steps: usize) -> [f64; 3] {
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

    /// Whether more was served than a server of this rate and index of dispersion can, without anybody's waiting; what was.
    pub(super) fn exceeds(&self, rate: PerSecond, dispersion: f64) -> Option<PerSecond> {
        let at_once = rate.get() * self.service_s.unwrap_or(PRESUMED_SERVICE_S);
        let mut sum = [0.0; 3];
        for one in self.steps.iter().rev() {
            if sum[0] >= self.window_s() {
                return None;
            }
            sum = add(sum, one);
            let [length_s, accepts, waited_s] = sum;
            let expected = rate.get() * length_s;
            let most = expected + ERRORS * (dispersion.max(1.0) * expected).sqrt() + at_once;
            if waited_s <= WAITING_SHARE * length_s && accepts > most {
                return Some(PerSecond::new(accepts / length_s));
            }
        }
        None
    }

    /// Of late it was at its limit and served less: the server may have changed, and what was served before may be no bound of it.
    pub(super) fn cap(&mut self, least: PerSecond) {
        if let Some((bound, _)) = &mut self.bound {
            *bound = bound.min(least);
        }
    }

    /// Nothing of it holds any more.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

fn add(sum: [f64; 3], one: &[f64; 3]) -> [f64; 3] {
    [sum[0] + one[0], sum[1] + one[1], sum[2] + one[2]]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server of 80/s whose 1,600 workers, idle at first, take a request of 20 s each: what it accepts in a second of an
    /// overload of 160/s, and how many connections are open then.
    fn second(at: usize) -> (f64, u64) {
        let accepts = if at % 20 < 10 { 160.0 } else { 0.0 };
        (accepts, (160 * (at + 1)).min(1_600) as u64)
    }

    fn bound(seconds: usize, counts: bool) -> PerSecond {
        let mut served = Served::default();
        for at in 0..seconds {
            let (accepts, open) = second(at);
            let step = ServedStep {
                length: Seconds::new(1.0),
                accepts,
                waited: Seconds::ZERO,
                open: counts.then_some(open),
            };
            served.take(at as f64 + 1.0, step, 1.0, 3_600.0);
        }
        served.bound()
    }

    #[test]
    fn what_workers_take_at_once_that_were_idle_is_no_bound_where_connections_are_counted() {
        for seconds in [10, 20, 40, 200, 1_000] {
            let bound = bound(seconds, true);
            assert!(bound.get() <= 80.0 * 1.05, "{bound:?} after {seconds} s");
        }
        assert!(bound(1_000, true).get() > 60.0);
        // Where they are not, requests are presumed to take 1.5 s at most.
        assert!(bound(40, false).get() > 80.0 * 1.2);
    }
}
