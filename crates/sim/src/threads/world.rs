//! The server at work.

mod account;
mod areas;
mod arrivals;
mod classes;
mod incidents;
mod observe;

use super::cpu::Cpu;
use super::disk::Disk;
use super::gate::{Answered, Gate};
use super::locks::Locks;
use super::query::{Drawer, Step};
use super::recent::Recent;
use super::scenario::ThreadsScenario;
use super::totals::ThreadsTotals;
use crate::error::RunError;
use crate::heap::Heap;
use crate::histogram::LatencyHistogram;
use account::Account;
use arrivals::Stream;
use classes::Class;
use headroom_control::oncall::areas::{AreaLaw, NoAreas};
use headroom_control::{Decision, Observation, Stack};
use headroom_units::{Hertz, Seconds};
use observe::Sums;
use std::collections::VecDeque;

/// Runs the server; the law is asked once a period, and what it decides is carried out as a whole: C, N and D
/// ([`Lever::Concurrency`](headroom_units::Lever::Concurrency), `QueryBatch`, `RoundDelay`) and the frequency are not limited where the setting has no
/// value for them, and without C the server is not on call. `None` leaves everything as it is. The same scenario, law and seed give the same
/// run, and a connection's queries are the same under every gate and scheduler.
///
/// # Errors
/// [`RunError::Scenario`] where the scenario is no world or a decision cannot be carried out, [`RunError::TooManyEvents`] and
/// [`RunError::TooManyInFlight`] where the run would not end, [`RunError::Account`] where queries, times or energies do not add up,
/// which would be an error of the simulator.
pub fn run(
    scenario: &ThreadsScenario,
    law: &mut dyn FnMut(&Observation) -> Option<Decision>,
    seed: u64,
) -> Result<ThreadsTotals, RunError> {
    scenario.check()?;
    run_areas(scenario, law, &mut NoAreas, seed)
}

/// The same with laws as live control runs them.
///
/// # Errors
/// As [`run`].
pub fn run_law(scenario: &ThreadsScenario, laws: &mut Stack, seed: u64) -> Result<ThreadsTotals, RunError> {
    run(scenario, &mut |observation| Some(laws.decide(observation)), seed)
}

/// The same with a law of areas beside the one of the levers: which connections run on which cores. It is asked after the other, about
/// the same period.
///
/// # Errors
/// As [`run`], and where areas cannot be.
pub fn run_areas(
    scenario: &ThreadsScenario,
    law: &mut dyn FnMut(&Observation) -> Option<Decision>,
    areas: &mut dyn AreaLaw,
    seed: u64,
) -> Result<ThreadsTotals, RunError> {
    scenario.check()?;
    World::new(scenario, seed).run(&mut Control { law, areas })
}

/// Who decides.
struct Control<'a> {
    law: &'a mut dyn FnMut(&Observation) -> Option<Decision>,
    areas: &'a mut dyn AreaLaw,
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
    /// The next query of an open loop, by its stream.
    Arrival(u32),
    /// A worker has lingered for long enough; void unless its newest.
    Lingered {
        thread: u32,
        newest: u32,
    },
    /// The delay of a ring of the gate is over.
    Round(u32),
    /// The gate is asked again: it may let somebody in for the time alone.
    Look,
    /// A connection asks the gate for its next turn.
    Retry(u32),
    /// Something befalls the server.
    Incident(u32),
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
    /// Queries of storms that are not answered: no client thinks after those.
    extra: u32,
    class: u32,
    /// Of another application.
    is_other: bool,
    recent: Recent,
    /// Queries answered since the end of the warm-up, and what they missed of each SLO.
    answered: u64,
    missed: Vec<f64>,
}

struct World<'a> {
    scenario: &'a ThreadsScenario,
    now_s: f64,
    events: Heap<Event>,
    classes: Vec<Class>,
    streams: Vec<Stream>,
    /// Which of them is the scenario's own, where it has one.
    common: Option<usize>,
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
    class_latency: Vec<LatencyHistogram>,
    /// The sums at the beginning of the period, and its number.
    before: Sums,
    periods: u64,
    waiting_least: u64,
    /// The limit of the frequency of all cores, and of each.
    frequency: Option<Hertz>,
    core_frequencies: Vec<Option<Hertz>>,
    account: Account,
}

impl<'a> World<'a> {
    fn new(scenario: &'a ThreadsScenario, seed: u64) -> Self {
        let connections = scenario.connections;
        let classes = Class::all(scenario);
        let class_of = |connection: u32| {
            classes
                .iter()
                .position(|class| class.members.contains(&connection))
        };
        let mut world = Self {
            scenario,
            now_s: 0.0,
            events: Heap::new(),
            streams: Vec::new(),
            common: None,
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
                    extra: 0,
                    class: class_of(connection).unwrap_or(0) as u32,
                    is_other: class_of(connection)
                        .is_some_and(|class| classes[class].figures.other_application),
                    recent: Recent::default(),
                    answered: 0,
                    missed: Vec::new(),
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
            class_latency: vec![LatencyHistogram::new(); classes.len()],
            before: Sums::default(),
            periods: 0,
            waiting_least: 0,
            frequency: None,
            core_frequencies: vec![None; scenario.machine.processor.cores],
            account: Account::new(connections),
            classes,
        };
        let weights = world
            .classes
            .iter()
            .flat_map(|class| std::iter::repeat_n(class.figures.cpu_weight, class.members.len()));
        world.cpu.set_weights(0.0, weights.collect());
        world.begin_arrivals(seed);
        world.begin_incidents();
        world.events.push(scenario.warm_up_s, Event::WarmUp);
        world.events.push(scenario.period_s, Event::Period);
        world
    }

    fn run(mut self, control: &mut Control<'_>) -> Result<ThreadsTotals, RunError> {
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
                Event::Arrival(stream) => self.arrived(stream)?,
                Event::Lingered { thread, newest } => self.lingered(thread, newest),
                Event::Round(ring) => {
                    if let Some(gate) = &mut self.gate {
                        gate.resume(ring);
                    }
                }
                Event::Look => {}
                Event::Retry(connection) => {
                    let again_s = self
                        .gate
                        .as_mut()
                        .and_then(|gate| gate.wake(self.now_s, connection));
                    if let Some(again_s) = again_s {
                        self.events.push(again_s, Event::Retry(connection));
                    }
                }
                Event::Incident(number) => self.befalls(number)?,
                Event::WarmUp => self.warm_up(),
                Event::Period => self.period(control)?,
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
            if let Some(thread) = gate.admit(self.now_s) {
                let woken = gate.is_on_call();
                self.threads[thread as usize].slot = true;
                self.serve(thread, woken);
                continue;
            }
            while let Some(at_s) = gate.take_look() {
                self.events.push(at_s, Event::Look);
            }
            while let Some((ring, delay_s)) = gate.pause() {
                self.events.push(self.now_s + delay_s, Event::Round(ring));
            }
            return self.sample_waiting();
        }
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
        let thread = &mut self.threads[number as usize];
        self.account.sent(thread.is_other);
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
            Some(_) if !thread.is_other => self.wait(number),
            _ => self.serve(number, false),
        }
        Ok(())
    }

    /// A connection has a query and its worker no slot.
    fn wait(&mut self, number: u32) {
        if let Some(gate) = &mut self.gate
            && let Some(ready_s) = gate.wait(self.now_s, number)
        {
            self.events.push(ready_s, Event::Retry(number));
        }
    }

    /// A worker begins the first query of its connection.
    fn serve(&mut self, number: u32, woken: bool) {
        let thread = &mut self.threads[number as usize];
        thread.serving = true;
        let work = &self.classes[thread.class as usize].work;
        thread.drawer.draw(self.scenario, work, &mut thread.steps);
        let wake_s = self.scenario.gate.as_ref().map_or(0.0, |gate| gate.wake_s);
        if woken && wake_s > 0.0 {
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
                    let factor = match self.threads[number as usize].is_other {
                        true => 1.0,
                        false => self.account.compute(instructions, &self.factors),
                    };
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
            gate.lend(self.now_s, number);
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
            gate.take_again(number);
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
            self.account.answered(latency_s, thread.is_other);
            let class = &self.classes[thread.class as usize];
            thread.recent.record(latency_s);
            thread.answered += 1;
            class.judge(latency_s, &mut thread.missed);
            self.class_latency[thread.class as usize].record(Seconds::new(latency_s));
            if !thread.is_other {
                self.latency.record(Seconds::new(latency_s));
                self.period_latency.record(Seconds::new(latency_s));
            }
        }
        let more = !thread.sent_s.is_empty();
        let next = match &mut self.gate {
            Some(gate) if !thread.is_other => {
                gate.transact(self.now_s, number, thread.drawer.is_in_transaction());
                gate.answered(self.now_s, number, more)
            }
            _ if more => Answered::Serves,
            _ => Answered::Leaves,
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
                if more && self.gate.is_some() {
                    self.wait(number);
                }
            }
        }
        if next != Answered::Serves {
            self.set_state(number, State::Sleeping);
            self.cpu.leave(self.now_s, number, &mut self.events);
        }
        match self.threads[number as usize].extra {
            0 => self.send_later(number),
            extra => self.threads[number as usize].extra = extra - 1,
        }
    }

    fn lingered(&mut self, number: u32, newest: u32) {
        let thread = &mut self.threads[number as usize];
        if let Some(gate) = &mut self.gate
            && thread.lingering
            && thread.newest_linger == newest
        {
            thread.lingering = false;
            thread.slot = false;
            gate.leave(number);
        }
    }

    fn set_state(&mut self, number: u32, state: State) {
        let thread = &mut self.threads[number as usize];
        let before = std::mem::replace(&mut thread.state, state);
        self.account.moved(before, state, thread.is_other);
    }
}
