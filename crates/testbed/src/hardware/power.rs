//! The power model: watts from allocated cores, busy cores and frequency, and the levels that a cap can choose from.
//!
//! A busy core draws `static + k V(f)^2 f` with the voltage linear in frequency, so about f^3 at the top
//! (Chandrakasan et al., "Low-power CMOS digital design", 1992: dynamic power is C V^2 f). Below the lowest frequency
//! the core is stopped for a part of the time (duty-cycling), which saves its dynamic part only.

use super::config::HardwareConfig;

/// Hardware changes frequency in steps of the bus clock, 100 MHz.
const STEP_KHZ: u64 = 100_000;
/// Duty cycles come in sixteenths, as `IA32_CLOCK_MODULATION` with extended steps has them.
const DUTY_STEPS: usize = 16;

/// How fast a core is allowed to run: an index from the slowest duty cycle to the highest frequency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(pub(super) usize);

/// The model of one machine. Internal unit of frequency is kHz, as cpufreq has it.
#[derive(Clone, Debug)]
pub struct PowerModel {
    min_khz: u64,
    max_khz: u64,
    lowest_voltage: f64,
    dynamic_w: f64,
    static_w: f64,
    /// A package without its memory and with no core allocated.
    package_base_w: f64,
    dram_w: f64,
}

impl PowerModel {
    /// The model with a configuration's figures.
    pub fn new(config: &HardwareConfig) -> Self {
        let power = &config.power;
        Self {
            min_khz: khz(config.frequency.min.get()),
            max_khz: khz(config.frequency.max.get()),
            lowest_voltage: power.lowest_voltage,
            dynamic_w: power.dynamic_per_core.get(),
            static_w: power.static_per_core.get(),
            package_base_w: power.base.get() / f64::from(config.packages) - power.dram_per_package.get(),
            dram_w: power.dram_per_package.get(),
        }
    }

    /// How many levels there are.
    pub fn levels(&self) -> usize {
        DUTY_STEPS - 1 + ((self.max_khz - self.min_khz).div_ceil(STEP_KHZ) as usize) + 1
    }

    /// The highest level: full speed.
    pub fn top(&self) -> Level {
        Level(self.levels() - 1)
    }

    /// Frequency (kHz) and duty cycle of a level.
    pub fn at(&self, level: Level) -> (u64, f64) {
        match level.0.checked_sub(DUTY_STEPS - 1) {
            None => (self.min_khz, (level.0 + 1) as f64 / DUTY_STEPS as f64),
            Some(step) => ((self.min_khz + step as u64 * STEP_KHZ).min(self.max_khz), 1.0),
        }
    }

    /// Voltage over that at the highest frequency.
    fn voltage(&self, khz: u64) -> f64 {
        if self.max_khz == self.min_khz {
            return 1.0;
        }
        let along = (khz.saturating_sub(self.min_khz)) as f64 / (self.max_khz - self.min_khz) as f64;
        self.lowest_voltage + (1.0 - self.lowest_voltage) * along.min(1.0)
    }

    /// What a busy core draws above its static part, watts: k V^2 f.
    pub fn dynamic_w(&self, khz: u64) -> f64 {
        self.dynamic_w * khz as f64 / self.max_khz as f64 * self.voltage(khz).powi(2)
    }

    /// What an allocated core draws whether busy or not, watts.
    pub fn static_w(&self) -> f64 {
        self.static_w
    }

    /// A package with no core allocated, without its memory, watts.
    pub fn package_base_w(&self) -> f64 {
        self.package_base_w
    }

    /// The memory of one package, watts.
    pub fn dram_w(&self) -> f64 {
        self.dram_w
    }

    /// Work done over work done at full speed.
    pub fn speed(&self, khz: u64, duty: f64) -> f64 {
        khz as f64 / self.max_khz as f64 * duty
    }

    /// The highest level at which `watts` (never falling with the level) stays within a limit, by bisection; the lowest
    /// where none does, because hardware cannot stop altogether.
    pub fn highest_within(&self, limit_w: f64, watts: impl Fn(Level) -> f64) -> Level {
        let (mut fits, mut beyond) = (0, self.levels());
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

/// Hertz to whole kHz.
pub(super) fn khz(hertz: f64) -> u64 {
    (hertz / 1e3).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn model() -> PowerModel {
        PowerModel::new(&HardwareConfig::default())
    }

    #[test]
    fn the_defaults_are_the_slo_power_testbed() {
        let model = model();
        let machine = |cores: f64| {
            2.0 * (model.package_base_w() + model.dram_w())
                + cores * (model.static_w() + model.dynamic_w(2_100_000))
        };
        for cores in [0.0, 2.0, 16.0] {
            assert!((machine(cores) - (2.86 * cores + 46.52)).abs() < 1e-9);
        }
        assert_eq!(machine(16.0).floor(), 92.0);
    }

    #[test]
    fn the_levels_go_from_a_sixteenth_to_full_speed() {
        let model = model();
        assert_eq!(model.at(Level(0)), (800_000, 1.0 / 16.0));
        assert_eq!(model.at(Level(14)), (800_000, 15.0 / 16.0));
        assert_eq!(model.at(Level(15)), (800_000, 1.0));
        assert_eq!(model.at(Level(16)), (900_000, 1.0));
        assert_eq!(model.at(model.top()), (2_100_000, 1.0));
        assert_eq!(model.levels(), 29);
    }

    #[test]
    fn power_rises_about_with_the_cube_at_the_top() {
        let model = model();
        let slope = (model.dynamic_w(2_100_000) / model.dynamic_w(2_000_000)).ln() / (2.1f64 / 2.0).ln();
        assert!((1.8..3.2).contains(&slope), "{slope}");
        let low = (model.dynamic_w(900_000) / model.dynamic_w(800_000)).ln() / (0.9f64 / 0.8).ln();
        assert!(slope >= low * 0.9);
    }

    proptest! {
        #[test]
        fn the_bisection_finds_what_a_scan_finds(limit in 0.0..80.0f64, busy in 0.0..8.0f64) {
            let model = model();
            let watts = |level| {
                let (khz, duty) = model.at(level);
                model.package_base_w() + busy * (model.static_w() + model.dynamic_w(khz) * duty)
            };
            let scan = (0..model.levels()).rev().find(|l| watts(Level(*l)) <= limit).unwrap_or(0);
            prop_assert_eq!(model.highest_within(limit, watts), Level(scan));
        }
    }
}
