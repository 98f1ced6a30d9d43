//! The Prometheus metrics of a run. Names follow Kepler's pattern (`_joules_total`, `_watts`, a `zone` label), and
//! every watt and joule carries its `source`.

use super::guard::supervisor::State;
use super::outcomes::CLASSES;
use super::tick::Tick;
use crate::oncall::ConnectionSeries;
use hdrhistogram::Histogram;
use headroom_control::Latency;
use headroom_gateway::ConnectCounts;
use headroom_record::Health;
use headroom_units::{Quantity, Role, Sensor, Source};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry, Unit};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Upper ends of the buckets of `headroom_service_latency_seconds`, in seconds.
const BUCKETS_S: [f64; 18] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.35, 0.5, 1.0, 2.5, 5.0,
    10.0,
];

/// Names and values, in the order in which they are written. A family whose labels are none has one metric or none: what is
/// not known is absent.
type Labels = Vec<(&'static str, String)>;
type Counters = Family<Labels, Counter>;
type FloatGauge = Gauge<f64, AtomicU64>;
type FloatCounter = Counter<f64, AtomicU64>;
type Gauges = Family<Labels, FloatGauge>;

/// The metrics of one run, updated once a period.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    joules: Family<Labels, FloatCounter>,
    watts: Gauges,
    refused: Counters,
    frequency: Gauges,
    /// A family for each lever and each sensor.
    quantities: Vec<(Quantity, Gauges)>,
    states: Gauges,
    transitions: Counters,
    /// What each part's state was in the period before.
    before: Mutex<BTreeMap<(Role, String), String>>,
    nodes_missing: FloatGauge,
    record_failing: FloatGauge,
    record_lost: Counter,
    latency_at_slo: FloatGauge,
    target: FloatGauge,
    in_flight: FloatGauge,
    requests: Counter,
    completions: Counter,
    failures: Counter,
    failures_by_cause: Counters,
    responses: Counters,
    backend_requests: Counters,
    backend_failures: Counters,
    connects: Counters,
    ejections: Counters,
    ejections_withheld: Counters,
    queue_waits: Counter,
    queue_refusals: Counters,
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
    decisions: Counters,
    periods: Counter,
    lost: Counter,
    actuation_failures: Counter,
    reflexes: Counter,
    accept_pauses: Counter,
    gateway_restarts: Counter,
    guard_up: Gauges,
    guard_restarts: Counters,
    foreign_writes: Counter,
    levers_left_alone: FloatGauge,
    paused: FloatGauge,
    latency: Arc<LatencyBuckets>,
}

impl Metrics {
    /// The metrics, all at zero, with those of connections where there are any.
    pub fn new(connections: ConnectionSeries) -> Self {
        let mut registry = Registry::with_prefix("headroom");
        let joules = Family::default();
        registry.register_with_unit(
            "node_cpu",
            "Energy of the machine's processors since the start of the run",
            Unit::Joules,
            joules.clone(),
        );
        let latency = Arc::new(LatencyBuckets::default());
        registry.register_collector(Box::new(Arc::clone(&latency)));
        registry.register_collector(Box::new(super::certificates::DaysLeft));
        registry.register_collector(Box::new(connections));
        let all = &mut registry;
        Self {
            joules,
            latency,
            watts: add(
                all,
                "node_cpu_watts",
                "Mean power in the last period; absent where it is unknown",
            ),
            refused: add(
                all,
                "node_meter_refused",
                "Readings of a power meter that cannot be true and were left out",
            ),
            frequency: add(
                all,
                "node_frequency_hertz",
                "Mean frequency of the processors in the last period; absent where it is unknown",
            ),
            quantities: Quantity::all().map(|one| (one, quantity(all, one))).collect(),
            states: add(
                all,
                "state",
                "1 for the state that a node or a gateway is in; the states of a role are few",
            ),
            transitions: add(all, "transitions", "Changes of a node's or a gateway's state"),
            before: Mutex::default(),
            nodes_missing: add(all, "nodes_missing", "Nodes of the run that cannot be reached"),
            record_failing: add(
                all,
                "record_failing",
                "1 while the flight recorder cannot write: the run goes on and is not recorded",
            ),
            record_lost: add(
                all,
                "record_lost_periods",
                "Periods that the flight recorder did not write",
            ),
            latency_at_slo: add(
                all,
                "service_latency_at_slo_seconds",
                "Latency at the SLO's percentile in the last period, failed requests being the slowest; +Inf where it lies \
                 among them",
            ),
            target: add(all, "service_latency_target_seconds", "The SLO's target"),
            in_flight: add(all, "service_in_flight", "Requests being served"),
            requests: add(all, "service_requests", "Requests that arrived"),
            completions: add(
                all,
                "service_completions",
                "Requests that were answered, with a status that is not a failed one",
            ),
            failures: add(
                all,
                "service_failures",
                "Requests that failed: answered with a failed status, not answered, or broken off by whomever",
            ),
            failures_by_cause: add(all, "failures", "Requests that failed, by cause"),
            responses: add(
                all,
                "responses",
                "Answers by the class of their status; absent where the telemetry does not tell",
            ),
            backend_requests: add(all, "backend_requests", "Requests sent to a backend"),
            backend_failures: add(all, "backend_failures", "Requests that a backend failed"),
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
            decisions: add(all, "decisions", "Decisions by the rule that took them"),
            periods: add(all, "periods", "Control periods"),
            lost: add(all, "telemetry_lost_periods", "Periods without telemetry"),
            guard_up: add(
                all,
                "guard_up",
                "1 while a guard stands that lifts all limits if this process is killed or hangs, 0 while none does: nothing is limited then",
            ),
            guard_restarts: add(
                all,
                "guard_restarts",
                "How often another guard was needed because the one before had ended or hung",
            ),
            actuation_failures: add(
                all,
                "actuation_failures",
                "Decisions that could not be carried out",
            ),
            reflexes: add(
                all,
                "reflexes",
                "Times that cores and frequency were raised within a period, because more requests were in flight than expected",
            ),
            accept_pauses: add(
                all,
                "gateway_accept_pauses",
                "Times that the gateway stopped accepting clients for a while, to keep descriptors for backends",
            ),
            gateway_restarts: add(
                all,
                "gateway_restarts",
                "Times that the gateway's process ended by itself and was started again",
            ),
            foreign_writes: add(
                all,
                "foreign_writes",
                "Writes of somebody else to what is controlled, left alone until `headroom resume`",
            ),
            levers_left_alone: add(
                all,
                "levers_left_alone",
                "Settings that somebody else wrote and that are left alone",
            ),
            paused: add(all, "paused", "1 while an operator has paused control, else 0"),
            registry,
        }
    }

    /// Takes one period.
    pub fn tick(&self, law: &str, tick: &Tick) {
        self.periods.inc();
        self.accept_pauses.inc_by(tick.accept_pauses);
        if let Some(energy) = tick.energy {
            let of = labels([("zone", &tick.zone), ("source", energy.source.as_str())]);
            self.joules.get_or_create(&of).inc_by(energy.value.get());
        }
        self.watts.clear();
        if let Some(power) = tick.power() {
            self.watts
                .get_or_create(&labels([("source", power.source.as_str())]))
                .set(power.value.get());
        }
        for refused in &tick.refused {
            let of = labels([("node", &refused.node), ("meter", &refused.meter)]);
            self.refused.get_or_create(&of).inc_by(refused.count);
        }
        self.frequency.clear();
        if let Some(frequency) = tick.observation.frequency {
            self.frequency
                .get_or_create(&labels([("source", frequency.source.as_str())]))
                .set(frequency.value.get());
        }
        self.parts(tick);
        self.nodes_missing.set(tick.missing.nodes as f64);
        if let Some(target) = tick.target {
            self.target.set(target.get());
        }
        match &tick.observation.traffic {
            Some(traffic) => {
                self.requests.inc_by(traffic.arrivals);
                self.completions.inc_by(traffic.completions);
                self.failures.inc_by(traffic.failures);
                self.in_flight.set(traffic.in_flight as f64);
                let at_slo = |latency: Latency| match latency.missed {
                    true => f64::INFINITY,
                    false => latency.at_slo.get(),
                };
                self.latency_at_slo.set(traffic.latency.map_or(f64::NAN, at_slo));
            }
            None => {
                self.lost.inc_by(u64::from(tick.telemetry_lost));
                self.in_flight.set(f64::NAN);
                self.latency_at_slo.set(f64::NAN);
            }
        }
        for (cause, count) in &tick.outcomes.causes {
            self.failures_by_cause
                .get_or_create(&labels([("cause", cause)]))
                .inc_by(*count);
        }
        for (class, count) in CLASSES
            .into_iter()
            .zip(tick.outcomes.responses.into_iter().flatten())
        {
            self.responses
                .get_or_create(&labels([("class", class)]))
                .inc_by(count);
        }
        for backend in &tick.backends {
            let of = labels([("backend", &backend.name)]);
            self.backend_requests.get_or_create(&of).inc_by(backend.requests);
            self.backend_failures.get_or_create(&of).inc_by(backend.failures);
            if let Some(connects) = &backend.connects {
                self.connects(&backend.name, connects);
            }
        }
        self.queue_length.clear();
        if let Some(queue) = &tick.queue {
            self.queue_length
                .get_or_create(&Labels::new())
                .set(queue.waiting as f64);
            self.queue_waits.inc_by(queue.waited);
            for (cause, count) in [("full", queue.full), ("expired", queue.expired)] {
                self.queue_refusals
                    .get_or_create(&labels([("cause", cause)]))
                    .inc_by(count);
            }
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
        for reason in &tick.decision.reasons {
            let of = labels([("law", law), ("rule", &reason.rule)]);
            self.decisions.get_or_create(&of).inc();
        }
        self.reflexes.inc_by(u64::from(tick.observation.reflexes));
        if !tick.not_carried_out.is_empty() {
            self.actuation_failures.inc();
        }
        let counted = self.foreign_writes.get();
        self.foreign_writes
            .inc_by(tick.levers.foreign_writes.saturating_sub(counted));
        self.levers_left_alone.set(tick.levers.left_alone.len() as f64);
        self.paused.set(f64::from(u8::from(tick.levers.paused)));
        if let Some(histogram) = &tick.histogram {
            self.latency.add(histogram);
        }
    }

    /// What is in force and what is seen, of the whole and of each part.
    fn parts(&self, tick: &Tick) {
        let whole = tick.whole(&tick.observation.in_force);
        for (quantity, family) in &self.quantities {
            family.clear();
            // The whole has what is said of the cluster, but for the watts of another source.
            for part in tick.parts.iter().chain([&whole]) {
                let Some(value) = part.get(*quantity) else {
                    continue;
                };
                let name = match part.role {
                    Role::Cluster => &whole.name,
                    _ => &part.name,
                };
                let mut of = labels([("role", part.role.name()), ("part", name)]);
                let source = match *quantity {
                    Quantity::Sensor(Sensor::Power) => part.source,
                    // It is by the model, whatever meter the whole has.
                    Quantity::Sensor(Sensor::PowerAlwaysOn) => Some(Source::Estimated),
                    _ => None,
                };
                of.extend(source.map(|source| ("source", source.as_str().to_owned())));
                family.get_or_create(&of).set(value);
            }
        }
        self.states.clear();
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        for part in &tick.parts {
            let Some(state) = &part.state else { continue };
            let of = labels([("role", part.role.name()), ("part", &part.name), ("state", state)]);
            self.states.get_or_create(&of).set(1.0);
            let from = before.insert((part.role, part.name.clone()), state.clone());
            if let Some(from) = from.filter(|from| from != state) {
                let of = labels([
                    ("role", part.role.name()),
                    ("part", &part.name),
                    ("from", &from),
                    ("to", state),
                ]);
                self.transitions.get_or_create(&of).inc();
            }
        }
    }

    /// Takes how the flight recorder fares.
    pub fn recorded(&self, health: &Health) {
        self.record_failing
            .set(f64::from(u8::from(health.failing.is_some())));
        let lost = health.dropped + health.refused + health.unwritten;
        self.record_lost
            .inc_by(lost.saturating_sub(self.record_lost.get()));
    }

    /// Takes how often the gateway's process was started again since the start of the run.
    pub fn gateway_restarts(&self, restarts: u64) {
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
        ];
        for (cause, count) in causes {
            let of = labels([("backend", backend), ("cause", cause)]);
            self.ejections.get_or_create(&of).inc_by(count);
        }
        self.ejections_withheld
            .get_or_create(&labels([("backend", backend)]))
            .inc_by(counts.ejections_withheld);
    }

    /// Takes how this process is watched over now; without it both metrics are absent.
    pub fn guard(&self, state: &State) {
        let up = if state.guard.is_ok() { 1.0 } else { 0.0 };
        self.guard_up.get_or_create(&Labels::new()).set(up);
        let restarts = self.guard_restarts.get_or_create(&Labels::new());
        restarts.inner().store(state.restarts, Ordering::Relaxed);
    }

    /// The metrics as OpenMetrics text.
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}

/// A metric, entered in the registry.
fn add<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// The family of a quantity, named after it and its unit.
fn quantity(registry: &mut Registry, quantity: Quantity) -> Gauges {
    let info = quantity.info();
    let what = match quantity {
        Quantity::Lever(_) => "in force; all of a node that cannot be reached counts in the whole",
        Quantity::Sensor(_) => "in the last period; absent where it is unknown",
    };
    add(registry, &info.key(), &format!("{}, {what}", info.title))
}

fn labels<const N: usize>(pairs: [(&'static str, &str); N]) -> Labels {
    pairs.map(|(name, value)| (name, value.to_owned())).to_vec()
}

/// Cumulative latency buckets, filled from the period's HDR histograms rather than request by request.
#[derive(Debug, Default)]
struct LatencyBuckets(Mutex<Cumulated>);

#[derive(Debug, Default)]
struct Cumulated {
    buckets: [u64; BUCKETS_S.len() + 1],
    sum_s: f64,
    count: u64,
}

impl LatencyBuckets {
    fn add(&self, histogram: &Histogram<u64>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for value in histogram.iter_recorded() {
            let count = value.count_since_last_iteration();
            let seconds = histogram.median_equivalent(value.value_iterated_to()) as f64 / 1e6;
            let bucket = BUCKETS_S.partition_point(|end| *end < seconds);
            all.buckets[bucket] += count;
            all.sum_s += seconds * count as f64;
            all.count += count;
        }
    }
}

impl Collector for LatencyBuckets {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ends = BUCKETS_S.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = ends.zip(all.buckets).collect();
        let help = "Latency of the requests answered, from head received to last byte sent";
        let snapshot = Snapshot {
            sum_s: all.sum_s,
            count: all.count,
            buckets,
        };
        let metric = encoder.encode_descriptor(
            "service_latency",
            help,
            Some(&Unit::Seconds),
            snapshot.metric_type(),
        )?;
        snapshot.encode(metric)
    }
}

struct Snapshot {
    sum_s: f64,
    count: u64,
    buckets: Vec<(f64, u64)>,
}

impl EncodeMetric for Snapshot {
    fn encode(&self, mut encoder: prometheus_client::encoding::MetricEncoder<'_>) -> Result<(), fmt::Error> {
        encoder.encode_histogram::<NoLabelSet>(self.sum_s, self.count, &self.buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}
