//! `headroom-testbed`: the mark that all of this is emulated, the control file for faults, the truth, and a `/proc` with
//! what an agent looks up there.

use super::{Caller, Entries, Node, OWN_DIR, dir, file};
use crate::hardware::config::CgroupVersion;
use crate::hardware::fault::Command;
use crate::hardware::groups::Hierarchy;
use crate::hardware::world::World;
use rustix::io::Errno;

/// The ethtool(8) of the emulated network card: it shows and sets coalescing. Not executable in itself: nothing here is.
const ETHTOOL: &str = r#"#!/bin/sh
card="${0%/*}"
if [ "$2" != "${card##*/}" ]; then echo "netlink error: No such device" >&2; exit 75; fi
case "$1" in
-c) cat "$card/coalesce" ;;
-C) shift 2
    printf '%s\n' "$*" > "$card/coalesce" || { echo "netlink error: Invalid argument" >&2; exit 92; } ;;
*) echo "ethtool: bad command line argument(s)" >&2; exit 1 ;;
esac
"#;
/// The longest time that the card takes, microseconds; it has steps of two.
const MAX_COALESCING_US: u64 = 1022;

/// Clock ticks of a second in `/proc/stat` (USER_HZ).
const USER_HZ: f64 = 100.0;

pub(super) fn entries(world: &World, path: &[&str]) -> Option<Entries> {
    match path {
        [OWN_DIR] => Some(vec![
            file("emulated", 0o444),
            file("faults", 0o600),
            file("state", 0o444),
            dir("net"),
            dir("proc"),
        ]),
        [OWN_DIR, "net"] => Some(vec![dir("eth0")]),
        [OWN_DIR, "net", "eth0"] => Some(vec![
            file("address", 0o444),
            file("coalesce", 0o600),
            file("ethtool", 0o444),
        ]),
        [OWN_DIR, "proc"] => {
            let mut pids: Vec<u32> = world
                .groups
                .names()
                .iter()
                .filter(|name| !name.is_empty() && world.groups.is_in(name, Hierarchy::Cpu))
                .filter_map(|name| world.backing.processes(name).ok())
                .flatten()
                .collect();
            pids.sort_unstable();
            pids.dedup();
            let mut all = vec![
                file("cpuinfo", 0o444),
                file("stat", 0o444),
                dir("self"),
                dir("sys"),
            ];
            all.extend(pids.iter().map(|pid| dir(pid.to_string())));
            Some(all)
        }
        [OWN_DIR, "proc", "sys"] => Some(vec![dir("kernel")]),
        [OWN_DIR, "proc", "sys", "kernel"] => Some(vec![dir("random")]),
        [OWN_DIR, "proc", "sys", "kernel", "random"] => Some(vec![file("boot_id", 0o444)]),
        [OWN_DIR, "proc", "self"] => Some(vec![file("cgroup", 0o444), file("mountinfo", 0o444)]),
        [OWN_DIR, "proc", pid] => {
            world.backing.group_of(pid.parse().ok()?)?;
            Some(vec![file("cgroup", 0o444), file("mountinfo", 0o444)])
        }
        _ => None,
    }
}

/// A process can be looked up although only those in emulated groups are listed.
pub(super) fn node(world: &World, path: &[&str]) -> Option<Node> {
    match path {
        [OWN_DIR] => Some(Node::Dir),
        [OWN_DIR, "proc", pid] if pid.bytes().all(|byte| byte.is_ascii_digit()) => {
            entries(world, path).map(|_| Node::Dir)
        }
        [above @ .., name] => entries(world, above)?
            .into_iter()
            .find(|(known, _)| known == name)
            .map(|(_, node)| node),
        [] => None,
    }
}

pub(super) fn read(world: &World, path: &[&str], caller: Caller) -> Result<String, Errno> {
    match path {
        [OWN_DIR, "emulated"] => Ok(description(world)),
        [OWN_DIR, "faults"] => Ok(world
            .faults
            .iter()
            .map(|active| format!("{}\n", active.fault))
            .collect()),
        [OWN_DIR, "state"] => serde_json::to_string_pretty(&world.snapshot()).map_err(|_| Errno::IO),
        [OWN_DIR, "net", "eth0", "address"] => Ok("02:00:00:00:00:01\n".to_owned()),
        [OWN_DIR, "net", "eth0", "coalesce"] => Ok(coalescing(world)),
        [OWN_DIR, "net", "eth0", "ethtool"] => Ok(ETHTOOL.to_owned()),
        [OWN_DIR, "proc", "cpuinfo"] => Ok(cpuinfo(world)),
        [OWN_DIR, "proc", "stat"] => Ok(stat(world)),
        // What is emulated goes with the real machine's boot: records of what is to be put back name it.
        [OWN_DIR, "proc", "sys", "kernel", "random", "boot_id"] => {
            std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(|_| Errno::NOENT)
        }
        [OWN_DIR, "proc", "self", "cgroup"] => membership(world, caller.process()),
        [OWN_DIR, "proc", pid, "cgroup"] => membership(world, pid.parse().map_err(|_| Errno::NOENT)?),
        [OWN_DIR, "proc", _, "mountinfo"] => Ok(mountinfo(world.groups.version())),
        _ => Err(Errno::NOENT),
    }
}

pub(super) fn write(world: &mut World, path: &[&str], given: &str) -> Result<(), Errno> {
    match path {
        [OWN_DIR, "faults"] => {}
        [OWN_DIR, "net", "eth0", "coalesce"] => return coalesce(world, given),
        _ => return Err(Errno::ACCESS),
    }
    for line in given.lines().filter(|line| !line.trim().is_empty()) {
        let command: Command = line.parse().map_err(|_| Errno::INVAL)?;
        world.command(command).map_err(|error| match error {
            super::super::error::HardwareError::Fault(_) => Errno::NOSPC,
            _ => Errno::INVAL,
        })?;
    }
    Ok(())
}

/// As ethtool(8) shows it.
fn coalescing(world: &World) -> String {
    let (adaptive, us) = world.coalescing;
    let adaptive = if adaptive { "on" } else { "off" };
    format!(
        "Coalesce parameters for eth0:\nAdaptive RX: {adaptive}  TX: n/a\nstats-block-usecs:\tn/a\n\nrx-usecs:\t{us}\n\
         rx-frames:\tn/a\n"
    )
}

/// Words and values by turns, as ethtool(8) takes them; nothing changes where one of them is none.
fn coalesce(world: &mut World, given: &str) -> Result<(), Errno> {
    let (mut adaptive, mut us) = world.coalescing;
    let words: Vec<&str> = given.split_whitespace().collect();
    for pair in words.chunks(2) {
        match pair {
            ["adaptive-rx", "on"] => adaptive = true,
            ["adaptive-rx", "off"] => adaptive = false,
            ["rx-usecs", value] => {
                let wanted: u64 = value.parse().map_err(|_| Errno::INVAL)?;
                us = wanted - wanted % 2;
            }
            _ => return Err(Errno::INVAL),
        }
    }
    if us > MAX_COALESCING_US {
        return Err(Errno::INVAL);
    }
    world.coalescing = (adaptive, us);
    Ok(())
}

fn description(world: &World) -> String {
    let config = &world.config;
    format!(
        "everything in this tree is emulated by headroom-testbed {}\n{} packages of {} cores, {}\n{:.4} real cores for \
         each emulated one; {}\n",
        env!("CARGO_PKG_VERSION"),
        config.packages,
        config.cores_per_package,
        world.machine.freq.driver().names().2,
        world.real_per_core(),
        world.backing.describe(),
    )
}

/// The lines by which agents tell one machine from another.
fn cpuinfo(world: &World) -> String {
    let machine = &world.machine;
    let vendor = if machine.is_amd() {
        "AuthenticAMD"
    } else {
        "GenuineIntel"
    };
    let cores = machine.cpus() / machine.packages();
    let one = |cpu: usize| {
        format!(
            "processor\t: {cpu}\nvendor_id\t: {vendor}\nmodel name\t: Headroom emulated processor\ncpu MHz\t\t: {:.3}\n\
             physical id\t: {}\nsiblings\t: {cores}\ncore id\t\t: {}\ncpu cores\t: {cores}\n\n",
            machine.khz(cpu) as f64 / 1e3,
            machine.package_of(cpu),
            cpu % cores,
        )
    };
    (0..machine.cpus())
        .filter(|cpu| machine.is_online(*cpu))
        .map(one)
        .collect()
}

fn stat(world: &World) -> String {
    let elapsed_s = world.machine.elapsed().get();
    let line = |name: &str, busy_s: f64, cpus: f64| {
        let idle_s = (elapsed_s * cpus - busy_s).max(0.0);
        format!(
            "{name} {} 0 0 {} 0 0 0 0 0 0\n",
            (busy_s * USER_HZ) as u64,
            (idle_s * USER_HZ) as u64
        )
    };
    let busy = &world.cpu_busy_s;
    let mut text = line("cpu ", busy.iter().sum(), busy.len() as f64);
    for (cpu, busy_s) in busy
        .iter()
        .enumerate()
        .filter(|(cpu, _)| world.machine.is_online(*cpu))
    {
        text += &line(&format!("cpu{cpu}"), *busy_s, 1.0);
    }
    text
}

/// `/proc/PID/cgroup`.
fn membership(world: &World, pid: u32) -> Result<String, Errno> {
    let group = world.backing.group_of(pid).ok_or(Errno::SRCH)?;
    Ok(match world.groups.version() {
        CgroupVersion::V2 => format!("0::/{group}\n"),
        CgroupVersion::V1 => {
            let in_cpuset = |name: &String| {
                world
                    .groups
                    .get(name)
                    .is_some_and(|g| g.cpuset_processes.contains(&pid))
            };
            let cpuset = world
                .groups
                .names()
                .into_iter()
                .find(in_cpuset)
                .unwrap_or_default();
            format!("2:cpuset:/{cpuset}\n1:cpu,cpuacct:/{group}\n")
        }
    })
}

fn mountinfo(version: CgroupVersion) -> String {
    const SYSFS: &str = "20 1 0:18 / /sys rw,nosuid,nodev,noexec,relatime shared:2 - sysfs sysfs rw\n";
    let options = "rw,nosuid,nodev,noexec,relatime";
    let groups = match version {
        CgroupVersion::V2 => format!("30 20 0:26 / /sys/fs/cgroup {options} shared:4 - cgroup2 cgroup2 rw\n"),
        CgroupVersion::V1 => format!(
            "30 20 0:26 / /sys/fs/cgroup ro,nosuid,nodev,noexec shared:4 - tmpfs tmpfs ro,mode=755\n\
             31 30 0:27 / /sys/fs/cgroup/{} {options} shared:5 - cgroup cgroup rw,cpu,cpuacct\n\
             32 30 0:28 / /sys/fs/cgroup/{} {options} shared:6 - cgroup cgroup rw,cpuset\n",
            super::cgroup::V1_CPU,
            super::cgroup::V1_CPUSET
        ),
    };
    format!("{SYSFS}{groups}")
}
