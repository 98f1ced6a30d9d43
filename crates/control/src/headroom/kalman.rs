//! A Kalman filter of a few slowly drifting parameters behind scalar observations: recursive least squares with a
//! prior, whose covariance neither winds up while nothing new is seen nor falls asleep.

/// N parameters that drift as random walks.
#[derive(Clone, Debug)]
pub(crate) struct Kalman<const N: usize> {
    state: [f64; N],
    covariance: [[f64; N]; N],
    /// Variances that are never exceeded: those of the prior.
    most: [f64; N],
    /// Variance that one observation's time adds.
    drift: [f64; N],
}

impl<const N: usize> Kalman<N> {
    /// Parameters around `prior` with these standard deviations, drifting by `drift` (one standard deviation) from
    /// one observation to the next.
    pub(crate) fn new(prior: [f64; N], deviation: [f64; N], drift: [f64; N]) -> Self {
        let mut covariance = [[0.0; N]; N];
        for (i, row) in covariance.iter_mut().enumerate() {
            row[i] = deviation[i] * deviation[i];
        }
        Self {
            state: prior,
            covariance,
            most: deviation.map(|d| d * d),
            drift: drift.map(|d| d * d),
        }
    }

    pub(crate) const fn state(&self) -> [f64; N] {
        self.state
    }

    /// Puts the parameters somewhere else, as where a bound was exceeded.
    pub(crate) const fn set_state(&mut self, state: [f64; N]) {
        self.state = state;
    }

    /// The value expected where the parameters are weighted so.
    pub(crate) fn expected(&self, weights: &[f64; N]) -> f64 {
        self.state.iter().zip(weights).map(|(s, w)| s * w).sum()
    }

    /// The variance of [`Self::expected`] that comes from not knowing the parameters.
    pub(crate) fn uncertainty(&self, weights: &[f64; N]) -> f64 {
        let through = self.through(weights);
        through
            .iter()
            .zip(weights)
            .map(|(c, w)| c * w)
            .sum::<f64>()
            .max(0.0)
    }

    /// Takes an observation with the variance of its noise; gives what it lay off the expectation. What is not finite
    /// is not taken.
    pub(crate) fn observe(&mut self, weights: &[f64; N], value: f64, noise: f64) -> f64 {
        let off = value - self.expected(weights);
        if !off.is_finite() || !noise.is_finite() || noise <= 0.0 {
            return 0.0;
        }
        for i in 0..N {
            self.covariance[i][i] = (self.covariance[i][i] + self.drift[i]).min(self.most[i]);
        }
        let through = self.through(weights);
        let spread = noise
            + through
                .iter()
                .zip(weights)
                .map(|(c, w)| c * w)
                .sum::<f64>()
                .max(0.0);
        for i in 0..N {
            self.state[i] += through[i] / spread * off;
            for j in 0..N {
                self.covariance[i][j] -= through[i] * through[j] / spread;
            }
        }
        // Rounding must not leave a variance below zero, nor a covariance beyond what the two variances allow.
        for i in 0..N {
            self.covariance[i][i] = self.covariance[i][i].max(1e-18);
        }
        for i in 0..N {
            for j in 0..i {
                let limit = (self.covariance[i][i] * self.covariance[j][j]).sqrt();
                let middle = f64::midpoint(self.covariance[i][j], self.covariance[j][i]).clamp(-limit, limit);
                self.covariance[i][j] = middle;
                self.covariance[j][i] = middle;
            }
        }
        off
    }

    /// Knows as little again as at the beginning, around the present values: what was seen lately does not fit them.
    pub(crate) fn doubt(&mut self) {
        for i in 0..N {
            self.covariance[i] = [0.0; N];
            self.covariance[i][i] = self.most[i];
        }
    }

    fn through(&self, weights: &[f64; N]) -> [f64; N] {
        self.covariance
            .map(|row| row.iter().zip(weights).map(|(c, w)| c * w).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_is_found() {
        let mut filter = Kalman::new([0.0, 0.0], [10.0, 10.0], [0.0, 0.0]);
        for i in 0..50 {
            let x = f64::from(i % 7);
            filter.observe(&[1.0, x], 2.0 + 3.0 * x, 0.01);
        }
        let [a, b] = filter.state();
        assert!((a - 2.0).abs() < 0.01 && (b - 3.0).abs() < 0.01, "{a} {b}");
        assert!(filter.uncertainty(&[1.0, 3.0]) < 0.01);
    }

    #[test]
    fn what_is_not_excited_stays_at_its_prior_and_known_to_be_unknown() {
        let mut filter = Kalman::new([1.0, 5.0], [1.0, 2.0], [0.1, 0.1]);
        for _ in 0..10_000 {
            filter.observe(&[1.0, 0.0], 3.0, 0.1);
        }
        let [a, b] = filter.state();
        assert!((a - 3.0).abs() < 0.01 && (b - 5.0).abs() < 1e-9, "{a} {b}");
        assert!(filter.uncertainty(&[0.0, 1.0]) <= 4.0 + 1e-9);
    }

    proptest! {
        #[test]
        fn it_stays_finite_whatever_it_is_given(
            seen in prop::collection::vec((-1e6..1e6f64, -1e3..1e3f64, prop::num::f64::ANY, 1e-6..1e6f64), 1..200),
        ) {
            let mut filter = Kalman::new([0.0, 0.0], [10.0, 3.0], [0.1, 0.1]);
            for (w, v, value, noise) in seen {
                filter.observe(&[w, v], value.clamp(-1e9, 1e9), noise);
                prop_assert!(filter.state().iter().all(|s| s.is_finite()));
                prop_assert!(filter.uncertainty(&[1.0, 1.0]).is_finite());
            }
        }
    }
}
