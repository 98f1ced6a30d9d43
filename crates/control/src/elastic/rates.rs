//! What comes, told from the noise of its counts.

use std::collections::VecDeque;

/// Over so many of the last periods a rate is looked for that is higher than what the noise of counts can make.
const WINDOWS: [usize; 5] = [1, 2, 5, 10, 30];
/// A count of n is taken to be n less so many of its standard deviations, the root of n: one window in some 700 of a Poisson
/// process exceeds its rate by more.
const DEVIATIONS: f64 = 3.0;
/// A mean over so many requests is taken for the rate: it is within a tenth, but once in twenty.
const ENOUGH_REQUESTS: f64 = 400.0;
/// The longest window.
const MAX_PERIODS: usize = WINDOWS[WINDOWS.len() - 1];

/// The last periods' requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    /// Requests and length in seconds, the newest first.
    periods: VecDeque<(f64, f64)>,
}

impl Rates {
    pub(super) fn observe(&mut self, rate: f64, length_s: f64) {
        self.periods.truncate(MAX_PERIODS - 1);
        self.periods.push_front((rate * length_s, length_s));
    }

    pub(super) fn forget(&mut self) {
        self.periods.clear();
    }

    /// The mean over the last periods that have enough requests, or over all that are kept.
    pub(super) fn mean(&self) -> f64 {
        let (requests, length_s) = self.enough();
        requests / f64::max(length_s, 1e-9)
    }

    /// What the rate is at most, as far as the noise of that mean's count goes.
    pub(super) fn at_most(&self) -> f64 {
        let (requests, length_s) = self.enough();
        (requests + 2.0 * requests.sqrt()) / f64::max(length_s, 1e-9)
    }

    fn enough(&self) -> (f64, f64) {
        let (mut requests, mut length_s) = (0.0, 0.0);
        for (of_period, period_s) in &self.periods {
            requests += of_period;
            length_s += period_s;
            if requests >= ENOUGH_REQUESTS {
                break;
            }
        }
        (requests, length_s)
    }

    /// What comes at least: the highest of what each window shows beyond the noise of its count. A surge is in it after its first
    /// period, a slow rise once there is enough of it.
    pub(super) fn sure(&self) -> f64 {
        let (mut requests, mut length_s, mut most) = (0.0, 0.0, 0.0_f64);
        for (at, (of_period, period_s)) in self.periods.iter().enumerate() {
            requests += of_period;
            length_s += period_s;
            if WINDOWS.contains(&(at + 1)) && length_s > 0.0 {
                most = most.max((requests - DEVIATIONS * requests.sqrt()) / length_s);
            }
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_surge_shows_at_once_and_noise_does_not() {
        let mut rates = Rates::default();
        (0..60).for_each(|_| rates.observe(100.0, 1.0));
        assert!((rates.mean() - 100.0).abs() < 1e-9);
        assert!(rates.sure() < 100.0 && rates.sure() > 94.0, "{}", rates.sure());
        // A count of 125 is what noise can make.
        rates.observe(125.0, 1.0);
        assert!(rates.sure() < 100.0, "{}", rates.sure());
        rates.observe(1_000.0, 1.0);
        assert!(rates.sure() > 900.0, "{}", rates.sure());
    }

    #[test]
    fn nothing_observed_is_nothing_that_comes() {
        let mut rates = Rates::default();
        assert_eq!((rates.mean(), rates.sure()), (0.0, 0.0));
        rates.observe(0.0, 1.0);
        assert_eq!((rates.mean(), rates.sure()), (0.0, 0.0));
    }
}
