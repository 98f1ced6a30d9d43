//! The memcached client: `get` and `set` of values of one size, over TCP, in memcached's text protocol, which every version
//! and proxy speaks.
//!
//! **Pacing** as in [`http`](crate::http): an open loop over [arrivals](headroom_workload::arrivals), or a closed loop whose
//! connections send all the time or in windows of a density ([`Bursts`](crate::Bursts)). Latency is counted from the intended
//! send time, and the send-time error is in every result.
//!
//! **Filling.** [`start`] first stores every key with a value of exactly the size asked for, and asks for each once
//! ([`fill`]). A server whose largest item is too small, or which did not keep all, is an error that says so. Keys begin with
//! `headroom-load:SIZE:`, and values expire after a day.
//!
//! **What is counted.** A request is completed when a `get` brought a value of the right size, or a `set` was `STORED`. Else
//! it failed, and [`Failures`](crate::Failures) says why: `missed`, `wrong_size`, `status` (`SERVER_ERROR` and the like, the
//! first with its words in [`LoadPeriod::answer_error`](crate::LoadPeriod::answer_error)), `closed`, `protocol`, `connect`,
//! `timeout`, `dropped`, `unanswered`. Nothing is sent twice.
//!
//! **How.** Each thread is one `epoll` loop with a read and a write for each request. A value's bytes are counted and, where
//! there are many, thrown away by the kernel without being copied (`MSG_TRUNC`), so that the client is the last to be the
//! bottleneck: its contents are not compared.

mod config;
mod connection;
mod engine;
mod fill;
mod protocol;

pub use config::{LoadConfig, Pacing};

use crate::error::LoadError;
use crate::handle::{Bell, Generator, LoadHandle};
use crate::share::Beginning;
use config::{Contents, Plan};
use std::sync::Arc;

/// Stores every key of this load with a value of its size, and asks for each once. It waits for the server.
///
/// # Errors
/// [`LoadError`] where the configuration is wrong, the server is not there, its items are too small, or it did not keep all.
pub fn fill(config: &LoadConfig) -> Result<(), LoadError> {
    fill::fill(&Contents::new(config)?)
}

/// Checks loads that one server is to hold the values of at once: their settings, the limit on open files (raised where they need it), and
/// whether the server's largest item and its memory are enough. Nothing is stored.
///
/// # Errors
/// As [`start`], and where the memory is too small for all together.
pub fn check(configs: Vec<LoadConfig>) -> Result<(), LoadError> {
    let mut all = Vec::new();
    for config in configs {
        let contents = Contents::new(&config)?;
        Plan::new(config, &contents)?;
        all.push(contents);
    }
    fill::check_room(&all.iter().collect::<Vec<_>>())
}

/// Starts a load on threads of its own, after [`fill`] if the configuration says so. They first open their connections and
/// then begin together.
///
/// The process's soft limit on open files is raised to its hard limit where the connections need it.
///
/// # Errors
/// As [`fill`], and where the system refuses a thread. Without filling a server that does not answer is no error: its
/// requests fail and are counted.
pub fn start(config: LoadConfig) -> Result<LoadHandle, LoadError> {
    let contents = Contents::new(&config)?;
    let fills = config.fill;
    let plans = Plan::new(config, &contents)?;
    if fills {
        fill::fill(&contents)?;
    }
    let beginning = Arc::new(Beginning::of(plans.len()));
    let size = (plans.len(), plans.iter().map(|plan| plan.connections).sum());
    let generators = plans.into_iter().map(|plan| {
        let beginning = Arc::clone(&beginning);
        let (bell, rung) = Bell::new()?;
        Generator::start(Some(bell), move |received| {
            engine::run(plan, received, &rung, &beginning)
        })
    });
    let generators = generators.collect::<std::io::Result<_>>()?;
    Ok(LoadHandle::new(contents.url, size, generators))
}

#[cfg(test)]
mod tests;
