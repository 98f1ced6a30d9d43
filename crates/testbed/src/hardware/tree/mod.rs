//! The tree of files: what is where, what it reads, what writing it does and with which error. Pure; the FUSE shell
//! only passes requests on.

mod cgroup;
mod cpu;
mod own;
mod powercap;

use super::fault::{Fault, Operation};
use super::world::World;
use rustix::io::Errno;

/// The directory that is not of the kernel's making: control, truth and `/proc`.
pub const OWN_DIR: &str = "headroom-testbed";

/// What stands at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A directory.
    Dir,
    /// A file with its mode bits.
    File(u16),
    /// A symbolic link and where it leads.
    Link(String),
}

/// Names in a directory and what they are.
pub type Entries = Vec<(String, Node)>;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user.
    pub uid: u32,
    /// The thread, as its number on this machine.
    pub pid: u32,
}

impl Caller {
    fn is_root(self) -> bool {
        self.uid == 0
    }

    /// The process of the thread that asks: FUSE names the thread, control groups hold processes.
    fn process(self) -> u32 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let group = status
            .lines()
            .find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
        group.unwrap_or(self.pid)
    }
}

fn dir(name: impl Into<String>) -> (String, Node) {
    (name.into(), Node::Dir)
}

fn file(name: impl Into<String>, mode: u16) -> (String, Node) {
    (name.into(), Node::File(mode))
}

fn link(name: impl Into<String>, target: impl Into<String>) -> (String, Node) {
    (name.into(), Node::Link(target.into()))
}

fn files(of: &[(&str, u16)]) -> Entries {
    of.iter().map(|(name, mode)| file(*name, *mode)).collect()
}

/// What a file's text is on the way in: the kernel hands at most a page on, and text only.
fn as_text(data: &[u8]) -> Result<&str, Errno> {
    if data.len() > 4096 {
        return Err(Errno::INVAL);
    }
    std::str::from_utf8(data).map_err(|_| Errno::INVAL)
}

fn is_own(path: &[&str]) -> bool {
    path.first() == Some(&OWN_DIR)
}

impl World {
    fn struck(&self, path: &[&str], strikes: impl Fn(&Fault) -> bool) -> bool {
        !is_own(path) && self.faults.iter().any(|active| strikes(&active.fault))
    }

    /// Not there because of a fault.
    fn is_gone(&self, path: &[&str]) -> bool {
        self.struck(path, |fault| match fault {
            Fault::Vanished(files) => files.covers(path),
            Fault::Emptied(files) => !path.is_empty() && files.covers(&path[..path.len() - 1]),
            _ => false,
        })
    }

    fn error_on(&self, on: Operation, path: &[&str]) -> Result<(), Errno> {
        let hit = |fault: &Fault| match fault {
            Fault::Error {
                on: when,
                errno,
                files,
            } if *when == on && files.matches(path) => Some(*errno),
            _ => None,
        };
        match self
            .faults
            .iter()
            .filter(|_| !is_own(path))
            .find_map(|active| hit(&active.fault))
        {
            Some(errno) => Err(errno),
            None => Ok(()),
        }
    }

    /// EBUSY for a policy whose CPUs are offline, by a fault or by hotplug.
    fn check_policy(&self, path: &[&str]) -> Result<(), Errno> {
        let ["devices", "system", "cpu", "cpufreq", name, _] = path else {
            return Ok(());
        };
        let online = self.machine.freq.policies.iter().any(|policy| {
            format!("policy{}", policy.first) == **name
                && (policy.first..policy.first + policy.count).any(|cpu| self.machine.is_online(cpu))
        });
        let inactive = self.struck(
            path,
            |fault| matches!(fault, Fault::Inactive(policy) if policy == name),
        );
        if name.starts_with("policy") && (inactive || !online) {
            Err(Errno::BUSY)
        } else {
            Ok(())
        }
    }

    /// What is at a path.
    pub fn node(&self, path: &[&str]) -> Option<Node> {
        if self.is_gone(path) {
            return None;
        }
        match path {
            [] => Some(Node::Dir),
            [OWN_DIR, ..] => own::node(self, path),
            [above @ .., name] => self
                .entries(above)?
                .into_iter()
                .find(|(known, _)| known == name)
                .map(|(_, node)| node),
        }
    }

    /// What a directory holds; nothing where it is none.
    pub fn list(&self, path: &[&str]) -> Option<Entries> {
        if self.is_gone(path) {
            return None;
        }
        let mut entries = self.entries(path)?;
        entries.retain(|(name, _)| {
            let mut below = path.to_vec();
            below.push(name);
            !self.is_gone(&below)
        });
        Some(entries)
    }

    fn entries(&self, path: &[&str]) -> Option<Entries> {
        match path {
            [] => Some(vec![dir("class"), dir("devices"), dir("fs"), dir(OWN_DIR)]),
            ["class", ..] | ["devices", "virtual" | "platform", ..] => powercap::entries(self, path),
            ["devices"] => {
                let mut all = vec![dir("system"), dir("virtual")];
                if self.machine.hsmp_uw(0).is_some() {
                    all.push(dir("platform"));
                }
                Some(all)
            }
            ["devices", "system", ..] => cpu::entries(self, path),
            ["fs", ..] => cgroup::entries(self, path),
            [OWN_DIR, ..] => own::entries(self, path),
            _ => None,
        }
    }

    /// Whether a file may be opened so.
    ///
    /// # Errors
    /// ENOENT; EROFS and any error on opening that a fault brings; EACCES for a user whom the mode does not allow it, and,
    /// as on sysfs, for root too where the mode allows nobody.
    pub fn open(&self, path: &[&str], read: bool, write: bool, caller: Caller) -> Result<(), Errno> {
        let Some(Node::File(mode)) = self.node(path) else {
            return Err(Errno::NOENT);
        };
        if write && self.struck(path, |fault| *fault == Fault::ReadOnly) {
            return Err(Errno::ROFS);
        }
        self.error_on(Operation::Open, path)?;
        let allowed = |bits: u16, others: u16| mode & bits != 0 && (caller.is_root() || mode & others != 0);
        if (read && !allowed(0o444, 0o004)) || (write && !allowed(0o222, 0o002)) {
            return Err(Errno::ACCESS);
        }
        Ok(())
    }

    /// What access(2) answers: as the kernel does it, root passes whatever the mode says.
    ///
    /// # Errors
    /// ENOENT, EACCES, EROFS.
    pub fn access(&self, path: &[&str], read: bool, write: bool, caller: Caller) -> Result<(), Errno> {
        let node = self.node(path).ok_or(Errno::NOENT)?;
        if write && self.struck(path, |fault| *fault == Fault::ReadOnly) {
            return Err(Errno::ROFS);
        }
        let mode = match node {
            Node::Dir => 0o755,
            Node::File(mode) => mode,
            Node::Link(_) => 0o777,
        };
        let allowed = caller.is_root() || ((!read || mode & 0o004 != 0) && (!write || mode & 0o002 != 0));
        if allowed { Ok(()) } else { Err(Errno::ACCESS) }
    }

    /// The text of a file, with its newline.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn read(&self, path: &[&str], caller: Caller) -> Result<String, Errno> {
        if self.is_gone(path) {
            return Err(Errno::NODEV);
        }
        self.error_on(Operation::Read, path)?;
        self.check_policy(path)?;
        let lies = self.faults.iter().find_map(|active| match &active.fault {
            Fault::Reads { files, text } if !is_own(path) && files.matches(path) => Some(text.clone()),
            _ => None,
        });
        let mut text = match (lies, path) {
            (Some(text), _) => text,
            (None, ["class", ..] | ["devices", "virtual" | "platform", ..]) => powercap::read(self, path)?,
            (None, ["devices", "system", ..]) => cpu::read(self, path)?,
            (None, ["fs", ..]) => cgroup::read(self, path)?,
            (None, [OWN_DIR, ..]) => own::read(self, path, caller)?,
            _ => return Err(Errno::NOENT),
        };
        // cgroup.procs and its like are empty when there is nothing to list.
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        Ok(text)
    }

    /// Writes a file: one call, one value.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn write(&mut self, path: &[&str], data: &[u8], caller: Caller) -> Result<(), Errno> {
        if self.is_gone(path) {
            return Err(Errno::NODEV);
        }
        self.error_on(Operation::Write, path)?;
        self.check_policy(path)?;
        let text = as_text(data)?;
        match path {
            ["class", ..] | ["devices", "virtual" | "platform", ..] => powercap::write(self, path, text),
            ["devices", "system", ..] => cpu::write(self, path, text),
            ["fs", ..] => cgroup::write(self, path, text, caller),
            [OWN_DIR, ..] => own::write(self, path, text),
            _ => Err(Errno::NOENT),
        }
    }

    /// Makes a directory: only control groups can be made.
    ///
    /// # Errors
    /// EPERM outside the control groups, EACCES for another user than root, EROFS, and what the kernel answers.
    pub fn mkdir(&mut self, path: &[&str], caller: Caller) -> Result<(), Errno> {
        self.may_change_dirs(path, caller)?;
        cgroup::mkdir(self, path)
    }

    /// Removes a directory: only control groups can be removed.
    ///
    /// # Errors
    /// As [`World::mkdir`].
    pub fn rmdir(&mut self, path: &[&str], caller: Caller) -> Result<(), Errno> {
        self.may_change_dirs(path, caller)?;
        cgroup::rmdir(self, path)
    }

    fn may_change_dirs(&self, path: &[&str], caller: Caller) -> Result<(), Errno> {
        if self.struck(path, |fault| *fault == Fault::ReadOnly) {
            return Err(Errno::ROFS);
        }
        if !path.starts_with(&["fs", "cgroup"]) {
            return Err(Errno::PERM);
        }
        if !caller.is_root() {
            return Err(Errno::ACCESS);
        }
        self.error_on(Operation::Write, path)
    }

    /// The fault that freezes a zone's counter, with what it stood at.
    fn frozen_uj(&self, zone: &str) -> Option<u64> {
        let hit = |fault: &Fault| matches!(fault, Fault::Frozen(frozen) if frozen == zone);
        self.faults
            .iter()
            .find(|active| hit(&active.fault))
            .and_then(|active| active.frozen_uj)
    }
}
