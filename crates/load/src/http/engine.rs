//! The generator's thread: one dispatcher that releases requests when they are due, one task per connection.

mod browsing;
mod serving;
mod visiting;

use super::config::{People, Plan, PlannedPacing};
use super::connection::Shared;
use super::paths::PathChooser;
use crate::bursts::{Bursts, Windows};
use crate::clock::{Moment, PreciseTimer};
use crate::handle::{Command, hand_over};
use crate::share::{Arrival, ArrivalShare, Beginning, WARM_UP_S};
use crate::tally::LoadPeriod;
use crate::usage::Usage;
use browsing::{Crowd, Population};
use bytes::Bytes;
use headroom_units::Seconds;
use headroom_workload::access_log::Replay;
use http::{Method, Uri, header};
use serving::{Job, Slot};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

/// How many due requests are released before the connections get their turn.
const RELEASE_BATCH: usize = 64;

/// How many connections are opened at a time before the start, so that the server's accept queue does not
/// overflow.
const WARM_BATCH: usize = 64;

/// What releases requests.
enum Source {
    Open(ArrivalShare),
    Bursts(Bursts),
    Replay { requests: Box<Replay>, paths: Vec<Uri> },
    Users(Rc<Population>),
}

/// Everything on the generator's thread. Borrows are short: none is held over an `await`.
pub(crate) struct Engine {
    addresses: Vec<SocketAddr>,
    method: Method,
    body: Bytes,
    idempotent: bool,
    keep_alive: bool,
    timeout: f64,
    grace: f64,
    /// When what is outstanding is given up, because the load is over and its grace too.
    give_up_at: Cell<Moment>,
    max_connections: usize,
    queue: usize,
    source: RefCell<Source>,
    closed_loop: bool,
    /// When a closed loop's connections send; none before it begins, and of other loads.
    windows: Cell<Option<Windows>>,
    expect_bytes: Option<u64>,
    /// What the connections share.
    shared: Rc<Shared>,
    /// The lines of a request's head that are the same for all, and the memory in which heads are composed.
    fields: Vec<u8>,
    head: RefCell<Vec<u8>>,
    /// Whether those lines say how long the body is.
    has_length: bool,
    usage: RefCell<Usage>,
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
    /// Until when the main task sleeps; and that it must look again, because a user wakes before.
    armed: Cell<Moment>,
    rearm: Notify,
}

/// Runs a load to its end on the current thread's local runtime and gives what was counted since the last
/// period was taken.
pub(crate) async fn run(
    plan: Plan,
    mut commands: mpsc::Receiver<Command>,
    beginning: &Beginning,
) -> io::Result<Box<LoadPeriod>> {
    let ready = Arrival(beginning);
    let timer = PreciseTimer::new()?;
    let warm = plan.warm_connections;
    let engine = Rc::new(Engine::new(plan));
    let mut stopped = engine.warm_up(warm, &mut commands).await;
    drop(ready);
    let origin = engine
        .wait_for_others(beginning, &mut commands, &mut stopped)
        .await;
    engine.begin(origin);
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
        engine.armed.set(next);
        tokio::select! {
            waited = timer.wait_until(next) => waited?,
            () = engine.rearm.notified() => {}
            command = commands.recv() => stopped = command.is_none_or(|command| engine.obey(command)),
        }
    }
    let end = if stopped {
        Moment::now()
    } else {
        origin.after(engine.length().get())
    };
    engine.offering.set(false);
    engine.usage.borrow_mut().end();
    engine.give_up_backlog();
    engine.send_home();
    engine
        .drain(end.after(engine.grace), &mut commands, &timer)
        .await?;
    sweeper.abort();
    Ok(engine.swap_period())
}

impl Engine {
    fn new(plan: Plan) -> Self {
        let closed_loop = matches!(plan.pacing, PlannedPacing::Bursts(_));
        let source = match plan.pacing {
            PlannedPacing::Open(arrivals) => Source::Open(arrivals),
            PlannedPacing::Bursts(bursts) => Source::Bursts(bursts),
            PlannedPacing::Replay(requests) => Source::Replay {
                requests,
                paths: plan.files,
            },
            PlannedPacing::Users(load) => Source::Users(Rc::new(Population {
                curve: load.curve,
                duration: load.duration.get(),
                people: match load.people {
                    People::Surge { model, site } => Crowd::Surge(model, RefCell::new(site)),
                    People::Auction { behaviour, site } => Crowd::Auction(behaviour, site),
                },
                files: plan.files,
                seed: plan.seed,
                most: plan.max_connections,
                seats: RefCell::default(),
                alarms: RefCell::new(BTreeSet::new()),
                next_look: Cell::new(Moment::NEVER),
                wanted: Cell::new(0),
                present: Cell::new(0),
                counted_until: Cell::new(Moment::NEVER),
                came: Cell::new(0),
            })),
        };
        Self {
            addresses: plan.addresses,
            idempotent: plan.method.is_idempotent(),
            method: plan.method,
            body: plan.body,
            keep_alive: plan.keep_alive,
            timeout: plan.timeout,
            grace: plan.grace,
            give_up_at: Cell::new(Moment::NEVER),
            max_connections: plan.max_connections,
            queue: plan.queue,
            source: RefCell::new(source),
            closed_loop,
            windows: Cell::new(None),
            expect_bytes: plan.expect_bytes,
            shared: Rc::default(),
            fields: serving::fields(&plan.headers),
            has_length: plan.headers.contains_key(header::CONTENT_LENGTH)
                || plan.headers.contains_key(header::TRANSFER_ENCODING),
            head: RefCell::default(),
            usage: RefCell::new(Usage::new()),
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
            armed: Cell::new(Moment::NEVER),
            rearm: Notify::new(),
        }
    }

    /// Opens connections before the first request is due. Those that fail are left to be opened when needed, and so are all
    /// others where of several none was opened.
    /// Answers whether the load was stopped meanwhile.
    async fn warm_up(self: &Rc<Self>, connections: usize, commands: &mut mpsc::Receiver<Command>) -> bool {
        if !self.keep_alive {
            return false;
        }
        let give_up = Duration::from_secs_f64(self.timeout.min(WARM_UP_S));
        let mut left = connections;
        while left > 0 {
            let batch = left.min(WARM_BATCH);
            left -= batch;
            self.warming.set(batch);
            let opened_before = self.period.borrow().counts.connections;
            for _ in 0..batch {
                let (engine, slot) = (Rc::clone(self), self.add_slot());
                tokio::task::spawn_local(async move {
                    let opened = tokio::time::timeout(give_up, engine.connect(&slot)).await;
                    if let Some(start) = slot.connecting.take() {
                        engine.period.borrow_mut().connect_given_up(start, Moment::now());
                    }
                    let connection = opened.ok().and_then(Result::ok);
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
            if self.period.borrow().counts.connections == opened_before {
                break;
            }
        }
        false
    }

    /// Waits until all threads of the load are ready; when they began.
    async fn wait_for_others(
        &self,
        beginning: &Beginning,
        commands: &mut mpsc::Receiver<Command>,
        stopped: &mut bool,
    ) -> Moment {
        loop {
            if let Some(origin) = beginning.origin() {
                return origin;
            }
            if let Ok(command) = commands.try_recv() {
                *stopped |= self.obey(command);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn begin(self: &Rc<Self>, origin: Moment) {
        let now = origin;
        self.origin.set(now);
        if let Source::Bursts(bursts) = &*self.source.borrow() {
            self.windows.set(Some(bursts.windows(origin)));
        }
        self.usage.borrow_mut().begin();
        self.offering.set(true);
        if let Source::Users(people) = &*self.source.borrow() {
            people.next_look.set(now);
            people.counted_until.set(now);
        }
        if self.closed_loop {
            for slot in self.slots.borrow().iter() {
                slot.window_began.set(origin);
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
                let end = arrivals.duration().get();
                // Without a further arrival the load still lasts until the trace ends.
                (arrivals.peek().map_or(end, Seconds::get), end)
            }
            Source::Bursts(bursts) => {
                let end = bursts.duration.get();
                (end, end)
            }
            Source::Replay { requests, .. } => {
                let end = requests.duration().get();
                (requests.peek().map_or(end, Seconds::get), end)
            }
            Source::Users(people) => {
                let end = origin.after(people.duration);
                return (now < end).then(|| people.next_event().min(end));
            }
        };
        let (next, end) = (origin.after(next), origin.after(end));
        let is_behind = next < end && now < end.after(self.grace);
        (next > now || is_behind).then_some(next)
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
        let people = match &*self.source.borrow() {
            Source::Users(people) => Some(Rc::clone(people)),
            _ => None,
        };
        if let Some(people) = people {
            return self.attend(&people, now, RELEASE_BATCH);
        }
        for _ in 0..RELEASE_BATCH {
            let job = match &mut *self.source.borrow_mut() {
                Source::Open(arrivals) => arrivals
                    .peek()
                    .filter(|time| *time <= elapsed)
                    .and_then(|_| arrivals.next())
                    .map(|intended| self.job(origin.after(intended.get()))),
                Source::Replay { requests, paths } => requests
                    .peek()
                    .filter(|time| *time <= elapsed)
                    .and_then(|_| requests.take())
                    .map(|due| Job {
                        intended: origin.after(due.at.get()),
                        uri: paths[due.path].clone(),
                        head: due.head,
                        close: false,
                        visit: None,
                    }),
                Source::Bursts(_) | Source::Users(_) => None,
            };
            let Some(job) = job else { return };
            self.period.borrow_mut().released(job.intended, now);
            self.release(job);
        }
    }

    /// Gives a request to a free connection, a new one or the queue, in this order; or drops it.
    fn release(self: &Rc<Self>, job: Job) {
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
            self.period.borrow_mut().failed(|failed| &mut failed.dropped);
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
            connecting: Cell::new(None),
            window_began: Cell::new(self.origin.get()),
        });
        self.slots.borrow_mut().push(Rc::clone(&slot));
        slot
    }

    /// How long it offers requests.
    fn length(&self) -> Seconds {
        match &*self.source.borrow() {
            Source::Open(arrivals) => arrivals.duration(),
            Source::Bursts(bursts) => bursts.duration,
            Source::Replay { requests, .. } => requests.duration(),
            Source::Users(people) => Seconds::new(people.duration),
        }
    }

    /// Counts the requests that were due and not sent, for want of time.
    fn give_up_backlog(&self) {
        let elapsed = self.elapsed(Moment::now());
        loop {
            let due = match &mut *self.source.borrow_mut() {
                Source::Open(arrivals) => match arrivals.peek() {
                    Some(due) if due <= elapsed => arrivals.next().is_some(),
                    _ => false,
                },
                Source::Replay { requests, .. } => match requests.peek() {
                    Some(due) if due <= elapsed => requests.take().is_some(),
                    _ => false,
                },
                Source::Bursts(_) | Source::Users(_) => false,
            };
            if !due {
                return;
            }
            self.offer();
            self.period.borrow_mut().failed(|failed| &mut failed.unsent);
        }
    }

    /// Waits for what is outstanding, until the grace is over; then that is given up.
    async fn drain(
        &self,
        give_up_at: Moment,
        commands: &mut mpsc::Receiver<Command>,
        timer: &PreciseTimer,
    ) -> io::Result<()> {
        self.give_up_at.set(give_up_at);
        for slot in self.slots.borrow().iter() {
            if slot.deadline.get() < Moment::NEVER {
                slot.deadline.set(slot.deadline.get().min(give_up_at));
            }
        }
        let (mut listening, mut waiting) = (true, true);
        while self.period.borrow().outstanding > 0 {
            tokio::select! {
                () = self.progress.notified() => {}
                waited = timer.wait_until(give_up_at), if waiting => {
                    waited?;
                    waiting = Moment::now() < give_up_at;
                    self.give_up_overdue();
                }
                command = commands.recv(), if listening => match command {
                    Some(command) => { self.obey(command); }
                    None => listening = false,
                }
            }
        }
        Ok(())
    }

    /// Does what the handle asks; answers whether to stop.
    fn obey(&self, command: Command) -> bool {
        match command {
            Command::TakePeriod(reply) => {
                if let Some(mut earlier) = hand_over(&reply, self.swap_period()) {
                    let mut period = self.period.borrow_mut();
                    earlier.append(&period);
                    *period = earlier;
                }
                false
            }
            Command::Stop => true,
        }
    }

    /// Ends the period and begins the next.
    fn swap_period(&self) -> Box<LoadPeriod> {
        let moment = Moment::now();
        let now = self.elapsed(moment);
        if let Source::Users(people) = &*self.source.borrow() {
            self.count_users(people, moment);
            self.period.borrow_mut().users = people.present.get() as u64;
        }
        let used = self.usage.borrow_mut().take();
        let mut period = self.period.borrow_mut();
        period.counts.received_bytes += self.shared.received.take();
        period.counts.sent_bytes += self.shared.sent.take();
        period.swap(now, used)
    }
}
