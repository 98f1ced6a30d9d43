//! The requests of all cores that wait for a backend below its limit, in the order in which their turns come: what is more important
//! first, and of one rank first come, first served.
//!
//! The limit of requests in flight at a backend, and that of requests that wait, are over all cores, and so is the line of those that
//! wait: a request that ends on one core may make room for one that waits on another. Nobody waits, nearly always: then a request costs
//! two loads of a counter that nobody writes. Only who waits, and who ends or comes while others wait, takes the lock.
//!
//! The first looks for room. Two do not keep those behind them from looking: one that was called and does not come, for its core stands
//! still; and one that is tried again and does not take every backend.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::admission::MAX_RANKS;

/// What one core is told, on a cache line of its own; with a neighbour, for processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct CoreNews(Notify);

/// One that was called for so long and has not looked is passed over: its core does something else.
const PASSED_OVER: Duration = Duration::from_millis(50);
/// The longest time after which a client is told to come again.
const MAX_RETRY_AFTER_S: u64 = 60;

/// A place in the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// 0 for the most important.
    rank: usize,
    /// In the order in which they came.
    number: u64,
}

/// What who waits is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Look for room: it is the first, or nobody before it keeps it from that.
    Look,
    /// Wait on.
    Wait,
    /// Go: a more important one has its place.
    TurnedAway,
}

/// What is known of how long those of a rank wait.
#[derive(Debug, Clone, Copy, Default)]
struct Waits {
    /// How long the last one waited whose turn came, or who gave up.
    last: Duration,
    /// Since when some have come and none had its turn.
    none_since: Option<Instant>,
}

/// One that waits.
#[derive(Debug, Default)]
struct Waiter {
    waker: Option<Waker>,
    /// Since when it was called and has not looked.
    called: Option<Instant>,
    /// It does not take every backend.
    is_choosy: bool,
}

impl Waiter {
    fn keeps_others(&self, now: Instant) -> bool {
        let does_not_come = |called: Instant| now.saturating_duration_since(called) > PASSED_OVER;
        !self.is_choosy && !self.called.is_some_and(does_not_come)
    }
}

#[derive(Debug, Default)]
struct Line {
    waiters: BTreeMap<Key, Waiter>,
    next_number: u64,
    /// Of each rank, since somebody waits.
    waits: [Waits; MAX_RANKS],
}

impl Line {
    /// Calls those that are to look: the first, and those behind it as far as it keeps nobody from that.
    fn call(&mut self) -> Vec<Waker> {
        let now = Instant::now();
        let mut called = Vec::new();
        for waiter in self.waiters.values_mut() {
            let is_last = waiter.keeps_others(now);
            waiter.called.get_or_insert(now);
            called.extend(waiter.waker.clone());
            if is_last {
                break;
            }
        }
        called
    }

    fn may_look(&self, key: Key) -> bool {
        let now = Instant::now();
        let mut before = self.waiters.range(..key);
        before.all(|(_, waiter)| !waiter.keeps_others(now))
    }

    fn has(&self, rank: usize) -> bool {
        let of_rank = Key { rank, number: 0 }..Key {
            rank: rank + 1,
            number: 0,
        };
        self.waiters.range(of_rank).next().is_some()
    }
}

/// The requests of all cores that wait.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// How many: the line's length, to be read without the lock.
    total: AtomicUsize,
    line: Mutex<Line>,
    /// How many may wait when one of this rank comes, one of itself included; as many as there are ranks.
    limits: Box<[usize]>,
    /// Counts those that were told to come again.
    told: AtomicU64,
    news: Box<[CoreNews]>,
}

fn wake(wakers: impl IntoIterator<Item = Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}

impl Waiting {
    /// At most `limit` may wait, over so many cores. Each of `ranks` may have an equal part more of the places than the next less
    /// important one, and the most important all of them: so what is less important leaves places for what is more.
    pub(crate) fn new(cores: usize, limit: usize, ranks: usize) -> Self {
        let ranks = ranks.clamp(1, MAX_RANKS);
        Self {
            total: AtomicUsize::new(0),
            line: Mutex::default(),
            limits: (0..ranks)
                .map(|rank| (limit * (ranks - rank)).div_ceil(ranks))
                .collect(),
            told: AtomicU64::new(0),
            news: (0..cores).map(|_| CoreNews::default()).collect(),
        }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more of this rank waits, behind those of its rank. Where no place is free for it, the youngest of the lowest rank is turned
    /// away in its place; `None` where none is less important. A choosy one does not take every backend.
    pub(crate) fn join(&self, rank: usize, is_choosy: bool) -> Option<Key> {
        let mut line = self.line();
        line.waits[rank].none_since.get_or_insert_with(Instant::now);
        let mut turned_away = None;
        if line.waiters.len() >= self.limits[rank] {
            let last = line.waiters.last_entry().filter(|last| last.key().rank > rank)?;
            turned_away = last.remove().waker;
        }
        let key = Key {
            rank,
            number: line.next_number,
        };
        line.next_number += 1;
        let waiter = Waiter {
            is_choosy,
            ..Waiter::default()
        };
        line.waiters.insert(key, waiter);
        // Before it looks for room, in one order with who makes room and then looks whether anybody waits: one of the two sees the
        // other.
        self.total.store(line.waiters.len(), SeqCst);
        // Backends may have come back without a request having ended.
        let called = line.call();
        drop(line);
        wake(turned_away);
        wake(called);
        Some(key)
    }

    /// Whether it is the turn of this one, which is woken whenever that may have changed.
    pub(crate) fn turn(&self, key: Key, waker: &Waker) -> Turn {
        let mut line = self.line();
        let Some(own) = line.waiters.get_mut(&key) else {
            return Turn::TurnedAway;
        };
        // Before it looks: it is not to miss what ends meanwhile.
        match &mut own.waker {
            Some(own) => own.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        own.called = None;
        match line.may_look(key) {
            true => Turn::Look,
            false => Turn::Wait,
        }
    }

    /// This one waits no more. The next one looks: there may be room for more than one.
    pub(crate) fn leave(&self, key: Key) {
        let mut line = self.line();
        // Its place may be another's by now.
        line.waiters.remove(&key);
        self.total.store(line.waiters.len(), SeqCst);
        if line.waiters.is_empty() {
            line.waits = Default::default();
        }
        let called = line.call();
        drop(line);
        wake(called);
    }

    /// This one had its turn after it had waited for so long; it is about to leave.
    pub(crate) fn served(&self, key: Key, time: Duration) {
        let mut line = self.line();
        line.waiters.remove(&key);
        let others_wait = line.has(key.rank);
        line.waits[key.rank] = Waits {
            last: time,
            none_since: others_wait.then(Instant::now),
        };
    }

    /// This one gives up after it has waited for so long.
    pub(crate) fn gave_up(&self, key: Key, time: Duration) {
        self.line().waits[key.rank].last = time;
    }

    /// After how many seconds one of this rank that is turned away is to come again: once what waits now has had its turn, as long as that
    /// took last for it or for what is more important, and at least as long as none of its rank has had a turn; some later than others,
    /// so that they do not all come at once. Where nobody waits how long others waited once says nothing.
    pub(crate) fn retry_after_s(&self, rank: usize) -> u64 {
        let wait_s = match self.is_any() {
            true => self.wait_of(rank).as_millis().div_ceil(1_000) as u64,
            false => 0,
        };
        let wait_s = wait_s.min(MAX_RETRY_AFTER_S);
        let spread = self.told.fetch_add(1, Relaxed) % (wait_s + 1);
        (wait_s + spread).clamp(1, MAX_RETRY_AFTER_S)
    }

    fn wait_of(&self, rank: usize) -> Duration {
        let line = self.line();
        let last = line.waits[..=rank].iter().map(|waits| waits.last).max();
        let none_for = line.waits[rank].none_since.map(|since| since.elapsed());
        last.max(none_for).unwrap_or_default()
    }

    /// Whether anybody waits.
    pub(crate) fn is_any(&self) -> bool {
        self.total.load(Relaxed) > 0
    }

    /// A core's part of the limit, rounded up.
    pub(crate) fn part(&self) -> usize {
        self.limits[0].div_ceil(self.news.len().max(1))
    }

    /// There may be room: the first of those that wait looks.
    pub(crate) fn wake_first(&self) {
        if self.total.load(SeqCst) > 0 {
            let called = self.line().call();
            wake(called);
        }
    }

    /// Every core hears that another one waits for a connection.
    pub(crate) fn tell_all(&self) {
        for core in &self.news {
            core.0.notify_one();
        }
    }

    /// Until this core hears of something.
    pub(crate) async fn news(&self, core: usize) {
        self.news[core].0.notified().await;
    }
}

#[cfg(test)]
#[path = "waiting_tests.rs"]
mod tests;
