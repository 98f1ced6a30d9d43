//! Reads the counters of this machine so that none ever falls, whatever happens to the files behind them.

use super::super::machine::{
    BusyCounters, Counters, CpuCounters, EnergyCounter, EnergyCounters, ZoneCounter,
};
use super::{LocalOptions, OpenError};
use crate::cap::LimiterOptions;
use crate::cgroup::Target;
use crate::cpu::{UsageMeter, UsageSample};
use crate::frequency::FrequencyReader;
use crate::power::{
    Choice, Meter, MeterError, MeterSample, ModelledMeter, choose, choose_of, choose_tried, settled,
};
use crate::work::MachineWork;
use headroom_units::{Joules, Reading, Seconds, Source};
use headroom_wire::message::RefusedReadings;
use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

/// What could not be read is opened anew at most this often: the service may have been started again, in a new group.
const REOPEN: Duration = Duration::from_secs(1);
/// /proc/stat is long on a large machine, and its ticks are 10 ms: it is not read more often.
const BUSY_EVERY: Duration = Duration::from_millis(100);
/// Troubles that wait for the next reading; beyond it they are dropped.
const MAX_NOTED: usize = 64;

pub(super) struct Sensors {
    options: LocalOptions,
    usage: UsageMeter,
    cpu: CpuTotals,
    meter: Box<dyn Meter>,
    choice: Choice,
    energy: EnergyTotals,
    /// Readings that the meters before this one did not believe.
    refused_before: u64,
    /// Times that no meter answered.
    unanswered: u64,
    frequency: Option<FrequencyReader>,
    work: Option<(Instant, MachineWork)>,
    opened: Instant,
    /// Since the last reading that failed nothing failed: a failure is reported once, not at each reading.
    failing: bool,
    noted: Vec<String>,
}

impl fmt::Debug for Sensors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sensors({})", self.choice)
    }
}

impl Sensors {
    pub(super) fn open(options: &LocalOptions, target: &Target) -> Result<Self, OpenError> {
        let choose = match options.limiter.meter_tried {
            true => choose_tried,
            false => choose,
        };
        // Before the meters, each of which would only say that it is not there instead.
        let usage = UsageMeter::open(&options.roots, target)?;
        let (roots, model) = (&options.roots, &options.model);
        let (meter, choice) = match options.idle_by_periods {
            true => {
                let (of, target, model) = (roots.clone(), target.clone(), model.clone());
                choose_of(options.meter, roots, move || {
                    let usage = Box::new(UsageMeter::open(&of, &target)?);
                    Ok(Box::new(ModelledMeter::by_periods(&of, usage, model.clone())))
                })?
            }
            false => choose(options.meter, roots, target, model)?,
        };
        Ok(Self {
            options: options.clone(),
            usage,
            cpu: CpuTotals::default(),
            meter,
            choice,
            energy: EnergyTotals::default(),
            refused_before: 0,
            unanswered: 0,
            frequency: FrequencyReader::open(&options.roots),
            work: None,
            opened: Instant::now(),
            failing: false,
            noted: Vec::new(),
        })
    }

    pub(super) fn choice(&self) -> &Choice {
        &self.choice
    }

    /// Waits until it is known which zones of the meter count.
    pub(super) fn settle(&mut self) -> Result<(), MeterError> {
        settled(&mut *self.meter).map(drop)
    }

    /// Something to tell with the next reading.
    pub(super) fn note(&mut self, troubles: impl Iterator<Item = String>) {
        let room = MAX_NOTED.saturating_sub(self.noted.len());
        self.noted.extend(troubles.take(room));
    }

    fn label(&self, source: Source) -> Source {
        if self.options.emulated {
            Source::Emulated
        } else {
            source
        }
    }

    pub(super) fn read(&mut self) -> Counters {
        let usage = self.usage.sample();
        let sample = self.meter.sample();
        let failures: Vec<String> = [
            usage.as_ref().err().map(ToString::to_string),
            sample.as_ref().err().map(ToString::to_string),
        ]
        .into_iter()
        .flatten()
        .collect();
        let fails = !failures.is_empty();
        self.unanswered += u64::from(sample.is_err());
        // A meter that stands still is still there: it is asked again, and has its substitutes.
        let still = matches!(
            sample,
            Err(MeterError::Frozen { .. } | MeterError::Nonsense { .. })
        );
        let to_reopen = fails && (usage.is_err() || !still);
        if fails && !std::mem::replace(&mut self.failing, true) {
            self.note(failures.into_iter());
        }
        let cpu = usage.ok().map(|usage| self.cpu.add(&usage));
        let energy = sample.ok().map(|sample| {
            let emulated = self.options.emulated.then_some(Source::Emulated);
            self.energy.add(&sample, emulated)
        });
        if to_reopen && self.opened.elapsed() >= REOPEN {
            self.reopen();
        } else if !fails && std::mem::take(&mut self.failing) {
            self.note(std::iter::once(
                "the counters of the service can be read again".to_string(),
            ));
        }
        let frequency = self.frequency.as_ref().and_then(FrequencyReader::mean);
        let work = self.work();
        Counters {
            cpu,
            machine: work.as_ref().map(|(_, work)| BusyCounters::of(work)),
            energy,
            frequency: frequency.map(|mean| Reading::new(mean, self.label(Source::Measured))),
            usable: None,
            oncall: None,
            work,
            refused: Some(RefusedReadings {
                meter: self.meter.name().to_owned(),
                count: self
                    .refused_before
                    .saturating_add(self.refused())
                    .saturating_add(self.unanswered),
            }),
            troubles: std::mem::take(&mut self.noted),
        }
    }

    /// Readings that this meter did not believe.
    fn refused(&self) -> u64 {
        self.meter.refused().iter().map(|refused| refused.count).sum()
    }

    /// What the machine did, and how long ago that was read.
    fn work(&mut self) -> Option<(Duration, MachineWork)> {
        let now = Instant::now();
        let is_due = |(at, _): &(Instant, MachineWork)| now.duration_since(*at) >= BUSY_EVERY;
        if self.work.as_ref().is_none_or(is_due) {
            self.work = Some((now, MachineWork::read(&self.options.roots).ok()?));
        }
        let (at, work) = self.work.as_ref()?;
        Some((now.duration_since(*at), work.clone()))
    }

    /// Opens everything anew; the totals go on from where they were. A failure is reported by the next reading's own.
    pub(super) fn reopen(&mut self) {
        let old = (self.opened, self.failing);
        let refused = self.refused_before.saturating_add(self.refused());
        self.opened = Instant::now();
        let options = LocalOptions {
            meter: self.choice.again(self.options.meter),
            limiter: LimiterOptions {
                meter_tried: true,
                ..self.options.limiter
            },
            ..self.options.clone()
        };
        let opened = Target::resolve(&options.roots, &options.target)
            .map_err(OpenError::from)
            .and_then(|target| Self::open(&options, &target));
        match opened {
            Ok(fresh) => {
                self.cpu.begin_anew();
                self.energy.begin_anew();
                let (cpu, energy) = (std::mem::take(&mut self.cpu), std::mem::take(&mut self.energy));
                let noted = std::mem::take(&mut self.noted);
                *self = Self {
                    cpu,
                    energy,
                    noted,
                    refused_before: refused,
                    unanswered: self.unanswered,
                    work: self.work.take(),
                    failing: old.1,
                    options: self.options.clone(),
                    choice: self.choice.clone(),
                    ..fresh
                };
            }
            Err(error) => tracing::debug!(%error, "the service's counters cannot be opened yet"),
        }
    }
}

/// The service's processor time over every meter that was opened for it.
#[derive(Debug, Default)]
struct CpuTotals {
    total: CpuCounters,
    /// Of the meters before this one.
    before: Seconds,
    this: Seconds,
}

impl CpuTotals {
    fn begin_anew(&mut self) {
        self.before += std::mem::replace(&mut self.this, Seconds::ZERO);
    }

    fn add(&mut self, sample: &UsageSample) -> CpuCounters {
        self.this = sample.used_total;
        let total = &mut self.total;
        total.clock += sample.elapsed.to_duration();
        total.used = total.used.max((self.before + self.this).to_duration());
        total.throttled += sample.throttled.to_duration();
        total.periods = total.periods.saturating_add(sample.periods);
        total.throttled_periods = total.throttled_periods.saturating_add(sample.throttled_periods);
        *total
    }
}

/// Energy over every meter that was opened.
#[derive(Debug, Default)]
struct EnergyTotals {
    clock: Duration,
    total: Option<ZoneTotal>,
    zones: HashMap<String, ZoneTotal>,
}

#[derive(Debug)]
struct ZoneTotal {
    /// Of the meters before this one.
    before: Joules,
    this: Joules,
    gaps: u64,
    source: Source,
    uj: u64,
}

impl ZoneTotal {
    fn new(source: Source) -> Self {
        Self {
            before: Joules::ZERO,
            this: Joules::ZERO,
            gaps: 0,
            source,
            uj: 0,
        }
    }

    /// Of one source only: where another one goes on counting, the count begins again with a gap.
    fn add(&mut self, energy: Reading<Joules>, known: bool) -> EnergyCounter {
        if energy.source != self.source {
            let gaps = self.gaps + 1;
            *self = Self {
                gaps,
                uj: self.uj,
                before: self.before + self.this,
                ..Self::new(energy.source)
            };
        }
        self.this = energy.value;
        self.gaps += u64::from(!known);
        // Rounded from the sum, not the parts, so that nothing is lost in years of small differences.
        self.uj = self
            .uj
            .max(((self.before + self.this).get() * 1e6).round() as u64);
        EnergyCounter {
            uj: self.uj,
            gaps: self.gaps,
            source: self.source,
        }
    }

    fn begin_anew(&mut self) {
        self.before += std::mem::replace(&mut self.this, Joules::ZERO);
        self.gaps += 1;
    }
}

impl EnergyTotals {
    fn begin_anew(&mut self) {
        self.zones
            .values_mut()
            .chain(&mut self.total)
            .for_each(ZoneTotal::begin_anew);
    }

    fn add(&mut self, sample: &MeterSample, label: Option<Source>) -> EnergyCounters {
        let label = |energy: Reading<Joules>| Reading::new(energy.value, label.unwrap_or(energy.source));
        self.clock += sample.elapsed.to_duration();
        // No power is known over no time either; that is no gap.
        let known = |there: bool| there || sample.elapsed == Seconds::ZERO;
        let energy = label(sample.energy);
        let total = self.total.get_or_insert_with(|| ZoneTotal::new(energy.source));
        let total = total.add(energy, known(sample.power.is_some()));
        let zones = sample
            .zones
            .iter()
            .map(|zone| {
                let energy = label(zone.energy);
                let counter = self
                    .zones
                    .entry(zone.zone.clone())
                    .or_insert_with(|| ZoneTotal::new(energy.source));
                ZoneCounter {
                    name: zone.zone.clone(),
                    counted: zone.counted,
                    energy: counter.add(energy, known(zone.power.is_some())),
                }
            })
            .collect();
        EnergyCounters {
            clock: self.clock,
            total,
            zones,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::power::ZoneSample;
    use headroom_units::{Estimated, Measured, Watts};

    fn sample(joules: f64, known: bool) -> MeterSample {
        let energy = Reading::from(Measured(Joules::new(joules)));
        let power = known.then(|| Reading::from(Measured(Watts::new(1.0))));
        MeterSample {
            elapsed: Seconds::new(1.0),
            energy,
            power,
            zones: vec![ZoneSample {
                zone: "package-0".into(),
                energy,
                power,
                counted: true,
            }],
            rebases: 0,
        }
    }

    #[test]
    fn energy_goes_on_over_a_meter_that_was_opened_anew() {
        let mut totals = EnergyTotals::default();
        assert_eq!(totals.add(&sample(5.0, true), None).total.uj, 5_000_000);
        totals.begin_anew();
        let counters = totals.add(&sample(2.0, true), None);
        assert_eq!((counters.total.uj, counters.total.gaps), (7_000_000, 1));
        assert_eq!(counters.zones[0].energy, counters.total);
        assert_eq!(counters.clock, Duration::from_secs(2));
    }

    #[test]
    fn a_discarded_difference_is_a_gap_and_emulated_hardware_is_labelled() {
        let mut totals = EnergyTotals::default();
        let counters = totals.add(&sample(5.0, false), Some(Source::Emulated));
        assert_eq!(
            (counters.total.gaps, counters.total.source),
            (1, Source::Emulated)
        );
    }

    #[test]
    fn another_source_is_never_added_without_a_gap() {
        let mut totals = EnergyTotals::default();
        totals.add(&sample(5.0, true), None);
        let mut other = sample(1.0, true);
        other.energy = Estimated(Joules::new(1.0)).into();
        let counters = totals.add(&other, None);
        assert_eq!(
            (counters.total.source, counters.total.gaps),
            (Source::Estimated, 1)
        );
    }

    #[test]
    fn processor_time_never_falls() {
        let mut totals = CpuTotals::default();
        let sample = |used_total| UsageSample {
            elapsed: Seconds::new(1.0),
            used_total: Seconds::new(used_total),
            ..UsageSample::default()
        };
        totals.add(&sample(3.0));
        totals.begin_anew();
        assert_eq!(totals.add(&sample(1.0)).used, Duration::from_secs(4));
        assert_eq!(totals.total.clock, Duration::from_secs(2));
    }
}
