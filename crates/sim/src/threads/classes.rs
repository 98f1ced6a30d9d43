//! The classes of a server's connections: what each asks for, and what it was granted by contract.

use super::scenario::{QueryArrivals, ThreadsScenario};
use crate::error::{ScenarioError, within};
use headroom_control::oncall::tail::{Disengagement, TailError};
use headroom_units::{Ratio, Seconds};
use headroom_workload::Shape;
use serde::{Deserialize, Serialize};

/// The most classes, and the most SLOs or changes of one.
const MAX_CLASSES: usize = 100;

/// A percentile SLO.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TailTarget {
    /// Which percentile, such as 0.99.
    pub percentile: f64,
    /// Its target, seconds.
    pub target_s: f64,
}

/// A user disengagement ratio as SLO: the mean of d(latency).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DisengagementTarget {
    /// The ratio that may be, such as 0.001.
    pub target: f64,
    /// d as points of latency in seconds and share of users who give up: straight in between, flat outside.
    pub points: Vec<(f64, f64)>,
}

impl DisengagementTarget {
    /// d with its latencies multiplied.
    ///
    /// # Errors
    /// [`TailError`] where the points are no such function.
    pub fn scaled(&self, scale: f64) -> Result<Disengagement, TailError> {
        let point = |&(latency_s, share): &(f64, f64)| (Seconds::new(latency_s * scale), Ratio::new(share));
        Disengagement::new(self.points.iter().map(point).collect())
    }
}

/// A change of all targets of a class while the server runs (REEF, Section 5.4).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SloChange {
    /// From when on, seconds.
    pub at_s: f64,
    /// The targets over those that are given: 0.75 makes 40 ms 30 ms.
    pub scale: f64,
}

/// Connections that are alike. What is not given is the scenario's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClassFigures {
    /// Its name, which no other class has.
    pub name: String,
    /// How many they are.
    pub connections: u32,
    /// Their weight, as the fair policy has it.
    pub weight: f64,
    /// Their weight for the kernel's fair policies, as `cpu.weight` of a control group of each thread; 1 is that of the others.
    pub cpu_weight: f64,
    /// Percentile SLOs; none of best-effort connections.
    pub percentiles: Vec<TailTarget>,
    /// A disengagement SLO.
    pub disengagement: Option<DisengagementTarget>,
    /// When their targets change, in the order of time.
    pub changes: Vec<SloChange>,
    /// When their queries come; an open rate is that of all of them.
    pub arrivals: Option<QueryArrivals>,
    /// Mean instructions of their queries.
    pub instructions: Option<f64>,
    /// How these are distributed.
    pub shape: Option<Shape>,
    /// The share of their queries that accesses the disk.
    pub disk_probability: Option<f64>,
    /// They are no connections but the threads of another application on the same machine, and their queries steps of its work: never on call,
    /// without disk and locks, with the same instructions however many threads there are, and counted in their class alone.
    pub other_application: bool,
}

impl Default for ClassFigures {
    fn default() -> Self {
        Self {
            name: "all".to_owned(),
            connections: 1,
            weight: 1.0,
            cpu_weight: 1.0,
            percentiles: Vec::new(),
            disengagement: None,
            changes: Vec::new(),
            arrivals: None,
            instructions: None,
            shape: None,
            disk_probability: None,
            other_application: false,
        }
    }
}

impl ClassFigures {
    /// Connections without an SLO.
    pub fn best_effort(name: &str, connections: u32) -> Self {
        Self {
            name: name.to_owned(),
            connections,
            ..Self::default()
        }
    }

    /// Threads of another application that compute without end, in steps of so many instructions.
    pub fn other_application(name: &str, threads: u32, instructions: f64) -> Self {
        Self {
            arrivals: Some(QueryArrivals::Closed {
                think_s: 0.0,
                think: Shape::Deterministic {},
            }),
            instructions: Some(instructions),
            other_application: true,
            ..Self::best_effort(name, threads)
        }
    }

    /// Connections with one percentile SLO, in milliseconds.
    pub fn with_tail(name: &str, connections: u32, percentile: f64, target_ms: f64) -> Self {
        let target_s = target_ms * 1e-3;
        Self {
            percentiles: vec![TailTarget { percentile, target_s }],
            ..Self::best_effort(name, connections)
        }
    }

    /// Whether it has an SLO.
    pub const fn is_latency_sensitive(&self) -> bool {
        !self.percentiles.is_empty() || self.disengagement.is_some()
    }

    /// What its targets are multiplied by at a time.
    pub fn scale_at(&self, now_s: f64) -> f64 {
        let before = self.changes.iter().take_while(|change| change.at_s <= now_s);
        before.last().map_or(1.0, |change| change.scale)
    }

    fn check(&self, key: &str) -> Result<(), ScenarioError> {
        let at = |name: &str| format!("{key}.{name}");
        let counts = [
            ("percentiles", self.percentiles.len()),
            ("changes", self.changes.len()),
        ];
        for (name, count) in counts {
            within(&at(name), count as f64, 0.0, MAX_CLASSES as f64, " values")?;
        }
        within(
            &at("connections"),
            f64::from(self.connections),
            1.0,
            f64::from(u32::MAX),
            "",
        )?;
        within(&at("weight"), self.weight, 1e-6, 1e6, "")?;
        within(&at("cpu_weight"), self.cpu_weight, 1e-4, 1e4, "")?;
        for (number, slo) in self.percentiles.iter().enumerate() {
            let at = |name: &str| format!("{key}.percentiles.{number}.{name}");
            within(&at("percentile"), slo.percentile, 1e-6, 0.999_999, "")?;
            within(&at("target_s"), slo.target_s, 1e-9, 86_400.0, " seconds")?;
        }
        if let Some(slo) = &self.disengagement {
            within(&at("disengagement.target"), slo.target, 1e-9, 1.0, "")?;
            slo.scaled(1.0)
                .map_err(|error| ScenarioError::new(at("disengagement.points"), error.to_string()))?;
        }
        let mut before_s = 0.0;
        for (number, change) in self.changes.iter().enumerate() {
            let at = |name: &str| format!("{key}.changes.{number}.{name}");
            within(&at("at_s"), change.at_s, before_s, 1e6, " seconds")?;
            within(&at("scale"), change.scale, 1e-3, 1e3, "")?;
            before_s = change.at_s;
        }
        if let Some(arrivals) = &self.arrivals {
            arrivals.check(&at("arrivals"))?;
        }
        if let Some(instructions) = self.instructions {
            within(&at("instructions"), instructions, 1.0, 1e13, "")?;
        }
        if let Some(shape) = &self.shape {
            shape.check(&at("shape"))?;
        }
        if let Some(probability) = self.disk_probability {
            within(&at("disk_probability"), probability, 0.0, 1.0, "")?;
        }
        Ok(())
    }
}

impl ThreadsScenario {
    /// The classes; where none is given, one of all connections without an SLO.
    pub(super) fn all_classes(&self) -> Vec<ClassFigures> {
        match self.classes.is_empty() {
            true => vec![ClassFigures::best_effort("all", self.connections)],
            false => self.classes.clone(),
        }
    }

    pub(super) fn check_classes(&self) -> Result<(), ScenarioError> {
        let count = self.classes.len();
        within("classes", count as f64, 0.0, MAX_CLASSES as f64, "")?;
        for (number, class) in self.classes.iter().enumerate() {
            let key = format!("classes.{number}");
            class.check(&key)?;
            if self.classes[..number].iter().any(|one| one.name == class.name) {
                let why = format!(
                    "is {:?}, as that of another class: give each a name of its own",
                    class.name
                );
                return Err(ScenarioError::new(format!("{key}.name"), why));
            }
        }
        let sum: u64 = self
            .classes
            .iter()
            .map(|class| u64::from(class.connections))
            .sum();
        if count > 0 && sum != u64::from(self.connections) {
            let why = format!(
                "have {sum} connections together, and connections is {}: make them the same",
                self.connections
            );
            return Err(ScenarioError::new("classes", why));
        }
        Ok(())
    }
}
