//! The status line of an HTTP answer (RFC 9112, Section 4): a server's failure is a 5xx (RFC 9110, Section 15.6), but for 501 and 505, which
//! say that it was asked for what there is not. Before it there may be interim ones, 1xx (Section 15.2), but for 101, after which HTTP ends.

use super::{BEGINS, Heard};

/// A digit.
const DIGIT: u8 = b'0';
/// The line up to its status; of which digits are any.
const LINE: [u8; 12] = *b"HTTP/1.0 000";
/// Where the status begins.
const STATUS: usize = 9;
/// Where its first digit is kept, and that it is followed by a zero.
const FIRST: u32 = 8;
const IS_ZERO: u64 = 1 << 12;
/// An interim answer's lines are read, to the empty one.
const IS_INTERIM: u64 = 1 << 13;
const EMPTY: [u8; 4] = *b"\r\n\r\n";

/// What the first bytes of an answer say: as far as they are such a line their number is kept, and nothing is read of what follows.
pub fn read(answer: u64, bytes: &[u8]) -> (u64, Heard) {
    let mut heard = Heard::default();
    if answer & BEGINS == 0 {
        return (answer, heard);
    }
    let mut at = answer as u8 as usize;
    let mut first = (answer >> FIRST) as u8 & 15;
    let mut has_zero = answer & IS_ZERO != 0;
    let mut is_interim = answer & IS_INTERIM != 0;
    let mut was_interim = is_interim;
    for byte in bytes {
        if is_interim {
            at = match EMPTY.get(at) == Some(byte) {
                true => at + 1,
                false => usize::from(*byte == EMPTY[0]),
            };
            if at >= EMPTY.len() {
                (at, is_interim) = (0, false);
            }
            continue;
        }
        let is_it = match LINE.get(at) {
            Some(&DIGIT) => byte.is_ascii_digit(),
            Some(wanted) => byte == wanted,
            None => false,
        };
        if !is_it {
            return (0, heard);
        }
        match at.checked_sub(STATUS) {
            Some(0) => first = byte - DIGIT,
            Some(1) => has_zero = *byte == DIGIT,
            _ => {}
        }
        at += 1;
        if at < LINE.len() {
            continue;
        }
        heard.is_http = true;
        let switches = has_zero && *byte == b'1';
        if first != 1 || switches {
            heard.failed = first == 5 && !(has_zero && matches!(byte, b'1' | b'5'));
            return (0, heard);
        }
        (at, is_interim, was_interim) = (0, true, true);
    }
    let bit = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
    let kept = u64::from(first) << FIRST | bit(has_zero, IS_ZERO) | bit(is_interim, IS_INTERIM);
    // Nothing of what is to follow an interim answer is out.
    heard.is_interim = was_interim && (is_interim || at == 0);
    (BEGINS | kept | at as u64, heard)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{connection, in_pieces};
    use super::*;
    use crate::layout::protocol;
    use proptest::prelude::*;

    fn heard(bytes: &[u8], sizes: &[usize]) -> (bool, bool) {
        let heard = in_pieces(&connection(protocol::UNKNOWN), bytes, sizes);
        (heard.is_http, heard.failed)
    }

    #[test]
    fn a_status_of_500_and_more_is_the_servers_failure() {
        for (line, is_http, failed) in [
            ("HTTP/1.1 200 OK\r\n", true, false),
            ("HTTP/1.1 404 Not Found\r\n", true, false),
            ("HTTP/1.1 429 Too Many Requests\r\n", true, false),
            ("HTTP/1.1 500 Internal Server Error\r\n", true, true),
            ("HTTP/1.0 503 Service Unavailable\r\n", true, true),
            ("HTTP/1.1 501 Not Implemented\r\n", true, false),
            ("HTTP/1.1 505 HTTP Version Not Supported\r\n", true, false),
            ("HTTP/1.1 511 \r\n", true, true),
            ("HTTP/1.1 5", false, false),
            ("HTTP/2 500 \r\n", false, false),
            ("<p>HTTP/1.1 500 \r\n", false, false),
            ("\x01\x06\0\x01\0\x20\0\0Status: 500\r\n", false, false),
            ("5", false, false),
        ] {
            assert_eq!(heard(line.as_bytes(), &[1000]), (is_http, failed), "{line}");
        }
    }

    #[test]
    fn what_follows_is_not_read() {
        let answer = b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 500 \r\n";
        assert_eq!(heard(answer, &[1000]), (true, false));
        assert_eq!(heard(answer, &[19]), (true, false));
    }

    #[test]
    fn an_interim_answer_is_none_yet() {
        let interim = b"HTTP/1.1 100 Continue\r\n\r\n";
        let (answer, said) = read(BEGINS, interim);
        assert!(said.is_interim && !said.failed);
        assert!(read(answer, b"HTTP/1.1 500 so\r\n").1.failed);
        let hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nLink: </b>\r\n\r\nHTTP/1.1 503 \r\n";
        for size in [1, 7, 100] {
            assert_eq!(heard(hints, &[size]), (true, true), "{size}");
        }
        assert!(!read(BEGINS, hints).1.is_interim);
        // Whatever piece of it goes out.
        let mut answer = BEGINS;
        for (at, piece) in interim.chunks(5).enumerate() {
            let said;
            (answer, said) = read(answer, piece);
            assert_eq!(said.is_interim, at >= 2, "{at}");
        }
        assert!(!read(answer, b"HTTP/1").1.is_interim);
        let (answer, said) = read(BEGINS, b"HTTP/1.1 101 Switching Protocols\r\n\r\n");
        assert!(answer == 0 && said.is_http && !said.is_interim);
    }

    proptest! {
        #[test]
        fn in_whatever_pieces_it_says_the_same(status in 200..600_u16, sizes in proptest::collection::vec(1_usize..20, 1..20)) {
            let answer = format!("HTTP/1.1 {status} so\r\nContent-Length: 0\r\n\r\n");
            let failed = status >= 500 && ![501, 505].contains(&status);
            prop_assert_eq!(heard(answer.as_bytes(), &sizes), (true, failed));
        }

        #[test]
        fn nothing_that_is_sent_stops_it(answer: u64, bytes in proptest::collection::vec(any::<u8>(), 0..30)) {
            read(answer, &bytes);
        }
    }
}
