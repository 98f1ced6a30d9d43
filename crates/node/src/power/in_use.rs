//! The meter in use, and those of the same kind of source that take its place when it stands still during a run.

use super::choice::{MeterKind, Opener};
use super::refused::Refused;
use super::{Meter, MeterError, MeterSample};
use headroom_units::{Joules, Reading};

/// A meter with its substitutes. Where one says nothing any more, the next of the order that counts as it does is
/// opened, once each, and goes on from its energy; a model never takes the place of a sensor. Where none is left the
/// power is unknown until the meter moves again.
pub(super) struct MeterInUse {
    meter: Box<dyn Meter>,
    opener: Opener,
    /// Not yet tried, in order.
    rest: Vec<MeterKind>,
    /// Energy of the meters before this one.
    before: Joules,
    last: Joules,
    refused_before: Vec<Refused>,
    stopped: bool,
}

impl MeterInUse {
    pub(super) fn new(meter: Box<dyn Meter>, opener: Opener, rest: Vec<MeterKind>) -> Self {
        Self {
            meter,
            opener,
            rest,
            before: Joules::ZERO,
            last: Joules::ZERO,
            refused_before: Vec::new(),
            stopped: false,
        }
    }

    /// Opens the next one; its name.
    fn replace(&mut self) -> Option<&'static str> {
        while !self.rest.is_empty() {
            let kind = self.rest.remove(0);
            match (self.opener)(kind) {
                Ok(meter) => {
                    self.refused_before.extend(self.meter.refused());
                    self.before += std::mem::replace(&mut self.last, Joules::ZERO);
                    self.meter = meter;
                    return Some(self.meter.name());
                }
                Err(error) => tracing::debug!(%error, "the {kind} meter cannot take its place"),
            }
        }
        None
    }
}

impl Meter for MeterInUse {
    fn name(&self) -> &'static str {
        self.meter.name()
    }

    fn sample(&mut self) -> Result<MeterSample, MeterError> {
        match self.meter.sample() {
            Ok(mut sample) => {
                if sample.power.is_some() && std::mem::take(&mut self.stopped) {
                    tracing::warn!("the {} meter moves again: the power is known", self.meter.name());
                }
                self.last = sample.energy.value;
                sample.energy = Reading::new(self.before + sample.energy.value, sample.energy.source);
                Ok(sample)
            }
            Err(error @ (MeterError::Frozen { .. } | MeterError::Nonsense { .. })) => {
                // Once for each meter that stops, not at each reading.
                if !std::mem::replace(&mut self.stopped, true) {
                    match self.replace() {
                        Some(next) => {
                            self.stopped = false;
                            tracing::warn!("{error}; {next} is taken instead");
                        }
                        None => tracing::warn!("{error}; until it moves the power is unknown"),
                    }
                }
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    fn is_unsettled(&self) -> bool {
        self.meter.is_unsettled()
    }

    fn refused(&self) -> Vec<Refused> {
        let mut all = self.refused_before.clone();
        all.extend(self.meter.refused());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::fake::FakeMeter;
    use super::*;
    use std::sync::atomic::Ordering;

    fn fake(name: &'static str) -> FakeMeter {
        FakeMeter {
            name,
            ..FakeMeter::default()
        }
    }

    #[test]
    fn a_meter_that_stops_is_replaced_once_and_energy_goes_on() {
        let (first, second) = (fake("rapl"), fake("perf"));
        let (rapl, perf) = (first.frozen.clone(), second.frozen.clone());
        let opener: Opener = Box::new(move |kind| match kind {
            MeterKind::Perf => Ok(Box::new(second.clone())),
            _ => Err(MeterError::Frozen {
                zone: kind.to_string(),
                path: "none".into(),
            }),
        });
        let mut meter = MeterInUse::new(Box::new(first), opener, vec![MeterKind::Hsmp, MeterKind::Perf]);
        meter.sample().unwrap();
        assert_eq!(meter.sample().unwrap().energy.value, Joules::new(2.0));
        rapl.store(true, Ordering::Relaxed);
        assert!(meter.sample().is_err(), "of this period nothing is known");
        assert_eq!(meter.name(), "perf");
        assert_eq!(meter.sample().unwrap().energy.value, Joules::new(3.0));
        assert_eq!(meter.refused().len(), 2);

        // None is left: unknown, until it moves again.
        perf.store(true, Ordering::Relaxed);
        assert!(meter.sample().is_err() && meter.sample().is_err());
        assert_eq!(meter.name(), "perf");
        perf.store(false, Ordering::Relaxed);
        assert_eq!(meter.sample().unwrap().energy.value, Joules::new(4.0));
    }
}
