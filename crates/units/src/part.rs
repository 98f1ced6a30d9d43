//! What one period of a run says of its parts (the cluster, its nodes, its gateways), in a form that whatever records, shows or
//! exports it iterates over: values by [`Quantity`], each of which says its name and unit.
//!
//! ```
//! use headroom_units::{Lever, Part, Quantity, Role, Sensor};
//!
//! let node = Part::new("web1", Role::Node)
//!     .in_state("serving")
//!     .with(Lever::Cores, Some(2.0))
//!     .with(Sensor::ArrivalRate, Some(410.0))
//!     .with(Sensor::QueueMean, None);
//! let reported: Vec<String> = node.values.iter().map(|(quantity, value)| quantity.info().read(*value)).collect();
//! assert_eq!(reported, ["2.0 cores", "410.0 /s"]);
//! assert_eq!(Quantity::named("arrival_rate"), Some(Sensor::ArrivalRate.into()));
//! ```

use crate::{Lever, Setting, Source};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// What is measured or estimated of a part, and not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sensor {
    /// Mean power; its source is the part's.
    Power,
    /// Mean power that the same work would need with every server on, by the same model.
    PowerAlwaysOn,
    /// Busy share of what is allocated.
    Utilisation,
    /// Mean frequency of the processors.
    FrequencyMean,
    /// Share of the quota's periods in which the service was throttled.
    Throttled,
    /// Requests that arrive.
    ArrivalRate,
    /// Requests that fail.
    FailureRate,
    /// Requests being served.
    InFlight,
    /// Latency at the SLO's percentile.
    LatencyAtSlo,
    /// Requests that can be served, given or estimated.
    Capacity,
    /// Requests, or connections, that are served.
    ServiceRate,
    /// Mean length of the accept queue.
    QueueMean,
    /// Length of the accept queue that can overflow within a period.
    QueueThreshold,
    /// Connections that the accept queue holds at most.
    Backlog,
    /// Connections since the counters began.
    Connections,
    /// Time between two samples.
    SampleInterval,
    /// Connections that found the accept queue full, of those that arrived.
    DropRatio,
    /// CPU cores that are busy.
    BusyCores,
    /// Requests that were looked for in a cache and answered from it, of all that were looked for.
    CacheHitRatio,
    /// From the release of a batch to the last of its answers, in the mean: T_p of the batching paper.
    BatchProcessing,
    /// What the batch before left of a batch's interval, in the mean: T_w of the batching paper.
    BatchWaiting,
    /// Requests of a batch that ask for the same, in the mean.
    BatchGroupSize,
    /// Connections of a server on call that have a query and wait for a slot.
    WaitingForSlot,
    /// For how long the one of them waits that waits longest.
    OldestWaiting,
    /// P95 of the last queries of a class's connections together.
    LatencyP95,
    /// The same of P99.
    LatencyP99,
    /// The same of P99.9.
    LatencyP999,
    /// The target for the P95 of each connection of a class.
    TargetP95,
    /// The same for P99.
    TargetP99,
    /// The same for P99.9.
    TargetP999,
    /// Connections of a class of which one of the SLOs was missed by their last queries.
    MissedSlo,
    /// Instructions per query: IPQ of REEF.
    InstructionsPerQuery,
    /// Context switches per query.
    SwitchesPerQuery,
    /// Share of the cores' time in idle periods longer than the break-even time of their deepest useful idle state.
    LongIdle,
    /// Requests that a log accounts for, of those that the proxy counted in the last periods.
    LogCoverage,
    /// Lines of a log that were dropped or could not be read.
    LinesLost,
    /// How far the clock of another source of telemetry is behind; negative where it is ahead.
    ClockBehind,
    /// Latency at the SLO's percentile to the last byte of the answer, as the client takes it.
    LatencyToLastByte,
    /// Requests for which there was no place to wait, or that waited too long.
    TurnedAway,
}

/// A lever or a sensor: what has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quantity {
    /// What is in force of a lever.
    Lever(Lever),
    /// What a sensor says.
    Sensor(Sensor),
}

/// What a quantity is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuantityInfo {
    /// Its name in records and metrics.
    pub name: &'static str,
    /// What a table or a plot calls it.
    pub title: &'static str,
    /// The unit of its values, as a metric names it.
    pub unit: &'static str,
    /// The unit that people read, and how many of [`unit`](Self::unit) it is.
    pub shown: (&'static str, f64),
    /// Decimals that people read.
    pub decimals: usize,
}

impl QuantityInfo {
    /// Its name with its unit, once: `cap_watts`, `busy_cores`.
    pub fn key(&self) -> String {
        match self.name.ends_with(self.unit) {
            true => self.name.to_owned(),
            false => format!("{}_{}", self.name, self.unit),
        }
    }

    /// A value in the unit that people read: `1.80 GHz`.
    pub fn read(&self, value: f64) -> String {
        let (unit, scale) = self.shown;
        let text = format!("{:.*} {unit}", self.decimals, value / scale);
        text.trim_end().to_owned()
    }
}

impl Sensor {
    /// All sensors, in the order in which tables and plots have them.
    pub const ALL: [Self; 39] = [
        Self::ArrivalRate,
        Self::ServiceRate,
        Self::FailureRate,
        Self::LatencyAtSlo,
        Self::InFlight,
        Self::Power,
        Self::PowerAlwaysOn,
        Self::Utilisation,
        Self::BusyCores,
        Self::FrequencyMean,
        Self::Throttled,
        Self::Capacity,
        Self::QueueMean,
        Self::QueueThreshold,
        Self::Backlog,
        Self::DropRatio,
        Self::Connections,
        Self::SampleInterval,
        Self::CacheHitRatio,
        Self::BatchProcessing,
        Self::BatchWaiting,
        Self::BatchGroupSize,
        Self::WaitingForSlot,
        Self::OldestWaiting,
        Self::LatencyP95,
        Self::LatencyP99,
        Self::LatencyP999,
        Self::TargetP95,
        Self::TargetP99,
        Self::TargetP999,
        Self::MissedSlo,
        Self::InstructionsPerQuery,
        Self::SwitchesPerQuery,
        Self::LongIdle,
        Self::LogCoverage,
        Self::LinesLost,
        Self::ClockBehind,
        Self::LatencyToLastByte,
        Self::TurnedAway,
    ];

    /// What it is.
    pub const fn info(self) -> QuantityInfo {
        let (name, title, unit, shown, decimals) = match self {
            Self::Power => ("power", "Power", "watts", ("W", 1.0), 1),
            Self::PowerAlwaysOn => (
                "power_always_on",
                "Power with every server on",
                "watts",
                ("W", 1.0),
                1,
            ),
            Self::Utilisation => ("utilisation", "Utilisation", "ratio", ("%", 0.01), 0),
            Self::FrequencyMean => ("frequency_mean", "Mean frequency", "hertz", ("GHz", 1e9), 2),
            Self::Throttled => ("throttled", "Throttled share", "ratio", ("%", 0.01), 0),
            Self::ArrivalRate => ("arrival_rate", "Arrival rate", "per_second", ("/s", 1.0), 1),
            Self::FailureRate => ("failure_rate", "Failure rate", "per_second", ("/s", 1.0), 1),
            Self::InFlight => ("in_flight", "Requests in flight", "requests", ("", 1.0), 0),
            Self::LatencyAtSlo => (
                "latency_at_slo",
                "Latency at the SLO's percentile",
                "seconds",
                ("ms", 1e-3),
                1,
            ),
            Self::Capacity => ("capacity", "Capacity", "per_second", ("/s", 1.0), 1),
            Self::QueueMean => (
                "queue_mean",
                "Accept queue, mean length",
                "connections",
                ("", 1.0),
                1,
            ),
            Self::ServiceRate => ("service_rate", "Service rate", "per_second", ("/s", 1.0), 1),
            Self::QueueThreshold => (
                "queue_threshold",
                "Accept queue, threshold",
                "connections",
                ("", 1.0),
                1,
            ),
            Self::Backlog => ("backlog", "Accept queue, backlog", "connections", ("", 1.0), 0),
            Self::Connections => ("connections", "Connections", "connections", ("", 1.0), 0),
            Self::SampleInterval => (
                "sample_interval",
                "Time between samples",
                "seconds",
                ("s", 1.0),
                3,
            ),
            Self::DropRatio => ("drop_ratio", "Drop ratio", "ratio", ("%", 0.01), 2),
            Self::BusyCores => ("busy_cores", "Busy cores", "cores", ("cores", 1.0), 2),
            Self::CacheHitRatio => ("cache_hit_ratio", "Cache hit rate", "ratio", ("%", 0.01), 1),
            Self::BatchProcessing => (
                "batch_processing",
                "Batch, time to answer",
                "seconds",
                ("ms", 1e-3),
                1,
            ),
            Self::BatchWaiting => (
                "batch_waiting",
                "Batch, time left of the interval",
                "seconds",
                ("ms", 1e-3),
                1,
            ),
            Self::BatchGroupSize => (
                "batch_group_size",
                "Requests for the same in a batch",
                "requests",
                ("", 1.0),
                2,
            ),
            Self::WaitingForSlot => (
                "waiting_for_slot",
                "Connections that wait for a slot",
                "connections",
                ("", 1.0),
                0,
            ),
            Self::OldestWaiting => (
                "oldest_waiting",
                "Longest wait for a slot",
                "seconds",
                ("ms", 1e-3),
                1,
            ),
            Self::LatencyP95 => (
                "latency_p95",
                "P95 of the last queries",
                "seconds",
                ("ms", 1e-3),
                1,
            ),
            Self::TargetP95 => ("target_p95", "Target of P95", "seconds", ("ms", 1e-3), 1),
            Self::LatencyP99 => (
                "latency_p99",
                "P99 of the last queries",
                "seconds",
                ("ms", 1e-3),
                1,
            ),
            Self::TargetP99 => ("target_p99", "Target of P99", "seconds", ("ms", 1e-3), 1),
            Self::LatencyP999 => (
                "latency_p999",
                "P99.9 of the last queries",
                "seconds",
                ("ms", 1e-3),
                1,
            ),
            Self::TargetP999 => ("target_p999", "Target of P99.9", "seconds", ("ms", 1e-3), 1),
            Self::MissedSlo => (
                "missed_slo",
                "Connections over an SLO, by their last queries or one that waits",
                "connections",
                ("", 1.0),
                0,
            ),
            Self::InstructionsPerQuery => (
                "instructions_per_query",
                "Instructions per query",
                "per_query",
                ("k", 1e3),
                1,
            ),
            Self::SwitchesPerQuery => (
                "switches_per_query",
                "Context switches per query",
                "per_query",
                ("", 1.0),
                2,
            ),
            Self::LogCoverage => (
                "log_coverage",
                "Requests with a line in the log",
                "ratio",
                ("%", 0.01),
                1,
            ),
            Self::LinesLost => (
                "lines_lost",
                "Log lines dropped or not read",
                "lines",
                ("", 1.0),
                0,
            ),
            Self::ClockBehind => ("clock_behind", "Clock behind by", "seconds", ("s", 1.0), 1),
            Self::LatencyToLastByte => (
                "latency_to_last_byte",
                "Latency to the last byte at the SLO's percentile",
                "seconds",
                ("ms", 1e-3),
                1,
            ),
            Self::TurnedAway => (
                "turned_away",
                "Requests turned away",
                "per_second",
                ("/s", 1.0),
                1,
            ),
            Self::LongIdle => (
                "long_idle",
                "Core time in long idle periods",
                "ratio",
                ("%", 0.01),
                1,
            ),
        };
        QuantityInfo {
            name,
            title,
            unit,
            shown,
            decimals,
        }
    }
}

impl Lever {
    /// What shows how much of it is used, where a sensor does.
    pub const fn used(self) -> Option<Sensor> {
        match self {
            Self::Cores => Some(Sensor::BusyCores),
            Self::Cap => Some(Sensor::Power),
            Self::Frequency => Some(Sensor::FrequencyMean),
            _ => None,
        }
    }
}

impl Quantity {
    /// All levers, then all sensors.
    pub fn all() -> impl Iterator<Item = Self> {
        let levers = Lever::ALL.into_iter().map(Self::Lever);
        levers.chain(Sensor::ALL.into_iter().map(Self::Sensor))
    }

    /// What it is.
    pub const fn info(self) -> QuantityInfo {
        match self {
            Self::Sensor(sensor) => sensor.info(),
            Self::Lever(lever) => {
                let info = lever.info();
                QuantityInfo {
                    name: info.name,
                    title: info.title,
                    unit: info.unit,
                    shown: info.shown,
                    decimals: info.decimals,
                }
            }
        }
    }

    /// The quantity of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|quantity| quantity.info().name == name)
    }
}

impl From<Lever> for Quantity {
    fn from(lever: Lever) -> Self {
        Self::Lever(lever)
    }
}

impl From<Sensor> for Quantity {
    fn from(sensor: Sensor) -> Self {
        Self::Sensor(sensor)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info().name)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.info().name)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::named(&name).ok_or_else(|| D::Error::custom(format!("{name:?} is no lever and no sensor")))
    }
}

/// What a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The whole.
    Cluster,
    /// A machine, or a server on one.
    Node,
    /// A gateway, or another balancer.
    Gateway,
    /// A way to measure, such as the accept queue of a port by eBPF.
    Meter,
    /// A way to estimate, by what a meter shows.
    Estimator,
    /// Connections of a server on call that have the same SLOs.
    Class,
    /// Requests whose answers are of like size.
    Size,
    /// Requests that gateways let wait, and turn away, as they are equally important.
    Importance,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 8] = [
        Self::Cluster,
        Self::Node,
        Self::Gateway,
        Self::Meter,
        Self::Estimator,
        Self::Class,
        Self::Size,
        Self::Importance,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Node => "node",
            Self::Gateway => "gateway",
            Self::Meter => "meter",
            Self::Estimator => "estimator",
            Self::Class => "class",
            Self::Size => "size",
            Self::Importance => "importance",
        }
    }

    /// The role of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// What is said of a part beside its values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Fact {
    /// Yes or no.
    Holds(bool),
    /// A count.
    Count(u64),
    /// A number, in the unit that its name ends with.
    Number(f64),
    /// Words.
    Words(String),
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Holds(holds) => f.write_str(if *holds { "yes" } else { "no" }),
            Self::Count(count) => count.fmt(f),
            Self::Number(number) => write!(f, "{number:.1}"),
            Self::Words(words) => f.write_str(words),
        }
    }
}

impl From<bool> for Fact {
    fn from(holds: bool) -> Self {
        Self::Holds(holds)
    }
}

impl From<u64> for Fact {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<f64> for Fact {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Fact {
    fn from(words: &str) -> Self {
        Self::Words(words.to_owned())
    }
}

impl From<String> for Fact {
    fn from(words: String) -> Self {
        Self::Words(words)
    }
}

/// A part of a run in one period. What is not known of it is absent, never zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// What it is.
    pub role: Role,
    /// Its state at the end of the period, of few: `held`, `unreachable`, `serving`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Where its power comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// Its values.
    pub values: BTreeMap<Quantity, f64>,
    /// What else there is to say of it, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, Fact>,
    /// What is wrong with it, or with what is known of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trouble: Vec<String>,
}

impl Part {
    /// The state of a part that comes to a run that goes on.
    pub const JOINING: &str = "joining";
    /// The state, for one period, of a part that there is no more because somebody took it away.
    pub const LEFT: &str = "left";

    /// A part of which nothing is known yet.
    pub fn new(name: impl Into<String>, role: Role) -> Self {
        Self {
            name: name.into(),
            role,
            state: None,
            source: None,
            values: BTreeMap::new(),
            facts: BTreeMap::new(),
            trouble: Vec::new(),
        }
    }

    /// The same in a state.
    #[must_use]
    pub fn in_state(mut self, state: impl Into<String>) -> Self {
        self.state = Some(state.into());
        self
    }

    /// The same with a value, where there is one and it is a number.
    #[must_use]
    pub fn with(mut self, quantity: impl Into<Quantity>, value: Option<f64>) -> Self {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.values.insert(quantity.into(), value);
        }
        self
    }

    /// The same with what is in force of each lever.
    #[must_use]
    pub fn set_to(self, setting: &Setting) -> Self {
        setting
            .iter()
            .fold(self, |part, (lever, value)| part.with(lever, Some(value)))
    }

    /// The same with a fact.
    #[must_use]
    pub fn fact(mut self, name: &str, fact: impl Into<Fact>) -> Self {
        self.facts.insert(name.to_owned(), fact.into());
        self
    }

    /// A value.
    pub fn get(&self, quantity: impl Into<Quantity>) -> Option<f64> {
        self.values.get(&quantity.into()).copied()
    }

    /// This and what another says of the same part: its values and facts in addition, and its state where this has none.
    pub fn join(&mut self, other: Self) {
        self.state = self.state.take().or(other.state);
        self.source = self.source.or(other.source);
        self.values.extend(other.values);
        self.facts.extend(other.facts);
        self.trouble.extend(other.trouble);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_one_quantity_each() {
        for quantity in Quantity::all() {
            assert_eq!(Quantity::named(quantity.info().name), Some(quantity));
        }
        assert_eq!(Quantity::all().count(), Lever::ALL.len() + Sensor::ALL.len());
    }

    #[test]
    fn a_part_is_written_and_read_back() {
        let part = Part::new("n1", Role::Node)
            .in_state("held")
            .with(Lever::Cap, Some(40.0))
            .with(Sensor::Utilisation, Some(f64::NAN))
            .fact("meter", "rapl");
        let json = serde_json::to_string(&part).unwrap();
        assert_eq!(
            json,
            r#"{"name":"n1","role":"node","state":"held","values":{"cap":40.0},"facts":{"meter":"rapl"}}"#
        );
        assert_eq!(serde_json::from_str::<Part>(&json).unwrap(), part);
    }

    #[test]
    fn parts_of_one_name_are_joined() {
        let mut part = Part::new("n1", Role::Node).in_state("serving");
        part.join(
            Part::new("n1", Role::Node)
                .in_state("held")
                .with(Lever::Cores, Some(2.0)),
        );
        assert_eq!(
            (part.state.as_deref(), part.get(Lever::Cores)),
            (Some("serving"), Some(2.0))
        );
    }
}
