//! HTTP/1.1 requests that two peers could read differently.
//!
//! Each case goes over a raw socket to the gateway, in front of a backend that records every byte it is sent.
//! A case passes if the gateway answers 400, 413, 414, 417, 431, 501 or closes, and the backend received
//! nothing; or if what the backend received, parsed again by a strict parser of these tests' own, is exactly one
//! request with exactly one framing, the body the case says, and not a byte left over. A `GET /smuggled` hidden
//! in any case must never reach the backend as a request.

mod cases;
#[path = "../common/mod.rs"]
mod common;
mod strict;

use std::io::{BufReader, ErrorKind, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cases::Verdict::{Body, Forward, Refuse};
use cases::{SMUGGLED, cases};
use common::{Backend, Message, eventually, gateway_with};
use strict::parse_strictly;

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
            Some(400 | 413 | 414 | 417 | 431 | 501 | 505) | None => {
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
