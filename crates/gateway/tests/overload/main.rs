//! Servers with few workers and short accept queues under more load than they can take: what the gateway does when
//! SYNs are dropped. Every listener's queue here is really full, in the kernel.

#[path = "../common/mod.rs"]
mod common;
mod importance;
mod line;
mod servers;

use std::io::{BufReader, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::{Backend, Client, Message, PATIENCE, config, eventually, gateway_with, ok, start, take};
use headroom_gateway::{BackendConfig, BackendState, Balance, EjectionCause, GatewayConfig};
use servers::{
    Full, Prefork, WORKERS, capacity_per_s, in_front_of, listener, offer, served_per_s, share_of_capacity,
};

/// Does it for both ways to balance, at the same time: they mostly wait.
fn for_both(test: fn(Balance)) {
    std::thread::scope(|scope| {
        let both = [Balance::RoundRobin, Balance::LeastConnections];
        let running = both.map(|balance| scope.spawn(move || test(balance)));
        for one in running {
            one.join().unwrap();
        }
    });
}

#[test]
fn after_a_burst_the_service_is_as_before() {
    for_both(|balance| {
        let servers: Vec<_> = (0..3).map(|_| Prefork::new()).collect();
        let (gateway, front) = start(GatewayConfig {
            balance,
            ..in_front_of(&servers)
        });
        let capacity_per_s = capacity_per_s(&servers);
        let load = offer(front, 0.7 * capacity_per_s, Duration::from_secs(8));
        std::thread::sleep(Duration::from_millis(500));
        let burst = offer(front, 2.5 * capacity_per_s, Duration::from_millis(800));
        std::thread::sleep(Duration::from_millis(1_500));
        let in_burst: u64 = timed_out(&take(&gateway));
        // Whoever could not connect in the burst has tried three times for a second by now.
        std::thread::sleep(Duration::from_secs(3));
        take(&gateway);
        let rate = served_per_s(&servers, Duration::from_secs(2)) / (0.7 * capacity_per_s);
        let after = take(&gateway);
        load.join().unwrap();
        burst.join().unwrap();
        let (late, requests) = (timed_out(&after), after.service.arrivals);
        println!(
            "{balance:?}: {late} of {requests} could not connect; {rate:.2} of what was offered was served"
        );
        assert!(in_burst > 0, "no queue was full: nothing was tested");
        assert!(
            late * 4 < requests,
            "{balance:?}: {late} of {requests} could not connect"
        );
        assert!(
            rate > 0.85,
            "{balance:?}: {rate:.2} of what was offered was served"
        );
    });
}

fn timed_out(period: &headroom_gateway::PeriodStats) -> u64 {
    period
        .backends
        .iter()
        .map(|backend| backend.connects.timed_out)
        .sum()
}

#[test]
fn overloaded_backends_go_on_serving_what_they_can() {
    for_both(|balance| {
        let servers: Vec<_> = (0..3).map(|_| Prefork::new()).collect();
        let (gateway, front) = start(GatewayConfig {
            balance,
            ..in_front_of(&servers)
        });
        let share = share_of_capacity(&servers, front);
        let period = take(&gateway);
        let connects: Vec<_> = period.backends.iter().map(|backend| backend.connects).collect();
        println!("{balance:?}: {share:.2} of the capacity; {connects:?}");
        assert!(
            share > 0.75,
            "{balance:?}: {share:.2} of the capacity; {connects:?}"
        );
        assert!(
            connects.iter().any(|connects| connects.timed_out > 0),
            "no queue was full: nothing was tested; {connects:?}"
        );
        let ejected: u64 = connects.iter().map(|connects| connects.ejected_timed_out).sum();
        assert_eq!(ejected, 0, "{connects:?}");
    });
}

#[test]
fn an_only_backend_with_a_full_queue_is_tried_again() {
    let servers = [Prefork::new()];
    let mut config = in_front_of(&servers);
    config.timeouts.connect_timeout_ms = 600;
    let (gateway, front) = start(config);
    // Ten find a worker or a place in the queue, and are served long before the next ten come again.
    let answered = offer(front, 24_000.0, Duration::from_millis(1)).join().unwrap();
    let period = take(&gateway);
    assert_eq!(answered, 24, "{:?}", period.service);
    assert!(period.service.retries >= 10, "{:?}", period.service);
    assert_eq!(period.backends[0].connects.ejected_timed_out, 0);
}

#[test]
fn with_a_limit_the_overload_waits_here_and_no_connection_times_out() {
    let servers: Vec<_> = (0..3).map(|_| Prefork::new()).collect();
    let mut config = in_front_of(&servers);
    config.limits.max_in_flight_per_backend = WORKERS + 4;
    config.limits.max_queued = 50;
    let (gateway, front) = start(config);
    let share = share_of_capacity(&servers, front);
    let period = take(&gateway);
    println!("{share:.2} of the capacity; {:?}", period.queue);
    assert!(share > 0.75, "{share:.2} of the capacity; {:?}", period.queue);
    for backend in &period.backends {
        assert_eq!(
            (backend.connects.timed_out, backend.connects.refused),
            (0, 0),
            "{:?}",
            backend.connects
        );
    }
    assert!(
        period.queue.waited > 0 && period.queue.full > 0,
        "{:?}",
        period.queue
    );
    assert_eq!(
        period.service.over_limit,
        period.queue.full + period.queue.expired
    );
}

#[test]
fn a_silent_backend_is_ejected_after_five_timeouts_probed_and_taken_back() {
    let (alive, full) = (Backend::http(|_| ok("alive")), Full::new());
    let mut config = config(&[&alive]);
    config
        .backends
        .insert(0, BackendConfig::new(format!("http://{}", full.address)));
    config.timeouts.connect_timeout_ms = 100;
    config.health.ejection_ms = 400;
    let (gateway, front) = start(config);
    let mut client = Client::connect(front);
    eventually("the silent one is ejected", || {
        assert_eq!(client.get("/").text(), "alive");
        gateway.backends_health()[0].ejected_for.is_some()
    });
    let health = &gateway.backends_health()[0];
    assert_eq!(
        (health.ejected_by, health.connect_failures),
        (Some(EjectionCause::TimedOut), 5)
    );
    let period = take(&gateway);
    let connects = period.backends[0].connects;
    assert_eq!(
        (connects.timed_out, connects.ejected_timed_out, connects.opened),
        (5, 1, 0)
    );
    assert_eq!(period.service.failures, 0);
    let _back = full.recover("back");
    eventually("it is used again", || client.get("/").text() == "back");
    assert_eq!(gateway.backends_health()[0].connect_failures, 0);
}

#[test]
fn no_more_than_half_of_the_backends_are_ejected_for_silence() {
    let alive = Backend::http(|_| ok("alive"));
    let silent = [Full::new(), Full::new(), Full::new()];
    let mut config = config(&[&alive]);
    for full in &silent {
        config
            .backends
            .push(BackendConfig::new(format!("http://{}", full.address)));
    }
    config.timeouts.connect_timeout_ms = 20;
    config.retry.max_retries = 3;
    config.health.ejection_ms = 60_000;
    config.health.ejection_max_ms = 60_000;
    let (gateway, front) = start(config);
    let mut client = Client::connect(front);
    for _ in 0..40 {
        assert_eq!(client.get("/").text(), "alive");
    }
    let away = gateway
        .backends_health()
        .iter()
        .filter(|health| health.ejected_for.is_some())
        .count();
    assert_eq!(away, 2);
    let period = take(&gateway);
    let sum = |of: fn(&headroom_gateway::ConnectCounts) -> u64| -> u64 {
        period.backends.iter().map(|backend| of(&backend.connects)).sum()
    };
    assert_eq!(sum(|connects| connects.ejected_timed_out), 2);
    assert!(sum(|connects| connects.ejections_withheld) > 0);
}

#[test]
fn a_backend_that_answers_on_old_connections_is_not_ejected_for_a_full_queue() {
    // It keeps the one connection that it accepted, answers on it, and accepts no more.
    let listener = listener(0);
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let full = Full::of(listener);
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while Message::read(&mut reader, false).is_some() {
            std::thread::sleep(Duration::from_millis(20));
            if stream.write_all(&ok("one")).is_err() {
                return;
            }
        }
        drop(full);
    });
    let other = Backend::http(|_| ok("other"));
    let mut config = config(&[&other]);
    config
        .backends
        .insert(0, BackendConfig::new(format!("http://{address}")));
    config.timeouts.connect_timeout_ms = 200;
    config.health.eject_after_timeouts = 1;
    let (gateway, front) = start(config);
    assert_eq!(Client::connect(front).get("/").text(), "one");
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..6)
        .map(|_| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                let mut client = Client::connect(front);
                while !stop.load(SeqCst) {
                    assert_eq!(client.get("/").status(), 200);
                }
            })
        })
        .collect();
    let mut connects = headroom_gateway::ConnectCounts::default();
    let (mut requests, mut failed) = (0, 0);
    eventually("connections time out", || {
        let period = take(&gateway);
        let of = period.backends[0].connects;
        connects.timed_out += of.timed_out;
        connects.ejected_timed_out += of.ejected_timed_out;
        requests += period.backends[0].counts.completions;
        failed += period.service.failures;
        connects.timed_out >= 10
    });
    stop.store(true, SeqCst);
    for client in clients {
        client.join().unwrap();
    }
    assert_eq!((connects.ejected_timed_out, failed), (0, 0), "{connects:?}");
    assert!(requests > 10, "it answered only {requests}");
}

/// Takes `service` for each request, and keeps the largest number that it had at once.
fn slow(service: Duration) -> (Backend, Arc<AtomicUsize>) {
    let (now, most) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let largest = most.clone();
    let backend = Backend::http(move |_| {
        largest.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
        std::thread::sleep(service);
        now.fetch_sub(1, SeqCst);
        ok("slow")
    });
    (backend, most)
}

#[test]
fn requests_beyond_the_limit_wait_their_turn() {
    let (backend, most) = slow(Duration::from_millis(30));
    let (gateway, front) = gateway_with(&backend, |config| {
        config.limits.max_in_flight_per_backend = 2;
        config.timeouts.queue_timeout_ms = 10_000;
    });
    let clients: Vec<_> = (0..12)
        .map(|_| {
            std::thread::spawn(move || {
                let mut client = Client::connect(front);
                for _ in 0..3 {
                    assert_eq!(client.get("/").text(), "slow");
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    let period = take(&gateway);
    assert_eq!((period.service.completions, period.service.failures), (36, 0));
    assert_eq!(most.load(SeqCst), 2);
    assert!(backend.connections() <= 2, "{}", backend.connections());
    assert!(period.queue.waited >= 10, "{:?}", period.queue);
    assert_eq!(period.queue.waiting, 0);
}

#[test]
fn the_limit_of_requests_in_flight_is_one_for_all_cores() {
    let (backend, most) = slow(Duration::from_millis(10));
    let (gateway, front) = gateway_with(&backend, |config| {
        config.threads = 4;
        config.limits.max_in_flight_per_backend = 8;
        config.timeouts.queue_timeout_ms = 20_000;
    });
    let clients: Vec<_> = (0..16)
        .map(|_| {
            std::thread::spawn(move || {
                for _ in 0..15 {
                    // A new connection each time, so that the kernel gives the cores unequal shares.
                    assert_eq!(Client::connect(front).get("/").text(), "slow");
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    let period = take(&gateway);
    assert_eq!((period.service.completions, period.service.failures), (240, 0));
    assert_eq!(most.load(SeqCst), 8, "all places are used, and no more");
    assert_eq!(period.queue.waiting, 0);
}

#[test]
fn a_limit_of_one_is_one_connection_whichever_core_needs_it() {
    // A server of one worker, which serves a connection until it is closed: one more would wait for that.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            count.fetch_add(1, SeqCst);
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while Message::read(&mut reader, false).is_some() && stream.write_all(&ok("one")).is_ok() {}
        }
    });
    let mut config = config(&[]);
    config.backends = vec![BackendConfig::new(url)];
    config.threads = 4;
    config.limits.max_in_flight_per_backend = 1;
    config.timeouts.queue_timeout_ms = 20_000;
    config.timeouts.pool_idle_timeout_ms = 60_000;
    let (gateway, front) = start(config);
    let clients: Vec<_> = (0..8)
        .map(|_| {
            std::thread::spawn(move || {
                for _ in 0..20 {
                    assert_eq!(Client::connect(front).get("/").text(), "one");
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    assert_eq!(take(&gateway).service.completions, 160);
    // The cores hand it to each other. One that does not run for a quarter of a second is not waited for.
    let opened = connections.load(SeqCst);
    assert!(opened <= 16, "{opened} connections");
}

#[test]
fn the_connections_of_a_small_limit_are_handed_from_core_to_core() {
    for limit in [2, 4] {
        let backend = Backend::http(|_| ok("one"));
        let (gateway, front) = gateway_with(&backend, |config| {
            config.threads = 4;
            config.limits.max_in_flight_per_backend = limit;
            config.timeouts.queue_timeout_ms = 20_000;
        });
        let clients: Vec<_> = (0..12)
            .map(|_| {
                std::thread::spawn(move || {
                    for _ in 0..50 {
                        assert_eq!(Client::connect(front).get("/").text(), "one");
                    }
                })
            })
            .collect();
        for client in clients {
            client.join().unwrap();
        }
        assert_eq!(take(&gateway).service.completions, 600);
        let opened = backend.connections();
        assert!(opened <= 60, "{opened} connections with a limit of {limit}");
    }
}

#[test]
fn who_finds_the_queue_full_or_waits_too_long_is_told_to_come_again() {
    let (backend, _) = slow(Duration::from_secs(2));
    let (gateway, front) = gateway_with(&backend, |config| {
        config.limits.max_in_flight_per_backend = 1;
        config.limits.max_queued = 1;
        config.timeouts.queue_timeout_ms = 1_000;
    });
    let request = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";
    let (mut served, mut waits, mut turned_away) = (
        Client::connect(front),
        Client::connect(front),
        Client::connect(front),
    );
    served.send(request);
    eventually("the first is served", || {
        take(&gateway).backends[0].counts.in_flight == 1
    });
    let begun = Instant::now();
    waits.send(request);
    eventually("the second waits", || take(&gateway).queue.waiting == 1);
    let refused = turned_away.get("/");
    assert_eq!(
        (refused.status(), refused.header("retry-after")),
        (503, Some("1"))
    );
    let late = waits.receive();
    // Waiting takes a second, and not all are to come again at once.
    let after = late.header("retry-after");
    assert_eq!(late.status(), 503);
    assert!(matches!(after, Some("1" | "2")), "{after:?}");
    assert!(
        begun.elapsed() >= Duration::from_millis(1_000),
        "it gave up early"
    );
    assert_eq!(served.receive().text(), "slow");
    let period = take(&gateway);
    let queue = period.queue;
    assert_eq!((queue.expired, queue.left, queue.waiting), (1, 0, 0));
    assert_eq!(period.service.in_flight, 0);
}

#[test]
fn who_goes_away_leaves_the_queue_to_the_others() {
    let (backend, _) = slow(Duration::from_secs(2));
    let (gateway, front) = gateway_with(&backend, |config| {
        config.limits.max_in_flight_per_backend = 1;
        config.timeouts.queue_timeout_ms = 10_000;
    });
    let request = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";
    let mut clients: Vec<_> = (0..3).map(|_| Client::connect(front)).collect();
    for (waiting, client) in clients.iter_mut().enumerate() {
        client.send(request);
        eventually("it waits in its place", || {
            let period = take(&gateway);
            period.queue.waiting == waiting as u64 && period.service.in_flight == waiting as u64 + 1
        });
    }
    clients.remove(1).reset();
    for client in &mut clients {
        assert_eq!(client.receive().text(), "slow");
    }
    let period = take(&gateway);
    assert_eq!((period.service.in_flight, period.queue.left), (0, 1));
    assert_eq!(backend.connections(), 1);
}

/// Holds each request back until `release` is set.
fn held(body: &'static str) -> (Backend, Arc<AtomicBool>) {
    let release = Arc::new(AtomicBool::new(false));
    let go = release.clone();
    let backend = Backend::http(move |_| {
        let until = Instant::now() + PATIENCE;
        while !go.load(SeqCst) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        ok(body)
    });
    (backend, release)
}

#[test]
fn a_retry_waits_for_another_backend_and_does_not_go_back_to_the_one_that_failed() {
    let ((busy, release), full) = (held("busy"), Full::new());
    let mut config = config(&[&busy]);
    config
        .backends
        .insert(0, BackendConfig::new(format!("http://{}", full.address)));
    config.timeouts.connect_timeout_ms = 100;
    config.timeouts.queue_timeout_ms = 10_000;
    config.retry.max_retries = 1;
    config.health.eject_after_timeouts = 0;
    config.limits.max_in_flight_per_backend = 1;
    let (gateway, front) = start(config);
    let request = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";
    let (mut served, mut waits) = (Client::connect(front), Client::connect(front));
    served.send(request);
    let mut timed_out = 0;
    let mut period = || {
        let period = take(&gateway);
        timed_out += period.backends[0].connects.timed_out;
        (period, timed_out)
    };
    eventually("the first is served", || {
        period().0.backends[1].counts.in_flight == 1
    });
    waits.send(request);
    eventually("the second has tried the one and waits for the other", || {
        let (period, timed_out) = period();
        timed_out == 2 && period.queue.waiting == 1
    });
    release.store(true, SeqCst);
    assert_eq!(served.receive().text(), "busy");
    assert_eq!(waits.receive().text(), "busy");
    assert_eq!(
        period().1,
        2,
        "the one that failed was tried once for each request"
    );
}

#[test]
fn an_arrival_at_a_full_queue_finds_it_moving_when_a_backend_came_back() {
    let ((busy, release), other) = (held("busy"), Backend::http(|_| ok("other")));
    let mut config = config(&[&busy, &other]);
    // Longer than the clients' patience: giving up must not be what makes the second look again.
    config.timeouts.queue_timeout_ms = 60_000;
    config.limits.max_in_flight_per_backend = 1;
    config.limits.max_queued = 1;
    let (gateway, front) = start(config);
    gateway.set_backend_state(1, BackendState::Drain).unwrap();
    let request = "GET / HTTP/1.1\r\nHost: t\r\n\r\n";
    let (mut served, mut waits, mut late) = (
        Client::connect(front),
        Client::connect(front),
        Client::connect(front),
    );
    served.send(request);
    eventually("the first is served", || {
        take(&gateway).backends[0].counts.in_flight == 1
    });
    waits.send(request);
    eventually("the second waits", || take(&gateway).queue.waiting == 1);
    gateway.set_backend_state(1, BackendState::Up).unwrap();
    // It may be turned away itself: who waited longer comes first.
    let _ = late.get("/");
    assert_eq!(waits.receive().text(), "other");
    release.store(true, SeqCst);
    assert_eq!(served.receive().text(), "busy");
}
