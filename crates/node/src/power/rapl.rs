//! RAPL energy counters through the powercap tree (see [`crate::powercap`] for what the zones are).
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

    /// Memory that never counts is memory without a counter (client processors): it is not missed in the total.
    fn is_dead(&self) -> bool {
        self.kind == ZoneKind::Dram && self.counter.is_frozen() && !self.counter.has_moved()
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

impl RaplMeter {
    /// Takes the first reading of every zone that has a counter; the first sample covers the time since. Packages and
    /// memory are the total.
    ///
    /// # Errors
    /// [`MeterError::NoZones`]: there is none that counts towards the total. [`MeterError::File`]: there is one and it
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
            return Err(MeterError::NoZones {
                dir: powercap::dir(roots),
                why: match total {
                    RaplTotal::Packages => powercap::why_none(roots, &found).into(),
                    RaplTotal::Platform => "it has no psys zone".into(),
                },
            });
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
            let why = powercap::why_none(&self.roots, &found).to_string();
            return Err(MeterError::NoZones {
                dir: powercap::dir(&self.roots),
                why,
            });
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
            sample.counted &= !zone.is_dead();
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
mod tests {
    use super::*;
    use crate::clock::fake::FakeClock;
    use headroom_units::Joules;
    use std::fs;
    use std::path::Path;

    fn zone(sys: &Path, dir: &str, name: &str, energy: u64) {
        let dir = sys.join("class/powercap").join(dir);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("name"), format!("{name}\n")).unwrap();
        fs::write(dir.join("energy_uj"), format!("{energy}\n")).unwrap();
        fs::write(dir.join("max_energy_range_uj"), "262143328850\n").unwrap();
    }

    struct Server {
        dir: tempfile::TempDir,
        clock: FakeClock,
        busy_s: std::cell::Cell<u64>,
    }

    impl Server {
        fn new() -> Self {
            let server = Self {
                dir: tempfile::tempdir().unwrap(),
                clock: FakeClock::default(),
                busy_s: std::cell::Cell::new(0),
            };
            for package in 0..2 {
                server.zone(
                    &format!("intel-rapl:{package}"),
                    &format!("package-{package}"),
                    1_000_000,
                );
                server.zone(&format!("intel-rapl:{package}:0"), "core", 1_000_000);
                server.zone(&format!("intel-rapl:{package}:1"), "dram", 1_000_000);
            }
            server.zone("intel-rapl:2", "psys", 1_000_000);
            server.zone("intel-rapl-mmio:0", "package-0", 5);
            server.zone("dtpm", "dtpm", 5);
            server.pass(0);
            server
        }

        fn zone(&self, dir: &str, name: &str, energy: u64) {
            zone(&self.dir.path().join("sys"), dir, name, energy);
        }

        /// All packages and memory at one value.
        fn all(&self, energy: u64) {
            for package in 0..2 {
                self.zone(
                    &format!("intel-rapl:{package}"),
                    &format!("package-{package}"),
                    energy,
                );
                self.zone(&format!("intel-rapl:{package}:1"), "dram", energy);
            }
        }

        /// Time passes, with one CPU busy.
        fn pass(&self, seconds: u64) {
            self.busy_s.set(self.busy_s.get() + seconds);
            self.clock.pass(Duration::from_secs(seconds), Duration::ZERO);
            fs::create_dir_all(self.dir.path().join("proc")).unwrap();
            let text = format!("cpu  {} 0 0 0 0 0 0 0\n", self.busy_s.get() * 100);
            fs::write(self.dir.path().join("proc/stat"), text).unwrap();
        }

        fn roots(&self) -> Roots {
            Roots::at(self.dir.path().join("sys"), self.dir.path().join("proc"))
        }

        fn remove(&self, dir: &str) {
            fs::remove_dir_all(self.dir.path().join("sys/class/powercap").join(dir)).unwrap();
        }

        fn open(&self) -> RaplMeter {
            RaplMeter::open_with(&self.roots(), RaplTotal::Packages, Box::new(self.clock.clone())).unwrap()
        }
    }

    #[test]
    fn packages_and_dram_are_added_and_nothing_twice() {
        let server = Server::new();
        let mut meter = server.open();
        server.pass(2);
        server.all(2_000_000);
        server.zone("intel-rapl:0:0", "core", 2_000_000);
        server.zone("intel-rapl:2", "psys", 9_000_000);
        let sample = meter.sample().unwrap();
        assert_eq!(sample.energy, Reading::new(Joules::new(4.0), Source::Measured));
        assert_eq!(
            sample.power,
            Some(Reading::new(Watts::new(2.0), Source::Measured))
        );
        let of = |counted: bool| -> Vec<&str> {
            let zones = sample.zones.iter().filter(|zone| zone.counted == counted);
            zones.map(|zone| zone.zone.as_str()).collect()
        };
        assert_eq!(of(true), ["package-0", "package-1", "dram-0", "dram-1"]);
        assert_eq!(of(false), ["psys", "core-0", "core-1"]);
    }

    #[test]
    fn psys_is_the_total_where_it_is_asked_for_or_alone() {
        let server = Server::new();
        let mut meter = RaplMeter::open_with(
            &server.roots(),
            RaplTotal::Platform,
            Box::new(server.clock.clone()),
        )
        .unwrap();
        server.pass(1);
        server.all(5_000_000);
        server.zone("intel-rapl:2", "psys", 31_000_000);
        let sample = meter.sample().unwrap();
        assert_eq!((sample.energy.value, meter.name()), (Joules::new(30.0), "psys"));
        let dir = tempfile::tempdir().unwrap();
        zone(dir.path(), "intel-rapl:0", "psys", 7);
        let roots = Roots::at(dir.path(), "/proc");
        assert_eq!(counted(&powercap::zones(&roots), RaplTotal::Packages), [true]);
        assert!(RaplMeter::open(&roots).is_ok());
        let no_psys = tempfile::tempdir().unwrap();
        zone(no_psys.path(), "intel-rapl:0", "package-0", 7);
        let error =
            RaplMeter::open_total(&Roots::at(no_psys.path(), "/proc"), RaplTotal::Platform).unwrap_err();
        assert!(error.to_string().contains("no psys zone"), "{error}");
    }

    #[test]
    fn a_masked_directory_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::at(dir.path(), "/proc");
        assert!(
            RaplMeter::open(&roots)
                .unwrap_err()
                .to_string()
                .contains("does not exist")
        );
        fs::create_dir_all(dir.path().join("class/powercap")).unwrap();
        assert!(
            RaplMeter::open(&roots)
                .unwrap_err()
                .to_string()
                .contains("no intel-rapl zone")
        );
    }

    #[test]
    fn a_counter_that_cannot_be_read_is_an_error_and_charges_nobody() {
        let server = Server::new();
        let mut meter = server.open();
        fs::remove_file(
            server
                .dir
                .path()
                .join("sys/class/powercap/intel-rapl:1/energy_uj"),
        )
        .unwrap();
        server.pass(1);
        let error = meter.sample().unwrap_err().to_string();
        assert!(error.contains("intel-rapl:1/energy_uj"), "{error}");
        server.all(3_000_000);
        assert_eq!(meter.sample().unwrap().energy.value, Joules::new(8.0));
    }

    #[test]
    fn a_package_that_goes_away_and_comes_back_is_counted_while_it_is_there() {
        let server = Server::new();
        let mut meter = server.open();
        server.remove("intel-rapl:1");
        server.remove("intel-rapl:1:0");
        server.remove("intel-rapl:1:1");
        server.pass(1);
        server.zone("intel-rapl:0", "package-0", 6_000_000);
        let sample = meter.sample().unwrap();
        assert_eq!(
            (sample.energy.value, sample.power),
            (Joules::new(5.0), None),
            "the total has changed"
        );
        server.pass(1);
        server.zone("intel-rapl:0", "package-0", 16_000_000);
        let sample = meter.sample().unwrap();
        assert_eq!(sample.power.map(|power| power.value), Some(Watts::new(10.0)));
        // It comes back with a counter that has started anew.
        server.zone("intel-rapl:1", "package-1", 77_000_000);
        server.zone("intel-rapl:1:1", "dram", 5);
        server.pass(1);
        server.zone("intel-rapl:0", "package-0", 26_000_000);
        meter.sample().unwrap();
        server.pass(1);
        server.zone("intel-rapl:0", "package-0", 36_000_000);
        server.zone("intel-rapl:1", "package-1", 80_000_000);
        server.zone("intel-rapl:1:1", "dram", 1_000_005);
        let sample = meter.sample().unwrap();
        assert_eq!(sample.power.map(|power| power.value), Some(Watts::new(14.0)));
        assert_eq!(sample.energy.value, Joules::new(39.0));
        let refused = meter.refused();
        assert!(
            refused
                .iter()
                .any(|r| r.zone == "package-1" && r.reason == Refusal::Vanished),
            "{refused:?}"
        );
    }

    #[test]
    fn a_package_that_stands_still_is_an_error_and_memory_that_never_counted_is_left_out() {
        let server = Server::new();
        let mut meter = server.open();
        let step = |package_0: u64, package_1: u64| {
            server.pass(1);
            server.zone("intel-rapl:0", "package-0", package_0);
            server.zone("intel-rapl:1", "package-1", package_1);
        };
        for second in 1..=3 {
            step(1_000_000 + second * 1_000_000, 1_000_000 + second * 2_000_000);
            assert_eq!(
                meter.sample().unwrap().power.map(|p| p.value),
                Some(Watts::new(3.0))
            );
        }
        let sample = meter.sample().unwrap();
        let counted = sample
            .zones
            .iter()
            .filter(|zone| zone.counted)
            .map(|zone| zone.zone.as_str());
        assert_eq!(counted.collect::<Vec<_>>(), ["package-0", "package-1"]);
        step(5_000_000, 7_000_000);
        assert_eq!(meter.sample().unwrap().power, None);
        step(6_000_000, 7_000_000);
        let error = meter.sample().unwrap_err().to_string();
        assert!(
            error.contains("package-1") && error.contains("stands still"),
            "{error}"
        );
        step(7_000_000, 11_000_000);
        let sample = meter.sample().unwrap();
        assert_eq!(sample.energy.value, Joules::new(6.0 + 10.0));
        // 4 J in the three seconds since it last moved, beside 1 W.
        assert!(
            (sample.power.unwrap().value.get() - (1.0 + 4.0 / 3.0)).abs() < 1e-9,
            "{sample:?}"
        );
    }

    #[test]
    fn a_suspend_costs_its_interval_and_is_counted_by_name() {
        let server = Server::new();
        let mut meter = server.open();
        server
            .clock
            .pass(Duration::from_secs(1), Duration::from_secs(3_600));
        server.all(90_000_000);
        let sample = meter.sample().unwrap();
        assert_eq!((sample.energy.value, sample.power), (Joules::ZERO, None));
        let refused = meter.refused();
        assert!(
            refused.iter().all(|refused| refused.reason == Refusal::Suspended),
            "{refused:?}"
        );
        server.pass(1);
        server.all(92_000_000);
        assert_eq!(meter.sample().unwrap().energy.value, Joules::new(8.0));
    }

    #[test]
    fn an_emulated_machine_says_that_it_is() {
        let server = Server::new();
        let mark = server.dir.path().join("sys/headroom-testbed");
        fs::create_dir_all(&mark).unwrap();
        fs::write(mark.join("emulated"), "").unwrap();
        let mut meter = server.open();
        server.pass(1);
        server.all(2_000_000);
        let sample = meter.sample().unwrap();
        assert_eq!(sample.energy.source, Source::Emulated);
        assert!(
            sample
                .zones
                .iter()
                .all(|zone| zone.energy.source == Source::Emulated)
        );
    }
}
