//! What happens when something is slow, dead, too large or gone: the answer, and the account.

use std::io::{BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Backend, Client, Message, config, eventually, gateway, gateway_with, ok, start, take};
use headroom_gateway::{BackendConfig, Gateway, GatewayConfig};

/// Answers the first request of each connection and closes it when the second has been sent: what a kept-alive
/// connection looks like that the backend gave up a moment too early.
fn closes_on_the_second_request(seen: Arc<AtomicUsize>) -> Backend {
    Backend::raw(move |mut stream, number| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut answered = 0;
        while Message::read(&mut reader, false).is_some() {
            seen.fetch_add(1, Ordering::SeqCst);
            if number == 0 && answered == 1 {
                return;
            }
            answered += 1;
            stream.write_all(&ok("answer")).unwrap();
        }
    })
}

#[test]
fn a_get_is_repeated_when_its_kept_alive_connection_dies() {
    let seen = Arc::new(AtomicUsize::new(0));
    let backend = closes_on_the_second_request(seen.clone());
    let (gateway, address) = gateway(&backend);
    let mut client = Client::connect(address);
    for _ in 0..3 {
        assert_eq!(client.get("/").text(), "answer");
    }
    assert_eq!(seen.load(Ordering::SeqCst), 4);
    let period = take(&gateway);
    assert_eq!(
        (
            period.service.completions,
            period.service.failures,
            period.service.retries
        ),
        (3, 0, 1)
    );
}

#[test]
fn a_post_is_never_sent_twice() {
    for body in ["", "some body"] {
        let seen = Arc::new(AtomicUsize::new(0));
        let backend = closes_on_the_second_request(seen.clone());
        let (gateway, address) = gateway(&backend);
        let mut client = Client::connect(address);
        assert_eq!(client.get("/").text(), "answer");
        let length = body.len();
        client.send(format!(
            "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        assert_eq!(client.receive().status(), 502);
        assert_eq!(seen.load(Ordering::SeqCst), 2);
        assert_eq!(take(&gateway).service.retries, 0);
    }
}

#[test]
fn a_connection_closed_in_the_pool_costs_nobody_anything() {
    let backend = Backend::raw(|mut stream, _| {
        Message::read(&mut BufReader::new(stream.try_clone().unwrap()), false).unwrap();
        stream.write_all(&ok("once")).unwrap();
    });
    let (gateway, address) = gateway(&backend);
    let mut client = Client::connect(address);
    for _ in 0..5 {
        // A POST, which could not be repeated: the dead connection must be noticed before it is used.
        client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\nx");
        assert_eq!(client.receive().text(), "once");
        std::thread::sleep(Duration::from_millis(30));
    }
    let period = take(&gateway);
    assert_eq!((period.service.completions, period.service.retries), (5, 0));
}

#[test]
fn the_limit_of_requests_in_flight_is_a_503() {
    let backend = Backend::raw(|mut stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while Message::read(&mut reader, false).is_some() {
            std::thread::sleep(Duration::from_millis(500));
            if stream.write_all(&ok("slow")).is_err() {
                return;
            }
        }
    });
    let (gateway, address) = gateway_with(&backend, |config| {
        config.limits.max_in_flight_per_backend = 2;
        config.limits.max_queued = 0;
    });
    let mut first: Vec<Client> = (0..2).map(|_| Client::connect(address)).collect();
    for client in &mut first {
        client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    }
    eventually("both are in flight", || take(&gateway).service.in_flight == 2);
    let mut third = Client::connect(address);
    let response = third.get("/");
    assert_eq!(
        (response.status(), response.header("retry-after")),
        (503, Some("1"))
    );
    for client in &mut first {
        assert_eq!(client.receive().status(), 200);
    }
    assert_eq!(third.get("/").status(), 200);
}

#[test]
fn a_backend_without_an_answer_is_a_504_and_its_age_is_seen_before() {
    let backend = Backend::raw(|stream, _| {
        let mut reader = BufReader::new(stream);
        while Message::read(&mut reader, false).is_some() {}
    });
    let (gateway, address) = gateway_with(&backend, |config| {
        config.timeouts.response_header_timeout_ms = 600
    });
    let mut client = Client::connect(address);
    let begun = Instant::now();
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    std::thread::sleep(Duration::from_millis(300));
    let stalled = take(&gateway);
    assert_eq!((stalled.service.arrivals, stalled.service.completions), (1, 0));
    assert!(
        stalled.oldest_in_flight.unwrap() >= Duration::from_millis(200),
        "{:?}",
        stalled.oldest_in_flight
    );
    assert_eq!(client.receive().status(), 504);
    assert!(
        begun.elapsed() >= Duration::from_millis(600),
        "the timeout came early"
    );
    let period = take(&gateway);
    assert_eq!(
        (
            period.service.timed_out,
            period.service.failures,
            period.service.in_flight
        ),
        (1, 1, 0)
    );
    assert_eq!(period.oldest_in_flight, None);
}

#[test]
fn a_backend_that_never_accepts_is_a_504() {
    // A listener whose accept queue is full: the kernel drops further connection attempts.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket
        .bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let queued: Vec<_> = (0..3)
        .map(|_| std::net::TcpStream::connect_timeout(&address, Duration::from_millis(100)))
        .collect();
    let backend = Backend::http(|_| ok(""));
    let mut config = config(&[&backend]);
    config.backends = vec![BackendConfig::new(format!("http://{address}"))];
    config.timeouts.connect_timeout_ms = 200;
    let (gateway, front) = start(config);
    assert_eq!(Client::connect(front).get("/").status(), 504);
    assert_eq!(take(&gateway).service.timed_out, 1);
    drop(queued);
}

#[test]
fn bodies_and_heads_beyond_their_limits_are_refused() {
    let backend = Backend::http(|_| ok("fine"));
    let (gateway, address) = gateway_with(&backend, |config| {
        config.limits.max_request_body_bytes = 1000;
        config.limits.max_header_bytes = 8192;
        config.limits.max_headers = 10;
    });
    let long = "x".repeat(9000);
    let many: String = (0..12).map(|n| format!("X-{n}: 1\r\n")).collect();
    let chunks = "80\r\n".to_owned() + &"y".repeat(128) + "\r\n";
    let cases = [
        (
            format!(
                "PUT / HTTP/1.1\r\nHost: t\r\nContent-Length: 1001\r\n\r\n{}",
                "z".repeat(1001)
            ),
            413,
        ),
        (
            format!(
                "PUT / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n",
                chunks.repeat(8)
            ),
            413,
        ),
        (
            format!("GET / HTTP/1.1\r\nHost: t\r\nX-Long: {long}\r\n\r\n"),
            431,
        ),
        (format!("GET / HTTP/1.1\r\nHost: t\r\n{many}\r\n"), 431),
        (
            format!(
                "PUT / HTTP/1.1\r\nHost: t\r\nContent-Length: 1000\r\n\r\n{}",
                "z".repeat(1000)
            ),
            200,
        ),
        (
            format!(
                "PUT / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n",
                chunks.repeat(7)
            ),
            200,
        ),
    ];
    for (request, status) in cases {
        let mut client = Client::connect(address);
        client.send(&request);
        assert_eq!(client.receive().status(), status, "{}", &request[..60]);
    }
    let period = take(&gateway);
    assert_eq!(
        (
            period.service.completions,
            period.service.failures,
            period.service.in_flight
        ),
        (2, 0, 0)
    );
    assert!(period.service.refused >= 3, "{:?}", period.service);
}

#[test]
fn a_slow_request_head_is_a_408_and_a_silent_connection_is_closed() {
    let backend = Backend::http(|_| ok("fine"));
    let (_gateway, address) = gateway_with(&backend, |config| {
        config.timeouts.request_header_timeout_ms = 300;
        config.timeouts.idle_timeout_ms = 300;
    });
    // One byte now and then does not extend the time.
    let mut slow = Client::connect(address);
    slow.send("GET / HTTP/1.1\r\nHost: t\r\nX-Slow: ");
    let mut dripping = slow.stream.try_clone().unwrap();
    std::thread::spawn(move || {
        while dripping.write_all(b"a").is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    assert_eq!(slow.receive().status(), 408);
    assert!(slow.is_closed());
    let mut silent = Client::connect(address);
    assert!(silent.is_closed());
    let mut idle = Client::connect(address);
    assert_eq!(idle.get("/").status(), 200);
    assert!(idle.is_closed());
}

#[test]
fn a_slow_request_body_is_a_408() {
    let backend = Backend::http(|_| ok("fine"));
    let (gateway, address) = gateway_with(&backend, |config| config.timeouts.body_timeout_ms = 300);
    let mut client = Client::connect(address);
    client.send("PUT / HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nhalf");
    assert_eq!(client.receive().status(), 408);
    assert_eq!(take(&gateway).service.refused, 1);
}

/// Sends a head, half of the body it promises, and then does as told.
fn half_a_response(head: &'static str, stall: bool) -> Backend {
    Backend::raw(move |mut stream, _| {
        Message::read(&mut BufReader::new(stream.try_clone().unwrap()), false).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        if stall {
            let _ = stream.read(&mut [0]);
        }
    })
}

#[test]
fn a_response_that_breaks_off_is_not_taken_for_a_whole_one() {
    let cases = [
        ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", false),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nNOT A CHUNK\r\n",
            false,
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", true),
    ];
    for (head, stall) in cases {
        let backend = half_a_response(head, stall);
        let (gateway, address) = gateway_with(&backend, |config| config.timeouts.body_timeout_ms = 300);
        for version in ["HTTP/1.1", "HTTP/1.0"] {
            let mut client = Client::connect(address);
            client.send(format!("GET / {version}\r\nHost: t\r\n\r\n"));
            // Read from the socket: with HTTP/1.0 only a reset tells the client.
            let complete = Message::read(&mut client.reader, false).is_some_and(|response| response.complete);
            assert!(!complete, "{head:?} for {version}");
        }
        let period = take(&gateway);
        assert_eq!(
            (period.service.aborted_by_backend, period.service.failures),
            (2, 2),
            "{head:?}"
        );
        assert_eq!((period.service.completions, period.service.in_flight), (0, 0));
    }
}

#[test]
fn a_response_that_is_not_http_is_a_502() {
    for answer in [
        "SSH-2.0-OpenSSH\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\nabcd",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a",
    ] {
        let backend = half_a_response(answer, false);
        let (gateway, address) = gateway(&backend);
        assert_eq!(Client::connect(address).get("/").status(), 502, "{answer:?}");
        assert_eq!(take(&gateway).service.unreachable, 1);
    }
}

#[test]
fn what_a_backend_sends_too_much_reaches_no_other_request() {
    let backend = Backend::raw(|mut stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while Message::read(&mut reader, false).is_some() {
            let poison = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
            stream
                .write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood{poison}").as_bytes())
                .unwrap();
        }
    });
    let (_gateway, address) = gateway(&backend);
    let mut client = Client::connect(address);
    for _ in 0..10 {
        assert_eq!(client.get("/").text(), "good");
    }
}

#[test]
fn a_client_that_gave_up_after_the_target_was_failed_by_its_backend() {
    let backend = Backend::raw(move |mut stream, _| {
        Message::read(&mut BufReader::new(stream.try_clone().unwrap()), false).unwrap();
        let _ = stream.read(&mut [0]);
    });
    for (target_ms, timed_out, aborted) in [(Some(50), 1, 0), (Some(600_000), 0, 1), (None, 0, 1)] {
        let gateway = Gateway::start(GatewayConfig {
            target_ms,
            ..config(&[&backend])
        })
        .unwrap();
        let mut client = Client::connect(gateway.local_addrs()[0]);
        client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
        eventually("the request is older than the target", || {
            take(&gateway)
                .oldest_in_flight
                .is_some_and(|age| age > Duration::from_millis(60))
        });
        client.reset();
        let mut counts = (0, 0);
        eventually("its end is counted", || {
            let service = take(&gateway).service;
            counts.0 += service.timed_out;
            counts.1 += service.aborted_by_client;
            service.in_flight == 0
        });
        assert_eq!(counts, (timed_out, aborted), "{target_ms:?}");
    }
}

#[test]
fn a_client_that_goes_away_frees_its_backend() {
    let gone = Arc::new(AtomicBool::new(false));
    let noticed = gone.clone();
    let backend = Backend::raw(move |mut stream, _| {
        Message::read(&mut BufReader::new(stream.try_clone().unwrap()), false).unwrap();
        // Nothing is answered; the end of the connection is what is waited for.
        if stream.read(&mut [0]).is_ok_and(|read| read == 0) {
            noticed.store(true, Ordering::SeqCst);
        }
    });
    let (gateway, address) = gateway(&backend);
    let mut client = Client::connect(address);
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    eventually("the request is in flight", || {
        take(&gateway).service.in_flight == 1
    });
    client.reset();
    eventually("the backend is let go", || gone.load(Ordering::SeqCst));
    let mut aborted = 0;
    eventually("the abort is counted", || {
        let period = take(&gateway);
        aborted += period.service.aborted_by_client;
        period.service.in_flight == 0 && period.connections == 0
    });
    assert_eq!(aborted, 1);
}

#[test]
fn a_client_that_goes_away_is_noticed_while_a_pooled_connection_is_silent() {
    let backend = Backend::raw(|mut stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        Message::read(&mut reader, false).unwrap();
        stream.write_all(&ok("")).unwrap();
        // The second request on the connection is not answered.
        Message::read(&mut reader, false);
        let _ = reader.read(&mut [0]);
    });
    let (gateway, address) = gateway(&backend);
    let mut client = Client::connect(address);
    client.get("/");
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    eventually("the request is in flight", || {
        take(&gateway).service.in_flight == 1
    });
    client.reset();
    let mut aborted = 0;
    eventually("the abort is counted", || {
        aborted += take(&gateway).service.aborted_by_client;
        aborted == 1
    });
    assert_eq!(backend.connections(), 1);
}

#[test]
fn a_backend_s_failed_statuses_are_failures_without_a_latency() {
    let backend = Backend::http(|_| b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops".to_vec());
    let (gateway, address) = gateway(&backend);
    assert_eq!(Client::connect(address).get("/").status(), 500);
    let counts = take(&gateway).service;
    assert_eq!(
        (counts.completions, counts.failed_answers, counts.failures),
        (0, 1, 1)
    );
    assert_eq!(
        (counts.failed_by_service(), counts.statuses),
        (1, [0, 0, 0, 0, 1])
    );
}

#[test]
fn a_status_that_is_none_is_a_failure_of_the_server() {
    let backend = Backend::http(|_| b"HTTP/1.1 799 What\r\nContent-Length: 0\r\n\r\n".to_vec());
    let (gateway, address) = gateway(&backend);
    assert_eq!(Client::connect(address).get("/").status(), 799);
    let counts = take(&gateway).service;
    assert_eq!((counts.completions, counts.failed_answers), (0, 1));
    assert_eq!(counts.statuses, [0, 0, 0, 0, 1]);
}

#[test]
fn which_statuses_have_failed_is_the_users_to_say() {
    let backend = Backend::http(|request| match request.start.starts_with("GET /busy") {
        true => b"HTTP/1.1 429 Busy\r\nContent-Length: 0\r\n\r\n".to_vec(),
        false => b"HTTP/1.1 501 Oops\r\nContent-Length: 0\r\n\r\n".to_vec(),
    });
    let mut config = config(&[&backend]);
    config.failed_status = "429".parse().unwrap();
    let (gateway, address) = start(config);
    let mut client = Client::connect(address);
    assert_eq!(
        (client.get("/busy").status(), client.get("/").status()),
        (429, 501)
    );
    let period = take(&gateway);
    let counts = period.service;
    assert_eq!((counts.completions, counts.failed_answers), (1, 1));
    assert_eq!(counts.statuses, [0, 0, 0, 1, 1]);
    assert_eq!(period.histogram.len(), 1, "of the completion alone");
    assert_eq!(period.backends[0].counts.failures, 1);
}
