//! Clients that leave before they have their answer: whose doing that was, the service's or their own, is what the law and the ejection of
//! backends are told.

use std::convert::Infallible;
use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::{Duration, Instant};

use crate::common::{Backend, Client, Message, config, eventually, ok, start, take};
use crate::http2::{ReceiverStream, block_on, get, h2c};
use bytes::Bytes;
use headroom_gateway::{Balance, EjectionCause, Handle};
use http_body_util::{BodyExt, StreamBody};
use hyper::Request;
use hyper::body::Frame;

/// In milliseconds; what a client is waited for, or a backend, in these tests is twice as long and more.
const TARGET_MS: u64 = 250;

/// Of each kind of client as many as would have a backend passed over.
const CLIENTS: u64 = 20;

/// Of the service and the first backend, how many requests timed out, and how many their clients broke off, once none is in flight.
fn outcomes(gateway: &Handle) -> [(u64, u64); 2] {
    let mut outcomes = [(0, 0); 2];
    eventually("all have ended", || {
        let period = take(gateway);
        for (sum, counts) in outcomes
            .iter_mut()
            .zip([period.service, period.backends[0].counts])
        {
            sum.0 += counts.timed_out;
            sum.1 += counts.aborted_by_client;
        }
        period.service.in_flight == 0
    });
    outcomes
}

/// A gateway before this backend and one that answers at once, which did so just now.
fn beside_a_good_one(backend: &Backend, good: &Backend) -> (Handle, SocketAddr) {
    let mut config = config(&[backend, good]);
    config.target_ms = Some(TARGET_MS);
    config.balance = Balance::RoundRobin;
    config.health.ejection_ms = 60_000;
    config.health.ejection_max_ms = 60_000;
    start(config)
}

fn is_ejected(gateway: &Handle) -> bool {
    let health = gateway.backends_health();
    assert_eq!(health[1].ejected_by, None);
    health[0].ejected_by == Some(EjectionCause::Failing)
}

#[test]
fn who_breaks_off_a_long_upload_was_not_kept_waiting() {
    type Leave = fn(Client);
    let leaves: [(&str, Leave); 3] = [
        ("reset", |client| {
            std::thread::sleep(Duration::from_millis(2 * TARGET_MS));
            client.reset();
        }),
        ("FIN", |client| {
            std::thread::sleep(Duration::from_millis(2 * TARGET_MS));
            client.stream.shutdown(Shutdown::Both).unwrap();
        }),
        ("dripping, then FIN", |mut client| {
            for _ in 0..10 {
                std::thread::sleep(Duration::from_millis(TARGET_MS / 5));
                client.send("400\r\n".to_owned() + &"x".repeat(0x400) + "\r\n");
            }
            client.stream.shutdown(Shutdown::Write).unwrap();
        }),
    ];
    for (how, leave) in leaves {
        for framing in ["Content-Length: 500000", "Transfer-Encoding: chunked"] {
            let (first, good) = (Backend::http(|_| ok("well")), Backend::http(|_| ok("well")));
            let (gateway, address) = beside_a_good_one(&first, &good);
            let clients: Vec<_> = (0..2 * CLIENTS)
                .map(|_| {
                    let mut client = Client::connect(address);
                    client.send(format!("POST / HTTP/1.1\r\nHost: t\r\n{framing}\r\n\r\n"));
                    // More than is taken before a backend is asked.
                    (0..100).for_each(|_| client.send("3e8\r\n".to_owned() + &"x".repeat(1_000) + "\r\n"));
                    std::thread::spawn(move || leave(client))
                })
                .collect();
            clients.into_iter().for_each(|client| client.join().unwrap());
            let of_all = outcomes(&gateway);
            assert_eq!(of_all, [(0, 2 * CLIENTS), (0, CLIENTS)], "{how}, {framing}");
            (0..40).for_each(|_| assert_eq!(Client::connect(address).get("/").status(), 200));
            assert!(!is_ejected(&gateway), "{how}, {framing}");
        }
    }
}

#[test]
fn nor_was_who_cancels_a_long_upload_over_http_2() {
    for whole_connection in [false, true] {
        let (first, good) = (Backend::http(|_| ok("well")), Backend::http(|_| ok("well")));
        let (gateway, address) = beside_a_good_one(&first, &good);
        block_on(async {
            for _ in 0..2 {
                let mut client = h2c(address).await;
                let (frames, pieces) = tokio::sync::mpsc::channel::<Result<Frame<Bytes>, Infallible>>(1);
                let piece = Frame::data(Bytes::from(vec![b'x'; 100_000]));
                frames.send(Ok(piece)).await.unwrap();
                let body = StreamBody::new(ReceiverStream(pieces)).boxed();
                let request = Request::post("http://shop.example/")
                    .header("content-length", "500000")
                    .body(body)
                    .unwrap();
                let answer = client.send_request(request);
                let patience = Duration::from_millis(2 * TARGET_MS);
                assert!(tokio::time::timeout(patience, answer).await.is_err());
                match whole_connection {
                    true => drop(client),
                    false => assert_eq!(client.send_request(get("/")).await.unwrap().status(), 200),
                }
            }
        });
        assert_eq!(
            outcomes(&gateway)[0],
            (0, 2),
            "the connection too: {whole_connection}"
        );
    }
}

/// Answers with this head and a few bytes, and no more.
fn stalls_after(head: &'static str) -> Backend {
    Backend::raw(move |mut stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        if Message::read(&mut reader, false).is_some() {
            stream.write_all(head.as_bytes()).unwrap();
            let _ = stream.read(&mut [0]);
        }
    })
}

/// Asks, reads what there is of the answer for a while, and leaves.
fn reads_and_leaves(address: SocketAddr) {
    let mut client = Client::connect(address);
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    client
        .stream
        .set_read_timeout(Some(Duration::from_millis(2 * TARGET_MS)))
        .unwrap();
    let mut answer = Vec::new();
    let _ = client.stream.read_to_end(&mut answer);
    client.reset();
}

#[test]
fn a_backend_that_stalls_within_its_answer_has_failed_whom_it_kept_waiting() {
    let stalled = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc";
    let (first, good) = (stalls_after(stalled), Backend::http(|_| ok("well")));
    let (gateway, address) = beside_a_good_one(&first, &good);
    let clients: Vec<_> = (0..2 * CLIENTS)
        .map(|_| std::thread::spawn(move || reads_and_leaves(address)))
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert_eq!(outcomes(&gateway), [(CLIENTS, 0); 2]);
    assert!(is_ejected(&gateway), "it has failed {CLIENTS} of {CLIENTS}");
}

#[test]
fn who_has_had_enough_of_a_stream_of_events_was_not_kept_waiting() {
    let events = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\r\ndata: 1\n\n";
    let (first, good) = (stalls_after(events), Backend::http(|_| ok("well")));
    let (gateway, address) = beside_a_good_one(&first, &good);
    reads_and_leaves(address);
    reads_and_leaves(address);
    assert_eq!(outcomes(&gateway), [(0, 1); 2]);
}

#[test]
fn who_leaves_an_answer_that_comes_and_comes_was_not_kept_waiting() {
    let backend = Backend::raw(|mut stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        if Message::read(&mut reader, false).is_some() {
            let head =
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
            let mut sent = stream.write_all(head);
            while sent.is_ok() {
                std::thread::sleep(Duration::from_millis(TARGET_MS / 5));
                sent = stream.write_all(b"2\r\n{}\r\n");
            }
        }
    });
    let mut config = config(&[&backend]);
    config.target_ms = Some(TARGET_MS);
    let (gateway, address) = start(config);
    let mut client = Client::connect(address);
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    let begun = Instant::now();
    let mut some = [0; 100];
    // Each pause is well within the target, all of them together are not.
    while begun.elapsed() < Duration::from_millis(4 * TARGET_MS) {
        assert!(client.stream.read(&mut some).unwrap() > 0);
    }
    client.reset();
    assert_eq!(outcomes(&gateway), [(0, 1); 2]);
}

#[test]
fn an_upload_that_is_refused_after_a_backend_was_asked_was_demand() {
    let backend = Backend::http(|_| ok("well"));
    let mut config = config(&[&backend]);
    config.timeouts.client_grace_ms = 300;
    let (gateway, address) = start(config);
    let mut client = Client::connect(address);
    client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 500000\r\n\r\n");
    client.send("x".repeat(90_000));
    assert_eq!(client.receive().status(), 408);
    // One that is refused before that was not.
    let mut client = Client::connect(address);
    client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 500000\r\n\r\n");
    client.send("x".repeat(9_000));
    assert_eq!(client.receive().status(), 408);
    let mut service = headroom_gateway::Counts::default();
    eventually("both have ended", || {
        let period = take(&gateway).service;
        service.arrivals += period.arrivals;
        service.refused += period.refused;
        service.aborted_by_client += period.aborted_by_client;
        period.in_flight == 0 && service.arrivals == 2
    });
    assert_eq!((service.refused, service.aborted_by_client), (1, 1));
}

#[test]
fn who_reads_slowly_and_leaves_was_not_kept_waiting() {
    let large = "z".repeat(16 << 20);
    let backend = Backend::http(move |_| ok(&large));
    let mut config = config(&[&backend]);
    config.target_ms = Some(TARGET_MS);
    let (gateway, address) = start(config);
    let mut client = Client::connect(address);
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    let mut some = [0; 1000];
    for _ in 0..10 {
        client.stream.read_exact(&mut some).unwrap();
        std::thread::sleep(Duration::from_millis(TARGET_MS / 5));
    }
    client.reset();
    let [of_service, of_backend] = outcomes(&gateway);
    assert_eq!(of_service, (0, 1));
    // Some of it is read ahead; whether its backend was done by then is not what is asked here.
    assert_eq!(of_backend.0, 0);
}

/// What a client has sent behind its request hides neither its reset nor, where that counts, its end: its place is free.
#[test]
fn who_leaves_behind_what_nobody_has_read_leaves_its_place() {
    const SLOW: Duration = Duration::from_secs(6);
    for (behind, cancel_on_fin) in [
        ("GET /next HTTP/1.1\r\nHost: t\r\n\r\n", false),
        ("\r\n", false),
        ("\r\n", true),
    ] {
        let backend = Backend::http(|request| {
            if request.start.contains("slow") {
                std::thread::sleep(SLOW);
            }
            ok("well")
        });
        let mut config = config(&[&backend]);
        config.cancel_on_fin = cancel_on_fin;
        config.limits.max_in_flight_per_backend = 1;
        config.timeouts.queue_timeout_ms = 10_000;
        let (_gateway, address) = start(config);
        let mut client = Client::connect(address);
        client.send("GET /slow HTTP/1.1\r\nHost: t\r\n\r\n");
        std::thread::sleep(Duration::from_millis(200));
        client.send(behind);
        std::thread::sleep(Duration::from_millis(100));
        match cancel_on_fin {
            true => client.stream.shutdown(Shutdown::Both).unwrap(),
            false => client.reset(),
        }
        let begun = Instant::now();
        assert_eq!(Client::connect(address).get("/other").status(), 200);
        assert!(begun.elapsed() < SLOW / 2, "{behind:?}: {:?}", begun.elapsed());
    }
}
