//! The cases.

use Verdict::{Body, Forward, Refuse};

/// What the gateway may do with a case.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// It must refuse it.
    Refuse,
    /// It may forward it, then with this body.
    Body(&'static str),
    /// It must forward it, with this body.
    Forward(&'static str),
}

/// Hidden in cases: it must never be served.
pub const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: t\r\n\r\n";

/// Each with its name, its bytes, and what may be done with it.
pub fn cases() -> Vec<(&'static str, Vec<u8>, Verdict)> {
    let post = |fields: &str, rest: &str| {
        format!("POST /case HTTP/1.1\r\nHost: t\r\n{fields}\r\n\r\n{rest}").into_bytes()
    };
    let chunked = |rest: &str| post("Transfer-Encoding: chunked", rest);
    let get = |head: &str| format!("{head}\r\n\r\n").into_bytes();
    let mut cases = vec![
        // The ordinary ones, so that a gateway that refuses everything fails.
        (
            "plain length",
            post("Content-Length: 5", "hello"),
            Forward("hello"),
        ),
        (
            "plain chunked",
            chunked("5\r\nhello\r\n0\r\n\r\n"),
            Forward("hello"),
        ),
        (
            "chunk extensions",
            chunked("5;a=b;c=\"d\"\r\nhello\r\n0;e\r\n\r\n"),
            Forward("hello"),
        ),
        (
            "trailers",
            chunked("5\r\nhello\r\n0\r\nX-A: b\r\n\r\n"),
            Forward("hello"),
        ),
        (
            "capital hex",
            chunked("A\r\n0123456789\r\n0\r\n\r\n"),
            Forward("0123456789"),
        ),
        ("no body", post("Content-Length: 0", ""), Forward("")),
        // Content-Length.
        (
            "two equal lengths",
            post("Content-Length: 5\r\nContent-Length: 5", "hello"),
            Body("hello"),
        ),
        (
            "two lengths",
            post("Content-Length: 5\r\nContent-Length: 6", "hello!"),
            Refuse,
        ),
        (
            "two lengths, 0 first",
            post("Content-Length: 0\r\nContent-Length: 35", SMUGGLED),
            Refuse,
        ),
        ("length list", post("Content-Length: 5, 5", "hello"), Refuse),
        (
            "length list, different",
            post("Content-Length: 5, 6", "hello!"),
            Refuse,
        ),
        ("length +5", post("Content-Length: +5", "hello"), Refuse),
        ("length -5", post("Content-Length: -5", "hello"), Refuse),
        ("length 0x5", post("Content-Length: 0x5", "hello"), Refuse),
        ("length 5 5", post("Content-Length: 5 5", "hello"), Refuse),
        ("length 5.0", post("Content-Length: 5.0", "hello"), Refuse),
        ("length empty", post("Content-Length: ", SMUGGLED), Refuse),
        (
            "length overflow",
            post("Content-Length: 18446744073709551621", "hello"),
            Refuse,
        ),
        (
            "length with a quote",
            post("Content-Length: \"5\"", "hello"),
            Refuse,
        ),
        (
            "length with leading zeros",
            post("Content-Length: 0005", "hello"),
            Body("hello"),
        ),
        // Both.
        (
            "length then chunked",
            post("Content-Length: 5\r\nTransfer-Encoding: chunked", "0\r\n\r\n"),
            Refuse,
        ),
        (
            "chunked then length",
            post("Transfer-Encoding: chunked\r\nContent-Length: 5", "0\r\n\r\n"),
            Refuse,
        ),
        (
            "CL.TE",
            post(
                "Content-Length: 40\r\nTransfer-Encoding: chunked",
                &format!("0\r\n\r\n{SMUGGLED}"),
            ),
            Refuse,
        ),
        (
            "TE.CL",
            post(
                "Transfer-Encoding: chunked\r\nContent-Length: 4",
                &format!("23\r\n{SMUGGLED}\r\n0\r\n\r\n"),
            ),
            Refuse,
        ),
        (
            "chunked, bad length after",
            post("Transfer-Encoding: chunked\r\nContent-Length: x", "0\r\n\r\n"),
            Refuse,
        ),
        // Transfer-Encoding.
        (
            "chunked, identity",
            post("Transfer-Encoding: chunked, identity", "0\r\n\r\n"),
            Refuse,
        ),
        (
            "identity, chunked",
            post("Transfer-Encoding: identity, chunked", "0\r\n\r\n"),
            Refuse,
        ),
        (
            "gzip, chunked",
            post("Transfer-Encoding: gzip, chunked", "0\r\n\r\n"),
            Refuse,
        ),
        ("identity", post("Transfer-Encoding: identity", SMUGGLED), Refuse),
        (
            "xchunked",
            post("Transfer-Encoding: xchunked", "0\r\n\r\n"),
            Refuse,
        ),
        (
            "chunkedx",
            post("Transfer-Encoding: chunkedx", "0\r\n\r\n"),
            Refuse,
        ),
        (
            "quoted chunked",
            post("Transfer-Encoding: \"chunked\"", "0\r\n\r\n"),
            Refuse,
        ),
        (
            "chunked;q=1",
            post("Transfer-Encoding: chunked;q=1", "0\r\n\r\n"),
            Refuse,
        ),
        (
            "chunked, chunked",
            post("Transfer-Encoding: chunked, chunked", "0\r\n\r\n"),
            Refuse,
        ),
        ("empty coding", post("Transfer-Encoding: ", SMUGGLED), Refuse),
        (
            "comma chunked",
            post("Transfer-Encoding: , chunked", "0\r\n\r\n"),
            Refuse,
        ),
        (
            "two codings",
            post(
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
                "0\r\n\r\n",
            ),
            Refuse,
        ),
        (
            "identity and chunked",
            post(
                "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
                "0\r\n\r\n",
            ),
            Refuse,
        ),
        (
            "chunked and identity",
            post(
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
                "0\r\n\r\n",
            ),
            Refuse,
        ),
        (
            "leading blanks",
            post("Transfer-Encoding:   chunked", "5\r\nhello\r\n0\r\n\r\n"),
            Body("hello"),
        ),
        (
            "leading tab",
            post("Transfer-Encoding:\tchunked", "5\r\nhello\r\n0\r\n\r\n"),
            Body("hello"),
        ),
        (
            "trailing blank",
            post("Transfer-Encoding: chunked ", "5\r\nhello\r\n0\r\n\r\n"),
            Body("hello"),
        ),
        (
            "capitals",
            post("TRANSFER-ENCODING: CHUNKED", "5\r\nhello\r\n0\r\n\r\n"),
            Body("hello"),
        ),
        (
            "vertical tab",
            post("Transfer-Encoding: \u{b}chunked", "0\r\n\r\n"),
            Refuse,
        ),
        (
            "blank before colon",
            post("Transfer-Encoding : chunked", "0\r\n\r\n"),
            Refuse,
        ),
        (
            "blank before colon, length",
            post("Content-Length : 5", "hello"),
            Refuse,
        ),
        ("tab before colon", post("Content-Length\t: 5", "hello"), Refuse),
        (
            "underscored",
            post("Transfer_Encoding: chunked\r\nContent-Length: 5", "hello"),
            Body("hello"),
        ),
        (
            "line folded coding",
            post("Transfer-Encoding:\r\n chunked", "0\r\n\r\n"),
            Refuse,
        ),
        (
            "line folded length",
            post("Content-Length:\r\n 5", "hello"),
            Refuse,
        ),
        (
            "folded field",
            post("X-A: b\r\n c\r\nContent-Length: 5", "hello"),
            Refuse,
        ),
        (
            "folded first field",
            b"GET /case HTTP/1.1\r\n Host: t\r\n\r\n".to_vec(),
            Refuse,
        ),
        (
            "coding in HTTP/1.0",
            b"POST /case HTTP/1.0\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
                .to_vec(),
            Refuse,
        ),
        (
            "named by Connection",
            post("Connection: content-length\r\nContent-Length: 5", "hello"),
            Body("hello"),
        ),
        (
            "coding named by Connection",
            post(
                "Connection: transfer-encoding\r\nTransfer-Encoding: chunked",
                "5\r\nhello\r\n0\r\n\r\n",
            ),
            Body("hello"),
        ),
        // Chunks.
        ("size 0x5", chunked("0x5\r\nhello\r\n0\r\n\r\n"), Refuse),
        ("size +5", chunked("+5\r\nhello\r\n0\r\n\r\n"), Refuse),
        ("size -5", chunked("-5\r\nhello\r\n0\r\n\r\n"), Refuse),
        ("size empty", chunked("\r\nhello\r\n0\r\n\r\n"), Refuse),
        (
            "size overflow",
            chunked("10000000000000005\r\nhello\r\n0\r\n\r\n"),
            Refuse,
        ),
        ("size g", chunked("g\r\nhello\r\n0\r\n\r\n"), Refuse),
        ("size too small", chunked("4\r\nhello\r\n0\r\n\r\n"), Refuse),
        ("chunk without CRLF", chunked("5\r\nhello0\r\n\r\n"), Refuse),
        ("chunk ends in LF", chunked("5\r\nhello\n0\r\n\r\n"), Refuse),
        ("size ends in LF", chunked("5\nhello\r\n0\r\n\r\n"), Refuse),
        ("extension with LF", chunked("5;a\nhello\r\n0\r\n\r\n"), Refuse),
        (
            "extension hides CR",
            chunked("5;a\rb\r\nhello\r\n0\r\n\r\n"),
            Refuse,
        ),
        (
            "trailer smuggles length",
            chunked("5\r\nhello\r\n0\r\nContent-Length: 9\r\n\r\n"),
            Body("hello"),
        ),
        (
            "trailer smuggles coding",
            chunked("5\r\nhello\r\n0\r\nTransfer-Encoding: x\r\n\r\n"),
            Body("hello"),
        ),
        (
            "trailer smuggles host",
            chunked("5\r\nhello\r\n0\r\nHost: evil\r\n\r\n"),
            Body("hello"),
        ),
        // Lines.
        (
            "bare LF in the head",
            b"GET /case HTTP/1.1\nHost: t\n\n".to_vec(),
            Body(""),
        ),
        (
            "bare LF before length",
            b"POST /case HTTP/1.1\r\nHost: t\nContent-Length: 5\r\n\r\nhello".to_vec(),
            Body("hello"),
        ),
        (
            "LF hides coding",
            post(
                "X: a\nTransfer-Encoding: chunked\r\nContent-Length: 5",
                "0\r\n\r\n",
            ),
            Refuse,
        ),
        (
            "CR in a value",
            post("X: a\rTransfer-Encoding: chunked\r\nContent-Length: 5", "hello"),
            Refuse,
        ),
        ("CR CR LF", get("GET /case HTTP/1.1\r\nHost: t\r\nX: a\r"), Refuse),
        (
            "NUL in a value",
            get("GET /case HTTP/1.1\r\nHost: t\r\nX: a\0b"),
            Refuse,
        ),
        (
            "NUL in a name",
            get("GET /case HTTP/1.1\r\nHost: t\r\nX\0: a"),
            Refuse,
        ),
        (
            "NUL in the target",
            get("GET /case\0 HTTP/1.1\r\nHost: t"),
            Refuse,
        ),
        (
            "no colon",
            get("GET /case HTTP/1.1\r\nHost: t\r\nNoColon"),
            Refuse,
        ),
        ("empty name", get("GET /case HTTP/1.1\r\nHost: t\r\n: a"), Refuse),
        (
            "name in brackets",
            get("GET /case HTTP/1.1\r\nHost: t\r\n[x]: a"),
            Refuse,
        ),
        // The request line.
        ("two blanks", get("GET  /case HTTP/1.1\r\nHost: t"), Refuse),
        (
            "blank in the target",
            get("GET /case /x HTTP/1.1\r\nHost: t"),
            Refuse,
        ),
        (
            "tab in the request line",
            get("GET\t/case HTTP/1.1\r\nHost: t"),
            Refuse,
        ),
        ("no version", get("GET /case\r\nHost: t"), Refuse),
        ("version 1.2", get("GET /case HTTP/1.2\r\nHost: t"), Refuse),
        ("version 2.0", get("GET /case HTTP/2.0\r\nHost: t"), Refuse),
        ("lower-case version", get("GET /case http/1.1\r\nHost: t"), Refuse),
        (
            "version hides a request",
            get("GET /case HTTP/1.1 GET /smuggled HTTP/1.1\r\nHost: t"),
            Refuse,
        ),
        (
            "method with a blank",
            get("G ET /case HTTP/1.1\r\nHost: t"),
            Refuse,
        ),
        (
            "leading CRLF",
            b"\r\n\r\nGET /case HTTP/1.1\r\nHost: t\r\n\r\n".to_vec(),
            Body(""),
        ),
        ("no host", get("GET /case HTTP/1.1"), Refuse),
        (
            "two hosts",
            get("GET /case HTTP/1.1\r\nHost: t\r\nHost: t"),
            Refuse,
        ),
        (
            "host with a blank",
            get("GET /case HTTP/1.1\r\nHost: t evil"),
            Refuse,
        ),
        ("host list", get("GET /case HTTP/1.1\r\nHost: t/evil"), Refuse),
        ("CONNECT", get("CONNECT t:80 HTTP/1.1\r\nHost: t:80"), Refuse),
        // Bodies where none is expected.
        (
            "GET with a length",
            get("GET /case HTTP/1.1\r\nHost: t\r\nContent-Length: 5")
                .into_iter()
                .chain(*b"hello")
                .collect(),
            Body("hello"),
        ),
        (
            "GET chunked",
            b"GET /case HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
                .to_vec(),
            Body("hello"),
        ),
        (
            "upgrade with a body",
            post(
                "Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 5",
                "hello",
            ),
            Body("hello"),
        ),
        (
            "h2c upgrade",
            get(
                "GET /case HTTP/1.1\r\nHost: t\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA",
            ),
            Forward(""),
        ),
    ];
    let long = "x".repeat(40_000);
    let many: String = (0..200).map(|n| format!("X-{n}: 1\r\n")).collect();
    cases.push((
        "long field",
        get(&format!("GET /case HTTP/1.1\r\nHost: t\r\nX: {long}")),
        Refuse,
    ));
    cases.push((
        "long name",
        get(&format!("GET /case HTTP/1.1\r\nHost: t\r\n{long}: x")),
        Refuse,
    ));
    cases.push((
        "long target",
        get(&format!("GET /{long} HTTP/1.1\r\nHost: t")),
        Refuse,
    ));
    cases.push((
        "many fields",
        format!("GET /case HTTP/1.1\r\nHost: t\r\n{many}\r\n").into_bytes(),
        Refuse,
    ));
    cases.push((
        "long chunk extension",
        chunked(&format!("5;{long}\r\nhello\r\n0\r\n\r\n")),
        Refuse,
    ));
    cases.push((
        "long trailers",
        chunked(&format!("5\r\nhello\r\n0\r\nX: {long}\r\n\r\n")),
        Refuse,
    ));
    cases
}
