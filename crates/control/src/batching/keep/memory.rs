//! For how long what periods allow is remembered, and what may be tried all the same.

use super::{ONE_IN, REMEMBERED, REMEMBERED_MOST};

/// Seconds over the target that trials may come to at once.
const TRIALS: f64 = 1.0;
/// And what one that took more may owe.
const DEBT: f64 = 5.0;

/// For how long what periods allow is remembered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// Seconds, or periods where these are longer.
    length: f64,
    /// The same since batches made the target missed, and since they did or `length` became less.
    since_missed: f64,
    calm: f64,
    /// Seconds over the target that trials may still come to.
    trials: f64,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            length: REMEMBERED,
            since_missed: f64::INFINITY,
            calm: 0.0,
            trials: TRIALS,
        }
    }
}

impl Memory {
    /// Takes a period of this weight, and of what batches made late the weight where that is known to be so.
    pub(super) fn observe(&mut self, weight: f64, caused: Option<f64>) {
        self.since_missed += weight;
        self.calm += weight;
        self.trials = (self.trials + weight / self.refill()).min(TRIALS);
        if let Some(caused) = caused {
            self.trials = (self.trials - caused).max(-DEBT);
            if self.since_missed > self.length && self.since_missed <= REMEMBERED_MOST {
                self.length = (2.0 * self.since_missed).min(REMEMBERED_MOST);
            }
            (self.since_missed, self.calm) = (0.0, 0.0);
        } else if self.calm >= REMEMBERED_MOST {
            self.length = (0.5 * self.length).max(REMEMBERED);
            self.calm = 0.0;
        }
    }

    pub(super) const fn length(&self) -> f64 {
        self.length
    }

    /// Seconds, or periods where these are longer, until something may be tried of which it is not known that it keeps the target.
    pub(super) fn tries_in(&self) -> f64 {
        (TRIALS - self.trials) * self.refill()
    }

    /// The same until another second over the target is allowed.
    fn refill(&self) -> f64 {
        self.length.max(ONE_IN)
    }
}
