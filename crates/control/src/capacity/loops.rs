//! What a server whose event loops have no time left shows: it serves as many as it can.
//!
//! A server that accepts at once lets what it has accepted wait inside, and its accept queue shows nothing, or its batches. While the
//! least busy of its loops runs or waits for a CPU all the time ([`Listener::loops_busy`]), what it answers a second is its capacity, as
//! the operational laws have it: at full utilisation the throughput is the inverse of what a request demands (P. J. Denning, J. P. Buzen,
//! "The Operational Analysis of Queueing Network Models", ACM Computing Surveys 10(3), 1978). Below that no number follows: a loop that
//! blocks, or has something behind it, serves far less than its throughput over its utilisation.
//!
//! How sure that is, and whether the server has changed, its answers say as those with somebody waiting do ([`super::evidence`]).

use super::Capacity;
use super::busy::Busy;
use super::evidence::{Change, Evidence};
use super::step::{Connections, Listener};
use headroom_units::{PerSecond, Seconds};

/// From so many thousandths a loop is full. At nine tenths of its load one that only computes has a tenth of its time left.
const FULL: u32 = 970;
/// For so many seconds in a row they are full before it is told: a burst that loops work off is shorter.
const TOLD_S: f64 = 3.0;
/// For so many seconds in all before anything is exact: one that polls and is nearly full has somebody inside at some looks in a row by
/// chance.
const EXACT_S: f64 = 5.0;
/// Connections that wait for a server whose loops are full, or that it works on, at each look: what a loop runs for while nobody waits for
/// it, as one that polls does, is no work.
const MIN_INSIDE: u64 = 2;
/// For so many seconds one that became idle still has a last second in which it ran; one that runs for longer with nobody there polls.
const POLLS_S: f64 = 3.0;
/// Over so many seconds it is looked whether it serves more than when they were full: by this share, and by as many standard deviations.
const MORE_S: f64 = 3.0;
/// And over so many while it does: of answers that come a hundred at a time a few seconds show less.
const MOST_S: f64 = 10.0;
const MORE: f64 = 1.1;
const MORE_ERRORS: f64 = 3.0;
/// Where less than this share of what is accepted is answered, over so many seconds, connections may be kept open after answers, which are
/// not counted then.
const ANSWERED_SHARE: f64 = 0.5;
const ANSWERED_S: f64 = 10.0;
/// The share of the connections that are kept open after an answer from which more may be answered on them than is counted.
const KEPT_SHARE: f64 = 0.1;

/// Watches it.
#[derive(Clone, Debug, Default)]
pub(super) struct Loops {
    last: Option<Listener>,
    is_full: bool,
    /// The same, whomever they work for; and what was answered here meanwhile.
    runs_full: bool,
    answered_full: Option<Busy>,
    /// What was answered since they became full, before that is long enough.
    spell: Vec<(f64, Busy)>,
    /// For how long they are, and were in all since the server changed.
    spell_s: f64,
    full_s: f64,
    /// What was answered while they were full.
    evidence: Evidence,
    /// What was answered and accepted meanwhile, of late.
    answered: f64,
    accepted: f64,
    /// What was answered of late, full or not, while it is more than when they were.
    above: Busy,
    change: Option<Change>,
    faster: Option<(PerSecond, PerSecond)>,
    /// Connections that carry one request after another, as they were last seen.
    kept: u64,
    /// For how long in a row they run though nobody is there, and whether that was so long that they poll.
    idle_s: f64,
    polls: bool,
}

/// What was answered while they were full, and for how long they were.
#[derive(Clone, Debug)]
pub(super) struct KnownLoops {
    evidence: Evidence,
    full_s: f64,
}

impl Loops {
    /// Takes what was read at the end of this time; nothing where it could not be. Where others share the loops, they are not full for these.
    pub(super) fn take(&mut self, now_s: f64, length: Seconds, listener: Option<Listener>, is_shared: bool) {
        let runs_full = listener.is_some_and(|one| is_full(&one));
        let is_full = !is_shared && runs_full;
        if let Some(found) = listener.and_then(|one| one.connections) {
            self.kept = if is_many(found) { found.kept } else { 0 };
        }
        let last = std::mem::replace(&mut self.last, listener);
        let before = std::mem::replace(&mut self.is_full, is_full);
        let ran_full = std::mem::replace(&mut self.runs_full, runs_full);
        self.answered_full = None;
        self.find_polling(listener.as_ref(), length);
        let counted = last.zip(listener).and_then(|(last, now)| counted(&last, &now));
        let Some([answered, accepted]) = counted else {
            self.end_spell();
            self.above = Busy::default();
            return;
        };
        let part = Busy {
            time: length,
            accepts: answered,
            spells: 0.0,
        };
        self.answered_full = (runs_full && ran_full).then_some(part);
        self.compare(part);
        // They were full for the whole of it where they were at both its ends.
        if !(is_full && before) {
            self.end_spell();
            return;
        }
        self.spell_s += length.get();
        let kept = (-length.get() / ANSWERED_S).exp();
        self.answered = self.answered * kept + answered;
        self.accepted = self.accepted * kept + accepted;
        self.spell.push((now_s, part));
        // A rounding is no part of it.
        if self.spell_s >= TOLD_S - 1e-6 {
            for (at_s, part) in std::mem::take(&mut self.spell) {
                self.full_s += part.time.get();
                self.evidence.add(at_s, part);
            }
        }
    }

    /// What was answered in the time that was taken last, where they were full for all of it, whomever they worked for.
    pub(super) const fn answered_full(&self) -> Option<Busy> {
        self.answered_full
    }

    /// What is known of them, to be taken back.
    pub(super) fn known(&self) -> KnownLoops {
        KnownLoops {
            evidence: self.evidence.clone(),
            full_s: self.full_s,
        }
    }

    /// What was known before, and nothing since.
    pub(super) fn take_back(&mut self, known: KnownLoops) {
        let KnownLoops { evidence, full_s } = known;
        self.end_spell();
        (self.evidence, self.full_s, self.above) = (evidence, full_s, Busy::default());
        (self.change, self.faster) = (None, None);
    }

    fn end_spell(&mut self) {
        self.spell.clear();
        self.spell_s = 0.0;
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

    /// One that serves more now than it did with its loops full is another, or they were not.
    fn compare(&mut self, part: Busy) {
        let rate = self.evidence.rate();
        self.above = self.above.plus(part);
        let expected = rate.get() * self.above.time.get();
        let error = MORE_ERRORS * (expected * self.evidence.dispersion()).sqrt();
        if expected <= 0.0 || self.above.accepts <= (MORE * expected).max(expected + error) {
            // Less is too little to tell, for as long as that.
            let seems_more = self.above.accepts > MORE * expected && self.above.time.get() < MOST_S;
            if self.above.time.get() >= MORE_S && !seems_more || expected <= 0.0 {
                self.above = Busy::default();
            }
            return;
        }
        if self.above.time.get() >= MORE_S {
            let now = PerSecond::new(self.above.accepts / self.above.time.get());
            self.faster = Some((rate, now));
            self.start_anew();
        }
    }

    fn start_anew(&mut self) {
        self.evidence = Evidence::default();
        self.full_s = 0.0;
        self.above = Busy::default();
    }

    /// Forgets what no longer holds.
    pub(super) fn learn(&mut self, now_s: f64, stale_s: f64, forget_s: f64) {
        if let Some(change) = self.evidence.change(stale_s, now_s, 0.0) {
            self.change = Some(change);
            self.full_s = self.full_s.min(stale_s);
        }
        if self
            .evidence
            .last_s()
            .is_some_and(|last_s| now_s - last_s > forget_s)
        {
            self.start_anew();
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

    /// What it serves with its loops full; `None` where that was not seen for long enough.
    pub(super) fn capacity(&mut self, now_s: f64, stale_s: f64) -> Option<Capacity> {
        let rate = self.evidence.rate();
        if !self.evidence.tells() {
            return None;
        }
        let is_exact = self.full_s >= EXACT_S - 1e-6
            && !self.are_kept_open()
            && !self.polls
            && !self.serves_more()
            && self.evidence.is_exact(now_s, stale_s, 0.0);
        Some(match is_exact {
            true => Capacity::Exact(rate),
            false => Capacity::About(rate),
        })
    }

    /// Whether it seems to serve more now, for however short a time.
    fn serves_more(&self) -> bool {
        self.above.time.get() >= 1.0
            && self.above.accepts > MORE * self.evidence.rate().get() * self.above.time.get()
    }

    /// Whether connections may be kept open after they are answered: then not all answers are counted.
    pub(super) fn are_kept_open(&self) -> bool {
        self.kept > 0 || self.answered < ANSWERED_SHARE * self.accepted
    }

    /// The interval that it is in.
    pub(super) fn interval(&mut self, now_s: f64, stale_s: f64) -> Option<[PerSecond; 2]> {
        self.evidence.interval(now_s, stale_s)
    }

    /// When it was last seen.
    pub(super) fn last_s(&self) -> Option<f64> {
        self.evidence.last_s()
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
        if self.last_s().is_some_and(|last_s| now_s - last_s > stale_s) {
            let text =
                format!("its event loops have time left: {rate:.1}/s were answered when they last had none");
            return ("stale", text);
        }
        let seen = format!(
            "each of its event loops ran, or waited for a CPU, all the time for {:.0} s: the {rate:.1}/s that it answered are all it can",
            self.full_s
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

#[cfg(test)]
#[path = "loops_tests.rs"]
mod tests;
