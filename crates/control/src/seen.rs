//! What a law is given: one period of the service and its machine.

use crate::decision::Allocation;
use headroom_units::{Hertz, PerSecond, Ratio, Reading, Seconds, Watts};
use serde::{Deserialize, Serialize};

/// What was seen in one period.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// Number of the period, from 0.
    pub period: u64,
    /// The length of the period as it really was.
    pub length: Seconds,
    /// What was in force during the period, as read back from the machine.
    pub allocated: Allocation,
    /// The requests; `None` where the period's telemetry was lost.
    pub traffic: Option<Traffic>,
    /// Busy share of the allocated cores; `None` where it could not be read.
    pub utilisation: Option<Ratio>,
    /// Mean power; `None` where no meter answered.
    pub power: Option<Reading<Watts>>,
    /// Mean frequency of the processors; `None` where the machine does not say. It is absent in recordings that are
    /// older than it.
    #[serde(default)]
    pub frequency: Option<Reading<Hertz>>,
    /// CPU time that the service used; `None` where it could not be read. It is absent in recordings that are older
    /// than it.
    #[serde(default)]
    pub cpu_time: Option<Seconds>,
}

/// The requests of one period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Requests that arrived.
    pub arrivals: u64,
    /// Requests answered.
    pub completions: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Requests being served at the end of the period.
    pub in_flight: u64,
    /// Age of the oldest request being served at the end of the period.
    pub oldest_in_flight: Option<Seconds>,
    /// Latency of the requests answered; `None` where none was.
    pub latency: Option<Latency>,
}

/// Latency of the requests that were answered in one period.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The percentile that the SLO speaks of.
    pub at_slo: Seconds,
    /// The rest of the distribution; `None` where the source of telemetry tells one percentile only.
    pub distribution: Option<Distribution>,
}

/// Mean and percentiles of one period's latencies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Mean.
    pub mean: Seconds,
    /// Median.
    pub p50: Seconds,
    /// 95th percentile.
    pub p95: Seconds,
    /// 99th percentile.
    pub p99: Seconds,
    /// 99.9th percentile.
    pub p999: Seconds,
}

impl Traffic {
    /// The latency to hold against the target: the SLO's percentile of the requests answered; where none was
    /// answered although some are being served, the age of the oldest of these, since a service that has stopped
    /// answering has no percentile and yet is late; zero where there was nothing to serve.
    pub fn latency_to_judge(&self) -> Seconds {
        match self.latency {
            Some(latency) => latency.at_slo,
            None => self.oldest_in_flight.unwrap_or(Seconds::ZERO),
        }
    }
}

impl Seen {
    /// Arrival rate λ of the period; `None` where telemetry was lost or the period had no length.
    pub fn arrival_rate(&self) -> Option<PerSecond> {
        let traffic = self.traffic.as_ref()?;
        (self.length > Seconds::ZERO).then(|| PerSecond::new(traffic.arrivals as f64 / self.length.get()))
    }
}
