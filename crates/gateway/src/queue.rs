//! Requests of one core that wait for a backend below its limit of requests in flight: what is more important first, and of one rank
//! first come, first served.
//!
//! Only the first of them looks for a backend, whenever a request ends (on any core: [`Waiting`]) or another one comes; having found
//! one, it leaves and wakes the next, for there may be room for more. A request that finds the queue empty never touches it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::waiting::Waiting;

/// The waiting requests of one core.
#[derive(Debug)]
pub(crate) struct Queue {
    core: usize,
    waiters: RefCell<VecDeque<Rc<Waiter>>>,
    /// Those of all cores.
    waiting: Arc<Waiting>,
}

#[derive(Debug)]
struct Waiter {
    /// 0 for the most important.
    rank: usize,
    waker: RefCell<Option<Waker>>,
}

/// A request's place in the queue; it leaves when this is dropped.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    queue: &'a Queue,
    waiter: Rc<Waiter>,
}

impl Queue {
    /// The queue of this core.
    pub(crate) fn new(core: usize, waiting: Arc<Waiting>) -> Self {
        Self {
            core,
            waiters: RefCell::default(),
            waiting,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.borrow().is_empty()
    }

    /// This core's part of the requests that may wait.
    pub(crate) fn part(&self) -> usize {
        self.waiting.part()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiters.borrow().len()
    }

    /// Joins the queue behind those of its rank; `None` where as many wait, over all cores, as may.
    pub(crate) fn join(&self, rank: usize) -> Option<Place<'_>> {
        if !self.waiting.join(self.core, rank) {
            return None;
        }
        let waiter = Rc::new(Waiter {
            rank,
            waker: RefCell::default(),
        });
        let mut waiters = self.waiters.borrow_mut();
        let at = waiters.partition_point(|other| other.rank <= rank);
        waiters.insert(at, waiter.clone());
        drop(waiters);
        // Backends may have come back without a request having ended.
        self.wake_first();
        Some(Place { queue: self, waiter })
    }

    /// A request of this core has ended: whoever's turn it is, on this core or another, looks again.
    pub(crate) fn ended(&self) {
        if self.waiting.ended(self.core) {
            self.wake_first();
        }
    }

    /// Until something that ended on another core is to be looked at.
    pub(crate) async fn news(&self) {
        self.waiting.news(self.core).await;
    }

    /// One of this core has taken the room that it heard of.
    pub(crate) fn taken(&self) {
        self.waiting.taken(self.core);
    }

    /// Something has changed: the first in the queue looks again. Where none waits here any more, another core may use it.
    pub(crate) fn wake_first(&self) {
        match self.waiters.borrow().front() {
            Some(first) => {
                if let Some(waker) = &*first.waker.borrow() {
                    waker.wake_by_ref();
                }
            }
            None => self.waiting.hand_on(self.core),
        }
    }
}

impl Place<'_> {
    /// Waits until this is the first in the queue and `found` has an answer.
    pub(crate) async fn turn<T>(&self, mut found: impl FnMut() -> Option<T>) -> T {
        poll_fn(|cx| {
            let waiters = self.queue.waiters.borrow();
            let first = waiters
                .front()
                .is_some_and(|first| Rc::ptr_eq(first, &self.waiter));
            drop(waiters);
            if first {
                if let Some(answer) = found() {
                    return Poll::Ready(answer);
                }
                self.queue.waiting.hand_on(self.queue.core);
            }
            *self.waiter.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut waiters = self.queue.waiters.borrow_mut();
        // Nearly always it is the first that leaves.
        if let Some(place) = waiters.iter().position(|waiter| Rc::ptr_eq(waiter, &self.waiter)) {
            waiters.remove(place);
            self.queue.waiting.leave(self.queue.core, self.waiter.rank);
        }
        drop(waiters);
        self.queue.wake_first();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::task::{Context, Wake};

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Alarm(AtomicUsize);

    impl Wake for Alarm {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn only_the_first_takes_what_is_free_and_the_next_is_woken() {
        let queue = Queue::new(0, Arc::new(Waiting::new(1, 2, 1)));
        let free = Cell::new(0);
        let take = || {
            (free.get() > 0).then(|| {
                free.set(free.get() - 1);
            })
        };
        let alarm = Arc::new(Alarm::default());
        let waker = alarm.clone().into();
        let mut cx = Context::from_waker(&waker);
        let (first, second) = (queue.join(0).unwrap(), queue.join(0).unwrap());
        assert!(queue.join(0).is_none(), "a third is too many");
        {
            let (mut one, mut two) = (pin!(first.turn(take)), pin!(second.turn(take)));
            assert!(one.as_mut().poll(&mut cx).is_pending());
            assert!(two.as_mut().poll(&mut cx).is_pending());
            free.set(2);
            // The second may not overtake.
            assert!(two.as_mut().poll(&mut cx).is_pending());
            queue.wake_first();
            assert_eq!(alarm.0.load(SeqCst), 1);
            assert!(one.as_mut().poll(&mut cx).is_ready());
        }
        drop(first);
        assert_eq!(alarm.0.load(SeqCst), 2, "who leaves wakes the next");
        assert!(pin!(second.turn(take)).poll(&mut cx).is_ready());
        drop(second);
        assert!(queue.is_empty());
        assert_eq!(free.get(), 0);
    }

    #[test]
    fn room_that_its_core_did_not_live_to_use_goes_to_another_core() {
        let waiting = Arc::new(Waiting::new(3, 9, 1));
        let queues: Vec<_> = (0..3).map(|core| Queue::new(core, waiting.clone())).collect();
        let (mut first, second) = (queues[0].join(0), queues[1].join(0));
        let has_news = |core: usize| {
            let mut cx = Context::from_waker(Waker::noop());
            pin!(queues[core].news()).poll(&mut cx).is_ready()
        };
        // A request ends on a core where none waits: one of the two that wait hears of it, and gives up before it has looked.
        queues[2].ended();
        assert!(has_news(0) && !has_news(1));
        drop(first.take());
        assert!(has_news(1), "nobody has taken it");
        drop(second);
    }

    #[test]
    fn who_gives_up_in_the_middle_leaves_the_others_in_their_order() {
        let queue = Queue::new(0, Arc::new(Waiting::new(1, 3, 1)));
        let mut cx = Context::from_waker(Waker::noop());
        let places: Vec<_> = (0..3).map(|_| queue.join(0).unwrap()).collect();
        let mut places = places.into_iter();
        let (first, second, third) = (
            places.next().unwrap(),
            places.next().unwrap(),
            places.next().unwrap(),
        );
        drop(second);
        assert_eq!(queue.len(), 2);
        assert!(pin!(third.turn(|| Some(()))).poll(&mut cx).is_pending());
        drop(first);
        assert!(pin!(third.turn(|| Some(()))).poll(&mut cx).is_ready());
    }

    #[test]
    fn what_is_more_important_goes_first_and_equals_in_the_order_they_came() {
        let queue = Queue::new(0, Arc::new(Waiting::new(1, 30, 3)));
        let mut cx = Context::from_waker(Waker::noop());
        let ranks = [1, 2, 0, 1, 0, 2];
        let places: Vec<_> = ranks.map(|rank| queue.join(rank)).into_iter().flatten().collect();
        let mut left: Vec<usize> = (0..places.len()).collect();
        let mut places: Vec<_> = places.into_iter().map(Some).collect();
        let mut order = Vec::new();
        while !left.is_empty() {
            let first = left.iter().position(|at| {
                let place = places[*at].as_ref();
                place.is_some_and(|place| pin!(place.turn(|| Some(()))).poll(&mut cx).is_ready())
            });
            let at = left.remove(first.expect("one is the first"));
            places[at] = None;
            order.push(at);
        }
        assert_eq!(order, [2, 4, 0, 3, 1, 5]);
        assert!(queue.is_empty());
    }
}
