//! End to end: a real HAProxy on loopback in front of a small server, its log and statistics socket against what
//! the client itself measured. Skipped where there is no HAProxy.

use headroom_telemetry::Source;
use headroom_telemetry::haproxy::{
    HaproxyConfig, HaproxyTelemetry, LogFormat, LogSource, RowKind, Scope, ServerState, StatisticsAddress,
    StatisticsError, StatisticsSocket,
};
use headroom_telemetry::{Latency, Lost, TelemetryPeriod};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(2);

/// A free port. Another process may take it before HAProxy does, so who uses it tries again.
fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// A port for datagrams, below those that the kernel gives whoever asks for any.
fn datagram_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let numbers = std::iter::repeat_with(|| {
        NEXT.fetch_add(1, Ordering::Relaxed)
            .wrapping_add(std::process::id().wrapping_mul(61))
    });
    numbers
        .take(1_000)
        .map(|number| u16::try_from(20_000 + number % 12_000).unwrap())
        .find(|port| UdpSocket::bind(("127.0.0.1", *port)).is_ok())
        .expect("a thousand ports are taken")
}

/// Reads up to the empty line behind a head.
fn head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

/// An answer that no socket's buffers take, bytes.
const BIG: usize = 64 << 20;

/// A server that answers after as many milliseconds as its path says (`/25`), with 500 for `/five`, with much for
/// `/big`, and breaks the connection for `/break`. Its threads end with the test's process.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            stream.set_nodelay(true).unwrap();
            std::thread::spawn(move || {
                while let Some(head) = head(&mut stream) {
                    let path = head.split(' ').nth(1).unwrap_or("/").to_owned();
                    if path == "/break" {
                        return;
                    }
                    let delay_ms = path.trim_start_matches('/').parse().unwrap_or(0);
                    std::thread::sleep(Duration::from_millis(delay_ms));
                    let status = if path == "/five" { "500 Broken" } else { "200 OK" };
                    let body = if path == "/big" { BIG } else { 2 };
                    let body = "o".repeat(body);
                    let reply = format!(
                        "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    if stream.write_all(reply.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

/// A kept-alive connection to HAProxy.
struct Client {
    port: u16,
    stream: Option<TcpStream>,
}

impl Client {
    fn new(port: u16) -> Self {
        Self { port, stream: None }
    }

    /// Status and time of one request.
    fn get(&mut self, path: &str) -> (u16, Duration) {
        let mut stream = self.stream.take().unwrap_or_else(|| {
            let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            stream
        });
        let begun = Instant::now();
        stream
            .write_all(format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n").as_bytes())
            .unwrap();
        let head = head(&mut stream).expect("an answer");
        let lower = head.to_ascii_lowercase();
        let length = lower
            .lines()
            .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        stream.read_exact(&mut body).unwrap();
        let took = begun.elapsed();
        if length.is_some() && !lower.contains("connection: close") {
            self.stream = Some(stream);
        }
        (head.split(' ').nth(1).unwrap().parse().unwrap(), took)
    }
}

/// A running HAProxy; killed when dropped.
struct Haproxy {
    child: Child,
    folder: tempfile::TempDir,
    port: u16,
}

impl Haproxy {
    /// Starts one whose log goes to `log`; `None` where there is no HAProxy.
    fn start(log: &str, server: u16, frontend: &str) -> Option<Self> {
        if Command::new("haproxy")
            .arg("-v")
            .stdout(Stdio::null())
            .status()
            .is_err()
        {
            println!("skipped: no haproxy on this machine (apt-get install haproxy)");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let port = port();
        let config = format!(
            "global\n\
             \x20 log {log} local0\n\
             \x20 stats socket {folder}/stats.sock mode 600 level admin\n\
             \x20 stats socket {folder}/user.sock mode 600 level user\n\
             \x20 nbthread 1\n\
             defaults\n\
             \x20 mode http\n\
             \x20 log global\n\
             \x20 timeout client 5s\n\
             \x20 timeout server 10s\n\
             \x20 timeout connect 1s\n\
             \x20 timeout queue 200ms\n\
             \x20 option dontlognull\n\
             frontend in\n\
             \x20 bind 127.0.0.1:{port}\n\
             \x20 {frontend}\n\
             \x20 http-request deny if {{ path /deny }}\n\
             \x20 http-request redirect location /x if {{ path /redirect }}\n\
             \x20 use_backend dead if {{ path /dead }}\n\
             \x20 default_backend app\n\
             backend app\n\
             \x20 server s1 127.0.0.1:{server} maxconn 200\n\
             backend dead\n\
             \x20 server s1 127.0.0.1:{server} disabled\n",
            folder = folder.path().display(),
        );
        std::fs::write(folder.path().join("haproxy.cfg"), config).unwrap();
        let child = Self::spawn(folder.path(), &[]);
        let haproxy = Self { child, folder, port };
        haproxy.wait();
        Some(haproxy)
    }

    fn spawn(folder: &Path, arguments: &[&str]) -> Child {
        Command::new("haproxy")
            .envs(std::fs::read_to_string(folder.join("zone")).map(|zone| ("TZ", zone)))
            .arg("-f")
            .arg(folder.join("haproxy.cfg"))
            .arg("-db")
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Until the statistics socket answers.
    fn wait(&self) {
        let statistics = StatisticsSocket::new(StatisticsAddress::Unix(self.socket("stats.sock")));
        statistics
            .read(Duration::from_secs(10))
            .expect("HAProxy has started");
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Another process takes over, as in a reload: the old one finishes what it has and ends.
    fn reload(&mut self) {
        let old = self.child.id().to_string();
        let new = Self::spawn(self.folder.path(), &["-sf", &old]);
        let mut old = std::mem::replace(&mut self.child, new);
        old.wait().unwrap();
        self.wait();
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// HAProxy logging by UDP to a telemetry that also reads its statistics.
fn pair(frontend: &str, change: impl FnOnce(&mut HaproxyConfig)) -> Option<(Haproxy, HaproxyTelemetry)> {
    let udp = datagram_port();
    let haproxy = Haproxy::start(&format!("127.0.0.1:{udp}"), server(), frontend)?;
    let mut config = HaproxyConfig::new(LogSource::Udp(([127, 0, 0, 1], udp).into()));
    config.statistics = Some(StatisticsAddress::Unix(haproxy.socket("stats.sock")));
    change(&mut config);
    let telemetry = HaproxyTelemetry::start(config).unwrap();
    Some((haproxy, telemetry))
}

/// A period taken once the lines of what has ended must have come.
fn settled(telemetry: &mut HaproxyTelemetry) -> TelemetryPeriod {
    std::thread::sleep(Duration::from_millis(150));
    telemetry.take_period(PATIENCE)
}

/// The value that `percent` of the values do not exceed.
fn percentile(values: &mut [f64], percent: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (percent / 100.0 * values.len() as f64).ceil() as usize;
    values[rank.clamp(1, values.len()) - 1]
}

#[test]
fn latency_and_rate_agree_with_the_client() {
    let Some((haproxy, mut telemetry)) = pair("option httplog", |_| {}) else {
        return;
    };
    // Ten connections, one request after another on each, 40 to 140 ms: some 100 requests a second.
    let sent = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..10)
        .map(|thread| {
            let (port, sent, stop) = (haproxy.port, Arc::clone(&sent), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut client = Client::new(port);
                let mut latency_ms = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let delay_ms = 40 + (thread * 41 + latency_ms.len()) * 37 % 101;
                    sent.fetch_add(1, Ordering::Relaxed);
                    let (status, took) = client.get(&format!("/{delay_ms}"));
                    assert_eq!(status, 200);
                    latency_ms.push(took.as_secs_f64() * 1e3);
                }
                latency_ms
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    telemetry.take_period(PATIENCE);
    let (begun, sent_before) = (Instant::now(), sent.load(Ordering::Relaxed));
    std::thread::sleep(Duration::from_secs(4));
    let period = telemetry.take_period(PATIENCE);
    let client_rate = (sent.load(Ordering::Relaxed) - sent_before) as f64 / begun.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    let mut latency_ms: Vec<f64> = clients
        .into_iter()
        .flat_map(|thread| thread.join().unwrap())
        .collect();
    let rest = settled(&mut telemetry);

    assert!(
        period.lost.is_none() && rest.lost.is_none(),
        "{:?} {:?}",
        period.lost,
        rest.lost
    );
    let client_p95_ms = percentile(&mut latency_ms, 95.0);
    let log_p95_ms = period.latency.at(95.0).unwrap().as_millis();
    let rate = period.arrivals as f64 / period.since.as_secs_f64();
    let by_log = period.completions as f64 / period.since.as_secs_f64();
    println!(
        "P95: client {client_p95_ms:.1} ms, log {log_p95_ms:.1} ms; rate: client {client_rate:.1}/s, statistics \
         {rate:.1}/s, log {by_log:.1}/s"
    );
    assert!(
        (log_p95_ms / client_p95_ms - 1.0).abs() < 0.05,
        "log {log_p95_ms} ms, client {client_p95_ms} ms"
    );
    assert!(
        (rate / client_rate - 1.0).abs() < 0.05,
        "statistics {rate}/s, client {client_rate}/s"
    );
    assert!(
        (by_log / client_rate - 1.0).abs() < 0.05,
        "log {by_log}/s, client {client_rate}/s"
    );
}

#[test]
fn every_outcome_is_told_apart_and_the_counters_agree() {
    let Some((haproxy, mut telemetry)) = pair("option httplog", |_| {}) else {
        return;
    };
    let statistics = telemetry.statistics().unwrap().clone();
    let frontend = |socket: &StatisticsSocket| {
        let rows = socket.read(PATIENCE).unwrap().rows;
        rows.into_iter()
            .find(|row| row.kind == RowKind::Frontend && row.proxy == "in")
            .unwrap()
    };
    let before = frontend(&statistics);
    for (path, status, times) in [
        ("/0", 200, 7),
        ("/five", 500, 3),
        ("/deny", 403, 2),
        ("/redirect", 302, 4),
        ("/dead", 503, 2),
        ("/break", 502, 1),
    ] {
        for _ in 0..times {
            // Of a kept-alive connection HAProxy closes the client's side when the server breaks off, so that the
            // client may try again; on a fresh one it answers.
            assert_eq!(Client::new(haproxy.port).get(path).0, status, "{path}");
        }
    }
    let period = settled(&mut telemetry);
    let after = frontend(&statistics);
    assert_eq!(after.requests_total.unwrap() - before.requests_total.unwrap(), 19);
    assert_eq!(
        after.responses.unwrap().total() - before.responses.unwrap().total(),
        19
    );
    assert!(period.lost.is_none(), "{:?}", period.lost);
    assert_eq!((period.completions, period.failed.by_status), (7, 3));
    // With those that HAProxy itself had to answer for a server: two 503, one 502.
    assert_eq!(period.statuses, Some([0, 7, 0, 0, 6]));
    assert_eq!(period.local, 6);
    assert_eq!(
        (
            period.failed.by_proxy,
            period.failed.by_server,
            period.failed.by_client
        ),
        (2, 1, 0)
    );
    assert_eq!(period.arrivals, 13);
    assert_eq!((period.malformed, period.in_flight), (0, Some(0)));
    let named = |name: &str| period.backends.iter().find(|server| server.name == name).unwrap();
    let app = named("app/s1");
    assert_eq!((app.requests, app.failures, app.healthy), (11, 4, Some(true)));
    assert_eq!(named("dead/s1").healthy, Some(false));
}

#[test]
fn what_is_in_flight_is_seen_with_its_age() {
    let Some((haproxy, mut telemetry)) = pair("option httplog", |config| {
        config.scope = Scope {
            frontends: Vec::new(),
            backends: vec!["app".into()],
        };
    }) else {
        return;
    };
    settled(&mut telemetry);
    let port = haproxy.port;
    let waiting: Vec<_> = (0..5)
        .map(|_| std::thread::spawn(move || Client::new(port).get("/3500").0))
        .collect();
    std::thread::sleep(Duration::from_millis(1_500));
    let period = telemetry.take_period(PATIENCE);
    assert_eq!(
        (period.arrivals, period.completions, period.in_flight),
        (5, 0, Some(5))
    );
    let oldest_s = period.oldest_in_flight.unwrap().get();
    assert!((1.0..=4.0).contains(&oldest_s), "{oldest_s}");
    assert!(period.lost.is_none(), "{:?}", period.lost);
    for thread in waiting {
        assert_eq!(thread.join().unwrap(), 200);
    }
    let period = settled(&mut telemetry);
    assert_eq!(
        (period.arrivals, period.completions, period.in_flight),
        (0, 5, Some(0))
    );
}

#[test]
fn the_counters_survive_a_reload_and_the_death_of_haproxy_is_a_loss() {
    let Some((mut haproxy, mut telemetry)) = pair("option httplog", |_| {}) else {
        return;
    };
    let send = |port, requests: u64| {
        let mut client = Client::new(port);
        for _ in 0..requests {
            assert_eq!(client.get("/0").0, 200);
        }
    };
    send(haproxy.port, 30);
    assert_eq!(settled(&mut telemetry).arrivals, 30);
    send(haproxy.port, 10);
    haproxy.reload();
    send(haproxy.port, 25);
    let period = settled(&mut telemetry);
    assert!(period.reloaded);
    assert_eq!((period.arrivals, period.completions), (35, 35));
    assert!(period.lost.is_none(), "{:?}", period.lost);
    send(haproxy.port, 5);
    let period = settled(&mut telemetry);
    assert!(!period.reloaded);
    assert_eq!(period.arrivals, 5);
    haproxy.child.kill().unwrap();
    haproxy.child.wait().unwrap();
    let begun = Instant::now();
    let period = telemetry.take_period(Duration::from_millis(100));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert!(
        matches!(period.lost, Some(Lost::SourceGone(_))),
        "{:?}",
        period.lost
    );
    assert!(period.statistics_error.is_some());
}

#[test]
fn a_log_that_goes_elsewhere_is_a_loss() {
    let elsewhere = port();
    let Some(haproxy) = Haproxy::start(&format!("127.0.0.1:{elsewhere}"), server(), "option httplog") else {
        return;
    };
    let mut config = HaproxyConfig::new(LogSource::Udp("127.0.0.1:0".parse().unwrap()));
    config.statistics = Some(StatisticsAddress::Unix(haproxy.socket("stats.sock")));
    let mut telemetry = HaproxyTelemetry::start(config).unwrap();
    let mut client = Client::new(haproxy.port);
    for _ in 0..40 {
        client.get("/0");
    }
    let period = settled(&mut telemetry);
    assert_eq!(period.arrivals, 40);
    assert!(
        matches!(
            period.lost,
            Some(Lost::LogMissing {
                counted: 40,
                logged: 0
            })
        ),
        "{:?}",
        period.lost
    );
    // Few requests take a few periods.
    let mut losses = Vec::new();
    for _ in 0..3 {
        settled(&mut telemetry);
        client.get("/0");
        losses.push(settled(&mut telemetry).lost.is_some());
    }
    settled(&mut telemetry);
    for _ in 0..3 {
        client.get("/0");
        losses.push(settled(&mut telemetry).lost.is_some());
    }
    assert_eq!(losses, [false, false, false, false, false, true]);
}

/// A dozen periods with as many requests each, on one connection.
fn periods_of(
    haproxy: &Haproxy,
    telemetry: &mut HaproxyTelemetry,
    requests: u64,
    pause: Duration,
) -> Vec<TelemetryPeriod> {
    let mut client = Client::new(haproxy.port);
    let period = |_| {
        for _ in 0..requests {
            assert_eq!(client.get("/0").0, 200);
        }
        std::thread::sleep(pause);
        telemetry.take_period(PATIENCE)
    };
    (0..12).map(period).collect()
}

/// HAProxy with these destinations of its log, which name one UDP address as `{udp}`.
fn with_logs(logs: &str) -> Option<(Haproxy, HaproxyTelemetry)> {
    let udp = port();
    let logs = logs.replace("{udp}", &format!("127.0.0.1:{udp}"));
    let haproxy = Haproxy::start(&logs, server(), "option httplog")?;
    let mut config = HaproxyConfig::new(LogSource::Udp(([127, 0, 0, 1], udp).into()));
    config.statistics = Some(StatisticsAddress::Unix(haproxy.socket("stats.sock")));
    Some((haproxy, HaproxyTelemetry::start(config).unwrap()))
}

#[test]
fn a_log_of_two_requests_in_three_is_lost_and_a_whole_one_covers_all() {
    let pause = Duration::from_millis(100);
    let Some((haproxy, mut telemetry)) = with_logs("{udp} sample 1-2:3") else {
        return;
    };
    let periods = periods_of(&haproxy, &mut telemetry, 60, pause);
    let last = periods.last().unwrap();
    assert!(
        (last.coverage.unwrap() - 2.0 / 3.0).abs() < 0.05,
        "{:?}",
        last.coverage
    );
    assert!(
        matches!(last.lost, Some(Lost::LowCoverage { .. })),
        "{:?}",
        last.lost
    );
    assert!(last.lost.as_ref().unwrap().to_string().contains("sample"));

    let (haproxy, mut telemetry) = with_logs("{udp}").unwrap();
    let periods = periods_of(&haproxy, &mut telemetry, 60, pause);
    assert!(periods.iter().all(|period| period.lost.is_none()), "{periods:?}");
    let last = periods.last().unwrap();
    assert!(last.coverage.unwrap() > 0.97, "{:?}", last.coverage);
    assert_eq!(last.dropped_by_proxy, Some(0));
}

#[test]
fn a_log_with_each_line_twice_is_refused() {
    let Some((haproxy, mut telemetry)) = with_logs("{udp} local0\n log {udp}") else {
        return;
    };
    let periods = periods_of(&haproxy, &mut telemetry, 60, Duration::from_millis(100));
    let last = periods.last().unwrap();
    assert!(
        matches!(last.lost, Some(Lost::MoreThanArrived { .. })),
        "{:?}",
        last.lost
    );
    assert!(
        last.lost
            .as_ref()
            .unwrap()
            .to_string()
            .contains("each line twice")
    );
}

#[test]
fn statistics_that_are_missing_for_a_while_make_no_demand_of_what_they_missed() {
    let Some((haproxy, mut telemetry)) = pair("option httplog", |_| {}) else {
        return;
    };
    let (socket, aside) = (haproxy.socket("stats.sock"), haproxy.socket("aside.sock"));
    let mut client = Client::new(haproxy.port);
    let mut period = |telemetry: &mut HaproxyTelemetry| {
        for _ in 0..30 {
            client.get("/0");
        }
        std::thread::sleep(Duration::from_millis(150));
        telemetry.take_period(Duration::from_millis(100))
    };
    assert_eq!(period(&mut telemetry).in_flight, Some(0));
    std::fs::rename(&socket, &aside).unwrap();
    for _ in 0..3 {
        let period = period(&mut telemetry);
        assert!(period.statistics_error.is_some());
        assert_eq!(
            (period.in_flight, period.coverage, period.arrivals),
            (None, None, 30)
        );
    }
    std::fs::rename(&aside, &socket).unwrap();
    for _ in 0..2 {
        let period = period(&mut telemetry);
        assert!(period.lost.is_none(), "{:?}", period.lost);
        assert_eq!((period.statistics_error, period.arrivals), (None, 30));
    }
}

#[test]
fn dates_of_another_time_zone_are_said_once_and_lose_no_more_than_the_first_periods() {
    let udp = port();
    let Some(mut haproxy) = Haproxy::start(&format!("127.0.0.1:{udp}"), server(), "option httplog") else {
        return;
    };
    // An hour west of this machine's, which names no zone in its dates.
    let east_s = jiff::Zoned::now().offset().seconds();
    let west = (3600 - east_s).rem_euclid(86_400);
    std::fs::write(
        haproxy.socket("zone"),
        format!("XXX{}:{:02}", west / 3600, west / 60 % 60),
    )
    .unwrap();
    haproxy.reload();
    let mut config = HaproxyConfig::new(LogSource::Udp(([127, 0, 0, 1], udp).into()));
    config.statistics = Some(StatisticsAddress::Unix(haproxy.socket("stats.sock")));
    let mut telemetry = HaproxyTelemetry::start(config).unwrap();
    let periods = periods_of(&haproxy, &mut telemetry, 10, Duration::from_millis(400));
    assert!(
        matches!(periods[0].lost, Some(Lost::LagUnknown(_))),
        "{:?}",
        periods[0].lost
    );
    assert!(periods[9..].iter().all(|period| period.lost.is_none()));
    let behind_s = periods[11].clock_behind.unwrap().get();
    assert!((3599.0..3602.0).contains(&behind_s), "{behind_s}");
    let news: Vec<&String> = periods.iter().flat_map(|period| &period.news).collect();
    assert_eq!(news.len(), 1, "{news:?}");
    assert!(news[0].contains("time zone"), "{news:?}");
}

#[test]
fn a_slow_client_is_no_slow_service() {
    let Some((haproxy, mut telemetry)) = pair("option httplog\n option http-buffer-request", |_| {}) else {
        return;
    };
    let slow = Duration::from_millis(600);
    let connect = || TcpStream::connect(("127.0.0.1", haproxy.port)).unwrap();
    let ends = |stream: &mut TcpStream| {
        let mut chunk = vec![0; 1 << 20];
        while stream.read(&mut chunk).is_ok_and(|length| length > 0) {}
    };
    // It sends the head slowly.
    let mut stream = connect();
    stream.write_all(b"GET /20 HTTP/1.1\r\n").unwrap();
    std::thread::sleep(slow);
    stream
        .write_all(b"host: test\r\nconnection: close\r\n\r\n")
        .unwrap();
    ends(&mut stream);
    // It sends the body slowly.
    let mut stream = connect();
    stream
        .write_all(b"POST /20 HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: 2\r\n\r\na")
        .unwrap();
    std::thread::sleep(slow);
    stream.write_all(b"b").unwrap();
    ends(&mut stream);
    let period = settled(&mut telemetry);
    assert_eq!(period.completions, 2);
    let of = |latency: &Latency| latency.at(100.0).unwrap().as_millis();
    let (first, last) = (
        of(&period.latency),
        of(period.latency_to_last_byte.as_ref().unwrap()),
    );
    assert!(first < 300.0 && last < 300.0, "{first} {last}");
    assert!(period.measured.contains("first byte"), "{}", period.measured);
    // It takes the answer slowly: that is told apart.
    let mut stream = connect();
    stream
        .write_all(b"GET /big HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")
        .unwrap();
    std::thread::sleep(slow);
    ends(&mut stream);
    let period = settled(&mut telemetry);
    assert_eq!(period.completions, 1);
    let (first, last) = (
        of(&period.latency),
        of(period.latency_to_last_byte.as_ref().unwrap()),
    );
    assert!(last > 590.0 && first < last / 2.0, "{first} {last}");
}

#[test]
fn custom_formats_and_a_unix_socket_and_a_syslog_header() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.sock");
    let directive = "log-format '{\"t\":\"%tr\",\"ms\":%Ta,\"st\":%ST,\"ts\":\"%tsc\",\"b\":\"%b\",\"s\":\"%s\",\
                     \"r\":%{+Q}r,\"f\":\"%f\"}'";
    for (header, format) in [
        ("rfc5424", directive),
        ("raw", directive),
        ("timed", "option httplog clf"),
    ] {
        let mut config = HaproxyConfig::new(LogSource::Unix {
            path: path.clone(),
            mode: 0o600,
        });
        config.format = LogFormat::compile(format).unwrap();
        let mut telemetry = HaproxyTelemetry::start(config).unwrap();
        let log = format!("{} len 4096 format {header}", path.display());
        let udp_less = Haproxy::start(&log, server(), format);
        let Some(haproxy) = udp_less else {
            return;
        };
        let mut client = Client::new(haproxy.port);
        for _ in 0..9 {
            client.get("/20");
        }
        let period = settled(&mut telemetry);
        assert_eq!(
            (period.completions, period.malformed),
            (9, 0),
            "{header}: {period:?}"
        );
        let p50 = period.latency.at(50.0).unwrap().as_millis();
        assert!((20.0..40.0).contains(&p50), "{header}: {p50}");
    }
}

#[test]
fn the_state_and_weight_of_a_server_are_set() {
    let Some((haproxy, telemetry)) = pair("option httplog", |_| {}) else {
        return;
    };
    let socket = telemetry.statistics().unwrap();
    let row = || {
        let rows = socket.read(PATIENCE).unwrap().rows;
        rows.into_iter()
            .find(|row| row.proxy == "app" && row.name == "s1")
            .unwrap()
    };
    assert!(row().healthy());
    for (state, status) in [
        (ServerState::Drain, "DRAIN"),
        (ServerState::Maintenance, "MAINT"),
        (ServerState::Ready, "no check"),
    ] {
        socket.set_state("app", "s1", state, PATIENCE).unwrap();
        assert!(row().status.starts_with(status), "{}", row().status);
        assert_eq!(row().healthy(), state == ServerState::Ready);
        let told = socket.servers("app", PATIENCE).unwrap();
        let told = told.iter().find(|server| server.name == "s1").unwrap();
        assert_eq!((told.state, told.checked), (state, false));
    }
    assert!(socket.servers("none", PATIENCE).is_err());
    socket.set_weight_percent("app", "s1", 100, PATIENCE).unwrap();
    socket.set_weight_percent("app", "s1", 17, PATIENCE).unwrap();
    let weight = row().weight;
    assert!(weight < Some(100), "{weight:?}");
    let error = socket
        .set_state("app", "none", ServerState::Drain, PATIENCE)
        .unwrap_err();
    assert!(error.to_string().contains("No such server"), "{error}");
    assert!(matches!(
        socket.set_weight_percent("app", "s1", 300, PATIENCE),
        Err(StatisticsError::Weight(300))
    ));
    let user = StatisticsSocket::new(StatisticsAddress::Unix(haproxy.socket("user.sock")));
    user.read(PATIENCE).unwrap();
    let error = user.set_weight_percent("app", "s1", 1, PATIENCE).unwrap_err();
    assert!(error.to_string().contains("level admin"), "{error}");
    assert_eq!(row().weight, weight);
}

#[test]
fn a_name_that_haproxy_does_not_have_is_told() {
    let Some((haproxy, mut telemetry)) = pair("option httplog", |config| {
        config.scope.backends = vec!["ap".into()];
    }) else {
        return;
    };
    Client::new(haproxy.port).get("/0");
    let period = settled(&mut telemetry);
    assert!(period.statistics_error.unwrap().contains("no backend \"ap\""));
    assert!(
        matches!(period.lost, Some(Lost::SourceGone(_))),
        "{:?}",
        period.lost
    );
}

#[test]
fn a_statistics_socket_that_babbles_or_hangs_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stats.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for (number, mut stream) in listener.incoming().flatten().enumerate() {
            match number {
                0 => kept.push(stream),
                1 => while stream.write_all(&[b'x'; 65_536]).is_ok() {},
                _ => {
                    // HAProxy's master process answers so. What is not read would reset the connection.
                    let _ = stream.read(&mut [0; 100]);
                    let _ = stream.write_all(b"Unknown command: 'show', but maybe one of the following\n");
                }
            }
        }
    });
    let socket = StatisticsSocket::new(StatisticsAddress::Unix(path));
    let begun = Instant::now();
    let error = socket.read(Duration::from_millis(150)).unwrap_err();
    assert!(matches!(error, StatisticsError::Reply { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(2));
    let error = socket.read(Duration::from_secs(10)).unwrap_err();
    assert!(matches!(error, StatisticsError::TooLong { .. }), "{error}");
    let error = socket.read(PATIENCE).unwrap_err();
    assert!(error.to_string().contains("Unknown command"), "{error}");
    let gone = StatisticsSocket::new(StatisticsAddress::Unix("/nonexistent/stats.sock".into()));
    let error = gone.read(Duration::from_millis(20)).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/stats.sock"), "{error}");
}
