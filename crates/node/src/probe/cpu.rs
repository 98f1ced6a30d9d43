//! Cores, frequency and idle states.

use super::{CPU_TIME, FREQUENCY_LIMIT, Finding, Kind, Machine, State, finding, in_words, remedy_for};
use crate::cgroup::Version;
use crate::file;
use crate::frequency::FrequencyReader;
use crate::frequency::limit::{is_inactive, policies};
use crate::idle::IdleMeter;
use std::path::PathBuf;

pub(super) fn findings(machine: &Machine<'_>) -> Vec<Finding> {
    let quota = controller(machine, "CPU quota", "cpu");
    let cpuset = controller(machine, "CPU sets", "cpuset");
    let usage = usage(machine);
    let software_cap = software_cap(&quota, &usage);
    let mut all = vec![quota, cpuset, software_cap];
    all.extend(frequency(machine));
    all.extend([usage, idle_states(machine)]);
    all
}

/// A control group controller that limits a service.
fn controller(machine: &Machine<'_>, what: &str, name: &str) -> Finding {
    let find = |state, evidence, why: String| finding(what, Kind::Lever, state, evidence, why);
    let mountinfo = machine.roots.proc_("self/mountinfo");
    let hierarchies = match &machine.hierarchies {
        Ok(hierarchies) => hierarchies,
        Err(error) => {
            return find(State::Unusable, mountinfo, error.clone())
                .remedy("mount the cgroup file system, or pass the host's into the container");
        }
    };
    let Some(version) = hierarchies.version_of(name) else {
        let why = format!(
            "no cgroup hierarchy has the {name} controller (mounted: {})",
            hierarchies.describe()
        );
        return find(State::Unusable, mountinfo, why).remedy(format!(
            "boot without cgroup_disable={name}, or run where the host's cgroups are visible"
        ));
    };
    let point = match version {
        Version::V1 => hierarchies.v1(name).map(|mount| mount.point.clone()),
        Version::V2 => hierarchies.v2.as_ref().map(|mount| mount.point.clone()),
    };
    let point = point.unwrap_or(mountinfo);
    if let Err(errno) = machine.permissions.write(&point) {
        let why = format!(
            "cgroup {version} has it, but it cannot be changed: {}",
            in_words(errno)
        );
        return find(State::Unusable, point, why).remedy(remedy_for(errno));
    }
    if version == Version::V2 {
        let control = point.join("cgroup.subtree_control");
        let enabled = file::read(&control).unwrap_or_default();
        if !enabled.split_whitespace().any(|word| word == name) {
            let why = format!("cgroup v2 has the {name} controller, but it is not enabled for services");
            let remedy = format!("echo +{name} > {}", control.display());
            return find(State::Limited, control, why).remedy(remedy);
        }
    }
    let also = match (version, &hierarchies.v2) {
        (Version::V1, Some(_)) => " (v2 is mounted as well, without this controller)",
        _ => "",
    };
    find(
        State::Usable,
        point,
        format!("cgroup {version}{also}; a service needs a group of its own"),
    )
}

/// CPU time per service.
fn usage(machine: &Machine<'_>) -> Finding {
    let mountinfo = machine.roots.proc_("self/mountinfo");
    let find = |state, evidence, why: &str| finding(CPU_TIME, Kind::Meter, state, evidence, why);
    let Ok(hierarchies) = &machine.hierarchies else {
        return find(State::Unusable, mountinfo, "no cgroup file system is mounted").remedy("mount it");
    };
    let v1 = hierarchies
        .v1("cpuacct")
        .map(|mount| mount.point.join("cpuacct.usage"));
    let v2 = hierarchies.v2.as_ref().map(|mount| mount.point.join("cpu.stat"));
    match [v1, v2].into_iter().flatten().find(|path| path.exists()) {
        Some(path) => match machine.permissions.read(&path) {
            Ok(()) => find(State::Usable, path, "counted by its cgroup"),
            Err(errno) => find(State::Unusable, path, in_words(errno)).remedy(remedy_for(errno)),
        },
        None => find(
            State::Unusable,
            mountinfo,
            "no mounted cgroup hierarchy counts it",
        )
        .remedy("mount the cpuacct controller (v1) or the v2 hierarchy"),
    }
}

/// The software cap needs a quota to set and CPU time to see.
fn software_cap(quota: &Finding, usage: &Finding) -> Finding {
    const WHAT: &str = "software power cap";
    let of = |part: &Finding, state| {
        let why = format!("it works by {}, which is not fully usable here", part.what);
        let found = finding(WHAT, Kind::Lever, state, part.evidence.clone(), why);
        Finding {
            remedy: part.remedy.clone(),
            ..found
        }
    };
    match (quota.state, usage.state) {
        (State::Usable, State::Usable) => {
            let why = "holds the measured or modelled power under a cap by CPU quota, without power hardware; it saves nothing by \
                 itself, for a quota switches no core off";
            finding(WHAT, Kind::Lever, State::Usable, quota.evidence.clone(), why)
        }
        (_, State::Unusable | State::Limited) => of(usage, usage.state),
        (state, _) => of(quota, state),
    }
}

/// cpufreq, as a meter and as a lever.
fn frequency(machine: &Machine<'_>) -> [Finding; 2] {
    let dir = machine.roots.sys("devices/system/cpu/cpufreq");
    let meter = |state, why: String| finding("CPU frequency", Kind::Meter, state, dir.clone(), why);
    let lever = |state, why: String| finding(FREQUENCY_LIMIT, Kind::Lever, state, dir.clone(), why);
    let policies = policies(machine.roots);
    if policies.is_empty() {
        let (why, remedy) = match machine.virtual_machine {
            true => (
                "a virtual machine's frequency belongs to its host",
                "run on the host to see and set it",
            ),
            false => (
                "no frequency driver is loaded",
                "enable frequency scaling in the BIOS (EIST, P-states, CPPC), then load intel_pstate, amd-pstate or \
                 acpi-cpufreq",
            ),
        };
        return [
            meter(State::Unusable, why.into()).remedy(remedy),
            lever(State::Unusable, why.into()).remedy(remedy),
        ];
    }
    let offline =
        |policy: &&PathBuf| file::read(&policy.join("scaling_governor")).is_err_and(|e| is_inactive(&e));
    let asleep = policies.iter().filter(offline).count();
    let Some(policy) = policies.iter().find(|policy| !offline(policy)) else {
        let why = format!("the CPUs of all {} policies are offline (EBUSY)", policies.len());
        let remedy = "switch CPUs on: echo 1 > /sys/devices/system/cpu/cpuN/online";
        return [
            meter(State::Unusable, why.clone()).remedy(remedy),
            lever(State::Unusable, why).remedy(remedy),
        ];
    };
    let text = |name: &str| file::read(&policy.join(name)).unwrap_or_else(|_| "unknown".into());
    let (driver, governor) = (text("scaling_driver"), text("scaling_governor"));
    let reading = match FrequencyReader::open(machine.roots) {
        Some(_) => meter(
            State::Usable,
            format!("driver {driver}, {} policies", policies.len()),
        ),
        None => meter(
            State::Unusable,
            format!("driver {driver} shows no current or no highest frequency"),
        )
        .remedy("use a driver that does (intel_pstate, amd-pstate, acpi-cpufreq)"),
    };
    let limit = policy.join("scaling_max_freq");
    let speed = match text("scaling_available_governors")
        .split_whitespace()
        .any(|g| g == "userspace")
    {
        true => "a limit and, by governor userspace, a fixed frequency can be set",
        false => "a limit can be set; a fixed frequency cannot, as the driver has no governor userspace",
    };
    let setting = match machine.permissions.write(&limit) {
        Ok(()) if asleep > 0 => lever(
            State::Limited,
            format!(
                "driver {driver}, governor {governor}: {speed}; {asleep} of {} policies are passed over, as their CPUs are \
                 offline (EBUSY)",
                policies.len()
            ),
        )
        .remedy("switch them on: echo 1 > /sys/devices/system/cpu/cpuN/online; they are set as soon as they are back"),
        Ok(()) => lever(
            State::Usable,
            format!("driver {driver}, governor {governor}: {speed}; BIOS and thermal limits hold besides"),
        ),
        Err(errno) => lever(
            State::Unusable,
            format!("driver {driver}; it cannot be set: {}", in_words(errno)),
        )
        .remedy(remedy_for(errno)),
    };
    [reading, setting]
}

/// cpuidle residencies.
fn idle_states(machine: &Machine<'_>) -> Finding {
    const WHAT: &str = "CPU idle states";
    let dir = machine.roots.sys("devices/system/cpu/cpu0/cpuidle");
    if let Some(meter) = IdleMeter::open(machine.roots) {
        let driver = machine.roots.sys("devices/system/cpu/cpuidle/current_driver");
        let driver = file::read(&driver).unwrap_or_else(|_| "unknown".into());
        let names: Vec<&str> = meter.names().collect();
        let why = format!(
            "driver {driver}: {}; times are what the kernel asked for, not what the hardware did",
            names.join(", ")
        );
        return finding(WHAT, Kind::Meter, State::Usable, dir, why);
    }
    let (why, remedy) = match machine.virtual_machine {
        true => (
            "a virtual machine's idle states belong to its host",
            "run on the host to see them",
        ),
        false => (
            "no idle driver is loaded",
            "boot without idle=poll and cpuidle.off=1; enable C-states in the BIOS",
        ),
    };
    finding(WHAT, Kind::Meter, State::Unusable, dir, why).remedy(remedy)
}
