//! The layer that holds requests for an interval, groups those for the same, and lets the largest group go first (Cheng, Guo and Zhou,
//! "Self-tuning batching with DVFS", MASCOTS 2013, Section III.B): what is asked for often is fetched once, and is still in a small
//! cache when the rest of its group asks.
//!
//! Intervals follow one another without a gap, as in the paper's Figure 2: a request is held until the end of the interval that it came
//! in. Each core has its own. Only what is safe and has no body is held; the rest passes at once, and so does everything where as many
//! are held as may be, and a request whose client would wait for no longer than twice what holding it takes. What is let go passes no
//! faster than what is behind answers (`release`).

mod release;
mod window;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, header};
use tokio::sync::oneshot;

use crate::call::{Call, Stop};
use crate::config::{BatchConfig, BatchKey, ms};
use crate::core::Core;
use crate::deadline::client_deadline;
use crate::layer::{Answer, Layer};
use crate::target::normalised;
use crate::watch::Phase;
pub(crate) use release::Member;
use release::{Release, Waiting};

/// So long after its time is over a request is let go with its batch, where that is when its interval ends.
const GRACE: Duration = Duration::from_millis(5);

/// The interval of all cores, which may be changed at any time; 0 holds nothing.
#[derive(Debug)]
pub(crate) struct BatchInterval(AtomicU64);

impl BatchInterval {
    pub(crate) fn new(interval: Duration) -> Self {
        let it = Self(AtomicU64::new(0));
        it.set(interval);
        it
    }

    /// From the next interval on.
    pub(crate) fn set(&self, interval: Duration) {
        let micros = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX);
        self.0.store(micros, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}

/// What is held.
#[derive(Default)]
struct Held {
    /// Those that wait, by what they ask for, with the order in which the groups began.
    groups: HashMap<Bytes, (usize, Vec<Waiting>)>,
    count: usize,
    /// The end of the interval that runs, or that ran last.
    ends: Option<Instant>,
    /// A task lets them go at its end.
    is_timed: bool,
}

/// A request that is held, until it goes or its client does.
struct IsHeld<'a>(&'a Core);

impl<'a> IsHeld<'a> {
    fn new(core: &'a Core) -> Self {
        core.held.set(core.held.get() + 1);
        Self(core)
    }
}

impl Drop for IsHeld<'_> {
    fn drop(&mut self) {
        self.0.held.set(self.0.held.get() - 1);
    }
}

/// One core's batcher, in front of the layers that answer.
pub(crate) struct Batcher<L> {
    core: Rc<Core>,
    interval: Arc<BatchInterval>,
    config: BatchConfig,
    max_held: usize,
    held: Rc<RefCell<Held>>,
    release: Rc<Release>,
    inner: L,
}

impl<L: Layer> Batcher<L> {
    /// In front of `inner`; of one of `cores` cores, which has its part of the limit.
    pub(crate) fn new(core: Rc<Core>, interval: Arc<BatchInterval>, cores: usize, inner: L) -> Self {
        let config = core.config.batch.clone();
        Self {
            max_held: config.max_held.div_ceil(cores),
            config,
            release: Rc::new(Release::new(core.clone(), cores)),
            core,
            interval,
            held: Rc::default(),
            inner,
        }
    }

    /// What a request is grouped by; `None` of one that is not held.
    fn key(&self, call: &Call) -> Option<Bytes> {
        let parts = &call.parts;
        let is_safe = matches!(parts.method, Method::GET | Method::HEAD);
        if !is_safe || call.body.is_some() || call.upgrade.is_some() {
            return None;
        }
        let target = match self.config.key {
            BatchKey::Target => parts.uri.path_and_query()?.as_str(),
            BatchKey::Path => parts.uri.path(),
        };
        let target = normalised(target);
        let host = parts
            .headers
            .get(header::HOST)
            .map_or(&b""[..], |host| host.as_bytes());
        let mut key = Vec::with_capacity(host.len() + target.len() + 1);
        key.push(u8::from(parts.method == Method::HEAD));
        key.extend(host.iter().map(u8::to_ascii_lowercase));
        key.extend_from_slice(target.as_bytes());
        Some(key.into())
    }

    /// Until when a request may be held: as long as is configured, and so that there is time for its answer in what is promised and in what
    /// its client grants. Of the promise that is what an answer takes, of both it is no more than half.
    fn latest(&self, call: &Call) -> Instant {
        let arrived = call.arrived;
        let patience = client_deadline(&call.parts.headers).map(|patience| arrived + patience / 2);
        let target = self.core.config.target_ms.map(|target| {
            let target = ms(target);
            arrived + (target - self.release.response().min(target / 2))
        });
        let most = arrived + ms(self.config.max_wait_ms);
        [patience, target].into_iter().flatten().fold(most, Instant::min)
    }

    /// Holds a request of this key until the end of the interval; where none may be held it goes by itself, at once.
    async fn hold(&self, key: Bytes, call: &Call, interval: Duration) -> Member {
        let (sender, released) = oneshot::channel();
        let latest = self.latest(call);
        let ends = {
            let mut held = self.held.borrow_mut();
            let ends = match (held.is_timed, held.ends) {
                (true, Some(ends)) => ends,
                (_, last) => interval_end(last, Instant::now(), interval),
            };
            if ends > latest + GRACE {
                // Intervals go on, for those that come later in this one.
                if !held.is_timed {
                    held.ends = Some(ends);
                }
                return self.release.passes();
            }
            if held.count + self.release.waiting() >= self.max_held {
                self.core.stats.borrow_mut().batch.full += 1;
                return self.release.passes();
            }
            held.count += 1;
            let began = held.groups.len();
            held.groups
                .entry(key)
                .or_insert((began, Vec::new()))
                .1
                .push(sender);
            if !std::mem::replace(&mut held.is_timed, true) {
                held.ends = Some(ends);
                let (release, held) = (self.release.clone(), self.held.clone());
                tokio::task::spawn_local(async move {
                    tokio::time::sleep_until(ends.into()).await;
                    end(&release, &held, interval);
                });
            }
            ends
        };
        call.watch.enter(Phase::Untimed);
        let _held = IsHeld::new(&self.core);
        let deadline = latest.max(ends + GRACE);
        match tokio::time::timeout_at(deadline.into(), released).await {
            Ok(Ok(member)) => member,
            // Its batch is gone, as at the end of the gateway.
            Ok(Err(_)) => self.release.passes(),
            Err(_) => {
                self.core.stats.borrow_mut().batch.expired += 1;
                self.release.passes()
            }
        }
    }
}

/// The end of the interval in which now is, by the end of one: intervals follow one another without a gap, also those in which nothing was
/// held. One that was longer ends no later than a new one would.
fn interval_end(known: Option<Instant>, now: Instant, interval: Duration) -> Instant {
    let Some(known) = known else {
        return now + interval;
    };
    if known > now {
        return known.min(now + interval);
    }
    let into = (now - known).as_nanos() % interval.as_nanos().max(1);
    now + interval - Duration::from_nanos(u64::try_from(into).unwrap_or(0))
}

/// Ends an interval: lets go what is held, the largest group first, of groups of a size the one that began first.
fn end(release: &Rc<Release>, held: &RefCell<Held>, interval: Duration) {
    let groups = {
        let mut held = held.borrow_mut();
        held.is_timed = false;
        held.count = 0;
        std::mem::take(&mut held.groups)
    };
    let mut groups: Vec<(usize, Vec<Waiting>)> = groups
        .into_values()
        .map(|(began, mut waiting)| {
            // Clients that have gone are in no group.
            waiting.retain(|client| !client.is_closed());
            (began, waiting)
        })
        .filter(|(_, waiting)| !waiting.is_empty())
        .collect();
    groups.sort_by_key(|(began, waiting)| (std::cmp::Reverse(waiting.len()), *began));
    release.begin(groups.into_iter().map(|(_, waiting)| waiting).collect(), interval);
}

impl<L: Layer> Layer for Batcher<L> {
    async fn call(&self, mut call: Box<Call>) -> Result<Answer, Stop> {
        let interval = self.interval.get();
        let key = match interval.is_zero() {
            true => None,
            false => self.key(&call),
        };
        let member = match key {
            Some(key) => Some(self.hold(key, &call, interval).await),
            None => None,
        };
        call.place = member.map(Rc::new);
        self.inner.call(call).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_follow_one_another_without_a_gap() {
        let interval = Duration::from_millis(100);
        let start = Instant::now();
        assert_eq!(interval_end(None, start, interval), start + interval);
        for (after_ms, ends_ms) in [(0, 100), (30, 100), (100, 200), (370, 400)] {
            let now = start + Duration::from_millis(after_ms);
            let ends = interval_end(Some(start), now, interval);
            assert_eq!(ends, start + Duration::from_millis(ends_ms), "{after_ms}");
        }
        // The end may be still to come: where nobody was held for it, or where the interval was changed.
        let soon = start + interval / 4;
        assert_eq!(interval_end(Some(soon), start, interval), soon);
        assert_eq!(
            interval_end(Some(start + 3 * interval), start, interval),
            start + interval
        );
        assert_eq!(
            interval_end(Some(start + interval), start, interval),
            start + interval
        );
    }
}
