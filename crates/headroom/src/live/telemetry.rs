//! What is seen of the requests: our own gateway's counters, or whatever else can tell.

use super::tick::BackendTick;
use hdrhistogram::Histogram;
use headroom_gateway::Handle;
use headroom_units::Seconds;
use std::time::Duration;

/// Tells, once a period, what happened to the requests.
pub trait Telemetry {
    /// What happened since the last call, waiting for it at most `patience`; `None` where nobody can tell.
    fn take(&mut self, patience: Duration) -> Option<TrafficPeriod>;
}

/// The requests of one period.
#[derive(Clone, Debug)]
pub struct TrafficPeriod {
    /// Requests that arrived.
    pub arrivals: u64,
    /// Requests answered.
    pub completions: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Requests being served at the end.
    pub in_flight: u64,
    /// Age of the oldest of these.
    pub oldest_in_flight: Option<Seconds>,
    /// Latencies of the requests answered, in microseconds.
    pub histogram: Histogram<u64>,
    /// The backends.
    pub backends: Vec<BackendTick>,
}

/// The gateway of this process.
pub struct GatewayTelemetry<'a>(pub &'a Handle);

impl Telemetry for GatewayTelemetry<'_> {
    fn take(&mut self, patience: Duration) -> Option<TrafficPeriod> {
        let stats = self.0.take_period_blocking(patience);
        if stats.cores_missing > 0 {
            // A core that does not answer may hold the slow requests: half the truth is no telemetry.
            tracing::warn!(
                cores_missing = stats.cores_missing,
                "the gateway did not answer in time"
            );
            return None;
        }
        let health = self.0.backends_health();
        let backends = stats
            .backends
            .iter()
            .zip(health)
            .map(|(backend, health)| BackendTick {
                name: backend.url.clone(),
                requests: backend.counts.arrivals,
                failures: backend.counts.failures,
                healthy: health.healthy,
            })
            .collect();
        Some(TrafficPeriod {
            arrivals: stats.service.arrivals,
            completions: stats.service.completions,
            failures: stats.service.failures,
            in_flight: stats.service.in_flight,
            oldest_in_flight: stats.oldest_in_flight.map(Seconds::from),
            histogram: stats.histogram,
            backends,
        })
    }
}
