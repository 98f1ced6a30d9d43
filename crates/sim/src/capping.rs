//! How a node holds a power cap: as a processor's RAPL does, by the frequency, and below the lowest by stopping.
//!
//! RAPL bounds a running average of the power over a window, not each instant, and chooses a frequency from what the
//! cores are doing. So does this, by the same rules as the emulated hardware, every `interval_s`:
//!
//! - work done and the busy share of the allocation are smoothed over `smoothing_s`;
//! - at each level the same work is expected to keep coming: slower cores are busy for longer, up to their allocation, and
//!   an allocation that is busy for 95 % of its time takes whatever speed it is given;
//! - the highest level whose expected power is within the cap is chosen, by bisection;
//! - what the running average is above the cap is taken off it first, so that an overshoot is paid back.
//!
//! While the cap is at or above what the allocated cores can draw at the level that the frequency limit leaves, nothing
//! is computed at all.

use crate::error::{ScenarioError, within};
use crate::power::{Level, NodeModel};
use headroom_units::Watts;
use serde::{Deserialize, Serialize};

/// From this utilisation of its allocation on, a node would use whatever it is given.
const SATURATED: f64 = 0.95;

/// How a node's processor holds caps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Capping {
    /// Between two choices of a level, seconds.
    pub interval_s: f64,
    /// Time constant with which load is smoothed before a level is chosen from it, seconds.
    pub smoothing_s: f64,
    /// Time constant of the running average that the cap bounds, seconds.
    pub window_s: f64,
}

impl Default for Capping {
    /// As the emulated hardware: 20 ms, 0.1 s, and the usual long-term window of 1 s.
    fn default() -> Self {
        Self {
            interval_s: 0.02,
            smoothing_s: 0.1,
            window_s: 1.0,
        }
    }
}

impl Capping {
    /// Checks the figures; `key` is where they stand.
    ///
    /// # Errors
    /// [`ScenarioError`] with the key.
    pub fn check(&self, key: &str) -> Result<(), ScenarioError> {
        let figures = [
            ("interval_s", self.interval_s),
            ("smoothing_s", self.smoothing_s),
            ("window_s", self.window_s),
        ];
        for (field, value) in figures {
            within(&format!("{key}.{field}"), value, 1e-4, 60.0, " seconds")?;
        }
        Ok(())
    }
}

/// What happened in an interval, on average: cores in force, busy, work in cores at full speed, and watts with and without busy
/// cores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Happened {
    pub(crate) cores: f64,
    pub(crate) busy: f64,
    pub(crate) work: f64,
    pub(crate) power_w: f64,
    pub(crate) standing_w: f64,
}

/// What is remembered of the load and the power of one node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Governor {
    /// Smoothed work rate, cores at full speed.
    work: f64,
    /// Smoothed busy share of the allocation.
    used: f64,
    /// Running average of the power, watts.
    average_w: f64,
    /// Smoothed power apart from busy cores, watts.
    standing_w: f64,
}

impl Governor {
    /// Takes in what happened since the last call.
    pub(crate) fn observe(&mut self, capping: &Capping, dt_s: f64, happened: Happened) {
        let Happened {
            cores,
            busy,
            work,
            power_w,
            standing_w,
        } = happened;
        if dt_s <= 0.0 {
            return;
        }
        let weight = 1.0 - (-dt_s / capping.smoothing_s).exp();
        let used = if cores > 0.0 { busy / cores } else { 0.0 };
        self.work += (work - self.work) * weight;
        self.used += (used - self.used) * weight;
        self.standing_w += (standing_w - self.standing_w) * weight;
        self.average_w += (power_w - self.average_w) * (1.0 - (-dt_s / capping.window_s).exp());
    }

    /// The level for the next interval, at most `ceiling`.
    pub(crate) fn choose(&self, model: &NodeModel, cap_w: f64, cores: f64, ceiling: Level) -> Level {
        let over_w = (self.average_w - cap_w).max(0.0);
        let standing_w = model.standing_w(cores).unwrap_or(self.standing_w);
        let expected = |level: Level| {
            let level = level.min(ceiling);
            let busy = if self.used >= SATURATED {
                cores
            } else {
                (self.work / model.at(level).speed).min(cores)
            };
            Watts::new(standing_w + busy * model.at(level).busy.get())
        };
        model
            .highest_within(Watts::new(cap_w - over_w), expected)
            .min(ceiling)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::NodeGroup;
    use proptest::prelude::*;

    proptest! {
        /// With the same load, a lower cap chooses no higher level; a cap that all cores fit into chooses the ceiling.
        #[test]
        fn a_lower_cap_is_never_faster(cap in 45.0..95.0f64, less in 0.0..40.0f64, work in 0.0..16.0f64, used in 0.0..1.0f64) {
            let model = NodeModel::new(&NodeGroup::paper(), 0.0);
            let governor = Governor { work, used, average_w: 0.0, standing_w: 0.0 };
            let at = |cap: f64| governor.choose(&model, cap, 16.0, model.top());
            prop_assert!(at(cap - less) <= at(cap));
            prop_assert_eq!(at(1000.0), model.top());
            prop_assert!(governor.choose(&model, 1000.0, 16.0, Level(18)) == Level(18));
        }
    }
}
