//! What MySQL's packets say: three bytes of length, a number, and the payload.
//!
//! Which one has flags is known by where it is: the first of a result is OK where it begins with 0 (a row may begin so, too), and any that
//! begins with 254 is EOF, with the flags after a count of warnings, or with `CLIENT_DEPRECATE_EOF` built as OK (MariaDB, "OK_Packet" and
//! "EOF_Packet"). One that begins with 255 is an error: its number, `#`, and five bytes of SQLSTATE ("ERR_Packet").

use super::{BEGINS, Heard, Pieces, is_failed};

/// Errors after which a server has rolled the whole transaction back, and does not say so in flags: ER_LOCK_TABLE_FULL, ER_LOCK_DEADLOCK,
/// ER_XA_RBROLLBACK, ER_XA_RBTIMEOUT, ER_XA_RBDEADLOCK, ER_TRANSACTION_ROLLBACK_DURING_COMMIT.
const ROLLED_BACK: [u16; 6] = [1206, 1213, 1402, 1613, 1614, 3101];

/// What the server could not do, of errors whose SQLSTATE says no more than "general error" (MariaDB, "MariaDB Error Code Reference"), for
/// most have that: of its files EE_READ, EE_WRITE, EE_DISK_FULL, ER_CANT_OPEN_FILE, ER_DISK_FULL, ER_ERROR_ON_READ, ER_ERROR_ON_WRITE,
/// ER_GET_ERRNO (an engine's), ER_RECORD_FILE_FULL, ER_ERROR_DURING_COMMIT, ER_CRASHED_ON_USAGE, ER_CRASHED_ON_REPAIR; of memory
/// and threads EE_OUTOFMEMORY, ER_OUTOFMEMORY, ER_OUT_OF_SORTMEMORY, ER_OUT_OF_RESOURCES, ER_CANT_CREATE_THREAD, ER_LOCK_TABLE_FULL; and
/// ER_UNKNOWN_ERROR, ER_INTERNAL_ERROR, ER_READ_ONLY_MODE (InnoDB's, after damage).
///
/// Left out, as answers: ER_LOCK_WAIT_TIMEOUT, for it waited for another client's transaction, and for so long that it counts as late;
/// ER_QUERY_INTERRUPTED and ER_CONNECTION_KILLED, which somebody asked for; ER_OPTION_PREVENTS_STATEMENT, which is `--read-only` but
/// also `--secure-file-priv`, and as configured (PostgreSQL's standby answers 25006); ER_CANT_CREATE_TABLE, mostly a foreign key that is wrong;
/// ER_CHECKREAD, another client's change; what reads or writes a file that its client names.
const FAILED: [u16; 21] = [
    2, 3, 5, 20, 1016, 1021, 1024, 1026, 1030, 1037, 1038, 1041, 1105, 1114, 1135, 1180, 1194, 1195, 1206,
    1815, 1836,
];

/// Errors whose SQLSTATE is of the connection, class 08, and that are the client's: ER_HANDSHAKE_ERROR, ER_NET_PACKET_TOO_LARGE, and from
/// ER_NET_PACKETS_OUT_OF_ORDER to ER_NET_WRITE_INTERRUPTED what it did not send, or take, as it should.
const OF_CLIENTS: [u16; 8] = [1043, 1153, 1156, 1157, 1158, 1159, 1160, 1161];

/// ER_UNKNOWN_COM_ERROR.
const UNKNOWN_COMMAND: u16 = 1047;

const IN_TRANSACTION: u16 = 1;
const AUTOCOMMIT: u16 = 2;
const MORE_RESULTS: u16 = 8;

const CONTINUES: u64 = 1 << 62;
const BY_HAND: u64 = 1 << 61;

/// How far the answers are read when the next query is there: its answer begins with a packet, and whether statements are committed by
/// themselves stays.
pub const fn asked(answer: u64) -> u64 {
    answer & BY_HAND | BEGINS
}

/// How far a server's answer is read.
pub struct Reader {
    pub pieces: Pieces,
    /// Whether the next packet is the first of a result.
    is_first: bool,
    /// Whether the next packet goes on with the payload of the one before, which was of full length.
    continues: bool,
    /// Whether the last flags said that statements are not committed by themselves.
    by_hand: bool,
}

impl Reader {
    const HEADER: usize = 4;
    /// A packet's header, and of its payload what has the flags behind the two longest numbers.
    const WANTED: usize = 32;
    const FULL: usize = 0xff_ffff;

    pub fn of(answer: u64) -> Self {
        Self {
            pieces: Pieces::of(answer),
            is_first: answer & BEGINS != 0,
            continues: answer & CONTINUES != 0,
            by_hand: answer & BY_HAND != 0,
        }
    }

    pub fn answer(&self) -> u64 {
        let bit = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
        self.pieces.answer()
            | bit(self.is_first, BEGINS)
            | bit(self.continues, CONTINUES)
            | bit(self.by_hand, BY_HAND)
    }

    /// What the packets say of which enough went out with these bytes.
    pub fn read(&mut self, mut bytes: &[u8]) -> Heard {
        let mut heard = Heard::default();
        let extent = |head: &[u8; Pieces::HEAD]| {
            let whole = Self::HEADER + length(head);
            (Self::WANTED.min(whole), whole)
        };
        while let Some((there, whole)) = self.pieces.next(&mut bytes, Self::HEADER, extent) {
            let head = self.pieces.head;
            heard = heard.and(self.packet(&head[Self::HEADER..there], whole - Self::HEADER));
        }
        heard
    }

    fn packet(&mut self, payload: &[u8], length: usize) -> Heard {
        let continues = core::mem::replace(&mut self.continues, length == Self::FULL);
        if continues {
            return Heard::default();
        }
        let is_first = core::mem::take(&mut self.is_first);
        let flags = match payload {
            [0, number @ ..] if is_first && is_prepared(payload, length) => {
                let prepared = number.first_chunk().map(|number| u32::from_le_bytes(*number));
                return Heard {
                    prepared,
                    ..Heard::default()
                };
            }
            [0, ..] if is_first => flags_of_ok(payload),
            [254, _, _, low, high] => Some(u16::from_le_bytes([*low, *high])),
            // The first of an answer names another way to log in, unless two zeros follow (a fetch without rows).
            [254, rest @ ..] if is_first && !rest.starts_with(&[0, 0]) => None,
            [254, ..] if (7..Self::FULL).contains(&length) => flags_of_ok(payload),
            [255, low, high, rest @ ..] => return self.error(u16::from_le_bytes([*low, *high]), rest),
            _ => None,
        };
        let Some(flags) = flags else {
            return Heard::default();
        };
        self.is_first = flags & MORE_RESULTS != 0;
        self.by_hand = flags & AUTOCOMMIT == 0;
        Heard {
            in_transaction: Some(flags & IN_TRANSACTION != 0),
            ..Heard::default()
        }
    }

    /// An error with this number, and what follows that.
    fn error(&self, number: u16, rest: &[u8]) -> Heard {
        let state = match rest {
            [b'#', state @ ..] => state.get(..5),
            _ => None,
        };
        let is_of_client = match number {
            // A command that is not known; or Galera's node has no cluster, which it says so.
            UNKNOWN_COMMAND => !rest.get(6..).is_some_and(|text| text.starts_with(b"WSREP")),
            _ => OF_CLIENTS.contains(&number),
        };
        let has_failed = FAILED.contains(&number) || state.is_some_and(is_failed);
        Heard {
            in_transaction: match ROLLED_BACK.contains(&number) {
                true => Some(false),
                // It may have begun one, and has no flags.
                false => self.by_hand.then_some(true),
            },
            failed: has_failed && !is_of_client,
            ..Heard::default()
        }
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

#[cfg(test)]
mod tests {
    use super::super::tests::{connection, in_pieces};
    use super::*;
    use crate::layout::protocol;
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
        Reader::of(BEGINS).read(bytes).in_transaction
    }

    fn error(number: u16) -> Vec<u8> {
        error_in(number, "42000")
    }

    fn error_in(number: u16, state: &str) -> Vec<u8> {
        packet(
            1,
            &[&[255], &number.to_le_bytes()[..], b"#", state.as_bytes(), b"no"].concat(),
        )
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
        let mut reader = Reader::of(BEGINS);
        // autocommit = 0, and no transaction yet.
        assert_eq!(reader.read(&ok(0)).in_transaction, Some(false));
        let mut reader = Reader::of(reader.answer() | BEGINS);
        assert_eq!(reader.read(&error(1062)).in_transaction, Some(true));
        assert_eq!(reader.read(&error(1213)).in_transaction, Some(false));
        let mut reader = Reader::of(BEGINS);
        reader.read(&ok(2));
        assert_eq!(reader.read(&error(1062)).in_transaction, None);
    }

    #[test]
    fn what_goes_on_with_a_long_row_is_no_packet_of_its_own() {
        let mut bytes = packet(1, &[1]);
        bytes.extend(packet(2, b"\x03def"));
        bytes.extend(packet(3, &[254, 0, 0, 2, 0]));
        bytes.extend(packet(4, &vec![7; Reader::FULL]));
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
        assert_eq!(Reader::of(BEGINS).read(&prepared).prepared, Some(1));
        assert_eq!(Reader::of(BEGINS).read(&ok(2)).prepared, None);
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

    #[test]
    fn an_error_of_the_servers_own_is_a_failure() {
        let failed = |bytes: &[u8]| Reader::of(BEGINS).read(bytes).failed;
        // A full disk, an engine's, memory, a full table, shutdown; as a procedure signals it.
        for (number, state) in [
            (3, "HY000"),
            (1021, "HY000"),
            (1030, "HY000"),
            (1037, "HY001"),
            (1114, "HY000"),
            (1053, "08S01"),
            (1644, "58000"),
        ] {
            assert!(failed(&error_in(number, state)), "{number}");
        }
        // Syntax, a duplicate, a deadlock, a lock's timeout, cancelled, killed, a user's own, read-only, a packet too large.
        for (number, state) in [
            (1064, "42000"),
            (1062, "23000"),
            (1213, "40001"),
            (1205, "HY000"),
            (1317, "70100"),
            (1927, "70100"),
            (1644, "45000"),
            (1290, "HY000"),
            (1153, "08S01"),
        ] {
            assert!(!failed(&error_in(number, state)), "{number}");
        }
        // Galera without its cluster, and a command that no server knows.
        let text = |text: &str| packet(1, &[b"\xff\x17\x04#08S01", text.as_bytes()].concat());
        assert!(failed(&text(
            "WSREP has not yet prepared node for application use"
        )));
        assert!(!failed(&text("Unknown command")));
        // How far it is, which looks like an error (MariaDB, "Progress Reporting").
        assert!(!failed(&packet(1, b"\xff\xff\xff\x01\x01\x02\0\0\0\x0558000")));
        // In the place of a row; and a row that has its bytes.
        let mut bytes = rows(&[b"\x01a"], 2);
        bytes.truncate(bytes.len() - 9);
        bytes.extend(error_in(1030, "HY000"));
        assert!(failed(&bytes));
        assert!(!failed(&rows(&[b"\x0b\xff\x06\x04#HY000no!"], 2)));
    }

    proptest! {
        /// In whatever pieces an answer goes out, it says the same.
        #[test]
        fn an_answer_in_pieces_says_the_same(
            lengths in proptest::collection::vec(1_usize..400, 0..20),
            is_in: bool,
            failed: bool,
            sizes in proptest::collection::vec(1_usize..40, 1..20),
        ) {
            let row = |length: &usize| [vec![0; 1], vec![255; *length]].concat();
            let all: Vec<Vec<u8>> = lengths.iter().map(row).collect();
            let all: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
            let mut bytes = rows(&all, 2 | MORE_RESULTS | u16::from(!is_in));
            bytes.extend(ok(2 | MORE_RESULTS | u16::from(is_in)));
            bytes.extend(error_in(if failed { 1030 } else { 1064 }, "HY000"));
            let connection = connection(protocol::MYSQL);
            let heard = in_pieces(&connection, &bytes, &sizes);
            prop_assert_eq!(connection.answer.load(core::sync::atomic::Ordering::Relaxed), 0);
            prop_assert_eq!((heard.in_transaction, heard.failed), (Some(is_in), failed));
        }

        #[test]
        fn nothing_that_is_sent_stops_it(answer: u64, bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            Reader::of(answer).read(&bytes);
        }
    }
}
