//! Where the joules went.

use headroom_units::Joules;
use serde::{Deserialize, Serialize};
use std::ops::{Add, AddAssign, Sub};

/// Energy by its cause: a lever saves only by one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EnergyByCause {
    /// Busy cores: a lower frequency does the same work on fewer joules.
    pub work: Joules,
    /// Idle cores, with what entering and leaving their states costs: longer idle periods make them deeper.
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
