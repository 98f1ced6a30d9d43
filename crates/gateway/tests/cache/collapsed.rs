//! Several requests for the same at the same time: one fetch, whatever becomes of it, and nobody waits for ever.

use super::common::{Backend, Client, Message, eventually, gateway_with, take};
use super::{Cached, answer, how};
use std::io::Write;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Asks for a target at the same time with so many clients; the answers.
fn together(cached: &Cached, clients: usize, path: &str) -> Vec<Message> {
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..clients)
            .map(|_| scope.spawn(|| cached.get(path, "")))
            .collect();
        asking.into_iter().map(|client| client.join().unwrap()).collect()
    })
}

#[test]
fn one_asks_for_all() {
    for threads in [1, 2] {
        let cached = Cached::with(
            |_, number| {
                std::thread::sleep(Duration::from_millis(300));
                answer("cache-control: max-age=60\r\n", &format!("body {number}"))
            },
            |config| config.threads = threads,
        );
        let answers = together(&cached, 20, "/");
        assert!(answers.iter().all(|answer| answer.text() == "body 0"));
        assert_eq!(cached.asked(), 1, "{threads} threads");
        let period = take(&cached.handle);
        assert_eq!((period.cache.misses, period.cache.hits), (1, 19));
        assert_eq!(period.service.completions, 20);
    }
}

#[test]
fn what_may_not_be_stored_is_waited_for_once_and_shared_with_nobody() {
    let cached = Cached::new(|_, number| {
        std::thread::sleep(Duration::from_millis(100));
        answer("cache-control: private\r\n", &format!("body {number}"))
    });
    let mut bodies: Vec<String> = together(&cached, 8, "/").iter().map(Message::text).collect();
    bodies.extend(together(&cached, 8, "/").iter().map(Message::text));
    bodies.sort_unstable();
    bodies.dedup();
    assert_eq!(bodies.len(), 16, "each has its own: {bodies:?}");
    // The second eight did not wait for one another.
    assert!(take(&cached.handle).cache.collapsed <= 8);
}

#[test]
fn a_client_that_goes_away_takes_nothing_from_those_that_wait() {
    let (begun, begins) = channel();
    let begun = Mutex::new(begun);
    let cached = Cached::new(move |_, number| {
        begun.lock().unwrap().send(()).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        answer("cache-control: max-age=60\r\n", &format!("body {number}"))
    });
    let mut first = Client::connect(cached.address);
    first.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    begins.recv().unwrap();
    let second = std::thread::scope(|scope| {
        let second = scope.spawn(|| cached.get("/", ""));
        eventually("the second waits", || take(&cached.handle).cache.collapsed == 1);
        first.reset();
        second.join().unwrap()
    });
    assert_eq!(second.text(), "body 0");
    assert_eq!(cached.asked(), 1);
}

#[test]
fn a_client_that_does_not_read_holds_nobody_up() {
    let body = "x".repeat(900_000);
    let cached = Cached::new(move |_, _| answer("cache-control: max-age=60\r\n", &body));
    let mut first = Client::connect(cached.address);
    first.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    eventually("it is stored", || {
        take(&cached.handle).cache_size.unwrap().objects == 1
    });
    assert_eq!(cached.get("/", "").body.len(), 900_000);
    assert_eq!(first.receive().body.len(), 900_000);
    assert_eq!(cached.asked(), 1);
}

/// A backend that sends these pieces with pauses between them, then closes.
fn in_pieces(pieces: &'static [&'static str]) -> Backend {
    Backend::raw(move |mut stream, _| {
        let mut reader = std::io::BufReader::new(stream.try_clone().unwrap());
        if Message::read(&mut reader, false).is_none() {
            return;
        }
        for piece in pieces {
            if stream.write_all(piece.as_bytes()).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    })
}

#[test]
fn what_breaks_off_is_not_stored() {
    for pieces in [
        &[
            "HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ncontent-length: 10\r\n\r\n",
            "01234",
        ][..],
        &[
            "HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ntransfer-encoding: chunked\r\n\r\n",
            "5\r\n01234\r\n",
        ],
        &[
            "HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ntransfer-encoding: chunked\r\n\r\n",
            "5\r\n01234\r\nzz\r\n",
        ],
    ] {
        let backend = in_pieces(pieces);
        let (handle, address) = gateway_with(&backend, |config| config.cache.bytes = 8 << 20);
        for _ in 0..2 {
            let mut client = Client::connect(address);
            client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
            let broken = Message::read(&mut client.reader, false);
            assert!(broken.is_none_or(|message| !message.complete), "{pieces:?}");
        }
        let period = take(&handle);
        assert_eq!((period.cache.stored, period.cache.hits), (0, 0), "{pieces:?}");
        assert_eq!(period.service.aborted_by_backend, 2, "{pieces:?}");
    }
}

#[test]
fn what_turns_out_too_large_passes_whole() {
    let piece = "y".repeat(50_000);
    let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
    let backend = Backend::raw(move |mut stream, _| {
        let mut reader = std::io::BufReader::new(stream.try_clone().unwrap());
        while Message::read(&mut reader, false).is_some() {
            let head = "HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ntransfer-encoding: chunked\r\n\r\n";
            stream.write_all(head.as_bytes()).unwrap();
            for _ in 0..30 {
                stream.write_all(chunk.as_bytes()).unwrap();
            }
            stream.write_all(b"0\r\n\r\n").unwrap();
        }
    });
    let (handle, address) = gateway_with(&backend, |config| {
        config.cache.bytes = 8 << 20;
        config.cache.max_object_bytes = 400_000;
    });
    let mut client = Client::connect(address);
    for _ in 0..3 {
        let large = client.get("/");
        assert!(large.complete);
        assert_eq!(large.body.len(), 1_500_000);
    }
    let period = take(&handle);
    assert_eq!((period.cache.stored, period.service.completions), (0, 3));
    // Trailers are passed, and what has some is not stored.
    let backend = in_pieces(&[
        "HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ntransfer-encoding: chunked\r\ntrailer: x\r\n\r\n",
        "5\r\n01234\r\n0\r\nx: y\r\n\r\n",
    ]);
    let (handle, address) = gateway_with(&backend, |config| config.cache.bytes = 8 << 20);
    let mut client = Client::connect(address);
    client.send("GET / HTTP/1.1\r\nHost: test\r\nTE: trailers\r\nConnection: TE\r\n\r\n");
    let trailed = client.receive();
    assert_eq!((trailed.text().as_str(), trailed.trailers.len()), ("01234", 1));
    assert_eq!(take(&handle).cache.stored, 0);
}

#[test]
fn what_is_changed_while_it_is_fetched_is_not_stored() {
    let (go, goes) = channel::<()>();
    let (begun, begins) = channel();
    let (begun, goes) = (Mutex::new(begun), Arc::new(Mutex::new(goes)));
    let cached = Cached::with(
        move |request, number| {
            if number == 0 {
                begun.lock().unwrap().send(()).unwrap();
                goes.lock().unwrap().recv().unwrap();
            }
            let _ = request;
            answer("cache-control: max-age=60\r\n", &format!("body {number}"))
        },
        |_| {},
    );
    std::thread::scope(|scope| {
        let old = scope.spawn(|| cached.get("/", ""));
        begins.recv().unwrap();
        cached.ask("POST", "/", "Content-Length: 0\r\n");
        // Who asks after the change does not get what was asked for before it.
        assert_eq!(cached.get("/", "").text(), "body 2");
        go.send(()).unwrap();
        assert_eq!(old.join().unwrap().text(), "body 0");
    });
    let after = cached.get("/", "");
    assert_eq!(after.text(), "body 2");
    assert!(how(&after).contains("hit"));
    assert_eq!(cached.asked.load(Ordering::SeqCst), 3);
}

#[test]
fn a_backend_that_hangs_is_waited_for_no_longer_than_it_is_said() {
    let cached = Cached::with(
        |_, number| {
            if number == 0 {
                std::thread::sleep(Duration::from_secs(3));
            }
            answer("cache-control: max-age=60\r\n", &format!("body {number}"))
        },
        |config| config.cache.collapse_timeout_ms = 200,
    );
    std::thread::scope(|scope| {
        let first = scope.spawn(|| cached.get("/", ""));
        eventually("it is asked for", || cached.asked() == 1);
        assert_eq!(cached.get("/", "").text(), "body 1", "it went by itself");
        assert_eq!(first.join().unwrap().text(), "body 0");
    });
}

#[test]
fn nobody_waits_for_another_where_that_is_switched_off() {
    let cached = Cached::with(
        |_, number| {
            std::thread::sleep(Duration::from_millis(300));
            answer("cache-control: max-age=60\r\n", &format!("body {number}"))
        },
        |config| config.cache.collapse = false,
    );
    std::thread::scope(|scope| {
        let first = scope.spawn(|| cached.get("/", ""));
        eventually("it is asked for", || cached.asked() == 1);
        assert_eq!(together(&cached, 3, "/").len(), 3);
        first.join().unwrap();
    });
    assert_eq!(cached.asked(), 4);
    assert!(how(&cached.get("/", "")).contains("hit"));
}
