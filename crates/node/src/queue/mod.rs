//! The accept queue of a TCP port: how long it is, what arrives at it, what the server takes from it, what is dropped.
//!
//! Five ways to measure, as in the paper (Tsai et al., "Online Web Cluster Capacity Estimation", Section 6), each a
//! [`QueueMeter`], so that they can stand side by side:
//!
//! | method | per port | of the whole machine or server | CPU |
//! |---|---|---|---|
//! | [`QueueMethod::Ebpf`] | queue now, queue seen by each arrival, enqueued, accepted, dropped | | |
//! | [`QueueMethod::Kernel`] | queue now, dropped | enqueued, dropped, failed attempts | yes |
//! | [`QueueMethod::Tools`] | queue now | enqueued, dropped, failed attempts | yes, once a second |
//! | [`QueueMethod::Snmp`] | | enqueued, failed attempts | yes, as old as the agent's cache |
//! | [`QueueMethod::Status`] | | accepted, requests (and dropped, with nginx) of that server | with Apache |
//!
//! What a method cannot tell is `None`, never zero. Counters start at 0 when the meter is opened and never decrease.
//! Where one of the raw counters went back or leapt beyond what is possible, or a listener came or went, the sample's
//! [`epoch`](QueueSample::epoch) is another: nothing is said about the period between ([`QueueSample::since`]).
//!
//! Everything is about the network namespace of the calling thread. Messages are bounded, and so are the time limits:
//! a tool has two seconds, an SNMP agent and a status page one second.

mod accepted;
pub mod choice;
mod counter;
mod deferred;
mod diag;
mod ebpf;
mod kernel;
mod loops;
mod method;
mod period;
mod procfs;
mod resets;
mod snapshot;
mod snmp;
mod status;
mod tools;

pub use choice::{Opened, QueueChoice, QueueOptions, QueuePreference, choose, every, open};
pub use ebpf::EbpfQueueMeter;
pub use kernel::KernelQueueMeter;
pub use method::QueueMethod;
pub use period::{QueuePeriod, Scope};
pub use snapshot::SnapshotReader;
pub use snmp::{SnmpOptions, SnmpQueueMeter};
pub use status::{StatusPage, StatusQueueMeter};
pub use tools::ToolsQueueMeter;

// What is sampled on a node is what goes over the wire.
pub use headroom_wire::message::{
    QueueAtArrival as AtArrival, QueueConnections as Connections, QueueCounters as Counters,
    QueueLength as Length, QueueListener as Listener,
};

pub(crate) use snapshot::{methods_of, reported};
pub(crate) use tools::TOOLS;

use crate::file::FileError;
use headroom_units::Ratio;
use std::collections::BTreeSet;
use std::io;
use std::time::Instant;

/// The most listeners of one port that are looked at: one for each worker of a large machine.
pub const MAX_LISTENERS: usize = headroom_queue_bpf::MAX_LISTENERS;

/// Something that measures the accept queue of a port.
pub trait QueueMeter: Send {
    /// Which of the five.
    fn method(&self) -> QueueMethod;

    /// What it shows now.
    ///
    /// # Errors
    /// [`QueueError::NobodyListens`] while no process listens on the port: the meter stays usable, and goes on when one
    /// does again. Others say what failed.
    fn sample(&mut self) -> Result<QueueSample, QueueError>;
}

/// What one meter showed at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSample {
    /// How it was measured.
    pub method: QueueMethod,
    /// The instant of the sample, on the monotonic clock.
    pub at: Instant,
    /// Between samples of the same epoch the counters can be subtracted.
    pub epoch: u64,
    /// Counters of this port's listeners.
    pub port: Counters,
    /// Counters of the server process, whichever ports it listens on.
    pub server: Counters,
    /// Counters of all TCP listeners of the network namespace.
    pub machine: Counters,
    /// The queues of the port's listeners, summed.
    pub length: Option<Length>,
    /// What arrivals saw.
    pub seen: Option<AtArrival>,
    /// The share of the machine's CPU time that was used, since the sample before; the tool's last second with
    /// [`QueueMethod::Tools`], and the server's own processes alone with [`QueueMethod::Status`].
    pub cpu_busy: Option<Ratio>,
    /// The connections that the server has accepted from it, where somebody waits; `None` where the method does not tell.
    pub connections: Option<Connections>,
    /// The share of the last second for which the least busy of the event loops that serve the port ran or waited for a CPU, in
    /// thousandths; `None` where it is not known.
    pub loops_busy: Option<u32>,
    /// The parts: each listening socket of the port.
    pub listeners: Vec<Listener>,
}

impl QueueSample {
    /// The connections that the queues of the port's listeners have room for together: K of the paper's Equations 1
    /// and 2. Nothing where the method does not tell the queue.
    pub fn places(&self) -> Option<u64> {
        self.length
            .map(|_| self.listeners.iter().map(Listener::room).sum())
    }
}

/// The queue could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// No process listens on the port.
    #[error(
        "nobody listens on TCP port {port} in this network namespace ({others}): start the server, or name its port"
    )]
    NobodyListens {
        /// The port.
        port: u16,
        /// Which ports somebody listens on, in words.
        others: String,
    },
    /// More listening sockets than are looked at.
    #[error("port {port} has more than {MAX_LISTENERS} listening sockets: that many are not measured")]
    TooManyListeners {
        /// The port.
        port: u16,
    },
    /// A file of the kernel.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file of the kernel, or an answer, lacks what is needed.
    #[error("{what} does not show {wanted}: {remedy}")]
    Missing {
        /// The file, the tool or the address.
        what: String,
        /// What was looked for.
        wanted: &'static str,
        /// What to do.
        remedy: String,
    },
    /// The kernel refused.
    #[error("cannot {doing}: {cause}; {remedy}")]
    Refused {
        /// What was tried.
        doing: String,
        /// Why not.
        cause: String,
        /// What to do.
        remedy: String,
    },
    /// A tool could not be run, or did not end in time.
    #[error("{tool} {what}; {remedy}")]
    Tool {
        /// Its name.
        tool: &'static str,
        /// What went wrong.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// Somebody at the other end of a connection did not answer, or not as expected.
    #[error("{address}: {what}; {remedy}")]
    Remote {
        /// Who was asked.
        address: String,
        /// What went wrong.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// The queue is another machine's, and the agent there cannot measure it, or cannot be asked.
    #[error("{why}")]
    Elsewhere {
        /// Why, and what helps.
        why: String,
    },
    /// The two samples have no period between them that anything could be said about.
    #[error("{0}")]
    NoPeriod(&'static str),
    /// No method of the order works.
    #[error("the accept queue of port {port} cannot be measured by {wanted}: {reasons}")]
    Unavailable {
        /// The port.
        port: u16,
        /// What was asked for.
        wanted: QueuePreference,
        /// Why none of it works.
        reasons: String,
    },
}

/// The TCP ports of this network namespace that somebody listens on; of more sockets than [`MAX_LISTENERS`] those of the
/// first.
///
/// # Errors
/// [`QueueError::Refused`] where the kernel does not tell.
pub fn listening_ports() -> Result<BTreeSet<u16>, QueueError> {
    diag::Diag::open()?.ports()
}

impl QueueError {
    fn refused(doing: impl Into<String>, cause: impl Into<io::Error>, remedy: impl Into<String>) -> Self {
        Self::Refused {
            doing: doing.into(),
            cause: cause.into().to_string(),
            remedy: remedy.into(),
        }
    }
}
