//! The server at work.

mod account;

use super::cpu::Cpu;
use super::disk::Disk;
use super::gate::{Answered, Gate, GateSettings};
use super::locks::Locks;
use super::policy::{GateObservation, Recent};
use super::query::{Drawer, Shapes, Step};
use super::scenario::{QueryArrivals, ThreadsScenario};
use super::totals::ThreadsTotals;
use crate::error::RunError;
use crate::heap::Heap;
use crate::histogram::LatencyHistogram;
use account::Account;
use headroom_units::Seconds;
use headroom_workload::Distribution;
use headroom_workload::random::{Draw, Purpose, Rng};
use std::collections::VecDeque;

/// Runs the server; the policy is asked once a period where there is a gate. The same scenario, policy and seed give the same run,
/// and a connection's queries are the same under every gate and scheduler.
///
/// # Errors
/// [`RunError::Scenario`] where the scenario is no world or the policy's settings are none, [`RunError::TooManyEvents`] and
/// [`RunError::TooManyInFlight`] where the run would not end, [`RunError::Account`] where queries, times or energies do not add up,
/// which would be an error of the simulator.
pub fn run(
    scenario: &ThreadsScenario,
    policy: &mut dyn FnMut(&GateObservation) -> Option<GateSettings>,
    seed: u64,
) -> Result<ThreadsTotals, RunError> {
    scenario.check()?;
    World::new(scenario, seed).run(policy)
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A thread's work is done or its slice used up; void unless the newest of its core.
    Core {
        core: u32,
        newest: u32,
    },
    /// A thread's disk access is done.
    Disk(u32),
    /// A closed-loop client sends its next query.
    Sent(u32),
    /// The next query of the open loop.
    Arrival,
    /// A worker has lingered for long enough; void unless its newest.
    Lingered {
        thread: u32,
        newest: u32,
    },
    /// The gate's delay is over.
    Round,
    WarmUp,
    Period,
}

/// A thread's state as the kernel names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Runnable,
    Sleeping,
    Disk,
}

struct Thread {
    state: State,
    drawer: Drawer,
    steps: Vec<Step>,
    /// When each query that is not answered was sent; the first is served or the next.
    sent_s: VecDeque<f64>,
    serving: bool,
    /// Has a slot of the gate.
    slot: bool,
    /// Gave its slot back for a wait, and takes it again.
    lent: bool,
    lingering: bool,
    newest_linger: u32,
    recent: Recent,
}

struct World<'a> {
    scenario: &'a ThreadsScenario,
    now_s: f64,
    events: Heap<Event>,
    shapes: Shapes,
    think: Option<Distribution>,
    arrivals: Rng,
    threads: Vec<Thread>,
    cpu: Cpu,
    disk: Disk,
    locks: Locks,
    gate: Option<Gate>,
    /// IPQ factor by active threads.
    factors: Vec<f64>,
    /// Threads that can go on with their next step.
    ready: VecDeque<u32>,
    latency: LatencyHistogram,
    period_latency: LatencyHistogram,
    period_began_s: f64,
    period_busy_s: f64,
    account: Account,
}

impl<'a> World<'a> {
    fn new(scenario: &'a ThreadsScenario, seed: u64) -> Self {
        let connections = scenario.connections;
        let mut world = Self {
            scenario,
            now_s: 0.0,
            events: Heap::new(),
            shapes: Shapes::new(scenario),
            think: None,
            arrivals: Rng::new(seed, Purpose::Arrivals),
            threads: (0..connections)
                .map(|connection| Thread {
                    state: State::Sleeping,
                    drawer: Drawer::new(seed, connection),
                    steps: Vec::new(),
                    sent_s: VecDeque::new(),
                    serving: false,
                    slot: false,
                    lent: false,
                    lingering: false,
                    newest_linger: 0,
                    recent: Recent::default(),
                })
                .collect(),
            cpu: Cpu::new(scenario),
            disk: Disk::new(scenario.disk.parallel),
            locks: Locks::new(scenario.locks.rows),
            gate: scenario.gate.as_ref().map(|gate| Gate::new(gate, connections)),
            factors: (0..=connections)
                .map(|threads| scenario.query.inflation.at(threads))
                .collect(),
            ready: VecDeque::new(),
            latency: LatencyHistogram::new(),
            period_latency: LatencyHistogram::new(),
            period_began_s: 0.0,
            period_busy_s: 0.0,
            account: Account::new(connections),
        };
        match &scenario.arrivals {
            QueryArrivals::Closed { think_s, think } => {
                world.think = Some(think.scaled(*think_s));
                (0..connections).for_each(|thread| world.send_later(thread));
            }
            QueryArrivals::Open { .. } => world.arrive_later(),
        }
        world.events.push(scenario.warm_up_s, Event::WarmUp);
        if world.gate.is_some() {
            world.events.push(scenario.period_s, Event::Period);
        }
        world
    }

    fn run(
        mut self,
        policy: &mut dyn FnMut(&GateObservation) -> Option<GateSettings>,
    ) -> Result<ThreadsTotals, RunError> {
        let (length_s, limit) = (self.scenario.duration_s, self.scenario.limits.events);
        let mut count = 0;
        while let Some((at_s, event)) = self.events.pop() {
            if at_s > length_s {
                break;
            }
            count += 1;
            if count > limit {
                return Err(RunError::TooManyEvents {
                    limit,
                    at_s: self.now_s,
                    length_s,
                });
            }
            self.account.pass(at_s - self.now_s);
            self.now_s = at_s;
            match event {
                Event::Core { core, newest } => {
                    let done = self.cpu.event(at_s, core, newest, &mut self.events);
                    self.ready.extend(done);
                }
                Event::Disk(thread) => self.disk_done(thread),
                Event::Sent(thread) => self.sent(thread)?,
                Event::Arrival => self.arrived()?,
                Event::Lingered { thread, newest } => self.lingered(thread, newest),
                Event::Round => {
                    if let Some(gate) = &mut self.gate {
                        gate.resume();
                    }
                }
                Event::WarmUp => self.warm_up(),
                Event::Period => self.period(policy)?,
            }
            self.proceed();
        }
        self.account.pass(length_s - self.now_s);
        self.now_s = length_s;
        self.totals()
    }

    /// All that can happen now: threads go on, and the gate admits.
    fn proceed(&mut self) {
        loop {
            while let Some(thread) = self.ready.pop_front() {
                self.go_on(thread);
            }
            let Some(gate) = &mut self.gate else { return };
            match gate.admit() {
                Some(thread) => {
                    self.threads[thread as usize].slot = true;
                    self.serve(thread, true);
                }
                None => {
                    if let Some(delay_s) = gate.pause() {
                        self.events.push(self.now_s + delay_s, Event::Round);
                    }
                    return;
                }
            }
        }
    }

    fn send_later(&mut self, thread: u32) {
        if let Some(think) = &self.think {
            let think_s = self.threads[thread as usize].drawer.think(think);
            self.events.push(self.now_s + think_s, Event::Sent(thread));
        }
    }

    fn arrive_later(&mut self) {
        if let QueryArrivals::Open { rate_per_s } = self.scenario.arrivals {
            let gap_s = self.arrivals.exponential() / rate_per_s;
            self.events.push(self.now_s + gap_s, Event::Arrival);
        }
    }

    fn arrived(&mut self) -> Result<(), RunError> {
        self.arrive_later();
        let connections = self.scenario.connections;
        let thread = (self.arrivals.uniform() * f64::from(connections)) as u32;
        self.sent(thread.min(connections - 1))
    }

    /// A query reaches a connection.
    fn sent(&mut self, number: u32) -> Result<(), RunError> {
        let limit = self.scenario.limits.in_flight;
        if self.account.in_system >= limit {
            return Err(RunError::TooManyInFlight {
                limit,
                at_s: self.now_s,
                cores: self.scenario.machine.processor.cores as f64,
            });
        }
        self.account.sent();
        let thread = &mut self.threads[number as usize];
        thread.sent_s.push_back(self.now_s);
        if thread.serving {
            return Ok(());
        }
        match &mut self.gate {
            Some(gate) if thread.lingering => {
                thread.lingering = false;
                gate.caught(number);
                self.serve(number, false);
            }
            Some(gate) => gate.wait(number),
            None => self.serve(number, false),
        }
        Ok(())
    }

    /// A worker begins the first query of its connection.
    fn serve(&mut self, number: u32, admitted: bool) {
        let thread = &mut self.threads[number as usize];
        thread.serving = true;
        thread.drawer.draw(self.scenario, &self.shapes, &mut thread.steps);
        let wake_s = self.scenario.gate.as_ref().map_or(0.0, |gate| gate.wake_s);
        if admitted && wake_s > 0.0 {
            // Not the query's instructions: not inflated, and no part of its IPQ.
            self.set_state(number, State::Runnable);
            self.cpu.work(self.now_s, number, wake_s, &mut self.events);
            return;
        }
        // First: a worker that goes on to its next query is still on its core, and nobody may be placed there before.
        self.ready.push_front(number);
    }

    /// A thread takes its next step.
    fn go_on(&mut self, number: u32) {
        loop {
            let Some(step) = self.threads[number as usize].steps.pop() else {
                return self.answer(number);
            };
            match step {
                Step::Compute(instructions) => {
                    self.set_state(number, State::Runnable);
                    let factor = self.factors[self.account.active() as usize];
                    self.account.compute(instructions, factor);
                    let work_s = instructions * factor / self.scenario.query.instructions_per_s;
                    return self.cpu.work(self.now_s, number, work_s, &mut self.events);
                }
                Step::Access(service_s) => {
                    let gives_back = self
                        .scenario
                        .gate
                        .as_ref()
                        .is_some_and(|gate| gate.disk_gives_back);
                    self.block(number, State::Disk, gives_back);
                    if let Some(done_s) = self.disk.access(self.now_s, number, service_s) {
                        self.events.push(done_s, Event::Disk(number));
                    }
                    return;
                }
                Step::Lock(row) => {
                    if !self.locks.take(number, row) {
                        let gives_back = self
                            .scenario
                            .gate
                            .as_ref()
                            .is_some_and(|gate| gate.lock_gives_back);
                        return self.block(number, State::Sleeping, gives_back);
                    }
                }
                Step::Unlock(row) => {
                    if let Some(next) = self.locks.release(row) {
                        self.unblock(next);
                    }
                }
            }
        }
    }

    /// A thread waits for something.
    fn block(&mut self, number: u32, state: State, gives_back: bool) {
        self.set_state(number, state);
        self.cpu.leave(self.now_s, number, &mut self.events);
        let thread = &mut self.threads[number as usize];
        if let Some(gate) = &mut self.gate
            && thread.slot
            && gives_back
        {
            gate.give_back();
            thread.slot = false;
            thread.lent = true;
        }
    }

    /// What a thread waited for is there.
    fn unblock(&mut self, number: u32) {
        let thread = &mut self.threads[number as usize];
        if let Some(gate) = &mut self.gate
            && thread.lent
        {
            gate.take_again();
            thread.lent = false;
            thread.slot = true;
        }
        self.set_state(number, State::Runnable);
        self.ready.push_back(number);
    }

    fn disk_done(&mut self, number: u32) {
        if let Some((next, done_s)) = self.disk.done(self.now_s) {
            self.events.push(done_s, Event::Disk(next));
        }
        self.unblock(number);
    }

    /// A thread's query is answered.
    fn answer(&mut self, number: u32) {
        let thread = &mut self.threads[number as usize];
        thread.serving = false;
        if let Some(sent_s) = thread.sent_s.pop_front() {
            let latency_s = self.now_s - sent_s;
            self.account.answered(latency_s);
            thread.recent.record(latency_s);
            self.latency.record(Seconds::new(latency_s));
            self.period_latency.record(Seconds::new(latency_s));
        }
        let more = !thread.sent_s.is_empty();
        let next = match &mut self.gate {
            Some(gate) => gate.answered(number, more),
            None if more => Answered::Serves,
            None => Answered::Leaves,
        };
        match next {
            Answered::Serves => self.serve(number, false),
            Answered::Lingers => {
                thread.lingering = true;
                thread.newest_linger += 1;
                let newest = thread.newest_linger;
                let linger_s = self.scenario.gate.as_ref().map_or(0.0, |gate| gate.linger_s);
                let event = Event::Lingered {
                    thread: number,
                    newest,
                };
                self.events.push(self.now_s + linger_s, event);
            }
            Answered::Leaves => {
                thread.slot = false;
                if let Some(gate) = &mut self.gate
                    && more
                {
                    gate.wait(number);
                }
            }
        }
        if next != Answered::Serves {
            self.set_state(number, State::Sleeping);
            self.cpu.leave(self.now_s, number, &mut self.events);
        }
        self.send_later(number);
    }

    fn lingered(&mut self, number: u32, newest: u32) {
        let thread = &mut self.threads[number as usize];
        if let Some(gate) = &mut self.gate
            && thread.lingering
            && thread.newest_linger == newest
        {
            thread.lingering = false;
            thread.slot = false;
            gate.give_back();
        }
    }

    fn set_state(&mut self, number: u32, state: State) {
        let before = std::mem::replace(&mut self.threads[number as usize].state, state);
        self.account.moved(before, state);
    }
}
