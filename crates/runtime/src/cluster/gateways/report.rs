//! What a gateway reports in a period, as the loop has it.

use crate::live::{BackendTick, Outcomes, ReportedLatency, TrafficPeriod, demand, front};
use headroom_gateway::{
    BatchCounts, CacheCounts, ConnectCounts, QueueCounts, RankCounts, RetryCounts, SourceCounts,
};
use headroom_units::{Part, Role, Seconds, Sensor};
use headroom_wire::message::{Backend, BackendPeriod, GatewayPeriod};
use std::time::Duration;

/// What a gateway showed in a period that it reported whole.
pub(super) fn part(name: &str, sum: &TrafficPeriod, length: Duration) -> Part {
    let rate = |count: u64| (!length.is_zero()).then(|| count as f64 / length.as_secs_f64());
    let part = Part::new(name, Role::Gateway)
        .in_state("connected")
        .with(Sensor::ArrivalRate, rate(sum.arrivals))
        .with(Sensor::FailureRate, rate(sum.failures))
        .with(Sensor::InFlight, sum.in_flight.map(|in_flight| in_flight as f64));
    let (cache, batching) = (
        sum.cache.as_ref().map(front::cache),
        sum.batch.as_ref().map(front::batching),
    );
    front::with_front(part, cache.as_ref(), batching.as_ref())
}

/// What a gateway reported, whose backends these are; without its latencies. What it refused is left out of the arrivals.
pub(super) fn traffic(period: GatewayPeriod, backends: &[Backend]) -> TrafficPeriod {
    let connects = |reported: headroom_wire::message::ConnectCounts| ConnectCounts {
        opened: reported.opened,
        refused: reported.refused,
        timed_out: reported.timed_out,
        no_resources: reported.no_resources,
        ejected_refused: reported.ejected_refused,
        ejected_timed_out: reported.ejected_timed_out,
        ejections_withheld: reported.ejections_withheld,
        ejected_failing: reported.ejected_failing,
    };
    let backend = |(backend, period): (&Backend, BackendPeriod)| BackendTick {
        name: backend.url.clone(),
        requests: period.requests,
        failures: period.failures,
        healthy: period.healthy,
        connects: period.connects.map(connects),
        left_by_clients: period.left_by_clients,
        answered_to_nobody: period.answered_to_nobody,
        failed_answers: period.failed_answers,
        checks: period.checks,
    };
    TrafficPeriod {
        over: None,
        arrivals: demand(period.arrivals, period.refused),
        completions: period.completions,
        failures: period.failures,
        in_flight: Some(period.in_flight),
        oldest_in_flight: period.oldest_in_flight.map(Seconds::from),
        latency: ReportedLatency::default(),
        backends: backends.iter().zip(period.backends).map(backend).collect(),
        queue: period.queue.map(|queue| QueueCounts {
            waited: queue.waited,
            full: queue.full,
            expired: queue.expired,
            waiting: queue.waiting,
            left: queue.left,
        }),
        importance: period
            .importance
            .into_iter()
            .map(|of| {
                let counts = RankCounts {
                    waited: of.waited,
                    turned_away: of.turned_away,
                };
                (of.name, counts)
            })
            .collect(),
        cache: period.cache.map(|cache| CacheCounts {
            hits: cache.hits,
            stale: cache.stale,
            misses: cache.misses,
            validated: cache.validated,
            collapsed: cache.collapsed,
            passed: cache.passed,
            stored: cache.stored,
            invalidated: cache.invalidated,
        }),
        batch: period.batch.map(|batch| BatchCounts {
            batches: batch.batches,
            requests: batch.requests,
            groups: batch.groups,
            full: batch.full,
            expired: batch.expired,
            waiting_us: batch.waiting_us,
            answered: batch.answered,
            processing_us: batch.processing_us,
            held: batch.held,
        }),
        accept_pauses: period.accept_pauses,
        client_us: period.client_us,
        sources: period
            .sources
            .map_or_else(SourceCounts::default, |sources| SourceCounts {
                requests: sources.requests,
                connections: sources.connections,
                connects: sources.connects,
                untracked: sources.untracked,
                proxy_headers: sources.proxy_headers,
            }),
        retries: period
            .retries
            .map_or_else(RetryCounts::default, |retries| RetryCounts {
                sent: retries.sent,
                withheld: retries.withheld,
            }),
        refused: period.refused,
        outcomes: Outcomes::of_counts(period.failed, Some(period.responses)),
        // Added apart: of several gateways they are one only where all have the same classes.
        sizes: None,
    }
}
