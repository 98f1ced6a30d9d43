//! Starting, counting over many periods, and stopping.

use std::future::Future;
use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::common::{
    Backend, Client, Message, PATIENCE, config, eventually, gateway, gateway_with, ok, take,
};
use headroom_gateway::{BackendConfig, Counts, Gateway, GatewayError, TlsListenConfig};

#[test]
fn errors_at_the_start_name_what_is_wrong() {
    let backend = Backend::http(|_| ok(""));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let mut in_use = config(&[&backend]);
    in_use.listen = vec![address];
    let error = Gateway::start(in_use).unwrap_err();
    assert!(matches!(error, GatewayError::Bind { .. }), "{error}");
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    assert!(error.to_string().contains("another process"), "{error}");

    for url in [
        "https://a:1",
        "a:1",
        "http://",
        "http://a:99999",
        "http://a:1/path",
        "http://u@a:1",
        "http://a:",
    ] {
        let mut bad = config(&[&backend]);
        bad.backends = vec![BackendConfig::new(url)];
        let error = Gateway::start(bad).unwrap_err().to_string();
        assert!(error.contains(url), "{error}");
    }
    let mut unknown = config(&[&backend]);
    unknown.backends = vec![BackendConfig::new("http://no-such-host.invalid:80")];
    let error = Gateway::start(unknown).unwrap_err();
    assert!(matches!(error, GatewayError::Resolve { .. }), "{error}");

    let mut no_file = config(&[&backend]);
    no_file.tls = vec![TlsListenConfig::new(
        "127.0.0.1:0".parse().unwrap(),
        "/nonexistent/cert.pem",
        "/nonexistent/key.pem",
    )];
    let error = Gateway::start(no_file).unwrap_err().to_string();
    assert!(error.contains("/nonexistent/cert.pem"), "{error}");
}

#[test]
fn it_runs_inside_a_runtime_and_from_a_plain_thread() {
    let backend = Backend::http(|_| ok("hello"));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        // This runtime has neither timers nor I/O: the gateway needs nothing of it.
        let (gateway, address) = gateway(&backend);
        let body = std::thread::spawn(move || Client::connect(address).get("/").text())
            .join()
            .unwrap();
        assert_eq!(body, "hello");
        assert_eq!(gateway.take_period(PATIENCE).await.service.completions, 1);
        assert_eq!(gateway.shutdown(PATIENCE).await.connections_cut, 0);
    });
}

#[test]
fn a_host_name_is_resolved() {
    let backend = Backend::http(|_| ok("named"));
    let mut config = config(&[&backend]);
    config.backends = vec![BackendConfig::new(format!(
        "http://localhost:{}",
        backend.address.port()
    ))];
    match Gateway::start(config) {
        Ok(gateway) => {
            // `localhost` may be ::1 first, where nothing listens.
            let status = Client::connect(gateway.local_addrs()[0]).get("/").status();
            assert!(matches!(status, 200 | 502), "{status}");
        }
        Err(error) => println!("skipped: this machine does not resolve localhost: {error}"),
    }
}

fn sum(periods: &[Counts]) -> Counts {
    let mut total = Counts::default();
    for period in periods {
        total.arrivals += period.arrivals;
        total.completions += period.completions;
        total.failures += period.failures;
        total.refused += period.refused;
    }
    total
}

#[test]
fn periods_add_up_to_what_happened() {
    let backend = Backend::http(|request| ok(&request.start));
    let mut config = config(&[&backend]);
    config.threads = 2;
    let gateway = Arc::new(Gateway::start(config).unwrap());
    let address = gateway.local_addrs()[0];
    let done = Arc::new(AtomicBool::new(false));
    let taking = {
        let (gateway, done) = (gateway.clone(), done.clone());
        std::thread::spawn(move || {
            let (mut counts, mut recorded, mut since) = (Vec::new(), 0, Duration::ZERO);
            while !done.load(Ordering::SeqCst) {
                // With so little patience some cores are missing now and then: nothing may be lost.
                let period = gateway.take_period_blocking(Duration::from_micros(50));
                counts.push(period.service);
                recorded += period.histogram.len();
                since += period.since;
            }
            (counts, recorded, since)
        })
    };
    let begun = Instant::now();
    let clients: Vec<_> = (0..8)
        .map(|_| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                for n in 0..250 {
                    if n % 10 == 0 {
                        client.send("GET * HTTP/1.1\r\nHost: t\r\n\r\n");
                        assert_eq!(client.receive().status(), 400);
                        client = Client::connect(address);
                    } else {
                        assert_eq!(client.get("/").status(), 200);
                    }
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    let elapsed = begun.elapsed();
    done.store(true, Ordering::SeqCst);
    let (mut counts, mut recorded, since) = taking.join().unwrap();
    assert!(counts.len() > 5, "only {} periods", counts.len());
    let last = take(&gateway);
    counts.push(last.service);
    recorded += last.histogram.len();
    let total = sum(&counts);
    assert_eq!(
        (total.arrivals, total.completions, total.refused, total.failures),
        (2000, 1800, 200, 0)
    );
    assert_eq!(recorded, 1800);
    assert_eq!(last.service.in_flight, 0);
    assert!(since + last.since >= elapsed, "the periods leave a gap");
}

#[test]
fn a_core_that_is_late_is_said_to_be_missing_and_its_counters_come_next() {
    let backend = Backend::http(|_| ok("x"));
    let (gateway, address) = gateway(&backend);
    assert_eq!(Client::connect(address).get("/").status(), 200);
    // Without any patience no core can answer in time.
    let hasty = gateway.take_period_blocking(Duration::ZERO);
    assert_eq!((hasty.cores_missing, hasty.service.completions), (1, 0));
    assert_eq!(take(&gateway).service.completions, 1);
}

#[test]
fn a_period_nobody_waited_for_is_not_lost() {
    let backend = Backend::http(|_| ok("x"));
    let (gateway, address) = gateway(&backend);
    assert_eq!(Client::connect(address).get("/").status(), 200);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let mut completions = 0;
    runtime.block_on(async {
        for turn in 0..200 {
            // Given up after its order is sent, at once or a little later.
            let patient = Duration::from_micros(turn % 20 * 20);
            let begun = Instant::now();
            let mut taking = std::pin::pin!(gateway.take_period(PATIENCE));
            let taken = std::future::poll_fn(|cx| match taking.as_mut().poll(cx) {
                Poll::Pending if begun.elapsed() < patient => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                Poll::Pending => Poll::Ready(None),
                Poll::Ready(period) => Poll::Ready(Some(period)),
            })
            .await;
            completions += taken.map_or(0, |period| period.service.completions);
        }
    });
    assert_eq!(completions + take(&gateway).service.completions, 1);
}

#[test]
fn ten_thousand_short_connections_leave_nothing_behind() {
    let backend = Backend::http(|_| ok("x"));
    let mut config = config(&[&backend]);
    config.threads = 2;
    let gateway = Gateway::start(config).unwrap();
    let address = gateway.local_addrs()[0];
    let aborted = Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let aborted = aborted.clone();
            std::thread::spawn(move || {
                for n in 0..2500 {
                    let mut stream = TcpStream::connect(address).unwrap();
                    stream
                        .write_all(b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
                        .unwrap();
                    if (n + worker) % 5 == 0 {
                        // Gone without reading the answer.
                        aborted.fetch_add(1, Ordering::SeqCst);
                        continue;
                    }
                    let response = Message::read(&mut BufReader::new(stream), false).unwrap();
                    assert_eq!(response.status(), 200);
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    let (mut completions, mut failures) = (0, 0);
    eventually("every connection is closed", || {
        let period = take(&gateway);
        completions += period.service.completions;
        failures += period.service.failures;
        period.connections == 0 && period.service.in_flight == 0 && period.backends[0].counts.in_flight == 0
    });
    let aborted = aborted.load(Ordering::SeqCst) as u64;
    // A client that is gone may be noticed before, or after, its answer was handed over, or before its request
    // was read.
    assert!(
        completions >= 10_000 - aborted && completions + failures <= 10_000,
        "{completions} + {failures}"
    );
}

/// A backend that holds each answer until it is told.
fn held() -> (Backend, mpsc::Sender<()>) {
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let backend = Backend::raw(move |mut stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while Message::read(&mut reader, false).is_some() {
            let _ = released.lock().unwrap().recv_timeout(PATIENCE);
            if stream.write_all(&ok("held")).is_err() {
                return;
            }
        }
    });
    (backend, release)
}

#[test]
fn a_drain_refuses_nobody_it_had_accepted() {
    let (backend, release) = held();
    let (gateway, address) = gateway(&backend);
    let mut in_flight = Client::connect(address);
    in_flight.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    eventually("the request is in flight", || {
        take(&gateway).service.in_flight == 1
    });
    // Connected, and its first request still to come.
    let mut fresh = Client::connect(address);
    std::thread::sleep(Duration::from_millis(50));
    let gateway = Arc::new(gateway);
    let draining = {
        let gateway = gateway.clone();
        std::thread::spawn(move || gateway.shutdown_blocking(PATIENCE))
    };
    eventually("the socket is closed", || TcpStream::connect(address).is_err());
    // A successor may take the address over while requests are in flight.
    let successor_backend = Backend::http(|_| ok("successor"));
    let mut successor = config(&[&successor_backend]);
    successor.listen = vec![address];
    let _successor = Gateway::start(successor).unwrap();
    assert_eq!(Client::connect(address).get("/").text(), "successor");

    fresh.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    release.send(()).unwrap();
    release.send(()).unwrap();
    for client in [&mut in_flight, &mut fresh] {
        let response = client.receive();
        assert_eq!(
            (response.text().as_str(), response.header("connection")),
            ("held", Some("close"))
        );
        assert!(client.is_closed());
    }
    let report = draining.join().unwrap();
    assert_eq!(report.connections_cut, 0);
    // The last counters are still there.
    let period = take(&gateway);
    assert_eq!((period.service.in_flight, period.connections), (0, 0));
    assert_eq!(gateway.shutdown_blocking(PATIENCE), report);
}

#[test]
fn a_drain_closes_idle_connections_at_once() {
    let backend = Backend::http(|_| ok("x"));
    let (gateway, address) = gateway(&backend);
    let mut idle = Client::connect(address);
    assert_eq!(idle.get("/").status(), 200);
    let report = gateway.shutdown_blocking(PATIENCE);
    assert_eq!(report.connections_cut, 0);
    assert!(report.took < PATIENCE / 2, "{report:?}");
    assert!(idle.is_closed());
}

#[test]
fn a_drain_ends_at_its_deadline() {
    let (backend, _release) = held();
    let (gateway, address) = gateway(&backend);
    let mut client = Client::connect(address);
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    eventually("the request is in flight", || {
        take(&gateway).service.in_flight == 1
    });
    let report = gateway.shutdown_blocking(Duration::from_millis(200));
    assert_eq!(report.connections_cut, 1);
    assert!(report.took >= Duration::from_millis(200));
    assert!(client.is_closed());
    let counts = take(&gateway).service;
    assert_eq!((counts.in_flight, counts.failures), (0, 1));
}

#[test]
fn a_dropped_gateway_stops() {
    let backend = Backend::http(|_| ok("x"));
    let (gateway, address) = gateway(&backend);
    assert_eq!(Client::connect(address).get("/").status(), 200);
    drop(gateway);
    eventually("nobody listens", || TcpStream::connect(address).is_err());
}

#[test]
fn the_limit_of_connections_queues_the_rest() {
    let backend = Backend::http(|_| ok("x"));
    let (_gateway, address) = gateway_with(&backend, |config| config.limits.max_connections_per_core = 2);
    let mut first: Vec<Client> = (0..2).map(|_| Client::connect(address)).collect();
    for client in &mut first {
        assert_eq!(client.get("/").status(), 200);
    }
    let mut third = Client::connect(address);
    third.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    third
        .stream
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    assert!(
        Message::read(&mut third.reader, false).is_none(),
        "a connection beyond the limit was served"
    );
    drop(first);
    third.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(third.receive().status(), 200);
}

#[test]
fn an_address_that_another_gateway_listens_on_is_refused_unless_it_is_to_be_taken_over() {
    let backend = Backend::http(|_| ok("first"));
    let first = Gateway::start(config(&[&backend])).unwrap();
    let address = first.local_addrs()[0];
    let mut second = config(&[&backend]);
    second.listen = vec![address];
    let error = Gateway::start(second.clone()).unwrap_err().to_string();
    assert!(error.contains(&address.to_string()), "{error}");
    second.takeover = true;
    Gateway::start(second).unwrap();
}

#[test]
fn a_gateway_that_hands_over_answers_an_idle_connection_once_more() {
    let backend = Backend::http(|_| ok("x"));
    let (gateway, address) = gateway(&backend);
    let (mut asks, mut stays) = (Client::connect(address), Client::connect(address));
    for client in [&mut asks, &mut stays] {
        assert_eq!(client.get("/").status(), 200);
    }
    let handing_over =
        std::thread::spawn(move || gateway.hand_over_blocking(PATIENCE, Duration::from_millis(1_500)));
    eventually("the socket is closed", || TcpStream::connect(address).is_err());
    let response = asks.get("/");
    assert_eq!(
        (response.status(), response.header("connection")),
        (200, Some("close"))
    );
    assert!(asks.is_closed());
    // The other has nothing to ask, and is let go when its time is over.
    let report = handing_over.join().unwrap();
    assert_eq!(report.connections_cut, 0);
    assert!(
        report.took >= Duration::from_millis(1_500) && report.took < PATIENCE,
        "{report:?}"
    );
    assert!(stays.is_closed());
}

#[test]
fn a_connection_that_rested_answers_its_next_request() {
    let backend = Backend::http(|request| ok(&request.text()));
    let (gateway, address) = gateway(&backend);
    let (mut whole, mut split, mut pipelined) = (
        Client::connect(address),
        Client::connect(address),
        Client::connect(address),
    );
    let post = |body: &str| {
        format!(
            "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    for round in 0..2 {
        whole.send(post("one"));
        assert_eq!(whole.receive().text(), "one", "round {round}");
        let request = post("other");
        let (head, rest) = request.split_at(20);
        split.send(head);
        // A part of a head is no rest.
        std::thread::sleep(Duration::from_millis(1_500));
        split.send(rest);
        assert_eq!(split.receive().text(), "other");
        // A part of the next one comes with a request, and waits longer than a connection without any rests.
        let two = [post("first"), post("second")].concat();
        let (most, rest) = two.split_at(two.len() - 30);
        pipelined.send(most);
        assert_eq!(pipelined.receive().text(), "first");
        std::thread::sleep(Duration::from_millis(1_500));
        pipelined.send(rest);
        assert_eq!(pipelined.receive().text(), "second");
        std::thread::sleep(Duration::from_millis(1_500));
    }
    assert_eq!(take(&gateway).connections, 3);
    // One that rests still ends with its time, and with the gateway.
    let report = gateway.shutdown_blocking(Duration::from_secs(5));
    assert_eq!(report.connections_cut, 0);
    assert!(whole.is_closed() && split.is_closed() && pipelined.is_closed());
}

#[test]
fn a_connection_that_rests_ends_when_its_time_is_over() {
    let backend = Backend::http(|_| ok("well"));
    let (gateway, address) = gateway_with(&backend, |config| config.timeouts.idle_timeout_ms = 2_500);
    let mut client = Client::connect(address);
    assert_eq!(client.get("/").text(), "well");
    let begun = Instant::now();
    assert!(client.is_closed());
    assert!(
        begun.elapsed() >= Duration::from_millis(2_400),
        "{:?}",
        begun.elapsed()
    );
    eventually("it is counted", || take(&gateway).connections == 0);
}
