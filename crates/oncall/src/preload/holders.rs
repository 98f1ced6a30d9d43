//! Who asks for locks of the server that outlive a transaction, by what is read of its client: LOCK TABLES, FLUSH TABLES (WITH READ LOCK),
//! BACKUP and GET_LOCK (MariaDB, "LOCK TABLES", "FLUSH", "BACKUP STAGE", "BACKUP LOCK", "GET_LOCK"; MySQL's LOCK INSTANCE), and PostgreSQL's
//! advisory locks of a session ("Advisory Locks"). No answer tells of these.
//!
//! A statement is known by how it begins, in whatever case, behind white space and comments; a prepared one by its number or name, with each
//! execution. What is asked for within another statement, a procedure, SQL's own PREPARE or the second of several is not seen, nor FLUSH TABLES
//! with names. One that only looks so has its client spared while somebody waits. What frees one of several locks is taken to free all: who is no
//! holder any more and is taken for one would never give way again.

mod known;

use super::layout::{Connection, protocol};
use core::sync::atomic::Ordering::Relaxed;
use known::Known;

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
    /// MySQL's number of what is executed, four bytes.
    pub const NUMBER: u8 = 5;
    /// PostgreSQL's name of what a statement is bound to.
    pub const PORTAL: u8 = 6;
    /// And of the statement.
    pub const BOUND: u8 = 7;
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

/// The server has given a statement that was prepared a number.
pub fn prepared(connection: &Connection, number: u32) {
    known(connection).prepare(number);
}

fn known(connection: &Connection) -> Known<'_> {
    Known {
        holds: connection.holds.load(Relaxed),
        preparing: connection.preparing.load(Relaxed),
        prepared: &connection.prepared,
    }
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
    /// The number or what the name comes to that is read.
    named: u32,
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
    let mut reader = Reader {
        named: connection.named.load(Relaxed),
        ..Reader::of(connection.request.load(Relaxed))
    };
    let mut known = known(connection);
    let before = (known.holds, known.preparing);
    reader.read(connection.protocol.load(Relaxed), bytes, &mut known);
    connection.request.store(reader.request(), Relaxed);
    connection.named.store(reader.named, Relaxed);
    if (known.holds, known.preparing) != before {
        connection.holds.store(known.holds, Relaxed);
        connection.preparing.store(known.preparing, Relaxed);
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
            named: 0,
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

    /// Reads these bytes.
    fn read(&mut self, speaks: u32, mut bytes: &[u8], known: &mut Known<'_>) {
        let (header, words) = match speaks {
            protocol::MYSQL => (4, MYSQL),
            protocol::POSTGRESQL => (5, POSTGRESQL),
            _ => return,
        };
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
                self.payload(payload, (speaks, words), known);
                bytes = after;
            }
            if self.header >= header && self.left == 0 && !self.is_lost {
                *self = Self::of(0);
            }
        }
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

    /// PostgreSQL, "Message Formats": a type, `Q` of "Query" and `P` of "Parse" and `B` of "Bind", and four bytes of length, the least last.
    fn postgresql_header(&mut self, byte: u8) {
        match self.header {
            0 => {
                self.phase = match byte {
                    b'Q' => phase::TEXT,
                    b'P' => phase::NAME,
                    b'B' => phase::PORTAL,
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

    fn payload(&mut self, payload: &[u8], (speaks, words): (u32, &Words), known: &mut Known<'_>) {
        let mut payload = payload;
        if self.phase == phase::PORTAL {
            let Some(end) = payload.iter().position(|byte| *byte == 0) else {
                return;
            };
            (self.phase, payload) = (phase::BOUND, &payload[end + 1..]);
        }
        match self.phase {
            phase::COMMAND => {
                let [command, text @ ..] = payload else { return };
                self.phase = match command {
                    // COM_QUERY, COM_STMT_PREPARE.
                    0x03 => phase::TEXT,
                    0x16 => {
                        known.preparing = 0;
                        phase::PREPARED
                    }
                    // COM_STMT_EXECUTE, and MariaDB's COM_STMT_BULK_EXECUTE.
                    0x17 | 0xfa => phase::NUMBER,
                    // COM_CHANGE_USER, COM_RESET_CONNECTION: all that it held is free.
                    0x11 | 0x1f => {
                        known.reset();
                        phase::SKIPPED
                    }
                    _ => phase::SKIPPED,
                };
                payload = text;
            }
            phase::NAME | phase::BOUND => {
                let end = payload.iter().position(|byte| *byte == 0);
                for byte in &payload[..end.unwrap_or(payload.len())] {
                    // FNV-1a.
                    self.named = (self.named ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
                }
                let Some(end) = end else { return };
                if self.phase == phase::BOUND {
                    known.execute(speaks, self.named, words);
                    self.phase = phase::SKIPPED;
                    return;
                }
                // Whatever had this name before has it no more.
                known.preparing = 0;
                known.prepare(self.named);
                self.phase = phase::PREPARED;
                payload = &payload[end + 1..];
            }
            _ => {}
        }
        if self.phase == phase::NUMBER {
            for byte in payload {
                self.named = self.named >> 8 | u32::from(*byte) << 24;
                self.matched += 1;
                if self.matched >= 4 {
                    known.execute(speaks, self.named, words);
                    self.phase = phase::SKIPPED;
                    break;
                }
            }
        }
        for byte in payload {
            if !matches!(self.phase, phase::TEXT | phase::PREPARED) {
                break;
            }
            let is_prepared = self.phase == phase::PREPARED;
            match self.text(*byte, words) {
                Some(word) if is_prepared => {
                    known.preparing = u32::from(word) + 1;
                    if speaks == protocol::POSTGRESQL {
                        known.prepare(self.named);
                    }
                }
                Some(word) => known.done(words[usize::from(word)].1),
                None => {}
            }
        }
    }

    /// Reads a byte of a statement: of which words it is, once it is clear.
    fn text(&mut self, byte: u8, words: &Words) -> Option<u8> {
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
    fn meets(&mut self, byte: u8, words: &Words) -> Option<u8> {
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
        if words[next].0.len() > matched + 1 {
            return None;
        }
        self.phase = phase::SKIPPED;
        Some(self.word)
    }
}

#[cfg(test)]
mod tests {
    use super::super::answers::tests::connection;
    use super::known::LAST;
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
        let connection = connection(speaks);
        pieces.iter().for_each(|piece| read(&connection, piece));
        connection.holds.load(Relaxed)
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
    fn a_prepared_statement_does_what_it_does_with_each_execution() {
        let connection = connection(protocol::MYSQL);
        let holds = |bytes: &[u8]| {
            read(&connection, bytes);
            connection.holds.load(Relaxed)
        };
        let prepare = |text: &[u8], number: u32| {
            let holds = holds(&command(0x16, text));
            prepared(&connection, number);
            holds
        };
        // Number, flags, how often.
        let execution = |number: u32| command(0x17, &[&number.to_le_bytes()[..], &[0, 1, 0, 0, 0]].concat());
        assert_eq!(prepare(b"select get_lock(?, ?)", 1), 0);
        assert_eq!(prepare(b"select 1", 2), 0);
        assert_eq!(prepare(b"do release_lock(?)", 3), 0);
        for _ in 0..3 {
            assert_eq!(holds(&execution(2)), 0);
            assert_eq!(holds(&execution(1)), NAMED);
            assert_eq!(holds(&execution(2)), NAMED);
            assert_eq!(holds(&execution(3)), 0);
        }
        // MariaDB's clients may execute what they prepared last before they know its number.
        holds(&command(0x16, b"lock tables t read"));
        assert_eq!(holds(&execution(LAST)), TABLES);
        assert_eq!(holds(&command(0x1f, b"")), 0);
        assert_eq!(holds(&execution(1)), 0, "forgotten with the rest");
        // Of many the last few are known.
        for number in 10..20 {
            prepare(b"select get_lock(?, ?)", number);
        }
        assert_eq!(holds(&execution(10)), 0);
        assert_eq!(holds(&execution(19)), NAMED);
    }

    #[test]
    fn a_file_and_what_goes_on_with_a_long_packet_are_no_statements() {
        let mut bytes = command(3, b"lock tables t read");
        bytes[3] = 1;
        assert_eq!(held(protocol::MYSQL, &[&bytes]), 0);
    }

    #[test]
    fn a_named_statement_of_postgresql_does_what_it_does_when_it_is_bound() {
        let parse = |name: &str, text: &str| message(b'P', format!("{name}\0{text}\0\0\0").as_bytes());
        let bind = |name: &str| message(b'B', format!("portal\0{name}\0\0\0\0\0\0\0").as_bytes());
        let all = [
            parse("take", "select pg_advisory_lock($1)"),
            parse("free", "select pg_advisory_unlock($1)"),
            parse("other", "select 1"),
        ]
        .concat();
        let after = |names: &[&str], size: usize| {
            let names: Vec<u8> = names.iter().flat_map(|name| bind(name)).collect();
            let bytes = [&all[..], &names].concat();
            held(protocol::POSTGRESQL, &bytes.chunks(size).collect::<Vec<_>>())
        };
        for size in [1, 7, 1000] {
            assert_eq!(after(&[], size), 0);
            assert_eq!(after(&["take", "other"], size), NAMED);
            assert_eq!(after(&["take", "free"], size), 0);
            assert_eq!(after(&["take", "free", "take"], size), NAMED);
        }
        // A name is another statement's when that is parsed, as the one without a name is each time.
        let unnamed = [
            parse("", "select pg_advisory_lock($1)"),
            parse("", "select 1"),
            bind(""),
        ]
        .concat();
        assert_eq!(held(protocol::POSTGRESQL, &[&unnamed]), 0);
        let unnamed = [parse("", "select pg_advisory_lock($1)"), bind("")].concat();
        assert_eq!(held(protocol::POSTGRESQL, &[&unnamed]), NAMED);
    }

    #[test]
    fn advisory_locks_of_a_session_are_known_and_those_of_a_transaction_are_its() {
        let query = |text: &str| message(b'Q', format!("{text}\0").as_bytes());
        let takes = query("SELECT pg_advisory_lock(7)");
        for (bytes, locks) in [
            (takes.clone(), NAMED),
            (query("select pg_try_advisory_lock_shared(7)"), NAMED),
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
        let connection = connection(protocol::POSTGRESQL);
        read(&connection, b"Q\0\0\0\0");
        read(&connection, &takes);
        assert_eq!(connection.holds.load(Relaxed), 0);
        let next = asked(protocol::POSTGRESQL, connection.request.load(Relaxed));
        connection.request.store(next, Relaxed);
        read(&connection, &takes);
        assert_eq!(connection.holds.load(Relaxed), NAMED);
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
                let connection = connection(speaks);
                connection.request.store(request, Relaxed);
                read(&connection, &bytes);
            }
        }
    }
}
