//! The time that a control loop goes by: the system's where it is live, one that is moved by hand in a test.

use headroom_console::Stop;
use headroom_units::Seconds;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A clock that never goes backwards, and that can be waited for.
pub trait Clock {
    /// Now.
    fn now(&self) -> Instant;

    /// The time of day that schedules go by, as seconds of UTC since 1970; what a clock is set to.
    fn time_of_day(&self) -> Seconds;

    /// Waits until `deadline`, until `stop` is raised, or until `rung` holds when `stop` wakes who waits; whether it is raised.
    fn wait_until(&self, deadline: Instant, stop: &Stop, rung: &dyn Fn() -> bool) -> bool;
}

/// The system's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn time_of_day(&self) -> Seconds {
        Seconds::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    fn wait_until(&self, deadline: Instant, stop: &Stop, rung: &dyn Fn() -> bool) -> bool {
        stop.wait_until_or(deadline, rung)
    }
}

/// A clock that stands still until it is moved. Whoever waits moves it to the end of the wait at once.
#[derive(Debug)]
pub struct ManualClock {
    began: Instant,
    now: Mutex<Instant>,
}

impl ManualClock {
    /// One that shows some time.
    pub fn new() -> Self {
        let began = Instant::now();
        Self {
            began,
            now: Mutex::new(began),
        }
    }

    /// Moves it on.
    pub fn advance(&self, by: Duration) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) += by;
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since it was made.
    fn time_of_day(&self) -> Seconds {
        Seconds::from(self.now().duration_since(self.began))
    }

    fn wait_until(&self, deadline: Instant, stop: &Stop, rung: &dyn Fn() -> bool) -> bool {
        if !stop.is_raised() && !rung() {
            self.advance(deadline.saturating_duration_since(self.now()));
        }
        stop.is_raised()
    }
}
