//! RAPL energy counters through the powercap tree.
//!
//! The total is packages plus dram: that is what a cap on the packages acts on, and it means the same on every board.
//! psys contains them and more, but what more is the board's choice, so it is counted only where it is asked for
//! ([`RaplTotal::Platform`]) or alone. Core and uncore lie inside the packages and are listed, never counted.

use super::counter::{EnergyCounter, Refusal, Step};
use super::refused::{Refusals, Refused};
use super::{Meter, MeterError, MeterSample, ZoneSample, joules, zone_total};
use crate::clock::{Clock, KernelClock, Moment};
use crate::cpu::work::CpuWork;
use crate::file::FileError;
use crate::powercap::{self, ZoneKind};
use crate::{Roots, file};
use headroom_units::{Reading, Seconds, Source, Watts};
use std::path::PathBuf;
use std::time::Duration;

/// How often the zones are looked for anew: packages may come with CPUs that are switched on.
const SCAN_EVERY: Duration = Duration::from_secs(30);

/// Which zones add up to the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RaplTotal {
    /// Packages and memory; psys where a machine has nothing else.
    #[default]
    Packages,
    /// The platform (psys), which contains them.
    Platform,
}

/// Reads the RAPL zones of a machine.
#[derive(Debug)]
pub struct RaplMeter {
    roots: Roots,
    total: RaplTotal,
    source: Source,
    zones: Vec<Zone>,
    work: CpuWork,
    clock: Box<dyn Clock>,
    last: Moment,
    scanned: Moment,
    /// All counted zones together, also of those that went away.
    energy_uj: u64,
    refusals: Refusals,
}

#[derive(Debug)]
struct Zone {
    name: String,
    kind: ZoneKind,
    energy: PathBuf,
    counted: bool,
    counter: EnergyCounter,
    /// The zone is not there now.
    away: bool,
}

impl Zone {
    /// Opens a zone's counter.
    fn open(found: &powercap::Zone, counted: bool) -> Result<Self, FileError> {
        let energy = found.dir.join("energy_uj");
        let first = file::read_u64(&energy)?;
        let range = file::read_u64(&found.dir.join("max_energy_range_uj")).ok();
        Ok(Self {
            name: found.name.clone(),
            kind: found.kind,
            energy,
            counted,
            counter: EnergyCounter::new(first, range, powercap::most_watts(&found.dir)),
            away: false,
        })
    }

    /// Memory that has counted nothing yet.
    fn is_unmoved_memory(&self) -> bool {
        self.kind == ZoneKind::Dram && !self.counter.has_moved()
    }

    /// Memory that never counts is memory without a counter (client processors): it is not missed in the total.
    fn is_dead(&self) -> bool {
        self.is_unmoved_memory() && self.counter.is_frozen()
    }
}

/// Whether each zone is part of the total.
pub(crate) fn counted(zones: &[powercap::Zone], total: RaplTotal) -> Vec<bool> {
    let is_package = |zone: &powercap::Zone| matches!(zone.kind, ZoneKind::Package | ZoneKind::Dram);
    let by_packages = total == RaplTotal::Packages && zones.iter().any(is_package);
    let mut platform = zones
        .iter()
        .position(|zone| zone.kind == ZoneKind::Psys)
        .filter(|_| !by_packages);
    zones
        .iter()
        .enumerate()
        .map(|(at, zone)| match by_packages {
            true => is_package(zone),
            false => platform.take_if(|first| *first == at).is_some(),
        })
        .collect()
}

fn no_zones(roots: &Roots, zones: &[powercap::Zone], total: RaplTotal) -> MeterError {
    let (why, remedy) = match (total, zones.is_empty()) {
        (RaplTotal::Platform, false) => (
            "the processor counts no platform (psys), as most servers do not",
            "use the packages' counters: RAPL energy",
        ),
        _ => powercap::why_none(roots, zones),
    };
    MeterError::NoSensor {
        what: "RAPL zone with an energy counter",
        why: why.into(),
        remedy,
    }
}

impl RaplMeter {
    /// Takes the first reading of every zone that has a counter; the first sample covers the time since. Packages and
    /// memory are the total.
    ///
    /// # Errors
    /// [`MeterError::NoSensor`]: there is none that counts towards the total. [`MeterError::File`]: there is one and it
    /// cannot be read (its files are for root alone since CVE-2020-8694).
    pub fn open(roots: &Roots) -> Result<Self, MeterError> {
        Self::open_total(roots, RaplTotal::Packages)
    }

    /// As [`RaplMeter::open`], with the zones that are to be the total.
    ///
    /// # Errors
    /// As [`RaplMeter::open`].
    pub fn open_total(roots: &Roots, total: RaplTotal) -> Result<Self, MeterError> {
        Self::open_with(roots, total, Box::new(KernelClock))
    }

    pub(crate) fn open_with(
        roots: &Roots,
        total: RaplTotal,
        clock: Box<dyn Clock>,
    ) -> Result<Self, MeterError> {
        let found = powercap::zones(roots);
        let counted = counted(&found, total);
        if !counted.contains(&true) {
            return Err(no_zones(roots, &found, total));
        }
        let mut zones = Vec::with_capacity(found.len());
        let work = CpuWork::open(roots);
        let last = clock.now();
        for (found, counted) in found.iter().zip(counted) {
            match Zone::open(found, counted) {
                Ok(zone) => zones.push(zone),
                Err(error) if counted => return Err(error.into()),
                // A part of a package that cannot be read is not missed in the total.
                Err(error) => tracing::debug!(%error, zone = found.name, "zone left out"),
            }
        }
        Ok(Self {
            roots: roots.clone(),
            total,
            source: roots.source(),
            zones,
            work,
            clock,
            last,
            scanned: last,
            energy_uj: 0,
            refusals: Refusals::default(),
        })
    }

    /// Looks which zones are there: marks those that are not, takes up new ones, and those that came back from where
    /// they are now. A counted zone that is there and cannot be read is an error.
    fn scan(&mut self) -> Result<(), MeterError> {
        let found = powercap::zones(&self.roots);
        let counted = counted(&found, self.total);
        if !counted.contains(&true) {
            return Err(no_zones(&self.roots, &found, self.total));
        }
        let mut fresh = Vec::new();
        for (found, counted) in found.iter().zip(counted) {
            let known = self.zones.iter_mut().find(|zone| zone.name == found.name);
            match (Zone::open(found, counted), known) {
                (Err(error), _) if counted => return Err(error.into()),
                (Err(error), _) => tracing::debug!(%error, zone = found.name, "zone left out"),
                (Ok(zone), Some(known)) if known.away => fresh.push(zone),
                (Ok(_), Some(known)) => known.counted = counted,
                (Ok(zone), None) => fresh.push(zone),
            }
        }
        for zone in &mut self.zones {
            let there = found.iter().any(|found| found.name == zone.name);
            if !there && !zone.away {
                zone.away = true;
                self.refusals.count(&zone.name, Refusal::Vanished);
            }
        }
        for zone in fresh {
            match self.zones.iter_mut().find(|known| known.name == zone.name) {
                Some(known) => {
                    let raw = file::read_u64(&zone.energy)?;
                    known.counter.rebase(raw);
                    (known.away, known.energy) = (false, zone.energy);
                }
                None => self.zones.push(zone),
            }
        }
        Ok(())
    }
}

impl Meter for RaplMeter {
    fn describe(&self) -> String {
        let counted = self.zones.iter().filter(|zone| zone.counted);
        let names: Vec<&str> = counted.map(|zone| zone.name.as_str()).collect();
        match self.total {
            RaplTotal::Packages => names.join(", "),
            RaplTotal::Platform => format!(
                "{}; what it contains is the board's choice, so it is taken only where it is asked for",
                names.join(", ")
            ),
        }
    }

    fn name(&self) -> &'static str {
        match self.total {
            RaplTotal::Packages => "rapl",
            RaplTotal::Platform => "psys",
        }
    }

    fn sample(&mut self) -> Result<MeterSample, MeterError> {
        let read = |zones: &[Zone]| -> Result<Vec<Option<u64>>, FileError> {
            zones
                .iter()
                .map(|zone| match (zone.away, file::read_u64(&zone.energy)) {
                    (true, _) => Ok(None),
                    (false, Ok(raw)) => Ok(Some(raw)),
                    (false, Err(error)) if zone.counted => Err(error),
                    (false, Err(_)) => Ok(None),
                })
                .collect()
        };
        // All are read before any is advanced: a failure must not charge an interval to some zones only.
        let (readings, mut complete) = match read(&self.zones) {
            Ok(readings) => (readings, true),
            Err(error) if error.is_gone() => {
                self.scan()?;
                (read(&self.zones)?, false)
            }
            Err(error) => return Err(error.into()),
        };
        let now = self.clock.now();
        let elapsed = now.since(self.last);
        let worked = self.work.since();
        self.last = now;
        let mut zones = Vec::with_capacity(self.zones.len());
        for (zone, raw) in self.zones.iter_mut().zip(readings) {
            let Some(raw) = raw else {
                if zone.away && zone.counted {
                    continue;
                }
                zones.push(zone_sample(zone, None, self.source));
                continue;
            };
            let step = zone.counter.advance(raw, elapsed, worked);
            if let Step::Refused(why) = step {
                self.refusals.count(&zone.name, why);
            }
            let power = match step {
                Step::Counted { microjoules, seconds } if seconds > 0.0 => {
                    Some(joules(microjoules) / Seconds::new(seconds))
                }
                // Memory draws little, and on some machines its counter never moves.
                Step::Same if zone.kind == ZoneKind::Dram => Some(Watts::ZERO),
                _ => None,
            };
            if let Step::Counted { microjoules, .. } = step
                && zone.counted
            {
                self.energy_uj = self.energy_uj.saturating_add(microjoules);
            }
            complete &= !zone.counted || power.is_some() || zone.is_dead();
            let mut sample = zone_sample(zone, power, self.source);
            // It is part of the total from its first movement on.
            sample.counted &= !zone.is_unmoved_memory();
            zones.push(sample);
        }
        let frozen = self
            .zones
            .iter()
            .find(|zone| zone.counted && !zone.away && zone.counter.is_frozen() && !zone.is_dead());
        if let Some(zone) = frozen {
            return Err(MeterError::Frozen {
                zone: zone.name.clone(),
                path: zone.energy.clone(),
            });
        }
        let away = self.zones.iter().any(|zone| zone.away);
        if away || now.since(self.scanned).awake.get() >= SCAN_EVERY.as_secs_f64() {
            self.scanned = now;
            self.scan()?;
        }
        Ok(MeterSample {
            elapsed: elapsed.awake,
            energy: Reading::new(joules(self.energy_uj), self.source),
            power: complete.then(|| zone_total(&zones, self.source)).flatten(),
            zones,
            rebases: self.refusals.total(),
        })
    }

    fn is_unsettled(&self) -> bool {
        let awaited = |zone: &Zone| zone.counted && !zone.away && zone.is_unmoved_memory();
        self.zones.iter().any(awaited)
    }

    fn refused(&self) -> Vec<Refused> {
        self.refusals.list()
    }
}

fn zone_sample(zone: &Zone, power: Option<Watts>, source: Source) -> ZoneSample {
    ZoneSample {
        zone: zone.name.clone(),
        energy: Reading::new(joules(zone.counter.total_uj()), source),
        power: power.map(|power| Reading::new(power, source)),
        counted: zone.counted,
    }
}

#[cfg(test)]
mod tests;
