//! What measuring an accept queue costs.
//!
//! `make bench-capacity`, or `cargo run --release -p headroom-node --example queue_cost`
//!
//! 1. The program in the kernel, per connection: its calls and the time in them, as the kernel counts both while
//!    `kernel.bpf_stats_enabled` is set (it is put back); and the whole machine's time per connection with and without
//!    the program, in alternating rounds. Needs root.
//! 2. Each method, per sample: the time until the sample is there and the processor time of this process and the tools
//!    that it starts; and the highest rate of samples, on a machine that is idle and on one that is overloaded (a
//!    server that accepts more slowly than clients come, and every processor busy), as in the paper's Figure 7.
//!
//! Loopback only; every load is bounded in time. An SNMP agent and a status page are measured where HEADROOM_SNMP (an
//! address and a port) and HEADROOM_STATUS (a page on the port of HEADROOM_PORT) say where they are.

use headroom_node::Roots;
use headroom_node::queue::{EbpfQueueMeter, QueueMeter, QueueOptions, every};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};
use std::error::Error;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const ROUNDS: usize = 5;
const CONNECTIONS_A_ROUND: u64 = 4_000;
const SAMPLING: Duration = Duration::from_secs(2);
const STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";
/// The server of part 2 accepts this slowly under overload.
const SLOW_ACCEPT: Duration = Duration::from_millis(5);

fn main() -> Outcome<()> {
    per_connection()?;
    println!();
    let port = match std::env::var("HEADROOM_PORT") {
        Ok(port) => Some(port.parse()?),
        Err(_) => None,
    };
    per_sample("idle", port, None)?;
    println!();
    per_sample("overloaded", port, Some(Overload::start()?))
}

fn listener(limit: i32) -> Outcome<TcpListener> {
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    listen(&socket, limit)?;
    Ok(socket.into())
}

/// A kernel setting, put back when this goes.
struct Setting {
    before: String,
}

impl Setting {
    fn on() -> Outcome<Self> {
        let before = fs::read_to_string(STATS)?;
        fs::write(STATS, "1")?;
        Ok(Self { before })
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        if let Err(error) = fs::write(STATS, self.before.trim()) {
            eprintln!("{STATS} could not be put back to {}: {error}", self.before.trim());
        }
    }
}

fn per_connection() -> Outcome<()> {
    let server = listener(128)?;
    let address = server.local_addr()?;
    println!("the program in the kernel, {ROUNDS} alternating rounds of {CONNECTIONS_A_ROUND} connections:");
    let mut with = Vec::new();
    let mut without = Vec::new();
    let mut stats = None;
    for round in 0..=ROUNDS {
        without.push(machine_us_per_connection(&server, address)?);
        let mut meter = match EbpfQueueMeter::open(address.port(), &Roots::default()) {
            Ok(meter) => meter,
            Err(error) => {
                println!("  not measured: {error}");
                return Ok(());
            }
        };
        with.push(machine_us_per_connection(&server, address)?);
        if round == ROUNDS {
            // Counting itself costs, so that its round is one of its own.
            let _setting = Setting::on()?;
            let before = program_stats()?;
            let enqueued = meter.sample()?.port.enqueued.unwrap_or(0);
            machine_us_per_connection(&server, address)?;
            let after = program_stats()?;
            let connections = meter.sample()?.port.enqueued.unwrap_or(0) - enqueued;
            stats = Some((after.0 - before.0, after.1 - before.1, connections));
        }
    }
    // The first round warms caches up.
    let (with, without) = (median(&with[1..]), median(&without[1..]));
    println!("  time of the machine per connection: {without:.2} us without, {with:.2} us with it (medians)");
    if let Some((time_ns, calls, connections)) = stats {
        println!(
            "  in the program: {:.0} ns per connection, of {} calls for {connections} connections, {:.0} ns a call",
            time_ns as f64 / connections as f64,
            calls,
            time_ns as f64 / calls as f64
        );
    }
    Ok(())
}

/// Connects, accepts and closes in turn on one thread, so that all the work is in this thread's time.
fn machine_us_per_connection(server: &TcpListener, address: SocketAddr) -> Outcome<f64> {
    let start = thread_time()?;
    for _ in 0..CONNECTIONS_A_ROUND {
        let client = TcpStream::connect(address)?;
        let (taken, _) = server.accept()?;
        // The side that closes first keeps the port for a minute: the server's is the same for all.
        drop(taken);
        drop(client);
    }
    Ok((thread_time()? - start).as_secs_f64() * 1e6 / CONNECTIONS_A_ROUND as f64)
}

fn thread_time() -> Outcome<Duration> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Ok(Duration::new(now.tv_sec.try_into()?, now.tv_nsec.try_into()?))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Time in ns and calls of the programs that this process has loaded, from their descriptors (bpf(2), fdinfo).
fn program_stats() -> Outcome<(u64, u64)> {
    let mut sum = (0, 0);
    for entry in fs::read_dir("/proc/self/fdinfo")? {
        // The directory's own descriptor is gone by the time it is read.
        let text = fs::read_to_string(entry?.path()).unwrap_or_default();
        let number = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
        };
        if let (Some(time), Some(calls)) = (number("run_time_ns:"), number("run_cnt:")) {
            sum = (sum.0 + time, sum.1 + calls);
        }
    }
    Ok(sum)
}

/// Clients that come faster than they are served, and every processor busy.
struct Overload {
    port: u16,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// Attempts made.
    attempts: Arc<AtomicU64>,
}

impl Overload {
    fn start() -> Outcome<Self> {
        let server = listener(64)?;
        server.set_nonblocking(true)?;
        let address = server.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let attempts = Arc::new(AtomicU64::new(0));
        let mut threads = vec![spawn(&stop, move || {
            // A queue that is empty is no error: there is nothing to take.
            drop(server.accept());
            thread::sleep(SLOW_ACCEPT);
        })];
        for _ in 0..2 {
            let attempts = attempts.clone();
            threads.push(spawn(&stop, move || {
                attempts.fetch_add(1, Ordering::Relaxed);
                // What is refused for want of room is what the overload consists in.
                drop(TcpStream::connect_timeout(&address, Duration::from_millis(2)));
            }));
        }
        for _ in 0..thread::available_parallelism()?.get() {
            threads.push(spawn(&stop, || {
                std::hint::black_box((0..100_000u64).fold(0, |sum: u64, i| sum.wrapping_mul(31) ^ i));
            }));
        }
        thread::sleep(Duration::from_millis(500));
        Ok(Self {
            port: address.port(),
            stop,
            threads,
            attempts,
        })
    }
}

fn spawn(stop: &Arc<AtomicBool>, mut work: impl FnMut() + Send + 'static) -> JoinHandle<()> {
    let stop = stop.clone();
    thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            work();
        }
    })
}

impl Drop for Overload {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic of its own was printed already.
            let _ = thread.join();
        }
    }
}

fn per_sample(load: &str, port: Option<u16>, overload: Option<Overload>) -> Outcome<()> {
    let quiet = listener(128)?;
    let port = match (&overload, port) {
        (Some(overload), _) => overload.port,
        (None, Some(port)) => port,
        (None, None) => quiet.local_addr()?.port(),
    };
    let mut options = QueueOptions::new(port);
    if let Ok(agent) = std::env::var("HEADROOM_SNMP") {
        options.snmp.agent = agent.parse()?;
    }
    if let Ok(page) = std::env::var("HEADROOM_STATUS") {
        options.status = Some(page.parse()?);
    }
    println!(
        "per sample, {load} machine, as fast as it goes for {} s each:",
        SAMPLING.as_secs()
    );
    println!("  method      samples/s   median us      p99 us   us of a processor");
    for (method, opened) in every(&options) {
        let mut meter = match opened {
            Ok(meter) => meter,
            Err(error) => {
                println!("  {:<8} not measured: {error}", method.to_string());
                continue;
            }
        };
        let mut times = Vec::new();
        let mut failed = 0;
        let cpu = own_and_childrens_time()?;
        let start = Instant::now();
        while start.elapsed() < SAMPLING {
            let begin = Instant::now();
            match meter.sample() {
                Ok(_) => times.push(begin.elapsed().as_secs_f64() * 1e6),
                Err(_) => failed += 1,
            }
        }
        let elapsed_s = start.elapsed().as_secs_f64();
        // Under overload this process's time is mostly the load's own.
        let cpu_us = match overload {
            None => format!(
                "{:.0}",
                (own_and_childrens_time()? - cpu) * 1e6 / times.len().max(1) as f64
            ),
            Some(_) => "-".into(),
        };
        times.sort_by(f64::total_cmp);
        let at = |share: f64| {
            times
                .get((times.len() as f64 * share) as usize)
                .copied()
                .unwrap_or(f64::NAN)
        };
        println!(
            "  {:<8} {:>12.0} {:>11.0} {:>11.0} {cpu_us:>19}{}",
            method.to_string(),
            times.len() as f64 / elapsed_s,
            at(0.5),
            at(0.99),
            match failed {
                0 => String::new(),
                failed => format!("   ({failed} failed)"),
            }
        );
    }
    if let Some(overload) = &overload {
        println!(
            "  ({} attempts to connect meanwhile)",
            overload.attempts.load(Ordering::Relaxed)
        );
    }
    Ok(())
}

/// In seconds, with the tools that were started and have ended (/proc/self/stat: utime, stime, cutime, cstime).
fn own_and_childrens_time() -> Outcome<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit_once(')').ok_or("/proc/self/stat has no name")?.1;
    let ticks: u64 = after_name
        .split_whitespace()
        .skip(11)
        .take(4)
        .map(str::parse::<u64>)
        .sum::<Result<_, _>>()?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}
