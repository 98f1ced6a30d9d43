//! What a machine's cores drew between two looks at their tracker.

use headroom_physics::CoreTracker;
use headroom_units::{Joules, Seconds};

/// What cores drew, or had drawn by a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Drawn {
    /// Time of busy cores.
    pub(crate) running: Seconds,
    /// Of idle cores, transitions included.
    pub(crate) idle: Joules,
    /// Of packages beside their cores.
    pub(crate) packages: Joules,
}

impl Drawn {
    /// What was drawn since `mark`, which is brought up to date.
    pub(crate) fn since(cores: &mut CoreTracker, now_s: f64, mark: &mut Self) -> Self {
        cores.advance(now_s);
        let totals = cores.totals();
        let now = Self {
            running: totals.running,
            idle: totals.idle + totals.transitions,
            packages: totals.uncore,
        };
        let before = std::mem::replace(mark, now);
        Self {
            running: now.running - before.running,
            idle: now.idle - before.idle,
            packages: now.packages - before.packages,
        }
    }
}
