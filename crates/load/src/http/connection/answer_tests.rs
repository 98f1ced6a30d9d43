use super::*;
use proptest::prelude::*;

/// Reads an answer that comes in such pieces, after which the connection ends where it says so.
fn read(pieces: &[&[u8]], ends: bool, is_to_head: bool) -> Result<Option<(u16, u64, bool)>, Malformed> {
    let mut reader = AnswerReader::new();
    reader.begin(is_to_head, true);
    let mut whole = false;
    for piece in pieces {
        whole = reader.feed(piece)?;
    }
    if ends {
        whole |= reader.ended();
    }
    Ok(whole.then_some((reader.status.as_u16(), reader.body_bytes, reader.keeps_alive)))
}

fn once(text: &str) -> Result<Option<(u16, u64, bool)>, Malformed> {
    read(&[text.as_bytes()], false, false)
}

#[test]
fn an_answer_ends_where_its_framing_says() {
    for (text, wanted) in [
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
            (200, 5, true),
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", (200, 0, true)),
        ("HTTP/1.1 204 No Content\r\n\r\n", (204, 0, true)),
        (
            "HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n",
            (304, 0, true),
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
            (200, 13, true),
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx-sum: 1\r\n\r\n",
            (200, 1, true),
        ),
        (
            "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 503 Later\r\ncontent-length: 1\r\n\r\n!",
            (503, 1, true),
        ),
        (
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx",
            (200, 1, false),
        ),
        ("HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx", (200, 1, false)),
        (
            "HTTP/1.0 200 OK\r\nconnection: Keep-Alive\r\ncontent-length: 1\r\n\r\nx",
            (200, 1, true),
        ),
        (
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
            (101, 0, false),
        ),
        // What follows was not asked for.
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nxHTTP/1.1",
            (200, 1, false),
        ),
    ] {
        assert_eq!(once(text), Ok(Some(wanted)), "{text}");
    }
    let with_length = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n".as_bytes();
    assert_eq!(
        read(&[with_length], false, true),
        Ok(Some((200, 0, true))),
        "to HEAD"
    );
}

#[test]
fn an_answer_without_a_length_ends_with_the_connection_and_no_other_does() {
    let until_end = "HTTP/1.1 200 OK\r\n\r\nabc".as_bytes();
    assert_eq!(read(&[until_end], false, false), Ok(None));
    assert_eq!(read(&[until_end], true, false), Ok(Some((200, 3, false))));
    for cut in [
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
        "HTTP/1.1 20",
        "HTTP/1.1 103 Early Hints\r\n\r\n",
        "",
    ] {
        assert_eq!(read(&[cut.as_bytes()], true, false), Ok(None), "{cut}");
    }
}

#[test]
fn what_is_not_http_is_refused() {
    let long_head = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(MAX_HEAD_BYTES));
    let chunked = |chunks: &str| format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunks}");
    for text in [
        "SMTP ready\r\n\r\n".to_owned(),
        "HTTP/1.1 20x OK\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello".to_owned(),
        "HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n".to_owned(),
        long_head,
        chunked("x\r\n"),
        chunked("\r\n\r\n"),
        chunked("11111111111111111\r\n"),
        chunked("1\r\nab\r\n"),
        chunked(&format!("1;{}", "e".repeat(MAX_LINE_BYTES))),
    ] {
        assert_eq!(once(&text), Err(Malformed), "{text:.60}");
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(
            read(&pieces, false, false),
            Err(Malformed),
            "piecemeal: {text:.60}"
        );
    }
}

#[test]
fn a_marker_is_found_in_the_beginning_of_a_body_only() {
    let found = |before: usize, pieces: usize| {
        let body = format!("{}<!-- home -->", "x".repeat(before));
        let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let mut reader = AnswerReader::new();
        reader.begin(false, true);
        for piece in text.as_bytes().chunks(text.len() / pieces) {
            reader.feed(piece).unwrap();
        }
        reader.holds(b"<!-- home -->")
    };
    assert!(found(0, 1) && found(300, 7) && found(BEGINNING - 13, 3));
    assert!(!found(BEGINNING - 12, 1) && !found(2000, 5));
}

proptest! {
    /// However an answer is cut up, it is read as if it came whole.
    #[test]
    fn pieces_make_no_difference(
        body in proptest::collection::vec(any::<u8>(), 0..300),
        chunks in proptest::option::of(1usize..80),
        early in 0usize..3,
        cuts in proptest::collection::vec(1usize..40, 1..60),
    ) {
        let mut text = "HTTP/1.1 103 Early\r\nlink: <a>\r\n\r\n".repeat(early).into_bytes();
        match chunks {
            None => {
                text.extend(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()).bytes());
                text.extend(&body);
            }
            Some(size) => {
                text.extend(b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n");
                for chunk in body.chunks(size) {
                    text.extend(format!("{:x}\r\n", chunk.len()).bytes());
                    text.extend(chunk);
                    text.extend(b"\r\n");
                }
                text.extend(b"0\r\nx-after: 1\r\n\r\n");
            }
        }
        let mut pieces = Vec::new();
        let mut rest = &text[..];
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, left) = rest.split_at(rest.len().min(*cut));
            pieces.push(piece);
            rest = left;
        }
        prop_assert_eq!(read(&pieces, false, false), Ok(Some((200, body.len() as u64, true))));
        // One byte less is not the whole of it.
        if let Some(last) = pieces.last_mut() {
            *last = &last[..last.len() - 1];
        }
        prop_assert_eq!(read(&pieces, false, false), Ok(None));
    }

    /// Whatever comes, it is read or refused, and what is kept of it is bounded.
    #[test]
    fn nothing_makes_the_reader_fail(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..20),
        is_to_head: bool,
    ) {
        for begun in [&b""[..], b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"] {
            let mut reader = AnswerReader::new();
            reader.begin(is_to_head, true);
            let mut parts = std::iter::once(begun).chain(pieces.iter().map(Vec::as_slice));
            let _ = parts.try_for_each(|part| reader.feed(part).map(drop));
            prop_assert!(reader.partial.len() <= MAX_HEAD_BYTES + 1);
        }
    }
}
