//! Clients that read slowly are kept, those that do not read are not, and neither is in the way of others.

use std::io::{BufRead, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use crate::clients::{Counts, ask};
use crate::common::{Backend, Client, Message, eventually, ok, take};
use crate::products::{Kind, Product, Setup, beside};

const READERS: usize = 4;
const ANSWER_BYTES: usize = 1_000_000;
const TIMEOUT_MS: u64 = 2_000;
/// For how long at least the slow read slowly: several times the timeout.
const SLOWLY: Duration = Duration::from_secs(7);
/// 20 KB/s.
const PIECE_BYTES: usize = 2_000;
const APART: Duration = Duration::from_millis(100);

/// A client as there are many: behind an Ethernet, with little room for what it does not read. By loopback's segments of 64 KB the
/// kernel would take the whole answer, and nobody would wait for the client.
fn far_client(address: SocketAddr) -> Client {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_tcp_mss(1_400).unwrap();
    socket.set_recv_buffer_size(8 * 1024).unwrap();
    socket.connect(&address.into()).unwrap();
    let mut client = Client::over(socket.into());
    client.send("GET /large HTTP/1.1\r\nHost: t\r\n\r\n");
    client
}

/// Whether the whole answer came.
fn is_whole(reader: &mut impl BufRead) -> bool {
    Message::read(reader, false).is_some_and(|answer| answer.complete && answer.body.len() == ANSWER_BYTES)
}

fn backend() -> Backend {
    let large = "z".repeat(ANSWER_BYTES);
    Backend::http(move |request| match request.start.contains("large") {
        true => ok(&large),
        false => ok("well"),
    })
}

/// Reads slowly until it is told to read the rest; whether it was all there.
fn reads_slowly(address: SocketAddr, rest: &AtomicBool) -> bool {
    let mut client = far_client(address);
    let (mut answer, mut piece) = (Vec::new(), [0; PIECE_BYTES]);
    while !rest.load(SeqCst) {
        match client.stream.read(&mut piece) {
            Ok(read) if read > 0 => answer.extend_from_slice(&piece[..read]),
            _ => return false,
        }
        std::thread::sleep(APART);
    }
    assert!(answer.len() < ANSWER_BYTES / 2, "it read quickly");
    is_whole(&mut answer.chain(client.reader))
}

#[derive(Debug)]
struct Kept {
    slow: Counts,
    /// Of those that did not read at all.
    deaf: Counts,
}

fn kept(kind: Kind, client_buffer_bytes: Option<usize>) -> Kept {
    let backend = backend();
    let setup = Setup {
        client_timeout_ms: TIMEOUT_MS,
        client_buffer_bytes,
        ..Setup::new(vec![backend.address])
    };
    let product = Product::start(kind, &setup);
    let (address, rest) = (product.address, Arc::new(AtomicBool::new(false)));
    let readers: Vec<_> = (0..READERS)
        .map(|_| {
            let rest = rest.clone();
            std::thread::spawn(move || reads_slowly(address, &rest))
        })
        .collect();
    let mut silent = far_client(address);
    std::thread::sleep(SLOWLY);
    if let Some(handle) = product.handle() {
        eventually("it waits for those that read, and for nobody else", || {
            take(handle).service.in_flight == READERS as u64
        });
    }
    rest.store(true, SeqCst);
    let (mut slow, mut deaf) = (Counts::default(), Counts::default());
    for reader in readers {
        slow.count(reader.join().unwrap());
    }
    deaf.count(is_whole(&mut silent.reader));
    Kept { slow, deaf }
}

#[test]
fn who_reads_slowly_is_kept_and_who_does_not_read_is_not() {
    let small = Some(16 * 1024);
    let (ours, theirs) = beside("slow readers", |kind| kept(kind, small));
    assert_eq!(ours.slow.failed, 0, "{ours:?}");
    assert_eq!(ours.deaf.failed, 1, "there was no timeout: {ours:?}");
    if let Some(theirs) = theirs {
        assert_eq!(theirs.slow.failed, 0, "{theirs:?}");
        assert_eq!(theirs.deaf.failed, 1, "there was no timeout: {theirs:?}");
        let large = kept(Kind::Haproxy, None);
        println!("slow readers: haproxy without tune.sndbuf.client {large:?}");
    }
}

#[derive(Debug)]
struct Deaf {
    others: Counts,
    /// The answers of those that did not read, read in the end.
    read_late: Counts,
}

fn deaf(kind: Kind) -> Deaf {
    const LIMIT: usize = 8;
    let backend = backend();
    let setup = Setup {
        max_in_flight: LIMIT,
        queue_timeout_ms: 2_000,
        ..Setup::new(vec![backend.address])
    };
    let product = Product::start(kind, &setup);
    let mut deaf: Vec<_> = (0..LIMIT).map(|_| far_client(product.address)).collect();
    std::thread::sleep(Duration::from_millis(500));
    let others = ask(product.address, 20, 2, Duration::ZERO);
    let mut read_late = Counts::default();
    for client in &mut deaf {
        read_late.count(is_whole(&mut client.reader));
    }
    Deaf { others, read_late }
}

#[test]
fn clients_that_do_not_read_are_in_nobody_s_way() {
    let (ours, theirs) = beside("non-readers", deaf);
    assert_eq!((ours.others.failed, ours.read_late.failed), (0, 0), "{ours:?}");
    if let Some(theirs) = theirs {
        assert!(theirs.others.failed >= ours.others.failed, "{theirs:?}");
        assert!(theirs.read_late.failed >= ours.read_late.failed, "{theirs:?}");
    }
}
