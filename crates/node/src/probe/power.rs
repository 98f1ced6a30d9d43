//! Power: what is counted, what can be capped.

use super::{Finding, Kind, Machine, State, finding, in_words, remedy_for};
use crate::file;
use crate::power::RaplTotal;
use crate::power::rapl::counted;
use crate::powercap::{self, Zone, ZoneKind};
use std::fs;
use std::path::PathBuf;

const USE_SOFTWARE_CAP: &str = "use the software power cap";

pub(super) fn findings(machine: &Machine<'_>) -> Vec<Finding> {
    let zones = powercap::zones(machine.roots);
    vec![
        rapl_limits(machine, &zones),
        hsmp(machine),
        rapl_energy(machine, &zones),
        hwmon(machine),
        modelled(machine),
    ]
}

/// Why there are no zones, and what to do.
fn no_zones(machine: &Machine<'_>) -> (&'static str, &'static str) {
    let dir = machine.roots.sys("class/powercap");
    match (dir.is_dir(), machine.virtual_machine) {
        (_, true) => (
            "a virtual machine has no energy counters: they belong to its host",
            "run on the host, or use the modelled meter (its watts are estimates)",
        ),
        (true, false) => (
            "the powercap directory has no RAPL zone: the driver is not loaded, or the container masks it",
            "modprobe intel_rapl_msr; in a container, unmask /sys/devices/virtual/powercap",
        ),
        (false, false) => (
            "the kernel has no powercap directory: the driver is missing, or the processor has no RAPL",
            "use a kernel with CONFIG_POWERCAP and CONFIG_INTEL_RAPL, then modprobe intel_rapl_msr",
        ),
    }
}

fn rapl_energy(machine: &Machine<'_>, zones: &[Zone]) -> Finding {
    const WHAT: &str = "RAPL energy";
    let dir = machine.roots.sys("class/powercap");
    let counted = counted(zones, RaplTotal::Packages);
    let total: Vec<&Zone> = zones
        .iter()
        .zip(counted)
        .filter_map(|(zone, yes)| yes.then_some(zone))
        .collect();
    if total.is_empty() {
        let (why, remedy) = no_zones(machine);
        return finding(WHAT, Kind::Meter, State::Unusable, dir, why).remedy(remedy);
    }
    for zone in &total {
        let energy = zone.dir.join("energy_uj");
        if let Err(errno) = machine.permissions.read(&energy) {
            let why = format!(
                "zone {} is there, but its counter cannot be read: {}",
                zone.name,
                in_words(errno)
            );
            let remedy = match errno {
                rustix::io::Errno::ACCESS | rustix::io::Errno::PERM => format!(
                    "run as root, or: chgrp headroom {0} && chmod g+r {0} (since CVE-2020-8694 only root may read it)",
                    energy.display()
                ),
                other => remedy_for(other).into(),
            };
            return finding(WHAT, Kind::Meter, State::Unusable, energy, why).remedy(remedy);
        }
        if let Err(error) = file::read_u64(&energy) {
            let why = format!(
                "zone {} is there, but its counter cannot be read: {}",
                zone.name, error.cause
            );
            return finding(WHAT, Kind::Meter, State::Unusable, energy, why)
                .remedy("see the kernel's log (dmesg)");
        }
    }
    let names: Vec<&str> = total.iter().map(|zone| zone.name.as_str()).collect();
    finding(
        WHAT,
        Kind::Meter,
        State::Usable,
        dir,
        format!("measured: {}", names.join(", ")),
    )
}

fn rapl_limits(machine: &Machine<'_>, zones: &[Zone]) -> Finding {
    const WHAT: &str = "RAPL power limits";
    let find = |state, evidence: PathBuf, why: String| finding(WHAT, Kind::Lever, state, evidence, why);
    let packages: Vec<_> = zones
        .iter()
        .filter(|zone| zone.kind == ZoneKind::Package)
        .collect();
    let Some(first) = packages.first() else {
        let (why, _) = no_zones(machine);
        return find(State::Unusable, machine.roots.sys("class/powercap"), why.into())
            .remedy(USE_SOFTWARE_CAP);
    };
    let limit = first.dir.join("constraint_0_power_limit_uw");
    if !limit.exists() {
        let why = "the zones only count energy and have no limits, as on AMD processors".to_string();
        return find(State::Unusable, first.dir.clone(), why).remedy(USE_SOFTWARE_CAP);
    }
    if let Err(errno) = machine.permissions.write(&limit) {
        let why = format!("the limits cannot be set: {}", in_words(errno));
        return find(State::Unusable, limit, why).remedy(remedy_for(errno));
    }
    if let Some(package) = packages
        .iter()
        .find(|zone| file::read(&zone.dir.join("enabled")).is_ok_and(|v| v == "0"))
    {
        let why = format!(
            "the limit of {} is switched off, so a value written to it does nothing: by the BIOS (locked), or by hand",
            package.name
        );
        let enabled = package.dir.join("enabled");
        let remedy = format!(
            "echo 1 > {}; if that fails, unlock power limits in the BIOS",
            enabled.display()
        );
        return find(State::Unusable, enabled, why).remedy(remedy);
    }
    let why = format!(
        "{} package(s); they could be set, but this version does not set them",
        packages.len()
    );
    find(State::Limited, limit, why).remedy(USE_SOFTWARE_CAP)
}

fn hsmp(machine: &Machine<'_>) -> Finding {
    const WHAT: &str = "HSMP power limits (AMD)";
    let device = PathBuf::from("/dev/hsmp");
    let cpuinfo = file::read(&machine.roots.proc_("cpuinfo")).unwrap_or_default();
    if !cpuinfo.contains("AuthenticAMD") {
        let why = "the processor is not AMD's";
        return finding(
            WHAT,
            Kind::Lever,
            State::Unusable,
            machine.roots.proc_("cpuinfo"),
            why,
        );
    }
    match machine.permissions.write(&device) {
        Ok(()) => {
            let why = "it could be set, but this version does not set it";
            finding(WHAT, Kind::Lever, State::Limited, device, why).remedy(USE_SOFTWARE_CAP)
        }
        Err(rustix::io::Errno::NOENT) if machine.virtual_machine => finding(
            WHAT,
            Kind::Lever,
            State::Unusable,
            device,
            "it belongs to the host of this virtual machine",
        )
        .remedy(USE_SOFTWARE_CAP),
        Err(rustix::io::Errno::NOENT) => finding(
            WHAT,
            Kind::Lever,
            State::Unusable,
            device,
            "the driver is not loaded (server processors only)",
        )
        .remedy("enable HSMP in the BIOS, then modprobe amd_hsmp"),
        Err(errno) => {
            finding(WHAT, Kind::Lever, State::Unusable, device, in_words(errno)).remedy(remedy_for(errno))
        }
    }
}

fn hwmon(machine: &Machine<'_>) -> Finding {
    const WHAT: &str = "hwmon power sensors";
    let dir = machine.roots.sys("class/hwmon");
    let mut sensors = Vec::new();
    for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
        let is_power = |name: &str| {
            name.starts_with("power") && (name.ends_with("_input") || name.ends_with("_average"))
        };
        let files = fs::read_dir(entry.path()).into_iter().flatten().flatten();
        let count = files
            .filter(|file| file.file_name().to_str().is_some_and(is_power))
            .count();
        if count > 0 {
            let name = file::read(&entry.path().join("name")).unwrap_or_else(|_| "unnamed".into());
            sensors.push(format!("{name} ({count})"));
        }
    }
    sensors.sort();
    if sensors.is_empty() {
        let why = match machine.virtual_machine {
            true => "a virtual machine has no power sensors",
            false => "no sensor of this machine reports power",
        };
        return finding(WHAT, Kind::Meter, State::Unusable, dir, why);
    }
    let why = format!(
        "{}; they could be read, but this version does not read them",
        sensors.join(", ")
    );
    finding(WHAT, Kind::Meter, State::Limited, dir, why)
}

fn modelled(machine: &Machine<'_>) -> Finding {
    let evidence = machine.roots.sys("devices/system/cpu/online");
    let frequency = match crate::frequency::FrequencyReader::open(machine.roots) {
        Some(_) => "",
        None => "; no frequency can be read, so the highest is assumed",
    };
    let why = format!(
        "estimated from allocated and busy cores{frequency}; the default figures are another machine's, scaled by cores"
    );
    match crate::cpu::online(machine.roots) {
        Ok(_) => finding("modelled power", Kind::Meter, State::Usable, evidence, why)
            .remedy("measure idle and full power at the plug and give them in the configuration"),
        Err(error) => finding(
            "modelled power",
            Kind::Meter,
            State::Unusable,
            evidence,
            error.to_string(),
        ),
    }
}
