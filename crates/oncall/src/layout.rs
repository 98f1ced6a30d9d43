//! The region of memory that the preload library and whoever steers it share: what is commanded, and what was counted.
//!
//! Every word is an atomic of its own, so that neither side can stop the other: the server runs on where its regulator died, and
//! a regulator reads what a dead server left. Times are CLOCK_MONOTONIC in nanoseconds, which all processes of a machine share.

use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// What the region begins with: its layout's name and version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"hdrmonc9");
/// Connections that can be on call at once; those beyond are served as without us, and counted in [`Region::unmanaged`].
pub const MAX_CONNECTIONS: usize = 4096;
/// The highest file descriptor of a connection that can be on call.
pub const MAX_FD: usize = 65_536;
/// A histogram's buckets: 16 for each doubling of a latency in microseconds.
pub const BUCKETS: usize = 16 * 32;
/// The latencies of a connection that are kept, as the tail-SLO policies want them (AppleS keeps as many).
pub const KEPT: usize = 128;

/// Areas of cores that connections can be divided among at once.
pub const AREAS: usize = 8;
/// Words of a set of processors: those of a higher number than this holds are in no area.
pub const CPU_WORDS: usize = 16;
/// Lists of who waits, in each area.
pub const LISTS: usize = 4;

/// Bytes of a user's name that are kept.
pub const USER: usize = 128;
/// Bytes of a message's beginning that are kept, where it comes or goes in pieces.
pub const HEAD: usize = 256;

/// The environment's variable that names the region's file.
pub const VARIABLE: &str = "HEADROOM_ONCALL";
/// The environment's variable that names the region as an open descriptor: NUMBER:DEVICE:INODE, in decimal.
pub const DESCRIPTOR_VARIABLE: &str = "HEADROOM_ONCALL_FD";

/// A batch size that leaves a connection at the common one.
pub const COMMON: i32 = -1;

/// A connection that is given no turn has one all the same after so long (AppleS).
pub const STARVED_NS: u64 = 20_000_000_000;
/// A connection that yields has a turn all the same after so long. It may hold locks of the server, for which those wait that it yields to,
/// that its protocol does not tell of.
pub const YIELDED_NS: u64 = 1_000_000_000;

/// Queries in a round of a connection that has asked for locks that last, while one waits that goes first: as many as a policy may give that one
/// and all of its kind, or a round of theirs would pass for each of its statements.
pub const SPARED_QUERIES: i32 = 1_024;

/// What [`Connection::sent`] says.
pub mod sent {
    /// Nothing was sent since the query came.
    pub const NOTHING: u32 = 0;
    /// A part of the answer at least.
    pub const ANSWER: u32 = 1;
    /// The same, and a read that would not have waited was spared since.
    pub const SPARED: u32 = 2;
}

/// Whether a connection's worker is blocked inside a query.
pub mod blocked {
    /// It is not.
    pub const NOT: u32 = 0;
    /// It is, and is counted in [`super::Region::blocked`].
    pub const COUNTED: u32 = 1;
    /// It is, and goes before nobody, as far as is known.
    pub const UNCOUNTED: u32 = 2;
}

/// Prepared statements of a connection that are remembered, of those that do something to locks.
pub const PREPARED: usize = 4;

/// What a connection's client speaks, as its first message says, or as its server answers.
pub mod protocol {
    /// Nothing that is known.
    pub const UNKNOWN: u32 = 0;
    /// MySQL's, also MariaDB's.
    pub const MYSQL: u32 = 1;
    /// PostgreSQL's.
    pub const POSTGRESQL: u32 = 2;
    /// HTTP.
    pub const HTTP: u32 = 3;
}

/// What serves the connections that are on call.
pub mod mode {
    /// Nobody yet.
    pub const UNDECIDED: u32 = 0;
    /// The threads of one process.
    pub const THREADS: u32 = 1;
    /// Forked processes, each with one connection at a time.
    pub const PROCESSES: u32 = 2;
}

/// The region.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Region {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// Programs that have loaded the library: at least 1 once the server runs.
    pub loaded: AtomicU32,
    /// The process whose connections are on call, or whose forked children's are; 0 before the first one. Where its threads serve them it stays
    /// when it has ended, until another's do: see [`Region::serving`].
    pub owner: AtomicU32,
    /// What serves them: see [`mode`].
    pub mode: AtomicU32,
    /// Forked processes that were put on call so far.
    pub processes: AtomicU32,

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

    /// Areas of cores that connections are divided among; 0 has everybody run everywhere. They hold as long as the lease.
    pub area_count: AtomicU32,
    /// Counts the divisions, so that a worker sees that there is another.
    pub area_stamp: AtomicU32,
    /// The areas.
    pub areas: [Area; AREAS],

    /// Workers that hold a slot.
    pub running: AtomicU32,
    /// Connections that have a query and no slot.
    pub waiting: AtomicU32,
    /// Rounds ended.
    pub rounds: AtomicU64,
    /// Queries answered, also by a failure.
    pub queries: AtomicU64,
    /// Those of them that the server failed, as far as its answers are read.
    pub failures: AtomicU64,
    /// Slots given back by workers that block inside a query.
    pub given_back: AtomicU64,
    /// Slots taken from workers that were found asleep inside a query.
    pub reclaimed: AtomicU64,
    /// Workers that were activated for nothing.
    pub spurious: AtomicU64,
    /// For how long a query holds a slot, nanoseconds: a moving mean of some hundred.
    pub held_ns: AtomicU64,
    /// Connections that go before those that yield, and whose workers are blocked inside a query: perhaps by one that yields, which
    /// does not while it may hold what they wait for.
    pub blocked: AtomicU32,
    /// Until when these count: a while after the last of them began to wait.
    pub blocked_until_ns: AtomicU64,
    /// 1 where whose turn it is has changed, and with it perhaps who of the blocked goes first.
    pub regiven: AtomicU32,
    /// 1 where some may pause with locks in hand.
    pub pausing: AtomicU32,
    /// Queries let go without a slot: a timeout, a signal, or a lease that ended.
    pub without_slot: AtomicU64,
    /// Connections that came while the table was full.
    pub unmanaged: AtomicU64,
    /// Connections that the server watches with epoll: there is no worker to park.
    pub event_driven: AtomicU64,
    /// Connections that came while the library lacked descriptors or a thread of its own.
    pub lacking: AtomicU64,
    /// Connections that threads of another process serve than the one whose are on call.
    pub elsewhere: AtomicU64,
    /// Forks of a process whose connections are on call.
    pub forks: AtomicU64,
    /// Places taken back from processes that ended without leaving.
    pub buried: AtomicU64,
    /// Times that the lock was found with a holder that had ended.
    pub recovered: AtomicU64,
    /// Latencies of all queries that the server did not fail, from the arrival as it was noticed to the answer.
    pub latencies: [AtomicU64; BUCKETS],
    /// The connections.
    pub connections: [Connection; MAX_CONNECTIONS],

    // What follows is the library's own.
    /// The lock of the lists where processes share them: a robust mutex of libc's, which the kernel hands on when its holder ends.
    pub lock: [AtomicU64; 8],
    /// When a process that serves a client found a query of its last.
    pub noticed_ns: AtomicU64,
    /// When one did for the first time after a gap.
    pub resumed_ns: AtomicU64,
    /// The place, plus 1, of the waiting worker that looks after the others; 0 where none waits.
    pub watchman: AtomicU32,
    /// When the watchman looked last: one that is stopped looks no more.
    pub watched_ns: AtomicU64,
    /// 1 where the holder of the lock is stopped: until it goes on nobody waits for the lock, and all run as without us.
    pub stalled: AtomicU32,
    /// When the places of processes that ended were looked for last.
    pub swept_ns: AtomicU64,
    /// A robust mutex of libc's that our own thread in the owner holds all the while, where threads serve: whether that is alive, whoever has its
    /// number now.
    pub serving: [AtomicU64; 8],
    /// When it was first seen that this thread has ended, and its process perhaps not; 0 where it was not.
    pub ended_ns: AtomicU64,
    /// Who waits for a slot.
    pub lists: Lists,
}

/// Cores, and how many workers may run there at once.
#[repr(C)]
#[derive(Debug)]
pub struct Area {
    /// The processors, a bit each.
    pub cpus: [AtomicU64; CPU_WORDS],
    /// C of the area alone; 0 has it go by that of all, and by how many run in all areas.
    pub workers: AtomicU32,
}

/// Four lists of connections with a query for each area, linked through their places plus 1, where 0 is none: those with tokens in this
/// round, those without, and of both those that yield. Each area has rounds of its own. Touched under the lock alone.
#[repr(C)]
#[derive(Debug)]
pub struct Lists {
    /// The first of each list.
    pub first: [AtomicU16; LISTS * AREAS],
    /// The last of each list.
    pub last: [AtomicU16; LISTS * AREAS],
    /// Who is before each place.
    pub before: [AtomicU16; MAX_CONNECTIONS],
    /// Who is after each place.
    pub after: [AtomicU16; MAX_CONNECTIONS],
    /// Which list a connection is in, plus 1.
    pub member: [AtomicU8; MAX_CONNECTIONS],
    /// The round of each area.
    pub round: [AtomicU64; AREAS],
    /// Queries let go in this round.
    pub served: [AtomicU64; AREAS],
    /// When the first query of this round was let go.
    pub began_ns: [AtomicU64; AREAS],
    /// When somebody was let go last.
    pub granted_ns: [AtomicU64; AREAS],
    /// No round begins earlier.
    pub not_before: [AtomicU64; AREAS],
    /// The round, plus 1, in which one that yields was let go before others that wait, for it had waited for long; 0 of none.
    pub pressed: [AtomicU64; AREAS],
    /// Slots taken in each area.
    pub running: [AtomicU32; AREAS],
    /// The division by which they are sorted: its stamp, 0 where there is none.
    pub divided: AtomicU32,
    /// Where the search for a free place begins.
    pub hint: AtomicU32,
    /// No place at or after this one was ever taken.
    pub top: AtomicU32,
}

/// One connection.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Connection {
    /// Counts the connections that had this place; odd while one has it.
    pub generation: AtomicU32,
    /// Its file descriptor.
    pub fd: AtomicI32,
    /// The thread that serves it, or the process; 0 before one does.
    pub tid: AtomicU32,
    /// The client's port; 0 where it came by a Unix socket.
    pub port: AtomicU32,
    /// The client's address: IPv4 mapped into IPv6 as ::ffff:a.b.c.d; 0 where it came by a Unix socket.
    pub address: [AtomicU64; 2],
    /// The user that its client gave as it began, in bytes that follow each other, ended by a zero; nothing where the protocol is not known.
    pub user: [AtomicU64; USER / 8],
    /// Its batch size; [`COMMON`] is [`Region::batch`], 0 gives it no turn but one in twenty seconds.
    pub quota: AtomicI32,
    /// 1 lets all others go first.
    pub yields: AtomicU32,
    /// 1 gives it no turn in the round after one in which it had one, while others wait.
    pub rests: AtomicU32,
    /// How long it asks for no other turn when its tokens are used up, nanoseconds.
    pub pause_ns: AtomicU64,
    /// Its area, plus 1; 0 of one that nobody has placed yet, which is in the last.
    pub area: AtomicU32,
    /// Queries answered, also by a failure.
    pub queries: AtomicU64,
    /// Those of them that the server failed.
    pub failures: AtomicU64,
    /// The latencies of the others together, nanoseconds.
    pub latency_ns: AtomicU64,
    /// Times between the arrivals of queries together, nanoseconds.
    pub between_ns: AtomicU64,
    /// When the last query came.
    pub arrived_ns: AtomicU64,
    /// The last latencies, microseconds: of the queries that did not fail number i at i modulo [`KEPT`].
    pub recent_us: [AtomicU32; KEPT],

    // What follows is the library's own.
    /// What its worker sleeps on: 1 lets it go, 2 has it look again.
    pub go: AtomicU32,
    /// Where it is: see the library's `state`.
    pub state: AtomicU32,
    /// 1 where its worker holds a slot.
    pub slot: AtomicU32,
    /// The area whose slot its worker holds.
    pub gate: AtomicU32,
    /// Which division its worker's processors are of: its stamp; 0 where they are the worker's own.
    pub pinned: AtomicU32,
    /// Its area, plus 1, in that.
    pub pinned_to: AtomicU32,
    /// The processors that its worker had before.
    pub former: [AtomicU64; CPU_WORDS],
    /// 1 where something came while its worker ran.
    pub pending: AtomicU32,
    /// 1 from the first byte of a query to the wait for the next.
    pub in_query: AtomicU32,
    /// From the first byte of an answer on, that there is one: see [`sent`].
    pub sent: AtomicU32,
    /// 1 where its worker, with the answer sent, read without waiting last, and there was nothing.
    pub looked: AtomicU32,
    /// What its client speaks: see [`protocol`].
    pub protocol: AtomicU32,
    /// How far its client has said who it is: see the library's `users`.
    pub greeting: AtomicU32,
    /// The beginning of the message that is read: the client's first ones, later the server's packets.
    pub head: [AtomicU64; HEAD / 8],
    /// 1 where its client is in the midst of a transaction, as far as the protocol tells.
    pub in_transaction: AtomicU32,
    /// When that was first said.
    pub transaction_ns: AtomicU64,
    /// How far an answer is read: see the library's `answers`.
    pub answer: AtomicU64,
    /// 1 where the answer to its query says that the server failed.
    pub failed: AtomicU32,
    /// How far a request is read: see the library's `holders`.
    pub request: AtomicU64,
    /// The name or number of a prepared statement, as far as it is read.
    pub named: AtomicU32,
    /// What the statement does to locks that its client prepared last: see the library's `holders`.
    pub preparing: AtomicU32,
    /// Prepared statements that do something to locks.
    pub prepared: [AtomicU64; PREPARED],
    /// Locks beyond a transaction that its client has asked for: see the library's `holders`.
    pub holds: AtomicU32,
    /// Pauses that were spared it in a transaction, which its next one makes up for.
    pub owed: AtomicU32,
    /// Whether its worker is blocked inside a query: see [`blocked`].
    pub blocked: AtomicU32,
    /// What its worker sleeps on in a pause, where it has 1; something else ends the pause.
    pub pausing: AtomicU32,
    /// When the last query ended, or the first byte of the answer to this one went out, or the connection was accepted: what its client
    /// sent since came later.
    pub sent_ns: AtomicU64,
    /// How its worker is scheduled, as far as is known: see the library's `courtesy`.
    pub courtesy: AtomicU32,
    /// Queries left in the round.
    pub tokens: AtomicI32,
    /// The round that these are of.
    pub round: AtomicU64,
    /// The round of its last turn, plus 1; 0 of none.
    pub ran: AtomicU64,
    /// When the query that waits was noticed; 0 where none does.
    pub ready_ns: AtomicU64,
    /// When the query being answered was noticed.
    pub query_ns: AtomicU64,
    /// When its worker had its slot, or ended a query, the later of these.
    pub since_ns: AtomicU64,
    /// A robust mutex of libc's that the process which serves it holds all the while: whether it is alive, whoever has its number now.
    pub alive: [AtomicU64; 8],
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
