//! A law of our own for the batch interval: it seeks the one of least cost directly, and holds nothing where that does not help.
//!
//! The cost is the mean response time and, with a small weight, the energy of a request where power is observed. Two intervals are
//! compared in pairs of blocks, one with each, of which a coin of the law's own says the order and the length: what a load does that knows
//! nothing of the coin has an expectation of 0, also where it cycles in step with blocks. While nothing is tried it is seen by how much
//! blocks differ by themselves: they are made long enough for that, and an interval is taken only where it is better by several standard
//! errors of what the load does and of what the pairs say, and is so again when checked anew in longer blocks. It is given up as soon as
//! it cannot be better by enough. What attempts add to the response times is accounted for and bounded by a share of all response times
//! (1 % by default): an attempt waits until that allows it. Batches in force are compared with none now and then, and where they cost
//! more that is owed for all the time since they last were.
//!
//! What is held is seen when it is answered, so a change settles for two mean response times and a block is measured for four or more. An
//! attempt is booked what it adds also in the periods after it; while it lasts what is held and not answered yet counts as it is expected
//! to come, and while it is in doubt that it saves anything no less than what its requests wait for. Where a response is so long that a
//! comparison would take hours, none is made, and nothing is held.
//!
//! It begins without batches. Its first attempt is a short interval, a share of the mean response time; if batches then have nothing to
//! group it ends at once. Where the load is so uneven that a small gain shows in long blocks only, which take a long time to be known and to
//! be afforded, or where that is not known yet, a large one is sought first, in shorter ones. After an attempt that finds nothing the next waits twice as long. Where batches help, the interval grows and
//! shrinks by a ratio, then by its root, and is compared with none now and then. Another load makes it seek anew.
//!
//! While the SLO is kept without batches, the interval is bounded by the time that is left to the target. What periods usually leave is
//! learned of the interval in force, and single slow ones are remembered with whatever interval they came ([`Keep`]). Batches may make the
//! percentile shorter, so where it leaves no time they are tried all the same, at the price of a second over the target in ten minutes; and where
//! the pairs in which an interval was found say by two standard errors that it does, what slow periods leave bounds it no more, as long as
//! the odds that one of them misses the target are no more than twice those without. Where the service mostly misses its target without batches, no interval
//! causes that, and the mean alone decides.

mod averages;
mod block;
mod choose;
mod coin;
mod compare;
mod conclude;
mod explain;
mod ledger;
mod noise;
mod pace;
mod slo;
mod tuning;

pub use tuning::SeekTuning;

use super::bounds::{IntervalBounds, Unread, there};
use super::keep::Keep;
use super::long_look::{Gate, LongLook};
use crate::decision::{Decision, Reason};
use crate::law::Law;
use crate::observation::Observation;
use crate::parameter::Parameters;
use crate::plant::{Plant, Slo};
use crate::registry::LawError;
use averages::{Average, Load};
use block::{Block, Period, is_in_force};
use coin::Coin;
use compare::{Comparison, Means, Move, Verdict};
use explain::{OBSERVES, Why, reason};
use headroom_units::{Lever, LeverRange, Seconds, Setting};
use ledger::Ledger;
use noise::{LONGEST_SCALE, Noise, Scale};
use pace::Pace;

/// The shortest and the longest interval of an attempt, as shares of the mean response time, beyond which the first is tried again.
const SHARES: (f64, f64) = (0.03, 1.0);
/// Comparisons of other intervals after which the next one is with none.
const JUDGED: u32 = 4;
/// Intervals below this many seconds, or this share of the mean response time, are none.
const LEAST_S: f64 = 0.001;
const LEAST_SHARE: f64 = 0.02;

/// A rate or a mean response time that differs by this factor is another load; one that differs by the second ends a comparison that waits.
const ANOTHER_LOAD: f64 = 1.25;
const FAR: f64 = 2.0;
/// While batches are in force, what longer ones save by and by is sought once waits are so many times as long as the first.
const SETTLED: u32 = 4;
/// The same within a comparison, where what was held still drains now and then.
const OUTLASTED: f64 = 3.0;

/// What it says while it looks at none for the SLO.
const LOOKS: &str = "no batches, to see whether the SLO is kept without them";

/// What it does.
#[derive(Clone, Debug)]
enum Phase {
    /// The interval stays for so many periods.
    Wait(u32, Why),
    /// It compares.
    Compare(Box<Comparison>),
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
    /// The interval of the next attempt with none in force, as a share of the mean response time: of one in blocks that settle for what is in
    /// flight, and of one in patient blocks.
    shares: [f64; 2],
    /// Whether what is compared is compared in patient blocks, and whether the present interval was found in such.
    is_patient: bool,
    holds_patiently: bool,
    /// Whether a large gain is to be sought first, in blocks that are no longer than that asks for.
    seeks_large: bool,
    retry: u32,
    /// How much the present interval was found to save against none, as a share.
    gain: f64,
    /// That was found by trying none at this load, and is much.
    is_undoubted: bool,
    /// By how much the percentile is longer with the present interval than with none, as a logarithm, as far as that is believed.
    later: f64,
    /// Comparisons of other intervals since that was found.
    unjudged: u32,
    /// Periods with batches since then.
    since_judged: u32,
    load: Load,
    unread: Unread,
    /// The interval that was in force last, and for how many periods before that.
    last: Option<f64>,
    steady: u32,
    /// Mean response time in periods, with whatever interval is in force, and what follows from it.
    lag: Average,
    pace: Pace,
    /// What the load alone does to a pair of blocks, and how long they are for that; `None` while it is not known.
    noise: Noise,
    scale: Option<Scale>,
    coin: Coin,
    /// The SLO's percentile with the present interval, and with none.
    late: Average,
    late_without: Average,
    /// What single slow periods leave, and how many came in a row.
    keep: Keep,
    slow_run: u32,
    /// Whether what batches save lasts.
    looks: LongLook,
    /// After a comparison that came to no end: what a response takes without it, to book what it added.
    booked: Option<Block>,
}

impl Seek {
    const NAME: &'static str = "seek";

    /// The law for an SLO and a plant.
    ///
    /// # Errors
    /// A parameter outside its range, an interval bound above the target, a plant without the lever.
    pub fn new(slo: Slo, plant: Plant, tuning: SeekTuning) -> Result<Self, LawError> {
        let bounds = Self::bounds(slo, plant.range(Lever::BatchInterval), &tuning)?;
        Ok(Self {
            target: slo.target().get(),
            looks: LongLook::new(bounds.least, slo.target(), Seconds::new(tuning.look_s)),
            keep: Keep::of_slow_periods(slo.target(), (bounds.least, bounds.most)),
            bounds,
            slow_run: 0,
            booked: None,
            ledger: Ledger::default(),
            phase: Phase::Wait(0, OBSERVES),
            interval: bounds.least.get(),
            remembered: None,
            ratio: tuning.ratio,
            way: Move::Up,
            tried: Vec::new(),
            shares: [tuning.first_share; 2],
            is_patient: false,
            holds_patiently: false,
            seeks_large: true,
            retry: tuning.retry_periods,
            gain: 0.0,
            is_undoubted: false,
            later: 0.0,
            unjudged: 0,
            since_judged: 0,
            load: Load::default(),
            unread: Unread::default(),
            last: None,
            steady: 0,
            lag: Average::default(),
            pace: Pace::of(0.0, &tuning),
            noise: Noise::default(),
            scale: None,
            coin: Coin::new(tuning.seed),
            late: Average::default(),
            late_without: Average::default(),
            tuning,
        })
    }

    /// Between which intervals it seeks, where the lever has this range.
    ///
    /// # Errors
    /// A parameter outside its range or the lever's, a lever that is not there.
    fn bounds(slo: Slo, range: Option<LeverRange>, tuning: &SeekTuning) -> Result<IntervalBounds, LawError> {
        tuning.check().map_err(LawError::of(Self::NAME))?;
        let asked = (0.0, tuning.max_interval_ms);
        IntervalBounds::new(there(range, Self::NAME)?, slo.target(), asked, Self::NAME)
    }

    /// All that it could not be built with, where the lever has this range.
    pub(crate) fn objections(slo: Slo, range: Option<LeverRange>, tuning: &SeekTuning) -> Vec<LawError> {
        let asked = (0.0, tuning.max_interval_ms);
        match there(range, Self::NAME) {
            Ok(range) => IntervalBounds::judged(range, slo.target(), asked, Self::NAME).1,
            Err(error) => vec![error],
        }
    }

    /// The least interval, which is none in effect.
    fn none(&self) -> f64 {
        self.bounds.least.get()
    }

    fn is_off(&self) -> bool {
        self.interval <= self.none()
    }

    fn learn(&mut self, period: &Period) {
        let answered = period.answers > 0.0;
        if answered {
            let lag = period.response / period.length;
            self.lag.push_over(self.pace.lag, lag);
        }
        self.pace = Pace::of(self.lag.mean().unwrap_or(0.0), &self.tuning);
        let pace = self.scaled();
        self.ledger.observe(period, &pace);
        if !self.is_off() && !is_in_force(period.interval, self.none()) {
            self.ledger.hold(period, self.gain);
        }
        let is_settled = self.follow(period);
        // After patient blocks what an interval has changed by and by is still there.
        let is_quiet = self.steady >= self.scaled().settle;
        self.book(period, is_settled);
        if is_settled {
            self.learn_settled(period, is_quiet);
        }
        if is_quiet && is_in_force(period.interval, self.interval) {
            self.noise.push(period, &self.pace, self.tuning.energy_weight);
        } else {
            self.noise.interrupt();
        }
        self.pace.requests = self.load.rate().unwrap_or(0.0) * period.length;
    }

    /// A comparison comes to no end. What its last block added is known once it is seen what a response takes without it: the load may have
    /// made the difference.
    fn give_up(&mut self) {
        self.booked = Some(Block::after(0));
    }

    fn book(&mut self, period: &Period, is_settled: bool) {
        let Some(block) = &mut self.booked else {
            return;
        };
        if is_settled && is_in_force(period.interval, self.interval) {
            block.push(period);
        }
        if let Some(outcome) = block.outcome(self.pace.measured) {
            self.ledger.compared_late(outcome.response);
            self.booked = None;
        }
    }

    /// Learns what a period says of the SLO, whoever asked for the interval in force; whether what is answered was held with that.
    fn follow(&mut self, period: &Period) -> bool {
        let stays = self.last.is_some_and(|last| is_in_force(period.interval, last));
        self.steady = if stays { self.steady.saturating_add(1) } else { 0 };
        self.last = period.interval;
        // Before it is settled, what is answered was in part held as before.
        let is_settled = self.steady >= self.pace.settle;
        self.observe_slow(period, is_settled);
        if is_settled {
            self.learn_late(period);
        }
        is_settled
    }

    fn learn_settled(&mut self, period: &Period, is_quiet: bool) {
        if is_quiet && is_in_force(period.interval, self.interval) {
            // Where the load differs from block to block, that is not yet another load.
            let spans = match self.scale {
                Some(scale) if scale.seeks_large => self.pace.scaled(LONGEST_SCALE).block(),
                Some(scale) if scale.times > 1 => self.scaled().block(),
                _ => self.pace.lag,
            };
            self.load.push(period, spans);
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
            self.later = 0.0;
            (self.is_patient, self.holds_patiently) = (false, false);
        }
        self.load.forget_response();
    }

    fn step(&mut self, period: &Period) -> (f64, Reason) {
        self.learn(period);
        self.since_judged = match self.is_off() {
            true => 0,
            false => self.since_judged.saturating_add(1),
        };
        // What is missed without batches ends with its cause, and while it is, nothing bounds them.
        if !self.is_off() && self.keep.looks_again() {
            self.interrupt();
            return (self.none(), self.look(LOOKS.to_owned()));
        }
        if let Some(reason) = self.keep_slo(period) {
            return (self.interval, reason);
        }
        let mut moved = None;
        let long_unjudged = self.is_long_unjudged();
        let slow = self.slow_limit();
        match &mut self.phase {
            Phase::Compare(comparison)
                if comparison.longest() > slow && !is_in_force(Some(slow), comparison.longest()) =>
            {
                let comparison = comparison.clone();
                moved = self.conclude(&comparison, Verdict::MissesSlo(slow));
            }
            Phase::Compare(comparison)
                if long_unjudged && comparison.is_patient() && !self.holds_patiently =>
            {
                self.is_patient = false;
                self.tried.retain(|way| *way != Move::Off);
                self.phase = Phase::Wait(0, OBSERVES);
            }
            Phase::Compare(comparison) => {
                let mut means = Means {
                    ledger: &mut self.ledger,
                    coin: &mut self.coin,
                    pace: &self.pace,
                    tuning: &self.tuning,
                };
                let verdict = comparison.observe(period, &mut means);
                let comparison = comparison.clone();
                match verdict {
                    Some(verdict) => moved = self.conclude(&comparison, verdict),
                    None if comparison.waits() && self.load.is_another_by(FAR) => self.seek_anew(),
                    None if comparison.is_outlasted(OUTLASTED) => self.seek_anew(),
                    None => {}
                }
            }
            Phase::Wait(left, _) if *left > 0 => {
                *left -= 1;
                if long_unjudged {
                    *left = 0;
                    self.tried.retain(|way| *way != Move::Off);
                }
                if self.load.is_another_by(ANOTHER_LOAD) {
                    self.seek_anew();
                }
            }
            Phase::Wait(..) => self.go_on(),
        }
        (self.wanted(), moved.unwrap_or_else(|| self.why()))
    }

    /// Begins what is next, as soon as enough is known.
    fn go_on(&mut self) {
        if self.booked.is_some() {
            return;
        }
        if let Some(why) = self.endless() {
            if !self.is_off() {
                self.take(self.none());
                (self.gain, self.is_undoubted) = (0.0, false);
            }
            return self.wait(why);
        }
        if self.is_off()
            && self.is_patient
            && !self.ledger.owes()
            && let Some(periods) = self.saves_for()
        {
            self.load.settle();
            let why = "the budget for an attempt that shows what batches save by and by comes together";
            self.pause(periods.ceil() as u32, why);
            return;
        }
        match self.next_by_noise() {
            // Where a comparison has outlasted the load.
            Some(_) if self.load.is_another_by(FAR) => self.seek_anew(),
            Some(comparison) => {
                self.load.settle();
                self.phase = Phase::Compare(Box::new(comparison));
            }
            None if !self.is_known() => {}
            None if self.is_off() => {
                // Nothing was tried that found nothing.
                let why = self.why_none();
                self.load.settle();
                self.pause(self.stretched(), why);
            }
            None => {
                self.tried.clear();
                self.wait("neither longer nor shorter is better");
                // What was found in patient blocks is not seen in others.
                let is_settled = self.retry >= self.tuning.retry_periods.saturating_mul(SETTLED);
                self.is_patient = self.holds_patiently || (!self.is_patient && is_settled);
                if self.is_patient && !self.holds_patiently {
                    // What is sought then is what a longer interval saves by and by.
                    self.tried = vec![Move::Down, Move::Off];
                }
            }
        }
    }

    fn seek_anew(&mut self) {
        if let Phase::Compare(_) = self.phase {
            self.give_up();
        }
        self.phase = Phase::Wait(0, OBSERVES);
        self.retry = self.tuning.retry_periods;
        self.ratio = self.tuning.ratio;
        self.tried.clear();
        self.shares = [self.tuning.first_share; 2];
        (self.gain, self.is_undoubted) = (0.0, false);
        self.is_patient = self.holds_patiently && !self.is_off();
        self.seeks_large = true;
        self.ledger.settle();
        self.unjudged = JUDGED;
        self.load = Load::default();
        if !self.is_off() {
            // What was late without batches says nothing of this load.
            self.later = 0.0;
            self.late_without = Average::default();
            self.keep.forget_without();
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
        let gate = self.looks.gate(observation, !self.is_off());
        match &gate {
            Gate::Anew => self.begin_anew(),
            Gate::Condemned(more, _) => {
                // None costs so much less; and what was held is not what helped.
                self.ledger.judge(-more);
                self.take(self.none());
                (self.gain, self.is_undoubted, self.remembered) = (0.0, false, None);
                self.phase = Phase::Wait(0, OBSERVES);
            }
            _ => {}
        }
        let is_unread = self.unread.observe(observation) && !self.is_off();
        if is_unread {
            self.begin_anew();
        }
        let gate = match gate {
            Gate::Open if is_unread => Gate::Closed(Unread::WORDS.to_owned()),
            gate => gate,
        };
        let (interval, reason) = match (gate, Period::of(observation)) {
            (Gate::Closed(text) | Gate::Condemned(_, text), period) => {
                self.interrupt();
                if let Some(period) = period {
                    self.follow(&period);
                }
                (self.none(), self.look(text))
            }
            (_, Some(period)) => self.step(&period),
            (_, None) => {
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
        self.begin_anew();
        self.looks.lose();
    }
}

impl Seek {
    /// The reason for none while an interval is to be in force again.
    fn look(&self, text: String) -> Reason {
        reason("seek-look", text, &[("interval_ms", self.none() * 1e3)])
    }

    /// Nothing is in force that it asked for.
    fn interrupt(&mut self) {
        self.noise.interrupt();
        if let Phase::Compare(comparison) = &mut self.phase {
            comparison.interrupt();
        }
    }

    /// It begins without batches, and knows nothing of the load.
    fn begin_anew(&mut self) {
        self.ledger.settle();
        self.take(self.none());
        (self.gain, self.is_undoubted) = (0.0, false);
        (self.load, self.noise) = (Load::default(), Noise::default());
        (self.last, self.steady, self.lag, self.scale) = (None, 0, Average::default(), None);
        (self.shares, self.way, self.unjudged) = ([self.tuning.first_share; 2], Move::Up, 0);
        (self.late, self.late_without) = (Average::default(), Average::default());
        self.phase = Phase::Wait(0, OBSERVES);
        self.tried.clear();
        self.ratio = self.tuning.ratio;
        self.retry = self.tuning.retry_periods;
        (self.is_patient, self.holds_patiently, self.seeks_large) = (false, false, true);
        (self.booked, self.slow_run) = (None, 0);
    }
}
