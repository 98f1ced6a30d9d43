//! What a run's parts (cluster, nodes, gateways) were over time: their columns, states and changes.

use super::columns::Columns;
use super::grid::Grid;
use super::html::figure;
use super::key::Key;
use super::scale::clock;
use super::timeline::{Stay, Timeline, Tint};
use crate::model::{PeriodRecord, READ_AGAIN};
use headroom_units::{Fact, Part, Quantity, Role, Sensor};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Parts of one role that have lines of their own in a plot; of more a band is drawn.
pub(crate) const MAX_LINES: usize = 12;
/// Parts that are shown, by role and name; further ones are only in the bands.
const MAX_SHOWN: usize = 1_024;
/// States that are distinguished.
const MAX_STATES: usize = 32;
/// Changes of state that are listed: the last.
const MAX_CHANGES: usize = 100;
/// Troubles of a part that are listed.
const MAX_TROUBLES: usize = 4;
/// Targets of a part that are listed, in the order in which they held.
const MAX_TARGETS: usize = 3;
/// The state of a server that is switched off.
const OFF: &str = "off";
/// Up to so many parts with more than so many figures are listed side by side, a line for each figure.
const SIDE_BY_SIDE: (usize, usize) = (8, 8);
/// Colours of states whose name says none.
const COLOURS: [u8; 6] = [5, 6, 1, 4, 2, 0];

/// The parts of a run, gathered while its periods go by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    all: Vec<PartData>,
    by_name: BTreeMap<(Role, String), usize>,
    /// All parts of a role together: a point reaches from the smallest to the largest value of any.
    bands: BTreeMap<Role, Columns>,
    states: Vec<String>,
    changes: VecDeque<[String; 4]>,
    changes_left_out: usize,
    /// What was said of a configuration that was read again in the period before: for some seconds it may be said in each.
    told: Vec<String>,
    /// When such a thing was said first.
    read_again_s: Vec<f64>,
}

/// One part.
#[derive(Clone, Debug)]
pub(crate) struct PartData {
    pub(crate) name: String,
    role: Role,
    /// Its columns, where it has lines of its own.
    pub(crate) columns: Option<Columns>,
    /// Sums of values times seconds, and the seconds.
    sums: BTreeMap<Key, (f64, f64)>,
    /// Targets as they followed each other, one more than are listed at most: a mean of them never held.
    targets: BTreeMap<Key, Vec<f64>>,
    state: Option<String>,
    state_s: BTreeMap<String, f64>,
    stays: Vec<Stay>,
    /// The point that is being gathered, where its periods began and ended, and the seconds in each state.
    point: (usize, f64, f64, BTreeMap<usize, f64>),
    facts: BTreeMap<String, Fact>,
    trouble: Vec<String>,
}

/// Whether it is one that an operator sets: what was asked for then, and no measurement.
fn is_target(quantity: Quantity) -> bool {
    let targets = [Sensor::TargetP95, Sensor::TargetP99, Sensor::TargetP999];
    targets.map(Quantity::from).contains(&quantity)
}

/// The share of each state in percent, the longest first.
pub(crate) fn shares(state_s: &BTreeMap<String, f64>) -> Vec<(&str, f64)> {
    let all_s = state_s.values().sum::<f64>().max(f64::MIN_POSITIVE);
    let each = state_s.iter();
    let mut shares: Vec<_> = each
        .map(|(state, seconds)| (state.as_str(), seconds / all_s * 100.0))
        .collect();
    shares.sort_by(|one, other| other.1.total_cmp(&one.1));
    shares
}

impl PartData {
    fn new(part: &Part, with_lines: bool) -> Self {
        Self {
            name: part.name.clone(),
            role: part.role,
            columns: with_lines.then(Columns::default),
            sums: BTreeMap::new(),
            targets: BTreeMap::new(),
            state: None,
            state_s: BTreeMap::new(),
            stays: Vec::new(),
            point: (0, 0.0, 0.0, BTreeMap::new()),
            facts: BTreeMap::new(),
            trouble: Vec::new(),
        }
    }

    /// A point is drawn in the state that lasted longest in it.
    fn end_point(&mut self) {
        let (_, from_s, to_s, states) = std::mem::take(&mut self.point);
        let longest = states.into_iter().max_by(|one, other| one.1.total_cmp(&other.1));
        let Some((state, _)) = longest else { return };
        // A millisecond allows for periods that are not exactly as long as they should be.
        match self.stays.last_mut() {
            Some(last) if last.state == state && from_s <= last.to_s + 1e-3 => last.to_s = to_s,
            _ => self.stays.push(Stay { from_s, to_s, state }),
        }
    }

    fn mean(&self, key: Key) -> Option<f64> {
        let (sum, known_s) = self.sums.get(&key)?;
        let off_s = self.state_s.get(OFF).copied().filter(|_| key.is_none_when_off());
        let seconds = known_s + off_s.unwrap_or(0.0);
        (seconds > 0.0).then(|| key.shown(sum / seconds))
    }

    /// What a table has of a quantity: the mean, and of a target the values that held, in their order.
    fn figure(&self, key: Key) -> Option<String> {
        let Some(targets) = self.targets.get(&key) else {
            return self.mean(key).map(figure);
        };
        let mut shown: Vec<String> = targets.iter().map(|value| figure(key.shown(*value))).collect();
        if shown.len() > MAX_TARGETS {
            shown[MAX_TARGETS] = "...".to_owned();
        }
        Some(shown.join(", then "))
    }

    /// The share of time in each state, the longest first.
    fn shares(&self) -> String {
        let shares = shares(&self.state_s).into_iter();
        let shares = shares.map(|(state, percent)| format!("{state} {percent:.1}\u{a0}%"));
        shares.collect::<Vec<_>>().join(", ")
    }
}

impl Parts {
    /// Adds the parts of a period, which belongs to the last of so many points.
    pub(crate) fn add(&mut self, points: usize, period: &PeriodRecord) {
        self.tell(period);
        for part in &period.parts {
            // What the cluster says stands in the plots of the whole.
            if part.role != Role::Cluster {
                let band = self.bands.entry(part.role).or_default();
                for (quantity, value) in &part.values {
                    band.add(points, Key::of_part(*quantity, part), *value);
                }
            }
            if let Some(at) = self.place(part) {
                self.add_one(at, points, period, part);
            }
        }
    }

    /// Lists what a signal had read again, and what came of it.
    fn tell(&mut self, period: &PeriodRecord) {
        let reasons = period.reasons.iter();
        let told: Vec<String> = reasons
            .filter(|reason| READ_AGAIN.contains(&reason.rule.as_str()))
            .map(|reason| reason.text.clone())
            .collect();
        let before = std::mem::replace(&mut self.told, told.clone());
        let new: Vec<&String> = told.iter().filter(|text| !before.contains(text)).collect();
        if !new.is_empty() && self.read_again_s.len() < MAX_CHANGES {
            self.read_again_s.push(period.at.get());
        }
        for text in new {
            self.change(period.at.get(), ["configuration", text, ""]);
        }
    }

    fn change(&mut self, at_s: f64, [part, state, trouble]: [&str; 3]) {
        if self.changes.len() == MAX_CHANGES {
            self.changes.pop_front();
            self.changes_left_out += 1;
        }
        let at = match at_s {
            at_s if at_s < 60.0 => format!("{at_s:.1} s"),
            at_s => clock(at_s),
        };
        self.changes
            .push_back([at, part.to_owned(), state.to_owned(), trouble.to_owned()]);
    }

    /// When a configuration was read again, in seconds.
    pub(crate) fn read_again_s(&self) -> &[f64] {
        &self.read_again_s
    }

    fn place(&mut self, part: &Part) -> Option<usize> {
        let key = (part.role, part.name.clone());
        if let Some(at) = self.by_name.get(&key) {
            return Some(*at);
        }
        (self.all.len() < MAX_SHOWN).then(|| {
            let lines = part.role != Role::Cluster && self.of(part.role).count() < MAX_LINES;
            self.all.push(PartData::new(part, lines));
            self.by_name.insert(key, self.all.len() - 1);
            self.all.len() - 1
        })
    }

    fn add_one(&mut self, at: usize, points: usize, period: &PeriodRecord, part: &Part) {
        let state = part.state.as_ref().and_then(|state| self.state_number(state));
        let data = &mut self.all[at];
        let length_s = period.duration.get();
        for (quantity, value) in &part.values {
            let key = Key::of_part(*quantity, part);
            if let Some(columns) = &mut data.columns {
                columns.add(points, key, *value);
            }
            if is_target(*quantity) {
                let targets = data.targets.entry(key).or_default();
                if targets.len() <= MAX_TARGETS && targets.last() != Some(value) {
                    targets.push(*value);
                }
            }
            let sum = data.sums.entry(key).or_default();
            *sum = (sum.0 + value * length_s, sum.1 + length_s);
        }
        if part.role == Role::Importance {
            // Counts of a period, of which people ask how many there were.
            for (name, fact) in &part.facts {
                let (Fact::Count(count), Fact::Count(sum)) =
                    (fact, data.facts.entry(name.clone()).or_insert(Fact::Count(0)))
                else {
                    continue;
                };
                *sum += count;
            }
        } else if !part.facts.is_empty() {
            // What was a fact before and is none now is none at the end.
            data.facts.clone_from(&part.facts);
        }
        for trouble in &part.trouble {
            if data.trouble.len() < MAX_TROUBLES && !data.trouble.contains(trouble) {
                data.trouble.push(trouble.clone());
            }
        }
        if data.point.0 != points {
            data.end_point();
            data.point = (points, period.at.get(), 0.0, BTreeMap::new());
        }
        data.point.2 = (period.at + period.duration).get();
        let Some((number, state)) = state.zip(part.state.as_ref()) else {
            return;
        };
        *data.point.3.entry(number).or_default() += length_s;
        *data.state_s.entry(state.clone()).or_default() += length_s;
        let Some(before) = data.state.replace(state.clone()).filter(|before| before != state) else {
            return;
        };
        // A class keeps and misses its SLOs from period to period: that is drawn, and would hide all else here.
        if part.role == Role::Class {
            return;
        }
        let state = format!("{before} \u{2192} {state}");
        self.change(period.at.get(), [&part.name, &state, &part.trouble.join("; ")]);
    }

    fn state_number(&mut self, state: &str) -> Option<usize> {
        let found = self.states.iter().position(|one| one == state);
        found.or_else(|| {
            (self.states.len() < MAX_STATES).then(|| {
                self.states.push(state.to_owned());
                self.states.len() - 1
            })
        })
    }

    /// Ends the last point.
    pub(crate) fn end(&mut self) {
        self.all.iter_mut().for_each(PartData::end_point);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// What parts there are, for a heading: `Nodes and gateways`.
    pub(crate) fn roles(&self) -> String {
        let roles: BTreeSet<Role> = self.all.iter().map(|part| part.role).collect();
        let names = roles.iter().filter(|role| **role != Role::Cluster);
        let names: Vec<String> = names
            .map(|role| match role {
                Role::Class => "classes".to_owned(),
                Role::Importance => "classes of importance".to_owned(),
                other => format!("{}s", other.name()),
            })
            .collect();
        let text = names.join(" and ");
        let mut letters = text.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase());
        first.map_or_else(
            || "The whole".to_owned(),
            |first| format!("{first}{}", letters.as_str()),
        )
    }

    /// The parts of a role, in the order in which they came.
    pub(crate) fn of(&self, role: Role) -> impl Iterator<Item = &PartData> {
        self.all.iter().filter(move |part| part.role == role)
    }

    /// All parts of a role together.
    pub(crate) fn band(&self, role: Role) -> Option<&Columns> {
        self.bands.get(&role)
    }

    /// Each part by its state; `None` where no state is known.
    pub(crate) fn timeline(&self) -> Option<Timeline> {
        let with_states = self.all.iter().filter(|part| !part.stays.is_empty());
        let rows: Vec<_> = with_states
            .map(|part| (part.name.clone(), part.stays.clone()))
            .collect();
        let mut colours = COLOURS.iter().cycle();
        let states = self.states.iter().map(|state| {
            let tint = match state.as_str() {
                OFF => Tint::Bed,
                "serving" | "ready" | "connected" | "held" | "kept" => Tint::Colour(3),
                "no queries" => Tint::Bed,
                "unreachable" | "unreliable" | "refusing" | "missed" | "dead" => Tint::Alarm,
                failed if failed.starts_with("failed") => Tint::Alarm,
                _ => Tint::Colour(*colours.next().unwrap_or(&0)),
            };
            (state.clone(), tint)
        });
        (!rows.is_empty()).then(|| Timeline {
            title: "Each part by its state".to_owned(),
            states: states.collect(),
            rows,
        })
    }

    /// A table for each role, a line for each part.
    pub(crate) fn tables(&self) -> Vec<Grid> {
        let roles: BTreeSet<Role> = self.all.iter().map(|part| part.role).collect();
        roles.into_iter().map(|role| self.table(role)).collect()
    }

    fn table(&self, role: Role) -> Grid {
        let keys: BTreeSet<Key> = self.of(role).flat_map(|part| part.sums.keys().copied()).collect();
        let any = |has: fn(&PartData) -> bool| self.of(role).any(has);
        let (states, facts, troubles) = (
            any(|part| part.state.is_some()),
            any(|part| !part.facts.is_empty()),
            any(|part| !part.trouble.is_empty()),
        );
        let mut header = vec![role.name().to_owned()];
        let optional = |header: &mut Vec<String>, shown: bool, names: &[&str]| {
            header.extend(names.iter().filter(|_| shown).map(|name| (*name).to_owned()));
        };
        optional(&mut header, states, &["state at the end", "time in states"]);
        let first_key = header.len();
        header.extend(keys.iter().map(|key| key.head()));
        let after_keys = header.len();
        let facts_head = match role {
            Role::Importance => "in all",
            _ => "facts at the end",
        };
        optional(&mut header, facts, &[facts_head]);
        optional(&mut header, troubles, &["trouble"]);
        let rows = self.of(role).map(|part| {
            let mut row = vec![part.name.clone()];
            if states {
                row.extend([part.state.clone().unwrap_or_default(), part.shares()]);
            }
            row.extend(
                keys.iter()
                    .map(|key| part.figure(*key).unwrap_or_else(|| "-".to_owned())),
            );
            if facts {
                let facts = part
                    .facts
                    .iter()
                    .map(|(name, fact)| format!("{}: {fact}", name.replace('_', " ")));
                row.push(facts.collect::<Vec<_>>().join("; "));
            }
            if troubles {
                row.push(part.trouble.join("; "));
            }
            row
        });
        let grid = Grid {
            caption: match role {
                Role::Cluster => "The cluster: means over the run",
                Role::Node => {
                    "The nodes: means over the run as far as they are known; one that is off has none"
                }
                Role::Gateway => "The gateways: means over the run",
                Role::Meter => "The meters: means over the run",
                Role::Estimator => "The estimators: means over the run",
                Role::Size => "Requests by the size of their answers: means over the run",
                Role::Importance => "Requests by class of importance: means over the run, and counts of all of it",
                Role::Class => {
                    "The classes of connections: means over the run. Latencies are of all connections of a class together; a class misses its \
                     SLOs while one of its connections does"
                }
            }
            .to_owned(),
            rows: rows.collect(),
            words: (0..first_key).chain(after_keys..header.len()).collect(),
            header,
        };
        let (most_parts, few_figures) = SIDE_BY_SIDE;
        match grid.rows.len() <= most_parts && grid.header.len() > few_figures {
            true => grid.transposed(),
            false => grid,
        }
    }

    /// What happened: the changes of state; `None` where there was none. The caption says how many are left out.
    pub(crate) fn changes(&self) -> Option<Grid> {
        (!self.changes.is_empty()).then(|| Grid {
            caption: match self.changes_left_out {
                0 => String::new(),
                more => format!("The last {}; {more} came before them", self.changes.len()),
            },
            header: ["at", "part", "state", "trouble"].map(str::to_owned).to_vec(),
            rows: self.changes.iter().map(|change| change.to_vec()).collect(),
            words: vec![0, 1, 2, 3],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Reason;
    use headroom_units::{Lever, Seconds, Sensor};

    #[test]
    fn a_node_that_was_off_for_half_of_the_run_had_half_of_its_cores_and_no_other_utilisation() {
        let mut parts = Parts::default();
        for index in 0..4 {
            let at = Seconds::new(index as f64);
            let mut period = PeriodRecord::new(index, at, Seconds::new(1.0), None);
            let node = Part::new("web1", Role::Node);
            period.parts = vec![match index < 2 {
                true => node.in_state("off"),
                false => node
                    .in_state("serving")
                    .with(Lever::Cores, Some(8.0))
                    .with(Sensor::Utilisation, Some(0.5)),
            }];
            parts.add(index as usize + 1, &period);
        }
        parts.end();
        let table = &parts.tables()[0];
        let of = |head: &str| {
            let column = table.header.iter().position(|one| one.starts_with(head)).unwrap();
            table.rows[0][column].clone()
        };
        assert_eq!(of("Cores"), "4");
        assert_eq!(of("Utilisation"), "50");
    }

    #[test]
    fn targets_are_listed_as_they_held_and_no_mean_of_them() {
        let table = |targets: &[f64]| {
            let mut parts = Parts::default();
            for (index, ms) in targets.iter().enumerate() {
                let at = Seconds::new(index as f64);
                let mut period = PeriodRecord::new(index as u64, at, Seconds::new(1.0), None);
                let class = Part::new("gold", Role::Class);
                period.parts = vec![class.with(Sensor::TargetP99, Some(ms / 1e3))];
                parts.add(index + 1, &period);
            }
            parts.end();
            parts.tables()[0].rows[0][1].clone()
        };
        assert_eq!(table(&[4.0, 4.0]), "4");
        assert_eq!(table(&[4.0, 4.0, 2.0, 2.0]), "4, then 2");
        assert_eq!(table(&[4.0, 2.0, 4.0]), "4, then 2, then 4");
        assert_eq!(table(&[4.0, 2.0, 3.0, 1.0, 9.0]), "4, then 2, then 3, then ...");
    }

    fn gathered(states: &[&str], periods_per_point: usize) -> Parts {
        let mut parts = Parts::default();
        for (index, state) in states.iter().enumerate() {
            let at = Seconds::new(index as f64);
            let mut period = PeriodRecord::new(index as u64, at, Seconds::new(1.0), None);
            period.parts = vec![Part::new("web1", Role::Node).in_state(*state)];
            parts.add(index / periods_per_point + 1, &period);
        }
        parts.end();
        parts
    }

    #[test]
    fn a_thinned_point_has_the_state_that_lasted_longest_and_no_change_is_lost() {
        let parts = gathered(
            &[
                "off", "off", "booting", "booting", "off", "booting", "serving", "serving", "serving",
            ],
            3,
        );
        let timeline = parts.timeline().unwrap();
        let stays = timeline.rows[0].1.iter().map(|stay| {
            let state = timeline.states[stay.state].0.as_str();
            (stay.from_s, stay.to_s, state)
        });
        let wanted = [(0.0, 3.0, "off"), (3.0, 6.0, "booting"), (6.0, 9.0, "serving")];
        assert_eq!(stays.collect::<Vec<_>>(), wanted);
        let changes = parts.changes().unwrap();
        assert_eq!(changes.rows.len(), 4);
        assert_eq!(changes.rows[1][..3], ["4.0 s", "web1", "booting \u{2192} off"]);
        let table = &parts.tables()[0];
        assert_eq!(table.rows[0][1], "serving");
        assert!(table.rows[0][2].starts_with("booting 33.3") || table.rows[0][2].starts_with("off 33.3"));
    }

    #[test]
    fn what_failed_stands_out_and_changes_are_bounded() {
        let states: Vec<&str> = ["serving", "failed (boot)"]
            .into_iter()
            .cycle()
            .take(300)
            .collect();
        let parts = gathered(&states, 1);
        let timeline = parts.timeline().unwrap();
        assert_eq!(timeline.states[0], ("serving".to_owned(), Tint::Colour(3)));
        assert_eq!(timeline.states[1], ("failed (boot)".to_owned(), Tint::Alarm));
        let changes = parts.changes().unwrap();
        assert_eq!(changes.rows.len(), MAX_CHANGES);
        assert_eq!(changes.caption, "The last 100; 199 came before them");
    }

    #[test]
    fn what_was_turned_away_is_counted_over_the_run() {
        let mut parts = Parts::default();
        for index in 0..4_u64 {
            let at = Seconds::new(index as f64);
            let mut period = PeriodRecord::new(index, at, Seconds::new(1.0), None);
            let class = Part::new("checkout", Role::Importance)
                .with(Sensor::TurnedAway, Some(3.0))
                .fact("turned_away", 3_u64)
                .fact("waited", index);
            period.parts = vec![class];
            parts.add(index as usize + 1, &period);
        }
        parts.end();
        let table = &parts.tables()[0];
        assert_eq!(table.header.last().unwrap(), "in all");
        assert_eq!(table.rows[0].last().unwrap(), "turned away: 12; waited: 6");
    }

    #[test]
    fn what_was_read_again_is_listed_once_and_marked() {
        let mut parts = Parts::default();
        let mut add = |second: u64, texts: &[&str]| {
            let at = Seconds::new(second as f64);
            let mut period = PeriodRecord::new(second, at, Seconds::new(1.0), None);
            let reasons = texts.iter().map(|text| Reason::new(READ_AGAIN[0], *text, &[]));
            period.reasons = reasons.chain([Reason::new("shrink", "20 arrive", &[])]).collect();
            parts.add(second as usize + 1, &period);
        };
        let out = "server web2 is taken out";
        for (second, texts) in [
            (0, &[][..]),
            (1, &[out, "gateway g2 joins"]),
            (2, &[out]),
            (3, &[]),
            (4, &[out]),
        ] {
            add(second, texts);
        }
        let rows = parts.changes().unwrap().rows;
        let said: Vec<(&str, &str)> = rows
            .iter()
            .map(|row| (row[0].as_str(), row[2].as_str()))
            .collect();
        assert_eq!(
            said,
            [("1.0 s", out), ("1.0 s", "gateway g2 joins"), ("4.0 s", out)]
        );
        assert!(rows.iter().all(|row| row[1] == "configuration"));
        assert_eq!(parts.read_again_s(), [1.0, 4.0]);
    }
}
