//! One emulated control group: its settings and its counters.

use super::config::CgroupVersion;
use std::collections::BTreeSet;

/// The period where none was set, microseconds.
pub(super) const DEFAULT_PERIOD_US: u64 = 100_000;
/// Busy time that is over a group's entitlement is counted later, up to this much of the entitlement, seconds: quota
/// periods and ticks do not begin together.
const MAX_CARRY_S: f64 = 0.25;

/// The windows of `cpu.pressure`, seconds (Documentation/accounting/psi.rst).
const STALL_WINDOWS_S: [f64; 3] = [10.0, 60.0, 300.0];

/// One group.
#[derive(Clone, Debug)]
pub struct Group {
    /// Nothing: no limit.
    pub quota_us: Option<u64>,
    /// The period of the quota.
    pub period_us: u64,
    /// How much unused quota may be kept.
    pub burst_us: u64,
    /// Version 2 `cpu.weight`; version 1 `cpu.shares` is kept beside it.
    pub weight: u64,
    /// Version 1 `cpu.shares`.
    pub shares: u64,
    /// The CPUs it was given; empty: none on version 1, those of the group above on version 2.
    pub cpus: Vec<usize>,
    /// The memory nodes it was given, likewise.
    pub mems: Vec<usize>,
    /// Version 2: the controllers its children have.
    pub gives_cpu: bool,
    /// See `gives_cpu`.
    pub gives_cpuset: bool,
    /// Version 1: in which hierarchies it exists. Version 2: both.
    pub in_cpu: bool,
    /// See `in_cpu`.
    pub in_cpuset: bool,
    /// Version 1: the processes that were entered in its cpuset.
    pub cpuset_processes: BTreeSet<u32>,
    /// Whether any process is in it, as of the last tick.
    pub populated: bool,
    /// Busy cores without any real process.
    pub synthetic: Option<f64>,
    /// Busy time of its own processes, microseconds.
    pub own_usage_us: f64,
    /// Quota periods that passed, and in how many it was throttled, and for how long (microseconds).
    pub periods: u64,
    /// See `periods`.
    pub throttled_periods: u64,
    /// See `periods`.
    pub throttled_us: f64,
    /// How long it was stalled for want of CPU, microseconds, and the stalled share of the last 10, 60 and 300 seconds.
    pub stalled_us: f64,
    /// See `stalled_us`.
    pub stalled_shares: [f64; 3],
    /// The cores it was entitled to in the interval that is going on.
    pub entitled: f64,
    /// Busy core-seconds to be counted later.
    pending_s: f64,
    /// Busy core-seconds that were over every entitlement and not counted.
    pub dropped_s: f64,
}

impl Group {
    /// A group without any limit, and on version 1 in no hierarchy yet.
    pub(super) fn new(version: CgroupVersion) -> Self {
        let both = version == CgroupVersion::V2;
        Self {
            quota_us: None,
            period_us: DEFAULT_PERIOD_US,
            burst_us: 0,
            weight: 100,
            shares: 1024,
            cpus: Vec::new(),
            mems: Vec::new(),
            gives_cpu: false,
            gives_cpuset: false,
            in_cpu: both,
            in_cpuset: both,
            cpuset_processes: BTreeSet::new(),
            populated: false,
            synthetic: None,
            own_usage_us: 0.0,
            periods: 0,
            throttled_periods: 0,
            throttled_us: 0.0,
            stalled_us: 0.0,
            stalled_shares: [0.0; 3],
            entitled: 0.0,
            pending_s: 0.0,
            dropped_s: 0.0,
        }
    }

    /// The quota in cores; nothing without a limit.
    pub fn quota(&self) -> Option<f64> {
        self.quota_us.map(|quota| quota as f64 / self.period_us as f64)
    }

    /// Counts the time for which the group was throttled. The kernel sums it over CPUs; stalled is a group for at most the
    /// whole interval.
    pub fn count_throttled(&mut self, dt_s: f64, periods: u64, throttled_periods: u64, throttled_s: f64) {
        self.periods += periods;
        self.throttled_periods += throttled_periods;
        self.throttled_us += throttled_s * 1e6;
        let stalled_s = throttled_s.clamp(0.0, dt_s);
        self.stalled_us += stalled_s * 1e6;
        for (share, window_s) in self.stalled_shares.iter_mut().zip(STALL_WINDOWS_S) {
            *share += (stalled_s / dt_s - *share) * (1.0 - (-dt_s / window_s).exp());
        }
    }

    /// Counts busy time, at most as much as the group was entitled to; gives the busy cores of the interval.
    pub fn count_busy(&mut self, dt_s: f64, core_seconds: f64) -> f64 {
        let most = self.entitled * dt_s;
        self.pending_s += core_seconds.max(0.0);
        let counted = self.pending_s.min(most);
        self.pending_s -= counted;
        let carried = self.pending_s.min(self.entitled * MAX_CARRY_S);
        self.dropped_s += self.pending_s - carried;
        self.pending_s = carried;
        self.own_usage_us += counted * 1e6;
        if dt_s > 0.0 { counted / dt_s } else { 0.0 }
    }
}
