//! CPU time per proxied request: this gateway, HAProxy and nginx, side by side in one run.
//!
//! Each proxy is its own process with one thread and no access log, keep-alive on both sides; behind all of
//! them stands one nginx that answers 100 bytes, before them `wrk -t1 -c32`. The proxies run in turn, round
//! after round, so that a slow minute of the machine meets all three. CPU time is user plus system time of the
//! proxy's process from `/proc/PID/stat` over the seconds of load, divided by the requests wrk counted.
//!
//! The gateway runs with its defaults: X-Forwarded-For, -Proto and -Host, Via, all timeouts, histograms on.
//! HAProxy and nginx add no header; that is the harder comparison.
//!
//! `BENCH_ROUNDS` (default 5) and `BENCH_SECONDS` (default 4) change the length.

use std::error::Error;
use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use headroom_gateway::{BackendConfig, Gateway, GatewayConfig};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const APT: &str = "apt-get install --no-install-recommends haproxy nginx-light wrk util-linux";

/// A child that is stopped when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself; there is nothing else to do about it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("gateway") => serve(&arguments[2], &arguments[3]),
        _ => bench(),
    }
}

/// The gateway as a process of its own: runs until it is killed.
fn serve(listen: &str, backend: &str) -> Result<()> {
    let _gateway = Gateway::start(GatewayConfig {
        listen: vec![listen.parse()?],
        backends: vec![BackendConfig::new(backend)],
        threads: 1,
        ..GatewayConfig::default()
    })?;
    loop {
        std::thread::park();
    }
}

fn setting(name: &str, default: u64) -> Result<u64> {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .map_err(|_| format!("{name} = {text}: a whole number is expected").into()),
        Err(_) => Ok(default),
    }
}

fn bench() -> Result<()> {
    let absent: Vec<&str> = ["haproxy", "nginx", "wrk", "taskset"]
        .into_iter()
        .filter(|tool| find(tool).is_none())
        .collect();
    if !absent.is_empty() {
        return Err(format!("bench-gateway needs {}: run `{APT}`", absent.join(", ")).into());
    }
    let (rounds, seconds) = (setting("BENCH_ROUNDS", 5)?, setting("BENCH_SECONDS", 4)?);
    let directory = tempfile::tempdir()?;
    let backend = free_port()?;
    // The proxy has a CPU of its own; the load and the backend share the other.
    let several = std::thread::available_parallelism()?.get() > 1;
    let (proxy_cpu, other_cpu) = if several { ("0", "1") } else { ("0", "0") };
    let _backend = nginx(directory.path(), "backend", other_cpu, &backend_config(backend))?;
    wait_for(backend)?;

    let addresses = [free_port()?, free_port()?, free_port()?];
    let gateway = on_cpu(proxy_cpu, &std::env::current_exe()?)
        .args(["gateway", &addresses[0].to_string(), &format!("http://{backend}")])
        .spawn()
        .map(Running)?;
    let haproxy_config = directory.path().join("haproxy.cfg");
    std::fs::write(&haproxy_config, haproxy_text(addresses[1], backend))?;
    let haproxy = on_cpu(proxy_cpu, &installed("haproxy")?)
        .args(["-db", "-q", "-f"])
        .arg(&haproxy_config)
        .spawn()
        .map(Running)?;
    let nginx = nginx(
        directory.path(),
        "proxy",
        proxy_cpu,
        &proxy_config(addresses[2], backend),
    )?;
    let proxies = [("headroom", &gateway), ("haproxy", &haproxy), ("nginx", &nginx)];
    for address in addresses {
        wait_for(address)?;
    }

    let mut cpu_us = [vec![], vec![], vec![]];
    let mut rates = [vec![], vec![], vec![]];
    for (index, address) in addresses.iter().enumerate() {
        load(*address, 1, other_cpu).map_err(|error| format!("{}: {error}", proxies[index].0))?;
    }
    for round in 1..=rounds {
        for turn in 0..proxies.len() {
            // The order rotates, so that nobody always comes first.
            let index = (turn + round as usize) % proxies.len();
            let before = cpu_time(proxies[index].1.0.id())?;
            let requests = load(addresses[index], seconds, other_cpu)?;
            let used = cpu_time(proxies[index].1.0.id())? - before;
            cpu_us[index].push(used.as_secs_f64() * 1e6 / requests as f64);
            rates[index].push(requests as f64 / seconds as f64);
        }
        eprintln!(
            "round {round}/{rounds}: CPU µs per request: headroom {:.1}, haproxy {:.1}, nginx {:.1}",
            cpu_us[0][round as usize - 1],
            cpu_us[1][round as usize - 1],
            cpu_us[2][round as usize - 1],
        );
    }
    println!("{}", table(&proxies.map(|(name, _)| name), &cpu_us, &rates));
    Ok(())
}

fn table(names: &[&str; 3], cpu_us: &[Vec<f64>; 3], rates: &[Vec<f64>; 3]) -> String {
    let mut text = String::from(
        "proxy      CPU µs/request  min   median    max   requests/s (median)   ratio to haproxy (median by round)\n",
    );
    for (index, name) in names.iter().enumerate() {
        let by_round: Vec<f64> = cpu_us[index]
            .iter()
            .zip(&cpu_us[1])
            .map(|(ours, theirs)| ours / theirs)
            .collect();
        let (low, middle, high) = spread(&cpu_us[index]);
        let (rate, ratio) = (spread(&rates[index]).1, spread(&by_round).1);
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{name:<10} {low:>20.2} {middle:>8.2} {high:>6.2} {rate:>21.0} {ratio:>36.3}"
        );
    }
    text
}

/// Least, median, greatest.
fn spread(values: &[f64]) -> (f64, f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        (sorted[middle - 1] + sorted[middle]) / 2.0
    };
    (sorted[0], median, sorted[sorted.len() - 1])
}

/// Where a tool is; Debian keeps servers in /usr/sbin, which is not in everybody's PATH.
fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin")])
        .map(|directory| directory.join(tool))
        .find(|path| path.is_file())
}

/// A command that runs a tool on one CPU.
fn on_cpu(cpu: &str, tool: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", cpu]).arg(tool);
    command
}

fn installed(tool: &str) -> Result<PathBuf> {
    find(tool).ok_or_else(|| format!("{tool} is not installed: run `{APT}`").into())
}

fn free_port() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

fn wait_for(address: SocketAddr) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(5);
    while TcpStream::connect(address).is_err() {
        if Instant::now() > until {
            return Err(format!("nothing listens on {address} after 5 s").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Runs wrk and gives the requests it completed; a response that is not 2xx is an error.
fn load(address: SocketAddr, seconds: u64, cpu: &str) -> Result<u64> {
    let output = on_cpu(cpu, &installed("wrk")?)
        .args([
            "-t1",
            "-c32",
            &format!("-d{seconds}s"),
            &format!("http://{address}/"),
        ])
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    if text.contains("Non-2xx") || text.contains("Socket errors") {
        return Err(format!("wrk saw errors from {address}:\n{text}").into());
    }
    let requests = text
        .lines()
        .find_map(|line| line.trim().split_once(" requests in "))
        .map(|(count, _)| count);
    Ok(requests
        .ok_or_else(|| format!("wrk did not say how many requests it made:\n{text}"))?
        .parse()?)
}

/// User and system time of a process, all its threads.
fn cpu_time(pid: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .ok_or("the process's stat has no name")?
        .1
        .split_whitespace()
        .collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    // USER_HZ is 100 on every Linux architecture Rust supports.
    Ok(Duration::from_millis(ticks * 10))
}

fn nginx(directory: &Path, name: &str, cpu: &str, http: &str) -> Result<Running> {
    let prefix = directory.join(name);
    std::fs::create_dir(&prefix)?;
    let config = prefix.join("nginx.conf");
    let text = format!(
        "daemon off;\nmaster_process off;\nworker_processes 1;\npid {prefix}/pid;\nerror_log stderr crit;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n access_log off;\n keepalive_requests 100000000;\n keepalive_timeout 75s;\n \
         client_body_temp_path {prefix}/body;\n proxy_temp_path {prefix}/proxy;\n fastcgi_temp_path {prefix}/f;\n \
         uwsgi_temp_path {prefix}/u;\n scgi_temp_path {prefix}/s;\n{http}\n}}\n",
        prefix = prefix.display(),
    );
    std::fs::write(&config, text)?;
    let child = on_cpu(cpu, &installed("nginx")?).arg("-c").arg(&config).spawn()?;
    Ok(Running(child))
}

fn backend_config(listen: SocketAddr) -> String {
    format!(
        " server {{ listen {listen}; location / {{ default_type text/plain; return 200 \"{}\"; }} }}",
        "x".repeat(100)
    )
}

fn proxy_config(listen: SocketAddr, backend: SocketAddr) -> String {
    format!(
        " upstream b {{ server {backend}; keepalive 64; keepalive_requests 100000000; }}\n \
         server {{ listen {listen}; location / {{ proxy_pass http://b; proxy_http_version 1.1; \
         proxy_set_header Connection \"\"; }} }}"
    )
}

fn haproxy_text(listen: SocketAddr, backend: SocketAddr) -> String {
    format!(
        "global\n nbthread 1\n maxconn 4096\ndefaults\n mode http\n option http-keep-alive\n http-reuse always\n \
         timeout connect 1s\n timeout client 75s\n timeout server 60s\n timeout http-request 10s\n\
         frontend f\n bind {listen}\n default_backend b\nbackend b\n server s {backend}\n"
    )
}
