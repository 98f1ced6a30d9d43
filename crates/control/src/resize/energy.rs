//! What the servers draw, by a model: figures of the user's for each state. Always an estimate, and labelled so.

use super::PowerState;
use headroom_units::{Joules, Seconds, Watts};
use serde::{Deserialize, Serialize};

/// What a server draws, watts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerPower {
    /// On, with idle CPUs. 60, the paper's.
    pub idle_w: f64,
    /// On, with all CPUs busy. 65, the paper's.
    pub full_w: f64,
    /// While it boots. 65: the paper measured it and prints nothing.
    pub booting_w: f64,
    /// While it shuts down. 60, for the same reason.
    pub shutting_down_w: f64,
    /// Switched off. 0, for the same reason; a real one's service processor draws a few.
    pub off_w: f64,
}

impl ServerPower {
    /// On, with this share of its capacity used; watts.
    pub fn on_w(&self, used: f64) -> f64 {
        self.idle_w + (self.full_w - self.idle_w) * used.clamp(0.0, 1.0)
    }
}

impl Default for ServerPower {
    fn default() -> Self {
        Self {
            idle_w: 60.0,
            full_w: 65.0,
            booting_w: 65.0,
            shutting_down_w: 60.0,
            off_w: 0.0,
        }
    }
}

/// One server in one period, as the model has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServerLoad {
    /// Its power state.
    pub state: PowerState,
    /// Whether its power is on; `None` where nobody can say.
    pub powered: Option<bool>,
    /// The used share of its capacity; `None` where that is not known.
    pub used: Option<f64>,
}

/// Energy since the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EnergyTotals {
    /// Of the servers as they were.
    pub consumed: Joules,
    /// Of the same work with every server on.
    pub always_on: Joules,
}

impl EnergyTotals {
    /// The share that was saved against every server on; `None` where nothing was consumed by either.
    pub fn saving(&self) -> Option<f64> {
        (self.always_on > Joules::ZERO).then(|| 1.0 - self.consumed / self.always_on)
    }

    /// The mean power since an earlier time, of the servers as they were and with every server on; `None` where no time has
    /// passed.
    pub fn power_since(&self, earlier: &Self, length: Seconds) -> Option<(Watts, Watts)> {
        let watts = |now: Joules, then: Joules| Watts::new((now - then).get() / length.get());
        let both = || {
            let consumed = watts(self.consumed, earlier.consumed);
            (consumed, watts(self.always_on, earlier.always_on))
        };
        (length > Seconds::ZERO).then(both)
    }
}

/// The model, and what it comes to since the start of the run.
#[derive(Clone, Copy, Debug)]
pub struct Energy {
    power: ServerPower,
    /// What it comes to.
    pub sum: EnergyTotals,
}

impl Energy {
    /// Nothing yet.
    pub const fn new(power: ServerPower) -> Self {
        Self {
            power,
            sum: EnergyTotals {
                consumed: Joules::ZERO,
                always_on: Joules::ZERO,
            },
        }
    }

    /// Adds a period. An unknown share counts as all of it; a server that failed draws what one at full load draws, unless
    /// its power is known to be off.
    pub fn add(&mut self, length: Seconds, servers: &[ServerLoad]) {
        let ServerPower {
            full_w,
            booting_w,
            shutting_down_w,
            off_w,
            ..
        } = self.power;
        let at = |used: f64| self.power.on_w(used);
        // The same work, spread over all.
        let work: f64 = servers
            .iter()
            .filter(|one| one.state.takes_requests())
            .map(|one| one.used.unwrap_or(1.0).clamp(0.0, 1.0))
            .sum();
        let each = work / servers.len().max(1) as f64;
        for one in servers {
            let watts = match one.state {
                PowerState::Off => off_w,
                PowerState::Booting => booting_w,
                PowerState::Warming | PowerState::Serving | PowerState::Leaving => {
                    at(one.used.unwrap_or(1.0))
                }
                PowerState::Draining => at(one.used.unwrap_or(0.0)),
                PowerState::Stopping => shutting_down_w,
                PowerState::Failed(_) if one.powered == Some(false) => off_w,
                PowerState::Failed(_) => full_w,
                PowerState::Maintenance if one.powered == Some(false) => off_w,
                PowerState::Maintenance => at(0.0),
            };
            self.sum.consumed += Joules::new(watts * length.get());
            self.sum.always_on += Joules::new(at(each) * length.get());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resize::Cause;

    #[test]
    fn states_draw_what_the_model_says_and_the_same_work_is_done_always_on() {
        let mut energy = Energy::new(ServerPower::default());
        let load = |state, used| ServerLoad {
            state,
            powered: None,
            used,
        };
        energy.add(
            Seconds::new(10.0),
            &[load(PowerState::Serving, Some(0.5)), load(PowerState::Off, None)],
        );
        assert!((energy.sum.consumed.get() - 625.0).abs() < 1e-9);
        // A quarter of each.
        assert!((energy.sum.always_on.get() - 2.0 * 612.5).abs() < 1e-9);
        assert!((energy.sum.saving().unwrap() - (1.0 - 625.0 / 1225.0)).abs() < 1e-9);
        let mut failed = Energy::new(ServerPower::default());
        let broken = load(PowerState::Failed(Cause::Lost), None);
        failed.add(Seconds::new(1.0), &[broken]);
        assert!((failed.sum.consumed.get() - 65.0).abs() < 1e-9);
        let off = ServerLoad {
            powered: Some(false),
            ..broken
        };
        failed.add(Seconds::new(1.0), &[off]);
        assert!((failed.sum.consumed.get() - 65.0).abs() < 1e-9);
        assert_eq!(Energy::new(ServerPower::default()).sum.saving(), None);
    }
}
