//! What the benches of the gateway share: servers that are stopped, one CPU each, load by wrk, CPU time by /proc.
#![allow(dead_code)]

use std::error::Error;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A child that is stopped when dropped.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself; there is nothing else to do about it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the product does with its log: warnings and errors. Without anybody who takes it, each span of a library costs more than one that
/// nobody wants.
pub fn log() {
    use tracing_subscriber::filter::{LevelFilter, Targets};
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::util::SubscriberInitExt;
    let wanted = Targets::new().with_default(LevelFilter::WARN);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    tracing_subscriber::registry().with(wanted).with(lines).init();
}

/// Refuses to begin without these tools.
pub fn missing(name: &str, tools: &[&str], apt: &str) -> Result<()> {
    let absent: Vec<&str> = tools
        .iter()
        .copied()
        .filter(|tool| find(tool).is_none())
        .collect();
    match absent.is_empty() {
        true => Ok(()),
        false => Err(format!("{name} needs {}: run `{apt}`", absent.join(", ")).into()),
    }
}

/// The CPU of what is measured, and that of the load and the backend.
pub fn cpus() -> Result<(&'static str, &'static str)> {
    let several = std::thread::available_parallelism()?.get() > 1;
    Ok(if several { ("0", "1") } else { ("0", "0") })
}

pub fn setting(name: &str, default: u64) -> Result<u64> {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .map_err(|_| format!("{name} = {text}: a whole number is expected").into()),
        Err(_) => Ok(default),
    }
}

/// Least, median, greatest.
pub fn spread(values: &[f64]) -> (f64, f64, f64) {
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
pub fn on_cpu(cpu: &str, tool: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", cpu]).arg(tool);
    command
}

pub fn installed(tool: &str) -> Result<PathBuf> {
    find(tool).ok_or_else(|| format!("{tool} is not installed").into())
}

pub fn free_port() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

pub fn wait_for(address: SocketAddr) -> Result<()> {
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
pub fn load(address: SocketAddr, seconds: u64, cpu: &str) -> Result<u64> {
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
pub fn cpu_time(pid: u32) -> Result<Duration> {
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

pub fn nginx(directory: &Path, name: &str, cpu: &str, http: &str) -> Result<Running> {
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
