//! The ways to an estimate: an estimator and what it is fed by.

use headroom_control::capacity::Estimate;
use headroom_node::queue::QueueMethod;
use headroom_record::CapacitySummary;
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
            Self::BusyTime(_) => "queue, busy time (ours)",
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

    /// Both, for lines and legends: what tells ways apart comes first, for it may be cut.
    pub fn label(self) -> String {
        let word = match self {
            Self::Published(_) => "published",
            Self::BusyTime(_) => "busy time",
            Self::Cpu(_) => "CPU",
            Self::Ramp(_) => "ramp",
            Self::Static => "static",
        };
        match self.method() {
            Some(method) => format!("{word} ({})", name(method)),
            None => word.to_owned(),
        }
    }

    /// What the columns of its samples begin with.
    pub(super) fn column(self) -> String {
        let estimator = match self {
            Self::Published(_) => "queue published",
            Self::BusyTime(_) => "queue busy time",
            Self::Cpu(_) => "CPU utilisation",
            Self::Ramp(_) => "ramp",
            Self::Static => "static",
        };
        let both = match self.method() {
            Some(method) => format!("{estimator} {}", name(method)),
            None => estimator.to_owned(),
        };
        both.to_lowercase().replace(',', "").replace([' ', '/'], "_")
    }

    /// What its estimates rest on that nothing checks. `is_shared` is whether the counts are the whole machine's, and nothing has shown
    /// that they are this port's.
    pub(super) const fn assumes(self, is_shared: bool) -> Option<&'static str> {
        match (self, is_shared) {
            (Self::Static, _) => None,
            (Self::Cpu(_), false) => Some("CPU is the bottleneck"),
            (Self::Cpu(_), true) => Some("CPU is the bottleneck and no other port is used"),
            (_, true) => Some("no other port is used"),
            (_, false) => None,
        }
    }
}

/// What an estimate says, with what it rests on and of what it is.
pub(super) fn summary(estimate: &Estimate, assumes: Option<&str>, unit: &str) -> CapacitySummary {
    CapacitySummary {
        kind: estimate.capacity.name().to_owned(),
        per_s: estimate.capacity.value(),
        unit: unit.to_owned(),
        interval_per_s: estimate.interval,
        age_s: estimate.age.filter(|age| age.is_finite()),
        assumes: assumes.map(str::to_owned),
        rule: estimate.reason.rule.to_string(),
        why: estimate.reason.text.clone(),
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
