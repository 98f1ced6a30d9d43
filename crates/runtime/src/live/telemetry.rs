//! What is seen of the requests: our own gateway's counters, or whatever else can tell.

use super::outcomes::{Outcomes, demand};
use super::reflex::Watch;
use super::sizes::SizesPeriod;
use super::tick::BackendTick;
use hdrhistogram::Histogram;
use headroom_gateway::{
    BatchCounts, CacheCounts, Handle, PeriodStats, QueueCounts, RankCounts, RetryCounts, SourceCounts,
};
use headroom_telemetry::{Latency, Source, TelemetryPeriod};
use headroom_units::{Part, Ratio, Role, Seconds, Sensor};
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

/// So many parts are named of whom telemetry is lost.
const MOST_NAMED: usize = 3;

/// How it begins.
pub(super) const LOST: &str = "telemetry lost";

/// That the telemetry of a period is lost: whose and why, where that is known of these parts, and what was decided without it.
pub(super) fn lost_words(parts: &[Part], decided: &str) -> String {
    // Those are in no sum, so that it does not lack them.
    let is_counted =
        |part: &&Part| !matches!(part.state.as_deref(), Some(Part::JOINING | Part::LEFT | "dead"));
    let mut whose: Vec<String> = parts
        .iter()
        .filter(is_counted)
        .filter_map(|part| Some(format!("{}: {}", part.name, part.trouble.first()?)))
        .collect();
    let more = whose.len().saturating_sub(MOST_NAMED);
    whose.truncate(MOST_NAMED);
    if more > 0 {
        whose.push(format!("{more} more"));
    }
    let decided = match decided {
        "" => String::new(),
        decided => format!("; decided without it: {decided}"),
    };
    match whose.is_empty() {
        true => format!("{LOST}{decided}"),
        false => format!("{LOST} ({}){decided}", whose.join("; ")),
    }
}

/// The requests of one period.
#[derive(Clone, Debug, Default)]
pub struct TrafficPeriod {
    /// Over how long they were counted, where that is told: more than a period where the one before was not whole.
    pub over: Option<Seconds>,
    /// Requests that arrived, without those that the gateway refused.
    pub arrivals: u64,
    /// Requests answered, with a status that does not count as failed.
    pub completions: u64,
    /// Requests that failed, whoever broke them off.
    pub failures: u64,
    /// Requests being served at the end; `None` where the telemetry does not tell.
    pub in_flight: Option<u64>,
    /// Age of the oldest of these.
    pub oldest_in_flight: Option<Seconds>,
    /// Latency of the requests answered.
    pub latency: ReportedLatency,
    /// The backends.
    pub backends: Vec<BackendTick>,
    /// Requests that had to wait for a backend below its limit; `None` where the telemetry does not tell.
    pub queue: Option<QueueCounts>,
    /// Those of each class of importance, by its name; none where all requests are equal.
    pub importance: Vec<(String, RankCounts)>,
    /// What the gateway's cache did; `None` where there is none.
    pub cache: Option<CacheCounts>,
    /// What the gateway's batcher did; `None` where there is none.
    pub batch: Option<BatchCounts>,
    /// Times that the gateway paused accepting clients because they had their share of its descriptors.
    pub accept_pauses: u64,
    /// Microseconds that clients took beyond what the latencies count: to send their requests, and to take answers that were ready.
    pub client_us: u64,
    /// What the gateway refused of sources over their limits, and of proxies' headers.
    pub sources: SourceCounts,
    /// Requests that the gateway sent to a backend once more.
    pub retries: RetryCounts,
    /// Requests that the gateway refused; all that arrived are `arrivals` and these.
    pub refused: u64,
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
        if let Some(in_flight) = other.in_flight {
            *self.in_flight.get_or_insert(0) += in_flight;
        }
        self.accept_pauses += other.accept_pauses;
        self.client_us += other.client_us;
        self.sources += other.sources;
        self.retries += other.retries;
        self.refused += other.refused;
        self.outcomes.add(&other.outcomes);
        let oldest = [self.oldest_in_flight, other.oldest_in_flight];
        self.oldest_in_flight = oldest.into_iter().flatten().reduce(Seconds::max);
        if let Some(queue) = &other.queue {
            *self.queue.get_or_insert_default() += *queue;
        }
        for (name, counts) in &other.importance {
            match self.importance.iter_mut().find(|(known, _)| known == name) {
                Some((_, known)) => *known += *counts,
                None => self.importance.push((name.clone(), *counts)),
            }
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
                    if let Some(left) = backend.left_by_clients {
                        *known.left_by_clients.get_or_insert_default() += left;
                    }
                    if let Some(gone) = backend.answered_to_nobody {
                        *known.answered_to_nobody.get_or_insert_default() += gone;
                    }
                    if let Some(failed) = backend.failed_answers {
                        *known.failed_answers.get_or_insert_default() += failed;
                    }
                    if let Some(checks) = backend.checks {
                        *known.checks.get_or_insert_default() += checks;
                    }
                }
                None => self.backends.push(backend.clone()),
            }
        }
    }

    /// Forgets what was going on at its end, and keeps what it counts.
    pub(crate) fn end_going_on(&mut self) {
        (self.in_flight, self.oldest_in_flight) = (None, None);
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
                // Its clients' leaving is none of its failures.
                failures: backend.counts.failed_by_service(),
                healthy: health.healthy,
                connects: Some(backend.connects),
                left_by_clients: Some(backend.counts.aborted_by_client),
                answered_to_nobody: Some(backend.counts.answered_to_nobody),
                failed_answers: Some(backend.counts.failed_answers),
                checks: Some(backend.checks),
            })
            .collect();
        let counts = &stats.service;
        Some(TrafficPeriod {
            over: None,
            arrivals: demand(counts.arrivals, counts.refused),
            completions: stats.service.completions,
            failures: stats.service.failures,
            in_flight: Some(stats.service.in_flight),
            oldest_in_flight: stats.oldest_in_flight.map(Seconds::from),
            latency: ReportedLatency::Histogram(stats.histogram),
            backends,
            queue: Some(stats.queue),
            importance: self
                .gateway
                .ranks()
                .into_iter()
                .zip(stats.ranks)
                .map(|(name, counts)| (name.to_owned(), counts))
                .collect(),
            cache: stats.cache_size.map(|_| stats.cache),
            batch: self.gateway.batch_interval().map(|_| stats.batch),
            accept_pauses: stats.accept_pauses,
            client_us: stats.service.client_us,
            sources: stats.sources,
            retries: RetryCounts::from(&stats.service),
            refused: counts.refused,
            outcomes: Outcomes::of_gateway(&stats.service),
            sizes: SizesPeriod::of_gateway(self.gateway, stats.sizes),
        })
    }
}

/// Another program's telemetry: an existing HAProxy's, or that of a Prometheus.
pub struct Other {
    source: Box<dyn Source>,
    /// The SLO's percentile, 0 to 100.
    percentile: f64,
    /// Why its statistics could not be read in the last period: said when it changes.
    statistics_error: Option<String>,
    part: Part,
}

impl Other {
    /// The telemetry of this source, shown by this name, for an SLO of this percentile.
    pub fn new(source: Box<dyn Source>, name: &str, percentile: Ratio) -> Self {
        Self {
            source,
            percentile: percentile.as_percent(),
            statistics_error: None,
            part: Part::new(name, Role::Gateway),
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
        for news in &period.news {
            tracing::warn!("{news}");
        }
        self.part = part(&self.part.name, &period, self.percentile);
        reported(period)
    }

    fn parts(&self) -> Vec<Part> {
        vec![self.part.clone()]
    }
}

/// What the source knows of itself, and of the requests unless it is lost.
fn part(name: &str, period: &TelemetryPeriod, percentile: f64) -> Part {
    let state = match (&period.lost, &period.statistics_error) {
        (Some(_), _) => "not to be used",
        (None, Some(_)) => "without statistics",
        (None, None) => "connected",
    };
    let lines_lost = period.dropped.unwrap_or(0) + period.dropped_by_proxy.unwrap_or(0) + period.malformed;
    // What reads no log has no lines to lose.
    let has_lines = matches!(period.latency, Latency::Histogram(_));
    let mut part = Part::new(name, Role::Gateway)
        .in_state(state)
        .with(Sensor::LogCoverage, period.coverage)
        .with(Sensor::LinesLost, has_lines.then_some(lines_lost as f64))
        .with(Sensor::ClockBehind, period.clock_behind.map(Seconds::get));
    if !period.measured.is_empty() {
        part = part.fact("latency_is", period.measured.as_str());
    }
    let counts = [
        ("lines_dropped_by_kernel", period.dropped),
        ("lines_dropped_by_proxy", period.dropped_by_proxy),
        ("lines_malformed", has_lines.then_some(period.malformed)),
    ];
    for (name, count) in counts {
        part = match count {
            Some(count) => part.fact(name, count),
            None => part,
        };
    }
    part.trouble
        .extend(period.lost.as_ref().map(|lost| one_line(&lost.to_string())));
    part.trouble
        .extend(period.statistics_error.as_deref().map(one_line));
    if period.lost.is_some() {
        return part;
    }
    let rate = |count: u64| (!period.since.is_zero()).then(|| count as f64 / period.since.as_secs_f64());
    let at = |latency: &Latency| latency.at(percentile).map(Seconds::get);
    let to_last_byte = period.latency_to_last_byte.as_ref().and_then(at);
    part.with(Sensor::ArrivalRate, rate(period.arrivals))
        .with(Sensor::FailureRate, rate(period.failures))
        .with(
            Sensor::InFlight,
            period.in_flight.map(|in_flight| in_flight as f64),
        )
        .with(Sensor::LatencyAtSlo, at(&period.latency))
        .with(Sensor::LatencyToLastByte, to_last_byte)
}

/// A remedy may have a line to copy, on a line of its own; news and readiness are a line each.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A period of another source, unless it is lost: why, its part tells.
fn reported(period: TelemetryPeriod) -> Option<TrafficPeriod> {
    if period.lost.is_some() {
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
        left_by_clients: None,
        answered_to_nobody: None,
        failed_answers: None,
        checks: None,
    });
    Some(TrafficPeriod {
        over: None,
        arrivals: period.arrivals,
        completions: period.completions,
        failures: period.failures,
        in_flight: period.in_flight,
        oldest_in_flight: period.oldest_in_flight,
        backends: backends.collect(),
        queue: None,
        importance: Vec::new(),
        cache: None,
        batch: None,
        accept_pauses: 0,
        client_us: 0,
        sources: SourceCounts::default(),
        retries: RetryCounts::default(),
        refused: 0,
        outcomes: Outcomes::of_telemetry(&period),
        sizes: None,
        latency: match period.latency {
            Latency::Histogram(histogram) => ReportedLatency::Histogram(*histogram),
            Latency::Percentile { value, .. } => ReportedLatency::AtSlo(value),
        },
    })
}

#[cfg(test)]
#[path = "telemetry_tests.rs"]
mod tests;
