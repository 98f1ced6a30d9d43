//! CPU time per answer from memory: this gateway's cache, nginx's and Varnish's, side by side in one run.
//!
//! Each is its own process on a CPU of its own, one worker (Varnish has threads, of one pool), no access log, keep-alive; behind all of
//! them one nginx whose answers may be kept for an hour, before them `wrk -t1 -c32` for one of them. They run in turn, round after round,
//! so that a slow minute of the machine meets all. CPU time is user plus system time of the process and those that it started, from
//! `/proc`, over the seconds of load, divided by the requests that wrk counted. That they are hits is checked: the backend must have
//! been asked once each.
//!
//! The gateway runs with its defaults: all timeouts, histograms, Age and Cache-Status on each answer. nginx keeps its cache on a disk that
//! is in memory (/dev/shm), Varnish in memory.
//!
//! `BENCH_ROUNDS` (default 5), `BENCH_SECONDS` (default 4) and `BENCH_BYTES` (default 100, the size of the answer) change it.

#[path = "bench/mod.rs"]
mod bench;

use std::net::SocketAddr;
use std::time::Duration;

use bench::{
    Result, Running, cpus, free_port, installed, load, missing, nginx, on_cpu, setting, spread, wait_for,
};
use headroom_gateway::{BackendConfig, CacheConfig, CachePolicy, Gateway, GatewayConfig};

const APT: &str = "apt-get install --no-install-recommends nginx-light varnish wrk util-linux";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("gateway") => serve(&arguments[2], &arguments[3], &arguments[4]),
        _ => measure(),
    }
}

/// The gateway as a process of its own: runs until it is killed.
fn serve(listen: &str, backend: &str, policy: &str) -> Result<()> {
    bench::log();
    let _gateway = Gateway::start(GatewayConfig {
        listen: vec![listen.parse()?],
        backends: vec![BackendConfig::new(backend)],
        threads: 1,
        cache: CacheConfig {
            bytes: 64 << 20,
            policy: match policy {
                "lru" => CachePolicy::Lru,
                _ => CachePolicy::S3Fifo,
            },
            ..CacheConfig::default()
        },
        ..GatewayConfig::default()
    })?;
    loop {
        std::thread::park();
    }
}

fn measure() -> Result<()> {
    missing("bench-cache", &["nginx", "varnishd", "wrk", "taskset"], APT)?;
    let (rounds, seconds) = (setting("BENCH_ROUNDS", 5)?, setting("BENCH_SECONDS", 4)?);
    let bytes = usize::try_from(setting("BENCH_BYTES", 100)?)?;
    let directory = tempfile::tempdir_in("/dev/shm")?;
    let (cpu, other_cpu) = cpus()?;
    let backend = free_port()?;
    let log = directory.path().join("asked.log");
    std::fs::write(directory.path().join("body"), "x".repeat(bytes))?;
    let text = format!(
        " server {{ listen {backend}; access_log {}; root {}; location / {{ default_type text/plain; \
         add_header Cache-Control max-age=3600; try_files /body =404; }} }}",
        log.display(),
        directory.path().display()
    );
    let _backend = nginx(directory.path(), "backend", other_cpu, &text)?;
    wait_for(backend)?;

    let names = ["headroom s3_fifo", "headroom lru", "nginx", "varnish"];
    let addresses: Vec<SocketAddr> = names.iter().map(|_| free_port()).collect::<Result<_>>()?;
    let gateway = |address: SocketAddr, policy: &str| -> Result<Running> {
        let child = on_cpu(cpu, &std::env::current_exe()?)
            .args([
                "gateway",
                &address.to_string(),
                &format!("http://{backend}"),
                policy,
            ])
            .spawn()?;
        Ok(Running(child))
    };
    let cached = format!(
        " proxy_cache_path {0}/cache keys_zone=c:8m max_size=64m;\n upstream b {{ server {backend}; keepalive 64; }}\n \
         server {{ listen {1}; location / {{ proxy_pass http://b; proxy_http_version 1.1; proxy_set_header Connection \"\"; \
         proxy_cache c; add_header X-Cache $upstream_cache_status; }} }}",
        directory.path().display(),
        addresses[2]
    );
    let vcl = directory.path().join("varnish.vcl");
    std::fs::write(
        &vcl,
        format!(
            "vcl 4.0; backend default {{ .host = \"{}\"; .port = \"{}\"; }}",
            backend.ip(),
            backend.port()
        ),
    )?;
    let varnish = on_cpu(cpu, &installed("varnishd")?)
        .args([
            "-F",
            "-j",
            "none",
            "-p",
            "thread_pools=1",
            "-s",
            "malloc,64M",
            "-n",
        ])
        .arg(directory.path().join("varnish"))
        .args(["-a", &addresses[3].to_string(), "-f"])
        .arg(&vcl)
        .spawn()
        .map(Running)?;
    let caches = [
        gateway(addresses[0], "s3_fifo")?,
        gateway(addresses[1], "lru")?,
        nginx(directory.path(), "cache", cpu, &cached)?,
        varnish,
    ];
    for (address, name) in addresses.iter().zip(names) {
        wait_for(*address)?;
        load(*address, 1, other_cpu).map_err(|error| format!("{name}: {error}"))?;
    }

    let mut cpu_us = vec![Vec::new(); names.len()];
    let mut rates = vec![Vec::new(); names.len()];
    for round in 0..rounds as usize {
        for turn in 0..names.len() {
            // The order rotates, so that nobody always comes first.
            let index = (turn + round) % names.len();
            let before = family_time(caches[index].0.id())?;
            let requests = load(addresses[index], seconds, other_cpu)?;
            let used = family_time(caches[index].0.id())? - before;
            cpu_us[index].push(used.as_secs_f64() * 1e6 / requests as f64);
            rates[index].push(requests as f64 / seconds as f64);
        }
        eprintln!("round {} of {rounds}", round + 1);
    }
    let asked = std::fs::read_to_string(&log)?.lines().count();
    if asked > names.len() * 40 {
        return Err(format!("the backend was asked {asked} times: these were not hits").into());
    }
    println!("{bytes} bytes; the backend was asked {asked} times in all");
    println!(
        "cache              CPU µs/hit  min   median    max   hits/s (median)   ratio to nginx, to varnish (median by round)"
    );
    for (index, name) in names.iter().enumerate() {
        let ratio = |to: usize| {
            let by_round = cpu_us[index]
                .iter()
                .zip(&cpu_us[to])
                .map(|(ours, theirs)| ours / theirs);
            spread(&by_round.collect::<Vec<_>>()).1
        };
        let (low, middle, high) = spread(&cpu_us[index]);
        let rate = spread(&rates[index]).1;
        println!(
            "{name:<18} {low:>15.2} {middle:>8.2} {high:>6.2} {rate:>17.0} {:>16.3} {:>12.3}",
            ratio(2),
            ratio(3)
        );
    }
    Ok(())
}

/// User and system time of a process and of those that it started.
fn family_time(pid: u32) -> Result<Duration> {
    let mut total = bench::cpu_time(pid)?;
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    for child in children.split_whitespace() {
        total += family_time(child.parse()?)?;
    }
    Ok(total)
}
