//! The comparison of an interval with the one in force, in alternating blocks, and what it may cost.

use super::block::{Block, Outcome, Period, difference, is_in_force, student};
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

/// All response times, what attempts added to them, and what batches saved, in seconds times requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ledger {
    pub(super) total: f64,
    pub(super) spent: f64,
    pub(super) saved: f64,
}

/// The share of what batches were found to save that may be spent on finding better ones.
const REINVESTED: f64 = 0.25;

impl Ledger {
    /// What may still be spent.
    pub(super) fn left(&self, budget: f64) -> f64 {
        self.total * budget + self.saved * REINVESTED - self.spent
    }

    /// Whether so much more may be spent.
    pub(super) fn allows(&self, more: f64, budget: f64) -> bool {
        more <= self.left(budget)
    }
}

/// Periods in a row in which the gateway may have another interval in force than the one asked for.
const PATIENCE: u32 = 20;
/// Requests in batches from which on their groups say something.
const ENOUGH_BATCHED: u64 = 20;
/// An interval that costs so much more, as a logarithm, is measured no further.
const HOPELESS: f64 = 0.3;
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
    /// What it added to the response times up to now; below 0 where it saves.
    added: f64,
    batched: (u64, u64),
    looked: bool,
    astray: u32,
    /// Requests answered in a period, in the last block.
    answers: f64,
}

impl Comparison {
    pub(super) fn new(base: f64, other: f64, way: Move) -> Self {
        Self {
            base,
            other,
            way,
            tries: false,
            block: Block::after(0),
            before: None,
            tried: None,
            differences: Vec::new(),
            added: 0.0,
            batched: (0, 0),
            looked: way != Move::Up || base > 0.0,
            astray: 0,
            answers: 0.0,
        }
    }

    /// The interval that is to be in force.
    pub(super) const fn wanted(&self) -> f64 {
        if self.tries { self.other } else { self.base }
    }

    /// What it has spent: response times that were saved count as nothing spent.
    pub(super) fn spent(&self) -> f64 {
        self.added.max(0.0)
    }

    /// A period was lost: the block that it was in, and those that it stood between, begin anew.
    pub(super) fn lose(&mut self, tuning: &SeekTuning) {
        self.tries = false;
        self.block = Block::after(tuning.settle_periods);
        (self.before, self.tried) = (None, None);
    }

    /// Takes a period, and says what it all comes to where that is known.
    pub(super) fn observe(
        &mut self,
        period: &Period,
        ledger: &Ledger,
        tuning: &SeekTuning,
    ) -> Option<Verdict> {
        if !is_in_force(period.interval, self.wanted()) {
            self.block = Block::after(tuning.settle_periods);
            self.astray += 1;
            return (self.astray > PATIENCE).then_some(Verdict::NotFollowed);
        }
        self.astray = 0;
        if self.tries {
            let usual = self.before.map_or(period.response, |before| before.response);
            self.added += period.answers * (period.response - usual);
            if let Some(verdict) = self.look(period, tuning) {
                return Some(verdict);
            }
            if !ledger.allows(self.spent(), tuning.budget) {
                return Some(Verdict::TooDear);
            }
        }
        self.answers = period.answers;
        let outcome = self.block.push(period, tuning.block_periods)?;
        if self.tries {
            self.tried = Some(outcome);
            self.tries = false;
            self.block = Block::after(tuning.settle_periods);
            return None;
        }
        let before = self.before.replace(outcome);
        if let Some((tried, before)) = self.tried.take().zip(before) {
            let one = difference(&tried, &before, &outcome, tuning.energy_weight);
            self.differences.push(one);
            if let Some(verdict) = self.verdict(tuning) {
                return Some(verdict);
            }
        }
        self.tries = ledger.allows(self.spent() + self.expected(tuning), tuning.budget);
        self.block = Block::after(if self.tries { tuning.settle_periods } else { 0 });
        None
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

    /// What another block of the other interval is expected to add: what the last ones did; before them half of what requests are held
    /// for longer.
    fn expected(&self, tuning: &SeekTuning) -> f64 {
        let usual = self.before.map_or(0.0, |before| before.response);
        let each = match self.mean() {
            Some(mean) => mean * usual,
            None if self.way == Move::Off => UNKNOWN * usual,
            None => (self.other - self.base) * 0.5,
        };
        let periods = tuning.settle_periods + tuning.block_periods;
        each.max(0.0) * self.answers * f64::from(periods)
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
        let bound = student(tuning.significance, count - 1.0) * error;
        if mean + bound < 0.0 {
            return Some(Verdict::Better(-mean));
        }
        if mean - bound > -tuning.least_gain {
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
