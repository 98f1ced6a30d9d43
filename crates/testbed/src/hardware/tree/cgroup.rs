//! `fs/cgroup`: the emulated control groups as version 2, or as version 1 with the hierarchies `cpu,cpuacct` and `cpuset`.
//! Weights, shares and bursts are checked and kept, and nothing follows from them.

use super::{Caller, Entries, dir, file, files};
use crate::hardware::config::CgroupVersion::{V1, V2};
use crate::hardware::group::Group;
use crate::hardware::groups::{Hierarchy, parent};
use crate::hardware::text;
use crate::hardware::world::World;
use rustix::io::Errno;

/// Version 1: where cpu and cpuacct are mounted.
pub(super) const V1_CPU: &str = "cpu,cpuacct";
/// Version 1: where cpuset is mounted.
pub(super) const V1_CPUSET: &str = "cpuset";

const V2_CORE: &[(&str, u16)] = &[
    ("cgroup.controllers", 0o444),
    ("cgroup.procs", 0o644),
    ("cgroup.subtree_control", 0o644),
    ("cgroup.threads", 0o644),
    ("cpu.pressure", 0o644),
    ("cpu.stat", 0o444),
];
const V2_CPU: &[(&str, u16)] = &[
    ("cpu.max", 0o644),
    ("cpu.max.burst", 0o644),
    ("cpu.weight", 0o644),
];
const V2_CPUSET: &[(&str, u16)] = &[
    ("cpuset.cpus", 0o644),
    ("cpuset.cpus.effective", 0o444),
    ("cpuset.mems", 0o644),
    ("cpuset.mems.effective", 0o444),
];
const V1_BOTH: &[(&str, u16)] = &[("cgroup.procs", 0o644), ("tasks", 0o644)];
const V1_CPU_FILES: &[(&str, u16)] = &[
    ("cpu.shares", 0o644),
    ("cpu.stat", 0o444),
    ("cpuacct.usage", 0o444),
];
/// Not at the root.
const V1_CPU_LIMITS: &[(&str, u16)] = &[
    ("cpu.cfs_burst_us", 0o644),
    ("cpu.cfs_period_us", 0o644),
    ("cpu.cfs_quota_us", 0o644),
];
const V1_CPUSET_FILES: &[(&str, u16)] = &[
    ("cpuset.cpus", 0o644),
    ("cpuset.effective_cpus", 0o444),
    ("cpuset.effective_mems", 0o444),
    ("cpuset.mems", 0o644),
    ("cpuset.sched_load_balance", 0o644),
];

/// The hierarchy and the parts below its mount point.
fn locate<'p, 'a>(world: &World, path: &'p [&'a str]) -> Option<(Hierarchy, &'p [&'a str])> {
    match (world.groups.version(), path) {
        (V2, ["fs", "cgroup", rest @ ..]) => Some((Hierarchy::Cpu, rest)),
        (V1, ["fs", "cgroup", V1_CPU, rest @ ..]) => Some((Hierarchy::Cpu, rest)),
        (V1, ["fs", "cgroup", V1_CPUSET, rest @ ..]) => Some((Hierarchy::Cpuset, rest)),
        _ => None,
    }
}

pub(super) fn entries(world: &World, path: &[&str]) -> Option<Entries> {
    match (world.groups.version(), path) {
        (_, ["fs"]) => return Some(vec![dir("cgroup")]),
        (V1, ["fs", "cgroup"]) => return Some(vec![dir(V1_CPU), dir(V1_CPUSET)]),
        _ => {}
    }
    let (hierarchy, below) = locate(world, path)?;
    let name = below.join("/");
    if !world.groups.is_in(&name, hierarchy) {
        return None;
    }
    let mut all = match (world.groups.version(), hierarchy) {
        (V2, _) => {
            let mut all = files(V2_CORE);
            if world.groups.has_controller(&name, Hierarchy::Cpu) {
                all.extend(files(V2_CPU));
            }
            if world.groups.has_controller(&name, Hierarchy::Cpuset) {
                all.extend(files(V2_CPUSET));
            } else if name.is_empty() {
                all.extend(files(&[
                    ("cpuset.cpus.effective", 0o444),
                    ("cpuset.mems.effective", 0o444),
                ]));
            }
            if !name.is_empty() {
                all.push(file("cgroup.events", 0o444));
                all.push(file("cgroup.type", 0o644));
            }
            all
        }
        (V1, Hierarchy::Cpu) => {
            let mut all = files(V1_BOTH);
            all.extend(files(V1_CPU_FILES));
            if !name.is_empty() {
                all.extend(files(V1_CPU_LIMITS));
            }
            all
        }
        (V1, Hierarchy::Cpuset) => {
            let mut all = files(V1_BOTH);
            all.extend(files(V1_CPUSET_FILES));
            all
        }
    };
    let last = |child: &String| child.rsplit('/').next().unwrap_or_default().to_string();
    all.extend(
        world
            .groups
            .children(&name, hierarchy)
            .iter()
            .map(|child| dir(last(child))),
    );
    Some(all)
}

/// The processes of a group in a hierarchy.
fn processes(world: &World, name: &str, hierarchy: Hierarchy) -> Result<Vec<u32>, Errno> {
    match (world.groups.version(), hierarchy) {
        (V1, Hierarchy::Cpuset) => {
            let group = world.groups.get(name).ok_or(Errno::NODEV)?;
            let alive = |pid: &u32| world.backing.group_of(*pid).is_some();
            Ok(group.cpuset_processes.iter().copied().filter(alive).collect())
        }
        _ => world.backing.processes(name),
    }
}

pub(super) fn read(world: &World, path: &[&str]) -> Result<String, Errno> {
    let (hierarchy, below) = locate(world, path).ok_or(Errno::NOENT)?;
    let (file, below) = below.split_last().ok_or(Errno::NOENT)?;
    let name = below.join("/");
    // An open file of a group that was removed meanwhile: ENODEV, as kernfs answers.
    let group = world.groups.get(&name).ok_or(Errno::NODEV)?;
    let usage_us = || world.groups.usage_us(&name);
    let effective = || match world.groups.version() {
        V1 if group.cpus.is_empty() => String::new(),
        _ => text::write_cpu_list(world.effective_cpus(&name)),
    };
    let mems = || text::write_cpu_list(effective_mems(world, &name));
    let list = |pids: Vec<u32>| pids.iter().map(|pid| format!("{pid}\n")).collect::<String>();
    Ok(match *file {
        "cgroup.controllers" => world.groups.controllers(&name) + "\n",
        "cgroup.subtree_control" => world.groups.subtree_control(&name) + "\n",
        "cgroup.type" => "domain".into(),
        "cgroup.events" => {
            let populated = !processes(world, &name, hierarchy)?.is_empty();
            format!("populated {}\nfrozen 0", u8::from(populated))
        }
        "cgroup.procs" | "cgroup.threads" | "tasks" => list(processes(world, &name, hierarchy)?),
        "cpu.stat" if world.groups.version() == V1 => format!(
            "nr_periods {}\nnr_throttled {}\nthrottled_time {}",
            group.periods,
            group.throttled_periods,
            (group.throttled_us * 1e3) as u64
        ),
        "cpu.stat" => {
            let usage = usage_us() as u64;
            let mut text = format!("usage_usec {usage}\nuser_usec {usage}\nsystem_usec 0\n");
            if world.groups.has_controller(&name, Hierarchy::Cpu) {
                let Group {
                    periods,
                    throttled_periods,
                    throttled_us,
                    ..
                } = group;
                let throttled = *throttled_us as u64;
                text += &format!(
                    "nr_periods {periods}\nnr_throttled {throttled_periods}\nthrottled_usec {throttled}\n"
                );
                text += "nr_bursts 0\nburst_usec 0\n";
            }
            text
        }
        // What throttling stalls: all of a group's tasks at once, so some is full.
        "cpu.pressure" => {
            let [ten, sixty, three_hundred] = group.stalled_shares.map(|share| share * 100.0);
            let total = group.stalled_us as u64;
            let rest = format!("avg10={ten:.2} avg60={sixty:.2} avg300={three_hundred:.2} total={total}");
            format!("some {rest}\nfull {rest}\n")
        }
        "cpuacct.usage" => ((usage_us() * 1e3) as u64).to_string(),
        "cpu.max" => match group.quota_us {
            Some(quota) => format!("{quota} {}", group.period_us),
            None => format!("max {}", group.period_us),
        },
        "cpu.max.burst" | "cpu.cfs_burst_us" => group.burst_us.to_string(),
        "cpu.weight" => group.weight.to_string(),
        "cpu.shares" => group.shares.to_string(),
        "cpu.cfs_quota_us" => group.quota_us.map_or("-1".into(), |quota| quota.to_string()),
        "cpu.cfs_period_us" => group.period_us.to_string(),
        "cpuset.cpus" => text::write_cpu_list(group.cpus.iter().copied()) + "\n",
        "cpuset.mems" => text::write_cpu_list(group.mems.iter().copied()) + "\n",
        "cpuset.cpus.effective" | "cpuset.effective_cpus" => effective() + "\n",
        "cpuset.mems.effective" | "cpuset.effective_mems" => mems() + "\n",
        "cpuset.sched_load_balance" => "1".into(),
        _ => return Err(Errno::NOENT),
    })
}

fn effective_mems(world: &World, name: &str) -> Vec<usize> {
    let own = world
        .groups
        .get(name)
        .map(|group| group.mems.clone())
        .unwrap_or_default();
    match (own.is_empty(), world.groups.version()) {
        (true, V2) if !name.is_empty() => effective_mems(world, parent(name)),
        _ => own,
    }
}

pub(super) fn write(world: &mut World, path: &[&str], given: &str, caller: Caller) -> Result<(), Errno> {
    let (hierarchy, below) = locate(world, path).ok_or(Errno::NOENT)?;
    let (file, below) = below.split_last().ok_or(Errno::NOENT)?;
    let name = below.join("/");
    let group = world.groups.get(&name).ok_or(Errno::NODEV)?;
    // Every handler of a control group is given its text without the blank space around it.
    let given = given.trim();
    let (quota_us, period_us) = (group.quota_us, group.period_us);
    match *file {
        "cpu.max" => {
            let (quota, period) = bandwidth(given, period_us)?;
            world.groups.set_bandwidth(&name, quota, period)
        }
        "cpu.cfs_quota_us" => {
            let quota = match given.strip_prefix('-') {
                Some(below_zero) => text::any_base(below_zero).map(|_| None)?,
                None => Some(text::any_base(given)?),
            };
            world.groups.set_bandwidth(&name, quota, period_us)
        }
        "cpu.cfs_period_us" => world
            .groups
            .set_bandwidth(&name, quota_us, text::any_base(given)?),
        "cpu.max.burst" | "cpu.cfs_burst_us" => world.groups.set_burst(&name, text::any_base(given)?),
        "cpu.weight" => {
            let weight = text::any_base(given)?;
            if !(1..=10_000).contains(&weight) {
                return Err(Errno::RANGE);
            }
            world.groups.get_mut(&name).ok_or(Errno::NODEV)?.weight = weight;
            Ok(())
        }
        "cpu.shares" => {
            let shares = text::any_base(given)?.clamp(2, 1 << 18);
            world.groups.get_mut(&name).ok_or(Errno::NODEV)?.shares = shares;
            Ok(())
        }
        "cpuset.cpus" if name.is_empty() => Err(Errno::ACCESS),
        "cpuset.mems" if name.is_empty() => Err(Errno::ACCESS),
        "cpuset.cpus" => world.groups.set_cpus(&name, given),
        "cpuset.mems" => world.groups.set_mems(&name, given),
        "cpuset.sched_load_balance" => text::any_base(given).map(|_| ()),
        "cgroup.subtree_control" => {
            let has_processes = !name.is_empty() && !processes(world, &name, hierarchy)?.is_empty();
            world.groups.set_subtree_control(&name, given, has_processes)
        }
        "cgroup.type" => {
            if given == "threaded" {
                Err(Errno::OPNOTSUPP)
            } else {
                Err(Errno::INVAL)
            }
        }
        "cpu.pressure" => Err(Errno::OPNOTSUPP),
        "cgroup.procs" | "tasks" => enter(world, &name, hierarchy, given, caller),
        // Threads cannot be moved alone in a domain group.
        "cgroup.threads" => Err(Errno::OPNOTSUPP),
        _ => Err(Errno::NOENT),
    }
}

/// `cpu.max`: "$MAX $PERIOD", the period optional (`cpu_period_quota_parse`).
fn bandwidth(given: &str, present_period_us: u64) -> Result<(Option<u64>, u64), Errno> {
    let mut words = given.split_whitespace();
    let quota = words.next().ok_or(Errno::INVAL)?;
    let quota = if quota == "max" {
        None
    } else {
        Some(text::leading(quota)?)
    };
    let period = words.next().map_or(Ok(present_period_us), text::leading)?;
    Ok((quota, period))
}

fn enter(
    world: &mut World,
    name: &str,
    hierarchy: Hierarchy,
    given: &str,
    caller: Caller,
) -> Result<(), Errno> {
    let number = text::any_base(given).map_err(|_| Errno::INVAL)?;
    let pid = match u32::try_from(number).map_err(|_| Errno::INVAL)? {
        0 => caller.process(),
        pid => pid,
    };
    if world.backing.group_of(pid).is_none() {
        return Err(Errno::SRCH);
    }
    world.groups.may_enter(name, hierarchy)?;
    if (world.groups.version(), hierarchy) == (V1, Hierarchy::Cpuset) {
        for other in world.groups.names() {
            if let Some(group) = world.groups.get_mut(&other) {
                group.cpuset_processes.remove(&pid);
            }
        }
        // Those that are in no other group are in the root, which is not listed.
        if let Some(group) = world.groups.get_mut(name).filter(|_| !name.is_empty()) {
            group.cpuset_processes.insert(pid);
        }
        return Ok(());
    }
    world.backing.enter(name, pid)?;
    if let Some(group) = world.groups.get_mut(name) {
        group.populated = true;
    }
    Ok(())
}

pub(super) fn mkdir(world: &mut World, path: &[&str]) -> Result<(), Errno> {
    let (hierarchy, below) = locate(world, path).ok_or(Errno::PERM)?;
    let name = below.join("/");
    if below
        .last()
        .is_some_and(|last| files(V2_CORE).iter().any(|(file, _)| file == last))
    {
        return Err(Errno::EXIST);
    }
    world.groups.create(&name, hierarchy)?;
    if hierarchy == Hierarchy::Cpu
        && let Err(errno) = world.backing.create(&name)
    {
        // What could not be made in reality is not there.
        let _ = world.groups.remove(&name, hierarchy);
        return Err(errno);
    }
    Ok(())
}

pub(super) fn rmdir(world: &mut World, path: &[&str]) -> Result<(), Errno> {
    let (hierarchy, below) = locate(world, path).ok_or(Errno::PERM)?;
    let name = below.join("/");
    if !world.groups.is_in(&name, hierarchy) {
        return Err(Errno::NOENT);
    }
    if name.is_empty() || !world.groups.children(&name, hierarchy).is_empty() {
        return Err(Errno::BUSY);
    }
    if !processes(world, &name, hierarchy)?.is_empty() {
        return Err(Errno::BUSY);
    }
    if hierarchy == Hierarchy::Cpu {
        world.backing.remove(&name)?;
    }
    world.groups.remove(&name, hierarchy)
}
