//! The status line of an HTTP answer (RFC 9112, Section 4): a server's failure is a 5xx (RFC 9110, Section 15.6).

use super::{BEGINS, Heard};

/// A digit.
const DIGIT: u8 = b'0';
/// The line up to its status; of which digits are any.
const LINE: [u8; 12] = *b"HTTP/1.0 000";
/// Where the status begins.
const STATUS: usize = 9;
/// A status is of the server's failures where its first digit is this.
const FAILED: u8 = b'5';
/// Where it is kept that it is.
const IS_FAILED: u64 = 1 << 8;

/// What the first bytes of an answer say: as far as they are such a line their number is kept, and nothing is read of what follows.
pub fn read(answer: u64, bytes: &[u8]) -> (u64, Heard) {
    let mut heard = Heard::default();
    if answer & BEGINS == 0 {
        return (answer, heard);
    }
    let mut at = answer as u8 as usize;
    let mut is_failed = answer & IS_FAILED != 0;
    for byte in bytes {
        let is_it = match LINE.get(at) {
            Some(&DIGIT) => byte.is_ascii_digit(),
            Some(wanted) => byte == wanted,
            None => false,
        };
        if !is_it {
            return (0, heard);
        }
        is_failed |= at == STATUS && *byte == FAILED;
        at += 1;
        if at == LINE.len() {
            heard.is_http = true;
            heard.failed = is_failed;
            return (0, heard);
        }
    }
    let kept = if is_failed { IS_FAILED } else { 0 };
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

    proptest! {
        #[test]
        fn in_whatever_pieces_it_says_the_same(status in 100..600_u16, sizes in proptest::collection::vec(1_usize..20, 1..20)) {
            let answer = format!("HTTP/1.1 {status} so\r\nContent-Length: 0\r\n\r\n");
            prop_assert_eq!(heard(answer.as_bytes(), &sizes), (true, status >= 500));
        }

        #[test]
        fn nothing_that_is_sent_stops_it(answer: u64, bytes in proptest::collection::vec(any::<u8>(), 0..30)) {
            read(answer, &bytes);
        }
    }
}
