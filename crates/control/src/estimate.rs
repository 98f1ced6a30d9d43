//! The workload estimator of SLO-Power: a straight line fitted by least squares to the last values and read one
//! step ahead (Section III-C, "best-fit model"; the window lengths and the rule for a short window are those of
//! the authors' code).

use std::collections::VecDeque;

/// A window of the last values, and the least-squares line through them.
#[derive(Clone, Debug, PartialEq)]
pub struct LineEstimator {
    window: VecDeque<f64>,
    length: usize,
}

impl LineEstimator {
    /// An estimator over the last `length` values, at least 2: one value has no slope.
    pub fn new(length: usize) -> Self {
        let length = length.max(2);
        Self {
            window: VecDeque::with_capacity(length),
            length,
        }
    }

    /// Takes the newest value.
    pub fn push(&mut self, value: f64) {
        if self.window.len() == self.length {
            self.window.pop_front();
        }
        self.window.push_back(value);
    }

    /// The value expected one step after the newest: the line's, and the maximum while the window is short;
    /// `None` before the first value. Never negative: neither a rate nor a utilisation can be.
    pub fn next(&self) -> Option<f64> {
        if self.window.len() < self.length {
            return self.window.iter().copied().reduce(f64::max);
        }
        let n = self.length as f64;
        let mean_x = (n - 1.0) / 2.0;
        let mean_y = self.window.iter().sum::<f64>() / n;
        let (mut covariance, mut variance) = (0.0, 0.0);
        for (x, y) in self.window.iter().enumerate() {
            let dx = x as f64 - mean_x;
            covariance += dx * (y - mean_y);
            variance += dx * dx;
        }
        Some((mean_y + covariance / variance * (n - mean_x)).max(0.0))
    }

    /// Empties the window.
    pub fn clear(&mut self) {
        self.window.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn after(values: &[f64], length: usize) -> Option<f64> {
        let mut estimator = LineEstimator::new(length);
        values.iter().for_each(|v| estimator.push(*v));
        estimator.next()
    }

    #[test]
    fn a_line_is_continued() {
        assert_eq!(after(&[10.0, 12.0, 14.0, 16.0, 18.0], 5), Some(20.0));
    }

    #[test]
    fn only_the_window_counts() {
        assert_eq!(after(&[900.0, 10.0, 12.0, 14.0], 3), Some(16.0));
    }

    #[test]
    fn scattered_values_give_the_least_squares_line() {
        // By hand: x 0..4, y 1 3 2 5 4; slope 0.8, mean 3 at x = 2, so 3 + 0.8 * 3 at x = 5.
        let expected = after(&[1.0, 3.0, 2.0, 5.0, 4.0], 5).unwrap();
        assert!((expected - 5.4).abs() < 1e-12);
    }

    #[test]
    fn a_short_window_gives_its_maximum_and_an_empty_one_nothing() {
        assert_eq!(after(&[7.0, 3.0], 5), Some(7.0));
        assert_eq!(after(&[], 5), None);
    }

    #[test]
    fn a_falling_line_ends_at_zero() {
        assert_eq!(after(&[9.0, 5.0, 1.0], 3), Some(0.0));
    }

    proptest! {
        #[test]
        fn any_line_is_continued_exactly(start in 0.0..1e5f64, slope in 0.0..1e3f64, length in 2usize..40) {
            let values: Vec<f64> = (0..length).map(|i| start + slope * i as f64).collect();
            let expected = start + slope * length as f64;
            let got = after(&values, length).unwrap();
            prop_assert!((got - expected).abs() <= 1e-6 * expected.max(1.0));
        }
    }
}
