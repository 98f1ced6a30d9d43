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

/// A case a line: its name, what may be done with it, how the rest is to be read (`post`: fields, then what follows the
/// head; `chunked`: what follows the head; `whole`: the bytes), and the rest.
const CASES: &[&str] = &[
    // The ordinary ones, so that a gateway that refuses everything fails.
    "plain length | forward hello | post | Content-Length: 5 | hello",
    "plain chunked | forward hello | chunked | 5\r\nhello\r\n0\r\n\r\n",
    "chunk extensions | forward hello | chunked | 5;a=b;c=\"d\"\r\nhello\r\n0;e\r\n\r\n",
    "trailers | forward hello | chunked | 5\r\nhello\r\n0\r\nX-A: b\r\n\r\n",
    "capital hex | forward 0123456789 | chunked | A\r\n0123456789\r\n0\r\n\r\n",
    "no body | forward | post | Content-Length: 0 | ",
    // Content-Length.
    "two equal lengths | body hello | post | Content-Length: 5\r\nContent-Length: 5 | hello",
    "two lengths | refuse | post | Content-Length: 5\r\nContent-Length: 6 | hello!",
    "two lengths, 0 first | refuse | post | Content-Length: 0\r\nContent-Length: 35 | {SMUGGLED}",
    "length list | refuse | post | Content-Length: 5, 5 | hello",
    "length list, different | refuse | post | Content-Length: 5, 6 | hello!",
    "length +5 | refuse | post | Content-Length: +5 | hello",
    "length -5 | refuse | post | Content-Length: -5 | hello",
    "length 0x5 | refuse | post | Content-Length: 0x5 | hello",
    "length 5 5 | refuse | post | Content-Length: 5 5 | hello",
    "length 5.0 | refuse | post | Content-Length: 5.0 | hello",
    "length empty | refuse | post | Content-Length:  | {SMUGGLED}",
    "length overflow | refuse | post | Content-Length: 18446744073709551621 | hello",
    "length with a quote | refuse | post | Content-Length: \"5\" | hello",
    "length with leading zeros | body hello | post | Content-Length: 0005 | hello",
    // Both.
    "length then chunked | refuse | post | Content-Length: 5\r\nTransfer-Encoding: chunked | 0\r\n\r\n",
    "chunked then length | refuse | post | Transfer-Encoding: chunked\r\nContent-Length: 5 | 0\r\n\r\n",
    "CL.TE | refuse | post | Content-Length: 40\r\nTransfer-Encoding: chunked | 0\r\n\r\n{SMUGGLED}",
    "TE.CL | refuse | post | Transfer-Encoding: chunked\r\nContent-Length: 4 | 23\r\n{SMUGGLED}\r\n0\r\n\r\n",
    "chunked, bad length after | refuse | post | Transfer-Encoding: chunked\r\nContent-Length: x | 0\r\n\r\n",
    // Transfer-Encoding.
    "chunked, identity | refuse | post | Transfer-Encoding: chunked, identity | 0\r\n\r\n",
    "identity, chunked | refuse | post | Transfer-Encoding: identity, chunked | 0\r\n\r\n",
    "gzip, chunked | refuse | post | Transfer-Encoding: gzip, chunked | 0\r\n\r\n",
    "identity | refuse | post | Transfer-Encoding: identity | {SMUGGLED}",
    "xchunked | refuse | post | Transfer-Encoding: xchunked | 0\r\n\r\n",
    "chunkedx | refuse | post | Transfer-Encoding: chunkedx | 0\r\n\r\n",
    "quoted chunked | refuse | post | Transfer-Encoding: \"chunked\" | 0\r\n\r\n",
    "chunked;q=1 | refuse | post | Transfer-Encoding: chunked;q=1 | 0\r\n\r\n",
    "chunked, chunked | refuse | post | Transfer-Encoding: chunked, chunked | 0\r\n\r\n",
    "empty coding | refuse | post | Transfer-Encoding:  | {SMUGGLED}",
    "comma chunked | refuse | post | Transfer-Encoding: , chunked | 0\r\n\r\n",
    "two codings | refuse | post | Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked | 0\r\n\r\n",
    "identity and chunked | refuse | post | Transfer-Encoding: identity\r\nTransfer-Encoding: chunked | 0\r\n\r\n",
    "chunked and identity | refuse | post | Transfer-Encoding: chunked\r\nTransfer-Encoding: identity | 0\r\n\r\n",
    "leading blanks | body hello | post | Transfer-Encoding:   chunked | 5\r\nhello\r\n0\r\n\r\n",
    "leading tab | body hello | post | Transfer-Encoding:\tchunked | 5\r\nhello\r\n0\r\n\r\n",
    "trailing blank | body hello | post | Transfer-Encoding: chunked  | 5\r\nhello\r\n0\r\n\r\n",
    "capitals | body hello | post | TRANSFER-ENCODING: CHUNKED | 5\r\nhello\r\n0\r\n\r\n",
    "vertical tab | refuse | post | Transfer-Encoding: \u{b}chunked | 0\r\n\r\n",
    "blank before colon | refuse | post | Transfer-Encoding : chunked | 0\r\n\r\n",
    "blank before colon, length | refuse | post | Content-Length : 5 | hello",
    "tab before colon | refuse | post | Content-Length\t: 5 | hello",
    "underscored | body hello | post | Transfer_Encoding: chunked\r\nContent-Length: 5 | hello",
    "line folded coding | refuse | post | Transfer-Encoding:\r\n chunked | 0\r\n\r\n",
    "line folded length | refuse | post | Content-Length:\r\n 5 | hello",
    "folded field | refuse | post | X-A: b\r\n c\r\nContent-Length: 5 | hello",
    "folded first field | refuse | whole | GET /case HTTP/1.1\r\n Host: t\r\n\r\n",
    "coding in HTTP/1.0 | refuse | whole | POST /case HTTP/1.0\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "named by Connection | body hello | post | Connection: content-length\r\nContent-Length: 5 | hello",
    "coding named by Connection | body hello | post | Connection: transfer-encoding\r\nTransfer-Encoding: chunked | 5\r\nhello\r\n0\r\n\r\n",
    // Chunks.
    "size 0x5 | refuse | chunked | 0x5\r\nhello\r\n0\r\n\r\n",
    "size +5 | refuse | chunked | +5\r\nhello\r\n0\r\n\r\n",
    "size -5 | refuse | chunked | -5\r\nhello\r\n0\r\n\r\n",
    "size empty | refuse | chunked | \r\nhello\r\n0\r\n\r\n",
    "size overflow | refuse | chunked | 10000000000000005\r\nhello\r\n0\r\n\r\n",
    "size g | refuse | chunked | g\r\nhello\r\n0\r\n\r\n",
    "size too small | refuse | chunked | 4\r\nhello\r\n0\r\n\r\n",
    "chunk without CRLF | refuse | chunked | 5\r\nhello0\r\n\r\n",
    "chunk ends in LF | refuse | chunked | 5\r\nhello\n0\r\n\r\n",
    "size ends in LF | refuse | chunked | 5\nhello\r\n0\r\n\r\n",
    "extension with LF | refuse | chunked | 5;a\nhello\r\n0\r\n\r\n",
    "extension hides CR | refuse | chunked | 5;a\rb\r\nhello\r\n0\r\n\r\n",
    "trailer smuggles length | body hello | chunked | 5\r\nhello\r\n0\r\nContent-Length: 9\r\n\r\n",
    "trailer smuggles coding | body hello | chunked | 5\r\nhello\r\n0\r\nTransfer-Encoding: x\r\n\r\n",
    "trailer smuggles host | body hello | chunked | 5\r\nhello\r\n0\r\nHost: evil\r\n\r\n",
    // Lines.
    "bare LF in the head | body | whole | GET /case HTTP/1.1\nHost: t\n\n",
    "bare LF before length | body hello | whole | POST /case HTTP/1.1\r\nHost: t\nContent-Length: 5\r\n\r\nhello",
    "LF hides coding | refuse | post | X: a\nTransfer-Encoding: chunked\r\nContent-Length: 5 | 0\r\n\r\n",
    "CR in a value | refuse | post | X: a\rTransfer-Encoding: chunked\r\nContent-Length: 5 | hello",
    "CR CR LF | refuse | whole | GET /case HTTP/1.1\r\nHost: t\r\nX: a\r\r\n\r\n",
    "NUL in a value | refuse | whole | GET /case HTTP/1.1\r\nHost: t\r\nX: a\0b\r\n\r\n",
    "NUL in a name | refuse | whole | GET /case HTTP/1.1\r\nHost: t\r\nX\0: a\r\n\r\n",
    "NUL in the target | refuse | whole | GET /case\0 HTTP/1.1\r\nHost: t\r\n\r\n",
    "no colon | refuse | whole | GET /case HTTP/1.1\r\nHost: t\r\nNoColon\r\n\r\n",
    "empty name | refuse | whole | GET /case HTTP/1.1\r\nHost: t\r\n: a\r\n\r\n",
    "name in brackets | refuse | whole | GET /case HTTP/1.1\r\nHost: t\r\n[x]: a\r\n\r\n",
    // The request line.
    "two blanks | refuse | whole | GET  /case HTTP/1.1\r\nHost: t\r\n\r\n",
    "blank in the target | refuse | whole | GET /case /x HTTP/1.1\r\nHost: t\r\n\r\n",
    "tab in the request line | refuse | whole | GET\t/case HTTP/1.1\r\nHost: t\r\n\r\n",
    "no version | refuse | whole | GET /case\r\nHost: t\r\n\r\n",
    "version 1.2 | refuse | whole | GET /case HTTP/1.2\r\nHost: t\r\n\r\n",
    "version 2.0 | refuse | whole | GET /case HTTP/2.0\r\nHost: t\r\n\r\n",
    "lower-case version | refuse | whole | GET /case http/1.1\r\nHost: t\r\n\r\n",
    "version hides a request | refuse | whole | GET /case HTTP/1.1 GET /smuggled HTTP/1.1\r\nHost: t\r\n\r\n",
    "method with a blank | refuse | whole | G ET /case HTTP/1.1\r\nHost: t\r\n\r\n",
    "leading CRLF | body | whole | \r\n\r\nGET /case HTTP/1.1\r\nHost: t\r\n\r\n",
    "no host | refuse | whole | GET /case HTTP/1.1\r\n\r\n",
    "two hosts | refuse | whole | GET /case HTTP/1.1\r\nHost: t\r\nHost: t\r\n\r\n",
    "host with a blank | refuse | whole | GET /case HTTP/1.1\r\nHost: t evil\r\n\r\n",
    "host list | refuse | whole | GET /case HTTP/1.1\r\nHost: t/evil\r\n\r\n",
    "CONNECT | refuse | whole | CONNECT t:80 HTTP/1.1\r\nHost: t:80\r\n\r\n",
    // Bodies where none is expected.
    "GET with a length | body hello | whole | GET /case HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nhello",
    "GET chunked | body hello | whole | GET /case HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "upgrade with a body | body hello | post | Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 5 | hello",
    "h2c upgrade | forward | whole | GET /case HTTP/1.1\r\nHost: t\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n\r\n",
];

/// Each with its name, its bytes, and what may be done with it.
pub fn cases() -> Vec<(&'static str, Vec<u8>, Verdict)> {
    let post = |fields: &str, rest: &str| format!("POST /case HTTP/1.1\r\nHost: t\r\n{fields}\r\n\r\n{rest}");
    let chunked = |rest: &str| post("Transfer-Encoding: chunked", rest);
    let read = |line: &'static str| {
        let [name, verdict, kind, rest @ ..] = &line.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let wire = match (*kind, rest) {
            ("post", [fields, rest]) => post(fields, rest),
            ("chunked", [rest]) => chunked(rest),
            ("whole", [wire]) => (*wire).to_owned(),
            _ => panic!("{line}"),
        };
        let verdict = match verdict.split_once(' ').unwrap_or((verdict, "")) {
            ("refuse", "") => Refuse,
            ("body", body) => Body(body),
            ("forward", body) => Forward(body),
            _ => panic!("{line}"),
        };
        (*name, wire.replace("{SMUGGLED}", SMUGGLED).into_bytes(), verdict)
    };
    let mut cases: Vec<_> = CASES.iter().copied().map(read).collect();
    let long = "x".repeat(40_000);
    let many: String = (0..200).map(|n| format!("X-{n}: 1\r\n")).collect();
    for (name, wire) in [
        (
            "long field",
            format!("GET /case HTTP/1.1\r\nHost: t\r\nX: {long}\r\n\r\n"),
        ),
        (
            "long name",
            format!("GET /case HTTP/1.1\r\nHost: t\r\n{long}: x\r\n\r\n"),
        ),
        ("long target", format!("GET /{long} HTTP/1.1\r\nHost: t\r\n\r\n")),
        (
            "many fields",
            format!("GET /case HTTP/1.1\r\nHost: t\r\n{many}\r\n"),
        ),
        (
            "long chunk extension",
            chunked(&format!("5;{long}\r\nhello\r\n0\r\n\r\n")),
        ),
        (
            "long trailers",
            chunked(&format!("5\r\nhello\r\n0\r\nX: {long}\r\n\r\n")),
        ),
    ] {
        cases.push((name, wire.into_bytes(), Refuse));
    }
    cases
}
