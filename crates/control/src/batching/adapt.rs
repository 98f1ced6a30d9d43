//! The model's update in every period, by recursive least squares with forgetting (Equations 7 to 9).
//!
//! The paper's X(k) leaves out the hit ratio and the constant although the rules have both (ω_i and θ_i); here x holds them. With them
//! Equation 9 is the usual K = Qx/(τ + x'Qx), φ += K (y - x'φ), Q = (Q - K x'Q)/τ (derived here). While nothing is varied, forgetting
//! lets Q grow without bound, and the first disturbance would then throw the parameters far off: so the trace of Q is bounded.

use super::model::{FuzzyModel, Sample};
use crate::linear::dot;
use headroom_units::Seconds;

/// The trace of Q may grow to this many times what it was at the start. Forgetting alone makes it grow: with τ = 0.97 some 30 periods
/// count, and a model may be of thousands.
const MAX_TRACE_GROWTH: f64 = 100.0;

/// A fuzzy model that follows what is observed.
#[derive(Clone, Debug)]
pub struct AdaptiveModel {
    model: FuzzyModel,
    /// Q, row by row.
    covariance: Vec<f64>,
    forgetting: f64,
    most_trace: f64,
}

impl AdaptiveModel {
    /// Begins with a model and the Q(0) of its identification; `forgetting` is τ, from above 0 to 1.
    pub fn new(model: FuzzyModel, forgetting: f64) -> Self {
        let covariance = model.covariance.clone();
        Self {
            most_trace: MAX_TRACE_GROWTH * trace(&covariance, model.parameters()),
            covariance,
            model,
            forgetting,
        }
    }

    /// The model as it is now.
    pub const fn model(&self) -> &FuzzyModel {
        &self.model
    }

    /// The trace of Q, which is bounded.
    pub fn trace(&self) -> f64 {
        trace(&self.covariance, self.model.parameters())
    }

    /// How little is known of the difference between what two intervals would give, after samples of which the last is the present one: the
    /// standard error of that difference is so many times that of a sample. `None` where these are fewer than the model looks back.
    pub(super) fn doubt(&self, past: &[Sample], one: Seconds, other: Seconds) -> Option<f64> {
        let model = &self.model;
        let row = |interval| Some(model.row(&model.spans.antecedents(model.lags, past, interval)?));
        let differs: Vec<f64> = row(one)?.iter().zip(row(other)?).map(|(a, b)| a - b).collect();
        let known = self.covariance.chunks(differs.len()).map(|q| dot(q, &differs));
        Some(dot(&known.collect::<Vec<_>>(), &differs).max(0.0).sqrt())
    }

    /// Learns from a period that followed others; e, how far the prediction was from it. `None`, and nothing is learned, where these are
    /// fewer than the model looks back, or a number is none.
    pub fn observe(&mut self, past: &[Sample], came: Sample) -> Option<Seconds> {
        if !came.is_finite() {
            return None;
        }
        let spans = self.model.spans;
        let antecedents = spans.antecedents(self.model.lags, past, came.interval)?;
        let row = self.model.row(&antecedents);
        let error = spans.response.normal(came.response.get()) - self.model.normal(&antecedents);
        let n = row.len();
        let gain: Vec<f64> = self.covariance.chunks(n).map(|q| dot(q, &row)).collect();
        let scale = self.forgetting + dot(&gain, &row);
        if !(scale > 0.0 && scale.is_finite() && error.is_finite()) {
            return None;
        }
        let parameters = self
            .model
            .rules
            .iter_mut()
            .flat_map(|rule| rule.consequent.iter_mut());
        for (parameter, gain) in parameters.zip(&gain) {
            *parameter += gain / scale * error;
        }
        for (at, entry) in self.covariance.iter_mut().enumerate() {
            // Q is symmetric: x'Q is (Qx)'.
            *entry = (*entry - gain[at / n] * gain[at % n] / scale) / self.forgetting;
        }
        let trace = self.trace();
        if trace > self.most_trace {
            let shrink = self.most_trace / trace;
            self.covariance.iter_mut().for_each(|entry| *entry *= shrink);
        }
        Some(Seconds::new(error * spans.response.width))
    }
}

fn trace(matrix: &[f64], n: usize) -> f64 {
    (0..n).map(|at| matrix[at * n + at]).sum()
}
