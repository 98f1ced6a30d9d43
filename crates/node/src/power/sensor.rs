//! What the meters without zones of their own have in common: a few sensors, each a counter of energy or a reading of
//! power that is summed up over time.

use super::counter::{EnergyCounter, Refusal, Step};
use super::refused::{Refusals, Refused};
use super::{MeterError, MeterSample, ZoneSample, zone_total};
use crate::clock::{Clock, Elapsed, KernelClock, Moment};
use crate::cpu::work::CpuWork;
use crate::{Roots, file};
use headroom_units::{Joules, Reading, Seconds, Source, Watts};
use std::path::PathBuf;

/// One reading of power speaks of at most so long a time.
const MAX_S: f64 = 10.0;
/// Values by which drivers say that they know none, in microwatts: all bits of 32 or 64 of them, as microwatts,
/// milliwatts or watts (the second has been taken for 4 294 967 W by others).
const SENTINELS_UW: [u64; 8] = [
    u32::MAX as u64,
    u32::MAX as u64 * 1_000,
    u32::MAX as u64 * 1_000_000,
    i32::MAX as u64,
    i32::MAX as u64 * 1_000,
    i32::MAX as u64 * 1_000_000,
    i64::MAX as u64,
    u64::MAX,
];

/// A reading of power in microwatts, summed up over time. It is not watched for standing still: a steady load draws a
/// steady power.
#[derive(Clone, Debug)]
pub(super) struct PowerSensor {
    most: Watts,
    before: Option<Watts>,
    total_uj: f64,
}

impl PowerSensor {
    /// A sensor of something that draws at most `most`.
    pub(super) fn new(first_uw: u64, most: Watts) -> Self {
        Self {
            most,
            before: believe(first_uw, most).ok(),
            total_uj: 0.0,
        }
    }

    /// Takes a reading in: the mean power since the reading before (of the two, or of this one alone where the one
    /// before was refused).
    fn advance(&mut self, raw_uw: u64, elapsed: Elapsed) -> Result<Watts, Refusal> {
        let now = believe(raw_uw, self.most);
        let before = std::mem::replace(&mut self.before, now.ok());
        let now = now?;
        if elapsed.suspended() {
            return Err(Refusal::Suspended);
        }
        let awake_s = elapsed.awake.get().max(0.0);
        if awake_s > MAX_S {
            return Err(Refusal::Gap);
        }
        let mean = before.map_or(now, |before| (before + now) / 2.0);
        self.total_uj += mean.get() * awake_s * 1e6;
        Ok(mean)
    }
}

/// A power that can be one.
pub(crate) fn believe(raw_uw: u64, most: Watts) -> Result<Watts, Refusal> {
    match raw_uw {
        0 => Err(Refusal::Zero),
        sentinel if SENTINELS_UW.contains(&sentinel) => Err(Refusal::Sentinel),
        raw if raw as f64 / 1e6 > most.get() => Err(Refusal::Jump),
        raw => Ok(Watts::new(raw as f64 / 1e6)),
    }
}

/// What a sensor says.
#[derive(Clone, Debug)]
pub(super) enum Quantity {
    /// Power.
    Power(PowerSensor),
    /// Energy.
    Energy(EnergyCounter),
}

/// One sensor.
#[derive(Clone, Debug)]
pub(super) struct Sensor {
    pub(super) zone: String,
    /// Where it is read, for messages.
    pub(super) path: PathBuf,
    pub(super) counted: bool,
    pub(super) quantity: Quantity,
    /// The reason, while its readings are refused.
    refusing: Option<Refusal>,
    /// Readings refused in a row.
    refused_in_a_row: u32,
}

/// A sensor whose readings are refused so often in a row has nothing to say.
const NONSENSE_AFTER: u32 = 5;

impl Sensor {
    pub(super) fn new(zone: String, path: PathBuf, counted: bool, quantity: Quantity) -> Self {
        Self {
            zone,
            path,
            counted,
            quantity,
            refusing: None,
            refused_in_a_row: 0,
        }
    }

    fn total_uj(&self) -> f64 {
        match &self.quantity {
            Quantity::Power(power) => power.total_uj,
            Quantity::Energy(counter) => counter.total_uj() as f64,
        }
    }

    fn advance(&mut self, raw: u64, elapsed: Elapsed, worked: Option<f64>) -> Result<Option<Watts>, Refusal> {
        let step = match &mut self.quantity {
            Quantity::Power(power) => power.advance(raw, elapsed).map(Some),
            Quantity::Energy(counter) => match counter.advance(raw, elapsed, worked) {
                Step::Counted { microjoules, seconds } if seconds > 0.0 => {
                    Ok(Some(super::joules(microjoules) / Seconds::new(seconds)))
                }
                Step::Refused(why) => Err(why),
                Step::Counted { .. } | Step::Same => Ok(None),
            },
        };
        self.refusing = step.as_ref().err().copied();
        self.refused_in_a_row = match step {
            Err(_) => self.refused_in_a_row.saturating_add(1),
            Ok(_) => 0,
        };
        step
    }

    fn is_frozen(&self) -> bool {
        matches!(&self.quantity, Quantity::Energy(counter) if counter.is_frozen())
    }
}

/// A few sensors and what they said.
#[derive(Debug)]
pub(super) struct Sensors {
    pub(super) all: Vec<Sensor>,
    source: Source,
    clock: Box<dyn Clock>,
    last: Moment,
    work: CpuWork,
    refusals: Refusals,
}

impl Sensors {
    /// Starts from the readings with which the sensors were made.
    pub(super) fn new(roots: &Roots, all: Vec<Sensor>, source: Source) -> Self {
        Self {
            all,
            source,
            last: KernelClock.now(),
            clock: Box::new(KernelClock),
            work: CpuWork::open(roots),
            refusals: Refusals::default(),
        }
    }

    /// The names of what is counted.
    pub(super) fn counted(&self) -> Vec<&str> {
        let counted = self.all.iter().filter(|sensor| sensor.counted);
        counted.map(|sensor| sensor.zone.as_str()).collect()
    }

    #[cfg(test)]
    pub(super) fn set_clock(&mut self, clock: Box<dyn Clock>) {
        self.last = clock.now();
        self.clock = clock;
    }

    /// The sensors went away and came back: counters start anew from here.
    pub(super) fn rebase(&mut self, at: usize, path: PathBuf, raw: u64) {
        if let Some(sensor) = self.all.get_mut(at) {
            self.refusals.count(&sensor.zone, Refusal::Vanished);
            sensor.path = path;
            match &mut sensor.quantity {
                Quantity::Power(power) => power.before = believe(raw, power.most).ok(),
                Quantity::Energy(counter) => counter.rebase(raw),
            }
        }
    }

    /// Takes the readings of all sensors in, in their order; nothing for one that is listed only and cannot be read.
    ///
    /// # Errors
    /// [`MeterError::Frozen`], [`MeterError::Nonsense`]: a counted sensor says nothing any more.
    pub(super) fn advance(&mut self, readings: &[Option<u64>]) -> Result<MeterSample, MeterError> {
        let now = self.clock.now();
        let elapsed = now.since(self.last);
        let worked = self.work.since();
        self.last = now;
        let mut zones = Vec::with_capacity(self.all.len());
        for (sensor, raw) in self.all.iter_mut().zip(readings) {
            let power = match raw.map(|raw| sensor.advance(raw, elapsed, worked)) {
                Some(Ok(power)) => power,
                Some(Err(why)) => {
                    self.refusals.count(&sensor.zone, why);
                    None
                }
                None => None,
            };
            zones.push(ZoneSample {
                zone: sensor.zone.clone(),
                energy: Reading::new(Joules::new(sensor.total_uj() / 1e6), self.source),
                power: power.map(|power| Reading::new(power, self.source)),
                counted: sensor.counted,
            });
        }
        for sensor in self.all.iter().filter(|sensor| sensor.counted) {
            if sensor.is_frozen() {
                return Err(MeterError::Frozen {
                    zone: sensor.zone.clone(),
                    path: sensor.path.clone(),
                });
            }
            if let Some(reason) = sensor
                .refusing
                .filter(|_| sensor.refused_in_a_row >= NONSENSE_AFTER)
            {
                return Err(MeterError::Nonsense {
                    zone: sensor.zone.clone(),
                    path: sensor.path.clone(),
                    reason,
                });
            }
        }
        let counted = self.all.iter().filter(|sensor| sensor.counted);
        let energy_uj: f64 = counted.map(Sensor::total_uj).sum();
        Ok(MeterSample {
            elapsed: elapsed.awake,
            energy: Reading::new(Joules::new(energy_uj / 1e6), self.source),
            power: zone_total(&zones, self.source).filter(|_| elapsed.awake.get() > 0.0),
            zones,
            rebases: self.refusals.total(),
        })
    }

    pub(super) fn refused(&self) -> Vec<Refused> {
        self.refusals.list()
    }
}

/// The first reading of a sensor of power that is part of the total must be one that can be: another meter is taken
/// otherwise.
pub(super) fn first_power(
    zone: &str,
    path: &std::path::Path,
    most: Watts,
) -> Result<PowerSensor, MeterError> {
    let first = file::read_u64(path)?;
    believe(first, most).map_err(|reason| MeterError::Nonsense {
        zone: zone.into(),
        path: path.into(),
        reason,
    })?;
    Ok(PowerSensor::new(first, most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOST: Watts = Watts::new(500.0);

    #[test]
    fn what_stands_for_nothing_is_no_power() {
        for (raw, why) in [
            (0, Refusal::Zero),
            (4_294_967_295_000, Refusal::Sentinel),
            (4_294_967_295, Refusal::Sentinel),
            (u64::MAX, Refusal::Sentinel),
            (2_147_483_647_000, Refusal::Sentinel),
            (500_000_001, Refusal::Jump),
        ] {
            assert_eq!(believe(raw, MOST), Err(why), "{raw}");
        }
        assert_eq!(believe(45_000_000, MOST), Ok(Watts::new(45.0)));
    }

    #[test]
    fn power_is_summed_up_between_readings() {
        let mut sensor = PowerSensor::new(100_000_000, MOST);
        assert_eq!(
            sensor.advance(200_000_000, Elapsed::awake(2.0)),
            Ok(Watts::new(150.0))
        );
        assert_eq!(sensor.total_uj, 300e6);
        assert_eq!(sensor.advance(0, Elapsed::awake(1.0)), Err(Refusal::Zero));
        // The reading before says nothing: this one speaks for the interval.
        assert_eq!(
            sensor.advance(100_000_000, Elapsed::awake(1.0)),
            Ok(Watts::new(100.0))
        );
        assert_eq!(
            sensor.advance(100_000_000, Elapsed::awake(11.0)),
            Err(Refusal::Gap)
        );
        let asleep = Elapsed {
            awake: Seconds::new(1.0),
            asleep: Seconds::new(60.0),
        };
        assert_eq!(sensor.advance(100_000_000, asleep), Err(Refusal::Suspended));
        assert_eq!(sensor.total_uj, 400e6);
    }

    proptest! {
        #[test]
        fn a_lying_sensor_adds_no_more_than_can_be_drawn(
            readings in proptest::collection::vec(
                (prop_oneof![any::<u64>(), 0u64..1_000_000_000, Just(4_294_967_295_000)], 0.0..20.0f64), 0..50),
        ) {
            let mut sensor = PowerSensor::new(0, MOST);
            let (mut metered, mut before) = (0.0, 0.0);
            for (raw, seconds) in readings {
                let step = sensor.advance(raw, Elapsed::awake(seconds));
                metered += seconds;
                prop_assert!(sensor.total_uj >= before && sensor.total_uj <= MOST.get() * metered * 1e6 * (1.0 + 1e-9));
                prop_assert!(step.is_ok() || sensor.total_uj == before);
                before = sensor.total_uj;
            }
        }
    }
}
