//! Who this machine is, and what it has.

use super::LocalOptions;
use crate::frequency::FrequencyUse;
use crate::limit::LeverKind;
use crate::power::Choice;
use crate::probe::{self, Finding, Kind, State};
use crate::{Roots, cpu, file};
use headroom_units::Source;
use headroom_wire::message::{Device, Meter, Node};
use std::path::Path;

/// The machine's own answers; what it does not say is empty.
pub(super) fn node(roots: &Roots, name: Option<&str>) -> Node {
    let kernel = |below: &str| file::read(&roots.proc_(below)).unwrap_or_default();
    let cpuinfo = kernel("cpuinfo");
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    Node {
        name: name.map_or_else(|| kernel("sys/kernel/hostname"), str::to_string),
        machine_id: file::read(Path::new("/etc/machine-id")).unwrap_or_default(),
        boot_id: kernel("sys/kernel/random/boot_id"),
        kernel: kernel("sys/kernel/osrelease"),
        processor: model.map(|(_, name)| name.trim().to_string()).unwrap_or_default(),
        cores_online: cpu::online(roots).map_or(0, |cpus| u32::try_from(cpus.len()).unwrap_or(u32::MAX)),
    }
}

/// The devices and meters as `headroom doctor` finds them; those in use are marked.
pub(super) fn devices(
    options: &LocalOptions,
    choice: &Choice,
    lever: LeverKind,
) -> (Vec<Device>, Vec<Meter>) {
    let mut devices = Vec::new();
    let mut meters = Vec::new();
    let (chosen, holds) = (choice.chosen.finding(), lever.finding());
    let paced = options.limiter.frequency == FrequencyUse::Auto;
    for finding in probe::probe(&options.roots) {
        let usable = matches!(finding.state, State::Usable | State::Limited);
        let remedy = finding.remedy.clone().unwrap_or_default();
        let in_use = |names: &[&str]| names.contains(&finding.what.as_str());
        match finding.kind {
            Kind::Lever => devices.push(Device {
                usable,
                in_use: in_use(&["CPU quota", holds])
                    || (options.limiter.cpuset && in_use(&["CPU sets"]))
                    || (paced && usable && in_use(&[probe::FREQUENCY_LIMIT])),
                reason: finding.why,
                remedy,
                name: finding.what,
            }),
            Kind::Meter => meters.push(Meter {
                usable,
                in_use: in_use(&[chosen, probe::CPU_TIME]),
                source: source(options, &finding).to_string(),
                reason: finding.why,
                remedy,
                name: finding.what,
            }),
            Kind::Tool => {}
        }
    }
    (devices, meters)
}

fn source(options: &LocalOptions, finding: &Finding) -> Source {
    match (options.emulated, finding.what.as_str()) {
        (true, _) => Source::Emulated,
        (false, "modelled power") => Source::Estimated,
        (false, _) => Source::Measured,
    }
}
