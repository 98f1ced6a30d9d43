//! Who may hold locks of the server: who is in the midst of a transaction, as the server tells with each answer ([`answers`]), who asked for
//! locks that outlive one ([`holders`]), and who is not seen at all, under TLS and MySQL's compression. So while the worker of somebody who
//! goes first is blocked inside a query ([`Region::blocked`]), whoever may hold some neither yields nor rests nor pauses: it may be what that
//! one waits for. And nobody pauses in the first second of a transaction; the first pause after it makes up for those.

use super::answers::{self, Heard};
use super::holders;
use super::layout::{Connection, Region, protocol, sent};
use super::sys;
use super::users;
use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;

/// For so long after its beginning nobody pauses in a transaction.
const UNPAUSED_NS: u64 = 1_000_000_000;

/// Whether a connection may hold what somebody waits for that it would let go first. Waits are counted for a while each, for most that are
/// longer are for no lock; but as long as there is any, whoever has asked for locks that last may be what it is for.
pub fn may_block(region: &Region, connection: &Connection, now: u64) -> bool {
    region.blocked.load(Relaxed) > 0
        && (connection.holds.load(Relaxed) != 0
            || may_hold(connection) && now < region.blocked_until_ns.load(Relaxed))
}

/// Whether a connection may hold locks of the server between two queries.
pub fn may_hold(connection: &Connection) -> bool {
    connection.in_transaction.load(Relaxed) == 1
        || connection.holds.load(Relaxed) != 0
        || users::is_unseen(connection)
}

/// Whether a connection is in the first second of a transaction.
pub fn has_begun(connection: &Connection, now: u64) -> bool {
    connection.in_transaction.load(Relaxed) == 1
        && now.saturating_sub(connection.transaction_ns.load(Relaxed)) < UNPAUSED_NS
}

/// What a client speaks is known: what its server says from now on is read, and what it asks.
pub fn begin(connection: &Connection, speaks: u32) {
    connection.answer.store(answers::BEGINS, Relaxed);
    connection.request.store(0, Relaxed);
    connection.protocol.store(speaks, Relaxed);
}

/// A query came: what is sent from now on is its answer.
pub fn ask(connection: &Connection) {
    let speaks = connection.protocol.load(Relaxed);
    let answer = answers::asked(speaks, connection.answer.load(Relaxed));
    connection.answer.store(answer, Relaxed);
    let request = holders::asked(speaks, connection.request.load(Relaxed));
    connection.request.store(request, Relaxed);
    connection.failed.store(0, Relaxed);
}

/// Bytes of an answer went out.
pub fn sent(connection: &Connection, buffer: *const c_void, length: usize) {
    if length == 0 || buffer.is_null() {
        return;
    }
    // SAFETY: the caller has just sent so many bytes from there.
    let bytes = unsafe { core::slice::from_raw_parts(buffer.cast::<u8>(), length) };
    let Heard {
        in_transaction,
        failed,
        is_http,
        is_interim,
        prepared,
    } = answers::read(connection, bytes);
    if failed {
        connection.failed.store(1, Relaxed);
    }
    if is_http {
        connection.protocol.store(protocol::HTTP, Relaxed);
    }
    if is_interim {
        // The rest of the query may come yet.
        connection.sent.store(sent::NOTHING, Relaxed);
    }
    if let Some(number) = prepared {
        holders::prepared(connection, number);
    }
    if let Some(is_in) = in_transaction {
        let was_in = connection.in_transaction.swap(u32::from(is_in), Relaxed) == 1;
        if is_in && !was_in {
            connection.transaction_ns.store(sys::now(), Relaxed);
        }
    }
}

/// Bytes of an answer went out from several buffers, as many as are said in all.
pub fn sent_parts(connection: &Connection, parts: *const Part, count: usize, length: usize) {
    if parts.is_null() || length == 0 {
        return;
    }
    // SAFETY: the caller has just sent what these name.
    let parts = unsafe { core::slice::from_raw_parts(parts, count) };
    let mut left = length;
    for part in parts {
        if left == 0 {
            break;
        }
        let length = part.length.min(left);
        sent(connection, part.base, length);
        left -= length;
    }
}

/// `struct iovec`.
#[repr(C)]
pub struct Part {
    base: *const c_void,
    length: usize,
}
