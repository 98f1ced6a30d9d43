//! What was counted, of a server and of each of its connections.

use super::now_ns;
use crate::layout::{Connection, blocked, bucket_start, protocol};
use headroom_units::Seconds;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// What was counted since the server's first connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Programs that have loaded the library.
    pub loaded: u32,
    /// The process whose connections are on call, or whose forked children's are; 0 before the first one.
    pub owner: u32,
    /// Whether its threads' connections were, and it has ended: nobody is on call until another process serves a client, and no query is counted.
    pub owner_ended: bool,
    /// Whether forked processes serve the connections, and not threads of one.
    pub by_processes: bool,
    /// Forked processes that were put on call so far.
    pub processes: u32,
    /// Workers that hold a slot now.
    pub running: u32,
    /// Connections that have a query and no slot now.
    pub waiting: u32,
    /// Connections that go before those that yield, and are blocked inside a query now.
    pub blocked: u32,
    /// Connections now.
    pub connections: u32,
    /// Rounds ended.
    pub rounds: u64,
    /// Queries answered, also by a failure.
    pub queries: u64,
    /// Those of them that the server failed, as far as its answers are read.
    pub failures: u64,
    /// Slots given back by workers that block inside a query.
    pub given_back: u64,
    /// Slots taken from workers found asleep inside a query.
    pub reclaimed: u64,
    /// Workers activated for nothing.
    pub spurious: u64,
    /// Queries let go without a slot.
    pub without_slot: u64,
    /// Connections for which there was no room.
    pub unmanaged: u64,
    /// Connections that came while the library lacked descriptors or a thread of its own.
    pub lacking: u64,
    /// Connections that the server watches with epoll.
    pub event_driven: u64,
    /// Connections that threads of another process serve than the one whose were on call when they came.
    pub elsewhere: u64,
    /// Forks of a process whose connections are on call.
    pub forks: u64,
    /// Places taken back from processes that ended without leaving.
    pub buried: u64,
    /// Times that a holder of the shared lock ended with it in hand, and the next one set its lists right.
    pub recovered: u64,
    /// Queries that did not fail by latency: buckets of [`bucket_start`].
    pub latencies: Vec<u64>,
}

impl Totals {
    /// What came after an earlier state.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let difference = |of: fn(&Self) -> u64| of(self).saturating_sub(of(earlier));
        let latencies = self.latencies.iter().enumerate();
        Self {
            rounds: difference(|totals| totals.rounds),
            queries: difference(|totals| totals.queries),
            failures: difference(|totals| totals.failures),
            given_back: difference(|totals| totals.given_back),
            reclaimed: difference(|totals| totals.reclaimed),
            spurious: difference(|totals| totals.spurious),
            without_slot: difference(|totals| totals.without_slot),
            latencies: latencies
                .map(|(at, count)| count.saturating_sub(earlier.latencies.get(at).copied().unwrap_or(0)))
                .collect(),
            ..self.clone()
        }
    }

    /// The latency under which a share of the queries stayed, to within a sixteenth; `None` where there was none. It counts from when
    /// the library noticed the query, which while all slots are taken is up to a millisecond after it came.
    pub fn percentile(&self, share: f64) -> Option<Seconds> {
        let all: u64 = self.latencies.iter().sum();
        let wanted = (share * all as f64).ceil().max(1.0) as u64;
        let mut counted = 0;
        let at = self.latencies.iter().position(|count| {
            counted += count;
            counted >= wanted
        })?;
        // The middle of the bucket.
        let (start, end) = (bucket_start(at), bucket_start(at + 1));
        Some(Seconds::new((start + end) as f64 / 2e6))
    }
}

/// What was counted of one connection.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionTotals {
    /// Its place in the region, and how many had that place before: together its name.
    pub place: (usize, u32),
    /// The client; `None` where it came by a Unix socket.
    pub client: Option<SocketAddr>,
    /// The user that the client gave, where the protocol is one that says it: MySQL's or PostgreSQL's.
    pub user: Option<String>,
    /// Its descriptor in the server.
    pub fd: i32,
    /// The thread or the process that serves it; `None` before one does.
    pub tid: Option<u32>,
    /// Whether it is in the midst of a transaction, as the server told its client with the last answer; `None` where its protocol does not
    /// say.
    pub in_transaction: Option<bool>,
    /// Whether it has asked for locks of the server that outlive a transaction, as far as that is seen.
    pub holds_locks: bool,
    /// Whether it goes before others, and its worker is blocked inside a query: who holds locks does not give way meanwhile.
    pub is_blocked: bool,
    /// Queries answered, also by a failure.
    pub queries: u64,
    /// Those of them that the server failed; `None` where its answers are not read.
    pub failures: Option<u64>,
    /// The latencies of the others together.
    pub latency: Seconds,
    /// Times between the arrivals of queries together.
    pub between: Seconds,
    /// The last latencies, at most [`crate::layout::KEPT`], in no order.
    pub recent: Vec<Seconds>,
    /// For how long a query was noticed that is not answered yet; `None` where there is none.
    pub unanswered: Option<Seconds>,
}

/// When the query was noticed that a connection has and that is not answered yet; 0 where there is none.
pub(super) fn asked_at(connection: &Connection) -> u64 {
    match connection.in_query.load(Relaxed) {
        1 => connection.query_ns.load(Relaxed),
        _ => connection.ready_ns.load(Relaxed),
    }
}

pub(super) fn is_taken(connection: &Connection) -> bool {
    connection.generation.load(Acquire) % 2 == 1
}

/// How many had its place before, with its own, and its queries; `None` where nobody is there, or another came while it was read.
pub(super) fn queries(connection: &Connection) -> Option<(u32, u64)> {
    let generation = connection.generation.load(Acquire);
    let queries = connection.queries.load(Relaxed);
    std::sync::atomic::fence(Acquire);
    (generation % 2 == 1 && connection.generation.load(Acquire) == generation)
        .then_some((generation, queries))
}

pub(super) fn described(place: usize, connection: &Connection) -> Option<ConnectionTotals> {
    let generation = connection.generation.load(Acquire);
    let seconds = |nanoseconds: u64| Seconds::new(nanoseconds as f64 / 1e9);
    let [high, low] = [0, 1].map(|half| connection.address[half].load(Relaxed));
    let address = Ipv6Addr::from(u128::from(high) << 64 | u128::from(low));
    let address = address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4);
    let port = connection.port.load(Relaxed) as u16;
    let failures = connection.failures.load(Relaxed);
    let queries = connection.queries.load(Relaxed);
    let timed = queries.saturating_sub(failures);
    let kept = connection
        .recent_us
        .iter()
        .take(usize::try_from(timed).unwrap_or(usize::MAX));
    let speaks = connection.protocol.load(Relaxed);
    let totals = ConnectionTotals {
        place: (place, generation),
        client: (port != 0).then(|| SocketAddr::new(address, port)),
        user: user(connection),
        fd: connection.fd.load(Relaxed),
        tid: Some(connection.tid.load(Relaxed)).filter(|tid| *tid != 0),
        in_transaction: [protocol::MYSQL, protocol::POSTGRESQL]
            .contains(&speaks)
            .then(|| connection.in_transaction.load(Relaxed) == 1),
        holds_locks: connection.holds.load(Relaxed) != 0,
        is_blocked: connection.blocked.load(Relaxed) == blocked::COUNTED,
        queries,
        failures: (speaks != protocol::UNKNOWN).then_some(failures),
        latency: seconds(connection.latency_ns.load(Relaxed)),
        between: seconds(connection.between_ns.load(Relaxed)),
        recent: kept
            .map(|us| Seconds::new(f64::from(us.load(Relaxed)) / 1e6))
            .collect(),
        unanswered: Some(asked_at(connection))
            .filter(|at| *at != 0)
            .map(|at| seconds(now_ns().saturating_sub(at))),
    };
    // Another connection may have come to its place while it was read.
    std::sync::atomic::fence(Acquire);
    (generation % 2 == 1 && connection.generation.load(Acquire) == generation).then_some(totals)
}

fn user(connection: &Connection) -> Option<String> {
    let words = connection
        .user
        .each_ref()
        .map(|word| word.load(Relaxed).to_le_bytes());
    let bytes: Vec<u8> = words.concat().into_iter().take_while(|byte| *byte != 0).collect();
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{BUCKETS, bucket};

    #[test]
    fn a_latency_is_in_the_bucket_that_begins_before_it() {
        for microseconds in (0..200_000).chain([1 << 30, (1 << 32) - 1]) {
            let at = bucket(microseconds);
            assert!(bucket_start(at) <= microseconds, "{microseconds}");
            assert!(
                at == BUCKETS - 1 || microseconds < bucket_start(at + 1),
                "{microseconds}"
            );
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_percentile_is_within_a_sixteenth() {
        let mut totals = Totals {
            latencies: vec![0; BUCKETS],
            ..Totals::default()
        };
        assert_eq!(totals.percentile(0.5), None);
        for microseconds in 1..=1000 {
            totals.latencies[bucket(microseconds)] += 1;
        }
        let p99 = totals.percentile(0.99).unwrap();
        assert!((p99.get() / 0.00099 - 1.0).abs() < 1.0 / 16.0, "{p99:?}");
        assert_eq!(totals.since(&totals).percentile(0.99), None);
    }
}
