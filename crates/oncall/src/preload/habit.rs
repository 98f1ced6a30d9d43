//! What workers of this process do after a read without waiting that found nothing: where they wait for their client, one such read an answer
//! need not be made.

use super::layout::{Connection, sent};
use super::sys;
use core::ffi::c_int;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

const UNKNOWN: u32 = 0;
/// They wait where the library sees it.
const WAITS: u32 = 1;
/// One ended its connection.
const OTHER: u32 = 2;

static HABIT: AtomicU32 = AtomicU32::new(UNKNOWN);

/// In a forked child, which may do something else.
pub fn forked() {
    HABIT.store(UNKNOWN, Relaxed);
}

/// A connection ends.
pub fn ends(connection: &Connection) {
    if connection.looked.load(Relaxed) == 1 {
        HABIT.store(OTHER, Relaxed);
    }
}

/// Whether a read without waiting is spared, since its connection's query is answered: the server is to wait for the next query, which is
/// where its worker is parked. Whatever is there already, the wait says. (A server that waits for edges with epoll would miss one: its
/// connections are not on call, see [`super::table::watched_by_server`].) One for each answer: a server that waits where we do not see it, for several
/// descriptors at once say, would never come to its client's query. And in a server alone whose workers were seen to wait after such a read,
/// and never to do something else: another closes the connection where nothing more is there, or waits for a signal.
pub fn spares(connection: &Connection) -> bool {
    let is_due = connection.sent.load(Relaxed) == sent::ANSWER && HABIT.load(Relaxed) == WAITS;
    if is_due {
        connection.sent.store(sent::SPARED, Relaxed);
        connection.looked.store(1, Relaxed);
    }
    is_due
}

/// A worker read without waiting, and had something or would have waited.
pub fn looked(connection: &Connection, read: isize) {
    let found_nothing = read < 0 && sys::errno() == sys::EAGAIN as c_int;
    if found_nothing && connection.sent.load(Relaxed) == sent::ANSWER {
        connection.looked.store(1, Relaxed);
    } else if read > 0 {
        connection.looked.store(0, Relaxed);
    }
}

/// A worker waits for its client where we see it.
pub fn waits(connection: &Connection) {
    if connection.looked.load(Relaxed) == 1 {
        connection.looked.store(0, Relaxed);
        let _ = HABIT.compare_exchange(UNKNOWN, WAITS, Relaxed, Relaxed);
    }
}
