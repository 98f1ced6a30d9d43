//! Distributions of service times and think times: a shape, scaled to a mean.

use crate::error::ScenarioError;
use crate::random::Rng;
use libm::tgamma;
use serde::{Deserialize, Serialize};

/// The most values of an empirical distribution.
pub const MAX_VALUES: usize = 1_000_000;

/// The shape of a distribution. Its mean is given beside it, so a shape holds only what is left: how the values spread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Shape {
    /// Exponential: squared coefficient of variation (SCV) 1.
    Exponential {},
    /// Always the mean: SCV 0.
    Deterministic {},
    /// Lognormal of an SCV.
    Lognormal {
        /// Variance over squared mean, above 0.
        scv: f64,
    },
    /// Pareto, truncated so that all moments exist: density ∝ x^-(exponent + 1) between a smallest and a largest value.
    Pareto {
        /// The tail's exponent α, above 0; tails of real file sizes lie between 1 and 2.
        exponent: f64,
        /// The largest value over the smallest, above 1.
        range: f64,
    },
    /// A mixture of two exponentials with balanced means (each branch carries half the work): SCV above 1.
    Hyperexponential {
        /// Variance over squared mean, above 1.
        scv: f64,
    },
    /// Weibull, which the gaps between the parts of a page have.
    Weibull {
        /// The exponent; 1 is the exponential distribution, a larger one spreads less.
        shape: f64,
    },
    /// Measured values, drawn with their weights and scaled to the mean.
    Empirical {
        /// The values, in any unit, none negative, not all zero.
        values: Vec<f64>,
        /// How often each occurs; not given: all equally often.
        #[serde(default)]
        weights: Vec<f64>,
    },
}

impl Shape {
    /// The squared coefficient of variation, variance over squared mean.
    pub fn scv(&self) -> f64 {
        match self {
            Self::Exponential {} => 1.0,
            Self::Deterministic {} => 0.0,
            Self::Lognormal { scv } | Self::Hyperexponential { scv } => *scv,
            Self::Pareto { exponent, range } => {
                let first = pareto_moment(*exponent, *range, 1.0);
                pareto_moment(*exponent, *range, 2.0) / (first * first) - 1.0
            }
            Self::Weibull { shape } => {
                let first = tgamma(1.0 + 1.0 / shape);
                tgamma(1.0 + 2.0 / shape) / (first * first) - 1.0
            }
            Self::Empirical { values, weights } => {
                let moment = |power: i32| -> f64 {
                    let weighed = weighed(values, weights);
                    weighed.map(|(value, weight)| value.powi(power) * weight).sum()
                };
                moment(2) * moment(0) / (moment(1) * moment(1)) - 1.0
            }
        }
    }

    /// Checks the shape's own figures; `key` is where it stands.
    ///
    /// # Errors
    /// [`ScenarioError`] with the key.
    pub fn check(&self, key: &str) -> Result<(), ScenarioError> {
        let bad = |field: &str, value: String, rule: &str| {
            Err(ScenarioError::new(
                format!("{key}.{field}"),
                format!("is {value}: it must be {rule}"),
            ))
        };
        match self {
            Self::Exponential {} | Self::Deterministic {} => Ok(()),
            Self::Lognormal { scv } if !(*scv > 0.0 && *scv <= 1e6) => bad(
                "scv",
                scv.to_string(),
                "above 0 and at most 1000000 (0 is kind = \"deterministic\")",
            ),
            Self::Hyperexponential { scv } if !(*scv > 1.0 && *scv <= 1e6) => bad(
                "scv",
                scv.to_string(),
                "above 1 and at most 1000000 (1 is kind = \"exponential\")",
            ),
            Self::Pareto { exponent, .. } if !(*exponent > 0.0 && *exponent <= 100.0) => {
                bad("exponent", exponent.to_string(), "above 0 and at most 100")
            }
            Self::Pareto { range, .. } if !(*range > 1.0 && *range <= 1e9) => {
                bad("range", range.to_string(), "above 1 and at most 1e9")
            }
            Self::Weibull { shape } if !(0.1..=100.0).contains(shape) => {
                bad("shape", shape.to_string(), "between 0.1 and 100")
            }
            Self::Empirical { values, weights } => {
                if values.is_empty() || values.len() > MAX_VALUES {
                    return bad(
                        "values",
                        format!("{} values", values.len()),
                        "1 to 1000000 values",
                    );
                }
                if let Some(value) = values.iter().find(|value| !(**value >= 0.0 && value.is_finite())) {
                    return bad("values", value.to_string(), "0 or more, each");
                }
                if !weights.is_empty() && weights.len() != values.len() {
                    let count = format!("{} weights for {} values", weights.len(), values.len());
                    return bad("weights", count, "one for each value, or none at all");
                }
                if let Some(weight) = weights
                    .iter()
                    .find(|weight| !(**weight >= 0.0 && weight.is_finite()))
                {
                    return bad("weights", weight.to_string(), "0 or more, each");
                }
                let sum: f64 = weighed(values, weights)
                    .map(|(value, weight)| value * weight)
                    .sum();
                if !(sum > 0.0 && sum.is_finite()) {
                    return bad(
                        "values",
                        "a mean of 0".to_owned(),
                        "such that their mean is above 0",
                    );
                }
                Ok(())
            }
            Self::Lognormal { .. }
            | Self::Hyperexponential { .. }
            | Self::Pareto { .. }
            | Self::Weibull { .. } => Ok(()),
        }
    }

    /// The shape scaled to a mean. The shape must have been checked.
    pub fn scaled(&self, mean: f64) -> Sampler {
        match self {
            Self::Exponential {} => Sampler::Exponential { mean },
            Self::Deterministic {} => Sampler::Deterministic { mean },
            Self::Lognormal { scv } => {
                // E = exp(m + s²/2) and SCV = exp(s²) - 1.
                let variance = scv.ln_1p();
                Sampler::Lognormal {
                    location: mean.ln() - variance / 2.0,
                    scale: variance.sqrt(),
                }
            }
            Self::Pareto { exponent, range } => Sampler::Pareto {
                smallest: mean / pareto_moment(*exponent, *range, 1.0),
                // Of the inverse x = L (1 - u (1 - r^-α))^(-1/α).
                mass: 1.0 - range.powf(-exponent),
                power: -1.0 / exponent,
            },
            Self::Hyperexponential { scv } => {
                let often = 0.5 * (1.0 + ((scv - 1.0) / (scv + 1.0)).sqrt());
                Sampler::Hyperexponential {
                    often,
                    means: [mean / (2.0 * often), mean / (2.0 * (1.0 - often))],
                }
            }
            Self::Weibull { shape } => Sampler::Weibull {
                scale: mean / tgamma(1.0 + 1.0 / shape),
                power: 1.0 / shape,
            },
            Self::Empirical { values, weights } => Sampler::Empirical(Alias::new(values, weights, mean)),
        }
    }
}

fn weighed<'a>(values: &'a [f64], weights: &'a [f64]) -> impl Iterator<Item = (f64, f64)> + 'a {
    let weight = |at: usize| weights.get(at).copied().unwrap_or(1.0);
    values
        .iter()
        .enumerate()
        .map(move |(at, value)| (*value, weight(at)))
}

/// E[X^j] of the truncated Pareto distribution with smallest value 1.
fn pareto_moment(exponent: f64, range: f64, power: f64) -> f64 {
    let scale = exponent / (1.0 - range.powf(-exponent));
    let rest = power - exponent;
    if rest.abs() < 1e-9 {
        scale * range.ln()
    } else {
        scale * (range.powf(rest) - 1.0) / rest
    }
}

/// A shape with its mean, ready to be drawn from.
#[derive(Clone, Debug)]
pub enum Sampler {
    /// See [`Shape::Exponential`].
    Exponential {
        /// Mean.
        mean: f64,
    },
    /// See [`Shape::Deterministic`].
    Deterministic {
        /// The one value.
        mean: f64,
    },
    /// See [`Shape::Lognormal`].
    Lognormal {
        /// Mean of the logarithm.
        location: f64,
        /// Standard deviation of the logarithm.
        scale: f64,
    },
    /// See [`Shape::Pareto`].
    Pareto {
        /// Smallest value.
        smallest: f64,
        /// The untruncated distribution's probability of the range.
        mass: f64,
        /// -1/α.
        power: f64,
    },
    /// See [`Shape::Hyperexponential`].
    Hyperexponential {
        /// Probability of the first branch.
        often: f64,
        /// Means of the branches.
        means: [f64; 2],
    },
    /// See [`Shape::Weibull`].
    Weibull {
        /// λ.
        scale: f64,
        /// 1/k.
        power: f64,
    },
    /// See [`Shape::Empirical`].
    Empirical(Alias),
}

impl Sampler {
    /// Draws one value.
    #[inline]
    pub fn sample(&self, rng: &mut Rng) -> f64 {
        match self {
            Self::Exponential { mean } => mean * rng.exponential(),
            Self::Deterministic { mean } => *mean,
            Self::Lognormal { location, scale } => (location + scale * rng.normal()).exp(),
            Self::Pareto {
                smallest,
                mass,
                power,
            } => smallest * (1.0 - rng.uniform() * mass).powf(*power),
            Self::Hyperexponential { often, means } => {
                means[usize::from(rng.uniform() >= *often)] * rng.exponential()
            }
            // The inverse of 1 - exp(-(x/λ)^k).
            Self::Weibull { scale, power } => scale * rng.exponential().powf(*power),
            Self::Empirical(alias) => alias.sample(rng),
        }
    }
}

/// Weighted values, drawn in constant time by the alias method (A. J. Walker, 1977; M. D. Vose, 1991).
#[derive(Clone, Debug)]
pub struct Alias {
    values: Vec<f64>,
    /// For each column the probability of staying in it, and where else to go.
    columns: Vec<(f64, u32)>,
}

impl Alias {
    fn new(values: &[f64], weights: &[f64], mean: f64) -> Self {
        let count = values.len() as f64;
        let total: f64 = weighed(values, weights).map(|(_, weight)| weight).sum();
        let sum: f64 = weighed(values, weights)
            .map(|(value, weight)| value * weight)
            .sum();
        let scale = mean * total / sum;
        let mut columns: Vec<(f64, u32)> = weighed(values, weights)
            .enumerate()
            .map(|(at, (_, weight))| (weight / total * count, at as u32))
            .collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..columns.len()).partition(|at| columns[*at].0 < 1.0);
        while let (Some(low), Some(high)) = (small.pop(), large.last().copied()) {
            columns[low].1 = high as u32;
            columns[high].0 -= 1.0 - columns[low].0;
            if columns[high].0 < 1.0 {
                large.pop();
                small.push(high);
            }
        }
        Self {
            values: values.iter().map(|value| value * scale).collect(),
            columns,
        }
    }

    #[inline]
    fn sample(&self, rng: &mut Rng) -> f64 {
        let place = rng.uniform() * self.columns.len() as f64;
        let column = place as usize;
        let (stay, other) = self.columns[column];
        let chosen = if place - column as f64 >= stay {
            other as usize
        } else {
            column
        };
        self.values[chosen]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;

    /// Every shape keeps the mean it is scaled to and the SCV it states.
    #[test]
    fn samples_have_the_stated_mean_and_scv() {
        let shapes = [
            Shape::Exponential {},
            Shape::Deterministic {},
            Shape::Lognormal { scv: 0.5 },
            Shape::Lognormal { scv: 4.0 },
            Shape::Pareto {
                exponent: 1.5,
                range: 1e3,
            },
            Shape::Pareto {
                exponent: 2.0,
                range: 50.0,
            },
            Shape::Pareto {
                exponent: 1.0,
                range: 100.0,
            },
            Shape::Hyperexponential { scv: 4.0 },
            Shape::Weibull { shape: 1.46 },
            Shape::Weibull { shape: 0.8 },
            Shape::Empirical {
                values: vec![1.0, 2.0, 10.0, 0.0],
                weights: vec![5.0, 3.0, 1.0, 0.5],
            },
            Shape::Empirical {
                values: vec![3.0, 1.0],
                weights: vec![],
            },
        ];
        for shape in shapes {
            shape.check("size").unwrap();
            let sampler = shape.scaled(0.25);
            let mut rng = Rng::new(11, Purpose::Sizes);
            let (mut sum, mut squares) = (0.0, 0.0);
            let count = 2_000_000;
            for _ in 0..count {
                let value = sampler.sample(&mut rng);
                assert!(value >= 0.0);
                sum += value;
                squares += value * value;
            }
            let mean = sum / f64::from(count);
            let scv = squares / f64::from(count) / (mean * mean) - 1.0;
            assert!((mean / 0.25 - 1.0).abs() < 0.01, "{shape:?}: mean {mean}");
            let off = (scv - shape.scv()).abs();
            assert!(
                off < 0.05 * shape.scv() + 1e-9,
                "{shape:?}: SCV {scv}, stated {}",
                shape.scv()
            );
        }
    }

    #[test]
    fn a_shape_that_is_none_is_named_with_its_value_and_rule() {
        let cases = [
            (
                Shape::Lognormal { scv: -1.0 },
                "size.scv: is -1: it must be above 0",
            ),
            (
                Shape::Hyperexponential { scv: 1.0 },
                "size.scv: is 1: it must be above 1",
            ),
            (
                Shape::Pareto {
                    exponent: 0.0,
                    range: 2.0,
                },
                "size.exponent: is 0",
            ),
            (
                Shape::Pareto {
                    exponent: 1.0,
                    range: 1.0,
                },
                "size.range: is 1",
            ),
            (
                Shape::Empirical {
                    values: vec![],
                    weights: vec![],
                },
                "size.values: is 0 values",
            ),
            (
                Shape::Empirical {
                    values: vec![0.0],
                    weights: vec![],
                },
                "size.values: is a mean of 0",
            ),
            (
                Shape::Empirical {
                    values: vec![1.0],
                    weights: vec![1.0, 2.0],
                },
                "size.weights: is 2 weights for 1",
            ),
        ];
        for (shape, expected) in cases {
            let error = shape.check("size").unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
