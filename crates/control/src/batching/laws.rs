//! The laws of the paper: its control of the interval alone, its control of the frequency alone, and both under its coordinator.

use super::bounds::there;
use super::frequency::{DvfsTuning, FrequencyControl};
use super::interval::IntervalControl;
use super::tuning::BatchingTuning;
use crate::decision::Decision;
use crate::law::Law;
use crate::observation::Observation;
use crate::parameter::{Bound, OutOfRange, Parameters, refused};
use crate::plant::{Plant, Slo};
use crate::registry::LawError;
use headroom_units::{Lever, LeverRange, Seconds, Setting};
use serde::Deserialize;

/// Fuzzy model predictive control of the batch interval (Section IV).
#[derive(Clone, Debug)]
pub struct Batching(IntervalControl);

impl Batching {
    const NAME: &'static str = "batching";

    /// The law for an SLO and a plant.
    ///
    /// # Errors
    /// A parameter outside its range, an interval bound above the SLA, a plant without the lever.
    pub fn new(slo: Slo, plant: Plant, tuning: BatchingTuning) -> Result<Self, LawError> {
        Ok(Self(IntervalControl::new(Self::NAME, slo, &plant, tuning)?))
    }

    /// All that a law of this name could not be built with, where the lever has this range.
    pub(crate) fn objections(
        law: &'static str,
        slo: Slo,
        range: Option<LeverRange>,
        tuning: &BatchingTuning,
    ) -> Vec<LawError> {
        match there(range, law) {
            Ok(range) => IntervalControl::judged(slo, range, tuning).2,
            Err(error) => vec![error],
        }
    }
}

impl Law for Batching {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn levers(&self) -> &[Lever] {
        &[Lever::BatchInterval]
    }

    fn decide(&mut self, observation: &Observation) -> Decision {
        let step = self.0.step(observation);
        Decision {
            reasons: vec![step.reason],
            ..Decision::of(Setting::from([(Lever::BatchInterval, step.interval.get())]))
        }
    }

    fn forget(&mut self) {
        self.0.lose();
    }
}

/// Expert fuzzy control of the CPU frequency (Section V).
#[derive(Clone, Debug)]
pub struct Dvfs(FrequencyControl);

impl Dvfs {
    const NAME: &'static str = "dvfs";

    /// The law for a plant.
    ///
    /// # Errors
    /// A parameter outside its range, a rule table with a hole, a plant whose frequency cannot be limited.
    pub fn new(plant: Plant, tuning: DvfsTuning) -> Result<Self, LawError> {
        Ok(Self(FrequencyControl::new(Self::NAME, &plant, tuning)?))
    }
}

impl Law for Dvfs {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn levers(&self) -> &[Lever] {
        &[Lever::Frequency]
    }

    fn decide(&mut self, observation: &Observation) -> Decision {
        let step = self.0.step(observation, true);
        Decision {
            reasons: vec![step.reason],
            ..Decision::of(Setting::from([(Lever::Frequency, step.frequency.get())]))
        }
    }

    fn forget(&mut self) {
        self.0.lose();
    }
}

/// `[law.batching-dvfs]`: the coordinator. Its two controls have the tables `[law.batching]` and `[law.dvfs]`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CoordinatorTuning {
    /// λ: the factor on the adjustment of the interval for each level by which the frequency changes. 0.95, as in Section VII.B.
    pub scaling: f64,
}

impl Default for CoordinatorTuning {
    fn default() -> Self {
        Self { scaling: 0.95 }
    }
}

impl Parameters for CoordinatorTuning {
    fn outside(&self) -> Vec<OutOfRange> {
        refused([Bound::Share.check("scaling", self.scaling)])
    }
}

/// Both controls under the coordinator (Section VI): the frequency is decided about once in several periods, from what batches took and
/// waited; with a change of it the model of the interval is not exact, so the interval is adjusted by λ of what it asks for.
#[derive(Clone, Debug)]
pub struct BatchingDvfs {
    interval: IntervalControl,
    frequency: FrequencyControl,
    tuning: CoordinatorTuning,
}

impl BatchingDvfs {
    const NAME: &'static str = "batching-dvfs";

    /// The law for an SLO and a plant.
    ///
    /// # Errors
    /// As [`Batching::new`] and [`Dvfs::new`].
    pub fn new(
        slo: Slo,
        plant: Plant,
        batching: BatchingTuning,
        dvfs: DvfsTuning,
        tuning: CoordinatorTuning,
    ) -> Result<Self, LawError> {
        tuning.check().map_err(LawError::of(Self::NAME))?;
        Ok(Self {
            interval: IntervalControl::new(Self::NAME, slo, &plant, batching)?,
            frequency: FrequencyControl::new(Self::NAME, &plant, dvfs)?,
            tuning,
        })
    }
}

impl Law for BatchingDvfs {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn levers(&self) -> &[Lever] {
        &[Lever::BatchInterval, Lever::Frequency]
    }

    fn decide(&mut self, observation: &Observation) -> Decision {
        let mut interval = self.interval.step(observation);
        // A model of the interval is identified at one frequency.
        let frequency = self.frequency.step(observation, !interval.explores);
        if frequency.levels != 0
            && let Some(now) = observation
                .in_force
                .batch_interval()
                .filter(|now| now.is_finite())
        {
            let scale = self
                .tuning
                .scaling
                .powi(frequency.levels.unsigned_abs().min(1_000) as i32);
            interval.interval = self.scaled(now, interval.interval, scale);
            interval.reason.numbers.push(("scaling".into(), scale));
            let text = &mut interval.reason.text;
            text.push_str(&format!(
                "; with the frequency changed, {:.0} % of the adjustment: {:.0} ms",
                scale * 100.0,
                interval.interval.as_millis()
            ));
        }
        let setting = [
            (Lever::BatchInterval, interval.interval.get()),
            (Lever::Frequency, frequency.frequency.get()),
        ];
        Decision {
            reasons: vec![interval.reason, frequency.reason],
            ..Decision::of(Setting::from(setting))
        }
    }

    fn forget(&mut self) {
        self.interval.lose();
        self.frequency.lose();
    }
}

impl BatchingDvfs {
    fn scaled(&self, now: Seconds, asked: Seconds, scale: f64) -> Seconds {
        self.interval.fit(now + (asked - now) * scale)
    }
}
