//! The cores, who runs on them, and how long they idle.

use super::scenario::{KernelPolicy, ThreadsScenario};
use super::totals::IdlePeriods;
use super::world::Event;
use crate::heap::Heap;
use headroom_physics::{CoreTracker, IdleTotals, Placement};
use std::collections::VecDeque;

/// Work shorter than this is done: what rounding leaves of a segment, far below any that is drawn.
const ROUNDING_S: f64 = 1e-11;

#[derive(Clone, Copy, Debug, Default)]
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
}

/// Why a thread makes way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Preempted {
    SliceUsedUp,
    WakeUp,
}

/// The cores under the kernel's scheduler.
pub(super) struct Cpu {
    policy: KernelPolicy,
    placement: Placement,
    slice_s: f64,
    switch_s: f64,
    preempt_after_s: Option<f64>,
    cores: Vec<Core>,
    /// One, or one per core.
    queues: Vec<VecDeque<u32>>,
    /// Work left of each thread's segment, seconds.
    left_s: Vec<f64>,
    core_of: Vec<Option<u32>>,
    last_core: Vec<u32>,
    tracker: CoreTracker,
    pub(super) idle: IdlePeriods,
    pub(super) switches: u64,
}

impl Cpu {
    pub(super) fn new(scenario: &ThreadsScenario) -> Self {
        let kernel = &scenario.kernel;
        let (cores, threads) = (scenario.machine.processor.cores, scenario.connections as usize);
        let queues = match kernel.policy {
            KernelPolicy::FairPerCore => cores,
            KernelPolicy::FairGlobal | KernelPolicy::Sol => 1,
        };
        Self {
            policy: kernel.policy,
            placement: kernel.placement,
            slice_s: kernel.slice_s(),
            switch_s: kernel.switch_s,
            preempt_after_s: kernel.preempt_after_s,
            cores: vec![Core::default(); cores],
            queues: vec![VecDeque::new(); queues],
            left_s: vec![0.0; threads],
            core_of: vec![None; threads],
            last_core: (0..threads).map(|thread| (thread % cores) as u32).collect(),
            tracker: CoreTracker::new(&scenario.machine, kernel.placement, 0.0),
            idle: IdlePeriods::new(scenario.break_even_s),
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
        match self.preempted(now_s, queue) {
            Some((core, Preempted::SliceUsedUp)) => {
                self.queues[queue].push_back(thread);
                self.switch(now_s, core, Preempted::SliceUsedUp, events);
            }
            Some((core, Preempted::WakeUp)) => {
                self.queues[queue].push_front(thread);
                self.switch(now_s, core, Preempted::WakeUp, events);
            }
            None => self.queues[queue].push_back(thread),
        }
    }

    /// A core that serves a queue and whose thread must make way for one that wakes, and why.
    fn preempted(&self, now_s: f64, queue: usize) -> Option<(u32, Preempted)> {
        let cores = match self.queues.len() {
            1 => 0..self.cores.len(),
            _ => queue..queue + 1,
        };
        if let Some(core) = cores.clone().find(|core| self.cores[*core].full) {
            return Some((core as u32, Preempted::SliceUsedUp));
        }
        let after_s = self.preempt_after_s?;
        cores
            .filter(|core| now_s - self.cores[*core].slice_began_s >= after_s)
            .min_by(|one, other| {
                let began_s = |core: &usize| self.cores[*core].slice_began_s;
                began_s(one).total_cmp(&began_s(other))
            })
            .map(|core| (core as u32, Preempted::WakeUp))
    }

    /// The idle core that a thread wakes on: its last, else by placement.
    fn idle_core(&self, thread: u32) -> Option<u32> {
        let last = self.last_core[thread as usize];
        let is_idle = |core: u32| self.cores[core as usize].thread.is_none();
        if is_idle(last) {
            return Some(last);
        }
        let mut idle = (0..self.cores.len() as u32).filter(|core| is_idle(*core));
        match self.placement {
            Placement::Packed => idle.next(),
            Placement::Spread => idle.min_by(|one, other| {
                let since_s = |core: &u32| self.cores[*core as usize].idle_since_s;
                since_s(one).total_cmp(&since_s(other))
            }),
        }
    }

    fn shortest_queue(&self, thread: u32) -> usize {
        if self.queues.len() == 1 {
            return 0;
        }
        let last = self.last_core[thread as usize] as usize;
        let least = self.queues.iter().map(VecDeque::len).min().unwrap_or(0);
        match self.queues[last].len() == least {
            true => last,
            false => self
                .queues
                .iter()
                .position(|queue| queue.len() == least)
                .unwrap_or(last),
        }
    }

    fn start(&mut self, now_s: f64, core: u32, thread: u32, events: &mut Heap<Event>) {
        let state = &mut self.cores[core as usize];
        let mut from_s = now_s;
        if state.thread.is_none() {
            from_s += self.tracker.run_core(now_s, core as usize).get();
            self.idle.record(now_s - state.idle_since_s);
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
        let done_s = state.from_s + self.left_s[thread as usize];
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
            self.left_s[thread as usize] = (self.left_s[thread as usize] - ran_s).max(0.0);
            state.from_s = state.from_s.max(now_s);
        }
    }

    fn queue_of(&self, core: u32) -> usize {
        (core as usize) % self.queues.len()
    }

    fn has_waiting(&self, core: u32) -> bool {
        !self.queues[self.queue_of(core)].is_empty()
    }

    /// The core's thread makes way for the first that waits.
    fn switch(&mut self, now_s: f64, core: u32, why: Preempted, events: &mut Heap<Event>) {
        self.settle(now_s, core);
        let queue = self.queue_of(core);
        let (Some(old), Some(new)) = (self.cores[core as usize].thread, self.queues[queue].pop_front())
        else {
            return;
        };
        self.core_of[old as usize] = None;
        match (self.policy, why) {
            // Who had its turn waits for the others; who was interrupted in it is next.
            (KernelPolicy::FairPerCore | KernelPolicy::FairGlobal, Preempted::SliceUsedUp) => {
                self.queues[queue].push_back(old);
            }
            (KernelPolicy::Sol, _) | (_, Preempted::WakeUp) => self.queues[queue].push_front(old),
        }
        self.start(now_s, core, new, events);
    }

    /// A thread has nothing to do on its core: the next runs there.
    pub(super) fn leave(&mut self, now_s: f64, thread: u32, events: &mut Heap<Event>) {
        let Some(core) = self.core_of[thread as usize].take() else {
            return;
        };
        let own = self.queue_of(core);
        let next = self.queues[own].pop_front().or_else(|| {
            // Of the longest queue: a core without work looks for some before it sleeps.
            let longest = self.queues.iter().map(VecDeque::len).max().unwrap_or(0);
            let victim = self.queues.iter().position(|queue| queue.len() == longest)?;
            self.queues[victim].pop_front()
        });
        match next {
            Some(next) => self.start(now_s, core, next, events),
            None => {
                let state = &mut self.cores[core as usize];
                state.thread = None;
                state.full = false;
                state.newest = state.newest.wrapping_add(1);
                state.idle_since_s = now_s;
                self.tracker.idle_core(now_s, core as usize);
            }
        }
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
