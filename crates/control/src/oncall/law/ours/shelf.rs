//! What was found at partial load is good for as much as was asked while it was compared. Ours \[D\].
//!
//! Where more is asked, and queries are late under it, it is put aside, and is in force again when no more is asked than then: a load that changes
//! each minute has its delay in the minutes for which it was found. Where queries are late with no more load than that, twice within a minute, it
//! was found wrong, or something else changed: it is compared anew, and not soon. The first time may be a pause of the machine.

use super::regime::Regime;
use super::{OnCall, reason};
use crate::decision::Reason;
use crate::observation::{Observation, OncallObservation};
use crate::oncall::law::Point;
use headroom_units::{Ratio, Seconds};

/// How much a period counts for how many queries come: some two seconds of periods of 250 ms.
const WEIGHT: f64 = 0.125;
/// So many times as much as was asked while it was compared is more than it is for, and up to so many times as much it is in force again.
const MORE: f64 = 1.1;
/// So many times as much fills up a server that nobody is on call of.
const OUTGROWN: f64 = 1.2;
/// Late for more periods than this without what was put aside, it was not late for that.
const DRAINED: u32 = 3;
/// It rests for so many periods at least, and for twice as many as the last time where it was in force for less than [`STEADY`].
const REST: u32 = 8;
/// The most of these.
const MAX_REST: u32 = 64;
/// Periods in force after which it rests as briefly as the first time.
const STEADY: u32 = 480;
/// Late, or piled up, for a second time within so many periods is no pause.
const FORGIVEN: u32 = 240;
/// Above this busy share nobody waits until queries are late: all are on call when they come.
const NEARLY_FULL: f64 = 0.8;

/// What was found, and whether it is put aside.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shelf {
    /// With the queries per second that were asked while it was compared.
    found: Option<(Point, f64)>,
    /// Nobody on call, where that was found to be no worse than all on call without a delay.
    second: Option<Point>,
    is_aside: bool,
    /// Whether it was late with no more load than it is for, a short while ago.
    is_warned: bool,
    /// Periods since it was put aside, or is in force.
    since: u32,
    rest: u32,
    /// Queries per second of late; `None` before the first period.
    rate: Option<f64>,
}

impl Shelf {
    /// A comparison found this with so many queries per second, or that nothing is better than to be on call without a delay. Where more is asked
    /// by now than what was found before is for, that says nothing of it: it is put aside.
    pub(super) fn found(
        &mut self,
        (found, second): (Point, Option<Point>),
        reference: Point,
        rate: Option<f64>,
    ) {
        let most = rate.into_iter().chain(self.rate).fold(0.0, f64::max);
        if found == reference && self.growth(most).is_some_and(|growth| growth > MORE) {
            self.since = if self.is_aside { self.since } else { 0 };
            self.is_aside = true;
            return;
        }
        *self = Self {
            found: rate.map(|rate| (found, rate)),
            second: second.filter(|second| *second != found),
            rate: self.rate,
            rest: self.rest,
            ..Self::default()
        };
    }

    /// Nothing that was found holds any more.
    pub(super) fn clear(&mut self) {
        (self.found, self.second, self.is_aside, self.is_warned) = (None, None, false, false);
    }

    /// Takes note of a period's queries per second.
    pub(super) fn observe(&mut self, rate: f64) {
        let of_late = self.rate.get_or_insert(rate);
        *of_late += WEIGHT * (rate - *of_late);
        self.since = self.since.saturating_add(1);
    }

    /// How much of what was asked while it was compared is asked in a period; `None` where that is not known.
    fn growth(&self, rate: f64) -> Option<f64> {
        let (_, then) = self.found?;
        (then > 0.0).then(|| rate / then)
    }

    /// Puts what was found aside, where more is asked than it was found for, or for the first time in a while, and else what is second best in its
    /// place; how long it is for, in words, or `None` where there is nothing.
    pub(super) fn put_aside(&mut self, rate: f64) -> Option<&'static str> {
        let (_, then) = self.found?;
        let is_outgrown = self.growth(rate).is_some_and(|growth| growth > MORE);
        let is_forgiven = !self.is_warned || self.since >= FORGIVEN;
        if !is_outgrown && !is_forgiven {
            self.found = self.second.take().map(|second| (second, then));
            self.found?;
        }
        self.rest = match self.since < STEADY && self.rest > 0 {
            true => (self.rest * 2).min(MAX_REST),
            false => REST,
        };
        self.is_warned = !is_outgrown && is_forgiven;
        (self.is_aside, self.since) = (true, 0);
        Some(match (is_outgrown, is_forgiven) {
            (true, _) => ", until no more is asked than when it was compared",
            (false, true) => ", for a while",
            (false, false) => ", and then nobody on call",
        })
    }

    /// Nothing more is known of what was found than before, as of a comparison that was given up.
    pub(super) fn lay_aside(&mut self) {
        (self.is_aside, self.since, self.rest) = (self.found.is_some(), 0, REST);
    }

    /// What was put aside, where no more is asked than it was found for and queries have not been late for so many periods.
    fn take_back(&mut self, late_for: u32) -> Option<Point> {
        if self.is_aside && late_for > 0 {
            self.is_warned &= late_for <= DRAINED;
            self.since = 0;
        }
        let growth = self.growth(self.rate?)?;
        let is_back = self.is_aside && self.since >= self.rest && growth <= MORE;
        if !is_back {
            return None;
        }
        (self.is_aside, self.since) = (false, 0);
        self.found.map(|(found, _)| found)
    }
}

/// Queries per second of a period.
pub(super) fn rate_of(observation: &Observation, oncall: &OncallObservation) -> f64 {
    match observation.length > Seconds::ZERO {
        true => oncall.queries as f64 / observation.length.get(),
        false => 0.0,
    }
}

impl OnCall {
    /// Whether nobody is on call since that was found to be best at partial load.
    pub(super) fn is_resting(&self) -> bool {
        self.regime == Some(Regime::Partial)
            && !self.partial.is_comparing()
            && self.partial.best == Some(Point::OFF)
            && self.wanted == Point::OFF
    }

    /// Whether the server is nearly full, and more is asked than nobody on call was found for.
    pub(super) fn fills_up(&self, observation: &Observation, rate: f64) -> bool {
        let busy = observation.utilisation.map_or(0.0, Ratio::get);
        busy > NEARLY_FULL && self.shelf.growth(rate).is_some_and(|growth| growth > OUTGROWN)
    }

    /// What was put aside, where it is good again.
    pub(super) fn take_back(&mut self, regime: Regime) -> Option<(Point, Reason)> {
        if regime != Regime::Partial || self.partial.is_comparing() {
            return None;
        }
        let point = self.shelf.take_back(self.late_for)?;
        self.partial.best = Some(point);
        let text = format!(
            "{} again: no more is asked than it was found for",
            point.in_words()
        );
        Some((point, reason("oncall-again", text, point, &[])))
    }
}
