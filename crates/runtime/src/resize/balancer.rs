//! What is in front of the servers, and is told which of them get requests.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a server gets from the balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Admission {
    /// Requests.
    Ready,
    /// No new requests; it finishes those that it has.
    Drain,
    /// Nothing: it is off, or of no use.
    Out,
}

/// What is wanted of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What it gets.
    pub admission: Admission,
    /// Whether it warms up: where the balancer can, it gets fewer requests than the others then.
    pub warming: bool,
}

/// A server as the balancer has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// What it gets, as read back.
    pub admission: Admission,
    /// Requests that it is serving; `None` where that is not known of the time since its admission changed.
    pub in_flight: Option<u64>,
    /// Whether the balancer checks its servers and finds this one well; `None` where it has no check.
    pub well: Option<bool>,
}

/// What a balancer shows.
#[derive(Clone, Debug)]
pub struct Look {
    /// The servers, in the controller's order.
    pub members: Vec<Member>,
    /// What came since the look before; `None` where that is not known whole.
    pub traffic: Option<Traffic>,
}

/// Requests in a time.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// How long it was.
    pub length: Duration,
    /// Requests that came.
    pub arrivals: u64,
    /// Requests answered; `None` where it is not told.
    pub completions: Option<u64>,
    /// Requests that failed; `None` where it is not told.
    pub failures: Option<u64>,
    /// Their latencies in microseconds; `None` where they are not told.
    pub latencies: Option<Histogram<u64>>,
}

/// A balancer.
pub trait Balancer: Send {
    /// In words, for the start of a run.
    fn name(&self) -> String;

    /// What it shows, within the time given.
    ///
    /// # Errors
    /// Why it cannot be relied on now, in words.
    fn look(&mut self, patience: Duration) -> Result<Look, String>;

    /// Tells it what each server is to get, where that is not what it has; within the time given. What came of it shows in
    /// the next look.
    ///
    /// # Errors
    /// Why it could not be told, in words.
    fn want(&mut self, wanted: &[Wanted], patience: Duration) -> Result<(), String>;

    /// What a user should know of it: servers without checks, for instance. After the first successful look.
    fn notes(&self) -> Vec<String>;
}
