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
    pub rule: String,
}

/// Emulated hardware that cannot be started, stopped or cleaned up.
#[derive(Debug, thiserror::Error)]
pub enum HardwareError {
    /// The configuration describes no machine.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file, a directory or a control group cannot be used.
    #[error("cannot {action} {path}: {cause}; {remedy}", path = path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        cause: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// Another emulator serves it.
    #[error("emulated hardware is already mounted at {path}: stop that emulator first, or choose another directory", path = path.display())]
    AlreadyMounted {
        /// The directory.
        path: PathBuf,
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
