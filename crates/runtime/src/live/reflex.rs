//! The reflex between two periods: the telemetry watches the bounds of a decision and rings, and the control loop, which waits
//! for the end of the period, carries out what was decided beforehand.
//!
//! The loop's own thread does it, in the same way as it applies a decision: what holds for that (limits, a pause, writes of
//! others, leases) holds for this. A bell that is rung for an earlier decision is not heard, and of one decision it is heard
//! once. Whoever rings says no more than that: what is raised, the law has decided.

use super::Device;
use headroom_console::Stop;
use headroom_control::{Decision, Reflex};
use headroom_units::Seconds;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Wakes the control loop that it is of.
#[derive(Clone, Debug)]
pub struct Bell {
    /// The number of the decision that it was rung for last; 0 before.
    rung: Arc<AtomicU64>,
    stop: Stop,
}

impl Bell {
    pub(crate) fn new(stop: &Stop) -> Self {
        Self {
            rung: Arc::default(),
            stop: stop.clone(),
        }
    }

    /// What is watched for one bound alone, by the first decision.
    #[cfg(test)]
    pub(crate) fn watch(&self, bound: u64) -> Watch {
        Watch {
            decision: 1,
            bound,
            oldest: None,
            bell: self.clone(),
        }
    }

    /// Rings for a decision.
    fn ring(&self, decision: u64) {
        self.rung.fetch_max(decision, Ordering::AcqRel);
        self.stop.wake();
    }
}

/// The bounds of a decision, for whoever watches what is going on.
#[derive(Clone, Debug)]
pub struct Watch {
    decision: u64,
    /// More requests in flight than this.
    pub bound: u64,
    /// A request that is older than this.
    pub oldest: Option<Seconds>,
    bell: Bell,
}

impl Watch {
    /// One of the bounds was passed.
    pub fn passed(&self) {
        self.bell.ring(self.decision);
    }

    /// The same with another bound of requests in flight, for one of several that watch.
    #[must_use]
    pub fn with_bound(&self, bound: u64) -> Self {
        Self {
            bound,
            ..self.clone()
        }
    }
}

/// The reflexes of a control loop.
#[derive(Debug)]
pub(super) struct Reflexes {
    bell: Bell,
    /// Decisions up to now.
    decision: u64,
    /// Of the newest decision, until it has fired.
    armed: Option<Reflex>,
    /// How many raised something since the last period.
    fired: u32,
}

impl Reflexes {
    pub(super) fn new(stop: &Stop) -> Self {
        Self {
            bell: Bell::new(stop),
            decision: 0,
            armed: None,
            fired: 0,
        }
    }

    /// Whether it was rung for the newest decision, whose reflex has not fired.
    pub(super) fn is_due(&self) -> bool {
        self.armed.is_some() && self.bell.rung.load(Ordering::Acquire) == self.decision
    }

    /// The reflex of a new decision takes the place of the last one's; what is to be watched for it.
    pub(super) fn arm(&mut self, reflex: Option<Reflex>) -> Option<Watch> {
        self.decision += 1;
        self.armed = reflex;
        reflex.map(|reflex| Watch {
            decision: self.decision,
            bound: reflex.bound,
            oldest: reflex.oldest,
            bell: self.bell.clone(),
        })
    }

    /// How many fired since this was last asked.
    pub(super) fn take(&mut self) -> u32 {
        std::mem::take(&mut self.fired)
    }

    /// Fires, where it is due.
    pub(super) fn fire(&mut self, devices: &mut [&mut dyn Device]) {
        let Some(reflex) = self
            .armed
            .take_if(|_| self.bell.rung.load(Ordering::Acquire) == self.decision)
        else {
            return;
        };
        let begin = Instant::now();
        let mut raised = false;
        for device in devices {
            let now = device.in_force();
            let wanted = reflex.raised(&now);
            if wanted == now {
                continue;
            }
            if let Err(error) = device.apply(&mut Decision::of(wanted)) {
                tracing::error!(setting = %wanted, "the reflex could not be carried out: {error:#}");
            }
            raised |= now.takes_from(&device.in_force());
        }
        if raised {
            self.fired += 1;
            tracing::info!(
                bound = reflex.bound,
                took_us = begin.elapsed().as_micros() as u64,
                "more requests are in flight, or older, than expected: cores and frequency are raised within the period"
            );
        }
    }
}

#[cfg(test)]
#[path = "reflex_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "reflex_gateway_tests.rs"]
mod gateway_tests;
