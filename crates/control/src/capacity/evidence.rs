//! What the time with somebody waiting says about a server: its rate, how sure that is, how old, and whether it is still
//! the same server.
//!
//! The time with somebody waiting is cut into blocks of some ten accepts each. How much their rates differ from one another
//! says how regular the server is (the index of dispersion of its counts: 1 for a Poisson process, near 0 for workers that
//! take equally long for everything, more where few requests take most of the time), and with that how many accepts make
//! a rate sure. A change of the server is found by the likelihood that all blocks are of one rate against that of two rates,
//! at the place that divides them best (the generalised likelihood ratio test of a change point: M. Basseville, I. Nikiforov,
//! "Detection of Abrupt Changes", 1993, Section 2.4.3), as often as chance alone, scaled by the dispersion, would hardly
//! do it; what was before is forgotten.

use super::busy::Busy;
use headroom_units::{PerSecond, Seconds};
use std::collections::VecDeque;

/// Blocks that are remembered: with ten accepts in each, a Poisson process is known to 2 %.
const MAX_BLOCKS: usize = 256;
/// Accepts that a block is meant to have of a Poisson process (more where they come in bunches), and how long it may last.
const BLOCK_ACCEPTS: f64 = 10.0;
const MIN_BLOCK_S: f64 = 0.1;
const MAX_BLOCK_S: f64 = 2.0;
/// Without a rate yet.
const FIRST_BLOCK_S: f64 = 0.25;
/// Twice the logarithm of the likelihood ratio that is a change: chi-squared with one degree of freedom exceeds it once in
/// 30,000, and the place of the change is chosen among a hundred.
const CHANGE: f64 = 17.0;
/// A change by less than this is none: the older blocks are forgotten soon enough.
const MIN_CHANGE: f64 = 0.1;
/// Blocks on each side of a change.
const MIN_SIDE: usize = 2;
/// Degrees of freedom with which the server is presumed to be as regular as it was before it changed, and a Poisson process at
/// first, before blocks have shown how regular it is.
const PRESUMED: f64 = 4.0;
/// Blocks that show it.
const USUAL_BLOCKS: usize = 30;
/// Degrees of freedom with which groups of blocks tell how regular it is.
const MIN_FREEDOM: f64 = 7.0;
/// The least index of dispersion that blocks are believed to show: they begin and end between accepts.
const MIN_DISPERSION: f64 = 0.1;
/// Standard errors on each side of a rate that its interval has: were they normal and their dispersion known, one in forty would be outside.
const INTERVAL_ERRORS: f64 = 2.2;
/// Half the width of the interval, as a share of the rate, within which an estimate is exact,
const EXACT_WITHIN: f64 = 0.15;
/// and about so much,
const ABOUT_WITHIN: f64 = 0.4;
/// and within which older blocks than these are not needed.
const ENOUGH_WITHIN: f64 = 0.05;
const MIN_BLOCKS: usize = 3;
/// A server whose workers began together is regular only over several times the time of a request.
const MIN_EXACT_S: f64 = 2.0;
/// Accepts, over the index of dispersion, that show a server which takes half as many, and the fewest of any server.
const CONFIRMING: f64 = 25.0;
const MIN_CONFIRMING: f64 = 5.0;
/// How far their rate may be from the estimate.
const CONFIRMED_WITHIN: f64 = 0.3;

/// A part of the time with somebody waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Block {
    busy: Busy,
    /// When it ended, by the time since the first observation.
    ended_s: f64,
}

/// A change of the server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Change {
    /// The rate before it, and since.
    pub before: PerSecond,
    pub since: PerSecond,
}

/// The blocks of one server.
#[derive(Clone, Debug, Default)]
pub(super) struct Evidence {
    blocks: VecDeque<Block>,
    open: Block,
    /// How long the open one is to be: fixed when it begins, for what a server happens to do must not end it.
    open_s: f64,
    /// Accepts since it was last found to have changed: those by which the change was found are chosen, and make nothing sure.
    unchosen: f64,
    /// What it serves at least since then.
    least: PerSecond,
    dispersion: Option<f64>,
    /// The index of dispersion that it has shown; `None` before it has.
    usual: Option<f64>,
}

fn sum<'a>(blocks: impl IntoIterator<Item = &'a Block>) -> Busy {
    blocks
        .into_iter()
        .fold(Busy::default(), |sum, block| sum.plus(block.busy))
}

fn rate(busy: Busy) -> f64 {
    match busy.time > Seconds::ZERO {
        true => (busy.accepts / busy.time.get()).max(0.0),
        false => 0.0,
    }
}

/// The index of dispersion of the accepts in these segments, each with a rate of its own, over as long a time as there are some groups
/// of blocks of: that of the two longest, whichever is larger. Few accepts may come in a bunch and many regularly, or the other way round,
/// and how sure the rate of all is the longer times say.
fn dispersion(segments: [&[Block]; 2], usual: f64) -> f64 {
    let rates = segments.map(|segment| rate(sum(segment)));
    let own_rates = segments.iter().filter(|segment| !segment.is_empty()).count();
    let mut longest = [0.0; 2];
    let mut group = 1;
    loop {
        let (mut squares, mut groups) = (0.0, 0usize);
        for (segment, rate) in segments.iter().zip(rates) {
            for one in segment.rchunks_exact(group) {
                let busy = sum(one);
                let expected = rate * busy.time.get();
                if expected > 0.0 {
                    squares += (busy.accepts - expected).powi(2) / expected;
                    groups += 1;
                }
            }
        }
        let freedom = groups as f64 - own_rates as f64;
        let found = match group {
            1 => (squares + PRESUMED * usual) / (freedom.max(0.0) + PRESUMED),
            _ if freedom < MIN_FREEDOM => break,
            _ => squares / freedom,
        };
        longest = [longest[1], found];
        group *= 2;
    }
    longest[0].max(longest[1]).max(MIN_DISPERSION)
}

impl Evidence {
    /// What a server is presumed to do that joins others of this rate; it is as old as can be.
    pub(super) fn presumed(rate: PerSecond) -> Self {
        let accepts = BLOCK_ACCEPTS;
        let block = Block {
            busy: Busy {
                time: Seconds::new(accepts / rate.get()),
                accepts,
            },
            ended_s: f64::NEG_INFINITY,
        };
        Self {
            blocks: std::iter::repeat_n(block, 25).collect(),
            unchosen: 25.0 * accepts,
            ..Self::default()
        }
    }

    /// Takes what was found until this time.
    pub(super) fn add(&mut self, now_s: f64, busy: Busy) {
        if busy.time <= Seconds::ZERO {
            return;
        }
        if self.open.busy.time <= Seconds::ZERO {
            let rate = self.rate().get();
            self.open_s = match rate > 0.0 {
                true => {
                    let accepts = BLOCK_ACCEPTS * self.usual.unwrap_or(1.0).max(1.0).sqrt();
                    (accepts / rate).clamp(MIN_BLOCK_S, MAX_BLOCK_S)
                }
                false => FIRST_BLOCK_S,
            };
        }
        self.open = Block {
            busy: self.open.busy.plus(busy),
            ended_s: now_s,
        };
        self.unchosen += busy.accepts;
        if self.open.busy.time.get() >= self.open_s * (1.0 - 1e-6) {
            self.blocks.push_back(std::mem::take(&mut self.open));
            if self.blocks.len() > MAX_BLOCKS {
                self.blocks.pop_front();
            }
            self.dispersion = None;
        }
    }

    /// Whether the server has changed since it was last asked; what was before is forgotten.
    pub(super) fn change(&mut self, stale_s: f64, now_s: f64) -> Option<Change> {
        let usual = self.usual.unwrap_or(1.0);
        let blocks = self.blocks.make_contiguous();
        let all = sum(blocks.iter());
        let likelihood = |busy: Busy| match busy.accepts > 0.0 {
            true => busy.accepts * rate(busy).ln(),
            false => 0.0,
        };
        let mut before = sum(blocks.iter().take(MIN_SIDE));
        let mut best: Option<(f64, usize)> = None;
        let divided = (blocks.len() + 1).saturating_sub(2 * MIN_SIDE);
        for (at, block) in blocks.iter().enumerate().skip(MIN_SIDE).take(divided) {
            let since = Busy {
                time: all.time - before.time,
                accepts: all.accepts - before.accepts,
            };
            let ratio = 2.0 * (likelihood(before) + likelihood(since) - likelihood(all));
            if best.is_none_or(|(most, _)| ratio > most) {
                best = Some((ratio, at));
            }
            before = before.plus(block.busy);
        }
        let (ratio, at) = best?;
        let (before, since) = blocks.split_at(at);
        let rates = [rate(sum(before)), rate(sum(since))];
        let by = (rates[1] / rates[0] - 1.0).abs();
        if by < MIN_CHANGE || ratio < CHANGE * dispersion([before, since], usual).max(MIN_DISPERSION * 2.0) {
            self.forget_needless(stale_s, now_s);
            return None;
        }
        self.blocks.drain(..at);
        self.unchosen = 0.0;
        self.dispersion = None;
        let half = half_width(self.all().accepts, self.dispersion()).min(1.0);
        self.least = PerSecond::new((rates[1] * (1.0 - half)).min(rates[0]));
        Some(Change {
            before: PerSecond::new(rates[0]),
            since: PerSecond::new(rates[1]),
        })
    }

    /// Older blocks, where the newer are enough.
    fn forget_needless(&mut self, stale_s: f64, now_s: f64) {
        let dispersion = self.dispersion();
        let mut left = sum(&self.blocks);
        while self.blocks.len() > 2 * MIN_BLOCKS {
            let Some(first) = self.blocks.front() else { return };
            left = Busy {
                time: left.time - first.busy.time,
                accepts: left.accepts - first.busy.accepts,
            };
            let within = match first.ended_s < now_s - 10.0 * stale_s {
                true => EXACT_WITHIN,
                false => ENOUGH_WITHIN,
            };
            let is_short = left.time.get() < 2.0 * MIN_EXACT_S;
            if is_short || half_width(left.accepts, dispersion) > within {
                return;
            }
            self.blocks.pop_front();
        }
    }

    fn all(&self) -> Busy {
        sum(&self.blocks).plus(self.open.busy)
    }

    /// The rate of accepts with somebody waiting; 0 before there was any.
    pub(super) fn rate(&self) -> PerSecond {
        PerSecond::new(rate(self.all()))
    }

    /// Accepts that are remembered.
    pub(super) fn accepts(&self) -> f64 {
        self.all().accepts
    }

    /// The same but those by which a change was found.
    fn unchosen(&self) -> f64 {
        self.unchosen.min(self.accepts())
    }

    /// What it has shown to serve at least since it changed.
    pub(super) const fn least(&self) -> PerSecond {
        self.least
    }

    /// The index of dispersion of its accepts.
    pub(super) fn dispersion(&mut self) -> f64 {
        match self.dispersion {
            Some(dispersion) => dispersion,
            None => {
                let found = dispersion([self.blocks.make_contiguous(), &[]], self.usual.unwrap_or(1.0));
                self.dispersion = Some(found);
                if self.blocks.len() >= USUAL_BLOCKS {
                    self.usual = Some(found);
                }
                found
            }
        }
    }

    /// The interval that the rate is in; `None` without one.
    pub(super) fn interval(&mut self) -> Option<[PerSecond; 2]> {
        let (rate, accepts) = (self.rate(), self.accepts());
        let half = half_width(accepts, self.dispersion());
        (accepts > 0.0).then(|| [rate * (1.0 - half).max(0.0), rate * (1.0 + half)])
    }

    /// Whether the rate is known, however roughly.
    pub(super) fn tells(&mut self) -> bool {
        self.blocks.len() >= MIN_SIDE && half_width(self.accepts(), self.dispersion()) <= ABOUT_WITHIN
    }

    /// Whether the rate is sure.
    pub(super) fn is_sure(&mut self) -> bool {
        let accepts = self.unchosen();
        let is_long = self.all().time.get() >= MIN_EXACT_S && self.blocks.len() >= MIN_BLOCKS;
        is_long && half_width(accepts, self.dispersion()) <= EXACT_WITHIN
    }

    /// Whether what was found in this last time would have shown a server that takes half as many, and shows this one.
    pub(super) fn is_confirmed(&mut self, now_s: f64, last_s: f64) -> bool {
        let since_s = now_s - last_s;
        let newest = self.blocks.iter().chain([&self.open]);
        let recent = sum(newest.filter(|block| block.ended_s > since_s));
        let enough = (CONFIRMING * self.dispersion()).max(MIN_CONFIRMING);
        recent.accepts >= enough && (rate(recent) / self.rate().get() - 1.0).abs() <= CONFIRMED_WITHIN
    }

    /// When the last of it was found; `None` where nothing was, or none of it here.
    pub(super) fn last_s(&self) -> Option<f64> {
        let last = [Some(&self.open), self.blocks.back()].into_iter().flatten();
        last.filter(|block| block.busy.time > Seconds::ZERO)
            .map(|block| block.ended_s)
            .find(|ended_s| ended_s.is_finite())
    }
}

/// Half the width of the interval of a rate that so many accepts of this dispersion say, as a share of it.
fn half_width(accepts: f64, dispersion: f64) -> f64 {
    match accepts > 0.0 {
        // The accept at either end may be in or out.
        true => (INTERVAL_ERRORS * (dispersion * accepts).sqrt() + 0.5) / accepts,
        false => f64::INFINITY,
    }
}
