//! What the control does, in words.

use super::Least;
use crate::batching::interval::reason;
use crate::batching::keep::Keep;
use crate::batching::model::Sample;
use crate::batching::optimise::Optimum;
use headroom_units::Seconds;

pub(super) const AWAITED: &str = "none, to see what a response takes without batches";

/// What the model says, and what was made of it.
pub(super) struct Chosen<'a> {
    pub(super) best: Optimum,
    pub(super) without: Seconds,
    /// How much the difference of the two must be.
    pub(super) doubt: Seconds,
    /// The longest interval, in seconds, and what bounds it.
    pub(super) limit: f64,
    pub(super) bound: &'a str,
    pub(super) now: Sample,
    pub(super) is_taken: bool,
}

impl Least {
    pub(super) fn say_chosen(&mut self, chosen: &Chosen<'_>) {
        let (best, without, now) = (chosen.best, chosen.without, chosen.now);
        let (milliseconds, spent) = (self.base * 1e3, self.cost.spent_share());
        let (predicted, why) = match chosen.is_taken {
            true => (best.response, chosen.bound.to_owned()),
            false if self.cost.left(self.budget) < 0.0 => {
                let why = format!(
                    "; trying and batches added {:.2} % of all response times, as much as they may",
                    spent * 100.0
                );
                (without, why)
            }
            false => (without, String::new()),
        };
        let text = format!(
            "{milliseconds:.0} ms: the model predicts a mean of {:.0} ms at {:.0} ms and of {:.0} ms without batches, give or take {:.0} ms; \
             it was {:.0} ms at {:.0} ms{why}",
            best.response.as_millis(),
            best.interval.as_millis(),
            without.as_millis(),
            chosen.doubt.as_millis(),
            now.response.as_millis(),
            now.interval.as_millis(),
        );
        let numbers = [
            ("interval_ms", milliseconds),
            ("predicted_ms", predicted.as_millis()),
            ("without_ms", without.as_millis()),
            ("doubt_ms", chosen.doubt.as_millis()),
            ("limit_ms", chosen.limit * 1e3),
            ("response_ms", now.response.as_millis()),
            ("hit_ratio", now.hit_ratio.get()),
            ("spent_share", spent),
        ];
        self.said = reason("batching-predict", text, &numbers);
    }

    pub(super) fn say_no_number(&mut self) {
        let text = "none: the model predicts no number; identify another one".to_owned();
        self.said = reason("batching-hold", text, &[("interval_ms", self.base * 1e3)]);
    }

    /// Why an interval ended before its time: by this limit, or for what it cost.
    pub(super) fn say_bound(&mut self, asked: f64, limit: Option<(f64, String)>) {
        let milliseconds = self.base * 1e3;
        let mut numbers = vec![
            ("interval_ms", milliseconds),
            ("spent_share", self.cost.spent_share()),
        ];
        let why = match limit {
            Some((limit, bound)) => {
                numbers.push(("limit_ms", limit * 1e3));
                bound.trim_start_matches("; ").to_owned()
            }
            None => format!(
                "{:.0} ms added {:.2} % of all response times, as much as it may",
                asked * 1e3,
                self.cost.spent_share() * 100.0
            ),
        };
        self.said = reason("batching-bound", format!("{milliseconds:.0} ms: {why}"), &numbers);
    }

    pub(super) fn say_rests(&mut self, keep: &Keep) {
        let text = match () {
            () if self.pace.is_endless() => format!(
                "none: a response takes {:.0} periods of this loop, so that what an interval does is seen after {:.0}",
                self.lag.unwrap_or(0.0),
                self.pace.hold()
            ),
            () if keep.looks() => "none, to see whether the SLO is kept without batches".to_owned(),
            () => AWAITED.to_owned(),
        };
        let rule = match self.learned.model() {
            Some(_) => "batching-predict",
            None => "batching-hold",
        };
        self.said = reason(rule, text, &[("interval_ms", self.base * 1e3)]);
    }

    pub(super) fn say_tries(&mut self, next: f64) {
        let (spent, milliseconds) = (self.cost.spent_share(), next * 1e3);
        let text = format!(
            "{milliseconds:.0} ms is tried for some {:.0} periods to learn what it does; that added {:.2} % of all response times up to now",
            self.pace.hold(),
            spent * 100.0
        );
        let numbers = [
            ("interval_ms", milliseconds),
            ("tried", f64::from(self.tried)),
            ("spent_share", spent),
        ];
        self.said = reason("batching-explore", text, &numbers);
    }

    pub(super) fn say_waits(&mut self, failed: Option<String>) {
        let (known, needs) = (self.learned.samples(), self.needs);
        let text = match failed {
            Some(error) => format!("none: no model from what was tried: {error}; more is tried"),
            None if !self.start.is_over => {
                "none: intervals are tried once the response time has settled".to_owned()
            }
            None if self.is_too_quick() => format!(
                "none: a response takes {:.1} ms, so that the shortest interval, {:.0} ms, would be a large part of it",
                self.usual.unwrap_or(0.0) * 1e3,
                self.shortest() * 1e3
            ),
            None => format!(
                "none until the next try may cost what it can; {known} of {needs} samples for a model are known"
            ),
        };
        let numbers = [
            ("interval_ms", self.base * 1e3),
            ("samples", f64::from(known)),
            ("spent_share", self.cost.spent_share()),
        ];
        self.said = reason("batching-hold", text, &numbers);
    }
}
