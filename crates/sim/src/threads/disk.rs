//! The disks: one queue, first come, first served, in front of servers that work in parallel.

use std::collections::VecDeque;

#[derive(Clone, Debug)]
pub(super) struct Disk {
    parallel: u32,
    busy: u32,
    queue: VecDeque<(u32, f64)>,
    /// No access begins before.
    pub(super) stalled_until_s: f64,
    /// Service time begun so far, seconds.
    pub(super) served_s: f64,
    pub(super) accesses: u64,
}

impl Disk {
    pub(super) fn new(parallel: u32) -> Self {
        Self {
            parallel,
            busy: 0,
            queue: VecDeque::new(),
            stalled_until_s: 0.0,
            served_s: 0.0,
            accesses: 0,
        }
    }

    /// A thread's access; when it is done, where it is served at once.
    pub(super) fn access(&mut self, now_s: f64, thread: u32, service_s: f64) -> Option<f64> {
        if self.busy == self.parallel {
            self.queue.push_back((thread, service_s));
            return None;
        }
        self.busy += 1;
        Some(self.serve(now_s, service_s))
    }

    fn serve(&mut self, now_s: f64, service_s: f64) -> f64 {
        self.served_s += service_s;
        self.accesses += 1;
        now_s.max(self.stalled_until_s) + service_s
    }

    /// An access is done; who is served next, and until when.
    pub(super) fn done(&mut self, now_s: f64) -> Option<(u32, f64)> {
        match self.queue.pop_front() {
            Some((thread, service_s)) => Some((thread, self.serve(now_s, service_s))),
            None => {
                self.busy -= 1;
                None
            }
        }
    }
}
