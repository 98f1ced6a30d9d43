//! What a run comes to, in words: a line a period, the table at the end, JSON, CSV.

use super::Run;
use super::history::{Figures, History};
use super::seen::Row;
use super::way::{Way, name, number};
use headroom_control::capacity::Capacity;
use headroom_node::queue::Scope;
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

/// One period for people: what was seen by the first of the methods, and every way's newest estimate.
pub fn line(row: &Row, history: &History) -> String {
    let mut text = format!("{:8.1} s  ", row.at.get());
    match &row.seen {
        Err(error) => text.push_str(error),
        Ok(seen) => {
            let _ = write!(
                text,
                "arrivals {}/s  served {}/s  queue {} of {}  dropped {} %",
                or_none(seen.arrival_rate.map(PerSecond::get), 1),
                or_none(seen.service_rate.map(PerSecond::get), 1),
                or_none(seen.queue_mean, 1),
                seen.places
                    .map_or_else(|| "-".to_owned(), |places| places.to_string()),
                or_none(seen.drop_ratio.map(Ratio::as_percent), 2),
            );
            if let Some(note) = &seen.note {
                let _ = write!(text, "  ({note})");
            }
        }
    }
    for (way, figures) in &history.ways {
        let _ = write!(text, "  | {}: {}", way.label(), figures.latest.capacity);
    }
    text
}

/// The rows of the table of estimates: estimator, fed by, counts of, now, mean while exact, lowest, highest, exact from.
pub fn estimates(history: &History) -> Vec<Vec<String>> {
    let row = |(way, figures): (&Way, &Figures)| {
        let scope = way
            .method()
            .and_then(|method| history.methods.get(&method)?.scope);
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
    history.ways.iter().map(row).collect()
}

/// The head of [`estimates`].
pub const ESTIMATES: [&str; 8] = [
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
pub fn methods(history: &History) -> Vec<Vec<String>> {
    let count = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
    history
        .methods
        .iter()
        .map(|(method, kept)| {
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
        .collect()
}

/// The head of [`methods`].
pub const METHODS: [&str; 10] = [
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

/// Both tables as plain text.
pub fn table(run: &Run<'_>, history: &History) -> String {
    let mut text = format!(
        "capacity of {} over {:.1} s, in connections a second (requests, by Apache's status page)\n\n",
        run.place(),
        run.duration.get()
    );
    text.push_str(&plain(&ESTIMATES, &estimates(history)));
    text.push('\n');
    text.push_str(&plain(&METHODS, &methods(history)));
    for passed_over in &run.passed_over {
        let _ = write!(
            text,
            "\n{} was not used: {}",
            name(passed_over.method),
            passed_over.reason
        );
    }
    for (method, kept) in &history.methods {
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

/// A table as plain text.
pub fn plain(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count());
        cells.chain([head[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    // Words stand to the left, figures to the right.
    let words = |column: usize| column == 0 || head[column].ends_with("by") || head[column].ends_with("of");
    let mut text = String::new();
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    for row in std::iter::once(&head).chain(rows) {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(column, (cell, width))| match words(column) {
                true => format!("{cell:<width$}"),
                false => format!("{cell:>width$}"),
            })
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Everything of a run as one object.
pub fn json(run: &Run<'_>, history: &History) -> Value {
    let ways: Vec<Value> = history
        .ways
        .iter()
        .map(|(way, figures)| {
            let scope = way
                .method()
                .and_then(|method| history.methods.get(&method)?.scope);
            json!({
                "estimator": match way {
                    Way::Published(_) => "published",
                    Way::BusyTime(_) => "busy-time",
                    Way::Cpu(_) => "cpu",
                    Way::Ramp(_) => "ramp",
                    Way::Static => "static",
                },
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
    let methods: Vec<Value> = history
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
    json!({
        "port": run.args.port,
        "agent": run.args.agent.as_ref().map(ToString::to_string),
        "cgroup": run.args.cgroup,
        "status_url": run.args.status_url.as_ref().map(ToString::to_string),
        "duration_s": run.duration,
        "period_s": run.tuning.sampling_period_s,
        "estimates": ways,
        "methods": methods,
        "passed_over": run.passed_over,
        "remarks": run.remarks,
    })
}

/// Every kept sample as a line.
pub fn csv(history: &History) -> String {
    let ways: Vec<Way> = history.ways.keys().copied().collect();
    let mut text =
        "at_s,method,interval_s,arrivals_per_s,served_per_s,queue_mean,places,threshold,drop_ratio,\
                    connections,drops,cpu"
            .to_owned();
    for way in &ways {
        let column = way
            .label()
            .to_lowercase()
            .replace([',', '(', ')'], "")
            .replace([' ', '/'], "_");
        let _ = write!(text, ",{column}_per_s,{column}_kind");
    }
    text.push_str(",error");
    text.push('\n');
    let mut rows: Vec<&Row> = history.methods.values().flat_map(|kept| &kept.rows).collect();
    rows.sort_by(|one, other| one.at.get().total_cmp(&other.at.get()));
    let put = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.6}"));
    let count = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
    for row in rows {
        let nothing = super::seen::Seen::default();
        let (seen, error) = match &row.seen {
            Ok(seen) => (seen, String::new()),
            Err(error) => (&nothing, format!("\"{}\"", error.replace('"', "\"\""))),
        };
        let cells = [
            format!("{:.3}", row.at.get()),
            row.method.to_string(),
            put(row.interval.map(|interval| interval.get())),
            put(seen.arrival_rate.map(PerSecond::get)),
            put(seen.service_rate.map(PerSecond::get)),
            put(seen.queue_mean),
            count(seen.places),
            put(seen.threshold),
            put(seen.drop_ratio.map(Ratio::get)),
            count(seen.connections),
            count(seen.drops),
            put(seen.cpu.map(Ratio::get)),
        ];
        text.push_str(&cells.join(","));
        for way in &ways {
            let found = row.estimates.iter().find(|(of, _)| of == way);
            let kind = found.map_or("", |(_, estimate)| match estimate.capacity {
                Capacity::Unknown => "",
                known => known.name(),
            });
            let _ = write!(
                text,
                ",{},{kind}",
                put(found.and_then(|(_, estimate)| number(estimate)))
            );
        }
        let _ = writeln!(text, ",{error}");
    }
    text
}
