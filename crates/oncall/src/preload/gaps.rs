//! When arrivals are looked for, and when what is found came where nobody had looked for long: the server was idle, or it was stopped while it
//! was, and its clients waited. Then the kernel is asked, which costs nothing where there is load.

use super::layout::{Connection, Region};
use super::sys;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// While slots are taken and somebody waits, arrivals are noticed at least so often.
pub const NOTICE_NS: u64 = 1_000_000;
/// Where nobody has looked for arrivals for so long, the server was idle, or stopped: the kernel says when what is found then came.
pub const GAP_NS: u64 = 50_000_000;
/// By the kernel's ticks what it says may be so much too long, beside what a wake-up takes.
const TICKS_NS: u64 = 20_000_000;
/// A worker that had read its query by the first look after that may take so long until it says so.
const RESUMES_NS: u64 = 200_000_000;
/// When arrivals were looked for last.
static NOTICED: AtomicU64 = AtomicU64::new(0);
/// When they were for the first time after a gap.
static RESUMED: AtomicU64 = AtomicU64::new(0);

/// When arrivals were looked for last; 0 where they never were.
pub fn last_look() -> u64 {
    NOTICED.load(Relaxed)
}

/// All arrivals are noted that were there at this time. Who finds that somebody has looked finds what they noted, too.
pub fn looked(now: u64) {
    if is_gap(now) {
        RESUMED.store(now, Relaxed);
    }
    NOTICED.store(now, Release);
}

/// Whether nobody has looked for arrivals for long.
pub fn is_gap(now: u64) -> bool {
    now.saturating_sub(NOTICED.load(Acquire)) > GAP_NS
}

/// Whether nobody had looked for arrivals for long until now, or a moment ago.
pub fn is_after_gap(now: u64) -> bool {
    is_gap(now) || now.saturating_sub(RESUMED.load(Relaxed)) < RESUMES_NS
}

/// The same where each worker is a process, and finds its client's queries itself: whether none of them had found any for long until now, or a
/// moment ago. In words that all share, written once a millisecond at most.
pub fn is_after_shared_gap(region: &Region, now: u64) -> bool {
    let before = region.noticed_ns.load(Relaxed);
    let since = now.saturating_sub(before);
    if since > NOTICE_NS {
        region.noticed_ns.store(now, Relaxed);
    }
    if before != 0 && since > GAP_NS {
        region.resumed_ns.store(now, Relaxed);
    }
    before == 0 || since > GAP_NS || now.saturating_sub(region.resumed_ns.load(Relaxed)) < RESUMES_NS
}

/// When a query came that its worker found itself after a gap: the worker was woken for it, or with all others after a stop.
pub fn found_after_gap(connection: &Connection, now: u64) -> u64 {
    let answered = connection.sent_ns.load(Relaxed);
    match now.saturating_sub(answered) > GAP_NS {
        true => dated(connection, now, now).max(answered),
        false => now,
    }
}

/// When a client's data came for which its worker has waited since it began to.
pub fn came_while_waiting(connection: &Connection, began: u64, now: u64) -> u64 {
    match now.saturating_sub(began) > GAP_NS {
        true => dated(connection, now, now),
        false => now,
    }
}

/// When what a connection has now came, as the kernel says of TCP; since this time at most where it does not, as of Unix sockets.
pub fn dated(connection: &Connection, since: u64, now: u64) -> u64 {
    // A client of a Unix socket has no port.
    let asks = connection.port.load(Relaxed) != 0;
    match asks
        .then(|| sys::data_came_ago(connection.fd.load(Relaxed)))
        .flatten()
    {
        Some(ago) if ago > TICKS_NS => now.saturating_sub(ago),
        Some(_) => since.max(now.saturating_sub(TICKS_NS)),
        None => since,
    }
}

/// Whether arrivals are to be looked for while nobody is on call.
pub fn is_look_due(now: u64) -> bool {
    now.saturating_sub(NOTICED.load(Relaxed)) > NOTICE_NS
}
