//! Power: what is counted, what can be capped.

use super::{Finding, Kind, Machine, State, finding, in_words, remedy_for};
use crate::file::{self, FileError};
use crate::hsmp;
use crate::limit::{HardwareCap, HsmpLimits, LeverKind, PowerLimitError, RaplLimits};
use crate::order::Word;
use crate::power::{MeterError, MeterKind};
use crate::powercap::{self, ZoneKind};
use crate::restore::Registry;
use rustix::io::Errno;
use std::path::PathBuf;

const USE_SOFTWARE_CAP: &str = "use the software power cap";
/// What helps where the sensors belong to the host.
const USE_HOST_OR_MODEL: &str = "run on the host, or use the modelled meter (its watts are estimates)";
const TAKE_ANOTHER: &str =
    "take another meter: \"auto\" does, \"model\" is estimated; the kernel's log (dmesg) may say why";

pub(super) fn findings(machine: &Machine<'_>) -> Vec<Finding> {
    let mut all = vec![rapl_limits(machine), hsmp_limits(machine)];
    all.extend(MeterKind::ALL.iter().map(|kind| meter(machine, *kind)));
    all
}

/// A meter is usable where it opens and moves while a processor works.
fn meter(machine: &Machine<'_>, kind: MeterKind) -> Finding {
    let find = |state, evidence, why| finding(kind.finding(), Kind::Meter, state, evidence, why);
    let opened = kind.open(machine.roots).and_then(|meter| {
        let Some(mut meter) = meter else { return Ok(None) };
        machine.permissions.moves(&mut *meter)?;
        Ok(Some(meter))
    });
    match opened {
        Ok(Some(meter)) => {
            let why = format!("{}: {}", machine.roots.source(), meter.describe());
            find(State::Usable, kind.evidence(machine.roots), why)
        }
        Ok(None) => modelled(machine),
        Err(error) => {
            let (evidence, why, remedy) = why_no_meter(machine, &error);
            let evidence = evidence.unwrap_or_else(|| kind.evidence(machine.roots));
            find(State::Unusable, evidence, why).remedy(remedy)
        }
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

/// Where a meter fails, why, and what to do.
pub(super) fn why_no_meter(
    machine: &Machine<'_>,
    error: &MeterError,
) -> (Option<PathBuf>, String, &'static str) {
    match error {
        MeterError::File(error) => {
            let why = format!("it is there and cannot be read: {}", said(error));
            (Some(error.path.clone()), why, error.remedy())
        }
        MeterError::Hsmp(error) => {
            let why = format!("it is there and does not answer: {}", error.cause);
            (Some(error.path.clone()), why, hsmp::remedy(&error.cause))
        }
        MeterError::Nonsense { zone, path, reason } => {
            let reading = file::read(path).map_or(String::new(), |reading| format!(" reads {reading} and"));
            let why = format!("{zone}{reading} cannot be used: {reason}");
            let remedy = "update the firmware that feeds it; take another meter meanwhile";
            (Some(path.clone()), why, remedy)
        }
        MeterError::NoSensor { why, .. } if machine.virtual_machine => {
            (None, of_the_host(why), USE_HOST_OR_MODEL)
        }
        MeterError::NoSensor { why, remedy, .. } => (None, why.clone(), remedy),
        MeterError::Perf { remedy, .. } => (None, error.to_string(), remedy),
        other => (None, other.to_string(), TAKE_ANOTHER),
    }
}

fn of_the_host(why: &str) -> String {
    format!("{why}; what there is belongs to the host of this virtual machine")
}

/// A lever that opens; what it says of itself besides its bounds, and what to do where that limits it.
fn lever<C: HardwareCap>(
    machine: &Machine<'_>,
    kind: LeverKind,
    evidence: PathBuf,
    opened: Result<C, PowerLimitError>,
    describe: impl FnOnce(&C, String) -> (State, String, Option<String>),
) -> Finding {
    let find = |state, evidence, why: String| finding(kind.finding(), Kind::Lever, state, evidence, why);
    if let Err(errno) = machine.permissions.write(&evidence)
        && evidence.is_file()
    {
        let why = format!("the limits cannot be set: {}", in_words(errno));
        return find(State::Unusable, evidence, why).remedy(remedy_for(errno));
    }
    let limits = match opened {
        Ok(limits) => limits,
        Err(error) => {
            let (why, remedy) = match &error {
                PowerLimitError::File(error) => {
                    let why = format!("{} cannot be used: {}", error.path.display(), said(error));
                    (why, hsmp_remedy(kind, &error.cause))
                }
                PowerLimitError::Hsmp(error) => {
                    let why = format!("socket {} does not answer: {}", error.socket, error.cause);
                    (why, hsmp_remedy(kind, &error.cause))
                }
                PowerLimitError::NoLimits { why } if machine.virtual_machine => {
                    (of_the_host(why), USE_SOFTWARE_CAP)
                }
                PowerLimitError::NoLimits { why } => (why.clone(), USE_SOFTWARE_CAP),
                other => (other.to_string(), USE_SOFTWARE_CAP),
            };
            return find(State::Unusable, evidence, why).remedy(remedy);
        }
    };
    let bounds = limits.bounds();
    let held = format!(
        "held together between {:.0} and {:.0}",
        bounds.smallest, bounds.largest
    );
    let (state, why, remedy) = describe(&limits, held);
    Finding {
        remedy,
        ..find(state, evidence, why)
    }
}

fn hsmp_remedy(kind: LeverKind, cause: &std::io::Error) -> &'static str {
    match kind {
        LeverKind::Hsmp => hsmp::remedy(cause),
        _ => USE_SOFTWARE_CAP,
    }
}

fn rapl_limits(machine: &Machine<'_>) -> Finding {
    let zones = powercap::zones(machine.roots);
    let packages = || zones.iter().filter(|zone| zone.kind == ZoneKind::Package);
    let limit = packages().next().and_then(|package| {
        let limits = powercap::constraints(&package.dir);
        limits.into_iter().find(|limit| limit.name == "long_term")
    });
    let evidence = limit.as_ref().map(|limit| limit.limit.clone());
    let evidence = evidence.unwrap_or_else(|| powercap::dir(machine.roots));
    let opened = RaplLimits::open(machine.roots, &Registry::new());
    lever(machine, LeverKind::Rapl, evidence, opened, |limits, held| {
        let off = |zone: &&powercap::Zone| file::read(&zone.dir.join("enabled")).is_ok_and(|v| v == "0");
        if let Some(package) = packages().find(off) {
            let why = format!(
                "the limit of {} is switched off, so a value written to it does nothing: by the firmware, which then \
                 locks it (a write answers ENODATA, switching it on ENOSYS), or by hand",
                package.name
            );
            let remedy = format!(
                "echo 1 > {}; if that fails, unlock power limits in the BIOS",
                package.dir.join("enabled").display()
            );
            return (State::Unusable, why, Some(remedy));
        }
        let mut why = format!("{} package(s), {held}", packages().count());
        if limit.is_some_and(|limit| limit.max.is_none()) {
            why.push_str("; the processor names no maximum, so the limit that was found is taken as it");
        }
        match limits.stricter_elsewhere().first() {
            None => (State::Usable, why, None),
            Some(other) => {
                let why = format!(
                    "{why}; but {} holds {:.0} whatever is set here",
                    other.zone, other.limit
                );
                let remedy = "raise that limit, or stop the service that sets it (thermald)";
                (State::Limited, why, Some(remedy.into()))
            }
        }
    })
}

fn hsmp_limits(machine: &Machine<'_>) -> Finding {
    let sockets = hsmp::hwmon_sockets(machine.roots);
    let evidence = sockets
        .first()
        .map_or_else(|| hsmp::DEVICE.into(), |socket| socket.cap());
    let opened = HsmpLimits::open(machine.roots, &Registry::new());
    lever(machine, LeverKind::Hsmp, evidence, opened, |_, held| {
        let why = format!(
            "all sockets {held}; the stricter of this and of what the service processor sets (APML) holds"
        );
        (State::Usable, why, None)
    })
}

fn modelled(machine: &Machine<'_>) -> Finding {
    let (what, evidence) = (
        MeterKind::Model.finding(),
        MeterKind::Model.evidence(machine.roots),
    );
    let frequency = match crate::frequency::FrequencyReader::open(machine.roots) {
        Some(_) => "",
        None => "; no frequency can be read, so the highest is assumed",
    };
    let why = format!(
        "estimated from allocated and busy cores{frequency}; the default figures are another machine's, scaled by cores"
    );
    match crate::cpu::online(machine.roots) {
        Ok(_) => finding(what, Kind::Meter, State::Usable, evidence, why)
            .remedy("measure idle and full power at the plug and give them in the configuration"),
        Err(error) => finding(what, Kind::Meter, State::Unusable, evidence, error.to_string()),
    }
}
