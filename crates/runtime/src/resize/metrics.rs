//! The metrics of a resized cluster, and what its admin port tells.

use super::history::STATES;
use super::tick::{Tick, cause_word};
use crate::live::admin::Board;
use headroom_control::resize::BALANCER_LOST;
use headroom_control::resize::PowerState;
use headroom_units::PerSecond;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ServerLabels {
    server: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TransitionLabels {
    from: &'static str,
    to: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FailureLabels {
    server: String,
    cause: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OrderLabels {
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RuleLabels {
    controller: &'static str,
    rule: String,
}

type FloatGauge = Gauge<f64, AtomicU64>;
type FloatCounter = Counter<f64, AtomicU64>;
type NoLabels = [(&'static str, &'static str); 0];

/// What the admin port tells of a resized cluster. Labels: the seven states, the configured servers, four causes, the
/// controller's rules.
#[derive(Debug)]
pub struct ResizeStatus {
    controller: &'static str,
    stale_after: Duration,
    last: Mutex<(Instant, bool, String)>,
    registry: Registry,
    servers: Family<StateLabels, Gauge>,
    wanted: Gauge,
    arrival_rate: Family<NoLabels, FloatGauge>,
    capacity: Family<NoLabels, FloatGauge>,
    server_capacity: Family<ServerLabels, FloatGauge>,
    serving: Family<ServerLabels, Gauge>,
    attempts: FloatCounter,
    drops: FloatCounter,
    transitions: Family<TransitionLabels, Counter>,
    failures: Family<FailureLabels, Counter>,
    orders: Family<OrderLabels, Counter>,
    decisions: Family<RuleLabels, Counter>,
    periods: Counter,
    blind: Counter,
    balancer_lost: Counter,
    joules: Family<NoLabels, FloatCounter>,
    joules_always_on: Family<NoLabels, FloatCounter>,
}

impl ResizeStatus {
    /// The status of a loop that has not seen a period yet; it counts as stuck after five periods without one.
    pub fn new(controller: &'static str, period: Duration) -> Self {
        let mut status = Self {
            controller,
            stale_after: period * 5 + Duration::from_secs(1),
            last: Mutex::new((Instant::now(), false, "{}".to_owned())),
            registry: Registry::with_prefix("headroom_resize"),
            servers: Family::default(),
            wanted: Gauge::default(),
            arrival_rate: Family::default(),
            capacity: Family::default(),
            server_capacity: Family::default(),
            serving: Family::default(),
            attempts: FloatCounter::default(),
            drops: FloatCounter::default(),
            transitions: Family::default(),
            failures: Family::default(),
            orders: Family::default(),
            decisions: Family::default(),
            periods: Counter::default(),
            blind: Counter::default(),
            balancer_lost: Counter::default(),
            joules: Family::default(),
            joules_always_on: Family::default(),
        };
        status.register();
        status
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("servers", "Servers in each power state", self.servers.clone());
        registry.register("servers_wanted", "Servers that should be on", self.wanted.clone());
        registry.register(
            "arrivals_per_second",
            "What arrived at the whole cluster in the last period; absent where it is unknown",
            self.arrival_rate.clone(),
        );
        registry.register(
            "capacity_per_second",
            "The capacity, given or estimated, of the servers that take requests",
            self.capacity.clone(),
        );
        registry.register(
            "server_capacity_per_second",
            "The capacity of each server, given or estimated",
            self.server_capacity.clone(),
        );
        registry.register(
            "server_takes_requests",
            "1 where a server warms up or serves",
            self.serving.clone(),
        );
        registry.register(
            "connection_attempts",
            "Connections that arrived at the accept queues, each retry one",
            self.attempts.clone(),
        );
        registry.register(
            "connections_dropped",
            "Connections that found an accept queue full, each retry one",
            self.drops.clone(),
        );
        registry.register("transitions", "Changes of power state", self.transitions.clone());
        registry.register("failures", "Failures of servers, by cause", self.failures.clone());
        registry.register(
            "power_orders",
            "Orders to power switches, by what came of them",
            self.orders.clone(),
        );
        registry.register("decisions", "Decisions, by rule", self.decisions.clone());
        registry.register("periods", "Control periods", self.periods.clone());
        registry.register(
            "periods_blind",
            "Control periods without an arrival rate",
            self.blind.clone(),
        );
        registry.register(
            "periods_balancer_lost",
            "Control periods in which the balancer could not be relied on",
            self.balancer_lost.clone(),
        );
        registry.register(
            "estimated_joules",
            "Energy of all servers, estimated by the model in [energy]",
            self.joules.clone(),
        );
        registry.register(
            "estimated_always_on_joules",
            "Energy of the same work with every server on, estimated by the same model",
            self.joules_always_on.clone(),
        );
    }

    /// Takes one period.
    pub fn tick(&self, tick: &Tick) {
        // Every state, so that one without servers reads 0.
        for state in STATES {
            let count = i64::try_from(tick.count(state)).unwrap_or(i64::MAX);
            self.servers.get_or_create(&StateLabels { state }).set(count);
        }
        self.wanted
            .set(i64::try_from(tick.resize.servers).unwrap_or(i64::MAX));
        set_or_clear(&self.arrival_rate, tick.arrival_rate.map(PerSecond::get));
        set_or_clear(&self.capacity, tick.capacity());
        self.attempts.inc_by(tick.attempts());
        self.drops.inc_by(tick.drops());
        self.periods.inc();
        self.blind.inc_by(u64::from(tick.arrival_rate.is_none()));
        self.balancer_lost
            .inc_by(u64::from(tick.balancer.trouble.is_some()));
        let rule = RuleLabels {
            controller: self.controller,
            rule: tick.resize.reason.rule.to_string(),
        };
        self.decisions.get_or_create(&rule).inc();
        let (mut done, mut failed) = (0, 0);
        for one in &tick.servers {
            let label = ServerLabels {
                server: one.name.clone(),
            };
            self.serving
                .get_or_create(&label)
                .set(i64::from(one.state.takes_requests()));
            match one.capacity.value() {
                Some(capacity) => drop(self.server_capacity.get_or_create(&label).set(capacity.get())),
                None => drop(self.server_capacity.remove(&label)),
            }
            if one.state != one.before {
                let (from, to) = (one.before.name(), one.state.name());
                self.transitions
                    .get_or_create(&TransitionLabels { from, to })
                    .inc();
                if let PowerState::Failed(cause) = one.state {
                    let cause = cause_word(cause);
                    let server = one.name.clone();
                    self.failures
                        .get_or_create(&FailureLabels { server, cause })
                        .inc();
                }
            }
            done += one.orders.done;
            failed += one.orders.failed;
        }
        for (outcome, count) in [("done", done), ("failed", failed)] {
            let counter = self.orders.get_or_create(&OrderLabels { outcome });
            counter.inc_by(count.saturating_sub(counter.get()));
        }
        if let Some(energy) = &tick.energy {
            for (family, joules) in [
                (&self.joules, energy.spent),
                (&self.joules_always_on, energy.always_on),
            ] {
                let counter = family.get_or_create(&[]);
                counter.inc_by((joules.get() - counter.get()).max(0.0));
            }
        }
        let ready = tick.arrival_rate.is_some()
            && tick.resize.reason.rule != BALANCER_LOST
            && tick.servers.iter().any(|one| one.state.takes_requests());
        // Numbers, words and lists: there is always JSON for them.
        let json = serde_json::to_string(tick).unwrap_or_default();
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = (Instant::now(), ready, json);
    }
}

fn set_or_clear(family: &Family<NoLabels, FloatGauge>, value: Option<f64>) {
    match value {
        Some(value) => drop(family.get_or_create(&[]).set(value)),
        None => family.clear(),
    }
}

impl Board for ResizeStatus {
    fn metrics_text(&self) -> String {
        let mut text = String::new();
        // Writing into a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    fn last(&self) -> (Instant, bool, String) {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn stale_after(&self) -> Duration {
        self.stale_after
    }

    fn awaited(&self) -> &'static str {
        "no period with an arrival rate, a balancer to rely on and a server that takes requests yet\n"
    }
}
