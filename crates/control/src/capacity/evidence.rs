//! What the time with somebody waiting says about a server: its rate, how sure that is, how old, and whether it is still
//! the same server.
//!
//! The time with somebody waiting is cut into blocks of some ten accepts each. How much the sums of many blocks in a row differ
//! from one another says how regular the server is (the index of dispersion of its counts: 1 for a Poisson process, near 0 for
//! workers that take equally long for everything, more where few requests take most of the time or long ones come together), and
//! with that how many accepts make a rate sure: the method of batch means (G. S. Fishman, "Principles of Discrete Event
//! Simulation", 1978, Chapter 5). What makes spells of waiting look slower or faster than the server is (see [`super::busy`]) is
//! added, and so is what the server may have changed by without its being found yet.
//!
//! A change of the server is found by the likelihood that all blocks are of one rate against that of two rates,
//! at the place that divides them best (the generalised likelihood ratio test of a change point: M. Basseville, I. Nikiforov,
//! "Detection of Abrupt Changes", 1993, Section 2.4.3), scaled by the dispersion; what was before is forgotten.

use super::busy::Busy;
use headroom_units::{PerSecond, Seconds};
use std::collections::VecDeque;

/// Blocks that are remembered, and the newest of them from which the rate may be taken: with ten accepts in each, a
/// Poisson process is known to 2 %.
const MAX_BLOCKS: usize = 512;
const MAX_RATE_BLOCKS: usize = 256;
/// Accepts that a block is meant to have of a Poisson process (more where they come in bunches), and how long it may last.
const BLOCK_ACCEPTS: f64 = 10.0;
const MIN_BLOCK_S: f64 = 0.1;
const MAX_BLOCK_S: f64 = 2.0;
/// Without a rate yet.
const FIRST_BLOCK_S: f64 = 0.25;
/// Twice the logarithm of the likelihood ratio that is a change, over the dispersion. The test is repeated with each block, and
/// takes the largest of some hundred places: the threshold is set by how rarely it is passed by chance, in simulation (docs/capacity.md).
const CHANGE: f64 = 36.0;
/// A change by less than this is none: the older blocks are forgotten soon enough.
const MIN_CHANGE: f64 = 0.1;
/// Blocks behind a change, and before it.
const MIN_SIDE: usize = 2;
const MIN_BEFORE: usize = 1;
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
/// The same that the rate of an exact estimate is to be sure by: it is asked for each second, and of an interval that just suffices one in
/// thirty would be off by more.
const EXACT_ERRORS: f64 = 3.0;
/// Half the width of the interval, as a share of the rate, within which an estimate is exact,
const EXACT_WITHIN: f64 = 0.15;
/// and about so much,
const ABOUT_WITHIN: f64 = 0.4;
/// and within which older blocks than these are not needed.
const ENOUGH_WITHIN: f64 = 0.05;
const MIN_BLOCKS: usize = 3;
/// A server whose workers began together is regular only over several times the time of a request.
const MIN_EXACT_S: f64 = 2.0;
const MIN_EXACT_SERVICES: f64 = 5.0;
/// Accepts, over the index of dispersion, that show a server which takes half as many, and the fewest of any server.
const CONFIRMING: f64 = 25.0;
const MIN_CONFIRMING: f64 = 5.0;
/// Accepts by which a spell of waiting may look faster than the server is,
const SPELL_MORE: f64 = 2.0;
/// and slower, and by as many more for each unit of the index of dispersion. In simulation (servers of 8 and 64 workers, at 50 to 102 % load,
/// with queues of 5 and 128 places), a spell lacks 1 to 3 accepts where service is exponential, 5 to 10 where it is lognormal of SCV 4, 5
/// to 25 where one request in ten takes a hundred times as long as the others, and has up to 2 too many where it is always the same: about the
/// same at any load, for spells of any length.
const SPELL_LESS: f64 = 1.0;
const SPELL_LESS_PER_DISPERSION: f64 = 2.0;
/// The share of the rate by which an estimate is exact that spells may lack: those of overload are hundreds of accepts long. How irregular a server
/// is many short ones tell badly.
const SPELL_EXACT_WITHIN: f64 = 0.05;
/// The last times, in those after which an estimate is stale, that the rate is compared with: it may have changed as long ago.
const COMPARED: [f64; 3] = [1.0, 2.0, 4.0];
/// Standard errors on each side of their own rates that the interval has.
const COMPARED_ERRORS: f64 = 0.7;

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
    /// As many of them, the oldest, tell how regular the server is, and nothing of its rate any more.
    needless: usize,
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
    // Few groups tell it roughly, and Student's quantile is larger than the normal one (M. Abramowitz, I. Stegun, "Handbook of
    // Mathematical Functions", 26.7.5, to the first term).
    let student = |freedom: f64| (1.0 + (INTERVAL_ERRORS.powi(2) + 1.0) / (4.0 * freedom)).powi(2);
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
            _ => squares / freedom * student(freedom),
        };
        longest = [longest[1], found];
        group *= 2;
    }
    longest[0].max(longest[1]).max(MIN_DISPERSION)
}

impl Evidence {
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
                self.needless = self.needless.saturating_sub(1);
            }
            self.needless = self
                .needless
                .max(self.blocks.len().saturating_sub(MAX_RATE_BLOCKS));
            self.dispersion = None;
        }
    }

    /// Whether the server, whose requests take so long, has changed since it was last asked; what was before is forgotten.
    pub(super) fn change(&mut self, stale_s: f64, now_s: f64, service_s: f64) -> Option<Change> {
        let usual = self.usual.unwrap_or(1.0);
        let blocks = self.blocks.make_contiguous();
        let all = sum(blocks.iter());
        let likelihood = |busy: Busy| match busy.accepts > 0.0 {
            true => busy.accepts * rate(busy).ln(),
            false => 0.0,
        };
        // What spells may lack is no change: the slower with as many more, or both as one.
        let alike = |one: Busy, other: Busy| {
            let lacks = Busy {
                accepts: one.accepts * (1.0 + spell_bias(one, usual)[1]),
                ..one
            };
            match rate(lacks) < rate(other) {
                true => [lacks, other],
                false => [one, one],
            }
        };
        let mut before = sum(blocks.iter().take(MIN_BEFORE));
        let mut best: Option<(f64, usize)> = None;
        let places = (blocks.len() + 1).saturating_sub(MIN_BEFORE + MIN_SIDE);
        for (at, block) in blocks.iter().enumerate().skip(MIN_BEFORE).take(places) {
            let since = all.minus(before);
            let [slower, faster] = match rate(before) < rate(since) {
                true => alike(before, since),
                false => alike(since, before),
            };
            let both = slower.plus(faster);
            let ratio = 2.0 * (likelihood(slower) + likelihood(faster) - likelihood(both));
            if best.is_none_or(|(most, _)| ratio > most) {
                best = Some((ratio, at));
            }
            before = before.plus(block.busy);
        }
        let (ratio, at) = best?;
        let (before, since) = blocks.split_at(at);
        let rates = [rate(sum(before)), rate(sum(since))];
        let by = (rates[1] / rates[0] - 1.0).abs();
        // Of two rates, as they would be: a change is no irregularity.
        let divided = dispersion([before, since], usual);
        let threshold = CHANGE * divided.max(MIN_DISPERSION * 2.0);
        let has_shown = self.blocks.len() >= USUAL_BLOCKS;
        if by < MIN_CHANGE || ratio < threshold {
            if has_shown && ratio < threshold / 2.0 {
                self.usual = Some(self.dispersion());
            }
            self.forget_needless(stale_s, now_s, service_s);
            return None;
        }
        if has_shown {
            self.usual = Some(divided);
        }
        self.blocks.drain(..at);
        self.needless = self.needless.saturating_sub(at);
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
    fn forget_needless(&mut self, stale_s: f64, now_s: f64, service_s: f64) {
        let dispersion = self.dispersion();
        let mut left = sum(self.blocks.iter().skip(self.needless));
        while self.blocks.len() > self.needless + 2 * MIN_BLOCKS {
            let Some(first) = self.blocks.get(self.needless) else {
                return;
            };
            left = left.minus(first.busy);
            let within = match first.ended_s < now_s - 10.0 * stale_s {
                true => EXACT_WITHIN,
                false => ENOUGH_WITHIN,
            };
            let is_short = left.time.get() < 2.0 * exact_s(service_s);
            if is_short || half_width(left.accepts, dispersion) > within {
                return;
            }
            self.needless += 1;
        }
    }

    fn all(&self) -> Busy {
        sum(self.blocks.iter().skip(self.needless)).plus(self.open.busy)
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
                found
            }
        }
    }

    /// The interval that the rate is in; `None` without one.
    pub(super) fn interval(&mut self, now_s: f64, stale_s: f64) -> Option<[PerSecond; 2]> {
        let (all, dispersion) = (self.all(), self.dispersion());
        let half = half_width(all.accepts, dispersion);
        let [most, lack] = spell_bias(all, dispersion);
        let own = rate(all);
        let mut interval = [own * (1.0 - half - most), own * (1.0 + half + lack)];
        // Of what was found last: that nothing is found for a while makes nothing surer.
        let last_s = self.last_s().unwrap_or(now_s);
        for [low, high] in self.compared(last_s, stale_s).into_iter().flatten() {
            interval[0] = interval[0].min(low);
            interval[1] = interval[1].max(high);
        }
        (all.accepts > 0.0).then(|| interval.map(|side| PerSecond::new(side.max(0.0))))
    }

    /// What the last times alone say of the rate, those in which enough was found.
    fn compared(&self, now_s: f64, stale_s: f64) -> [Option<[f64; 2]>; COMPARED.len()] {
        // As it was before it changed: a change makes it look irregular.
        let usual = self.usual.unwrap_or(1.0);
        COMPARED.map(|times| {
            let recent = self.recent(now_s, times * stale_s);
            let error = COMPARED_ERRORS * (usual / recent.accepts).sqrt();
            confirms(recent, usual).then(|| [rate(recent) * (1.0 - error), rate(recent) * (1.0 + error)])
        })
    }

    /// The least that the last times alone say; `None` where they say nothing.
    pub(super) fn least_of_late(&self, now_s: f64, stale_s: f64) -> Option<PerSecond> {
        let lows = self.compared(now_s, stale_s).into_iter().flatten();
        lows.map(|[low, _]| low.max(0.0))
            .reduce(f64::min)
            .map(PerSecond::new)
    }

    /// Whether the rate is known, however roughly.
    pub(super) fn tells(&mut self) -> bool {
        let (all, dispersion) = (self.all(), self.dispersion());
        let [_, lack] = spell_bias(all, dispersion);
        self.blocks.len() >= MIN_SIDE && half_width(all.accepts, dispersion) + lack <= ABOUT_WITHIN
    }

    /// Whether the rate is sure of a server whose requests take so long, and what was found in the last time would have shown one
    /// that takes half as many.
    pub(super) fn is_exact(&mut self, now_s: f64, stale_s: f64, service_s: f64) -> bool {
        let (all, dispersion) = (self.all(), self.dispersion());
        let is_long = all.time.get() >= exact_s(service_s) && self.blocks.len() >= MIN_BLOCKS;
        let is_confirmed = is_long && confirms(self.recent(now_s, stale_s), dispersion);
        let [_, lack] = spell_bias(all, dispersion);
        let unchosen = lack <= SPELL_EXACT_WITHIN
            && errors(EXACT_ERRORS, self.unchosen(), dispersion) + lack <= EXACT_WITHIN;
        let own = rate(all);
        let is_within = |[low, high]: [PerSecond; 2]| {
            low.get() >= own * (1.0 - EXACT_WITHIN) && high.get() <= own * (1.0 + EXACT_WITHIN)
        };
        is_confirmed && unchosen && self.interval(now_s, stale_s).is_some_and(is_within)
    }

    /// What was found in this last time.
    fn recent(&self, now_s: f64, last_s: f64) -> Busy {
        let since_s = now_s - last_s;
        let newest = self.blocks.iter().skip(self.needless).chain([&self.open]);
        sum(newest.filter(|block| block.ended_s > since_s))
    }

    /// When the last of it was found; `None` where nothing was.
    pub(super) fn last_s(&self) -> Option<f64> {
        let mut last = [Some(&self.open), self.blocks.back()].into_iter().flatten();
        last.find(|block| block.busy.time > Seconds::ZERO)
            .map(|block| block.ended_s)
    }
}

/// For how long a server whose requests take so long is to be found waited for, before its rate is sure.
fn exact_s(service_s: f64) -> f64 {
    MIN_EXACT_S.max(MIN_EXACT_SERVICES * service_s)
}

/// Whether this would have shown a server that takes half as many.
fn confirms(recent: Busy, dispersion: f64) -> bool {
    recent.accepts >= (CONFIRMING * dispersion).max(MIN_CONFIRMING)
}

/// The share of the rate that spells of waiting may make it too high by, and too low by.
fn spell_bias(busy: Busy, dispersion: f64) -> [f64; 2] {
    let less = SPELL_LESS + SPELL_LESS_PER_DISPERSION * dispersion;
    [SPELL_MORE, less].map(|accepts| match busy.accepts > 0.0 {
        true => accepts * busy.spells / busy.accepts,
        false => 0.0,
    })
}

/// Half the width of the interval of a rate that so many accepts of this dispersion say, as a share of it.
fn half_width(accepts: f64, dispersion: f64) -> f64 {
    errors(INTERVAL_ERRORS, accepts, dispersion)
}

/// So many standard errors of that rate, as a share of it.
fn errors(times: f64, accepts: f64, dispersion: f64) -> f64 {
    match accepts > 0.0 {
        // The accept at either end may be in or out.
        true => (times * (dispersion * accepts).sqrt() + 0.5) / accepts,
        false => f64::INFINITY,
    }
}
