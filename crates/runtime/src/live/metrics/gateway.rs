//! The metrics of gateways: their backends, queue, cache and batches. A run without one has none of them.

use super::super::sizes;
use super::{Counters, FloatCounter, Gauges, Labels, Tick, add, labels};
use headroom_gateway::ConnectCounts;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use std::sync::atomic::{AtomicBool, Ordering};

/// The metrics of a run's gateways, together.
#[derive(Debug)]
pub(super) struct GatewayMetrics {
    registry: Registry,
    /// Whether there is a gateway.
    is_there: AtomicBool,
    backend_requests: Counters,
    backend_failures: Counters,
    size_requests: Counters,
    size_bytes: Counters,
    connects: Counters,
    ejections: Counters,
    ejections_withheld: Counters,
    queue_waits: Counter,
    queue_refusals: Counters,
    queue_left: Counter,
    importance_waits: Counters,
    importance_refusals: Counters,
    queue_length: Gauges,
    cache_requests: Counters,
    cache_stored: Counter,
    cache_invalidated: Counter,
    cache_hit_ratio: Gauges,
    batches: Counter,
    batch_requests: Counter,
    batch_groups: Counter,
    batch_answered: Counter,
    batch_passed: Counters,
    batch_held: Gauges,
    batch_waiting: FloatCounter,
    batch_processing: FloatCounter,
    accept_pauses: Counter,
    client_time: FloatCounter,
    sources_refused: Counters,
    refused: Counter,
    retries: Counter,
    retries_withheld: Counter,
    gateway_restarts: Counter,
}

impl GatewayMetrics {
    pub(super) fn new() -> Self {
        let mut registry = Registry::with_prefix("headroom");
        let all = &mut registry;
        Self {
            is_there: AtomicBool::new(false),
            backend_requests: add(all, "backend_requests", "Requests sent to a backend"),
            backend_failures: add(
                all,
                "backend_failures",
                "Requests that a backend failed; without those whose clients left",
            ),
            size_requests: add(
                all,
                "backend_size_requests",
                "Requests sent to a backend, by the class of sizes that their answers were known to be of",
            ),
            size_bytes: add(
                all,
                "service_size_response_bytes",
                "Content of the answers, by the class of sizes that they were known to be of",
            ),
            connects: add(
                all,
                "backend_connects",
                "Connections to a backend by what came of them",
            ),
            ejections: add(
                all,
                "backend_ejections",
                "Times that a backend was passed over, by the failed connections it was for",
            ),
            ejections_withheld: add(
                all,
                "backend_ejections_withheld",
                "Times that a backend was not passed over because too many were away",
            ),
            queue_waits: add(
                all,
                "service_queue_waits",
                "Requests that waited because every backend was at its limit",
            ),
            queue_refusals: add(
                all,
                "service_queue_refusals",
                "Requests turned away because too many waited, or they had waited too long",
            ),
            queue_left: add(
                all,
                "service_queue_left",
                "Requests that waited and left without a backend: their clients went away, their time was over, or all backends were gone",
            ),
            importance_waits: add(
                all,
                "service_importance_waits",
                "Requests that waited for a backend below its limit, by their class of importance",
            ),
            importance_refusals: add(
                all,
                "service_importance_refusals",
                "Requests turned away because there was no place to wait, or they had waited too long, by their class of importance",
            ),
            queue_length: add(
                all,
                "service_queue_length",
                "Requests waiting for a backend below its limit; absent where it is unknown",
            ),
            cache_requests: add(
                all,
                "service_cache_requests",
                "Requests that the cache looked for, by what they came to; those that waited for another count twice",
            ),
            cache_stored: add(all, "service_cache_stored", "Answers that the cache stored"),
            cache_invalidated: add(
                all,
                "service_cache_invalidated",
                "Targets that the cache forgot because a request changed them",
            ),
            cache_hit_ratio: add(
                all,
                "service_cache_hit_ratio",
                "Share of the requests answered from memory in the last period; absent without a cache, or without requests",
            ),
            batches: add(all, "service_batches", "Batches that the gateway let go"),
            batch_requests: add(
                all,
                "service_batch_requests",
                "Requests that were held until the end of their batch's interval",
            ),
            batch_groups: add(
                all,
                "service_batch_groups",
                "Groups of requests for the same in the batches let go",
            ),
            batch_answered: add(
                all,
                "service_batch_answered",
                "Batches of which the last answer came",
            ),
            batch_passed: add(
                all,
                "service_batch_passed",
                "Requests that were not held to the end of an interval, because as many were held as may be or for as long as may be",
            ),
            batch_held: add(
                all,
                "service_batch_held",
                "Requests that the batcher held at the end of the last period; absent where it is unknown",
            ),
            batch_waiting: add(
                all,
                "service_batch_waiting_seconds",
                "What the batches before left of the intervals of the batches let go, together",
            ),
            batch_processing: add(
                all,
                "service_batch_processing_seconds",
                "From letting a batch go to its last answer, of the batches answered together",
            ),
            client_time: add(
                all,
                "service_client_seconds",
                "Time that clients took beyond what the latencies count: to send their requests, and to take answers that were ready",
            ),
            accept_pauses: add(
                all,
                "gateway_accept_pauses",
                "Times that the gateway stopped accepting clients for a while, to keep descriptors for backends",
            ),
            refused: add(
                all,
                "service_refused",
                "Requests that the gateway itself refused (4xx, 501), as malformed, too large or over their source's rate: no demand for a law",
            ),
            retries: add(
                all,
                "service_retries",
                "Requests sent to a backend once more, because a connection had failed or died",
            ),
            retries_withheld: add(
                all,
                "service_retries_withheld",
                "Requests that could have been sent once more and were not, because the budget of retries was used up",
            ),
            sources_refused: add(
                all,
                "gateway_sources_refused",
                "Requests and connections refused by their source's limits, connections refused by their PROXY protocol header, and \
                 connections that passed untracked because too many sources were remembered",
            ),
            gateway_restarts: add(
                all,
                "gateway_restarts",
                "Times that the gateway's process ended by itself and was started again",
            ),
            registry,
        }
    }

    /// Takes one period.
    pub(super) fn tick(&self, tick: &Tick) {
        let is_there = !tick.backends.is_empty()
            || tick.queue.is_some()
            || tick.cache.is_some()
            || tick.batch.is_some()
            || tick.observation.sizes.is_some();
        self.is_there.fetch_or(is_there, Ordering::Relaxed);
        self.accept_pauses.inc_by(tick.accept_pauses);
        self.client_time.inc_by(tick.client_us as f64 / 1e6);
        self.refused.inc_by(tick.requests_refused);
        self.retries.inc_by(tick.retries.sent);
        self.retries_withheld.inc_by(tick.retries.withheld);
        let sources = &tick.sources;
        for (what, count) in [
            ("request", sources.requests),
            ("connection", sources.connections),
            ("connect", sources.connects),
            ("untracked", sources.untracked),
            ("proxy_header", sources.proxy_headers),
        ] {
            if count > 0 {
                self.sources_refused
                    .get_or_create(&labels([("what", what)]))
                    .inc_by(count);
            }
        }
        for backend in &tick.backends {
            let of = labels([("backend", &backend.name)]);
            self.backend_requests.get_or_create(&of).inc_by(backend.requests);
            self.backend_failures.get_or_create(&of).inc_by(backend.failures);
            if let Some(connects) = &backend.connects {
                self.connects(&backend.name, connects);
            }
        }
        for (size, class) in tick.observation.sizes.iter().flat_map(sizes::named) {
            let of = labels([("size", &size)]);
            self.size_bytes.get_or_create(&of).inc_by(class.bytes);
            let backends = tick.observation.sizes.iter().flat_map(|sizes| &sizes.backends);
            for (backend, part) in backends.zip(&class.backends) {
                let of = labels([("backend", &backend.url), ("size", &size)]);
                self.size_requests.get_or_create(&of).inc_by(part.arrivals);
            }
        }
        self.queue_length.clear();
        if let Some(queue) = &tick.queue {
            self.queue_length
                .get_or_create(&Labels::new())
                .set(queue.waiting as f64);
            self.queue_waits.inc_by(queue.waited);
            self.queue_left.inc_by(queue.left);
            for (cause, count) in [("full", queue.full), ("expired", queue.expired)] {
                self.queue_refusals
                    .get_or_create(&labels([("cause", cause)]))
                    .inc_by(count);
            }
        }
        for (name, counts) in &tick.importance {
            let of = labels([("class", name)]);
            self.importance_waits.get_or_create(&of).inc_by(counts.waited);
            self.importance_refusals
                .get_or_create(&of)
                .inc_by(counts.turned_away);
        }
        self.cache_hit_ratio.clear();
        if let Some(cache) = &tick.cache {
            for (result, count) in [
                ("hit", cache.hits),
                ("stale", cache.stale),
                ("validated", cache.validated),
                ("fetched", cache.misses.saturating_sub(cache.validated)),
                ("passed", cache.passed),
                ("waited", cache.collapsed),
            ] {
                self.cache_requests
                    .get_or_create(&labels([("result", result)]))
                    .inc_by(count);
            }
            self.cache_stored.inc_by(cache.stored);
            self.cache_invalidated.inc_by(cache.invalidated);
            if let Some(rate) = cache.hit_rate() {
                self.cache_hit_ratio.get_or_create(&Labels::new()).set(rate);
            }
        }
        self.batch_held.clear();
        if let Some(batch) = &tick.batch {
            self.batch_held
                .get_or_create(&Labels::new())
                .set(batch.held as f64);
            self.batches.inc_by(batch.batches);
            self.batch_requests.inc_by(batch.requests);
            self.batch_groups.inc_by(batch.groups);
            self.batch_answered.inc_by(batch.answered);
            for (cause, count) in [("full", batch.full), ("expired", batch.expired)] {
                self.batch_passed
                    .get_or_create(&labels([("cause", cause)]))
                    .inc_by(count);
            }
            self.batch_waiting.inc_by(batch.waiting_us as f64 / 1e6);
            self.batch_processing.inc_by(batch.processing_us as f64 / 1e6);
        }
    }

    /// Takes how often a gateway's process was started again since the start of the run.
    pub(super) fn restarts(&self, restarts: u64) {
        self.is_there.store(true, Ordering::Relaxed);
        self.gateway_restarts
            .inc_by(restarts.saturating_sub(self.gateway_restarts.get()));
    }

    fn connects(&self, backend: &str, counts: &ConnectCounts) {
        let outcomes = [
            ("opened", counts.opened),
            ("refused", counts.refused),
            ("timed_out", counts.timed_out),
            ("no_resources", counts.no_resources),
        ];
        for (outcome, count) in outcomes {
            let of = labels([("backend", backend), ("outcome", outcome)]);
            self.connects.get_or_create(&of).inc_by(count);
        }
        let causes = [
            ("refused", counts.ejected_refused),
            ("timed_out", counts.ejected_timed_out),
            ("failing", counts.ejected_failing),
        ];
        for (cause, count) in causes {
            let of = labels([("backend", backend), ("cause", cause)]);
            self.ejections.get_or_create(&of).inc_by(count);
        }
        self.ejections_withheld
            .get_or_create(&labels([("backend", backend)]))
            .inc_by(counts.ejections_withheld);
    }

    /// Adds them to a text, where there is a gateway.
    pub(super) fn write(&self, text: &mut String) {
        if self.is_there.load(Ordering::Relaxed) {
            // Writing to a string cannot fail.
            let _ = encode_registry(text, &self.registry);
        }
    }
}
