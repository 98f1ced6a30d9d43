//! One thread of a load: a loop over epoll.

mod exchange;

use super::config::{Plan, PlannedPacing};
use super::connection::{Connection, Doing};
use super::protocol::Requests;
use crate::bursts::Windows;
use crate::clock::{Moment, set_timer, timer};
use crate::handle::{Command, hand_over};
use crate::share::{Arrival, Beginning};
use crate::tally::LoadPeriod;
use crate::usage::Usage;
use headroom_units::Seconds;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::sync::mpsc::Receiver;
use tokio::sync::mpsc::error::TryRecvError;

/// How many due requests are released before the connections get their turn.
const RELEASE_BATCH: usize = 64;

/// How many events are taken at a time.
const EVENTS: usize = 256;

/// How many connections are opened at a time before the start, so that the server's accept queue does not overflow.
const WARM_BATCH: usize = 64;

/// How much is read at a time, bytes.
const BUFFER: usize = 256 << 10;

/// How often a thread that waits for the others asks whether all are ready.
const LOOK: Duration = Duration::from_millis(1);

/// Numbers of events that are no connection's.
const TIMER: u64 = u64::MAX;
const BELL: u64 = u64::MAX - 1;

/// Everything on one thread of the load.
struct Engine<'a> {
    plan: Plan,
    epoll: OwnedFd,
    timer: OwnedFd,
    /// Until when the timer is set.
    armed: Moment,
    bell: &'a OwnedFd,
    commands: Receiver<Command>,
    connections: Vec<Connection>,
    /// Of an open loop: connections without a request, the one longest idle first.
    idle: VecDeque<usize>,
    /// Of an open loop: intended send times of requests that wait for a connection.
    waiting: VecDeque<Moment>,
    /// Of a closed loop: when which connection sends again.
    asleep: BinaryHeap<Reverse<(Moment, usize)>>,
    windows: Option<Windows>,
    requests: Requests,
    buffer: Vec<u8>,
    period: Box<LoadPeriod>,
    usage: Usage,
    origin: Moment,
    end: Moment,
    next_sweep: Moment,
    /// When what is outstanding is given up, because the load is over and its grace too.
    give_up_at: Moment,
    offering: bool,
    stopped: bool,
    /// Which of the addresses answered last.
    address: usize,
}

/// Runs a load to its end and gives what was counted since the last period was taken.
pub(super) fn run(
    plan: Plan,
    commands: Receiver<Command>,
    bell: &OwnedFd,
    beginning: &Beginning,
) -> io::Result<Box<LoadPeriod>> {
    let ready = Arrival(beginning);
    let mut engine = Engine::new(plan, commands, bell)?;
    engine.warm_up()?;
    drop(ready);
    let origin = loop {
        if let Some(origin) = beginning.origin() {
            break origin;
        }
        engine.obey();
        std::thread::sleep(LOOK);
    };
    engine.begin(origin);
    let mut events = Vec::with_capacity(EVENTS);
    while engine.look_at_clock() {
        engine.wait(&mut events)?;
    }
    Ok(engine.swap_period())
}

impl<'a> Engine<'a> {
    fn new(plan: Plan, commands: Receiver<Command>, bell: &'a OwnedFd) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let timer = timer()?;
        let interest = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), interest)?;
        epoll::add(&epoll, bell, EventData::new_u64(BELL), interest)?;
        let contents = &plan.contents;
        let requests = Requests::new(
            contents.value_bytes,
            contents.keys,
            plan.sets_share,
            contents.seed,
            plan.thread,
        );
        Ok(Self {
            connections: (0..plan.connections).map(|_| Connection::new()).collect(),
            plan,
            epoll,
            timer,
            armed: Moment::NEVER,
            bell,
            commands,
            idle: VecDeque::new(),
            waiting: VecDeque::new(),
            asleep: BinaryHeap::new(),
            windows: None,
            requests,
            buffer: vec![0; BUFFER],
            period: Box::new(LoadPeriod::new(Seconds::ZERO, 0)),
            usage: Usage::new(),
            origin: Moment::NEVER,
            end: Moment::NEVER,
            next_sweep: Moment::now(),
            give_up_at: Moment::NEVER,
            offering: false,
            stopped: false,
            address: 0,
        })
    }

    /// Opens all connections. Those that fail are opened when they are needed, and so are all others where of several none
    /// was opened.
    fn warm_up(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        for first in (0..self.connections.len()).step_by(WARM_BATCH) {
            let opened_before = self.period.counts.connections;
            let batch = first..(first + WARM_BATCH).min(self.connections.len());
            for index in batch.clone() {
                self.connect(index, None, Moment::now());
            }
            let connecting = |engine: &Self| {
                engine.connections[batch.clone()]
                    .iter()
                    .any(|one| matches!(one.doing, Doing::Connecting { .. }))
            };
            while connecting(self) && !self.stopped {
                self.sweep(Moment::now());
                self.arm(self.next_sweep)?;
                self.wait(&mut events)?;
            }
            if self.period.counts.connections == opened_before {
                break;
            }
        }
        Ok(())
    }

    fn begin(&mut self, origin: Moment) {
        self.origin = origin;
        self.usage.begin();
        self.offering = !self.stopped;
        match &self.plan.pacing {
            PlannedPacing::Open(arrivals) => {
                self.end = origin.after(arrivals.duration().get());
                self.idle = (0..self.connections.len()).collect();
            }
            PlannedPacing::Bursts(bursts) => {
                self.end = origin.after(bursts.duration.get());
                self.windows = Some(bursts.windows(origin));
                for (index, connection) in self.connections.iter_mut().enumerate() {
                    connection.window_began = origin;
                    self.asleep.push(Reverse((origin, index)));
                }
            }
        }
    }

    /// Does what is due and sets the timer to what is due next; false once the load has ended.
    fn look_at_clock(&mut self) -> bool {
        let now = Moment::now();
        let give_up_at = if self.stopped { now } else { self.end }.after(self.plan.grace);
        if self.offering && (self.stopped || now >= self.end && (!self.is_behind() || now >= give_up_at)) {
            self.offering = false;
            self.usage.end();
            self.give_up_at = give_up_at;
            self.give_up_backlog(now);
        }
        self.sweep(now);
        self.release_due(now);
        if !self.offering && self.period.outstanding == 0 {
            return false;
        }
        true
    }

    /// Whether requests of an open loop that were due before its end are still to be released.
    fn is_behind(&mut self) -> bool {
        match &mut self.plan.pacing {
            PlannedPacing::Open(arrivals) => arrivals.peek().is_some_and(|due| due < arrivals.duration()),
            PlannedPacing::Bursts(_) => false,
        }
    }

    /// Counts the requests that were due and not sent, for want of time.
    fn give_up_backlog(&mut self, now: Moment) {
        let elapsed = Seconds::new(now.since(self.origin));
        loop {
            let PlannedPacing::Open(arrivals) = &mut self.plan.pacing else {
                return;
            };
            if !arrivals.peek().is_some_and(|due| due <= elapsed) {
                return;
            }
            arrivals.next();
            self.offer();
            self.period.failed(|failed| &mut failed.unsent);
        }
    }

    /// When something is due next, whatever the connections do.
    fn next_due(&mut self) -> Moment {
        if !self.waiting.is_empty() && !self.idle.is_empty() {
            return Moment::ORIGIN;
        }
        let mut next = self.next_sweep.min(self.give_up_at);
        if self.offering {
            next = next.min(self.end);
            if let PlannedPacing::Open(arrivals) = &mut self.plan.pacing
                && let Some(due) = arrivals.peek()
            {
                next = next.min(self.origin.after(due.get()));
            }
            if let Some(Reverse((wakes, _))) = self.asleep.peek() {
                next = next.min(*wakes);
            }
        }
        next
    }

    /// Waits for events until something is due, and treats them.
    fn wait(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        let next = self.next_due();
        let zero = rustix::time::Timespec::default();
        let timeout = if next <= Moment::now() {
            Some(&zero)
        } else {
            self.arm(next)?;
            None
        };
        events.clear();
        match epoll::wait(&self.epoll, spare_capacity(events), timeout) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        for event in events.iter() {
            match event.data.u64() {
                TIMER => self.armed = Moment::NEVER,
                BELL => self.obey(),
                number => {
                    let (socket, index) = ((number >> 32) as u32, (number & 0xffff_ffff) as usize);
                    if self.connections[index].sockets == socket {
                        self.attend(index, event.flags);
                    }
                }
            }
            // A busy thread keeps time without going through the timer.
            if matches!(self.plan.pacing, PlannedPacing::Open(_)) {
                self.release_due(Moment::now());
            }
        }
        Ok(())
    }

    /// Sets the timer, unless it rings before.
    fn arm(&mut self, moment: Moment) -> io::Result<()> {
        if moment < self.armed {
            set_timer(&self.timer, moment)?;
            self.armed = moment;
        }
        Ok(())
    }

    /// Releases requests that wait or are due, at most a batch of each, and wakes connections whose sleep is over.
    fn release_due(&mut self, now: Moment) {
        for _ in 0..RELEASE_BATCH {
            if self.waiting.is_empty() {
                break;
            }
            let Some(index) = self.idle.pop_front() else { break };
            self.go_on(index, now);
        }
        if !self.offering {
            return;
        }
        for _ in 0..RELEASE_BATCH {
            let PlannedPacing::Open(arrivals) = &mut self.plan.pacing else {
                break;
            };
            let Some(due) = arrivals.peek() else { break };
            let intended = self.origin.after(due.get());
            if intended > now {
                break;
            }
            arrivals.next();
            self.period.released(intended, now);
            self.release(intended);
        }
        while let Some(&Reverse((wakes, index))) = self.asleep.peek()
            && wakes <= now
        {
            self.asleep.pop();
            self.go_on(index, now);
        }
    }

    /// Gives a request of an open loop to a connection or the queue, in this order; or drops it.
    fn release(&mut self, intended: Moment) {
        self.offer();
        if let Some(index) = self.idle.pop_front() {
            self.ask(index, intended);
        } else if self.waiting.len() < self.plan.queue {
            self.waiting.push_back(intended);
            self.period.counts.queued += 1;
        } else {
            self.period.failed(|failed| &mut failed.dropped);
        }
    }

    fn offer(&mut self) {
        self.period.counts.offered += 1;
        self.period.outstanding += 1;
    }

    /// What a connection without a request does next.
    fn go_on(&mut self, index: usize, now: Moment) {
        let Some(windows) = self.windows else {
            match self.waiting.pop_front() {
                Some(intended) => self.ask(index, intended),
                None => self.idle.push_back(index),
            }
            return;
        };
        if !self.offering {
            return;
        }
        let began = &mut self.connections[index].window_began;
        match windows.sleep_until(began, now) {
            Some(wakes) => self.asleep.push(Reverse((wakes, index))),
            None => {
                self.offer();
                self.ask(index, now);
            }
        }
    }

    /// Does what the handle asks.
    fn obey(&mut self) {
        // The counter is emptied first, so that a command which comes meanwhile rings again.
        let _ = rustix::io::read(self.bell, &mut [0; 8]);
        loop {
            match self.commands.try_recv() {
                Ok(Command::TakePeriod(reply)) => {
                    if let Some(mut earlier) = hand_over(&reply, self.swap_period()) {
                        earlier.append(&self.period);
                        self.period = earlier;
                    }
                }
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => {
                    self.stopped = true;
                    return;
                }
                Err(TryRecvError::Empty) => return,
            }
        }
    }

    /// Ends the period and begins the next.
    fn swap_period(&mut self) -> Box<LoadPeriod> {
        let used = self.usage.take();
        let elapsed = Moment::now().since(self.origin);
        self.period.swap(Seconds::new(elapsed), used)
    }
}
