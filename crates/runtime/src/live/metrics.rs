//! The Prometheus metrics of a run. Names follow Kepler's pattern (`_joules_total`, `_watts`, a `zone` label), and
//! every watt and joule carries its `source`.

mod gateway;

use super::guard::supervisor::State;
use super::outcomes::CLASSES;
use super::tick::Tick;
use crate::oncall::ConnectionSeries;
use gateway::GatewayMetrics;
use hdrhistogram::Histogram;
use headroom_control::Latency;
use headroom_record::Health;
use headroom_units::{Quantity, Role, Sensor, Source};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
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
    gateway: GatewayMetrics,
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
    decisions: Counters,
    periods: Counter,
    lost: Counter,
    actuation_failures: Counter,
    reflexes: Counter,
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
        registry.register_collector(Box::new(super::config_reload::ConfigReload));
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
            in_flight: add(
                all,
                "service_in_flight",
                "Requests being served; NaN where it is not known",
            ),
            requests: add(
                all,
                "service_requests",
                "Requests that arrived: completions, failures, refused ones, and those that have come to be in flight",
            ),
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
            gateway: GatewayMetrics::new(),
            registry,
        }
    }

    /// Takes one period.
    pub fn tick(&self, law: &str, tick: &Tick) {
        self.periods.inc();
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
                self.requests.inc_by(traffic.arrivals + tick.requests_refused);
                self.completions.inc_by(traffic.completions);
                self.failures.inc_by(traffic.failures);
                let in_flight = traffic.in_flight.map_or(f64::NAN, |in_flight| in_flight as f64);
                self.in_flight.set(in_flight);
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
        self.gateway.tick(tick);
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
        self.gateway.restarts(restarts);
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
        let _ = encode_registry(&mut text, &self.registry);
        self.gateway.write(&mut text);
        let _ = encode_eof(&mut text);
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
        let help = "Latency of the requests answered, as their source measures it; a gateway from when the request is there to the last \
                    byte of its answer, without the time in which its client is waited for (service_client_seconds)";
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
