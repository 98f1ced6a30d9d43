//! Frequencies, voltages, and what a busy core draws and does at them.
//!
//! ```text
//! P(f) = leakage V(f) + dynamic (f / f_max) V(f)² duty
//! V(f) = V_min + (1 - V_min) (f - f_min) / (f_max - f_min)        (voltage over that at f_max)
//! speed(f, d) = d / (s + (1 - s) f_max / f)
//! ```
//!
//! Dynamic power is C V² f (Chandrakasan et al., "Low-power CMOS digital design", 1992), so about f³ at the top. s is the
//! share of the work's time at f_max that does not depend on the frequency (waiting for memory). Below f_min a core is
//! stopped for a part d of the time, in sixteenths as `IA32_CLOCK_MODULATION` with extended steps has them, which saves
//! its dynamic part only.

use crate::machine::{FigureError, check};
use headroom_units::{Hertz, Watts};
use serde::{Deserialize, Serialize};

/// Duty cycles come in sixteenths.
const DUTY_STEPS: usize = 16;
/// The most frequencies of a machine.
const MAX_FREQUENCIES: f64 = 1_000.0;

/// The figures of a core's frequencies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FrequencyFigures {
    /// The lowest.
    pub lowest: Hertz,
    /// The highest.
    pub highest: Hertz,
    /// Between two; 100 MHz is the bus clock of x86 processors.
    pub step: Hertz,
    /// Voltage at the lowest over that at the highest, above 0, at most 1.
    pub lowest_voltage: f64,
    /// A busy core's dynamic power at the highest.
    pub dynamic: Watts,
    /// A powered core's leakage at the highest voltage.
    pub leakage: Watts,
}

impl Default for FrequencyFigures {
    /// 4 W busy at the highest, 1 W at the lowest: a Skylake server core, as recalled from published measurements.
    fn default() -> Self {
        Self {
            lowest: Hertz::new(0.8e9),
            highest: Hertz::new(2.1e9),
            step: Hertz::new(0.1e9),
            lowest_voltage: 0.7,
            dynamic: Watts::new(3.5),
            leakage: Watts::new(0.5),
        }
    }
}

impl FrequencyFigures {
    /// A busy core at the highest frequency.
    pub fn busy_at_top(&self) -> Watts {
        self.dynamic + self.leakage
    }

    /// The voltage at a frequency, over that at the highest; it does not fall below that of the lowest.
    pub fn voltage(&self, frequency: Hertz) -> f64 {
        let (lowest, highest) = (self.lowest.get(), self.highest.get());
        let along = match highest > lowest {
            true => ((frequency.get() - lowest) / (highest - lowest)).clamp(0.0, 1.0),
            false => 1.0,
        };
        self.lowest_voltage + (1.0 - self.lowest_voltage) * along
    }

    /// A busy core at a frequency, leakage included.
    pub fn busy(&self, frequency: Hertz) -> Watts {
        let voltage = self.voltage(frequency);
        let share = (frequency / self.highest).clamp(0.0, 1.0);
        self.leakage * voltage + self.dynamic * (share * voltage * voltage)
    }

    /// Checks the figures; `key` is where they stand.
    ///
    /// # Errors
    /// [`FigureError`] with the key of the first that cannot be.
    pub fn check(&self, key: &str) -> Result<(), FigureError> {
        let (lowest, highest, step) = (self.lowest.get(), self.highest.get(), self.step.get());
        check(
            format!("{key}.highest"),
            highest,
            (1e8..=1e10).contains(&highest),
            "give 1e8 to 1e10 hertz",
        )?;
        check(
            format!("{key}.lowest"),
            lowest,
            (1e8..=highest).contains(&lowest),
            "give 1e8 hertz or more, and at most the highest",
        )?;
        check(
            format!("{key}.step"),
            step,
            step > 0.0 && (highest - lowest) / step <= MAX_FREQUENCIES,
            "give hertz above 0, for at most 1000 frequencies",
        )?;
        check(
            format!("{key}.lowest_voltage"),
            self.lowest_voltage,
            self.lowest_voltage > 0.0 && self.lowest_voltage <= 1.0,
            "give a share above 0, at most 1",
        )?;
        let leakage = self.leakage.get();
        check(
            format!("{key}.leakage"),
            leakage,
            (0.0..=1e4).contains(&leakage),
            "give 0 to 10000 watts",
        )?;
        let dynamic = self.dynamic.get();
        check(
            format!("{key}.dynamic"),
            dynamic,
            (0.0..=1e4).contains(&dynamic) && dynamic + leakage > 0.0,
            "give 0 to 10000 watts, above 0 where leakage is 0: a busy core that draws nothing leaves nothing to save",
        )
    }
}

/// How fast cores may run: an index from the slowest duty cycle to the highest frequency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(pub usize);

/// One level's figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Frequency.
    pub frequency: Hertz,
    /// Share of the time for which a core is not stopped.
    pub duty: f64,
    /// Voltage over that at the highest frequency.
    pub voltage: f64,
    /// A busy core, leakage included.
    pub busy: Watts,
    /// Work done over work done at full speed.
    pub speed: f64,
}

/// The levels of one machine.
#[derive(Clone, Debug)]
pub struct Frequencies {
    paces: Vec<Pace>,
}

impl Frequencies {
    /// The levels of checked figures, for work of which a share does not depend on the frequency.
    pub fn new(figures: FrequencyFigures, insensitive_share: f64) -> Self {
        let (lowest, highest) = (figures.lowest.get(), figures.highest.get());
        let pace = |hertz: f64, duty: f64| {
            let voltage = figures.voltage(Hertz::new(hertz));
            let dynamic = figures.dynamic * (hertz / highest * voltage * voltage * duty);
            Pace {
                frequency: Hertz::new(hertz),
                duty,
                voltage,
                busy: figures.leakage * voltage + dynamic,
                speed: duty / (insensitive_share + (1.0 - insensitive_share) * highest / hertz),
            }
        };
        let mut paces: Vec<Pace> = (1..DUTY_STEPS)
            .map(|sixteenths| pace(lowest, sixteenths as f64 / DUTY_STEPS as f64))
            .collect();
        // A hair above the last step belongs to it.
        let steps = ((highest - lowest) / figures.step.get() - 1e-9).ceil().max(0.0) as usize;
        for step in 0..=steps {
            // Without the dust that binary fractions leave.
            let hertz = (lowest + step as f64 * figures.step.get()).round();
            paces.push(pace(hertz.min(highest), 1.0));
        }
        Self { paces }
    }

    /// The same, where a core whose clock is stopped for a share of the time draws this much meanwhile: as in its shallowest idle
    /// state, which stops the clock too.
    #[must_use]
    pub fn with_stopped(mut self, stopped: Watts) -> Self {
        let running = self.at(self.lowest_unthrottled()).busy;
        for pace in &mut self.paces {
            if pace.duty < 1.0 {
                pace.busy = running * pace.duty + stopped * (1.0 - pace.duty);
            }
        }
        self
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

    /// A level's figures; those of the highest where there is no such level.
    pub fn at(&self, level: Level) -> Pace {
        self.paces[level.0.min(self.paces.len() - 1)]
    }

    /// The highest level whose frequency is at most this; the lowest frequency where none is.
    pub fn at_most(&self, frequency: Hertz) -> Level {
        // A hair below a step belongs to it.
        let within = self
            .paces
            .partition_point(|pace| pace.frequency.get() <= frequency.get() + 1.0);
        Level(within.saturating_sub(1).max(DUTY_STEPS - 1))
    }

    /// The highest level at which `power` (never falling with the level) stays within a limit, by bisection; the lowest
    /// where none does, because a processor cannot stop altogether.
    pub fn highest_within(&self, limit: Watts, power: impl Fn(Level) -> Watts) -> Level {
        let (mut fits, mut beyond) = (0, self.paces.len());
        while beyond - fits > 1 {
            let middle = fits + (beyond - fits) / 2;
            match power(Level(middle)) <= limit {
                true => fits = middle,
                false => beyond = middle,
            }
        }
        Level(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn skylake() -> Frequencies {
        Frequencies::new(FrequencyFigures::default(), 0.0)
    }

    #[test]
    fn a_core_draws_four_watts_at_the_top_and_one_at_the_lowest() {
        let levels = skylake();
        assert_eq!(levels.paces().len(), 15 + 14);
        assert_eq!(levels.at(levels.top()).busy, Watts::new(4.0));
        let lowest = levels.at(levels.lowest_unthrottled());
        assert!((lowest.busy.get() - 1.0).abs() < 0.02, "{lowest:?}");
        assert!((lowest.speed - 0.8 / 2.1).abs() < 1e-12);
        // Stopping saves the dynamic part only.
        assert!(levels.at(Level(0)).busy.get() > 0.35);
    }

    #[test]
    fn the_same_work_takes_fewer_joules_at_a_lower_frequency() {
        let levels = skylake();
        let per_work = |level: Level| levels.at(level).busy.get() / levels.at(level).speed;
        assert!(per_work(levels.lowest_unthrottled()) < 0.7 * per_work(levels.top()));
        // And more where a core only stands still.
        assert!(per_work(Level(0)) > per_work(levels.top()));
    }

    #[test]
    fn a_frequency_is_one_of_the_machines_own() {
        let levels = skylake();
        for (asked, got) in [(2.1e9, 2.1e9), (1.25e9, 1.2e9), (0.1e9, 0.8e9), (9e9, 2.1e9)] {
            assert_eq!(
                levels.at(levels.at_most(Hertz::new(asked))).frequency,
                Hertz::new(got)
            );
        }
    }

    proptest! {
        #[test]
        fn the_bisection_finds_what_a_scan_finds(limit in 0.0..40.0f64, busy in 0.0..8.0f64) {
            let levels = skylake();
            let power = |level: Level| Watts::new(5.0) + levels.at(level).busy * busy;
            let scan = (0..levels.paces().len()).rev().find(|l| power(Level(*l)).get() <= limit).unwrap_or(0);
            prop_assert_eq!(levels.highest_within(Watts::new(limit), power), Level(scan));
        }

        #[test]
        fn power_and_speed_rise_with_the_level(share in 0.0..1.0f64, voltage in 0.3..1.0f64) {
            let figures = FrequencyFigures { lowest_voltage: voltage, ..FrequencyFigures::default() };
            let levels = Frequencies::new(figures, share);
            for pair in levels.paces().windows(2) {
                prop_assert!(pair[0].busy <= pair[1].busy && pair[0].speed <= pair[1].speed);
            }
        }
    }
}
