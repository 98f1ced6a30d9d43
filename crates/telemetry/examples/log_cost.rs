//! What reading HAProxy's log costs: `cargo run --release -p headroom-telemetry --example log_cost`.
//!
//! Parsing alone, then the whole way of a line (syslog header, parsing, tally) from a file and over UDP, as CPU time
//! of the reader's thread. Everything stays on loopback and in a temporary folder.

use headroom_telemetry::Source;
use headroom_telemetry::haproxy::{HaproxyConfig, HaproxyTelemetry, LogFormat, LogSource};
use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::io::Write;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// Lines of each of the two long measurements.
const LINES: usize = 400_000;

/// Lines sent each millisecond over UDP.
const BURST: usize = 20;

const JSON: &str = r#"{"t":"%tr","ms":%Ta,"st":%ST,"ts":"%tsc","b":"%b","s":"%s","r":%{+Q}r}"#;

fn main() -> Result<(), Box<dyn Error>> {
    let lines: Vec<String> = (0..1000).map(line).collect();
    let json: Vec<String> = (0..1000)
        .map(|number| {
            format!(
                r#"{{"t":"06/Feb/2009:12:14:14.{:03}","ms":{number},"st":200,"ts":"----","b":"app","s":"s{}","r":"GET / HTTP/1.1"}}"#,
                number % 1000,
                number % 8
            )
        })
        .collect();
    parse("option httplog", &LogFormat::httplog(), &lines);
    parse("JSON", &LogFormat::compile(JSON)?, &json);

    let folder = tempfile::tempdir()?;
    let path = folder.path().join("haproxy.log");
    fs::write(&path, "")?;
    let mut telemetry = start(LogSource::File(path.clone()))?;
    let before_ns = reader_cpu_ns()?;
    let mut file = fs::OpenOptions::new().append(true).open(&path)?;
    for chunk in 0..LINES / 1000 {
        let text: String = lines
            .iter()
            .map(|line| format!("Feb  6 12:14:14 lb haproxy[{chunk}]: {line}\n"))
            .collect();
        file.write_all(text.as_bytes())?;
    }
    let read = wait(&mut telemetry, LINES as u64);
    report("file", read, reader_cpu_ns()? - before_ns, 0);
    drop(telemetry);

    let mut telemetry = start(LogSource::Udp("127.0.0.1:0".parse()?))?;
    let to = telemetry.local_address().ok_or("no UDP address")?;
    let sender = UdpSocket::bind("127.0.0.1:0")?;
    let before_ns = reader_cpu_ns()?;
    let begun = Instant::now();
    for burst in 0..LINES / BURST {
        for number in 0..BURST {
            let text = format!(
                "<134>Feb  6 12:14:14 haproxy[1]: {}",
                lines[(burst * BURST + number) % lines.len()]
            );
            sender.send_to(text.as_bytes(), to)?;
        }
        let due = begun + Duration::from_millis(burst as u64 + 1);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    let mut dropped = 0;
    let mut read = 0;
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(200));
        let period = telemetry.take_period(Duration::ZERO);
        read += period.completions;
        dropped += period.dropped.unwrap_or(0);
    }
    println!(
        "UDP: {:.0} lines/s sent",
        LINES as f64 / begun.elapsed().as_secs_f64()
    );
    report("UDP", read, reader_cpu_ns()? - before_ns, dropped);
    Ok(())
}

fn line(number: usize) -> String {
    format!(
        "10.0.{}.{}:{} [06/Feb/2009:12:14:14.{:03}] http-in~ app/s{} 0/0/1/{number}/{number} 200 {} - - ---- \
         120/118/20/5/0 0/0 {{www.example.org|Mozilla/5.0}} \"GET /wiki/Page_{number}?action=view HTTP/1.1\"",
        number % 256,
        number % 251,
        30_000 + number,
        number % 1000,
        number % 8,
        number * 37
    )
}

fn start(source: LogSource) -> Result<HaproxyTelemetry, Box<dyn Error>> {
    let mut config = HaproxyConfig::new(source);
    config.late_after = Duration::from_secs(3600);
    let telemetry = HaproxyTelemetry::start(config)?;
    // The thread gives itself its name, by which its CPU time is found.
    std::thread::sleep(Duration::from_millis(100));
    Ok(telemetry)
}

/// Parses for a second.
fn parse(name: &str, format: &LogFormat, lines: &[String]) {
    let begun = Instant::now();
    let mut parsed = 0_u64;
    while begun.elapsed() < Duration::from_secs(1) {
        for line in lines {
            parsed += u64::from(black_box(format.parse(black_box(line.as_bytes()))).is_ok());
        }
    }
    let took = begun.elapsed().as_secs_f64();
    println!(
        "parsing alone, {name}: {:.0} lines/s on one core, {:.0} ns each",
        parsed as f64 / took,
        took * 1e9 / parsed as f64
    );
}

/// Takes periods until so many lines have been read, for 20 s at most.
fn wait(telemetry: &mut HaproxyTelemetry, lines: u64) -> u64 {
    let give_up = Instant::now() + Duration::from_secs(20);
    let mut read = 0;
    while read < lines && Instant::now() < give_up {
        std::thread::sleep(Duration::from_millis(20));
        read += telemetry.take_period(Duration::ZERO).completions;
    }
    read
}

fn report(name: &str, lines: u64, cpu_ns: u64, dropped: u64) {
    let each_ns = cpu_ns as f64 / lines as f64;
    println!(
        "{name}, header and tally included: {each_ns:.0} ns of CPU a line, {:.0} lines/s on one core ({lines} lines, \
         {dropped} dropped)",
        1e9 / each_ns
    );
}

/// CPU time so far of the thread that reads the log.
fn reader_cpu_ns() -> Result<u64, Box<dyn Error>> {
    for task in fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        if fs::read_to_string(task.join("comm"))?.trim() == "headroom-log" {
            let statistics = fs::read_to_string(task.join("schedstat"))?;
            let on_cpu = statistics.split_whitespace().next().ok_or("schedstat is empty")?;
            return Ok(on_cpu.parse()?);
        }
    }
    Err("the reader's thread is not there".into())
}
