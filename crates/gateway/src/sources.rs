//! What each source of connections has and asks, over all cores, and what it is refused.
//!
//! A source's state is looked up once for a connection, behind a lock of one shard; a request costs one atomic of it. Where nothing is
//! limited there is no table.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use derive_more::AddAssign;

use crate::config::SourceLimitConfig;

/// Parts of the table, each behind a lock of its own.
const SHARDS: usize = 64;
/// How often a full part is searched for sources that nothing need be remembered of.
const SWEEP_EVERY_NS: u64 = 100_000_000;

/// What was refused of sources over their limits, and of proxies' headers, counted over a period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, AddAssign)]
pub struct SourceCounts {
    /// Requests answered 429 because their source sent more than `sources.requests_per_s`. They are among those refused.
    pub requests: u64,
    /// Connections closed because their source had `sources.max_connections` of them.
    pub connections: u64,
    /// Connections closed because their source opened more than `sources.connections_per_s`.
    pub connects: u64,
    /// Connections that passed without a limit because `sources.max_sources` others were remembered.
    pub untracked: u64,
    /// Connections closed because of their PROXY protocol header: from where none is trusted, without one, or with a bad one.
    pub proxy_headers: u64,
}

/// A rate with a burst, as a virtual schedule (GCRA, ITU-T I.371): the time at which the next event would be due if all came evenly.
#[derive(Debug, Clone, Copy)]
struct Rate {
    /// Nanoseconds between two events.
    every_ns: u64,
    /// How far ahead of its schedule a source may be.
    ahead_ns: u64,
}

impl Rate {
    /// `None` without a limit.
    fn new(per_s: u32, burst: u32) -> Option<Self> {
        let burst = if burst == 0 { per_s } else { burst };
        (per_s > 0).then(|| {
            let every_ns = (1_000_000_000 / u64::from(per_s)).max(1);
            Self {
                every_ns,
                ahead_ns: every_ns.saturating_mul(u64::from(burst.max(1)) - 1),
            }
        })
    }

    /// Takes one event of what is left at `now`; whether there was one.
    fn take(self, due: &AtomicU64, now: u64) -> bool {
        due.fetch_update(Relaxed, Relaxed, |due| {
            let due = due.max(now);
            (due - now <= self.ahead_ns).then(|| due.saturating_add(self.every_ns))
        })
        .is_ok()
    }
}

/// What is remembered of one source.
#[derive(Debug, Default)]
struct State {
    connections: AtomicU32,
    connects_due: AtomicU64,
    requests_due: AtomicU64,
}

impl State {
    /// Whether a source that is new would be treated alike.
    fn is_forgettable(&self, now: u64) -> bool {
        self.connections.load(Relaxed) == 0
            && self.connects_due.load(Relaxed) <= now
            && self.requests_due.load(Relaxed) <= now
    }
}

/// A source by what tells it from others: the address of IPv4, the first 64 bits of IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key(u64, bool);

impl Key {
    fn of(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(v4) => Self(v4.to_bits().into(), true),
            IpAddr::V6(v6) => Self((v6.to_bits() >> 64) as u64, false),
        }
    }
}

#[derive(Debug, Default)]
struct Shard {
    states: HashMap<Key, Arc<State>>,
    swept_ns: u64,
}

/// Why a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    Connections,
    Connects,
}

/// All sources.
#[derive(Debug)]
pub(crate) struct Sources {
    config: SourceLimitConfig,
    connects: Option<Rate>,
    requests: Option<Rate>,
    hasher: RandomState,
    shards: Vec<Mutex<Shard>>,
    max_per_shard: usize,
    since: Instant,
}

impl Sources {
    /// `None` where nothing is limited.
    pub(crate) fn new(config: &SourceLimitConfig) -> Option<Arc<Self>> {
        config.is_on().then(|| {
            Arc::new(Self {
                connects: Rate::new(config.connections_per_s, config.connections_burst),
                requests: Rate::new(config.requests_per_s, config.requests_burst),
                hasher: RandomState::new(),
                shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
                max_per_shard: config.max_sources.div_ceil(SHARDS),
                since: Instant::now(),
                config: config.clone(),
            })
        })
    }

    fn ns(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.since).as_nanos()).unwrap_or(u64::MAX)
    }

    /// What is known of a source; `None` where no more can be remembered.
    fn state(&self, key: Key, now: u64) -> Option<Arc<State>> {
        let shard = self.hasher.hash_one(key) as usize % SHARDS;
        let mut shard = self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = shard.states.get(&key) {
            return Some(Arc::clone(state));
        }
        if shard.states.len() >= self.max_per_shard {
            if now < shard.swept_ns {
                return None;
            }
            shard.swept_ns = now + SWEEP_EVERY_NS;
            // One that a connection is just being opened with is held by it.
            shard
                .states
                .retain(|_, state| Arc::strong_count(state) > 1 || !state.is_forgettable(now));
            if shard.states.len() >= self.max_per_shard {
                return None;
            }
        }
        Some(Arc::clone(shard.states.entry(key).or_default()))
    }

    /// A connection from there begins.
    ///
    /// # Errors
    /// The limit that it is over: it is to be closed.
    pub(crate) fn connect(self: &Arc<Self>, ip: IpAddr, now: Instant) -> Result<Admission, Over> {
        if self.config.exempt.iter().any(|network| network.contains(ip)) {
            return Ok(Admission::Exempt);
        }
        let now = self.ns(now);
        let Some(state) = self.state(Key::of(ip), now) else {
            return Ok(Admission::Untracked);
        };
        let most = match self.config.max_connections {
            0 => u32::MAX,
            most => most,
        };
        let room = state
            .connections
            .fetch_update(Relaxed, Relaxed, |open| (open < most).then(|| open + 1));
        if room.is_err() {
            return Err(Over::Connections);
        }
        let source = Source {
            sources: Arc::clone(self),
            state,
        };
        match self.connects {
            Some(rate) if !rate.take(&source.state.connects_due, now) => Err(Over::Connects),
            _ => Ok(Admission::Source(source)),
        }
    }
}

/// What a connection is let in as.
#[derive(Debug)]
pub(crate) enum Admission {
    Source(Source),
    /// Nobody limits it.
    Exempt,
    /// There are too many sources to remember this one.
    Untracked,
}

/// A connection's source; one of its connections for as long as this lives.
#[derive(Debug)]
pub(crate) struct Source {
    sources: Arc<Sources>,
    state: Arc<State>,
}

impl Source {
    /// A request comes at `now`; otherwise after how long one may come again.
    pub(crate) fn ask(&self, now: Instant) -> Result<(), Duration> {
        let Some(rate) = self.sources.requests else {
            return Ok(());
        };
        let now = self.sources.ns(now);
        let due = &self.state.requests_due;
        if rate.take(due, now) {
            return Ok(());
        }
        let ahead = due.load(Relaxed).saturating_sub(now);
        Err(Duration::from_nanos(ahead.saturating_sub(rate.ahead_ns)))
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.state.connections.fetch_sub(1, Relaxed);
    }
}

/// As text in log lines.
impl std::fmt::Display for Over {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connections => "sources.max_connections",
            Self::Connects => "sources.connections_per_s",
        })
    }
}

#[cfg(test)]
#[path = "sources_tests.rs"]
mod tests;
