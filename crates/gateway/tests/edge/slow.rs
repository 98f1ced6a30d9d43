//! Clients that are slow to send and to read: they hold no backend, are not taken for a slow service, and have an end.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::common::{Backend, Client, PATIENCE, config, eventually, gateway, gateway_with, ok, start, take};

/// Sends the rest of a request's body one piece after another, so far apart.
fn drip(client: &mut Client, pieces: usize, piece: &str, apart: Duration) {
    for _ in 0..pieces {
        std::thread::sleep(apart);
        if client.stream.write_all(piece.as_bytes()).is_err() {
            return;
        }
    }
}

fn p95(period: &headroom_gateway::PeriodStats) -> Duration {
    Duration::from_micros(period.histogram.value_at_percentile(95.0))
}

#[test]
fn what_a_client_takes_to_send_is_no_latency_of_the_service() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let backend = Backend::http(move |request| {
        count.fetch_add(1, SeqCst);
        ok(&request.body.len().to_string())
    });
    let (gateway, address) = gateway(&backend);
    let clients: Vec<_> = (0..6)
        .map(|_| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\n");
                let begun = Instant::now();
                drip(&mut client, 10, "x", Duration::from_millis(100));
                assert_eq!(client.receive().text(), "10");
                begun.elapsed()
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    let meanwhile = take(&gateway);
    assert_eq!(
        (meanwhile.service.arrivals, meanwhile.service.in_flight),
        (0, 0),
        "they have not arrived"
    );
    assert_eq!(meanwhile.oldest_in_flight, None);
    assert_eq!(
        asked.load(SeqCst),
        0,
        "no backend is asked before there is something to ask"
    );
    let took = clients
        .into_iter()
        .map(|client| client.join().unwrap())
        .min()
        .unwrap();
    let period = take(&gateway);
    assert_eq!(period.service.completions, 6);
    assert!(p95(&period) < took / 3, "{:?} of {took:?}", p95(&period));
}

#[test]
fn of_a_long_upload_the_pauses_of_its_client_are_left_out() {
    let backend = Backend::http(|request| ok(&request.body.len().to_string()));
    let (gateway, address) = gateway(&backend);
    let mut client = Client::connect(address);
    let (quick, piece) = (400_000, "y".repeat(100));
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n",
        quick + 1_000
    ));
    let begun = Instant::now();
    client.send("x".repeat(quick));
    drip(&mut client, 10, &piece, Duration::from_millis(100));
    assert_eq!(client.receive().text(), "401000");
    let took = begun.elapsed();
    let period = take(&gateway);
    assert!(p95(&period) < took / 3, "{:?} of {took:?}", p95(&period));
    let client_time = Duration::from_micros(period.service.client_us);
    assert!(
        client_time > took / 2,
        "{client_time:?} of {took:?} was the client's"
    );
}

#[test]
fn what_a_client_takes_to_read_is_no_latency_of_the_service() {
    let body = "z".repeat(16 << 20);
    let backend = Backend::http(move |_| ok(&body));
    let (gateway, address) = gateway(&backend);
    let mut client = Client::connect(address);
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    let begun = Instant::now();
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(take(&gateway).oldest_in_flight, None, "it waits for its client");
    assert_eq!(client.receive().body.len(), 16 << 20);
    let took = begun.elapsed();
    eventually("it is counted", || take(&gateway).service.in_flight == 0);
    let backend_time = took - Duration::from_millis(1_500);
    let mut client = Client::connect(address);
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(client.receive().body.len(), 16 << 20);
    let period = {
        let mut period = take(&gateway);
        while period.service.completions == 0 {
            period = take(&gateway);
        }
        period
    };
    assert!(
        p95(&period) < Duration::from_millis(700) + backend_time,
        "{:?}; it took {backend_time:?} to read",
        p95(&period)
    );
    assert!(Duration::from_micros(period.service.client_us) > Duration::from_millis(700));
}

#[test]
fn a_backend_that_is_slow_to_send_is_slow() {
    let backend = Backend::raw(|mut stream, _| {
        let mut head = [0; 1024];
        let _ = stream.read(&mut head);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n");
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(50));
            let _ = stream.write_all(b"x");
        }
    });
    let (gateway, address) = gateway(&backend);
    assert_eq!(Client::connect(address).get("/").text(), "xxxxxxxxxx");
    let period = take(&gateway);
    assert!(p95(&period) >= Duration::from_millis(450), "{:?}", p95(&period));
    assert!(period.service.client_us < 300_000);
}

/// With `clients` that hold the only places at a backend if they can, another request is answered.
fn others_are_served(clients: &mut [Client], address: SocketAddr, request: &str) {
    for client in clients.iter_mut() {
        client.send(request);
    }
    std::thread::sleep(Duration::from_millis(300));
    for _ in 0..20 {
        assert_eq!(Client::connect(address).get("/other").status(), 200);
    }
}

#[test]
fn dripping_uploads_hold_no_backend() {
    let backend = Backend::http(|_| ok("well"));
    let (_gateway, address) = gateway_with(&backend, |config| {
        config.limits.max_in_flight_per_backend = 8;
        config.limits.max_queued = 0;
    });
    let mut clients: Vec<_> = (0..8).map(|_| Client::connect(address)).collect();
    let request = "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1000\r\n\r\nx";
    others_are_served(&mut clients, address, request);
    let chunked = "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n";
    let mut clients: Vec<_> = (0..8).map(|_| Client::connect(address)).collect();
    others_are_served(&mut clients, address, chunked);
}

#[test]
fn clients_that_do_not_read_hold_no_backend() {
    let large = "z".repeat(6 << 20);
    let backend = Backend::http(move |request| match request.start.contains("large") {
        true => ok(&large),
        false => ok("well"),
    });
    let (_gateway, address) = gateway_with(&backend, |config| {
        config.limits.max_in_flight_per_backend = 8;
        config.timeouts.queue_timeout_ms = 10_000;
        config.timeouts.client_grace_ms = 60_000;
    });
    let mut clients: Vec<_> = (0..8).map(|_| Client::connect(address)).collect();
    others_are_served(&mut clients, address, "GET /large HTTP/1.1\r\nHost: t\r\n\r\n");
    for client in &mut clients {
        assert_eq!(
            client.receive().body.len(),
            6 << 20,
            "what was read ahead is whole"
        );
    }
}

/// Eight clients that crawl hold all places at a backend; in the end others are served, though each of these moves more than the least rate
/// asks for, and its body is larger than what is held.
fn others_are_served_beside(backend: &Backend, crawl: fn(usize, SocketAddr, &AtomicBool)) {
    let (_gateway, address) = gateway_with(backend, |config| {
        config.limits.max_in_flight_per_backend = 8;
    });
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let over = &over;
            scope.spawn(move || crawl(number, address, over));
        }
        std::thread::sleep(Duration::from_millis(600));
        let begun = Instant::now();
        let mut in_a_row = 0;
        while in_a_row < 20 && begun.elapsed() < PATIENCE {
            match Client::connect(address).get("/other").status() {
                200 => in_a_row += 1,
                _ => in_a_row = 0,
            }
        }
        // Before anything fails, for the scope waits for them.
        over.store(true, SeqCst);
        assert_eq!(in_a_row, 20, "eight slow clients keep all others out");
    });
}

#[test]
fn uploads_that_crawl_hold_no_backend_for_long_while_others_wait() {
    let backend = Backend::http(|_| ok("well"));
    others_are_served_beside(&backend, |number, address, over| {
        let mut client = Client::connect(address);
        // Half of them are asked for what they send: nothing of that is taken before.
        let (expect, first) = match number % 2 {
            0 => ("", 70_000),
            _ => ("Expect: 100-continue\r\n", 0),
        };
        client.send(format!(
            "POST / HTTP/1.1\r\nHost: t\r\n{expect}Content-Length: 1000000\r\n\r\n"
        ));
        client.send("x".repeat(first));
        std::thread::sleep(Duration::from_millis(300));
        while !over.load(SeqCst) && client.stream.write_all(&[b'x'; 100]).is_ok() {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
}

#[test]
fn readers_that_crawl_hold_no_backend_for_long_while_others_wait() {
    let large = "z".repeat(30 << 20);
    let backend = Backend::http(move |request| match request.start.contains("large") {
        true => ok(&large),
        false => ok("well"),
    });
    others_are_served_beside(&backend, |_, address, over| {
        let mut client = Client::narrow(address);
        client.send("GET /large HTTP/1.1\r\nHost: t\r\n\r\n");
        let mut buffer = [0; 300];
        while !over.load(SeqCst) && client.stream.read(&mut buffer).is_ok_and(|read| read > 0) {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
}

#[test]
fn who_crawls_is_kept_while_nobody_waits() {
    let backend = Backend::http(|_| ok("well"));
    let (_gateway, address) = gateway_with(&backend, |config| {
        config.limits.max_in_flight_per_backend = 1;
    });
    let mut client = Client::connect(address);
    client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 72000\r\n\r\n");
    client.send("x".repeat(70_000));
    drip(&mut client, 20, &"x".repeat(100), Duration::from_millis(150));
    assert_eq!(client.receive().status(), 200);
}

#[test]
fn who_sends_or_reads_less_than_the_least_rate_is_cut_off() {
    let large = "z".repeat(16 << 20);
    let backend = Backend::http(move |_| ok(&large));
    let (gateway, address) = gateway_with(&backend, |config| {
        config.timeouts.min_client_rate_bytes_per_s = 1_000;
        config.timeouts.client_grace_ms = 300;
        config.timeouts.body_timeout_ms = 1_500;
    });
    let mut slow = Client::connect(address);
    slow.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1000\r\n\r\n");
    drip(&mut slow, 20, "x", Duration::from_millis(50));
    assert_eq!(slow.receive().status(), 408);
    let mut quick = Client::connect(address);
    quick.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 4000\r\n\r\n");
    drip(&mut quick, 20, &"x".repeat(200), Duration::from_millis(50));
    assert_eq!(quick.receive().status(), 200);
    take(&gateway);
    let mut deaf = Client::connect(address);
    deaf.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    eventually("who does not read at all is cut off", || {
        take(&gateway).service.aborted_by_client == 1
    });
    let mut rest = Vec::new();
    assert!(deaf.stream.read_to_end(&mut rest).is_err() || rest.len() < 16 << 20);
}

#[test]
fn who_reads_slowly_is_kept_though_the_kernel_holds_more_than_it_reads_in_the_pause() {
    let large = "z".repeat(32 << 20);
    let backend = Backend::http(move |_| ok(&large));
    let (gateway, address) = gateway_with(&backend, |config| {
        config.timeouts.body_timeout_ms = 400;
        config.timeouts.client_grace_ms = 400;
    });
    let mut client = Client::connect(address);
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    let begun = Instant::now();
    let mut buffer = [0; 8 * 1024];
    while begun.elapsed() < Duration::from_secs(4) {
        assert!(client.stream.read(&mut buffer).unwrap() > 0, "it was cut off");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(take(&gateway).service.in_flight, 1);
}

#[test]
fn who_reads_slowly_is_kept_to_the_end_of_an_answer_that_was_handed_over() {
    const ANSWERS: usize = 1_500;
    let small = "z".repeat(4_000);
    let backend = Backend::http(move |_| ok(&small));
    let (_gateway, address) = gateway_with(&backend, |config| {
        config.timeouts.idle_timeout_ms = 700;
        config.timeouts.body_timeout_ms = 700;
    });
    let mut client = Client::connect(address);
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n".repeat(ANSWERS));
    // Each is handed over at once, and then the kernel has no room for it for longer than that, as it has some only in lumps.
    let (mut read, mut buffer) = (0, vec![0; 32 * 1024]);
    while read < ANSWERS * 4_000 {
        let length = client.stream.read(&mut buffer).unwrap();
        assert!(length > 0, "cut off after {read} bytes");
        read += length;
        std::thread::sleep(Duration::from_micros(length as u64));
    }
}

#[test]
fn no_request_takes_longer_than_it_may() {
    let backend = Backend::http(|_| {
        std::thread::sleep(Duration::from_secs(5));
        ok("late")
    });
    let (gateway, address) = gateway_with(&backend, |config| {
        config.timeouts.request_timeout_ms = 400;
        config.timeouts.min_client_rate_bytes_per_s = 0;
    });
    assert_eq!(Client::connect(address).get("/").status(), 504);
    let mut client = Client::connect(address);
    client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\n");
    drip(&mut client, 30, "x", Duration::from_millis(25));
    assert_eq!(client.receive().status(), 408);
    assert_eq!(take(&gateway).service.timed_out, 1);
}

/// A listener whose queue is full: nobody is accepted.
struct FullQueue {
    address: SocketAddr,
    _listener: socket2::Socket,
    _fill: Vec<Option<std::net::TcpStream>>,
}

fn full_queue() -> FullQueue {
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    listener
        .bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into())
        .unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let patience = Duration::from_millis(200);
    let fill = (0..2).map(|_| std::net::TcpStream::connect_timeout(&address, patience).ok());
    FullQueue {
        address,
        _fill: fill.collect(),
        _listener: listener,
    }
}

#[test]
fn nor_does_connecting_or_waiting_for_a_place() {
    let full = full_queue();
    let mut to_nobody = config(&[]);
    to_nobody.backends = vec![headroom_gateway::BackendConfig::new(format!(
        "http://{}",
        full.address
    ))];
    to_nobody.timeouts.request_timeout_ms = 400;
    to_nobody.timeouts.connect_timeout_ms = 10_000;
    let (gateway, address) = start(to_nobody);
    let begun = Instant::now();
    assert_eq!(Client::connect(address).get("/").status(), 504);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(take(&gateway).backends[0].connects.timed_out, 1);

    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let backend = Backend::http(move |_| {
        counted.fetch_add(1, SeqCst);
        std::thread::sleep(Duration::from_secs(2));
        ok("late")
    });
    let (_gateway, address) = gateway_with(&backend, |config| {
        config.limits.max_in_flight_per_backend = 1;
        config.timeouts.request_timeout_ms = 400;
        config.timeouts.queue_timeout_ms = 10_000;
    });
    let begun = Instant::now();
    let others: Vec<_> = (0..6)
        .map(|_| std::thread::spawn(move || Client::connect(address).get("/").status()))
        .collect();
    for other in others {
        assert_eq!(other.join().unwrap(), 504);
    }
    assert!(
        begun.elapsed() < Duration::from_millis(1_900),
        "{:?}",
        begun.elapsed()
    );
    // Those that waited for the place were not sent when their time was up.
    assert!(asked.load(SeqCst) <= 2, "{asked:?}");
}

/// A client that takes nothing once the kernels are full is cut off when the longest pause is over, not when it is over a second time.
#[test]
fn what_the_kernels_took_at_once_is_no_reading() {
    let large = "z".repeat(32 << 20);
    let backend = Backend::http(move |request| match request.start.contains("large") {
        true => ok(&large),
        false => ok("well"),
    });
    let (gateway, address) = gateway_with(&backend, |config| config.timeouts.body_timeout_ms = 2_000);
    for before in [0, 3] {
        let mut deaf = Client::connect(address);
        (0..before).for_each(|_| assert_eq!(deaf.get("/").status(), 200));
        let begun = Instant::now();
        deaf.send("GET /large HTTP/1.1\r\nHost: t\r\n\r\n");
        eventually("it is cut off", || take(&gateway).service.aborted_by_client == 1);
        let passed = begun.elapsed();
        assert!(
            passed < Duration::from_millis(3_700),
            "{passed:?} behind {before} requests"
        );
    }
}

/// A body that the cache asked for and does not take after all is read ahead as any other.
#[test]
fn what_the_cache_does_not_take_holds_no_backend_either() {
    let backend = Backend::http(|request| match request.start.contains("large") {
        true => {
            let mut answer =
                b"HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ntransfer-encoding: chunked\r\n\r\n"
                    .to_vec();
            for _ in 0..48 {
                answer.extend_from_slice(format!("10000\r\n{}\r\n", "z".repeat(0x10000)).as_bytes());
            }
            answer.extend_from_slice(b"0\r\n\r\n");
            answer
        }
        false => ok("well"),
    });
    let (_gateway, address) = gateway_with(&backend, |config| {
        config.limits.max_in_flight_per_backend = 1;
        config.timeouts.client_grace_ms = 60_000;
        config.timeouts.queue_timeout_ms = 10_000;
        config.cache.bytes = 8 << 20;
        config.cache.max_object_bytes = 256 * 1024;
    });
    let mut deaf = Client::narrow(address);
    deaf.send("GET /large HTTP/1.1\r\nHost: t\r\n\r\n");
    std::thread::sleep(Duration::from_millis(500));
    let begun = Instant::now();
    assert_eq!(Client::connect(address).get("/other").status(), 200);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!(deaf.receive().body.len(), 48 * 0x10000);
}

/// Its machine acknowledges in lumps of tens of kilobytes, seconds apart: who reads on between them is kept, whatever its grace.
#[test]
fn who_reads_slowly_is_kept_though_its_machine_acknowledges_in_lumps() {
    let large = "z".repeat(1 << 20);
    let backend = Backend::http(move |_| ok(&large));
    let (_gateway, address) = gateway_with(&backend, |config| config.timeouts.client_grace_ms = 1_000);
    let readers: Vec<_> = [4_000, 10_000, 20_000]
        .map(|rate| {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            socket.set_tcp_mss(1_460).unwrap();
            socket.connect(&address.into()).unwrap();
            let mut client = Client::over(socket.into());
            client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
            std::thread::spawn(move || {
                let begun = Instant::now();
                let mut buffer = vec![0; rate / 10];
                while begun.elapsed() < Duration::from_secs(9) {
                    let read = client.stream.read(&mut buffer);
                    let after = begun.elapsed();
                    assert!(
                        read.is_ok_and(|read| read > 0),
                        "{rate} bytes/s: cut off after {after:?}"
                    );
                    std::thread::sleep(Duration::from_millis(100));
                }
            })
        })
        .into();
    readers.into_iter().for_each(|reader| reader.join().unwrap());
}

/// A backend that hangs while it is connected to is passed over, also where each request has less time than a connection attempt.
#[test]
fn a_backend_that_hangs_is_passed_over_by_requests_with_little_time() {
    let good = Backend::http(|_| ok("well"));
    let full = full_queue();
    let mut both = config(&[&good]);
    both.backends.push(headroom_gateway::BackendConfig::new(format!(
        "http://{}",
        full.address
    )));
    both.balance = headroom_gateway::Balance::RoundRobin;
    both.timeouts.request_timeout_ms = 300;
    both.timeouts.connect_timeout_ms = 2_000;
    let (_gateway, address) = start(both);
    let statuses: Vec<u16> = (0..60)
        .map(|_| Client::connect(address).get("/").status())
        .collect();
    let failed = statuses.iter().filter(|status| **status == 504).count();
    assert!((1..=10).contains(&failed), "{statuses:?}");
}
