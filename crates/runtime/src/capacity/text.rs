//! What a run comes to, in words: a line a period, tables and JSON at the end.

use super::run::Found;
use super::sample::Row;
use super::totals::{Figures, Totals};
use super::way::{Way, name};
use headroom_node::queue::Scope;
use headroom_record::table::plain_table;
use headroom_units::{PerSecond, Ratio};
use serde_json::{Value, json};
use std::fmt::Write;

/// Whose events a scope's are, for people.
pub const fn whose(scope: Option<Scope>) -> &'static str {
    match scope {
        Some(Scope::Port) => "this port",
        Some(Scope::Server) => "this server",
        Some(Scope::Machine) => "the machine",
        None => "-",
    }
}

fn or_none(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}

/// One period for people: what the first of the methods shows, and every way's newest estimate.
pub fn line(row: &Row, totals: &Totals) -> String {
    let mut text = format!("{:8.1} s  ", row.at.get());
    match &row.shown {
        Err(error) => text.push_str(error),
        Ok(shown) => {
            let _ = write!(
                text,
                "arrivals {}/s  served {}/s  queue {} of {}  dropped {} %",
                or_none(shown.arrival_rate.map(PerSecond::get), 1),
                or_none(shown.service_rate.map(PerSecond::get), 1),
                or_none(shown.queue_mean, 1),
                shown
                    .backlog
                    .map_or_else(|| "-".to_owned(), |backlog| backlog.to_string()),
                or_none(shown.drop_ratio.map(Ratio::as_percent), 2),
            );
            if let Some(note) = &shown.note {
                let _ = write!(text, "  ({note})");
            }
        }
    }
    for (way, figures) in &totals.ways {
        let _ = write!(text, "  | {}: {}", way.label(), figures.latest.capacity);
    }
    text
}

/// The rows of the table of estimates: estimator, fed by, counts of, now, mean while exact, lowest, highest, exact from.
fn estimates(totals: &Totals) -> impl Iterator<Item = Vec<String>> {
    let row = move |(way, figures): (&Way, &Figures)| {
        let scope = way.method().and_then(|method| totals.methods.get(&method)?.scope);
        vec![
            way.estimator().to_owned(),
            way.method().map_or("a benchmark", name).to_owned(),
            match way {
                // A queue is the port's; what is counted of the whole machine goes with it.
                Way::Static => "-".to_owned(),
                _ => whose(scope).to_owned(),
            },
            figures.latest.capacity.to_string(),
            or_none(figures.mean(), 1),
            or_none(figures.range.map(|range| range.0), 1),
            or_none(figures.range.map(|range| range.1), 1),
            or_none(figures.exact_from_s, 1),
        ]
    };
    totals.ways.iter().map(row)
}

/// The head of [`estimates`].
const ESTIMATES: [&str; 8] = [
    "estimator",
    "fed by",
    "counts of",
    "at the end, /s",
    "mean, /s",
    "lowest, /s",
    "highest, /s",
    "exact from, s",
];

/// The rows of the table of methods: method, samples, failures, mean and longest interval, connections, drops, drop
/// ratio, CPU.
fn methods(totals: &Totals) -> impl Iterator<Item = Vec<String>> {
    let count = |count: Option<u64>| or_none(count.map(|count| count as f64), 0);
    totals.methods.iter().map(move |(method, kept)| {
        let ratio = kept.drops.zip(kept.connections).map(|(drops, connections)| {
            let attempts = drops + connections;
            if attempts == 0 {
                0.0
            } else {
                drops as f64 / attempts as f64 * 100.0
            }
        });
        vec![
            name(*method).to_owned(),
            whose(kept.scope).to_owned(),
            kept.samples.to_string(),
            kept.failures.to_string(),
            or_none(kept.interval_s().map(|interval| interval.0), 3),
            or_none(kept.interval_s().map(|interval| interval.1), 3),
            count(kept.connections),
            count(kept.drops),
            or_none(ratio, 3),
            or_none(kept.cpu_mean().map(|cpu| cpu * 100.0), 1),
        ]
    })
}

/// The head of [`methods`].
const METHODS: [&str; 10] = [
    "method",
    "counts of",
    "samples",
    "failed",
    "interval, s",
    "longest, s",
    "connections",
    "drops",
    "dropped, %",
    "CPU, %",
];

impl Found {
    /// Both tables as plain text.
    pub fn table(&self) -> String {
        let totals = &self.totals;
        let mut text = format!(
            "capacity of {} over {:.1} s, in connections a second (requests, by Apache's status page)\n\n",
            self.plan,
            self.duration.get()
        );
        text.push_str(&plain_table(&ESTIMATES, &[0, 1, 2], estimates(totals)));
        text.push('\n');
        text.push_str(&plain_table(&METHODS, &[0, 1], methods(totals)));
        for passed_over in &self.passed_over {
            let _ = write!(
                text,
                "\n{} was not used: {}",
                name(passed_over.method),
                passed_over.reason
            );
        }
        for (method, kept) in &totals.methods {
            if let Some(failure) = &kept.failure {
                let _ = write!(
                    text,
                    "\n{} failed {} times, the last time: {failure}",
                    name(*method),
                    kept.failures
                );
            }
        }
        text.trim_end().to_owned()
    }

    /// The run summary's keys, and everything that is found beside them, as one object.
    pub fn json(&self) -> Value {
        let (plan, totals) = (&self.plan, &self.totals);
        let ways: Vec<Value> = totals
            .ways
            .iter()
            .map(|(way, figures)| {
                let scope = way.method().and_then(|method| totals.methods.get(&method)?.scope);
                json!({
                    "estimator": way.word(),
                    "method": way.method(),
                    "scope": scope,
                    "capacity": figures.latest.capacity,
                    "reason": figures.latest.reason,
                    "exact_from_s": figures.exact_from_s,
                    "mean_per_s": figures.mean(),
                    "least_per_s": figures.range.map(|range| range.0),
                    "most_per_s": figures.range.map(|range| range.1),
                })
            })
            .collect();
        let methods: Vec<Value> = totals
            .methods
            .iter()
            .map(|(method, kept)| {
                json!({
                    "method": method,
                    "scope": kept.scope,
                    "samples": kept.samples,
                    "failures": kept.failures,
                    "failure": kept.failure,
                    "interval_mean_s": kept.interval_s().map(|interval| interval.0),
                    "interval_longest_s": kept.interval_s().map(|interval| interval.1),
                    "connections": kept.connections,
                    "drops": kept.drops,
                    "cpu_mean": kept.cpu_mean(),
                })
            })
            .collect();
        let own = json!({
            "port": plan.port,
            "agent": plan.agent().map(ToString::to_string),
            "cgroup": plan.group(),
            "status_url": plan.status().map(ToString::to_string),
            "period_s": plan.tuning.sampling_period_s,
            "estimates": ways,
            "methods": methods,
            "passed_over": self.passed_over,
            "remarks": self.remarks,
        });
        let mut all = json!(self.summary);
        if let (Some(all), Value::Object(own)) = (all.as_object_mut(), own) {
            all.extend(own);
        }
        all
    }
}
