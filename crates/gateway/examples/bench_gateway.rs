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

#[path = "bench/mod.rs"]
mod bench;

use std::fmt::Write as _;
use std::net::SocketAddr;

use bench::{
    Result, Running, cpu_time, cpus, free_port, installed, load, missing, nginx, on_cpu, setting, spread,
    wait_for,
};
use headroom_gateway::{BackendConfig, Gateway, GatewayConfig};

const APT: &str = "apt-get install --no-install-recommends haproxy nginx-light wrk util-linux";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("gateway") => serve(&arguments[2], &arguments[3]),
        _ => measure(),
    }
}

/// The gateway as a process of its own: runs until it is killed.
fn serve(listen: &str, backend: &str) -> Result<()> {
    bench::log();
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

fn measure() -> Result<()> {
    missing("bench-gateway", &["haproxy", "nginx", "wrk", "taskset"], APT)?;
    let (rounds, seconds) = (setting("BENCH_ROUNDS", 5)?, setting("BENCH_SECONDS", 4)?);
    let directory = tempfile::tempdir()?;
    let backend = free_port()?;
    let (proxy_cpu, other_cpu) = cpus()?;
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
