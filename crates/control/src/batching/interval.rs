//! The fuzzy model predictive control of the batch interval (Section IV), as a part that a law runs.

use super::adapt::AdaptiveModel;
use super::bounds::{IntervalBounds, range};
use super::identify::identify;
use super::keep::{Bounded, Keep, Why};
use super::model::Sample;
use super::optimise::{Objective, optimise};
use super::tuning::BatchingTuning;
use crate::decision::Reason;
use crate::observation::Observation;
use crate::plant::{Plant, Slo};
use crate::registry::LawError;
use headroom_units::{Lever, Ratio, Seconds};

/// Periods for which each interval of the exploration stays.
const HELD_PERIODS: u32 = 3;
/// The fraction of the range from one interval of the exploration to the next, wrapped around: any number of them covers it evenly.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

/// What the control asks for, and why.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) interval: Seconds,
    pub(super) reason: Reason,
    /// Whether it still tries intervals to identify its model.
    pub(super) explores: bool,
}

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
pub(super) struct IntervalControl {
    tuning: BatchingTuning,
    bounds: IntervalBounds,
    keep: Keep,
    explore_most: Seconds,
    objective: Objective,
    phase: Phase,
    /// Periods of the exploration that gave a sample.
    explored: u32,
    /// What came in the last periods, without a gap, the present one last.
    past: Vec<Sample>,
    hit_ratio: Option<Ratio>,
}

impl IntervalControl {
    /// The control of a law of this name.
    pub(super) fn new(
        law: &'static str,
        slo: Slo,
        plant: &Plant,
        tuning: BatchingTuning,
    ) -> Result<Self, LawError> {
        tuning.check().map_err(LawError::of("batching"))?;
        let range = range(plant, law)?;
        let sla = tuning.sla_ms.map_or(slo.target(), Seconds::from_millis);
        let asked = (tuning.min_interval_ms, tuning.max_interval_ms);
        let bounds = IntervalBounds::new(range, sla, asked, "batching")?;
        let half = bounds.least + (bounds.most - bounds.least) * 0.5;
        let explore_most = tuning.explore_max_ms.map_or(half, Seconds::from_millis);
        if explore_most < bounds.least || explore_most > bounds.most {
            let why = format!(
                "is {}: it must be between {} and {}, the shortest and the longest interval, in ms",
                explore_most.as_millis(),
                bounds.least.as_millis(),
                bounds.most.as_millis()
            );
            return Err(LawError::new("law.batching.explore_max_ms", why));
        }
        let reference = Seconds::from_millis(tuning.reference_ms.or(tuning.sla_ms).unwrap_or(0.0));
        let phase = match &tuning.model {
            Some(model) => Phase::Predict(Box::new(AdaptiveModel::new(model.clone(), tuning.forgetting))),
            None => Phase::Explore(Vec::new()),
        };
        Ok(Self {
            objective: Objective {
                reference,
                accuracy: tuning.accuracy,
                effort: tuning.effort,
            },
            keep: Keep::new(
                slo.target(),
                (bounds.least, bounds.most),
                if tuning.model.is_some() {
                    bounds.least
                } else {
                    explore_most
                },
                Bounded {
                    by_slo: tuning.keep_slo,
                    by_response: reference == Seconds::ZERO,
                },
            ),
            bounds,
            explore_most,
            phase,
            explored: 0,
            past: Vec::new(),
            hit_ratio: None,
            tuning,
        })
    }

    /// An interval as the lever takes it.
    pub(super) fn fit(&self, interval: Seconds) -> Seconds {
        self.bounds.fit(interval)
    }

    /// Learns from a period and chooses the interval of the next.
    pub(super) fn step(&mut self, observation: &Observation) -> Step {
        let Some(now) = Sample::of(observation, self.hit_ratio) else {
            self.lose();
            let in_force = observation.in_force.batch_interval().unwrap_or(self.bounds.least);
            return Step {
                interval: self.bounds.fit(in_force),
                reason: reason(
                    "batching-hold",
                    "no mean response time or no interval in force was observed: the interval stays"
                        .to_owned(),
                    &[],
                ),
                explores: matches!(self.phase, Phase::Explore(_)),
            };
        };
        self.hit_ratio = Some(now.hit_ratio);
        if let Some(traffic) = &observation.traffic {
            self.keep
                .observe(now.interval, now.response, traffic.latency_to_judge());
        }
        let error = match &mut self.phase {
            Phase::Predict(model) => model.observe(&self.past, now),
            Phase::Explore(_) => None,
        };
        self.push(now);
        if let Some(step) = self.explore(now) {
            return step;
        }
        self.predict(now, error)
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
    fn explore(&mut self, now: Sample) -> Option<Step> {
        let Phase::Explore(series) = &mut self.phase else {
            return None;
        };
        series.push(Some(now));
        self.explored += 1;
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
        let (limit, _) = self.keep.limit();
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

    fn predict(&self, now: Sample, error: Option<Seconds>) -> Step {
        let (limit, why) = self.keep.limit();
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
        let aim = match reference > Seconds::ZERO {
            true => format!("to be near {:.0} ms", reference.as_millis()),
            false => "to be least".to_owned(),
        };
        let bound = match why {
            Why::Range => String::new(),
            Why::Untried => format!("; no more than {:.0} ms before more was tried", limit.as_millis()),
            Why::Slo => format!("; no more than {:.0} ms, to keep the SLO", limit.as_millis()),
            Why::Response => format!(
                "; no more than {:.0} ms, twice what a response takes beside the wait",
                limit.as_millis()
            ),
            Why::Looks => "; none, to see whether the SLO is kept without batches".to_owned(),
        };
        let text = format!(
            "{:.0} ms: the model predicts a mean of {:.0} ms, {aim}; it was {:.0} ms at {:.0} ms{bound}",
            interval.as_millis(),
            best.response.as_millis(),
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

fn reason(rule: &'static str, text: String, numbers: &[(&'static str, f64)]) -> Reason {
    Reason::new(rule, text, numbers).of(&[Lever::BatchInterval])
}
