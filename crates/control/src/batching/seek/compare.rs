//! The comparison of an interval with the one in force, in pairs of blocks, and what it may cost.
//!
//! A pair is a block with each of the two, as long as each other. The coin says which comes first, and how long they are. Both settle for
//! as long, changed or not, and both may end early by the same rule: where holding requests changes nothing, all of a pair but its sign is
//! what the load makes it, and the sign is the coin's. So its expectation is 0 under any load that does not know the coin.

use super::block::{Block, Outcome, Period, difference, is_in_force, student};
use super::coin::Coin;
use super::ledger::Ledger;
use super::noise::{LARGE_GAIN, Scale};
use super::pace::{CHECKS, Pace, SEARCHES};
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
    /// Slow periods leave no more than this to the SLO's target, in seconds.
    MissesSlo(f64),
}

/// Periods in a row in which the gateway may have another interval in force than the one asked for.
const ASTRAY: u32 = 20;
/// Requests in batches from which on their groups say something.
const ENOUGH_BATCHED: u64 = 20;
/// An interval that costs so much more, as a logarithm, is measured no further, and one that costs so much less but once again.
const HOPELESS: f64 = 0.3;
/// So many more standard errors must speak for holding requests at all: it is compared with none over and over, and one error in all of these
/// would cost until the next comparison with none.
const SURER: f64 = 0.8;
/// A block that differs so much from the other of its pair, as a logarithm, is measured no further.
const PLAIN: f64 = 0.6;
/// Standard errors by which a gain must fall short of a large one to be sought in longer blocks.
const UNLIKELY: f64 = 1.7;
/// So many times what the load does to a block tell more than that.
const CERTAIN: f64 = 3.0;
/// Standard errors by which the percentile must be shorter to believe that batches make it so.
const EASED: f64 = 2.0;
/// A patient pair takes long: between two intervals that hold requests so many times fewer decide.
const PATIENT_PAIRS: u32 = 3;
/// The part of a block's periods that may be lost; of short ones none.
const LOST: f64 = 0.125;
/// Periods, or blocks where these are more, that a pair may wait until the budget allows it.
const WAITS: (f64, f64) = (240.0, 16.0);

/// The mean of two or more, and its standard error.
fn mean_and_error(of: &[f64]) -> (f64, f64) {
    let count = of.len() as f64;
    let mean = of.iter().sum::<f64>() / count;
    let squares: f64 = of.iter().map(|one| (one - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0) / count).sqrt())
}

/// What a comparison is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// To find a gain.
    Search,
    /// To see whether there is one where it was found: all anew, in longer blocks.
    Check,
}

/// Two blocks in the making, one with each interval.
#[derive(Clone, Debug)]
struct Pair {
    /// Whether the other interval is in force first.
    tries_first: bool,
    /// Both are measured for so many times the fewest periods.
    share: f64,
    /// What the first was like, once it is over, and its percentile.
    first: Option<(Outcome, f64)>,
    block: Block,
}

/// What a comparison goes by in a period.
pub(super) struct Means<'a> {
    pub(super) ledger: &'a mut Ledger,
    pub(super) coin: &'a mut Coin,
    /// With the shortest blocks.
    pub(super) pace: &'a Pace,
    pub(super) tuning: &'a SeekTuning,
}

/// A comparison in the making.
#[derive(Clone, Debug)]
pub(super) struct Comparison {
    pub(super) base: f64,
    pub(super) other: f64,
    pub(super) way: Move,
    pub(super) stage: Stage,
    scale: Scale,
    /// `None` while the budget for the next comes together.
    pair: Option<Pair>,
    /// Periods that it has waited for that.
    waited: u32,
    /// Mean response time with the present interval, when that was last known.
    usual: f64,
    /// The same when it began.
    usual_first: f64,
    /// How much more the other cost, pair by pair.
    pub(super) differences: Vec<f64>,
    /// By how much its percentile was longer, as a logarithm, of every pair: of those of the search that it checks too.
    lates: Vec<f64>,
    /// The sum of the differences in the search that it checks, and their number.
    found: (f64, u32),
    /// Periods of the block in which the other was in force.
    held: u32,
    /// Periods of the block that were lost.
    lost: u32,
    /// Whether the other was ever to be in force.
    has_tried: bool,
    /// Whether nothing is held without the other.
    holds_first: bool,
    /// Whether every pair of the search that it checks told of a gain.
    found_plainly: bool,
    batched: (u64, u64),
    looked: bool,
    astray: u32,
}

impl Comparison {
    /// A search, where responses usually take `usual` seconds.
    pub(super) fn new(base: f64, other: f64, way: Move, usual: f64, scale: Scale) -> Self {
        let holds_first = way == Move::Up && base <= 0.0;
        Self {
            base,
            other,
            way,
            stage: Stage::Search,
            scale,
            pair: None,
            waited: 0,
            usual,
            usual_first: usual,
            differences: Vec::new(),
            lates: Vec::new(),
            found: (0.0, 0),
            held: 0,
            lost: 0,
            has_tried: false,
            holds_first,
            found_plainly: false,
            batched: (0, 0),
            looked: !holds_first,
            astray: 0,
        }
    }

    /// The check of what it has found: a comparison of its own, also to the budget.
    pub(super) fn check(&self) -> Self {
        Self {
            stage: Stage::Check,
            found_plainly: self.is_plain_gain(),
            found: (self.differences.iter().sum(), self.differences.len() as u32),
            lates: self.lates.clone(),
            looked: true,
            ..Self::new(self.base, self.other, self.way, self.usual, self.scale)
        }
    }

    /// How long its blocks settle and are measured, by the pace of the shortest.
    fn pace(&self, pace: &Pace) -> Pace {
        self.scale.of(pace)
    }

    /// Whether the other is to be in force.
    fn tries(&self) -> bool {
        let tries = |pair: &Pair| pair.tries_first == pair.first.is_none();
        self.pair.as_ref().is_some_and(tries)
    }

    /// Whether the response time with the present interval is another by this factor than when it began.
    pub(super) fn is_outlasted(&self, factor: f64) -> bool {
        let (one, two) = (self.usual, self.usual_first);
        one.max(two) > factor * one.min(two)
    }

    /// Whether it waits for the budget: with the present interval in force, for longer than responses take.
    pub(super) fn waits(&self) -> bool {
        self.pair.is_none()
    }

    /// Whether its blocks are patient ones, and it does not compare with none.
    pub(super) fn is_patient(&self) -> bool {
        self.scale.is_patient && self.way != Move::Off
    }

    /// The longer of the two.
    pub(super) fn longest(&self) -> f64 {
        self.base.max(self.other)
    }

    /// The interval that is to be in force.
    pub(super) fn wanted(&self) -> f64 {
        if self.tries() { self.other } else { self.base }
    }

    /// A period was lost. Where that is more than a small part of its block, the pair begins anew.
    pub(super) fn lose(&mut self, pace: &Pace) {
        self.lost += 1;
        if f64::from(self.lost) > LOST * f64::from(self.pace(pace).measured) {
            self.interrupt();
        }
    }

    /// Something else is in force for a while: the pair begins anew after that.
    pub(super) fn interrupt(&mut self) {
        self.pair = None;
        (self.held, self.lost) = (0, 0);
    }

    /// Begins a pair where the budget allows that; `None` else, and what it comes to where that takes too long.
    pub(super) fn begin(&mut self, means: &mut Means<'_>) -> Option<Verdict> {
        let pace = self.pace(means.pace);
        let shares = match self.stage {
            Stage::Search => SEARCHES,
            Stage::Check => CHECKS,
        };
        if !self.may(self.each() * pace.requests * pace.holds(shares), means) {
            self.waited += 1;
            let most = WAITS.0.max(WAITS.1 * pace.block());
            return (f64::from(self.waited) > most).then_some(Verdict::TooDear);
        }
        self.waited = 0;
        self.pair = Some(Pair {
            tries_first: means.coin.flip(),
            share: means.coin.between(shares),
            first: None,
            block: Block::after(pace.settle),
        });
        self.enter(means);
        None
    }

    /// A block begins.
    fn enter(&mut self, means: &mut Means<'_>) {
        (self.held, self.lost) = (0, 0);
        if self.tries() {
            let is_new = !self.has_tried;
            let (other, waits) = (self.other, (self.other - self.base) * 0.5);
            means
                .ledger
                .open(other, waits, self.usual, &self.pace(means.pace), is_new);
            self.has_tried = true;
        }
    }

    /// Whether so much more may be spent. To hold nothing may cost nothing: what is held is compared with that also where nothing is left.
    fn may(&self, more: f64, means: &Means<'_>) -> bool {
        (self.way == Move::Off && more <= 0.0) || means.ledger.allows(more, means.tuning.budget)
    }

    /// Takes a period, and says what it all comes to where that is known.
    pub(super) fn observe(&mut self, period: &Period, means: &mut Means<'_>) -> Option<Verdict> {
        let is_followed = is_in_force(period.interval, self.wanted());
        self.astray = if is_followed { 0 } else { self.astray + 1 };
        if self.astray > ASTRAY {
            return Some(Verdict::NotFollowed);
        }
        let (tries, settle) = (self.tries(), self.pace(means.pace).settle);
        let Some(pair) = &mut self.pair else {
            return self.begin(means);
        };
        if !is_followed {
            pair.block = Block::after(settle);
            return None;
        }
        pair.block.push(period);
        if tries {
            self.held += 1;
            if let Some(verdict) = self.look(period, means.tuning) {
                return Some(verdict);
            }
            if self.saves_plainly(means.pace) {
                means.ledger.doubt(false);
            }
            if !self.may(self.unseen(means.pace), means) {
                return Some(Verdict::TooDear);
            }
        }
        let (outcome, is_whole) = self.ended(means)?;
        let pair = self.pair.as_mut()?;
        let before = pair.first.map_or(0.0, |(first, _)| first.response);
        let late = pair.block.late();
        if !tries {
            // A block that ended early, while it was still on its way up from what holding requests had made it, is not the usual.
            let rises = !is_whole && outcome.response > before;
            self.usual = outcome.response.max(if rises { self.usual } else { 0.0 });
        }
        let Some((first, first_late)) = pair.first else {
            (pair.first, pair.block) = (Some((outcome, late)), Block::after(settle));
            self.enter(means);
            return None;
        };
        let (tried, base) = if tries { (outcome, first) } else { (first, outcome) };
        means.ledger.compared(self.usual);
        let one = difference(&tried, &base, means.tuning.energy_weight);
        self.differences.push(one);
        let later = (late / first_late).ln();
        self.lates.push(if tries { later } else { -later });
        self.pair = None;
        means.ledger.doubt(self.mean().is_none_or(|mean| mean >= 0.0));
        match self.verdict(means.tuning) {
            Some(verdict) => Some(verdict),
            None => self.begin(means),
        }
    }

    /// What the block was like, once it is over, and whether it is whole: at its length, which follows the response time, or where it is so
    /// far from the first of its pair that its rest need not be seen.
    fn ended(&self, means: &Means<'_>) -> Option<(Outcome, bool)> {
        let pair = self.pair.as_ref()?;
        let measured = f64::from(self.pace(means.pace).measured) * pair.share;
        if let Some(outcome) = pair.block.outcome(measured as u32) {
            return Some((outcome, true));
        }
        let early = means.tuning.block_periods.max(means.pace.answered());
        let outcome = pair.block.outcome(early)?;
        let more = (outcome.response / pair.first?.0.response).ln();
        (more.abs() > PLAIN.max(CERTAIN * self.scale.shortest)).then_some((outcome, false))
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

    /// What the other interval is expected to add, as a logarithm: what all pairs did, those of the search too. One alone that the load made
    /// dear does not undo what many told.
    fn expected(&self) -> Option<f64> {
        let (sum, count) = self.found;
        let count = f64::from(count) + self.differences.len() as f64;
        (count > 0.0).then(|| (sum + self.differences.iter().sum::<f64>()) / count)
    }

    /// Whether it is expected to save something that is worth measuring.
    pub(super) fn promises(&self, tuning: &SeekTuning) -> bool {
        self.expected().is_some_and(|more| more < -tuning.least_gain)
    }

    /// The same of a request, in seconds, not below 0; before there is a pair half of what it is held for longer.
    fn each(&self) -> f64 {
        let each = match self.expected() {
            Some(more) => more * self.usual,
            None => (self.other - self.base) * 0.5,
        };
        each.max(0.0)
    }

    /// What the requests that are held and not answered yet are expected to add: as much as those that are answered, where these are many
    /// enough to tell.
    fn unseen(&self, pace: &Pace) -> f64 {
        let block = self.pair.as_ref().map(|pair| pair.block);
        let seen = block.and_then(|block| block.outcome(pace.answered()));
        let each = seen.map_or(0.0, |seen| seen.response - self.usual);
        each.max(self.each()) * pace.requests * f64::from(self.held).min(pace.lag)
    }

    /// Whether the block is so much better than usual that the load hardly makes it so.
    fn saves_plainly(&self, pace: &Pace) -> bool {
        let block = self.pair.as_ref().map(|pair| pair.block);
        let seen = block.and_then(|block| block.outcome(pace.measured));
        seen.is_some_and(|seen| (seen.response / self.usual).ln() < -CERTAIN * self.scale.shortest)
    }

    /// How much more the other costs, as far as is known.
    pub(super) fn mean(&self) -> Option<f64> {
        let count = self.differences.len();
        (count > 0).then(|| self.differences.iter().sum::<f64>() / count as f64)
    }

    /// By how much its percentile is longer at the most, as a logarithm, once there are enough pairs to say so.
    pub(super) fn later(&self) -> Option<f64> {
        if self.lates.len() < MIN_PAIRS as usize {
            return None;
        }
        let (mean, error) = mean_and_error(&self.lates);
        let count = self.lates.len() as f64;
        let off = student(EASED, count - 1.0) * error;
        Some(mean + if self.way == Move::Off { -off } else { off })
    }

    /// Whether each pair differs by more, all the same way. Where that is more than the load makes of a pair, the other interval differs, if
    /// not always by as much.
    fn all_exceed(&self, least: f64) -> bool {
        let way = self.mean().unwrap_or(0.0).signum();
        self.differences.iter().all(|one| one * way > least)
    }

    /// Whether it is a gain of which every pair tells.
    fn is_plain_gain(&self) -> bool {
        let least = HOPELESS.max(CERTAIN * self.scale.longer);
        self.mean().is_some_and(|mean| mean < 0.0) && self.all_exceed(least)
    }

    /// How far the mean may be off by so many standard errors: by what its own pairs say, or by what pairs of the load alone do.
    fn off_by(&self, errors: f64) -> f64 {
        let count = self.differences.len() as f64;
        let known = match self.stage {
            Stage::Search => self.scale.spread,
            Stage::Check => self.scale.longer,
        };
        let by_load = errors * known / count.sqrt();
        // Two tell next to nothing of how far pairs are off.
        if self.differences.len() < MIN_PAIRS as usize || self.all_exceed(errors * known) {
            return by_load;
        }
        let (_, error) = mean_and_error(&self.differences);
        by_load.max(student(errors, count - 1.0) * error)
    }

    /// Whether there are enough pairs to say anything. To check what every pair told, one more is enough if it tells the same.
    pub(super) fn is_measured(&self) -> bool {
        let confirms = self.found_plainly && self.is_plain_gain();
        self.differences.len() >= if confirms { 1 } else { MIN_PAIRS as usize }
    }

    fn verdict(&self, tuning: &SeekTuning) -> Option<Verdict> {
        let mean = self.mean()?;
        let bound = self.off_by(tuning.significance);
        let is_not_large = self.seeks_large() && mean - self.off_by(UNLIKELY) > -LARGE_GAIN;
        if !self.is_measured() {
            return (is_not_large || mean - bound > HOPELESS).then_some(Verdict::NotBetter(-mean));
        }
        let is_first = self.holds_first && self.stage == Stage::Search;
        let surer = if is_first { SURER } else { 0.0 };
        if mean + self.off_by(tuning.significance + surer) < 0.0 {
            return Some(Verdict::Better(-mean));
        }
        if is_not_large || mean - bound > -tuning.least_gain {
            return Some(Verdict::NotBetter(-mean));
        }
        let most = match self.scale.is_patient && !self.holds_first {
            true => (tuning.max_pairs / PATIENT_PAIRS).max(MIN_PAIRS),
            false => tuning.max_pairs,
        };
        if self.differences.len() < most as usize {
            return None;
        }
        // Requests are not held for longer than is known to help.
        Some(match self.way != Move::Up && mean <= 0.0 {
            true => Verdict::Better(-mean),
            false => Verdict::NotBetter(-mean),
        })
    }

    /// Whether its blocks are to tell of a large gain only.
    pub(super) fn is_for_large(&self) -> bool {
        self.scale.seeks_large
    }

    /// Whether it looks for a large gain only: what such a one found is checked like any.
    pub(super) fn seeks_large(&self) -> bool {
        self.is_for_large() && self.stage == Stage::Search
    }

    /// Whether it found no large gain, and there may be another.
    pub(super) fn is_undecided(&self, verdict: Verdict, tuning: &SeekTuning) -> bool {
        let may_be = self.least(tuning).is_none_or(|least| least <= -tuning.least_gain);
        self.is_for_large() && matches!(verdict, Verdict::NotBetter(_)) && may_be
    }

    /// By how much the other costs more at the least, as far as it is certain.
    pub(super) fn least(&self, tuning: &SeekTuning) -> Option<f64> {
        self.mean().map(|mean| mean - self.off_by(tuning.significance))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What so many pairs come to, in blocks of which pairs of the load alone differ by so much.
    fn verdict(spread: f64, seeks_large: bool, differences: &[f64]) -> (Option<Verdict>, bool) {
        let scale = Scale {
            times: 1,
            is_patient: false,
            seeks_large,
            spread,
            longer: spread,
            shortest: spread,
        };
        let tuning = SeekTuning::default();
        let mut comparison = Comparison::new(0.0, 0.1, Move::Up, 1.0, scale);
        for (at, one) in differences.iter().enumerate() {
            comparison.differences.push(*one);
            if let Some(verdict) = comparison.verdict(&tuning) {
                assert_eq!(at + 1, differences.len(), "{verdict:?}");
                return (Some(verdict), comparison.is_undecided(verdict, &tuning));
            }
        }
        (None, false)
    }

    #[test]
    fn a_search_for_a_large_gain_ends_as_soon_as_there_hardly_is_one_and_leaves_open_whether_there_is_a_small_one()
     {
        // One pair of the load alone differs by as much.
        assert_eq!(
            verdict(0.2, true, &[0.06]),
            (Some(Verdict::NotBetter(-0.06)), true)
        );
        assert_eq!(verdict(0.2, true, &[-0.06]), (None, false));
        assert_eq!(
            verdict(0.2, true, &[-0.06, 0.0]).0,
            Some(Verdict::NotBetter(0.03))
        );
        assert_eq!(verdict(0.2, false, &[0.06]), (None, false));
        // By what is certain there is none at all.
        let (worse, is_undecided) = verdict(0.05, true, &[0.2]);
        assert!(worse == Some(Verdict::NotBetter(-0.2)) && !is_undecided);
    }

    #[test]
    fn what_is_certain_is_found_whatever_was_sought() {
        for seeks_large in [true, false] {
            let (found, _) = verdict(0.08, seeks_large, &[-0.20, -0.21, -0.21]);
            assert!(
                matches!(found, Some(Verdict::Better(gain)) if (gain - 0.2067).abs() < 1e-3),
                "{found:?}"
            );
        }
    }
}
