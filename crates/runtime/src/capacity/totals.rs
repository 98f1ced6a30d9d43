//! What a run comes to, by method and by way to an estimate.

use super::others::Count;
use super::sample::Row;
use super::way::{Way, number};
use headroom_control::Reason;
use headroom_control::capacity::{Capacity, Estimate};
use headroom_node::queue::{QueueMethod, Scope};
use headroom_record::statistics::Mean;
use headroom_units::Seconds;
use std::collections::BTreeMap;

/// What an SNMP agent shows may be so much older than the asking: its cache, and the clock that it looks at for it.
const AGENT_LAG: Seconds = Seconds::new(6.0);

/// The figures of one method.
#[derive(Clone, Debug, Default)]
pub struct MethodTotals {
    /// The newest sample, until it is taken.
    pub newest: Option<Row>,
    /// How many there were, and how many of them failed.
    pub samples: u64,
    /// See `samples`.
    pub failures: u64,
    /// The last failure.
    pub failure: Option<String>,
    /// Of the times between samples, seconds.
    interval: Mean,
    longest_s: f64,
    /// Of the shares of the CPU time.
    cpu: Mean,
    /// The scope of its counts.
    pub scope: Option<Scope>,
    /// The newest counts of connections and drops.
    pub connections: Option<u64>,
    /// See `connections`.
    pub drops: Option<u64>,
    counted: Count,
}

impl MethodTotals {
    fn push(&mut self, row: Row) {
        self.samples += 1;
        if let Some(interval) = row.interval {
            self.interval.add(interval.get());
            self.longest_s = self.longest_s.max(interval.get());
        }
        match &row.shown {
            Ok(shown) => {
                self.scope = shown.scope.or(self.scope);
                self.connections = shown.connections.or(self.connections);
                self.drops = shown.drops.or(self.drops);
                if let Some(cpu) = shown.cpu {
                    self.cpu.add(cpu.get());
                }
            }
            Err(error) => {
                self.failures += 1;
                self.failure = Some(error.clone());
            }
        }
        self.newest = Some(row);
    }

    /// Mean and largest time between samples that did not fail, seconds.
    pub fn interval_s(&self) -> Option<(f64, f64)> {
        Some((self.interval.value()?, self.longest_s))
    }

    /// The mean share of CPU time.
    pub fn cpu_mean(&self) -> Option<f64> {
        self.cpu.value()
    }
}

/// The figures of one way to an estimate.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The newest estimate.
    pub latest: Estimate,
    /// When the first exact one came, seconds.
    pub exact_from_s: Option<f64>,
    exact: Mean,
    /// The lowest and the highest exact estimate.
    pub range: Option<(f64, f64)>,
}

impl Figures {
    fn push(&mut self, at_s: f64, estimate: Estimate) {
        if let Capacity::Exact(value) = estimate.capacity {
            let value = value.get();
            self.exact_from_s = self.exact_from_s.or(Some(at_s));
            self.exact.add(value);
            let (least, most) = self.range.unwrap_or((value, value));
            self.range = Some((least.min(value), most.max(value)));
        }
        self.latest = estimate;
    }

    /// The mean of the exact estimates.
    pub fn mean(&self) -> Option<f64> {
        self.exact.value()
    }
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// By method.
    pub methods: BTreeMap<QueueMethod, MethodTotals>,
    /// By way.
    pub ways: BTreeMap<Way, Figures>,
}

impl Totals {
    /// Takes a row. It is given back as it is after an estimate was withheld that is not this port's, with what is new, once.
    pub fn add(&mut self, mut row: Row) -> (Row, Vec<String>) {
        let mut news = Vec::new();
        let method = row.method;
        self.withhold(&mut row);
        let at_s = row.at.get();
        for (way, estimate) in &row.estimates {
            if number(estimate).is_none() && self.is_new(*way, estimate) {
                news.push(format!("{}: {}", way.label(), estimate.reason.text));
            }
            self.ways
                .entry(*way)
                .or_insert_with(|| Figures {
                    latest: estimate.clone(),
                    exact_from_s: None,
                    exact: Mean::default(),
                    range: None,
                })
                .push(at_s, estimate.clone());
        }
        self.methods.entry(method).or_default().push(row.clone());
        (row, news)
    }

    /// An estimate that there cannot be for a reason that was not given at the sample before.
    fn is_new(&self, way: Way, estimate: &Estimate) -> bool {
        // There is never one at the first sample, and none before requests come or in a quiet: nothing to tell.
        let silent = ["first-sample", "no-request-yet", "idle"];
        let rule = estimate.reason.rule.as_ref();
        let before = self
            .ways
            .get(&way)
            .map(|figures| figures.latest.reason.rule.as_ref());
        !silent.contains(&rule) && before != Some(rule)
    }

    /// Takes back the estimates of counts that are mostly not this port's.
    fn withhold(&mut self, row: &mut Row) {
        let Ok(shown) = &row.shown else { return };
        let Some(connections) = shown.connections else {
            return;
        };
        let kept = self.methods.entry(row.method).or_default();
        kept.counted.push(row.at, connections);
        if shown.scope != Some(Scope::Machine) {
            return;
        }
        let lag = match row.method {
            QueueMethod::Snmp => AGENT_LAG,
            _ => Seconds::ZERO,
        };
        let port = self.methods.get(&QueueMethod::Ebpf).map(|kept| &kept.counted);
        let own = self.methods.get(&row.method).map(|kept| &kept.counted);
        let Some((others, all)) = own.zip(port).and_then(|(own, port)| own.beyond(port, lag)) else {
            return;
        };
        for (_, estimate) in &mut row.estimates {
            let text = format!(
                "{others:.0} of the last {all:.0} connections of this machine came to other ports: what it serves there \
                 would be counted here"
            );
            let numbers = [("others", others), ("connections", all)];
            *estimate = Estimate::plain(Capacity::Unknown, Reason::new("other-ports", text, &numbers));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::Shown;
    use super::*;
    use headroom_units::PerSecond;

    fn row(at_s: f64, method: QueueMethod, scope: Scope, connections: u64, capacity: f64) -> Row {
        let estimate = Estimate::plain(
            Capacity::Exact(PerSecond::new(capacity)),
            Reason::new("utilisation", String::new(), &[]),
        );
        Row {
            at: Seconds::new(at_s),
            method,
            interval: Some(Seconds::new(1.0)),
            shown: Ok(Shown {
                scope: Some(scope),
                connections: Some(connections),
                ..Shown::default()
            }),
            estimates: vec![(Way::Cpu(method), estimate)],
        }
    }

    #[test]
    fn the_machine_s_connections_are_no_estimate_where_they_are_other_ports() {
        let mut totals = Totals::default();
        let mut news = Vec::new();
        for second in 0..20u32 {
            let (at_s, count) = (f64::from(second), u64::from(second) * 100);
            totals.add(row(at_s, QueueMethod::Ebpf, Scope::Port, count, 500.0));
            // From the tenth second on another server is busy too.
            let elsewhere = u64::from(second.saturating_sub(10)) * 80;
            news.extend(
                totals
                    .add(row(
                        at_s,
                        QueueMethod::Kernel,
                        Scope::Machine,
                        count + elsewhere,
                        600.0,
                    ))
                    .1,
            );
        }
        let figures = &totals.ways[&Way::Cpu(QueueMethod::Kernel)];
        assert_eq!(figures.latest.capacity, Capacity::Unknown);
        assert_eq!(
            (figures.mean(), figures.range),
            (Some(600.0), Some((600.0, 600.0)))
        );
        assert_eq!(news.len(), 1, "said once: {news:?}");
        assert!(news[0].contains("other ports"), "{news:?}");
        assert_eq!(
            totals.ways[&Way::Cpu(QueueMethod::Ebpf)].latest.capacity.name(),
            "exact"
        );
    }
}
