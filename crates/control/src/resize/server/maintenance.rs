//! A server that an operator takes out, and gives back.
//!
//! ```text
//!                     others take its load: disable     empty, or too long      it is to be off: power off
//!   Serving ──► Leaving ────────────────────────► Draining ──────────► Maintenance ◄──── Off ◄── Stopping
//!                  ▲      they do not: enable        │
//!                  └─────────────────────────────────┘
//! ```
//!
//! A law that does not know whether the others take its load has it drained on trial: then it stays drained, and as it is, until the law
//! says what came of it. In maintenance it is not switched, counts neither as capacity nor as lost, and is given back as what it is found as.
//! Only where it is there already when its operator asks for it to be shut down, it is, once: what he starts then is his, also where a start
//! of the controller finds it so.

use super::{Command, Health, PowerState, Server};
use serde::{Deserialize, Serialize};

/// How an operator takes a server out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Maintenance {
    /// Whether it is shut down once it is drained, and else left as it is.
    pub power_off: bool,
    /// Whether it is drained at once, and else when the others take the load.
    pub at_once: bool,
}

/// When a server that an operator takes out is drained, as far as it is not forced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Leave {
    /// As soon as as many others as are decided take requests.
    #[default]
    Replaced,
    /// Not yet; one that still drains comes back.
    Waits,
    /// As `Replaced`, and it stays drained and comes back until the law says otherwise.
    OnTrial,
}

/// What a server is told of the others.
#[derive(Clone, Copy, Debug)]
pub(in crate::resize) struct Others {
    /// Whether another takes requests: the last one is not taken out because it is silent.
    pub take_requests: bool,
    /// Whether they take the load without those that an operator takes out.
    pub take_the_load: bool,
    /// Whether nobody can keep requests from a server.
    pub balancer_lost: bool,
    /// When it is drained that an operator takes out.
    pub leave: Leave,
}

impl Others {
    /// Whether they do without one that an operator takes out.
    const fn do_without_it(self) -> bool {
        self.take_the_load && !matches!(self.leave, Leave::Waits)
    }
}

impl Default for Others {
    fn default() -> Self {
        Self {
            take_requests: true,
            take_the_load: true,
            balancer_lost: false,
            leave: Leave::default(),
        }
    }
}

/// At so many looks at a switch that tells nothing it is waited for whether the server is on: an answer of it may be lost, and a server that is
/// started later is started by its operator.
const LOOKS: u32 = 10;

impl Server {
    /// Takes it out, or gives it back where `None`. One that is in maintenance and now to be off is shut down where it is on.
    pub fn take_out(&mut self, maintenance: Option<Maintenance>) {
        if maintenance.is_none() && self.maintenance.is_some() {
            // Whatever was wrong with it, somebody has looked after it.
            (self.failures, self.retry_s) = (0, f64::NEG_INFINITY);
        }
        let goes_off = |out: Option<Maintenance>| out.is_some_and(|out| out.power_off);
        let is_found = std::mem::take(&mut self.is_found_out) && maintenance.is_some();
        let is_asked = self.to_stop > 0 || !goes_off(self.maintenance) && !is_found;
        self.to_stop = match goes_off(maintenance) && is_asked {
            true => LOOKS,
            false => 0,
        };
        self.maintenance = maintenance;
        self.is_handed_over =
            maintenance.is_some() && (self.is_handed_over || self.state == PowerState::Maintenance);
        // It serves as before, and for as long.
        self.state = match (self.state, maintenance) {
            (PowerState::Warming | PowerState::Serving, Some(_)) => PowerState::Leaving,
            (PowerState::Leaving, None) => PowerState::Serving,
            (state, _) => state,
        };
    }

    /// How an operator has it: as shut down only once that is done; `None` where he does not have it. One that he asks to be shut down stays
    /// his while it stops, and where it will not.
    pub fn handed_over(&self) -> Option<Maintenance> {
        let out = self.maintenance.filter(|_| self.is_handed_over)?;
        let is_done = self.to_stop == 0 && matches!(self.state, PowerState::Off | PowerState::Maintenance);
        Some(Maintenance {
            power_off: out.power_off && is_done,
            ..out
        })
    }

    /// How an operator takes it out.
    pub const fn maintenance(&self) -> Option<Maintenance> {
        self.maintenance
    }

    /// Its state as laws are given it: one that is taken out and takes no requests is in maintenance, however far that is.
    pub const fn state_for_laws(&self) -> PowerState {
        match (self.maintenance, self.state) {
            (None, state) | (Some(_), state @ PowerState::Leaving) => state,
            (Some(_), _) => PowerState::Maintenance,
        }
    }

    /// One that an operator takes out.
    pub(super) fn tick_out(
        &mut self,
        now_s: f64,
        out: Maintenance,
        health: &Health,
        others: Others,
    ) -> Option<Command> {
        match self.state {
            PowerState::Maintenance => {
                let looks = std::mem::take(&mut self.to_stop);
                match (health.powered, health.answering) {
                    (Some(false), _) => None,
                    (Some(true), _) | (None, true) => (looks > 0).then(|| self.stop(now_s)).flatten(),
                    // Its switch may not have answered just now.
                    (None, false) => {
                        self.to_stop = looks.saturating_sub(1);
                        None
                    }
                }
            }
            PowerState::Warming | PowerState::Serving | PowerState::Leaving => {
                let is_gone = !health.answering && health.powered == Some(false);
                if is_gone || others.take_requests && self.is_silent() {
                    self.hand_over(now_s);
                    return Some(Command::Disable);
                }
                if !(others.do_without_it() || out.at_once) || others.balancer_lost {
                    return None;
                }
                self.enter(PowerState::Draining, now_s);
                Some(Command::Disable)
            }
            PowerState::Draining if health.answering && !out.at_once && !others.do_without_it() => {
                self.enter(PowerState::Leaving, now_s);
                Some(Command::Enable)
            }
            PowerState::Draining if health.answering && !out.at_once && others.leave == Leave::OnTrial => {
                None
            }
            // What it still has to do before it is off.
            PowerState::Draining if out.power_off && self.is_drained(now_s, health, 0.0) => self.stop(now_s),
            PowerState::Draining if out.power_off || !self.is_drained(now_s, health, 0.0) => None,
            PowerState::Stopping => self.tick_state(now_s, false, health, others),
            PowerState::Booting if out.power_off => self.tick_state(now_s, false, health, others),
            PowerState::Failed(_) if out.power_off && health.powered != Some(false) => {
                self.tick_state(now_s, false, health, others)
            }
            PowerState::Off | PowerState::Draining | PowerState::Booting | PowerState::Failed(_) => {
                self.hand_over(now_s);
                None
            }
        }
    }

    fn hand_over(&mut self, now_s: f64) {
        self.enter(PowerState::Maintenance, now_s);
        self.is_handed_over = true;
    }
}

#[cfg(test)]
#[path = "maintenance_tests.rs"]
mod tests;
