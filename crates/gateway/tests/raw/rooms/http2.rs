//! RFC 9113 section 8: what a request of HTTP/2 is in HTTP/1.1.

use crate::case::{Backend, Case, Step, lines, raw};
use crate::frames::{DATA, END_HEADERS, END_STREAM, HEADERS, block, frame, preface};

const GET: &str = "GET /c HTTP/1.1";
const POST: &str = "POST /c HTTP/1.1";
const START: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "http"),
    (":authority", "t"),
    (":path", "/c"),
];

fn of(section: &'static str, name: &'static str, frames: &[Vec<u8>]) -> Case {
    let mut case = raw(section, name, [preface(), frames.concat()].concat());
    case.http2 = true;
    case
}

/// A request of these fields alone.
fn fields(section: &'static str, name: &'static str, fields: &[(&str, &str)]) -> Case {
    of(
        section,
        name,
        &[frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(fields))],
    )
}

/// A GET with more fields.
fn with(section: &'static str, name: &'static str, more: &[(&str, &str)]) -> Case {
    fields(section, name, &[&START[..], more].concat())
}

/// The usual fields with another value for one of them.
fn but(section: &'static str, name: &'static str, which: &str, value: &str) -> Case {
    let changed = START.map(|(known, usual)| (known, if known == which { value } else { usual }));
    fields(section, name, &changed)
}

fn without(section: &'static str, name: &'static str, which: &str) -> Case {
    let rest: Vec<_> = START.into_iter().filter(|(known, _)| *known != which).collect();
    fields(section, name, &rest)
}

/// A POST with more fields, this body, and trailers if there are any.
fn post(
    section: &'static str,
    name: &'static str,
    more: &[(&str, &str)],
    body: &str,
    trailers: &[(&str, &str)],
) -> Case {
    let mut all = START.to_vec();
    all[0].1 = "POST";
    all.extend(more);
    let last = if trailers.is_empty() { END_STREAM } else { 0 };
    let mut frames = vec![
        frame(HEADERS, END_HEADERS, 1, &block(&all)),
        frame(DATA, last, 1, body.as_bytes()),
    ];
    if !trailers.is_empty() {
        frames.push(frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(trailers)));
    }
    of(section, name, &frames)
}

pub fn cases() -> Vec<Case> {
    let bad = |case: Case| case.refused(&[400, 421]);
    let long = "x".repeat(70_000);
    let answered = |section, name, text: &str| {
        let mut case = with(section, name, &[]);
        case.backend = Backend::Closes(lines(text));
        case
    };
    let mut head = but("9113 8.1", "an answer to HEAD", ":method", "HEAD");
    head.backend = Backend::Closes(lines("HTTP/1.1 200 OK\nContent-Length: 5\n\n"));
    let mut long_name = with("9113 10.5.1", "a field that is too long", &[]);
    let blocks = block(&[&START[..], &[("x", long.as_str())]].concat());
    let (first, rest) = blocks.split_at(16_000);
    let mut frames = vec![preface(), frame(HEADERS, END_STREAM, 1, first)];
    let parts: Vec<&[u8]> = rest.chunks(16_000).collect();
    for (number, part) in parts.iter().enumerate() {
        let flags = if number + 1 == parts.len() { END_HEADERS } else { 0 };
        frames.push(frame(9, flags, 1, part));
    }
    long_name.steps = vec![Step::Send(frames.concat())];
    vec![
        with("9113 8.3.1", "a plain request", &[])
            .sent(GET)
            .has("host", "t"),
        with("9113 8.2.2", "no field of a connection goes on", &[])
            .sent(GET)
            .lacks("http2-settings")
            .lacks("keep-alive"),
        post("9113 8.1", "a body", &[], "hello", &[])
            .sent(POST)
            .body("hello"),
        post("9113 8.1", "a body and trailers", &[], "hello", &[("x-a", "b")])
            .sent(POST)
            .body("hello"),
        post("9113 8.1.1", "a length", &[("content-length", "5")], "hello", &[])
            .sent(POST)
            .body("hello"),
        post(
            "9113 8.1.1",
            "a length that is too small",
            &[("content-length", "4")],
            "hello",
            &[],
        )
        .refused(&[400]),
        post(
            "9113 8.1.1",
            "a length that is too large",
            &[("content-length", "6")],
            "hello",
            &[],
        )
        .refused(&[400]),
        post(
            "9110 8.6",
            "two equal lengths",
            &[("content-length", "5"), ("content-length", "5")],
            "hello",
            &[],
        )
        .sent(POST)
        .body("hello")
        .has("content-length", "5")
        .sent(POST)
        .body("hello")
        .refused(&[400]),
        post(
            "9110 8.6",
            "two lengths",
            &[("content-length", "5"), ("content-length", "6")],
            "hello",
            &[],
        )
        .refused(&[400]),
        post("9110 8.6", "length +5", &[("content-length", "+5")], "hello", &[]).refused(&[400]),
        post(
            "9110 8.6",
            "length five",
            &[("content-length", "five")],
            "hello",
            &[],
        )
        .refused(&[400]),
        post(
            "9110 8.6",
            "a length that overflows",
            &[("content-length", "18446744073709551621")],
            "hello",
            &[],
        )
        .refused(&[400]),
        with("9113 8.1.1", "a length and no body", &[("content-length", "5")]).refused(&[400]),
        with(
            "9113 8.2.3",
            "cookies in pieces",
            &[("cookie", "a=1"), ("cookie", "b=2")],
        )
        .sent(GET)
        .has("cookie", "a=1; b=2"),
        with("9113 8.3.1", "Host beside the same authority", &[("host", "t")])
            .sent(GET)
            .has("host", "t"),
        with("9113 8.3.1", "Host beside another authority", &[("host", "u")])
            .refused(&[400])
            .sent(GET)
            .has("host", "t"),
        with("9110 7.2", "two Hosts", &[("host", "t"), ("host", "t")])
            .refused(&[400])
            .sent(GET)
            .has("host", "t"),
        fields(
            "9113 8.3.1",
            "Host and no authority",
            &[&START[..2], &START[3..], &[("host", "u")]].concat(),
        )
        .sent(GET)
        .has("host", "u"),
        without("9113 8.3.1", "neither authority nor Host", ":authority").refused(&[400]),
        bad(but(
            "9113 8.3.1",
            "user information in the authority",
            ":authority",
            "u@t",
        )),
        bad(but(
            "9110 7.2",
            "a bad port in the authority",
            ":authority",
            "t:x",
        )),
        bad(but(
            "9110 7.2",
            "a blank in the authority",
            ":authority",
            "t evil",
        )),
        bad(but("9110 7.2", "a path in the authority", ":authority", "t/evil")),
        bad(without("9113 8.3.1", "no method", ":method")),
        bad(without("9113 8.3.1", "no path", ":path")),
        bad(without("9113 8.3.1", "no scheme", ":scheme")),
        bad(but("9113 8.3.1", "an empty path", ":path", "")),
        bad(but("9113 8.3.1", "a path without a slash", ":path", "c")),
        bad(but("9113 8.3.1", "a blank in the path", ":path", "/c HTTP/1.1")),
        bad(but(
            "9113 10.3",
            "a request in the path",
            ":path",
            "/c HTTP/1.1\r\nHost: t\r\n\r\nGET /smuggled",
        )),
        bad(but(
            "9113 10.3",
            "a request in the method",
            ":method",
            "GET /smuggled HTTP/1.1\r\nHost: t\r\n\r\nGET",
        )),
        bad(but(
            "9113 10.3",
            "a request in the authority",
            ":authority",
            "t\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: t",
        )),
        but("9110 9.1", "an empty method", ":method", "").refused(&[400, 501]),
        but("9110 9.1", "a blank in the method", ":method", "GET x").refused(&[400, 501]),
        but("9113 8.3.1", "a method that nobody knows", ":method", "BREW")
            .sent("BREW /c HTTP/1.1")
            .refused(&[405, 501]),
        fields(
            "9113 8.3.1",
            "OPTIONS *",
            &[
                (":method", "OPTIONS"),
                (":scheme", "http"),
                (":authority", "t"),
                (":path", "*"),
            ],
        )
        .sent("OPTIONS * HTTP/1.1")
        .refused(&[405, 501]),
        bad(but("9113 8.3.1", "GET *", ":path", "*")),
        but("9110 7.7", "a path stays as it is", ":path", "/a%2fb/../c?x=%20")
            .sent("GET /a%2fb/../c?x=%20 HTTP/1.1"),
        bad(with("9113 8.3", "two paths", &[(":path", "/d")])),
        bad(with("9113 8.3", "two methods", &[(":method", "GET")])),
        bad(with(
            "9113 8.3",
            "a pseudo-field that nobody knows",
            &[(":foo", "x")],
        )),
        bad(with(
            "9113 8.3",
            "a pseudo-field of answers",
            &[(":status", "200")],
        )),
        bad(fields(
            "9113 8.3",
            "a pseudo-field behind a field",
            &[&START[..3], &[("x", "y")], &START[3..]].concat(),
        )),
        bad(with("9113 8.2.2", "Connection", &[("connection", "close")])),
        bad(with("9113 8.2.2", "Keep-Alive", &[("keep-alive", "timeout=5")])),
        bad(with(
            "9113 8.2.2",
            "Proxy-Connection",
            &[("proxy-connection", "close")],
        )),
        bad(with(
            "9113 8.2.2",
            "Transfer-Encoding",
            &[("transfer-encoding", "chunked")],
        )),
        bad(post(
            "9113 8.2.2",
            "Transfer-Encoding and a body",
            &[("transfer-encoding", "chunked")],
            "0\r\n\r\n",
            &[],
        )),
        bad(with("9113 8.2.2", "Upgrade", &[("upgrade", "websocket")])),
        bad(with("9113 8.2.2", "TE of a coding", &[("te", "gzip")])),
        with("9113 8.2.2", "TE of trailers", &[("te", "trailers")]).sent(GET),
        bad(with("9113 8.2", "a name in capitals", &[("X-A", "y")])),
        bad(with("9113 8.2.1", "an empty name", &[("", "y")])),
        bad(with("9113 8.2.1", "a blank in a name", &[("x a", "y")])),
        bad(with("9113 8.2.1", "a colon in a name", &[("x:a", "y")])),
        bad(with("9113 8.2.1", "a line in a name", &[("x\r\ny", "z")])),
        bad(with("9113 8.2.1", "a NUL in a name", &[("x\0", "y")])),
        bad(with("9113 8.2.1", "a NUL in a value", &[("x", "a\0b")])),
        bad(with("9113 8.2.1", "a CR in a value", &[("x", "a\rb")])),
        bad(with("9113 8.2.1", "a line in a value", &[("x", "a\r\nevil: b")])),
        bad(with("9113 8.2.1", "a blank before a value", &[("x", " a")])),
        bad(with("9113 8.2.1", "a blank behind a value", &[("x", "a ")])),
        bad(with("9113 8.2.1", "a tab behind a value", &[("x", "a\t")])),
        with("9113 8.2.1", "bytes beyond ASCII in a value", &[("x-a", "é")])
            .sent(GET)
            .has("x-a", "é"),
        with("9113 8.2.1", "an empty value", &[("x-a", "")])
            .sent(GET)
            .has("x-a", ""),
        fields(
            "9113 8.5",
            "CONNECT",
            &[(":method", "CONNECT"), (":authority", "t:80")],
        )
        .refused(&[400, 403, 405, 501])
        .sent("CONNECT t:80 HTTP/1.1"),
        post(
            "9110 10.1.1",
            "an expectation",
            &[("expect", "100-continue"), ("content-length", "5")],
            "hello",
            &[],
        )
        .sent(POST)
        .body("hello"),
        with("9110 10.1.1", "another expectation", &[("expect", "tea")])
            .refused(&[417])
            .sent(GET),
        fields(
            "9110 7.6.2",
            "OPTIONS that goes no further",
            &[
                (":method", "OPTIONS"),
                (":scheme", "http"),
                (":authority", "t"),
                (":path", "/c"),
                ("max-forwards", "0"),
            ],
        )
        .gets(200)
        .edit(|reply| reply.requests = Some(0)),
        long_name.refused(&[431, 400]),
        answered(
            "9113 8.1",
            "a chunked answer",
            "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n5\nhello\n0\n\n",
        )
        .gets(200)
        .body("hello"),
        answered(
            "9113 8.1",
            "an answer until the end of the connection",
            "HTTP/1.1 200 OK\n\nhello",
        )
        .gets(200)
        .body("hello"),
        answered(
            "9113 8.2.2",
            "an answer with fields of the connection",
            "HTTP/1.1 200 OK\nConnection: X-Hop\nKeep-Alive: x\nX-Hop: 1\nContent-Length: 2\n\nok",
        )
        .gets(200)
        .body("ok"),
        answered("9113 8.1", "a 204", "HTTP/1.1 204 No Content\n\n").gets(204),
        answered(
            "9113 8.1",
            "a 304",
            "HTTP/1.1 304 Not Modified\nContent-Length: 5\n\n",
        )
        .gets(304),
        head.gets(200).body(""),
        answered(
            "9113 8.1",
            "a chunked answer that breaks off",
            "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n5\nhello\n",
        )
        .broken(200)
        .bad_gateway(),
        answered(
            "9113 8.1.1",
            "an answer shorter than its length",
            "HTTP/1.1 200 OK\nContent-Length: 50\n\nhello",
        )
        .broken(200)
        .bad_gateway(),
        answered(
            "9110 7.8",
            "a 101 that nobody asked for",
            "HTTP/1.1 101 Switching Protocols\nConnection: Upgrade\nUpgrade: x\n\n",
        )
        .bad_gateway(),
        answered(
            "9112 6.3",
            "two lengths in an answer",
            "HTTP/1.1 200 OK\nContent-Length: 5\nContent-Length: 4\n\nhello",
        )
        .bad_gateway(),
    ]
}
