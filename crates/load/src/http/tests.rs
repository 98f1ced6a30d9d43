//! End to end, against servers on loopback. The machine may be slow and noisy: counts are exact, times are
//! compared with each other.

mod ending;
mod exchange;
mod users;

use super::*;
use bytes::Bytes;
use headroom_units::{PerSecond, Seconds};
use headroom_workload::{Arrivals, Spacing, Trace};
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::future::Future;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// An HTTP/1.1 server on a thread of its own, which ends with the test's process.
fn serve<F, R>(answer: F) -> String
where
    F: Fn(Request<Incoming>) -> R + Clone + Send + 'static,
    R: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let answer = answer.clone();
                let service = service_fn(move |request| {
                    let answer = answer(request);
                    async move { Ok::<_, Infallible>(answer.await) }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
    });
    format!("http://{address}/")
}

fn text(body: &'static str) -> Response<Full<Bytes>> {
    Response::new(Full::new(Bytes::from_static(body.as_bytes())))
}

fn open(rate: f64, duration: f64, spacing: Spacing) -> Pacing {
    let trace = Trace::constant(PerSecond::new(rate), Seconds::new(duration)).unwrap();
    Pacing::open(Arrivals::new(trace, spacing, 1))
}

fn run(config: LoadConfig) -> LoadResult {
    let result = start(config).unwrap().join().unwrap();
    let counts = result.counts;
    assert_eq!(
        counts.offered,
        counts.completed + counts.failed.total(),
        "{counts:?}"
    );
    assert_eq!(result.whole.outstanding, 0);
    result
}

/// A server of one thread that treats each connection, given its number from 0, as it likes.
fn raw_server(treat: impl Fn(usize, std::net::TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let treat = Arc::new(treat);
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let treat = Arc::clone(&treat);
            std::thread::spawn(move || treat(number, stream.unwrap()));
        }
    });
    address
}

/// Reads up to the end of a request's head; false at the end of the connection.
fn read_head(stream: &mut std::net::TcpStream) -> bool {
    head_of(stream).is_some()
}

/// A request's head; none at the end of the connection.
fn head_of(stream: &mut std::net::TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    String::from_utf8(head).ok()
}

#[test]
fn every_request_of_an_even_load_is_answered() {
    let url = serve(|_| async { text("hello") });
    let result = run(LoadConfig::new(url, open(500.0, 1.0, Spacing::Even)));
    assert_eq!((result.counts.offered, result.counts.completed), (500, 500));
    assert_eq!(result.counts.body_bytes, 2500);
    assert_eq!(result.whole.latency.len(), 500);
    assert_eq!(result.whole.send_error.len(), 500);
    assert!(result.latency_ms.p50 > Some(0.0) && result.latency_ms.p50 >= result.service_ms.p50);
    assert!(result.duration_s.get() >= 0.99 && result.generator_cpu_s.get() > 0.0);
    let json = serde_json::to_value(&result).unwrap();
    assert_eq!(json["completed"], 500);
    assert_eq!(json["failed_total"], 0);
}

#[test]
fn method_headers_body_host_and_paths_are_sent_as_configured() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&seen);
    let url = serve(move |request: Request<Incoming>| {
        let record = Arc::clone(&record);
        async move {
            let (head, body) = request.into_parts();
            let body = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
            let host = head.headers[header::HOST].to_str().unwrap().to_owned();
            let agent = head.headers[header::USER_AGENT].to_str().unwrap().to_owned();
            record
                .lock()
                .unwrap()
                .push((head.method.to_string(), head.uri.to_string(), host, agent, body));
            text("")
        }
    });
    let mut config = LoadConfig::new(url, open(20.0, 0.2, Spacing::Even));
    config.method = http::Method::POST;
    config
        .headers
        .insert(header::HOST, HeaderValue::from_static("wiki.test"));
    config
        .headers
        .insert(header::USER_AGENT, HeaderValue::from_static("headroom"));
    config.body = Bytes::from_static(b"text=1");
    config.paths = Paths::InOrder(vec!["/a?b=c".into(), "/d".into()]);
    config.max_connections = 1;
    assert_eq!(run(config).counts.completed, 4);
    let seen = seen.lock().unwrap();
    for (index, (method, uri, host, agent, body)) in seen.iter().enumerate() {
        let path = ["/a?b=c", "/d"][index % 2];
        let got = (
            method.as_str(),
            uri.as_str(),
            host.as_str(),
            agent.as_str(),
            &body[..],
        );
        assert_eq!(got, ("POST", path, "wiki.test", "headroom", &b"text=1"[..]));
    }
    assert_eq!(seen.len(), 4);
}

#[test]
fn a_stall_is_charged_to_every_request_that_was_due_meanwhile() {
    // The server answers one request at a time and stalls once, for 0.4 s of a second of load.
    let stalled = Arc::new(AtomicUsize::new(0));
    let url = serve(move |_| {
        let number = stalled.fetch_add(1, Ordering::Relaxed);
        async move {
            if number == 50 {
                std::thread::sleep(Duration::from_millis(400));
            }
            text("x")
        }
    });
    let mut config = LoadConfig::new(url, open(200.0, 1.0, Spacing::Even));
    config.max_connections = 1;
    let result = run(config);
    assert_eq!(result.counts.completed, 200);
    // 80 of 200 requests fell due in the stall: their mean wait is half of it. A closed loop would see one.
    let slow = |histogram: &hdrhistogram::Histogram<u64>| histogram.count_between(50_000, 10_000_000);
    assert!(
        slow(&result.whole.latency) >= 60,
        "{}",
        slow(&result.whole.latency)
    );
    assert!(
        slow(&result.whole.service) < 30,
        "{}",
        slow(&result.whole.service)
    );
    assert!(result.counts.queued >= 60);
}

#[test]
fn failures_are_told_apart_by_kind() {
    let url = serve(|request: Request<Incoming>| async move {
        let mut answer = text("x");
        *answer.status_mut() = match request.uri().path() {
            "/500" => StatusCode::INTERNAL_SERVER_ERROR,
            "/404" => StatusCode::NOT_FOUND,
            _ => StatusCode::OK,
        };
        answer
    });
    let mut config = LoadConfig::new(url, open(100.0, 0.3, Spacing::Even));
    config.paths = Paths::InOrder(["/500", "/404", "/200"].map(String::from).to_vec());
    let counts = run(config).counts;
    assert_eq!(
        (counts.failed.status, counts.client_errors, counts.completed),
        (10, 10, 20)
    );

    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let counts = run(LoadConfig::new(
        format!("http://{free}/"),
        open(100.0, 0.3, Spacing::Even),
    ))
    .counts;
    assert_eq!((counts.failed.connect, counts.failed.total()), (30, 30));

    let garbage = raw_server(|_, mut stream| {
        while read_head(&mut stream) {
            let _ = stream.write_all(b"SMTP ready\r\n\r\n");
        }
    });
    let counts = run(LoadConfig::new(
        format!("http://{garbage}/"),
        open(100.0, 0.3, Spacing::Even),
    ))
    .counts;
    assert_eq!((counts.failed.protocol, counts.failed.total()), (30, 30));

    let cut = raw_server(|_, mut stream| {
        read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf");
    });
    let counts = run(LoadConfig::new(
        format!("http://{cut}/"),
        open(100.0, 0.3, Spacing::Even),
    ))
    .counts;
    assert_eq!((counts.failed.protocol, counts.failed.total()), (30, 30));
}

#[test]
fn an_answer_that_never_comes_times_out_and_its_latency_is_the_timeout() {
    let silent = raw_server(|_, mut stream| while read_head(&mut stream) {});
    let mut config = LoadConfig::new(format!("http://{silent}/"), open(50.0, 0.2, Spacing::Even));
    config.timeout = Seconds::new(0.2);
    config.max_connections = 2;
    let result = run(config);
    // Two are sent, the others time out in the queue or after their turn came.
    assert_eq!((result.counts.failed.timeout, result.counts.offered), (10, 10));
    assert_eq!(result.whole.latency.len(), 10);
    assert!(
        result.whole.latency.min() >= 199_000,
        "{}",
        result.whole.latency.min()
    );
}

#[test]
fn a_full_queue_drops_and_says_so() {
    let silent = raw_server(|_, mut stream| while read_head(&mut stream) {});
    let mut config = LoadConfig::new(format!("http://{silent}/"), open(100.0, 0.3, Spacing::Even));
    config.timeout = Seconds::new(1.0);
    config.max_connections = 2;
    config.queue = 5;
    let counts = run(config).counts;
    assert_eq!((counts.offered, counts.queued), (30, 5));
    assert_eq!((counts.failed.dropped, counts.failed.timeout), (23, 7));
}

#[test]
fn a_connection_that_the_server_closed_costs_no_failure() {
    // The server answers two requests on each connection and then closes it without saying so.
    let address = raw_server(|_, mut stream| {
        for _ in 0..2 {
            if !read_head(&mut stream)
                || stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                    .is_err()
            {
                return;
            }
        }
    });
    let mut config = LoadConfig::new(format!("http://{address}/"), open(200.0, 0.5, Spacing::Poisson));
    config.max_connections = 4;
    config.warm_connections = 4;
    let counts = run(config).counts;
    assert_eq!(counts.completed, counts.offered, "{counts:?}");
    assert!(counts.connections >= counts.offered / 2, "{counts:?}");
}

#[test]
fn a_request_that_may_not_be_repeated_is_not() {
    // The first request of each connection is answered, the second is read and the connection closed.
    let taken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&taken);
    let address = raw_server(move |_, mut stream| {
        for number in 0..2 {
            if !read_head(&mut stream) {
                return;
            }
            count.fetch_add(1, Ordering::Relaxed);
            if number == 0 {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
            }
        }
    });
    let load = |method: http::Method| {
        let mut config = LoadConfig::new(format!("http://{address}/"), open(50.0, 0.4, Spacing::Even));
        config.method = method;
        config.max_connections = 1;
        config.warm_connections = 1;
        run(config).counts
    };
    let post = load(http::Method::POST);
    assert_eq!(
        (post.failed.protocol, post.completed, post.retried),
        (10, 10, 0),
        "{post:?}"
    );
    let sent = taken.swap(0, Ordering::Relaxed);
    assert_eq!(sent, 20, "each POST reached the server once");
    let get = load(http::Method::GET);
    assert_eq!((get.failed.total(), get.completed), (0, 20), "{get:?}");
    assert!(get.retried >= 15, "{get:?}");
}

#[test]
fn without_keep_alive_each_request_has_its_connection() {
    let url = serve(|request: Request<Incoming>| async move {
        assert_eq!(request.headers()[header::CONNECTION], "close");
        text("x")
    });
    let mut config = LoadConfig::new(url.clone(), open(100.0, 0.3, Spacing::Even));
    config.keep_alive = false;
    let counts = run(config).counts;
    assert_eq!((counts.completed, counts.connections), (30, 30));

    let mut closed = LoadConfig::new(
        url,
        Pacing::Closed {
            connections: 2,
            duration: Seconds::new(0.2),
        },
    );
    closed.keep_alive = false;
    let counts = run(closed).counts;
    assert!(
        counts.completed > 2 && counts.connections == counts.completed,
        "{counts:?}"
    );
}

#[test]
fn a_full_accept_queue_shows_as_connects_that_needed_a_retry() {
    // Of ten SYNs most are dropped, and sent again after 1 s, when the queue is being emptied.
    let url = short_queue(Some(Duration::from_millis(500)));
    let mut config = LoadConfig::new(url, open(100.0, 0.1, Spacing::Even));
    config.keep_alive = false;
    config.timeout = Seconds::new(20.0);
    config.grace = Seconds::new(20.0);
    let result = run(config);
    let counts = result.counts;
    assert_eq!((counts.completed, counts.connections), (10, 10), "{counts:?}");
    assert!((4..=9).contains(&counts.connects_retried), "{counts:?}");
    assert_eq!(result.whole.connect.len(), 10);
    assert!(result.connect_ms.max >= Some(990.0) && result.latency_ms.max >= result.connect_ms.max);

    // Given up while its SYN waits for the retry: a lower bound is counted.
    let mut config = LoadConfig::new(short_queue(None), open(100.0, 0.1, Spacing::Even));
    config.keep_alive = false;
    config.timeout = Seconds::new(0.3);
    let counts = run(config).counts;
    assert!((4..=9).contains(&counts.connects_given_up), "{counts:?}");
    assert_eq!((counts.connects_retried, counts.failed.timeout), (0, 10));
}

/// The URL of a server with an accept queue of one (the kernel lets two in), which it begins to empty after a time,
/// or never.
fn short_queue(empty_after: Option<Duration>) -> String {
    let (send, address) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async move {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let listener = socket.listen(1).unwrap();
            send.send(listener.local_addr().unwrap()).unwrap();
            match empty_after {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let service = service_fn(|_| async { Ok::<_, Infallible>(text("x")) });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
    });
    format!("http://{}/", address.recv().unwrap())
}

#[test]
fn a_closed_loop_keeps_its_connections_busy_and_survives_a_dead_server() {
    let url = serve(|_| async { text("x") });
    let result = run(LoadConfig::new(
        url,
        Pacing::Closed {
            connections: 4,
            duration: Seconds::new(0.3),
        },
    ));
    assert!(
        result.counts.completed > 100 && result.counts.failed.total() == 0,
        "{:?}",
        result.counts
    );
    assert_eq!(result.counts.connections, 4);

    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let dead = || Pacing::Closed {
        connections: 4,
        duration: Seconds::new(0.2),
    };
    let counts = run(LoadConfig::new(format!("http://{free}/"), dead())).counts;
    assert!(
        counts.failed.connect >= 4 && counts.failed.connect <= 100,
        "{counts:?}"
    );

    // A deadline that passes in the pause after a refusal counts nothing twice, and the load ends.
    let hasty = LoadConfig {
        timeout: Seconds::new(0.005),
        ..LoadConfig::new(format!("http://{free}/"), dead())
    };
    let counts = run(hasty).counts;
    assert!(counts.failed.connect >= 4, "{counts:?}");
    assert_eq!(
        (counts.failed.total(), counts.failed.timeout),
        (counts.offered, 0),
        "{counts:?}"
    );
}

#[test]
fn an_answer_of_another_size_than_expected_is_a_failure_of_its_own() {
    let url = serve(|request: Request<Incoming>| async move {
        text(if request.uri().path() == "/long" {
            "hello"
        } else {
            "x"
        })
    });
    let mut config = LoadConfig::new(url, open(100.0, 0.4, Spacing::Even));
    config.paths = Paths::InOrder(["/long", "/short"].map(String::from).to_vec());
    config.expect_bytes = Some(5);
    let result = run(config);
    assert_eq!(
        (result.counts.completed, result.counts.failed.wrong_size),
        (20, 20)
    );
    assert_eq!((result.failed_total, result.whole.latency.len()), (20, 20));
    assert!(result.counts.received_bytes > 40 * 10 && result.counts.sent_bytes > 40 * 10);
}

#[test]
fn connections_send_for_the_density_of_each_window_and_sleep_for_the_rest() {
    for (grid, keep_alive) in [(false, true), (true, true), (true, false)] {
        let came = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&came);
        let url = serve(move |_| {
            record.lock().unwrap().push(std::time::Instant::now());
            async {
                tokio::time::sleep(Duration::from_millis(2)).await;
                text("x")
            }
        });
        let mut config = LoadConfig::new(
            url,
            Pacing::Bursts(crate::Bursts {
                connections: 4,
                window: Seconds::new(0.8),
                density: headroom_units::Ratio::new(0.5),
                duration: Seconds::new(3.2),
                grid,
            }),
        );
        config.keep_alive = keep_alive;
        let counts = run(config).counts;
        assert_eq!(counts.failed.total(), 0, "{counts:?}");
        let mut came = came.lock().unwrap().clone();
        came.sort();
        let gaps = came.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64());
        let sleeps: Vec<f64> = gaps.filter(|gap| *gap > 0.2).collect();
        // A machine that stalls adds gaps, and never takes one away.
        let longest = sleeps.iter().copied().fold(0.0, f64::max);
        assert!(
            sleeps.len() >= 3 && longest > 0.35,
            "grid {grid}, keep-alive {keep_alive}: {sleeps:?}"
        );
    }
}

#[test]
fn two_threads_share_a_load() {
    let url = serve(|_| async { text("x") });
    let mut config = LoadConfig::new(&url, open(400.0, 0.5, Spacing::Poisson));
    config.threads = 2;
    let shared = run(config);
    let alone = run(LoadConfig::new(&url, open(400.0, 0.5, Spacing::Poisson)));
    assert_eq!(shared.counts.completed, alone.counts.completed);
    let mut closed = LoadConfig::new(
        &url,
        Pacing::Closed {
            connections: 5,
            duration: Seconds::new(0.3),
        },
    );
    closed.threads = 2;
    let result = run(closed);
    assert_eq!((result.counts.connections, result.failed_total), (5, 0));
    assert!(result.whole.busiest_thread_cpu < result.generator_cpu_s);
}

#[test]
fn periods_add_up_to_the_result() {
    let url = serve(|_| async { text("x") });
    let mut load = start(LoadConfig::new(url, open(400.0, 0.8, Spacing::Even))).unwrap();
    let mut periods = Vec::new();
    while let Ok(period) = load.take_period() {
        periods.push(period);
        std::thread::sleep(Duration::from_millis(100));
    }
    let result = load.join().unwrap();
    assert!(periods.len() >= 3);
    let taken: u64 = periods.iter().map(|period| period.counts.completed).sum();
    let latencies: u64 = periods.iter().map(|period| period.latency.len()).sum();
    assert!(
        (100..=320).contains(&taken) && latencies == taken,
        "{taken} {latencies}"
    );
    assert_eq!((result.counts.completed, result.whole.latency.len()), (320, 320));
    for pair in periods.windows(2) {
        assert!((pair[0].start + pair[0].duration - pair[1].start).get().abs() < 1e-9);
    }
}

#[test]
fn a_thousand_connections_on_one_thread() {
    // Each answer takes 0.5 s, so 2,000 requests a second keep about 1,000 connections busy.
    let busy = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let watch = Arc::clone(&busy);
    let url = serve(move |_| {
        let watch = Arc::clone(&watch);
        async move {
            let now = watch.0.fetch_add(1, Ordering::Relaxed) + 1;
            watch.1.fetch_max(now, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(500)).await;
            watch.0.fetch_sub(1, Ordering::Relaxed);
            text("x")
        }
    });
    let mut config = LoadConfig::new(url, open(2000.0, 1.5, Spacing::Poisson));
    config.max_connections = 2000;
    config.warm_connections = 1200;
    let load = match start(config) {
        Err(error @ LoadError::TooManyConnections { .. }) => return println!("skipped: {error}"),
        load => load.unwrap(),
    };
    let result = load.join().unwrap();
    assert_eq!(result.counts.failed.total(), 0, "{:?}", result.counts);
    assert!(busy.1.load(Ordering::Relaxed) >= 800);
}

#[test]
fn dropping_the_handle_ends_the_load() {
    let served = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&served);
    let url = serve(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        async { text("x") }
    });
    drop(start(LoadConfig::new(url, open(100.0, 3600.0, Spacing::Even))).unwrap());
    std::thread::sleep(Duration::from_millis(300));
    let before = served.load(Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(served.load(Ordering::Relaxed), before);
}
