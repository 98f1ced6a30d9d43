//! HTTP/1.1 requests that two peers could read differently.
//!
//! Each case goes over a raw socket to the gateway, in front of a backend that records every byte it is sent.
//! A case passes if the gateway answers 400, 413, 414, 417, 431, 501 or closes, and the backend received
//! nothing; or if what the backend received, parsed again by this file's own strict parser, is exactly one
//! request with exactly one framing, the body the case says, and not a byte left over. A `GET /smuggled` hidden
//! in any case must never reach the backend as a request.

mod common;

use std::io::{BufReader, ErrorKind, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Backend, Message, eventually, gateway_with};

/// What the gateway may do with a case.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Verdict {
    /// It must refuse it.
    Refuse,
    /// It may forward it, then with this body.
    Body(&'static str),
    /// It must forward it, with this body.
    Forward(&'static str),
}
use Verdict::{Body, Forward, Refuse};

const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: t\r\n\r\n";

fn cases() -> Vec<(&'static str, Vec<u8>, Verdict)> {
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

/// Parses what the backend received as strictly as the RFC allows; panics on anything else.
fn parse_strictly(name: &str, wire: &[u8]) -> (String, Vec<u8>) {
    let text = String::from_utf8_lossy(wire);
    let end = wire
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap_or_else(|| panic!("{name}: no head: {text}"));
    let head = std::str::from_utf8(&wire[..end]).unwrap();
    let mut lines = head.split("\r\n");
    let start = lines.next().unwrap().to_owned();
    assert_eq!(start.split(' ').count(), 3, "{name}: {start}");
    assert!(start.ends_with(" HTTP/1.1"), "{name}: {start}");
    let (mut lengths, mut codings, mut hosts) = (Vec::new(), Vec::new(), 0);
    for line in lines {
        assert!(!line.contains(['\r', '\n', '\0']), "{name}: {line:?}");
        let (field, value) = line
            .split_once(": ")
            .unwrap_or_else(|| panic!("{name}: {line:?}"));
        assert!(
            field
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte)),
            "{name}: {line:?}"
        );
        match field {
            "content-length" => lengths.push(value.to_owned()),
            "transfer-encoding" => codings.push(value.to_owned()),
            "host" => hosts += 1,
            "upgrade" | "http2-settings" | "connection" => panic!("{name}: {line:?} was forwarded"),
            _ => {}
        }
    }
    assert!(hosts <= 1, "{name}: {hosts} hosts");
    let rest = &wire[end + 4..];
    let body = match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => {
            assert!(
                rest.is_empty(),
                "{name}: bytes after a request without a body: {text}"
            );
            Vec::new()
        }
        ([length], []) => {
            assert!(
                !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit()),
                "{name}: {length:?}"
            );
            assert_eq!(
                length.parse::<usize>().unwrap(),
                rest.len(),
                "{name}: bytes left over: {text}"
            );
            rest.to_vec()
        }
        ([], [coding]) => {
            assert_eq!(coding, "chunked", "{name}");
            dechunk_strictly(name, rest)
        }
        both => panic!("{name}: ambiguous framing {both:?}"),
    };
    (start, body)
}

fn dechunk_strictly(name: &str, mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    let mut line = || -> Vec<u8> {
        let end = rest
            .windows(2)
            .position(|two| two == b"\r\n")
            .unwrap_or_else(|| panic!("{name}: a chunk breaks off"));
        let line = rest[..end].to_vec();
        rest = &rest[end + 2..];
        line
    };
    loop {
        let size = String::from_utf8(line()).unwrap();
        assert!(
            !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "{name}: size {size:?}"
        );
        let size = usize::from_str_radix(&size, 16).unwrap();
        if size == 0 {
            break;
        }
        let mut data = Vec::new();
        while data.len() < size {
            // A chunk of these cases holds CRLF at most as part of a smuggled request.
            data.extend_from_slice(&line());
            if data.len() < size {
                data.extend_from_slice(b"\r\n");
            }
        }
        assert_eq!(data.len(), size, "{name}");
        body.extend_from_slice(&data);
    }
    loop {
        let trailer = String::from_utf8(line()).unwrap().to_ascii_lowercase();
        if trailer.is_empty() {
            break;
        }
        for forbidden in ["content-length", "transfer-encoding", "host"] {
            assert!(!trailer.starts_with(forbidden), "{name}: trailer {trailer}");
        }
    }
    assert!(
        rest.is_empty(),
        "{name}: bytes after the last chunk: {:?}",
        String::from_utf8_lossy(rest)
    );
    body
}

/// The case with its number in the target, so that what the backend received can be told apart.
fn numbered(number: usize, wire: &[u8]) -> Vec<u8> {
    let (from, to) = (b"/case", format!("/case-{number}-"));
    match wire.windows(from.len()).position(|window| window == from) {
        Some(at) => [&wire[..at], to.as_bytes(), &wire[at + from.len()..]].concat(),
        None => wire.to_vec(),
    }
}

#[test]
fn every_case_is_refused_or_forwarded_unambiguously() {
    let received: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let ended = Arc::new(AtomicUsize::new(0));
    let (record, count) = (received.clone(), ended.clone());
    let backend = Backend::raw(move |mut stream, _| {
        // Everything that comes within the time is recorded before the answer: nothing can hide behind it.
        stream.set_read_timeout(Some(Duration::from_millis(60))).unwrap();
        let mut wire = Vec::new();
        let mut buffer = [0; 65_536];
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            wire.extend_from_slice(&buffer[..read]);
        }
        if !wire.is_empty() {
            record.lock().unwrap().push(wire);
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        count.fetch_add(1, Ordering::SeqCst);
    });
    let (_gateway, address) = gateway_with(&backend, |config| {
        config.timeouts.body_timeout_ms = 2_000;
        config.retry.max_retries = 0;
    });
    let statuses: Vec<Option<u16>> = cases()
        .iter()
        .enumerate()
        .map(|(number, (_, wire, _))| {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            // The gateway may answer and close before it has read everything.
            let _ = stream.write_all(&numbered(number, wire));
            Message::read(&mut BufReader::new(&stream), false).map(|response| response.status())
        })
        .collect();
    eventually("the backend has recorded everything", || {
        ended.load(Ordering::SeqCst) == backend.connections()
    });
    let received = received.lock().unwrap();
    let mut failures = Vec::new();
    for (number, ((name, _, verdict), status)) in cases().into_iter().zip(statuses).enumerate() {
        let target = format!(" /case-{number}- ");
        let wires: Vec<&Vec<u8>> = received
            .iter()
            .filter(|wire| String::from_utf8_lossy(wire).contains(&target))
            .collect();
        let outcome = std::panic::catch_unwind(|| match status {
            Some(200) => {
                let (Body(expected) | Forward(expected)) = verdict else {
                    panic!("{name}: it was forwarded")
                };
                assert_eq!(wires.len(), 1, "{name}: requests at the backend");
                let (start, body) = parse_strictly(name, wires[0]);
                assert!(start.contains(&target), "{name}: {start}");
                assert_eq!(String::from_utf8_lossy(&body), expected, "{name}");
            }
            Some(400 | 413 | 414 | 417 | 431 | 501) | None => {
                assert!(
                    !matches!(verdict, Forward(_)),
                    "{name}: it was refused with {status:?}"
                );
                // A request whose body turns out wrong may have been begun; it must not have been ended.
                for wire in &wires {
                    let text = String::from_utf8_lossy(wire);
                    let begun =
                        text.contains("transfer-encoding: chunked\r\n") && !text.ends_with("0\r\n\r\n");
                    assert!(begun, "{name}: a refused request reached the backend: {text}");
                }
            }
            other => panic!("{name}: answered {other:?}"),
        });
        if outcome.is_err() {
            failures.push(name);
        }
    }
    assert!(failures.is_empty(), "{failures:?}");
    let smuggled = received
        .iter()
        .filter(|wire| wire.starts_with(b"GET /smuggled"))
        .count();
    assert_eq!(smuggled, 0);
}

#[test]
fn what_follows_a_refused_request_is_not_served() {
    let backend = Backend::http(|request| {
        assert!(!request.start.contains("smuggled"), "{}", request.start);
        common::ok("fine")
    });
    let (_gateway, address) = gateway_with(&backend, |_| {});
    for (name, wire, verdict) in cases() {
        if verdict != Refuse {
            continue;
        }
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let _ = stream.write_all(&[wire.as_slice(), SMUGGLED.as_bytes()].concat());
        let mut answer = Vec::new();
        // The end of the connection is part of the refusal: a reset will do, a time-out will not.
        if let Err(error) = stream.read_to_end(&mut answer) {
            assert_eq!(
                error.kind(),
                ErrorKind::ConnectionReset,
                "{name}: the connection is kept open"
            );
        }
        let answers = String::from_utf8_lossy(&answer).matches("HTTP/1.1 200").count();
        assert_eq!(answers, 0, "{name}: a request behind a refused one was served");
    }
}
