//! The load generator beside wrk, against nginx: `make bench-load`.
//!
//! Beside wrk with kept connections, and beside wrk and ab with a new connection for every request.
//!
//! nginx answers a fixed 100 bytes from one worker on CPU 1; the generator, or `wrk -t1 -c64`, runs on CPU 0. The
//! rounds alternate, so that what else happens on the machine falls on all alike. The figures are minimum, median
//! and maximum over the rounds. Where other programs take the processors, compare CPU time for each request, not
//! requests by the clock: the ratio of the two generators' is printed, of the two measurements of each round.
//! Arguments: rounds (4 by default), seconds of each measurement (2), and `closed` for the closed loops with kept
//! connections alone.

#[path = "common/mod.rs"]
mod common;

use common::{Outcome, children_cpu, header, row};
use headroom_load::http::{self, LoadConfig, LoadResult, Pacing};
use headroom_units::{PerSecond, Seconds};
use headroom_workload::{Arrivals, Spacing, Trace};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::fs;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The open loops: requests per second, and connections opened beforehand and used in turn.
const OPEN_LOOPS: [(f64, usize); 5] = [
    (1_000.0, 64),
    (5_000.0, 64),
    (10_000.0, 64),
    (20_000.0, 64),
    (10_000.0, 4_000),
];

/// Connections of the closed loops.
const CONNECTIONS: usize = 64;

/// nginx, killed when it is dropped.
struct Nginx {
    process: Child,
    url: String,
    _directory: tempfile::TempDir,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Nginx {
    fn start() -> Outcome<Self> {
        let directory = tempfile::tempdir()?;
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let root = directory.path().display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {root}/{kind};\n"))
            .concat();
        let config = format!(
            "daemon off; master_process off; worker_processes 1; worker_rlimit_nofile 8192; pid {root}/pid; error_log stderr crit;\n\
             events {{ worker_connections 8192; }}\n\
             http {{ access_log off; keepalive_requests 1000000000; keepalive_timeout 600s;\n{temporary}\
             server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ default_type text/plain; return 200 \"{}\"; }} }} }}\n",
            "x".repeat(100),
        );
        let file = directory.path().join("nginx.conf");
        fs::write(&file, config)?;
        let process = Command::new("taskset")
            .args(["-c", "1", "nginx", "-e", "stderr", "-p"])
            .arg(directory.path())
            .arg("-c")
            .arg(&file)
            .spawn()?;
        let nginx = Self {
            process,
            url: format!("http://127.0.0.1:{port}/"),
            _directory: directory,
        };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if start.elapsed() > Duration::from_secs(5) {
                return Err("nginx did not listen within 5 s; its standard error says why".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(nginx)
    }
}

/// The figures of one measurement, in the order of its table's columns.
type Figures = Vec<f64>;

fn closed(url: &str, seconds: f64, keep_alive: bool) -> Outcome<Figures> {
    let pacing = Pacing::Closed {
        connections: CONNECTIONS,
        duration: Seconds::new(seconds),
    };
    let mut config = LoadConfig::new(url, pacing);
    config.keep_alive = keep_alive;
    let result = run(config)?;
    // With new connections the time to open one counts, as it does for the others.
    let latency = if keep_alive {
        result.service_ms
    } else {
        result.latency_ms
    };
    Ok(vec![
        result.completed_per_second.get(),
        cpu_us(&result),
        latency.p50.unwrap_or(f64::NAN),
        latency.p99.unwrap_or(f64::NAN),
    ])
}

fn open(url: &str, (rate, connections): (f64, usize), seconds: f64, seed: u64) -> Outcome<Figures> {
    let trace = Trace::constant(PerSecond::new(rate), Seconds::new(seconds))?;
    let mut config = LoadConfig::new(url, Pacing::open(Arrivals::new(trace, Spacing::Poisson, seed)));
    config.warm_connections = connections;
    config.max_connections = 5_000;
    let result = run(config)?;
    let error = result.send_error_us;
    Ok(vec![
        error.p50.unwrap_or(f64::NAN),
        error.p99.unwrap_or(f64::NAN),
        error.p999.unwrap_or(f64::NAN),
        cpu_us(&result),
        result.latency_ms.p50.unwrap_or(f64::NAN),
        result.latency_ms.p99.unwrap_or(f64::NAN),
    ])
}

fn run(config: LoadConfig) -> Outcome<LoadResult> {
    let result = http::start(config)?.join()?;
    if result.failed_total > 0 {
        return Err(format!("{} requests failed: {:?}", result.failed_total, result.counts).into());
    }
    Ok(result)
}

fn cpu_us(result: &LoadResult) -> f64 {
    1e6 * result.generator_cpu_s.get() / result.counts.completed as f64
}

fn wrk(url: &str, seconds: f64, keep_alive: bool) -> Outcome<Figures> {
    let before = children_cpu()?;
    let output = Command::new("taskset")
        .args(["-c", "0", "wrk", "-t1", &format!("-c{CONNECTIONS}"), "--latency"])
        .arg(format!("-d{}s", seconds.ceil()))
        .args(if keep_alive {
            &[][..]
        } else {
            &["-H", "Connection: close"]
        })
        .arg(url)
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let cpu = children_cpu()? - before;
    let after = |label: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(label));
        line.map(str::trim)
            .ok_or_else(|| format!("wrk did not print `{label}`:\n{text}"))
    };
    let rate: f64 = after("Requests/sec:")?.parse()?;
    let requests = text
        .lines()
        .find_map(|line| line.trim().split_once(" requests in "))
        .ok_or("wrk did not print its number of requests")?;
    let requests: f64 = requests.0.parse()?;
    Ok(vec![
        rate,
        1e6 * cpu / requests,
        milliseconds(after("50%")?)?,
        milliseconds(after("99%")?)?,
    ])
}

/// ab, which opens a connection for every request; it tells whole milliseconds.
fn ab(url: &str, seconds: f64) -> Outcome<Figures> {
    let before = children_cpu()?;
    let output = Command::new("taskset")
        .args([
            "-c",
            "0",
            "ab",
            "-q",
            "-r",
            "-n",
            "10000000",
            "-c",
            &CONNECTIONS.to_string(),
        ])
        .args(["-t", &seconds.ceil().to_string(), url])
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let cpu = children_cpu()? - before;
    let after = |label: &str| -> Outcome<f64> {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(label));
        let word = line.and_then(|line| line.split_whitespace().next());
        Ok(word
            .ok_or_else(|| format!("ab did not print `{label}`:\n{text}"))?
            .parse()?)
    };
    let requests = after("Complete requests:")?;
    Ok(vec![
        after("Requests per second:")?,
        1e6 * cpu / requests,
        after("50%")?,
        after("99%")?,
    ])
}

/// wrk's way of writing a time, as milliseconds.
fn milliseconds(text: &str) -> Outcome<f64> {
    for (unit, factor) in [("us", 1e-3), ("ms", 1.0), ("s", 1e3)] {
        if let Some(number) = text.strip_suffix(unit) {
            return Ok(number.parse::<f64>()? * factor);
        }
    }
    Err(format!("`{text}` is not a time").into())
}

fn need(tool: &str, argument: &str, package: &str) -> Outcome<()> {
    let found = Command::new(tool)
        .arg(argument)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    found
        .map(drop)
        .map_err(|_| format!("{tool} is not installed; run: apt-get install -y {package}").into())
}

fn main() -> Outcome<()> {
    if cfg!(debug_assertions) {
        return Err(
            "build with optimisation: cargo run --release -p headroom-load --example bench_load".into(),
        );
    }
    need("taskset", "-V", "util-linux")?;
    need("nginx", "-v", "nginx-light")?;
    need("wrk", "-v", "wrk")?;
    if std::thread::available_parallelism()?.get() < 2 {
        return Err("this needs CPUs 0 and 1: one for nginx, one for the generator".into());
    }
    let mut arguments = std::env::args().skip(1);
    let rounds: u64 = arguments.next().map_or(Ok(4), |argument| argument.parse())?;
    let seconds: f64 = arguments.next().map_or(Ok(2.0), |argument| argument.parse())?;
    let closed_alone = match arguments.next().as_deref() {
        None => false,
        Some("closed") => true,
        Some(other) => return Err(format!("`{other}`: the third argument is `closed` or nothing").into()),
    };

    if !closed_alone {
        need("ab", "-V", "apache2-utils")?;
    }

    let nginx = Nginx::start()?;
    let mut first = CpuSet::new();
    first.set(0);
    // Threads that are started from here on inherit it.
    sched_setaffinity(None, &first)?;

    let (mut generator, mut reference) = (Vec::new(), Vec::new());
    let (mut opening, mut wrk_opening, mut ab_opening) = (Vec::new(), Vec::new(), Vec::new());
    let mut timed: [Vec<Figures>; OPEN_LOOPS.len()] = Default::default();
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        reference.push(wrk(&nginx.url, seconds, true)?);
        generator.push(closed(&nginx.url, seconds, true)?);
        if closed_alone {
            continue;
        }
        wrk_opening.push(wrk(&nginx.url, seconds, false)?);
        opening.push(closed(&nginx.url, seconds, false)?);
        ab_opening.push(ab(&nginx.url, seconds)?);
        for (figures, load) in timed.iter_mut().zip(OPEN_LOOPS) {
            figures.push(open(&nginx.url, load, seconds, round)?);
        }
    }
    println!(
        "Closed loop, {CONNECTIONS} connections, generator on CPU 0, nginx on CPU 1, {rounds} alternating rounds"
    );
    header(&["requests/s", "CPU us/request", "P50 ms", "P99 ms"]);
    row("headroom, closed", &generator, &[0, 2, 3, 3]);
    row("wrk -t1 -c64", &reference, &[0, 2, 3, 3]);
    let of_wrk = generator
        .iter()
        .zip(&reference)
        .map(|(ours, wrks)| vec![wrks[1] / ours[1]]);
    println!("\nRequests per second of CPU time, as a share of wrk's in the same round");
    header(&["headroom / wrk"]);
    row("closed", &of_wrk.collect::<Vec<_>>(), &[2]);
    if closed_alone {
        return Ok(());
    }
    println!("\nThe same with a new connection for every request");
    header(&["requests/s", "CPU us/request", "P50 ms", "P99 ms"]);
    row("headroom, closed", &opening, &[0, 2, 3, 3]);
    row("wrk, Connection: close", &wrk_opening, &[0, 2, 3, 3]);
    row("ab -c 64", &ab_opening, &[0, 2, 0, 0]);
    println!("\nOpen loop (Poisson), the same generator; send error = actual - intended send time");
    header(&[
        "send error P50 us",
        "send error P99 us",
        "send error P99.9 us",
        "CPU us/request",
        "P50 ms",
        "P99 ms",
    ]);
    for ((rate, connections), figures) in OPEN_LOOPS.iter().zip(&timed) {
        row(
            &format!("{rate:.0}/s, {connections} conn."),
            figures,
            &[0, 0, 0, 2, 3, 3],
        );
    }
    Ok(())
}
