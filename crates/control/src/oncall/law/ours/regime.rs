//! What the load of a server on call is.

use super::OnCall;
use super::search::{PARTIAL, SATURATED};
use crate::observation::{Observation, OncallObservation};
use headroom_units::Lever;

/// Periods of the other kind in a row after which the load counts as that.
const REGIME_PERIODS: u32 = 4;

/// What the load is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Regime {
    /// Queries always wait.
    Saturated,
    /// The server serves what comes.
    Partial,
}

impl OnCall {
    /// What the load is, where this period says it.
    pub(super) fn regime_now(&self, observation: &Observation, oncall: &OncallObservation) -> Option<Regime> {
        // Without a bound nobody waits for a slot, however many run.
        let bound = observation.in_force.get(Lever::Concurrency)?;
        let delayed = observation
            .in_force
            .get(Lever::RoundDelay)
            .is_some_and(|delay| delay > 0.0);
        // Between two rounds some wait whatever the load: at saturation more than a round of one query each can serve.
        let enough = match delayed {
            true => bound.max(1.0),
            false => 1.0,
        };
        let waiting = oncall.always_waiting() as f64;
        Some(match waiting >= enough {
            true => Regime::Saturated,
            false => Regime::Partial,
        })
    }

    pub(super) fn follow_regime(&mut self, now: Option<Regime>) {
        let Some(now) = now else { return };
        // While the server is compared at saturation, a setting that serves all that comes is a good one, and no other load; but where the
        // one with the fewest workers does, the load is. (With more queries a round, slots are held for what clients send next, and
        // somebody waits at half of the load.)
        let is_compared = self.regime == Some(Regime::Saturated);
        if let Some(trial) = self.saturated.trial.as_ref().filter(|_| is_compared)
            && *trial.first() != self.wanted
        {
            return;
        }
        // What a delay left waits for a while under none, too.
        if Some(now) == self.regime || self.partial.is_draining() {
            self.other = 0;
            return;
        }
        self.other += 1;
        if self.other >= REGIME_PERIODS || self.regime.is_none() {
            (self.regime, self.other) = (Some(now), 0);
            // A comparison that the load ended says nothing.
            for (search, about) in [(&mut self.saturated, SATURATED), (&mut self.partial, PARTIAL)] {
                let about = format!("{about}: ended, for the load changed");
                self.ended.extend(search.end(self.at, &about));
                search.held = 0;
            }
        }
    }
}
