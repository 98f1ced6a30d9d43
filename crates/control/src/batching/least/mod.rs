//! The control of the batch interval for the least mean response time: the paper's model and its choice, over holds of several response
//! times, with intervals that are tried at a bounded cost. Our own; the paper steers to the SLA ([`crate::batching::steer`]).
//!
//! The model of the paper looks one period ahead. Where a response takes many, nothing of an interval is seen by then, so here a step of the
//! model is a [`Hold`]. It begins without batches and waits until two holds are alike. Then intervals are tried, one in a hold each, when
//! the budget has what they may cost; once enough of them are known a model is identified. It chooses about the interval that was best of those
//! held, as what it says of others is no more than a guess. Batches begin where its gain over none is more than its doubt of it, or one
//! that was tried saved much, and stay as long as they are seen to save. Later, more and more seldom, something is tried again: no batches, a longer interval, a shorter
//! one; at once where what came is not what the model said, or the load is another. After each of them the model is identified anew, so that
//! a wrong one does not stay.
//!
//! Requests wait for half an interval in the mean, so that with an interval of more than twice the response without batches the mean cannot
//! be less than without: that bounds it.

mod explain;
mod tries;

use crate::batching::bounds::IntervalBounds;
use crate::batching::cost::{Cost, Payer};
use crate::batching::hold::{Held, Hold, Pace, Period, is_same};
use crate::batching::interval::{Step, reason};
use crate::batching::keep::{Keep, Why};
use crate::batching::learned::Learned;
use crate::batching::optimise::{Objective, optimise};
use crate::batching::tuning::BatchingTuning;
use crate::decision::Reason;
use explain::{AWAITED, Chosen};
use headroom_units::Seconds;

/// The weight of another period in the mean response time that things are paced by, and in the rate before there was a hold.
const WEIGHT: f64 = 0.3;
/// Two holds at the start are alike within this factor; after so many it begins all the same.
const ALIKE: f64 = 1.15;
const BEGINS_AFTER: u32 = 6;
/// Intervals below this many seconds, or this share of what a response takes without batches, are none.
const LEAST_S: f64 = 0.001;
const LEAST_SHARE: f64 = 0.02;
/// A response below this share of what it takes without batches saves.
const SAVES: f64 = 0.98;
/// One below this share is taken without a model's assent.
const SAVES_MUCH: f64 = 0.75;
/// What a choice must promise, as a share of what is without batches, and in standard errors.
const LEAST_GAIN: f64 = 0.01;
const SIGNIFICANT: f64 = 2.0;
/// What is tried is so many times as long after one that was too dear and after one that was not, and at least this share.
const SHORTENS: f64 = 0.5;
const RECOVERS: f64 = 1.25;
const LEAST_REACH: f64 = 0.1;
/// Holds from one try to the next once there is a model: at first, after a surprise, and at most.
const GAP: u32 = 8;
const GAP_SURPRISED: u32 = 4;
const MOST_GAP: u32 = 64;
/// The factor from the interval to a longer and a shorter one, and from the best that was held to what the model may choose.
const STEP: f64 = 1.5;
/// The factors by which a rate and a mean differ that are another load's.
const ANOTHER_RATE: f64 = 1.25;
const ANOTHER_MEAN: f64 = 1.5;

/// What the control does while nothing is tried.
#[derive(Clone, Debug)]
struct Start {
    /// Holds up to now without batches, and what a response took in the last.
    holds: u32,
    last: f64,
    is_over: bool,
}

/// The control.
#[derive(Clone, Debug)]
pub(in crate::batching) struct Least {
    bounds: IntervalBounds,
    explore_most: f64,
    objective: Objective,
    budget: f64,
    /// Samples that a model of its own needs.
    needs: u32,
    learned: Learned,
    cost: Cost,
    /// Mean response time in periods, and answers of a period.
    lag: Option<f64>,
    rate: f64,
    pace: Pace,
    hold: Hold,
    /// Who pays for the hold, and for what came before it.
    payer: Payer,
    before: Payer,
    /// The interval while none is tried, and that which is.
    base: f64,
    tries: Option<f64>,
    /// What a response takes without batches.
    usual: Option<f64>,
    start: Start,
    /// Intervals tried up to now; the share of what is asked for that is tried, less after one that was too dear.
    tried: u32,
    reach: f64,
    /// Holds until the next try once there is a model, and from then to the one after it.
    wait: u32,
    gap: u32,
    /// Rate and mean when batches were last found better than none.
    load: Option<(f64, f64)>,
    /// The load is another since.
    is_other: bool,
    said: Reason,
}

impl Least {
    /// Within these bounds; intervals up to `explore_most` are tried before there is a model.
    pub(in crate::batching) fn new(
        bounds: IntervalBounds,
        explore_most: Seconds,
        objective: Objective,
        tuning: BatchingTuning,
    ) -> Self {
        let pace = Pace::of(0.0, 0.0);
        let none = bounds.least.get();
        Self {
            explore_most: explore_most.get(),
            objective,
            budget: tuning.budget,
            needs: tuning.explore_periods,
            learned: Learned::new(tuning.lags(), tuning.forgetting, tuning.model.as_ref()),
            cost: Cost::default(),
            lag: None,
            rate: 0.0,
            hold: Hold::new(none, &pace),
            pace,
            payer: Payer::Nobody,
            before: Payer::Nobody,
            base: none,
            tries: None,
            usual: None,
            start: Start {
                holds: 0,
                last: 0.0,
                is_over: tuning.model.is_some(),
            },
            tried: 0,
            reach: 1.0,
            wait: GAP,
            gap: GAP,
            load: None,
            is_other: false,
            said: reason(
                if tuning.model.is_some() {
                    "batching-predict"
                } else {
                    "batching-hold"
                },
                AWAITED.to_owned(),
                &[],
            ),
            bounds,
        }
    }

    fn none(&self) -> f64 {
        self.bounds.least.get()
    }

    /// Whether there are no batches but to try them.
    pub(in crate::batching) fn is_off(&self) -> bool {
        self.base <= self.none()
    }

    /// The shortest interval that is one.
    fn shortest(&self) -> f64 {
        self.none() + LEAST_S.max(LEAST_SHARE * self.usual.unwrap_or(0.0))
    }

    /// An interval as the lever takes it, none where it is too short to be one.
    fn fit(&self, interval: f64) -> f64 {
        let fitted = self.bounds.fit(Seconds::new(interval)).get();
        if fitted < self.shortest() {
            self.none()
        } else {
            fitted
        }
    }

    /// The longest interval that may be asked for, and what bounds it.
    fn limit(&self, keep: &Keep) -> (f64, String) {
        let (limit, why) = keep.limit();
        let limit = limit.min(self.bounds.most);
        let worth = Seconds::new(self.none() + 2.0 * self.usual.unwrap_or(0.0));
        if worth < limit && why != Why::Looks {
            let words = format!(
                "; no more than {:.0} ms, twice what a response takes without batches",
                worth.as_millis()
            );
            return (worth.get(), words);
        }
        (limit.get(), why.words(limit))
    }

    /// Learns from a period and chooses the interval of the next.
    pub(in crate::batching) fn step(&mut self, period: Option<Period>, keep: &Keep) -> Step {
        let Some(period) = period else {
            self.restart();
            let text = "no mean response time or no interval in force was observed: the interval stays";
            return self.answer(reason("batching-hold", text.to_owned(), &[]));
        };
        self.follow(&period);
        let payer = self.pays();
        let most_saved = self.usual.unwrap_or(0.0) * self.rate * self.pace.hold();
        self.cost.book(payer, period.answers, period.mean, most_saved);
        match self.hold.observe(&period, &self.pace) {
            Some(held) => {
                self.learn(&held, true);
                self.choose(keep, &held);
            }
            None if self.pace.is_endless() => self.rest(keep),
            None => self.guard(keep),
        }
        self.answer(self.said.clone())
    }

    fn answer(&self, reason: Reason) -> Step {
        let is_trial = |payer| matches!(payer, Payer::Attempt(_));
        Step {
            interval: Seconds::new(self.tries.unwrap_or(self.base)),
            reason,
            explores: self.tries.is_some() || is_trial(self.pays()),
        }
    }

    /// Who pays for what is answered now.
    fn pays(&self) -> Payer {
        if self.hold.is_settling() {
            self.before
        } else {
            self.payer
        }
    }

    fn follow(&mut self, period: &Period) {
        if self.start.holds == 0 {
            self.rate += WEIGHT * (period.answers - self.rate);
        }
        if period.answers > 0.0 {
            let lag = period.mean / period.length;
            let known = self.lag.unwrap_or(lag);
            self.lag = Some(known + WEIGHT * (lag - known));
        }
        let without = self.usual.unwrap_or(0.0) / period.length;
        self.pace = Pace::of(self.lag.unwrap_or(0.0), without);
    }

    /// From the next period on.
    fn begin(&mut self) {
        let interval = self.tries.unwrap_or(self.base);
        if !is_same(interval, self.hold.interval()) {
            self.before = self.payer;
            self.hold = Hold::new(interval, &self.pace);
        }
        self.payer = match (self.tries, self.usual) {
            (Some(_), Some(usual)) => Payer::Attempt(self.without_try().unwrap_or(usual)),
            (None, Some(usual)) if !self.is_off() => Payer::Batches(usual),
            _ => Payer::Nobody,
        };
    }

    /// What a response takes with the interval that is in force while none is tried.
    fn without_try(&self) -> Option<f64> {
        if self.is_off() {
            return self.usual;
        }
        self.load.map(|(_, mean)| mean)
    }

    /// Learns from a hold, or from the part of one that `is_whole` says it is not.
    fn learn(&mut self, held: &Held, is_whole: bool) {
        self.rate = held.rate;
        let (interval, mean) = (held.whole.interval.get(), held.whole.response.get());
        let was = self.learned.past().last().map(|last| last.interval.get());
        let is_steady = self.tries.is_none() && was.is_some_and(|was| is_same(was, interval));
        let mut is_other = self.learned.observe(held, is_steady);
        if is_same(interval, self.none()) {
            if !is_whole {
                // A queue may be filling up still.
                return;
            }
            self.usual = Some(match self.usual {
                Some(usual) if differ(usual, mean) < ANOTHER_MEAN => 0.5 * (usual + mean),
                Some(_) if self.tries.is_none() => {
                    self.learned.forget_best();
                    mean
                }
                _ => mean,
            });
            self.start.is_over |= self.start.holds > 0 && differ(self.start.last, mean) < ALIKE
                || self.start.holds >= BEGINS_AFTER;
            (self.start.holds, self.start.last) = (self.start.holds + 1, mean);
        } else if self.tries.is_none() && is_same(interval, self.base) {
            let load = *self.load.get_or_insert((self.rate, mean));
            self.is_other = differ(load.0, self.rate) > ANOTHER_RATE || differ(load.1, mean) > ANOTHER_MEAN;
            if self.is_other {
                self.learned.forget_best();
            }
            is_other |= self.is_other;
        }
        if is_other {
            self.gap = self.gap.min(GAP_SURPRISED);
            self.wait = 0;
        }
    }

    /// Chooses after a hold.
    fn choose(&mut self, keep: &Keep, held: &Held) {
        let (limit, bound) = self.limit(keep);
        // The gateway may not have followed.
        let tries = self
            .tries
            .take()
            .filter(|one| is_same(held.whole.interval.get(), *one));
        let is_first = self.learned.model().is_none();
        let failed = self.identify(tries.is_some());
        if is_first && self.learned.model().is_some() {
            (self.wait, self.gap) = (GAP, GAP);
        }
        let (Some(usual), false, false) = (self.usual, self.pace.is_endless(), keep.looks()) else {
            self.rest(keep);
            return;
        };
        let saves = tries.is_some_and(|one| one > self.none()) && held.whole.response.get() < SAVES * usual;
        if let Some(reach) = tries.map(|_| {
            if saves {
                1.0
            } else {
                (self.reach * RECOVERS).min(1.0)
            }
        }) {
            self.reach = reach;
        }
        match self.learned.model() {
            Some(_) => self.predict(limit, &bound, held, tries, usual),
            None => self.base = self.none(),
        }
        let has_model = self.learned.model().is_some();
        let is_due = match has_model {
            true => self.wait == 0,
            false => self.start.is_over,
        };
        self.wait = self.wait.saturating_sub(1);
        let next = if is_due {
            self.next(limit, usual, saves)
        } else {
            None
        };
        if let Some(next) = next {
            self.cost.end_attempt();
            self.tries = Some(next);
            self.tried = self.tried.wrapping_add(1);
            self.wait = self.gap;
            self.gap = (self.gap * 2).min(MOST_GAP);
            self.say_tries(next);
        } else if !has_model {
            self.say_waits(failed);
        }
        self.begin();
    }

    /// Identifies a model once enough is known, and anew after each try; why not.
    fn identify(&mut self, was_tried: bool) -> Option<String> {
        let is_due = match self.learned.model() {
            Some(_) => was_tried,
            None => true,
        };
        if !is_due || self.learned.samples() < self.needs {
            return None;
        }
        self.learned.identify().err().map(|error| error.to_string())
    }

    /// The interval by the model.
    fn predict(&mut self, limit: f64, bound: &str, held: &Held, tries: Option<f64>, usual: f64) {
        let none = self.bounds.least;
        let seen = match tries {
            None if is_same(held.whole.interval.get(), self.base) => Some(held.whole.response.get()),
            None => None,
            Some(_) => self.load.map(|(_, mean)| mean),
        };
        let stays = !self.is_off() && seen.is_some_and(|mean| mean < SAVES * usual);
        let past = self.learned.past();
        let base = Some(Seconds::new(self.base)).filter(|_| stays);
        let about = self.learned.best(none).map(|best| best.interval).or(base);
        let found = self.learned.model().and_then(|model| {
            let limit = Seconds::new(limit);
            let bounds = about.map_or((none, limit), |best| {
                ((best * (1.0 / STEP)).min(limit), (best * STEP).min(limit))
            });
            let best = optimise(model.model(), past, bounds, &self.objective)?;
            let without = model.model().predict(past, none)?;
            Some((best, without, self.learned.doubt(best.interval, none)?))
        });
        let Some((best, without, doubt)) = found else {
            self.off();
            return self.say_no_number();
        };
        let gain = without - best.response;
        let least = (doubt * SIGNIFICANT).max(without * LEAST_GAIN);
        let left = self.cost.left(self.budget);
        let wanted = self.fit(best.interval.get());
        let is_much =
            tries.is_some_and(|one| one > self.none()) && held.whole.response.get() < SAVES_MUCH * usual;
        let is_taken = wanted > self.none() && (stays || (left >= 0.0 && (is_much || gain > least)));
        if !is_taken {
            self.off();
        } else if !is_same(self.base, wanted) {
            self.base = wanted;
            (self.load, self.is_other) = (None, false);
        }
        self.say_chosen(&Chosen {
            best,
            without,
            doubt: doubt * SIGNIFICANT,
            limit,
            bound,
            now: held.whole,
            is_taken,
        });
    }

    /// No batches.
    fn off(&mut self) {
        self.base = self.none();
        (self.load, self.is_other) = (None, false);
        self.cost.end_batches();
    }

    /// While a hold lasts: the SLO and the budget are kept.
    fn guard(&mut self, keep: &Keep) {
        let (limit, bound) = self.limit(keep);
        let asked = self.tries.unwrap_or(self.base);
        let is_over = asked > limit && !is_same(asked, limit) && asked > self.none();
        let is_dear =
            !self.hold.is_settling() && self.cost.costs(self.payer) && self.cost.left(self.budget) < 0.0;
        if !(is_over || is_dear) {
            return;
        }
        if let Some(held) = self.hold.end() {
            self.learn(&held, false);
        }
        let was_tried = self.tries.take();
        if is_over {
            self.base = self.fit(self.base.min(limit));
            self.load = None;
        } else if was_tried.is_some() {
            self.reach = (self.reach * SHORTENS).max(LEAST_REACH);
        } else {
            self.off();
        }
        if self.is_off() {
            self.cost.end_batches();
        }
        self.say_bound(asked, is_over.then_some((limit, bound)));
        self.begin();
    }

    /// No batches, and nothing is tried.
    fn rest(&mut self, keep: &Keep) {
        self.off();
        self.say_rests(keep);
        self.begin();
    }

    /// A period was not observed: what comes next does not follow what was.
    pub(in crate::batching) fn restart(&mut self) {
        self.learned.break_off();
        self.before = self.pays();
        self.hold = Hold::new(self.hold.interval(), &self.pace);
    }

    /// Telemetry was lost for a while: it begins without batches again, with the model that it has.
    pub(in crate::batching) fn lose(&mut self) {
        self.restart();
        self.tries = None;
        self.off();
        self.usual = None;
        self.start = Start {
            holds: 0,
            last: 0.0,
            is_over: false,
        };
        self.begin();
    }
}

/// The factor between two numbers, 1 or more; infinity where one is 0.
fn differ(one: f64, other: f64) -> f64 {
    match one == other {
        true => 1.0,
        false => (one / other).max(other / one),
    }
}
