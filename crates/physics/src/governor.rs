//! How the kernel chooses an idle state: a model of its menu and teo governors.
//!
//! menu takes the shortest of the next timer, a typical interval of the last eight and a correction by past errors; teo
//! starts from the next timer and steps down to what recent wake-ups matched (drivers/cpuidle/governors). Both come to
//! about: *the shorter of the next timer and what three of four recent idle periods exceeded*. A core that stayed in a
//! shallow state keeps its tick, which wakes it and lets it choose again.

use crate::idle::{IdleState, deepest_within};
use headroom_units::Seconds;

/// The tick of a kernel built for 250 Hz.
pub const TICK: Seconds = Seconds::new(0.004);

/// How many idle periods are remembered, as in menu.
const REMEMBERED: usize = 8;

/// The memory of one core's governor.
#[derive(Clone, Debug, Default)]
pub struct Governor {
    recent_s: [f64; REMEMBERED],
    filled: usize,
    next: usize,
}

impl Governor {
    /// An idle period has ended.
    pub fn record(&mut self, length_s: f64) {
        self.recent_s[self.next] = length_s;
        self.next = (self.next + 1) % REMEMBERED;
        self.filled = (self.filled + 1).min(REMEMBERED);
    }

    /// How long the period that begins now is believed to be, where the next timer is so far away.
    pub fn predict(&self, timer_s: f64) -> f64 {
        if self.filled == 0 {
            return timer_s;
        }
        let mut recent_s = self.recent_s;
        let recent_s = &mut recent_s[..self.filled];
        let (_, quartile_s, _) = recent_s.select_nth_unstable_by(self.filled / 4, f64::total_cmp);
        timer_s.min(*quartile_s)
    }
}

/// Where a core settles whose idle periods are exponential.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settled {
    /// The state, by index.
    pub state: usize,
    /// The deepest that the governor would choose, where it may.
    pub wanted: usize,
    /// Mean length of a stay in it, seconds.
    pub stay_s: f64,
}

/// The state in which a core settles whose idle periods have this mean, its background timer being so far away: of those it
/// may use, the deepest whose target residency is within what it believes. The shallowest may always be used.
pub fn settled(states: &[IdleState], mean_s: f64, timer_s: f64, may: impl Fn(usize) -> bool) -> Settled {
    // The first quartile of exponential periods.
    let quartile_s = mean_s * (4.0_f64 / 3.0).ln();
    let wanted = deepest_within(states, quartile_s.min(timer_s));
    let state = (0..=wanted).rev().find(|state| may(*state)).unwrap_or(0);
    // A shallow state keeps its tick, and is entered anew after each.
    let stay_s = match state + 1 == states.len() {
        true => mean_s.min(timer_s),
        false => mean_s.min(timer_s).min(TICK.get()),
    };
    Settled {
        state,
        wanted,
        stay_s: stay_s.max(1e-9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_short_periods_among_long_ones_keep_a_core_from_deep_sleep() {
        let mut governor = Governor::default();
        assert_eq!(governor.predict(0.05), 0.05, "nothing is known but the timer");
        for _ in 0..8 {
            governor.record(0.01);
        }
        assert_eq!(governor.predict(0.05), 0.01);
        assert_eq!(governor.predict(0.002), 0.002, "a timer is known");
        governor.record(0.0001);
        governor.record(0.0001);
        assert_eq!(governor.predict(0.05), 0.01, "two of eight are chance");
        governor.record(0.0001);
        assert_eq!(governor.predict(0.05), 0.0001, "three are not");
        for _ in 0..8 {
            governor.record(0.02);
        }
        assert_eq!(governor.predict(0.05), 0.02, "old periods are forgotten");
    }
}
