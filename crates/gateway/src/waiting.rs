//! Which cores have requests that wait for a backend below its limit.
//!
//! The limit of requests in flight at a backend, and that of requests that wait, are over all cores: each core has a queue of its
//! own, and a request that ends on one core may make room for one that waits on another. Nobody waits, nearly always: then the end of
//! a request costs one load of a counter that nobody writes.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use tokio::sync::Notify;

use crate::admission::MAX_RANKS;

/// One core's part, on a cache line of its own; with a neighbour, for processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct CoreWaiting {
    /// Of each rank.
    counts: [AtomicUsize; MAX_RANKS],
    /// To how many other cores the news of room may be handed on, if nobody here can use it.
    hops: AtomicUsize,
    news: Notify,
}

impl CoreWaiting {
    /// The most important rank of those that wait here.
    fn first_rank(&self) -> Option<usize> {
        self.counts.iter().position(|count| count.load(SeqCst) > 0)
    }
}

/// The longest time after which a client is told to come again.
const MAX_RETRY_AFTER_S: u64 = 60;

/// The requests of all cores that wait.
#[derive(Debug)]
pub(crate) struct Waiting {
    cores: Box<[CoreWaiting]>,
    total: AtomicUsize,
    /// How many may wait when one of this rank comes, one of itself included; as many as there are ranks.
    limits: Box<[usize]>,
    /// How long the last one waited whose turn came, in microseconds.
    last_wait_us: AtomicU64,
    /// Counts those that were told to come again.
    told: AtomicU64,
    /// Whose turn it is to hear of room.
    turn: AtomicUsize,
}

impl Waiting {
    /// At most `limit` may wait, over so many cores. Each of `ranks` may have an equal part more of the places than the next less
    /// important one, and the most important all of them: so what is less important leaves places for what is more.
    pub(crate) fn new(cores: usize, limit: usize, ranks: usize) -> Self {
        let ranks = ranks.clamp(1, MAX_RANKS);
        Self {
            cores: (0..cores).map(|_| CoreWaiting::default()).collect(),
            total: AtomicUsize::new(0),
            limits: (0..ranks)
                .map(|rank| (limit * (ranks - rank)).div_ceil(ranks))
                .collect(),
            last_wait_us: AtomicU64::new(0),
            told: AtomicU64::new(0),
            turn: AtomicUsize::new(0),
        }
    }

    /// One more of this rank waits on this core; `false` where as many wait as may.
    pub(crate) fn join(&self, core: usize, rank: usize) -> bool {
        // Before it looks for room, in one order with who makes room and then looks whether anybody waits: one of the two sees the
        // other.
        if self.total.fetch_add(1, SeqCst) >= self.limits[rank] {
            self.total.fetch_sub(1, SeqCst);
            return false;
        }
        self.cores[core].counts[rank].fetch_add(1, SeqCst);
        true
    }

    /// One of this rank waits no more on this core.
    pub(crate) fn leave(&self, core: usize, rank: usize) {
        self.cores[core].counts[rank].fetch_sub(1, SeqCst);
        self.total.fetch_sub(1, SeqCst);
    }

    /// One had its turn after it had waited for so long.
    pub(crate) fn waited(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.last_wait_us.store(us, Relaxed);
    }

    /// After how many seconds who is turned away is to come again: once what waits now has had its turn, as long as that took last, and
    /// some later than others, so that they do not all come at once. Where nobody waits how long others waited once says nothing.
    pub(crate) fn retry_after_s(&self) -> u64 {
        let wait_s = match self.is_any() {
            true => self.last_wait_us.load(Relaxed).div_ceil(1_000_000),
            false => 0,
        };
        let spread = self.told.fetch_add(1, Relaxed) % (wait_s + 1);
        (wait_s + spread).clamp(1, MAX_RETRY_AFTER_S)
    }

    /// Whether anybody waits.
    pub(crate) fn is_any(&self) -> bool {
        self.total.load(Relaxed) > 0
    }

    /// This core's part of the limit, rounded up.
    pub(crate) fn part(&self) -> usize {
        self.limits[0].div_ceil(self.cores.len().max(1))
    }

    /// A request has ended on this core. Of the cores on which what is most important waits one hears of it, in turn; `true` where it is
    /// this one.
    pub(crate) fn ended(&self, core: usize) -> bool {
        if self.total.load(SeqCst) == 0 {
            return false;
        }
        let turn = self.turn.fetch_add(1, Relaxed);
        let cores = self.cores.len();
        let in_turn = (0..cores).map(|step| (turn + step) % cores);
        let best = in_turn
            .filter_map(|index| Some((self.cores[index].first_rank()?, index)))
            .min_by_key(|(rank, _)| *rank);
        // Those of no rank have just gone.
        best.is_some_and(|(_, index)| self.tell(index, cores - 1, core))
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
            if self.cores[index].first_rank().is_some() {
                return self.tell(index, among - step - 1, own);
            }
        }
        false
    }

    /// Tells this core, which may hand the news on to so many others; `true` where it is `own`.
    fn tell(&self, index: usize, hops: usize, own: usize) -> bool {
        let core = &self.cores[index];
        core.hops.fetch_max(hops, Relaxed);
        if index == own {
            return true;
        }
        core.news.notify_one();
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
        let waiting = Waiting::new(4, 3, 1);
        assert_eq!(waiting.part(), 1);
        assert!([0, 0, 0].into_iter().all(|core| waiting.join(core, 0)));
        assert!(!waiting.join(1, 0), "three wait, whichever core they are on");
        waiting.leave(0, 0);
        assert!(waiting.join(1, 0));
    }

    #[test]
    fn cores_that_wait_hear_of_room_in_turn_and_others_do_not() {
        let waiting = Waiting::new(3, 10, 1);
        assert!(!waiting.ended(0), "nobody waits");
        assert!(waiting.join(1, 0) && waiting.join(2, 0));
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
        let waiting = Waiting::new(3, 10, 1);
        assert!((0..3).all(|core| waiting.join(core, 0)));
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

    #[test]
    fn what_is_less_important_leaves_places_for_what_is_more() {
        let waiting = Waiting::new(2, 6, 3);
        assert!(waiting.join(0, 2) && waiting.join(1, 2));
        assert!(!waiting.join(0, 2), "a third of six is theirs");
        assert!(waiting.join(0, 1) && waiting.join(0, 1) && !waiting.join(1, 1));
        assert!(waiting.join(1, 0) && waiting.join(1, 0) && !waiting.join(1, 0));
        assert!([(0, 2), (1, 2)].into_iter().all(|(core, rank)| {
            waiting.leave(core, rank);
            !waiting.join(core, rank)
        }));
    }

    #[test]
    fn room_goes_where_the_most_important_wait() {
        let waiting = Waiting::new(3, 10, 2);
        assert!(waiting.join(0, 1) && waiting.join(2, 0) && waiting.join(1, 1));
        for _ in 0..4 {
            assert!(!waiting.ended(0));
            assert!(has_news(&waiting, 2) && !has_news(&waiting, 1) && !has_news(&waiting, 0));
            waiting.taken(2);
        }
        // What it cannot use goes on to the others, each once.
        assert!(!waiting.ended(1));
        assert!(has_news(&waiting, 2));
        waiting.hand_on(2);
        assert!(has_news(&waiting, 0));
        waiting.hand_on(0);
        assert!(has_news(&waiting, 1));
        waiting.hand_on(1);
        assert!((0..3).all(|core| !has_news(&waiting, core)));
    }

    #[test]
    fn who_is_turned_away_comes_again_when_its_turn_may_have_come() {
        let waiting = Waiting::new(1, 1, 1);
        waiting.waited(Duration::from_millis(2_400));
        assert!((0..4).all(|_| waiting.retry_after_s() == 1), "nobody waits");
        assert!(waiting.join(0, 0));
        let said: Vec<u64> = (0..4).map(|_| waiting.retry_after_s()).collect();
        assert!(said.iter().all(|after| (3..=6).contains(after)), "{said:?}");
        assert!(said.windows(2).any(|two| two[0] != two[1]), "{said:?}");
        waiting.waited(Duration::from_secs(86_400));
        assert_eq!(waiting.retry_after_s(), MAX_RETRY_AFTER_S);
    }
}
