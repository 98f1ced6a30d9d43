use super::*;

const BOUNDS: Bounds = Bounds {
    bytes: 4096,
    fields: 100,
};

/// The head, and what is left behind it.
fn read(text: &str) -> Result<Option<(Head, Bytes)>, u16> {
    let mut received = Bytes::copy_from_slice(text.as_bytes());
    take(&mut received, BOUNDS, &mut Names::default())
        .map(|head| head.map(|head| (head, received)))
        .map_err(|refusal| refusal.status.as_u16())
}

/// A head with these fields.
fn with(fields: &str) -> Result<Head, u16> {
    read(&format!("POST /b HTTP/1.1\r\nHost: t\r\n{fields}\r\n")).map(|head| head.expect("it is whole").0)
}

#[test]
fn how_the_body_comes_follows_the_rfc() {
    let coming = |fields: &str| with(fields).map(|head| head.coming);
    assert_eq!(coming(""), Ok(Coming::Nothing));
    assert_eq!(coming("Content-Length: 0\r\n"), Ok(Coming::Nothing));
    assert_eq!(
        coming("Content-Length: 5\r\ncontent-length: 5\r\n"),
        Ok(Coming::Length(5))
    );
    assert_eq!(
        coming("Transfer-Encoding: gzip, Chunked\r\n"),
        Ok(Coming::Chunked)
    );
    for fields in [
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Content-Length:\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: identity\r\n",
    ] {
        assert_eq!(coming(fields), Err(400), "{fields}");
    }
    let of_1_0 = "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(read(of_1_0).map(|_| ()), Err(400));
}

#[test]
fn two_lengths_are_told_and_the_one_that_does_not_count_is_left_out() {
    let both = "Content-Length: 5\r\ntransfer-ENCODING: chunked\r\n";
    let around = "transfer-ENCODING: chunked\r\nContent-Length: 5\r\n";
    for fields in [both, around] {
        let head = with(fields).unwrap();
        assert!(head.text.has_both_lengths && head.coming == Coming::Chunked);
        assert!(!head.parts.headers.contains_key("content-length"));
    }
    assert!(
        !with("Transfer-Encoding: chunked\r\n")
            .unwrap()
            .text
            .has_both_lengths
    );
}

#[test]
fn a_target_without_a_path_is_told_from_one_with_a_slash() {
    let targets = [
        "http://h",
        "http://h/",
        "http://h?q",
        "HTTP://[::1]:80",
        "/",
        "*",
        "/a://b",
    ];
    let empty = targets.map(|target| {
        let read = read(&format!("OPTIONS {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
        read.unwrap().unwrap().0.text.has_empty_path
    });
    assert_eq!(empty, [true, false, false, true, false, false, false]);
}

#[test]
fn a_connection_is_kept_as_its_fields_say_also_beside_bytes_that_are_no_text() {
    let keeps = |version: &str, field: &[u8]| {
        let mut text = format!("GET / HTTP/{version}\r\nHost: t\r\nConnection: ").into_bytes();
        text.extend_from_slice(field);
        text.extend_from_slice(b"\r\n\r\n");
        let head = take(&mut text.into(), BOUNDS, &mut Names::default());
        head.unwrap().unwrap().keep_alive
    };
    assert!(keeps("1.1", b"x") && !keeps("1.0", b"x"));
    assert!(keeps("1.0", b"Keep-Alive") && keeps("1.1", b"keep-alive"));
    assert!(!keeps("1.1", b"x, CLOSE") && !keeps("1.0", b"close, keep-alive"));
    assert!(!keeps("1.1", b"\xff\xfe, close"));
}

#[test]
fn trailer_fields_are_taken_by_whoever_says_so() {
    assert!(with("TE: deflate, Trailers\r\n").unwrap().takes_trailers);
    assert!(!with("TE: deflate\r\n").unwrap().takes_trailers);
}

#[test]
fn a_head_is_taken_alone_and_a_part_of_one_is_left_for_later() {
    let (head, rest) = read("\r\nGET /a HTTP/1.1\nHost: t\n\nGET /b").unwrap().unwrap();
    assert_eq!((head.parts.uri.path(), &rest[..]), ("/a", &b"GET /b"[..]));
    assert!(read("GET /a HTTP/1.1\r\nHost: t\r\n").unwrap().is_none());
    assert!(read("").unwrap().is_none());
}

#[test]
fn what_is_too_large_or_no_http_is_refused_by_its_own_status() {
    let refused = |text: &str| read(text).map(|_| ());
    let long = "x".repeat(BOUNDS.bytes);
    assert_eq!(refused(&format!("GET /{long}")), Err(414));
    assert_eq!(
        refused(&format!("GET /{long} HTTP/1.1\r\nHost: t\r\n\r\n")),
        Err(414)
    );
    assert_eq!(refused(&format!("GET / HTTP/1.1\r\nx: {long}")), Err(431));
    assert_eq!(refused(&format!("GET / HTTP/1.1\r\nx: {long}\r\n\r\n")), Err(431));
    let fields = |count: usize| format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(count));
    assert_eq!((refused(&fields(100)), refused(&fields(101))), (Ok(()), Err(431)));
    assert_eq!(refused("GET / HTTP/2.0\r\nHost: t\r\n\r\n"), Err(505));
    for text in [
        "GET / HTTP/1.1\r\nHost : t\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: t\r\n folded\r\n\r\n",
        "GET /a b HTTP/1.1\r\n\r\n",
        "G\u{1}T / HTTP/1.1\r\n\r\n",
        "GET /%\u{1} HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nx: \u{1}\r\n\r\n",
    ] {
        assert!(
            matches!(refused(text), Err(400 | 505)),
            "{text:?}: {:?}",
            refused(text)
        );
    }
}
