//! The cores allocated to a service over time, shared between the limiter that changes them and the meter that
//! charges for them.

use headroom_units::{Cores, Seconds};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The cores that are allocated now, and their integral over time. A clone is the same quantity.
#[derive(Clone, Debug)]
pub struct Allocated(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    now: Cores,
    core_seconds: f64,
    at: Instant,
}

impl State {
    fn advance(&mut self, to: Instant) {
        self.core_seconds += self.now.get() * to.saturating_duration_since(self.at).as_secs_f64();
        self.at = self.at.max(to);
    }
}

impl Allocated {
    /// An allocation that holds from now on.
    pub fn new(cores: Cores) -> Self {
        Self(Arc::new(Mutex::new(State {
            now: cores,
            core_seconds: 0.0,
            at: Instant::now(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes it.
    pub fn set(&self, cores: Cores) {
        let mut state = self.lock();
        state.advance(Instant::now());
        state.now = cores;
    }

    /// What is allocated now.
    pub fn now(&self) -> Cores {
        self.lock().now
    }

    /// Core-seconds allocated since it was made.
    pub fn core_seconds(&self) -> f64 {
        let mut state = self.lock();
        state.advance(Instant::now());
        state.core_seconds
    }

    /// The mean allocation over an interval, from the core-seconds at its two ends.
    pub fn mean(before: f64, after: f64, elapsed: Seconds) -> Option<Cores> {
        (elapsed.get() > 0.0).then(|| Cores::new((after - before).max(0.0) / elapsed.get()))
    }
}
