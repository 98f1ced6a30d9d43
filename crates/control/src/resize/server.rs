//! The power states of one server.
//!
//! ```text
//!             wanted: power on         answers: enable       warm
//!   Off ───────────────────► Booting ───────────────► Warming ────► Serving
//!    ▲                          │ too long                │  lost     │ │ not wanted: disable
//!    │                          ▼                         ▼           │ ▼
//!    │                        Failed ◄────────────────────────────────┘ Draining (wanted again: enable, Serving)
//!    │ off        power off     │ not wanted, or its wait is over         │ empty, or too long: power off
//!    └──────────────────── Stopping ◄─────────────────────────────────────┘
//! ```
//!
//! Only a server that takes requests (warming or serving) counts as capacity. After a failure it waits before it is tried
//! again, each time twice as long, up to a limit. What an operator takes out goes another way: `maintenance`.

mod maintenance;

use super::tuning::PowerTuning;
use headroom_units::Seconds;
use serde::{Deserialize, Serialize};

pub(super) use maintenance::Others;
pub use maintenance::{Leave, Maintenance};

/// Why a server failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// It did not answer in time after it was powered on.
    Boot,
    /// It stopped answering.
    Lost,
    /// It was commanded to power off and is still on.
    Stop,
    /// A command could not be carried out.
    Command,
}

impl Cause {
    /// What happened, of a server.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Boot => "it did not answer in time after it was powered on",
            Self::Lost => "it was lost",
            Self::Stop => "it did not power off",
            Self::Command => "a command to it could not be carried out",
        }
    }
}

/// A server's power state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PowerState {
    /// Powered off.
    Off,
    /// Powered on, not answering yet.
    Booting,
    /// Takes requests for a short time now.
    Warming,
    /// Takes requests.
    Serving,
    /// Takes requests until the others do without it: an operator has asked for it.
    Leaving,
    /// Takes no new requests, finishes those it has (soft shutdown).
    Draining,
    /// Told to power off.
    Stopping,
    /// An operator has it: it is not switched and gets no requests.
    Maintenance,
    /// Did not do what it was commanded.
    Failed(Cause),
}

impl PowerState {
    /// Whether it takes requests.
    pub const fn takes_requests(self) -> bool {
        matches!(self, Self::Warming | Self::Serving | Self::Leaving)
    }

    /// Whether it takes requests and stays, so that its capacity counts.
    pub const fn is_capacity(self) -> bool {
        matches!(self, Self::Warming | Self::Serving)
    }

    /// Whether an operator takes it out or has it.
    pub const fn is_taken_out(self) -> bool {
        matches!(self, Self::Leaving | Self::Maintenance)
    }

    /// Whether it is off, or boots or shuts down as commanded, or an operator has it, so that nothing need run on it.
    pub const fn is_switched(self) -> bool {
        matches!(
            self,
            Self::Off | Self::Booting | Self::Warming | Self::Stopping | Self::Maintenance
        )
    }

    /// The word used in metrics: a bounded label set.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Booting => "booting",
            Self::Warming => "warming",
            Self::Serving => "serving",
            Self::Leaving => "leaving",
            Self::Draining => "draining",
            Self::Stopping => "stopping",
            Self::Maintenance => "maintenance",
            Self::Failed(_) => "failed",
        }
    }

    /// The same with the cause where it failed: `failed (boot)`. Of few.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Failed(Cause::Boot) => "failed (boot)",
            Self::Failed(Cause::Lost) => "failed (lost)",
            Self::Failed(Cause::Stop) => "failed (stop)",
            Self::Failed(Cause::Command) => "failed (command)",
            other => other.name(),
        }
    }
}

/// What is to be done to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// Switch its power on.
    PowerOn,
    /// Shut it down and switch its power off.
    PowerOff,
    /// Give it requests.
    Enable,
    /// Give it no new requests.
    Disable,
}

impl Command {
    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PowerOn => "power-on",
            Self::PowerOff => "power-off",
            Self::Enable => "enable",
            Self::Disable => "disable",
        }
    }
}

/// What was seen of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Whether its service answers.
    pub answering: bool,
    /// Whether that is only supposed: nothing tells that it does, and what would tell otherwise may have another cause. It goes first and comes
    /// last.
    #[serde(default)]
    pub in_doubt: bool,
    /// Whether it answers, and fails most of what it is sent while another does not: it is no capacity, and goes first.
    #[serde(default)]
    pub failing: bool,
    /// Whether its power is on; `None` where nobody can say.
    pub powered: Option<bool>,
    /// Connections or requests that it still has; `None` where nobody can say.
    pub connections: Option<u64>,
    /// Whether the last command given to it could not be carried out.
    pub command_failed: bool,
}

/// How a server is found when nothing is known of what was commanded before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Found {
    /// It answers.
    Answering,
    /// Its power is on and it does not answer: it boots, shuts down or hangs. It is waited for as for one that boots.
    Powered,
    /// Neither.
    Off,
    /// An operator has it, as it is.
    Maintenance,
    /// It was to be handed over to an operator, and what was asked of its switch may not be done.
    Leaving,
}

impl From<&Health> for Found {
    fn from(health: &Health) -> Self {
        match (health.answering, health.powered) {
            (true, _) => Self::Answering,
            (false, Some(true)) => Self::Powered,
            (false, _) => Self::Off,
        }
    }
}

/// One server's state machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    tuning: PowerTuning,
    state: PowerState,
    /// Since when it is in its state.
    since_s: f64,
    /// When it was looked at last.
    last_s: f64,
    /// For how long it has not answered, while it takes requests: over the periods in which it was looked at.
    silent_s: f64,
    failures: u32,
    /// Why it failed last.
    failed: Option<Cause>,
    /// When, and whether it served then.
    failed_s: f64,
    has_served: bool,
    /// Not to be powered on before.
    retry_s: f64,
    /// How an operator takes it out.
    maintenance: Option<Maintenance>,
    /// At how many more looks it is shut down where it is found on, for he asked for that; 0 once it was done.
    to_stop: u32,
    /// Whether it was found in maintenance, until it is said how its operator takes it out.
    is_found_out: bool,
    /// Whether its operator has it: from when it is in maintenance until he gives it back, also while what he asked of its switch is done.
    is_handed_over: bool,
}

impl Server {
    /// A server that is found as it is. The caller has checked the parameters.
    pub fn new(tuning: PowerTuning, found: Found, now: Seconds) -> Self {
        Self {
            tuning,
            state: match found {
                Found::Answering => PowerState::Serving,
                Found::Powered => PowerState::Booting,
                Found::Off => PowerState::Off,
                Found::Maintenance | Found::Leaving => PowerState::Maintenance,
            },
            since_s: now.get(),
            last_s: now.get(),
            silent_s: 0.0,
            failures: 0,
            failed: None,
            failed_s: f64::NEG_INFINITY,
            has_served: false,
            retry_s: f64::NEG_INFINITY,
            maintenance: None,
            to_stop: 0,
            is_found_out: matches!(found, Found::Maintenance),
            is_handed_over: false,
        }
    }

    /// Its state.
    pub const fn state(&self) -> PowerState {
        self.state
    }

    /// Since when.
    pub const fn since(&self) -> Seconds {
        Seconds::new(self.since_s)
    }

    /// Failures in a row.
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// Whether it may be powered on, as far as earlier failures go.
    pub fn may_start(&self, now: Seconds) -> bool {
        now.get() >= self.retry_s
    }

    /// No server takes requests: one that served when it was lost waits for nothing, and no other one longer than after its first failure.
    pub(super) fn hurry(&mut self) {
        let waits_s = match (self.failed, self.has_served) {
            (Some(Cause::Lost), true) => 0.0,
            _ => self.tuning.backoff_s(1),
        };
        self.retry_s = self.retry_s.min(self.failed_s + waits_s);
    }

    /// Why it is not powered on even if it is wanted, and for how much longer: of one that is off or failed, after a failure.
    pub fn waits(&self, now: Seconds) -> Option<(Cause, Seconds)> {
        let is_out = matches!(self.state, PowerState::Off | PowerState::Failed(_));
        let cause = self.failed.filter(|_| is_out && !self.may_start(now))?;
        Some((cause, Seconds::new(self.retry_s) - now))
    }

    /// Whether it takes requests and has not answered for too long: it is no capacity.
    pub fn is_silent(&self) -> bool {
        self.state.takes_requests() && self.silent_s > self.tuning.lost_s
    }

    /// Takes the time, whether the server is wanted, and what was seen of it; answers with what to do to it. At most one
    /// command a call, and after each the next call says with [`Health`] what came of it.
    pub fn tick(&mut self, now: Seconds, wanted: bool, health: &Health) -> Option<Command> {
        self.tick_beside(now, wanted, health, Others::default())
    }

    /// The same beside other servers.
    pub(super) fn tick_beside(
        &mut self,
        now: Seconds,
        wanted: bool,
        health: &Health,
        others: Others,
    ) -> Option<Command> {
        let now_s = now.get();
        // A controller that stood still has not looked: one look alone never is silence enough.
        let looked_s = (now_s - self.last_s).clamp(0.0, self.tuning.lost_s / 2.0);
        self.last_s = now_s;
        self.silent_s = if health.answering {
            0.0
        } else {
            self.silent_s + looked_s
        };
        if health.command_failed && matches!(self.state, PowerState::Booting | PowerState::Stopping) {
            return self.fail(now_s, Cause::Command);
        }
        if let Some(out) = self.maintenance {
            return self.tick_out(now_s, out, health, others);
        }
        self.tick_state(now_s, wanted, health, others)
    }

    fn tick_state(&mut self, now_s: f64, wanted: bool, health: &Health, others: Others) -> Option<Command> {
        let age_s = now_s - self.since_s;
        match self.state {
            // Somebody switched it on, or it was booting when nobody could tell: it is as good as one that was started, and
            // one that is not wanted must not be left running unseen.
            PowerState::Off if health.answering && health.powered != Some(false) => {
                if wanted {
                    self.admit(now_s)
                } else {
                    self.stop(now_s)
                }
            }
            PowerState::Off => (wanted && self.may_start(Seconds::new(now_s))).then(|| {
                self.enter(PowerState::Booting, now_s);
                Command::PowerOn
            }),
            PowerState::Booting => match (health.answering, wanted) {
                (true, true) => self.admit(now_s),
                // A boot is not interrupted: what a machine does to its disks meanwhile is its own affair.
                (true, false) => self.stop(now_s),
                (false, _) if age_s > self.tuning.boot_timeout_s => self.fail(now_s, Cause::Boot),
                (false, _) => None,
            },
            PowerState::Warming | PowerState::Serving | PowerState::Leaving => {
                self.tick_in_service(now_s, wanted, health, others)
            }
            PowerState::Draining if wanted && health.answering => {
                self.enter(PowerState::Serving, now_s);
                Some(Command::Enable)
            }
            PowerState::Draining => {
                let stays_s = self.tuning.drained_for_s.unwrap_or(0.0);
                if self.is_drained(now_s, health, stays_s) {
                    self.stop(now_s)
                } else {
                    None
                }
            }
            PowerState::Stopping => {
                let off = match health.powered {
                    Some(powered) => !powered,
                    None => age_s >= self.tuning.shutdown_s && !health.answering,
                };
                if off {
                    self.enter(PowerState::Off, now_s);
                } else if age_s > self.tuning.stop_timeout_s {
                    return self.fail(now_s, Cause::Stop);
                }
                None
            }
            // Given back.
            PowerState::Maintenance => match (Found::from(health), wanted) {
                (Found::Answering, true) => self.admit(now_s),
                // As one that was drained: it stays on for a while, and comes at once where it is missed.
                (Found::Answering, false) => {
                    self.enter(PowerState::Draining, now_s);
                    None
                }
                (Found::Powered, _) => {
                    self.enter(PowerState::Booting, now_s);
                    None
                }
                (Found::Off | Found::Maintenance | Found::Leaving, _) => {
                    self.enter(PowerState::Off, now_s);
                    None
                }
            },
            PowerState::Failed(cause) => self.tick_failed(now_s, wanted, health, cause),
        }
    }

    /// Whether a server that drains has nothing left to do, after this long at least, or had the time that it has.
    fn is_drained(&self, now_s: f64, health: &Health, stays_s: f64) -> bool {
        let age_s = now_s - self.since_s;
        let is_empty = health.connections == Some(0) && age_s >= stays_s;
        is_empty || health.powered == Some(false) || age_s > self.tuning.drain_timeout_s.max(stays_s)
    }

    fn tick_in_service(
        &mut self,
        now_s: f64,
        wanted: bool,
        health: &Health,
        others: Others,
    ) -> Option<Command> {
        let is_off = !health.answering && health.powered == Some(false);
        if is_off || others.take_requests && self.is_silent() {
            return self.fail(now_s, Cause::Lost);
        }
        let age_s = now_s - self.since_s;
        if self.state == PowerState::Warming && age_s >= self.tuning.warm_up_s {
            self.enter(PowerState::Serving, now_s);
        } else if self.state == PowerState::Serving && age_s >= self.tuning.forgive_s {
            self.failures = 0;
        }
        if wanted {
            return None;
        }
        self.enter(PowerState::Draining, now_s);
        Some(Command::Disable)
    }

    fn tick_failed(&mut self, now_s: f64, wanted: bool, health: &Health, cause: Cause) -> Option<Command> {
        // It came by itself: a slow boot, a network that is back. One that would not stop has no such excuse.
        if wanted && health.answering && cause != Cause::Stop && !health.command_failed {
            return self.admit(now_s);
        }
        if health.powered == Some(false) {
            self.enter(PowerState::Off, now_s);
            return None;
        }
        let unwanted = !wanted && cause != Cause::Stop && cause != Cause::Command;
        (unwanted || now_s >= self.retry_s)
            .then(|| self.stop(now_s))
            .flatten()
    }

    fn enter(&mut self, state: PowerState, now_s: f64) {
        self.state = state;
        self.since_s = now_s;
    }

    fn admit(&mut self, now_s: f64) -> Option<Command> {
        self.silent_s = 0.0;
        self.enter(PowerState::Warming, now_s);
        Some(Command::Enable)
    }

    fn stop(&mut self, now_s: f64) -> Option<Command> {
        self.enter(PowerState::Stopping, now_s);
        Some(Command::PowerOff)
    }

    fn fail(&mut self, now_s: f64, cause: Cause) -> Option<Command> {
        self.failures = self.failures.saturating_add(1);
        self.failed = Some(cause);
        self.failed_s = now_s;
        self.has_served = matches!(self.state, PowerState::Serving | PowerState::Leaving);
        self.retry_s = now_s + self.tuning.backoff_s(self.failures);
        self.enter(PowerState::Failed(cause), now_s);
        // Whatever it does from now on, it gets no requests.
        Some(Command::Disable)
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
