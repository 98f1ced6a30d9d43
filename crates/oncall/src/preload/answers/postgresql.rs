//! What PostgreSQL's messages say ("Message Formats"): a type, a length that counts itself and not the type, and the rest.
//!
//! "ReadyForQuery" ends an answer: `Z`, and `I` outside of a transaction, `T` in one and `E` in one that failed. "ErrorResponse" is an `E` with
//! fields, each a type and a text that is ended by a zero, of which `C` is the SQLSTATE; what is less than an error is another message.

use super::{Heard, LOST, Pieces, is_failed};

/// How far a server's answers are read.
pub struct Reader {
    pub pieces: Pieces,
    /// Whether something went out that is no message.
    is_lost: bool,
}

impl Reader {
    const HEADER: usize = 5;
    const READY: usize = Self::HEADER + 1;

    pub fn of(answer: u64) -> Self {
        Self {
            pieces: Pieces::of(answer),
            is_lost: answer & LOST != 0,
        }
    }

    pub fn answer(&self) -> u64 {
        match self.is_lost {
            true => LOST,
            false => self.pieces.answer(),
        }
    }

    /// What the messages say of which enough went out with these bytes.
    pub fn read(&mut self, mut bytes: &[u8]) -> Heard {
        let mut heard = Heard::default();
        while !self.is_lost
            && let Some((there, _)) = self.pieces.next(&mut bytes, Self::HEADER, extent)
        {
            let head = self.pieces.head;
            match (head[0], &head[Self::HEADER..there]) {
                (b'Z', [status]) => heard.in_transaction = is_in(*status).or(heard.in_transaction),
                (b'E', fields) => heard.failed |= is_failed(state(fields)),
                _ => {}
            }
            self.is_lost = !is_message(&head);
        }
        heard
    }
}

fn length(head: &[u8]) -> usize {
    usize::from(head[1]) << 24 | usize::from(head[2]) << 16 | usize::from(head[3]) << 8 | usize::from(head[4])
}

fn is_message(head: &[u8]) -> bool {
    head[0].is_ascii_graphic() && (4..=i32::MAX as usize).contains(&length(head))
}

/// What is wanted of a message, and its length. The fields of an error before its state are its severity, in the server's language and in
/// English.
fn extent(head: &[u8; Pieces::HEAD]) -> (usize, usize) {
    if !is_message(head) {
        return (Reader::HEADER, Reader::HEADER);
    }
    let whole = 1 + length(head);
    let wanted = match head[0] {
        b'E' => whole.min(Pieces::HEAD),
        b'Z' if whole == Reader::READY => whole,
        _ => Reader::HEADER,
    };
    (wanted, whole)
}

fn is_in(status: u8) -> Option<bool> {
    match status {
        b'I' => Some(false),
        b'T' | b'E' => Some(true),
        _ => None,
    }
}

/// The SQLSTATE of an error; nothing where it is not among what there is of its fields.
fn state(fields: &[u8]) -> &[u8] {
    let mut all = fields.split(|byte| *byte == 0);
    let found = all.find_map(|field| field.strip_prefix(b"C"));
    found.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{connection, in_pieces};
    use super::super::{BEGINS, asked, read};
    use super::*;
    use crate::layout::protocol;
    use core::sync::atomic::Ordering::Relaxed;
    use proptest::prelude::*;

    fn message(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = (4 + payload.len() as u32).to_be_bytes();
        [&[kind], &length[..], payload].concat()
    }

    fn error(state: &str) -> Vec<u8> {
        let fields = format!("SFEHLER\0VERROR\0C{state}\0Mwill not do\0Fpl_exec.c\0L3800\0\0");
        message(b'E', fields.as_bytes())
    }

    fn ready(status: u8) -> Vec<u8> {
        message(b'Z', &[status])
    }

    fn heard(bytes: &[u8], sizes: &[usize]) -> Heard {
        in_pieces(&connection(protocol::POSTGRESQL), bytes, sizes)
    }

    fn said(bytes: &[u8]) -> Option<bool> {
        heard(bytes, &[10_000]).in_transaction
    }

    #[test]
    fn ready_for_query_says_whether_a_transaction_goes_on() {
        assert_eq!(said(b"C\0\0\0\x0aBEGIN\0Z\0\0\0\x05T"), Some(true));
        assert_eq!(said(b"C\0\0\0\x0bCOMMIT\0Z\0\0\0\x05I"), Some(false));
        assert_eq!(said(b"Z\0\0\0\x05E"), Some(true));
        assert_eq!(said(b"Z\0\0\0\x05X"), None);
        // A row that looks like one.
        let row = message(b'D', b"\0\x01\0\0\0\x06Z\0\0\0\x05T");
        assert_eq!(said(&[row, ready(b'I')].concat()), Some(false));
    }

    #[test]
    fn an_error_of_the_servers_own_is_a_failure_wherever_it_comes() {
        let rows = message(b'D', &[7; 300]);
        for (state, failed) in [
            ("58000", true),
            ("53100", true),
            ("XX000", true),
            ("22012", false),
            ("57014", false),
        ] {
            let answer = [rows.clone(), error(state), ready(b'I')].concat();
            let heard = heard(&answer, &[10_000]);
            assert_eq!(
                (heard.failed, heard.in_transaction),
                (failed, Some(false)),
                "{state}"
            );
        }
        // A notice, and a row, that have the state of an error.
        let fields = b"SNOTICE\0VNOTICE\0C58000\0Mso\0\0";
        let answer = [message(b'N', fields), message(b'D', &error("58000")), ready(b'I')].concat();
        assert!(!heard(&answer, &[10_000]).failed);
        // Before its version 9.6 there was one severity.
        assert!(heard(&message(b'E', b"SFATAL\0C57P01\0Mso\0\0"), &[10_000]).failed);
    }

    #[test]
    fn an_answer_that_is_cut_by_the_next_query_is_read_on() {
        let connection = connection(protocol::POSTGRESQL);
        let answer = [message(b'D', &[0; 100]), error("58000")].concat();
        read(&connection, &answer[..50]);
        connection.answer.store(
            asked(protocol::POSTGRESQL, connection.answer.load(Relaxed)),
            Relaxed,
        );
        assert!(read(&connection, &answer[50..]).failed);
    }

    #[test]
    fn what_is_no_message_is_read_on_from_the_next_query() {
        let connection = connection(protocol::POSTGRESQL);
        read(&connection, b"Z\0\0\0\0");
        assert_eq!(read(&connection, &ready(b'T')).in_transaction, None);
        let answer = asked(protocol::POSTGRESQL, connection.answer.load(Relaxed));
        connection.answer.store(answer, Relaxed);
        assert_eq!(read(&connection, &ready(b'T')).in_transaction, Some(true));
    }

    proptest! {
        #[test]
        fn in_whatever_pieces_it_says_the_same(
            rows in proptest::collection::vec(0_usize..300, 0..10),
            failed: bool,
            is_in: bool,
            sizes in proptest::collection::vec(1_usize..40, 1..20),
        ) {
            let mut answer: Vec<u8> = rows.iter().flat_map(|length| message(b'D', &vec![b'E'; *length])).collect();
            answer.extend(error(if failed { "58030" } else { "23505" }));
            answer.extend(ready(if is_in { b'E' } else { b'I' }));
            let heard = heard(&answer, &sizes);
            prop_assert_eq!((heard.failed, heard.in_transaction), (failed, Some(is_in)));
        }

        #[test]
        fn nothing_that_is_sent_stops_it(answer: u64, bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            Reader::of(answer | BEGINS).read(&bytes);
        }
    }
}
