//! The model as a meter: fed with the CPU time of the target, the frequency, and how the machine's cores idle.

use super::idleness::Idleness;
use super::model::PowerModel;
use super::{Meter, MeterError, MeterSample, ZoneSample};
use crate::Roots;
use crate::cgroup::Target;
use crate::cpu::{CpuError, UsageMeter, UsageSample};
use crate::frequency::FrequencyReader;
use crate::idle::{PeriodMeter, PeriodSource};
use headroom_units::{Cores, Joules, Ratio, Reading, Source};

/// Says what a service used since it was last asked.
pub trait Usage: std::fmt::Debug + Send {
    /// The difference to the sample before.
    ///
    /// # Errors
    /// [`CpuError`]: it cannot be read.
    fn sample(&mut self) -> Result<UsageSample, CpuError>;
}

impl Usage for UsageMeter {
    fn sample(&mut self) -> Result<UsageSample, CpuError> {
        Self::sample(self)
    }
}

/// Computes the machine's power as if the target's service ran on it alone: platform, packages, the service's busy cores at
/// their frequency, and all other cores idle. What other processes draw is not in it; that they wake cores is.
///
/// ```text
/// P = platform + uncore + u B(f) + (n - u) by idle states
/// ```
#[derive(Debug)]
pub struct ModelledMeter {
    model: PowerModel,
    usage: Box<dyn Usage>,
    idleness: Idleness,
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
    /// [`MeterError`]: the target's CPU time cannot be read.
    pub fn open(roots: &Roots, target: &Target, model: PowerModel) -> Result<Self, MeterError> {
        Ok(Self::of(
            roots,
            Box::new(UsageMeter::open(roots, target)?),
            model,
            None,
        ))
    }

    /// The same of a service whose use of the processors is said by `usage`, with the cores that idle by the lengths of their idle periods,
    /// which decide how deep they sleep, where the kernel tells these of each period.
    pub fn by_periods(roots: &Roots, usage: Box<dyn Usage>, model: PowerModel) -> Self {
        // No event of this kernel is of an emulated core.
        let is_real = roots.source() != Source::Emulated;
        let by = |source| PeriodMeter::open_by(source, roots, None, &[]).ok();
        let sources = [PeriodSource::CpuIdle, PeriodSource::SchedSwitch];
        let periods = sources.into_iter().filter(|_| is_real).find_map(by);
        Self::of(roots, usage, model, periods)
    }

    fn of(roots: &Roots, usage: Box<dyn Usage>, model: PowerModel, periods: Option<PeriodMeter>) -> Self {
        Self {
            usage,
            idleness: match periods {
                Some(periods) => Idleness::of_periods(periods),
                None => Idleness::open(roots, model.machine()),
            },
            frequency: FrequencyReader::open(roots),
            model,
            energy: Joules::ZERO,
            rebases: 0,
            source: match roots.source() {
                Source::Emulated => Source::Emulated,
                _ => Source::Estimated,
            },
        }
    }
}

impl Meter for ModelledMeter {
    fn describe(&self) -> String {
        format!("model ({}, as if the service ran alone)", self.idleness.words())
    }

    fn name(&self) -> &'static str {
        "model"
    }

    fn sample(&mut self) -> Result<MeterSample, MeterError> {
        let usage = self.usage.sample()?;
        let frequency = self
            .frequency
            .as_ref()
            .and_then(FrequencyReader::ratio)
            .unwrap_or(Ratio::new(1.0));
        let rebased = usage.rebases > std::mem::replace(&mut self.rebases, usage.rebases);
        let machine = self.model.machine();
        let busy = usage.busy.clamp(Cores::ZERO, self.model.cores());
        let idle = self.idleness.power(machine, busy, self.model.voltage(frequency));
        let power =
            machine.platform + idle.uncore + idle.cores + self.model.busy_core(frequency) * busy.get();
        let power = (usage.elapsed.get() > 0.0).then_some(power);
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
