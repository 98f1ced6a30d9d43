//! What clients do to what a server shows, and when what it serves is no capacity of it for that.
//!
//! Workers are *held* by clients that send nothing, that send their request piece by piece, or that do not read the answer. How many
//! of its workers a server has is not known, so they are compared with those that work: connections that are kept open after the answer
//! are neither. What was counted before that is kept, from before they began to be held: it takes a second piece to know that a request
//! comes in pieces.
//!
//! A client that sends a part of its request and then nothing cannot be told from one whose request takes the server long. Where
//! requests take far longer than most do the estimate is *doubted*: nothing is set aside, and nothing is exact. The same where clients close
//! connections while they wait in the queue and have asked nothing: a server accepts these too, and in no time. One that sends something
//! and closes has left a request to work on, or a part of one that the server is done with in no time: nothing tells which. Where answers
//! are counted (see [`super::answers`]) neither is taken for service, and what is doubted is what was done for those who left; where
//! connections are kept open after the answer, accepts are counted and doubted.
//!
//! A few of each kind hide as much together as many of one: a worker that is not held works in vain for those who leave, so that what is
//! left is the product of what each kind leaves. Where that is less by a tenth nothing is exact; where it is less by less than that the
//! interval reaches as much higher.

use super::answers::Answers;
use super::evidence::Evidence;
use super::step::{Connections, Listener, ListenerSample, QueueObservation};
use headroom_units::PerSecond;
use std::collections::VecDeque;
use std::fmt;

/// The share of the connections, those aside that were answered, whose clients hold a worker that makes what is served no capacity; and
/// the share of those who wait that have gone, or left after sending something, which makes it doubtful; and what all of them hide together
/// that makes it so.
const SHARE: f64 = 0.1;
/// Over how long fewer than that are counted: what they hide changes with each that comes and goes, and what is served meanwhile less.
const FEW_HELD_S: f64 = 5.0;
/// Fewer that have gone are no clients': a check that connects and closes is one of them where few wait, and there may be two checkers.
const MIN_GONE: u64 = 3;
/// A request takes long where it is as many times the mean, and this many seconds. Of lognormal ones of SCV 4 those that are worked on
/// at a moment are one in fifty so.
const LONG_TIMES: f64 = 20.0;
const LONG_S: f64 = 1.0;
/// States that are kept to go back to, this long after one another.
const KEPT: usize = 8;
const KEPT_EVERY_S: f64 = 2.0;
/// Connections are looked at twice a second: they may have been held for as much longer than was seen.
const UNSEEN_S: f64 = 1.0;

/// Why an estimate is not sure though enough was observed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Doubt {
    /// A tenth of so many requests have not been answered for this time, which is as many times the mean.
    Unanswered { requests: u64, for_s: f64, times: f64 },
    /// The share of those who wait whose clients have gone.
    Gone(f64),
    /// The share of those who wait whose clients have sent something and closed.
    Cancelled(f64),
    /// The share of those accepted whose clients have left unanswered, where answers are counted.
    Left(f64),
    /// The share of those accepted that are kept open after the answer, so that answers are not counted.
    KeptOpen(f64),
    /// Each too few alone.
    Together(Few),
}

/// Clients of which there are few of each kind, as shares of what they are counted among.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Few {
    /// Those that hold a worker.
    held: f64,
    /// Those that have left unanswered, of those accepted where answers are counted, else of those who wait.
    left: f64,
    /// Those who wait and have gone without asking anything, where answers are not counted.
    gone: f64,
}

impl Few {
    /// The share of what all workers would serve that they hide.
    fn hidden(self) -> f64 {
        1.0 - (1.0 - self.held) * (1.0 - self.left) * (1.0 - self.gone)
    }

    /// That of the most.
    fn rule(self) -> &'static str {
        match self {
            Self { held, left, gone } if held >= left.max(gone) => "held",
            Self { left, gone, .. } if left >= gone => "cancelled",
            _ => "gone",
        }
    }
}

impl Doubt {
    pub(super) fn rule(self) -> &'static str {
        match self {
            Self::Unanswered { .. } => "unanswered",
            Self::Gone(_) => "gone",
            Self::Cancelled(_) | Self::Left(_) => "cancelled",
            Self::KeptOpen(_) => "kept-open",
            Self::Together(few) => few.rule(),
        }
    }

    /// How long it takes to show: those that began as the last ones went are not seen for as long.
    fn shows_after_s(self) -> f64 {
        match self {
            Self::Unanswered { for_s, times, .. } => LONG_S.max(for_s * LONG_TIMES / times),
            _ => 0.0,
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unanswered {
                requests,
                for_s,
                times,
            } => write!(
                f,
                "a tenth and more of the {requests} requests that it has are not answered for {for_s:.1} s, {times:.0} times the \
                 mean: it may wait for clients"
            ),
            Self::Gone(share) => write!(
                f,
                "the clients of {:.0} % of those who wait have gone without asking anything: what it accepts is not all requests",
                share * 100.0
            ),
            Self::Cancelled(share) => write!(
                f,
                "the clients of {:.0} % of those who wait have sent something and closed: what it accepts may not all be whole requests",
                share * 100.0
            ),
            Self::Left(share) => write!(
                f,
                "{:.0} % of those it accepted ended without an answer, for their clients left or it closed them: it may have worked \
                 for them in vain",
                share * 100.0
            ),
            Self::KeptOpen(share) => write!(
                f,
                "{:.0} % of those it accepted are kept open: accepts are counted, whether they are answered or not",
                share * 100.0
            ),
            Self::Together(few) => write!(
                f,
                "the clients of {:.0} % of the requests that it has hold a worker, those of {:.0} % left before they were answered and \
                 those of {:.0} % have gone: together they may hide {:.0} % of what it serves",
                few.held * 100.0,
                few.left * 100.0,
                few.gone * 100.0,
                few.hidden() * 100.0
            ),
        }
    }
}

/// Watches them.
#[derive(Clone, Debug, Default)]
pub(super) struct Clients {
    held: Option<Connections>,
    known: Option<Connections>,
    /// The share of those on hand whose clients hold a worker, while that is too few to set aside what is served, and of how much time.
    few_held: f64,
    few_held_s: f64,
    /// For how long they were not told.
    untold_s: f64,
    /// Of those who wait now.
    gone: f64,
    cancelled: f64,
    /// What answers say where they are counted, and why they are not.
    answers: Option<f64>,
    kept_open: f64,
    doubt: Option<(f64, Doubt)>,
    /// That requests are not answered for long, and until when that is to be doubted.
    unanswered: Option<(f64, Doubt)>,
    /// What it took before clients left what may be parts of requests, while they do.
    most: Option<PerSecond>,
    kept: VecDeque<(f64, Evidence)>,
}

impl Connections {
    /// Those whose clients hold a worker.
    const fn of_clients(self) -> u64 {
        self.silent + self.slow
    }

    /// Those that may have a worker.
    pub(super) const fn on_hand(self) -> u64 {
        self.of_clients() + self.working
    }

    const fn longest_s(self) -> f64 {
        self.longest_ms as f64 / 1_000.0
    }

    fn are_held(&self) -> bool {
        self.of_clients() > 0 && self.of_clients() as f64 >= SHARE * self.on_hand() as f64
    }

    fn held_share(self) -> f64 {
        self.of_clients() as f64 / self.on_hand().max(1) as f64
    }
}

impl Clients {
    /// Takes an observation, before which this was found; the evidence from before clients began to hold workers, where they do from now on.
    pub(super) fn take(
        &mut self,
        now_s: f64,
        observation: &QueueObservation,
        answers: &Answers,
    ) -> Option<Evidence> {
        self.answers = answers.count().then(|| answers.left());
        self.kept_open = answers.kept_open();
        let ListenerSample::Listening(Listener {
            connections, length, ..
        }) = observation.sample
        else {
            self.held = None;
            return None;
        };
        self.known = connections;
        let share = |of: fn(&Connections) -> u64| match (connections.as_ref().map(of), length) {
            (Some(many), Some(waiting)) if waiting > 0 && many >= MIN_GONE => {
                (many as f64 / f64::from(waiting)).min(1.0)
            }
            _ => 0.0,
        };
        self.gone = share(|found| found.gone);
        self.cancelled = share(|found| found.cancelled);
        let held = connections.filter(Connections::are_held);
        self.untold_s = match connections {
            Some(_) => 0.0,
            None => self.untold_s + observation.length.get(),
        };
        if self.untold_s > FEW_HELD_S {
            // Where nobody waits they are not looked at, and may have gone.
            (self.few_held, self.few_held_s) = (0.0, 0.0);
        }
        if let Some(found) = connections.filter(|_| held.is_none()) {
            let length_s = observation.length.get();
            self.few_held_s = (self.few_held_s + length_s).min(FEW_HELD_S);
            self.few_held += (found.held_share() - self.few_held) * (length_s / self.few_held_s).min(1.0);
        }
        let was_held = std::mem::replace(&mut self.held, held).is_some();
        let since_s = now_s - held.filter(|_| !was_held)?.longest_s() - UNSEEN_S;
        while self.kept.back().is_some_and(|(at_s, _)| *at_s > since_s) {
            self.kept.pop_back();
        }
        self.kept.back().map(|(_, evidence)| evidence.clone())
    }

    /// Keeps what is known at the end of a step, and says what is to be doubted of it. `rate` is what was accepted of late.
    pub(super) fn keep(&mut self, now_s: f64, evidence: &Evidence, rate: PerSecond, stale_s: f64) {
        let is_due = |(at_s, _): &(f64, Evidence)| now_s - at_s >= KEPT_EVERY_S * (1.0 - 1e-6);
        if self.held.is_none() && self.kept.back().is_none_or(is_due) {
            self.kept.push_back((now_s, evidence.clone()));
            if self.kept.len() > KEPT {
                self.kept.pop_front();
            }
        }
        let was_cancelled = matches!(self.doubt, Some((_, Doubt::Cancelled(_))));
        // While they are held what is served is set aside.
        let is_counted = self.held.is_none();
        self.unanswered = match self.unanswered(rate).filter(|_| is_counted) {
            // Those that come next show as late.
            Some(doubt) => Some((now_s + stale_s + doubt.shows_after_s(), doubt)),
            None => self.unanswered.filter(|(until_s, _)| now_s <= *until_s),
        };
        let unanswered = self.unanswered.map(|(_, doubt)| doubt);
        let found = match self.answers {
            Some(left) if left >= SHARE => Some(Doubt::Left(left)),
            Some(_) => unanswered,
            None if self.gone >= SHARE => Some(Doubt::Gone(self.gone)),
            None if self.cancelled >= SHARE => Some(Doubt::Cancelled(self.cancelled)),
            None if self.kept_open >= SHARE => Some(Doubt::KeptOpen(self.kept_open)),
            None => unanswered,
        };
        let few = self.few();
        let together = || (few.hidden() >= SHARE).then_some(Doubt::Together(few));
        self.doubt = match found.or_else(together) {
            Some(doubt) => Some((now_s, doubt)),
            // What was counted meanwhile is still among what is estimated from.
            None => self.doubt.filter(|(at_s, doubt)| {
                now_s - at_s <= stale_s && !matches!(doubt, Doubt::Unanswered { .. })
            }),
        };
        self.most = match self.doubt {
            Some((_, Doubt::Cancelled(_))) if !was_cancelled && self.most.is_none() => self.before(now_s),
            // What was counted since they began is no more sure for those that ask for nothing at times.
            Some((
                _,
                Doubt::Cancelled(_) | Doubt::Gone(_) | Doubt::Unanswered { .. } | Doubt::Together(_),
            )) => self.most,
            _ => None,
        };
    }

    /// What it took before this doubt can have begun.
    fn before(&self, now_s: f64) -> Option<PerSecond> {
        let mut kept = self.kept.iter().rev();
        let (_, evidence) = kept.find(|(at_s, _)| now_s - at_s > KEPT_EVERY_S)?;
        let mut evidence = evidence.clone();
        evidence.tells().then(|| evidence.rate())
    }

    fn unanswered(&self, rate: PerSecond) -> Option<Doubt> {
        let found = self.known?;
        let requests = found.on_hand();
        // Little's law.
        let for_s = found.longest_s();
        let times = for_s * rate.get() / requests.max(1) as f64;
        let is_long = for_s >= LONG_S && times >= LONG_TIMES;
        is_long.then_some(Doubt::Unanswered {
            requests,
            for_s,
            times,
        })
    }

    /// Whether many of those that it accepted ended without an answer.
    pub(super) fn have_left(&self) -> bool {
        self.answers.is_some_and(|left| left >= SHARE)
    }

    /// The connections of a server of whose workers clients hold some.
    pub(super) const fn held(&self) -> Option<Connections> {
        self.held
    }

    /// Why the estimate is not sure.
    pub(super) fn doubt(&self) -> Option<Doubt> {
        self.doubt.map(|(_, doubt)| doubt)
    }

    /// What it takes at most while clients leave what may be parts of requests; `None` where none do, or nothing was known before.
    pub(super) const fn most(&self) -> Option<PerSecond> {
        self.most
    }

    /// How many times as many workers the server has as clients leave it.
    pub(super) fn without_held(&self) -> f64 {
        let times = |found: Connections| found.on_hand() as f64 / found.working.max(1) as f64;
        self.held.map_or(1.0, times)
    }

    /// The same, were one more of those that work held: as they come and go between two counts of them that cannot be told.
    pub(super) fn without_one_more(&self) -> f64 {
        let times = |found: Connections| match found.working {
            0 | 1 => f64::INFINITY,
            working => found.on_hand() as f64 / (working - 1) as f64,
        };
        self.held.map_or(1.0, times)
    }

    /// How many times as many it may have worked for as were answered.
    pub(super) fn with_those_who_left(&self) -> f64 {
        let left = match self.doubt {
            Some((_, Doubt::Left(share))) => share,
            _ => self.answers.unwrap_or(0.0),
        };
        1.0 / (1.0 - left).max(SHARE)
    }

    /// How many times as much all its workers would serve as is served while too few are held to set that aside.
    pub(super) fn with_few_held(&self) -> f64 {
        // Those that are not answered for long are a tenth at least.
        let unanswered = self.unanswered.map_or(0.0, |_| SHARE);
        1.0 / ((1.0 - self.few_held) * (1.0 - unanswered))
    }

    /// Who is too few alone, those that may be doubted among them.
    fn few(&self) -> Few {
        let (left, gone) = match self.answers {
            Some(left) => (left, 0.0),
            None => (self.cancelled, self.gone),
        };
        Few {
            // Where nobody waits they hide nothing.
            held: self.known.map_or(0.0, |_| self.few_held),
            left,
            gone,
        }
    }

    /// The share of what is accepted that are requests.
    pub(super) const fn asking(&self) -> f64 {
        1.0 - self.gone
    }
}

#[cfg(test)]
#[path = "clients_tests.rs"]
mod tests;
