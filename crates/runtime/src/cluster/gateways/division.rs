//! One bound of requests in flight for several gateways.
//!
//! Each gateway watches a part, and the parts add up to the bound: it is not passed without one of them being passed. The
//! gateway that passes its part says how many requests it has. Where all have more than the bound together, as they were
//! reported last, the bound is passed; where not, the traffic has moved, and what is left is divided anew. A gateway that is not
//! connected has no part. Traffic that keeps moving just below the bound would divide it without end: after
//! [`MAX_DIVISIONS`] a part that is passed counts as the bound, which costs energy and no latency.

use crate::live::Watch;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// How often the bound of one decision is divided.
const MAX_DIVISIONS: u32 = 64;

/// What is known of the requests in flight, to divide a bound by.
#[derive(Debug)]
struct Division {
    watch: Option<Watch>,
    /// Each gateway's newest count; `None` while it is not connected.
    in_flight: Vec<Option<u64>>,
    /// How often the bound may still be divided.
    left: u32,
}

impl Division {
    fn total(&self) -> u64 {
        self.in_flight.iter().flatten().sum()
    }

    /// Each gateway's part: what it has, and of what is left a share by what it has and might get.
    fn parts(&self) -> Vec<Option<u64>> {
        let Some(bound) = self.watch.as_ref().map(|watch| watch.bound) else {
            return vec![None; self.in_flight.len()];
        };
        // Shares in whole numbers, by what is divided up to each gateway, so that nothing is lost.
        let weight = |in_flight: &u64| u128::from(*in_flight) + 1;
        let weights: u128 = self.in_flight.iter().flatten().map(weight).sum();
        let free = bound.checked_sub(self.total());
        let whole = free.unwrap_or(bound);
        let up_to = |sum: u128| (u128::from(whole) * sum / weights.max(1)) as u64;
        let mut sum = 0;
        let part = |in_flight: &Option<u64>| {
            let in_flight = in_flight.as_ref()?;
            let before = up_to(sum);
            sum += weight(in_flight);
            let share = up_to(sum) - before;
            // More than the bound already: their parts are passed, and found to be.
            Some(free.map_or(share, |_| in_flight + share))
        };
        self.in_flight.iter().map(part).collect()
    }

    /// A gateway has passed its part with so many requests; whether the bound is passed.
    fn passed(&mut self, gateway: usize, in_flight: u64) -> bool {
        self.in_flight[gateway] = Some(in_flight);
        let Some(watch) = &self.watch else { return false };
        let passed = self.total() > watch.bound || self.left == 0;
        self.left = self.left.saturating_sub(1);
        passed
    }
}

/// The bound that is watched now, and the part of each gateway.
#[derive(Debug)]
struct Parts {
    division: Division,
    /// What each gateway is to watch, in the division's order.
    watched: Vec<watch::Sender<Option<Watch>>>,
    /// Places that gateways have left.
    free: Vec<usize>,
}

/// The parts of the bound that is watched now, for the task of each gateway.
#[derive(Debug)]
pub(super) struct Divided(Mutex<Parts>);

impl Default for Divided {
    fn default() -> Self {
        Self(Mutex::new(Parts {
            division: Division {
                watch: None,
                in_flight: Vec::new(),
                left: 0,
            },
            watched: Vec::new(),
            free: Vec::new(),
        }))
    }
}

impl Parts {
    /// Under the lock, so that no older division comes after a newer one.
    fn send(&self) {
        for (sender, part) in self.watched.iter().zip(self.division.parts()) {
            let watch = self.division.watch.as_ref().zip(part);
            sender.send_replace(watch.map(|(watch, part)| watch.with_bound(part)));
        }
    }
}

impl Divided {
    fn lock(&self) -> MutexGuard<'_, Parts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches the bound of a new decision.
    pub(super) fn watch(&self, watch: Option<Watch>) {
        let mut parts = self.lock();
        (parts.division.watch, parts.division.left) = (watch, MAX_DIVISIONS);
        parts.send();
    }

    /// A place for one more gateway, which is not connected.
    pub(super) fn place(self: &Arc<Self>) -> Share {
        let mut parts = self.lock();
        let at = parts.free.pop().unwrap_or_else(|| {
            parts.division.in_flight.push(None);
            parts.watched.push(watch::Sender::new(None));
            parts.watched.len() - 1
        });
        drop(parts);
        Share {
            divided: Arc::clone(self),
            at,
        }
    }
}

/// One gateway's share of the bound. Dropped, the others have it.
#[derive(Debug)]
pub(super) struct Share {
    divided: Arc<Divided>,
    at: usize,
}

impl Share {
    /// What the gateway is to watch.
    pub(super) fn watched(&self) -> watch::Receiver<Option<Watch>> {
        self.divided.lock().watched[self.at].subscribe()
    }

    /// The gateway was connected to, or lost.
    pub(super) fn connected(&self, is_connected: bool) {
        let mut parts = self.divided.lock();
        parts.division.in_flight[self.at] = is_connected.then_some(0);
        parts.send();
    }

    /// The gateway has reported how many requests it has.
    pub(super) fn reported(&self, in_flight: u64) {
        self.divided.lock().division.in_flight[self.at] = Some(in_flight);
    }

    /// The gateway has passed its part.
    pub(super) fn passed(&self, in_flight: u64) {
        let mut parts = self.divided.lock();
        match parts.division.passed(self.at, in_flight) {
            true => parts.division.watch.iter().for_each(Watch::passed),
            false => parts.send(),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.connected(false);
        self.divided.lock().free.push(self.at);
    }
}

#[cfg(test)]
#[path = "division_tests.rs"]
mod tests;
