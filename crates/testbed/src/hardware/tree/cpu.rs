//! `devices/system/cpu`: the CPUs, their topology, frequency policies and idle states.

use super::{Entries, dir, file, files, link};
use crate::hardware::cpuidle;
use crate::hardware::text;
use crate::hardware::world::World;
use rustix::io::Errno;

const TOPOLOGY: &[(&str, u16)] = &[
    ("core_cpus_list", 0o444),
    ("core_id", 0o444),
    ("core_siblings_list", 0o444),
    ("die_id", 0o444),
    ("package_cpus_list", 0o444),
    ("physical_package_id", 0o444),
    ("thread_siblings_list", 0o444),
];

/// The number in a name such as `cpu3`, where such a thing exists.
fn numbered(prefix: &str, name: &str, count: usize) -> Option<usize> {
    let number = name.strip_prefix(prefix)?;
    let plain = number == "0" || !number.starts_with(['0', '+']);
    number.parse().ok().filter(|at| plain && *at < count)
}

fn cpu(world: &World, name: &str) -> Option<usize> {
    numbered("cpu", name, world.machine.cpus())
}

/// The index of `policyX`.
fn policy(world: &World, name: &str) -> Option<usize> {
    let first: usize = numbered("policy", name, world.machine.cpus())?;
    world
        .machine
        .freq
        .policies
        .iter()
        .position(|policy| policy.first == first)
}

pub(super) fn entries(world: &World, path: &[&str]) -> Option<Entries> {
    let machine = &world.machine;
    match path {
        ["devices", "system"] => Some(vec![dir("cpu")]),
        ["devices", "system", "cpu"] => {
            let mut all = files(&[
                ("kernel_max", 0o444),
                ("offline", 0o444),
                ("online", 0o444),
                ("possible", 0o444),
                ("present", 0o444),
            ]);
            all.push(dir("cpufreq"));
            all.push(dir("cpuidle"));
            all.extend(machine.freq.global_dir().map(|(name, _)| dir(name)));
            all.extend((0..machine.cpus()).map(|cpu| dir(format!("cpu{cpu}"))));
            Some(all)
        }
        ["devices", "system", "cpu", "cpuidle"] => Some(files(&[
            ("available_governors", 0o444),
            ("current_driver", 0o444),
            ("current_governor", 0o644),
        ])),
        ["devices", "system", "cpu", "cpufreq"] => {
            let mut all: Entries = machine
                .freq
                .policies
                .iter()
                .map(|policy| dir(format!("policy{}", policy.first)))
                .collect();
            if machine.freq.has_boost_file() {
                all.push(file("boost", 0o644));
            }
            Some(all)
        }
        ["devices", "system", "cpu", "cpufreq", name] => {
            policy(world, name)?;
            Some(files(&machine.freq.attributes()))
        }
        [
            "devices",
            "system",
            "cpu",
            global @ ("intel_pstate" | "amd_pstate"),
        ] => {
            let (name, attributes) = machine.freq.global_dir()?;
            (name == *global).then(|| files(&attributes))
        }
        ["devices", "system", "cpu", name] => {
            let cpu = cpu(world, name)?;
            let mut all = vec![dir("topology")];
            if cpu != 0 {
                all.push(file("online", 0o644));
            }
            if let Some(policy) = machine.freq.policy_of(cpu).filter(|_| machine.is_online(cpu)) {
                all.push(link("cpufreq", format!("../cpufreq/policy{}", policy.first)));
            }
            if machine.idle.is_some() {
                all.push(dir("cpuidle"));
            }
            Some(all)
        }
        ["devices", "system", "cpu", name, "topology"] => {
            // The kernel takes an offline CPU's topology away.
            cpu(world, name)
                .filter(|cpu| machine.is_online(*cpu))
                .map(|_| files(TOPOLOGY))
        }
        ["devices", "system", "cpu", name, "cpuidle"] => {
            cpu(world, name)?;
            let states = machine.idle.as_ref()?.states();
            Some((0..states).map(|state| dir(format!("state{state}"))).collect())
        }
        ["devices", "system", "cpu", name, "cpuidle", state] => {
            cpu(world, name)?;
            numbered("state", state, machine.idle.as_ref()?.states())?;
            Some(files(&cpuidle::ATTRIBUTES))
        }
        _ => None,
    }
}

pub(super) fn read(world: &World, path: &[&str]) -> Result<String, Errno> {
    let machine = &world.machine;
    let all = 0..machine.cpus();
    match path {
        ["devices", "system", "cpu", name] => Ok(match *name {
            "kernel_max" => "8191".into(),
            "possible" | "present" => text::write_cpu_list(all),
            "online" => text::write_cpu_list(all.filter(|cpu| machine.is_online(*cpu))),
            "offline" => text::write_cpu_list(all.filter(|cpu| !machine.is_online(*cpu))) + "\n",
            _ => return Err(Errno::NOENT),
        }),
        ["devices", "system", "cpu", "cpuidle", name] => Ok(match (*name, machine.idle.is_some()) {
            ("current_driver", true) if machine.is_amd() => "acpi_idle",
            ("current_driver", true) => "intel_idle",
            ("current_driver", false) => "none",
            ("current_governor" | "available_governors", _) => "menu",
            _ => return Err(Errno::NOENT),
        }
        .into()),
        ["devices", "system", "cpu", "cpufreq", "boost"] if machine.freq.has_boost_file() => {
            machine.freq.read_global("boost")
        }
        ["devices", "system", "cpu", "cpufreq", dir, name] => {
            let policy = &machine.freq.policies[policy(world, dir).ok_or(Errno::NOENT)?];
            machine.freq.read(policy, name, machine.khz(policy.first))
        }
        ["devices", "system", "cpu", "intel_pstate" | "amd_pstate", name] => machine.freq.read_global(name),
        ["devices", "system", "cpu", dir, "online"] => {
            let cpu = cpu(world, dir).ok_or(Errno::NOENT)?;
            Ok(u8::from(machine.is_online(cpu)).to_string())
        }
        ["devices", "system", "cpu", dir, "topology", name] => {
            let cpu = cpu(world, dir).ok_or(Errno::NOENT)?;
            let package = machine.package_of(cpu);
            let siblings =
                || text::write_cpu_list((0..machine.cpus()).filter(|c| machine.package_of(*c) == package));
            Ok(match *name {
                "physical_package_id" => package.to_string(),
                "die_id" => "0".into(),
                "core_id" => (cpu % (machine.cpus() / machine.packages())).to_string(),
                "core_cpus_list" | "thread_siblings_list" => cpu.to_string(),
                "core_siblings_list" | "package_cpus_list" => siblings(),
                _ => return Err(Errno::NOENT),
            })
        }
        ["devices", "system", "cpu", dir, "cpuidle", state, name] => {
            let cpu = cpu(world, dir).ok_or(Errno::NOENT)?;
            let idle = machine.idle.as_ref().ok_or(Errno::NOENT)?;
            let state = numbered("state", state, idle.states()).ok_or(Errno::NOENT)?;
            idle.read(cpu, state, name)
        }
        _ => Err(Errno::NOENT),
    }
}

pub(super) fn write(world: &mut World, path: &[&str], given: &str) -> Result<(), Errno> {
    match path {
        ["devices", "system", "cpu", "cpufreq", "boost"] if world.machine.freq.has_boost_file() => {
            world.machine.freq.write_global("boost", given)
        }
        ["devices", "system", "cpu", "cpufreq", dir, name] => {
            let index = policy(world, dir).ok_or(Errno::NOENT)?;
            world.machine.freq.write(index, name, given)
        }
        ["devices", "system", "cpu", "intel_pstate" | "amd_pstate", name] => {
            world.machine.freq.write_global(name, given)
        }
        ["devices", "system", "cpu", "cpuidle", "current_governor"] => match given.trim() {
            "menu" => Ok(()),
            _ => Err(Errno::INVAL),
        },
        ["devices", "system", "cpu", dir, "online"] => {
            let cpu = cpu(world, dir).ok_or(Errno::NOENT)?;
            let online = text::boolean(given)?;
            world.machine.set_online(cpu, online);
            Ok(())
        }
        ["devices", "system", "cpu", dir, "cpuidle", state, name] => {
            let cpu = cpu(world, dir).ok_or(Errno::NOENT)?;
            let idle = world.machine.idle.as_mut().ok_or(Errno::NOENT)?;
            let state = numbered("state", state, idle.states()).ok_or(Errno::NOENT)?;
            idle.write(cpu, state, name, given)
        }
        _ => Err(Errno::NOENT),
    }
}
