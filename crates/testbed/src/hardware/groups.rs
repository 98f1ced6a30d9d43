//! The emulated control groups: their limits and counters, and what the kernel answers to a change
//! (Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/cpusets.rst, scheduler/sched-bwc.rst). Pure.

use super::config::CgroupVersion;
use super::group::{DEFAULT_PERIOD_US, Group};
use super::text;
use rustix::io::Errno;
use std::collections::BTreeMap;

/// The most groups, the root included.
pub const MAX_GROUPS: usize = 256;
/// The deepest group below the root.
const DEEPEST: usize = 8;
/// The kernel's bounds of quota and period (`kernel/sched/core.c`), microseconds.
const MIN_US: u64 = 1_000;
const MAX_PERIOD_US: u64 = 1_000_000;
const MAX_QUOTA_US: u64 = (1 << 44) - 1;
/// Controllers that the kernel knows and this machine's hierarchy does not have.
const OTHER_CONTROLLERS: [&str; 7] = ["io", "memory", "hugetlb", "pids", "rdma", "misc", "perf_event"];
/// A version 1 hierarchy. Version 2 has one for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hierarchy {
    /// cpu and cpuacct.
    Cpu,
    /// cpuset.
    Cpuset,
}

/// All groups. A name is a path without slashes at its ends; the root is the empty name.
#[derive(Clone, Debug)]
pub struct Groups {
    version: CgroupVersion,
    cpus: usize,
    nodes: usize,
    groups: BTreeMap<String, Group>,
}

impl Groups {
    /// The root alone, on a machine with so many CPUs and memory nodes.
    pub fn new(version: CgroupVersion, cpus: usize, nodes: usize) -> Self {
        let mut root = Group::new(version);
        (root.in_cpu, root.in_cpuset, root.gives_cpu, root.gives_cpuset) = (true, true, true, true);
        (root.cpus, root.mems) = ((0..cpus).collect(), (0..nodes).collect());
        Self {
            version,
            cpus,
            nodes,
            groups: BTreeMap::from([(String::new(), root)]),
        }
    }

    /// The version.
    pub fn version(&self) -> CgroupVersion {
        self.version
    }

    /// A group.
    pub fn get(&self, name: &str) -> Option<&Group> {
        self.groups.get(name)
    }

    /// A group, to be changed.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Group> {
        self.groups.get_mut(name)
    }

    /// All names, a group before its children.
    pub fn names(&self) -> Vec<String> {
        self.groups.keys().cloned().collect()
    }

    /// Whether a group exists in a hierarchy.
    pub fn is_in(&self, name: &str, hierarchy: Hierarchy) -> bool {
        self.get(name).is_some_and(|group| match hierarchy {
            Hierarchy::Cpu => group.in_cpu,
            Hierarchy::Cpuset => group.in_cpuset,
        })
    }

    /// The direct children of a group in a hierarchy, by full name.
    pub fn children(&self, name: &str, hierarchy: Hierarchy) -> Vec<String> {
        let is_child = |other: &&String| !other.is_empty() && parent(other) == name;
        self.groups
            .keys()
            .filter(is_child)
            .filter(|other| self.is_in(other, hierarchy))
            .cloned()
            .collect()
    }

    /// Makes a group in a hierarchy.
    ///
    /// # Errors
    /// EEXIST, ENOENT (no group above), EINVAL (no name), ENOSPC (too many or too deep).
    pub fn create(&mut self, name: &str, hierarchy: Hierarchy) -> Result<(), Errno> {
        if self.is_in(name, hierarchy) {
            return Err(Errno::EXIST);
        }
        let last = name.rsplit('/').next().unwrap_or_default();
        if last.is_empty() || last.len() > 128 || last.starts_with('.') || last.contains(char::is_whitespace)
        {
            return Err(Errno::INVAL);
        }
        if !self.is_in(parent(name), hierarchy) {
            return Err(Errno::NOENT);
        }
        if self.groups.len() >= MAX_GROUPS || name.split('/').count() > DEEPEST {
            return Err(Errno::NOSPC);
        }
        let version = self.version;
        let group = self
            .groups
            .entry(name.to_string())
            .or_insert_with(|| Group::new(version));
        match hierarchy {
            Hierarchy::Cpu => group.in_cpu = true,
            Hierarchy::Cpuset => group.in_cpuset = true,
        }
        Ok(())
    }

    /// Removes a group from a hierarchy; whether processes are in it is the caller's to check.
    ///
    /// # Errors
    /// ENOENT; EBUSY (the root, or it has children).
    pub fn remove(&mut self, name: &str, hierarchy: Hierarchy) -> Result<(), Errno> {
        if !self.is_in(name, hierarchy) {
            return Err(Errno::NOENT);
        }
        if name.is_empty() || !self.children(name, hierarchy).is_empty() {
            return Err(Errno::BUSY);
        }
        let group = self.groups.get_mut(name).ok_or(Errno::NOENT)?;
        match (self.version, hierarchy) {
            (CgroupVersion::V2, _) => (group.in_cpu, group.in_cpuset) = (false, false),
            (CgroupVersion::V1, Hierarchy::Cpu) => group.in_cpu = false,
            (CgroupVersion::V1, Hierarchy::Cpuset) => group.in_cpuset = false,
        }
        if !group.in_cpu && !group.in_cpuset {
            self.groups.remove(name);
        }
        Ok(())
    }

    /// Whether a controller's files are there: not at the root of version 2, nor where the group above does not give
    /// the controller to its children.
    pub fn has_controller(&self, name: &str, hierarchy: Hierarchy) -> bool {
        match (self.version, name) {
            (CgroupVersion::V1, _) => self.is_in(name, hierarchy),
            (CgroupVersion::V2, "") => false,
            (CgroupVersion::V2, _) => self.get(parent(name)).is_some_and(|above| match hierarchy {
                Hierarchy::Cpu => above.gives_cpu,
                Hierarchy::Cpuset => above.gives_cpuset,
            }),
        }
    }

    /// Sets quota and period.
    ///
    /// # Errors
    /// EINVAL: outside the kernel's bounds, under the burst, or (version 1) a share above that of a group above or below
    /// that of one below. ENOENT: no such group.
    pub fn set_bandwidth(&mut self, name: &str, quota_us: Option<u64>, period_us: u64) -> Result<(), Errno> {
        let burst_us = self.get(name).ok_or(Errno::NOENT)?.burst_us;
        if !(MIN_US..=MAX_PERIOD_US).contains(&period_us) {
            return Err(Errno::INVAL);
        }
        if quota_us.is_some_and(|quota| !(MIN_US..=MAX_QUOTA_US).contains(&quota) || burst_us > quota) {
            return Err(Errno::INVAL);
        }
        let wanted = quota_us.map(|quota| quota as f64 / period_us as f64);
        if self.version == CgroupVersion::V1 && !self.fits_v1(name, wanted) {
            return Err(Errno::INVAL);
        }
        let group = self.get_mut(name).ok_or(Errno::NOENT)?;
        (group.quota_us, group.period_us) = (quota_us, period_us);
        Ok(())
    }

    /// Version 1: no group's share may exceed that of a group above it.
    fn fits_v1(&self, name: &str, wanted: Option<f64>) -> bool {
        let Some(wanted) = wanted else { return true };
        let above = ancestors(name)
            .skip(1)
            .filter_map(|above| self.get(above)?.quota());
        let below = self
            .groups
            .iter()
            .filter(|(other, _)| is_below(other, name))
            .filter_map(|(_, group)| group.quota());
        above.fold(f64::INFINITY, f64::min) >= wanted && below.fold(0.0, f64::max) <= wanted
    }

    /// Sets the burst.
    ///
    /// # Errors
    /// EINVAL: above the quota. ENOENT: no such group.
    pub fn set_burst(&mut self, name: &str, burst_us: u64) -> Result<(), Errno> {
        let group = self.get_mut(name).ok_or(Errno::NOENT)?;
        if burst_us > group.quota_us.unwrap_or(MAX_QUOTA_US) {
            return Err(Errno::INVAL);
        }
        group.burst_us = burst_us;
        Ok(())
    }

    /// Sets the CPUs.
    ///
    /// # Errors
    /// EINVAL: no list. ERANGE: a CPU that does not exist. On version 1 also EACCES: not all of them are the group above's;
    /// EBUSY: a group below has one that is not among them; ENOSPC: none, while processes are in it.
    pub fn set_cpus(&mut self, name: &str, given: &str) -> Result<(), Errno> {
        let cpus = text::cpu_list(given, self.cpus)?;
        self.check_v1_cpuset(name, &cpus, |group| &group.cpus)?;
        self.get_mut(name).ok_or(Errno::NOENT)?.cpus = cpus;
        Ok(())
    }

    /// Sets the memory nodes.
    ///
    /// # Errors
    /// EINVAL: no list, or a node that does not exist. On version 1 as [`Groups::set_cpus`].
    pub fn set_mems(&mut self, name: &str, given: &str) -> Result<(), Errno> {
        let mems = text::cpu_list(given, self.nodes).map_err(|_| Errno::INVAL)?;
        self.check_v1_cpuset(name, &mems, |group| &group.mems)?;
        self.get_mut(name).ok_or(Errno::NOENT)?.mems = mems;
        Ok(())
    }

    fn check_v1_cpuset(
        &self,
        name: &str,
        wanted: &[usize],
        of: fn(&Group) -> &Vec<usize>,
    ) -> Result<(), Errno> {
        if self.version == CgroupVersion::V2 {
            return Ok(());
        }
        let group = self.get(name).ok_or(Errno::NOENT)?;
        let above = self.get(parent(name)).ok_or(Errno::NOENT)?;
        if !wanted.iter().all(|item| of(above).contains(item)) {
            return Err(Errno::ACCESS);
        }
        let below = self.children(name, Hierarchy::Cpuset);
        if below
            .iter()
            .filter_map(|child| self.get(child))
            .any(|child| !of(child).iter().all(|i| wanted.contains(i)))
        {
            return Err(Errno::BUSY);
        }
        if wanted.is_empty() && !group.cpuset_processes.is_empty() {
            return Err(Errno::NOSPC);
        }
        Ok(())
    }

    /// The CPUs that a group's processes may run on. On version 2 those of the group above where none of its own is left.
    /// On version 1 a cpuset without CPUs does not count, because no process can be in it.
    pub fn effective_cpus(&self, name: &str, is_online: impl Fn(usize) -> bool) -> Vec<usize> {
        let mut cpus: Vec<usize> = (0..self.cpus).filter(|cpu| is_online(*cpu)).collect();
        let mut path: Vec<&str> = ancestors(name).collect();
        path.reverse();
        for group in path
            .iter()
            .skip(1)
            .filter_map(|above| self.get(above))
            .filter(|group| group.in_cpuset)
        {
            let own: Vec<usize> = cpus
                .iter()
                .copied()
                .filter(|cpu| group.cpus.contains(cpu))
                .collect();
            if !own.is_empty() {
                cpus = own;
            }
        }
        cpus
    }

    /// The cores that a group may use: the least of its quota, those above it, and its CPUs.
    pub fn entitlement(&self, name: &str, is_online: impl Fn(usize) -> bool) -> f64 {
        let cpus = self.effective_cpus(name, is_online).len() as f64;
        ancestors(name)
            .filter_map(|above| self.get(above)?.quota())
            .fold(cpus, f64::min)
    }

    /// How much of each CPU is allocated: what the groups that hold processes, or a limit, are entitled to, spread evenly
    /// over their CPUs, and never more in a group than its own limit.
    pub fn allocation(&self, is_online: impl Fn(usize) -> bool + Copy) -> Vec<f64> {
        self.allocation_below("", is_online)
    }

    fn allocation_below(&self, name: &str, is_online: impl Fn(usize) -> bool + Copy) -> Vec<f64> {
        let mut shares = vec![0.0; self.cpus];
        let Some(group) = self.get(name) else {
            return shares;
        };
        let children = self.children(name, Hierarchy::Cpu);
        for child in &children {
            let child = self.allocation_below(child, is_online);
            shares
                .iter_mut()
                .zip(child)
                .for_each(|(share, child)| *share += child);
        }
        let limited = group.quota_us.is_some() || (!group.cpus.is_empty() && group.in_cpuset);
        let alive = group.populated || group.synthetic.is_some_and(|busy| busy > 0.0);
        if !name.is_empty() && (alive || (limited && children.is_empty())) {
            let cpus = self.effective_cpus(name, is_online);
            let each = self.entitlement(name, is_online) / cpus.len().max(1) as f64;
            cpus.iter().for_each(|cpu| shares[*cpu] += each);
        }
        shares.iter_mut().for_each(|share| *share = share.min(1.0));
        let total: f64 = shares.iter().sum();
        if let Some(quota) = group.quota().filter(|quota| *quota < total) {
            shares.iter_mut().for_each(|share| *share *= quota / total);
        }
        shares
    }

    /// The busy time of a group with all below it, microseconds.
    pub fn usage_us(&self, name: &str) -> f64 {
        let inside = |other: &&String| *other == name || is_below(other, name);
        self.groups
            .keys()
            .filter(inside)
            .filter_map(|other| self.get(other))
            .map(|group| group.own_usage_us)
            .sum()
    }

    /// Version 2: the controllers that a group has, as `cgroup.controllers` lists them.
    pub fn controllers(&self, name: &str) -> String {
        let Some(above) = self.get(if name.is_empty() { "" } else { parent(name) }) else {
            return String::new();
        };
        let all = name.is_empty();
        words([
            ("cpuset", all || above.gives_cpuset),
            ("cpu", all || above.gives_cpu),
        ])
    }

    /// Version 2: the controllers that a group's children have.
    pub fn subtree_control(&self, name: &str) -> String {
        let Some(group) = self.get(name) else {
            return String::new();
        };
        words([("cpuset", group.gives_cpuset), ("cpu", group.gives_cpu)])
    }

    /// Version 2: changes which controllers the children have.
    ///
    /// # Errors
    /// EINVAL: no such controller, or no sign before it. ENOENT: the group itself has it not. EBUSY: processes are in it, or
    /// a group below passes the controller on.
    pub fn set_subtree_control(&mut self, name: &str, given: &str, has_processes: bool) -> Result<(), Errno> {
        let group = self.get(name).ok_or(Errno::NOENT)?;
        let available = self.controllers(name);
        let (mut cpu, mut cpuset) = (group.gives_cpu, group.gives_cpuset);
        for word in given.split_whitespace() {
            let (on, controller) = match word.split_at_checked(1) {
                Some(("+", rest)) => (true, rest),
                Some(("-", rest)) => (false, rest),
                _ => return Err(Errno::INVAL),
            };
            let known = available.split(' ').any(|known| known == controller);
            match controller {
                "cpu" | "cpuset" if on && !known => return Err(Errno::NOENT),
                "cpu" => cpu = on,
                "cpuset" => cpuset = on,
                other if OTHER_CONTROLLERS.contains(&other) && on => return Err(Errno::NOENT),
                other if OTHER_CONTROLLERS.contains(&other) => {}
                _ => return Err(Errno::INVAL),
            }
        }
        let enables = (cpu && !group.gives_cpu) || (cpuset && !group.gives_cpuset);
        if enables && has_processes && !name.is_empty() {
            return Err(Errno::BUSY);
        }
        let children = self.children(name, Hierarchy::Cpu);
        let used = children
            .iter()
            .filter_map(|child| self.get(child))
            .any(|child| (child.gives_cpu && !cpu) || (child.gives_cpuset && !cpuset));
        if used {
            return Err(Errno::BUSY);
        }
        for child in children {
            if let Some(child) = self.get_mut(&child) {
                // A controller that is taken away takes its settings with it.
                if !cpu {
                    (child.quota_us, child.period_us, child.burst_us) = (None, DEFAULT_PERIOD_US, 0);
                }
                if !cpuset {
                    (child.cpus, child.mems) = (Vec::new(), Vec::new());
                }
            }
        }
        let group = self.get_mut(name).ok_or(Errno::NOENT)?;
        (group.gives_cpu, group.gives_cpuset) = (cpu, cpuset);
        Ok(())
    }

    /// Whether a process may be entered.
    ///
    /// # Errors
    /// ENOENT: no such group. EBUSY: version 2, and its children have controllers. ENOSPC: version 1's cpuset without CPUs or
    /// memory nodes.
    pub fn may_enter(&self, name: &str, hierarchy: Hierarchy) -> Result<(), Errno> {
        let group = self.get(name).ok_or(Errno::NOENT)?;
        match self.version {
            CgroupVersion::V2 if !name.is_empty() && (group.gives_cpu || group.gives_cpuset) => {
                Err(Errno::BUSY)
            }
            CgroupVersion::V1
                if hierarchy == Hierarchy::Cpuset && (group.cpus.is_empty() || group.mems.is_empty()) =>
            {
                Err(Errno::NOSPC)
            }
            _ => Ok(()),
        }
    }
}

fn words(given: [(&str, bool); 2]) -> String {
    let on: Vec<&str> = given
        .iter()
        .filter(|(_, on)| *on)
        .map(|(word, _)| *word)
        .collect();
    on.join(" ")
}

/// The group above; of the root, the root.
pub fn parent(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(above, _)| above)
}

/// The group, the one above it, and so on to the root.
fn ancestors(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| (!name.is_empty()).then(|| parent(name)))
}

fn is_below(name: &str, above: &str) -> bool {
    if above.is_empty() {
        !name.is_empty()
    } else {
        name.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
    }
}
