//! The power model of a node: watts from allocated cores, busy cores and frequency, and the levels that a cap can choose
//! from. It is the model of the emulated hardware, with the same figures by default, so that a live emulated run and a
//! simulated one speak of the same machine.
//!
//! While it is on, a node with c cores allocated of which b are busy at frequency f draws
//!
//! ```text
//! P = base + static · c + dynamic · b · (f / f_max) · V(f)² · duty
//! V(f) = V_min + (1 - V_min) (f - f_min) / (f_max - f_min)        (voltage over that at f_max)
//! ```
//!
//! dynamic power being C V² f (Chandrakasan et al., "Low-power CMOS digital design", 1992), so about f³ at the top. With
//! the defaults that is 2.86 c + 46.52 W with all c cores busy at f_max: the limit of the SLO-Power testbed, 92 W at 16.
//! A core at frequency f and duty cycle d does
//!
//! ```text
//! speed(f, d) = d / (s + (1 - s) f_max / f)
//! ```
//!
//! of the work that it does at f_max; s is the share of the work's time at f_max that does not depend on the frequency
//! (waiting for memory). Below f_min a core is stopped for part of the time, in sixteenths as `IA32_CLOCK_MODULATION`
//! with extended steps has them, which saves its dynamic part only.

use crate::error::{ScenarioError, within};
use serde::{Deserialize, Serialize};

/// Duty cycles come in sixteenths.
const DUTY_STEPS: usize = 16;
/// The most frequencies of a node.
const MAX_FREQUENCIES: f64 = 1_000.0;

/// The figures of a node's power and frequency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PowerFigures {
    /// The whole node with no core allocated, watts.
    pub base_w: f64,
    /// Each allocated core, busy or not, watts.
    pub static_per_core_w: f64,
    /// Each busy core at the highest frequency, on top of that, watts.
    pub dynamic_per_core_w: f64,
    /// Voltage at the lowest frequency over that at the highest, above 0, at most 1.
    pub lowest_voltage: f64,
    /// Lowest frequency, gigahertz.
    pub lowest_ghz: f64,
    /// Highest frequency, gigahertz.
    pub highest_ghz: f64,
    /// Between two frequencies, gigahertz; 0.1 is the bus clock of x86 processors.
    pub step_ghz: f64,
    /// Switched off, watts.
    pub off_w: f64,
    /// While it boots, watts.
    pub booting_w: f64,
    /// While it shuts down, watts.
    pub shutting_down_w: f64,
}

impl Default for PowerFigures {
    fn default() -> Self {
        Self {
            base_w: 46.52,
            static_per_core_w: 0.86,
            dynamic_per_core_w: 2.0,
            lowest_voltage: 0.7,
            lowest_ghz: 0.8,
            highest_ghz: 2.1,
            step_ghz: 0.1,
            off_w: 3.0,
            booting_w: 70.0,
            shutting_down_w: 55.0,
        }
    }
}

impl PowerFigures {
    /// Checks the figures; `key` is where they stand.
    ///
    /// # Errors
    /// [`ScenarioError`] with the key.
    pub fn check(&self, key: &str) -> Result<(), ScenarioError> {
        let watts = [
            ("base_w", self.base_w),
            ("static_per_core_w", self.static_per_core_w),
            ("dynamic_per_core_w", self.dynamic_per_core_w),
            ("off_w", self.off_w),
            ("booting_w", self.booting_w),
            ("shutting_down_w", self.shutting_down_w),
        ];
        let bad = |field: &str, value: f64, rule: &str| {
            Err(ScenarioError::new(
                format!("{key}.{field}"),
                format!("is {value}: it must be {rule}"),
            ))
        };
        for (field, value) in watts {
            within(&format!("{key}.{field}"), value, 0.0, 1e5, " W")?;
        }
        if self.static_per_core_w + self.dynamic_per_core_w <= 0.0 {
            return bad(
                "dynamic_per_core_w",
                self.dynamic_per_core_w,
                "above 0 where static_per_core_w is 0: a busy core that draws nothing leaves nothing to save",
            );
        }
        if !(self.lowest_voltage > 0.0 && self.lowest_voltage <= 1.0) {
            return bad("lowest_voltage", self.lowest_voltage, "above 0, at most 1");
        }
        within(&format!("{key}.highest_ghz"), self.highest_ghz, 0.1, 10.0, "")?;
        if !(self.lowest_ghz >= 0.1 && self.lowest_ghz <= self.highest_ghz) {
            return bad(
                "lowest_ghz",
                self.lowest_ghz,
                "0.1 or more and at most highest_ghz",
            );
        }
        let steps = (self.highest_ghz - self.lowest_ghz) / self.step_ghz;
        if !(self.step_ghz > 0.0 && steps <= MAX_FREQUENCIES) {
            return bad("step_ghz", self.step_ghz, "above 0, for at most 1000 frequencies");
        }
        Ok(())
    }
}

/// How fast the cores of a node may run: an index from the slowest duty cycle to the highest frequency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(pub(crate) usize);

/// One level's figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Frequency, gigahertz.
    pub ghz: f64,
    /// Share of the time for which cores are not stopped.
    pub duty: f64,
    /// What a busy core draws above its static part, watts.
    pub dynamic_w: f64,
    /// Work done over work done at full speed.
    pub speed: f64,
}

/// The model of one node.
#[derive(Clone, Debug)]
pub struct PowerModel {
    figures: PowerFigures,
    paces: Vec<Pace>,
}

impl PowerModel {
    /// The model of checked figures, for work of which a share does not depend on the frequency.
    pub fn new(figures: PowerFigures, insensitive_share: f64) -> Self {
        let PowerFigures {
            lowest_ghz,
            highest_ghz,
            step_ghz,
            ..
        } = figures;
        let pace = |ghz: f64, duty: f64| {
            let along = if highest_ghz > lowest_ghz {
                (ghz - lowest_ghz) / (highest_ghz - lowest_ghz)
            } else {
                1.0
            };
            let voltage = figures.lowest_voltage + (1.0 - figures.lowest_voltage) * along;
            Pace {
                ghz,
                duty,
                dynamic_w: figures.dynamic_per_core_w * ghz / highest_ghz * voltage * voltage * duty,
                speed: duty / (insensitive_share + (1.0 - insensitive_share) * highest_ghz / ghz),
            }
        };
        let mut paces: Vec<Pace> = (1..DUTY_STEPS)
            .map(|sixteenths| pace(lowest_ghz, sixteenths as f64 / DUTY_STEPS as f64))
            .collect();
        // A hair above the last step belongs to it.
        let steps = ((highest_ghz - lowest_ghz) / step_ghz - 1e-9).ceil().max(0.0) as usize;
        for step in 0..=steps {
            // Without the dust that binary fractions leave.
            let ghz = ((lowest_ghz + step as f64 * step_ghz) * 1e9).round() / 1e9;
            paces.push(pace(ghz.min(highest_ghz), 1.0));
        }
        Self { figures, paces }
    }

    /// The figures.
    pub const fn figures(&self) -> &PowerFigures {
        &self.figures
    }

    /// All levels, the slowest first.
    pub fn paces(&self) -> &[Pace] {
        &self.paces
    }

    /// The highest level: full speed.
    pub fn top(&self) -> Level {
        Level(self.paces.len() - 1)
    }

    /// The level of the lowest frequency without stopping.
    pub const fn lowest_unthrottled(&self) -> Level {
        Level(DUTY_STEPS - 1)
    }

    /// A level's figures.
    pub fn at(&self, level: Level) -> Pace {
        self.paces[level.0.min(self.paces.len() - 1)]
    }

    /// The highest level whose frequency is at most this; the lowest frequency where none is.
    pub fn at_most(&self, ghz: f64) -> Level {
        // A hair below a step belongs to it.
        let within = self.paces.partition_point(|pace| pace.ghz <= ghz + 1e-9);
        Level(within.saturating_sub(1).max(DUTY_STEPS - 1))
    }

    /// Watts of a node that is on.
    pub fn watts(&self, cores: f64, busy: f64, level: Level) -> f64 {
        self.figures.base_w + self.figures.static_per_core_w * cores + busy * self.at(level).dynamic_w
    }

    /// The highest level at which `watts` (never falling with the level) stays within a limit, by bisection; the lowest
    /// where none does, because a processor cannot stop altogether.
    pub fn highest_within(&self, limit_w: f64, watts: impl Fn(Level) -> f64) -> Level {
        let (mut fits, mut beyond) = (0, self.paces.len());
        while beyond - fits > 1 {
            let middle = fits + (beyond - fits) / 2;
            if watts(Level(middle)) <= limit_w {
                fits = middle;
            } else {
                beyond = middle;
            }
        }
        Level(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn model() -> PowerModel {
        PowerModel::new(PowerFigures::default(), 0.0)
    }

    #[test]
    fn the_defaults_are_the_slo_power_testbed() {
        let model = model();
        for cores in [0.0, 2.0, 16.0] {
            let watts = model.watts(cores, cores, model.top());
            assert!((watts - (2.86 * cores + 46.52)).abs() < 1e-9);
        }
        assert_eq!(model.watts(16.0, 16.0, model.top()).floor(), 92.0);
    }

    #[test]
    fn the_levels_are_those_of_the_emulated_hardware() {
        let model = model();
        assert_eq!(model.paces().len(), 29);
        assert_eq!(
            (model.at(Level(0)).ghz, model.at(Level(0)).duty),
            (0.8, 1.0 / 16.0)
        );
        assert_eq!((model.at(Level(15)).ghz, model.at(Level(15)).duty), (0.8, 1.0));
        assert_eq!(model.at(model.top()).ghz, 2.1);
        assert_eq!(model.at(model.top()).speed, 1.0);
        // μ 24/s per core at 2.1 GHz is the 9/s that the authors use at their lowest frequency.
        assert_eq!((24.0 * model.at(model.lowest_unthrottled()).speed).round(), 9.0);
    }

    #[test]
    fn a_share_of_the_work_may_not_care_for_the_frequency() {
        let half = PowerModel::new(PowerFigures::default(), 0.5);
        let speed = half.at(half.lowest_unthrottled()).speed;
        assert!((speed - 1.0 / (0.5 + 0.5 * 2.1 / 0.8)).abs() < 1e-12);
    }

    #[test]
    fn a_frequency_limit_is_the_highest_level_within_it() {
        let model = model();
        assert_eq!(model.at(model.at_most(2.05)).ghz, 2.0);
        assert_eq!(model.at_most(9.0), model.top());
        assert_eq!(model.at_most(0.1), model.lowest_unthrottled());
        assert!((model.at(model.at_most(1.0)).ghz - 1.0).abs() < 1e-9);
    }

    #[test]
    fn figures_that_are_none_are_named() {
        type Spoil = fn(&mut PowerFigures);
        let cases: [(&str, Spoil); 6] = [
            ("p.base_w", |p| p.base_w = f64::NAN),
            ("p.dynamic_per_core_w", |p| {
                (p.dynamic_per_core_w, p.static_per_core_w) = (0.0, 0.0)
            }),
            ("p.lowest_voltage", |p| p.lowest_voltage = 0.0),
            ("p.highest_ghz", |p| p.highest_ghz = 0.0),
            ("p.lowest_ghz", |p| p.lowest_ghz = 3.0),
            ("p.step_ghz", |p| p.step_ghz = 0.0),
        ];
        for (key, spoil) in cases {
            let mut figures = PowerFigures::default();
            spoil(&mut figures);
            assert_eq!(figures.check("p").unwrap_err().key, key);
        }
    }

    proptest! {
        /// A lower cap never makes a node faster, and the bisection finds what a scan finds.
        #[test]
        fn a_cap_turns_into_a_level_monotonously(cap in 40.0..100.0f64, less in 0.0..40.0f64, busy in 0.0..16.0f64) {
            let model = model();
            let chosen = |cap: f64| model.highest_within(cap, |level| model.watts(16.0, busy, level));
            prop_assert!(chosen(cap - less) <= chosen(cap));
            prop_assert!(model.at(chosen(cap - less)).speed <= model.at(chosen(cap)).speed);
            let scan = (0..model.paces().len()).rev().find(|level| model.watts(16.0, busy, Level(*level)) <= cap);
            prop_assert_eq!(chosen(cap), Level(scan.unwrap_or(0)));
        }
    }
}
