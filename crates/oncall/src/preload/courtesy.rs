//! A worker that gives its slot up wakes the next, and then goes to sleep. Where the kernel let the woken one preempt it, each query would
//! cost a switch more: to the next worker, and back to the one before for its last instructions. So workers are SCHED_BATCH while they are
//! on call (sched(7): a woken one does not preempt a running one, and all else is as with SCHED_OTHER), and SCHED_OTHER again when they are not.

use super::layout::Connection;
use super::sys;
use super::table;
use core::sync::atomic::Ordering::Relaxed;

/// What [`Connection::courtesy`] says: of a thread that serves its first query here nothing is known.
const UNKNOWN: u32 = 0;
const OTHER: u32 = 1;
const BATCH: u32 = 2;

/// The kernel's numbers.
const SCHED_OTHER: i32 = 0;
const SCHED_BATCH: i32 = 3;

/// Has the calling thread, which serves this connection, not preempt others when it is woken, or be as it was. A thread that the server
/// gave another policy keeps it.
pub fn keep(connection: &Connection, is_on_call: bool) {
    let (wanted, from, to) = match is_on_call {
        true => (BATCH, SCHED_OTHER, SCHED_BATCH),
        false => (OTHER, SCHED_BATCH, SCHED_OTHER),
    };
    if connection.courtesy.load(Relaxed) == wanted {
        return;
    }
    connection.courtesy.store(wanted, Relaxed);
    if sys::scheduling_policy() == from {
        sys::set_scheduling_policy(to);
    }
}

/// In a forked child: it is nobody's worker, and what it runs is not to be either.
pub fn forked() {
    let was = table::own_connection().map(|connection| connection.courtesy.load(Relaxed));
    if was == Some(BATCH) && sys::scheduling_policy() == SCHED_BATCH {
        sys::set_scheduling_policy(SCHED_OTHER);
    }
}

/// Another thread serves the connection from now on.
pub fn forget(connection: &Connection) {
    connection.courtesy.store(UNKNOWN, Relaxed);
}
