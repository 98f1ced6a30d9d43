//! The cores of a service: how many it may use ([`quota`]), which ones ([`cpuset`]), what it used and how it was
//! throttled ([`usage`]), and that as a share of what it could have used ([`group`]).

pub mod cpuset;
pub mod group;
pub mod list;
pub mod quota;
pub mod usage;
pub(crate) mod work;

pub use cpuset::CpusetActuator;
pub use group::{GroupMeter, GroupUsage};
pub use list::CpuList;
pub(crate) use quota::allowance;
pub use quota::{InForce, QuotaActuator, QuotaBounds, QuotaOptions};
pub use usage::{UsageMeter, UsageSample};

pub use crate::panel::{ForeignWrite, NotInForce};

use crate::cgroup::{Hierarchies, Target};
use crate::file::{self, FileError};
use crate::panel::PanelError;
use crate::restore::RestoreError;
use crate::{Roots, cgroup::Version};
use headroom_units::{Cores, Seconds};
use std::path::{Path, PathBuf};

impl From<PanelError> for CpuError {
    fn from(error: PanelError) -> Self {
        match error {
            PanelError::File(error) => Self::File(error),
            PanelError::Restore(error) => Self::Restore(error),
            PanelError::NotInForce(error) => Self::NotInForce(error),
        }
    }
}

/// A limit on cores that cannot be set, or usage that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CpuError {
    /// A file of the kernel could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file of the kernel holds something that is not understood.
    #[error("{path} holds \"{text}\", which is not {expected}: this kernel's format is not known", path = path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Its contents, shortened.
        text: String,
        /// What was expected.
        expected: &'static str,
    },
    /// It could not be undone, so it was not done.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// A number of cores that is none.
    #[error("{asked} cannot be granted: give a number of cores above zero")]
    NotCores {
        /// What was asked for.
        asked: Cores,
    },
    /// A quota period that the kernel does not accept.
    #[error("a quota period of {} ms cannot be set: the kernel takes 1 ms to 1000 ms", asked.as_millis())]
    Period {
        /// What was asked for.
        asked: Seconds,
    },
    /// A group above is limited to less than the smallest quota here.
    #[error(
        "{dir} is limited to {limit:.4}, less than the smallest quota of a group below it at this period, {smallest:.4}: \
         lengthen the period, or raise the limit there", dir = dir.display()
    )]
    NoRoom {
        /// The group whose limit it is.
        dir: PathBuf,
        /// That limit.
        limit: Cores,
        /// The smallest quota at the period that was asked for.
        smallest: Cores,
    },
    /// The kernel accepted a value but shows another.
    #[error(transparent)]
    NotInForce(#[from] NotInForce),
    /// CPUs that the group may not use.
    #[error(
        "CPUs {asked} cannot be given to {dir}: it may use {allowed}; {missing} is not among them (see {source_file})",
        dir = dir.display(), source_file = source_file.display()
    )]
    NotAllowed {
        /// The group.
        dir: PathBuf,
        /// What was asked for.
        asked: CpuList,
        /// What may be used.
        allowed: CpuList,
        /// What is asked for and may not be used.
        missing: CpuList,
        /// Where the allowed CPUs are listed.
        source_file: PathBuf,
    },
    /// Text that is no list of CPUs.
    #[error("\"{text}\" is no list of CPUs: write it as 0-3,8")]
    NotAList {
        /// The text, shortened.
        text: String,
    },
    /// The group has no cpuset of its own.
    #[error(
        "{target} has no group of its own under the cpuset controller, so its CPUs cannot be chosen: limit it by quota, \
         or give it one (version 2: echo +cpuset > the parent's cgroup.subtree_control; version 1: mkdir under the \
         cpuset mount, set cpuset.cpus and cpuset.mems, move its processes there)"
    )]
    NoCpuset {
        /// The target.
        target: String,
    },
    /// The group was there and is not now.
    #[error(
        "{target} is gone: {dir} is not there; start the service again, and what follows is counted anew",
        dir = dir.display()
    )]
    Gone {
        /// The target.
        target: String,
        /// Its directory.
        dir: PathBuf,
    },
    /// The group's CPU time is not counted.
    #[error("the CPU time of {target} is not counted by any mounted hierarchy: {remedy}")]
    NoUsage {
        /// The target.
        target: String,
        /// What to do.
        remedy: String,
    },
}

impl CpuError {
    /// Of a target without a file that counts its CPU time.
    fn not_counted(roots: &Roots, target: &Target) -> Self {
        let counting = Hierarchies::read(roots).ok();
        let counting = counting.as_ref().and_then(|mounted| mounted.v1("cpuacct"));
        let below = target.cpu_dir.strip_prefix(&target.cpu_root);
        let remedy = match (counting, below) {
            (Some(mount), Ok(below)) => format!(
                "mkdir {dir}, and move its processes there (write each number of {cpu}/cgroup.procs to {dir}/cgroup.procs)",
                dir = mount.point.join(below).display(),
                cpu = target.cpu_dir.display()
            ),
            _ => "mount the cpuacct controller (mount -t cgroup -o cpuacct none /sys/fs/cgroup/cpuacct), and make a group \
                  of the same path there"
                .into(),
        };
        Self::NoUsage {
            target: target.name.clone(),
            remedy,
        }
    }
}

/// The CPUs that are online.
///
/// # Errors
/// [`CpuError`] where `sys/devices/system/cpu/online` cannot be read or understood.
pub fn online(roots: &Roots) -> Result<CpuList, CpuError> {
    let path = roots.sys("devices/system/cpu/online");
    file::read(&path)?.parse()
}

/// The CPUs that a target's processes may run on now: its cpuset where it has one, else all that are online.
///
/// # Errors
/// [`CpuError`] where neither can be read.
pub fn effective(roots: &Roots, target: &Target) -> Result<CpuList, CpuError> {
    let online = online(roots)?;
    let Some(cpuset) = &target.cpuset else {
        return Ok(online);
    };
    let Some(cpus) = effective_at(&cpuset.dir, &cpuset.root, cpuset.version)? else {
        return Ok(online);
    };
    let both = cpus.intersection(&online);
    Ok(if both.is_empty() { online } else { both })
}

/// The effective CPUs of a cpuset group: of itself, or of the nearest ancestor that says so.
fn effective_at(dir: &Path, root: &Path, version: Version) -> Result<Option<CpuList>, CpuError> {
    let names: &[&str] = match version {
        Version::V1 => &["cpuset.effective_cpus", "cpuset.cpus"],
        Version::V2 => &["cpuset.cpus.effective"],
    };
    for dir in dir.ancestors().take_while(|dir| dir.starts_with(root)) {
        for name in names {
            if let Some(text) = file::read_if_there(&dir.join(name))?
                && !text.is_empty()
            {
                return text.parse().map(Some);
            }
        }
    }
    Ok(None)
}
