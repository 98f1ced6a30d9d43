//! What ends a delay at once, or that nobody is on call: that the SLO is missed, queries pile up, or the server fills up.

use super::search::{LATE_TO_RETRY, MAX_DOUBLINGS};
use super::shelf::rate_of;
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
    /// latency that a server can tell. So it ends that nobody is on call, and sooner where the server fills up.
    pub(super) fn end_late(&mut self, observation: &Observation, cores: u32) -> Option<(Point, Reason)> {
        let oncall = observation.oncall.as_ref()?;
        let rate = rate_of(observation, oncall);
        let (is_delayed, is_resting) = (self.wanted.delay > Seconds::ZERO, self.is_resting());
        let judged = self.measured(observation, oncall);
        if let Some(judged) = judged {
            self.late = match judged > self.slo.target() && (is_delayed || is_resting) {
                true => self.late + 1,
                false => 0,
            };
        }
        // While delays are compared, the comparison itself sees to that.
        if self.partial.is_comparing() {
            return None;
        }
        let piled = oncall
            .waiting_share
            .map(Ratio::get)
            .filter(|share| *share >= PILED && is_delayed);
        let (rule, why) = if let Some(share) = piled {
            let text = format!(
                "queries pile up, {:.0} % of the connections waited all the time",
                share * 100.0
            );
            ("oncall-late", text)
        } else if let Some(judged) = judged.filter(|_| self.late >= LATE_PERIODS) {
            let text = format!(
                "{} {:.1} ms > target {:.1} ms",
                self.slo.name(),
                judged.as_millis(),
                self.slo.target().as_millis()
            );
            ("oncall-late", text)
        } else if is_resting && self.fills_up(observation, rate) {
            let text = format!("the server fills up, with {rate:.0} queries/s");
            ("oncall-fills-up", text)
        } else if is_resting && self.often.is_it() {
            ("oncall-late", "queries are late now and then".to_owned())
        } else {
            return None;
        };
        let point = match is_resting {
            true => self.without_delay(cores),
            false => Point {
                delay: Seconds::ZERO,
                ..self.wanted
            },
        };
        self.partial.best = Some(point);
        self.late = 0;
        let aside = self.shelf.put_aside(rate);
        if aside.is_none() {
            self.shelf.clear();
            self.partial.held = 0;
            self.partial.doublings = (self.partial.doublings + 1).min(MAX_DOUBLINGS);
        }
        let text = format!(
            "{why}: {}{}",
            match is_resting {
                true => point.in_words(),
                false => "no delay".to_owned(),
            },
            aside.unwrap_or_default()
        );
        let latency = judged.map(|judged| ("latency_ms", judged.as_millis()));
        Some((point, reason(rule, text, point, latency.as_slice())))
    }
}
