//! The HTTP/1.1 load generator: open loop, closed loop or users, on one thread or several.
//!
//! **Open loop.** Requests are offered when the [arrival process](headroom_workload::arrivals) says, whether or not earlier
//! ones were answered. Latency is counted from the *intended* send time, so a service that stalls is charged for
//! every request that should have been sent meanwhile (no coordinated omission).
//!
//! **Users.** [`Pacing::Users`] is a closed loop of [SURGE users](headroom_workload::users) whose number follows a curve, brought to
//! it every 0.1 s. Each fetches a page, its embedded objects one after the other, over one new connection (or
//! one for each request), and then waits. Who is to leave does so between two pages: at once, in a wait.
//!
//! [Visitors of an auction site](People::Auction) follow a curve too. Each thinks, asks for one page over the connection that
//! it keeps, reads it, and draws the next from its table of transitions; what writes is a POST with a form. An answer that
//! does not say that it is the page which was asked for is a failure ([`Failures::wrong`]); after any failure the session is
//! over and another begins. [`LoadResult::by_kind`] has each kind of page.
//!
//! **Density.** [`Pacing::Bursts`] is a closed loop whose connections send for a share of each window and sleep for the
//! rest: [`Bursts`](crate::Bursts).
//!
//! **Bounds.** At most `max_connections` connections. When all are busy a request waits, its latency counting,
//! in a queue of at most `queue`; when that is full it is counted as [dropped](Failures::dropped), a failure,
//! and never sent. Each request has until `timeout` after its intended send time, and none longer than `grace` after the
//! load's end: then it counts as [unanswered](Failures::unanswered), a failure.
//!
//! **Timing.** The thread sleeps on a `timerfd`, because tokio's own timer rounds to a millisecond, and looks for
//! due requests after every answer as well. The send-time error (actual minus intended) is in every result, so
//! that a generator which cannot keep up is seen and not believed.
//!
//! **Its own limits.** Where a thread had no CPU time left, requests were sent behind schedule by an amount that matters, or
//! connections, ports or descriptors were exhausted, [`LoadResult::generator_limits`] says so, with what to do about it.
//!
//! **Retries.** A server may close a kept-alive connection just when a request is written to it. As browsers and
//! proxies do, an idempotent request whose connection, used before, ended before the answer's head is sent once more
//! on a new one; its latency keeps counting and it is counted in [`Counts::retried`].
//!
//! **New connections.** Without keep-alive every request opens a connection of its own, so that the server's accept
//! queue sees every one. How long each took to be established, and how many needed TCP's retry (a full accept queue
//! drops the SYN), is counted: [`LoadPeriod::connect`], [`Counts::connects_retried`].
//!
//! **Cost.** A request is one write and one read by the task of its connection, composed and read without an allocation, so
//! that the generator is the last to be the bottleneck. Answers are read as RFC 9112 frames them and their bodies thrown away.
//!
//! Only cleartext `http://` is spoken.

mod config;
mod connection;
mod engine;
mod paths;

pub use crate::error::LoadError;
pub use crate::handle::LoadHandle;
pub use crate::result::{KindResult, LoadResult, Summary};
pub use crate::tally::{Counts, Failures, LoadPeriod};
pub use config::{LoadConfig, Pacing, People, UserLoad};
pub use paths::Paths;

use crate::handle::Generator;
use crate::share::Beginning;
use config::Plan;
use std::sync::Arc;
use tokio::runtime::LocalOptions;

/// How many tasks run between two looks at the sockets and the timer. Fewer than tokio's 61, because a request
/// that becomes due must not wait for so many.
const EVENT_INTERVAL: u32 = 16;

/// Checks a load: its settings, and the limit on open files, which is raised where the load needs it. Nothing is sent.
///
/// # Errors
/// As [`start`].
pub fn check(config: LoadConfig) -> Result<(), LoadError> {
    Plan::new(config).map(drop)
}

/// Starts a load on threads of its own. They first open the warm connections and then begin together.
///
/// The process's soft limit on open files is raised to its hard limit where the connections need it.
///
/// # Errors
/// [`LoadError`] where the configuration is wrong, the host has no address, or the system refuses a thread. A
/// server that does not answer is no error: its requests fail and are counted.
pub fn start(config: LoadConfig) -> Result<LoadHandle, LoadError> {
    let url = config.url.clone();
    let plans = Plan::new(config)?;
    let beginning = Arc::new(Beginning::of(plans.len()));
    let size = (plans.len(), plans.iter().map(|plan| plan.max_connections).sum());
    let generators = plans.into_iter().map(|plan| {
        let beginning = Arc::clone(&beginning);
        Generator::start(None, move |received| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .event_interval(EVENT_INTERVAL)
                .build_local(LocalOptions::default())?;
            runtime.block_on(engine::run(plan, received, &beginning))
        })
    });
    Ok(LoadHandle::new(url, size, generators.collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests;
