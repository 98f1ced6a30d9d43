//! How much of what waits in a server's accept queue was left by its clients.

use std::collections::VecDeque;

/// What clients left in a server's queue: first come, first served, it is there until so many were accepted as waited then.
#[derive(Clone, Debug)]
pub(super) struct Vain {
    /// How many were left in a period, and how many are to be accepted until none of them is there.
    left: VecDeque<(f64, f64)>,
}

impl Vain {
    pub(super) const fn new() -> Self {
        Self {
            left: VecDeque::new(),
        }
    }

    /// So many were accepted.
    pub(super) fn go_on(&mut self, accepts: f64) {
        for (_, before) in &mut self.left {
            *before -= accepts;
        }
        self.left.retain(|(_, before)| *before > 0.0);
    }

    /// So many were left while so many waited.
    pub(super) fn leave(&mut self, left: f64, waiting: f64) {
        if left > 0.0 && waiting > 0.0 {
            self.left.push_back((left, waiting));
        }
    }

    /// How many of so many that wait there now may be such.
    pub(super) fn in_queue(&self, waiting: f64) -> f64 {
        let left: f64 = self.left.iter().map(|(left, _)| left).sum();
        left.min(waiting)
    }
}
