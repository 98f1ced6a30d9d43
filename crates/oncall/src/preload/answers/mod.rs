//! What a server's answers say, in whatever pieces they go out: whether their client is in the midst of a transaction, and whether the
//! server failed.
//!
//! What fails is what the server could not do, as with HTTP's 5xx. That a statement is wrong, breaks a constraint, lost against another
//! transaction or was cancelled by its client is an answer, as a 4xx is.

mod http;
mod mysql;
mod postgresql;

use super::layout::{Connection, protocol};
use super::users::{load, store};
use core::sync::atomic::Ordering::Relaxed;

/// What a part of an answer says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Whether it leaves its client in a transaction; `None` where it does not say.
    pub in_transaction: Option<bool>,
    /// Whether the server failed.
    pub failed: bool,
    /// Whether it is HTTP's.
    pub is_http: bool,
    /// Whether it is no more than HTTP's word that an answer is to come, which may be when the rest of the query is there.
    pub is_interim: bool,
    /// The number of the statement that was prepared.
    pub prepared: Option<u32>,
}

impl Heard {
    /// The same with what came later.
    fn and(self, later: Self) -> Self {
        Self {
            in_transaction: later.in_transaction.or(self.in_transaction),
            failed: self.failed || later.failed,
            is_http: self.is_http || later.is_http,
            is_interim: later.is_interim,
            prepared: later.prepared.or(self.prepared),
        }
    }
}

/// The next message is the first of an answer.
pub const BEGINS: u64 = 1 << 63;
/// What goes out is not understood, until the next query.
const LOST: u64 = 1 << 60;

/// How far the answers are read when the next query is there.
pub const fn asked(speaks: u32, answer: u64) -> u64 {
    match speaks {
        protocol::MYSQL => mysql::asked(answer),
        // Its messages tell where they end, and a part of one may be out while its client asks on.
        protocol::POSTGRESQL => answer & !LOST,
        _ => BEGINS,
    }
}

/// What bytes of an answer say that go out now.
pub fn read(connection: &Connection, bytes: &[u8]) -> Heard {
    let answer = connection.answer.load(Relaxed);
    let (answer, heard) = match connection.protocol.load(Relaxed) {
        protocol::MYSQL => {
            let mut reader = mysql::Reader::of(answer);
            reader.pieces.resume(connection);
            let heard = reader.read(bytes);
            reader.pieces.interrupt(connection);
            (reader.answer(), heard)
        }
        protocol::POSTGRESQL => {
            let mut reader = postgresql::Reader::of(answer);
            reader.pieces.resume(connection);
            let heard = reader.read(bytes);
            reader.pieces.interrupt(connection);
            (reader.answer(), heard)
        }
        _ => http::read(answer, bytes),
    };
    connection.answer.store(answer, Relaxed);
    heard
}

/// Classes of SQLSTATE of what the server could not do (PostgreSQL, "Error Codes"): connection exception, insufficient resources, operator
/// intervention, system error, internal error, configuration file error.
const FAILED_CLASSES: [&[u8]; 6] = [b"08", b"53", b"57", b"58", b"XX", b"F0"];
/// Of these `query_canceled`, by its client or by a timeout that was set, and `protocol_violation`, which is the client's.
const ANSWERS: [&[u8]; 2] = [b"57014", b"08P01"];

/// Whether an error with this SQLSTATE is the server's failure.
fn is_failed(state: &[u8]) -> bool {
    FAILED_CLASSES.iter().any(|class| state.starts_with(class)) && !ANSWERS.contains(&state)
}

/// Messages that go out in whatever pieces.
struct Pieces {
    /// Bytes of a message that are of no interest and yet to come.
    left: u32,
    /// Bytes of the next message's beginning that went out.
    held: u8,
    /// That beginning.
    head: [u8; Self::HEAD],
}

impl Pieces {
    /// The most that is wanted of a message.
    const HEAD: usize = 64;
    const HELD: u32 = 32;

    fn of(answer: u64) -> Self {
        Self {
            left: answer as u32,
            held: (answer >> Self::HELD) as u8 % Self::HEAD as u8,
            head: [0; Self::HEAD],
        }
    }

    fn answer(&self) -> u64 {
        u64::from(self.left) | u64::from(self.held) << Self::HELD
    }

    fn resume(&mut self, connection: &Connection) {
        if self.held > 0 {
            load(&connection.head, &mut self.head);
        }
    }

    fn interrupt(&self, connection: &Connection) {
        if self.held > 0 {
            store(&connection.head, &self.head[..usize::from(self.held)]);
        }
    }

    /// Goes on to the next message, as far as it is there: how many bytes of its beginning are in `head`, and of how many it is. By its header
    /// of so many bytes `extent` says both.
    fn next(
        &mut self,
        bytes: &mut &[u8],
        header: usize,
        extent: impl FnOnce(&[u8; Self::HEAD]) -> (usize, usize),
    ) -> Option<(usize, usize)> {
        let skipped = bytes.len().min(self.left as usize);
        self.left -= skipped as u32;
        *bytes = &bytes[skipped..];
        if bytes.is_empty() {
            return None;
        }
        let held = usize::from(self.held);
        let taken = bytes.len().min(Self::HEAD - held);
        self.head[held..held + taken].copy_from_slice(&bytes[..taken]);
        let there = held + taken;
        let (wanted, whole) = match there < header {
            true => (header, header),
            false => extent(&self.head),
        };
        if there < wanted {
            // All of them are in the head.
            self.held = there as u8;
            *bytes = &[];
            return None;
        }
        // What was held of it is less than is wanted, unless other processes wrote what is shared.
        *bytes = bytes.get(wanted.saturating_sub(held)..).unwrap_or_default();
        self.left = (whole - wanted) as u32;
        self.held = 0;
        Some((wanted, whole))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// What is heard of an answer that goes out in pieces of these sizes, over and over.
    pub fn in_pieces(connection: &Connection, bytes: &[u8], sizes: &[usize]) -> Heard {
        let mut heard = Heard::default();
        let mut rest = bytes;
        for size in sizes.iter().cycle() {
            let (piece, after) = rest.split_at(rest.len().min(*size));
            heard = heard.and(read(connection, piece));
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        heard
    }

    /// A connection of which this protocol is spoken, and that has asked.
    pub fn connection(speaks: u32) -> Box<Connection> {
        // SAFETY: all of its fields are atomics, for which zeros are values.
        let connection: Box<Connection> = Box::new(unsafe { core::mem::zeroed() });
        connection.protocol.store(speaks, Relaxed);
        connection.answer.store(BEGINS, Relaxed);
        connection
    }

    #[test]
    fn what_the_server_could_not_do_has_failed_and_what_it_refused_is_an_answer() {
        for failed in [
            "08006", "53100", "53300", "57P01", "57P03", "58000", "58030", "XX000", "XX001", "F0000",
        ] {
            assert!(is_failed(failed.as_bytes()), "{failed}");
        }
        // Done, a duplicate key, a read-only transaction, a serialization failure, a deadlock, syntax, cancelled, malformed, no lock, a user's own.
        for answer in [
            "00000", "23505", "25006", "40001", "40P01", "42601", "57014", "08P01", "55P03", "45000",
            "HY000", "", "5",
        ] {
            assert!(!is_failed(answer.as_bytes()), "{answer}");
        }
    }
}
