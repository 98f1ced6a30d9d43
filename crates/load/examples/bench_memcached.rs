//! The memcached client beside other load generators, against one memcached: `scripts/memcached-load`.
//!
//! memcached runs with one thread on CPU 1, each generator with one thread on CPU 0, one after the other in rounds that
//! alternate, so that what else happens on the machine falls on all alike. All get values of the same size over the same number
//! of connections, one request at a time on each, with keys at random of the same number. Requests are counted by memcached
//! itself (its statistics), CPU time by the kernel, so that what a generator says of itself does not matter. The figures are
//! minimum, median and maximum over the rounds.
//!
//! Arguments: rounds (4 by default), seconds of each measurement (3), bytes of a value (1024). Of memtier_benchmark, memaslap
//! (libmemcached-tools) and mc-crusher those are run that are found on the PATH.

#[path = "common/mod.rs"]
mod common;

use common::{Outcome, children_cpu, header, median, row, sorted};
use headroom_load::memcached::{self, LoadConfig, Pacing};
use headroom_load::{Bursts, LoadResult};
use headroom_units::{PerSecond, Seconds};
use headroom_workload::{Arrivals, Spacing, Trace};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CONNECTIONS: usize = 64;
const KEYS: usize = 10_000;

/// The open loop: requests per second.
const OPEN_RATE: f64 = 10_000.0;

/// How the keys begin of which the other generators ask, each followed by a number without leading zeros.
const PREFIX: &str = "other:";

/// memcached, killed when it is dropped.
struct Memcached {
    process: Child,
    port: u16,
}

impl Drop for Memcached {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Memcached {
    fn start() -> Outcome<Self> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let process = Command::new("taskset")
            .args([
                "-c",
                "1",
                "memcached",
                "-l",
                "127.0.0.1",
                "-u",
                "nobody",
                "-t",
                "1",
            ])
            .args(["-m", "1024", "-I", "2m", "-p", &port.to_string()])
            .spawn()?;
        let memcached = Self { process, port };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if start.elapsed() > Duration::from_secs(5) {
                return Err("memcached did not listen within 5 s; its standard error says why".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(memcached)
    }

    fn url(&self) -> String {
        format!("memcached://127.0.0.1:{}", self.port)
    }

    /// Stores the keys of the other generators, numbered from 0 to [`KEYS`].
    fn fill(&self, value_bytes: usize) -> Outcome<()> {
        let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", self.port))?);
        let value = "x".repeat(value_bytes);
        for key in 0..=KEYS {
            let set = format!("set {PREFIX}{key} 0 0 {value_bytes}\r\n{value}\r\n");
            stream.get_mut().write_all(set.as_bytes())?;
            let mut line = String::new();
            stream.read_line(&mut line)?;
            if line.trim_end() != "STORED" {
                return Err(format!("memcached answered a set with `{}`", line.trim_end()).into());
            }
        }
        Ok(())
    }

    /// How many requests it has served, and how many of them missed.
    fn served(&self) -> Outcome<(f64, f64)> {
        let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", self.port))?);
        stream.get_mut().write_all(b"stats\r\n")?;
        let (mut served, mut missed) = (0.0, 0.0);
        loop {
            let mut line = String::new();
            stream.read_line(&mut line)?;
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["STAT", "cmd_get" | "cmd_set", number] => served += number.parse::<f64>()?,
                ["STAT", "get_misses", number] => missed = number.parse()?,
                ["END"] | [] => return Ok((served, missed)),
                _ => {}
            }
        }
    }
}

/// The figures of one measurement, in the order of its table's columns.
type Figures = Vec<f64>;

/// Another generator, as a command of which it is known how to ask for this load.
struct Other {
    name: &'static str,
    program: &'static str,
    arguments: Vec<String>,
}

fn others(port: u16, seconds: f64, value_bytes: usize, folder: &std::path::Path) -> Outcome<Vec<Other>> {
    let crusher = folder.join("crusher");
    let conf = format!(
        "send=ascii_get,recv=blind_read,conns={CONNECTIONS},key_prefix={PREFIX},key_count={KEYS},live_rand=1,pipelines=1\n"
    );
    fs::write(&crusher, conf)?;
    // Gets only. It stores keys of its own first, 1,024 for each connection, and those count as its requests too.
    let maslap = folder.join("memaslap");
    let conf = format!("key\n16 16 1\nvalue\n{value_bytes} {value_bytes} 1\ncmd\n0 0.0\n1 1.0\n");
    fs::write(&maslap, conf)?;
    let words = |text: String| text.split_whitespace().map(str::to_owned).collect();
    let whole = seconds.ceil();
    Ok(vec![
        Other {
            name: "memtier_benchmark",
            program: "memtier_benchmark",
            arguments: words(format!(
                "-P memcache_text -s 127.0.0.1 -p {port} -t 1 -c {CONNECTIONS} --ratio 0:1 --pipeline 1 -d {value_bytes} \
                 --key-prefix {PREFIX} --key-minimum 1 --key-maximum {KEYS} --key-pattern R:R --test-time {whole} \
                 --hide-histogram"
            )),
        },
        Other {
            name: "memaslap",
            program: "memcaslap",
            arguments: words(format!(
                "-s 127.0.0.1:{port} -T 1 -c {CONNECTIONS} -w 1k -t {whole}s -F {}",
                maslap.display()
            )),
        },
        Other {
            name: "mc-crusher",
            program: "mc-crusher",
            arguments: words(format!(
                "--conf {} --ip 127.0.0.1 --port {port} --timeout {whole}",
                crusher.display()
            )),
        },
    ])
}

/// Runs what asks; requests a second, those by the CPU seconds that it used, and the share that missed.
fn measured(memcached: &Memcached, ask: impl FnOnce() -> Outcome<f64>) -> Outcome<Figures> {
    let before = memcached.served()?;
    let start = Instant::now();
    let cpu = ask()?;
    let seconds = start.elapsed().as_secs_f64();
    let after = memcached.served()?;
    let requests = after.0 - before.0;
    Ok(vec![
        requests / seconds,
        requests / cpu,
        1e6 * cpu / requests,
        100.0 * (after.1 - before.1) / requests,
    ])
}

fn run_other(other: &Other) -> Outcome<f64> {
    let before = children_cpu()?;
    let mut child = Command::new("taskset")
        .args(["-c", "0", other.program])
        .args(&other.arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let status = child.wait()?;
    if !status.success() {
        return Err(format!("{} ended with {status}", other.program).into());
    }
    Ok(children_cpu()? - before)
}

fn ours(url: &str, pacing: Pacing, value_bytes: usize, seed: u64) -> Outcome<LoadResult> {
    let mut config = LoadConfig::new(url, pacing, value_bytes);
    config.fill = false;
    config.keys = KEYS;
    config.max_connections = CONNECTIONS;
    config.seed = seed;
    let result = memcached::start(config)?.join()?;
    if result.failed_total > 0 {
        return Err(format!("{} requests failed: {:?}", result.failed_total, result.counts).into());
    }
    Ok(result)
}

fn open(url: &str, seconds: f64, value_bytes: usize, seed: u64) -> Outcome<Figures> {
    let trace = Trace::constant(PerSecond::new(OPEN_RATE), Seconds::new(seconds))?;
    let arrivals = Arrivals::new(trace, Spacing::Poisson, seed);
    let result = ours(url, Pacing::Open(Box::new(arrivals)), value_bytes, seed)?;
    let error = result.send_error_us;
    Ok(vec![
        error.p50.unwrap_or(f64::NAN),
        error.p99.unwrap_or(f64::NAN),
        error.p999.unwrap_or(f64::NAN),
        1e6 * result.generator_cpu_s.get() / result.counts.completed as f64,
        result.latency_ms.p50.unwrap_or(f64::NAN),
        result.latency_ms.p99.unwrap_or(f64::NAN),
    ])
}

fn is_there(program: &str) -> bool {
    let found = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    found.is_ok()
}

fn main() -> Outcome<()> {
    if cfg!(debug_assertions) {
        return Err("build with optimisation: scripts/memcached-load".into());
    }
    for (program, package) in [("taskset", "util-linux"), ("memcached", "memcached")] {
        if !is_there(program) {
            return Err(format!("{program} is not installed; run: apt-get install -y {package}").into());
        }
    }
    if std::thread::available_parallelism()?.get() < 2 {
        return Err("this needs CPUs 0 and 1: one for memcached, one for the generator".into());
    }
    let mut arguments = std::env::args().skip(1);
    let rounds: u64 = arguments.next().map_or(Ok(4), |argument| argument.parse())?;
    let seconds: f64 = arguments.next().map_or(Ok(3.0), |argument| argument.parse())?;
    let value_bytes: usize = arguments.next().map_or(Ok(1024), |argument| argument.parse())?;

    let memcached = Memcached::start()?;
    let url = memcached.url();
    memcached.fill(value_bytes)?;
    let closed = || Pacing::Bursts(Bursts::closed(CONNECTIONS, Seconds::new(seconds)));
    let mut filling = LoadConfig::new(&url, closed(), value_bytes);
    filling.keys = KEYS;
    memcached::fill(&filling)?;
    let folder = tempfile::tempdir()?;
    let (present, absent): (Vec<Other>, Vec<Other>) =
        others(memcached.port, seconds, value_bytes, folder.path())?
            .into_iter()
            .partition(|other| is_there(other.program));
    for other in &absent {
        println!("not on the PATH, left out: {} ({})", other.name, other.program);
    }

    let mut first = CpuSet::new();
    first.set(0);
    // Threads that are started from here on inherit it.
    sched_setaffinity(None, &first)?;

    let mut own = Vec::new();
    let mut timed = Vec::new();
    let mut theirs: Vec<Vec<Figures>> = vec![Vec::new(); present.len()];
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        own.push(measured(&memcached, || {
            Ok(ours(&url, closed(), value_bytes, round)?.generator_cpu_s.get())
        })?);
        for (figures, other) in theirs.iter_mut().zip(&present) {
            figures.push(measured(&memcached, || run_other(other))?);
        }
        timed.push(open(&url, seconds, value_bytes, round)?);
    }
    println!(
        "Closed loop, {CONNECTIONS} connections, gets of {value_bytes} bytes of {KEYS} keys, generator on CPU 0, memcached on \
         CPU 1, {rounds} alternating rounds of {seconds} s"
    );
    header(&[
        "requests/s",
        "requests/client core s",
        "CPU us/request",
        "misses %",
    ]);
    let digits = [0, 0, 2, 1];
    row("headroom", &own, &digits);
    for (other, figures) in present.iter().zip(&theirs) {
        row(other.name, figures, &digits);
    }
    println!("\nRequests per client core second, headroom by the other, of the same round");
    for (other, figures) in present.iter().zip(&theirs) {
        let ratios = sorted(own.iter().zip(figures).map(|(own, other)| own[1] / other[1]));
        println!(
            "{:<22}  {:.3} / {:.3} / {:.3}",
            other.name,
            ratios[0],
            median(&ratios),
            ratios[ratios.len() - 1]
        );
    }
    println!("\nOpen loop (Poisson) at {OPEN_RATE} requests/s; send error = actual - intended send time");
    header(&[
        "send error P50 us",
        "send error P99 us",
        "send error P99.9 us",
        "CPU us/request",
        "P50 ms",
        "P99 ms",
    ]);
    row("headroom", &timed, &[0, 0, 0, 2, 3, 3]);
    Ok(())
}
