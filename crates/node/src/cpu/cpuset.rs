//! Which CPUs a group may run on: whole cores, chosen among those it may use.

use super::list::CpuList;
use super::{CpuError, effective_at, online};
use crate::cgroup::{CpusetDir, Target, Version};
use crate::panel::{ForeignWrite, Panel, in_order};
use crate::restore::{Outcome, Registry};
use crate::{Roots, file};
use headroom_units::Cores;
use std::collections::HashMap;
use std::path::PathBuf;

/// Chooses the CPUs of one group, and puts back what it found.
#[derive(Debug)]
pub struct CpusetActuator {
    roots: Roots,
    cpuset: CpusetDir,
    panel: Panel,
    /// The CPUs in the order in which they are taken.
    order: Vec<u32>,
}

/// What was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The CPUs, as read back.
    pub cpus: CpuList,
    /// Somebody else had changed them since our last write.
    pub foreign: Option<ForeignWrite>,
}

impl CpusetActuator {
    /// Reads what is in force and checks that it may be changed. Writes nothing.
    ///
    /// # Errors
    /// [`CpuError`]: the group has no cpuset, or its files cannot be read or written.
    pub fn open(roots: &Roots, target: &Target, registry: &Registry) -> Result<Self, CpuError> {
        let cpuset = target.cpuset.clone().ok_or_else(|| CpuError::NoCpuset {
            target: target.name.clone(),
        })?;
        let path = cpuset.dir.join("cpuset.cpus");
        let what = format!("the CPUs of {} ({})", target.name, cpuset.dir.display());
        let panel = Panel::of_one(registry, what, vec![path], in_order, room)?;
        let order = order(roots, &online(roots)?);
        Ok(Self {
            roots: roots.clone(),
            cpuset,
            panel,
            order,
        })
    }

    /// The CPUs that may be given: those of the group above it, or all that are online. A limit on the group itself
    /// that was found before does not count, as it is this that is being set.
    ///
    /// # Errors
    /// [`CpuError`] where they cannot be read.
    pub fn allowed(&self) -> Result<CpuList, CpuError> {
        let online = online(&self.roots)?;
        let above = self.cpuset.dir.parent().unwrap_or(&self.cpuset.dir);
        let above = effective_at(above, &self.cpuset.root, self.cpuset.version)?;
        Ok(above.map_or_else(|| online.clone(), |cpus| cpus.intersection(&online)))
    }

    /// Gives so many whole cores: the number is rounded up, and bounded to at least one and at most all allowed.
    /// CPUs that the group has already are kept first, for their warm caches; further ones are taken one hardware
    /// thread of each core first, package by package, so that a second package stays asleep as long as it can.
    ///
    /// # Errors
    /// [`CpuError`]: not a positive number; the group is gone or may not be changed.
    pub fn set(&mut self, cores: Cores) -> Result<Chosen, CpuError> {
        if cores.get().is_nan() || cores <= Cores::ZERO {
            return Err(CpuError::NotCores { asked: cores });
        }
        let allowed = self.allowed()?;
        let count = (cores.get().ceil() as usize).clamp(1, allowed.len().max(1));
        let present: CpuList = self.panel.last(0)[0].parse().unwrap_or_default();
        self.set_list(&choose(&self.order, &allowed, &present, count))
    }

    /// Gives exactly these CPUs.
    ///
    /// # Errors
    /// [`CpuError::NotAllowed`] where one of them does not exist or may not be used; [`CpuError::NotCores`] for none.
    pub fn set_list(&mut self, cpus: &CpuList) -> Result<Chosen, CpuError> {
        if cpus.is_empty() {
            return Err(CpuError::NotCores { asked: Cores::ZERO });
        }
        let foreign = self.panel.foreign_writes(0)?;
        let allowed = self.allowed()?;
        let missing = cpus.difference(&allowed);
        if !missing.is_empty() {
            return Err(CpuError::NotAllowed {
                dir: self.cpuset.dir.clone(),
                asked: cpus.clone(),
                allowed,
                missing,
                source_file: self.allowed_file(),
            });
        }
        let value = cpus.to_string();
        if self.panel.last(0)[0] != value && !self.panel.is_held(0) {
            self.panel.write_all(&[self.panel.change(0, vec![value])])?;
        }
        Ok(Chosen {
            cpus: self.panel.last(0)[0].parse()?,
            foreign,
        })
    }

    fn allowed_file(&self) -> PathBuf {
        let above = self.cpuset.dir.parent().unwrap_or(&self.cpuset.dir);
        above.join(match self.cpuset.version {
            Version::V1 => "cpuset.effective_cpus",
            Version::V2 => "cpuset.cpus.effective",
        })
    }

    /// Puts back what was found, now; later writes fail.
    pub fn restore(&mut self) -> Option<Outcome> {
        self.panel.restore()
    }
}

fn room(values: &[String]) -> f64 {
    values
        .first()
        .and_then(|text| text.parse::<CpuList>().ok())
        .map_or(f64::NAN, |cpus| cpus.len() as f64)
}

/// The CPUs to give: present ones first, then in order.
fn choose(order: &[u32], allowed: &CpuList, present: &CpuList, count: usize) -> CpuList {
    let usable = |cpu: &&u32| allowed.contains(**cpu);
    let kept = order.iter().filter(usable).filter(|cpu| present.contains(**cpu));
    let more = order.iter().filter(usable).filter(|cpu| !present.contains(**cpu));
    kept.chain(more).copied().take(count).collect()
}

/// CPUs sorted by package, then by which hardware thread of their core they are, then by number. A machine without a
/// topology directory is taken as one package of single-threaded cores.
fn order(roots: &Roots, cpus: &CpuList) -> Vec<u32> {
    let topology = |cpu: u32, name: &str| {
        file::read(&roots.sys(format!("devices/system/cpu/cpu{cpu}/topology/{name}"))).ok()
    };
    let mut threads_seen: HashMap<(i64, i64), u32> = HashMap::new();
    let mut keyed: Vec<(i64, u32, u32)> = cpus
        .iter()
        .map(|cpu| {
            let number = |name| topology(cpu, name).and_then(|text| text.parse::<i64>().ok());
            let package = number("physical_package_id").unwrap_or(0);
            let core = number("core_id").unwrap_or_else(|| i64::from(cpu));
            let seen = threads_seen.entry((package, core)).or_default();
            let thread = *seen;
            *seen += 1;
            (package, thread, cpu)
        })
        .collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, _, cpu)| cpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn one_thread_of_each_core_is_taken_first_and_one_package_before_the_next() {
        let dir = tempfile::tempdir().unwrap();
        // Two packages of two cores of two threads; siblings are n and n + 4.
        for cpu in 0..8u32 {
            let topology = dir.path().join(format!("devices/system/cpu/cpu{cpu}/topology"));
            fs::create_dir_all(&topology).unwrap();
            fs::write(
                topology.join("physical_package_id"),
                format!("{}\n", (cpu % 4) / 2),
            )
            .unwrap();
            fs::write(topology.join("core_id"), format!("{}\n", cpu % 2)).unwrap();
        }
        let cpus: CpuList = (0..8).collect();
        assert_eq!(
            order(&Roots::at(dir.path(), dir.path()), &cpus),
            [0, 1, 4, 5, 2, 3, 6, 7]
        );
        assert_eq!(
            order(&Roots::at("/nowhere", "/nowhere"), &"0-2".parse().unwrap()),
            [0, 1, 2]
        );
    }

    #[test]
    fn present_cpus_are_kept_and_forbidden_ones_never_taken() {
        let list = |text: &str| text.parse::<CpuList>().unwrap();
        let order = [0, 1, 4, 5, 2, 3];
        assert_eq!(choose(&order, &list("0-5"), &list("5"), 3), list("0-1,5"));
        assert_eq!(choose(&order, &list("2-3"), &list("0-5"), 2), list("2-3"));
        assert_eq!(choose(&order, &list("0-5"), &list("0-5"), 2), list("0-1"));
    }
}
