//! Which cores have requests that wait for a backend below its limit.
//!
//! The limit of requests in flight at a backend, and that of requests that wait, are over all cores: each core has a queue of its
//! own, and a request that ends on one core may make room for one that waits on another. Nobody waits, nearly always: then the end of
//! a request costs one load of a counter that nobody writes.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

use tokio::sync::Notify;

/// One core's part, on a cache line of its own; with a neighbour, for processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct CoreWaiting {
    count: AtomicUsize,
    /// To how many other cores the news of room may be handed on, if nobody here can use it.
    hops: AtomicUsize,
    news: Notify,
}

/// The requests of all cores that wait.
#[derive(Debug)]
pub(crate) struct Waiting {
    cores: Box<[CoreWaiting]>,
    total: AtomicUsize,
    limit: usize,
    /// Whose turn it is to hear of room.
    turn: AtomicUsize,
}

impl Waiting {
    /// At most `limit` may wait, over so many cores.
    pub(crate) fn new(cores: usize, limit: usize) -> Self {
        Self {
            cores: (0..cores).map(|_| CoreWaiting::default()).collect(),
            total: AtomicUsize::new(0),
            limit,
            turn: AtomicUsize::new(0),
        }
    }

    /// One more waits on this core; `false` where as many wait as may.
    pub(crate) fn join(&self, core: usize) -> bool {
        // Before it looks for room, in one order with who makes room and then looks whether anybody waits: one of the two sees the
        // other.
        if self.total.fetch_add(1, SeqCst) >= self.limit {
            self.total.fetch_sub(1, SeqCst);
            return false;
        }
        self.cores[core].count.fetch_add(1, SeqCst);
        true
    }

    /// One of this core waits no more.
    pub(crate) fn leave(&self, core: usize) {
        self.cores[core].count.fetch_sub(1, SeqCst);
        self.total.fetch_sub(1, SeqCst);
    }

    /// Whether anybody waits.
    pub(crate) fn is_any(&self) -> bool {
        self.total.load(Relaxed) > 0
    }

    /// This core's part of the limit, rounded up.
    pub(crate) fn part(&self) -> usize {
        self.limit.div_ceil(self.cores.len().max(1))
    }

    /// A request has ended on this core. The cores that wait hear of it in turn; `true` where it is this one's.
    pub(crate) fn ended(&self, core: usize) -> bool {
        if self.total.load(SeqCst) == 0 {
            return false;
        }
        let turn = self.turn.fetch_add(1, Relaxed);
        self.tell_one(turn, self.cores.len(), core)
    }

    /// Nobody of this core could use the room that it heard of: the next one hears of it, until each has.
    pub(crate) fn hand_on(&self, core: usize) {
        let hops = self.cores[core].hops.swap(0, Relaxed);
        if hops > 0 {
            self.tell_one(core + 1, hops, core);
        }
    }

    /// The room that this core heard of is taken.
    pub(crate) fn taken(&self, core: usize) {
        self.cores[core].hops.store(0, Relaxed);
    }

    /// Tells the first of `among` cores from `first` on that waits; `true` where that is `own`, which needs no telling.
    fn tell_one(&self, first: usize, among: usize, own: usize) -> bool {
        for step in 0..among {
            let index = (first + step) % self.cores.len();
            let core = &self.cores[index];
            if core.count.load(SeqCst) == 0 {
                continue;
            }
            core.hops.fetch_max(among - step - 1, Relaxed);
            if index == own {
                return true;
            }
            core.news.notify_one();
            return false;
        }
        false
    }

    /// Every core hears that something is to be looked at.
    pub(crate) fn tell_all(&self) {
        for core in &self.cores {
            core.news.notify_one();
        }
    }

    /// Until this core hears of something.
    pub(crate) async fn news(&self, core: usize) {
        self.cores[core].news.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn has_news(waiting: &Waiting, core: usize) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        pin!(waiting.news(core)).as_mut().poll(&mut cx).is_ready()
    }

    #[test]
    fn the_limit_is_one_for_all_cores() {
        let waiting = Waiting::new(4, 3);
        assert_eq!(waiting.part(), 1);
        assert!([0, 0, 0].into_iter().all(|core| waiting.join(core)));
        assert!(!waiting.join(1), "three wait, whichever core they are on");
        waiting.leave(0);
        assert!(waiting.join(1));
    }

    #[test]
    fn cores_that_wait_hear_of_room_in_turn_and_others_do_not() {
        let waiting = Waiting::new(3, 10);
        assert!(!waiting.ended(0), "nobody waits");
        assert!(waiting.join(1) && waiting.join(2));
        let mut heard = [0, 0];
        for _ in 0..4 {
            assert!(!waiting.ended(0), "it does not wait itself");
            heard[0] += usize::from(has_news(&waiting, 1));
            heard[1] += usize::from(has_news(&waiting, 2));
            assert!(!has_news(&waiting, 0));
            waiting.taken(1);
            waiting.taken(2);
        }
        assert_eq!(heard.iter().sum::<usize>(), 4);
        assert!(heard.iter().all(|times| *times > 0), "{heard:?}");
    }

    #[test]
    fn news_that_nobody_can_use_goes_round_once() {
        let waiting = Waiting::new(3, 10);
        assert!((0..3).all(|core| waiting.join(core)));
        let mut here = waiting.ended(0).then_some(0);
        let mut heard = vec![0; 3];
        for _ in 0..6 {
            let next = (0..3).find(|core| has_news(&waiting, *core));
            let Some(core) = here.take().or(next) else { break };
            heard[core] += 1;
            waiting.hand_on(core);
        }
        assert_eq!(heard, [1, 1, 1]);
    }
}
