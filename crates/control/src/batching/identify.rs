//! Offline identification of the fuzzy model from a series of periods, and how well it predicts beside two simpler predictors.
//!
//! The centres of the rules are found by subtractive clustering; then one least-squares fit gives the consequents of all rules together,
//! weighted by their normalised firing strengths (Section IV.A: "their values are obtained by offline training").

use super::clusters;
use super::model::{FuzzyModel, Lags, Rule, Sample, Span, Spans, regressors};
use crate::linear::{LeastSquares, dot};
use headroom_units::Seconds;
use std::ops::RangeInclusive;

/// The most rules of a model: what is to be updated in every period grows with the square of the parameters.
const MAX_RULES: usize = 12;
/// Mean response times and intervals that a gateway can have, in seconds: one that it cannot have would stretch the span that all others
/// are scaled by.
const RESPONSE_S: RangeInclusive<f64> = 0.0..=86_400.0;
const INTERVAL_S: RangeInclusive<f64> = 0.0..=3_600.0;
/// Samples for each parameter, at least: of fewer a rule fits the noise.
const SAMPLES_PER_PARAMETER: usize = 3;

/// A series from which no model can be identified.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum IdentifyError {
    /// Too few periods follow one another.
    #[error(
        "{given} periods have enough others before them, and a model needs {needed}: record more, or use fewer lags"
    )]
    TooFew {
        /// Those that can be predicted.
        given: usize,
        /// Those that are needed.
        needed: usize,
    },
    /// The interval is the same in all of them.
    #[error("the batch interval is {0} ms in every period: nothing says what another would do; vary it")]
    NotVaried(f64),
    /// The mean response time is the same in all of them.
    #[error("the mean response time is {0} ms in every period: there is nothing to predict")]
    Constant(f64),
    /// A sample holds what no period of a gateway can have.
    #[error(
        "period {at} of the run has a mean response time of {response_ms} ms, an interval of {interval_ms} ms and a hit ratio of {hit_ratio}: \
         no period can have that (0 to {} ms, 0 to {} ms, 0 to 1); leave it out",
        RESPONSE_S.end() * 1e3,
        INTERVAL_S.end() * 1e3
    )]
    Impossible {
        /// Its place in the series, from 0.
        at: usize,
        /// Its mean response time, in ms.
        response_ms: f64,
        /// Its interval, in ms.
        interval_ms: f64,
        /// Its hit ratio.
        hit_ratio: f64,
    },
    /// The least squares have no finite solution.
    #[error("no finite model fits the periods")]
    NotFinite,
    /// The lags are none.
    #[error("{0} lagged outputs and {1} lagged inputs: give 1 to 8 outputs and 0 to 8 inputs")]
    Lags(usize, usize),
}

/// The antecedents and the result of each period that has enough others before it, in a series whose gaps are `None`.
fn pairs(spans: &Spans, lags: Lags, series: &[Option<Sample>]) -> Vec<(Vec<f64>, f64)> {
    each_known(lags, series)
        .filter_map(|(past, next)| {
            let antecedents = spans.antecedents(lags, &past, next.interval)?;
            Some((antecedents, spans.response.normal(next.response.get())))
        })
        .collect()
}

/// Each sample with those before it that a prediction needs.
fn each_known(lags: Lags, series: &[Option<Sample>]) -> impl Iterator<Item = (Vec<Sample>, Sample)> {
    series.windows(lags.reach() + 1).filter_map(|window| {
        let mut all: Vec<Sample> = window.iter().copied().collect::<Option<_>>()?;
        let next = all.pop()?;
        Some((all, next))
    })
}

fn spans(series: &[Option<Sample>]) -> Spans {
    let known = || series.iter().flatten();
    Spans {
        response: Span::of(known().map(|one| one.response.get())),
        interval: Span::of(known().map(|one| one.interval.get())),
        hit_ratio: Span::of(known().map(|one| one.hit_ratio.get())),
    }
}

fn is_possible(sample: &Sample) -> bool {
    RESPONSE_S.contains(&sample.response.get())
        && INTERVAL_S.contains(&sample.interval.get())
        && (0.0..=1.0).contains(&sample.hit_ratio.get())
}

fn check(series: &[Option<Sample>], lags: Lags) -> Result<(), IdentifyError> {
    if !((1..=Lags::MAX).contains(&lags.outputs) && lags.inputs <= Lags::MAX) {
        return Err(IdentifyError::Lags(lags.outputs, lags.inputs));
    }
    let at_fault = |(at, one): (usize, &Option<Sample>)| {
        let one = one.filter(|one| !is_possible(one))?;
        Some(IdentifyError::Impossible {
            at,
            response_ms: one.response.as_millis(),
            interval_ms: one.interval.as_millis(),
            hit_ratio: one.hit_ratio.get(),
        })
    };
    if let Some(error) = series.iter().enumerate().find_map(at_fault) {
        return Err(error);
    }
    let (given, needed) = (
        each_known(lags, series).count(),
        SAMPLES_PER_PARAMETER * (lags.antecedents() + 1),
    );
    if given < needed {
        return Err(IdentifyError::TooFew { given, needed });
    }
    let mut intervals = series.iter().flatten().map(|one| one.interval.as_millis());
    let first = intervals.next().unwrap_or(0.0);
    if intervals.all(|one| (one - first).abs() < 1e-6) {
        return Err(IdentifyError::NotVaried(first));
    }
    let mut responses = series.iter().flatten().map(|one| one.response.as_millis());
    let first = responses.next().unwrap_or(0.0);
    if responses.all(|one| one == first) {
        return Err(IdentifyError::Constant(first));
    }
    Ok(())
}

/// Identifies a fuzzy model from periods that follow one another; `None` where one was lost. The clusters have the usual radius of 0.5 and
/// the memberships the width that goes with it, unless others predict the last quarter of the series clearly better from the rest of it.
///
/// # Errors
/// [`IdentifyError`]: too few periods, an interval that was never varied, what no period can have.
pub fn identify(series: &[Option<Sample>], lags: Lags) -> Result<FuzzyModel, IdentifyError> {
    check(series, lags)?;
    let spans = spans(series);
    let pairs = pairs(&spans, lags, series);
    let (fitted, held_out) = pairs.split_at(pairs.len() - pairs.len() / 4);
    let error = |shape: Shape| -> Option<f64> {
        let model = fit(spans, lags, fitted, shape)?;
        let squares = held_out
            .iter()
            .map(|(antecedents, came)| (model.normal(antecedents) - came).powi(2));
        Some(squares.sum())
    };
    let mut best = Shape {
        radius: RADII[0],
        widening: WIDENINGS[0],
    };
    let mut least = error(best);
    for (radius, widening) in RADII
        .into_iter()
        .flat_map(|radius| WIDENINGS.map(|one| (radius, one)))
    {
        let shape = Shape { radius, widening };
        let one = error(shape);
        if let (Some(one_error), Some(least_error)) = (one, least)
            && one_error < least_error * CLEARLY
        {
            (best, least) = (shape, one);
        }
    }
    // The ridge makes the normal equations solvable for any finite data.
    fit(spans, lags, &pairs, best).ok_or(IdentifyError::NotFinite)
}

/// How the clusters and the memberships about them are shaped.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// The radius of the clusters, as a share of the range of each dimension.
    radius: f64,
    /// How many times wider the memberships are than goes with the potential of a point at that radius.
    widening: f64,
}

const RADII: [f64; 3] = [0.5, 0.35, 0.25];
const WIDENINGS: [f64; 3] = [1.0, 2.0, 4.0];
/// A sum of squares below this share of another is clearly less.
const CLEARLY: f64 = 0.95;

/// The rules that clusters of this radius give, with the consequents of the least squares.
fn fit(spans: Spans, lags: Lags, pairs: &[(Vec<f64>, f64)], shape: Shape) -> Option<FuzzyModel> {
    let joint: Vec<Vec<f64>> = pairs
        .iter()
        .map(|(antecedents, result)| antecedents.iter().copied().chain([*result]).collect())
        .collect();
    let consequent = lags.antecedents() + 1;
    let most = (pairs.len() / (SAMPLES_PER_PARAMETER * consequent)).clamp(1, MAX_RULES);
    let rule = |mut centre: Vec<f64>| {
        centre.truncate(lags.antecedents());
        Rule {
            centre,
            consequent: vec![0.0; consequent],
        }
    };
    let mut model = FuzzyModel {
        lags,
        spans,
        // Chiu's width, where nothing widens it.
        sigma: shape.radius / 8f64.sqrt() * shape.widening,
        rules: clusters::centres(&joint, shape.radius, most)
            .into_iter()
            .map(rule)
            .collect(),
        covariance: Vec::new(),
        of_use: true,
    };
    let mut fit = LeastSquares::new(model.parameters());
    for (antecedents, result) in pairs {
        fit.add(&model.row(antecedents), *result);
    }
    let fit = fit.solve()?;
    for (rule, parameters) in model.rules.iter_mut().zip(fit.parameters.chunks(consequent)) {
        rule.consequent = parameters.to_vec();
    }
    model.covariance = fit.covariance;
    Some(model)
}

/// A linear ARX model over the same inputs: the fuzzy model of one rule that holds everywhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Arx {
    lags: Lags,
    spans: Spans,
    parameters: Vec<f64>,
}

impl Arx {
    /// Fits it to periods that follow one another; `None` where one was lost.
    ///
    /// # Errors
    /// As [`identify`].
    pub fn fit(series: &[Option<Sample>], lags: Lags) -> Result<Self, IdentifyError> {
        check(series, lags)?;
        let spans = spans(series);
        let mut fit = LeastSquares::new(lags.antecedents() + 1);
        for (antecedents, result) in pairs(&spans, lags, series) {
            fit.add(&regressors(&[1.0], &antecedents), result);
        }
        let parameters = fit.solve().ok_or(IdentifyError::NotFinite)?.parameters;
        Ok(Self {
            lags,
            spans,
            parameters,
        })
    }

    /// As [`FuzzyModel::predict`].
    pub fn predict(&self, past: &[Sample], next: Seconds) -> Option<Seconds> {
        let antecedents = self.spans.antecedents(self.lags, past, next)?;
        let normal = self.parameters[0] + dot(&self.parameters[1..], &antecedents);
        Some(Seconds::new(self.spans.response.real(normal)))
    }
}

/// How far predictions one period ahead were from what came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictionError {
    /// Root of the mean square.
    pub rmse: Seconds,
    /// The same over the standard deviation of what came: 1 is no better than its mean.
    pub nrmse: f64,
    /// Periods predicted.
    pub periods: usize,
}

/// The errors of the fuzzy model and of the simpler ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictionErrors {
    /// The fuzzy model's.
    pub fuzzy: PredictionError,
    /// The linear ARX model's.
    pub arx: PredictionError,
    /// Of the prediction that all stays as it was in the last period.
    pub last_value: PredictionError,
}

/// The errors of the three over periods that the models were not fitted to; `None` where there is nothing to predict.
pub fn prediction_errors(
    fuzzy: &FuzzyModel,
    arx: &Arx,
    held_out: &[Option<Sample>],
) -> Option<PredictionErrors> {
    Some(PredictionErrors {
        fuzzy: error_of(held_out, fuzzy.lags, |past, next| fuzzy.predict(past, next))?,
        arx: error_of(held_out, arx.lags, |past, next| arx.predict(past, next))?,
        last_value: error_of(held_out, fuzzy.lags, |past, _| {
            past.last().map(|one| one.response)
        })?,
    })
}

fn error_of(
    series: &[Option<Sample>],
    lags: Lags,
    predict: impl Fn(&[Sample], Seconds) -> Option<Seconds>,
) -> Option<PredictionError> {
    let (mut count, mut squares, mut sum, mut sum_squares) = (0usize, 0.0, 0.0, 0.0);
    for (past, next) in each_known(lags, series) {
        let came = next.response.get();
        squares += (predict(&past, next.interval)?.get() - came).powi(2);
        (sum, sum_squares) = (sum + came, sum_squares + came * came);
        count += 1;
    }
    let periods = count as f64;
    (count > 0).then(|| {
        let rmse = (squares / periods).sqrt();
        let deviation = (sum_squares / periods - (sum / periods).powi(2)).max(0.0).sqrt();
        PredictionError {
            rmse: Seconds::new(rmse),
            nrmse: rmse / deviation,
            periods: count,
        }
    })
}
