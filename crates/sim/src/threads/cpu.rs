//! The cores, who runs on them, and how long they idle.

mod areas;
mod power;

use super::scenario::{KernelPolicy, ThreadsScenario};
use super::totals::IdlePeriods;
use super::world::Event;
use crate::heap::Heap;
use areas::{Areas, is_per_core};
use headroom_physics::{CoreTracker, FrequencyFigures, IdleTotals, Placement};
use std::collections::VecDeque;

/// Work shorter than this is done: what rounding leaves of a segment, far below any that is drawn.
const ROUNDING_S: f64 = 1e-11;

#[derive(Clone, Copy, Debug)]
struct Core {
    thread: Option<u32>,
    /// The number of its newest event; older ones mean nothing.
    newest: u32,
    /// From when on its thread's work is done: later than now while the core wakes or switches.
    from_s: f64,
    slice_began_s: f64,
    /// Its thread ran a full slice, and goes on because nobody waited.
    full: bool,
    last: Option<u32>,
    idle_since_s: f64,
    /// Its frequency, over the highest.
    speed: f64,
    /// What it draws while it runs.
    busy_w: f64,
    /// From when on that is not yet counted.
    drawn_s: f64,
}

/// Why a thread makes way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Preempted {
    SliceUsedUp,
    WakeUp,
}

/// Threads that wait for a core.
#[derive(Clone, Debug, Default)]
struct Queue {
    threads: VecDeque<u32>,
    /// How long whoever was taken last had run for its weight, seconds; it never falls.
    virtual_s: f64,
}

/// The cores under the kernel's scheduler.
pub(super) struct Cpu {
    policy: KernelPolicy,
    placement: Placement,
    slice_s: f64,
    switch_s: f64,
    preempt_after_s: Option<f64>,
    cores: Vec<Core>,
    /// One per core, or one per area.
    queues: Vec<Queue>,
    areas: Areas,
    /// Weights of the threads, where not all have the same.
    weights: Option<Vec<f64>>,
    /// How long each thread ran, over its weight, as its queue counts it; seconds.
    virtual_s: Vec<f64>,
    /// The queue that counts it.
    queue_of: Vec<u32>,
    /// Work left of each thread's segment, seconds.
    left_s: Vec<f64>,
    core_of: Vec<Option<u32>>,
    last_core: Vec<u32>,
    tracker: CoreTracker,
    frequencies: FrequencyFigures,
    work_j: f64,
    pub(super) idle: IdlePeriods,
    /// Core-seconds in idle periods above T, from the start of the run.
    pub(super) long_idle_s: f64,
    pub(super) switches: u64,
}

impl Cpu {
    pub(super) fn new(scenario: &ThreadsScenario) -> Self {
        let kernel = &scenario.kernel;
        let (cores, threads) = (scenario.machine.processor.cores, scenario.connections as usize);
        let frequencies = scenario.machine.processor.frequency;
        let core = Core {
            thread: None,
            newest: 0,
            from_s: 0.0,
            slice_began_s: 0.0,
            full: false,
            last: None,
            idle_since_s: 0.0,
            speed: 1.0,
            busy_w: frequencies.busy_at_top().get(),
            drawn_s: 0.0,
        };
        Self {
            policy: kernel.policy,
            placement: kernel.placement,
            slice_s: kernel.slice_s(),
            switch_s: kernel.switch_s,
            preempt_after_s: kernel.preempt_after_s,
            cores: vec![core; cores],
            queues: vec![Queue::default(); if is_per_core(kernel.policy) { cores } else { 1 }],
            areas: Areas::one(cores, threads),
            weights: None,
            virtual_s: vec![0.0; threads],
            queue_of: vec![0; threads],
            left_s: vec![0.0; threads],
            core_of: vec![None; threads],
            last_core: (0..threads).map(|thread| (thread % cores) as u32).collect(),
            tracker: CoreTracker::new(&scenario.machine, kernel.placement, 0.0),
            frequencies,
            work_j: 0.0,
            idle: IdlePeriods::new(scenario.break_even_s),
            long_idle_s: 0.0,
            switches: 0,
        }
    }

    /// A thread has so much work, seconds: it goes on where it is on a core, else it wakes.
    pub(super) fn work(&mut self, now_s: f64, thread: u32, work_s: f64, events: &mut Heap<Event>) {
        self.left_s[thread as usize] = work_s;
        match self.core_of[thread as usize] {
            Some(core) => {
                self.cores[core as usize].from_s = now_s;
                self.schedule(core, events);
            }
            None => self.wake(now_s, thread, events),
        }
    }

    fn wake(&mut self, now_s: f64, thread: u32, events: &mut Heap<Event>) {
        if let Some(core) = self.idle_core(thread) {
            self.start(now_s, core, thread, events);
            return;
        }
        let queue = self.shortest_queue(thread);
        self.join(queue, thread);
        match self.preempted(now_s, queue) {
            Some((core, Preempted::SliceUsedUp)) => {
                self.queues[queue].threads.push_back(thread);
                self.switch(now_s, core, Preempted::SliceUsedUp, events);
            }
            Some((core, Preempted::WakeUp)) => {
                self.queues[queue].threads.push_front(thread);
                self.switch(now_s, core, Preempted::WakeUp, events);
            }
            None => self.queues[queue].threads.push_back(thread),
        }
    }

    /// The cores that serve a queue.
    fn served_by(&self, queue: usize) -> &[u32] {
        match is_per_core(self.policy) {
            true => std::slice::from_ref(&self.areas.every[queue]),
            false => &self.areas.cores[queue],
        }
    }

    /// A core that serves a queue and whose thread must make way for one that wakes, and why.
    fn preempted(&self, now_s: f64, queue: usize) -> Option<(u32, Preempted)> {
        let cores = self.served_by(queue).iter().copied();
        if let Some(core) = cores.clone().find(|core| self.cores[*core as usize].full) {
            return Some((core, Preempted::SliceUsedUp));
        }
        let after_s = self.preempt_after_s?;
        let began_s = |core: &u32| self.cores[*core as usize].slice_began_s;
        cores
            .filter(|core| now_s - began_s(core) >= after_s)
            .min_by(|one, other| began_s(one).total_cmp(&began_s(other)))
            .map(|core| (core, Preempted::WakeUp))
    }

    /// The idle core that a thread wakes on: its last, else by placement.
    fn idle_core(&self, thread: u32) -> Option<u32> {
        let last = self.last_core[thread as usize];
        let area = self.areas.of_thread[thread as usize];
        let is_idle = |core: u32| self.cores[core as usize].thread.is_none();
        if is_idle(last) && self.areas.of_core[last as usize] == Some(area) {
            return Some(last);
        }
        let cores = &self.areas.cores[area as usize];
        let mut idle = cores.iter().copied().filter(|core| is_idle(*core));
        match self.placement {
            Placement::Packed => idle.next(),
            Placement::Spread => idle.min_by(|one, other| {
                let since_s = |core: &u32| self.cores[*core as usize].idle_since_s;
                since_s(one).total_cmp(&since_s(other))
            }),
        }
    }

    fn shortest_queue(&self, thread: u32) -> usize {
        let area = self.areas.of_thread[thread as usize];
        if !is_per_core(self.policy) {
            return area as usize;
        }
        let last = self.last_core[thread as usize] as usize;
        let cores = &self.areas.cores[area as usize];
        let length = |core: &u32| self.queues[*core as usize].threads.len();
        let least = cores.iter().map(length).min().unwrap_or(0);
        let is_last = self.areas.of_core[last] == Some(area) && self.queues[last].threads.len() == least;
        match is_last {
            true => last,
            false => cores
                .iter()
                .find(|core| length(core) == least)
                .map_or(last, |core| *core as usize),
        }
    }

    /// A thread is counted by a queue from now on: no less than who ran last there, as it gets no credit for having slept.
    fn join(&mut self, queue: usize, thread: u32) {
        let before = std::mem::replace(&mut self.queue_of[thread as usize], queue as u32) as usize;
        let base_s = self.queues.get(before).map_or(0.0, |queue| queue.virtual_s);
        let ahead_s = (self.virtual_s[thread as usize] - base_s).max(0.0);
        self.virtual_s[thread as usize] = self.queues[queue].virtual_s + ahead_s;
    }

    /// Takes the next of a queue: the first, or with weights the one that ran least for its weight.
    fn next_of(&mut self, queue: usize) -> Option<u32> {
        let of = &mut self.queues[queue];
        if self.weights.is_none() {
            return of.threads.pop_front();
        }
        let virtual_s = &self.virtual_s;
        let ran_s = |at: &usize| virtual_s[of.threads[*at] as usize];
        let at = (0..of.threads.len()).min_by(|one, other| ran_s(one).total_cmp(&ran_s(other)))?;
        let thread = of.threads.remove(at)?;
        of.virtual_s = of.virtual_s.max(self.virtual_s[thread as usize]);
        Some(thread)
    }

    fn start(&mut self, now_s: f64, core: u32, thread: u32, events: &mut Heap<Event>) {
        let state = &mut self.cores[core as usize];
        let mut from_s = now_s;
        if state.thread.is_none() {
            from_s += self.tracker.run_core(now_s, core as usize).get();
            let idle_s = now_s - state.idle_since_s;
            self.idle.record(idle_s);
            if idle_s > self.idle.break_even_s {
                self.long_idle_s += idle_s;
            }
            state.drawn_s = now_s;
        }
        if state.last != Some(thread) {
            from_s += self.switch_s;
            self.switches += 1;
        }
        state.thread = Some(thread);
        state.last = Some(thread);
        state.from_s = from_s;
        state.slice_began_s = from_s;
        state.full = false;
        self.core_of[thread as usize] = Some(core);
        self.last_core[thread as usize] = core;
        self.schedule(core, events);
    }

    /// When the core's thread is done or its slice used up.
    fn schedule(&mut self, core: u32, events: &mut Heap<Event>) {
        let state = &mut self.cores[core as usize];
        let Some(thread) = state.thread else { return };
        let done_s = state.from_s + self.left_s[thread as usize] / state.speed;
        let at_s = match state.full {
            true => done_s,
            false => done_s.min((state.slice_began_s + self.slice_s).max(state.from_s)),
        };
        state.newest = state.newest.wrapping_add(1);
        let newest = state.newest;
        events.push(at_s, Event::Core { core, newest });
    }

    /// An event of a core: the thread whose work is done.
    pub(super) fn event(
        &mut self,
        now_s: f64,
        core: u32,
        newest: u32,
        events: &mut Heap<Event>,
    ) -> Option<u32> {
        let state = self.cores[core as usize];
        if state.newest != newest {
            return None;
        }
        let thread = state.thread?;
        self.settle(now_s, core);
        if self.left_s[thread as usize] <= ROUNDING_S {
            return Some(thread);
        }
        if self.has_waiting(core) {
            self.switch(now_s, core, Preempted::SliceUsedUp, events);
        } else {
            self.cores[core as usize].full = true;
            self.schedule(core, events);
        }
        None
    }

    fn settle(&mut self, now_s: f64, core: u32) {
        let state = &mut self.cores[core as usize];
        if let Some(thread) = state.thread {
            let ran_s = (now_s - state.from_s).max(0.0);
            self.left_s[thread as usize] = (self.left_s[thread as usize] - ran_s * state.speed).max(0.0);
            if let Some(weights) = &self.weights {
                self.virtual_s[thread as usize] += ran_s / weights[thread as usize];
            }
            state.from_s = state.from_s.max(now_s);
        }
    }

    /// The queue of a core that runs something.
    fn queue_of_core(&self, core: u32) -> usize {
        match is_per_core(self.policy) {
            true => core as usize,
            false => self.areas.of_core[core as usize].unwrap_or(0) as usize,
        }
    }

    fn has_waiting(&self, core: u32) -> bool {
        !self.queues[self.queue_of_core(core)].threads.is_empty()
    }

    /// The core's thread makes way for the first that waits.
    fn switch(&mut self, now_s: f64, core: u32, why: Preempted, events: &mut Heap<Event>) {
        self.settle(now_s, core);
        let queue = self.queue_of_core(core);
        let Some(old) = self.cores[core as usize].thread else {
            return;
        };
        let Some(new) = self.next_of(queue) else {
            return;
        };
        self.core_of[old as usize] = None;
        match (self.policy, why) {
            // Who had its turn waits for the others; who was interrupted in it is next.
            (KernelPolicy::FairPerCore | KernelPolicy::FairGlobal, Preempted::SliceUsedUp) => {
                self.queues[queue].threads.push_back(old);
            }
            (KernelPolicy::Sol, _) | (_, Preempted::WakeUp) => self.queues[queue].threads.push_front(old),
        }
        self.start(now_s, core, new, events);
    }

    /// A thread has nothing to do on its core: the next runs there.
    pub(super) fn leave(&mut self, now_s: f64, thread: u32, events: &mut Heap<Event>) {
        if let Some(core) = self.core_of[thread as usize].take() {
            self.settle(now_s, core);
            self.go_on(now_s, core, events);
        }
    }

    /// A core whose thread left it runs the next, or sleeps.
    fn go_on(&mut self, now_s: f64, core: u32, events: &mut Heap<Event>) {
        match self.next_for(core) {
            Some(next) => self.start(now_s, core, next, events),
            None => {
                self.draw(now_s, core);
                let state = &mut self.cores[core as usize];
                state.thread = None;
                state.full = false;
                state.newest = state.newest.wrapping_add(1);
                state.idle_since_s = now_s;
                self.tracker.idle_core(now_s, core as usize);
            }
        }
    }

    /// The next for a core: of its own queue, else of the longest of its area, as a core without work looks for some before it sleeps.
    fn next_for(&mut self, core: u32) -> Option<u32> {
        let area = self.areas.of_core[core as usize]?;
        let own = self.queue_of_core(core);
        if let Some(next) = self.next_of(own) {
            return Some(next);
        }
        if !is_per_core(self.policy) {
            return None;
        }
        let length = |core: &&u32| self.queues[**core as usize].threads.len();
        let cores = &self.areas.cores[area as usize];
        let longest = cores.iter().map(|core| length(&core)).max().unwrap_or(0);
        let victim = cores.iter().find(|core| length(core) == longest)?;
        let next = self.next_of(*victim as usize)?;
        self.join(own, next);
        Some(next)
    }

    /// What the cores drew, up to now.
    pub(super) fn drawn(&mut self, now_s: f64) -> &IdleTotals {
        self.tracker.advance(now_s);
        self.tracker.totals()
    }

    /// Idle periods are counted from now on, those under way from their beginning there.
    pub(super) fn begin_idle(&mut self, now_s: f64) {
        self.idle = IdlePeriods::new(self.idle.break_even_s);
        for core in self.cores.iter_mut().filter(|core| core.thread.is_none()) {
            core.idle_since_s = now_s;
        }
    }

    /// Idle periods under way count with what they lasted so far.
    pub(super) fn end_idle(&mut self, now_s: f64) {
        for core in self.cores.iter().filter(|core| core.thread.is_none()) {
            self.idle.record(now_s - core.idle_since_s);
        }
    }
}
