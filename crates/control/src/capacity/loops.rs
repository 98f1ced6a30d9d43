//! What a server whose event loops have no time left shows: it serves as many as it can.
//!
//! A server that accepts at once lets what it has accepted wait inside, and its accept queue shows nothing, or its batches. While the
//! least busy of its loops runs or waits for a CPU all the time ([`Listener::loops_busy`]), what it answers a second is its capacity, as
//! the operational laws have it: at full utilisation the throughput is the inverse of what a request demands (P. J. Denning, J. P. Buzen,
//! "The Operational Analysis of Queueing Network Models", ACM Computing Surveys 10(3), 1978). Below that no number follows: a loop that
//! blocks, or has something behind it, serves far less than its throughput over its utilisation.

use super::Capacity;
use super::evidence::Change;
use super::step::{Connections, Listener};
use headroom_units::{PerSecond, Seconds};
use std::collections::VecDeque;

/// From so many thousandths a loop is full: what was measured of full ones is 970 to 1010, of ones at nine tenths of their load 940 at
/// most (docs/capacity.md).
const FULL: u32 = 970;
/// Seconds of it in a row from which it is told: a burst that loops work off is shorter.
const MIN_FULL: usize = 3;
/// Connections that wait for a server whose loops are full, or that it works on, at each look: what a loop runs for while nobody waits for
/// it, as one that polls does, is no work.
const MIN_INSIDE: u64 = 2;
/// Seconds that are remembered, and as many that are enough where they are as sure as this.
const MAX_SECONDS: usize = 60;
const ENOUGH: usize = 10;
const ENOUGH_WITHIN: f64 = 0.05;
/// Half the width of the interval, as a share of the rate, within which it is exact.
const EXACT_WITHIN: f64 = 0.15;
/// For so many seconds one that became idle still has a last second in which it ran; one that runs for longer with nobody there polls.
const POLLS_S: f64 = 3.0;
/// Seconds without which nothing is exact: one that polls and is nearly full has somebody inside at some looks in a row by chance.
const MIN_EXACT: usize = 5;
/// The least index of dispersion that seconds are believed to show.
const MIN_DISPERSION: f64 = 0.1;
/// One that is off by less than this is no sign of a change, nor one by less than as many standard deviations.
const MIN_CHANGE: f64 = 0.1;
const CHANGE_ERRORS: f64 = 3.0;
/// Where less than this share of what is accepted is answered, connections may be kept open after answers, which are not counted then.
const ANSWERED_SHARE: f64 = 0.5;
/// The share of the connections that are kept open after an answer from which more may be answered on them than is counted.
const KEPT_SHARE: f64 = 0.1;
/// Fewer answers than this in all the seconds say nothing: most of the work may be for connections that stay open.
const MIN_ANSWERS: f64 = 5.0;

/// What was counted in a second, or a little more.
#[derive(Clone, Copy, Debug, Default)]
struct Second {
    length_s: f64,
    answered: f64,
    accepted: f64,
}

impl Second {
    fn rate(self) -> f64 {
        self.answered / self.length_s
    }

    fn add(&mut self, part: Self) {
        self.length_s += part.length_s;
        self.answered += part.answered;
        self.accepted += part.accepted;
    }

    /// A rounding is no part of a second.
    fn is_whole(self) -> bool {
        self.length_s >= 1.0 - 1e-6
    }
}

/// Watches it.
#[derive(Clone, Debug, Default)]
pub(super) struct Loops {
    last: Option<Listener>,
    /// Whether they are full now, and were since the second that has begun did.
    is_full: bool,
    was_full: bool,
    begun: Second,
    /// The seconds since they became full, before they are enough in a row.
    spell: Vec<Second>,
    /// The others that were full, without those before a change.
    full: VecDeque<Second>,
    /// When the last of these ended.
    full_at_s: f64,
    /// The second that has begun, full or not, and the last ones in a row that were each more than it serves when full.
    any: Second,
    above: Vec<Second>,
    change: Option<Change>,
    faster: Option<(PerSecond, PerSecond)>,
    /// Connections that carry one request after another, as they were last seen.
    kept: u64,
    /// For how long in a row they run though nobody is there, and whether that was so long that they poll.
    idle_s: f64,
    polls: bool,
}

impl Loops {
    /// Takes what was read at the end of this time; nothing where it could not be.
    pub(super) fn take(&mut self, now_s: f64, length: Seconds, listener: Option<Listener>) {
        let is_full = listener.is_some_and(|one| is_full(&one));
        if let Some(found) = listener.and_then(|one| one.connections) {
            self.kept = if is_many(found) { found.kept } else { 0 };
        }
        let last = std::mem::replace(&mut self.last, listener);
        let was_full = std::mem::replace(&mut self.is_full, is_full);
        let has_become = is_full && !was_full;
        self.find_polling(listener.as_ref(), length);
        let Some([answered, accepted]) = last.zip(listener).and_then(|(last, now)| counted(&last, &now))
        else {
            self.begin(is_full);
            self.spell.clear();
            (self.any, self.above) = (Second::default(), Vec::new());
            return;
        };
        let part = Second {
            length_s: length.get(),
            answered,
            accepted,
        };
        self.any.add(part);
        if self.any.is_whole() {
            let second = std::mem::take(&mut self.any);
            self.compare(second);
        }
        if has_become {
            self.begin(is_full);
            self.spell.clear();
            return;
        }
        self.begun.add(part);
        self.was_full &= is_full;
        if self.begun.is_whole() {
            let second = self.begun;
            match self.was_full {
                true => self.add_full(now_s, second),
                false => self.spell.clear(),
            }
            self.begin(is_full);
        }
    }

    /// One that runs while nobody is there runs whatever comes: that somebody is there at each look is no sign that it has no time left.
    fn find_polling(&mut self, listener: Option<&Listener>, length: Seconds) {
        let runs_idle = |one: &Listener| runs(one) && one.connections.is_some() && inside(one) == 0;
        self.idle_s = match listener.is_some_and(runs_idle) {
            true => self.idle_s + length.get(),
            false => 0.0,
        };
        self.polls |= self.idle_s >= POLLS_S;
    }

    fn begin(&mut self, is_full: bool) {
        self.begun = Second::default();
        self.was_full = is_full;
    }

    fn add_full(&mut self, now_s: f64, second: Second) {
        self.spell.push(second);
        if self.spell.len() < MIN_FULL {
            return;
        }
        self.full_at_s = now_s;
        // Those of a spell that is long enough are taken with it; later ones by one.
        let new = match self.spell.len() {
            MIN_FULL => self.spell.clone(),
            _ => vec![second],
        };
        for second in new {
            self.full.push_back(second);
            self.find_change();
        }
        self.spell.truncate(MIN_FULL + 1);
        self.forget_needless();
    }

    /// Two seconds in a row that are far off on one side of those before: the server has changed between them.
    fn find_change(&mut self) {
        let Some(at) = self
            .full
            .len()
            .checked_sub(2)
            .filter(|before| *before >= MIN_FULL)
        else {
            return;
        };
        let before = self.full.iter().take(at);
        let Some(sides) = sides(before.clone()) else {
            return;
        };
        let newer = self.full.iter().skip(at);
        let off: Vec<i8> = newer.map(|second| side(sides, second.rate())).collect();
        if off == [1, 1] || off == [-1, -1] {
            // The change came within the first of the two.
            let kept = self.full.back().copied();
            self.change = kept.map(|kept| Change {
                before: PerSecond::new(mean(before)),
                since: PerSecond::new(kept.rate()),
            });
            self.full = kept.into_iter().collect();
        }
    }

    fn forget_needless(&mut self) {
        while self.full.len() > MAX_SECONDS {
            self.full.pop_front();
        }
        let newest = self.full.iter().rev().take(ENOUGH);
        let is_enough = half_width(newest.clone()) <= ENOUGH_WITHIN * mean(newest);
        if is_enough && self.full.len() > ENOUGH {
            self.full.drain(..self.full.len() - ENOUGH);
        }
    }

    /// One that serves more now than it did with its loops full is another, or they were not.
    fn compare(&mut self, second: Second) {
        let most = sides(self.full.iter()).map(|[_, most]| most);
        if most.is_none_or(|most| second.rate() <= most) {
            self.above.clear();
            return;
        }
        self.above.push(second);
        if self.above.len() >= MIN_FULL {
            let rates = [mean(self.full.iter()), mean(self.above.iter())].map(PerSecond::new);
            self.faster = Some((rates[0], rates[1]));
            self.full.clear();
            self.above.clear();
        }
    }

    /// Whether they are full at this moment: an accept queue shows no more than its batches then.
    pub(super) const fn are_full(&self) -> bool {
        self.is_full
    }

    /// Nothing of it holds any more.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Where what was found is older than this it is forgotten.
    pub(super) fn age(&mut self, now_s: f64, forget_s: f64) {
        if now_s - self.full_at_s > forget_s {
            self.full.clear();
        }
    }

    /// What it serves with its loops full; `None` where that was not seen.
    pub(super) fn capacity(&self, now_s: f64, stale_s: f64) -> Option<Capacity> {
        let rate = mean(self.full.iter());
        let answers: f64 = self.full.iter().map(|second| second.answered).sum();
        if self.full.is_empty() || answers < MIN_ANSWERS {
            return None;
        }
        let is_within = half_width(self.full.iter()) <= EXACT_WITHIN * rate;
        let newest = self.full.back().map_or(0.0, |second| second.rate());
        let is_usual =
            sides(self.full.iter().take(self.full.len() - 1)).is_some_and(|sides| side(sides, newest) == 0);
        let is_exact = is_within
            && is_usual
            && self.above.is_empty()
            && self.full.len() >= MIN_EXACT
            && !self.are_kept_open()
            && !self.polls
            && now_s - self.full_at_s <= stale_s;
        let rate = PerSecond::new(rate);
        Some(match is_exact {
            true => Capacity::Exact(rate),
            false => Capacity::About(rate),
        })
    }

    /// Whether connections may be kept open after they are answered: then not all answers are counted.
    pub(super) fn are_kept_open(&self) -> bool {
        let sum = |of: fn(&Second) -> f64| self.full.iter().map(of).sum::<f64>();
        self.kept > 0 || sum(|second| second.answered) < ANSWERED_SHARE * sum(|second| second.accepted)
    }

    /// The interval that it is in.
    pub(super) fn interval(&self) -> [PerSecond; 2] {
        let (rate, half) = (mean(self.full.iter()), half_width(self.full.iter()));
        // Of one second nothing says how far off it may be.
        let half = if half.is_finite() { half } else { rate };
        [(rate - half).max(0.0), rate + half].map(PerSecond::new)
    }

    /// When it was last seen.
    pub(super) const fn last_s(&self) -> f64 {
        self.full_at_s
    }

    /// Why this is said, where it is what is said.
    pub(super) fn explain(&mut self, now_s: f64, stale_s: f64, capacity: Capacity) -> (&'static str, String) {
        let rate = capacity.value().unwrap_or(PerSecond::ZERO).get();
        if let Some(Change { before, since }) = self.change.take() {
            let text = format!(
                "{:.1}/s are answered with its event loops full, {:.1}/s until lately: the server has changed, and what was before is \
                 forgotten",
                since.get(),
                before.get()
            );
            return ("changed", text);
        }
        if now_s - self.full_at_s > stale_s {
            let text =
                format!("its event loops have time left: {rate:.1}/s were answered when they last had none");
            return ("stale", text);
        }
        let seen = format!(
            "each of its event loops ran, or waited for a CPU, all the time for {} s: the {rate:.1}/s that it answered are all it can",
            self.full.len()
        );
        let text = match (self.kept, self.are_kept_open()) {
            (0, false) => seen,
            (0, true) => {
                format!("{seen}; most of what it accepts is not answered and closed, and may be kept open")
            }
            (kept, _) => format!(
                "{seen}, but for what it answers on {kept} connections that are kept open: this counts connections, whatever each \
                 carries"
            ),
        };
        ("loop-full", text)
    }

    /// What it was estimated to serve with its loops full, and what it served with time left, where that is more, once.
    pub(super) fn faster(&mut self) -> Option<(PerSecond, PerSecond)> {
        self.faster.take()
    }
}

/// Whether its loops run, or wait for a CPU, all the time, and somebody waits for them.
fn is_full(now: &Listener) -> bool {
    runs(now) && inside(now) >= MIN_INSIDE
}

fn runs(now: &Listener) -> bool {
    now.loops_busy.is_some_and(|busy| busy >= FULL)
}

/// Those that wait for it, or that it works on.
fn inside(now: &Listener) -> u64 {
    now.connections.map_or(0, |found| found.working) + u64::from(now.length.unwrap_or(0))
}

/// Whether so many are kept open that a part of the answers may be theirs.
fn is_many(found: Connections) -> bool {
    found.kept > 0 && found.kept as f64 >= KEPT_SHARE * found.open as f64
}

/// What was answered and accepted between two readings; `None` where that is not known.
fn counted(before: &Listener, now: &Listener) -> Option<[f64; 2]> {
    let grown = |before: Option<u64>, now: Option<u64>| Some(now?.checked_sub(before?)? as f64);
    let is_same = before.identity == now.identity;
    let counted = [
        grown(before.answered, now.answered)?,
        grown(before.accepts, now.accepts)?,
    ];
    is_same.then_some(counted)
}

fn mean<'a>(seconds: impl Iterator<Item = &'a Second>) -> f64 {
    let [answered, length_s] = seconds.fold([0.0; 2], |sum, second| {
        [sum[0] + second.answered, sum[1] + second.length_s]
    });
    match length_s > 0.0 {
        true => answered / length_s,
        false => 0.0,
    }
}

/// How many, their mean and their standard deviation, which is no less than that of a very regular server.
fn spread<'a>(seconds: impl Iterator<Item = &'a Second> + Clone) -> (f64, f64, f64) {
    let mean = mean(seconds.clone());
    let (count, squares) = seconds.fold((0.0, 0.0), |(count, squares), second| {
        (count + 1.0, squares + (second.rate() - mean).powi(2))
    });
    let variance = squares / (count - 1.0f64).max(1.0);
    (count, mean, variance.max(MIN_DISPERSION * mean).sqrt())
}

/// What a further second is no less than, and no more, of a server that stays the same; `None` where too few tell.
fn sides<'a>(seconds: impl Iterator<Item = &'a Second> + Clone) -> Option<[f64; 2]> {
    let (count, mean, deviation) = spread(seconds);
    let by = (MIN_CHANGE * mean).max(CHANGE_ERRORS * deviation * (1.0 + 1.0 / count).sqrt());
    (count >= MIN_FULL as f64).then_some([mean - by, mean + by])
}

fn side([low, high]: [f64; 2], rate: f64) -> i8 {
    i8::from(rate > high) - i8::from(rate < low)
}

/// Half the width of the interval that the mean is in, by Student's distribution; the answer at either end may be in or out.
fn half_width<'a>(seconds: impl Iterator<Item = &'a Second> + Clone) -> f64 {
    let (count, _, deviation) = spread(seconds);
    match count >= 2.0 {
        true => student(count - 1.0) * deviation / count.sqrt() + 0.5 / count,
        false => f64::INFINITY,
    }
}

/// The quantile of Student's distribution that one in a hundred is above, of so many degrees of freedom.
fn student(freedom: f64) -> f64 {
    const FEW: [f64; 9] = [31.82, 6.965, 4.541, 3.747, 3.365, 3.143, 2.998, 2.896, 2.821];
    const NORMAL: f64 = 2.326;
    match FEW.get(freedom as usize - 1) {
        Some(quantile) => *quantile,
        // Within a hundredth.
        None => NORMAL + 4.3 / freedom,
    }
}

#[cfg(test)]
#[path = "loops_tests.rs"]
mod tests;
