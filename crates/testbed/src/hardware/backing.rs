//! What stands behind the emulated control groups: real ones (see [`super::real`]), or nothing but a list of processes.

use super::error::HardwareError;
use super::record::Recovered;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What a real group did since it was sampled last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Real CPU time of it and all below it, seconds.
    pub used_s: f64,
    /// The real cores it was limited to in that time.
    pub share: f64,
    /// Quota periods, those of them in which it was throttled, and for how long (seconds).
    pub periods: u64,
    /// See `periods`.
    pub throttled_periods: u64,
    /// See `periods`.
    pub throttled_s: f64,
}

/// What stands behind the emulated groups. A name is a path without slashes at its ends; the root is the empty name.
pub trait Backing: Send {
    /// One line that says what it is.
    fn describe(&self) -> String;

    /// Makes a group.
    ///
    /// # Errors
    /// The kernel's.
    fn create(&mut self, name: &str) -> Result<(), Errno>;

    /// Removes a group.
    ///
    /// # Errors
    /// The kernel's; EBUSY while processes are in it.
    fn remove(&mut self, name: &str) -> Result<(), Errno>;

    /// The processes of a group.
    ///
    /// # Errors
    /// The kernel's.
    fn processes(&self, name: &str) -> Result<Vec<u32>, Errno>;

    /// Moves a process into a group.
    ///
    /// # Errors
    /// The kernel's; ESRCH where there is no such process.
    fn enter(&mut self, name: &str, pid: u32) -> Result<(), Errno>;

    /// The emulated group that a process is in; nothing where there is no such process.
    fn group_of(&self, pid: u32) -> Option<String>;

    /// What a group did since the last call; nothing where nothing real is behind it.
    fn sample(&mut self, _name: &str) -> Option<Sample> {
        None
    }

    /// Limits each group to so many real cores; the root's entry is the whole machine's.
    fn apply(&mut self, _shares: &[(String, f64)]) {}

    /// Puts everything real back; called once.
    ///
    /// # Errors
    /// [`HardwareError`]: the kernel refuses. The record then stays, for [`super::recover`].
    fn close(&mut self) -> Result<Recovered, HardwareError> {
        Ok(Recovered::default())
    }
}

/// No real control groups: processes are written down and nothing is slowed. For figures, errors and tests only.
#[derive(Debug, Default)]
pub struct Paper {
    groups: BTreeMap<String, BTreeSet<u32>>,
}

fn exists(pid: u32) -> bool {
    pid != 0 && Path::new(&format!("/proc/{pid}")).exists()
}

impl Backing for Paper {
    fn describe(&self) -> String {
        "no real control groups: nothing is slowed".into()
    }

    fn create(&mut self, name: &str) -> Result<(), Errno> {
        self.groups.entry(name.into()).or_default();
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Result<(), Errno> {
        if !self.processes(name)?.is_empty() {
            return Err(Errno::BUSY);
        }
        self.groups.remove(name);
        Ok(())
    }

    fn processes(&self, name: &str) -> Result<Vec<u32>, Errno> {
        let pids = self.groups.get(name).into_iter().flatten().copied();
        Ok(pids.filter(|pid| exists(*pid)).collect())
    }

    fn enter(&mut self, name: &str, pid: u32) -> Result<(), Errno> {
        if !exists(pid) {
            return Err(Errno::SRCH);
        }
        for pids in self.groups.values_mut() {
            pids.remove(&pid);
            pids.retain(|pid| exists(*pid));
        }
        if !name.is_empty() {
            self.groups.entry(name.into()).or_default().insert(pid);
        }
        Ok(())
    }

    fn group_of(&self, pid: u32) -> Option<String> {
        let group = self
            .groups
            .iter()
            .find(|(_, pids)| pids.contains(&pid))
            .map(|(name, _)| name.clone());
        exists(pid).then(|| group.unwrap_or_default())
    }
}
