//! The region of memory that the preload library and whoever steers it share: what is commanded, and what was counted.
//!
//! Every word is an atomic of its own, so that neither side can stop the other: the server runs on where its regulator died, and
//! a regulator reads what a dead server left. Times are CLOCK_MONOTONIC in nanoseconds, which all processes of a machine share.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

/// What the region begins with: its layout's name and version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"hdrmonc1");
/// Connections that can be on call at once; those beyond are served as without us, and counted in [`Region::unmanaged`].
pub const MAX_CONNECTIONS: usize = 4096;
/// The highest file descriptor of a connection that can be on call.
pub const MAX_FD: usize = 65_536;
/// A histogram's buckets: 16 for each doubling of a latency in microseconds.
pub const BUCKETS: usize = 16 * 32;
/// The latencies of a connection that are kept, as the tail-SLO policies want them (AppleS keeps as many).
pub const KEPT: usize = 128;

/// The environment's variable that names the region's file.
pub const VARIABLE: &str = "HEADROOM_ONCALL";

/// A batch size that leaves a connection at the common one.
pub const COMMON: i32 = -1;

/// The region.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Region {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// Programs that have loaded the library: at least 1 once the server runs.
    pub loaded: AtomicU32,
    /// The process whose connections are on call; 0 before its first one.
    pub owner: AtomicU32,

    /// Whether workers are parked at all; 0 lets everybody run, as without us.
    pub enabled: AtomicU32,
    /// C: workers that may run at once.
    pub concurrency: AtomicU32,
    /// N: queries of one connection in a round.
    pub batch: AtomicU32,
    /// How long a worker with queries left waits for its next one and keeps its slot, nanoseconds.
    pub linger_ns: AtomicU64,
    /// D: from the end of a round to the beginning of the next, nanoseconds.
    pub delay_ns: AtomicU64,
    /// Until when all of the above holds; later everybody runs. 0 is for ever.
    pub lease_until_ns: AtomicU64,

    /// Workers that hold a slot.
    pub running: AtomicU32,
    /// Connections that have a query and no slot.
    pub waiting: AtomicU32,
    /// Rounds ended.
    pub rounds: AtomicU64,
    /// Queries answered.
    pub queries: AtomicU64,
    /// Slots given back by workers that block inside a query.
    pub given_back: AtomicU64,
    /// Slots taken from workers that were found asleep inside a query.
    pub reclaimed: AtomicU64,
    /// Workers that were activated for nothing.
    pub spurious: AtomicU64,
    /// Queries let go without a slot: a timeout, a signal, or a lease that ended.
    pub without_slot: AtomicU64,
    /// Connections that came while the table was full.
    pub unmanaged: AtomicU64,
    /// Connections that the server watches with epoll: there is no worker to park.
    pub event_driven: AtomicU64,
    /// Forked processes that inherited connections: these serve themselves.
    pub forks: AtomicU64,
    /// Latencies of all queries, from the arrival as it was noticed to the answer.
    pub latencies: [AtomicU64; BUCKETS],
    /// The connections.
    pub connections: [Connection; MAX_CONNECTIONS],
}

/// One connection.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Connection {
    /// Counts the connections that had this place; odd while one has it.
    pub generation: AtomicU32,
    /// Its file descriptor.
    pub fd: AtomicI32,
    /// The thread that serves it; 0 before one does.
    pub tid: AtomicU32,
    /// The client's port; 0 where it came by a Unix socket.
    pub port: AtomicU32,
    /// The client's address: IPv4 mapped into IPv6 as ::ffff:a.b.c.d; 0 where it came by a Unix socket.
    pub address: [AtomicU64; 2],
    /// Its batch size; [`COMMON`] is [`Region::batch`], 0 gives it no turn but one in twenty seconds.
    pub quota: AtomicI32,
    /// Queries answered.
    pub queries: AtomicU64,
    /// Their latencies together, nanoseconds.
    pub latency_ns: AtomicU64,
    /// Times between the arrivals of queries together, nanoseconds.
    pub between_ns: AtomicU64,
    /// When the last query came.
    pub arrived_ns: AtomicU64,
    /// The last latencies, microseconds: query i at i modulo [`KEPT`].
    pub recent_us: [AtomicU32; KEPT],

    // What follows is the library's own.
    /// What its worker sleeps on: 1 lets it go.
    pub go: AtomicU32,
    /// Where it is: see the library's `state`.
    pub state: AtomicU32,
    /// 1 where its worker holds a slot.
    pub slot: AtomicU32,
    /// 1 where something came while its worker ran.
    pub pending: AtomicU32,
    /// 1 from the first byte of a query to the wait for the next.
    pub in_query: AtomicU32,
    /// 1 from the first byte of an answer on.
    pub sent: AtomicU32,
    /// Queries left in the round.
    pub tokens: AtomicI32,
    /// The round that these are of.
    pub round: AtomicU64,
    /// When the query that waits was noticed; 0 where none does.
    pub ready_ns: AtomicU64,
    /// When the query being answered was noticed.
    pub query_ns: AtomicU64,
}

/// The bucket of a latency: 16 to each doubling.
pub const fn bucket(microseconds: u64) -> usize {
    if microseconds < 16 {
        return microseconds as usize;
    }
    let doublings = 63 - microseconds.leading_zeros() as usize;
    let within = (microseconds >> (doublings - 4)) as usize & 15;
    let bucket = (doublings - 3) * 16 + within;
    if bucket < BUCKETS { bucket } else { BUCKETS - 1 }
}

/// The least latency of a bucket, microseconds.
pub const fn bucket_start(bucket: usize) -> u64 {
    if bucket < 16 {
        return bucket as u64;
    }
    let (doublings, within) = (bucket / 16 + 3, bucket as u64 % 16);
    (16 + within) << (doublings - 4)
}
