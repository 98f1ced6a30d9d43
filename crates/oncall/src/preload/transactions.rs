//! Whether a client is in the midst of a transaction, as its server tells it with each answer: MySQL's status flags in OK and EOF packets,
//! PostgreSQL's ReadyForQuery. Who is may hold locks. So while the worker of somebody who goes first is blocked inside a query
//! ([`Region::blocked`]), whoever is in a transaction neither yields nor rests nor pauses: it may be what that one waits for. And nobody
//! pauses in the first second of a transaction; the first pause after it makes up for those.
//!
//! Under TLS and MySQL's compression nothing is seen of it. Locks that outlive a transaction (LOCK TABLES, GET_LOCK, pg_advisory_lock) are
//! in no answer.

use super::layout::{Connection, Region};
use super::sys;
use super::users::{load, store};
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

/// For so long after its beginning nobody pauses in a transaction.
const UNPAUSED_NS: u64 = 1_000_000_000;

/// Whether a connection may hold what somebody waits for that it would let go first.
pub fn may_block(region: &Region, connection: &Connection, now: u64) -> bool {
    connection.in_transaction.load(Relaxed) == 1
        && region.blocked.load(Relaxed) > 0
        && now < region.blocked_until_ns.load(Relaxed)
}

/// Whether a connection is in the first second of a transaction.
pub fn has_begun(connection: &Connection, now: u64) -> bool {
    connection.in_transaction.load(Relaxed) == 1
        && now.saturating_sub(connection.transaction_ns.load(Relaxed)) < UNPAUSED_NS
}

/// An answer that goes out begins with the next packet.
const BEGINS: u64 = MysqlAnswer::IS_FIRST;

/// What a client speaks is known: what its server says from now on is read.
pub fn begin(connection: &Connection, speaks: u32) {
    connection.answer.store(BEGINS, Relaxed);
    connection.protocol.store(speaks, Relaxed);
}

/// A query came: what is sent from now on is its answer.
pub fn ask(connection: &Connection) {
    let kept = connection.answer.load(Relaxed) & MysqlAnswer::BY_HAND;
    connection.answer.store(kept | BEGINS, Relaxed);
}

/// Errors after which a server has rolled the whole transaction back, and does not say so in flags: ER_LOCK_TABLE_FULL, ER_LOCK_DEADLOCK,
/// ER_XA_RBROLLBACK, ER_XA_RBTIMEOUT, ER_XA_RBDEADLOCK, ER_TRANSACTION_ROLLBACK_DURING_COMMIT.
const ROLLED_BACK: [u16; 6] = [1206, 1213, 1402, 1613, 1614, 3101];

const IN_TRANSACTION: u16 = 1;
const AUTOCOMMIT: u16 = 2;
const MORE_RESULTS: u16 = 8;

/// Bytes of an answer went out.
pub fn sent(connection: &Connection, buffer: *const c_void, length: usize) {
    let protocol = connection.protocol.load(Relaxed);
    if protocol == protocol::UNKNOWN || length == 0 || buffer.is_null() {
        return;
    }
    // SAFETY: the caller has just sent so many bytes from there.
    let bytes = unsafe { core::slice::from_raw_parts(buffer.cast::<u8>(), length) };
    let answer = connection.answer.load(Relaxed);
    let (answer, said) = match protocol {
        protocol::MYSQL => {
            let mut reader = MysqlAnswer::resumed(answer, connection);
            let said = reader.read(bytes);
            (reader.interrupted(connection), said)
        }
        _ => postgresql(answer, bytes),
    };
    connection.answer.store(answer, Relaxed);
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

/// How far a server's answer is read.
///
/// A packet is three bytes of length, a number, and the payload. Which one has flags is known by where it is: the first of a result is OK
/// where it begins with 0 (a row may begin so, too), and any that begins with 254 is EOF, with the flags after a count of warnings, or with
/// `CLIENT_DEPRECATE_EOF` built as OK (MariaDB, "OK_Packet" and "EOF_Packet"). It may go out in whatever pieces.
struct MysqlAnswer {
    /// Bytes of a packet that are of no interest and yet to come.
    left: u32,
    /// Bytes of the next packet's beginning that went out.
    held: u8,
    /// Whether the next packet is the first of a result.
    is_first: bool,
    /// Whether the next packet goes on with the payload of the one before, which was of full length.
    continues: bool,
    /// Whether the last flags said that statements are not committed by themselves.
    by_hand: bool,
    /// That beginning.
    head: [u8; MysqlAnswer::HEAD],
}

impl MysqlAnswer {
    const IS_FIRST: u64 = 1 << 63;
    const CONTINUES: u64 = 1 << 62;
    const BY_HAND: u64 = 1 << 61;
    const HELD: u32 = 32;
    /// A packet's header, and of its payload what has the flags behind the two longest numbers.
    const HEAD: usize = 32;
    const FULL: usize = 0xff_ffff;

    fn resumed(answer: u64, connection: &Connection) -> Self {
        let mut reader = Self::of(answer);
        if reader.held > 0 {
            load(&connection.head, &mut reader.head);
        }
        reader
    }

    fn of(answer: u64) -> Self {
        Self {
            left: answer as u32,
            held: (answer >> Self::HELD) as u8 % Self::HEAD as u8,
            is_first: answer & Self::IS_FIRST != 0,
            continues: answer & Self::CONTINUES != 0,
            by_hand: answer & Self::BY_HAND != 0,
            head: [0; Self::HEAD],
        }
    }

    /// As a number, with the beginning kept.
    fn interrupted(&self, connection: &Connection) -> u64 {
        if self.held > 0 {
            store(&connection.head, &self.head[..usize::from(self.held)]);
        }
        self.answer()
    }

    fn answer(&self) -> u64 {
        let bit = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
        u64::from(self.left)
            | u64::from(self.held) << Self::HELD
            | bit(self.is_first, Self::IS_FIRST)
            | bit(self.continues, Self::CONTINUES)
            | bit(self.by_hand, Self::BY_HAND)
    }

    /// Whether the last of the packets that end here, and say so, leaves its client in a transaction.
    fn read(&mut self, bytes: &[u8]) -> Option<bool> {
        let mut said = None;
        let mut bytes = bytes;
        while !bytes.is_empty() {
            let skipped = bytes.len().min(self.left as usize);
            self.left -= skipped as u32;
            bytes = &bytes[skipped..];
            let held = usize::from(self.held);
            let taken = bytes.len().min(Self::HEAD - held);
            let head = &mut self.head;
            head[held..held + taken].copy_from_slice(&bytes[..taken]);
            let (there, length) = (held + taken, length(head));
            let wanted = Self::HEAD.min(4 + length);
            if there < 4 || there < wanted {
                // All of them are in the head.
                self.held = there as u8;
                break;
            }
            // What was held of it is less than is wanted, unless other processes wrote what is shared.
            bytes = bytes.get(wanted.saturating_sub(held)..).unwrap_or_default();
            self.left = (4 + length - wanted) as u32;
            self.held = 0;
            let payload = *head;
            said = self.packet(&payload[4..wanted], length).or(said);
        }
        said
    }

    fn packet(&mut self, payload: &[u8], length: usize) -> Option<bool> {
        let continues = core::mem::replace(&mut self.continues, length == Self::FULL);
        if continues {
            return None;
        }
        let is_first = core::mem::take(&mut self.is_first);
        let flags = match payload.first()? {
            0 if is_first && !is_prepared(payload, length) => flags_of_ok(payload),
            254 if length == 5 => payload
                .get(3..5)
                .map(|flags| u16::from_le_bytes([flags[0], flags[1]])),
            // The first of an answer names another way to log in, unless two zeros follow (a fetch without rows).
            254 if is_first && payload.get(1..3) != Some(&[0, 0]) => None,
            254 if (7..Self::FULL).contains(&length) => flags_of_ok(payload),
            255 => {
                let number = payload.get(1..3)?;
                let number = u16::from_le_bytes([number[0], number[1]]);
                return match ROLLED_BACK.contains(&number) {
                    true => Some(false),
                    // It may have begun one, and has no flags.
                    false => self.by_hand.then_some(true),
                };
            }
            _ => None,
        }?;
        self.is_first = flags & MORE_RESULTS != 0;
        self.by_hand = flags & AUTOCOMMIT == 0;
        Some(flags & IN_TRANSACTION != 0)
    }
}

fn length(head: &[u8]) -> usize {
    usize::from(head[0]) | usize::from(head[1]) << 8 | usize::from(head[2]) << 16
}

/// Whether the first packet of an answer is of a statement that was prepared ("COM_STMT_PREPARE_OK"): 12 bytes, of which the tenth is 0,
/// behind numbers of four, two and two. An OK packet is as long only where it has one number of two bytes and one of three.
fn is_prepared(payload: &[u8], length: usize) -> bool {
    let is_ok = |first: u8, at: usize, second: u8| payload[1] == first && payload[at] == second;
    length == 12 && payload[9] == 0 && !is_ok(252, 4, 253) && !is_ok(253, 5, 252)
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
        MysqlAnswer::of(BEGINS).read(bytes)
    }

    fn error(number: u16) -> Vec<u8> {
        packet(1, &[&[255], &number.to_le_bytes()[..], b"#42000no"].concat())
    }

    #[test]
    fn the_status_flags_of_an_ok_packet_say_whether_a_transaction_began_or_ended() {
        assert_eq!(said(&ok(3)), Some(true));
        assert_eq!(said(&ok(2)), Some(false));
        // 300 rows changed, and a number given to the first of a new kind.
        let changed = packet(1, &[0, 252, 44, 1, 253, 1, 0, 1, 3, 0, 0, 0]);
        assert_eq!(said(&changed), Some(true), "as long as a prepared statement's");
        let changed = packet(1, &[0, 253, 1, 0, 1, 252, 44, 1, 2, 0, 0, 0]);
        assert_eq!(said(&changed), Some(false));
        assert_eq!(said(&error(1064)), None);
        assert_eq!(said(&error(1213)), Some(false), "a deadlock");
    }

    #[test]
    fn an_error_may_have_begun_a_transaction_where_nothing_commits_by_itself() {
        let mut reader = MysqlAnswer::of(BEGINS);
        // autocommit = 0, and no transaction yet.
        assert_eq!(reader.read(&ok(0)), Some(false));
        let mut reader = MysqlAnswer::of(reader.answer() | BEGINS);
        assert_eq!(reader.read(&error(1062)), Some(true));
        assert_eq!(reader.read(&error(1213)), Some(false));
        let mut reader = MysqlAnswer::of(BEGINS);
        reader.read(&ok(2));
        assert_eq!(reader.read(&error(1062)), None);
    }

    #[test]
    fn what_goes_on_with_a_long_row_is_no_packet_of_its_own() {
        let mut bytes = packet(1, &[1]);
        bytes.extend(packet(2, b"\x03def"));
        bytes.extend(packet(3, &[254, 0, 0, 2, 0]));
        bytes.extend(packet(4, &vec![7; MysqlAnswer::FULL]));
        // The rest of its row looks like the end of the result.
        bytes.extend(packet(5, &[254, 0, 0, 3, 0]));
        assert_eq!(said(&bytes), Some(false));
        bytes.extend(packet(6, &[254, 0, 0, 3, 0]));
        assert_eq!(said(&bytes), Some(true));
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
        /// In whatever pieces an answer goes out, it says the same.
        #[test]
        fn an_answer_in_pieces_says_the_same(
            lengths in proptest::collection::vec(1_usize..400, 0..20),
            is_in: bool,
            sizes in proptest::collection::vec(1_usize..40, 1..20),
        ) {
            let row = |length: &usize| [vec![0; 1], vec![7; *length]].concat();
            let all: Vec<Vec<u8>> = lengths.iter().map(row).collect();
            let all: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
            let mut bytes = rows(&all, 2 | MORE_RESULTS | u16::from(!is_in));
            bytes.extend(ok(2 | u16::from(is_in)));
            prop_assert_eq!(said(&bytes), Some(is_in));
            let (mut answer, mut head, mut last) = (BEGINS, [0; MysqlAnswer::HEAD], None);
            let mut rest = &bytes[..];
            for size in sizes.iter().cycle() {
                let (piece, after) = rest.split_at(rest.len().min(*size));
                let mut reader = MysqlAnswer::of(answer);
                reader.head = head;
                last = reader.read(piece).or(last);
                (answer, head, rest) = (reader.answer(), reader.head, after);
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(answer, 0);
            prop_assert_eq!(last, Some(is_in));
        }

        #[test]
        fn nothing_that_is_sent_stops_it(answer: u64, bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            MysqlAnswer::of(answer).read(&bytes);
            postgresql(answer, &bytes);
        }
    }
}
