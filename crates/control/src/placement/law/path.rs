//! What the network and the gateway take of every request's latency: what nobody's figures say, and what a machine is not slow for.
//!
//! It is at least what is configured, and what every class at every backend took beyond its figures: that all machines are slower than their
//! figures by the same milliseconds, at small answers and at large ones, is unlikely. A least over backends and classes is below the truth
//! rather than above it; less is believed sooner than more, so that a queue at all of them is no path.

use super::speed::{Slowness, Told};
use headroom_units::Seconds;

/// Requests of a class in a period that say something of it.
const MIN_REQUESTS: u64 = 10;
/// The share of what a period says that counts: where it says less, and where it says more, after the first periods.
const LEARNS: [f64; 2] = [0.5, 0.02];
/// The most that it may be, as a share of the latency that is allowed: more is no path.
const MOST: f64 = 0.25;

/// What is believed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Path {
    seconds: f64,
    /// Periods that told something.
    periods: u32,
}

impl Path {
    /// At least what is configured.
    pub(super) fn get(self, configured: Seconds, allowed: Seconds) -> Seconds {
        configured.max(Seconds::new(self.seconds.min(allowed.get() * MOST)))
    }

    /// Takes in what a period says, by the least of its [`excess`]; nothing where no class of any backend says anything.
    pub(super) fn learn(&mut self, least: Option<f64>) {
        let Some(least) = least.map(|least| least.max(0.0)) else {
            return;
        };
        self.periods = self.periods.saturating_add(1);
        let share = match least < self.seconds {
            true => LEARNS[0],
            false => LEARNS[1].max(1.0 / f64::from(self.periods)),
        };
        self.seconds += (least - self.seconds) * share;
    }
}

/// By how much the least of a backend's classes took longer than by its figures, seconds.
pub(super) fn excess(told: &Told) -> Option<f64> {
    let predicted = told.predicted(Slowness::default());
    let seen = told.seen.iter().filter(|seen| seen.completions >= MIN_REQUESTS);
    seen.map(|seen| told.latency(seen) - predicted(seen))
        .min_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_is_believed_sooner_than_more_and_a_part_of_the_slo_at_most() {
        let after = |periods: &[(f64, usize)]| {
            let mut path = Path::default();
            for (ms, count) in periods {
                (0..*count).for_each(|_| path.learn(Some(ms / 1e3)));
            }
            path.learn(None);
            path.get(Seconds::from_millis(0.5), Seconds::from_millis(40.0))
                .as_millis()
        };
        assert_eq!(after(&[]), 0.5);
        assert!((after(&[(2.0, 10)]) - 2.0).abs() < 1e-9);
        assert!(after(&[(2.0, 50), (9.0, 5)]) < 2.8, "a rush");
        assert!(after(&[(9.0, 50), (2.0, 5)]) < 2.3);
        assert!((after(&[(500.0, 300)]) - 10.0).abs() < 1e-9);
        assert_eq!(after(&[(-1.0, 10)]), 0.5);
    }
}
