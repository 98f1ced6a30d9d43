//! The distributions of the user model, truncated.
//!
//! Heavy tails without a bound have moments that do not exist or that no run is long enough to show, and one draw of
//! a day would end a user. So each is drawn *given that it is at most `largest`*: the shape below the bound is the
//! published one, and the truncation is part of the parameter, not hidden in the drawing.

use crate::random::{exponential, normal};
use rand::{Rng, RngExt};

/// How often a lognormal draw beyond the bound is drawn again before it is set to the bound. With the parameters
/// here one draw in thirty is beyond it at most, so the last resort has a probability below 1e-90.
const MAX_REDRAWS: usize = 64;

/// The shape of a distribution of positive numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// The logarithm is normal.
    Lognormal {
        /// Mean of the natural logarithm.
        mu: f64,
        /// Standard deviation of the natural logarithm.
        sigma: f64,
    },
    /// P(X > x) = (smallest / x)^exponent.
    Pareto {
        /// The smallest value, k.
        smallest: f64,
        /// The tail's exponent, alpha.
        exponent: f64,
    },
    /// P(X > x) = exp(-(x / scale)^shape).
    Weibull {
        /// Scale, in the unit of the values.
        scale: f64,
        /// Shape; above 1 the values cluster about the scale.
        shape: f64,
    },
}

/// A distribution given that its value is at most a bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truncated {
    /// The shape below the bound.
    pub shape: Shape,
    /// The bound, in the unit of the values.
    pub largest: f64,
}

impl Truncated {
    /// A value.
    pub fn sample(&self, rng: &mut impl Rng) -> f64 {
        match self.shape {
            Shape::Lognormal { mu, sigma } => (0..MAX_REDRAWS)
                .map(|_| (mu + sigma * normal(rng)).exp())
                .find(|value| *value <= self.largest)
                .unwrap_or(self.largest),
            Shape::Pareto { smallest, exponent } => {
                let mass = 1.0 - (smallest / self.largest).powf(exponent);
                let left = 1.0 - rng.random::<f64>() * mass;
                (smallest * left.powf(-1.0 / exponent)).min(self.largest)
            }
            Shape::Weibull { scale, shape } => (0..MAX_REDRAWS)
                .map(|_| scale * exponential(rng).powf(1.0 / shape))
                .find(|value| *value <= self.largest)
                .unwrap_or(self.largest),
        }
    }

    /// P(X <= x) of a truncated Pareto or Weibull distribution; `None` of a lognormal, which has no closed form.
    pub fn cumulative(&self, value: f64) -> Option<f64> {
        let whole = |x: f64| match self.shape {
            Shape::Lognormal { .. } => None,
            Shape::Pareto { smallest, exponent } => {
                Some((1.0 - (smallest / x.max(smallest)).powf(exponent)).max(0.0))
            }
            Shape::Weibull { scale, shape } => Some(-(-(x.max(0.0) / scale).powf(shape)).exp_m1()),
        };
        Some((whole(value)? / whole(self.largest)?).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    const DRAWS: usize = 100_000;

    fn sorted(distribution: Truncated) -> Vec<f64> {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let mut values: Vec<f64> = (0..DRAWS).map(|_| distribution.sample(&mut rng)).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    /// The largest distance between the drawn and the stated distribution function. By Kolmogorov it exceeds
    /// 1.95 / sqrt(n) once in a thousand seeds.
    fn farthest(values: &[f64], cumulative: impl Fn(f64) -> f64) -> f64 {
        let n = values.len() as f64;
        let distances = values.iter().enumerate().map(|(index, value)| {
            let stated = cumulative(*value);
            (stated - index as f64 / n)
                .abs()
                .max((stated - (index + 1) as f64 / n).abs())
        });
        distances.fold(0.0, f64::max)
    }

    #[test]
    fn pareto_and_weibull_have_their_distribution_functions() {
        for (shape, largest) in [
            (
                Shape::Pareto {
                    smallest: 1.0,
                    exponent: 1.5,
                },
                1000.0,
            ),
            (
                Shape::Pareto {
                    smallest: 133_000.0,
                    exponent: 1.1,
                },
                5e7,
            ),
            (
                Shape::Weibull {
                    scale: 0.382,
                    shape: 1.46,
                },
                1.0,
            ),
        ] {
            let distribution = Truncated { shape, largest };
            let values = sorted(distribution);
            assert!(values[DRAWS - 1] <= largest);
            let distance = farthest(&values, |x| distribution.cumulative(x).unwrap());
            assert!(distance < 1.95 / (DRAWS as f64).sqrt(), "{shape:?}: {distance}");
        }
    }

    #[test]
    fn a_lognormal_has_its_quantiles() {
        let (mu, sigma) = (9.357, 1.318);
        let values = sorted(Truncated {
            shape: Shape::Lognormal { mu, sigma },
            largest: f64::INFINITY,
        });
        // Standard normal quantiles; the standard error of the median's logarithm is 1.25 sigma / sqrt(n) = 0.005.
        for (share, z) in [(0.1, -1.2816), (0.5, 0.0), (0.9, 1.2816), (0.99, 2.3263)] {
            let logarithm = values[(share * DRAWS as f64) as usize].ln();
            assert!(
                (logarithm - (mu + z * sigma)).abs() < 0.05,
                "{share}: {logarithm}"
            );
        }
    }

    #[test]
    fn a_truncated_lognormal_is_the_whole_one_below_the_bound() {
        let shape = Shape::Lognormal {
            mu: 9.357,
            sigma: 1.318,
        };
        // The bound at one standard deviation: P(Z <= 1) = 0.84134, so the median is the whole one's quantile at
        // 0.42067, z = -0.2002.
        let bound = f64::exp(9.357 + 1.318);
        let values = sorted(Truncated {
            shape,
            largest: bound,
        });
        assert!(values[DRAWS - 1] <= bound);
        let logarithm = values[DRAWS / 2].ln();
        assert!((logarithm - (9.357 - 0.2002 * 1.318)).abs() < 0.02, "{logarithm}");
    }

    #[test]
    fn textbook_medians() {
        let pareto = Truncated {
            shape: Shape::Pareto {
                smallest: 2.0,
                exponent: 1.5,
            },
            largest: f64::INFINITY,
        };
        // k 2^(1/alpha), and scale (ln 2)^(1/shape).
        assert!((pareto.cumulative(2.0 * 2f64.powf(1.0 / 1.5)).unwrap() - 0.5).abs() < 1e-12);
        let weibull = Truncated {
            shape: Shape::Weibull {
                scale: 0.382,
                shape: 1.46,
            },
            largest: f64::INFINITY,
        };
        let median = 0.382 * 2f64.ln().powf(1.0 / 1.46);
        assert!((weibull.cumulative(median).unwrap() - 0.5).abs() < 1e-12);
        let lognormal = Shape::Lognormal { mu: 0.0, sigma: 1.0 };
        let lognormal = Truncated {
            shape: lognormal,
            largest: 5.0,
        };
        assert_eq!(lognormal.cumulative(1.0), None);
    }
}
