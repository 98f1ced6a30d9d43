//! The watts of the machine that a server runs on, as a device that has no lever.

use crate::live::{Device, DevicePeriod};
use headroom_control::Decision;
use headroom_node::power::{Meter, MeterSample, settled};
use headroom_units::{Joules, Reading, Setting};

/// A meter alone.
pub struct Draw {
    meter: Box<dyn Meter>,
    identity: String,
    before: Option<Reading<Joules>>,
}

impl Draw {
    /// Reads this meter.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn new(mut meter: Box<dyn Meter>) -> anyhow::Result<Self> {
        let sample = settled(&mut *meter)?;
        Ok(Self {
            identity: sample.identity(meter.name()),
            before: Some(sample.energy),
            meter,
        })
    }

    fn take(&mut self, sample: &MeterSample) -> Option<Reading<Joules>> {
        let before = self.before.replace(sample.energy)?;
        let is_same =
            sample.identity(self.meter.name()) == self.identity && before.source == sample.energy.source;
        let used = sample.energy.value - before.value;
        (is_same && sample.power.is_some()).then_some(Reading::new(used, before.source))
    }
}

impl Device for Draw {
    fn begin(&mut self) -> Option<String> {
        Some(self.identity.clone())
    }

    fn observe(&mut self, period: &mut DevicePeriod) {
        match self.meter.sample() {
            Ok(sample) => {
                period.energy = self.take(&sample);
                period.power = sample.power.filter(|_| period.energy.is_some());
                period.zone = sample
                    .zones
                    .into_iter()
                    .find(|zone| zone.counted)
                    .map_or_else(String::new, |zone| zone.zone);
            }
            Err(error) => {
                tracing::warn!("the meter does not answer: {error}");
                self.before = None;
            }
        }
    }

    fn in_force(&self) -> Setting {
        Setting::default()
    }

    fn apply(&mut self, _decision: &mut Decision) -> anyhow::Result<()> {
        Ok(())
    }
}
