//! Connections that were reset while they waited in an accept queue: those that had asked nothing, and those that had sent something.
//!
//! The server accepts one of the first in no time, and what it accepts is no request. How many there are among those that wait now cannot be
//! looked up, for no list has them; of late as many are as came and were reset.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Over how long it is counted.
const WINDOW: Duration = Duration::from_secs(5);
/// How often what was counted is kept.
const EVERY: Duration = Duration::from_millis(500);

/// What was counted of late.
#[derive(Debug, Default)]
pub(super) struct Resets {
    /// When, how many came, and how many were reset, the oldest first.
    kept: VecDeque<(Instant, u64, u64)>,
}

impl Resets {
    /// Takes what was counted up to now of those that came and of those that were reset, and says how many of those that wait now are
    /// such: as large a share as of those that came of late.
    pub(super) fn among(&mut self, waiting: u64, at: Instant, came: u64, reset: u64) -> u64 {
        (self.share(at, came, reset) * waiting as f64).round() as u64
    }

    /// Which share of those that came of late were reset; 0 to 1.
    fn share(&mut self, at: Instant, came: u64, reset: u64) -> f64 {
        let since = |then: Instant| at.saturating_duration_since(then);
        // The newest that is a whole window old is what is compared with.
        while self.kept.get(1).is_some_and(|(then, ..)| since(*then) >= WINDOW) {
            self.kept.pop_front();
        }
        if self.kept.back().is_none_or(|(then, ..)| since(*then) >= EVERY) {
            self.kept.push_back((at, came, reset));
        }
        let Some((_, came_then, reset_then)) = self.kept.front() else {
            return 0.0;
        };
        let (came, reset) = (came.saturating_sub(*came_then), reset.saturating_sub(*reset_then));
        match came {
            0 => 0.0,
            _ => (reset as f64 / came as f64).min(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_that_of_the_last_seconds() {
        let (start, mut resets) = (Instant::now(), Resets::default());
        let mut share = |second: f64, came, reset| {
            (resets.share(start + Duration::from_secs_f64(second), came, reset) * 100.0).round()
        };
        assert_eq!(share(0.0, 1_000, 7), 0.0);
        assert_eq!(share(0.1, 1_010, 10), 30.0);
        for second in 1..=20_u32 {
            let came = 1_010 + 100 * u64::from(second);
            share(f64::from(second), came, 10 + 25 * u64::from(second));
        }
        assert_eq!(share(20.1, 3_020, 513), 25.0);
        // They have stopped.
        for second in 21..=30_u32 {
            share(f64::from(second), 3_020 + 100 * u64::from(second - 20), 513);
        }
        assert_eq!(share(31.0, 4_120, 513), 0.0);
        assert_eq!(share(60.0, 4_120, 513), 0.0);
    }
}
