//! The requests of all cores that wait for a backend below its limit, in the order in which their turns come: what is more important
//! first, and of one rank first come, first served.
//!
//! The limit of requests in flight at a backend, and that of requests that wait, are over all cores, and so is the line of those that
//! wait: a request that ends on one core may make room for one that waits on another. Nobody waits, nearly always: then a request costs
//! two loads of counters that nobody writes. Only who waits, and who ends or comes while others wait, takes the lock.
//!
//! The first looks for room. Where it was called and does not come its core stands still: then all that wait there are passed over
//! until something is heard of that core.
//!
//! Who could not connect to a backend waits for another one, in a lane with those that pass over the same backends. The first of each
//! lane looks, one after the other: what one finds no room for, those behind it in its lane find none for either. Such lanes have places of
//! their own, and nobody is kept from overtaking who waits there.

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

/// A core on which one was called for so long, and of which nothing was heard since, is passed over.
pub(crate) const PASSED_OVER: Duration = Duration::from_millis(50);
/// So many lanes there are at most, so that the search for who looks next stays short.
const MAX_LANES: usize = 8;
/// The longest time after which a client is told to come again.
const MAX_RETRY_AFTER_S: u64 = 60;

/// A place in the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// 0 for the most important.
    rank: usize,
    /// In the order in which they came.
    number: u64,
    core: usize,
    /// Not in the main lane.
    is_choosy: bool,
}

impl Key {
    /// Whether it waits for a backend other than those it tried; one that is not takes any.
    pub(crate) fn is_choosy(self) -> bool {
        self.is_choosy
    }
}

/// What who waits is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Look for room: it is the next.
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

/// Those that take the same backends.
#[derive(Debug)]
struct Lane {
    /// The backends that they do not take; none for the main lane.
    tried: Box<[usize]>,
    /// Those of each core, with what wakes them once they have been polled.
    cores: Box<[BTreeMap<Key, Option<Waker>>]>,
    /// There may be room since this event, and nobody here has looked.
    due: Option<u64>,
}

impl Lane {
    fn new(tried: Box<[usize]>, cores: usize) -> Self {
        Self {
            tried,
            cores: (0..cores).map(|_| BTreeMap::new()).collect(),
            due: None,
        }
    }

    fn is_empty(&self) -> bool {
        self.cores.iter().all(BTreeMap::is_empty)
    }
}

#[derive(Debug)]
struct Line {
    /// The main lane, which takes any backend; behind it those of the choosy, as long as somebody waits there.
    lanes: Vec<Lane>,
    /// Of each core, since when one was called there and nothing was heard of it.
    called: Box<[Option<Instant>]>,
    next_number: u64,
    /// How often something happened that may have made room.
    events: u64,
    /// Of each rank, since somebody waits.
    waits: [Waits; MAX_RANKS],
}

impl Line {
    fn new(cores: usize) -> Self {
        Self {
            lanes: vec![Lane::new(Box::default(), cores)],
            called: vec![None; cores].into(),
            next_number: 0,
            events: 0,
            waits: Default::default(),
        }
    }

    /// There may be room: the first of each lane is to look.
    fn event(&mut self) {
        self.events += 1;
        for lane in self.lanes.iter_mut().filter(|lane| !lane.is_empty()) {
            lane.due.get_or_insert(self.events);
        }
    }

    /// Who is to look, and in which lane: who comes first among those that have not looked since the earliest event. What happens
    /// meanwhile does not begin that anew, so that nobody keeps those behind from looking by looking in vain.
    fn next(&self) -> Option<(usize, Key)> {
        let now = Instant::now();
        let stands = |called: Instant| now.saturating_duration_since(called) > PASSED_OVER;
        let first = |lane: &Lane| {
            let there = lane.cores.iter().zip(&self.called);
            there
                .filter(|(_, called)| !called.is_some_and(stands))
                .filter_map(|(waiters, _)| waiters.keys().next().copied())
                .min()
        };
        let lanes = self.lanes.iter().enumerate();
        lanes
            .filter_map(|(at, lane)| Some((lane.due?, first(lane)?, at)))
            .min()
            .map(|(_, key, at)| (at, key))
    }

    /// Calls who is to look.
    fn call(&mut self) -> Option<Waker> {
        let (lane, key) = self.next()?;
        self.called[key.core].get_or_insert_with(Instant::now);
        self.lanes[lane].cores[key.core].get(&key)?.clone()
    }

    /// This core does not stand still.
    fn heard(&mut self, core: usize) {
        self.called[core] = None;
    }

    fn lane_of(&self, key: Key) -> Option<usize> {
        let has = |lane: &Lane| lane.cores[key.core].contains_key(&key);
        self.lanes.iter().position(has)
    }

    /// Where one waits that passes over these backends.
    fn lane_for(&self, tried: &[usize]) -> Option<usize> {
        self.lanes.iter().position(|lane| *lane.tried == *tried)
    }

    /// The youngest of the least important, of those that have the same places.
    fn last(&self, choosy: bool) -> Option<Key> {
        let lanes = match choosy {
            true => &self.lanes[1..],
            false => &self.lanes[..1],
        };
        let lasts = lanes.iter().flat_map(|lane| &lane.cores);
        lasts
            .filter_map(|waiters| waiters.keys().next_back().copied())
            .max()
    }

    /// Takes it out; the next one in its lane is to look, for there may be room for more than one.
    fn take(&mut self, key: Key) -> Option<Option<Waker>> {
        let at = self.lane_of(key)?;
        let lane = &mut self.lanes[at];
        let taken = lane.cores[key.core].remove(&key);
        match lane.is_empty() {
            false => {
                lane.due.get_or_insert(self.events);
            }
            true if at == 0 => lane.due = None,
            true => {
                self.lanes.swap_remove(at);
            }
        }
        taken
    }

    fn has(&self, rank: usize) -> bool {
        let cores = self.lanes.iter().flat_map(|lane| &lane.cores);
        let mut of_rank = cores.flat_map(|waiters| {
            let from = Key {
                rank,
                number: 0,
                core: 0,
                is_choosy: false,
            };
            let to = Key {
                rank: rank + 1,
                ..from
            };
            waiters.range(from..to).next()
        });
        of_rank.next().is_some()
    }
}

/// The requests of all cores that wait.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// How many, to be read without the lock.
    total: AtomicUsize,
    /// How many of them in the main lane.
    main: AtomicUsize,
    line: Mutex<Line>,
    /// How many may wait when one of this rank comes, one of itself included, in the main lane and as many in the others; as many as there
    /// are ranks.
    limits: Box<[usize]>,
    /// Counts those that were told to come again.
    told: AtomicU64,
    news: Box<[CoreNews]>,
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl Waiting {
    /// At most `limit` may wait, over so many cores. Each of `ranks` may have an equal part more of the places than the next less
    /// important one, and the most important all of them: so what is less important leaves places for what is more.
    pub(crate) fn new(cores: usize, limit: usize, ranks: usize) -> Self {
        let ranks = ranks.clamp(1, MAX_RANKS);
        Self {
            total: AtomicUsize::new(0),
            main: AtomicUsize::new(0),
            line: Mutex::new(Line::new(cores)),
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

    /// Under the lock, after what was done under it.
    fn count(&self, key: Key, change: impl Fn(&AtomicUsize)) {
        if !key.is_choosy {
            change(&self.main);
        }
        change(&self.total);
    }

    fn take(&self, line: &mut Line, key: Key) -> Option<Waker> {
        let taken = line.take(key)?;
        self.count(key, |counter| {
            counter.fetch_sub(1, SeqCst);
        });
        taken
    }

    /// One more of this rank waits on this core, behind those of its rank, for a backend that it has not `tried`. Where no place is free
    /// for it, the youngest of the lowest rank is turned away in its place; `None` where none is less important.
    pub(crate) fn join(&self, core: usize, rank: usize, tried: &[usize]) -> Option<Key> {
        let mut line = self.line();
        line.heard(core);
        line.waits[rank].none_since.get_or_insert_with(Instant::now);
        // Of too many kinds it is not choosy: what it tried is worth another try after the wait.
        let is_choosy =
            !tried.is_empty() && (line.lanes.len() <= MAX_LANES || line.lane_for(tried).is_some());
        let main = self.main.load(Relaxed);
        let waiting = match is_choosy {
            true => self.total.load(Relaxed) - main,
            false => main,
        };
        let mut turned_away = None;
        if waiting >= self.limits[rank] {
            let last = line.last(is_choosy).filter(|last| last.rank > rank)?;
            turned_away = self.take(&mut line, last);
        }
        let key = Key {
            rank,
            number: line.next_number,
            core,
            is_choosy,
        };
        line.next_number += 1;
        let lane = match is_choosy {
            false => 0,
            true => line.lane_for(tried).unwrap_or_else(|| {
                let cores = self.news.len();
                line.lanes.push(Lane::new(tried.into(), cores));
                line.lanes.len() - 1
            }),
        };
        line.lanes[lane].cores[core].insert(key, None);
        // Before it looks for room, in one order with who makes room and then looks whether anybody waits: one of the two sees the
        // other.
        self.count(key, |counter| {
            counter.fetch_add(1, SeqCst);
        });
        // Backends may have come back without a request having ended.
        line.event();
        let called = line.call();
        drop(line);
        wake(turned_away);
        wake(called);
        Some(key)
    }

    /// Whether it is the turn of this one, which is woken whenever that may have changed.
    pub(crate) fn turn(&self, key: Key, waker: &Waker) -> Turn {
        let mut line = self.line();
        line.heard(key.core);
        let Some(own) = line.lane_of(key) else {
            return Turn::TurnedAway;
        };
        if let Some(own) = line.lanes[own].cores[key.core].get_mut(&key) {
            match own {
                Some(own) => own.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
        }
        if line.next() == Some((own, key)) {
            // Before it looks: it is not to miss what ends meanwhile.
            line.lanes[own].due = None;
            return Turn::Look;
        }
        // Its core may have been passed over until now, and who waits there is not the one it was.
        let called = line.call();
        drop(line);
        wake(called);
        Turn::Wait
    }

    /// One has looked and found no room: the first of another lane, which takes other backends, looks.
    pub(crate) fn looked_in_vain(&self) {
        if self.total.load(Relaxed) > self.main.load(Relaxed) {
            let called = self.line().call();
            wake(called);
        }
    }

    /// This one waits no more. The next one looks: there may be room for more than one.
    pub(crate) fn leave(&self, key: Key) {
        let mut line = self.line();
        line.heard(key.core);
        // Its place may be another's by now.
        self.take(&mut line, key);
        if self.total.load(Relaxed) == 0 {
            line.waits = Default::default();
        }
        let called = line.call();
        drop(line);
        wake(called);
    }

    /// This one had its turn after it had waited for so long; it is about to leave.
    pub(crate) fn served(&self, key: Key, time: Duration) {
        let mut line = self.line();
        self.take(&mut line, key);
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

    /// Whether somebody waits whom one that comes does not overtake.
    pub(crate) fn is_line(&self) -> bool {
        self.main.load(Relaxed) > 0
    }

    /// A core's part of the limit, rounded up.
    pub(crate) fn part(&self) -> usize {
        self.limits[0].div_ceil(self.news.len().max(1))
    }

    /// There may be room: the first of those that wait looks.
    pub(crate) fn wake_first(&self) {
        if self.total.load(SeqCst) > 0 {
            let mut line = self.line();
            line.event();
            let called = line.call();
            drop(line);
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
