//! The core time that one request costs, learned from what was busy and what was answered, as load and frequency
//! change: cost(φ) = fixed + scaled/φ, φ being the frequency over the highest and `fixed` the part that waits for
//! memory, which no frequency makes faster.

use super::kalman::Kalman;

/// Squared coefficient of variation of a period's cost, times its requests: what the sizes and the requests cut by the
/// period's ends scatter.
const SCATTER: f64 = 2.0;
/// Relative standard deviation that is left however many requests there are.
const FLOOR: f64 = 0.02;

/// Weight of the newest period in what the last ones lay off, and from where on it is the service that has changed:
/// four standard deviations of such an average.
const LATELY: f64 = 0.3;
const CHANGED: f64 = 1.7;
/// The most that one period's cost may be over or under the expected one.
const MAX_STEP: f64 = 3.0;

/// The cost of a request, in seconds of a core.
#[derive(Clone, Debug)]
pub(crate) struct Cost {
    filter: Kalman<2>,
    prior: f64,
    /// What the last periods lay off, in standard deviations, the newest weighing most.
    lately: f64,
}

impl Cost {
    /// From a calibrated service rate, in requests per second and core at the highest frequency: believed to within a
    /// factor of two or so until something is seen.
    pub(crate) fn new(service_rate: f64) -> Self {
        let prior = 1.0 / service_rate;
        Self {
            filter: Kalman::new(
                [0.0, prior],
                [0.12 * prior, 0.5 * prior],
                [0.001 * prior, 0.004 * prior],
            ),
            prior,
            lately: 0.0,
        }
    }

    /// At a frequency of `pace` times the highest.
    pub(crate) fn at(&self, pace: f64) -> f64 {
        self.filter.expected(&[1.0, 1.0 / pace])
    }

    /// How far this may be off at a frequency, one standard deviation over the cost there: what was seen at one frequency says little
    /// of another.
    pub(crate) fn unsure(&self, pace: f64) -> f64 {
        let weights = [1.0, 1.0 / pace];
        self.filter.uncertainty(&weights).sqrt() / self.filter.expected(&weights)
    }

    /// Takes a period: core seconds that were busy, requests answered and requests that came to lie or went since its
    /// beginning, half of whose cost is counted.
    pub(crate) fn observe(&mut self, busy: f64, completions: f64, change_in_flight: f64, pace: f64) {
        let requests = completions + change_in_flight / 2.0;
        if !(busy > 0.0 && completions >= 1.0 && requests >= 1.0 && pace > 0.0) {
            return;
        }
        // One period moves it by so much at most: what is far out is rather a bad reading than another service.
        let expected = self.at(pace);
        let seen = (busy / requests).clamp(expected / MAX_STEP, expected * MAX_STEP);
        let unsure = change_in_flight.abs() / (2.0 * requests);
        let relative = SCATTER / requests + FLOOR * FLOOR + unsure * unsure;
        let least = expected.min(seen);
        let weights = [1.0, 1.0 / pace];
        let noise = relative * least * least;
        let deviation = (noise + self.filter.uncertainty(&weights)).sqrt();
        self.lately += LATELY * ((seen - expected) / deviation - self.lately);
        if self.lately.abs() > CHANGED {
            self.filter.doubt();
            self.lately = 0.0;
        }
        self.filter.observe(&weights, seen, noise);
        let [fixed, scaled] = self.filter.state();
        let scaled = scaled.clamp(self.prior / 100.0, self.prior * 100.0);
        self.filter.set_state([fixed.clamp(0.0, scaled), scaled]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_calibration_is_corrected_within_a_few_periods() {
        let mut cost = Cost::new(50.0);
        for _ in 0..10 {
            cost.observe(6.0, 100.0, 0.0, 1.0);
        }
        assert!((cost.at(1.0) / 0.06 - 1.0).abs() < 0.1, "{}", cost.at(1.0));
    }

    #[test]
    fn the_part_that_frequency_does_not_change_is_found() {
        let mut cost = Cost::new(20.0);
        for i in 0..2_000 {
            let pace = [1.0, 0.7, 0.45][i / 20 % 3];
            cost.observe(100.0 * (0.01 + 0.04 / pace), 100.0, 0.0, pace);
        }
        for pace in [1.0, 0.55] {
            let truth = 0.01 + 0.04 / pace;
            assert!(
                (cost.at(pace) / truth - 1.0).abs() < 0.03,
                "{} for {truth}",
                cost.at(pace)
            );
        }
    }

    #[test]
    fn a_change_is_followed_after_long_quiet() {
        let mut cost = Cost::new(20.0);
        for i in 0..1_000 {
            cost.observe(if i < 985 { 5.0 } else { 10.0 }, 100.0, 0.0, 1.0);
        }
        assert!((cost.at(1.0) / 0.1 - 1.0).abs() < 0.1, "{}", cost.at(1.0));
    }

    #[test]
    fn what_one_frequency_says_of_another_grows_old() {
        let mut cost = Cost::new(20.0);
        let mut see = |periods: usize, pace: f64| {
            for _ in 0..periods {
                cost.observe(100.0 * 0.05 / pace, 100.0, 0.0, pace);
            }
            cost.unsure(1.0)
        };
        let fresh = see(100, 1.0);
        let old = see(4_000, 0.5);
        assert!(fresh < 0.03 && old > 2.0 * fresh, "{fresh} {old}");
        let after = see(10, 1.0);
        assert!(after < 0.8 * old, "{after} {old} {fresh}");
    }

    #[test]
    fn nonsense_is_not_taken() {
        let mut cost = Cost::new(20.0);
        for (busy, completions, pace) in [
            (f64::NAN, 10.0, 1.0),
            (1.0, 0.0, 1.0),
            (1.0, 10.0, f64::NAN),
            (-1.0, 9.0, 1.0),
        ] {
            cost.observe(busy, completions, 0.0, pace);
        }
        assert_eq!(cost.at(1.0), 0.05);
    }
}
