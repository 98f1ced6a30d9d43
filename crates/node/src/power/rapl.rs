//! RAPL energy counters through the powercap tree (Documentation/power/powercap/powercap.rst).
//!
//! `sys/class/powercap/intel-rapl:N` is a package (or psys, the whole platform), `intel-rapl:N:M` a part of it: core
//! and uncore lie inside the package's counter, dram outside. The total is packages plus dram; where a machine has
//! only psys, psys. `intel-rapl-mmio` counts the same packages again, by another way, and stays out where the first
//! exists. AMD servers count through the same tree.

use super::{Meter, MeterError, MeterSample, ZoneSample};
use crate::{Roots, file};
use headroom_units::{Joules, Measured, Reading, Seconds, Watts};
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

/// More zones than any machine has.
const MOST_ZONES: usize = 1024;
/// No zone draws more: twice the largest single package sold. A difference beyond it is nonsense, not power.
const MOST_WATTS: f64 = 2_000.0;
/// A counter is updated about every millisecond: so much may come late into a short interval.
const LATE_S: f64 = 0.01;

/// Reads the RAPL zones of a machine.
#[derive(Debug)]
pub struct RaplMeter {
    zones: Vec<Zone>,
    last_at: Instant,
}

#[derive(Debug)]
struct Zone {
    name: String,
    energy: PathBuf,
    counted: bool,
    counter: Counter,
}

/// A zone as it is found, before it is known whether it can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundZone {
    /// Unique: `package-0`, `dram-0`, `psys`.
    pub(crate) name: String,
    pub(crate) dir: PathBuf,
    pub(crate) counted: bool,
}

/// The zones of the powercap tree, sorted by name; what is not RAPL (`dtpm`, `idle-injection`) is passed over.
pub(crate) fn zones(roots: &Roots) -> Vec<FoundZone> {
    let dir = roots.sys("class/powercap");
    let Ok(entries) = fs::read_dir(&dir) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .flatten()
        .take(MOST_ZONES)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    // The MSR's zones sort before those of the memory-mapped interface.
    names.sort_by_key(|name| (name.starts_with("intel-rapl-mmio"), name.clone()));
    let kind_of = |zone: &str| {
        file::read(&dir.join(zone).join("name"))
            .ok()
            .filter(|name| !name.is_empty())
    };
    let mut found: Vec<FoundZone> = Vec::new();
    for zone in &names {
        let Some((_, numbers)) = zone
            .split_once(':')
            .filter(|(driver, _)| driver.starts_with("intel-rapl"))
        else {
            continue;
        };
        let Some(kind) = kind_of(zone) else { continue };
        let (name, counted) = match numbers.split_once(':') {
            None => (kind.clone(), kind.starts_with("package")),
            Some(_) => {
                let above = zone
                    .rsplit_once(':')
                    .and_then(|(above, _)| kind_of(above))
                    .unwrap_or_default();
                let package = above.strip_prefix("package-").unwrap_or(&above).to_string();
                (format!("{kind}-{package}"), kind == "dram")
            }
        };
        if !found.iter().any(|other| other.name == name) {
            found.push(FoundZone {
                name,
                dir: dir.join(zone),
                counted,
            });
        }
    }
    if !found.iter().any(|zone| zone.counted) {
        found
            .iter_mut()
            .filter(|zone| zone.name.starts_with("psys"))
            .take(1)
            .for_each(|zone| zone.counted = true);
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

impl RaplMeter {
    /// Takes the first reading of every zone that has a counter; the first sample covers the time since.
    ///
    /// # Errors
    /// [`MeterError::NoZones`]: there is none that counts towards the total. [`MeterError::File`]: there is one and it
    /// cannot be read (its files are for root alone since CVE-2020-8694).
    pub fn open(roots: &Roots) -> Result<Self, MeterError> {
        let dir = roots.sys("class/powercap");
        let found = zones(roots);
        if !found.iter().any(|zone| zone.counted) {
            let why = match (dir.is_dir(), found.is_empty()) {
                (false, _) => "the directory does not exist".to_string(),
                (true, true) => "it has no intel-rapl zone".to_string(),
                (true, false) => "none of its zones is a package, dram or psys".to_string(),
            };
            return Err(MeterError::NoZones { dir, why });
        }
        let mut zones = Vec::with_capacity(found.len());
        let last_at = Instant::now();
        for FoundZone { name, dir, counted } in found {
            let energy = dir.join("energy_uj");
            let opened = file::read_u64(&energy)
                .and_then(|first| Ok((first, file::read_u64(&dir.join("max_energy_range_uj"))?)));
            match opened {
                Ok((first, range)) => {
                    zones.push(Zone {
                        name,
                        energy,
                        counted,
                        counter: Counter::new(first, range),
                    });
                }
                Err(error) if counted => return Err(error.into()),
                // A part of a package that cannot be read is not missed in the total.
                Err(error) => tracing::debug!(%error, zone = name, "zone left out"),
            }
        }
        Ok(Self { zones, last_at })
    }
}

impl Meter for RaplMeter {
    fn name(&self) -> &'static str {
        "rapl"
    }

    fn sample(&mut self) -> Result<MeterSample, MeterError> {
        // All are read before any is advanced: a failure must not charge an interval to some zones only.
        let readings: Vec<u64> = self
            .zones
            .iter()
            .map(|zone| file::read_u64(&zone.energy))
            .collect::<Result<_, _>>()?;
        let now = Instant::now();
        let elapsed = Seconds::from(now.duration_since(self.last_at));
        self.last_at = now;
        let mut zones = Vec::with_capacity(self.zones.len());
        let mut total = (Joules::ZERO, Some(Watts::ZERO));
        for (zone, raw) in self.zones.iter_mut().zip(readings) {
            let delta = zone.counter.advance(raw, elapsed);
            let energy = joules(zone.counter.total_uj);
            let power = delta
                .filter(|_| elapsed.get() > 0.0)
                .map(|delta| joules(delta) / elapsed);
            if zone.counted {
                total = (
                    total.0 + energy,
                    total.1.zip(power).map(|(sum, power)| sum + power),
                );
            }
            zones.push(ZoneSample {
                zone: zone.name.clone(),
                energy: Measured(energy).into(),
                power: power.map(|power| Reading::from(Measured(power))),
                counted: zone.counted,
            });
        }
        Ok(MeterSample {
            elapsed,
            energy: Measured(total.0).into(),
            power: total.1.map(|power| Measured(power).into()),
            zones,
            rebases: self.zones.iter().map(|zone| zone.counter.rebases).sum(),
        })
    }
}

fn joules(microjoules: u64) -> Joules {
    Joules::new(microjoules as f64 / 1e6)
}

/// One counter that wraps, without a clock of its own.
#[derive(Debug)]
struct Counter {
    last_uj: u64,
    range_uj: u64,
    total_uj: u64,
    rebases: u64,
}

impl Counter {
    fn new(first_uj: u64, range_uj: u64) -> Self {
        Self {
            last_uj: first_uj,
            range_uj,
            total_uj: 0,
            rebases: 0,
        }
    }

    /// The energy since the reading before, in microjoules. Nothing, and counted as a rebase, where the interval is so
    /// long that the counter may have wrapped more than once unnoticed, or the difference more than any zone draws.
    fn advance(&mut self, raw_uj: u64, elapsed: Seconds) -> Option<u64> {
        let last = std::mem::replace(&mut self.last_uj, raw_uj);
        let delta = match raw_uj.checked_sub(last) {
            Some(delta) => Some(delta),
            None => self
                .range_uj
                .checked_sub(last)
                .and_then(|rest| rest.checked_add(raw_uj)),
        };
        let most_uj = MOST_WATTS * (elapsed.get() + LATE_S) * 1e6;
        let could_wrap_twice = most_uj > self.range_uj as f64;
        let delta = delta
            .filter(|delta| !could_wrap_twice && *delta as f64 <= most_uj)
            .filter(|_| raw_uj <= self.range_uj);
        match delta {
            Some(delta) => self.total_uj = self.total_uj.saturating_add(delta),
            None => self.rebases += 1,
        }
        delta
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;

    fn zone(sys: &Path, dir: &str, name: &str, energy: u64) {
        let dir = sys.join("class/powercap").join(dir);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("name"), format!("{name}\n")).unwrap();
        fs::write(dir.join("energy_uj"), format!("{energy}\n")).unwrap();
        fs::write(dir.join("max_energy_range_uj"), "262143328850\n").unwrap();
    }

    fn server() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for package in 0..2 {
            zone(
                dir.path(),
                &format!("intel-rapl:{package}"),
                &format!("package-{package}"),
                1_000_000,
            );
            zone(dir.path(), &format!("intel-rapl:{package}:0"), "core", 1_000_000);
            zone(dir.path(), &format!("intel-rapl:{package}:1"), "dram", 1_000_000);
        }
        zone(dir.path(), "intel-rapl:2", "psys", 1_000_000);
        zone(dir.path(), "intel-rapl-mmio:0", "package-0", 5);
        zone(dir.path(), "dtpm", "dtpm", 5);
        dir
    }

    #[test]
    fn packages_and_dram_are_added_and_nothing_twice() {
        let dir = server();
        let mut meter = RaplMeter::open(&Roots::at(dir.path(), "/proc")).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        for (zone_dir, name) in [
            ("intel-rapl:0", "package-0"),
            ("intel-rapl:0:0", "core"),
            ("intel-rapl:1:1", "dram"),
            ("intel-rapl:2", "psys"),
        ] {
            zone(dir.path(), zone_dir, name, 2_000_000);
        }
        let sample = meter.sample().unwrap();
        assert_eq!(sample.energy, Reading::from(Measured(Joules::new(2.0))));
        let counted: Vec<&str> = sample
            .zones
            .iter()
            .filter(|zone| zone.counted)
            .map(|zone| zone.zone.as_str())
            .collect();
        assert_eq!(counted, ["dram-0", "dram-1", "package-0", "package-1"]);
        assert_eq!(sample.zones.len(), 7);
        let power = sample.power.unwrap().value;
        assert!((power.get() - 2.0 / sample.elapsed.get()).abs() < 1e-6);
    }

    #[test]
    fn a_machine_with_only_psys_is_metered_by_it() {
        let dir = tempfile::tempdir().unwrap();
        zone(dir.path(), "intel-rapl:0", "psys", 7);
        let roots = Roots::at(dir.path(), "/proc");
        assert_eq!(
            zones(&roots),
            [FoundZone {
                name: "psys".into(),
                dir: dir.path().join("class/powercap/intel-rapl:0"),
                counted: true
            }]
        );
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
    fn a_counter_that_vanishes_is_an_error_and_charges_nobody() {
        let dir = server();
        let mut meter = RaplMeter::open(&Roots::at(dir.path(), "/proc")).unwrap();
        fs::remove_file(dir.path().join("class/powercap/intel-rapl:1/energy_uj")).unwrap();
        assert!(
            meter
                .sample()
                .unwrap_err()
                .to_string()
                .contains("intel-rapl:1/energy_uj")
        );
        zone(dir.path(), "intel-rapl:1", "package-1", 1_000_000);
        assert_eq!(meter.sample().unwrap().energy.value, Joules::ZERO);
    }

    #[test]
    fn a_wrap_is_counted_through() {
        let mut counter = Counter::new(262_143_000_000, 262_143_328_850);
        assert_eq!(counter.advance(671_150, Seconds::new(1.0)), Some(1_000_000));
        assert_eq!((counter.total_uj, counter.rebases), (1_000_000, 0));
    }

    #[test]
    fn a_gap_a_sentinel_and_a_reset_are_discarded() {
        let mut counter = Counter::new(0, 262_143_328_850);
        assert_eq!(counter.advance(50_000_000, Seconds::new(400.0)), None);
        assert_eq!(counter.advance(4_294_967_295_000_000, Seconds::new(1.0)), None);
        assert_eq!(counter.advance(100_000_000, Seconds::new(1.0)), None);
        assert_eq!(counter.advance(101_000_000, Seconds::new(1.0)), Some(1_000_000));
        assert_eq!((counter.total_uj, counter.rebases), (1_000_000, 3));
    }

    proptest! {
        #[test]
        fn energy_is_never_more_than_the_zone_could_draw(
            first in any::<u64>(), range in 1_000_000u64..1 << 48,
            readings in proptest::collection::vec((any::<u64>(), 0.0..500.0f64), 0..60),
        ) {
            let mut counter = Counter::new(first, range);
            let mut most = 0.0;
            for (raw, elapsed) in readings {
                let before = counter.total_uj;
                let _ = counter.advance(raw % (range.saturating_mul(2)), Seconds::new(elapsed));
                most += MOST_WATTS * (elapsed + LATE_S) * 1e6;
                prop_assert!(counter.total_uj >= before && counter.total_uj as f64 <= most);
            }
        }

        #[test]
        fn a_steady_draw_is_counted_exactly_over_any_wrap(
            first in 0u64..262_143_328_850, watts in 1.0..500.0f64, steps in 1usize..200,
        ) {
            let range = 262_143_328_850u64;
            let mut counter = Counter::new(first, range);
            let each = (watts * 1e6) as u64;
            let mut raw = first;
            for _ in 0..steps {
                raw = (raw + each) % range;
                counter.advance(raw, Seconds::new(1.0));
            }
            prop_assert_eq!(counter.total_uj, each * steps as u64);
            prop_assert_eq!(counter.rebases, 0);
        }
    }
}
