//! The fuzzy model predictive control of the batch interval to a mean response time (Section IV), as published.

use super::adapt::AdaptiveModel;
use super::bounds::IntervalBounds;
use super::identify::identify;
use super::interval::{Step, reason};
use super::keep::Keep;
use super::model::Sample;
use super::optimise::{Objective, optimise};
use super::tuning::BatchingTuning;
use crate::observation::Observation;
use headroom_units::Seconds;

/// Periods for which each interval of the exploration stays.
const HELD_PERIODS: u32 = 3;
/// The fraction of the range from one interval of the exploration to the next, wrapped around: any number of them covers it evenly.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

/// What it does.
#[derive(Clone, Debug)]
enum Phase {
    /// It tries intervals; what came of them, with gaps.
    Explore(Vec<Option<Sample>>),
    /// It chooses by its model.
    Predict(Box<AdaptiveModel>),
}

/// The control.
#[derive(Clone, Debug)]
pub(super) struct Steer {
    tuning: BatchingTuning,
    bounds: IntervalBounds,
    explore_most: Seconds,
    objective: Objective,
    phase: Phase,
    /// Periods of the exploration that gave a sample.
    explored: u32,
    /// What came in the last periods, without a gap, the present one last.
    past: Vec<Sample>,
}

impl Steer {
    /// Within these bounds; intervals up to `explore_most` are tried at the start.
    pub(super) fn new(
        bounds: IntervalBounds,
        explore_most: Seconds,
        objective: Objective,
        tuning: BatchingTuning,
    ) -> Self {
        let phase = match &tuning.model {
            Some(model) => Phase::Predict(Box::new(AdaptiveModel::new(model.clone(), tuning.forgetting))),
            None => Phase::Explore(Vec::new()),
        };
        Self {
            bounds,
            explore_most,
            objective,
            phase,
            explored: 0,
            past: Vec::new(),
            tuning,
        }
    }

    /// Nothing that says anything of the interval was observed.
    pub(super) fn hold(&mut self, observation: &Observation) -> Step {
        self.lose();
        let in_force = observation.in_force.batch_interval().unwrap_or(self.bounds.least);
        Step {
            interval: self.bounds.fit(in_force),
            reason: reason(
                "batching-hold",
                "no mean response time or no interval in force was observed: the interval stays".to_owned(),
                &[],
            ),
            explores: matches!(self.phase, Phase::Explore(_)),
        }
    }

    /// Learns from a period and chooses the interval of the next.
    pub(super) fn step(&mut self, now: Sample, keep: &Keep) -> Step {
        let error = match &mut self.phase {
            Phase::Predict(model) => model.observe(&self.past, now),
            Phase::Explore(_) => None,
        };
        self.push(now);
        if let Some(step) = self.explore(now, keep) {
            return step;
        }
        self.predict(now, error, keep)
    }

    fn push(&mut self, now: Sample) {
        let reach = match &self.phase {
            Phase::Predict(model) => model.model().lags().reach(),
            Phase::Explore(_) => self.tuning.lags().reach(),
        };
        self.past.push(now);
        let surplus = self.past.len().saturating_sub(reach);
        self.past.drain(..surplus);
    }

    /// The next interval of the exploration; `None` where the model is there.
    fn explore(&mut self, now: Sample, keep: &Keep) -> Option<Step> {
        let Phase::Explore(series) = &mut self.phase else {
            return None;
        };
        // While the SLO's percentile is looked at without batches, none are tried.
        if !keep.looks() {
            series.push(Some(now));
            self.explored += 1;
        }
        let periods = self.tuning.explore_periods;
        let mut failed = None;
        if self.explored >= periods {
            match identify(series, self.tuning.lags()) {
                Ok(model) => {
                    let model = AdaptiveModel::new(model, self.tuning.forgetting);
                    self.phase = Phase::Predict(Box::new(model));
                    return None;
                }
                Err(error) => {
                    failed = Some(error);
                    self.explored = 0;
                    series.clear();
                }
            }
        }
        let share = (f64::from(self.explored / HELD_PERIODS) * GOLDEN).fract();
        let (limit, _) = keep.limit();
        let most = self.explore_most.min(limit);
        let interval = self.bounds.least + (most - self.bounds.least) * share;
        let interval = self.bounds.fit(interval);
        let (done, milliseconds) = (self.explored, interval.as_millis());
        let text = match failed {
            Some(error) => format!("no model from {periods} periods: {error}; intervals are tried again"),
            None => format!(
                "period {done} of {periods} in which intervals are tried to learn what they do: {milliseconds:.0} ms"
            ),
        };
        let numbers = [
            ("explored_periods", f64::from(done)),
            ("explore_periods", f64::from(periods)),
            ("interval_ms", milliseconds),
        ];
        Some(Step {
            interval,
            reason: reason("batching-explore", text, &numbers),
            explores: true,
        })
    }

    fn predict(&self, now: Sample, error: Option<Seconds>, keep: &Keep) -> Step {
        let (limit, why) = keep.limit();
        let bounds = (self.bounds.least, self.bounds.most.min(limit));
        let best = match &self.phase {
            Phase::Predict(model) => optimise(model.model(), &self.past, bounds, &self.objective),
            Phase::Explore(_) => None,
        };
        let Some(best) = best else {
            let is_short = matches!(&self.phase, Phase::Predict(model) if self.past.len() < model.model().lags().reach());
            let text = match is_short {
                true => "too few periods follow one another to predict the next: the interval stays",
                false => "the model predicts no number: the interval stays; identify another one",
            };
            return Step {
                interval: self.bounds.fit(now.interval.min(bounds.1)),
                reason: reason("batching-hold", text.to_owned(), &[]),
                explores: false,
            };
        };
        let interval = self.bounds.fit(best.interval);
        let reference = self.objective.reference;
        let bound = why.words(limit);
        let text = format!(
            "{:.0} ms: the model predicts a mean of {:.0} ms, to be near {:.0} ms; it was {:.0} ms at {:.0} ms{bound}",
            interval.as_millis(),
            best.response.as_millis(),
            reference.as_millis(),
            now.response.as_millis(),
            now.interval.as_millis(),
        );
        let mut numbers = vec![
            ("interval_ms", interval.as_millis()),
            ("predicted_ms", best.response.as_millis()),
            ("reference_ms", reference.as_millis()),
            ("limit_ms", limit.as_millis()),
            ("response_ms", now.response.as_millis()),
            ("hit_ratio", now.hit_ratio.get()),
        ];
        numbers.extend(error.map(|error| ("prediction_error_ms", error.as_millis())));
        Step {
            interval,
            reason: reason("batching-predict", text, &numbers),
            explores: false,
        }
    }

    /// A period was lost: what comes next does not follow what was.
    pub(super) fn lose(&mut self) {
        self.past.clear();
        if let Phase::Explore(series) = &mut self.phase
            && series.last().is_some_and(Option::is_some)
        {
            series.push(None);
        }
    }
}
