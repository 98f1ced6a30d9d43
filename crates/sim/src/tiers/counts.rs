//! What is counted from the start of a run on: a period, a sample and a run are differences of it.

use headroom_control::{BatchObservation, CacheObservation};
use headroom_units::Seconds;
use serde::Serialize;
use std::ops::Sub;

/// Counts and sums over some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Counts {
    /// Requests sent.
    pub arrivals: u64,
    /// Requests answered.
    pub completions: u64,
    /// From sent to answered, of these together, seconds.
    pub response_s: f64,
    /// Requests that were looked for in the cache.
    pub lookups: u64,
    /// Of these, the ones answered from it or from what another fetched.
    pub hits: u64,
    /// Batches let go, without empty ones.
    pub batches: u64,
    /// Their requests.
    pub batched: u64,
    /// Their groups.
    pub groups: u64,
    /// Batches of which the last answer came.
    pub answered: u64,
    /// From the release to the last answer, of these together, seconds.
    pub processing_s: f64,
    /// Intervals of the batches let go, together, seconds.
    pub waiting_s: f64,
    /// From sent to let go, of the requests that were held together, seconds.
    pub held_s: f64,
    /// ∫ the interval in force dt, seconds squared.
    pub interval_s2: f64,
    /// ∫ frequency dt: cycles.
    pub hertz_s: f64,
    /// ∫ requests between sent and answered dt, seconds.
    pub in_flight_s: f64,
    /// The time that it is over, seconds.
    pub length_s: f64,
}

impl Counts {
    /// Mean time from sent to answered; `None` where nothing was answered.
    pub fn mean_response(&self) -> Option<Seconds> {
        (self.completions > 0).then(|| Seconds::new(self.response_s / self.completions as f64))
    }

    /// Answers a second.
    pub fn throughput_per_s(&self) -> f64 {
        self.over_length(self.completions as f64)
    }

    /// h: the share of the requests looked for in the cache that was answered from memory; 0 where nothing was looked for.
    pub fn hit_ratio(&self) -> f64 {
        self.cache().hit_ratio().map_or(0.0, |ratio| ratio.get())
    }

    /// The mean interval in force, seconds.
    pub fn mean_interval_s(&self) -> f64 {
        self.over_length(self.interval_s2)
    }

    /// The mean frequency, hertz.
    pub fn mean_hertz(&self) -> f64 {
        self.over_length(self.hertz_s)
    }

    fn over_length(&self, sum: f64) -> f64 {
        match self.length_s > 0.0 {
            true => sum / self.length_s,
            false => 0.0,
        }
    }

    pub(super) fn cache(&self) -> CacheObservation {
        CacheObservation {
            lookups: self.lookups,
            hits: self.hits,
        }
    }

    /// With so many that are held now.
    pub(super) fn batching(&self, held: u64) -> BatchObservation {
        BatchObservation {
            batches: self.batches,
            requests: self.batched,
            groups: self.groups,
            answered: self.answered,
            processing: Seconds::new(self.processing_s),
            waiting: Seconds::new(self.waiting_s),
            held,
        }
    }
}

impl Sub for Counts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            arrivals: self.arrivals - before.arrivals,
            completions: self.completions - before.completions,
            response_s: self.response_s - before.response_s,
            lookups: self.lookups - before.lookups,
            hits: self.hits - before.hits,
            batches: self.batches - before.batches,
            batched: self.batched - before.batched,
            groups: self.groups - before.groups,
            answered: self.answered - before.answered,
            processing_s: self.processing_s - before.processing_s,
            waiting_s: self.waiting_s - before.waiting_s,
            held_s: self.held_s - before.held_s,
            interval_s2: self.interval_s2 - before.interval_s2,
            hertz_s: self.hertz_s - before.hertz_s,
            in_flight_s: self.in_flight_s - before.in_flight_s,
            length_s: self.length_s - before.length_s,
        }
    }
}
