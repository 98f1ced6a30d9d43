//! What a lever can save on a machine at most, and by which cause.

use crate::expected::{Load, idle_power};
use crate::machine::MachineFigures;
use headroom_units::{Cores, PerSecond, Seconds, Watts};

/// What the levers of one machine can move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Savings {
    /// All cores busy at the highest frequency, without the rest of the machine.
    pub busy_at_highest: Watts,
    /// The same at the lowest.
    pub busy_at_lowest: Watts,
    /// Cores that can be parked: all but one.
    pub parked_cores: usize,
    /// What these draw less in the deepest state that the background lets them reach than in the shallowest.
    pub parked: Watts,
    /// What the packages draw less where all cores sleep.
    pub packages: Watts,
    /// What a machine that idles draws more than one that is off.
    pub off: Watts,
    /// For how long a server must be off to be worth its boot; `None` where it never is.
    pub off_pays_after: Option<Seconds>,
}

impl Savings {
    /// Of checked figures.
    pub fn of(machine: &MachineFigures) -> Self {
        let processor = &machine.processor;
        let frequency = processor.frequency;
        let cores = processor.cores as f64;
        let at_rest = Load {
            busy: Cores::ZERO,
            wakeups: PerSecond::new(0.0),
            on: processor.cores,
        };
        let resting = idle_power(machine, at_rest);
        let each_parked = resting.cores * (1.0 / cores);
        let shallowest = processor.idle_states[0].power;
        let parked_cores = processor.cores - 1;
        let idle = machine.platform + resting.cores + resting.uncore;
        Self {
            busy_at_highest: frequency.busy(frequency.highest) * cores,
            busy_at_lowest: frequency.busy(frequency.lowest) * cores,
            parked_cores,
            parked: (shallowest - each_parked).max(Watts::ZERO) * parked_cores as f64,
            packages: (processor.uncore - processor.uncore_asleep) * processor.packages as f64,
            off: (idle - machine.server.off).max(Watts::ZERO),
            off_pays_after: machine.server.break_even(idle),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lever_saves_by_its_cause() {
        let machine = MachineFigures::skylake(8);
        let savings = Savings::of(&machine);
        assert_eq!(savings.busy_at_highest, Watts::new(32.0));
        assert!((savings.busy_at_lowest.get() - 8.0 * 1.0033).abs() < 0.01);
        assert_eq!(savings.parked_cores, 7);
        // 0.1 W in C6 and twenty entries a second of 0.8 mJ, instead of 1.44 W.
        let each = 1.44 - 0.1 - 20.0 * 600e-6 * 1.34;
        assert!((savings.parked.get() - 7.0 * each).abs() < 1e-6, "{savings:?}");
        assert!((savings.packages.get() - 0.8 * 23.5).abs() < 1e-9);
        // 20 W, about 13 W of package and cores, 3 W off.
        assert!((28.0..36.0).contains(&savings.off.get()), "{savings:?}");
        assert!(savings.off_pays_after.unwrap() > machine.server.boot);
    }

    #[test]
    fn background_noise_keeps_parked_cores_from_deep_sleep() {
        let mut noisy = MachineFigures::skylake(8);
        noisy.processor.background = PerSecond::new(5000.0);
        assert!(Savings::of(&noisy).parked < Savings::of(&MachineFigures::skylake(8)).parked * 0.5);
    }
}
