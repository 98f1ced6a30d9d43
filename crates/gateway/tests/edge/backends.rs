//! Which backend gets a request: those that are dead, ejected, checked, drained, weighed or busy.

use std::io::{BufReader, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Backend, Client, Message, config, eventually, ok, start, take};
use headroom_gateway::{BackendChange, BackendConfig, BackendState, Balance};

/// A port on which nothing listens.
fn dead_url() -> String {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    format!("http://{address}")
}

#[test]
fn no_backend_is_a_502_at_once_and_again_and_again() {
    let backend = Backend::http(|_| ok(""));
    let mut config = config(&[&backend]);
    config.backends = vec![BackendConfig::new(dead_url()), BackendConfig::new(dead_url())];
    let (gateway, address) = start(config);
    let mut client = Client::connect(address);
    for _ in 0..10 {
        let response = client.get("/");
        assert_eq!(response.status(), 502);
        assert!(!response.body.is_empty());
    }
    let period = take(&gateway);
    assert_eq!(
        (
            period.service.arrivals,
            period.service.failures,
            period.service.unreachable
        ),
        (10, 10, 10)
    );
    assert!(period.histogram.is_empty());
    assert!(
        gateway
            .backends_health()
            .iter()
            .all(|health| health.connect_failures > 0)
    );
}

#[test]
fn a_dead_backend_is_passed_over_and_costs_no_request() {
    let alive = Backend::http(|_| ok("alive"));
    let mut config = config(&[&alive]);
    config.backends.insert(0, BackendConfig::new(dead_url()));
    let (gateway, address) = start(config);
    let mut client = Client::connect(address);
    for _ in 0..40 {
        assert_eq!(client.get("/").text(), "alive");
    }
    let period = take(&gateway);
    assert_eq!((period.service.completions, period.service.failures), (40, 0));
    // Passed over after the first failure, tried anew only as its back-off ends.
    assert!(
        (1..20).contains(&period.backends[0].counts.unreachable),
        "{:?}",
        period.backends[0].counts
    );
    assert_eq!(period.service.retries, period.backends[0].counts.failures);
    assert!(gateway.backends_health()[0].ejected_for.is_some());
}

#[test]
fn a_backend_that_comes_back_is_used_without_waiting_for_the_end_of_its_ejection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let other = Backend::http(|_| ok(""));
    let mut config = config(&[&other]);
    config.backends = vec![BackendConfig::new(format!("http://{address}"))];
    config.health.ejection_ms = 60_000;
    config.health.ejection_max_ms = 60_000;
    let (gateway, front) = start(config);
    let mut client = Client::connect(front);
    assert_eq!(client.get("/").status(), 502);
    let _back = Backend::http_on(TcpListener::bind(address).unwrap(), |_| ok("back"));
    assert_eq!(client.get("/").text(), "back");
    assert_eq!(gateway.backends_health()[0].connect_failures, 0);
}

#[test]
fn the_active_check_takes_a_backend_out_and_back_in() {
    let sick = Arc::new(AtomicBool::new(false));
    let state = sick.clone();
    let first = Backend::http(move |request| {
        if request.start.contains("/healthz") && state.load(Ordering::SeqCst) {
            return b"HTTP/1.1 500 Sick\r\nContent-Length: 0\r\n\r\n".to_vec();
        }
        ok("first")
    });
    let second = Backend::http(|_| ok("second"));
    let mut config = config(&[&first, &second]);
    config.health.path = Some("/healthz".into());
    config.health.interval_ms = 20;
    config.health.rise = 2;
    config.health.fall = 2;
    let (gateway, address) = start(config);
    let mut client = Client::connect(address);
    let mut answers = |n: usize| -> Vec<String> { (0..n).map(|_| client.get("/").text()).collect() };
    let both = answers(10);
    assert!(
        both.iter().filter(|answer| *answer == "first").count() == 5,
        "{both:?}"
    );
    sick.store(true, Ordering::SeqCst);
    eventually("the first is unhealthy", || !gateway.backends_health()[0].healthy);
    assert!(answers(10).iter().all(|answer| answer == "second"));
    sick.store(false, Ordering::SeqCst);
    eventually("the first is healthy", || gateway.backends_health()[0].healthy);
    assert_eq!(answers(10).iter().filter(|answer| *answer == "first").count(), 5);
}

#[test]
fn checks_that_most_backends_fail_are_disregarded() {
    let sick = Arc::new(AtomicUsize::new(0));
    let backends: Vec<_> = (0..3)
        .map(|number| {
            let sick = sick.clone();
            Backend::http(move |request| {
                if request.start.contains("/healthz") && number < sick.load(Ordering::SeqCst) {
                    return b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_vec();
                }
                ok(&number.to_string())
            })
        })
        .collect();
    let mut config = config(&backends.iter().collect::<Vec<_>>());
    config.health.path = Some("/healthz".into());
    config.health.interval_ms = 20;
    let (gateway, address) = start(config);
    let mut client = Client::connect(address);
    // (sick, answers of each out of twelve): one is left out, two of three are not.
    for (count, expected) in [
        (0, [4, 4, 4]),
        (1, [0, 6, 6]),
        (2, [4, 4, 4]),
        (3, [4, 4, 4]),
        (0, [4, 4, 4]),
    ] {
        sick.store(count, Ordering::SeqCst);
        eventually("the checks have said so", || {
            let health = gateway.backends_health();
            health.iter().filter(|health| !health.healthy).count() == count
        });
        let mut answers = [0; 3];
        for _ in 0..12 {
            answers[client.get("/").text().parse::<usize>().unwrap()] += 1;
        }
        assert_eq!(answers, expected, "{count} are sick");
    }
}

#[test]
fn the_control_side_drains_and_weighs_backends() {
    let backends = [Backend::http(|_| ok("a")), Backend::http(|_| ok("b"))];
    let mut config = config(&[&backends[0], &backends[1]]);
    config.balance = Balance::RoundRobin;
    let (gateway, address) = start(config);
    let mut client = Client::connect(address);
    let mut count_a = |n: usize| (0..n).filter(|_| client.get("/").text() == "a").count();
    assert_eq!(count_a(20), 10);
    gateway.set_backend_state(0, BackendChange::Weight(3)).unwrap();
    assert_eq!(count_a(40), 30);
    for state in [BackendState::Drain, BackendState::Down] {
        gateway.set_backend_state(0, state).unwrap();
        assert_eq!(gateway.backends_health()[0].state, state);
        assert_eq!(count_a(10), 0);
    }
    gateway.set_backend_state(0, BackendState::Up).unwrap();
    assert_eq!(count_a(40), 30);
    gateway.set_backend_state(1, BackendChange::Weight(0)).unwrap();
    assert_eq!(count_a(10), 10);
    assert!(gateway.set_backend_state(2, BackendState::Up).is_err());
    assert!(gateway.set_backend_state(0, BackendChange::Weight(1001)).is_err());
}

#[test]
fn least_connections_avoids_the_busy_backend() {
    let slow = Backend::raw(|mut stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while Message::read(&mut reader, false).is_some() {
            std::thread::sleep(Duration::from_millis(1500));
            if stream.write_all(&ok("slow")).is_err() {
                return;
            }
        }
    });
    let fast = Backend::http(|_| ok("fast"));
    let mut config = config(&[&slow, &fast]);
    config.balance = Balance::LeastConnections;
    let (gateway, address) = start(config);
    let mut waiting = Client::connect(address);
    let mut client = Client::connect(address);
    // Whoever gets the first request, one more puts exactly one on the slow backend.
    waiting.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    std::thread::sleep(Duration::from_millis(50));
    if take(&gateway).backends[0].counts.in_flight == 0 {
        waiting.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    }
    eventually("the slow backend is busy", || {
        take(&gateway).backends[0].counts.in_flight == 1
    });
    for _ in 0..20 {
        assert_eq!(client.get("/").text(), "fast");
    }
}
