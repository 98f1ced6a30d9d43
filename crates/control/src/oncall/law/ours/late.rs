//! What ends a delay at once: that the SLO is missed under it, or queries pile up.

use super::search::{LATE_TO_RETRY, MAX_DOUBLINGS};
use super::{MIN_QUERIES, OnCall, reason};
use crate::decision::Reason;
use crate::observation::{Observation, OncallObservation};
use crate::oncall::law::Point;
use crate::oncall::law::trial::PILED;
use headroom_units::{Ratio, Seconds};

/// Late periods in a row that end a delay.
const LATE_PERIODS: u32 = 2;

/// How many periods in time one late one outweighs: of a load of which more are late it is to be asked whether it is for being on call.
const OUTWEIGHS: u32 = 12;

/// Whether periods are late now and then, and not in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Often {
    level: u32,
    /// How often in a row being on call was found to be no worse.
    asked: u32,
}

impl Often {
    const fn observe(&mut self, is_late: bool) {
        self.level = match is_late {
            true => self.level.saturating_add(OUTWEIGHS),
            false => self.level.saturating_sub(1),
        };
    }

    pub(super) const fn is_it(self) -> bool {
        self.level >= (OUTWEIGHS * LATE_TO_RETRY) << self.asked
    }

    /// It was compared: whether being on call is kept, for then it is asked ever more rarely.
    pub(super) fn found(&mut self, is_kept: bool) {
        *self = Self {
            level: 0,
            asked: match is_kept {
                true => (self.asked + 1).min(MAX_DOUBLINGS),
                false => 0,
            },
        };
    }
}

impl OnCall {
    /// Counts periods in a row over the target, whatever is in force; one of which that is not known changes nothing.
    pub(super) fn count_late(&mut self, observation: &Observation, oncall: &OncallObservation) {
        let Some(judged) = self.measured(observation, oncall) else {
            return;
        };
        let is_late = judged > self.slo.target();
        self.late_for = match is_late {
            true => self.late_for.saturating_add(1),
            false => 0,
        };
        // Without a delay alone: what one costs ends it.
        if self.wanted.delay == Seconds::ZERO && oncall.queries >= MIN_QUERIES {
            self.often.observe(is_late);
        }
    }

    /// Ends a delay under which the SLO is missed, or queries pile up: what finds no free connection waits at the clients, and is in no
    /// latency that a server can tell.
    pub(super) fn end_late(&mut self, observation: &Observation) -> Option<(Point, Reason)> {
        let oncall = observation.oncall.as_ref()?;
        let judged = self.measured(observation, oncall)?;
        let is_late = judged > self.slo.target() && self.wanted.delay > Seconds::ZERO;
        self.late = match is_late {
            true => self.late + 1,
            false => 0,
        };
        let piled = oncall
            .waiting_share
            .map(Ratio::get)
            .filter(|share| *share >= PILED && self.wanted.delay > Seconds::ZERO);
        // While delays are compared, the comparison itself sees to that.
        if (self.late < LATE_PERIODS && piled.is_none()) || self.partial.trial.is_some() {
            return None;
        }
        let point = Point {
            delay: Seconds::ZERO,
            ..self.wanted
        };
        self.partial.best = Some(point);
        (self.partial.held, self.late) = (0, 0);
        self.partial.doublings = (self.partial.doublings + 1).min(MAX_DOUBLINGS);
        let text = match piled {
            Some(share) => format!(
                "queries pile up, {:.0} % of the connections waited all the time: no delay",
                share * 100.0
            ),
            None => format!(
                "{} {:.1} ms > target {:.1} ms: no delay",
                self.slo.name(),
                judged.as_millis(),
                self.slo.target().as_millis()
            ),
        };
        Some((
            point,
            reason("oncall-late", text, point, &[("latency_ms", judged.as_millis())]),
        ))
    }
}
