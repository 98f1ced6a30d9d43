//! What a run comes to.

use super::switch_worker::Outcomes;
use super::tick::{Tick, cause_word, latency_ms};
use hdrhistogram::Histogram;
use headroom_control::resize::EnergyTotals;
use headroom_control::resize::PowerState;
use headroom_gateway::service_histogram;
use headroom_units::Seconds;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What a run whose first periods are unknown had come to before its energy and its orders can be told.
#[derive(Clone, Copy, Debug, Default)]
struct Unreported {
    orders: Outcomes,
    energy: EnergyTotals,
    length: Seconds,
    arrivals: u64,
    completions: u64,
}

/// Sums over a run, or over what is known of it.
#[derive(Clone, Debug)]
pub struct Summary {
    controller: String,
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
    energy: Option<EnergyTotals>,
    unreported: Unreported,
    servers: usize,
    orders: Outcomes,
}

impl Summary {
    /// Nothing yet.
    pub fn new(controller: &str, dry: bool) -> Self {
        Self {
            controller: controller.to_owned(),
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
            unreported: Unreported::default(),
            servers: 0,
            orders: Outcomes::default(),
        }
    }

    /// Adds a period.
    pub fn tick(&mut self, tick: &Tick) {
        self.periods += 1;
        self.length += tick.length;
        self.servers = tick.servers.len();
        let reported = &tick.balancer;
        self.arrivals += reported.arrivals.unwrap_or_default();
        for (sum, part) in [
            (&mut self.completions, reported.completions),
            (&mut self.failures, reported.failures),
        ] {
            if let Some(part) = part {
                *sum = Some(sum.unwrap_or(0) + part);
            }
        }
        if let Some(latencies) = &reported.latencies {
            // Both have the same bounds; only that could make it fail.
            if self.latencies.add(latencies).is_err() {
                tracing::error!("latency histograms do not agree");
            }
        }
        self.attempts += tick.attempts();
        self.drops += tick.drops();
        self.unknown += u64::from(tick.arrival_rate.is_none());
        self.balancer_lost += u64::from(reported.trouble.is_some());
        *self
            .decisions
            .entry(tick.resize.reason.rule.to_string())
            .or_default() += 1;
        self.orders = Outcomes::default();
        for one in &tick.servers {
            *self.server_s.entry(one.before.name()).or_default() += tick.length.get();
            if one.state != one.before {
                let name = format!("{}-{}", one.before.name(), one.state.name());
                *self.transitions.entry(name).or_default() += 1;
                if let PowerState::Failed(cause) = one.state {
                    *self.broken.entry(cause_word(cause)).or_default() += 1;
                }
            }
            self.orders.done += one.orders.done;
            self.orders.failed += one.orders.failed;
        }
        self.energy = tick.energy;
        // Both are told since the start of the run: what this period ordered and spent cannot be told from what those before
        // it did.
        if let (1, 1..) = (self.periods, tick.period) {
            self.unreported.orders = self.orders;
            if let Some(energy) = tick.energy {
                self.unreported = Unreported {
                    energy,
                    length: self.length,
                    arrivals: self.arrivals,
                    completions: self.completions.unwrap_or_default(),
                    ..self.unreported
                };
            }
        }
    }

    /// What came of the orders. A damaged record may tell of fewer than before.
    const fn ordered(&self) -> Outcomes {
        let (all, before) = (self.orders, self.unreported.orders);
        Outcomes {
            done: all.done.saturating_sub(before.done),
            failed: all.failed.saturating_sub(before.failed),
        }
    }

    /// The energy, and the seconds and the requests that it went into: those that were answered, or all where nobody counts
    /// the answers. `None` where there is no model, or no period but one whose share cannot be told.
    fn spent(&self) -> Option<(EnergyTotals, f64, f64)> {
        let (all, before) = (self.energy?, self.unreported.energy);
        let energy = EnergyTotals {
            spent: all.spent - before.spent,
            always_on: all.always_on - before.always_on,
        };
        let length = self.length - self.unreported.length;
        let done = match self.completions {
            Some(completions) => completions - self.unreported.completions,
            None => self.arrivals - self.unreported.arrivals,
        };
        (length > Seconds::ZERO).then(|| (energy, length.get(), done as f64))
    }

    fn serving_s(&self) -> f64 {
        let of = |state: &str| self.server_s.get(state).copied().unwrap_or_default();
        of("serving") + of("warming")
    }

    /// As JSON: the keys that every run ends in, `null` where a cluster's size has none, and `resize` beside them.
    pub fn json(&self) -> Value {
        let length_s = self.length.get();
        let per = |sum: f64, by: f64| (by > 0.0).then(|| sum / by);
        let reported = self.spent();
        let spent = reported.map(|(energy, ..)| energy.spent.get());
        json!({
            "law": format!("resize-{}", self.controller),
            "trace": "live traffic",
            "seed": 0,
            "world": "live",
            "periods": self.periods,
            "duration_s": length_s,
            "requests": {"offered": self.arrivals, "completed": self.completions, "failed": self.failures},
            "latency_ms": latency_ms(&self.latencies),
            "slo": {"percentile": null, "target_ms": null, "periods_over": null},
            "energy_j": {"value": spent, "source": spent.map(|_| "estimated")},
            "joules_per_request": reported.and_then(|(energy, _, done)| per(energy.spent.get(), done)),
            "power_w": {"consumed_mean": reported.and_then(|(energy, length_s, _)| per(energy.spent.get(), length_s)), "allocated_mean": null, "ratio": null},
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
                "orders": self.ordered(),
                "connections": {
                    "attempts": self.attempts,
                    "dropped": self.drops,
                    "drop_ratio": per(self.drops, self.attempts),
                },
                "balancer_lost_periods": self.balancer_lost,
                "energy_always_on_j": reported.map(|(energy, ..)| energy.always_on),
                "saving": reported.and_then(|(energy, ..)| energy.saving()),
            },
        })
    }
}

/// A share in percent with one decimal, and no minus before a zero.
pub fn percent(share: f64) -> String {
    let tenths = (share * 1e3).round();
    format!("{:.1}", if tenths == 0.0 { 0.0 } else { tenths / 10.0 })
}

/// A summary as text for people.
pub fn text(summary: &Value) -> String {
    let resize = &summary["resize"];
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    let list = |counts: &Value| {
        let counts = counts.as_object().into_iter().flatten();
        let words: Vec<String> = counts.map(|(name, count)| format!("{name} {count}")).collect();
        if words.is_empty() {
            "none".to_owned()
        } else {
            words.join(", ")
        }
    };
    let mut text = format!(
        "controller   {}{}\nperiods      {} in {:.0} s\nservers      {:.2} of {} took requests on average\n\
         requests     {} at the balancer\ntransitions  {}\nfailures     {}\ndecisions    {}",
        resize["controller"].as_str().unwrap_or_default(),
        if resize["dry_run"] == true {
            " (dry run: nothing was done)"
        } else {
            ""
        },
        summary["periods"],
        number(&summary["duration_s"]),
        number(&resize["serving_mean"]),
        resize["servers"],
        summary["requests"]["offered"],
        list(&resize["transitions"]),
        list(&resize["failures"]),
        list(&summary["decisions"]),
    );
    let connections = &resize["connections"];
    if let Some(drop_ratio) = connections["drop_ratio"].as_f64() {
        text.push_str(&format!(
            "\nconnections  {:.0} at the accept queues, {:.0} of them dropped ({:.4} %)",
            number(&connections["attempts"]),
            number(&connections["dropped"]),
            drop_ratio * 100.0
        ));
    }
    if let Some(spent) = summary["energy_j"]["value"].as_f64() {
        let saving = resize["saving"].as_f64();
        let saving = saving.map_or(String::new(), |saving| format!(": {} % saved", percent(saving)));
        text.push_str(&format!(
            "\nenergy       {spent:.0} J, {:.0} J with every server on{saving} (both estimated by the model in [energy])",
            number(&resize["energy_always_on_j"])
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_of_nothing_and_one_of_much_are_told() {
        let nothing = Summary::new("static", true).json();
        let reported = text(&nothing);
        assert!(
            reported.contains("static (dry run") && reported.contains("0 in 0 s"),
            "{reported}"
        );
        assert!(
            reported.contains("failures     none") && !reported.contains("energy"),
            "{reported}"
        );
        let mut much = nothing;
        much["energy_j"]["value"] = json!(600.0);
        much["resize"]["energy_always_on_j"] = json!(1000.0);
        much["resize"]["saving"] = json!(0.4);
        much["resize"]["connections"] = json!({"attempts": 1000.0, "dropped": 2.0, "drop_ratio": 0.002});
        much["resize"]["transitions"] = json!({"off-booting": 2, "booting-warming": 1});
        let reported = text(&much);
        assert!(
            reported.contains("600 J, 1000 J with every server on: 40.0 % saved (both estimated"),
            "{reported}"
        );
        assert_eq!(
            (percent(-1e-9).as_str(), percent(-0.01).as_str()),
            ("0.0", "-1.0")
        );
        assert!(reported.contains("2 of them dropped (0.2000 %)"), "{reported}");
        assert!(
            reported.contains("booting-warming 1, off-booting 2"),
            "{reported}"
        );
    }
}
