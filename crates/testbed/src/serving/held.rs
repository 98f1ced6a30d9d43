//! The machine in real time: each request is held in it until it is done.

use super::machine::{Done, Machine};
use headroom_physics::RequestCost;
use headroom_workload::random::{Draw, Purpose, Rng};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The most requests in the machine at a time; one more is refused.
pub(super) const MAX_REQUESTS: usize = 65_536;

/// Every bit of the machine that threads share.
#[derive(Debug)]
pub(super) struct Held {
    began: Instant,
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug)]
struct Inner {
    machine: Machine,
    /// How the processor times of requests spread around the mean: exponentially, as in the simulated machines. Did all take the same time,
    /// all clients would go in step, first at the cores and then at the link, and never use both at once.
    spread: Rng,
    waiting: HashMap<u64, oneshot::Sender<()>>,
    /// Content of requests and answers that went over its link, bytes.
    received: u64,
    sent: u64,
    stopped: bool,
}

/// What is known of it at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) done: Done,
    pub(super) received: u64,
    pub(super) sent: u64,
}

impl Held {
    pub(super) fn new(machine: Machine) -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            inner: Mutex::new(Inner {
                machine,
                spread: Rng::new(1, Purpose::Sizes),
                waiting: HashMap::new(),
                received: 0,
                sent: 0,
                stopped: false,
            }),
            changed: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the machine come to now, and tells those whose requests are done.
    fn pass(&self, inner: &mut Inner) {
        for request in inner.machine.pass_until(self.began.elapsed().as_secs_f64()) {
            if let Some(waiting) = inner.waiting.remove(&request) {
                // Somebody who went away takes no answer; the machine worked for him all the same.
                let _ = waiting.send(());
            }
        }
    }

    /// A request comes with so many bytes and is answered with so many; `None` where the machine is full. The answer may leave when the
    /// receiver is told, or when its sender is gone because the machine was stopped.
    pub(super) fn submit(
        &self,
        cost: RequestCost,
        received: u64,
        sent: u64,
    ) -> Option<oneshot::Receiver<()>> {
        let mut inner = self.lock();
        if inner.stopped || inner.waiting.len() >= MAX_REQUESTS {
            return None;
        }
        self.pass(&mut inner);
        let cpu = cost.cpu * inner.spread.exponential();
        let request = inner.machine.arrive(RequestCost { cpu, ..cost });
        inner.received += received;
        inner.sent += sent;
        let (tell, told) = oneshot::channel();
        inner.waiting.insert(request, tell);
        drop(inner);
        self.changed.notify_all();
        Some(told)
    }

    pub(super) fn seen(&self) -> Seen {
        let mut inner = self.lock();
        self.pass(&mut inner);
        Seen {
            done: inner.machine.done(),
            received: inner.received,
            sent: inner.sent,
        }
    }

    /// Ends requests when they are due, until it is stopped.
    pub(super) fn work(&self) {
        let mut inner = self.lock();
        while !inner.stopped {
            self.pass(&mut inner);
            let due_s = inner.machine.due_in_s().min(60.0);
            inner = self
                .changed
                .wait_timeout(inner, Duration::from_secs_f64(due_s))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Sleeps for a while, or until it is stopped; whether it goes on.
    pub(super) fn sleep(&self, length: Duration) -> bool {
        let until = Instant::now() + length;
        let mut inner = self.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if inner.stopped || left.is_zero() {
                return !inner.stopped;
            }
            inner = self
                .changed
                .wait_timeout(inner, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Lets nobody in any more, and lets those go that are there.
    pub(super) fn stop(&self) {
        let mut inner = self.lock();
        inner.stopped = true;
        inner.waiting.clear();
        drop(inner);
        self.changed.notify_all();
    }
}
