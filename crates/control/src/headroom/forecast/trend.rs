//! A level and its slope, both smoothed: what a load that changes slowly is, without the noise of its counts.

/// An α-β filter with β = α² / (2 − α), slightly underdamped (Benedict and Bordner, Synthesis of an optimal set of radar
/// track-while-scan smoothing equations, IRE Trans. Automatic Control 7, 1962). Until it has seen enough it is the
/// straight line through everything seen.
#[derive(Clone, Debug)]
pub(super) struct Trend {
    alpha: f64,
    level: f64,
    slope: f64,
    values: f64,
}

impl Trend {
    pub(super) const fn new(alpha: f64) -> Self {
        Self {
            alpha,
            level: 0.0,
            slope: 0.0,
            values: 0.0,
        }
    }

    /// Takes the next value.
    pub(super) fn push(&mut self, value: f64) {
        self.values += 1.0;
        let n = self.values;
        let alpha = self.alpha.max(2.0 * (2.0 * n - 1.0) / (n * (n + 1.0)));
        let beta = (self.alpha * self.alpha / (2.0 - self.alpha)).max(6.0 / (n * (n + 1.0)));
        let expected = self.level + self.slope;
        let off = value - expected;
        self.level = expected + alpha.min(1.0) * off;
        // The first two values say where it is; the slope is known from the second on.
        self.slope = match n {
            1.0 => 0.0,
            _ => self.slope + beta.min(1.0) * off,
        };
    }

    /// The next value, where two were seen.
    pub(super) fn next(&self) -> Option<f64> {
        (self.values > 1.0).then(|| (self.level + self.slope).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straight_line_is_followed_from_the_second_value_on() {
        for alpha in [0.1, 0.3] {
            let mut trend = Trend::new(alpha);
            trend.push(10.0);
            assert_eq!(trend.next(), None);
            for i in 1..200 {
                trend.push(10.0 + 2.0 * f64::from(i));
                let next = 12.0 + 2.0 * f64::from(i);
                assert!((trend.next().unwrap() - next).abs() < 1e-6, "{i}");
            }
        }
    }

    #[test]
    fn noise_is_smoothed() {
        let mut trend = Trend::new(0.15);
        let mut most = 0.0f64;
        for i in 0..400 {
            trend.push(if i % 2 == 0 { 90.0 } else { 110.0 });
            if i > 50 {
                most = most.max((trend.next().unwrap() - 100.0).abs());
            }
        }
        assert!(most < 2.0, "{most}");
    }
}
