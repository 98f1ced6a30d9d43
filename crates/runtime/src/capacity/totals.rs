//! What a run comes to, by method and by way to an estimate.

use super::others::{Beyond, Count};
use super::sample::Row;
use super::way::{Way, number};
use headroom_control::Reason;
use headroom_control::capacity::{
    Capacity, Estimate, UtilisationEstimator, UtilisationStep, UtilisationTuning,
};
use headroom_node::queue::{QueueMethod, Scope};
use headroom_record::CapacitySummary;
use headroom_record::statistics::Mean;
use headroom_units::{PerSecond, Seconds};
use std::collections::BTreeMap;

/// What an SNMP agent shows may be so much older than the asking: its cache, and the clock that it looks at for it.
const AGENT_LAG: Seconds = Seconds::new(6.0);

/// The rules by which a server is found to have changed.
const CHANGES: [&str; 3] = ["changed", "faster", "another-listener"];
/// A lower bound under this says nothing.
const LEAST_BOUND: f64 = 0.05;

/// What of a capacity can be told: nothing is exact that rests on what nobody has checked, and to take at least nothing is no capacity.
fn tellable(capacity: Capacity, assumes: bool) -> Capacity {
    match capacity {
        Capacity::LowerBound(bound) if bound.get() < LEAST_BOUND => Capacity::Unknown,
        other if assumes => other.unconfirmed(),
        other => other,
    }
}

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
    is_shared: bool,
    had_others: bool,
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
    /// The same with what it rests on and of what it is.
    pub said: CapacitySummary,
    /// When the first exact one came, seconds.
    pub exact_from_s: Option<f64>,
    exact: Mean,
    /// The lowest and the highest exact estimate; of a way that rests on what nobody checks, of all that have a number.
    pub range: Option<(f64, f64)>,
    /// When the server was last found to have changed, and how.
    pub changed: Option<(f64, String)>,
}

impl Figures {
    fn new(estimate: &Estimate, said: CapacitySummary) -> Self {
        Self {
            latest: estimate.clone(),
            said,
            exact_from_s: None,
            exact: Mean::default(),
            range: None,
            changed: None,
        }
    }

    fn push(&mut self, at_s: f64, estimate: &Estimate, said: CapacitySummary) {
        let is_exact = matches!(estimate.capacity, Capacity::Exact(_));
        if CHANGES.contains(&estimate.reason.rule.as_ref()) {
            self.changed = Some((at_s, estimate.reason.text.clone()));
        }
        if is_exact {
            self.exact_from_s = self.exact_from_s.or(Some(at_s));
        }
        let counts = is_exact || said.assumes.is_some();
        if let Some(value) = estimate.capacity.met().filter(|_| counts).map(PerSecond::get) {
            self.exact.add(value);
            let (least, most) = self.range.unwrap_or((value, value));
            self.range = Some((least.min(value), most.max(value)));
        }
        self.latest = estimate.clone();
        self.said = said;
    }

    /// The mean of the same.
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
    /// Every way with its figures, the one to go by first and ours before the published ones.
    pub fn in_order(&self, leading: Way) -> Vec<(Way, &Figures)> {
        let rank = |way: Way| match way {
            _ if way == leading => 0,
            Way::BusyTime(_) => 1,
            _ => 2,
        };
        let mut ways: Vec<(Way, &Figures)> = self.ways.iter().map(|(way, figures)| (*way, figures)).collect();
        ways.sort_by_key(|(way, _)| rank(*way));
        ways
    }

    /// Takes a row. It is given back as it is after an estimate was withheld that is not this port's, with what is new, once.
    pub fn add(&mut self, mut row: Row) -> (Row, Vec<String>) {
        let mut news = Vec::new();
        let method = row.method;
        self.withhold(&mut row);
        let is_shared = row.is_shared;
        for (way, estimate) in &mut row.estimates {
            estimate.capacity = tellable(estimate.capacity, way.assumes(is_shared).is_some());
        }
        let at_s = row.at.get();
        for (way, estimate) in &row.estimates {
            if number(estimate).is_none() && self.is_new(*way, estimate) {
                news.push(format!("{}: {}", way.label(), estimate.reason.text));
            }
            let said = row.summary(*way, estimate);
            let figures = self.ways.entry(*way);
            let figures = figures.or_insert_with(|| Figures::new(estimate, said.clone()));
            figures.push(at_s, estimate, said);
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

    /// Takes back the estimates of counts that are mostly not this port's, and says of which counts it is not known. What the CPU
    /// utilisation says is taken of the port's own connections then, where they are counted.
    fn withhold(&mut self, row: &mut Row) {
        let kept = self.methods.entry(row.method).or_default();
        let Ok(shown) = &row.shown else {
            row.is_shared = kept.is_shared;
            return;
        };
        if let Some(connections) = shown.connections {
            kept.counted.push(row.at, connections);
        }
        if shown.scope != Some(Scope::Machine) {
            kept.is_shared = false;
            return;
        }
        let lag = match row.method {
            QueueMethod::Snmp => AGENT_LAG,
            _ => Seconds::ZERO,
        };
        let port = self.methods.get(&QueueMethod::Ebpf).map(|kept| &kept.counted);
        let own_rate = port.and_then(|port| port.rate(row.interval?));
        let own = self.methods.get(&row.method).map(|kept| &kept.counted);
        let beyond = own.zip(port).and_then(|(own, port)| own.beyond(port, lag));
        let kept = self.methods.entry(row.method).or_default();
        // What was estimated while others were many goes on in what is estimated after them.
        kept.had_others |= beyond.is_some_and(|beyond| beyond.are_many);
        row.is_shared = beyond.is_none() || kept.had_others;
        kept.is_shared = row.is_shared;
        let Some(Beyond { others, all, .. }) = beyond.filter(|beyond| beyond.are_many) else {
            return;
        };
        let by_cpu = UtilisationEstimator::new(UtilisationTuning::default()).ok();
        for (way, estimate) in &mut row.estimates {
            // Of the port's own there is one all the same.
            if let (Way::Cpu(_), Some(by_cpu), Some(rate)) = (*way, &by_cpu, own_rate) {
                *estimate = by_cpu.observe(&UtilisationStep {
                    throughput: Some(rate),
                    utilisation: shown.cpu,
                });
                continue;
            }
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
    use super::super::sample::{CONNECTIONS, Shown};
    use super::*;
    use headroom_units::Ratio;

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
            estimates: vec![(Way::BusyTime(method), estimate)],
            is_shared: false,
            unit: CONNECTIONS,
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
        let figures = &totals.ways[&Way::BusyTime(QueueMethod::Kernel)];
        assert_eq!(figures.latest.capacity, Capacity::Unknown);
        assert_eq!(
            (figures.mean(), figures.range),
            (Some(600.0), Some((600.0, 600.0)))
        );
        assert_eq!(news.len(), 1, "said once: {news:?}");
        assert!(news[0].contains("other ports"), "{news:?}");
        assert_eq!(
            totals.ways[&Way::BusyTime(QueueMethod::Ebpf)]
                .latest
                .capacity
                .name(),
            "exact"
        );
        let mut busy = row(20.0, QueueMethod::Kernel, Scope::Machine, 3_000, 0.0);
        busy.estimates[0].0 = Way::Cpu(QueueMethod::Kernel);
        if let Ok(shown) = &mut busy.shown {
            shown.cpu = Some(Ratio::new(0.5));
        }
        let (by_cpu, _) = totals.add(busy);
        assert_eq!(
            by_cpu.estimates[0].1.capacity,
            Capacity::About(PerSecond::new(200.0)),
            "of the port's own 100/s at half of the CPU time: {by_cpu:?}"
        );
        // When nobody comes there any more there is an estimate again, of which theirs are part.
        for second in 20..80u32 {
            let (at_s, count) = (f64::from(second), u64::from(second) * 100);
            totals.add(row(at_s, QueueMethod::Ebpf, Scope::Port, count, 500.0));
            totals.add(row(at_s, QueueMethod::Kernel, Scope::Machine, count + 720, 600.0));
        }
        let said = &totals.ways[&Way::BusyTime(QueueMethod::Kernel)].said;
        assert_eq!(said.without_unit(), "if no other port is used: 600.0");
        assert_eq!(said.kind, "about");
    }

    #[test]
    fn what_rests_on_what_nobody_checked_is_not_exact_and_says_what_that_is() {
        // Without the program in the kernel nobody knows whose connections the machine's are.
        let mut alone = Totals::default();
        let mut beside = Totals::default();
        for second in 0..10u32 {
            let (at_s, count) = (f64::from(second), u64::from(second) * 100);
            let machine = || row(at_s, QueueMethod::Kernel, Scope::Machine, count, 364.5);
            alone.add(machine());
            beside.add(row(at_s, QueueMethod::Ebpf, Scope::Port, count, 80.0));
            beside.add(machine());
        }
        let of = |totals: &Totals, method| totals.ways[&Way::BusyTime(method)].said.clone();
        let said = of(&alone, QueueMethod::Kernel);
        assert_eq!(
            (said.kind.as_str(), said.without_unit().as_str()),
            ("about", "if no other port is used: 364.5")
        );
        // Where the two counts are the same it is this port's.
        for method in [QueueMethod::Kernel, QueueMethod::Ebpf] {
            let said = of(&beside, method);
            assert_eq!((said.kind.as_str(), said.assumes), ("exact", None), "{method}");
        }
        // And an extrapolation from CPU utilisation presumes what the bottleneck is, whoever counts.
        let mut by_cpu = row(0.0, QueueMethod::Status, Scope::Server, 10, 542.9);
        by_cpu.estimates[0].0 = Way::Cpu(QueueMethod::Status);
        let mut totals = Totals::default();
        totals.add(by_cpu);
        let figures = &totals.ways[&Way::Cpu(QueueMethod::Status)];
        assert_eq!(
            figures.said.in_short(),
            "if CPU is the bottleneck: 542.9 connections/s"
        );
        assert_eq!((figures.mean(), figures.exact_from_s), (Some(542.9), None));
    }

    #[test]
    fn to_take_at_least_nothing_is_not_a_capacity() {
        let mut totals = Totals::default();
        let mut one = row(0.0, QueueMethod::Ebpf, Scope::Port, 4, 0.0);
        one.estimates[0].1 = Estimate::plain(
            Capacity::LowerBound(PerSecond::ZERO),
            Reason::new("none-accepted", "12 wait".to_owned(), &[]),
        );
        let (row, news) = totals.add(one);
        assert_eq!(row.estimates[0].1.capacity, Capacity::Unknown);
        assert_eq!(news, ["busy time (eBPF): 12 wait"]);
    }
}
