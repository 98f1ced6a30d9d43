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

use crate::ahead::SharedAhead;
use crate::config::{TimeoutConfig, ms};

/// After so long without a request a connection gives back what only its next one needs.
const REST_AFTER: Duration = Duration::from_millis(200);

/// A client that is sent more than it takes has filled what the kernels on both sides hold after so long at most.
const KERNELS_SETTLE: Duration = Duration::from_secs(1);

/// A client whose request holds a backend that others wait for has at most so long before its rate counts.
const PRESSED_GRACE: Duration = Duration::from_secs(1);

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

/// What answered the request of a client that had closed its side.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Answered {
    /// For how long it waited for a backend in the line.
    pub waited: Option<Duration>,
    pub backend: Option<u16>,
}

/// The state of one connection or stream.
pub(crate) struct Watch {
    phase: Cell<Phase>,
    /// Raised at each progress; the sweep restarts the deadline when it finds it changed.
    progress: Cell<u32>,
    seen: Cell<u32>,
    deadline: Cell<Option<Instant>>,
    expired: Cell<bool>,
    /// The client has closed its side: it may have left.
    half_closed: Cell<bool>,
    /// What answered its request, where it is yet to be seen whether it had left.
    answered: Cell<Option<Answered>>,
    /// The next request has not come for a while.
    rests: Cell<bool>,
    /// The request in flight has taken longer than any may.
    overdue: Cell<bool>,
    /// When the head of the request in flight came.
    begun: Cell<Option<Instant>>,
    /// When the request in flight arrived.
    started: Cell<Option<Instant>>,
    /// A backend is busy with the request in flight.
    holds_backend: Cell<bool>,
    /// Both sides may be silent for as long as they like: a call of gRPC whose answer has begun.
    is_call: Cell<bool>,
    /// It is the client that is waited for: the next piece of its request, or that it takes the next of its answer.
    on_client: Cell<bool>,
    /// For how long it has been, in this phase, as far as the sweep saw.
    client_time: Cell<Duration>,
    /// What the client's machine had acknowledged when it was first waited for, or last given more time; `None` until that was asked.
    acknowledged: Cell<Option<u64>>,
    /// How often it was given more time.
    given: Cell<u32>,
    /// Bytes that the client sent or took since the last sweep.
    moved: Cell<u64>,
    /// In the last interval between two sweeps it did neither, and was waited for: it is to be noted what its machine has acknowledged.
    wants_acknowledged: Cell<bool>,
    /// By how many seconds it is behind its least rate.
    late: Cell<f64>,
    /// The same behind the rate that it must keep while others wait for its backend, of the time in which they did.
    pressed_late: Cell<f64>,
    /// For how long the request in flight waited for its client while it was sent; without the wait that goes on.
    upload_waits: Cell<Duration>,
    /// Since when the client is waited for, before there is an answer.
    upload_waits_since: Cell<Option<Instant>>,
    /// The answer under way, where more of it may be read than its client takes.
    pub ahead: RefCell<Option<SharedAhead>>,
    waker: RefCell<Option<Waker>>,
    key: Cell<usize>,
}

impl Watch {
    /// Enters a phase, its deadline starting anew.
    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        self.rests.set(false);
        self.set_on_client(false);
        self.go_on();
    }

    /// The phase goes on, its deadline starting anew.
    pub(crate) fn go_on(&self) {
        // For a request that has had all its time nothing begins anew.
        self.expired.set(self.overdue.get());
        self.client_time.set(Duration::ZERO);
        self.acknowledged.set(None);
        self.wants_acknowledged.set(false);
        self.moved.set(0);
        self.late.set(0.0);
        self.pressed_late.set(0.0);
        self.touch();
    }

    /// Whether a client whose time is up takes its answer all the same, if slowly: what its machine has `acknowledged` since the last time
    /// is at least what its rate asks for. The kernel's buffers can hold more than it takes in the whole time, so that nothing was
    /// written. It is given more time for that, `most` times.
    ///
    /// A machine acknowledges in lumps of up to 128 KB, half a minute apart where it is read at 4 KB/s: one that has acknowledged nothing yet
    /// is waited for as long as the `silence` that is allowed.
    fn takes_slowly(
        &self,
        acknowledged: Option<u64>,
        rate: u64,
        most: u32,
        silence: Option<Duration>,
    ) -> bool {
        if !self.is_of_client() {
            return false;
        }
        let taken = match (acknowledged, self.acknowledged.get()) {
            (Some(now), Some(before)) => now.saturating_sub(before),
            _ => 0,
        };
        let waited = self.client_time.get();
        if taken == 0 {
            let may = silence.is_some_and(|silence| waited < silence);
            if may {
                self.expired.set(false);
                self.late.set(0.0);
            }
            return may;
        }
        let given = self.given.replace(self.given.get().saturating_add(1));
        let least = rate as f64 * waited.as_secs_f64().max(1.0);
        let may = given < most && taken as f64 >= least;
        if may {
            self.go_on();
            self.acknowledged.set(acknowledged);
        }
        may
    }

    /// Whether it is to be noted what the client's machine has acknowledged: between two sweeps nothing was taken, so that the kernels are
    /// full, or so soon after that they still hand on what they have.
    pub(crate) fn wants_acknowledged(&self) -> bool {
        self.wants_acknowledged.take()
    }

    /// Notes it; from here on the client is to take more.
    pub(crate) fn note_acknowledged(&self, acknowledged: Option<u64>) {
        self.acknowledged.set(Some(acknowledged.unwrap_or(0)));
    }

    /// The client sent, or took, so many bytes.
    pub(crate) fn moved(&self, bytes: usize) {
        self.moved.set(self.moved.get() + bytes as u64);
        self.touch();
    }

    /// Whether the next request has not come for a while.
    pub(crate) fn rests(&self) -> bool {
        self.rests.get()
    }

    /// Whether it is the client that is waited for now.
    pub(crate) fn set_on_client(&self, on_client: bool) {
        if self.on_client.replace(on_client) && !on_client && self.expired.get() && !self.overdue.get() {
            // It was the client whose time was up, just when it went on: the service has all of its own.
            self.expired.set(false);
            self.touch();
        }
        // Of an answer its account has the times; the clock is not read for each of its pieces.
        let waits = on_client && self.phase.get() != Phase::Body;
        self.upload_waits_since.set(match waits {
            true => self.upload_waits_since.get().or_else(|| Some(Instant::now())),
            false => None,
        });
    }

    /// The request waited so long for a piece that its client sent.
    pub(crate) fn add_upload_wait(&self, wait: Duration) {
        self.upload_waits.set(self.upload_waits.get() + wait);
    }

    /// For how long the request in flight waited for its client while it was sent, until now.
    pub(crate) fn upload_waits(&self) -> Duration {
        let now = self.upload_waits_since.get().map(|since| since.elapsed());
        self.upload_waits.get() + now.unwrap_or_default()
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

    /// The client has closed its side.
    pub(crate) fn set_half_closed(&self) {
        self.half_closed.set(true);
    }

    /// Whether the client has closed its side, as most do that leave, and few that wait for an answer.
    pub(crate) fn is_half_closed(&self) -> bool {
        self.half_closed.get()
    }

    /// A client that has closed its side is answered after it waited for so long for a backend: whether it had left shows once it is sent
    /// the answer.
    pub(crate) fn set_waited(&self, waited: Duration) {
        let answered = self.answered.get().unwrap_or_default();
        self.answered.set(Some(Answered {
            waited: Some(waited),
            ..answered
        }));
    }

    /// A backend answers it; the same holds then.
    pub(crate) fn set_answered_by(&self, backend: u16) {
        if self.is_half_closed() {
            let answered = self.answered.get().unwrap_or_default();
            self.answered.set(Some(Answered {
                backend: Some(backend),
                ..answered
            }));
        }
    }

    /// Whether it is to be seen whether the client had left.
    pub(crate) fn is_to_be_judged(&self) -> bool {
        self.answered.get().is_some()
    }

    /// What answered it then, once.
    pub(crate) fn take_answered(&self) -> Option<Answered> {
        self.answered.take()
    }

    /// Notes when the head of the request in flight came, or that there is none.
    pub(crate) fn set_begun(&self, begun: Option<Instant>) {
        self.begun.set(begun);
        self.given.set(0);
        self.overdue.set(false);
        self.holds_backend.set(false);
    }

    /// Notes whether a backend is busy with the request in flight.
    pub(crate) fn set_holds_backend(&self, holds_backend: bool) {
        self.holds_backend.set(holds_backend);
    }

    /// Whether the time that is up, if it is, is the client's.
    pub(crate) fn is_of_client(&self) -> bool {
        self.on_client.get() && !self.overdue.get()
    }

    /// The request in flight is a call of gRPC: once its answer has begun, its client owes nothing.
    pub(crate) fn set_call(&self) {
        self.is_call.set(true);
    }

    /// When the head of the request in flight came.
    pub(crate) fn begun(&self) -> Option<Instant> {
        self.begun.get()
    }

    /// Notes when the request in flight arrived, or that there is none.
    pub(crate) fn set_started(&self, started: Option<Instant>) {
        self.started.set(started);
        self.upload_waits.set(Duration::ZERO);
    }

    /// Since when the request in flight has waited for the service, as far as it did; `None` while it waits for its client.
    fn waits_since(&self) -> Option<Instant> {
        let started = self.started.get().filter(|_| !self.on_client.get())?;
        Some(started + self.upload_waits.get())
    }

    /// Whether its client sends, or takes, fewer bytes a second than the `least` rate asks for while it is waited for, by more than that
    /// one's grace allows, or than the `pressed` one asks for; `passed` since the last look. What it moved before, however much, gives it
    /// no more time than that.
    fn is_too_slow(&self, passed: Duration, settle: Duration, least: Rate, pressed: Option<Rate>) -> bool {
        let moved = self.moved.take() as f64;
        let still = moved == 0.0 && self.on_client.get() && self.phase.get() == Phase::Body;
        let settles = self.acknowledged.get().is_none() || self.client_time.get() < settle;
        self.wants_acknowledged.set(still && settles);
        if moved > 0.0 {
            self.given.set(0);
        }
        let owes_nothing = self.is_call.get() && self.phase.get() == Phase::Body;
        if !self.on_client.get() || owes_nothing {
            return false;
        }
        self.client_time.set(self.client_time.get() + passed);
        let falls_behind = |late: &Cell<f64>, (rate, grace): Rate| {
            if rate == 0 {
                return false;
            }
            let now = late.get() + passed.as_secs_f64() - moved / rate as f64;
            late.set(now.max(0.0));
            now > grace.as_secs_f64()
        };
        let is_pressed_late = pressed.is_some_and(|rate| falls_behind(&self.pressed_late, rate));
        falls_behind(&self.late, least) || is_pressed_late
    }

    /// Remembers which task to wake.
    pub(crate) fn wake_by(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        match &*waker {
            Some(known) if known.will_wake(cx.waker()) => {}
            _ => *waker = Some(cx.waker().clone()),
        }
    }

    /// Wakes its task.
    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

/// Bytes a second that a client must send or take; and after how long of waiting for it.
type Rate = (u64, Duration);

/// All watches of a core.
pub(crate) struct Watches {
    entries: RefCell<Slab<Rc<Watch>>>,
    timeouts: [Option<Duration>; PHASES],
    sweep_every: Duration,
    least_rate: Rate,
    /// For so long the kernels fill, and what a client's machine acknowledges is not its reading.
    settle: Duration,
    /// While others wait for the backend that its request holds.
    pressed_rate: Rate,
    /// The longest that a request may take.
    longest: Option<Duration>,
    swept: Cell<Instant>,
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
            settle: (ms(config.client_grace_ms.min(config.body_timeout_ms)) / 4).min(KERNELS_SETTLE),
            least_rate: (config.min_client_rate_bytes_per_s, ms(config.client_grace_ms)),
            pressed_rate: (
                config
                    .pressed_client_rate_bytes_per_s
                    .max(config.min_client_rate_bytes_per_s),
                ms(config.client_grace_ms).min(PRESSED_GRACE),
            ),
            longest: (config.request_timeout_ms > 0).then(|| ms(config.request_timeout_ms)),
            swept: Cell::new(Instant::now()),
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
            half_closed: Cell::new(false),
            answered: Cell::new(None),
            rests: Cell::new(false),
            overdue: Cell::new(false),
            begun: Cell::new(None),
            started: Cell::new(None),
            holds_backend: Cell::new(false),
            pressed_late: Cell::new(0.0),
            is_call: Cell::new(false),
            on_client: Cell::new(false),
            client_time: Cell::new(Duration::ZERO),
            acknowledged: Cell::new(None),
            given: Cell::new(0),
            moved: Cell::new(0),
            wants_acknowledged: Cell::new(false),
            late: Cell::new(0.0),
            upload_waits: Cell::new(Duration::ZERO),
            upload_waits_since: Cell::new(None),
            ahead: RefCell::new(None),
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

    /// Arrival of the oldest request in flight that waits for the service and not for its client.
    pub(crate) fn oldest_start(&self) -> Option<Instant> {
        self.entries
            .borrow()
            .iter()
            .filter_map(|(_, watch)| watch.waits_since())
            .min()
    }

    /// Wakes every connection and stream.
    pub(crate) fn wake_all(&self) {
        // A waker only schedules a task; it never runs one here, so the borrow is not contended.
        for (_, watch) in self.entries.borrow().iter() {
            watch.wake();
        }
    }

    /// How much of the longest that a request may take is left to the one in flight; `None` where it may take as long as it likes.
    pub(crate) fn left(&self, watch: &Watch) -> Option<Duration> {
        let (longest, begun) = self.longest.zip(watch.begun.get())?;
        Some(longest.saturating_sub(begun.elapsed()))
    }

    /// What the client of a request must keep beside the least rate: where it holds a backend while requests wait for one.
    fn pressed_rate(&self, watch: &Watch, pressed: bool) -> Option<Rate> {
        let (rate, grace) = self.pressed_rate;
        (pressed && watch.holds_backend.get()).then_some(match watch.phase.get() {
            Phase::Upload => (rate, grace),
            // The kernels on both sides take an answer in lumps, and its client's reading shows in these.
            _ => (rate, self.least_rate.1),
        })
    }

    /// Whether a client whose time is up takes its answer all the same: [`Watch::takes_slowly`].
    pub(crate) fn takes_slowly(
        &self,
        watch: &Watch,
        acknowledged: Option<u64>,
        most: u32,
        pressed: bool,
    ) -> bool {
        match self.pressed_rate(watch, pressed) {
            Some((rate, _)) => watch.takes_slowly(acknowledged, rate, most, None),
            None => {
                let silence = self.timeouts[Phase::Body as usize];
                watch.takes_slowly(acknowledged, self.least_rate.0, most, silence)
            }
        }
    }

    fn close_expired(&self, now: Instant, pressed: bool) {
        // After a rest, in which there was nothing to sweep, only the usual time counts.
        let passed = now
            .saturating_duration_since(self.swept.replace(now))
            .min(2 * self.sweep_every);
        let longest = self.longest;
        for (_, watch) in self.entries.borrow().iter() {
            // More of its answer may be read ahead now.
            if pressed && watch.on_client.get() && watch.ahead.borrow().is_some() {
                watch.wake();
            }
            let pressed_rate = self.pressed_rate(watch, pressed);
            let is_too_slow = watch.is_too_slow(passed, self.settle, self.least_rate, pressed_rate);
            if watch.wants_acknowledged.get() {
                watch.wake();
            }
            let is_overdue = longest.is_some_and(|longest| {
                let begun = watch.begun.get();
                begun.is_some_and(|begun| now.saturating_duration_since(begun) > longest)
            });
            if is_overdue {
                watch.overdue.set(true);
            }
            if (is_too_slow || is_overdue) && !watch.expired.get() {
                watch.expired.set(true);
                watch.wake();
                continue;
            }
            let progress = watch.progress.get();
            if watch.seen.replace(progress) != progress {
                let timeout = self.timeouts[watch.phase.get() as usize];
                watch.deadline.set(timeout.map(|timeout| now + timeout));
            } else if !watch.expired.get() && watch.deadline.get().is_some_and(|deadline| now >= deadline) {
                watch.expired.set(true);
                watch.wake();
            } else if !watch.rests.get() && watch.phase.get() == Phase::Idle && self.is_long(watch, now) {
                watch.rests.set(true);
                watch.wake();
            }
        }
    }

    /// Whether a connection has waited for its next request for long enough to rest.
    fn is_long(&self, watch: &Watch, now: Instant) -> bool {
        let (deadline, timeout) = (watch.deadline.get(), self.timeouts[Phase::Idle as usize]);
        let since = deadline
            .zip(timeout)
            .and_then(|(deadline, timeout)| deadline.checked_sub(timeout));
        since.is_some_and(|since| now.saturating_duration_since(since) >= REST_AFTER)
    }

    /// Sweeps until dropped; `pressed` tells whether requests wait for a backend.
    pub(crate) async fn run(&self, pressed: impl Fn() -> bool) {
        loop {
            if self.entries.borrow().is_empty() {
                self.sweeping.set(false);
                self.work.notified().await;
            }
            tokio::time::sleep(self.sweep_every).await;
            self.close_expired(Instant::now(), pressed());
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
            watches.close_expired(now, false);
            moving.touch();
            now += Duration::from_millis(100);
        }
        assert!(still.expired());
        assert!(!moving.expired());
        still.enter(Phase::Untimed);
        watches.close_expired(now, false);
        watches.close_expired(now + Duration::from_secs(10_000), false);
        assert!(!still.expired());
    }

    #[test]
    fn a_client_that_holds_what_others_wait_for_must_be_quicker_from_then_on() {
        let watches = Watches::new(&TimeoutConfig::default());
        let [slow, quick, free] = [(); 3].map(|()| watches.add(Phase::Upload));
        for watch in [&slow, &quick, &free] {
            watch.set_on_client(true);
            watch.set_holds_backend(true);
        }
        free.set_holds_backend(false);
        let mut now = Instant::now();
        let mut sweep = |pressed: bool, of_slow: usize, of_quick: usize| {
            slow.moved(of_slow);
            free.moved(of_slow);
            quick.moved(of_quick);
            watches.close_expired(now, pressed);
            now += watches.sweep_every;
        };
        // Nothing for 4 s is within the grace, and is not held against what comes then.
        (0..40).for_each(|_| sweep(false, 0, 0));
        (0..10).for_each(|_| sweep(true, 100, 2_000));
        assert!(!slow.expired(), "a second has not passed");
        (0..10).for_each(|_| sweep(true, 100, 2_000));
        assert!(slow.expired());
        assert!(!quick.expired(), "20 kB/s are enough");
        assert!(!free.expired(), "it holds nothing that others wait for");
        // That others wait now and again does not let it off either rate.
        for rate in [100, 10] {
            slow.enter(Phase::Upload);
            slow.set_on_client(true);
            slow.set_holds_backend(rate == 100);
            for sweep_number in 0..120 {
                sweep(sweep_number % 2 == 0, rate, 2_000);
            }
            assert!(slow.expired(), "{rate} bytes each tenth of a second");
        }
    }

    #[test]
    fn a_client_that_is_waited_for_must_keep_its_rate_after_a_grace() {
        let watches = Watches::new(&TimeoutConfig {
            min_client_rate_bytes_per_s: 1_000,
            client_grace_ms: 2_000,
            ..TimeoutConfig::default()
        });
        let [slow, quick, waits] = [(); 3].map(|()| watches.add(Phase::Upload));
        slow.set_on_client(true);
        quick.set_on_client(true);
        let mut now = Instant::now();
        for tenth in 0..40 {
            watches.close_expired(now, false);
            slow.moved(10);
            quick.moved(110);
            waits.touch();
            now += watches.sweep_every;
            assert!(
                !slow.expired() || tenth >= 20,
                "within the grace, after {tenth} tenths"
            );
        }
        assert!(slow.expired());
        assert!(!quick.expired());
        assert!(!waits.expired(), "the service is not bound by it");
        slow.go_on();
        watches.close_expired(now, false);
        assert!(!slow.expired(), "it has the grace again");
    }

    #[test]
    fn a_connection_rests_when_its_next_request_has_not_come_for_a_while() {
        let watches = watches();
        let (idle, busy) = (watches.add(Phase::Idle), watches.add(Phase::Response));
        let mut now = Instant::now();
        watches.close_expired(now, false);
        assert!(!idle.rests());
        now += REST_AFTER;
        watches.close_expired(now, false);
        assert!(idle.rests() && !busy.rests());
        idle.enter(Phase::Head);
        assert!(!idle.rests());
        idle.enter(Phase::Idle);
        assert!(!idle.rests(), "it begins anew");
    }

    #[test]
    fn a_request_that_waits_for_its_client_is_not_old() {
        let watches = watches();
        let upload = watches.add(Phase::Upload);
        let started = Instant::now();
        upload.set_started(Some(started));
        upload.set_on_client(true);
        assert_eq!(watches.oldest_start(), None);
        upload.add_upload_wait(Duration::from_secs(3));
        upload.set_on_client(false);
        assert_eq!(watches.oldest_start(), Some(started + Duration::from_secs(3)));
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
