//! Power: what is counted, what can be capped.

use super::{Finding, Kind, Machine, State, finding, in_words, remedy_for};
use crate::file::{self, FileError};
use crate::hsmp::{self, Message, Port};
use crate::limit::{HardwareCap, HsmpLimits, LeverKind, PowerLimitError, RaplLimits};
use crate::power::hwmon::{self, Scope};
use crate::power::rapl::counted;
use crate::power::{
    HsmpMeter, HwmonMeter, Meter, MeterError, MeterKind, PerfMeter, RaplMeter, RaplTotal, perf, sensor,
};
use crate::powercap::{self, Zone, ZoneKind};
use crate::restore::Registry;
use headroom_units::Watts;
use rustix::io::Errno;
use std::path::PathBuf;

const USE_SOFTWARE_CAP: &str = "use the software power cap";
/// What helps where the sensors belong to the host.
const USE_HOST_OR_MODEL: &str = "run on the host, or use the modelled meter (its watts are estimates)";
const RAPL_LIMITS: &str = LeverKind::Rapl.finding();
const HSMP_LIMITS: &str = LeverKind::Hsmp.finding();
/// CAP_PERFMON and CAP_SYS_ADMIN (include/uapi/linux/capability.h).
const MAY_COUNT: [u32; 2] = [38, 21];

pub(super) fn findings(machine: &Machine<'_>) -> Vec<Finding> {
    let zones = powercap::zones(machine.roots);
    let roots = machine.roots;
    let rapl = |total| {
        tried(machine, rapl_energy(machine, &zones, total), || {
            RaplMeter::open_total(roots, total).map(|meter| Box::new(meter) as _)
        })
    };
    vec![
        rapl_limits(machine, &zones),
        hsmp_limits(machine),
        rapl(RaplTotal::Packages),
        rapl(RaplTotal::Platform),
        tried(machine, perf_energy(machine), || {
            PerfMeter::open(roots).map(|meter| Box::new(meter) as _)
        }),
        tried(machine, hsmp_power(machine), || {
            HsmpMeter::open(roots).map(|meter| Box::new(meter) as _)
        }),
        tried(machine, hwmon_sensors(machine), || {
            HwmonMeter::open(roots).map(|meter| Box::new(meter) as _)
        }),
        modelled(machine),
    ]
}

/// A meter that can be read is usable where it also moves while a processor works.
fn tried(
    machine: &Machine<'_>,
    found: Finding,
    open: impl FnOnce() -> Result<Box<dyn Meter>, MeterError>,
) -> Finding {
    if found.state != State::Usable {
        return found;
    }
    match open().and_then(|mut meter| machine.permissions.moves(&mut *meter)) {
        Ok(()) => found,
        Err(error) => Finding {
            state: State::Unusable,
            why: error.to_string(),
            ..found
        }
        .remedy(
            "take another meter: \"auto\" does, \"model\" is estimated; the kernel's log (dmesg) may say why",
        ),
    }
}

/// What the kernel answered, in words.
fn said(error: &FileError) -> String {
    match error.cause.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::INVAL) => "the driver could not ask the hardware (it answers EINVAL)".into(),
        Some(Errno::NODATA) => "the driver has no value for it (it answers ENODATA)".into(),
        Some(errno) => format!("{} ({})", in_words(errno), error.cause),
        None => error.cause.to_string(),
    }
}

/// Why there are no zones, and what to do.
fn no_zones(machine: &Machine<'_>) -> (&'static str, &'static str) {
    let dir = machine.roots.sys("class/powercap");
    match (dir.is_dir(), machine.virtual_machine) {
        (_, true) => (
            "a virtual machine has no energy counters: they belong to its host",
            USE_HOST_OR_MODEL,
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

fn rapl_energy(machine: &Machine<'_>, zones: &[Zone], total: RaplTotal) -> Finding {
    let what = match total {
        RaplTotal::Packages => MeterKind::Rapl.finding(),
        RaplTotal::Platform => MeterKind::Psys.finding(),
    };
    let dir = powercap::dir(machine.roots);
    let counted = counted(zones, total);
    let of_total = zones
        .iter()
        .zip(counted)
        .filter_map(|(zone, yes)| yes.then_some(zone));
    let of_total: Vec<&Zone> = of_total.collect();
    if of_total.is_empty() {
        let (why, remedy) = match (total, zones.is_empty()) {
            (RaplTotal::Platform, false) => (
                "the processor counts no platform (psys), as most servers do not",
                "use the packages' counters: RAPL energy",
            ),
            _ => no_zones(machine),
        };
        return finding(what, Kind::Meter, State::Unusable, dir, why).remedy(remedy);
    }
    for zone in &of_total {
        let energy = zone.dir.join("energy_uj");
        let cannot = |why: String| {
            let why = format!(
                "zone {} is there, but its counter cannot be read: {why}",
                zone.name
            );
            finding(what, Kind::Meter, State::Unusable, energy.clone(), why)
        };
        let read = file::read_u64(&energy);
        let refused = match (machine.permissions.read(&energy), &read) {
            (Err(errno), _) => Some(errno),
            (Ok(()), Err(error)) => error.cause.raw_os_error().map(Errno::from_raw_os_error),
            (Ok(()), Ok(_)) => None,
        };
        match (refused, read) {
            (Some(Errno::ACCESS | Errno::PERM), _) => {
                return cannot("this user may not".into()).remedy(format!(
                    "run as root, or: chgrp headroom {0} && chmod g+r {0} (since CVE-2020-8694 only root may read it)",
                    energy.display()
                ));
            }
            (_, Err(error)) => return cannot(said(&error)).remedy(error.remedy()),
            (Some(errno), Ok(_)) => return cannot(in_words(errno).into()).remedy(remedy_for(errno)),
            (None, Ok(_)) => {}
        }
    }
    let names: Vec<&str> = of_total.iter().map(|zone| zone.name.as_str()).collect();
    let why = match total {
        RaplTotal::Packages => format!("{}: {}", machine.roots.source(), names.join(", ")),
        RaplTotal::Platform => format!(
            "{}: {}; what it contains is the board's choice, so it is taken only where it is asked for",
            machine.roots.source(),
            names.join(", ")
        ),
    };
    finding(what, Kind::Meter, State::Usable, dir, why)
}

fn rapl_limits(machine: &Machine<'_>, zones: &[Zone]) -> Finding {
    let find =
        |state, evidence: PathBuf, why: String| finding(RAPL_LIMITS, Kind::Lever, state, evidence, why);
    let packages: Vec<&Zone> = zones
        .iter()
        .filter(|zone| zone.kind == ZoneKind::Package)
        .collect();
    let Some(first) = packages.first() else {
        let (why, _) = no_zones(machine);
        return find(State::Unusable, powercap::dir(machine.roots), why.into()).remedy(USE_SOFTWARE_CAP);
    };
    let limits = powercap::constraints(&first.dir);
    let Some(limit) = limits.iter().find(|limit| limit.name == "long_term") else {
        let why = "the zones only count energy and have no limits, as on AMD processors".to_string();
        return find(State::Unusable, first.dir.clone(), why)
            .remedy("on AMD servers use HSMP; else use the software power cap");
    };
    if let Err(errno) = machine.permissions.write(&limit.limit) {
        let why = format!("the limits cannot be set: {}", in_words(errno));
        return find(State::Unusable, limit.limit.clone(), why).remedy(remedy_for(errno));
    }
    let off = packages
        .iter()
        .find(|zone| file::read(&zone.dir.join("enabled")).is_ok_and(|v| v == "0"));
    if let Some(package) = off {
        let why = format!(
            "the limit of {} is switched off, so a value written to it does nothing: by the firmware, which then locks it \
             (a write answers ENODATA, switching it on ENOSYS), or by hand",
            package.name
        );
        let enabled = package.dir.join("enabled");
        let remedy = format!(
            "echo 1 > {}; if that fails, unlock power limits in the BIOS",
            enabled.display()
        );
        return find(State::Unusable, enabled, why).remedy(remedy);
    }
    let limits = match RaplLimits::open(machine.roots, &Registry::new()) {
        Ok(limits) => limits,
        Err(error) => {
            return find(State::Unusable, limit.limit.clone(), why_no_limit(&error)).remedy(USE_SOFTWARE_CAP);
        }
    };
    let bounds = limits.bounds();
    let mut why = format!(
        "{} package(s), held together between {:.0} and {:.0}",
        packages.len(),
        bounds.smallest,
        bounds.largest
    );
    if limit.max.is_none() {
        why.push_str("; the processor names no maximum, so the limit that was found is taken as it");
    }
    let stricter = limits.stricter_elsewhere();
    match stricter.first() {
        None => find(State::Usable, limit.limit.clone(), why),
        Some(other) => {
            let why = format!(
                "{why}; but {} holds {:.0} whatever is set here",
                other.zone, other.limit
            );
            find(State::Limited, limit.limit.clone(), why)
                .remedy("raise that limit, or stop the service that sets it (thermald)")
        }
    }
}

/// Why a limit cannot be set, without its own remedy.
fn why_no_limit(error: &PowerLimitError) -> String {
    match error {
        PowerLimitError::File(error) => format!("{} cannot be used: {}", error.path.display(), said(error)),
        PowerLimitError::Hsmp(error) => format!("socket {} does not answer: {}", error.socket, error.cause),
        other => other.to_string(),
    }
}

/// Why there is no HSMP, and what to do.
fn no_hsmp(machine: &Machine<'_>, kind: Kind) -> (PathBuf, &'static str, Option<&'static str>) {
    let cpuinfo = machine.roots.proc_("cpuinfo");
    let amd = file::read(&cpuinfo).unwrap_or_default().contains("AuthenticAMD");
    let device = PathBuf::from(hsmp::DEVICE);
    match (amd, machine.virtual_machine) {
        (false, _) => (cpuinfo, "the processor is not AMD's", None),
        (true, true) => (
            device,
            "it belongs to the host of this virtual machine",
            Some(match kind {
                Kind::Lever => USE_SOFTWARE_CAP,
                Kind::Meter | Kind::Tool => USE_HOST_OR_MODEL,
            }),
        ),
        (true, false) => (
            device,
            "the driver is not loaded (server processors only)",
            Some("enable HSMP in the BIOS, then modprobe amd_hsmp"),
        ),
    }
}

fn absent_hsmp(machine: &Machine<'_>, what: &str, kind: Kind) -> Finding {
    let (evidence, why, remedy) = no_hsmp(machine, kind);
    let found = finding(what, kind, State::Unusable, evidence, why);
    match remedy {
        Some(remedy) => found.remedy(remedy),
        None => found,
    }
}

fn hsmp_limits(machine: &Machine<'_>) -> Finding {
    let find =
        |state, evidence: PathBuf, why: String| finding(HSMP_LIMITS, Kind::Lever, state, evidence, why);
    let sockets = hsmp::hwmon_sockets(machine.roots);
    let evidence = match sockets.first() {
        Some(socket) => socket.cap(),
        None if machine.roots.is_this_kernel() && machine.permissions.read(hsmp::DEVICE.as_ref()).is_ok() => {
            hsmp::DEVICE.into()
        }
        None => return absent_hsmp(machine, HSMP_LIMITS, Kind::Lever),
    };
    if let Err(errno) = machine.permissions.write(&evidence) {
        let why = format!("the limits cannot be set: {}", in_words(errno));
        return find(State::Unusable, evidence, why).remedy(remedy_for(errno));
    }
    match HsmpLimits::open(machine.roots, &Registry::new()) {
        Ok(limits) => {
            let bounds = limits.bounds();
            let why = format!(
                "all sockets held together between {:.0} and {:.0}; the stricter of this and of what the service \
                 processor sets (APML) holds",
                bounds.smallest, bounds.largest
            );
            find(State::Usable, evidence, why)
        }
        Err(error) => {
            let remedy = match &error {
                PowerLimitError::File(error) => hsmp::remedy(&error.cause),
                PowerLimitError::Hsmp(error) => hsmp::remedy(&error.cause),
                _ => USE_SOFTWARE_CAP,
            };
            find(State::Unusable, evidence, why_no_limit(&error)).remedy(remedy)
        }
    }
}

fn hsmp_power(machine: &Machine<'_>) -> Finding {
    let what = MeterKind::Hsmp.finding();
    let find = |state, evidence: PathBuf, why: String| finding(what, Kind::Meter, state, evidence, why);
    let sockets = hsmp::hwmon_sockets(machine.roots);
    let (evidence, power): (PathBuf, Result<u64, std::io::Error>) = match sockets.first() {
        Some(socket) => (
            socket.power(),
            file::read_u64(&socket.power()).map_err(|error| error.cause),
        ),
        None => match hsmp::device(machine.roots) {
            Some(path) => {
                let milliwatts = Port::open(&path, false)
                    .map_err(|error| error.cause)
                    .and_then(|mut port| port.ask(0, Message::SocketPower).map_err(|error| error.cause));
                (path, milliwatts.map(|milliwatts| u64::from(milliwatts) * 1_000))
            }
            None => return absent_hsmp(machine, what, Kind::Meter),
        },
    };
    let power = match power {
        Ok(power) => power,
        Err(cause) => {
            let why = format!("it is there and does not answer: {cause}");
            return find(State::Unusable, evidence, why).remedy(hsmp::remedy(&cause));
        }
    };
    match sensor::believe(power, Watts::new(powercap::MAX_WATTS)) {
        Ok(watts) => {
            let why = format!(
                "{}: an average that the processor keeps, {watts:.0} of the first socket now",
                machine.roots.source()
            );
            find(State::Usable, evidence, why)
        }
        Err(nonsense) => find(
            State::Unusable,
            evidence,
            format!("it reads {power} microwatts: {nonsense}"),
        )
        .remedy("update the BIOS; take another meter meanwhile"),
    }
}

fn perf_energy(machine: &Machine<'_>) -> Finding {
    let what = MeterKind::Perf.finding();
    let dir = perf::dir(machine.roots);
    let find = |state, why: String| finding(what, Kind::Meter, state, dir.clone(), why);
    if !dir.is_dir() {
        return match machine.virtual_machine {
            true => find(
                State::Unusable,
                "a virtual machine has no energy events: they belong to its host".into(),
            )
            .remedy(USE_HOST_OR_MODEL),
            false => find(
                State::Unusable,
                "the kernel has no energy events (perf's power unit)".into(),
            )
            .remedy("modprobe rapl (the processor must have RAPL)"),
        };
    }
    let (events, cpus) = match perf::events(machine.roots) {
        Ok(found) => found,
        Err(error) => return find(State::Unusable, error.to_string()).remedy("use RAPL energy by powercap"),
    };
    if !machine.roots.is_this_kernel() {
        let why =
            "they are described here, but this tree is not the running kernel's, which alone counts them";
        return find(State::Unusable, why.into()).remedy("run on that machine");
    }
    let names: Vec<&str> = events.iter().map(|event| event.name).collect();
    let names = format!("{} on CPUs {cpus}", names.join(", "));
    let level = machine.own.proc_("sys/kernel/perf_event_paranoid");
    let level = file::read(&level)
        .ok()
        .and_then(|text| text.parse::<i64>().ok())
        .unwrap_or(2);
    match level <= 0
        || MAY_COUNT
            .iter()
            .any(|capability| machine.has_capability(*capability))
    {
        true => find(State::Usable, format!("measured: {names}")),
        false => find(
            State::Unusable,
            format!("{names} may not be counted by this user"),
        )
        .remedy("run as root or with CAP_PERFMON, or: sysctl kernel.perf_event_paranoid=0"),
    }
}

fn hwmon_sensors(machine: &Machine<'_>) -> Finding {
    let what = MeterKind::Hwmon.finding();
    let dir = machine.roots.sys("class/hwmon");
    let find = |state, why: String| finding(what, Kind::Meter, state, dir.clone(), why);
    let sensors = hwmon::sensors(machine.roots);
    let names = |total: bool, scope: Scope| -> String {
        let chosen = sensors.iter().filter(|sensor| (sensor.scope == scope) == total);
        chosen
            .map(|sensor| sensor.name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let Some(scope) = hwmon::total_scope(&sensors) else {
        let why = match (machine.virtual_machine, sensors.is_empty()) {
            (_, false) => format!(
                "{} are there, but none is of the whole machine or of its processors",
                names(true, Scope::Other)
            ),
            (true, true) => "a virtual machine has no power sensors".into(),
            (false, true) => "no sensor of this machine reports power".into(),
        };
        return find(State::Unusable, why).remedy(match machine.virtual_machine && sensors.is_empty() {
            true => USE_HOST_OR_MODEL,
            false => {
                "load the driver of the ACPI power meter (acpi_power_meter) or of the processor (amd_energy)"
            }
        });
    };
    for sensor in sensors.iter().filter(|sensor| sensor.scope == scope) {
        let most = Watts::new(hwmon::MAX_MACHINE_WATTS);
        let why = match file::read_u64(&sensor.path) {
            Err(error) => Some(said(&error)),
            Ok(raw) if !sensor.energy => sensor::believe(raw, most)
                .err()
                .map(|nonsense| format!("it reads {raw} microwatts: {nonsense}")),
            Ok(_) => None,
        };
        if let Some(why) = why {
            let why = format!("{} is there and cannot be used: {why}", sensor.name);
            return finding(what, Kind::Meter, State::Unusable, sensor.path.clone(), why)
                .remedy("update the firmware that feeds it; take another meter meanwhile");
        }
    }
    let of = match scope {
        Scope::Machine => "the whole machine",
        _ => "the processors",
    };
    let others = names(false, scope);
    let more = if others.is_empty() {
        String::new()
    } else {
        format!("; listed besides: {others}")
    };
    find(
        State::Usable,
        format!(
            "{}, of {of}: {}{more}",
            machine.roots.source(),
            names(true, scope)
        ),
    )
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
