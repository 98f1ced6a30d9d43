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

/// What the forms of an estimate mean, and what to do about each.
pub const LEGEND: &str = "\
80.0             exact: its limit is met now; plan with it
about 80.0       its limit was met a while ago, or too little or nothing was observed since: it tells more under the next overload
at least 80.0    nothing has shown its limit: load it until connections wait in its accept queue, or go by a benchmark
if A: 80.0       only if A holds, which nothing here checks: see whether it does, or go by another line
In parentheses is the interval, then the age, and in brackets the rule where it is not the usual one (docs/capacity.md). The line with `>`
is the capacity of the run; the others stand there to compare, \"published\" the estimator of the literature and \"busy time\" ours.
Mean, lowest and highest are of the exact estimates, of one that rests on an assumption of all.
A connection counts once, whatever it carries: behind keep-alive a server takes more requests than this.";

/// One period for people: the estimate to go by, what the first of the methods shows, and every other way's newest estimate.
pub fn line(row: &Row, totals: &Totals, leading: Way) -> String {
    let mut text = format!("{:8.1} s  ", row.at.get());
    if let Some(figures) = totals.ways.get(&leading) {
        let _ = write!(text, "{}: {}  ", leading.label(), figures.said.in_short());
    }
    match &row.shown {
        Err(error) => text.push_str(error),
        Ok(shown) => {
            let _ = write!(
                text,
                "arrivals {}/s{}  served {}/s  queue {} of {}  dropped {} %",
                or_none(shown.arrival_rate.map(PerSecond::get), 1),
                // A client's retry is another SYN.
                if shown.drop_ratio.is_some_and(|ratio| ratio > Ratio::ZERO) {
                    " with retries"
                } else {
                    ""
                },
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
    let others = totals
        .in_order(leading)
        .into_iter()
        .filter(|(way, _)| *way != leading);
    for (way, figures) in others {
        let _ = write!(text, "  | {}: {}", way.label(), figures.said.without_unit());
    }
    text
}

/// The rows of the table of estimates: estimator, fed by, counts of, at the end, mean while exact, lowest, highest, exact from.
fn estimates(totals: &Totals, leading: Way) -> impl Iterator<Item = Vec<String>> {
    let row = move |(way, figures): (Way, &Figures)| {
        let scope = way.method().and_then(|method| totals.methods.get(&method)?.scope);
        let mark = if way == leading { ">" } else { " " };
        vec![
            format!("{mark} {}", way.estimator()),
            way.method().map_or("a benchmark", name).to_owned(),
            match way {
                // A queue is the port's; what is counted of the whole machine goes with it.
                Way::Static => "-".to_owned(),
                _ => whose(scope).to_owned(),
            },
            figures.said.in_short(),
            or_none(figures.mean(), 1),
            or_none(figures.range.map(|range| range.0), 1),
            or_none(figures.range.map(|range| range.1), 1),
            or_none(figures.exact_from_s, 1),
        ]
    };
    totals.in_order(leading).into_iter().map(row)
}

/// The head of [`estimates`].
const ESTIMATES: [&str; 8] = [
    "estimator",
    "fed by",
    "counts of",
    "at the end",
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
        let mut text = format!("capacity of {} over {:.1} s: ", self.plan, self.duration.get());
        match totals.ways.get(&self.leading) {
            Some(figures) => {
                let _ = write!(text, "{}\n{}\n\n", figures.said.in_short(), figures.said.why);
            }
            None => text.push_str("unknown\nthere was no sample\n\n"),
        }
        let rows = estimates(totals, self.leading);
        text.push_str(&plain_table(&ESTIMATES, &[0, 1, 2, 3], rows));
        let _ = writeln!(text, "\n{LEGEND}");
        for (way, figures) in totals.in_order(self.leading) {
            if let Some((at_s, how)) = &figures.changed {
                let _ = writeln!(
                    text,
                    "{}: the server changed at {at_s:.1} s ({how}); mean, lowest and highest are of the whole run",
                    way.label()
                );
            }
        }
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
                    "unit": figures.said.unit,
                    "interval_per_s": figures.said.interval_per_s,
                    "age_s": figures.said.age_s,
                    "assumes": figures.said.assumes,
                    "leading": *way == self.leading,
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

#[cfg(test)]
mod tests {
    use super::super::sample::{CONNECTIONS, Shown};
    use super::super::{Place, Plan};
    use super::*;
    use headroom_control::Reason;
    use headroom_control::capacity::{Capacity, Estimate, QueueTuning};
    use headroom_node::queue::{QueueMethod, QueueOptions};
    use headroom_record::RunTotals;
    use headroom_units::Seconds;

    const OURS: Way = Way::BusyTime(QueueMethod::Ebpf);

    /// A sample of a server whose limit was met twenty seconds ago, with what the published estimator and CPU utilisation say.
    fn row() -> Row {
        let reason = |rule: &'static str, text: &str| Reason::new(rule, text.to_owned(), &[]);
        let ours = Estimate {
            capacity: Capacity::About(PerSecond::new(38.7)),
            interval: Some([36.9, 40.6].map(PerSecond::new)),
            age: Some(Seconds::new(20.0)),
            reason: reason("stale", "nobody waited of late"),
        };
        let plain = |capacity, rule| Estimate::plain(capacity, reason(rule, ""));
        let bound = Capacity::LowerBound(PerSecond::new(72.0));
        let by_cpu = Capacity::Exact(PerSecond::new(542.9));
        Row {
            at: Seconds::new(30.0),
            method: QueueMethod::Ebpf,
            interval: Some(Seconds::new(1.0)),
            shown: Ok(Shown {
                arrival_rate: Some(PerSecond::new(515.0)),
                service_rate: Some(PerSecond::new(38.0)),
                drop_ratio: Some(Ratio::new(0.9)),
                queue_mean: Some(12.0),
                backlog: Some(512),
                ..Shown::default()
            }),
            estimates: vec![
                (Way::Published(QueueMethod::Ebpf), plain(bound, "fast-start")),
                (OURS, ours),
                (Way::Cpu(QueueMethod::Status), plain(by_cpu, "utilisation")),
            ],
            is_shared: false,
            unit: CONNECTIONS,
        }
    }

    fn totals() -> Totals {
        let mut totals = Totals::default();
        let mut changed = row();
        changed.at = Seconds::new(9.0);
        changed.estimates[1].1.reason = Reason::new("changed", "80.0/s until lately".to_owned(), &[]);
        totals.add(changed);
        totals.add(row());
        totals
    }

    #[test]
    fn a_line_begins_with_the_estimate_to_go_by_with_all_that_is_known_of_it() {
        assert_eq!(
            line(&row(), &totals(), OURS),
            "    30.0 s  busy time (eBPF): about 38.7 connections/s (36.9 to 40.6), 20 s ago [stale]  arrivals 515.0/s with retries  \
             served 38.0/s  queue 12.0 of 512  dropped 90.00 %  | published (eBPF): at least 72.0  | CPU (status page): if CPU is \
             the bottleneck: 542.9"
        );
    }

    #[test]
    fn the_table_marks_the_estimate_to_go_by_and_tells_what_each_kind_is_and_that_the_server_changed() {
        let plan = Plan {
            port: 80,
            methods: Vec::new(),
            are_chosen: false,
            tuning: QueueTuning::default(),
            ramp: None,
            fixed: None,
            place: Place::Here {
                options: Box::new(QueueOptions::new(80)),
                group: None,
            },
        };
        let meta = super::super::run::tests::meta();
        let found = Found {
            summary: RunTotals::new(None).summary(&meta),
            plan,
            leading: OURS,
            totals: totals(),
            passed_over: Vec::new(),
            remarks: Vec::new(),
            duration: Seconds::new(30.0),
        };
        let table = found.table();
        let at = |text: &str| table.find(text).unwrap_or_else(|| panic!("{text} in {table}"));
        assert!(table.starts_with(
            "capacity of port 80 over 30.0 s: about 38.7 connections/s (36.9 to 40.6), 20 s ago [stale]\nnobody waited of late\n"
        ));
        assert!(at("> queue, busy time (ours)") < at("  queue, published"));
        for kind in ["exact:", "about 80.0", "at least 80.0", "if A: 80.0"] {
            assert!(at(kind) > at("if CPU is the bottleneck: 542.9 connections/s"));
        }
        assert!(table.contains("the server changed at 9.0 s (80.0/s until lately)"));
        assert!(!table.contains("Apache"), "{table}");
        let json = found.json();
        let ours = &json["estimates"][1];
        assert_eq!(
            (
                &ours["age_s"],
                &ours["interval_per_s"][0],
                &ours["unit"],
                &ours["leading"]
            ),
            (&20.0.into(), &36.9.into(), &"connections".into(), &true.into())
        );
        assert_eq!(json["estimates"][2]["assumes"], "CPU is the bottleneck");
        assert_eq!(json["estimates"][2]["capacity"]["kind"], "about");
    }
}
