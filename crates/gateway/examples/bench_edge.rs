//! What an edge costs beside its requests: this gateway and HAProxy, side by side in one run.
//!
//! Each proxy is its own process with one thread on one CPU, in front of one nginx on the other:
//!
//! - **TLS**: `wrk -t1 -c32` over kept connections; **HTTP/2 over TLS**: `h2load`, 8 connections of 8 streams, both 100 bytes an answer;
//!   CPU time of the proxy for each request, rounds in turn.
//! - **Idle**: 5,000 connections that had one answer each; resident memory of the proxy, 5 s later.
//! - **Streams**: 2 GiB in one answer, read as fast as it comes; rate, and CPU time of the proxy for each GiB.
//!
//! `BENCH_ROUNDS` (default 3) and `BENCH_SECONDS` (default 3) change the length, `BENCH_IDLE` the number of idle connections.

#[path = "bench/mod.rs"]
mod bench;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use bench::{
    Result, Running, cpu_time, cpus, free_port, installed, missing, nginx, on_cpu, setting, spread, wait_for,
};
use headroom_gateway::{BackendConfig, Gateway, GatewayConfig, TlsListenConfig};

const APT: &str = "apt-get install --no-install-recommends haproxy nginx-light wrk nghttp2-client util-linux";

/// Bytes of the large answer.
const STREAM_BYTES: u64 = 2 << 30;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("gateway") => serve(&arguments[2..]),
        _ => measure(),
    }
}

/// The gateway as a process of its own: runs until it is killed.
fn serve(arguments: &[String]) -> Result<()> {
    let [listen, tls, folder, backend] = arguments else {
        return Err("it is started by the bench".into());
    };
    let folder = Path::new(folder);
    bench::log();
    let _gateway = Gateway::start(GatewayConfig {
        listen: vec![listen.parse()?],
        tls: vec![TlsListenConfig::new(
            tls.parse()?,
            folder.join("cert.pem"),
            folder.join("key.pem"),
        )],
        backends: vec![BackendConfig::new(backend)],
        threads: 1,
        ..GatewayConfig::default()
    })?;
    loop {
        std::thread::park();
    }
}

struct Proxy {
    name: &'static str,
    process: Running,
    plain: SocketAddr,
    tls: SocketAddr,
}

impl Proxy {
    fn pid(&self) -> u32 {
        self.process.0.id()
    }
}

fn measure() -> Result<()> {
    missing(
        "bench-edge",
        &["haproxy", "nginx", "wrk", "h2load", "taskset"],
        APT,
    )?;
    let (rounds, seconds) = (setting("BENCH_ROUNDS", 3)?, setting("BENCH_SECONDS", 3)?);
    let idle = setting("BENCH_IDLE", 5_000)?;
    raise_limit()?;
    let directory = tempfile::tempdir()?;
    let folder = directory.path();
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let (certificate, key) = (certified.cert.pem(), certified.signing_key.serialize_pem());
    std::fs::write(folder.join("cert.pem"), &certificate)?;
    std::fs::write(folder.join("key.pem"), &key)?;
    std::fs::write(folder.join("both.pem"), certificate + &key)?;
    // A hole: nothing is read from a disk.
    std::fs::File::create(folder.join("large"))?.set_len(STREAM_BYTES)?;
    let (proxy_cpu, other_cpu) = cpus()?;
    let backend = free_port()?;
    let _backend = nginx(folder, "backend", other_cpu, &backend_text(backend, folder))?;
    wait_for(backend)?;
    let proxies = [
        ours(proxy_cpu, folder, backend)?,
        haproxy(proxy_cpu, folder, backend)?,
    ];
    for proxy in &proxies {
        wait_for(proxy.plain)?;
        wait_for(proxy.tls)?;
    }
    println!(
        "{:<28} {:>12} {:>12} {:>8}",
        "", proxies[0].name, proxies[1].name, "ratio"
    );
    let https = |address: SocketAddr| wrk(address, seconds, other_cpu);
    alternate("TLS, CPU µs/request", &proxies, rounds, https)?;
    let http2 = |address: SocketAddr| h2load(address, seconds, other_cpu);
    alternate("HTTP/2 over TLS, CPU µs/req.", &proxies, rounds, http2)?;
    stream(&proxies, rounds)?;
    idle_memory(&proxies, idle)
}

/// CPU time for each request of a load that is put on each in turn.
fn alternate(
    what: &str,
    proxies: &[Proxy; 2],
    rounds: u64,
    load: impl Fn(SocketAddr) -> Result<u64>,
) -> Result<()> {
    let mut cpu_us = [vec![], vec![]];
    for proxy in proxies {
        load(proxy.tls)?;
    }
    for round in 0..rounds {
        for turn in 0..2 {
            let index = (turn + round as usize) % 2;
            let before = cpu_time(proxies[index].pid())?;
            let requests = load(proxies[index].tls)?;
            let used = cpu_time(proxies[index].pid())? - before;
            cpu_us[index].push(used.as_secs_f64() * 1e6 / requests as f64);
        }
    }
    row(what, &cpu_us, 2);
    Ok(())
}

fn row(what: &str, values: &[Vec<f64>; 2], digits: usize) {
    let ratios: Vec<f64> = values[0]
        .iter()
        .zip(&values[1])
        .map(|(one, other)| one / other)
        .collect();
    let (ours, theirs) = (spread(&values[0]).1, spread(&values[1]).1);
    println!(
        "{what:<28} {ours:>12.digits$} {theirs:>12.digits$} {:>8.3}",
        spread(&ratios).1
    );
}

/// A large answer through each in turn.
fn stream(proxies: &[Proxy; 2], rounds: u64) -> Result<()> {
    let (mut rates, mut cpu_ms) = ([vec![], vec![]], [vec![], vec![]]);
    for round in 0..rounds {
        for turn in 0..2 {
            let index = (turn + round as usize) % 2;
            let before = cpu_time(proxies[index].pid())?;
            let begun = Instant::now();
            let bytes = download(proxies[index].plain)?;
            let took = begun.elapsed().as_secs_f64();
            let used = cpu_time(proxies[index].pid())? - before;
            let gib = bytes as f64 / f64::from(1 << 30);
            rates[index].push(gib / took);
            cpu_ms[index].push(used.as_secs_f64() * 1e3 / gib);
        }
    }
    row("2 GiB stream, GiB/s", &rates, 2);
    row("2 GiB stream, CPU ms/GiB", &cpu_ms, 0);
    Ok(())
}

fn download(address: SocketAddr) -> Result<u64> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
    let (mut buffer, mut total) = (vec![0; 256 * 1024], 0);
    loop {
        match stream.read(&mut buffer)? {
            0 if total > STREAM_BYTES => return Ok(total),
            0 => return Err(format!("{address} sent {total} bytes").into()),
            read => total += read as u64,
        }
    }
}

/// Memory with many connections that wait for their next request.
fn idle_memory(proxies: &[Proxy; 2], idle: u64) -> Result<()> {
    let mut grown = [0.0; 2];
    let mut whole = [0.0; 2];
    for (index, proxy) in proxies.iter().enumerate() {
        let before = resident(proxy.pid())?;
        let mut connections = Vec::new();
        for _ in 0..idle {
            let mut stream = TcpStream::connect(proxy.plain)?;
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")?;
            let mut buffer = [0; 1024];
            let read = stream.read(&mut buffer)?;
            if !buffer[..read].starts_with(b"HTTP/1.1 200") {
                return Err(format!("{} did not answer a connection that was to be idle", proxy.name).into());
            }
            connections.push(stream);
        }
        std::thread::sleep(Duration::from_secs(5));
        whole[index] = resident(proxy.pid())?;
        grown[index] = whole[index] - before;
    }
    row(
        &format!("{idle} idle, MB resident"),
        &whole.map(|value| vec![value]),
        1,
    );
    row("  of these for them", &grown.map(|value| vec![value]), 1);
    Ok(())
}

/// Resident memory of a process, megabytes.
fn resident(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(kilobytes
        .ok_or("the process's status has no VmRSS")?
        .parse::<f64>()?
        / 1e3)
}

/// As many descriptors as may be had: there is one for each idle connection, here and in the proxies.
fn raise_limit() -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: now.maximum,
            maximum: now.maximum,
        },
    )?;
    Ok(())
}

fn wrk(address: SocketAddr, seconds: u64, cpu: &str) -> Result<u64> {
    let output = on_cpu(cpu, &installed("wrk")?)
        .args([
            "-t1",
            "-c32",
            &format!("-d{seconds}s"),
            &format!("https://{address}/"),
        ])
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let requests = text
        .lines()
        .find_map(|line| line.trim().split_once(" requests in "));
    match requests {
        Some((count, _)) if !text.contains("Non-2xx") => Ok(count.parse()?),
        _ => Err(format!("wrk at {address}:\n{text}").into()),
    }
}

fn h2load(address: SocketAddr, seconds: u64, cpu: &str) -> Result<u64> {
    let output = on_cpu(cpu, &installed("h2load")?)
        .args([
            "-c8",
            "-m8",
            "-D",
            &seconds.to_string(),
            &format!("https://{address}/"),
        ])
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let succeeded = text
        .lines()
        .find_map(|line| line.strip_prefix("requests: "))
        .and_then(|counts| {
            counts
                .split(", ")
                .find_map(|count| count.strip_suffix(" succeeded"))
        });
    match succeeded {
        Some(count) if text.contains("protocol: h2") => Ok(count.parse()?),
        _ => Err(format!("h2load at {address}:\n{text}").into()),
    }
}

fn ours(cpu: &str, folder: &Path, backend: SocketAddr) -> Result<Proxy> {
    let (plain, tls) = (free_port()?, free_port()?);
    let process = on_cpu(cpu, &std::env::current_exe()?)
        .args(["gateway", &plain.to_string(), &tls.to_string()])
        .arg(folder)
        .arg(format!("http://{backend}"))
        .spawn()
        .map(Running)?;
    Ok(Proxy {
        name: "headroom",
        process,
        plain,
        tls,
    })
}

fn haproxy(cpu: &str, folder: &Path, backend: SocketAddr) -> Result<Proxy> {
    let (plain, tls) = (free_port()?, free_port()?);
    let config = folder.join("haproxy.cfg");
    std::fs::write(
        &config,
        format!(
            "global\n nbthread 1\n maxconn 8000\ndefaults\n mode http\n option http-keep-alive\n http-reuse always\n \
             timeout connect 1s\n timeout client 75s\n timeout server 60s\n timeout http-request 10s\n\
             frontend f\n bind {plain}\n bind {tls} ssl crt {} alpn h2,http/1.1\n default_backend b\nbackend b\n server s {backend}\n",
            folder.join("both.pem").display()
        ),
    )?;
    let process = on_cpu(cpu, &installed("haproxy")?)
        .args(["-db", "-q", "-f"])
        .arg(&config)
        .spawn()
        .map(Running)?;
    Ok(Proxy {
        name: "haproxy",
        process,
        plain,
        tls,
    })
}

fn backend_text(listen: SocketAddr, folder: &Path) -> String {
    format!(
        " server {{ listen {listen}; sendfile on; location / {{ default_type text/plain; return 200 \"{}\"; }} \
         location /large {{ root {}; }} }}",
        "x".repeat(100),
        folder.display()
    )
}
