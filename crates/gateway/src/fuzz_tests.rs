//! Fuzzing of what reads bytes of strangers: answers' heads, the chunked coding, and the way of a request's head.
//!
//! Inputs are made by grammar, and then most of them are changed by the byte. What must hold is more than that nothing panics:
//! an input gives the same however it is cut, what a grammar made is read as it was meant, and what is written is one message.
//! A short run is among the tests; `make fuzz-gateway MINUTES=10` runs it for longer. A run is told by its seed.

mod grammar;

use std::cell::RefCell;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use http::header::HeaderValue;

use crate::chunked::{self, ChunkError, Decoder, Piece};
use crate::config::ForwardingConfig;
use crate::headers::{
    ClientIdentity, bad_request, join_lengths, normalise_target, specific, strip_hop_by_hop,
};
use crate::http1::{Bounds, Coming, Head, take};
use crate::max_forwards::count_down;
use crate::names::Names;
use crate::request_head::{BodyFraming, RequestHead};
use crate::response_head::{self, Framing, Reading};

use grammar::{BYTES, PIECES, Random, framing, lines, mutate, request};

/// Inputs of each target in the run that is among the tests.
const SHORT_RUN: u64 = 3_000;

/// What RFC 9112 section 6.3 says of an answer to a GET in these framing fields; `None` where it is refused.
fn framing_by_rfc(fields: &[(&str, String)], status: u16, http_1_1: bool) -> Option<Framing> {
    let all = |name: &str| -> Vec<&str> {
        let named = fields
            .iter()
            .filter(|(known, _)| known.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    };
    let (lengths, codings) = (all("content-length"), all("transfer-encoding"));
    let is_number = |value: &&str| !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let numbers: Vec<u64> = lengths
        .iter()
        .filter(|value| is_number(value))
        .filter_map(|value| value.parse().ok())
        .collect();
    if numbers.len() != lengths.len() || numbers.iter().any(|number| *number != numbers[0]) {
        return None;
    }
    match codings[..] {
        [] => {}
        [coding] if coding.eq_ignore_ascii_case("chunked") && http_1_1 && lengths.is_empty() => {}
        _ => return None,
    }
    Some(match (status, numbers.first(), codings.is_empty()) {
        (100..=199 | 204 | 304, ..) => Framing::None,
        (_, _, false) => Framing::Chunked,
        (_, Some(0), _) => Framing::None,
        (_, Some(length), _) => Framing::Length(*length),
        _ => Framing::UntilClose,
    })
}

/// An answer's head: by grammar it is read as meant; changed, it is read or refused, and a part of it is neither.
fn response_heads(random: &mut Random) {
    let fields = framing(random);
    let (status, http_1_1) = (
        [200, 204, 304, 404, 103, 502][random.below(6)],
        !random.once_in(4),
    );
    let version = if http_1_1 { "HTTP/1.1" } else { "HTTP/1.0" };
    let reason = random.of(&["OK", "", "Not  so well"]);
    let text = format!(
        "{version} {status} {reason}\r\n{}\r\n",
        lines(random, &fields, true)
    );
    let names = RefCell::new(Names::default());
    // What the heads before had for fields changes nothing.
    let read_as = |bytes: &[u8], reading| {
        let names = &mut *names.borrow_mut();
        response_head::parse(&Bytes::copy_from_slice(bytes), &Method::GET, 64, reading, names)
    };
    let parse = |bytes: &[u8]| read_as(bytes, Reading::Fields);
    let mut input = text.into_bytes();
    let is_clean = !input.iter().any(|byte| matches!(byte, 0x01 | 0x7f));
    if is_clean && !random.once_in(4) {
        let read = parse(&input);
        match framing_by_rfc(&fields, status, http_1_1) {
            Some(framing) => {
                let (mut head, length) = read.expect("it is valid").expect("it is whole");
                assert_eq!(
                    (head.framing, head.status.as_u16(), length),
                    (framing, status, input.len())
                );
                assert!(head.fields.map().keys().all(|name| specific(name) == 0));
            }
            None => assert!(read.is_err(), "{:?}", String::from_utf8_lossy(&input)),
        }
    }
    input.extend_from_slice(b"rest");
    mutate(&mut input, random);
    let as_lines = read_as(&input, Reading::Lines);
    let as_fields = parse(&input);
    let outcome = |read: &Result<Option<_>, _>| read.as_ref().map(Option::is_some).map_err(|error| *error);
    assert_eq!(outcome(&as_lines), outcome(&as_fields));
    if let (Ok(Some((head, length))), Ok(Some((mut lines, _)))) = (as_fields, as_lines) {
        let map = head.fields.into_map();
        assert!(length <= input.len());
        assert!(map.get_all("content-length").iter().count() <= 1);
        let again = parse(&input[..length]).unwrap().unwrap().0;
        assert_eq!(
            (again.framing, again.fields.into_map()),
            (head.framing, map.clone())
        );
        // What goes on as it came is what was read.
        let kind = lines.fields.kind().map(<[u8]>::to_vec);
        assert_eq!(
            kind.as_deref(),
            map.get("content-type").map(HeaderValue::as_bytes)
        );
        let mut written = b"HTTP/1.1 200 OK\r\n".to_vec();
        let told = lines.fields.write(&mut written, true);
        written.extend_from_slice(b"\r\n");
        assert_eq!(told.has_date, map.contains_key("date"));
        let length_told = map
            .get("content-length")
            .map(|length| length.to_str().unwrap().parse().unwrap());
        assert_eq!(told.length, length_told);
        let (sent, _) = parse(&written).expect("it can be read").expect("it is whole");
        assert_eq!(sent.fields.into_map(), map);
        assert_eq!(lines.fields.into_map(), map);
        // No part of it is a head, or refused before the rest is there.
        for end in [length - 1, random.below(length), random.below(length)] {
            assert!(
                matches!(parse(&input[..end]), Ok(None)),
                "{end} of {:?}",
                String::from_utf8_lossy(&input)
            );
        }
    }
}

/// What came of a chunked body that is given in these pieces: its data, how it ended, and how many bytes that took.
fn decoded(pieces: &[&[u8]]) -> (Vec<u8>, Result<Option<http::HeaderMap>, ChunkError>, usize) {
    let mut decoder = Decoder::new();
    let (mut data, mut taken) = (Vec::new(), 0);
    for piece in pieces {
        let mut input = Bytes::copy_from_slice(piece);
        loop {
            match decoder.next(&mut input) {
                Ok(Piece::Data(bytes)) => data.extend_from_slice(&bytes),
                Ok(Piece::More) => break,
                Ok(Piece::End) => {
                    return (
                        data,
                        Ok(Some(http::HeaderMap::new())),
                        taken + piece.len() - input.len(),
                    );
                }
                Ok(Piece::Trailers(trailers)) => {
                    return (data, Ok(Some(trailers)), taken + piece.len() - input.len());
                }
                Err(error) => return (data, Err(error), 0),
            }
        }
        taken += piece.len();
    }
    (data, Ok(None), taken)
}

/// A chunked body: by grammar it is read as meant; changed or not, wherever it is cut it gives the same.
fn chunked_bodies(random: &mut Random) {
    let (mut input, mut body) = (Vec::new(), Vec::new());
    for _ in 0..random.below(4) {
        let chunk: Vec<u8> = (0..=random.below(20))
            .map(|_| BYTES[random.below(BYTES.len())])
            .collect();
        let zeros = random.of(&["", "", "0", "000"]);
        let extension = random.of(&["", "", ";a", ";a=b", " ; a = \"b;c\"", ";\t"]);
        let size = match random.below(2) {
            0 => format!("{zeros}{:x}{extension}\r\n", chunk.len()),
            _ => format!("{zeros}{:X}{extension}\r\n", chunk.len()),
        };
        input.extend_from_slice(size.as_bytes());
        input.extend_from_slice(&chunk);
        input.extend_from_slice(b"\r\n");
        body.extend_from_slice(&chunk);
    }
    let trailers = random.of(&["", "X-A: b\r\n", "Content-Length: 5\r\nX-B:\r\n", "Host: x\r\n"]);
    input.extend_from_slice(format!("{}\r\n{trailers}\r\n", random.of(&["0", "0000", "0;a"])).as_bytes());
    let whole = input.len();
    input.extend_from_slice(
        random
            .of(&["", "GET / HTTP/1.1\r\n\r\n", "\r\n", "5\r\n"])
            .as_bytes(),
    );
    let (data, end, taken) = decoded(&[&input]);
    let kept = end.expect("it is valid").expect("it is whole");
    assert_eq!((data, taken), (body, whole));
    assert!(!kept.contains_key("content-length") && !kept.contains_key("host"));
    // What is written again is read again.
    let mut out = Vec::new();
    chunked::encode_end(&kept, &mut out);
    assert_eq!(decoded(&[&out]), (Vec::new(), Ok(Some(kept)), out.len()));
    if !random.once_in(5) {
        mutate(&mut input, random);
    }
    let at_once = decoded(&[&input]);
    let bytes: Vec<&[u8]> = input.chunks(1).collect();
    assert_eq!(
        at_once,
        decoded(&bytes),
        "by the byte: {:?}",
        String::from_utf8_lossy(&input)
    );
    for cut in 0..=input.len() {
        let (front, back) = input.split_at(cut);
        assert_eq!(
            at_once,
            decoded(&[front, back]),
            "at {cut}: {:?}",
            String::from_utf8_lossy(&input)
        );
    }
}

/// Heads that may be so long and have so many fields.
const BOUNDS: Bounds = Bounds {
    bytes: 1 << 16,
    fields: 64,
};

/// What is sent to a backend of a request's head, if it passes.
fn sent(input: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let mut received = Bytes::copy_from_slice(input);
    let head = take(&mut received, BOUNDS, &mut Names::default()).ok()??;
    if head.text.has_both_lengths {
        return None;
    }
    let mut parts = head.parts;
    let hop = strip_hop_by_hop(&mut parts.headers);
    if hop.transfer_encoding == Some(false) {
        return None;
    }
    let passes = normalise_target(&mut parts)
        .and_then(|()| join_lengths(&mut parts.headers))
        .and_then(|()| count_down(&mut parts))
        .and_then(|answer| answer.map_or(Ok(()), |_| Err(bad_request("answered here"))));
    passes.ok()?;
    let framing = match hop.transfer_encoding {
        Some(_) => BodyFraming::Chunked,
        None if parts.headers.contains_key("content-length") => BodyFraming::Length,
        None => BodyFraming::None,
    };
    let client = ClientIdentity::new("192.0.2.7:1".parse().unwrap(), random.once_in(2));
    let mut out = Vec::new();
    RequestHead {
        method: &parts.method,
        target: &parts.uri,
        headers: &parts.headers,
        received: parts.version,
        host: random.once_in(3).then_some(b"backend:80"),
        authority: b"backend:80",
        framing,
        upgrade: None,
        te_trailers: hop.te_trailers,
        expects: false,
        client: &client,
        config: &ForwardingConfig::default(),
    }
    .write(&mut out);
    Some(out)
}

/// A request's head: what is written of it is one head with one Host and one framing.
fn request_heads(random: &mut Random) {
    let fields = framing(random);
    let mut input = request(random, &fields, true).into_bytes();
    if !random.once_in(3) {
        mutate(&mut input, random);
    }
    let Some(out) = sent(&input, random) else {
        return;
    };
    let told = || {
        format!(
            "{:?} of {:?}",
            String::from_utf8_lossy(&out),
            String::from_utf8_lossy(&input)
        )
    };
    let text = out
        .strip_suffix(b"\r\n\r\n")
        .unwrap_or_else(|| panic!("{}", told()));
    let rows: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    let mut names: Vec<String> = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let row = row.strip_suffix(b"\r").unwrap_or(row);
        assert!(
            !row.is_empty() && !row.contains(&b'\r') && !row.contains(&0),
            "{}",
            told()
        );
        assert_eq!(
            number + 1 == rows.len(),
            rows[number].len() == row.len(),
            "{}",
            told()
        );
        match number {
            0 => {
                assert_eq!(row.iter().filter(|byte| **byte == b' ').count(), 2, "{}", told());
                assert!(row.ends_with(b" HTTP/1.1"), "{}", told());
            }
            _ => {
                let end = row
                    .iter()
                    .position(|byte| *byte == b':')
                    .unwrap_or_else(|| panic!("{}", told()));
                names.push(String::from_utf8_lossy(&row[..end]).into_owned());
            }
        }
    }
    let count = |name: &str| names.iter().filter(|known| *known == name).count();
    assert_eq!(count("host"), 1, "{}", told());
    assert!(
        count("content-length") + count("transfer-encoding") <= 1,
        "{}",
        told()
    );
    assert!(
        count("x-forwarded-for") == 1 && count("x_forwarded_for") == 0,
        "{}",
        told()
    );
    for gone in ["keep-alive", "proxy-connection", "upgrade", "http2-settings"] {
        assert_eq!(count(gone), 0, "{}", told());
    }
}

/// The requests of a stream that comes in these pieces: each head with what follows it, and why the rest is none.
fn requests(pieces: &[&[u8]], names: &mut Names) -> (Vec<String>, Option<u16>) {
    let (mut received, mut came, mut read) = (Bytes::new(), pieces.iter(), Vec::new());
    let mut decoder: Option<Decoder> = None;
    let mut left = 0;
    loop {
        let waits = match &mut decoder {
            Some(decoding) => match decoding.next(&mut received) {
                Ok(Piece::Data(_)) => false,
                Ok(Piece::More) => true,
                Ok(Piece::Trailers(_) | Piece::End) => {
                    decoder = None;
                    false
                }
                Err(_) => return (read, None),
            },
            None if left > 0 => {
                let some = left.min(received.len());
                left -= some;
                received = received.slice(some..);
                left > 0
            }
            None => match take(&mut received, BOUNDS, names) {
                Err(refusal) => return (read, Some(refusal.status.as_u16())),
                Ok(None) => true,
                Ok(Some(Head {
                    parts,
                    coming,
                    text,
                    keep_alive,
                    ..
                })) => {
                    match coming {
                        Coming::Nothing => {}
                        Coming::Length(length) => left = usize::try_from(length).unwrap(),
                        Coming::Chunked => decoder = Some(Decoder::new()),
                    }
                    read.push(format!(
                        "{} {} {:?} {coming:?} {text:?} {keep_alive}",
                        parts.method, parts.uri, parts.headers
                    ));
                    false
                }
            },
        };
        if waits {
            let Some(piece) = came.next() else {
                return (read, None);
            };
            received = [&received[..], piece].concat().into();
        }
    }
}

/// Requests behind each other are the same in whatever pieces they come; of those that a grammar made each is read, and told whether it
/// has two lengths.
fn streams(random: &mut Random) {
    let mut stream = Vec::new();
    let mut conflicts = Vec::new();
    for _ in 0..=random.below(4) {
        let length = random.below(30);
        let body: Vec<u8> = (0..length).map(|_| random.of(PIECES).as_bytes()[0]).collect();
        let (fields, body) = match random.below(4) {
            0 => (Vec::new(), Vec::new()),
            1 => (vec![("Content-Length", length.to_string())], body),
            choice => {
                let text = random.of(&["\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "x"]);
                let chunks = format!("{:x}\r\n{text}\r\n0\r\n\r\n", text.len()).into_bytes();
                let mut fields = vec![("Transfer-Encoding", "chunked".to_owned())];
                if choice == 3 {
                    fields.push(("content-LENGTH", length.to_string()));
                }
                (fields, chunks)
            }
        };
        conflicts.push(fields.len() == 2);
        let head = request(random, &fields, false);
        // HTTP/1.0 knows no transfer coding, and what is no target is none.
        stream.extend_from_slice(
            head.replace("HTTP/1.0", "HTTP/1.1")
                .replace("/%zz", "/")
                .as_bytes(),
        );
        stream.extend_from_slice(&body);
    }
    let mut names = Names::default();
    let told = || String::from_utf8_lossy(&stream).into_owned();
    let (read, refused) = requests(&[&stream], &mut names);
    assert_eq!((read.len(), refused), (conflicts.len(), None), "{}", told());
    for (read, conflict) in read.iter().zip(&conflicts) {
        assert_eq!(read.contains("has_both_lengths: true"), *conflict, "{}", told());
    }
    mutate(&mut stream, random);
    let whole = requests(&[&stream], &mut names);
    let pieces: Vec<&[u8]> = stream.chunks(1 + random.below(60)).collect();
    assert_eq!(
        requests(&pieces, &mut Names::default()),
        whole,
        "{}",
        String::from_utf8_lossy(&stream)
    );
}

/// What an input is made for and given to.
type Target = fn(&mut Random);

/// The targets.
const TARGETS: [(&str, Target); 4] = [
    ("heads of answers", response_heads),
    ("chunked bodies", chunked_bodies),
    ("heads of requests", request_heads),
    ("streams of requests", streams),
];

/// Runs a target on the input that this seed makes; says which it was, should it fail.
fn one(name: &str, target: Target, seed: u64) {
    let outcome = std::panic::catch_unwind(|| target(&mut Random(seed)));
    assert!(
        outcome.is_ok(),
        "{name}: seed {seed} (HEADROOM_FUZZ_SEED={seed} begins with it)"
    );
}

#[test]
fn a_short_run_of_each() {
    for (name, target) in TARGETS {
        for seed in 0..SHORT_RUN {
            one(name, target, seed);
        }
    }
}

/// For `HEADROOM_FUZZ_MINUTES` (1), from `HEADROOM_FUZZ_SEED` (the time) on.
#[test]
#[ignore = "for as long as one asks: make fuzz-gateway"]
fn fuzz() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let first = number("HEADROOM_FUZZ_SEED").unwrap_or(now.as_secs() << 32);
    let minutes = number("HEADROOM_FUZZ_MINUTES").unwrap_or(1);
    let (begun, mut seed) = (Instant::now(), first);
    while begun.elapsed() < Duration::from_secs(60 * minutes) {
        for _ in 0..1_000 {
            for (name, target) in TARGETS {
                one(name, target, seed);
            }
            seed = seed.wrapping_add(1);
        }
    }
    let inputs = seed.wrapping_sub(first);
    println!(
        "{inputs} inputs of each of {} targets from seed {first}: nothing found",
        TARGETS.len()
    );
}
