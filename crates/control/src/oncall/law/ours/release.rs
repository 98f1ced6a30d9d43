//! When everybody goes at once, whatever was found or is compared: somebody is stuck, or waits while hardly anything is answered.

use super::search::{ELSEWHERE, MAX_DOUBLINGS, PARTIAL, SATURATED};
use super::{MIN_QUERIES, OnCall, reason};
use crate::decision::Reason;
use crate::observation::{Observation, OncallObservation};
use crate::oncall::law::Point;
use headroom_units::{Lever, Seconds};

/// A query that waits for a slot for so many times the target is stuck, and not under this.
const STUCK_TARGETS: f64 = 10.0;
const MIN_STUCK: Seconds = Seconds::new(2.0);
/// For so many periods everybody goes then; for twice as many as the last time where that is no longer ago than it took.
const PERIODS: u32 = 40;
/// Periods in which many came that end the first of these.
const BUSY_PERIODS: u32 = 8;
/// Where many were answered before, so many periods in a row without answers are more than a pause: of the machine, of a table that is locked, of a
/// disk.
const HELD_PERIODS: u32 = 4;
/// While everybody goes, so many times as many as before are a load that the law held up.
const HELD_BACK: f64 = 1.5;
/// How much a period counts for how many are answered.
const WEIGHT: f64 = 0.125;
/// Quiet periods in a row that end a comparison.
const QUIET_PERIODS: u32 = 8;

/// Why everybody goes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cause {
    /// A query waited this long for a slot.
    Stuck(Seconds),
    /// So few queries were answered in a period, and one took or waited this long: what keeps them is the law.
    Held(u64, Seconds),
}

impl Cause {
    const fn rule(self) -> &'static str {
        match self {
            Self::Stuck(_) => "oncall-stuck",
            Self::Held(..) => "oncall-held-up",
        }
    }

    fn in_words(self) -> String {
        match self {
            Self::Stuck(waited) => format!("a query waited {:.1} s for a slot", waited.get()),
            Self::Held(queries, took) => format!(
                "a query took or waited {:.1} ms where {queries} were answered in a period",
                took.as_millis()
            ),
        }
    }

    const fn waits(self) -> Seconds {
        match self {
            Self::Stuck(waits) | Self::Held(_, waits) => waits,
        }
    }
}

/// When everybody went last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Release {
    /// Why; `None` where nobody is let go.
    cause: Option<Cause>,
    /// For so many more periods everybody goes.
    left: u32,
    /// How many these were together.
    length: u32,
    /// Periods since.
    since: u32,
    /// The most queries of a period of it.
    most: u64,
    /// Periods of it in which many came.
    busy: u32,
    /// Queries of a period while some were on call, in the mean, but for periods that are held up.
    usual: f64,
    /// Periods in a row that are.
    held: u32,
}

impl Release {
    fn begin(&mut self, cause: Cause) {
        let is_again = self.length > 0 && self.since <= self.length;
        let length = match is_again {
            true => (self.length * 2).min(PERIODS << MAX_DOUBLINGS),
            false => PERIODS,
        };
        *self = Self {
            cause: Some(cause),
            left: length,
            length,
            since: 0,
            most: 0,
            busy: 0,
            usual: self.usual,
            held: 0,
        };
    }

    /// Takes note of a period while some are on call: whether the law holds its queries up. Where hardly any came before that shows at once.
    fn is_held(&mut self, queries: u64, is_slow: bool) -> bool {
        if queries >= MIN_QUERIES || !is_slow {
            self.held = 0;
            self.usual += WEIGHT * (queries as f64 - self.usual);
            return false;
        }
        self.held += 1;
        self.held >= HELD_PERIODS || self.usual < MIN_QUERIES as f64
    }

    /// Whether the load that shows itself while everybody goes is one that the law held up: far more than before, or held up again as soon as
    /// some were on call.
    fn is_found_out(&self) -> bool {
        self.most >= MIN_QUERIES && (self.most as f64 > HELD_BACK * self.usual || self.length > PERIODS)
    }

    /// Takes note of what comes while everybody goes. Where many do, there is a load to compare by, and one slow query of a server that was
    /// quiet before is no reason to leave it alone for longer; a second one soon after is.
    fn observe(&mut self, queries: u64) {
        self.most = self.most.max(queries);
        self.busy += u32::from(queries >= MIN_QUERIES);
        if matches!(self.cause, Some(Cause::Held(..))) && self.length == PERIODS && self.busy >= BUSY_PERIODS
        {
            self.left = 0;
        }
    }
}

impl OnCall {
    /// Lets everybody go for a while where somebody waits far too long for a slot, or for longer than the target while few are answered. A load
    /// of which the law lets pass too little to compare anything by is no quiet one: it shows itself while all go, and then nothing that
    /// was found is believed any more. What is as quiet without the law had a slow query of its own, and where no more come than before the
    /// server had a pause: what was found is in force again.
    pub(super) fn let_go(
        &mut self,
        observation: &Observation,
        oncall: &OncallObservation,
    ) -> Option<(Point, Reason)> {
        if self.release.left == 0 {
            self.release.since = self.release.since.saturating_add(1);
            if let Some(cause) = self.cause_to_let_go(observation, oncall) {
                self.begin_to_let_go(cause);
            }
        }
        let cause = self.release.cause?;
        if observation.in_force.get(Lever::Concurrency).is_none() {
            self.release.observe(oncall.queries);
        }
        let Some(left) = self.release.left.checked_sub(1) else {
            self.release.cause = None;
            if matches!(cause, Cause::Held(..)) && self.release.is_found_out() {
                self.forget_found();
            } else if matches!(cause, Cause::Held(..)) && self.release.most >= MIN_QUERIES {
                // It was a pause. Only another at once says that it was not.
                self.release.since = self.release.length.saturating_sub(HELD_PERIODS + BUSY_PERIODS);
            }
            return None;
        };
        self.release.left = left;
        let text = format!("not on call for {} periods: {}", left + 1, cause.in_words());
        let waits = [("waits_s", cause.waits().get())];
        Some((Point::OFF, reason(cause.rule(), text, Point::OFF, &waits)))
    }

    fn cause_to_let_go(&mut self, observation: &Observation, oncall: &OncallObservation) -> Option<Cause> {
        // While nobody is on call a query waits for no slot, whatever else it waits for.
        observation.in_force.get(Lever::Concurrency)?;
        let target = self.slo.target();
        // Whom a policy has wait is not stuck for it.
        let waits = oncall.oldest_in_turn.or(oncall.oldest_waiting);
        let waits = waits.unwrap_or(Seconds::ZERO);
        if waits > (target * STUCK_TARGETS).max(MIN_STUCK) {
            return Some(Cause::Stuck(waits));
        }
        let took = self
            .measured(observation, oncall)
            .map_or(waits, |judged| judged.max(waits));
        self.release
            .is_held(oncall.queries, took > target)
            .then_some(Cause::Held(oncall.queries, took))
    }

    /// What is compared ends.
    fn begin_to_let_go(&mut self, cause: Cause) {
        self.release.begin(cause);
        self.end_comparisons(&cause.in_words());
        (self.regime, self.other) = (None, 0);
    }

    /// Ends what is compared, without an answer.
    pub(super) fn end_comparisons(&mut self, why: &str) {
        for (search, about) in [
            (&mut self.saturated, SATURATED),
            (&mut self.partial, PARTIAL),
            (&mut self.elsewhere, ELSEWHERE),
        ] {
            let about = format!("{about}: ended, for {why}");
            self.ended.extend(search.end(self.at, &about));
        }
    }

    /// Counts periods with too few queries, which end a comparison that they do not go on with: others wait for its end.
    pub(super) fn watch_quiet(&mut self, queries: u64) {
        self.quiet = match queries < MIN_QUERIES {
            true => self.quiet.saturating_add(1),
            false => 0,
        };
        if self.quiet == QUIET_PERIODS {
            self.end_comparisons("too few queries came");
        }
    }
}
