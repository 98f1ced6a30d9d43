//! Where requests of one core wait for a backend below its limit: in the line of all cores ([`Waiting`]).
//!
//! Only the first of the line looks for a backend, whenever a request ends (on any core) or another one comes; having found one, it leaves
//! and wakes the next, for there may be room for more. A core with some that wait looks now and then whether who was called has come.

use std::cell::Cell;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;

use crate::waiting::{Key, PASSED_OVER, Turn, Waiting};

/// The waiting requests of one core.
#[derive(Debug)]
pub(crate) struct Queue {
    waiting: Arc<Waiting>,
    core: usize,
    /// How many of them are of this core.
    here: Cell<usize>,
    /// Somebody waits here, and nobody did.
    begun: Notify,
}

/// A request's place in the line; it leaves when this is dropped.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    queue: &'a Queue,
    key: Key,
}

/// A more important request has taken the place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TurnedAway;

impl Queue {
    /// The queue of the core of this number.
    pub(crate) fn new(waiting: Arc<Waiting>, core: usize) -> Self {
        Self {
            waiting,
            core,
            here: Cell::new(0),
            begun: Notify::new(),
        }
    }

    /// How many of this core wait.
    pub(crate) fn len(&self) -> usize {
        self.here.get()
    }

    /// Joins the line behind those of its rank; `None` where as many wait, over all cores, as may, and none of them is less important.
    /// It waits for a backend that it has not `tried`.
    pub(crate) fn join(&self, rank: usize, tried: &[usize]) -> Option<Place<'_>> {
        let key = self.waiting.join(self.core, rank, tried)?;
        if self.here.replace(self.here.get() + 1) == 0 {
            self.begun.notify_one();
        }
        Some(Place { queue: self, key })
    }

    /// As long as somebody of this core waits, sees to it that who was called and does not come is passed over, though nobody comes, ends
    /// or leaves, and that backends are taken that came back.
    pub(crate) async fn run(&self) {
        loop {
            while self.here.get() == 0 {
                self.begun.notified().await;
            }
            tokio::time::sleep(PASSED_OVER).await;
            self.waiting.wake_first();
        }
    }
}

impl Place<'_> {
    /// Whether it waits for a backend other than those it tried; one that is not takes any.
    pub(crate) fn is_choosy(&self) -> bool {
        self.key.is_choosy()
    }

    /// Waits until this is the first in the line and `found` has an answer.
    ///
    /// # Errors
    /// A more important request has taken its place.
    pub(crate) async fn turn<T>(&self, mut found: impl FnMut() -> Option<T>) -> Result<T, TurnedAway> {
        poll_fn(|cx| match self.queue.waiting.turn(self.key, cx.waker()) {
            Turn::TurnedAway => Poll::Ready(Err(TurnedAway)),
            Turn::Wait => Poll::Pending,
            Turn::Look => match found() {
                Some(answer) => Poll::Ready(Ok(answer)),
                None => {
                    self.queue.waiting.looked_in_vain();
                    Poll::Pending
                }
            },
        })
        .await
    }

    /// It had its turn after it had waited for so long, and leaves.
    pub(crate) fn served(self, after: Duration) {
        self.queue.waiting.served(self.key, after);
    }

    /// It leaves without a turn after it has waited for so long.
    pub(crate) fn gave_up(self, after: Duration) {
        self.queue.waiting.gave_up(self.key, after);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.queue.here.set(self.queue.here.get() - 1);
        self.queue.waiting.leave(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::task::{Context, Wake, Waker};

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
        let waiting = Arc::new(Waiting::new(1, 2, 1));
        let queue = Queue::new(waiting.clone(), 0);
        let free = Cell::new(0);
        let take = || {
            (free.get() > 0).then(|| {
                free.set(free.get() - 1);
            })
        };
        let alarm = Arc::new(Alarm::default());
        let waker = alarm.clone().into();
        let mut cx = Context::from_waker(&waker);
        let (first, second) = (queue.join(0, &[]).unwrap(), queue.join(0, &[]).unwrap());
        assert!(queue.join(0, &[]).is_none(), "a third is too many");
        {
            let (mut one, mut two) = (pin!(first.turn(take)), pin!(second.turn(take)));
            assert!(one.as_mut().poll(&mut cx).is_pending());
            assert!(two.as_mut().poll(&mut cx).is_pending());
            free.set(2);
            // The second may not overtake.
            assert!(two.as_mut().poll(&mut cx).is_pending());
            waiting.wake_first();
            assert_eq!(alarm.0.load(SeqCst), 1);
            assert!(one.as_mut().poll(&mut cx).is_ready());
        }
        first.served(Duration::ZERO);
        assert_eq!(alarm.0.load(SeqCst), 2, "who leaves wakes the next");
        assert!(pin!(second.turn(take)).poll(&mut cx).is_ready());
        drop(second);
        assert_eq!((queue.len(), waiting.is_any(), free.get()), (0, false, 0));
    }

    #[test]
    fn who_gives_up_leaves_the_others_in_their_order_whichever_core_they_are_on() {
        let waiting = Arc::new(Waiting::new(2, 3, 1));
        let queues = [Queue::new(waiting.clone(), 0), Queue::new(waiting, 1)];
        let mut cx = Context::from_waker(Waker::noop());
        let (first, second) = (queues[0].join(0, &[]).unwrap(), queues[1].join(0, &[]).unwrap());
        let third = queues[0].join(0, &[]).unwrap();
        second.gave_up(Duration::ZERO);
        assert_eq!((queues[0].len(), queues[1].len()), (2, 0));
        assert!(pin!(third.turn(|| Some(()))).poll(&mut cx).is_pending());
        drop(first);
        assert!(pin!(third.turn(|| Some(()))).poll(&mut cx).is_ready());
    }

    #[test]
    fn whose_place_is_taken_is_woken_to_hear_of_it() {
        let waiting = Arc::new(Waiting::new(2, 2, 2));
        let queues = [Queue::new(waiting.clone(), 0), Queue::new(waiting.clone(), 1)];
        let alarm = Arc::new(Alarm::default());
        let waker = alarm.clone().into();
        let mut cx = Context::from_waker(&waker);
        let lesser = queues[1].join(1, &[]).unwrap();
        let mut turn = pin!(lesser.turn(|| None::<()>));
        assert!(turn.as_mut().poll(&mut cx).is_pending());
        let important = [queues[0].join(0, &[]), queues[0].join(0, &[])];
        assert!(important.iter().all(Option::is_some));
        assert!(alarm.0.load(SeqCst) > 0);
        assert_eq!(turn.as_mut().poll(&mut cx), Poll::Ready(Err(TurnedAway)));
        drop(important);
        assert!(!waiting.is_any(), "it is not counted twice");
    }

    #[tokio::test]
    async fn who_is_called_on_a_core_that_stands_still_is_passed_over_though_nothing_happens() {
        let waiting = Arc::new(Waiting::new(2, 8, 1));
        let (standing, queue) = (Queue::new(waiting.clone(), 0), Queue::new(waiting, 1));
        let _never_looks = standing.join(0, &[]).unwrap();
        let place = queue.join(0, &[]).unwrap();
        let turn = tokio::time::timeout(Duration::from_secs(60), place.turn(|| Some(())));
        tokio::select! {
            turn = turn => assert_eq!(turn, Ok(Ok(()))),
            () = queue.run() => {}
        }
    }

    #[test]
    fn who_looks_in_vain_lets_those_look_who_take_other_backends() {
        let waiting = Arc::new(Waiting::new(1, 8, 1));
        let queue = Queue::new(waiting.clone(), 0);
        let alarm = Arc::new(Alarm::default());
        let waker = alarm.clone().into();
        let choosy = queue.join(0, &[0]).unwrap();
        let other = queue.join(0, &[]).unwrap();
        let mut vain = pin!(choosy.turn(|| None::<()>));
        let mut found = pin!(other.turn(|| Some(())));
        assert!(found.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(
            vain.as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
        assert_eq!(alarm.0.load(SeqCst), 1);
        assert!(found.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    }
}
