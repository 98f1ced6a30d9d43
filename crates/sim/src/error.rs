//! What can be wrong with a scenario or a run.

use headroom_control::PlantError;
use headroom_workload::FigureError;

/// A scenario that describes no world, or one that would never come to rest.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{key}: {why}")]
pub struct ScenarioError {
    /// The key, as a dotted path into the file: `nodes.0.cores`, `arrivals.rate_per_s`.
    pub key: String,
    /// The value, what is wrong with it and what to do.
    pub why: String,
}

impl ScenarioError {
    pub(crate) fn new(key: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            why: why.into(),
        }
    }
}

/// Refuses a value outside a range.
pub(crate) fn within(key: &str, value: f64, least: f64, most: f64, unit: &str) -> Result<(), ScenarioError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let why = format!("is {value}: it must be {least} to {most}{unit}");
    Err(ScenarioError::new(key, why))
}

impl From<FigureError> for ScenarioError {
    fn from(FigureError { key, why }: FigureError) -> Self {
        Self { key, why }
    }
}

/// Why a run ended without a result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RunError {
    /// The scenario describes no world.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The scenario's cores or power are no plant.
    #[error(transparent)]
    Plant(#[from] PlantError),
    /// The limit on events was reached.
    #[error(
        "limits.events: the run was stopped after {limit} events at {at_s:.3} simulated seconds of {length_s}: \
         shorten duration_s, lower the load, or raise the limit"
    )]
    TooManyEvents {
        /// The limit.
        limit: u64,
        /// Simulated time reached, seconds.
        at_s: f64,
        /// Simulated time asked for, seconds.
        length_s: f64,
    },
    /// The limit on requests in the system at once was reached: the service cannot keep up.
    #[error(
        "limits.in_flight: {limit} requests were in the system at once at {at_s:.3} simulated seconds with {cores} cores \
         allocated, so the backlog grows without end: lower the load, give more cores, or raise the limit"
    )]
    TooManyInFlight {
        /// The limit.
        limit: u64,
        /// Simulated time reached, seconds.
        at_s: f64,
        /// Cores allocated then.
        cores: f64,
    },
    /// Two ways of keeping the same account disagree: an error of this crate, never of the scenario.
    #[error(
        "the simulator's accounts of {what} disagree: {left} by one way, {right} by another. This is an error of the \
         simulator: please report it with the scenario and the seed"
    )]
    Account {
        /// Which account.
        what: &'static str,
        /// By one way.
        left: f64,
        /// By the other.
        right: f64,
    },
}
