//! What a request does for which no connection can be opened, because this process has no descriptor left, or this machine no port:
//! it waits for another one's end, as the client that sent it was accepted.
//!
//! Clients of HTTP/1 have one request at a time, and the share of the descriptors that is kept for backends is enough for them
//! (`descriptors.rs`). Those of HTTP/2 may have many.

use std::cell::Cell;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::call::Stop;
use crate::config::ms;
use crate::core::Core;
use crate::endpoint::Attempt;
use crate::pool::Pools;
use crate::stats::Failure;
use crate::watch::Phase;

/// How long a request waits for one of its own core to end before it tries again: another core's may have.
const TRY_EVERY: Duration = Duration::from_millis(20);

/// What the client of one that has waited in vain hears.
pub(crate) const REASON: &str = "the gateway has no descriptor or port left for a connection";

/// The requests of one core that wait for a descriptor; at most this core's part of `limits.max_queued`.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    waiting: Cell<usize>,
    /// An exchange has ended: its connection is in the pool, or closed.
    ended: Notify,
}

impl Shortage {
    /// An exchange has ended. Costs the request path a comparison.
    pub(crate) fn exchange_ended(&self) {
        if self.waiting.get() > 0 {
            self.ended.notify_one();
        }
    }
}

/// One that waits, counted until it does no more.
struct Waiting<'a>(&'a Core);

impl<'a> Waiting<'a> {
    fn join(core: &'a Core) -> Option<Self> {
        let waiting = &core.shortage.waiting;
        (waiting.get() < core.waiting.part()).then(|| {
            waiting.set(waiting.get() + 1);
            core.descriptors.waits();
            Self(core)
        })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let waiting = &self.0.shortage.waiting;
        waiting.set(waiting.get() - 1);
        self.0.descriptors.waits_no_more();
    }
}

/// Waits until this attempt may find a connection, or a descriptor for one, and gives it back to be tried again; `since` is when it
/// first found none. While it waits no client is accepted that would take the descriptor.
///
/// # Errors
/// It has waited for `timeouts.queue_timeout_ms`, or too many wait already: 503 for the client, and nothing against the backend.
pub(crate) async fn wait(
    core: &Core,
    pools: &Pools,
    attempt: Attempt,
    since: &mut Option<Instant>,
) -> Result<Attempt, Stop> {
    let now = Instant::now();
    let patience = ms(core.config.timeouts.queue_timeout_ms);
    let left = (*since.get_or_insert(now) + patience).saturating_duration_since(now);
    // Those that wait in this core's pools for a request to another backend are for nobody just now.
    if pools.clear() > 0 {
        return Ok(attempt);
    }
    if left.is_zero() {
        core.stats.borrow_mut().queue.expired += 1;
        return Err(attempt.stop(Stop::Fail(Failure::OverLimit, REASON)));
    }
    let Some(waiting) = Waiting::join(core) else {
        core.stats.borrow_mut().queue.full += 1;
        return Err(attempt.stop(Stop::Fail(Failure::OverLimit, REASON)));
    };
    if *since == Some(now) {
        core.stats.borrow_mut().queue.waited += 1;
    }
    attempt.call.watch.enter(Phase::Untimed);
    // Whether it was another's end or the time: what counts is whether the next try finds one.
    let _ = tokio::time::timeout(TRY_EVERY.min(left), core.shortage.ended.notified()).await;
    drop(waiting);
    Ok(attempt)
}
