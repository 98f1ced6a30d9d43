//! The laws, by name: what each is for, its table of parameters, how it is built and what of it can be searched. A law is
//! added here, beside its own file.
//!
//! ```
//! use headroom_control::{CoreRange, LawConfig, LawContext, LawName, Plant, PowerEnvelope, Slo};
//! use headroom_units::{Cores, PerSecond, Ratio, Seconds, Watts};
//!
//! let cores = CoreRange::new(Cores::new(0.2), Cores::new(2.0), Cores::new(0.1))?;
//! let power = PowerEnvelope { base: Watts::new(6.0), per_core: Watts::new(2.86), lowest_cap: Watts::new(6.2) };
//! let context = LawContext {
//!     slo: Slo::new(Ratio::new(0.95), Seconds::from_millis(250.0))?,
//!     plant: Plant::new(cores, power)?,
//!     service_rate: PerSecond::new(250.0),
//!     machines: Vec::new(),
//! };
//! let name: LawName = "slo-power".parse()?;
//! let law = LawConfig::of(name).build(&context)?;
//! assert_eq!(law.name(), "slo-power");
//! assert_eq!(law.guard(), Some(Seconds::from_millis(200.0)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod foreseen;
mod laws;
mod names;
mod search;
mod servers;

pub use foreseen::Foreseen;
pub use laws::LawConfig;
pub use names::LawNames;
pub use search::Parameter;
pub use servers::{ScheduledConfig, StaticConfig};

use crate::law::Law;
use crate::parameter::OutOfRange;
use crate::plant::{Plant, Slo};
use headroom_physics::MachineFigures;
use headroom_units::PerSecond;
use laws::LAWS;
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::str::FromStr;

/// What a law is built for.
#[derive(Clone, Debug)]
pub struct LawContext {
    /// The SLO.
    pub slo: Slo,
    /// The machine or the cluster.
    pub plant: Plant,
    /// μ: requests that one core serves in a second.
    pub service_rate: PerSecond,
    /// What each server is, in the order in which they are switched on; empty where nobody says. The laws that plan by what
    /// a point draws need it.
    pub machines: Vec<MachineFigures>,
}

/// A law that cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {why}")]
pub struct LawError {
    /// The key of the configuration file that the objection is about: `law.hpa.sync_s`.
    pub key: String,
    /// What is wrong with it, and what to do.
    pub why: String,
}

impl LawError {
    pub(crate) fn new(key: impl Into<String>, why: impl fmt::Display) -> Self {
        Self {
            key: key.into(),
            why: why.to_string(),
        }
    }

    /// For the errors of the table `[law.TABLE]`.
    pub(crate) fn of(table: &'static str) -> impl Fn(OutOfRange) -> Self {
        move |error| {
            let why = format!("{}: it must be {}", error.is(), error.range);
            Self::new(format!("law.{table}.{}", error.key), why)
        }
    }
}

/// A law, or why it cannot be built.
type Built = Result<Box<dyn Law>, LawError>;
/// What of a law can be searched.
type Found = Result<Vec<Parameter>, LawError>;

/// One law of the registry.
struct Entry {
    /// Whether what it moves is the number of servers that are on, and nothing of a machine.
    resizes: bool,
    /// Whether it sets machines and switches servers too, where there are any to switch.
    may_resize: bool,
    /// Whether what it moves is of gateways, and nothing of a machine.
    of_gateways: bool,
    name: &'static str,
    about: &'static str,
    /// The table of its parameters; `None` where it has none.
    table: Option<&'static str>,
    /// Whether it can run with the default parameters; else it decides nothing before it is given some.
    has_defaults: bool,
    /// Whether a target that no number of cores meets is refused before it is built: one request alone takes 1/μ.
    needs_reachable_target: bool,
    /// Whether it is built with μ: where nobody gives that, it waits until the traffic has shown it.
    needs_service_rate: bool,
    build: fn(&LawConfig, &LawContext) -> Built,
    /// What of `build` objects on every machine.
    foreseen: fn(&LawConfig, LawName, &Foreseen) -> foreseen::Objections,
    search: fn(&LawConfig, &LawContext) -> Found,
}

/// The name of a law of the registry.
#[derive(Clone, Copy)]
pub struct LawName(&'static Entry);

impl LawName {
    /// Every law, in the order in which help and tables name them.
    pub fn all() -> impl Iterator<Item = Self> {
        LAWS.iter().map(Self)
    }

    /// The laws that set machines: those that a plant without servers to switch can have.
    pub fn of_machines() -> impl Iterator<Item = Self> {
        Self::all().filter(|law| !law.resizes())
    }

    /// Whether it switches servers on and off, and sets nothing of a machine.
    pub const fn resizes(self) -> bool {
        self.0.resizes
    }

    /// Whether it sets machines, and switches servers on and off too where they can be.
    pub const fn may_resize(self) -> bool {
        self.0.may_resize
    }

    /// Whether it sets gateways, and nothing of a machine: such a law needs no machine that can be commanded.
    pub const fn of_gateways(self) -> bool {
        self.0.of_gateways
    }

    /// Whether it goes by μ, which is observed first where nobody gives it; the other laws decide from the first period on.
    pub const fn needs_service_rate(self) -> bool {
        self.0.needs_service_rate
    }

    /// Whether it can run with the default parameters: what has none cannot be compared or searched as it stands.
    pub const fn has_defaults(self) -> bool {
        self.0.has_defaults
    }

    /// The name, as the law itself gives it.
    pub const fn as_str(self) -> &'static str {
        self.0.name
    }

    /// One sentence: what it does.
    pub const fn about(self) -> &'static str {
        self.0.about
    }

    /// The table of its parameters below `[law]`; `None` where it has none.
    pub const fn table(self) -> Option<&'static str> {
        self.0.table
    }
}

impl PartialEq for LawName {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for LawName {}

impl Default for LawName {
    fn default() -> Self {
        Self::JOINT
    }
}

impl fmt::Display for LawName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

impl fmt::Debug for LawName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

/// No law has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no law: choose one of {names}", names = LAWS.iter().map(|law| law.name).collect::<Vec<_>>().join(", "))]
pub struct NoSuchLaw(pub String);

impl FromStr for LawName {
    type Err = NoSuchLaw;

    fn from_str(name: &str) -> Result<Self, NoSuchLaw> {
        Self::all()
            .find(|law| law.as_str() == name)
            .ok_or_else(|| NoSuchLaw(name.to_owned()))
    }
}

impl<'de> Deserialize<'de> for LawName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl LawConfig {
    /// A law that is named.
    ///
    /// # Errors
    /// As [`LawConfig::build`].
    pub fn build_named(&self, name: LawName, context: &LawContext) -> Result<Box<dyn Law>, LawError> {
        (name.0.build)(self, context)
    }

    /// The law that is named first.
    ///
    /// # Errors
    /// A parameter outside its range, a target that no number of cores can meet, a lever that the law needs and the plant
    /// lacks.
    pub fn build(&self, context: &LawContext) -> Result<Box<dyn Law>, LawError> {
        self.build_named(self.names.first(), context)
    }

    /// What its user should know of how the laws keep the SLO.
    pub fn notes(&self, slo: Slo) -> Vec<String> {
        let mut names = self.names.iter();
        if !names.any(|name| ["batching", "batching-dvfs"].contains(&name.as_str())) {
            return Vec::new();
        }
        let (target_ms, of) = (slo.target().as_millis(), &self.batching);
        let above = |key: &str, value_ms: Option<f64>| {
            let value_ms = value_ms.filter(|value_ms| *value_ms > target_ms)?;
            Some(format!(
                "law.batching.{key} is {value_ms}, above slo.target_ms, {target_ms}: the law then holds requests until their mean \
                 response time is near {value_ms} ms, so that most miss the SLO; give less than {target_ms}, as {key} = {:.0}",
                target_ms / 2.0
            ))
        };
        let model = of.model.as_ref().filter(|model| !model.is_of_use());
        let useless = model.map(|_| {
            "warning: law.batching.model is marked of_use = false: `headroom identify` found that it predicts no better than the last \
             value, or the mean of all, and the law chooses intervals by it all the same. Record a longer run, whose interval varies \
             under a steady load, and identify it anew; or remove [law.batching.model], and the law tries intervals first"
                .to_owned()
        });
        [
            above("sla_ms", of.sla_ms),
            above("reference_ms", of.reference_ms),
            useless,
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// The parameters of the law that matter, over ranges that its checks accept here; none of a law that has none.
    ///
    /// # Errors
    /// A law that cannot be built here.
    pub fn search_space(&self, context: &LawContext) -> Result<Vec<Parameter>, LawError> {
        (self.names.first().0.search)(self, context)
    }
}

#[cfg(test)]
mod tests;
