//! What the load of a server on call is.

use super::OnCall;
use super::search::LATE_TO_RETRY;
use crate::observation::{Observation, OncallObservation};
use headroom_units::Lever;

/// Periods of the other kind in a row after which the load counts as that.
const REGIME_PERIODS: u32 = 4;

/// Under a delay the server counts as saturated where this share of the connections that ask wait all the time.
const FULL: f64 = 0.25;

/// What the load is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Regime {
    /// Queries always wait.
    Saturated,
    /// The server serves what comes.
    Partial,
    /// Queries are late, without a delay, and none always waits for a slot: what they wait for is elsewhere, a row, a disk, or a worker that
    /// keeps its slot where nothing shows that it waits. Or the server is nearly saturated, and some are late now and then.
    Elsewhere,
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
        // Between two rounds some wait whatever the load, and while one is served those who come meanwhile: at saturation many of those who ask.
        let is_full = match (delayed, oncall.waiting_share) {
            (false, _) => oncall.always_waiting() > 0,
            (true, Some(share)) => share.get() >= FULL && oncall.always_waiting() as f64 >= bound,
            (true, None) => oncall.always_waiting() as f64 >= bound.max(1.0),
        };
        let is_late = match self.regime {
            Some(Regime::Elsewhere) => self.late_for > 0,
            _ => self.late_for >= LATE_TO_RETRY || self.often.is_it(),
        };
        Some(if is_full {
            Regime::Saturated
        } else if !delayed && is_late {
            Regime::Elsewhere
        } else {
            Regime::Partial
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
        // What a delay left waits for a while under none, too, and what was served while nobody was on call is not late at once.
        let is_served = now == Regime::Partial && self.elsewhere.is_comparing();
        if Some(now) == self.regime || is_served || self.partial.is_draining() || self.elsewhere.is_draining()
        {
            self.other = 0;
            return;
        }
        self.other += 1;
        if self.other >= REGIME_PERIODS || self.regime.is_none() {
            self.other = 0;
            self.turn_to(now);
            for search in [&mut self.saturated, &mut self.partial, &mut self.elsewhere] {
                search.held = 0;
            }
        }
    }
}
