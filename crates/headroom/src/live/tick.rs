//! What one control period leaves behind, for whoever shows, counts or records it.

use super::machine::Refused;
use super::outcomes::Outcomes;
use hdrhistogram::Histogram;
use headroom_control::{Allocation, Decision, Seen};
use headroom_gateway::{ConnectCounts, QueueCounts};
use headroom_units::{Joules, Ratio, Reading, Seconds};

/// One control period.
#[derive(Clone, Debug)]
pub struct Tick {
    /// Time from the start of the run to the end of the period.
    pub at: Seconds,
    /// What the law was given.
    pub seen: Seen,
    /// What it answered.
    pub decision: Decision,
    /// What is in force after that.
    pub in_force: Allocation,
    /// Whether the decision could not be carried out, wholly or in part.
    pub actuation_failed: bool,
    /// Energy consumed in the period.
    pub energy: Option<Reading<Joules>>,
    /// The meter's zone.
    pub zone: String,
    /// Share of the quota's periods in which the service was throttled.
    pub throttled: Option<Ratio>,
    /// Readings that meters refused, for each node and its meter.
    pub refused: Vec<Refused>,
    /// The SLO's target.
    pub target: Seconds,
    /// The latency above which the law repairs, where it has such a threshold.
    pub guard: Option<Seconds>,
    /// Latencies of the period, in microseconds; `None` where they are not known one by one.
    pub histogram: Option<Histogram<u64>>,
    /// The backends.
    pub backends: Vec<BackendTick>,
    /// Requests that had to wait for a backend below its limit; `None` where the telemetry does not tell.
    pub queue: Option<QueueCounts>,
    /// Statuses, and failures by cause.
    pub outcomes: Outcomes,
}

/// One backend in one period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendTick {
    /// Its URL.
    pub name: String,
    /// Requests sent to it.
    pub requests: u64,
    /// Requests it failed.
    pub failures: u64,
    /// Whether requests are sent to it.
    pub healthy: bool,
    /// Connections to it; `None` where the telemetry does not tell.
    pub connects: Option<ConnectCounts>,
}
