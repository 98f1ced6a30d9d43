//! The number of servers of a cluster that follows its load, and the power states of those servers (Section 7.5 of the
//! capacity paper, see [`crate::capacity`]).
//!
//! A [`Resizer`] says how many servers should be on; [`Fleet`] says which, and carries each through its power states with
//! [`Server`]. Both are state machines that are given the time: whoever calls them reads the clock, asks the servers and
//! carries out the [`Command`]s.
//!
//! | resizer | it goes by |
//! |---|---|
//! | [`Stepwise::fixed`] | the static controller: one capacity for all, from a benchmark |
//! | [`Stepwise::online`] | the dynamic controller: each server's online estimate |
//! | [`Scheduled`] | the scheduled controller: the time of day |
//! | [`AlwaysOn`] | nothing: the reference that savings are measured against |

pub mod fleet;
pub mod schedule;
pub mod server;
pub mod server_power;
pub mod stepwise;
pub mod tuning;

use crate::capacity::Capacity;
use crate::decision::Reason;
use headroom_units::{PerSecond, Seconds};
use serde::{Deserialize, Serialize};

pub use fleet::{Fleet, Order};
pub use schedule::{Schedule, ScheduleError, Scheduled};
pub use server::{Cause, Command, Found, Health, PowerState, Server};
pub use server_power::ServerPower;
pub use stepwise::Stepwise;
pub use tuning::{PowerTuning, ResizeTuning};

/// The most servers of a cluster.
pub const MAX_SERVERS: usize = 4_096;

/// What is known of one server when the cluster's size is decided.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerObservation {
    /// Its power state.
    pub state: PowerState,
    /// Its capacity as estimated online.
    pub capacity: Capacity,
}

/// What a resizer is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClusterObservation<'a> {
    /// A monotonic clock's time; for [`Scheduled`], the time since its schedule began.
    pub now: Seconds,
    /// Requests that arrive at the whole cluster; `None` where telemetry is lost.
    pub arrival_rate: Option<PerSecond>,
    /// The servers, always in the same order.
    pub servers: &'a [ServerObservation],
}

/// What a resizer answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Resize {
    /// How many servers should be on.
    pub servers: usize,
    /// Why.
    pub reason: Reason,
}

/// A controller for the number of servers, called once a sampling step.
pub trait Resizer: Send {
    /// Its name, as in the run summary and the metrics.
    fn name(&self) -> &'static str;

    /// The names of all its rules: a bounded label set.
    fn rules(&self) -> &'static [&'static str];

    /// Says how many servers should be on. Never less than one, never more than there are.
    fn decide(&mut self, seen: &ClusterObservation<'_>) -> Resize;
}

/// Every server on, always.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlwaysOn;

impl Resizer for AlwaysOn {
    fn name(&self) -> &'static str {
        "always-on"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["always-on"]
    }

    fn decide(&mut self, seen: &ClusterObservation<'_>) -> Resize {
        let servers = seen.servers.len();
        Resize {
            servers,
            reason: Reason::new(
                "always-on",
                format!("all {servers} servers, whatever happens"),
                &[("servers", servers as f64)],
            ),
        }
    }
}
