//! The comparison of an interval with the one in force, in alternating blocks, and what it may cost.

use super::block::{Block, Outcome, Period, difference, is_in_force, student};
use super::ledger::Ledger;
use super::pace::Pace;
use super::tuning::{MIN_PAIRS, SeekTuning};

/// Which way the other interval lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// Longer.
    Up,
    /// Shorter, and not none.
    Down,
    /// None.
    Off,
}

/// What a comparison came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// The other interval is better, by about this share.
    Better(f64),
    /// It is not, or not by enough to go on.
    NotBetter(f64),
    /// Batches have groups of this size: nothing to group.
    NothingToGroup(f64),
    /// It costs more than may be spent.
    TooDear,
    /// The gateway does not do what it is asked to.
    NotFollowed,
}

/// Periods in a row in which the gateway may have another interval in force than the one asked for.
const PATIENCE: u32 = 20;
/// Requests in batches from which on their groups say something.
const ENOUGH_BATCHED: u64 = 20;
/// An interval that costs so much more, as a logarithm, is measured no further.
const HOPELESS: f64 = 0.3;
/// So many more standard errors must speak for holding requests at all: it is compared with none over and over, and one error in all of these
/// would cost until the next comparison with none.
const SURER: f64 = 0.8;
/// A block that differs so much from the one before it, as a logarithm, is measured no further.
const PLAIN: f64 = 0.6;
/// The part of a block's periods that may be lost; of short ones none.
const LOST: f64 = 0.125;
/// What is expected of the blocks without any batches, before one was measured: so much more response time.
const UNKNOWN: f64 = 0.1;

/// A comparison in the making: a block with the present interval, one with the other, and so on. Each of the other's is measured against
/// the blocks before and after it.
#[derive(Clone, Debug)]
pub(super) struct Comparison {
    pub(super) base: f64,
    pub(super) other: f64,
    pub(super) way: Move,
    /// Whether the other is to be in force.
    pub(super) tries: bool,
    block: Block,
    before: Option<Outcome>,
    tried: Option<Outcome>,
    pub(super) differences: Vec<f64>,
    /// Periods of the block in which the other was in force.
    held: u32,
    /// Periods of the block that were lost.
    lost: u32,
    /// Whether the other was ever to be in force.
    has_tried: bool,
    /// Whether nothing is held without the other.
    holds_first: bool,
    batched: (u64, u64),
    looked: bool,
    astray: u32,
}

impl Comparison {
    /// Begins after so many periods that do not count.
    pub(super) fn new(base: f64, other: f64, way: Move, settle: u32) -> Self {
        let holds_first = way == Move::Up && base <= 0.0;
        Self {
            base,
            other,
            way,
            tries: false,
            block: Block::after(settle),
            before: None,
            tried: None,
            differences: Vec::new(),
            held: 0,
            lost: 0,
            has_tried: false,
            holds_first,
            batched: (0, 0),
            looked: !holds_first,
            astray: 0,
        }
    }

    /// The interval that is to be in force.
    pub(super) const fn wanted(&self) -> f64 {
        if self.tries { self.other } else { self.base }
    }

    /// A period was lost. Where that is more than a small part of its block, the block and those that it stands between begin anew.
    pub(super) fn lose(&mut self, pace: &Pace) {
        self.lost += 1;
        if f64::from(self.lost) > LOST * f64::from(pace.measured) {
            self.tries = false;
            self.begin_block(pace.settle);
            (self.before, self.tried) = (None, None);
        }
    }

    fn begin_block(&mut self, settle: u32) {
        self.block = Block::after(settle);
        (self.held, self.lost) = (0, 0);
    }

    /// Takes a period, and says what it all comes to where that is known.
    pub(super) fn observe(
        &mut self,
        period: &Period,
        ledger: &mut Ledger,
        pace: &Pace,
        tuning: &SeekTuning,
    ) -> Option<Verdict> {
        if !is_in_force(period.interval, self.wanted()) {
            self.block = Block::after(pace.settle);
            self.astray += 1;
            return (self.astray > PATIENCE).then_some(Verdict::NotFollowed);
        }
        self.astray = 0;
        self.block.push(period);
        if self.tries {
            self.held += 1;
            if let Some(verdict) = self.look(period, tuning) {
                return Some(verdict);
            }
            if !ledger.allows(self.unseen(pace), tuning.budget) {
                return Some(Verdict::TooDear);
            }
        }
        // The response time may have become another since the block began.
        let outcome = match self.plain(pace, tuning) {
            Some(outcome) => outcome,
            None => self.block.outcome(pace.measured)?,
        };
        if self.tries {
            self.tried = Some(outcome);
            self.tries = false;
            self.begin_block(pace.settle);
            return None;
        }
        let before = self.before.replace(outcome);
        if let Some((tried, before)) = self.tried.take().zip(before) {
            ledger.close(Some((before.response * outcome.response).sqrt()));
            let one = difference(&tried, &before, &outcome, tuning.energy_weight);
            self.differences.push(one);
            if let Some(verdict) = self.verdict(tuning) {
                return Some(verdict);
            }
        }
        // All of a block's requests are held, whenever they are answered.
        let expected = self.each() * pace.requests * pace.block();
        self.tries = ledger.allows(expected, tuning.budget);
        self.begin_block(if self.tries { pace.settle } else { 0 });
        if self.tries {
            ledger.open(self.other, outcome.response, pace, !self.has_tried);
            self.has_tried = true;
        }
        None
    }

    /// What the block was like up to now, where that is so far from the one before it that its rest need not be seen.
    fn plain(&self, pace: &Pace, tuning: &SeekTuning) -> Option<Outcome> {
        let previous = if self.tries { self.before } else { self.tried };
        let outcome = self.block.outcome(tuning.block_periods.max(pace.answered()))?;
        let more = (outcome.response / previous?.response).ln();
        let is_plain = more.abs() > PLAIN || (self.tries && more > HOPELESS);
        is_plain.then_some(outcome)
    }

    /// Whether batches have anything to group, as soon as there are some.
    fn look(&mut self, period: &Period, tuning: &SeekTuning) -> Option<Verdict> {
        if self.looked {
            return None;
        }
        let (requests, groups) = period.batched?;
        self.batched.0 += requests;
        self.batched.1 += groups;
        let (requests, groups) = self.batched;
        if requests < ENOUGH_BATCHED || groups == 0 {
            return None;
        }
        self.looked = true;
        let size = requests as f64 / groups as f64;
        (size < tuning.least_group).then_some(Verdict::NothingToGroup(size))
    }

    /// What the other interval is expected to add to a request: what the last blocks did; before them half of what it is held for longer.
    fn each(&self) -> f64 {
        let usual = self.before.map_or(0.0, |before| before.response);
        let each = match self.mean() {
            Some(mean) => mean * usual,
            None if self.way == Move::Off => UNKNOWN * usual,
            None => (self.other - self.base) * 0.5,
        };
        each.max(0.0)
    }

    /// What the requests that are held and not answered yet are expected to add: as much as those that are answered, where these are many
    /// enough to tell.
    fn unseen(&self, pace: &Pace) -> f64 {
        let seen = self
            .block
            .outcome((pace.lag.ceil() as u32).max(1))
            .zip(self.before);
        let each = seen.map_or(0.0, |(seen, before)| seen.response - before.response);
        each.max(self.each()) * pace.requests * f64::from(self.held).min(pace.lag)
    }

    /// How much more the other costs, as far as is known.
    pub(super) fn mean(&self) -> Option<f64> {
        let count = self.differences.len();
        (count > 0).then(|| self.differences.iter().sum::<f64>() / count as f64)
    }

    fn verdict(&self, tuning: &SeekTuning) -> Option<Verdict> {
        let (mean, count) = (self.mean()?, self.differences.len() as f64);
        if self.differences.len() < MIN_PAIRS as usize {
            return (mean > HOPELESS).then_some(Verdict::NotBetter(-mean));
        }
        let squares: f64 = self.differences.iter().map(|one| (one - mean).powi(2)).sum();
        let error = (squares / (count - 1.0) / count).sqrt();
        let bound = |errors: f64| student(errors, count - 1.0) * error;
        let surer = if self.holds_first { SURER } else { 0.0 };
        if mean + bound(tuning.significance + surer) < 0.0 {
            return Some(Verdict::Better(-mean));
        }
        if mean - bound(tuning.significance) > -tuning.least_gain {
            return Some(Verdict::NotBetter(-mean));
        }
        if self.differences.len() < tuning.max_pairs as usize {
            return None;
        }
        // Requests are not held for longer than is known to help.
        Some(match self.way != Move::Up && mean <= 0.0 {
            true => Verdict::Better(-mean),
            false => Verdict::NotBetter(-mean),
        })
    }
}
