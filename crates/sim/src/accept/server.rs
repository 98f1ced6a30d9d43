//! One server: an accept queue in front of worker processes that share CPUs and wait.

use crate::heap::Heap;
use crate::server::{Job, Server};
use headroom_workload::random::Rng;
use std::collections::VecDeque;

/// A request on its way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Request {
    /// Its first attempt and the user who waits.
    pub(super) job: Job,
    /// CPU work, seconds.
    pub(super) cpu_s: f64,
}

/// What was counted at a queue since it was last read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counted {
    pub(super) arrivals: u64,
    pub(super) accepts: u64,
    pub(super) drops: u64,
    /// Sum over arrivals of the queue length that each saw.
    pub(super) lengths_seen: u64,
    /// Accepts of connections that had waited.
    pub(super) waited: u64,
    /// Time for which somebody waited.
    pub(super) waiting_s: f64,
}

#[derive(Clone, Debug)]
pub(super) struct AcceptServer {
    limit: usize,
    workers: usize,
    queue: VecDeque<Request>,
    /// Requests that do CPU work.
    cpu: Server,
    cpu_due_s: f64,
    /// Requests that wait for something else, by when they are done.
    waiting: Heap<Job>,
    counted: Counted,
    /// Since when somebody waits, or since the last reading.
    waiting_since_s: Option<f64>,
    busy_before_s: f64,
}

impl AcceptServer {
    pub(super) fn new(limit: usize, workers: usize, cores: f64) -> Self {
        Self {
            limit,
            workers,
            queue: VecDeque::new(),
            cpu: Server::new(cores, 1.0),
            cpu_due_s: f64::INFINITY,
            waiting: Heap::new(),
            counted: Counted::default(),
            waiting_since_s: None,
            busy_before_s: 0.0,
        }
    }

    /// An attempt; whether it is in the queue now.
    pub(super) fn offer(&mut self, now_s: f64, request: Request) -> bool {
        self.counted.arrivals += 1;
        self.counted.lengths_seen += self.queue.len() as u64;
        if self.queue.len() >= self.limit {
            self.counted.drops += 1;
            return false;
        }
        self.queue.push_back(request);
        self.accept(now_s);
        self.note_waiting(now_s);
        true
    }

    /// Idle workers take what waits longest.
    fn accept(&mut self, now_s: f64) {
        while self.occupied() < self.workers {
            let Some(request) = self.queue.pop_front() else {
                return;
            };
            self.counted.accepts += 1;
            self.cpu_due_s = self.cpu.arrive(now_s, request.cpu_s, request.job);
        }
    }

    fn occupied(&self) -> usize {
        self.cpu.jobs() + self.waiting.len()
    }

    /// Requests in the queue and in the workers.
    pub(super) fn requests(&self) -> usize {
        self.queue.len() + self.occupied()
    }

    /// When something happens next.
    pub(super) fn due_s(&self) -> f64 {
        self.cpu_due_s
            .min(self.waiting.first_key().unwrap_or(f64::INFINITY))
    }

    /// What is due happens; the request that is done by it, if one is. `wait_s` is how long one that has done its CPU work
    /// waits for something else.
    pub(super) fn happen(
        &mut self,
        now_s: f64,
        wait_s: impl FnOnce(&mut Rng) -> f64,
        rng: &mut Rng,
    ) -> Option<Job> {
        let done = if self.cpu_due_s <= self.waiting.first_key().unwrap_or(f64::INFINITY) {
            let (job, due_s) = self.cpu.complete(now_s)?;
            self.cpu_due_s = due_s;
            let wait_s = wait_s(rng);
            if wait_s > 0.0 {
                self.waiting.push(now_s + wait_s, job);
                return None;
            }
            job
        } else {
            self.waiting.pop()?.1
        };
        let before = self.counted.accepts;
        self.accept(now_s);
        self.counted.waited += self.counted.accepts - before;
        self.note_waiting(now_s);
        Some(done)
    }

    /// Keeps the account of the time for which somebody waits.
    fn note_waiting(&mut self, now_s: f64) {
        if let Some(since_s) = self.waiting_since_s.take() {
            self.counted.waiting_s += now_s - since_s;
        }
        self.waiting_since_s = (!self.queue.is_empty()).then_some(now_s);
    }

    /// What was counted since this was last asked.
    pub(super) fn read_counted(&mut self, now_s: f64) -> Counted {
        self.note_waiting(now_s);
        std::mem::take(&mut self.counted)
    }

    /// CPU time used since this was last asked.
    pub(super) fn read_busy_s(&mut self, now_s: f64) -> f64 {
        self.cpu.advance(now_s);
        let busy_s = self.cpu.busy_core_s();
        let since = busy_s - self.busy_before_s;
        self.busy_before_s = busy_s;
        since
    }

    /// Its power goes: all that it held is lost.
    pub(super) fn lose(&mut self, now_s: f64) -> Vec<Job> {
        let (mut lost, _) = self.cpu.lose(now_s);
        self.cpu_due_s = f64::INFINITY;
        lost.extend(self.waiting.entries().iter().map(|(_, job)| *job));
        self.waiting.clear();
        lost.extend(self.queue.drain(..).map(|request| request.job));
        self.note_waiting(now_s);
        lost
    }
}
