//! As many uploads that come by the byte as there are places at the backend.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::clients::{Counts, ask};
use crate::common::{Backend, Client, Message, ok};
use crate::products::{Kind, Product, Setup, beside};

const LIMIT: usize = 8;
const BODY_BYTES: usize = 1_000;

#[derive(Debug)]
struct Dripped {
    others: Counts,
    /// Uploads that the backend saw before they were whole, and in the end.
    seen_before: usize,
    seen: usize,
    /// Uploads that were answered.
    uploads: Counts,
}

/// Sends a byte now and then until `whole` is set, and then the rest.
fn drip(address: SocketAddr, chunked: bool, whole: &AtomicBool) -> bool {
    let mut client = Client::connect(address);
    let (framing, open, close, end) = match chunked {
        true => (
            "Transfer-Encoding: chunked".to_owned(),
            "1\r\n",
            "\r\n",
            "0\r\n\r\n",
        ),
        false => (format!("Content-Length: {BODY_BYTES}"), "", "", ""),
    };
    client.send(format!("POST / HTTP/1.1\r\nHost: t\r\n{framing}\r\n\r\n"));
    for _ in 0..BODY_BYTES {
        let piece = format!("{open}x{close}");
        if client.stream.write_all(piece.as_bytes()).is_err() {
            return false;
        }
        if !whole.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    client.send(end);
    let answer = client.receive();
    answer.status() == 200 && answer.text() == BODY_BYTES.to_string()
}

fn dripped(kind: Kind, chunked: bool) -> Dripped {
    let posts = Arc::new(AtomicUsize::new(0));
    // Counted from its head on: who asks before the body is there has one of its places.
    let begun = posts.clone();
    let backend = Backend::raw(move |stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut writer = stream;
        while let Ok(bytes) = reader.fill_buf() {
            if bytes.starts_with(b"POST") {
                begun.fetch_add(1, SeqCst);
            }
            let Some(request) = Message::read(&mut reader, false) else {
                return;
            };
            let body = request.body.len().to_string();
            if writer.write_all(&ok(&body)).is_err() {
                return;
            }
        }
    });
    let setup = Setup {
        max_in_flight: LIMIT,
        queue_timeout_ms: 2_000,
        ..Setup::new(vec![backend.address])
    };
    let product = Product::start(kind, &setup);
    let (address, whole) = (product.address, Arc::new(AtomicBool::new(false)));
    let uploads: Vec<_> = (0..LIMIT)
        .map(|_| {
            let whole = whole.clone();
            std::thread::spawn(move || drip(address, chunked, &whole))
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    let others = ask(address, 4, 50, Duration::from_millis(5));
    let seen_before = posts.load(SeqCst);
    whole.store(true, SeqCst);
    let mut answered = Counts::default();
    for upload in uploads {
        answered.count(upload.join().unwrap());
    }
    Dripped {
        others,
        seen_before,
        seen: posts.load(SeqCst),
        uploads: answered,
    }
}

fn none_is_in_the_way(dripped: &Dripped) {
    assert_eq!(dripped.others.failed, 0, "{dripped:?}");
    assert_eq!((dripped.seen_before, dripped.seen), (0, LIMIT), "{dripped:?}");
    assert_eq!(dripped.uploads.answered, LIMIT, "{dripped:?}");
}

#[test]
fn uploads_by_the_byte_reach_no_backend_before_they_are_whole() {
    let (ours, theirs) = beside("dripping", |kind| dripped(kind, false));
    none_is_in_the_way(&ours);
    if let Some(theirs) = theirs {
        none_is_in_the_way(&theirs);
    }
}

#[test]
fn nor_do_those_in_chunks() {
    let (ours, theirs) = beside("dripping in chunks", |kind| dripped(kind, true));
    none_is_in_the_way(&ours);
    if let Some(theirs) = theirs {
        none_is_in_the_way(&theirs);
    }
}
