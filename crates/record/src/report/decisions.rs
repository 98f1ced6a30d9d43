//! Which of a run's decisions a reader should see.

use crate::model::{PeriodRecord, Reason};
use crate::text::trimmed;
use headroom_units::{Lever, Role, Seconds, Spread};
use std::collections::{BTreeMap, VecDeque};

/// A step is large from this share of the larger value on.
const LARGE: f64 = 0.05;

/// Decisions of each kind that are kept; of steps, for each lever.
const OF_A_KIND: usize = 6;

/// Steps down that are kept: saving is slow, its steps are many and alike.
const STEPS_DOWN: usize = 2;

/// The last decisions that are kept, of those that are the same period after period the first.
const LAST: usize = 8;

/// Rules of which an example is kept.
const MAX_RULES: usize = 256;

/// One decision worth reading.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decision {
    pub(crate) index: u64,
    pub(crate) at_s: f64,
    pub(crate) slo_ms: Option<f64>,
    /// The levers in force, each in the unit of its metric.
    pub(crate) setting: Vec<(Lever, f64)>,
    /// Those of the period after, which this decision led to.
    pub(crate) after: Vec<(Lever, f64)>,
    /// The laws' reasons.
    reasons: Vec<Reason>,
    /// The nodes' states in the period, and in the period after.
    nodes: Nodes,
    nodes_after: Nodes,
    pub(crate) rule: String,
    pub(crate) text: String,
    /// Why it is shown.
    pub(crate) shown_for: &'static str,
}

/// Each node's state.
type Nodes = BTreeMap<String, Option<String>>;

/// The cause of a step that no law decided.
const NODE_STATE: &str = "node-state";

impl Decision {
    /// The same with what a lever's step came of: its own law's reasons, or nodes whose state changed, with which goes what they
    /// had of the lever.
    fn of_step(&self, lever: Lever) -> Self {
        let changes = self.nodes.iter().filter_map(|(name, before)| {
            let after = self.nodes_after.get(name).filter(|after| *after != before)?;
            let word = |state: &Option<String>| state.clone().unwrap_or_else(|| "unknown".to_owned());
            Some(format!("{name}: {} \u{2192} {}", word(before), word(after)))
        });
        let changes: Vec<String> = match lever.info().spread {
            Spread::Cluster => Vec::new(),
            Spread::Sum | Spread::Each => changes.collect(),
        };
        if !changes.is_empty() {
            return Self {
                rule: NODE_STATE.to_owned(),
                text: changes.join("; "),
                ..self.clone()
            };
        }
        let own: Vec<&Reason> = self
            .reasons
            .iter()
            .filter(|reason| reason.levers.contains(&lever))
            .collect();
        let Some(first) = own.first() else {
            return self.clone();
        };
        let texts: Vec<&str> = own.iter().map(|reason| reason.text.as_str()).collect();
        Self {
            rule: first.rule.clone(),
            text: texts.join("; "),
            ..self.clone()
        }
    }

    /// The levers that were not in force in the period after as they were in this: each, before and after.
    fn steps(&self) -> Vec<(Lever, f64, f64)> {
        let after = |lever: Lever| self.after.iter().find(|(other, _)| *other == lever);
        let both = |(lever, before): &(Lever, f64)| Some((*lever, *before, after(*lever)?.1));
        let both = self.setting.iter().filter_map(both);
        both.filter(|(_, before, after)| before != after).collect()
    }

    /// The levers for people: from what to what, or at what each stayed; one that was not in force, to what.
    pub(crate) fn setting_text(&self) -> String {
        let steps = self.steps();
        let shown = |lever: &Lever| match lever.info() {
            info if info.shown.0.is_empty() => (info.unit, 1.0),
            info => info.shown,
        };
        let is_new = |(lever, _): &&(Lever, f64)| self.setting.iter().all(|(other, _)| other != lever);
        let new = self.after.iter().filter(is_new).map(|(lever, value)| {
            let (unit, scale) = shown(lever);
            format!("\u{2192} {} {unit}", trimmed(value / scale))
        });
        let each = self.setting.iter().map(|(lever, value)| {
            let (unit, scale) = shown(lever);
            let short = |value: f64| trimmed(value / scale);
            match steps.iter().find(|(other, ..)| other == lever) {
                Some((_, _, after)) => format!("{} \u{2192} {} {unit}", short(*value), short(*after)),
                None => format!("{} {unit}", short(*value)),
            }
        });
        each.chain(new).collect::<Vec<_>>().join(", ")
    }
}

/// The decisions of a run that are worth reading, chosen while its periods go by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decisions {
    target: Option<Seconds>,
    /// An example for each rule: the first in which it was the foremost reason, else the first at all.
    pub(crate) examples: BTreeMap<String, (f64, String)>,
    before: Option<Decision>,
    steps_up: BTreeMap<Lever, Vec<(f64, Decision)>>,
    steps_down: BTreeMap<Lever, Vec<(f64, Decision)>>,
    worst: Vec<(f64, Decision)>,
    lost: Vec<(f64, Decision)>,
    last: VecDeque<Decision>,
}

impl Decisions {
    pub(crate) fn new(target: Option<Seconds>) -> Self {
        Self {
            target,
            ..Self::default()
        }
    }

    /// Adds a period and the levers in force in it.
    pub(crate) fn add(&mut self, period: &PeriodRecord, setting: &[(Lever, f64)]) {
        for reason in &period.reasons {
            if self.examples.len() < MAX_RULES && !self.examples.contains_key(&reason.rule) {
                self.examples
                    .insert(reason.rule.clone(), (period.at.get(), reason.text.clone()));
            }
        }
        let rules: Vec<&str> = period.foremost().map(|reason| reason.rule.as_str()).collect();
        let texts: Vec<&str> = period.reasons.iter().map(|reason| reason.text.as_str()).collect();
        let nodes = period.parts.iter().filter(|part| part.role == Role::Node);
        let decision = Decision {
            index: period.index,
            at_s: period.at.get(),
            slo_ms: period.slo_latency.map(Seconds::as_millis),
            setting: setting.to_vec(),
            after: Vec::new(),
            reasons: period.reasons.clone(),
            nodes: nodes
                .map(|node| (node.name.clone(), node.state.clone()))
                .collect(),
            nodes_after: Nodes::new(),
            rule: rules.join(", "),
            text: texts.join("; "),
            shown_for: "",
        };
        let nodes = decision.nodes.clone();
        if let Some(mut before) = self.before.replace(decision) {
            (before.after, before.nodes_after) = (setting.to_vec(), nodes);
            self.weigh(before);
        }
        if period.telemetry_lost
            && let Some(now) = &self.before
        {
            let earliness = -(period.index as f64);
            keep(&mut self.lost, OF_A_KIND, earliness, now, "telemetry lost");
        }
    }

    /// Takes the last period, which has none after it.
    pub(crate) fn end(&mut self) {
        if let Some(before) = self.before.take() {
            self.weigh(before);
        }
    }

    fn weigh(&mut self, decision: Decision) {
        for (lever, before, after) in decision.steps() {
            let (up, large) = (after - before, LARGE * before.abs().max(after.abs()));
            if up.abs() < large {
                continue;
            }
            let decision = decision.of_step(lever);
            let node = decision.rule == NODE_STATE;
            let said = |of_law| if node { "a node's change of state" } else { of_law };
            if up > 0.0 {
                let kind = self.steps_up.entry(lever).or_default();
                keep(kind, OF_A_KIND, up, &decision, said("a large step up"));
            } else {
                let kind = self.steps_down.entry(lever).or_default();
                keep(kind, STEPS_DOWN, -up, &decision, said("a large step down"));
            }
        }
        let over = |slo_ms: &f64| self.target.is_some_and(|target| *slo_ms > target.as_millis());
        if let Some(slo_ms) = decision.slo_ms.filter(over) {
            let shown_for = "among the worst over the target";
            keep(&mut self.worst, OF_A_KIND, slo_ms, &decision, shown_for);
        }
        // One that stands for many periods is one.
        let same = |last: &Decision| (&last.rule, &last.text) == (&decision.rule, &decision.text);
        if self.last.back().is_some_and(same) {
            return;
        }
        if self.last.len() == LAST {
            self.last.pop_front();
        }
        self.last.push_back(Decision {
            shown_for: "among the last",
            ..decision
        });
    }

    /// The chosen decisions by time, each once, with the first thing that it is shown for.
    pub(crate) fn chosen(&self) -> Vec<Decision> {
        let mut chosen: BTreeMap<u64, Decision> = BTreeMap::new();
        let steps = self.steps_up.values().chain(self.steps_down.values());
        let all = [&self.lost, &self.worst]
            .into_iter()
            .chain(steps)
            .flatten()
            .map(|(_, decision)| decision)
            .chain(&self.last);
        for decision in all.filter(|decision| !decision.text.is_empty()) {
            chosen.entry(decision.index).or_insert_with(|| decision.clone());
        }
        chosen.into_values().collect()
    }
}

/// Keeps a decision if it is among the heaviest of its kind; of equals the earlier stays.
fn keep(
    kind: &mut Vec<(f64, Decision)>,
    at_most: usize,
    weight: f64,
    decision: &Decision,
    shown_for: &'static str,
) {
    let place = kind.partition_point(|(other, _)| *other >= weight);
    if place < at_most {
        let decision = Decision {
            shown_for,
            ..decision.clone()
        };
        kind.insert(place, (weight, decision));
        kind.truncate(at_most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_units::Part;

    fn period(index: u64, cores: f64, slo_ms: f64) -> PeriodRecord {
        let at = Seconds::new(index as f64);
        let mut period = PeriodRecord::new(index, at, Seconds::new(1.0), headroom_units::Cores::new(cores));
        period.slo_latency = Some(Seconds::from_millis(slo_ms));
        period.reasons = vec![Reason::new(
            format!("rule-{}", index % 3),
            format!("period {index}"),
            &[],
        )];
        period
    }

    #[test]
    fn the_worst_the_largest_steps_and_the_last_are_chosen() {
        let mut decisions = Decisions::new(Some(Seconds::from_millis(250.0)));
        for index in 0..200 {
            let cores = if index > 50 { 8.0 } else { 2.0 };
            let slo_ms = if index == 120 { 900.0 } else { 100.0 };
            let period = period(index, cores, slo_ms);
            decisions.add(&period, &[(Lever::Cores, cores)]);
        }
        decisions.end();
        let chosen = decisions.chosen();
        let of = |index: u64| chosen.iter().find(|decision| decision.index == index);
        assert_eq!(of(120).unwrap().shown_for, "among the worst over the target");
        let step = of(50).unwrap();
        assert_eq!(
            (step.shown_for, step.setting_text()),
            ("a large step up", "2 \u{2192} 8 cores".to_owned())
        );
        assert_eq!(chosen.last().unwrap().index, 199);
        assert_eq!(chosen.len(), 2 + LAST);
        assert_eq!(decisions.examples["rule-1"], (1.0, "period 1".to_owned()));
    }

    #[test]
    fn a_lever_that_comes_into_force_is_said_with_what_it_is_set_to() {
        let mut decisions = Decisions::new(None);
        let on_call = [(Lever::Concurrency, 3.0), (Lever::RoundDelay, 0.0024)];
        for (index, setting) in [&[][..], &on_call].into_iter().enumerate() {
            decisions.add(&period(index as u64, 2.0, 1.0), setting);
        }
        decisions.end();
        let text = decisions.chosen()[0].setting_text();
        assert_eq!(text, "\u{2192} 3 workers, \u{2192} 2.4 ms");
    }

    #[test]
    fn a_step_has_the_reason_of_its_own_law_or_the_node_that_it_came_of() {
        let mut decisions = Decisions::new(None);
        let steps = [(27.0, 2.0), (27.0, 1.0), (27.0, 1.0), (43.0, 1.0)];
        for (index, (cores, servers)) in steps.into_iter().enumerate() {
            let mut period = period(index as u64, cores, 1.0);
            let of = |rule: &str, lever| Reason {
                levers: vec![lever],
                ..Reason::new(rule, format!("why {rule}"), &[])
            };
            period.reasons = vec![
                of("scale-down-power", Lever::Cores),
                of("scale-in", Lever::Servers),
            ];
            let state = if index < 3 { "booting" } else { "serving" };
            period.parts = vec![Part::new("n2", Role::Node).in_state(state)];
            decisions.add(&period, &[(Lever::Cores, cores), (Lever::Servers, servers)]);
        }
        decisions.end();
        let chosen = decisions.chosen();
        let of = |index: usize| {
            let one = &chosen[index];
            (one.shown_for, one.rule.as_str(), one.text.as_str())
        };
        assert_eq!(of(0), ("a large step down", "scale-in", "why scale-in"));
        assert_eq!(chosen[0].setting_text(), "27 cores, 2 \u{2192} 1 servers");
        // No law gave the cores of the node that came.
        let cause = "n2: booting \u{2192} serving";
        assert_eq!(of(1), ("a node's change of state", NODE_STATE, cause));
        assert_eq!(chosen.len(), 2, "the same for many periods is one");
    }

    #[test]
    fn a_long_run_keeps_a_bounded_choice() {
        let mut decisions = Decisions::new(Some(Seconds::from_millis(1.0)));
        for index in 0..5_000 {
            let cores = (index % 17) as f64;
            let mut period = period(index, cores, 2.0);
            period.telemetry_lost = index % 2 == 0;
            decisions.add(&period, &[(Lever::Cores, cores), (Lever::Cap, 10.0 * cores)]);
        }
        decisions.end();
        assert!(decisions.chosen().len() <= 2 * OF_A_KIND + 2 * (OF_A_KIND + STEPS_DOWN) + LAST);
    }
}
