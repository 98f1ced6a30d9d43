//! `class/powercap`, the zones below `devices/virtual/powercap`, and HSMP's hwmon files on an AMD machine.
//! Errors as `drivers/powercap/powercap_sys.c` gives them.

use super::{Entries, dir, file, files, link};
use crate::hardware::config::LimitKind;
use crate::hardware::rapl::{Zone, ZoneKind};
use crate::hardware::text;
use crate::hardware::world::World;
use rustix::io::Errno;

const CONTROL_TYPE: &str = "intel-rapl";
const HWMON: &[(&str, u16)] = &[
    ("name", 0o444),
    ("power1_cap", 0o644),
    ("power1_cap_max", 0o444),
    ("power1_input", 0o444),
];

/// The zone above, for a subzone.
fn above(zone: &str) -> Option<&str> {
    let (above, _) = zone.rsplit_once(':')?;
    above.contains(':').then_some(above)
}

/// Where a zone is, from `class/powercap`.
fn target(zone: &str) -> String {
    match above(zone) {
        None => format!("../../devices/virtual/powercap/{CONTROL_TYPE}/{zone}"),
        Some(above) => format!("../../devices/virtual/powercap/{CONTROL_TYPE}/{above}/{zone}"),
    }
}

fn hwmon_dirs(world: &World) -> impl Iterator<Item = String> {
    let packages = if world.machine.hsmp_uw(0).is_some() {
        world.machine.packages()
    } else {
        0
    };
    (0..packages).map(|package| format!("hwmon{package}"))
}

/// A zone with its place: of the path below the control type.
fn zone_at<'a>(world: &'a World, below: &[&str]) -> Option<&'a Zone> {
    let id = match below {
        [zone] if above(zone).is_none() => zone,
        [parent, zone] if above(zone) == Some(parent) => zone,
        _ => return None,
    };
    world.machine.zones.iter().find(|zone| zone.id == *id)
}

pub(super) fn entries(world: &World, path: &[&str]) -> Option<Entries> {
    let zones = &world.machine.zones;
    match path {
        ["class"] => {
            let mut all = Vec::new();
            if !zones.is_empty() {
                all.push(dir("powercap"));
            }
            if hwmon_dirs(world).next().is_some() {
                all.push(dir("hwmon"));
            }
            Some(all)
        }
        ["class", "powercap"] if !zones.is_empty() => {
            let mut all = vec![link(
                CONTROL_TYPE,
                format!("../../devices/virtual/powercap/{CONTROL_TYPE}"),
            )];
            all.extend(zones.iter().map(|zone| link(&zone.id, target(&zone.id))));
            Some(all)
        }
        ["class", "hwmon"] => {
            let to = |name: String| {
                link(
                    name.clone(),
                    format!("../../devices/platform/amd_hsmp/hwmon/{name}"),
                )
            };
            let all: Entries = hwmon_dirs(world).map(to).collect();
            (!all.is_empty()).then_some(all)
        }
        ["devices", "platform"] => hwmon_dirs(world).next().map(|_| vec![dir("amd_hsmp")]),
        ["devices", "platform", "amd_hsmp"] => hwmon_dirs(world).next().map(|_| vec![dir("hwmon")]),
        ["devices", "platform", "amd_hsmp", "hwmon"] => Some(hwmon_dirs(world).map(dir).collect()),
        ["devices", "platform", "amd_hsmp", "hwmon", name] => hwmon_dirs(world)
            .any(|known| known == *name)
            .then(|| files(HWMON)),
        ["devices", "virtual"] => Some(if zones.is_empty() {
            Vec::new()
        } else {
            vec![dir("powercap")]
        }),
        ["devices", "virtual", "powercap"] if !zones.is_empty() => Some(vec![dir(CONTROL_TYPE)]),
        ["devices", "virtual", "powercap", CONTROL_TYPE] if !zones.is_empty() => {
            let mut all = vec![file("enabled", 0o644), file("uevent", 0o644)];
            all.extend(
                zones
                    .iter()
                    .filter(|zone| above(&zone.id).is_none())
                    .map(|zone| dir(&zone.id)),
            );
            Some(all)
        }
        ["devices", "virtual", "powercap", CONTROL_TYPE, below @ ..] => {
            let zone = zone_at(world, below)?;
            let mut all = files(&[
                ("enabled", 0o644),
                ("energy_uj", 0o400),
                ("max_energy_range_uj", 0o444),
                ("name", 0o444),
                ("uevent", 0o644),
            ]);
            for at in 0..zone.limits.len() {
                all.extend([
                    file(format!("constraint_{at}_max_power_uw"), 0o444),
                    file(format!("constraint_{at}_name"), 0o444),
                    file(format!("constraint_{at}_power_limit_uw"), 0o644),
                    file(format!("constraint_{at}_time_window_us"), 0o644),
                ]);
            }
            all.extend(
                zones
                    .iter()
                    .filter(|part| above(&part.id) == Some(&zone.id))
                    .map(|part| dir(&part.id)),
            );
            Some(all)
        }
        _ => None,
    }
}

/// The constraint's number and attribute in `constraint_K_attribute`.
fn constraint(name: &str) -> Option<(usize, &str)> {
    let (number, attribute) = name.strip_prefix("constraint_")?.split_once('_')?;
    Some((number.parse().ok()?, attribute))
}

/// The package of `hwmonK`.
fn hwmon(name: &str) -> Option<usize> {
    name.strip_prefix("hwmon")?.parse().ok()
}

pub(super) fn read(world: &World, path: &[&str]) -> Result<String, Errno> {
    match path {
        ["devices", "platform", "amd_hsmp", "hwmon", dir, name] => {
            let package = hwmon(dir).ok_or(Errno::NOENT)?;
            let [cap, most, input] = world.machine.hsmp_uw(package).ok_or(Errno::NOENT)?;
            match *name {
                "name" => Ok("amd_hsmp_hwmon".into()),
                "power1_cap" => Ok(cap.to_string()),
                "power1_cap_max" => Ok(most.to_string()),
                "power1_input" => Ok(input.to_string()),
                _ => Err(Errno::NOENT),
            }
        }
        ["devices", "virtual", "powercap", CONTROL_TYPE, "enabled"] => Ok("1".into()),
        ["devices", "virtual", "powercap", CONTROL_TYPE, "uevent"] => Ok(String::new()),
        ["devices", "virtual", "powercap", CONTROL_TYPE, below @ .., name] => {
            read_zone(world, zone_at(world, below).ok_or(Errno::NOENT)?, name)
        }
        _ => Err(Errno::NOENT),
    }
}

fn read_zone(world: &World, zone: &Zone, name: &str) -> Result<String, Errno> {
    Ok(match name {
        "name" => zone.name.clone(),
        "uevent" => String::new(),
        "enabled" => u8::from(zone.enabled_reads()).to_string(),
        "energy_uj" => world
            .frozen_uj(&zone.id)
            .unwrap_or_else(|| zone.energy_uj())
            .to_string(),
        "max_energy_range_uj" => zone.max_energy_range_uj().to_string(),
        other => {
            let (number, attribute) = constraint(other).ok_or(Errno::NOENT)?;
            let limit = zone.limits.get(number).ok_or(Errno::NOENT)?;
            match attribute {
                "name" => limit.kind.as_str().into(),
                "power_limit_uw" => limit.power_uw().to_string(),
                "time_window_us" => limit.window_us()?.to_string(),
                // The driver knows a maximum of packages and memory only, and none of the peak limit.
                "max_power_uw" => match (zone.kind, limit.kind) {
                    (_, LimitKind::PeakPower) | (ZoneKind::Core(_) | ZoneKind::Uncore(_), _) => {
                        return Err(Errno::NODATA);
                    }
                    _ => limit.max_power_uw().to_string(),
                },
                _ => return Err(Errno::NOENT),
            }
        }
    })
}

pub(super) fn write(world: &mut World, path: &[&str], given: &str) -> Result<(), Errno> {
    match path {
        ["devices", "platform", "amd_hsmp", "hwmon", dir, "power1_cap"] => {
            let package = hwmon(dir).ok_or(Errno::NOENT)?;
            // hwmon parses a signed number and bounds it.
            let microwatts = match given.trim().strip_prefix('-') {
                Some(below_zero) => text::decimal(below_zero).map(|_| 0),
                None => text::decimal(given),
            }?;
            world.machine.set_hsmp_cap_uw(package, microwatts);
            Ok(())
        }
        // The driver has no switch for all zones together.
        ["devices", "virtual", "powercap", CONTROL_TYPE, "enabled"] => {
            text::boolean(given)?;
            Err(Errno::NOSYS)
        }
        ["devices", "virtual", "powercap", .., "uevent"] => Err(Errno::INVAL),
        ["devices", "virtual", "powercap", CONTROL_TYPE, below @ .., name] => {
            let id = zone_at(world, below).ok_or(Errno::NOENT)?.id.clone();
            let zone = world
                .machine
                .zones
                .iter_mut()
                .find(|zone| zone.id == id)
                .ok_or(Errno::NOENT)?;
            write_zone(zone, name, given)
        }
        _ => Err(Errno::NOENT),
    }
}

fn write_zone(zone: &mut Zone, name: &str, given: &str) -> Result<(), Errno> {
    if name == "enabled" {
        return zone.set_enabled(text::boolean(given)?);
    }
    let (number, attribute) = constraint(name).ok_or(Errno::NOENT)?;
    let limit = zone.limits.get_mut(number).ok_or(Errno::INVAL)?;
    let value = text::decimal(given).map_err(|_| Errno::INVAL)?;
    match attribute {
        "power_limit_uw" => limit.set_power_uw(value),
        "time_window_us" => limit.set_window_us(value),
        _ => Err(Errno::NOENT),
    }
}
