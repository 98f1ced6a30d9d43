//! `[oncall]`: a server on call, of `headroom wrap` and of a run that attaches to one.

use crate::oncall::{runs_on_call, runs_reef};
use headroom_console::{Document, Mistakes};
use headroom_control::LawConfig;
use headroom_control::oncall::law::{AreaLawName, AreasTuning, PolicyName, TableRow};
use headroom_runtime::oncall::wrapped::WrappedAt;
use headroom_runtime::oncall::{Class, MAX_IN_METRICS, REST};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// `[oncall]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OncallConfig {
    /// The wrapped server to attach to: its name, or its file. `wrap` starts its own, and has none.
    pub server: Option<String>,
    /// How long a worker that has queries left in the round waits for its client's next one, in microseconds.
    pub linger_us: u64,
    /// Connections, the busiest, that have metrics of their own.
    pub connections_in_metrics: usize,
    /// Classes of connections.
    pub class: Vec<Class>,
}

impl Default for OncallConfig {
    fn default() -> Self {
        Self {
            server: None,
            linger_us: 200,
            connections_in_metrics: 0,
            class: Vec::new(),
        }
    }
}

/// The keys of `areas` that say nothing where its law is none.
const KEYS_OF_AREAS: [&str; 5] = [
    "best_effort_per_s",
    "count",
    "profile_per_s",
    "profile_periods",
    "clean_periods",
];

/// A law that gives connections turns.
struct Turning<'a> {
    name: &'static str,
    is_in_force: bool,
    policy: PolicyName,
    areas: AreaLawName,
    table: &'a BTreeMap<String, TableRow>,
}

impl Turning<'_> {
    /// Whether it divides the cores by SLOs.
    fn divides(&self) -> bool {
        matches!(self.areas, AreaLawName::Reef | AreaLawName::Demeter)
    }
}

impl OncallConfig {
    /// All that is wrong with it, for a run that attaches to a server or for one that starts its own.
    pub(super) fn check(&self, attaches: bool, document: &Document, mistakes: &mut Mistakes) {
        let mut mistake = |key: &str, why: String| mistakes.push(document.error(key, why));
        match (&self.server, attaches) {
            (None, true) => mistake(
                "oncall",
                "names no server: give oncall.server the name of one that `headroom wrap --list` shows"
                    .to_owned(),
            ),
            (Some(_), false) => mistake(
                "oncall.server",
                "is for `headroom up`, which attaches to a server; `headroom wrap` starts its own: remove it"
                    .to_owned(),
            ),
            (Some(server), true) => {
                if let Err(error) = WrappedAt::new(Path::new(""), server) {
                    mistake("oncall.server", error.to_string());
                }
            }
            (None, false) => {}
        }
        if self.linger_us > 1_000_000 {
            let why = format!("is {}: at most 1000000, a second", self.linger_us);
            mistake("oncall.linger_us", why);
        }
        if self.connections_in_metrics > MAX_IN_METRICS {
            let why = format!(
                "is {}: at most {MAX_IN_METRICS}; all connections are on the admin port's /connections",
                self.connections_in_metrics
            );
            mistake("oncall.connections_in_metrics", why);
        }
        for (at, class) in self.class.iter().enumerate() {
            if let Some((key, why)) = class.mistake() {
                mistake(&format!("oncall.class[{at}].{key}"), why);
            }
            if self.class[..at].iter().any(|one| one.name == class.name) {
                let why = format!(
                    "is {:?}, as of a class before it: each has a name of its own",
                    class.name
                );
                mistake(&format!("oncall.class[{at}].name"), why);
            }
        }
    }

    /// The same for an agent, whose controllers are told of the server and not of its connections: whether its admin port tells of them.
    pub(super) fn check_of_agent(&self, has_admin: bool, document: &Document, mistakes: &mut Mistakes) {
        self.check(true, document, mistakes);
        if self.connections_in_metrics > 0 && !has_admin {
            let why = format!(
                "is {}, and admin.listen says nowhere, where the metrics would be read: give it an address, or remove this",
                self.connections_in_metrics
            );
            mistakes.push(document.error("oncall.connections_in_metrics", why));
        }
        if !self.class.is_empty() {
            let why = "are given, and the contract between controllers and agents carries levers and not connections: remove them, or run \
                       `headroom up` with [oncall] on this machine";
            mistakes.push(document.error("oncall.class", why));
        }
    }

    /// What the laws lack in it.
    pub fn check_laws(&self, law: &LawConfig, document: &Document, mistakes: &mut Mistakes) {
        // Of classes that are not known nothing is lacking.
        if mistakes.hide("oncall.class", document) {
            return;
        }
        let (on_call, reef) = (&law.on_call, &law.reef);
        self.check_policy("on-call", on_call.policy, &on_call.table, document, mistakes);
        self.check_policy("reef", reef.policy, &reef.table, document, mistakes);
        self.check_areas("on-call", &on_call.areas, document, mistakes);
        self.check_areas("reef", &reef.areas, document, mistakes);
    }

    /// What is written of classes and does nothing, under the laws in force.
    pub fn notes(&self, law: &LawConfig, document: &Document) -> Vec<String> {
        let all = [
            Turning {
                name: "on-call",
                is_in_force: runs_on_call(law),
                policy: law.on_call.policy,
                areas: law.on_call.areas.law,
                table: &law.on_call.table,
            },
            Turning {
                name: "reef",
                is_in_force: runs_reef(law),
                policy: law.reef.policy,
                areas: law.reef.areas.law,
                table: &law.reef.table,
            },
        ];
        let laws: Vec<&Turning<'_>> = all.iter().filter(|one| one.is_in_force).collect();
        let of_classes = self.class.iter().enumerate();
        let of_classes = of_classes.flat_map(|(at, class)| self.notes_of(at, class, &laws, law));
        of_classes
            .chain(all.iter().flat_map(|one| self.notes_of_law(one, law, document)))
            .collect()
    }

    /// Of the class at a place.
    fn notes_of(&self, at: usize, class: &Class, laws: &[&Turning<'_>], law: &LawConfig) -> Vec<String> {
        let name = &class.name;
        let keeps = |by: [PolicyName; 2]| laws.iter().any(|one| one.divides() || by.contains(&one.policy));
        let unkept = [
            (
                class.has_percentile() && !keeps([PolicyName::Pslo, PolicyName::Paced]),
                "its SLO of a percentile",
            ),
            (
                class.disengagement.is_some() && !keeps([PolicyName::Utslo, PolicyName::Paced]),
                "its disengagement",
            ),
        ];
        let (why, remedy) = match laws.first() {
            None => (
                format!("the law {} gives no class turns", law.names),
                "write policy = \"paced\" in [law.on-call], and no law by hand".to_owned(),
            ),
            Some(one) => (
                format!(
                    "law.{}.policy is {}, which does not go by it",
                    one.name, one.policy
                ),
                format!("write policy = \"paced\" in [law.{}]", one.name),
            ),
        };
        let unkept = unkept.into_iter().filter(|(is_unkept, _)| *is_unkept);
        let mut notes: Vec<String> = unkept
            .map(|(_, what)| {
                format!("class {name}: {what} is watched and reported, and nothing is done to keep it: {why}; {remedy}")
            })
            .collect();
        if let Some(first) = self.class[..at].iter().find(|first| class.is_within(first)) {
            notes.push(format!(
                "class {name}: no connection is ever in it, for all its clients are of class {}, which comes before it: write it first",
                first.name
            ));
        }
        if class.weight != 1.0 && !laws.iter().any(|one| one.policy == PolicyName::Fair) {
            notes.push(format!(
                "class {name}: its weight does nothing: the policy fair alone goes by weights"
            ));
        }
        notes
    }

    fn notes_of_law(&self, one: &Turning<'_>, law: &LawConfig, document: &Document) -> Vec<String> {
        let Turning {
            name, policy, table, ..
        } = *one;
        let mut notes = Vec::new();
        if policy != PolicyName::Table && !table.is_empty() {
            notes.push(format!(
                "law.{name}.table is written and does nothing: law.{name}.policy is {policy}; write policy = \"table\" for it"
            ));
        }
        let written = |key: &&&str| document.has(&format!("law.{name}.areas"), key);
        if one.areas == AreaLawName::None
            && let Some(key) = KEYS_OF_AREAS.iter().find(written)
        {
            notes.push(format!(
                "law.{name}.areas.{key} is written and does nothing: law.{name}.areas.law is none; write law = \"reef\" beside it"
            ));
        }
        if !one.is_in_force && document.has(&format!("law.{name}"), "policy") {
            notes.push(format!(
                "law.{name}.policy is written and does nothing: the law in force is {}; write it in that law's table, or name = \"{name}\" in \
                 [law]",
                law.names
            ));
        }
        let goes_by_table = one.is_in_force && policy == PolicyName::Table;
        let names = self.class.iter().map(|class| class.name.as_str()).chain([REST]);
        let of_row = |class: &str| match table.get(class).map(|row| row.tokens) {
            None => Some(format!(
                "class {class} has no row in law.{name}.table: its connections have one query in a round; write {class} = {{ tokens = 1 }}"
            )),
            Some(0) => Some(format!(
                "law.{name}.table.{class} has 0 tokens: its connections have one turn in 20 s, also while nobody else asks"
            )),
            Some(_) => None,
        };
        notes.extend(names.filter(|_| goes_by_table).filter_map(of_row));
        notes
    }

    /// A policy that would have nothing to go by: it must not look as if it did something.
    fn check_policy(
        &self,
        law: &str,
        policy: PolicyName,
        table: &BTreeMap<String, TableRow>,
        document: &Document,
        mistakes: &mut Mistakes,
    ) {
        let any = |has: fn(&Class) -> bool| self.class.iter().any(has);
        let lacks = match policy {
            PolicyName::Pslo if !any(Class::has_percentile) => {
                "is pslo, and no [[oncall.class]] has an SLO of a percentile: give one p95_ms, p99_ms or p999_ms, or choose fair"
            }
            PolicyName::Paced if !any(Class::has_slo) => {
                "is paced, and no [[oncall.class]] has an SLO: give one p95_ms, p99_ms, p999_ms or disengagement, or choose fair"
            }
            PolicyName::Utslo if !any(|class| class.disengagement.is_some()) => {
                "is utslo, and no [[oncall.class]] says how many of its users may give up: give one disengagement, or choose pslo or fair"
            }
            _ => "",
        };
        if !lacks.is_empty() {
            mistakes.push(document.error(&format!("law.{law}.policy"), lacks.to_owned()));
        }
        if policy != PolicyName::Table {
            return;
        }
        let is_class = |name: &str| name == REST || self.class.iter().any(|class| class.name == name);
        for name in table.keys().filter(|name| !is_class(name)) {
            let names = self.class.iter().map(|class| class.name.as_str());
            let known: Vec<&str> = names.chain([REST]).collect();
            let why = format!(
                "names no class of connections: name one of {}, or add an [[oncall.class]] of that name",
                known.join(", ")
            );
            mistakes.push(document.error(&format!("law.{law}.table.{name}"), why));
        }
    }

    fn check_areas(&self, law: &str, areas: &AreasTuning, document: &Document, mistakes: &mut Mistakes) {
        let lacks = match areas.law {
            AreaLawName::None => return,
            AreaLawName::Reef | AreaLawName::Demeter if !self.class.iter().any(Class::has_slo) => {
                "divides the cores by SLOs, and no [[oncall.class]] has one: give one p95_ms, p99_ms or p999_ms, or choose none"
            }
            AreaLawName::Satori if self.class.is_empty() => {
                "divides the cores among classes, and there is no [[oncall.class]]: add one, or choose none"
            }
            _ => return,
        };
        mistakes.push(document.error(&format!("law.{law}.areas.law"), lacks.to_owned()));
    }
}
