//! The generator's thread: one dispatcher that releases requests when they are due, one task per connection.

use super::clock::{Moment, PreciseTimer};
use super::config::{Pacing, Plan};
use super::connection::{Broken, Connection};
use super::paths::PathChooser;
use super::tally::LoadPeriod;
use crate::arrivals::Arrivals;
use bytes::Bytes;
use headroom_units::Seconds;
use http::{HeaderMap, Method, Request, Uri};
use http_body_util::Full;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::mpsc::SyncSender;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

/// How many due requests are released before the connections get their turn.
const RELEASE_BATCH: usize = 64;

/// How many connections are opened at a time before the start, so that the server's accept queue does not
/// overflow.
const WARM_BATCH: usize = 64;

/// How long a connection of a closed loop waits after it was refused.
const REFUSED_PAUSE: Duration = Duration::from_millis(10);

/// What the handle asks of the generator's thread.
pub(crate) enum Command {
    /// Hand over what was counted since the last time.
    TakePeriod(SyncSender<Box<LoadPeriod>>),
    /// Multiply every rate from now on.
    SetScale(f64),
    /// Offer no more; answer what is outstanding.
    Stop,
}

/// A request that is due.
struct Job {
    intended: Moment,
    uri: Uri,
}

/// What the dispatcher and a connection's task share.
struct Slot {
    job: Cell<Option<Job>>,
    /// The task's waker.
    waker: Cell<Option<Waker>>,
    /// When the request that is being served is given up.
    deadline: Cell<Moment>,
    /// The deadline has passed.
    expired: Cell<bool>,
    /// Whether it holds an open connection.
    connected: Cell<bool>,
}

impl Slot {
    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Leaves the task's waker. Called in every poll that may wait.
    fn register(&self, cx: &Context<'_>) {
        let waker = self.waker.take().filter(|waker| waker.will_wake(cx.waker()));
        self.waker.set(Some(waker.unwrap_or_else(|| cx.waker().clone())));
    }
}

/// What releases requests.
enum Source {
    Open(Box<Arrivals>),
    Closed { duration: f64 },
}

/// Everything on the generator's thread. Borrows are short: none is held over an `await`.
pub(crate) struct Engine {
    addresses: Vec<SocketAddr>,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
    idempotent: bool,
    keep_alive: bool,
    timeout: f64,
    max_connections: usize,
    queue: usize,
    source: RefCell<Source>,
    closed_loop: bool,
    paths: RefCell<PathChooser>,
    slots: RefCell<Vec<Rc<Slot>>>,
    /// Free slots with an open connection, the one longest idle first: all connections are used in turn, as a
    /// server that spreads connections over its threads needs.
    idle: RefCell<VecDeque<Rc<Slot>>>,
    /// Free slots without a connection.
    unconnected: RefCell<Vec<Rc<Slot>>>,
    waiting: RefCell<VecDeque<Job>>,
    period: RefCell<Box<LoadPeriod>>,
    origin: Cell<Moment>,
    /// Requests may be released.
    offering: Cell<bool>,
    /// Warm connections that are still being opened.
    warming: Cell<usize>,
    /// Something that the main task waits for has happened.
    progress: Notify,
}

/// Runs a load to its end on the current thread's local runtime and gives what was counted since the last
/// period was taken.
pub(crate) async fn run(plan: Plan, mut commands: mpsc::Receiver<Command>) -> io::Result<Box<LoadPeriod>> {
    let timer = PreciseTimer::new()?;
    let warm = plan.warm_connections;
    let engine = Rc::new(Engine::new(plan));
    let mut stopped = engine.warm_up(warm, &mut commands).await;
    engine.begin();
    let sweeper = tokio::task::spawn_local(Rc::clone(&engine).sweep());

    while !stopped {
        engine.release_due();
        let now = Moment::now();
        let Some(next) = engine.next_event(now) else { break };
        if next <= now {
            // More is due than one batch: the connections get their turn in between.
            tokio::task::yield_now().await;
            if let Ok(command) = commands.try_recv() {
                stopped = engine.obey(command);
            }
            continue;
        }
        tokio::select! {
            waited = timer.wait_until(next) => waited?,
            command = commands.recv() => stopped = command.is_none_or(|command| engine.obey(command)),
        }
    }
    engine.offering.set(false);
    engine.drain(&mut commands).await;
    sweeper.abort();
    Ok(engine.swap_period())
}

impl Engine {
    fn new(plan: Plan) -> Self {
        let closed_loop = matches!(plan.pacing, Pacing::Closed { .. });
        let source = match plan.pacing {
            Pacing::Open(arrivals) => Source::Open(arrivals),
            Pacing::Closed { duration, .. } => Source::Closed {
                duration: duration.get(),
            },
        };
        Self {
            addresses: plan.addresses,
            idempotent: plan.method.is_idempotent(),
            method: plan.method,
            headers: plan.headers,
            body: plan.body,
            keep_alive: plan.keep_alive,
            timeout: plan.timeout,
            max_connections: plan.max_connections,
            queue: plan.queue,
            source: RefCell::new(source),
            closed_loop,
            paths: RefCell::new(plan.paths),
            slots: RefCell::default(),
            idle: RefCell::default(),
            unconnected: RefCell::default(),
            waiting: RefCell::default(),
            period: RefCell::new(Box::new(LoadPeriod::new(Seconds::ZERO, 0))),
            origin: Cell::new(Moment::NEVER),
            offering: Cell::new(false),
            warming: Cell::new(0),
            progress: Notify::new(),
        }
    }

    /// Opens connections before the first request is due. Those that fail are left to be opened when needed.
    /// Answers whether the load was stopped meanwhile.
    async fn warm_up(self: &Rc<Self>, connections: usize, commands: &mut mpsc::Receiver<Command>) -> bool {
        if !self.keep_alive {
            return false;
        }
        let give_up = Duration::from_secs_f64(self.timeout);
        let mut left = connections;
        while left > 0 {
            let batch = left.min(WARM_BATCH);
            left -= batch;
            self.warming.set(batch);
            for _ in 0..batch {
                let (engine, slot) = (Rc::clone(self), self.add_slot());
                tokio::task::spawn_local(async move {
                    let opened = tokio::time::timeout(give_up, Connection::open(&engine.addresses)).await;
                    let connection = opened.ok().and_then(Result::ok);
                    engine.period.borrow_mut().counts.connections += u64::from(connection.is_some());
                    engine.warming.set(engine.warming.get() - 1);
                    engine.progress.notify_one();
                    engine.serve(slot, connection).await;
                });
            }
            while self.warming.get() > 0 {
                tokio::select! {
                    () = self.progress.notified() => {}
                    command = commands.recv() => if command.is_none_or(|command| self.obey(command)) {
                        return true;
                    }
                }
            }
        }
        false
    }

    fn begin(self: &Rc<Self>) {
        self.origin.set(Moment::now());
        self.offering.set(true);
        if self.closed_loop {
            for slot in self.slots.borrow().iter() {
                slot.wake();
            }
            // Without keep-alive no connection was warmed.
            let missing = self.max_connections.saturating_sub(self.slots.borrow().len());
            for _ in 0..missing {
                tokio::task::spawn_local(Rc::clone(self).serve(self.add_slot(), None));
            }
        }
    }

    fn elapsed(&self, now: Moment) -> Seconds {
        Seconds::new(now.since(self.origin.get()))
    }

    /// When the dispatcher must look again; none once the load has ended.
    fn next_event(&self, now: Moment) -> Option<Moment> {
        let origin = self.origin.get();
        let mut source = self.source.borrow_mut();
        let (next, end) = match &mut *source {
            Source::Open(arrivals) => {
                let end = arrivals.trace().duration().get();
                // Without a further arrival the scale may still be raised until the trace ends.
                (arrivals.peek().map_or(end, Seconds::get), end)
            }
            Source::Closed { duration } => (*duration, *duration),
        };
        let next = origin.after(next);
        (next > now || next < origin.after(end)).then_some(next)
    }

    /// Releases what is due, at most a batch. Connections call it after every answer too, so that a busy thread
    /// keeps time without going through the timer.
    fn release_due(self: &Rc<Self>) {
        if !self.offering.get() || self.closed_loop {
            return;
        }
        let now = Moment::now();
        let origin = self.origin.get();
        let elapsed = self.elapsed(now);
        for _ in 0..RELEASE_BATCH {
            let intended = {
                let Source::Open(arrivals) = &mut *self.source.borrow_mut() else {
                    return;
                };
                match arrivals.peek() {
                    Some(time) if time <= elapsed => arrivals.next(),
                    _ => None,
                }
            };
            let Some(intended) = intended else { return };
            self.release(origin.after(intended.get()));
        }
    }

    /// Gives a request to a free connection, a new one or the queue, in this order; or drops it.
    fn release(self: &Rc<Self>, intended: Moment) {
        let job = Job {
            intended,
            uri: self.paths.borrow_mut().choose(),
        };
        self.offer();
        let free = loop {
            match self.idle.borrow_mut().pop_front() {
                Some(slot) if slot.connected.get() => break Some(slot),
                // Its connection was closed while it was idle.
                Some(slot) => self.unconnected.borrow_mut().push(slot),
                None => break self.unconnected.borrow_mut().pop(),
            }
        };
        if let Some(slot) = free {
            slot.job.set(Some(job));
            slot.wake();
        } else if self.slots.borrow().len() < self.max_connections {
            let slot = self.add_slot();
            slot.job.set(Some(job));
            tokio::task::spawn_local(Rc::clone(self).serve(slot, None));
        } else if self.waiting.borrow().len() < self.queue {
            self.waiting.borrow_mut().push_back(job);
            self.period.borrow_mut().counts.queued += 1;
        } else {
            let mut period = self.period.borrow_mut();
            period.counts.failed.dropped += 1;
            period.outstanding -= 1;
        }
    }

    fn offer(&self) {
        let mut period = self.period.borrow_mut();
        period.counts.offered += 1;
        period.outstanding += 1;
    }

    fn add_slot(&self) -> Rc<Slot> {
        let slot = Rc::new(Slot {
            job: Cell::new(None),
            waker: Cell::new(None),
            deadline: Cell::new(Moment::NEVER),
            expired: Cell::new(false),
            connected: Cell::new(false),
        });
        self.slots.borrow_mut().push(Rc::clone(&slot));
        slot
    }

    /// A connection's task: serves one request after the other, for as long as the runtime lives.
    async fn serve(self: Rc<Self>, slot: Rc<Slot>, mut connection: Option<Connection>) {
        loop {
            let job = self.next_job(&slot, &mut connection).await;
            let intended = job.intended;
            slot.deadline.set(intended.after(self.timeout));
            let outcome = self
                .until_deadline(&slot, self.perform(job, &mut connection))
                .await;
            slot.deadline.set(Moment::NEVER);
            slot.expired.set(false);
            if outcome.is_none() {
                // The answer may still come; on this connection nothing else can be asked.
                connection = None;
                self.period.borrow_mut().timed_out(intended, Moment::now());
            }
            if !self.keep_alive {
                connection = None;
            }
            self.release_due();
            if !self.offering.get() {
                self.progress.notify_one();
            }
        }
    }

    /// The next request: one that waits, or one that the dispatcher brings. While there is none the connection
    /// is watched, so that one which the server closes is not used.
    async fn next_job(&self, slot: &Rc<Slot>, connection: &mut Option<Connection>) -> Job {
        let mut listed = false;
        poll_fn(|cx| {
            if let Some(job) = slot.job.take() {
                return Poll::Ready(job);
            }
            if self.closed_loop && self.offering.get() {
                self.offer();
                return Poll::Ready(Job {
                    intended: Moment::now(),
                    uri: self.paths.borrow_mut().choose(),
                });
            }
            if !listed && let Some(job) = self.waiting.borrow_mut().pop_front() {
                return Poll::Ready(job);
            }
            if connection
                .as_mut()
                .is_some_and(|open| open.poll_ended(cx).is_ready())
            {
                *connection = None;
            }
            slot.connected.set(connection.is_some());
            slot.register(cx);
            if !listed {
                listed = true;
                if connection.is_some() {
                    self.idle.borrow_mut().push_back(Rc::clone(slot));
                } else {
                    self.unconnected.borrow_mut().push(Rc::clone(slot));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Runs a request until it is done or its deadline passes (none).
    async fn until_deadline<T>(&self, slot: &Slot, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Some(done));
            }
            if slot.expired.get() {
                return Poll::Ready(None);
            }
            slot.register(cx);
            Poll::Pending
        })
        .await
    }

    /// Sends a request, on a new connection if there is none, reads the answer and counts it.
    async fn perform(&self, job: Job, connection: &mut Option<Connection>) {
        let mut sent_before = None;
        loop {
            let open = match connection {
                Some(open) => open,
                None => match Connection::open(&self.addresses).await {
                    Ok(opened) => {
                        self.period.borrow_mut().counts.connections += 1;
                        connection.insert(opened)
                    }
                    Err(_) => {
                        self.fail(|failed| &mut failed.connect);
                        return self.after_refusal().await;
                    }
                },
            };
            let used = open.used;
            if open.ready().await.is_err() {
                *connection = None;
                if used {
                    // Closed while it was idle; nothing was sent on it.
                    continue;
                }
                return self.fail(|failed| &mut failed.protocol);
            }
            let sent = Moment::now();
            if sent_before.is_none() {
                self.period.borrow_mut().sent(job.intended, sent);
            }
            let first_sent = *sent_before.get_or_insert(sent);
            match open.exchange(self.request(&job.uri)).await {
                Ok(answer) => {
                    let mut period = self.period.borrow_mut();
                    period.counts.body_bytes += answer.body_bytes;
                    period.answered(answer.status, job.intended, first_sent, Moment::now());
                    return;
                }
                Err(broken) => {
                    *connection = None;
                    // An unused connection is not tried again: the server, not bad luck, broke it.
                    let again = match broken {
                        Broken::BeforeSending => used,
                        Broken::BeforeAnswer => used && self.idempotent,
                        Broken::InAnswer => false,
                    };
                    if !again {
                        return self.fail(|failed| &mut failed.protocol);
                    }
                    self.period.borrow_mut().counts.retried += 1;
                }
            }
        }
    }

    /// A refusal may come without any waiting, so the others get their turn here; and a closed loop, which would
    /// only ask again, pauses.
    async fn after_refusal(&self) {
        if self.closed_loop {
            tokio::time::sleep(REFUSED_PAUSE).await;
        } else {
            tokio::task::yield_now().await;
        }
    }

    fn fail(&self, kind: impl FnOnce(&mut super::tally::Failures) -> &mut u64) {
        let mut period = self.period.borrow_mut();
        *kind(&mut period.counts.failed) += 1;
        period.outstanding -= 1;
    }

    fn request(&self, uri: &Uri) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }

    /// Gives up, every so often, the requests whose deadline has passed. One look at all connections costs less
    /// than a timer for every request.
    async fn sweep(self: Rc<Self>) {
        let mut ticks =
            tokio::time::interval(Duration::from_secs_f64((self.timeout / 20.0).clamp(0.001, 0.1)));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let now = Moment::now();
            for slot in self
                .slots
                .borrow()
                .iter()
                .filter(|slot| slot.deadline.get() <= now)
            {
                slot.expired.set(true);
                slot.wake();
            }
            let mut waiting = self.waiting.borrow_mut();
            // The timeout is the same for all, so the first in the queue is the first to expire.
            while waiting
                .front()
                .is_some_and(|job| job.intended.after(self.timeout) <= now)
            {
                if let Some(job) = waiting.pop_front() {
                    self.period.borrow_mut().timed_out(job.intended, now);
                }
            }
            if !self.offering.get() {
                self.progress.notify_one();
            }
        }
    }

    /// Waits for what is outstanding; the timeout bounds it.
    async fn drain(&self, commands: &mut mpsc::Receiver<Command>) {
        let mut listening = true;
        while self.period.borrow().outstanding > 0 {
            tokio::select! {
                () = self.progress.notified() => {}
                command = commands.recv(), if listening => match command {
                    Some(command) => { self.obey(command); }
                    None => listening = false,
                }
            }
        }
    }

    /// Does what the handle asks; answers whether to stop.
    fn obey(&self, command: Command) -> bool {
        match command {
            Command::TakePeriod(reply) => {
                // Who asked may have given up waiting; then what it would have got is kept.
                if let Err(refused) = reply.try_send(self.swap_period()) {
                    let (std::sync::mpsc::TrySendError::Full(mut earlier)
                    | std::sync::mpsc::TrySendError::Disconnected(mut earlier)) = refused;
                    let mut period = self.period.borrow_mut();
                    earlier.append(&period);
                    *period = earlier;
                }
                false
            }
            Command::SetScale(scale) => {
                let elapsed = self.elapsed(Moment::now());
                if let Source::Open(arrivals) = &mut *self.source.borrow_mut() {
                    arrivals.set_scale(elapsed, scale);
                }
                false
            }
            Command::Stop => true,
        }
    }

    /// Ends the period and begins the next.
    fn swap_period(&self) -> Box<LoadPeriod> {
        let now = self.elapsed(Moment::now());
        let mut period = self.period.borrow_mut();
        let next = Box::new(LoadPeriod::new(now, period.outstanding));
        let mut ended = std::mem::replace(&mut *period, next);
        ended.finish(now);
        ended
    }
}
