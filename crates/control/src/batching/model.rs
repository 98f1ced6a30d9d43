//! The fuzzy model of the mean response time (Equations 1 to 6): Takagi-Sugeno rules, each a linear model of a region, over what was
//! observed last and the interval to come.
//!
//! y(k+1), the mean response time of the next period, is predicted from ξ(k), the lagged response times and intervals; u, the interval
//! that will be in force; and h(k), the cache's hit ratio. The regression vector has ρ = n_y + n_u elements (Equation 3). All of it is
//! normalised by spans that are kept with the model, so that what it says does not change with the data that it goes on to see.

use crate::linear::dot;
use headroom_units::{Ratio, Seconds};
use serde::{Deserialize, Serialize};

/// What was observed of one period: its u, h and r.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// u: the batch interval in force.
    pub interval: Seconds,
    /// h: the cache's hit ratio; a constant where there is no cache, which then has no influence.
    pub hit_ratio: Ratio,
    /// r: the mean response time.
    pub response: Seconds,
}

impl Sample {
    pub(super) fn is_finite(&self) -> bool {
        self.interval.is_finite() && self.hit_ratio.is_finite() && self.response.is_finite()
    }
}

/// How far back the regression vector ξ reaches (Equation 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lags {
    /// n_y: lagged response times, at least 1.
    pub outputs: usize,
    /// n_u: lagged intervals, beside the one that is to come.
    pub inputs: usize,
}

impl Lags {
    /// One lagged response time and one lagged interval.
    pub const DEFAULT: Self = Self {
        outputs: 1,
        inputs: 1,
    };

    /// The most of either.
    pub const MAX: usize = 8;

    /// Samples that a prediction needs.
    pub fn reach(&self) -> usize {
        self.outputs.max(self.inputs).max(1)
    }

    /// ρ + 2: the antecedents of a rule, which are ξ, u and h.
    pub const fn antecedents(&self) -> usize {
        self.outputs + self.inputs + 2
    }

    /// Place of the interval to come among the antecedents.
    pub(super) const fn of_interval(&self) -> usize {
        self.outputs + self.inputs
    }

    fn is_possible(&self) -> bool {
        (1..=Self::MAX).contains(&self.outputs) && self.inputs <= Self::MAX
    }
}

/// The values that become 0 and 1 when a quantity is normalised.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// What becomes 0.
    pub from: f64,
    /// How much more becomes 1; more than 0.
    pub width: f64,
}

impl Span {
    /// The span of some values; of the width 1 where they do not differ.
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Self {
        let (least, most) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), one| {
            (least.min(one), most.max(one))
        });
        let width = most - least;
        // Values that do not differ but for rounding are one value.
        let differs = width > 1e-9 * most.abs().max(1e-9);
        Self {
            from: if least.is_finite() { least } else { 0.0 },
            width: if differs { width } else { 1.0 },
        }
    }

    pub(super) fn normal(&self, value: f64) -> f64 {
        (value - self.from) / self.width
    }

    pub(super) fn real(&self, normal: f64) -> f64 {
        self.from + normal * self.width
    }
}

/// The spans of a model's quantities.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spans {
    /// Of the response time, in seconds.
    pub response: Span,
    /// Of the interval, in seconds.
    pub interval: Span,
    /// Of the hit ratio.
    pub hit_ratio: Span,
}

impl Spans {
    /// The antecedents ξ, u, h of a prediction, normalised, from samples of which the last is the present one; `None` where these are
    /// fewer than the lags reach.
    pub(super) fn antecedents(&self, lags: Lags, past: &[Sample], next: Seconds) -> Option<Vec<f64>> {
        let now = past.last().filter(|_| past.len() >= lags.reach())?;
        let back = |count| past.iter().rev().take(count);
        let mut all = Vec::with_capacity(lags.antecedents());
        all.extend(back(lags.outputs).map(|one| self.response.normal(one.response.get())));
        all.extend(back(lags.inputs).map(|one| self.interval.normal(one.interval.get())));
        all.push(self.interval.normal(next.get()));
        all.push(self.hit_ratio.normal(now.hit_ratio.get()));
        Some(all)
    }
}

/// A rule R_i (Equation 4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The centres of the memberships Ω_i, normalised: of ξ, u and h.
    pub centre: Vec<f64>,
    /// θ_i, ζ_i, η_i and ω_i, over normalised quantities.
    pub consequent: Vec<f64>,
}

/// The numbers of a model, which are normalised, are of the size of 1. Beyond this a prediction is no number any more.
const MAX_SIZE: f64 = 1e9;
/// How much more than two variances allow a covariance may be, by rounding.
const ROUNDING: f64 = 1e-6;

/// A model as a file holds it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "the model itself, not a file's name: the table [law.batching.model] with sigma, covariance, lags, spans and rules, as \
                 `headroom identify RUN >> service.toml` appends it"
)]
struct Raw {
    sigma: f64,
    covariance: Vec<f64>,
    lags: Lags,
    spans: Spans,
    rules: Vec<Rule>,
    /// Written where the model was found to be of no use, and only there.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    of_use: bool,
}

const fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_yes(value: &bool) -> bool {
    *value
}

/// A model that cannot be one.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the model's {key} {why}: identify it anew")]
pub struct ModelError {
    /// Which part of it.
    pub key: String,
    /// What is wrong.
    pub why: String,
}

/// A Takagi-Sugeno model of the mean response time. It is read from and written to a file as a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Raw", into = "Raw")]
pub struct FuzzyModel {
    pub(super) lags: Lags,
    pub(super) spans: Spans,
    /// The width of every membership, normalised.
    pub(super) sigma: f64,
    pub(super) rules: Vec<Rule>,
    /// (X'X)^-1 of the fit, whose lower triangle is written row by row: the Q(0) of the online update.
    pub(super) covariance: Vec<f64>,
    /// Whether it was not found to predict worse than no model.
    pub(super) of_use: bool,
}

impl From<FuzzyModel> for Raw {
    fn from(model: FuzzyModel) -> Self {
        let n = model.parameters();
        let lower = (0..n).flat_map(|row| model.covariance[row * n..=row * n + row].iter().copied());
        Self {
            sigma: model.sigma,
            covariance: lower.collect(),
            lags: model.lags,
            spans: model.spans,
            rules: model.rules,
            of_use: model.of_use,
        }
    }
}

impl TryFrom<Raw> for FuzzyModel {
    type Error = ModelError;

    fn try_from(raw: Raw) -> Result<Self, ModelError> {
        let refuse = |key: &str, why: String| {
            Err(ModelError {
                key: key.to_owned(),
                why,
            })
        };
        if !raw.lags.is_possible() {
            let Lags { outputs, inputs } = raw.lags;
            let most = Lags::MAX;
            return refuse(
                "lags",
                format!("are {outputs} and {inputs}: 1 to {most} outputs and 0 to {most} inputs"),
            );
        }
        let sizes = 1.0 / MAX_SIZE..=MAX_SIZE;
        if !sizes.contains(&raw.sigma) {
            return refuse(
                "sigma",
                format!("is {}: {:e} to {MAX_SIZE:e}", raw.sigma, 1.0 / MAX_SIZE),
            );
        }
        for (key, span) in [
            ("spans.response", raw.spans.response),
            ("spans.interval", raw.spans.interval),
            ("spans.hit_ratio", raw.spans.hit_ratio),
        ] {
            if !(span.from.abs() <= MAX_SIZE && sizes.contains(&span.width)) {
                let why = format!(
                    "begins at {} and is {} wide: with such a span it predicts no number",
                    span.from, span.width
                );
                return refuse(key, why);
            }
        }
        if raw.rules.is_empty() {
            return refuse("rules", "are none".to_owned());
        }
        let antecedents = raw.lags.antecedents();
        for (at, rule) in raw.rules.iter().enumerate() {
            for (part, values, needs) in [
                ("centre", &rule.centre, antecedents),
                ("consequent", &rule.consequent, antecedents + 1),
            ] {
                if values.len() != needs {
                    let why = format!("has {} values: {needs} are needed", values.len());
                    return refuse(&format!("rules[{at}].{part}"), why);
                }
                if let Some(place) = values
                    .iter()
                    .position(|value| !(-MAX_SIZE..=MAX_SIZE).contains(value))
                {
                    let why = format!("is {}: with it the model predicts no number", values[place]);
                    return refuse(&format!("rules[{at}].{part}[{place}]"), why);
                }
            }
        }
        let n = raw.rules.len() * (antecedents + 1);
        let needs = n * (n + 1) / 2;
        if raw.covariance.len() != needs {
            let why = format!("has {} values: {needs} are needed", raw.covariance.len());
            return refuse("covariance", why);
        }
        let place = |row: usize, column: usize| row * (row + 1) / 2 + column;
        let entry = |row: usize, column: usize| raw.covariance[place(row.max(column), row.min(column))];
        if let Some(at) = raw.covariance.iter().position(|value| !value.is_finite()) {
            let why = format!("is {}: it must be a number", raw.covariance[at]);
            return refuse(&format!("covariance[{at}]"), why);
        }
        let variance = |row: usize| entry(row, row);
        if let Some(row) = (0..n).find(|row| variance(*row) <= 0.0) {
            let why = format!(
                "is {}: it is the variance of parameter {row}, which is more than 0",
                variance(row)
            );
            return refuse(&format!("covariance[{}]", place(row, row)), why);
        }
        for (row, column) in (0..n).flat_map(|row| (0..row).map(move |column| (row, column))) {
            let (value, most) = (entry(row, column), (variance(row) * variance(column)).sqrt());
            if value.abs() > most * (1.0 + ROUNDING) {
                let why = format!(
                    "is {value}: the variances of the parameters {row} and {column} allow at most {most:e} either way"
                );
                return refuse(&format!("covariance[{}]", place(row, column)), why);
            }
        }
        let covariance = (0..n * n).map(|at| entry(at / n, at % n)).collect();
        Ok(Self {
            lags: raw.lags,
            spans: raw.spans,
            sigma: raw.sigma,
            rules: raw.rules,
            covariance,
            of_use: raw.of_use,
        })
    }
}

/// The model about one interval with the firing weights held (Equation 6): y = `at_zero` + `slope` u.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// The response time that it gives for an interval of 0.
    pub at_zero: Seconds,
    /// η*: how the response time changes with the interval, in seconds per second.
    pub slope: f64,
}

impl FuzzyModel {
    /// The same, with what was found of it on periods that it had not seen: whether it predicts better than no model would.
    #[must_use]
    pub const fn judged(mut self, of_use: bool) -> Self {
        self.of_use = of_use;
        self
    }

    /// Whether it was not found to be of no use.
    pub const fn is_of_use(&self) -> bool {
        self.of_use
    }

    /// How far back it looks.
    pub const fn lags(&self) -> Lags {
        self.lags
    }

    /// K: its rules.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Parameters of all consequents.
    pub(super) fn parameters(&self) -> usize {
        self.rules.len() * (self.lags.antecedents() + 1)
    }

    /// The normalised degrees of fulfilment γ_i/Σγ (Equation 5): products of Gaussian memberships. They are computed from the differences
    /// of their exponents, so that they are defined far from every rule too, where each γ_i by itself is 0: there the nearest rule
    /// has all the weight.
    pub(super) fn firing(&self, antecedents: &[f64]) -> Vec<f64> {
        let scale = 0.5 / (self.sigma * self.sigma);
        let exponent = |rule: &Rule| -> f64 {
            let each = rule.centre.iter().zip(antecedents);
            -scale * each.map(|(centre, one)| (one - centre).powi(2)).sum::<f64>()
        };
        let exponents: Vec<f64> = self.rules.iter().map(exponent).collect();
        let highest = exponents.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut weights: Vec<f64> = exponents.iter().map(|one| (one - highest).exp()).collect();
        let sum: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|weight| *weight /= sum);
        weights
    }

    /// The row of X of these antecedents (Equation 7): σ_i [1, ξ, u, h], rule by rule.
    pub(super) fn row(&self, antecedents: &[f64]) -> Vec<f64> {
        regressors(&self.firing(antecedents), antecedents)
    }

    /// ŷ, normalised.
    pub(super) fn normal(&self, antecedents: &[f64]) -> f64 {
        let weights = self.firing(antecedents);
        let rules = self.rules.iter().zip(&weights);
        rules
            .map(|(rule, weight)| weight * (rule.consequent[0] + dot(&rule.consequent[1..], antecedents)))
            .sum()
    }

    /// The mean response time of the next period with this interval, from samples of which the last is the present one (Equation 5);
    /// `None` where these are fewer than it looks back.
    pub fn predict(&self, past: &[Sample], next: Seconds) -> Option<Seconds> {
        let antecedents = self.spans.antecedents(self.lags, past, next)?;
        Some(Seconds::new(self.spans.response.real(self.normal(&antecedents))))
    }

    /// The model about an interval, with the firing weights that it has there (Equation 6).
    pub fn line(&self, past: &[Sample], about: Seconds) -> Option<Line> {
        let antecedents = self.spans.antecedents(self.lags, past, about)?;
        let weights = self.firing(&antecedents);
        let at = 1 + self.lags.of_interval();
        let slope: f64 = self
            .rules
            .iter()
            .zip(&weights)
            .map(|(rule, weight)| weight * rule.consequent[at])
            .sum();
        let slope = slope * self.spans.response.width / self.spans.interval.width;
        let here = self.spans.response.real(self.normal(&antecedents));
        Some(Line {
            at_zero: Seconds::new(here - slope * about.get()),
            slope,
        })
    }
}

/// The row of X for these weights: σ_i [1, ξ, u, h].
pub(super) fn regressors(weights: &[f64], antecedents: &[f64]) -> Vec<f64> {
    let mut row = Vec::with_capacity(weights.len() * (antecedents.len() + 1));
    for weight in weights {
        row.push(*weight);
        row.extend(antecedents.iter().map(|one| weight * one));
    }
    row
}
