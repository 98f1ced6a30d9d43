//! What is seen of the requests: our own gateway's counters, or whatever else can tell.

use super::outcomes::Outcomes;
use super::reflex::Watch;
use super::sizes::SizesPeriod;
use super::tick::BackendTick;
use hdrhistogram::Histogram;
use headroom_gateway::{BatchCounts, CacheCounts, Handle, PeriodStats, QueueCounts, SourceCounts};
use headroom_telemetry::{Latency, Source, TelemetryPeriod};
use headroom_units::{Part, Seconds};
use std::time::Duration;

/// Tells, once a period, what happened to the requests.
pub trait Telemetry {
    /// What happened since the last call, waiting for it at most `patience`; `None` where nobody can tell.
    fn take(&mut self, patience: Duration) -> Option<TrafficPeriod>;

    /// Watches these bounds until the next call, and says once when one is passed; `None` where there is nothing to watch.
    /// Telemetry that cannot watch within a period leaves it.
    fn watch(&mut self, _watch: Option<Watch>) {}

    /// What each gateway showed in the period that was taken last, lost or not, where there are several.
    fn parts(&self) -> Vec<Part> {
        Vec::new()
    }
}

/// The requests of one period.
#[derive(Clone, Debug, Default)]
pub struct TrafficPeriod {
    /// Requests that arrived.
    pub arrivals: u64,
    /// Requests answered, with a status that does not count as failed.
    pub completions: u64,
    /// Requests that failed, whoever broke them off.
    pub failures: u64,
    /// Requests being served at the end.
    pub in_flight: u64,
    /// Age of the oldest of these.
    pub oldest_in_flight: Option<Seconds>,
    /// Latency of the requests answered.
    pub latency: ReportedLatency,
    /// The backends.
    pub backends: Vec<BackendTick>,
    /// Requests that had to wait for a backend below its limit; `None` where the telemetry does not tell.
    pub queue: Option<QueueCounts>,
    /// What the gateway's cache did; `None` where there is none.
    pub cache: Option<CacheCounts>,
    /// What the gateway's batcher did; `None` where there is none.
    pub batch: Option<BatchCounts>,
    /// Times that the gateway paused accepting clients because they had their share of its descriptors.
    pub accept_pauses: u64,
    /// What the gateway refused of sources over their limits, and of proxies' headers.
    pub sources: SourceCounts,
    /// Statuses, and failures by cause.
    pub outcomes: Outcomes,
    /// Requests by the size of their answers; `None` where nobody looks at sizes.
    pub sizes: Option<SizesPeriod>,
}

impl TrafficPeriod {
    /// Adds all of another but its latencies and its sizes: another gateway's, or of one gateway what came next, after
    /// [`TrafficPeriod::end_going_on`]. A backend that several gateways send to is one.
    pub(crate) fn add(&mut self, other: &Self) {
        self.arrivals += other.arrivals;
        self.completions += other.completions;
        self.failures += other.failures;
        self.in_flight += other.in_flight;
        self.accept_pauses += other.accept_pauses;
        self.sources += other.sources;
        self.outcomes.add(&other.outcomes);
        let oldest = [self.oldest_in_flight, other.oldest_in_flight];
        self.oldest_in_flight = oldest.into_iter().flatten().reduce(Seconds::max);
        if let Some(queue) = &other.queue {
            *self.queue.get_or_insert_default() += *queue;
        }
        if let Some(cache) = &other.cache {
            *self.cache.get_or_insert_default() += *cache;
        }
        if let Some(batch) = &other.batch {
            *self.batch.get_or_insert_default() += *batch;
        }
        for backend in &other.backends {
            match self.backends.iter_mut().find(|known| known.name == backend.name) {
                Some(known) => {
                    known.requests += backend.requests;
                    known.failures += backend.failures;
                    known.healthy |= backend.healthy;
                    if let Some(connects) = &backend.connects {
                        *known.connects.get_or_insert_default() += *connects;
                    }
                }
                None => self.backends.push(backend.clone()),
            }
        }
    }

    /// Forgets what was going on at its end, and keeps what it counts.
    pub(crate) fn end_going_on(&mut self) {
        (self.in_flight, self.oldest_in_flight) = (0, None);
        if let Some(queue) = &mut self.queue {
            queue.waiting = 0;
        }
        if let Some(batch) = &mut self.batch {
            batch.held = 0;
        }
        for backend in &mut self.backends {
            backend.healthy = false;
        }
    }
}

/// What is known of the latencies of a period.
#[derive(Clone, Debug)]
pub enum ReportedLatency {
    /// Every request's, in microseconds.
    Histogram(Histogram<u64>),
    /// The SLO's percentile alone; `None` where no request was answered.
    AtSlo(Option<Seconds>),
}

impl Default for ReportedLatency {
    fn default() -> Self {
        Self::AtSlo(None)
    }
}

/// The gateway of this process.
pub struct GatewayTelemetry<'a> {
    gateway: &'a Handle,
    /// What was counted in lost periods: it comes with the next whole one.
    unused: Option<PeriodStats>,
}

impl<'a> GatewayTelemetry<'a> {
    /// Reads this gateway.
    pub fn new(gateway: &'a Handle) -> Self {
        Self {
            gateway,
            unused: None,
        }
    }
}

impl Telemetry for GatewayTelemetry<'_> {
    fn take(&mut self, patience: Duration) -> Option<TrafficPeriod> {
        let mut stats = self.gateway.take_period_blocking(patience);
        if let Some(unused) = self.unused.take() {
            stats.add_earlier(&unused);
        }
        if stats.cores_missing > 0 {
            // A core that does not answer may hold the slow requests: half the truth is no telemetry.
            tracing::warn!(
                cores_missing = stats.cores_missing,
                "the gateway did not answer in time"
            );
            self.unused = Some(stats);
            return None;
        }
        let health = self.gateway.backends_health();
        let backends = stats
            .backends
            .iter()
            .zip(health)
            .map(|(backend, health)| BackendTick {
                name: backend.url.clone(),
                requests: backend.counts.arrivals,
                failures: backend.counts.failures,
                healthy: health.healthy,
                connects: Some(backend.connects),
            })
            .collect();
        Some(TrafficPeriod {
            arrivals: stats.service.arrivals,
            completions: stats.service.completions,
            failures: stats.service.failures,
            in_flight: stats.service.in_flight,
            oldest_in_flight: stats.oldest_in_flight.map(Seconds::from),
            latency: ReportedLatency::Histogram(stats.histogram),
            backends,
            queue: Some(stats.queue),
            cache: stats.cache_size.map(|_| stats.cache),
            batch: self.gateway.batch_interval().map(|_| stats.batch),
            accept_pauses: stats.accept_pauses,
            sources: stats.sources,
            outcomes: Outcomes::of_gateway(&stats.service),
            sizes: SizesPeriod::of_gateway(self.gateway, stats.sizes),
        })
    }
}

/// Another program's telemetry: an existing HAProxy's, or that of a Prometheus.
pub struct Other {
    source: Box<dyn Source>,
    /// Why its statistics could not be read in the last period: said when it changes.
    statistics_error: Option<String>,
}

impl Other {
    /// The telemetry of this source.
    pub fn new(source: Box<dyn Source>) -> Self {
        Self {
            source,
            statistics_error: None,
        }
    }
}

impl Telemetry for Other {
    fn take(&mut self, patience: Duration) -> Option<TrafficPeriod> {
        let period = self.source.take_period(patience);
        if period.statistics_error != self.statistics_error {
            self.statistics_error.clone_from(&period.statistics_error);
            match &self.statistics_error {
                Some(error) => tracing::warn!("the proxy's statistics cannot be read: {error}"),
                None => tracing::warn!("the proxy's statistics can be read again"),
            }
        }
        reported(period)
    }
}

/// A period of another source, unless it is lost: then why is said.
fn reported(period: TelemetryPeriod) -> Option<TrafficPeriod> {
    if let Some(lost) = &period.lost {
        tracing::warn!("{lost}");
        return None;
    }
    if period.malformed > 0 {
        tracing::warn!(lines = period.malformed, by_kind = ?period.malformed_by_kind, "lines that cannot be read");
    }
    let backends = period.backends.iter().map(|backend| BackendTick {
        name: backend.name.clone(),
        requests: backend.requests,
        failures: backend.failures,
        healthy: backend.healthy.unwrap_or(true),
        connects: None,
    });
    Some(TrafficPeriod {
        arrivals: period.arrivals,
        completions: period.completions,
        failures: period.failures,
        in_flight: period.in_flight.unwrap_or(0),
        oldest_in_flight: period.oldest_in_flight,
        backends: backends.collect(),
        queue: None,
        cache: None,
        batch: None,
        accept_pauses: 0,
        sources: SourceCounts::default(),
        outcomes: Outcomes::of_telemetry(&period),
        sizes: None,
        latency: match period.latency {
            Latency::Histogram(histogram) => ReportedLatency::Histogram(*histogram),
            Latency::Percentile { value, .. } => ReportedLatency::AtSlo(value),
        },
    })
}
