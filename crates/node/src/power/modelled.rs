//! The model as a meter: fed with the CPU time of the target, the cores allocated to it, and the frequency.

use super::allocated::Allocated;
use super::model::PowerModel;
use super::{Meter, MeterError, MeterSample, ZoneSample};
use crate::Roots;
use crate::cgroup::Target;
use crate::cpu::UsageMeter;
use crate::frequency::FrequencyReader;
use headroom_units::{Joules, Ratio, Reading, Source};

/// Computes the machine's power as if the target's service ran on it alone: what other processes draw is not seen.
#[derive(Debug)]
pub struct ModelledMeter {
    model: PowerModel,
    usage: UsageMeter,
    allocated: Allocated,
    allocated_before: f64,
    frequency: Option<FrequencyReader>,
    energy: Joules,
    /// Of the usage, up to the last sample.
    rebases: u64,
    /// Estimated; on emulated hardware nothing is more than emulated.
    source: Source,
}

impl ModelledMeter {
    /// The name of its one zone.
    pub const ZONE: &'static str = "modelled";

    /// Takes the first reading; the first sample covers the time since.
    ///
    /// # Errors
    /// [`MeterError`]: the model's figures are none, or the target's CPU time cannot be read.
    pub fn open(
        roots: &Roots,
        target: &Target,
        model: PowerModel,
        allocated: Allocated,
    ) -> Result<Self, MeterError> {
        let model = model.validated()?;
        let usage = UsageMeter::open(roots, target)?;
        let frequency = FrequencyReader::open(roots);
        let allocated_before = allocated.core_seconds();
        Ok(Self {
            model,
            usage,
            allocated,
            allocated_before,
            frequency,
            energy: Joules::ZERO,
            rebases: 0,
            source: match roots.source() {
                Source::Emulated => Source::Emulated,
                _ => Source::Estimated,
            },
        })
    }
}

impl Meter for ModelledMeter {
    fn name(&self) -> &'static str {
        "model"
    }

    fn sample(&mut self) -> Result<MeterSample, MeterError> {
        let usage = self.usage.sample()?;
        let core_seconds = self.allocated.core_seconds();
        let allocated = Allocated::mean(self.allocated_before, core_seconds, usage.elapsed);
        self.allocated_before = core_seconds;
        let frequency = self
            .frequency
            .as_ref()
            .and_then(FrequencyReader::ratio)
            .unwrap_or(Ratio::new(1.0));
        let rebased = usage.rebases > std::mem::replace(&mut self.rebases, usage.rebases);
        let power = allocated.map(|allocated| self.model.power(allocated, usage.busy, frequency));
        if let Some(power) = power {
            self.energy += power * usage.elapsed;
        }
        // A discarded interval counts as idle in the energy, and has no power: what the service used is not known.
        let power = power.filter(|_| !rebased);
        let energy = Reading::new(self.energy, self.source);
        let power = power.map(|power| Reading::new(power, self.source));
        let zone = ZoneSample {
            zone: Self::ZONE.into(),
            energy,
            power,
            counted: true,
        };
        Ok(MeterSample {
            elapsed: usage.elapsed,
            energy,
            power,
            zones: vec![zone],
            rebases: usage.rebases,
        })
    }
}
