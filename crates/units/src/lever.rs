//! Levers: what can be set on a machine, a service or a cluster, by name; and a value for each.
//!
//! Whatever records, shows, transports or spreads a setting iterates over [`Lever::ALL`] and asks each lever what it is
//! ([`LeverInfo`]): none of them names one.
//!
//! ```
//! use headroom_units::{Cores, Lever, Setting, Watts};
//!
//! let found = Setting::default().with(Lever::Cores, Some(4.0)).with(Lever::Cap, Some(60.0));
//! let wanted = Setting::default().with(Lever::Cores, Some(2.0));
//! assert_eq!(wanted.cores(), Some(Cores::new(2.0)));
//! assert!(wanted.takes_from(&found));
//! // What the wanted setting leaves alone stays as it was found.
//! assert_eq!(wanted.over(&found).cap(), Some(Watts::new(60.0)));
//! assert_eq!(Lever::Frequency.info().read(1.8e9), "1.80 GHz");
//! ```

use crate::{Cores, Hertz, Seconds, Watts};
use serde::de::{DeserializeSeed, Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// What can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lever {
    /// CPU cores of the service.
    Cores,
    /// Power cap of the machine.
    Cap,
    /// The highest frequency that the processors may run at.
    Frequency,
    /// Servers of the cluster that are on.
    Servers,
    /// How long a network card collects what it receives before it interrupts a processor.
    Coalescing,
    /// How long a gateway holds requests to group those for the same.
    BatchInterval,
    /// What a gateway's cache may hold.
    CacheSize,
    /// Whether gateways send requests where the law says by the size of their answers: 1, or 0 where each goes as the gateway is
    /// configured to balance.
    Placement,
    /// Workers of a server on call that may run at once; not limited, it is not on call.
    Concurrency,
    /// Queries of one connection in a scheduling round of a server on call.
    QueryBatch,
    /// From the end of a scheduling round of a server on call to the beginning of the next.
    RoundDelay,
}

/// Which way a lever gives the service more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gives {
    /// A higher value gives more.
    Higher,
    /// A lower value gives more, as with a delay.
    Lower,
}

/// How a value for a cluster is spread over its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// The nodes' values add up to it.
    Sum,
    /// Every node has it.
    Each,
    /// It is of the cluster alone: no node has a part of it.
    Cluster,
}

/// What a lever is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeverInfo {
    /// Its name in configurations, records and metrics.
    pub name: &'static str,
    /// What a table or a plot calls it.
    pub title: &'static str,
    /// The unit of its values, as a metric names it: `cores`, `watts`, `hertz`.
    pub unit: &'static str,
    /// The unit that people read, and how many of [`unit`](Self::unit) it is.
    pub shown: (&'static str, f64),
    /// Decimals that people read.
    pub decimals: usize,
    /// Which way it gives the service more.
    pub gives: Gives,
    /// How it is spread over nodes.
    pub spread: Spread,
}

impl LeverInfo {
    /// A value in the unit that people read: `1.80 GHz`.
    pub fn read(&self, value: f64) -> String {
        let (unit, scale) = self.shown;
        let text = format!("{:.*} {unit}", self.decimals, value / scale);
        text.trim_end().to_owned()
    }
}

impl Lever {
    /// All levers, in the order in which tables and plots have them.
    pub const ALL: [Self; 11] = [
        Self::Cores,
        Self::Cap,
        Self::Frequency,
        Self::Servers,
        Self::Coalescing,
        Self::BatchInterval,
        Self::CacheSize,
        Self::Placement,
        Self::Concurrency,
        Self::QueryBatch,
        Self::RoundDelay,
    ];

    /// What it is.
    pub const fn info(self) -> LeverInfo {
        match self {
            Self::Cores => LeverInfo {
                name: "cores",
                title: "Cores allocated",
                unit: "cores",
                shown: ("cores", 1.0),
                decimals: 1,
                gives: Gives::Higher,
                spread: Spread::Sum,
            },
            Self::Cap => LeverInfo {
                name: "cap",
                title: "Power cap",
                unit: "watts",
                shown: ("W", 1.0),
                decimals: 1,
                gives: Gives::Higher,
                spread: Spread::Sum,
            },
            Self::Frequency => LeverInfo {
                name: "frequency",
                title: "Frequency limit",
                unit: "hertz",
                shown: ("GHz", 1e9),
                decimals: 2,
                gives: Gives::Higher,
                spread: Spread::Each,
            },
            Self::Servers => LeverInfo {
                name: "servers",
                title: "Servers on",
                unit: "servers",
                shown: ("", 1.0),
                decimals: 0,
                gives: Gives::Higher,
                spread: Spread::Cluster,
            },
            Self::Coalescing => LeverInfo {
                name: "coalescing",
                title: "NIC interrupt coalescing",
                unit: "microseconds",
                shown: ("µs", 1.0),
                decimals: 0,
                gives: Gives::Lower,
                spread: Spread::Each,
            },
            Self::BatchInterval => LeverInfo {
                name: "batch_interval",
                title: "Batch interval",
                unit: "seconds",
                shown: ("ms", 1e-3),
                decimals: 0,
                gives: Gives::Lower,
                spread: Spread::Cluster,
            },
            Self::CacheSize => LeverInfo {
                name: "cache_size",
                title: "Cache size",
                unit: "bytes",
                shown: ("MiB", 1_048_576.0),
                decimals: 1,
                gives: Gives::Higher,
                spread: Spread::Cluster,
            },
            Self::Placement => LeverInfo {
                name: "placement",
                title: "Placed by size",
                unit: "ratio",
                shown: ("", 1.0),
                decimals: 0,
                gives: Gives::Lower,
                spread: Spread::Cluster,
            },
            Self::Concurrency => LeverInfo {
                name: "concurrency",
                title: "Workers at once",
                unit: "workers",
                shown: ("workers", 1.0),
                decimals: 0,
                gives: Gives::Higher,
                spread: Spread::Each,
            },
            Self::QueryBatch => LeverInfo {
                name: "query_batch",
                title: "Queries of a connection in a round",
                unit: "queries",
                shown: ("queries", 1.0),
                decimals: 0,
                gives: Gives::Higher,
                spread: Spread::Each,
            },
            Self::RoundDelay => LeverInfo {
                name: "round_delay",
                title: "Delay between rounds",
                unit: "seconds",
                shown: ("ms", 1e-3),
                decimals: 1,
                gives: Gives::Lower,
                spread: Spread::Each,
            },
        }
    }

    /// What a line of current values calls it, where its unit does not say it.
    pub const fn in_short(self) -> &'static str {
        match self {
            Self::Cores => "",
            Self::Cap => "cap",
            Self::Frequency => "at most",
            Self::Servers => "servers",
            Self::Coalescing => "coalescing",
            Self::BatchInterval => "interval",
            Self::CacheSize => "cache",
            Self::Placement => "by size",
            Self::Concurrency => "C",
            Self::QueryBatch => "N",
            Self::RoundDelay => "D",
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        self.info().name
    }

    /// The lever of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|lever| lever.name() == name)
    }

    /// Whether going from `before` to `now` leaves the service less; no limit is more than any.
    fn takes(self, before: Option<f64>, now: Option<f64>) -> bool {
        match (before, now) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(before), Some(now)) => match self.info().gives {
                Gives::Higher => now < before,
                Gives::Lower => now > before,
            },
        }
    }
}

impl fmt::Display for Lever {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Lever {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Lever {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::named(&name).ok_or_else(|| {
            let all = Self::ALL.map(Self::name).join(", ");
            D::Error::custom(format!("{name:?} is no lever: write one of {all}"))
        })
    }
}

/// A value for each lever, in its unit ([`LeverInfo::unit`]); `None` where the lever is not limited, or left alone.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Setting([Option<f64>; Lever::ALL.len()]);

impl Setting {
    /// A lever's value.
    pub const fn get(&self, lever: Lever) -> Option<f64> {
        self.0[lever as usize]
    }

    /// The same with another value for a lever.
    #[must_use]
    pub const fn with(mut self, lever: Lever, value: Option<f64>) -> Self {
        self.0[lever as usize] = value;
        self
    }

    /// Whether no lever has a value.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// The levers that have a value, each with it.
    pub fn iter(&self) -> impl Iterator<Item = (Lever, f64)> {
        let values = self.0;
        Lever::ALL
            .into_iter()
            .filter_map(move |lever| Some((lever, values[lever as usize]?)))
    }

    /// The cores.
    pub fn cores(&self) -> Option<Cores> {
        self.get(Lever::Cores).map(Cores::new)
    }

    /// The power cap.
    pub fn cap(&self) -> Option<Watts> {
        self.get(Lever::Cap).map(Watts::new)
    }

    /// The limit of the frequency.
    pub fn frequency(&self) -> Option<Hertz> {
        self.get(Lever::Frequency).map(Hertz::new)
    }

    /// How long a gateway holds requests.
    pub fn batch_interval(&self) -> Option<Seconds> {
        self.get(Lever::BatchInterval).map(Seconds::new)
    }

    /// The servers that are on.
    pub fn servers(&self) -> Option<usize> {
        self.get(Lever::Servers).map(|servers| servers as usize)
    }

    /// This where it has a value, and the other elsewhere.
    #[must_use]
    pub fn over(self, other: &Self) -> Self {
        let each = |lever: Lever| self.get(lever).or(other.get(lever));
        Self(Lever::ALL.map(each))
    }

    /// Its values of these levers alone.
    #[must_use]
    pub fn only(self, levers: &[Lever]) -> Self {
        let each = |lever: Lever| self.get(lever).filter(|_| levers.contains(&lever));
        Self(Lever::ALL.map(each))
    }

    /// Whether it leaves the service less of anything that it has a value for than `now` does. No limit is more than any.
    pub fn takes_from(&self, now: &Self) -> bool {
        Lever::ALL
            .into_iter()
            .any(|lever| lever.takes(now.get(lever), self.get(lever)))
    }

    /// Of each lever the more generous value of the two; no limit where either has none.
    #[must_use]
    pub fn most(self, other: Self) -> Self {
        let each = |lever: Lever| {
            let (one, two) = (self.get(lever)?, other.get(lever)?);
            Some(match lever.info().gives {
                Gives::Higher => one.max(two),
                Gives::Lower => one.min(two),
            })
        };
        Self(Lever::ALL.map(each))
    }
}

impl<const N: usize> From<[(Lever, f64); N]> for Setting {
    /// These levers have these values.
    fn from(values: [(Lever, f64); N]) -> Self {
        let with = |all: Self, (lever, value)| all.with(lever, Some(value));
        values.into_iter().fold(Self::default(), with)
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (lever, value) in self.iter() {
            let comma = if std::mem::take(&mut first) { "" } else { ", " };
            write!(f, "{comma}{} {}", lever.name(), lever.info().read(value))?;
        }
        match first {
            true => f.write_str("nothing limited"),
            false => Ok(()),
        }
    }
}

impl Serialize for Setting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Setting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Values;

        impl<'de> Visitor<'de> for Values {
            type Value = Setting;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number for each lever")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Setting, A::Error> {
                let mut all = Setting::default();
                while let Some(lever) = map.next_key::<Lever>()? {
                    all = all.with(lever, Some(map.next_value_seed(ValueOf(lever))?));
                }
                Ok(all)
            }
        }

        deserializer.deserialize_map(Values)
    }
}

/// A value of this lever: where it is no number, the error says of what.
struct ValueOf(Lever);

impl<'de> DeserializeSeed<'de> for ValueOf {
    type Value = f64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<f64, D::Error> {
        deserializer.deserialize_f64(self)
    }
}

impl Visitor<'_> for ValueOf {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a number of {}", self.0.info().unit)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<f64, E> {
        Ok(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<f64, E> {
        Ok(value as f64)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<f64, E> {
        Ok(value as f64)
    }
}

/// The values that a lever can have: from `min` to `max` in steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeverRange {
    /// Its least value.
    pub min: f64,
    /// Its most.
    pub max: f64,
    /// The smallest change; 0 where any value is kept as it is.
    pub step: f64,
    /// How long a change takes to be in force.
    #[serde(default)]
    pub delay: Seconds,
}

impl LeverRange {
    /// A range whose changes are in force at once; `None` where it is empty or its step is not one.
    pub fn new(min: f64, max: f64, step: f64) -> Option<Self> {
        let fits = min >= 0.0 && min <= max && max.is_finite() && step > 0.0;
        fits.then_some(Self {
            min,
            max,
            step,
            delay: Seconds::ZERO,
        })
    }

    /// A range whose every value is kept as it is, and in force at once.
    pub const fn between(min: f64, max: f64) -> Self {
        Self {
            min,
            max,
            step: 0.0,
            delay: Seconds::ZERO,
        }
    }

    /// Its value that gives the service most.
    pub const fn full(&self, lever: Lever) -> f64 {
        match lever.info().gives {
            Gives::Higher => self.max,
            Gives::Lower => self.min,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(cores: f64, cap: f64, ghz: Option<f64>) -> Setting {
        Setting::default()
            .with(Lever::Cores, Some(cores))
            .with(Lever::Cap, Some(cap))
            .with(Lever::Frequency, ghz.map(|ghz| ghz * 1e9))
    }

    #[test]
    fn a_levers_place_is_its_own_and_so_is_its_name() {
        for (at, lever) in Lever::ALL.into_iter().enumerate() {
            assert_eq!(lever as usize, at);
            assert_eq!(Lever::named(lever.name()), Some(lever));
        }
        assert_eq!(Lever::named("turbo"), None);
    }

    #[test]
    fn no_limit_is_more_than_any() {
        let (free, slow) = (setting(2.0, 40.0, None), setting(2.0, 40.0, Some(1.2)));
        assert!(slow.takes_from(&free) && !free.takes_from(&slow) && !slow.takes_from(&slow));
        assert_eq!(slow.most(free), free);
        let slower = setting(3.0, 30.0, Some(0.8));
        assert!(slower.takes_from(&slow) && slow.takes_from(&slower));
        assert_eq!(slow.most(slower), setting(3.0, 40.0, Some(1.2)));
        let delay = |us| Setting::from([(Lever::Coalescing, us)]);
        assert!(delay(50.0).takes_from(&delay(3.0)) && !delay(3.0).takes_from(&delay(50.0)));
        assert_eq!(delay(50.0).most(delay(3.0)), delay(3.0));
        assert_eq!(LeverRange::between(3.0, 50.0).full(Lever::Coalescing), 3.0);
    }

    #[test]
    fn what_is_left_alone_stays() {
        let wanted = Setting::default().with(Lever::Servers, Some(2.0));
        let all = wanted.over(&setting(2.0, 40.0, None));
        assert_eq!((all.servers(), all.cores()), (Some(2), Some(Cores::new(2.0))));
        assert_eq!(all.only(&[Lever::Servers]), wanted);
        assert!(!Setting::default().takes_from(&all));
    }

    #[test]
    fn a_setting_is_written_by_name_and_read_back() {
        let slow = setting(2.0, 40.0, Some(1.2));
        let json = serde_json::to_string(&slow).unwrap();
        assert_eq!(json, r#"{"cores":2.0,"cap":40.0,"frequency":1200000000.0}"#);
        assert_eq!(serde_json::from_str::<Setting>(&json).unwrap(), slow);
        let error = serde_json::from_str::<Setting>(r#"{"turbo": 1}"#)
            .unwrap_err()
            .to_string();
        assert!(error.contains("\"turbo\" is no lever"), "{error}");
        assert_eq!(
            slow.to_string(),
            "cores 2.0 cores, cap 40.0 W, frequency 1.20 GHz"
        );
        assert_eq!(Setting::default().to_string(), "nothing limited");
    }

    #[test]
    fn an_empty_range_is_none() {
        assert!(LeverRange::new(1.0, 0.5, 0.1).is_none() && LeverRange::new(0.0, 1.0, 0.0).is_none());
        let range = LeverRange::new(0.2, 2.0, 0.1).unwrap();
        assert_eq!(range.full(Lever::Cores), 2.0);
    }
}
