//! What a run comes to.

use super::tick::Tick;
use hdrhistogram::Histogram;
use headroom_control::resize::PowerState;
use headroom_gateway::service_histogram;
use headroom_units::{Joules, Seconds};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Sums over a run.
#[derive(Clone, Debug)]
pub struct Summary {
    controller: &'static str,
    dry: bool,
    periods: u64,
    length: Seconds,
    /// Requests as the balancer counts them, and connections at the accept queues.
    arrivals: u64,
    completions: Option<u64>,
    failures: Option<u64>,
    latencies: Histogram<u64>,
    attempts: f64,
    drops: f64,
    server_s: BTreeMap<&'static str, f64>,
    transitions: BTreeMap<String, u64>,
    broken: BTreeMap<String, u64>,
    decisions: BTreeMap<String, u64>,
    unknown: u64,
    balancer_lost: u64,
    energy: Option<(Joules, Joules, Option<f64>)>,
    servers: usize,
    orders: (u64, u64),
}

impl Summary {
    /// Nothing yet.
    pub fn new(controller: &'static str, dry: bool) -> Self {
        Self {
            controller,
            dry,
            periods: 0,
            length: Seconds::ZERO,
            arrivals: 0,
            completions: None,
            failures: None,
            latencies: service_histogram(),
            attempts: 0.0,
            drops: 0.0,
            server_s: BTreeMap::new(),
            transitions: BTreeMap::new(),
            broken: BTreeMap::new(),
            decisions: BTreeMap::new(),
            unknown: 0,
            balancer_lost: 0,
            energy: None,
            servers: 0,
            orders: (0, 0),
        }
    }

    /// Adds a period.
    pub fn tick(&mut self, tick: &Tick) {
        self.periods += 1;
        self.length += tick.length;
        self.servers = tick.servers.len();
        if let Some(traffic) = &tick.traffic {
            self.arrivals += traffic.arrivals;
            for (sum, part) in [
                (&mut self.completions, traffic.completions),
                (&mut self.failures, traffic.failures),
            ] {
                if let Some(part) = part {
                    *sum = Some(sum.unwrap_or(0) + part);
                }
            }
            if let Some(latencies) = &traffic.latencies {
                // Both have the same bounds; only that could make it fail.
                if self.latencies.add(latencies).is_err() {
                    tracing::error!("latency histograms do not agree");
                }
            }
        }
        self.attempts += tick.attempts();
        self.drops += tick.drops();
        self.unknown += u64::from(tick.arrival_rate.is_none());
        self.balancer_lost += u64::from(tick.balancer_trouble.is_some());
        *self
            .decisions
            .entry(tick.resize.reason.rule.to_string())
            .or_default() += 1;
        self.orders = (0, 0);
        for one in &tick.servers {
            *self.server_s.entry(one.before.name()).or_default() += tick.length.get();
            if one.state != one.before {
                let name = format!("{}-{}", one.before.name(), one.state.name());
                *self.transitions.entry(name).or_default() += 1;
                if let PowerState::Failed(cause) = one.state {
                    let cause = json!(cause).as_str().unwrap_or_default().to_owned();
                    *self.broken.entry(cause).or_default() += 1;
                }
            }
            self.orders.0 += one.orders.0;
            self.orders.1 += one.orders.1;
        }
        self.energy = tick
            .energy
            .map(|energy| (energy.spent, energy.always_on, energy.saving()));
    }

    fn serving_s(&self) -> f64 {
        let of = |state: &str| self.server_s.get(state).copied().unwrap_or_default();
        of("serving") + of("warming")
    }

    /// As JSON: the keys that every run ends in, `null` where a cluster's size has none, and `resize` beside them.
    pub fn json(&self) -> Value {
        let length_s = self.length.get();
        let per = |sum: f64, by: f64| (by > 0.0).then(|| sum / by);
        let known = !self.latencies.is_empty();
        let ms = |percentile: f64| known.then(|| self.latencies.value_at_percentile(percentile) as f64 / 1e3);
        let spent = self.energy.map(|(spent, ..)| spent.get());
        let done = self.completions.unwrap_or(self.arrivals);
        json!({
            "law": format!("resize-{}", self.controller),
            "trace": "live traffic",
            "seed": 0,
            "world": "live",
            "periods": self.periods,
            "duration_s": length_s,
            "requests": {"offered": self.arrivals, "completed": self.completions, "failed": self.failures},
            "latency_ms": {
                "mean": known.then(|| self.latencies.mean() / 1e3),
                "p50": ms(50.0), "p95": ms(95.0), "p99": ms(99.0), "p999": ms(99.9),
            },
            "slo": {"percentile": null, "target_ms": null, "periods_over": null},
            "energy_j": {"value": spent, "source": spent.map(|_| "estimated")},
            "joules_per_request": spent.and_then(|spent| per(spent, done as f64)),
            "power_w": {"consumed_mean": spent.and_then(|spent| per(spent, length_s)), "allocated_mean": null, "ratio": null},
            "cores": {"mean": null, "core_seconds": null},
            "utilisation_mean": null,
            "decisions": self.decisions,
            "telemetry_lost_periods": self.unknown,
            "resize": {
                "controller": self.controller,
                "dry_run": self.dry,
                "servers": self.servers,
                "serving_mean": per(self.serving_s(), length_s),
                "server_seconds": self.server_s,
                "transitions": self.transitions,
                "failures": self.broken,
                "orders": {"done": self.orders.0, "failed": self.orders.1},
                "connections": {
                    "attempts": self.attempts,
                    "dropped": self.drops,
                    "drop_ratio": per(self.drops, self.attempts),
                },
                "balancer_lost_periods": self.balancer_lost,
                "energy_always_on_j": self.energy.map(|(_, always_on, _)| always_on.get()),
                "saving": self.energy.and_then(|(.., saving)| saving),
            },
        })
    }

    /// As text for people.
    pub fn text(&self) -> String {
        let length_s = self.length.get();
        let mean = if length_s > 0.0 {
            self.serving_s() / length_s
        } else {
            0.0
        };
        let list = |counts: &BTreeMap<String, u64>| {
            let words: Vec<String> = counts
                .iter()
                .map(|(name, count)| format!("{name} {count}"))
                .collect();
            if words.is_empty() {
                "none".to_owned()
            } else {
                words.join(", ")
            }
        };
        let mut text = format!(
            "controller   {}{}\nperiods      {} in {length_s:.0} s\nservers      {mean:.2} of {} took requests on average\n\
             requests     {} at the balancer\ntransitions  {}\nfailures     {}\ndecisions    {}",
            self.controller,
            if self.dry {
                " (dry run: nothing was done)"
            } else {
                ""
            },
            self.periods,
            self.servers,
            self.arrivals,
            list(&self.transitions),
            list(&self.broken),
            list(&self.decisions),
        );
        if self.attempts > 0.0 {
            text.push_str(&format!(
                "\nconnections  {:.0} at the accept queues, {:.0} of them dropped ({:.4} %)",
                self.attempts,
                self.drops,
                self.drops / self.attempts * 100.0
            ));
        }
        if let Some((spent, always_on, saving)) = self.energy {
            let saving = saving.map_or(String::new(), |saving| format!(": {:.1} % saved", saving * 100.0));
            text.push_str(&format!(
                "\nenergy       {:.0} J, {:.0} J with every server on{saving} (both estimated by the model in [energy])",
                spent.get(),
                always_on.get()
            ));
        }
        text
    }
}
