//! What RFC 9110 and 9112 ask of an intermediary: interim answers, expectations, Max-Forwards, clients that end their side early.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{Backend, Client, Message, PATIENCE, eventually, gateway, gateway_with, ok, take};

/// A backend that sends these bytes to each request head, and then, once it has the body, an answer.
fn interim_first(first: &'static [u8]) -> Backend {
    Backend::raw(move |mut stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while let Some(head) = Message::read_head(&mut reader) {
            stream.write_all(first).unwrap();
            let length: u64 = head
                .header("content-length")
                .map_or(0, |length| length.parse().unwrap());
            let mut body = String::new();
            reader.by_ref().take(length).read_to_string(&mut body).unwrap();
            stream.write_all(&ok(&body)).unwrap();
        }
    })
}

/// The statuses of all heads up to the final one, with it.
fn answers(client: &mut Client) -> (Vec<Message>, Message) {
    let mut interims = Vec::new();
    loop {
        let message = client.receive();
        if message.status() >= 200 {
            return (interims, message);
        }
        interims.push(message);
    }
}

#[test]
fn interim_answers_reach_the_client_before_the_final_one() {
    let backend = interim_first(
        b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\
        Connection: X-Hop\r\nX-Hop: 1\r\nContent-Length: 0\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n",
    );
    let (_gateway, address) = gateway(&backend);
    let mut client = Client::connect(address);
    for _ in 0..3 {
        client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
        let (interims, last) = answers(&mut client);
        let statuses: Vec<u16> = interims.iter().map(Message::status).collect();
        assert_eq!((statuses, last.status()), (vec![102, 103, 100], 200));
        let hints = &interims[1];
        assert_eq!(hints.all("link"), ["</a.css>; rel=preload"]);
        for ends_here in ["connection", "x-hop", "content-length"] {
            assert_eq!(hints.header(ends_here), None);
        }
        assert_eq!(hints.header("via"), Some("1.1 headroom"));
    }
    assert_eq!(backend.connections(), 1, "the connection is used again");
    // HTTP/1.0 knows no interim answer (RFC 9110 section 15.2).
    client.send("GET / HTTP/1.0\r\nHost: t\r\n\r\n");
    assert_eq!(client.receive().status(), 200);
}

#[test]
fn an_interim_answer_is_not_held_until_the_final_one() {
    let (release, released) = channel::<()>();
    let released = Mutex::new(released);
    let backend = Backend::raw(move |mut stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while Message::read(&mut reader, false).is_some() {
            stream
                .write_all(b"HTTP/1.1 103 Early Hints\r\nlink: <a>\r\n\r\n")
                .unwrap();
            released.lock().unwrap().recv_timeout(PATIENCE).unwrap();
            stream.write_all(&ok("late")).unwrap();
        }
    });
    for cache_bytes in [0, 8 << 20] {
        let (_gateway, address) = gateway_with(&backend, |config| config.cache.bytes = cache_bytes);
        let mut client = Client::connect(address);
        client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(client.receive().status(), 103);
        release.send(()).unwrap();
        assert_eq!(client.receive().text(), "late");
    }
}

#[test]
fn as_many_interim_answers_pass_as_the_limit_says() {
    const HINTS: usize = 100;
    let backend = Backend::raw(|mut stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while Message::read(&mut reader, false).is_some() {
            let hints = "HTTP/1.1 103 Early Hints\r\nlink: <a>\r\n\r\n".repeat(HINTS);
            stream.write_all(hints.as_bytes()).unwrap();
            if stream.write_all(&ok("final")).is_err() {
                return;
            }
        }
    });
    for (limit, statuses) in [(100, (HINTS, 200)), (99, (99, 502))] {
        let (_gateway, address) = gateway_with(&backend, |config| config.limits.max_interim = limit);
        let mut client = Client::connect(address);
        client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
        let (interims, last) = answers(&mut client);
        assert_eq!((interims.len(), last.status()), statuses);
    }
}

#[test]
fn a_client_that_does_not_read_its_interim_answers_is_given_up() {
    let (left, has_left) = channel();
    let left = Mutex::new(left);
    let backend = Backend::raw(move |mut stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        Message::read(&mut reader, false).unwrap();
        // More than all buffers on the way take.
        let hint = format!("HTTP/1.1 103 Early Hints\r\nlink: {}\r\n\r\n", "x".repeat(30_000));
        for _ in 0..900 {
            if stream.write_all(hint.as_bytes()).is_err() {
                break;
            }
            // What finds no room is dropped: so that the buffers are full at the end they come no quicker than those fill.
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = stream.write_all(&ok("final"));
        let mut rest = Vec::new();
        let _ = reader.read_to_end(&mut rest);
        left.lock().unwrap().send(()).unwrap();
    });
    let (gateway, address) = gateway_with(&backend, |config| config.timeouts.body_timeout_ms = 300);
    let mut client = Client::connect(address);
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    has_left.recv_timeout(PATIENCE).expect("the backend is let go");
    let mut aborted = 0;
    eventually("it is counted", || {
        aborted += take(&gateway).service.aborted_by_client;
        aborted == 1
    });
}

#[test]
fn interim_answers_give_a_backend_no_more_time() {
    let backend = Backend::raw(|mut stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        Message::read(&mut reader, false).unwrap();
        for _ in 0..30 {
            std::thread::sleep(Duration::from_millis(100));
            if stream.write_all(b"HTTP/1.1 102 Processing\r\n\r\n").is_err() {
                return;
            }
        }
        let _ = stream.write_all(&ok("late"));
    });
    let (_gateway, address) = gateway_with(&backend, |config| {
        config.timeouts.response_header_timeout_ms = 500;
    });
    let mut client = Client::connect(address);
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    let (interims, last) = answers(&mut client);
    assert_eq!(last.status(), 504, "after {} interim answers", interims.len());
}

const EXPECTS: &str = "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nExpect: 100-Continue\r\n\r\n";

#[test]
fn the_backend_is_asked_whether_it_wants_the_body() {
    let (saw, seen) = channel();
    let saw = Mutex::new(saw);
    let backend = Backend::raw(move |mut stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let head = Message::read_head(&mut reader).unwrap();
        saw.lock()
            .unwrap()
            .send(head.header("expect").map(str::to_owned))
            .unwrap();
        // Nothing of the body comes before it is asked for.
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        assert!(reader.fill_buf().is_err());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
        let mut body = [0; 5];
        reader.read_exact(&mut body).unwrap();
        stream
            .write_all(&ok(std::str::from_utf8(&body).unwrap()))
            .unwrap();
    });
    let (gateway, address) = gateway_with(&backend, |config| config.timeouts.expect_timeout_ms = 20_000);
    let mut client = Client::connect(address);
    client.send(EXPECTS);
    assert_eq!(
        seen.recv_timeout(PATIENCE).unwrap().as_deref(),
        Some("100-continue")
    );
    assert_eq!(client.receive().status(), 100);
    client.send("hello");
    let answer = client.receive();
    assert_eq!((answer.status(), answer.text()), (200, "hello".into()));
    assert_eq!(answer.header("connection"), None);
    assert_eq!(take(&gateway).service.completions, 1);
}

#[test]
fn a_final_answer_comes_without_the_body_being_asked_for() {
    let (saw, seen) = channel();
    let saw = Mutex::new(saw);
    let backend = Backend::raw(move |mut stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        Message::read_head(&mut reader).unwrap();
        stream
            .write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
            .unwrap();
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        saw.lock().unwrap().send(rest.len()).unwrap();
    });
    let (_gateway, address) = gateway_with(&backend, |config| config.timeouts.expect_timeout_ms = 20_000);
    let mut client = Client::connect(address);
    client.send(EXPECTS);
    let answer = client.receive();
    assert_eq!((answer.status(), answer.text()), (403, "no".into()));
    // Whether the body comes or not, nothing behind it is taken for another request.
    assert_eq!(answer.header("connection"), Some("close"));
    assert!(client.is_closed());
    assert_eq!(seen.recv_timeout(PATIENCE).unwrap(), 0, "bytes of the body");
}

#[test]
fn a_backend_that_stays_silent_gets_the_body_after_a_while() {
    let backend = interim_first(b"");
    let (_gateway, address) = gateway_with(&backend, |config| config.timeouts.expect_timeout_ms = 300);
    let mut client = Client::connect(address);
    let begun = Instant::now();
    client.send(EXPECTS);
    assert_eq!(client.receive().status(), 100);
    assert!(begun.elapsed() >= Duration::from_millis(300));
    client.send("hello");
    assert_eq!(client.receive().text(), "hello");
}

/// A backend that says when it is asked and when it is let go, and answers when it is told.
fn held() -> (Backend, Receiver<&'static str>, Sender<()>) {
    let (says, said) = channel();
    let (release, released) = channel::<()>();
    let state = Mutex::new((says, released));
    let backend = Backend::raw(move |mut stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while Message::read(&mut reader, false).is_some() {
            let state = state.lock().unwrap();
            state.0.send("asked").unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
            loop {
                if state.1.try_recv().is_ok() {
                    stream.write_all(&ok("answer")).unwrap();
                    break;
                }
                if matches!(reader.fill_buf(), Ok([])) {
                    state.0.send("let go").unwrap();
                    return;
                }
            }
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
        }
    });
    (backend, said, release)
}

#[test]
fn a_client_that_has_ended_its_side_gets_its_answers() {
    let (backend, said, release) = held();
    let (gateway, address) = gateway(&backend);
    let mut client = Client::connect(address);
    client.send("GET /1 HTTP/1.1\r\nHost: t\r\n\r\nGET /2 HTTP/1.1\r\nHost: t\r\n\r\n");
    client.stream.shutdown(Shutdown::Write).unwrap();
    for _ in 0..2 {
        assert_eq!(said.recv_timeout(PATIENCE), Ok("asked"));
        std::thread::sleep(Duration::from_millis(100));
        release.send(()).unwrap();
        assert_eq!(client.receive().text(), "answer");
    }
    assert!(client.is_closed());
    let service = take(&gateway).service;
    assert_eq!((service.completions, service.failures), (2, 0));
}

#[test]
fn a_client_that_has_ended_its_side_and_is_then_gone_is_noticed() {
    let (backend, said, _release) = held();
    let (gateway, address) = gateway(&backend);
    let mut client = Client::connect(address);
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(said.recv_timeout(PATIENCE), Ok("asked"));
    client.stream.shutdown(Shutdown::Write).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(take(&gateway).service.in_flight, 1);
    client.reset();
    assert_eq!(said.recv_timeout(PATIENCE), Ok("let go"));
    let mut aborted = 0;
    eventually("it is counted", || {
        aborted += take(&gateway).service.aborted_by_client;
        aborted == 1
    });
}

#[test]
fn where_it_is_so_configured_the_end_of_its_side_cancels_a_request() {
    let (backend, said, _release) = held();
    let (gateway, address) = gateway_with(&backend, |config| config.cancel_on_fin = true);
    let mut client = Client::connect(address);
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(said.recv_timeout(PATIENCE), Ok("asked"));
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(said.recv_timeout(PATIENCE), Ok("let go"));
    eventually("nothing is left", || take(&gateway).service.in_flight == 0);
}

#[test]
fn a_request_that_may_go_no_further_is_answered_here() {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let record = asked.clone();
    let backend = Backend::http(move |request| {
        let forwards = request.header("max-forwards").unwrap_or("none");
        record
            .lock()
            .unwrap()
            .push(format!("{} {forwards}", request.start));
        ok("")
    });
    let (gateway, address) = gateway(&backend);
    let mut client = Client::connect(address);
    for (method, forwards, status) in [
        ("OPTIONS", "0", 200),
        ("TRACE", "0", 405),
        ("OPTIONS", "2", 200),
        ("TRACE", "1", 200),
        ("GET", "0", 200),
    ] {
        client.send(format!(
            "{method} /x HTTP/1.1\r\nHost: t\r\nMax-Forwards: {forwards}\r\n\r\n"
        ));
        let answer = client.receive();
        assert_eq!(
            (answer.status(), answer.text()),
            (status, String::new()),
            "{method} {forwards}"
        );
    }
    let asked = asked.lock().unwrap();
    assert_eq!(
        *asked,
        [
            "OPTIONS /x HTTP/1.1 1",
            "TRACE /x HTTP/1.1 0",
            "GET /x HTTP/1.1 0"
        ]
    );
    assert_eq!(take(&gateway).service.completions, 5);
}

#[test]
fn a_post_whose_body_reads_like_a_head_passes() {
    let backend = Backend::http(|request| ok(&request.text()));
    let (_gateway, address) = gateway(&backend);
    let body = "\r\n--x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc\r\n--x--";
    let mut client = Client::connect(address);
    for _ in 0..2 {
        // In one segment, so that the body is read together with the head.
        client.send(format!(
            "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            body.len()
        ));
        assert_eq!(client.receive().text(), body);
    }
}
