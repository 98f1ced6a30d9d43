//! Who waits for what, and since when.
//!
//! A timer per request would cost more than the rest of the bookkeeping together. Instead each connection (and
//! each HTTP/2 stream) has a [`Watch`] on which the request path only writes what it is waiting for; a sweep
//! per core, a few times per timeout, turns that into deadlines and wakes what is overdue. The sweep sleeps
//! while a core has neither connections nor requests.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use slab::Slab;
use tokio::sync::Notify;

use crate::config::{TimeoutConfig, ms};

/// What a connection or a stream waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Phase {
    /// The first byte of a connection's first request.
    Fresh,
    /// The next request of a kept-alive connection.
    Idle,
    /// The rest of a request head.
    Head,
    /// The next piece of the request body.
    Upload,
    /// The backend's response head.
    Response,
    /// The next piece of the response body, or the client's reading of it.
    Body,
    /// Traffic on an upgraded connection.
    Tunnel,
    /// Nothing that has a timeout here: an HTTP/2 connection with open streams (each has its own watch), or a
    /// connection being opened (it has its own timer).
    Untimed,
}

const PHASES: usize = 8;

/// The state of one connection or stream.
#[derive(Debug)]
pub(crate) struct Watch {
    phase: Cell<Phase>,
    /// Raised at each progress; the sweep restarts the deadline when it finds it changed.
    progress: Cell<u32>,
    seen: Cell<u32>,
    deadline: Cell<Option<Instant>>,
    expired: Cell<bool>,
    /// When the request in flight arrived.
    started: Cell<Option<Instant>>,
    waker: RefCell<Option<Waker>>,
    key: Cell<usize>,
}

impl Watch {
    /// Enters a phase, its deadline starting anew.
    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        self.expired.set(false);
        self.touch();
    }

    /// Notes progress within the phase.
    pub(crate) fn touch(&self) {
        self.progress.set(self.progress.get().wrapping_add(1));
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// Whether the current phase has lasted too long.
    pub(crate) fn expired(&self) -> bool {
        self.expired.get()
    }

    /// Notes when the request in flight arrived, or that there is none.
    pub(crate) fn set_started(&self, started: Option<Instant>) {
        self.started.set(started);
    }

    /// Remembers which task to wake.
    pub(crate) fn wake_by(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        match &*waker {
            Some(known) if known.will_wake(cx.waker()) => {}
            _ => *waker = Some(cx.waker().clone()),
        }
    }

    /// Wakes that task.
    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

/// All watches of a core.
#[derive(Debug)]
pub(crate) struct Watches {
    entries: RefCell<Slab<Rc<Watch>>>,
    timeouts: [Option<Duration>; PHASES],
    sweep_every: Duration,
    sweeping: Cell<bool>,
    work: Notify,
}

impl Watches {
    pub(crate) fn new(config: &TimeoutConfig) -> Self {
        let mut timeouts = [None; PHASES];
        let mut set = |phase: Phase, value_ms: u64| timeouts[phase as usize] = Some(ms(value_ms));
        set(Phase::Fresh, config.request_header_timeout_ms);
        set(Phase::Idle, config.idle_timeout_ms);
        set(Phase::Head, config.request_header_timeout_ms);
        set(Phase::Upload, config.body_timeout_ms);
        set(Phase::Response, config.response_header_timeout_ms);
        set(Phase::Body, config.body_timeout_ms);
        set(Phase::Tunnel, config.tunnel_idle_timeout_ms);
        let shortest = timeouts
            .iter()
            .flatten()
            .min()
            .copied()
            .unwrap_or(Duration::from_secs(1));
        let sweep_every = (shortest / 10).clamp(Duration::from_millis(5), Duration::from_millis(100));
        Self {
            entries: RefCell::new(Slab::new()),
            timeouts,
            sweep_every,
            sweeping: Cell::new(false),
            work: Notify::new(),
        }
    }

    /// A new watch in `phase`. It must be given back by [`Watches::remove`].
    pub(crate) fn add(&self, phase: Phase) -> Rc<Watch> {
        let watch = Rc::new(Watch {
            phase: Cell::new(phase),
            progress: Cell::new(1),
            seen: Cell::new(0),
            deadline: Cell::new(None),
            expired: Cell::new(false),
            started: Cell::new(None),
            waker: RefCell::new(None),
            key: Cell::new(0),
        });
        watch.key.set(self.entries.borrow_mut().insert(watch.clone()));
        if !self.sweeping.replace(true) {
            self.work.notify_one();
        }
        watch
    }

    pub(crate) fn remove(&self, watch: &Watch) {
        self.entries.borrow_mut().try_remove(watch.key.get());
    }

    /// Arrival of the oldest request in flight.
    pub(crate) fn oldest_start(&self) -> Option<Instant> {
        self.entries
            .borrow()
            .iter()
            .filter_map(|(_, watch)| watch.started.get())
            .min()
    }

    /// Wakes every connection and stream.
    pub(crate) fn wake_all(&self) {
        // A waker only schedules a task; it never runs one here, so the borrow is not contended.
        for (_, watch) in self.entries.borrow().iter() {
            watch.wake();
        }
    }

    fn close_expired(&self, now: Instant) {
        for (_, watch) in self.entries.borrow().iter() {
            let progress = watch.progress.get();
            if watch.seen.replace(progress) != progress {
                let timeout = self.timeouts[watch.phase.get() as usize];
                watch.deadline.set(timeout.map(|timeout| now + timeout));
            } else if !watch.expired.get() && watch.deadline.get().is_some_and(|deadline| now >= deadline) {
                watch.expired.set(true);
                watch.wake();
            }
        }
    }

    /// Sweeps until dropped.
    pub(crate) async fn run(&self) {
        loop {
            if self.entries.borrow().is_empty() {
                self.sweeping.set(false);
                self.work.notified().await;
            }
            tokio::time::sleep(self.sweep_every).await;
            self.close_expired(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watches() -> Watches {
        Watches::new(&TimeoutConfig {
            body_timeout_ms: 1_000,
            ..TimeoutConfig::default()
        })
    }

    #[test]
    fn only_a_phase_without_progress_expires() {
        let watches = watches();
        let (still, moving) = (watches.add(Phase::Body), watches.add(Phase::Body));
        let mut now = Instant::now();
        for _ in 0..12 {
            watches.close_expired(now);
            moving.touch();
            now += Duration::from_millis(100);
        }
        assert!(still.expired());
        assert!(!moving.expired());
        still.enter(Phase::Untimed);
        watches.close_expired(now);
        watches.close_expired(now + Duration::from_secs(10_000));
        assert!(!still.expired());
    }

    #[test]
    fn the_oldest_start_is_the_least() {
        let watches = watches();
        let (a, b) = (watches.add(Phase::Response), watches.add(Phase::Response));
        assert_eq!(watches.oldest_start(), None);
        let early = Instant::now();
        a.set_started(Some(early + Duration::from_secs(1)));
        b.set_started(Some(early));
        assert_eq!(watches.oldest_start(), Some(early));
        watches.remove(&b);
        assert_eq!(watches.oldest_start(), Some(early + Duration::from_secs(1)));
    }
}
