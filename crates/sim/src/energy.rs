//! Where the joules went.

use headroom_units::Joules;
use serde::{Deserialize, Serialize};
use std::ops::{Add, AddAssign, Sub};

/// Energy by its cause: a lever saves only by one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EnergyByCause {
    /// Busy cores: a lower frequency does the same work on fewer joules.
    pub work: Joules,
    /// Idle cores, with what entering and leaving their states costs, and their packages' sleep: longer idle periods make them
    /// deeper.
    pub idle_cores: Joules,
    /// Packages beside their cores: they sleep while all their cores do.
    pub packages: Joules,
    /// The rest of servers that serve: it goes with the server alone.
    pub platform: Joules,
    /// Servers that are off.
    pub off: Joules,
    /// Servers that boot or shut down.
    pub switching: Joules,
}

impl EnergyByCause {
    /// All of it.
    pub fn total(&self) -> Joules {
        self.work + self.idle_cores + self.packages + self.platform + self.off + self.switching
    }

    fn each(self, other: Self, with: fn(Joules, Joules) -> Joules) -> Self {
        Self {
            work: with(self.work, other.work),
            idle_cores: with(self.idle_cores, other.idle_cores),
            packages: with(self.packages, other.packages),
            platform: with(self.platform, other.platform),
            off: with(self.off, other.off),
            switching: with(self.switching, other.switching),
        }
    }
}

/// What one run saved against another of the same load, by its cause; what it spent more is below zero. The sum is the
/// difference of their energies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedByCause {
    /// Fewer joules for the work.
    pub work: Joules,
    /// Deeper sleep of cores and packages of the servers that were on.
    pub sleep: Joules,
    /// Servers off.
    pub off: Joules,
    /// Booting and shutting down.
    pub switching: Joules,
}

impl SavedByCause {
    /// Of a run against another, each with its server-seconds on.
    pub fn of(run: (EnergyByCause, f64), against: (EnergyByCause, f64)) -> Self {
        let standing = |energy: EnergyByCause| energy.idle_cores + energy.packages + energy.platform;
        let ((run, on_s), (against, against_on_s)) = (run, against);
        // What the servers that were on would have drawn beside their work if they had slept as they did in the other.
        let share = if against_on_s > 0.0 {
            on_s / against_on_s
        } else {
            1.0
        };
        let as_before = standing(against) * share;
        Self {
            work: against.work - run.work,
            sleep: as_before - standing(run),
            off: standing(against) - as_before + against.off - run.off,
            switching: against.switching - run.switching,
        }
    }

    /// All of it.
    pub fn total(&self) -> Joules {
        self.work + self.sleep + self.off + self.switching
    }
}

impl Add for EnergyByCause {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.each(other, |a, b| a + b)
    }
}

impl AddAssign for EnergyByCause {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for EnergyByCause {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.each(other, |a, b| a - b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn savings_have_their_cause_and_add_up() {
        let joules = |work: f64, idle: f64, platform: f64, off: f64, switching: f64| EnergyByCause {
            work: Joules::new(work),
            idle_cores: Joules::new(idle),
            platform: Joules::new(platform),
            off: Joules::new(off),
            switching: Joules::new(switching),
            ..EnergyByCause::default()
        };
        let fixed = joules(100.0, 50.0, 150.0, 0.0, 0.0);
        // Half of the servers off, and a boot.
        let half = joules(90.0, 30.0, 75.0, 5.0, 8.0);
        let saved = SavedByCause::of((half, 500.0), (fixed, 1000.0));
        let got = [saved.work, saved.sleep, saved.off, saved.switching].map(Joules::get);
        assert_eq!(got, [10.0, -5.0, 95.0, -8.0]);
        assert_eq!(saved.total(), fixed.total() - half.total());
    }
}
