//! What can go wrong with the emulator itself (not what it makes go wrong on purpose: that is [`super::fault`]).

use std::io;
use std::path::PathBuf;

/// A field that describes no machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the emulated hardware's {field} is {value}: it must be {rule}")]
pub struct ConfigError {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// What it may be.
    pub rule: &'static str,
}

/// Emulated hardware that cannot be started, stopped or cleaned up.
#[derive(Debug, thiserror::Error)]
pub enum HardwareError {
    /// The configuration describes no machine.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The mount point cannot be used.
    #[error("cannot use {path} as mount point: {cause}; give an empty directory that you may write", path = path.display())]
    MountPoint {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// Another emulator serves it.
    #[error("emulated hardware is already mounted at {path}: stop that emulator first, or choose another directory", path = path.display())]
    AlreadyMounted {
        /// The directory.
        path: PathBuf,
    },
    /// The kernel refused the mount.
    #[error(
        "cannot mount the emulated hardware at {path}: {cause}; it needs /dev/fuse (modprobe fuse; in a container \
         --device /dev/fuse --cap-add SYS_ADMIN) and root, or for another user fusermount3 (apt install fuse3) with \
         user_allow_other in /etc/fuse.conf",
        path = path.display()
    )]
    Mount {
        /// The directory.
        path: PathBuf,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// It could not be unmounted.
    #[error("cannot unmount {path}: {cause}; try: umount -l {path}", path = path.display())]
    Unmount {
        /// The directory.
        path: PathBuf,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// A real control group cannot be used.
    #[error("cannot {action} {path}: {cause}; {remedy}", path = path.display())]
    RealCgroup {
        /// What was tried.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The kernel's answer.
        cause: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// This machine has no cpu controller to slow a service with.
    #[error(
        "no mounted cgroup hierarchy has the cpu controller (looked in {looked_at}), so a cap could not slow anything: \
         mount one, or start the emulator without real control groups, which emulates figures only",
        looked_at = looked_at.display()
    )]
    NoCpuController {
        /// Where the mounts were looked up.
        looked_at: PathBuf,
    },
    /// The record of what was changed cannot be kept or used.
    #[error("cannot {action} the emulator's undo record {path}: {cause}; {remedy}", path = path.display())]
    Record {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// The emulator that wrote the record still runs.
    #[error(
        "the emulator with process {pid} still runs and holds {path}: stop it (kill {pid}) before its control groups are \
         restored by another",
        path = path.display()
    )]
    StillRuns {
        /// Its process.
        pid: u32,
        /// The record.
        path: PathBuf,
    },
    /// A fault that is not understood.
    #[error(transparent)]
    Fault(#[from] super::fault::FaultError),
    /// Something that the emulated machine does not have.
    #[error("the emulated machine has no {what} \"{name}\"; it has {has}")]
    NoSuch {
        /// What kind of thing.
        what: &'static str,
        /// What was asked for.
        name: String,
        /// What there is.
        has: String,
    },
    /// A thread could not be started.
    #[error("cannot start the emulator's clock: {0}")]
    Thread(io::Error),
}
