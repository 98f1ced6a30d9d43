//! The control of the batch interval: to a mean response time, as published, or for the least mean, and within what bounds both.

use super::bounds::{IntervalBounds, Unread, there};
use super::hold::Period;
use super::keep::{Keep, Seen};
use super::least::Least;
use super::long_look::{Gate, LongLook};
use super::model::Sample;
use super::optimise::Objective;
use super::steer::Steer;
use super::tuning::BatchingTuning;
use crate::decision::Reason;
use crate::observation::Observation;
use crate::parameter::Parameters;
use crate::plant::{Plant, Slo};
use crate::registry::LawError;
use headroom_units::{Lever, LeverRange, Ratio, Seconds};

/// What the control asks for, and why.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) interval: Seconds,
    pub(super) reason: Reason,
    /// Whether it tries an interval to learn what it does.
    pub(super) explores: bool,
}

/// What the interval is chosen for.
#[derive(Clone, Debug)]
enum Way {
    Steer(Box<Steer>),
    Least(Box<Least>, Box<LongLook>),
}

/// The control.
#[derive(Clone, Debug)]
pub(super) struct IntervalControl {
    bounds: IntervalBounds,
    keep: Keep,
    way: Way,
    hit_ratio: Option<Ratio>,
    unread: Unread,
}

impl IntervalControl {
    /// The control of a law of this name.
    pub(super) fn new(
        law: &'static str,
        slo: Slo,
        plant: &Plant,
        tuning: BatchingTuning,
    ) -> Result<Self, LawError> {
        let (bounds, explore_most) = Self::bounds(law, slo, plant.range(Lever::BatchInterval), &tuning)?;
        let tried = match tuning.model {
            Some(_) => bounds.least,
            None => explore_most,
        };
        let objective = Objective {
            reference: Seconds::from_millis(tuning.reference_ms.or(tuning.sla_ms).unwrap_or(0.0)),
            accuracy: tuning.accuracy,
            effort: tuning.effort,
        };
        Ok(Self {
            keep: Keep::new(slo.target(), (bounds.least, bounds.most), tried, tuning.keep_slo),
            way: match objective.reference > Seconds::ZERO {
                true => Way::Steer(Box::new(Steer::new(bounds, explore_most, objective, tuning))),
                false => {
                    let length = Seconds::new(tuning.look_s);
                    Way::Least(
                        Box::new(Least::new(bounds, explore_most, objective, tuning)),
                        Box::new(LongLook::new(bounds.least, slo.target(), length)),
                    )
                }
            },
            bounds,
            hit_ratio: None,
            unread: Unread::default(),
        })
    }

    /// Between which intervals a law of this name chooses, and how far it tries, where the lever has this range.
    ///
    /// # Errors
    /// A parameter outside its range or the lever's, a lever that is not there.
    fn bounds(
        law: &'static str,
        slo: Slo,
        range: Option<LeverRange>,
        tuning: &BatchingTuning,
    ) -> Result<(IntervalBounds, Seconds), LawError> {
        tuning.check().map_err(LawError::of("batching"))?;
        let (bounds, explore_most, wrong) = Self::judged(slo, there(range, law)?, tuning);
        wrong.into_iter().next().map_or(Ok((bounds, explore_most)), Err)
    }

    /// The same with all that does not fit the lever or the SLO.
    pub(super) fn judged(
        slo: Slo,
        range: LeverRange,
        tuning: &BatchingTuning,
    ) -> (IntervalBounds, Seconds, Vec<LawError>) {
        let sla = tuning.sla_ms.map_or(slo.target(), Seconds::from_millis);
        let asked = (tuning.min_interval_ms, tuning.max_interval_ms);
        let (bounds, mut wrong) = IntervalBounds::judged(range, sla, asked, "batching");
        let half = bounds.least + (bounds.most - bounds.least) * 0.5;
        let explore_most = tuning.explore_max_ms.map_or(half, Seconds::from_millis);
        if explore_most < bounds.least || explore_most > bounds.most {
            let why = format!(
                "is {}: it must be between {} and {}, the shortest and the longest interval, in ms",
                explore_most.as_millis(),
                bounds.least.as_millis(),
                bounds.most.as_millis()
            );
            wrong.push(LawError::new("law.batching.explore_max_ms", why));
        }
        (bounds, explore_most, wrong)
    }

    /// An interval as the lever takes it.
    pub(super) fn fit(&self, interval: Seconds) -> Seconds {
        self.bounds.fit(interval)
    }

    /// Learns from a period and chooses the interval of the next.
    pub(super) fn step(&mut self, observation: &Observation) -> Step {
        let sample = Sample::of(observation, self.hit_ratio);
        if let Some(now) = sample {
            self.hit_ratio = Some(now.hit_ratio);
        }
        self.observe(observation, sample);
        if self.unread.observe(observation) {
            self.lose();
            let numbers = [("interval_ms", self.bounds.least.as_millis())];
            return Step {
                interval: self.bounds.least,
                reason: reason("batching-hold", Unread::WORDS.to_owned(), &numbers),
                explores: true,
            };
        }
        match &mut self.way {
            Way::Steer(steer) => match sample {
                Some(now) => steer.step(now, &self.keep),
                None => steer.hold(observation),
            },
            Way::Least(least, looks) => {
                match looks.gate(observation, !least.is_off()) {
                    Gate::Open => {}
                    Gate::Anew => least.lose(),
                    Gate::Closed(text) | Gate::Condemned(_, text) => {
                        least.restart();
                        return Step {
                            interval: self.bounds.least,
                            reason: reason(
                                "batching-look",
                                text,
                                &[("interval_ms", self.bounds.least.as_millis())],
                            ),
                            explores: true,
                        };
                    }
                }
                least.step(period(observation, sample), &self.keep)
            }
        }
    }

    fn observe(&mut self, observation: &Observation, sample: Option<Sample>) {
        if let (Some(now), Some(traffic)) = (sample, &observation.traffic) {
            self.keep.observe(Seen {
                length: observation.length,
                interval: now.interval,
                mean: now.response,
                at_slo: traffic.latency_to_judge(),
                bounds: true,
            });
        }
    }

    /// A period was lost: what comes next does not follow what was.
    pub(super) fn lose(&mut self) {
        match &mut self.way {
            Way::Steer(steer) => steer.lose(),
            Way::Least(least, looks) => {
                least.lose();
                looks.lose();
            }
        }
    }
}

/// What of a period is used for the least mean; one in which nothing was answered is one too.
fn period(observation: &Observation, sample: Option<Sample>) -> Option<Period> {
    let length = observation.length.get();
    let traffic = observation
        .traffic
        .as_ref()
        .filter(|_| length > 0.0 && length.is_finite())?;
    match sample {
        Some(now) => Some(Period {
            interval: now.interval.get(),
            answers: traffic.completions as f64,
            mean: now.response.get(),
            hit_ratio: now.hit_ratio,
            length,
        }),
        None if traffic.completions == 0 => Some(Period {
            interval: observation
                .in_force
                .batch_interval()
                .map(Seconds::get)
                .filter(|one| one.is_finite())?,
            answers: 0.0,
            mean: 0.0,
            hit_ratio: Ratio::ZERO,
            length,
        }),
        None => None,
    }
}

/// A reason about the interval.
pub(super) fn reason(rule: &'static str, text: String, numbers: &[(&'static str, f64)]) -> Reason {
    Reason::new(rule, text, numbers).of(&[Lever::BatchInterval])
}
