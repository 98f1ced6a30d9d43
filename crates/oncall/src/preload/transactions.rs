//! Whether a client is in the midst of a transaction, as its server tells it with each answer: MySQL's status flags in OK and EOF packets,
//! PostgreSQL's ReadyForQuery. Who is may hold locks for which those wait that it would let go first, so it neither yields, nor rests, nor
//! pauses until the transaction ends, for a second at most: a client that stays in one for ever would go before none any more.
//!
//! Under TLS and MySQL's compression nothing is seen of it. Locks that outlive a transaction (LOCK TABLES, GET_LOCK, pg_advisory_lock) are
//! in no answer.

use super::layout::Connection;
use super::sys;
use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;

/// What a connection's client speaks, as its first message says.
pub mod protocol {
    /// Nothing that is known.
    pub const UNKNOWN: u32 = 0;
    /// MySQL's, also MariaDB's.
    pub const MYSQL: u32 = 1;
    /// PostgreSQL's.
    pub const POSTGRESQL: u32 = 2;
}

/// For so long after its beginning nobody is held up in a transaction.
const SPARED_NS: u64 = 1_000_000_000;

/// Whether a connection is in the first second of a transaction.
pub fn is_spared(connection: &Connection, now: u64) -> bool {
    connection.in_transaction.load(Relaxed) == 1
        && now.saturating_sub(connection.transaction_ns.load(Relaxed)) < SPARED_NS
}

/// What [`Connection::answer`] says before an answer's first byte.
pub const BEGINS: u64 = IS_FIRST;
/// An answer whose packets cannot be told apart any more: its rest says nothing.
const LOST: u64 = u64::MAX;
/// The next packet is the first of a result; the bits below are how many bytes of a packet are yet to come before it.
const IS_FIRST: u64 = 1 << 63;

/// An error after which the server has rolled the whole transaction back, and does not say so in flags: a deadlock (ER_LOCK_DEADLOCK).
const DEADLOCK: u16 = 1213;

const IN_TRANSACTION: u16 = 1;
const MORE_RESULTS: u16 = 8;

/// Bytes of an answer went out.
pub fn sent(connection: &Connection, buffer: *const c_void, length: usize) {
    let protocol = connection.protocol.load(Relaxed);
    if protocol == protocol::UNKNOWN || length == 0 || buffer.is_null() {
        return;
    }
    // SAFETY: the caller has just sent so many bytes from there.
    let bytes = unsafe { core::slice::from_raw_parts(buffer.cast::<u8>(), length) };
    let said = match protocol {
        protocol::MYSQL => {
            let (answer, said) = mysql(connection.answer.load(Relaxed), bytes);
            connection.answer.store(answer, Relaxed);
            said
        }
        _ => {
            let (answer, said) = postgresql(connection.answer.load(Relaxed), bytes);
            connection.answer.store(answer, Relaxed);
            said
        }
    };
    if let Some(is_in) = said {
        let was_in = connection.in_transaction.swap(u32::from(is_in), Relaxed) == 1;
        if is_in && !was_in {
            connection.transaction_ns.store(sys::now(), Relaxed);
        }
    }
}

/// Bytes of an answer went out from several buffers, as many as are said in all.
pub fn sent_parts(connection: &Connection, parts: *const Part, count: usize, length: usize) {
    if connection.protocol.load(Relaxed) == protocol::UNKNOWN || parts.is_null() {
        return;
    }
    // SAFETY: the caller has just sent what these name.
    let parts = unsafe { core::slice::from_raw_parts(parts, count) };
    let mut left = length;
    for part in parts {
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

/// What the last of the packets says that carry the status flags, of those that these bytes hold, and where in the answer they end.
///
/// A packet is three bytes of length, a number, and the payload. Which one has flags is known by where it is: the first of a result is OK
/// where it begins with 0 (a row may begin so, too), and any that begins with 254 is EOF, with the flags after a count of warnings, or with
/// `CLIENT_DEPRECATE_EOF` built as OK (MariaDB, "OK_Packet" and "EOF_Packet").
fn mysql(answer: u64, bytes: &[u8]) -> (u64, Option<bool>) {
    if answer == LOST {
        return (LOST, None);
    }
    let mut is_first = answer & IS_FIRST != 0;
    let mut at = (answer & !IS_FIRST) as usize;
    let mut said = None;
    while at < bytes.len() {
        let Some(&[low, middle, high, _]) = bytes.get(at..at + 4) else {
            return (LOST, said);
        };
        let length = usize::from(low) | usize::from(middle) << 8 | usize::from(high) << 16;
        let begins = at + 4;
        at = begins + length;
        let payload = &bytes[begins.min(bytes.len())..at.min(bytes.len())];
        let flags = match payload.first() {
            Some(0) if is_first && !is_prepared(payload) => flags_of_ok(payload),
            Some(254) if length == 5 => payload
                .get(3..5)
                .map(|flags| u16::from_le_bytes([flags[0], flags[1]])),
            // The first of an answer names another way to log in, unless two zeros follow (a fetch without rows).
            Some(254) if is_first && payload.get(1..3) != Some(&[0, 0]) => None,
            Some(254) if (7..0xff_ffff).contains(&length) => flags_of_ok(payload),
            _ => None,
        };
        if let Some(flags) = flags {
            said = Some(flags & IN_TRANSACTION != 0);
        } else if payload.first() == Some(&255) && payload.get(1..3) == Some(&DEADLOCK.to_le_bytes()) {
            said = Some(false);
        }
        is_first = flags.is_some_and(|flags| flags & MORE_RESULTS != 0);
    }
    let rest = (at - bytes.len()) as u64;
    (rest | if is_first { IS_FIRST } else { 0 }, said)
}

/// Whether the first packet of an answer is of a statement that was prepared ("COM_STMT_PREPARE_OK"): 12 bytes, of which the tenth is 0.
fn is_prepared(payload: &[u8]) -> bool {
    payload.len() == 12 && payload[9] == 0
}

/// The flags of an OK packet: after its first byte and two numbers.
fn flags_of_ok(payload: &[u8]) -> Option<u16> {
    let mut at = 1;
    for _ in 0..2 {
        at += match payload.get(at)? {
            0..=250 => 1,
            252 => 3,
            253 => 4,
            254 => 9,
            _ => return None,
        };
    }
    let flags = payload.get(at..at + 2)?;
    Some(u16::from_le_bytes([flags[0], flags[1]]))
}

/// What PostgreSQL's "ReadyForQuery" says, which ends an answer: `Z`, its length of 5, and `I` outside of a transaction, `T` in one and `E`
/// in one that failed; and the last bytes that went out, as a number, since the answer may go out in pieces.
fn postgresql(answer: u64, bytes: &[u8]) -> (u64, Option<bool>) {
    let newest = &bytes[bytes.len().saturating_sub(6)..];
    let last = newest.iter().fold(answer, |last, byte| {
        (last << 8 | u64::from(*byte)) & 0xffff_ffff_ffff
    });
    let [_, _, ready @ .., status] = last.to_be_bytes();
    let said = match (ready, status) {
        ([b'Z', 0, 0, 0, 5], b'I') => Some(false),
        ([b'Z', 0, 0, 0, 5], b'T' | b'E') => Some(true),
        _ => None,
    };
    (last, said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One packet.
    fn packet(number: u8, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_le_bytes();
        [&length[..3], &[number], payload].concat()
    }

    fn ok(status: u16) -> Vec<u8> {
        let [low, high] = status.to_le_bytes();
        packet(1, &[0, 0, 0, low, high, 0, 0])
    }

    /// A result of one column and these rows, whose end is an EOF packet.
    fn rows(rows: &[&[u8]], status: u16) -> Vec<u8> {
        let [low, high] = status.to_le_bytes();
        let mut bytes = packet(1, &[1]);
        bytes.extend(packet(2, b"\x03def\x04shop\x00\x00\x01c\x00"));
        bytes.extend(packet(3, &[254, 0, 0, low, high]));
        for row in rows {
            bytes.extend(packet(4, row));
        }
        bytes.extend(packet(5, &[254, 0, 0, low, high]));
        bytes
    }

    fn said(bytes: &[u8]) -> Option<bool> {
        mysql(BEGINS, bytes).1
    }

    #[test]
    fn the_status_flags_of_an_ok_packet_say_whether_a_transaction_began_or_ended() {
        assert_eq!(said(&ok(3)), Some(true));
        assert_eq!(said(&ok(2)), Some(false));
        // 300 rows changed, and a number given to the first of a new kind.
        let changed = packet(1, &[0, 252, 44, 1, 253, 1, 0, 1, 3, 0, 0, 0]);
        assert_eq!(said(&changed), None, "as long as a prepared statement's");
        let changed = packet(1, &[0, 252, 44, 1, 253, 1, 0, 1, 3, 0, 0, 0, b'!']);
        assert_eq!(said(&changed), Some(true));
        let error = packet(1, b"\xff\x28\x04#42000no");
        assert_eq!(said(&error), None);
        let deadlock = packet(1, b"\xff\xbd\x04#40001Deadlock");
        assert_eq!(said(&deadlock), Some(false));
    }

    #[test]
    fn a_result_says_it_at_its_end_and_no_row_says_it() {
        // Rows of the binary protocol begin with 0 as OK does.
        assert_eq!(said(&rows(&[b"\x00\x00\x00\x00\x00\x00\x00"], 3)), Some(true));
        assert_eq!(said(&rows(&[b"\x00\x00\x00\x01\x00\x00\x00"], 2)), Some(false));
        // An end built as OK.
        let mut bytes = packet(1, &[1]);
        bytes.extend(packet(2, &[0, 0, 0, 0, 0, 0, 0]));
        bytes.extend(packet(3, &[254, 0, 0, 3, 0, 0, 0]));
        assert_eq!(said(&bytes), Some(true));
        // Two results.
        let mut bytes = rows(&[b"\x01a"], 2 | MORE_RESULTS);
        bytes.extend(ok(3));
        assert_eq!(said(&bytes), Some(true));
    }

    #[test]
    fn a_prepared_statement_says_nothing() {
        let prepared = packet(1, &[0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(said(&prepared), None);
    }

    #[test]
    fn ready_for_query_is_the_end_of_an_answer_in_whatever_pieces() {
        let said = |bytes: &[u8]| postgresql(BEGINS, bytes).1;
        assert_eq!(said(b"C\0\0\0\x0aBEGIN\0Z\0\0\0\x05T"), Some(true));
        assert_eq!(said(b"C\0\0\0\x0bCOMMIT\0Z\0\0\0\x05I"), Some(false));
        assert_eq!(said(b"Z\0\0\0\x05E"), Some(true));
        assert_eq!(said(b"Z\0\0\0\x05X"), None);
        assert_eq!(said(b"\0\0\0\x05I"), None);
        assert_eq!(said(b"D\0\0\0\x0b\0\x01\0\0\0\x01I"), None);
        let whole = b"C\0\0\0\x0bSELECT 1\0Z\0\0\0\x05T";
        for cut in 0..whole.len() {
            let (first, second) = whole.split_at(cut);
            let (answer, early) = postgresql(BEGINS, first);
            assert_eq!((early, postgresql(answer, second).1), (None, Some(true)), "{cut}");
        }
    }

    #[test]
    fn another_way_to_log_in_is_no_end_of_a_result() {
        assert_eq!(
            said(&packet(1, b"\xfemysql_native_password\0saltsaltsaltsaltsalt\0")),
            None
        );
        // A fetch that has no rows left.
        assert_eq!(said(&packet(1, &[254, 0, 0, 3, 0, 0, 0])), Some(true));
        assert_eq!(said(&packet(1, &[254, 0, 0, 3, 0])), Some(true));
    }

    proptest! {
        /// In whatever pieces an answer goes out, it says the same, as long as no piece ends within a packet's length.
        #[test]
        fn an_answer_in_pieces_says_the_same(
            lengths in proptest::collection::vec(1_usize..400, 0..20),
            is_in: bool,
            cut in 0.0..1.0_f64,
        ) {
            let row = |length: &usize| [vec![0; 1], vec![7; *length]].concat();
            let all: Vec<Vec<u8>> = lengths.iter().map(row).collect();
            let all: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
            let bytes = rows(&all, 2 | u16::from(is_in));
            prop_assert_eq!(said(&bytes), Some(is_in));
            let (first, second) = bytes.split_at((cut * bytes.len() as f64) as usize);
            let (answer, early) = mysql(BEGINS, first);
            let (end, late) = mysql(answer, second);
            if answer == LOST {
                prop_assert_eq!(late, None);
            } else {
                prop_assert_eq!(end, 0);
                prop_assert_eq!(late.or(early), Some(is_in));
            }
        }

        #[test]
        fn nothing_that_is_sent_stops_it(answer: u64, bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let answer = answer % (1 << 25);
            mysql(answer, &bytes);
            postgresql(answer, &bytes);
        }
    }
}
