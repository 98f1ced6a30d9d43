//! Who waits for whom, for how long, and for whom a backend works.

use super::common::{Backend, Client, Message, PATIENCE, eventually, gateway_with, take};
use super::{Cached, answer};
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};

#[test]
fn those_with_credentials_wait_for_nobody() {
    // None is answered before all have come.
    let all = Arc::new(Barrier::new(5));
    let met = all.clone();
    let cached = Cached::new(move |request, _| {
        met.wait();
        let who = request.header("authorization").unwrap();
        answer("cache-control: private\r\n", who)
    });
    std::thread::scope(|scope| {
        for who in 0..5 {
            let cached = &cached;
            scope.spawn(move || {
                let headers = format!("Authorization: {who}\r\n");
                assert_eq!(cached.get("/", &headers).text(), who.to_string());
            });
        }
    });
    assert_eq!(take(&cached.handle).cache.collapsed, 0);
}

#[test]
fn nobody_waits_for_longer_than_half_of_what_is_promised_or_granted() {
    for (target_ms, headers) in [(None, "Prefer: wait=1\r\n"), (Some(300), "")] {
        let (go, goes) = channel::<()>();
        let goes = Mutex::new(goes);
        let cached = Cached::with(
            move |_, number| {
                if number == 0 {
                    goes.lock().unwrap().recv().unwrap();
                }
                answer("cache-control: max-age=60\r\n", &number.to_string())
            },
            |config| {
                config.target_ms = target_ms;
                config.cache.collapse_timeout_ms = 1000 * PATIENCE.as_secs() * 10;
                config.timeouts.response_header_timeout_ms = 1000 * PATIENCE.as_secs() * 10;
            },
        );
        std::thread::scope(|scope| {
            let first = scope.spawn(|| cached.get("/", ""));
            eventually("it is asked for", || cached.asked() == 1);
            let second = cached.get("/", headers);
            assert_eq!(second.text(), "1", "it went by itself");
            assert!(super::how(&second).ends_with("collapsed=?0"), "{second:?}");
            go.send(()).unwrap();
            assert_eq!(first.join().unwrap().text(), "0");
        });
    }
}

#[test]
fn what_was_held_in_a_batch_is_fetched_once_however_long_it_was_held() {
    let cached = Cached::with(
        |_, number| answer("cache-control: max-age=60\r\n", &number.to_string()),
        |config| {
            config.target_ms = Some(2_000);
            config.batch.interval_ms = Some(1_000);
            config.batch.max_wait_ms = 2_000;
        },
    );
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(cached.get("/", "").text(), "0"));
        }
    });
    assert_eq!(cached.asked(), 1);
}

#[test]
fn a_backend_is_not_kept_busy_for_a_client_that_has_gone() {
    let (asked, is_asked) = channel();
    let (left, has_left) = channel();
    let (asked, left) = (Mutex::new(asked), Mutex::new(left));
    let backend = Backend::raw(move |mut stream, _| {
        let mut reader = std::io::BufReader::new(stream.try_clone().unwrap());
        if Message::read(&mut reader, false).is_some() {
            asked.lock().unwrap().send(()).unwrap();
            // It never answers.
            let ended = stream.read(&mut [0; 1]);
            left.lock().unwrap().send(matches!(ended, Ok(0))).unwrap();
        }
    });
    let (handle, address) = gateway_with(&backend, |config| config.cache.bytes = 8 << 20);
    let mut first = Client::connect(address);
    first.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    is_asked.recv().unwrap();
    let mut second = Client::connect(address);
    second.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    eventually("the second waits", || take(&handle).cache.collapsed == 1);
    first.reset();
    eventually("the first is gone", || take(&handle).service.in_flight <= 1);
    assert!(has_left.try_recv().is_err(), "the second waits still");
    second.reset();
    assert!(
        has_left.recv_timeout(PATIENCE).unwrap(),
        "its connection was closed"
    );
}

#[test]
fn those_that_waited_say_so() {
    let cached = Cached::new(|_, number| {
        std::thread::sleep(std::time::Duration::from_millis(300));
        answer("cache-control: max-age=60\r\n", &number.to_string())
    });
    std::thread::scope(|scope| {
        let first = scope.spawn(|| cached.get("/", ""));
        eventually("it is asked for", || cached.asked() == 1);
        let second = cached.get("/", "");
        assert_eq!(second.text(), "0");
        let said = super::how(&second);
        assert!(
            said.starts_with("headroom; fwd=uri-miss") && said.ends_with("; collapsed"),
            "{said}"
        );
        assert_eq!(super::how(&first.join().unwrap()), "headroom; fwd=uri-miss");
    });
}

/// Bytes of a page.
const PAGE: usize = 6_000_000;
/// Pages that are asked for.
const PAGES: u64 = 12;

#[test]
fn clients_that_do_not_read_hold_no_more_than_there_is_room_for() {
    let written = Arc::new(AtomicU64::new(0));
    let counter = written.clone();
    let backend = Backend::raw(move |mut stream, _| {
        // Little of what the gateway does not read is on its way.
        socket2::SockRef::from(&stream)
            .set_send_buffer_size(1 << 16)
            .unwrap();
        let mut reader = std::io::BufReader::new(stream.try_clone().unwrap());
        while Message::read(&mut reader, false).is_some() {
            let head =
                format!("HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ncontent-length: {PAGE}\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            let piece = [b'x'; 50_000];
            for _ in 0..PAGE / piece.len() {
                if stream.write_all(&piece).is_err() {
                    return;
                }
                counter.fetch_add(piece.len() as u64, Ordering::SeqCst);
            }
        }
    });
    let room = 2 * PAGE as u64;
    let (handle, address) = gateway_with(&backend, |config| {
        config.cache.bytes = room;
        config.cache.max_object_bytes = PAGE as u64;
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let client = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(1 << 16)
            .initial_connection_window_size(1 << 24)
            .handshake(TokioIo::new(stream));
        let (mut sender, connection) = client.await.unwrap();
        tokio::spawn(connection);
        let mut answers = Vec::new();
        for page in 0..PAGES {
            let request = hyper::Request::get(format!("http://test/{page}"));
            let request = request
                .body(http_body_util::Empty::<bytes::Bytes>::new())
                .unwrap();
            answers.push(sender.send_request(request).await.unwrap());
        }
        // Nobody reads: until the gateway does not either.
        let mut before = 0;
        loop {
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
            let now = written.load(Ordering::SeqCst);
            if now == before {
                break;
            }
            before = now;
        }
        let all = PAGES * PAGE as u64;
        // What is stored, what is fetched, and what the kernel holds for each.
        let most = 2 * room + PAGES * 1_500_000;
        assert!(
            before > room / 2 && before < most && most < all,
            "{before} of {all}"
        );
        for answer in answers {
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body.len(), PAGE);
        }
    });
    let mut whole = 0;
    eventually("all are answered whole", || {
        whole += take(&handle).service.completions;
        whole == PAGES
    });
    assert!(take(&handle).cache_size.unwrap().bytes <= room);
}
