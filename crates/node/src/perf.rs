//! What a program and all that it starts has done since its start: instructions, context switches, CPU time, migrations.
//!
//! [`Counters`] has the kernel count (perf_event_open(2)), from the program's first instruction on: the events are opened,
//! switched off, on the thread that is about to spawn it, are inherited by the child, and are switched on in the child by its
//! execve(2) (`inherit`, `enable_on_exec`). Nothing of the spawning process is counted, nor what the child does before its
//! execve. Processes and threads that the program starts inherit the events, and a reading sums those that ended and those
//! that still run.
//!
//! [`TreeCounters`] is what remains where the kernel does not let it: files of `/proc`, without instructions.
//!
//! ```no_run
//! use headroom_node::perf::Counters;
//! use std::process::Command;
//!
//! let (mut counters, server) = Counters::around(|| Command::new("mariadbd").spawn())?;
//! let mut server = server?;
//! let counts = counters.read()?;
//! println!("{:?} instructions, missing: {:?}", counts.instructions, counters.missing());
//! # server.kill()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod event;
mod tree;

pub use event::{Ahead, Counters, Missing};
pub use tree::{TreeCounters, tree_of};

use crate::file::FileError;
use headroom_units::{Ratio, Seconds};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;

/// What counts were read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CountSource {
    /// The kernel's events, from the program's start on.
    Perf,
    /// Files of `/proc`, of a program's processes as they were when they were read.
    Proc,
}

impl CountSource {
    /// What it is and what it does not count, in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Perf => "the kernel's events (perf_event_open), from the program's start on",
            Self::Proc => {
                "files of /proc: no instructions and no migrations; context switches of a thread between the last reading \
                 and its end are missing"
            }
        }
    }
}

impl fmt::Display for CountSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Perf => "perf",
            Self::Proc => "proc",
        })
    }
}

/// Counts since the program's start. What is not counted is nothing, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// What they were read from.
    pub source: CountSource,
    /// Instructions of all threads. Where other users of the processor's counters leave them to this event for a part of the
    /// time, what that part had is taken to hold for all of it: [`Self::counted_share`].
    pub instructions: Option<u64>,
    /// Whether the instructions are the program's own alone, without those of the kernel on its behalf: the kernel lets this
    /// user count no more.
    pub user_only: bool,
    /// The share of the threads' time for which instructions were counted; 1 unless the processor's counters were shared.
    pub counted_share: Option<Ratio>,
    /// How often a thread left a CPU for another or for nothing.
    pub context_switches: Option<u64>,
    /// Time on CPUs, of all threads.
    pub cpu_time: Option<Seconds>,
    /// How often a thread went on on another CPU.
    pub migrations: Option<u64>,
}

/// Nothing can be counted.
#[derive(Debug, thiserror::Error)]
pub enum PerfError {
    /// The kernel lets this process open none of the events.
    #[error("cannot count by perf_event_open: {cause}; {remedy}")]
    Refused {
        /// Its answer to the first.
        cause: io::Error,
        /// What to do.
        remedy: String,
    },
    /// An open event could not be read.
    #[error("cannot read the event {event}: {cause}")]
    Read {
        /// The event.
        event: &'static str,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// The thread that was to spawn the program panicked.
    #[error("the thread that was to spawn the program panicked: {what}")]
    Panicked {
        /// Its message.
        what: String,
    },
    /// A file of the kernel.
    #[error(transparent)]
    File(#[from] FileError),
    /// The process does not exist, or has ended.
    #[error("there is no process {pid}: it has ended, or was never there")]
    NoProcess {
        /// Its number.
        pid: u32,
    },
}
