//! The running sums over a run's parts: time in states, transitions, energy against that of every server on.

use crate::capacity::CapacitySummary;
use crate::model::{MAX_PARTS, PeriodRecord};
use crate::summary::{ClassSummary, NodesSummary};
use crate::totals::Weighted;
use headroom_units::{
    CapacityKind, Joules, Lever, Part, Quantity, Ratio, Reading, Role, Seconds, Sensor, Source, Watts,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// States and transitions that are counted by name; further ones are counted together as [`OTHERS`].
const MAX_NAMES: usize = 64;
const OTHERS: &str = "others";

/// The sums; what the file keeps of them is JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PartTotals {
    /// The state of each node when it was last recorded, of [`MAX_PARTS`] nodes.
    states: BTreeMap<String, String>,
    state_s: BTreeMap<String, f64>,
    transitions: BTreeMap<String, u64>,
    classes: BTreeMap<String, ClassTotals>,
    /// By the model: with every server on, and as the servers were, in the same periods.
    always_on_j: f64,
    as_it_was_j: f64,
    /// The capacity of the whole as it was last known, in requests per second.
    pub(crate) capacity_per_s: Option<f64>,
    /// What kind of number that is, where the record tells.
    pub(crate) capacity_kind: Option<String>,
    /// What was said of it at the end, of a run that estimates one.
    pub(crate) capacity: Option<CapacitySummary>,
    /// How long requests were held and what the cache answered of them, where the whole has a batcher or a cache.
    pub(crate) batch_interval_s: Weighted,
    pub(crate) cache_hit_ratio: Weighted,
    /// Periods of which not all parts were recorded.
    pub(crate) cut_periods: u64,
}

/// Of a class of connections, over the time in which it had queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct ClassTotals {
    missed: Weighted,
    p99_s: Weighted,
}

impl PartTotals {
    pub(crate) fn add(&mut self, period: &PeriodRecord) {
        self.cut_periods += u64::from(period.parts.len() > MAX_PARTS);
        let parts = &period.parts[..period.parts.len().min(MAX_PARTS)];
        for node in parts.iter().filter(|part| part.role == Role::Node) {
            if let Some(state) = &node.state {
                self.add_state(&node.name, state, period.duration);
            }
        }
        for class in parts.iter().filter(|part| part.role == Role::Class) {
            self.add_class(class, period.duration);
        }
        let of_whole = |quantity: Quantity| {
            let mut wholes = parts.iter().filter(|part| part.role == Role::Cluster);
            let value = wholes.find_map(|part| part.values.get(&quantity).copied());
            value.filter(|value: &f64| value.is_finite())
        };
        if let Some(per_s) = of_whole(Sensor::Capacity.into()) {
            self.capacity_per_s = Some(per_s);
            let mut wholes = parts.iter().filter(|part| part.role == Role::Cluster);
            let kind = wholes.find_map(CapacityKind::of);
            self.capacity_kind = kind.map(|kind| kind.name().to_owned());
        }
        let mut wholes = parts.iter().filter(|part| part.role == Role::Cluster);
        if let Some(said) = wholes.find_map(CapacitySummary::of) {
            self.capacity = Some(said);
        }
        if let Some(interval) = of_whole(Lever::BatchInterval.into()) {
            self.batch_interval_s.add(interval, period.duration);
        }
        if let Some(ratio) = of_whole(Sensor::CacheHitRatio.into()) {
            self.cache_hit_ratio.add(ratio, period.duration);
        }
        let power = period.mean_power();
        let model = parts.iter().find_map(|part| always_on(part, power));
        if let Some((always_on, as_it_was)) = model {
            self.always_on_j += (always_on * period.duration).get();
            self.as_it_was_j += (as_it_was * period.duration).get();
        }
    }

    fn add_class(&mut self, class: &Part, length: Seconds) {
        let has_queries = class.get(Sensor::ServiceRate).is_some_and(|rate| rate > 0.0);
        // A query that waits beyond its targets is one, too.
        if !has_queries && class.state.as_deref() != Some("missed") {
            return;
        }
        let totals: &mut ClassTotals = entry(&mut self.classes, &class.name);
        if let Some(missed) = class.get(Sensor::MissedSlo) {
            totals.missed.add(f64::from(missed > 0.0), length);
        }
        if let Some(p99_s) = class.get(Sensor::LatencyP99).filter(|p99_s| p99_s.is_finite()) {
            totals.p99_s.add(p99_s, length);
        }
    }

    fn add_state(&mut self, name: &str, state: &str, length: Seconds) {
        *entry(&mut self.state_s, state) += length.get();
        if let Some(before) = self.states.get_mut(name) {
            if before != state {
                *entry(&mut self.transitions, &format!("{before}-{state}")) += 1;
                state.clone_into(before);
            }
        } else if self.states.len() < MAX_PARTS {
            self.states.insert(name.to_owned(), state.to_owned());
        }
    }

    pub(crate) fn nodes(&self) -> Option<NodesSummary> {
        (!self.states.is_empty()).then(|| NodesSummary {
            count: self.states.len() as u64,
            state_s: self.state_s.clone(),
            transitions: self.transitions.clone(),
        })
    }

    pub(crate) fn classes(&self) -> BTreeMap<String, ClassSummary> {
        let summary = |totals: &ClassTotals| ClassSummary {
            missed: totals.missed.mean().map(Ratio::new),
            p99_ms: totals.p99_s.mean().map(|p99_s| p99_s * 1e3),
        };
        let all = self.classes.iter();
        all.map(|(name, totals)| (name.clone(), summary(totals)))
            .collect()
    }

    /// Energy with every server on, and the share of it that was saved.
    pub(crate) fn always_on(&self) -> Option<(Joules, Ratio)> {
        let saved = 1.0 - self.as_it_was_j / self.always_on_j;
        (self.always_on_j > 0.0).then(|| (Joules::new(self.always_on_j), Ratio::new(saved)))
    }
}

/// What a part would need with every server on, and what it needed as it was, both by a model: its own power, else that of the
/// period. A power that was measured says nothing against one that was not.
fn always_on(part: &Part, of_period: Option<Reading<Watts>>) -> Option<(Watts, Watts)> {
    let value = |sensor| part.get(sensor).filter(|watts| watts.is_finite()).map(Watts::new);
    let own = value(Sensor::Power).zip(part.source);
    let own = own.map(|(watts, source)| Reading::new(watts, source));
    let by_model = own
        .or(of_period)
        .filter(|power| matches!(power.source, Source::Estimated | Source::Simulated))?;
    Some((value(Sensor::PowerAlwaysOn)?, by_model.value))
}

/// The count of a name, of a bounded number of names.
fn entry<'a, T: Default>(counts: &'a mut BTreeMap<String, T>, name: &str) -> &'a mut T {
    let name = if counts.contains_key(name) || counts.len() < MAX_NAMES {
        name
    } else {
        OTHERS
    };
    counts.entry(name.to_owned()).or_default()
}
