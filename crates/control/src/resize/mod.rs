//! The number of servers of a cluster that follows its load, and the power states of those servers (Section 7.5 of the
//! capacity paper, see [`crate::capacity`]).
//!
//! A law of the lever [`Lever::Servers`] says how many servers should be on; [`Fleet`] says which, and carries each through
//! its power states with [`Server`]. Both are state machines that are given the time: whoever calls them reads the clock, asks
//! the servers and carries out the [`Command`]s. [`mod@demand`] says what arrives where only some servers could be read, [`mod@hold`]
//! what stays while the balancer cannot be relied on, [`mod@presumed`] what one that joins takes, [`mod@in_hand`] how many requests each server is given at a time, [`energy`] what it
//! all comes to by a model.
//!
//! | law | it goes by |
//! |---|---|
//! | [`Stepwise::fixed`] | the static controller: one capacity for all, from a benchmark |
//! | [`Stepwise::online`] | the dynamic controller: each server's online estimate |
//! | [`Scheduled`] | the scheduled controller: the time of day |
//! | [`Autoscaler`] | Kubernetes' autoscalers, given what a server takes: a reference |
//! | [`Predictive`] | the day as it was before, and what comes now: a reference |
//! | [`AlwaysOn`] | nothing: the reference that savings are measured against |

pub mod autoscaler;
mod bound;
pub mod demand;
pub mod energy;
pub mod first_attempts;
pub mod fleet;
pub mod held_back;
pub mod hold;
pub mod in_hand;
pub mod predictive;
pub mod presumed;
pub mod schedule;
pub mod server;
mod slow;
pub mod stepwise;
pub mod tuning;

use crate::decision::{Decision, Reason};
use crate::law::Law;
use crate::observation::Observation;
use headroom_units::{Lever, Setting};
use serde::{Deserialize, Serialize};

pub use autoscaler::Autoscaler;
pub use demand::{Counts, Sent, demand, exact_mean, fill_in};
pub use energy::{Energy, EnergyTotals, ServerLoad, ServerPower};
pub use first_attempts::FirstAttempts;
pub use fleet::{Fleet, Order};
pub use held_back::HeldBack;
pub use hold::{BALANCER_LOST, BROUGHT_BACK, GUARD_LOST, hold};
pub use in_hand::{InHand, InHandPeriod, InHandUnread};
pub use predictive::Predictive;
pub use presumed::{Met, Presumed};
pub use schedule::{Schedule, Scheduled};
pub use server::{Cause, Command, Found, Health, Leave, Maintenance, PowerState, Server};
pub use slow::{Work, kinds};
pub use stepwise::Stepwise;
pub use tuning::{MAX_SERVERS, PowerTuning, ResizeTuning};

/// What of a decision is about servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Resize {
    /// How many servers should be on.
    pub servers: usize,
    /// The rule that chose the number, and its numbers.
    pub reason: Reason,
}

impl Resize {
    /// Of a decision by a law of [`Lever::Servers`], for a cluster of so many servers.
    pub fn of(decision: &Decision, all: usize) -> Self {
        let reason = decision.reason_of(Lever::Servers).cloned();
        Self {
            servers: decision.setting.servers().unwrap_or(all),
            reason: reason.unwrap_or_else(|| Reason::new("unexplained", String::new(), &[])),
        }
    }
}

impl From<Resize> for Decision {
    fn from(resize: Resize) -> Self {
        Self {
            setting: Setting::default().with(Lever::Servers, Some(resize.servers as f64)),
            expected_rate: None,
            reflex: None,
            reasons: vec![resize.reason],
            ..Self::default()
        }
    }
}

/// Every server on, always.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlwaysOn;

impl Law for AlwaysOn {
    fn name(&self) -> &'static str {
        "always-on"
    }

    fn levers(&self) -> &'static [Lever] {
        &[Lever::Servers]
    }

    fn is_informed(&self, _: &Observation) -> bool {
        true
    }

    fn decide(&mut self, observation: &Observation) -> Decision {
        let servers = observation.nodes.len();
        let leaving = observation
            .nodes
            .iter()
            .filter(|node| node.state == PowerState::Leaving);
        let text = match leaving.count() {
            0 => format!("all {servers} servers, whatever happens"),
            // Who is to do without none lets none go by itself.
            out => format!(
                "all {servers} servers, whatever happens: {out} to be taken out serve on, unless at_once = true"
            ),
        };
        let reason = Reason::new("always-on", text, &[("servers", servers as f64)]);
        Resize { servers, reason }.into()
    }

    fn forget(&mut self) {}
}
