//! A law of our own for the batch interval: it seeks the one of least cost directly, and holds nothing where that does not help.
//!
//! The cost is the mean response time and, with a small weight, the energy of a request where power is observed. Two intervals are
//! compared in alternating blocks: each block with the other interval is measured against those with the present one before and after it,
//! so that a drift of the load cancels. An interval is taken where it is better by several standard errors, and given up as soon as it
//! cannot be better by enough. What attempts add to the response times is accounted for and bounded by a share of all response times
//! (1 % by default): an attempt waits until that allows it.
//!
//! What is held is seen when it is answered, so a change settles for two mean response times and a block is measured for four. An attempt
//! is booked what it adds also in the periods after it, and while it lasts what is held and not answered yet counts as it is expected to
//! come. Where a response is so long that a comparison would take hours, none is made, and nothing is held.
//!
//! It begins without batches. Its first attempt is a short interval, a share of the mean response time; if batches then have nothing to
//! group it ends at once. After an attempt that finds nothing the next waits twice as long. Where batches help, the interval grows and
//! shrinks by a ratio, then by its root, and is compared with none now and then. Another load makes it seek anew.
//!
//! While the SLO is kept without batches, the interval is bounded by the time that is left to the target: it never makes the service miss.
//! Where the service misses its target without batches, no interval causes that, and the mean alone decides.

mod averages;
mod block;
mod compare;
mod explain;
mod ledger;
mod pace;
mod tuning;

pub use tuning::SeekTuning;

use super::bounds::{IntervalBounds, range};
use crate::decision::{Decision, Reason};
use crate::law::Law;
use crate::observation::Observation;
use crate::plant::{Plant, Slo};
use crate::registry::LawError;
use averages::{Average, Load};
use block::{Period, is_in_force};
use compare::{Comparison, Move, Verdict};
use explain::{OBSERVES, Why, reason};
use headroom_units::{Lever, Seconds, Setting};
use ledger::Ledger;
use pace::{LONGEST, Pace};

/// The interval of the next attempt while none is in force: after one that cost more so many times as long, after one that made no
/// difference the other; and the shortest and the longest, as shares of the mean response time, beyond which the first is tried again.
const AFTER_DEAR: f64 = 0.4;
const AFTER_EQUAL: f64 = 2.0;
const SHARES: (f64, f64) = (0.03, 1.0);
/// An attempt costs more where it added this share of the response time.
const DEAR: f64 = 0.03;
/// Periods, or blocks where these are more, that an attempt may wait for what it is expected to add: it is shortened until it need not wait
/// for longer.
const PATIENCE: (f64, f64) = (60.0, 4.0);
/// The finest ratio of two intervals, and the least that an interval must differ by to be another.
const FINEST_RATIO: f64 = 1.2;
const ANOTHER: f64 = 1.05;
/// Intervals below this many seconds, or this share of the mean response time, are none.
const LEAST_S: f64 = 0.001;
const LEAST_SHARE: f64 = 0.02;

/// A rate or a mean response time that differs by this factor is another load; one that differs by the second ends a comparison.
const ANOTHER_LOAD: f64 = 1.25;
const FAR: f64 = 2.0;

/// A gain, as a logarithm, after which it is not tried again at the same load whether no batches are better.
const UNDOUBTED: f64 = 0.3;

/// What it does.
#[derive(Clone, Debug)]
enum Phase {
    /// The interval stays for so many periods.
    Wait(u32, Why),
    /// It compares.
    Compare(Comparison),
}

/// The law.
#[derive(Clone, Debug)]
pub struct Seek {
    target: f64,
    bounds: IntervalBounds,
    tuning: SeekTuning,
    ledger: Ledger,
    phase: Phase,
    /// The interval that it has found best up to now, in seconds.
    interval: f64,
    /// One that helped, to be tried first.
    remembered: Option<f64>,
    ratio: f64,
    /// The move that helped last, and those that did not since.
    way: Move,
    tried: Vec<Move>,
    /// The interval of the next attempt with none in force, as a share of the mean response time.
    share: f64,
    retry: u32,
    /// How much the present interval was found to save against none, as a share.
    gain: f64,
    /// That was found by trying none at this load, and is much.
    is_undoubted: bool,
    load: Load,
    /// The interval that was in force last, and for how many periods before that.
    last: Option<f64>,
    steady: u32,
    /// Mean response time in periods, with whatever interval is in force, and what follows from it.
    lag: Average,
    pace: Pace,
    /// The SLO's percentile with the present interval, and with none.
    late: Average,
    late_without: Average,
}

impl Seek {
    const NAME: &'static str = "seek";

    /// The law for an SLO and a plant.
    ///
    /// # Errors
    /// A parameter outside its range, an interval bound above the target, a plant without the lever.
    pub fn new(slo: Slo, plant: Plant, tuning: SeekTuning) -> Result<Self, LawError> {
        tuning.check().map_err(LawError::of(Self::NAME))?;
        let range = range(&plant, Self::NAME)?;
        let asked = (0.0, tuning.max_interval_ms);
        Ok(Self {
            target: slo.target().get(),
            bounds: IntervalBounds::new(range, slo.target(), asked, Self::NAME)?,
            ledger: Ledger::default(),
            phase: Phase::Wait(0, OBSERVES),
            interval: range.min,
            remembered: None,
            ratio: tuning.ratio,
            way: Move::Up,
            tried: Vec::new(),
            share: tuning.first_share,
            retry: tuning.retry_periods,
            gain: 0.0,
            is_undoubted: false,
            load: Load::default(),
            last: None,
            steady: 0,
            lag: Average::default(),
            pace: Pace::of(0.0, &tuning),
            late: Average::default(),
            late_without: Average::default(),
            tuning,
        })
    }

    /// The least interval, which is none in effect.
    fn none(&self) -> f64 {
        self.bounds.least.get()
    }

    fn is_off(&self) -> bool {
        self.interval <= self.none()
    }

    /// The longest interval that keeps the SLO; `None` before that is known.
    fn limit(&self) -> Option<f64> {
        let most = self.bounds.most.get();
        if self.late_without.mean().is_some_and(|late| late > self.target) {
            return Some(most);
        }
        let left = self.target - self.late.high()?;
        Some((self.interval + left).clamp(self.none(), most))
    }

    fn learn(&mut self, period: &Period) {
        let answered = period.answers > 0.0;
        if answered {
            let lag = period.response / period.length;
            self.lag.push_over(self.pace.lag, lag);
        }
        self.pace = Pace::of(self.lag.mean().unwrap_or(0.0), &self.tuning);
        self.ledger.observe(period, &self.pace);
        let stays = self.last.is_some_and(|last| is_in_force(period.interval, last));
        self.steady = if stays { self.steady.saturating_add(1) } else { 0 };
        self.last = period.interval;
        // Before it is settled, what is answered was in part held as before.
        if self.steady >= self.pace.settle {
            self.learn_settled(period);
        }
        self.pace.requests = self.load.rate().unwrap_or(0.0) * period.length;
    }

    fn learn_settled(&mut self, period: &Period) {
        let answered = period.answers > 0.0;
        if answered && is_in_force(period.interval, self.none()) {
            self.late_without.push(period.at_slo);
        }
        if is_in_force(period.interval, self.interval) {
            self.load.push(period, self.pace.lag);
            if answered {
                self.late.push(period.at_slo);
                self.ledger.save(period.answers * period.response * self.gain);
            }
        }
    }

    /// Another interval is the best.
    fn take(&mut self, interval: f64) {
        if !self.is_off() {
            self.remembered = Some(self.interval);
        }
        self.interval = interval;
        self.ledger.accept(interval);
        self.late = Average::default();
        if self.is_off() {
            self.late = self.late_without;
        }
        self.load.forget_response();
    }

    /// What to compare with next; `None` where there is nothing.
    fn next(&mut self) -> Option<Comparison> {
        let (limit, response) = (self.limit()?, self.load.response()?);
        let none = self.none();
        let least = none + LEAST_S.max(LEAST_SHARE * response);
        let settle = self.pace.settle.saturating_sub(self.steady);
        if self.is_off() {
            let share = self.share.min(self.affordable(response));
            let wanted = self.remembered.unwrap_or(none + share * response).min(limit);
            let other = self.bounds.fit(Seconds::new(wanted)).get();
            return (other >= least).then(|| Comparison::new(none, other, Move::Up, settle));
        }
        loop {
            let opposite = if self.way == Move::Up {
                Move::Down
            } else {
                Move::Up
            };
            let order = [self.way, opposite, Move::Off];
            let Some(way) = order.into_iter().find(|way| !self.tried.contains(way)) else {
                if self.ratio <= FINEST_RATIO {
                    return None;
                }
                self.ratio = self.ratio.sqrt().max(FINEST_RATIO);
                // Whether none is better does not depend on the ratio.
                self.tried.retain(|way| *way == Move::Off);
                continue;
            };
            let wanted = match way {
                Move::Up => (self.interval * self.ratio).min(limit),
                Move::Down => self.interval / self.ratio,
                Move::Off => none,
            };
            let other = self.bounds.fit(Seconds::new(wanted)).get();
            let is_another = match way {
                Move::Up => other > self.interval * ANOTHER,
                Move::Down => other < self.interval / ANOTHER && other >= least,
                // What was found to help by so much at this load is not doubted.
                Move::Off => !self.is_undoubted,
            };
            if is_another {
                return Some(Comparison::new(self.interval, other, way, settle));
            }
            self.tried.push(way);
        }
    }

    /// The share of the mean response time that an attempt can have without waiting for long: half of it is added to each response time
    /// of a block.
    fn affordable(&self, response: f64) -> f64 {
        let usual = self.pace.requests * response;
        let budget = self.tuning.budget;
        let patience = PATIENCE.0.max(PATIENCE.1 * self.pace.block());
        let soon = self.ledger.left(budget) + patience * budget * usual;
        let share = soon / (0.5 * self.pace.block() * usual);
        share.max(SHARES.0)
    }

    /// Why not even the shortest attempt would come to an end soon, where that is so.
    fn endless(&self) -> Option<String> {
        let periods = self.pace.comparison(0.5 * SHARES.0, self.tuning.budget);
        (periods > LONGEST).then(|| {
            format!(
                "a response takes {:.1} periods of this loop, so that a comparison takes {periods:.0} or more; over {LONGEST:.0} \
                 none is made",
                self.pace.lag
            )
        })
    }

    /// Chooses the interval of the next attempt after one that found nothing.
    fn next_share(&mut self, comparison: &Comparison, verdict: Verdict) {
        let is_dear = verdict == Verdict::TooDear || comparison.mean().is_some_and(|mean| mean > DEAR);
        let tried = self
            .load
            .response()
            .map_or(self.share, |response| comparison.other / response);
        let next = tried * if is_dear { AFTER_DEAR } else { AFTER_EQUAL };
        self.share = match next >= SHARES.0 && next <= SHARES.1 {
            true => next,
            false => self.tuning.first_share,
        };
    }

    fn wait(&mut self, why: impl Into<Why>) {
        self.load.settle();
        let most = f64::from(self.tuning.max_retry_periods);
        let stretched = (f64::from(self.retry) * self.pace.stretch).min(most);
        self.phase = Phase::Wait((stretched as u32).max(self.retry), why.into());
        self.retry = self.retry.saturating_mul(2).min(self.tuning.max_retry_periods);
    }

    /// Goes on after a comparison.
    fn conclude(&mut self, comparison: &Comparison, verdict: Verdict) -> Option<Reason> {
        let (from, to) = (comparison.base * 1e3, comparison.other * 1e3);
        if let Verdict::Better(share) = verdict {
            if comparison.way == Move::Off {
                // What cost more here was too long.
                self.next_share(comparison, Verdict::TooDear);
            }
            self.take(comparison.other);
            self.gain = match comparison.way {
                Move::Off => 0.0,
                _ if comparison.base <= self.none() => share,
                _ => self.gain + share,
            };
            self.retry = self.tuning.retry_periods;
            let text = format!("{to:.0} ms costs {:.1} % less than {from:.0} ms", share * 100.0);
            let numbers = [("interval_ms", to), ("gain", share)];
            // Back to where it came from is known to be worse.
            (self.way, self.tried) = match comparison.way {
                Move::Up if comparison.base <= self.none() => (Move::Up, vec![Move::Off]),
                Move::Up => (Move::Up, vec![Move::Down]),
                Move::Down => (Move::Down, vec![Move::Up]),
                Move::Off => (Move::Up, Vec::new()),
            };
            if comparison.way == Move::Off {
                self.remembered = None;
                self.wait(format!(
                    "no batches cost {:.1} % less than {from:.0} ms",
                    share * 100.0
                ));
            } else {
                self.phase = Phase::Wait(0, OBSERVES);
            }
            return Some(reason("seek-moved", text, &numbers));
        }
        let why = comparison.why(verdict);
        if self.is_off() {
            match self.remembered.take() {
                Some(_) => self.share = self.tuning.first_share,
                None => self.next_share(comparison, verdict),
            }
            self.wait(why);
        } else {
            if let (Move::Off, Some(mean)) = (comparison.way, comparison.mean()) {
                self.gain = mean.max(0.0);
                self.is_undoubted = mean > UNDOUBTED;
            }
            self.tried.push(comparison.way);
            self.phase = Phase::Wait(0, why.into());
        }
        None
    }

    /// Shortens an interval with which the SLO is missed or nearly so.
    fn keep_slo(&mut self) -> Option<Reason> {
        let limit = self.limit()?;
        if self.interval <= limit {
            return None;
        }
        let before = self.interval;
        let high = self.late.high()?;
        let shorter = self.bounds.fit(Seconds::new(limit)).get();
        let least = self.none() + LEAST_S.max(LEAST_SHARE * before);
        self.take(if shorter < least { self.none() } else { shorter });
        (self.gain, self.is_undoubted) = (0.0, false);
        self.phase = Phase::Wait(0, OBSERVES);
        self.tried.clear();
        let text = format!(
            "from {:.0} to {:.0} ms: the percentile reaches {:.0} ms of {:.0} ms",
            before * 1e3,
            self.interval * 1e3,
            high * 1e3,
            self.target * 1e3
        );
        let numbers = [
            ("interval_ms", self.interval * 1e3),
            ("percentile_ms", high * 1e3),
        ];
        Some(reason("seek-slo", text, &numbers))
    }

    fn step(&mut self, period: &Period) -> (f64, Reason) {
        self.learn(period);
        if let Some(reason) = self.keep_slo() {
            return (self.interval, reason);
        }
        let mut moved = None;
        match &mut self.phase {
            Phase::Compare(comparison) => {
                let verdict = comparison.observe(period, &mut self.ledger, &self.pace, &self.tuning);
                let (comparison, ends) = (comparison.clone(), verdict.is_some());
                if let Some(verdict) = verdict {
                    moved = self.conclude(&comparison, verdict);
                }
                if !ends && self.load.is_another_by(FAR) {
                    // What was measured is of another load.
                    self.seek_anew();
                }
            }
            Phase::Wait(left, _) if *left > 0 => {
                *left -= 1;
                if self.load.is_another_by(ANOTHER_LOAD) {
                    self.seek_anew();
                }
            }
            Phase::Wait(..) => match self.next() {
                Some(_) if let Some(why) = self.endless() => {
                    if !self.is_off() {
                        self.take(self.none());
                        (self.gain, self.is_undoubted) = (0.0, false);
                    }
                    self.wait(why);
                }
                Some(comparison) => {
                    self.load.settle();
                    self.phase = Phase::Compare(comparison);
                }
                None if self.load.response().is_none() || self.limit().is_none() => {}
                None if self.is_off() => self.wait("the SLO leaves no time to hold requests"),
                None => {
                    self.tried.clear();
                    self.wait("neither longer nor shorter is better");
                }
            },
        }
        (self.wanted(), moved.unwrap_or_else(|| self.why()))
    }

    fn seek_anew(&mut self) {
        self.phase = Phase::Wait(0, OBSERVES);
        self.retry = self.tuning.retry_periods;
        self.ratio = self.tuning.ratio;
        self.tried.clear();
        self.share = self.tuning.first_share;
        (self.gain, self.is_undoubted) = (0.0, false);
        self.load = Load::default();
        if !self.is_off() {
            // What was late without batches says nothing of this load.
            self.late_without = Average::default();
        }
    }

    /// The interval that is to be in force.
    fn wanted(&self) -> f64 {
        match &self.phase {
            Phase::Compare(comparison) => comparison.wanted(),
            Phase::Wait(..) => self.interval,
        }
    }
}

impl Law for Seek {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn levers(&self) -> &[Lever] {
        &[Lever::BatchInterval]
    }

    fn decide(&mut self, observation: &Observation) -> Decision {
        let (interval, reason) = match Period::of(observation) {
            Some(period) => self.step(&period),
            None => {
                if observation.traffic.is_none() {
                    self.ledger.lose();
                    if let Phase::Compare(comparison) = &mut self.phase {
                        comparison.lose(&self.pace);
                    }
                }
                let text = "no mean response time was observed: what is known best stays";
                (self.wanted(), reason("seek-unobserved", text.to_owned(), &[]))
            }
        };
        Decision {
            reasons: vec![reason],
            ..Decision::of(Setting::from([(Lever::BatchInterval, interval)]))
        }
    }

    fn forget(&mut self) {
        self.take(self.none());
        (self.gain, self.is_undoubted) = (0.0, false);
        self.load = Load::default();
        (self.last, self.steady, self.lag) = (None, 0, Average::default());
        (self.late, self.late_without) = (Average::default(), Average::default());
        self.phase = Phase::Wait(0, OBSERVES);
        self.tried.clear();
        self.ratio = self.tuning.ratio;
        self.retry = self.tuning.retry_periods;
    }
}
