//! Parameters of the laws of the paper.

use super::model::{FuzzyModel, Lags};
use crate::parameter::{Bound, OutOfRange, Parameters, refused, require};
use serde::Deserialize;

/// `[law.batching]`: the fuzzy model predictive control of the batch interval.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BatchingTuning {
    /// The SLA on the mean response time, to which the paper's law steers. Where absent the mean is to be least, and the SLO's target
    /// bounds the interval.
    pub sla_ms: Option<f64>,
    /// y_ref: the mean response time to steer to. Where absent the SLA if one is given, as in the paper, else 0: the least.
    pub reference_ms: Option<f64>,
    /// Whether the SLO's percentile is to be kept where it is kept without batches; the paper knows none. True.
    pub keep_slo: bool,
    /// u_min: the shortest interval. 0.
    pub min_interval_ms: f64,
    /// The longest interval. The SLA, or the longest that the gateway holds requests for, where absent.
    pub max_interval_ms: Option<f64>,
    /// a: the weight of control accuracy. 1.
    pub accuracy: f64,
    /// b: the weight of stability. 0.1, ours: the paper prints none.
    pub effort: f64,
    /// τ: the forgetting factor of the online update. 0.98.
    pub forgetting: f64,
    /// n_y: lagged response times of the model that is identified at the start. 1.
    pub output_lags: usize,
    /// n_u: lagged intervals of it. 1.
    pub input_lags: usize,
    /// Periods at the start in which intervals are tried, so that a model can be identified from what they do; for the least mean, those
    /// that are counted, of a mean response time each where that is more. 60. None where a model is given.
    pub explore_periods: u32,
    /// The longest interval that is tried then. Half of the longest interval where absent; for the least mean half of what a response
    /// takes, too. What is longer than all that was in force is come to by and by.
    pub explore_max_ms: Option<f64>,
    /// For the least mean, what trying intervals may add to the response times, as a share of all response times so far. 0.01; a law that
    /// steers to another mean tries them as published, whatever that costs.
    pub budget: f64,
    /// For the least mean, seconds without batches, now and then, to see whether what they save lasts; eight mean response times where these
    /// are more. 90; 0 for never.
    pub look_s: f64,
    /// A model that was identified before, as `headroom identify` prints it.
    pub model: Option<FuzzyModel>,
}

impl Default for BatchingTuning {
    fn default() -> Self {
        Self {
            sla_ms: None,
            reference_ms: None,
            keep_slo: true,
            min_interval_ms: 0.0,
            max_interval_ms: None,
            accuracy: 1.0,
            effort: 0.1,
            forgetting: 0.98,
            output_lags: Lags::DEFAULT.outputs,
            input_lags: Lags::DEFAULT.inputs,
            explore_periods: 60,
            explore_max_ms: None,
            budget: 0.01,
            look_s: LOOK_S,
            model: None,
        }
    }
}

/// Samples for each parameter of one rule that an exploration must give, as an identification needs.
const MIN_SAMPLES_PER_PARAMETER: usize = 3;

impl Parameters for BatchingTuning {
    fn outside(&self) -> Vec<OutOfRange> {
        let positive = |key, value: Option<f64>| Bound::Positive.check(key, value.unwrap_or(1.0));
        let most = Lags::MAX as f64;
        let given = f64::from(self.explore_periods);
        let any = Bound::Between(0.0, MAX_EXPLORE_PERIODS).check("explore_periods", given);
        // What wrong lags need is no mistake of its own, and may be no number.
        let is_explored = self.model.is_none() && self.output_lags.max(self.input_lags) <= Lags::MAX;
        let explores = match is_explored {
            true => {
                let lags = self.lags();
                let needed = MIN_SAMPLES_PER_PARAMETER * (lags.antecedents() + 1) + lags.reach();
                let range = format!("{needed} or more for a model of these lags, or give law.batching.model");
                require("explore_periods", given, given >= needed as f64, range).and(any)
            }
            false => any,
        };
        refused([
            positive("sla_ms", self.sla_ms),
            positive("max_interval_ms", self.max_interval_ms),
            positive("explore_max_ms", self.explore_max_ms),
            Bound::NotNegative.check("reference_ms", self.reference_ms.unwrap_or(0.0)),
            Bound::NotNegative.check("min_interval_ms", self.min_interval_ms),
            Bound::Positive.check("accuracy", self.accuracy),
            Bound::NotNegative.check("effort", self.effort),
            Bound::Between(0.9, 1.0).check("forgetting", self.forgetting),
            Bound::Between(0.0001, 0.5).check("budget", self.budget),
            Bound::Between(0.0, MOST_LOOK_S).check("look_s", self.look_s),
            Bound::Between(1.0, most).check("output_lags", self.output_lags as f64),
            Bound::Between(0.0, most).check("input_lags", self.input_lags as f64),
            explores,
        ])
    }
}

impl BatchingTuning {
    /// The lags of the model that is identified at the start.
    pub(super) const fn lags(&self) -> Lags {
        Lags {
            outputs: self.output_lags,
            inputs: self.input_lags,
        }
    }
}

/// Seconds of a long look, and the most.
pub(super) const LOOK_S: f64 = 90.0;
pub(super) const MOST_LOOK_S: f64 = 3_600.0;

/// The longest exploration: what is kept of it is bounded.
const MAX_EXPLORE_PERIODS: f64 = 10_000.0;
