//! The time that a control loop goes by: the system's where it is live, one that is moved by hand in a test.

use headroom_console::Stop;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A clock that never goes backwards, and that can be waited for.
pub trait Clock {
    /// Now.
    fn now(&self) -> Instant;

    /// Waits until `deadline` or until `stop` is raised; whether it was.
    fn wait_until(&self, deadline: Instant, stop: &Stop) -> bool;
}

/// The system's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wait_until(&self, deadline: Instant, stop: &Stop) -> bool {
        stop.wait_until(deadline)
    }
}

/// A clock that stands still until it is moved. Whoever waits moves it to the end of the wait at once.
#[derive(Debug)]
pub struct ManualClock(Mutex<Instant>);

impl ManualClock {
    /// One that shows some time.
    pub fn new() -> Self {
        Self(Mutex::new(Instant::now()))
    }

    /// Moves it on.
    pub fn advance(&self, by: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += by;
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_until(&self, deadline: Instant, stop: &Stop) -> bool {
        if !stop.is_raised() {
            self.advance(deadline.saturating_duration_since(self.now()));
        }
        stop.is_raised()
    }
}
