//! The guard: a process of its own that lifts the limits of another one, its *owner*, when that is killed or hangs.
//!
//! Owner and guard are connected by a Unix stream socket. The kernel closes it when either ends, however it ends. The owner
//! says over it within what time the next sign of life of each thread that holds limits comes; where one is late, the
//! guard puts back whatever the owner's record names, and leaves the record. There are two forms of the one program
//! ([`post`]): a child of the owner, with the socket as its standard input, and a service that listens in the run
//! directory, outside of the container or unit of its owner, which is preferred where it is there.
//!
//! The owner watches its guard in turn ([`supervisor`]): while none stands, nothing is limited.

pub mod apart;
mod link;
pub mod namespace;
pub mod post;
pub mod supervisor;

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The socket of a guard that is a service, in the run directory.
pub const SOCKET: &str = "guard.sock";

/// What an owner says first.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// Of this program: the two speak a protocol without versions.
    pub version: String,
    /// The owner's process number in its own PID namespace, for messages.
    pub pid: u32,
    /// Where its kernel files are.
    pub sys: PathBuf,
    /// The same of processes.
    pub proc: PathBuf,
    /// Its mounted control group hierarchies: the guard must have the same at the same paths, or it would lift nothing.
    pub hierarchies: Vec<Mounted>,
}

/// A mounted control group hierarchy, by its root directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mounted {
    /// The mount point.
    pub path: PathBuf,
    /// The file system.
    pub device: u64,
    /// The directory in it, which is another in another control group namespace.
    pub inode: u64,
}

/// From an owner to its guard, a line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ToGuard {
    /// The first line.
    Hello(Hello),
    /// A thread's sign of life.
    Beat {
        /// Which thread, a number of the owner.
        pulse: u32,
        /// The same in words.
        name: String,
        /// The next comes within this time.
        within_ms: u64,
    },
    /// A thread holds no limit any more.
    Rest {
        /// Which thread.
        pulse: u32,
    },
    /// Asks for an answer.
    Ping,
}

/// From a guard to its owner, a line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FromGuard {
    /// It watches from now on.
    Standing {
        /// Its process number in its own PID namespace.
        pid: u32,
        /// How it may yet be killed together with its owner.
        note: Option<String>,
    },
    /// It cannot watch over this owner.
    Refused {
        /// The guard's objection.
        why: String,
    },
    /// The answer to a ping.
    Alive,
    /// A thread was silent: the limits are lifted, and are lifted again if they come back.
    Lifted {
        /// Which, and for how long.
        why: String,
    },
    /// All threads give signs of life again.
    Rearmed,
}
