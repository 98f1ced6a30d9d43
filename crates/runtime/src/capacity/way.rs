//! The ways to an estimate: an estimator and what it is fed by.

use headroom_control::capacity::Estimate;
use headroom_node::queue::QueueMethod;
use headroom_units::PerSecond;

/// An estimator, and the method that feeds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Queue monitoring as published (Equations 1 to 5).
    Published(QueueMethod),
    /// Our own queue monitoring: the rate of accepts while somebody waits.
    BusyTime(QueueMethod),
    /// Throughput over CPU utilisation.
    Cpu(QueueMethod),
    /// A benchmark's rising load: the throughput at which too many attempts were dropped.
    Ramp(QueueMethod),
    /// A benchmark's figure.
    Static,
}

impl Way {
    /// What people call the estimator.
    pub const fn estimator(self) -> &'static str {
        match self {
            Self::Published(_) => "queue, published",
            Self::BusyTime(_) => "queue, busy time",
            Self::Cpu(_) => "CPU utilisation",
            Self::Ramp(_) => "ramp",
            Self::Static => "static",
        }
    }

    /// Its name in records and in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Published(_) => "published",
            Self::BusyTime(_) => "busy-time",
            Self::Cpu(_) => "cpu",
            Self::Ramp(_) => "ramp",
            Self::Static => "static",
        }
    }

    /// What feeds it.
    pub const fn method(self) -> Option<QueueMethod> {
        match self {
            Self::Published(method) | Self::BusyTime(method) | Self::Cpu(method) | Self::Ramp(method) => {
                Some(method)
            }
            Self::Static => None,
        }
    }

    /// Both, for a legend.
    pub fn label(self) -> String {
        match self.method() {
            Some(method) => format!("{} ({})", self.estimator(), name(method)),
            None => self.estimator().to_owned(),
        }
    }
}

/// A method as people know it.
pub const fn name(method: QueueMethod) -> &'static str {
    match method {
        QueueMethod::Ebpf => "eBPF",
        QueueMethod::Kernel => "sock_diag, /proc",
        QueueMethod::Tools => "vmstat, netstat",
        QueueMethod::Snmp => "SNMP",
        QueueMethod::Status => "status page",
    }
}

/// The number of an estimate, where there is one.
pub(super) fn number(estimate: &Estimate) -> Option<f64> {
    estimate.capacity.value().map(PerSecond::get)
}
