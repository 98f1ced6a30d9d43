//! End to end: against a real memcached where it is installed, and against servers of the tests' own that misbehave.

use super::*;
use crate::{Bursts, Counts, LoadResult};
use headroom_units::{PerSecond, Ratio, Seconds};
use headroom_workload::{Arrivals, Spacing, Trace};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A memcached, killed when it is dropped.
struct Memcached {
    process: Child,
    url: String,
}

impl Drop for Memcached {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Memcached {
    /// None, with the reason printed, where it is not installed.
    fn start(arguments: &[&str]) -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let process = Command::new("memcached")
            .args(["-l", "127.0.0.1", "-U", "0", "-u", "nobody", "-t", "1", "-p"])
            .arg(port.to_string())
            .args(arguments)
            .stderr(Stdio::null())
            .spawn();
        let process = match process {
            Ok(process) => process,
            Err(error) => {
                println!("skipped: memcached cannot be started ({error}); apt-get install -y memcached");
                return None;
            }
        };
        let url = format!("memcached://127.0.0.1:{port}");
        let memcached = Self { process, url };
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(
                begin.elapsed() < Duration::from_secs(10),
                "memcached does not listen on {}",
                memcached.url
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(memcached)
    }
}

fn closed(connections: usize, seconds: f64) -> Pacing {
    Pacing::Bursts(Bursts::closed(connections, Seconds::new(seconds)))
}

fn open(rate: f64, seconds: f64) -> Pacing {
    let trace = Trace::constant(PerSecond::new(rate), Seconds::new(seconds)).unwrap();
    Pacing::Open(Box::new(Arrivals::new(trace, Spacing::Even, 1)))
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

fn refused(config: LoadConfig) -> String {
    start(config).expect_err("it must be refused").to_string()
}

/// A server that treats each line which it is sent, given its number from 0 over all connections; it ends the connection
/// where `answer` is false. It takes no values, so its clients are not to fill it.
fn server(answer: impl Fn(usize, &mut TcpStream) -> bool + Send + Sync + 'static) -> String {
    let lines = Arc::new((AtomicUsize::new(0), answer));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("memcached://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, lines) = (stream.unwrap(), Arc::clone(&lines));
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut line = String::new();
                while matches!(reader.read_line(&mut line), Ok(1..)) {
                    let number = lines.0.fetch_add(1, Ordering::Relaxed);
                    if !(lines.1)(number, &mut stream) {
                        break;
                    }
                    line.clear();
                }
            });
        }
    });
    url
}

/// Answers a `get` with a value of so many bytes.
fn value(stream: &mut TcpStream, bytes: usize) -> bool {
    let answer = format!("VALUE k 0 {bytes}\r\n{}\r\nEND\r\n", "x".repeat(bytes));
    stream.write_all(answer.as_bytes()).is_ok()
}

fn unfilled(url: &str, pacing: Pacing) -> LoadConfig {
    LoadConfig {
        fill: false,
        ..LoadConfig::new(url, pacing, 100)
    }
}

#[test]
fn a_closed_loop_gets_and_sets_from_a_real_server() {
    let Some(memcached) = Memcached::start(&[]) else {
        return;
    };
    let result = run(LoadConfig::new(&memcached.url, closed(8, 0.5), 1000));
    let counts = result.counts;
    assert_eq!((counts.failed.total(), counts.connections), (0, 8), "{counts:?}");
    assert!(counts.completed > 100, "{counts:?}");
    assert_eq!(
        (counts.body_bytes, counts.stored_bytes),
        (counts.completed * 1000, 0)
    );
    // `VALUE headroom-load:1000:00000000 0 1000`, the value, and `END`, each with its line end.
    assert_eq!(counts.received_bytes, counts.completed * (42 + 1000 + 2 + 5));
    assert!(result.generator_cpu_s.get() > 0.0 && result.busy_connections > 0.5);

    let mut mixed = LoadConfig::new(&memcached.url, closed(8, 0.5), 10_000);
    mixed.sets_share = Ratio::new(0.3);
    mixed.threads = 2;
    let counts = run(mixed).counts;
    assert_eq!(counts.failed.total(), 0, "{counts:?}");
    let (n, sets) = (counts.completed as f64, counts.sets as f64);
    assert!((sets - 0.3 * n).abs() < 5.0 * (0.21 * n).sqrt(), "{counts:?}");
    assert_eq!(counts.content_bytes(), counts.completed * 10_000);
    assert_eq!(counts.stored_bytes, counts.sets * 10_000);
}

#[test]
fn large_values_are_got_and_set_whole() {
    let Some(memcached) = Memcached::start(&[]) else {
        return;
    };
    let mut config = LoadConfig::new(&memcached.url, closed(4, 0.5), 999 * 1024);
    config.sets_share = Ratio::new(0.5);
    let counts = run(config).counts;
    assert_eq!(counts.failed.total(), 0, "{counts:?}");
    assert!(counts.sets > 0 && counts.sets < counts.completed, "{counts:?}");
    assert!(counts.sent_bytes > counts.stored_bytes && counts.received_bytes > counts.body_bytes);
}

#[test]
fn a_server_that_cannot_hold_the_values_is_refused_with_the_remedy() {
    let Some(memcached) = Memcached::start(&["-m", "64"]) else {
        return;
    };
    let message = refused(LoadConfig::new(&memcached.url, closed(1, 0.1), 1 << 20));
    assert!(
        message.contains("1048576 bytes") && message.contains("-I 2m"),
        "{message}"
    );
    assert!(message.starts_with(&memcached.url), "{message}");

    let mut many = LoadConfig::new(&memcached.url, closed(1, 0.1), 10_000);
    many.keys = 10_000;
    let message = refused(many);
    assert!(
        message.contains("100 MB") || message.contains("-m 1024"),
        "{message}"
    );

    // It fits by its sum, but not in the pages that the server has of this size.
    let Some(small) = Memcached::start(&["-m", "8"]) else {
        return;
    };
    let mut tight = LoadConfig::new(&small.url, closed(1, 0.1), 6000);
    tight.keys = 1350;
    let message = refused(tight);
    assert!(
        message.contains("-m 1024") && message.contains("1350"),
        "{message}"
    );

    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let message = refused(LoadConfig::new(
        format!("memcached://{free}"),
        closed(1, 0.1),
        100,
    ));
    assert!(message.contains("start memcached there"), "{message}");
    let other = server(|_, stream| stream.write_all(b"220 mail ready\r\n").is_ok());
    let message = refused(LoadConfig::new(other, closed(1, 0.1), 100));
    assert!(message.contains("220 mail ready"), "{message}");
}

#[test]
fn an_open_loop_is_answered_on_time_and_is_the_same_on_two_threads() {
    let Some(memcached) = Memcached::start(&[]) else {
        return;
    };
    for threads in [1, 2] {
        let mut config = LoadConfig::new(&memcached.url, open(1000.0, 0.5), 1000);
        config.threads = threads;
        let result = run(config);
        assert_eq!((result.counts.offered, result.counts.completed), (500, 500));
        assert_eq!(result.counts.connections, 64);
        assert_eq!(
            (result.whole.send_error.len(), result.whole.latency.len()),
            (500, 500)
        );
        // Latency is counted from the intended send time, so it holds the send-time error.
        assert!(result.latency_ms.mean >= result.service_ms.mean);
    }
}

#[test]
fn failures_are_told_apart_by_cause() {
    // Of each four: another size, a miss, an error of the server, and a value of the right size.
    let url = server(|number, stream| match number % 4 {
        0 => value(stream, 99),
        1 => stream.write_all(b"END\r\n").is_ok(),
        2 => stream.write_all(b"SERVER_ERROR out of memory\r\n").is_ok(),
        _ => value(stream, 100),
    });
    let mut config = unfilled(&url, open(200.0, 0.4));
    config.max_connections = 1;
    let result = run(config);
    let Counts {
        failed, completed, ..
    } = result.counts;
    assert_eq!(
        (
            completed,
            failed.wrong_size,
            failed.missed,
            failed.status,
            failed.total()
        ),
        (20, 20, 20, 20, 60)
    );
    assert_eq!(result.answer_error.as_deref(), Some("SERVER_ERROR out of memory"));
    assert_eq!(result.whole.latency.len(), 20);

    let garbage = server(|_, stream| stream.write_all(b"HTTP/1.1 400 Bad Request\r\n").is_ok());
    let result = run(unfilled(&garbage, open(100.0, 0.3)));
    assert_eq!((result.counts.failed.protocol, result.failed_total), (30, 30));
    assert_eq!(result.answer_error.as_deref(), Some("HTTP/1.1 400 Bad Request"));

    let twice = server(|_, stream| value(stream, 100) && value(stream, 100));
    let counts = run(unfilled(&twice, closed(2, 0.2))).counts;
    assert!(counts.failed.protocol + counts.completed > 0 && counts.failed.total() == counts.failed.protocol);

    let cut = server(|_, stream| {
        let _ = stream.write_all(b"VALUE k 0 100\r\nhalf of it");
        false
    });
    for pacing in [open(100.0, 0.3), closed(3, 0.2)] {
        let counts = run(unfilled(&cut, pacing)).counts;
        assert!(counts.failed.closed >= 3, "{counts:?}");
        assert_eq!(
            (counts.failed.total(), counts.completed),
            (counts.failed.closed, 0)
        );
    }

    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = format!("memcached://{free}");
    let result = run(unfilled(&nobody, open(100.0, 0.3)));
    assert_eq!((result.counts.failed.connect, result.failed_total), (30, 30));
    assert!(result.connect_error.is_some());
    let counts = run(unfilled(&nobody, closed(4, 0.2))).counts;
    // Each pauses 10 ms after a refusal.
    assert!((4..=100).contains(&counts.failed.connect), "{counts:?}");
    assert_eq!(counts.failed.total(), counts.failed.connect);
}

#[test]
fn a_server_that_refuses_all_does_not_exhaust_the_stack() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut config = unfilled(&format!("memcached://{free}"), open(200_000.0, 0.3));
    config.max_connections = 2;
    config.queue = 100_000;
    config.grace = Seconds::new(60.0);
    let counts = run(config).counts;
    assert_eq!(
        counts.failed.connect + counts.failed.dropped,
        60_000,
        "{counts:?}"
    );
}

#[test]
fn an_answer_that_never_comes_times_out_and_its_latency_is_the_timeout() {
    let silent = server(|_, _| true);
    let mut config = unfilled(&silent, open(50.0, 0.2));
    config.timeout = Seconds::new(0.2);
    config.max_connections = 2;
    let result = run(config);
    assert_eq!((result.counts.failed.timeout, result.counts.offered), (10, 10));
    assert_eq!(result.whole.latency.len(), 10);
    assert!(result.whole.latency.min() >= 199_000);

    let mut full = unfilled(&silent, open(100.0, 0.3));
    full.timeout = Seconds::new(1.0);
    full.max_connections = 2;
    full.queue = 5;
    let counts = run(full).counts;
    assert_eq!((counts.failed.dropped, counts.failed.timeout), (23, 7));

    let mut closed = unfilled(&silent, closed(3, 0.3));
    closed.timeout = Seconds::new(0.05);
    let counts = run(closed).counts;
    assert!(counts.failed.timeout >= 3 && counts.completed == 0, "{counts:?}");
}

#[test]
fn a_stall_is_charged_to_every_request_that_was_due_meanwhile() {
    let url = server(|number, stream| {
        if number == 50 {
            std::thread::sleep(Duration::from_millis(400));
        }
        value(stream, 100)
    });
    let mut config = unfilled(&url, open(200.0, 1.0));
    config.max_connections = 1;
    let result = run(config);
    assert_eq!(result.counts.completed, 200);
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
}

#[test]
fn connections_that_the_server_closes_between_requests_are_opened_again() {
    // It closes after each answer.
    let url = server(|_, stream| {
        value(stream, 100);
        false
    });
    let mut config = unfilled(&url, open(50.0, 0.6));
    config.max_connections = 8;
    let counts = run(config).counts;
    assert_eq!((counts.completed, counts.failed.total()), (30, 0), "{counts:?}");
    assert!(counts.connections >= 30);
}

#[test]
fn connections_send_for_the_density_of_each_window_and_sleep_for_the_rest() {
    for grid in [false, true] {
        // When each request came. An answer takes a while, so that no thread of the test must be quick.
        let came = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&came);
        let url = server(move |_, stream| {
            record.lock().unwrap().push(Instant::now());
            std::thread::sleep(Duration::from_millis(2));
            value(stream, 100)
        });
        let bursts = Bursts {
            connections: 4,
            window: Seconds::new(0.8),
            density: Ratio::new(0.5),
            duration: Seconds::new(3.2),
            grid,
        };
        let counts = run(unfilled(&url, Pacing::Bursts(bursts))).counts;
        assert_eq!(counts.failed.total(), 0, "{counts:?}");
        let mut came = came.lock().unwrap().clone();
        came.sort();
        assert_eq!(came.len() as u64, counts.completed);
        // Four bursts with three sleeps of nearly 0.4 s between them, in which nothing was sent.
        let gaps: Vec<f64> = came
            .windows(2)
            .map(|pair| (pair[1] - pair[0]).as_secs_f64())
            .collect();
        let sleeps: Vec<f64> = gaps.into_iter().filter(|gap| *gap > 0.2).collect();
        // A machine that stalls adds gaps, and never takes one away.
        let longest = sleeps.iter().copied().fold(0.0, f64::max);
        assert!(sleeps.len() >= 3 && longest > 0.35, "grid {grid}: {sleeps:?}");
    }
}

#[test]
fn periods_add_up_to_the_result_and_have_the_generator_s_cpu_time() {
    let Some(memcached) = Memcached::start(&[]) else {
        return;
    };
    let mut config = LoadConfig::new(&memcached.url, closed(4, 0.8), 1000);
    config.threads = 2;
    let mut load = start(config).unwrap();
    let mut periods = Vec::new();
    while let Ok(period) = load.take_period() {
        periods.push(period);
        std::thread::sleep(Duration::from_millis(100));
    }
    let result = load.join().unwrap();
    assert!(periods.len() >= 3);
    let bytes: u64 = periods.iter().map(|period| period.counts.body_bytes).sum();
    assert!(bytes > 0 && bytes <= result.counts.body_bytes);
    let cpu: f64 = periods.iter().map(|period| period.generator_cpu.get()).sum();
    assert!(cpu > 0.0 && cpu <= result.generator_cpu_s.get());
    for period in &periods {
        assert!(period.busiest_thread_cpu <= period.generator_cpu);
        assert!(period.counts.received_bytes >= period.counts.body_bytes);
    }
}

#[test]
fn dropping_the_handle_ends_the_load() {
    let served = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&served);
    let url = server(move |_, stream| {
        count.fetch_add(1, Ordering::Relaxed);
        value(stream, 100)
    });
    drop(start(unfilled(&url, open(100.0, 3600.0))).unwrap());
    std::thread::sleep(Duration::from_millis(300));
    let before = served.load(Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(served.load(Ordering::Relaxed), before);

    let load = start(unfilled(&url, open(100.0, 3600.0))).unwrap();
    load.stop();
    assert!(load.join().unwrap().counts.offered < 3600);
}

#[test]
fn what_is_outstanding_at_the_end_is_unanswered_after_the_grace() {
    let silent = server(|_, _| true);
    for open in [false, true] {
        let pacing = match open {
            false => Pacing::Bursts(Bursts::closed(4, Seconds::new(0.3))),
            true => {
                let trace = Trace::constant(PerSecond::new(100.0), Seconds::new(0.3)).unwrap();
                Pacing::Open(Box::new(Arrivals::new(trace, Spacing::Even, 1)))
            }
        };
        let mut config = unfilled(&silent, pacing);
        config.max_connections = 4;
        config.timeout = Seconds::new(60.0);
        config.grace = Seconds::new(0.2);
        let begun = Instant::now();
        let result = start(config).unwrap().join().unwrap();
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "it waited for the timeout"
        );
        let counts = result.counts;
        let offered = if open { 30 } else { 4 };
        assert_eq!(
            (counts.offered, counts.failed.unanswered),
            (offered, offered),
            "{counts:?}"
        );
        assert_eq!(
            (result.whole.outstanding, result.whole.latency.len()),
            (0, offered)
        );
    }
}
