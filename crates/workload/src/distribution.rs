//! Distributions of service times, think times and file sizes.
//!
//! A [`Distribution`] is drawn from. It is made from its own parameters, as the literature states those of user models:
//!
//! ```
//! use headroom_workload::Distribution;
//! use headroom_workload::random::{Purpose, Rng};
//!
//! let reading_s = Distribution::pareto(1.0, 1.5).at_most(1_000.0);
//! let drawn = reading_s.sample(&mut Rng::new(1, Purpose::Sizes));
//! assert!((1.0..=1_000.0).contains(&drawn));
//! ```
//!
//! or from a [`Shape`], which a configuration file gives, and a mean:
//!
//! ```
//! use headroom_workload::Shape;
//!
//! let service_s = Shape::Lognormal { scv: 0.5 };
//! service_s.check("service.size")?;
//! let distribution = service_s.scaled(0.042);
//! # Ok::<(), headroom_workload::FigureError>(())
//! ```

use crate::error::{Fields, FigureError};
use crate::random::Draw;
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
    /// [`FigureError`] with the key.
    pub fn check(&self, key: &str) -> Result<(), FigureError> {
        let fields = Fields(key);
        match self {
            Self::Exponential {} | Self::Deterministic {} => Ok(()),
            Self::Lognormal { scv } => {
                let rule = "above 0 and at most 1000000 (0 is kind = \"deterministic\")";
                fields.require(*scv > 0.0 && *scv <= 1e6, "scv", scv, rule)
            }
            Self::Hyperexponential { scv } => {
                let rule = "above 1 and at most 1000000 (1 is kind = \"exponential\")";
                fields.require(*scv > 1.0 && *scv <= 1e6, "scv", scv, rule)
            }
            Self::Pareto { exponent, range } => {
                let holds = *exponent > 0.0 && *exponent <= 100.0;
                fields.require(holds, "exponent", exponent, "above 0 and at most 100")?;
                let holds = *range > 1.0 && *range <= 1e9;
                fields.require(holds, "range", range, "above 1 and at most 1e9")
            }
            Self::Weibull { shape } => {
                let holds = (0.1..=100.0).contains(shape);
                fields.require(holds, "shape", shape, "between 0.1 and 100")
            }
            Self::Empirical { values, weights } => {
                let (count, weighs) = (values.len(), weights.len());
                let rule = "1 to 1000000 values";
                fields.require(
                    (1..=MAX_VALUES).contains(&count),
                    "values",
                    format_args!("{count} values"),
                    rule,
                )?;
                let given = format_args!("{weighs} weights for {count} values");
                let rule = "one for each value, or none at all";
                for (field, all) in [("values", values), ("weights", weights)] {
                    for value in all {
                        let holds = *value >= 0.0 && value.is_finite();
                        fields.require(holds, field, value, "0 or more, each")?;
                    }
                    fields.require(weighs == 0 || weighs == count, "weights", given, rule)?;
                }
                let sum: f64 = weighed(values, weights)
                    .map(|(value, weight)| value * weight)
                    .sum();
                let rule = "such that their mean is above 0";
                fields.require(sum > 0.0 && sum.is_finite(), "values", "a mean of 0", rule)
            }
        }
    }

    /// The shape scaled to a mean. The shape must have been checked.
    pub fn scaled(&self, mean: f64) -> Distribution {
        match self {
            Self::Exponential {} => Distribution::new(Kind::Exponential { mean }),
            Self::Deterministic {} => Distribution::constant(mean),
            Self::Lognormal { scv } => {
                // E = exp(m + s²/2) and SCV = exp(s²) - 1.
                let variance = scv.ln_1p();
                Distribution::lognormal(mean.ln() - variance / 2.0, variance.sqrt())
            }
            Self::Pareto { exponent, range } => Distribution::new(Kind::Pareto {
                smallest: mean / pareto_moment(*exponent, *range, 1.0),
                exponent: *exponent,
                mass: 1.0 - range.powf(-exponent),
            }),
            Self::Hyperexponential { scv } => {
                let often = 0.5 * (1.0 + ((scv - 1.0) / (scv + 1.0)).sqrt());
                Distribution::new(Kind::Hyperexponential {
                    often,
                    means: [mean / (2.0 * often), mean / (2.0 * (1.0 - often))],
                })
            }
            Self::Weibull { shape } => Distribution::weibull(mean / tgamma(1.0 + 1.0 / shape), *shape),
            Self::Empirical { values, weights } => {
                Distribution::new(Kind::Empirical(Alias::new(values, weights, mean)))
            }
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

/// How often a draw beyond the bound is drawn again before it is set to the bound. With the parameters of the user model
/// one draw in thirty is beyond it at most, so the last resort has a probability below 1e-90.
const MAX_REDRAWS: usize = 64;

/// A distribution of positive numbers, ready to be drawn from.
///
/// Heavy tails without a bound have moments that do not exist or that no run is long enough to show, and one draw of a day
/// would end a user. So a distribution may be drawn *given that its value is at most a bound*
/// ([`at_most`](Self::at_most)): the shape below the bound is the published one, and the truncation is part of the
/// parameter, not hidden in the drawing.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    kind: Kind,
    /// Infinite where there is no bound.
    largest: f64,
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Exponential {
        mean: f64,
    },
    Constant {
        value: f64,
    },
    Lognormal {
        mu: f64,
        sigma: f64,
    },
    Pareto {
        smallest: f64,
        exponent: f64,
        /// The whole distribution's probability of what may be drawn.
        mass: f64,
    },
    Hyperexponential {
        /// Probability of the first branch.
        often: f64,
        /// Means of the branches.
        means: [f64; 2],
    },
    Weibull {
        scale: f64,
        shape: f64,
    },
    Empirical(Alias),
}

impl Distribution {
    const fn new(kind: Kind) -> Self {
        Self {
            kind,
            largest: f64::INFINITY,
        }
    }

    /// Always this value.
    pub const fn constant(value: f64) -> Self {
        Self::new(Kind::Constant { value })
    }

    /// The natural logarithm is normal with mean `mu` and standard deviation `sigma`.
    pub const fn lognormal(mu: f64, sigma: f64) -> Self {
        Self::new(Kind::Lognormal { mu, sigma })
    }

    /// P(X > x) = (smallest / x)^exponent, for x from `smallest` on.
    pub const fn pareto(smallest: f64, exponent: f64) -> Self {
        Self::new(Kind::Pareto {
            smallest,
            exponent,
            mass: 1.0,
        })
    }

    /// P(X > x) = exp(-(x / scale)^shape). With a shape above 1 the values cluster about the scale.
    pub const fn weibull(scale: f64, shape: f64) -> Self {
        Self::new(Kind::Weibull { scale, shape })
    }

    /// The same, given that the value is at most a bound, in the unit of the values.
    #[must_use]
    pub fn at_most(mut self, largest: f64) -> Self {
        self.largest = largest;
        if let Kind::Pareto {
            smallest,
            exponent,
            mass,
        } = &mut self.kind
        {
            *mass = 1.0 - (*smallest / largest).powf(*exponent);
        }
        self
    }

    /// Draws one value.
    #[inline]
    pub fn sample(&self, rng: &mut impl Draw) -> f64 {
        let value = self.draw(rng);
        if value <= self.largest {
            value
        } else {
            self.draw_again(rng)
        }
    }

    /// Draws one value, which of all kinds but the Pareto distribution may be beyond the bound.
    #[inline]
    fn draw(&self, rng: &mut impl Draw) -> f64 {
        match &self.kind {
            Kind::Exponential { mean } => mean * rng.exponential(),
            Kind::Constant { value } => *value,
            Kind::Lognormal { mu, sigma } => (mu + sigma * rng.normal()).exp(),
            // Of the inverse x = L (1 - u (1 - r^-α))^(-1/α).
            Kind::Pareto {
                smallest,
                exponent,
                mass,
            } => smallest * (1.0 - rng.uniform() * mass).powf(-1.0 / exponent),
            Kind::Hyperexponential { often, means } => {
                means[usize::from(rng.uniform() >= *often)] * rng.exponential()
            }
            // The inverse of 1 - exp(-(x/λ)^k).
            Kind::Weibull { scale, shape } => scale * rng.exponential().powf(1.0 / shape),
            Kind::Empirical(alias) => alias.sample(rng),
        }
    }

    #[cold]
    fn draw_again(&self, rng: &mut impl Draw) -> f64 {
        if matches!(self.kind, Kind::Pareto { .. }) {
            // Only rounding has put it there.
            return self.largest;
        }
        (1..MAX_REDRAWS)
            .map(|_| self.draw(rng))
            .find(|value| *value <= self.largest)
            .unwrap_or(self.largest)
    }

    /// P(X <= x) of a Pareto or Weibull distribution, truncated as it is; `None` of the others.
    pub fn cumulative(&self, value: f64) -> Option<f64> {
        let whole = |x: f64| match self.kind {
            Kind::Pareto {
                smallest, exponent, ..
            } => Some((1.0 - (smallest / x.max(smallest)).powf(exponent)).max(0.0)),
            Kind::Weibull { scale, shape } => Some(-(-(x.max(0.0) / scale).powf(shape)).exp_m1()),
            _ => None,
        };
        let below_bound = match self.kind {
            Kind::Pareto { mass, .. } => mass,
            _ => whole(self.largest)?,
        };
        Some((whole(value)? / below_bound).min(1.0))
    }
}

/// Weighted values, drawn in constant time by the alias method (A. J. Walker, 1977; M. D. Vose, 1991).
#[derive(Clone, Debug, PartialEq)]
struct Alias {
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
    fn sample(&self, rng: &mut impl Draw) -> f64 {
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
mod tests;
