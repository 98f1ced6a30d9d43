//! The queries of a server on call as telemetry: what its workers answered, and how long each took.

use crate::live::{Outcomes, ReportedLatency, Telemetry, TrafficPeriod};
use hdrhistogram::Histogram;
use headroom_oncall::layout::bucket_start;
use headroom_oncall::{Steering, Totals};
use headroom_telemetry::latency_histogram;
use std::sync::Arc;
use std::time::Duration;

/// The queries of one server, as its workers count them. Those that the server failed are told apart by its answers, where these are read:
/// under TLS and compression, and in an unknown protocol, a failure is an answer to them.
#[derive(Debug)]
pub struct OncallTelemetry {
    steering: Arc<Steering>,
    before: Totals,
    in_flight: u64,
}

impl OncallTelemetry {
    /// Counts from now on.
    pub fn new(steering: Arc<Steering>) -> Self {
        Self {
            before: steering.totals(),
            in_flight: 0,
            steering,
        }
    }
}

impl Telemetry for OncallTelemetry {
    fn take(&mut self, _patience: Duration) -> Option<TrafficPeriod> {
        let now = self.steering.totals();
        let since = now.since(&self.before);
        self.before = now;
        let (in_flight, oldest) = self.steering.in_flight();
        let before = std::mem::replace(&mut self.in_flight, in_flight);
        let failures = since.failures.min(since.queries);
        // What came in the period is what was answered, and what is in flight more than before.
        Some(TrafficPeriod {
            arrivals: (since.queries + in_flight).saturating_sub(before),
            completions: since.queries - failures,
            failures,
            in_flight: Some(in_flight),
            oldest_in_flight: oldest,
            latency: ReportedLatency::Histogram(histogram(&since.latencies)),
            outcomes: Outcomes::of_failed_answers(failures),
            ..TrafficPeriod::default()
        })
    }
}

/// The library's buckets, a sixteenth of a doubling wide, each by its middle; in microseconds.
fn histogram(buckets: &[u64]) -> Histogram<u64> {
    let mut all = latency_histogram();
    for (at, count) in buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
        let middle = (bucket_start(at) + bucket_start(at + 1)) / 2;
        all.saturating_record_n(middle.max(1), *count);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_oncall::layout::{BUCKETS, bucket};

    #[test]
    fn the_buckets_are_a_histogram_to_within_a_sixteenth() {
        let mut buckets = vec![0; BUCKETS];
        for microseconds in 1..=100_000_u64 {
            buckets[bucket(microseconds)] += 1;
        }
        let all = histogram(&buckets);
        assert_eq!(all.len(), 100_000);
        let p99 = all.value_at_quantile(0.99) as f64;
        assert!((p99 / 99_000.0 - 1.0).abs() < 1.0 / 16.0, "{p99}");
    }
}
