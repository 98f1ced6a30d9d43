//! Who asks for locks of the server that outlive a transaction, by what is read of its client: LOCK TABLES, FLUSH TABLES (WITH READ LOCK),
//! BACKUP and GET_LOCK (MariaDB, "LOCK TABLES", "FLUSH", "BACKUP STAGE", "BACKUP LOCK", "GET_LOCK"; MySQL's LOCK INSTANCE), and PostgreSQL's
//! advisory locks of a session ("Advisory Locks"). No answer tells of these.
//!
//! A statement is known by how it begins, in whatever case, behind white space and comments; a prepared one from its preparation on. What is
//! asked for within another statement, a procedure or the second of several is not seen, nor FLUSH TABLES with names. One that only looks
//! so has its client spared while somebody waits. What frees one of several locks is taken to free all: who is no holder any more
//! and is taken for one would never give way again.

use super::layout::{Connection, protocol};
use core::sync::atomic::Ordering::Relaxed;

/// Locks that may be held, as bits of [`Connection::holds`]: of tables, or of the whole server.
const TABLES: u32 = 1;
/// For a backup.
const BACKUP: u32 = 2;
/// By a name, or PostgreSQL's by a number.
const NAMED: u32 = 4;
/// Of all tables, which a transaction that begins does not let go.
const ALL_TABLES: u32 = 8;

/// What a statement does to the locks that are held.
#[derive(Clone, Copy)]
enum Effect {
    Holds(u32),
    Frees(u32),
}
use Effect::{Frees, Holds};

type Words = [(&'static [u8], Effect)];

/// How statements begin, in capitals, with one blank where there is white space.
const MYSQL: &Words = &[
    (b"LOCK ", Holds(TABLES)),
    (b"UNLOCK ", Frees(TABLES | ALL_TABLES)),
    (b"START TRANSACTION", Frees(TABLES)),
    (b"BEGIN", Frees(TABLES)),
    (b"FLUSH TABLES WITH READ LOCK", Holds(ALL_TABLES)),
    (b"FLUSH TABLE WITH READ LOCK", Holds(ALL_TABLES)),
    (b"BACKUP STAGE START", Holds(BACKUP)),
    (b"BACKUP STAGE END", Frees(BACKUP)),
    (b"BACKUP LOCK ", Holds(BACKUP)),
    (b"BACKUP UNLOCK", Frees(BACKUP)),
    (b"SELECT GET_LOCK", Holds(NAMED)),
    (b"DO GET_LOCK", Holds(NAMED)),
    // Of several that it may have: few clients have two.
    (b"SELECT RELEASE_LOCK", Frees(NAMED)),
    (b"DO RELEASE_LOCK", Frees(NAMED)),
    (b"SELECT RELEASE_ALL_LOCKS", Frees(NAMED)),
    (b"DO RELEASE_ALL_LOCKS", Frees(NAMED)),
];

/// The same of PostgreSQL, whose LOCK TABLE ends with its transaction.
const POSTGRESQL: &Words = &[
    (b"SELECT PG_ADVISORY_LOCK", Holds(NAMED)),
    (b"SELECT PG_TRY_ADVISORY_LOCK", Holds(NAMED)),
    (b"SELECT PG_ADVISORY_UNLOCK", Frees(NAMED)),
    (b"DISCARD ALL", Frees(NAMED)),
];

/// What is read of a message's rest.
mod phase {
    /// Nothing.
    pub const SKIPPED: u8 = 0;
    /// MySQL's command, its first byte.
    pub const COMMAND: u8 = 1;
    /// PostgreSQL's name of what is prepared, ended by a zero.
    pub const NAME: u8 = 2;
    /// The statement.
    pub const TEXT: u8 = 3;
    /// The same of one that is prepared.
    pub const PREPARED: u8 = 4;
}

/// Where a statement is read.
mod lexer {
    pub const TEXT: u8 = 0;
    /// After `/`.
    pub const SLASH: u8 = 1;
    /// After `/*`, and an M of MariaDB's.
    pub const OPENED: u8 = 2;
    /// In the version of what is a comment to others (`/*!40101 LOCAL */`).
    pub const VERSION: u8 = 3;
    pub const COMMENT: u8 = 4;
    /// After `*` in a comment.
    pub const CLOSING: u8 = 5;
    /// After `-`.
    pub const DASH: u8 = 6;
    /// In a comment up to its line's end.
    pub const LINE: u8 = 7;
    /// After `*` in the text: the end of what is a comment to others.
    pub const STAR: u8 = 8;
}

/// How far a client's message is read.
struct Reader {
    /// Bytes of it that are to come; as far as they came those of its length.
    left: u32,
    /// Bytes of its header.
    header: u8,
    phase: u8,
    lexer: u8,
    /// How much of a statement's beginning there is, and in which of the words.
    matched: u8,
    word: u8,
    /// Whether something came that is no message.
    is_lost: bool,
}

const IS_LOST: u64 = 1 << 63;

/// How far a client's messages are read when its next query is there. MySQL's server reads no more than a message at a time, PostgreSQL's what
/// there is.
pub const fn asked(speaks: u32, request: u64) -> u64 {
    match speaks {
        protocol::POSTGRESQL if request & IS_LOST == 0 => request,
        _ => 0,
    }
}

/// Bytes of what a client asks were read.
pub fn read(connection: &Connection, bytes: &[u8]) {
    let mut reader = Reader::of(connection.request.load(Relaxed));
    let before = connection.holds.load(Relaxed);
    let holds = reader.read(connection.protocol.load(Relaxed), bytes, before);
    connection.request.store(reader.request(), Relaxed);
    if holds != before {
        connection.holds.store(holds, Relaxed);
    }
}

impl Reader {
    fn of(request: u64) -> Self {
        Self {
            left: request as u32,
            header: (request >> 32) as u8 & 7,
            phase: (request >> 35) as u8 & 7,
            lexer: (request >> 38) as u8 & 15,
            matched: (request >> 42) as u8 & 31,
            word: (request >> 47) as u8 & 15,
            is_lost: request & IS_LOST != 0,
        }
    }

    fn request(&self) -> u64 {
        let lost = if self.is_lost { IS_LOST } else { 0 };
        lost | u64::from(self.left)
            | u64::from(self.header & 7) << 32
            | u64::from(self.phase & 7) << 35
            | u64::from(self.lexer & 15) << 38
            | u64::from(self.matched & 31) << 42
            | u64::from(self.word & 15) << 47
    }

    /// What is held after these bytes where so much was before.
    fn read(&mut self, speaks: u32, mut bytes: &[u8], before: u32) -> u32 {
        let (header, words) = match speaks {
            protocol::MYSQL => (4, MYSQL),
            protocol::POSTGRESQL => (5, POSTGRESQL),
            _ => return before,
        };
        let mut holds = before;
        while let [byte, rest @ ..] = bytes
            && !self.is_lost
        {
            if self.header < header {
                match speaks {
                    protocol::MYSQL => self.mysql_header(*byte),
                    _ => self.postgresql_header(*byte),
                }
                bytes = rest;
            } else {
                let (payload, after) = bytes.split_at(bytes.len().min(self.left as usize));
                self.left -= payload.len() as u32;
                self.payload(payload, words, &mut holds);
                bytes = after;
            }
            if self.header >= header && self.left == 0 && !self.is_lost {
                *self = Self::of(0);
            }
        }
        holds
    }

    /// MySQL, "Packets": three bytes of length, the least first, and the number, 0 of a command.
    fn mysql_header(&mut self, byte: u8) {
        match self.header {
            number @ 0..3 => self.left |= u32::from(byte) << (8 * number),
            _ if byte == 0 => self.phase = phase::COMMAND,
            _ => self.phase = phase::SKIPPED,
        }
        self.header += 1;
    }

    /// PostgreSQL, "Message Formats": a type, `Q` of "Query" and `P` of "Parse", and four bytes of length, the least last.
    fn postgresql_header(&mut self, byte: u8) {
        match self.header {
            0 => {
                self.phase = match byte {
                    b'Q' => phase::TEXT,
                    b'P' => phase::NAME,
                    _ => phase::SKIPPED,
                };
            }
            _ => self.left = self.left << 8 | u32::from(byte),
        }
        self.header += 1;
        if self.header == 5 {
            self.is_lost = !(4..=i32::MAX as u32).contains(&self.left);
            self.left = self.left.saturating_sub(4);
        }
    }

    fn payload(&mut self, payload: &[u8], words: &Words, holds: &mut u32) {
        let mut payload = payload;
        match self.phase {
            phase::COMMAND => {
                let [command, text @ ..] = payload else { return };
                self.phase = match command {
                    // COM_QUERY, COM_STMT_PREPARE.
                    0x03 => phase::TEXT,
                    0x16 => phase::PREPARED,
                    // COM_CHANGE_USER, COM_RESET_CONNECTION: all that it held is free.
                    0x11 | 0x1f => {
                        *holds = 0;
                        phase::SKIPPED
                    }
                    _ => phase::SKIPPED,
                };
                payload = text;
            }
            phase::NAME => {
                let Some(end) = payload.iter().position(|byte| *byte == 0) else {
                    return;
                };
                self.phase = phase::PREPARED;
                payload = &payload[end + 1..];
            }
            _ => {}
        }
        for byte in payload {
            if !matches!(self.phase, phase::TEXT | phase::PREPARED) {
                break;
            }
            match self.text(*byte, words) {
                Some(Holds(locks)) => *holds |= locks,
                Some(Frees(locks)) => *holds &= !locks,
                None => {}
            }
        }
    }

    /// Reads a byte of a statement: what that does, once it is clear.
    fn text(&mut self, byte: u8, words: &Words) -> Option<Effect> {
        let (next, read) = match (self.lexer, byte) {
            // Counts of none and one before the text, where a client may send attributes beside it (MySQL, "COM_QUERY").
            (lexer::TEXT, 0 | 1) if self.matched == 0 => (lexer::TEXT, None),
            (lexer::TEXT, b'/') => (lexer::SLASH, None),
            (lexer::TEXT, b'-') => (lexer::DASH, None),
            (lexer::TEXT, b'#') => (lexer::LINE, None),
            (lexer::TEXT, b'*') => (lexer::STAR, None),
            (lexer::VERSION, b'0'..=b'9') => (lexer::VERSION, None),
            (lexer::TEXT | lexer::VERSION, byte) if byte.is_ascii_whitespace() => (lexer::TEXT, Some(b' ')),
            (lexer::TEXT | lexer::VERSION, byte) => (lexer::TEXT, Some(byte.to_ascii_uppercase())),
            (lexer::SLASH, b'*') => (lexer::OPENED, None),
            (lexer::OPENED, b'!') => (lexer::VERSION, None),
            (lexer::OPENED, b'M') => (lexer::OPENED, None),
            (lexer::OPENED | lexer::COMMENT | lexer::CLOSING, b'*') => (lexer::CLOSING, None),
            (lexer::CLOSING | lexer::STAR, b'/') => (lexer::TEXT, Some(b' ')),
            (lexer::OPENED | lexer::COMMENT | lexer::CLOSING, _) => (lexer::COMMENT, None),
            (lexer::DASH, b'-') => (lexer::LINE, None),
            (lexer::LINE, b'\n') => (lexer::TEXT, Some(b' ')),
            (lexer::LINE, _) => (lexer::LINE, None),
            _ => {
                self.phase = phase::SKIPPED;
                return None;
            }
        };
        self.lexer = next;
        self.meets(read?, words)
    }

    /// Goes on in the words of which what was read so far is the beginning.
    fn meets(&mut self, byte: u8, words: &Words) -> Option<Effect> {
        let matched = usize::from(self.matched);
        let (word, _) = words.get(usize::from(self.word))?;
        let begun = word.get(..matched)?;
        // Of white space that follows another, or nothing, nothing is read.
        if byte == b' ' && matches!(begun, [] | [.., b' ']) {
            return None;
        }
        let next = words
            .iter()
            .position(|(word, _)| word.starts_with(begun) && word.get(matched) == Some(&byte));
        let Some(next) = next else {
            self.phase = phase::SKIPPED;
            return None;
        };
        (self.word, self.matched) = (next as u8, self.matched + 1);
        let (word, effect) = words[next];
        if word.len() > matched + 1 {
            return None;
        }
        self.phase = phase::SKIPPED;
        Some(effect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A command of MySQL's.
    fn command(number: u8, text: &[u8]) -> Vec<u8> {
        let length = (1 + text.len() as u32).to_le_bytes();
        [&length[..3], &[0, number], text].concat()
    }

    /// A message of PostgreSQL's.
    fn message(kind: u8, text: &[u8]) -> Vec<u8> {
        let length = (4 + text.len() as u32).to_be_bytes();
        [&[kind], &length[..], text].concat()
    }

    fn held(speaks: u32, pieces: &[&[u8]]) -> u32 {
        pieces
            .iter()
            .fold((0, 0), |(request, holds), piece| {
                let mut reader = Reader::of(request);
                let holds = reader.read(speaks, piece, holds);
                (reader.request(), holds)
            })
            .1
    }

    fn after(statements: &[&str]) -> u32 {
        let all: Vec<u8> = statements
            .iter()
            .flat_map(|text| command(3, text.as_bytes()))
            .collect();
        held(protocol::MYSQL, &[&all])
    }

    #[test]
    fn statements_that_lock_beyond_a_transaction_are_known_by_how_they_begin() {
        for (statement, locks) in [
            ("LOCK TABLES `t` READ /*!32311 LOCAL */", TABLES),
            ("lock table t write", TABLES),
            (
                " \n/* a job's * / comment **/ -- more\n# and more\nLock\tTables t read",
                TABLES,
            ),
            ("/*!40000 LOCK */ /*M!100100 TABLES t READ */", TABLES),
            ("flush tables with read lock", ALL_TABLES),
            ("FLUSH/**/TABLE\nwith read lock", ALL_TABLES),
            ("\0\u{1}LOCK TABLES t READ", TABLES),
            ("flush tables", 0),
            ("BACKUP STAGE START", BACKUP),
            ("backup  lock t", BACKUP),
            ("SELECT GET_LOCK('job', 10)", NAMED),
            ("select get_lock ('job', 10)", NAMED),
            ("do get_lock('job', 10)", NAMED),
            ("select 1", 0),
            ("locks", 0),
            ("/* LOCK TABLES t READ */ select 1", 0),
            ("-- LOCK TABLES t READ", 0),
            ("select 'LOCK TABLES'", 0),
            ("FLUSH STATUS", 0),
            ("FLUSH /*!40101 LOCAL */ TABLES", 0),
            ("BACKUP STAGE BLOCK_DDL", 0),
            ("/", 0),
            ("", 0),
        ] {
            assert_eq!(after(&[statement]), locks, "{statement}");
        }
    }

    #[test]
    fn what_frees_them_and_a_new_beginning_end_it() {
        let named = "select get_lock('a', 1)";
        assert_eq!(after(&["lock tables t read", "select 1", "unlock tables"]), 0);
        assert_eq!(after(&["lock tables t read", named, "unlock tables"]), NAMED);
        assert_eq!(after(&["lock tables t read", "start transaction"]), 0);
        assert_eq!(after(&["flush tables with read lock", "begin"]), ALL_TABLES);
        assert_eq!(
            after(&["flush tables with read lock", "begin", "unlock tables"]),
            0
        );
        assert_eq!(after(&[named, "select release_lock('a')"]), 0);
        assert_eq!(after(&[named, "do release_all_locks()"]), 0);
        assert_eq!(after(&["backup stage start", "backup stage block_ddl"]), BACKUP);
        assert_eq!(after(&["backup stage start", "backup stage end"]), 0);
        for reset in [0x1f, 0x11] {
            let all = [command(3, b"lock tables t read"), command(reset, b"")].concat();
            assert_eq!(held(protocol::MYSQL, &[&all]), 0);
        }
    }

    #[test]
    fn what_is_prepared_is_taken_for_done() {
        let prepared = command(0x16, b"select get_lock(?, ?)");
        let release = command(0x16, b"select release_lock(?)");
        assert_eq!(held(protocol::MYSQL, &[&prepared]), NAMED);
        assert_eq!(held(protocol::MYSQL, &[&prepared, &release]), 0);
        // The value of an execution, a file's content, and what goes on with a long packet, are no statements.
        for (number, first) in [(0x17, 0), (3, 1)] {
            let mut bytes = command(number, b"lock tables t read");
            bytes[3] = first;
            assert_eq!(held(protocol::MYSQL, &[&bytes]), 0);
        }
    }

    #[test]
    fn advisory_locks_of_a_session_are_known_and_those_of_a_transaction_are_its() {
        let query = |text: &str| message(b'Q', format!("{text}\0").as_bytes());
        let takes = query("SELECT pg_advisory_lock(7)");
        for (bytes, locks) in [
            (takes.clone(), NAMED),
            (query("select pg_try_advisory_lock_shared(7)"), NAMED),
            (message(b'P', b"s1\0select pg_advisory_lock($1)\0\0\0"), NAMED),
            (
                [takes.clone(), query("select pg_advisory_unlock_all()")].concat(),
                0,
            ),
            ([takes.clone(), query("discard all")].concat(), 0),
            ([takes.clone(), query("select pg_advisory_unlock(7)")].concat(), 0),
            (query("select pg_advisory_xact_lock(7)"), 0),
            (query("lock table t"), 0),
            (message(b'd', b"select pg_advisory_lock(7)"), 0),
        ] {
            assert_eq!(held(protocol::POSTGRESQL, &[&bytes]), locks, "{bytes:?}");
        }
        // Nothing is read of what is no message, until the next query.
        let mut reader = Reader::of(0);
        assert_eq!(reader.read(protocol::POSTGRESQL, b"Q\0\0\0\0", 0), 0);
        assert_eq!(reader.read(protocol::POSTGRESQL, &takes, 0), 0);
        let mut reader = Reader::of(asked(protocol::POSTGRESQL, reader.request()));
        assert_eq!(reader.read(protocol::POSTGRESQL, &takes, 0), NAMED);
    }

    proptest! {
        #[test]
        fn in_whatever_pieces_it_comes_it_is_the_same(
            texts in proptest::collection::vec(
                prop_oneof![
                    Just("lock tables t read"), Just("/* c */ unlock tables"), Just("select get_lock('a', 1)"),
                    Just("select 1"), Just("backup stage start"), Just("do release_lock('a')"),
                ],
                1..8,
            ),
            sizes in proptest::collection::vec(1_usize..20, 1..20),
        ) {
            let all: Vec<u8> = texts.iter().flat_map(|text| command(3, text.as_bytes())).collect();
            let (mut pieces, mut rest) = (Vec::new(), &all[..]);
            for size in sizes.iter().cycle() {
                let (piece, after) = rest.split_at(rest.len().min(*size));
                pieces.push(piece);
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(held(protocol::MYSQL, &pieces), after(&texts));
        }

        #[test]
        fn nothing_that_is_read_stops_it(request: u64, bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            for speaks in [protocol::MYSQL, protocol::POSTGRESQL, protocol::UNKNOWN] {
                Reader::of(request).read(speaks, &bytes, 0);
            }
        }
    }
}
