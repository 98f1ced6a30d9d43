//! How the requests of batches are let go: in their order, and no faster than what is behind answers.
//!
//! A whole batch at once would overrun the listen queue of a backend, or the gateway's own queue, both of which took the same requests one
//! by one. So as many are on their way as a window allows, and each that is answered lets the next go. By Little's law as many are on
//! their way without batches as arrive within a response time; the window is twice that, so that a batch is let go in half an interval, and at
//! least a few. Who is not answered within an interval or two does not count any
//! more, so that nobody waits for those that are stuck.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::core::Core;

/// The least window, over all cores, and of one.
const FEW: usize = 4;
const FEW_OF_A_CORE: usize = 2;
/// The weight of another response time in what is known of it.
const WEIGHT: f64 = 1.0 / 16.0;
/// The window as a multiple of what is in flight without batches.
const AHEAD: f64 = 2.0;
/// A response time beyond which the window follows no further, in seconds.
const MAX_RESPONSE_S: f64 = 60.0;

/// By how much a window is widened, how much more must be answered for it, and the intervals until the next attempt where it was not.
const WIDER: f64 = 1.5;
const MORE: f64 = 1.1;
const HOLDS: u32 = 8;
/// What is believed of the response time shrinks by this in each interval: what nobody confirms is forgotten.
const FORGETS: f64 = 0.95;

/// A batch that was let go: how long its requests take together.
struct Batch {
    began: Instant,
    left: Cell<usize>,
    done: Cell<Option<Instant>>,
}

/// Whom a request that is held waits for.
pub(super) type Waiting = oneshot::Sender<Member>;

/// A request's part in its batch, until it is answered or its client goes.
pub(super) struct Member {
    release: Rc<Release>,
    /// None of one that went by itself.
    batch: Option<Rc<Batch>>,
    /// Those that went in the same interval, of which it is one.
    peers: Rc<Cell<usize>>,
    let_go: Instant,
    /// So few were on their way that its response time is not that of a queue that the batch itself made.
    is_among_few: bool,
}

impl Member {
    /// Whether it went with its batch.
    pub(super) fn is_of_batch(&self) -> bool {
        self.batch.is_some()
    }

    /// It was answered, or it failed.
    pub(super) fn ended(self, is_answered: bool) {
        let release = &self.release;
        if !is_answered {
            release.has_failed.set(true);
            return;
        }
        // Those that went by themselves come as fast as they arrive, whatever the window.
        if self.is_of_batch() {
            release.answers.set(release.answers.get() + 1);
        }
        if self.is_among_few {
            release.learn(self.let_go.elapsed());
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let release = &self.release;
        self.peers.set(self.peers.get() - 1);
        if let Some(batch) = &self.batch {
            release.leave(batch);
        }
        release.go_on();
    }
}

/// What came of a window that was widened because batches took longer than an interval.
#[derive(Clone, Copy, Debug)]
enum Attempt {
    /// None for so many intervals.
    Holds(u32),
    /// So many were answered a second before.
    Widened(f64),
}

impl Attempt {
    /// The factor on what is believed of the response time after an interval in which so many were answered a second, and what follows.
    fn next(self, is_behind: bool, has_failed: bool, answered_per_s: f64) -> (f64, Self) {
        match (is_behind, self) {
            _ if has_failed => (0.5, Self::Holds(HOLDS)),
            (false, Self::Holds(left)) => (FORGETS, Self::Holds(left.saturating_sub(1))),
            (false, Self::Widened(_)) => (1.0, Self::Holds(0)),
            (true, Self::Holds(0)) => (WIDER, Self::Widened(answered_per_s)),
            (true, Self::Holds(left)) => (1.0, Self::Holds(left - 1)),
            (true, Self::Widened(before)) if answered_per_s > MORE * before => {
                (WIDER, Self::Widened(answered_per_s))
            }
            (true, Self::Widened(_)) => (1.0 / WIDER, Self::Holds(HOLDS)),
        }
    }
}

/// One core's batches that were let go and are not all on their way.
pub(super) struct Release {
    core: Rc<Core>,
    /// The least window.
    few: usize,
    window: Cell<usize>,
    /// How many are on their way that went in this interval, and in the one before.
    peers: RefCell<[Rc<Cell<usize>>; 2]>,
    waiting: RefCell<VecDeque<(Rc<Batch>, Waiting)>>,
    /// What is known of the response time without a queue that batches make, in seconds, and from how many.
    response: Cell<(f64, u32)>,
    /// Requests a second of the last batch.
    rate: Cell<f64>,
    /// When an interval was over last.
    turned: Cell<Instant>,
    is_watched: Cell<bool>,
    /// Since then: answers of batches, and whether any failed.
    answers: Cell<u32>,
    has_failed: Cell<bool>,
    attempt: Cell<Attempt>,
    last: RefCell<Option<Rc<Batch>>>,
}

impl Release {
    /// Of one of `cores` cores.
    pub(super) fn new(core: Rc<Core>, cores: usize) -> Self {
        let few = FEW.div_ceil(cores).max(FEW_OF_A_CORE);
        Self {
            core,
            few,
            window: Cell::new(few),
            peers: RefCell::default(),
            waiting: RefCell::default(),
            response: Cell::default(),
            rate: Cell::default(),
            turned: Cell::new(Instant::now()),
            is_watched: Cell::new(false),
            answers: Cell::default(),
            has_failed: Cell::default(),
            attempt: Cell::new(Attempt::Holds(0)),
            last: RefCell::default(),
        }
    }

    /// How many wait for those before them.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Lets a batch go, in this order: the groups that were held for an interval that ends now.
    pub(super) fn begin(self: &Rc<Self>, groups: Vec<Vec<Waiting>>, interval: Duration) {
        let requests: usize = groups.iter().map(Vec::len).sum();
        if requests == 0 {
            return;
        }
        let now = Instant::now();
        let waited = waited(self.last.borrow().as_deref(), now, interval);
        {
            let counts = &mut self.core.stats.borrow_mut().batch;
            counts.batches += 1;
            counts.requests += requests as u64;
            counts.groups += groups.len() as u64;
            counts.waiting_us += micros(waited);
        }
        self.rate.set(requests as f64 / interval.as_secs_f64().max(1e-3));
        self.turn(interval);
        let batch = Rc::new(Batch {
            began: now,
            left: Cell::new(requests),
            done: Cell::new(None),
        });
        self.last.replace(Some(batch.clone()));
        let clients = groups.into_iter().flatten();
        self.waiting
            .borrow_mut()
            .extend(clients.map(|client| (batch.clone(), client)));
        self.go_on();
        self.watch(interval);
    }

    /// Goes on an interval later where some still wait, also when no other batch comes.
    fn watch(self: &Rc<Self>, interval: Duration) {
        if self.waiting.borrow().is_empty() || self.is_watched.replace(true) {
            return;
        }
        let this = self.clone();
        tokio::task::spawn_local(async move {
            while !this.waiting.borrow().is_empty() {
                tokio::time::sleep_until((this.turned.get() + interval).into()).await;
                if this.turned.get().elapsed() >= interval {
                    this.turn(interval);
                    this.go_on();
                }
            }
            this.is_watched.set(false);
        });
    }

    /// An interval is over: who went before the last is not waited for any more, and the window is chosen anew.
    fn turn(&self, interval: Duration) {
        let length = self.turned.replace(Instant::now()).elapsed();
        let answered_per_s = f64::from(self.answers.take()) / length.as_secs_f64().max(1e-3);
        self.widen(interval, answered_per_s);
        let mut peers = self.peers.borrow_mut();
        peers.swap(0, 1);
        peers[0] = Rc::default();
    }

    /// Learns from a response time among few.
    fn learn(&self, response: Duration) {
        let (known, count) = self.response.get();
        let count = count.saturating_add(1);
        let weight = WEIGHT.max(1.0 / f64::from(count));
        let known = known + weight * (response.as_secs_f64() - known);
        self.response.set((known, count));
    }

    /// One goes by itself, whatever the window: the others make room for it.
    pub(super) fn passes(self: &Rc<Self>) -> Member {
        self.on_its_way(None)
    }

    fn on_its_way(self: &Rc<Self>, batch: Option<Rc<Batch>>) -> Member {
        let peers = self.peers.borrow()[0].clone();
        peers.set(peers.get() + 1);
        Member {
            release: self.clone(),
            batch,
            peers,
            let_go: Instant::now(),
            is_among_few: self.on_their_way() <= self.few,
        }
    }

    fn on_their_way(&self) -> usize {
        self.peers.borrow().iter().map(|peers| peers.get()).sum()
    }

    /// Sets the window by what is known of the response time. Where batches take longer than an interval, that is longer than is known, or
    /// what is behind can do no more: the window is widened, and narrowed again where that brings no more answers or one fails.
    fn widen(&self, interval: Duration, answered_per_s: f64) {
        let is_behind = !self.waiting.borrow().is_empty();
        self.forget_gone();
        let (factor, attempt) = self
            .attempt
            .get()
            .next(is_behind, self.has_failed.take(), answered_per_s);
        self.attempt.set(attempt);
        let (known, count) = self.response.get();
        let mut known = factor * known;
        if factor > 1.0 {
            // Those that went by themselves fill a window that is shorter than they are many.
            let there = WIDER * self.on_their_way() as f64 / (AHEAD * self.rate.get());
            known = known.max(interval.as_secs_f64() / 16.0).max(there);
        }
        self.response.set((known.min(MAX_RESPONSE_S), count));
        let wanted = (AHEAD * self.rate.get() * self.response.get().0).ceil() as usize;
        self.window.set(wanted.max(self.few).min(self.room()));
    }

    /// How many requests what is behind takes at once, without that it turns any away.
    fn room(&self) -> usize {
        let available = self.core.backends.iter();
        let available =
            available.filter(|one| one.is_in_service() && one.is_healthy() && !one.ejection.is_ejected());
        let in_flight = self
            .core
            .max_in_flight_per_backend
            .saturating_mul(available.count());
        // Half of the queue is for what passes at once.
        in_flight.saturating_add(self.core.queue.limit() / 2).max(1)
    }

    /// Those whose client has gone, or that went by themselves, need not wait for their turn.
    fn forget_gone(&self) {
        self.waiting.borrow_mut().retain(|(batch, client)| {
            let stays = !client.is_closed();
            if !stays {
                self.leave(batch);
            }
            stays
        });
    }

    /// Lets as many go as the window allows.
    fn go_on(self: &Rc<Self>) {
        while self.on_their_way() < self.window.get() {
            let Some((batch, client)) = self.waiting.borrow_mut().pop_front() else {
                return;
            };
            if client.is_closed() {
                self.leave(&batch);
                continue;
            }
            drop(client.send(self.on_its_way(Some(batch))));
        }
    }

    /// One of a batch's requests has been answered, or is none of it any more.
    fn leave(&self, batch: &Batch) {
        let left = batch.left.get() - 1;
        batch.left.set(left);
        if left == 0 {
            let now = Instant::now();
            batch.done.set(Some(now));
            let counts = &mut self.core.stats.borrow_mut().batch;
            counts.answered += 1;
            counts.processing_us += micros(now - batch.began);
        }
    }
}

/// T_w of the interval that ends now: from the end of the processing of the batch before it, or from its own beginning where that was
/// earlier; nothing where that batch is still being processed.
fn waited(last: Option<&Batch>, now: Instant, interval: Duration) -> Duration {
    match last.map(|last| last.done.get()) {
        None => interval,
        Some(None) => Duration::ZERO,
        Some(Some(done)) => now.saturating_duration_since(done).min(interval),
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By how much the window has grown after intervals that were all too short, with so many answers a second for each window.
    fn grown(intervals: usize, answers: impl Fn(f64) -> f64, has_failed: bool) -> f64 {
        let (mut window, mut attempt) = (1.0, Attempt::Holds(0));
        for _ in 0..intervals {
            let (factor, next) = attempt.next(true, has_failed, answers(window));
            (window, attempt) = (window * factor, next);
        }
        window
    }

    #[test]
    fn a_window_grows_only_where_that_brings_answers() {
        // A service that only takes its time answers more with each.
        assert!(grown(9, |window| 100.0 * window, false) >= 32.0);
        // One that can do no more, and one that is stuck, are tried now and then and left as they were.
        assert!(grown(200, |_| 100.0, false) <= 2.0);
        assert!(grown(200, |_| 0.0, false) <= 2.0);
        assert!(grown(3, |window| 100.0 * window, true) < 0.2);
    }

    #[test]
    fn what_nobody_confirms_is_forgotten() {
        let (mut known, mut attempt) = (64.0, Attempt::Holds(0));
        for _ in 0..100 {
            let (factor, next) = attempt.next(false, false, 100.0);
            (known, attempt) = (known * factor, next);
        }
        assert!(known < 1.0, "{known}");
    }

    #[test]
    fn waiting_and_processing_make_an_interval() {
        let interval = Duration::from_millis(100);
        let now = Instant::now() + Duration::from_secs(1);
        let after = |done_ms_ago: Option<u64>| {
            let last = Batch {
                began: now - interval,
                left: Cell::new(0),
                done: Cell::new(done_ms_ago.map(|ago| now - Duration::from_millis(ago))),
            };
            waited(Some(&last), now, interval).as_millis()
        };
        assert_eq!(waited(None, now, interval), interval);
        // 70 ms of processing leave 30; one that takes longer than an interval leaves nothing.
        assert_eq!(after(Some(30)), 30);
        assert_eq!(after(None), 0);
        // Intervals without requests lay between.
        assert_eq!(after(Some(400)), 100);
    }
}
