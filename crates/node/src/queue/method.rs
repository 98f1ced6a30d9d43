//! The ways to measure an accept queue, and their names.

use crate::order::Word;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A way to measure an accept queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueMethod {
    /// A program in the kernel that sees every arrival.
    Ebpf,
    /// The kernel's exported counters: sock_diag and `/proc`.
    Kernel,
    /// User-space tools: vmstat, ss, netstat.
    Tools,
    /// An SNMP agent.
    Snmp,
    /// The server's own status page.
    Status,
}

impl Word for QueueMethod {
    const ALL: &'static [Self] = &[Self::Ebpf, Self::Kernel, Self::Tools, Self::Snmp, Self::Status];
    const AUTO: &'static [Self] = &[Self::Ebpf, Self::Kernel];
    const WHAT: &'static str = "queue method";

    fn as_str(self) -> &'static str {
        match self {
            Self::Ebpf => "ebpf",
            Self::Kernel => "kernel",
            Self::Tools => "tools",
            Self::Snmp => "snmp",
            Self::Status => "status",
        }
    }

    fn in_use(self) -> String {
        format!("the accept queue is measured by {self}")
    }
}

impl fmt::Display for QueueMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
