//! What cores draw at the levels that a cap can choose from, by the physics of [`headroom_physics`].
//!
//! A busy core draws leakage by voltage and k V(f)^2 f, so about f^3 at the top. Below the lowest frequency it is stopped for a
//! part of the time (duty-cycling), which saves its dynamic part only.

use super::config::HardwareConfig;
use headroom_physics::MachineFigures;
use headroom_physics::cores::state_power_w;
use headroom_physics::governor::{Settled, settled};

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
    machine: MachineFigures,
    dram_w: f64,
    wakeups_per_busy_s: f64,
}

/// An idle core.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    /// The state that it is in, and that it would be in if all were allowed.
    pub settled: Settled,
    /// What it draws while it is idle, transitions included, watts.
    pub watts: f64,
}

impl PowerModel {
    /// The model with a configuration's figures.
    pub fn new(config: &HardwareConfig) -> Self {
        Self {
            min_khz: khz(config.frequency.min.get()),
            max_khz: khz(config.frequency.max.get()),
            machine: config.machine(),
            dram_w: config.power.dram_per_package.get(),
            wakeups_per_busy_s: config.power.wakeups_per_busy_second.get(),
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
        let lowest = self.machine.processor.frequency.lowest_voltage;
        let along = (khz.saturating_sub(self.min_khz)) as f64 / (self.max_khz - self.min_khz) as f64;
        lowest + (1.0 - lowest) * along.min(1.0)
    }

    /// What a busy core draws at a frequency that it runs at for a share of the time, watts.
    pub fn busy_w(&self, khz: u64, duty: f64) -> f64 {
        let figures = &self.machine.processor.frequency;
        let voltage = self.voltage(khz);
        let dynamic = figures.dynamic.get() * khz as f64 / self.max_khz as f64 * voltage.powi(2);
        let running_w = figures.leakage.get() * voltage + dynamic;
        // While its clock is stopped it draws what it does in its shallowest idle state, which stops the clock too.
        running_w * duty + state_power_w(&self.machine.processor, 0, voltage) * (1.0 - duty)
    }

    /// How often a core is woken a second that is busy for a share of the time.
    pub fn wakeups(&self, busy: f64) -> f64 {
        self.machine.processor.background.get() + self.wakeups_per_busy_s * busy
    }

    /// An idle core that is busy for a share of the time at a frequency, and may use some of its states.
    pub fn idle(&self, busy: f64, khz: u64, may: impl Fn(usize) -> bool) -> Idle {
        let states = &self.machine.processor.idle_states;
        let mean_s = (1.0 - busy).max(0.0) / self.wakeups(busy).max(1e-9);
        let background = self.machine.processor.background.get();
        let timer_s = if background > 0.0 {
            1.0 / background
        } else {
            f64::INFINITY
        };
        let settled = settled(states, mean_s, timer_s, may);
        let processor = &self.machine.processor;
        let state_w = |state| state_power_w(processor, state, self.voltage(khz));
        let transition_w = states[settled.state].transition_j(state_w(0)) / settled.stay_s;
        Idle {
            watts: state_w(settled.state) + transition_w,
            settled,
        }
    }

    /// A core that is offline: in its deepest state for good.
    pub fn deepest_w(&self) -> f64 {
        let states = &self.machine.processor.idle_states;
        states.last().map_or(0.0, |state| state.power.get())
    }

    /// Whether a state is the deepest.
    pub fn is_deepest(&self, state: usize) -> bool {
        state + 1 == self.machine.processor.idle_states.len()
    }

    /// A package beside its cores, without its memory, watts: of its cores so many are busy on average, they are woken so often
    /// together, and all idle ones are in their deepest state or not. It sleeps while none is busy, which for independent
    /// pieces of work is e to the minus that of the time, but for a break-even after each wake-up.
    pub fn uncore_w(&self, busy: f64, wakeups: f64, deep: bool) -> f64 {
        let processor = &self.machine.processor;
        let awake_w = processor.uncore.get() - self.dram_w;
        if !deep {
            return awake_w;
        }
        let kept = (-wakeups * processor.package_break_even.get()).exp();
        awake_w - (processor.uncore - processor.uncore_asleep).get() * (-busy).exp() * kept
    }

    /// A package with all cores in their deepest state, without its memory, watts.
    #[cfg(test)]
    pub fn asleep_w(&self) -> f64 {
        self.machine.processor.uncore_asleep.get() - self.dram_w
    }

    /// The most of a package with so many cores, without its memory, watts.
    pub fn most_w(&self, cores: usize) -> f64 {
        let busy_w = self.busy_w(self.max_khz, 1.0);
        // A core that is woken too often costs more than one that stays up.
        let idle_w = (0..=20).map(|busy| self.idle(f64::from(busy) / 20.0, self.max_khz, |_| true).watts);
        let core_w = idle_w.fold(busy_w, f64::max);
        self.machine.processor.uncore.get() - self.dram_w + core_w * cores as f64
    }

    /// The memory of one package, watts.
    pub fn dram_w(&self) -> f64 {
        self.dram_w
    }

    /// Work done over work done at full speed.
    pub fn speed(&self, khz: u64, duty: f64) -> f64 {
        khz as f64 / self.max_khz as f64 * duty
    }

    /// The highest level at which `watts` stays within a limit; the lowest where none does, because hardware cannot stop
    /// altogether.
    pub fn highest_within(&self, limit_w: f64, watts: impl Fn(Level) -> f64) -> Level {
        let mut levels = (0..self.levels()).rev().map(Level);
        levels.find(|level| watts(*level) <= limit_w).unwrap_or(Level(0))
    }
}

/// Hertz to whole kHz.
pub(super) fn khz(hertz: f64) -> u64 {
    (hertz / 1e3).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> PowerModel {
        PowerModel::new(&HardwareConfig::default())
    }

    #[test]
    fn the_defaults_draw_with_all_cores_busy_what_the_slo_power_testbed_does() {
        let model = model();
        let package_w = model.uncore_w(8.0, 1e9, true) + model.dram_w() + 8.0 * model.busy_w(2_100_000, 1.0);
        assert!((2.0 * package_w - 92.28).abs() < 1e-9);
    }

    #[test]
    fn an_idle_core_sleeps_as_deep_as_its_idle_periods_are_long() {
        let model = model();
        let quiet = model.idle(0.0, 2_100_000, |_| true);
        assert!(model.is_deepest(quiet.settled.state), "{quiet:?}");
        // Twenty wake-ups a second of 0.8 mJ each.
        assert!((quiet.watts - (0.06 + 20.0 * 0.8e-3)).abs() < 1e-9, "{quiet:?}");
        let often = model.idle(0.9, 2_100_000, |_| true);
        assert!(often.settled.state < quiet.settled.state && often.watts > quiet.watts);
        let bound = model.idle(0.0, 2_100_000, |state| state < 2);
        assert_eq!((bound.settled.state, bound.settled.wanted), (1, 3));
        // A package whose cores sleep sleeps too.
        assert!(model.uncore_w(0.0, 160.0, true) < 0.6 * model.uncore_w(0.0, 160.0, false));
        assert!((model.uncore_w(0.0, 0.0, true) - model.asleep_w()).abs() < 1e-9);
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
        let slope = (model.busy_w(2_100_000, 1.0) / model.busy_w(2_000_000, 1.0)).ln() / (2.1f64 / 2.0).ln();
        assert!((1.6..3.2).contains(&slope), "{slope}");
        let low = (model.busy_w(900_000, 1.0) / model.busy_w(800_000, 1.0)).ln() / (0.9f64 / 0.8).ln();
        assert!(slope >= low * 0.9);
    }
}
