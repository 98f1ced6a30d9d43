//! Lost telemetry may cost energy, never latency: a law that cannot see must not save.
//!
//! The guardian wraps any law. While a period's telemetry is missing it holds what is in force; when this many
//! periods in a row are missing it puts everything to full, and keeps it there until the law can see again. While
//! most requests fail, the law may give but not take: an unreachable backend is quick and idle, and looks to any law
//! like one that could do with less. When they fail for as many periods in a row, everything goes to full: whatever
//! comes back must find it.

use crate::decision::{Decision, Reason};
use crate::law::Law;
use crate::plant::Plant;
use crate::seen::Seen;

/// Periods without telemetry after which everything goes to full.
pub const DEFAULT_PATIENCE_PERIODS: u32 = 5;

const HOLD: &str = "telemetry-lost-hold";
const FULL: &str = "telemetry-lost-full";
const FAILING: &str = "failing-hold";
const FAILING_FULL: &str = "failing-full";

/// A law that goes to full when it cannot see.
#[derive(Clone, Debug)]
pub struct Guardian<L> {
    law: L,
    plant: Plant,
    patience: u32,
    lost: u32,
    failing: u32,
}

impl<L: Law> Guardian<L> {
    /// Wraps `law`; everything goes to full in the `patience`-th period without telemetry, or in which most requests
    /// failed (at least the first).
    pub fn new(law: L, plant: Plant, patience: u32) -> Self {
        Self {
            law,
            plant,
            patience: patience.max(1),
            lost: 0,
            failing: 0,
        }
    }

    /// The guardian's own rules, besides the law's.
    pub const RULES: [&'static str; 4] = [HOLD, FULL, FAILING, FAILING_FULL];

    /// The law inside.
    pub const fn law(&self) -> &L {
        &self.law
    }

    /// Periods without telemetry up to now, in a row.
    pub const fn lost_periods(&self) -> u32 {
        self.lost
    }

    /// Decides as the law does, or as a guardian must.
    pub fn decide(&mut self, seen: &Seen) -> Decision {
        let Some(traffic) = &seen.traffic else {
            return self.decide_blind(seen);
        };
        if self.lost >= self.patience {
            self.law.forget();
        }
        self.lost = 0;
        let mut decision = self.law.decide(seen);
        if traffic.failures <= traffic.completions {
            self.failing = 0;
            return decision;
        }
        self.failing = self.failing.saturating_add(1);
        let (wanted, now) = (decision.allocation, seen.allocated);
        let numbers = [
            ("failures", traffic.failures as f64),
            ("completions", traffic.completions as f64),
            ("failing_periods", f64::from(self.failing)),
            ("patience_periods", f64::from(self.patience)),
        ];
        let told = format!(
            "{} requests failed and {} were answered",
            traffic.failures, traffic.completions
        );
        if self.failing >= self.patience {
            let text = format!("{told}, for {} periods now: everything to full", self.failing);
            decision.allocation = self.plant.full();
            decision.reasons = vec![Reason::new(FAILING_FULL, text, &numbers)];
        } else if wanted.takes_from(&now) {
            let text = format!("{told}: nothing is taken away meanwhile");
            decision.allocation = wanted.most(now);
            decision.reasons = vec![Reason::new(FAILING, text, &numbers)];
        }
        decision
    }

    fn decide_blind(&mut self, seen: &Seen) -> Decision {
        self.lost = self.lost.saturating_add(1);
        self.failing = 0;
        let numbers = [
            ("lost_periods", f64::from(self.lost)),
            ("patience_periods", f64::from(self.patience)),
        ];
        let (allocation, reason) = if self.lost < self.patience {
            let text = format!("no telemetry for {} periods: what is in force stays", self.lost);
            (seen.allocated, Reason::new(HOLD, text, &numbers))
        } else {
            let text = format!("no telemetry for {} periods: everything to full", self.lost);
            (self.plant.full(), Reason::new(FULL, text, &numbers))
        };
        Decision {
            allocation,
            expected_rate: None,
            reasons: vec![reason],
        }
    }
}
