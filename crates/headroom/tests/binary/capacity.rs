//! `headroom capacity` on real sockets: what it finds, and what it says where there is nothing to find.

use super::common::{
    Program, bare as headroom, copy_headroom, ended as run, free_port, root_or_skipped, until,
};
use super::listener::listener;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A server of a few worker threads, each occupied for as long as a request takes.
struct Workers {
    served: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    port: u16,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    fn start(port: u16, limit: i32, workers: usize, takes: Duration) -> Self {
        let listener = Arc::new(listener(port, limit));
        let (served, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let work = || {
            let (listener, served, stop) = (listener.clone(), served.clone(), stop.clone());
            std::thread::spawn(move || {
                while let Ok((mut stream, _)) = listener.accept() {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let mut request = [0; 2048];
                    // A client whose last word was dropped with the queue full says it again only much later.
                    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
                    let _ = stream.read(&mut request);
                    std::thread::sleep(takes);
                    let _ = stream
                        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
                    served.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let threads = (0..workers).map(|_| work()).collect();
        Self {
            served,
            stop,
            port,
            threads,
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        while self.threads.iter().any(|thread| !thread.is_finished()) {
            let address = (Ipv4Addr::LOCALHOST, self.port).into();
            let _ = TcpStream::connect_timeout(&address, Duration::from_millis(50));
        }
    }
}

/// The command on a port, its record in this folder.
fn capacity(port: u16, dir: &Path, args: &[&str]) -> Command {
    let mut command = headroom();
    command
        .args(["capacity", "--json", "--port", &port.to_string()])
        .args(args);
    command.arg("--db").arg(dir.join("capacity.db"));
    command
}

/// The report of the run that was recorded in this folder.
fn report(dir: &Path) -> String {
    let page = dir.join("report.html");
    let mut command = headroom();
    command.args(["report", "latest", "--json", "--db"]);
    command.arg(dir.join("capacity.db")).arg("--out").arg(&page);
    let (status, program) = run(&mut command);
    assert!(status.success(), "{}", program.err());
    std::fs::read_to_string(page).unwrap()
}

fn estimate<'a>(result: &'a Value, estimator: &str, method: &str) -> Option<&'a Value> {
    let all = result["estimates"].as_array().unwrap();
    all.iter()
        .find(|one| one["estimator"] == estimator && one["method"] == method)
}

/// Whether the program in the kernel was used; says so where it was not.
fn ebpf_or_skipped(result: &Value, what: &str) -> bool {
    let passed_over = result["passed_over"].as_array().unwrap();
    let found = passed_over.iter().find(|one| one["method"] == "ebpf");
    if let Some(found) = found {
        println!("skipped: {what} by eBPF: {}", found["reason"]);
    }
    found.is_none()
}

#[test]
fn an_overloaded_server_shows_what_it_can_do_and_the_run_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let server = Workers::start(port, 32, 4, Duration::from_millis(20));
    let trace = dir.path().join("trace");
    std::fs::write(&trace, "500\n").unwrap();
    let mut load = headroom();
    load.args(["load", "--new-connections", "--step", "10", "--url"])
        .arg(format!("http://127.0.0.1:{port}/"))
        .arg("--trace")
        .arg(&trace);
    let load = Program::start(&mut load);
    until("the overload", || {
        (server.served.load(Ordering::Relaxed) > 20).then_some(())
    });
    let csv = dir.path().join("capacity.csv");
    let mut command = capacity(
        port,
        dir.path(),
        &["--duration", "6", "--static", "123", "--ramp", "2"],
    );
    let (begun, served) = (Instant::now(), server.served.load(Ordering::Relaxed));
    let (status, program) = run(command.arg("--csv").arg(&csv));
    let truth = (server.served.load(Ordering::Relaxed) - served) as f64 / begun.elapsed().as_secs_f64();
    assert!(status.success(), "{}", program.err());
    drop(load);
    let result = program.json();
    assert_eq!(result["port"], port);
    let fixed = result["estimates"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["estimator"] == "static");
    assert_eq!(fixed.unwrap()["capacity"]["per_s"], 123.0);
    // Each step is a period of a run that is held to no SLO; the ways to measure and to estimate are its parts.
    let periods = result["periods"].as_u64().unwrap();
    assert!((3..=6).contains(&periods), "{result}");
    assert_eq!(result["law"], "busy-time");
    assert_eq!(result["slo"]["target_ms"], Value::Null, "{result}");
    assert!(
        result["requests"]["completed"].as_u64().unwrap() > 100,
        "{result}"
    );
    let page = report(dir.path());
    for wanted in [
        "capacity by busy-time",
        "The capacity is",
        "Each meter",
        "Each estimator",
        "busy time (sock_diag, /proc)",
        "Accept queue, threshold",
        "Time between samples",
    ] {
        assert!(page.contains(wanted), "{wanted}");
    }
    let lines = std::fs::read_to_string(&csv).unwrap();
    assert!(
        lines.starts_with("at_s,method,") && lines.lines().count() > 5,
        "{lines}"
    );
    if !ebpf_or_skipped(&result, "capacity of an overloaded server") {
        return;
    }
    for estimator in ["published", "busy-time", "ramp"] {
        let found = estimate(&result, estimator, "ebpf").unwrap();
        let kind = found["capacity"]["kind"].as_str().unwrap();
        // Ours is not sure where clients hold workers, as they do in such an overload.
        let is_met = kind == "exact" || estimator == "busy-time" && kind == "about";
        assert!(is_met, "{found}");
        let mean = found["mean_per_s"].as_f64();
        let per_s = mean.or(found["capacity"]["per_s"].as_f64()).unwrap();
        assert!(
            (0.7..1.4).contains(&(per_s / truth)),
            "{estimator}: {per_s} against {truth}"
        );
    }
    let methods = result["methods"].as_array().unwrap();
    let ebpf = methods.iter().find(|one| one["method"] == "ebpf").unwrap();
    assert!(ebpf["drops"].as_u64().unwrap() > 10, "{ebpf}");
}

#[test]
fn a_port_that_nobody_listens_on_is_named_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let (status, program) = run(&mut capacity(port, dir.path(), &["--duration", "1"]));
    assert_eq!(status.code(), Some(2));
    let said = program.err();
    assert!(
        said.contains(&format!("nobody listens on TCP port {port}")) && said.contains("start the server"),
        "{said}"
    );
    assert!(!dir.path().join("capacity.db").exists());
}

#[test]
fn a_listener_that_goes_and_comes_back_is_another_server() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let server = Workers::start(port, 32, 2, Duration::from_millis(1));
    let csv = dir.path().join("capacity.csv");
    let mut command = capacity(port, dir.path(), &["--period", "0.2", "--method", "ebpf,kernel"]);
    let mut program = Program::start(command.arg("--csv").arg(&csv));
    let send = |count: usize| {
        for _ in 0..count {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        }
    };
    program.says("a lower bound", |said| {
        said.contains("at least").then_some(()).or_else(|| {
            send(5);
            None
        })
    });
    drop(server);
    program.says("that nobody listens", |said| {
        said.contains("nobody listens").then_some(())
    });
    let server = Workers::start(port, 32, 2, Duration::from_millis(1));
    let gone = program.err().len();
    program.says("a lower bound again", |said| {
        send(5);
        said[gone..].contains("at least").then_some(())
    });
    program.signal(rustix::process::Signal::INT);
    program.succeeds();
    drop(server);
    let result = program.json();
    // What the kernel's counters say is one port's here: the machine's are those of all tests.
    for way in result["estimates"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|way| way["method"] == "ebpf")
    {
        assert_ne!(way["capacity"]["kind"], "exact", "nothing ever waited: {way}");
        let per_s = way["capacity"]["per_s"].as_f64().unwrap_or(0.0);
        assert!(per_s < 20_000.0, "{way}");
    }
    let lines = std::fs::read_to_string(&csv).unwrap();
    assert!(lines.contains("nobody listens on TCP port"), "{lines}");
}

#[test]
fn several_sockets_of_a_port_are_read_together_and_it_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let sockets = [listener(port, 16), listener(port, 16), listener(port, 16)];
    let (status, program) = run(&mut capacity(
        port,
        dir.path(),
        &["--duration", "1.5", "--method", "kernel"],
    ));
    assert!(status.success(), "{}", program.err());
    let said = program.err();
    assert!(
        said.contains(&format!("3 sockets listen on port {port}")),
        "{said}"
    );
    assert!(said.contains("queue 0.0 of 51"), "{said}");
    drop(sockets);
}

#[test]
fn a_plain_user_is_told_what_is_missing_and_served_by_the_rest() {
    if !root_or_skipped("the capacity as another user") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    // Where the user may read it: the build's folder may be closed to others.
    let program = dir.path().join("headroom");
    copy_headroom(&program);
    let port = free_port();
    let server = listener(port, 16);
    let mut command = Command::new(&program);
    command
        .args([
            "capacity",
            "--duration",
            "4",
            "--json",
            "--method",
            "ebpf,kernel,tools",
            "--port",
        ])
        .arg(port.to_string())
        .arg("--db")
        .arg(dir.path().join("capacity.db"))
        .current_dir("/")
        .uid(65534)
        .gid(65534);
    let (status, program) = run(&mut command);
    assert!(status.success(), "{}", program.err());
    let result = program.json();
    let passed_over = result["passed_over"].as_array().unwrap();
    let ebpf = passed_over.iter().find(|one| one["method"] == "ebpf").unwrap();
    let reason = ebpf["reason"].as_str().unwrap();
    // Where clang was missing when it was built, that is the reason.
    assert!(reason.contains("CAP_BPF") || reason.contains("clang"), "{reason}");
    let found = estimate(&result, "published", "kernel").unwrap();
    assert_eq!(found["scope"], "machine", "{found}");
    drop(server);
}

#[test]
fn how_often_each_method_can_sample_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let server = listener(port, 16);
    let args = ["--rates", "0.3", "--method", "kernel,status"];
    let (status, program) = run(&mut capacity(port, dir.path(), &args));
    assert!(status.success(), "{}", program.err());
    let result = program.json();
    let rates = result["rates"].as_array().unwrap();
    assert_eq!((rates.len(), &rates[0]["method"]), (1, &Value::from("kernel")));
    let per_s = rates[0]["samples_per_s"].as_f64().unwrap();
    let p50_us = rates[0]["p50_us"].as_f64().unwrap();
    assert!(per_s > 5.0 && per_s * p50_us < 2.5e6, "{result}");
    let passed_over = &result["passed_over"][0];
    assert!(
        passed_over["reason"].as_str().unwrap().contains("mod_status"),
        "{result}"
    );
    drop(server);
}

/// A status page whose counters grow by 40 a look, start anew at the tenth, and leap at the twentieth.
fn odd_page(listener: TcpListener) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for (at, stream) in (0u64..).zip(listener.incoming()) {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 1024];
            let Ok(read) = stream.read(&mut request) else {
                continue;
            };
            if request[..read].starts_with(b"END") {
                return;
            }
            let (accesses, uptime) = match at {
                0..10 => (1_000 + at * 40, 500 + at),
                10..20 => ((at - 10) * 40, at - 10),
                _ => (1 << 50, at - 10),
            };
            let page = format!(
                "Total Accesses: {accesses}\nCPUUser: {cpu}\nCPUSystem: 0\nCPUChildrenUser: 0\nCPUChildrenSystem: 0\n\
                 ServerUptimeSeconds: {uptime}\n",
                cpu = at as f64 * 0.02
            );
            let head = "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n";
            let _ = stream.write_all(format!("{head}{page}").as_bytes());
        }
    })
}

#[test]
fn counters_that_start_anew_or_leap_make_no_estimate() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let page = odd_page(listener(port, 16));
    let csv = dir.path().join("capacity.csv");
    let url = format!("http://127.0.0.1:{port}/server-status?auto");
    let mut command = capacity(
        port,
        dir.path(),
        &[
            "--method",
            "status",
            "--period",
            "0.1",
            "--duration",
            "4",
            "--status-url",
            &url,
        ],
    );
    let (status, program) = run(command.arg("--csv").arg(&csv));
    TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .unwrap()
        .write_all(b"END")
        .unwrap();
    page.join().unwrap();
    assert!(status.success(), "{}", program.err());
    let lines = std::fs::read_to_string(&csv).unwrap();
    let served: Vec<f64> = lines
        .lines()
        .skip(1)
        .filter_map(|line| line.split(',').nth(4)?.parse().ok())
        .collect();
    assert!(served.len() > 15, "{lines}");
    // 39 (the page's own asking is taken off) in a tenth of a second, in less where the answer before came late on a busy machine; never
    // what the counter leapt by.
    let sane = |served: &f64| (0.0..1e5).contains(served);
    assert!(served.iter().all(sane), "{served:?}");
    assert!(
        served.iter().filter(|served| **served > 20.0).count() > 10,
        "{served:?}"
    );
    let found = &program.json()["estimates"][0];
    assert!(
        found["most_per_s"].as_f64().is_none_or(|most| most < 1e5),
        "{found}"
    );
}

#[test]
fn connections_to_other_ports_are_not_taken_for_this_one_s() {
    let dir = tempfile::tempdir().unwrap();
    let (port, other) = (free_port(), free_port());
    let server = Workers::start(port, 32, 2, Duration::from_millis(1));
    let busy = Workers::start(other, 32, 2, Duration::ZERO);
    let stop = Arc::new(AtomicBool::new(false));
    let ended = stop.clone();
    let client = std::thread::spawn(move || {
        while !ended.load(Ordering::Relaxed) {
            for (to, count) in [(port, 1), (other, 5)] {
                for _ in 0..count {
                    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).unwrap();
                    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
                    let _ = stream.read_to_end(&mut Vec::new());
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let args = ["--period", "0.25", "--duration", "6", "--method", "ebpf,kernel"];
    let (status, program) = run(&mut capacity(port, dir.path(), &args));
    stop.store(true, Ordering::Relaxed);
    client.join().unwrap();
    drop((server, busy));
    assert!(status.success(), "{}", program.err());
    let result = program.json();
    let said = program.err();
    assert!(said.contains("count connections of the whole machine"), "{said}");
    if !ebpf_or_skipped(&result, "connections to other ports") {
        return;
    }
    for estimator in ["published", "busy-time"] {
        let found = estimate(&result, estimator, "kernel").unwrap();
        assert_eq!(found["capacity"]["kind"], "unknown", "{found}");
        assert_eq!(found["reason"]["rule"], "other-ports", "{found}");
    }
    // The one by CPU takes the port's own count, which eBPF has.
    let by_cpu = estimate(&result, "cpu", "kernel").unwrap();
    assert_eq!(by_cpu["reason"]["rule"], "utilisation", "{by_cpu}");
    let own = estimate(&result, "published", "ebpf").unwrap();
    assert_eq!(own["capacity"]["kind"], "lower-bound", "{own}");
}

#[test]
fn samples_are_never_written_over_the_record_or_a_file_of_somebody_else() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let server = listener(port, 16);
    let args = ["--duration", "1", "--method", "kernel"];
    let (status, program) = run(&mut capacity(port, dir.path(), &args));
    assert!(status.success(), "{}", program.err());
    let (record, notes) = (dir.path().join("capacity.db"), dir.path().join("notes.txt"));
    std::fs::write(&notes, "mine").unwrap();
    let before = std::fs::read(&record).unwrap();
    for (csv, said) in [
        (&record, "is the file of the record"),
        (&notes, "holds something else"),
    ] {
        let (status, program) = run(capacity(port, dir.path(), &args).arg("--csv").arg(csv));
        assert_eq!(status.code(), Some(2), "{}", program.err());
        assert!(program.err().contains(said), "{}", program.err());
        assert!(program.err().contains(csv.to_str().unwrap()), "{}", program.err());
    }
    assert_eq!(std::fs::read(&record).unwrap(), before);
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), "mine");
    drop(server);
}

#[test]
fn connections_that_wait_for_a_server_that_keeps_others_open_are_said_and_are_no_missing_request() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let server = listener(port, 16);
    let clients: Vec<TcpStream> = (0..3)
        .map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap())
        .collect();
    let args = ["--duration", "3.5", "--method", "ebpf,kernel"];
    let (status, program) = run(&mut capacity(port, dir.path(), &args));
    assert!(status.success(), "{}", program.err());
    let result = program.json();
    // Of what the whole machine opens, the connections of other tests are part: the port's own are those by eBPF.
    if ebpf_or_skipped(&result, "connections that wait") {
        let found = estimate(&result, "busy-time", "ebpf").unwrap();
        assert_eq!(found["reason"]["rule"], "none-accepted", "{found}");
        assert_eq!(result["capacity"]["kind"], "unknown", "{result}");
        assert_eq!(result["capacity_per_s"], Value::Null, "{result}");
        assert!(
            program.err().contains("3 wait, none accepted for"),
            "{}",
            program.err()
        );
        assert!(report(dir.path()).contains("The capacity is unknown: 3 wait, none accepted for"));
    }
    drop((clients, server));
}

#[test]
fn the_help_tells_what_is_counted_and_what_each_kind_of_estimate_means() {
    let (status, program) = run(headroom().args(["capacity", "--help"]));
    assert!(status.success(), "{}", program.err());
    let help = program.out();
    for wanted in [
        "keep-alive",
        "busy time",
        "exact:",
        "about 80.0",
        "at least 80.0",
        "if A: 80.0",
    ] {
        assert!(help.contains(wanted), "{wanted}: {help}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let server = listener(port, 16);
    for (args, said) in [
        (["--alpha", "1"], "--alpha is 1"),
        (["--threshold", "0"], "--threshold (a hundredth of it) is 0"),
        (["--queue-limit", "0"], "--queue-limit is 0"),
        (
            ["--static=-5", "--json"],
            "a number of connections a second above 0",
        ),
        (["--static", "80rps"], "a number of connections a second above 0"),
        (["--static", "0"], "a number of connections a second above 0"),
        (["--period", "0"], "between 0.01 and 3600"),
        (["--method", "perl"], "\"perl\" is no queue method"),
        (["--status-url", "https://localhost/"], "starts with http://"),
        (["--cgroup", "/no/such/group"], "/no/such/group"),
        (["--pid", "4194305"], "4194305"),
        (["--method", "status"], "none of the ways to measure works here"),
    ] {
        let mut command = headroom();
        command
            .args(["capacity", "--duration", "1", "--port", &port.to_string()])
            .args(args);
        let (status, program) = run(command.arg("--db").arg(dir.path().join("no.db")));
        assert_eq!(status.code(), Some(2), "{args:?}: {}", program.err());
        assert!(program.err().contains(said), "{args:?}: {}", program.err());
    }
    drop(server);
}
