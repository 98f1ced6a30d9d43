//! Control groups: which hierarchies there are ([`mounts`]), which group is a service's ([`target`]), and a fresh
//! one where there is none ([`scope`]). Versions 1 and 2, and machines that have both.

mod find;
pub mod mounts;
pub mod scope;
pub mod target;

pub use mounts::{Hierarchies, Version};
pub use scope::{CgroupScope, ScopeOptions};
pub use target::{CpusetDir, Target, TargetSpec, UsageFile};

pub(crate) use target::cpu_dir_of;

use crate::file::FileError;
use std::fmt;
use std::path::PathBuf;

/// A control group that cannot be found, used or made.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// A file of the kernel could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// No hierarchy is mounted.
    #[error(
        "{mountinfo} shows no mounted cgroup file system: mount one (mount -t cgroup2 none /sys/fs/cgroup), or in a \
         container pass the host's /sys/fs/cgroup in", mountinfo = mountinfo.display()
    )]
    NoCgroups {
        /// Where the mounts were looked up.
        mountinfo: PathBuf,
    },
    /// No mounted hierarchy has the controller.
    #[error(
        "no mounted cgroup hierarchy has the {controller} controller (mounted: {mounted}): boot without \
         cgroup_disable={controller}, and mount the hierarchy that has it"
    )]
    NoController {
        /// The controller.
        controller: &'static str,
        /// What is mounted.
        mounted: String,
    },
    /// Nothing by that name.
    #[error("{what} does not exist (looked at {looked_at}): {remedy}", looked_at = List(looked_at))]
    NotFound {
        /// What was asked for.
        what: String,
        /// The places looked at.
        looked_at: Vec<String>,
        /// What to do.
        remedy: String,
    },
    /// Several by that name.
    #[error("{what} is ambiguous: it matches {matches}: give more of it, or the cgroup's path", matches = List(matches))]
    Ambiguous {
        /// What was asked for.
        what: String,
        /// What it could mean.
        matches: Vec<String>,
    },
    /// The group is the root, which holds the whole machine.
    #[error(
        "{what} is in the root cgroup of {controller} ({group}), and a limit there would be one on the whole \
         machine: put the service in a cgroup of its own (run it as a systemd unit with CPUAccounting=yes, in a \
         container, or make a group and move it: mkdir {example} && echo PID > {example}/cgroup.procs{})",
        counting.as_ref().map_or_else(String::new, |dir| format!("; and, for its CPU time to be counted, mkdir {dir} && echo PID > {dir}/cgroup.procs"))
    )]
    Root {
        /// What was asked for.
        what: String,
        /// The controller whose root it is.
        controller: &'static str,
        /// The directory.
        group: String,
        /// A group that could be made.
        example: String,
        /// The group that counts its CPU time, where that hierarchy is mounted apart (version 1).
        counting: Option<String>,
    },
    /// The process's group lies outside what this mount shows (a container with its own cgroup namespace).
    #[error(
        "{what} is in cgroup {group}, which lies outside the part of the hierarchy that is mounted at {point}: run on \
         the host, or in a container with the host's cgroup namespace",
        point = point.display()
    )]
    Outside {
        /// What was asked for.
        what: String,
        /// The group that /proc names.
        group: String,
        /// The mount point.
        point: PathBuf,
    },
    /// Version 2: the group is there but the controller is not enabled for it.
    #[error(
        "the {controller} controller is off in {dir}: enable it with: echo +{controller} > {subtree} (for a systemd \
         unit: systemctl set-property UNIT CPUWeight=100, which makes systemd enable it)",
        dir = dir.display(), subtree = subtree.display()
    )]
    ControllerOff {
        /// The controller.
        controller: &'static str,
        /// The group.
        dir: PathBuf,
        /// The file that enables it.
        subtree: PathBuf,
    },
    /// What was given is not a target.
    #[error(
        "\"{given}\" is no target: {why}; a target is cgroup:/PATH, unit:NAME, container:ID or pid:NUMBER"
    )]
    BadSpec {
        /// What was given.
        given: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// What was given is not a name for a group.
    #[error("\"{given}\" is no name for a cgroup: use 1 to 64 letters, digits, '-' and '_'")]
    BadName {
        /// What was given.
        given: String,
    },
    /// The undo record could not be kept, so nothing was changed.
    #[error(transparent)]
    Restore(#[from] crate::restore::RestoreError),
}

/// At most twelve items of a list, for messages.
struct List<'a>(&'a [String]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 12;
        let shown: Vec<&str> = self.0.iter().take(SHOWN).map(String::as_str).collect();
        f.write_str(&shown.join(", "))?;
        match self.0.len().checked_sub(SHOWN) {
            Some(more) if more > 0 => write!(f, " and {more} more"),
            _ => Ok(()),
        }
    }
}
