//! The zones of the powercap tree (Documentation/power/powercap/powercap.rst): what each one counts, which of them add
//! up to the machine, and the limits they have. Read only: [`crate::power::rapl`] counts, [`crate::limit::rapl`] limits.
//!
//! `sys/class/powercap/intel-rapl:N` is a package (or psys, the whole platform), `intel-rapl:N:M` a part of it: core and
//! uncore lie inside the package's counter, dram outside. `intel-rapl-mmio` shows the same packages again, by another
//! way. `dtpm` and `idle-injection` share the directory and are none. AMD servers use the same tree, without limits.

use crate::{Roots, file};
use headroom_units::{Seconds, Watts};
use std::fs;
use std::path::{Path, PathBuf};

/// More zones than any machine has.
const MAX_ZONES: usize = 1024;
/// More constraints than any zone has.
const MAX_CONSTRAINTS: usize = 16;
/// No zone draws more: twice the largest single package sold. It bounds zones that name no maximum of their own.
pub(crate) const MAX_WATTS: f64 = 2_000.0;
/// `max_power_uw` is the thermal design power (or what the firmware states as maximum), which turbo exceeds for a time:
/// about twice in desktop parts. A zone's mean power beyond so many times it is nonsense.
const TURBO_EXCESS: f64 = 3.0;

/// What a zone counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ZoneKind {
    /// A package (or a die of one), with its cores and uncore, without its memory.
    Package,
    /// Memory, beside the package.
    Dram,
    /// The whole platform; contains all others. What it includes is the board's choice.
    Psys,
    /// Inside a package: core, uncore.
    Part,
}

/// A zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Zone {
    /// Unique: `package-0`, `package-0-die-1`, `dram-0`, `psys`.
    pub(crate) name: String,
    pub(crate) kind: ZoneKind,
    pub(crate) dir: PathBuf,
    /// The same package by the memory-mapped interface, whose limits hold beside those of the registers.
    pub(crate) duplicates: Vec<PathBuf>,
}

/// One limit of a zone. The number in the file names says nothing: a limit is what its `name` says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Constraint {
    pub(crate) name: String,
    pub(crate) limit: PathBuf,
    /// As found; nothing where it cannot be read (ENODATA).
    pub(crate) watts: Option<Watts>,
    /// Nothing where the driver knows none (ENODATA, or 0).
    pub(crate) max: Option<Watts>,
    /// Nothing where the driver knows none.
    pub(crate) min: Option<Watts>,
    pub(crate) window: Option<Seconds>,
}

/// Where the zones are.
pub(crate) fn dir(roots: &Roots) -> PathBuf {
    roots.sys("class/powercap")
}

/// The zones, packages first, each name once.
pub(crate) fn zones(roots: &Roots) -> Vec<Zone> {
    let dir = dir(roots);
    let Ok(entries) = fs::read_dir(&dir) else {
        return Vec::new();
    };
    let mut ids: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|id| driver(id).is_some())
        .take(MAX_ZONES)
        .collect();
    // The registers' zones before those of any other way to the same packages; 2 before 10.
    ids.sort_by_cached_key(|id| (driver(id) != Some("intel-rapl"), numbers(id), id.clone()));
    let kind_name = |id: &str| {
        file::read(&dir.join(id).join("name"))
            .ok()
            .filter(|name| !name.is_empty())
    };
    let mut found: Vec<(Zone, bool)> = Vec::new();
    for id in &ids {
        let Some(text) = kind_name(id) else { continue };
        let above = (numbers(id).len() > 1).then(|| id.rsplit_once(':').map_or("", |(above, _)| above));
        let kind = match (&text[..], above) {
            (_, None) if text.starts_with("package") => ZoneKind::Package,
            (_, None) if text.starts_with("psys") => ZoneKind::Psys,
            ("dram", _) => ZoneKind::Dram,
            _ => ZoneKind::Part,
        };
        let name = match above {
            None => text,
            Some(above) => {
                let package = kind_name(above).unwrap_or_else(|| above.to_string());
                format!("{text}-{}", package.strip_prefix("package-").unwrap_or(&package))
            }
        };
        let first_way = driver(id) == Some("intel-rapl");
        let same = found.iter_mut().find(|(zone, _)| zone.name == name);
        let name = match same {
            Some((zone, true)) if !first_way => {
                zone.duplicates.push(dir.join(id));
                continue;
            }
            // Two zones of one driver by one name (a platform counter a package): they are distinguished by their place.
            Some(_) => format!("{name}-{id}"),
            None => name,
        };
        let zone = Zone {
            name,
            kind,
            dir: dir.join(id),
            duplicates: Vec::new(),
        };
        found.push((zone, first_way));
    }
    let mut zones: Vec<Zone> = found.into_iter().map(|(zone, _)| zone).collect();
    let rank = |kind| match kind {
        ZoneKind::Package => 0,
        ZoneKind::Dram => 1,
        ZoneKind::Psys => 2,
        ZoneKind::Part => 3,
    };
    zones.sort_by_key(|zone| rank(zone.kind));
    zones
}

/// `intel-rapl`, `intel-rapl-mmio` of a zone's directory; nothing for what is no RAPL zone.
fn driver(id: &str) -> Option<&str> {
    id.split_once(':')
        .map(|(driver, _)| driver)
        .filter(|driver| *driver == "intel-rapl" || driver.starts_with("intel-rapl-"))
}

/// The numbers after the driver's name.
fn numbers(id: &str) -> Vec<u32> {
    id.split(':')
        .skip(1)
        .filter_map(|number| number.parse().ok())
        .collect()
}

/// The limits of a zone; empty where it has none (AMD).
pub(crate) fn constraints(zone: &Path) -> Vec<Constraint> {
    (0..MAX_CONSTRAINTS)
        .map_while(|number| {
            let file = |attribute: &str| zone.join(format!("constraint_{number}_{attribute}"));
            let name = file::read(&file("name")).ok()?;
            let number = |attribute: &str| file::read_u64(&file(attribute)).ok();
            let watts = |attribute: &str| number(attribute).map(watts);
            let positive = |watts: &Watts| watts.get() > 0.0;
            Some(Constraint {
                name,
                limit: file("power_limit_uw"),
                watts: watts("power_limit_uw"),
                max: watts("max_power_uw").filter(positive),
                min: watts("min_power_uw").filter(positive),
                window: number("time_window_us").map(|us| Seconds::new(us as f64 / 1e6)),
            })
        })
        .collect()
}

/// The most that a zone can draw on average: from the maximum that its limits state, else the bound for all zones.
pub(crate) fn most_watts(zone: &Path) -> Watts {
    let stated = constraints(zone)
        .iter()
        .filter_map(|constraint| constraint.max)
        .fold(Watts::ZERO, Watts::max);
    match stated > Watts::ZERO {
        true => (stated * TURBO_EXCESS).min(Watts::new(MAX_WATTS)),
        false => Watts::new(MAX_WATTS),
    }
}

/// The powercap tree counts in microwatts.
pub(crate) fn watts(microwatts: u64) -> Watts {
    Watts::new(microwatts as f64 / 1e6)
}

/// Why no zone counts, and what to do.
pub(crate) fn why_none(roots: &Roots, zones: &[Zone]) -> (&'static str, &'static str) {
    match (dir(roots).is_dir(), zones.is_empty()) {
        (false, _) => (
            "the kernel has no powercap directory: the driver is missing, or the processor has no RAPL",
            "use a kernel with CONFIG_POWERCAP and CONFIG_INTEL_RAPL, then modprobe intel_rapl_msr",
        ),
        (true, true) => (
            "the powercap directory has no RAPL zone: the driver is not loaded, or the container masks it",
            "modprobe intel_rapl_msr; in a container, unmask /sys/devices/virtual/powercap",
        ),
        (true, false) => (
            "none of the powercap zones is a package, dram or psys",
            "take another meter",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(sys: &Path, id: &str, files: &[(&str, &str)]) {
        let dir = sys.join("class/powercap").join(id);
        fs::create_dir_all(&dir).unwrap();
        for (name, text) in files {
            fs::write(dir.join(name), format!("{text}\n")).unwrap();
        }
    }

    #[test]
    fn each_package_once_whatever_the_number_of_ways_to_it() {
        let dir = tempfile::tempdir().unwrap();
        for (id, name) in [
            ("intel-rapl", ""),
            ("intel-rapl:0", "package-0-die-0"),
            ("intel-rapl:0:0", "core"),
            ("intel-rapl:0:1", "dram"),
            ("intel-rapl:10", "package-1-die-0"),
            ("intel-rapl:2", "psys"),
            ("intel-rapl:3", "psys"),
            ("intel-rapl-mmio:0", "package-0-die-0"),
            ("intel-rapl-mmio:0:0", "dram"),
            ("dtpm:0", "package-9"),
            ("idle-injection", ""),
        ] {
            put(dir.path(), id, &[("name", name)]);
        }
        let zones = zones(&Roots::at(dir.path(), "/proc"));
        let names: Vec<&str> = zones.iter().map(|zone| zone.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "package-0-die-0",
                "package-1-die-0",
                "dram-0-die-0",
                "psys",
                "psys-intel-rapl:3",
                "core-0-die-0"
            ]
        );
        assert!(zones[0].duplicates[0].ends_with("intel-rapl-mmio:0"));
        assert_eq!(zones[2].duplicates.len(), 1);
    }

    #[test]
    fn a_machine_with_the_memory_mapped_interface_alone_is_seen_by_it() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "intel-rapl-mmio:0", &[("name", "package-0")]);
        let zones = zones(&Roots::at(dir.path(), "/proc"));
        assert_eq!(zones.len(), 1);
        assert_eq!(zones[0].kind, ZoneKind::Package);
    }

    #[test]
    fn limits_are_read_by_name_and_a_maximum_of_zero_is_none() {
        let dir = tempfile::tempdir().unwrap();
        put(
            dir.path(),
            "intel-rapl:0",
            &[
                ("name", "package-0"),
                ("constraint_0_name", "short_term"),
                ("constraint_0_power_limit_uw", "60000000"),
                ("constraint_0_max_power_uw", "0"),
                ("constraint_1_name", "long_term"),
                ("constraint_1_power_limit_uw", "50000000"),
                ("constraint_1_max_power_uw", "95000000"),
                ("constraint_1_time_window_us", "999424"),
            ],
        );
        let zone = dir.path().join("class/powercap/intel-rapl:0");
        let limits = constraints(&zone);
        assert_eq!((limits[0].name.as_str(), limits[0].max), ("short_term", None));
        assert_eq!(limits[1].watts, Some(Watts::new(50.0)));
        assert_eq!(limits[1].window, Some(Seconds::new(0.999_424)));
        assert_eq!(most_watts(&zone), Watts::new(285.0));
        assert_eq!(most_watts(dir.path()), Watts::new(MAX_WATTS));
    }
}
