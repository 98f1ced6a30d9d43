//! A service that fails: fast and slow, all of it and a part, behind the gateway and behind HAProxy. Failed requests miss
//! the SLO, and while they fail nothing is saved.

use crate::common::{
    Config, Group, NOBODY, Program, Traffic, Up, assert_has, free_port, get, number, program_or_skipped,
    until, wait,
};
use headroom_record::Archive;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Answers so many of ten requests 500, after a while, and the others 200 at once. It ends with the test's process.
fn service(failing: u64, after: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(AtomicU64::new(0));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let count = Arc::clone(&count);
            std::thread::spawn(move || serve(stream.unwrap(), &count, failing, after));
        }
    });
    address
}

fn serve(stream: TcpStream, count: &AtomicU64, failing: u64, after: Duration) {
    let mut writer = stream.try_clone().unwrap();
    let mut lines = BufReader::new(stream).lines();
    loop {
        // A head without a body ends with an empty line.
        let mut head = 0;
        loop {
            match lines.next() {
                Some(Ok(line)) if line.is_empty() => break,
                Some(Ok(_)) => head += 1,
                _ => return,
            }
        }
        assert!(head > 0);
        let fails = count.fetch_add(1, Ordering::Relaxed) % 10 < failing;
        let status = if fails { "500 Oops" } else { "200 OK" };
        if fails {
            std::thread::sleep(after);
        }
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        if writer.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// Lets traffic run until enough periods were seen, stops, and checks every period that failed: what the summary says.
fn failing_run(mut up: Up, front: SocketAddr, config: &Config) -> serde_json::Value {
    let traffic: Vec<Traffic> = (0..4).map(|_| Traffic::to(front)).collect();
    let begun = up.metrics().sum("headroom_periods_total").unwrap();
    up.counted("headroom_service_failures_total", 30.0);
    up.counted("headroom_periods_total", begun + 20.0);
    drop(traffic);
    up.program.stop();

    let archive = Archive::open(&config.db()).unwrap();
    let periods = archive.periods(archive.find("up").unwrap().id).unwrap();
    let full = periods[0].cores.unwrap().get();
    let mut failing = 0;
    for period in &periods {
        let failed = period.failures - period.failed_by_client;
        let share = failed as f64 / (failed + period.completions).max(1) as f64;
        if failed < 3 || share <= 0.02 {
            continue;
        }
        failing += 1;
        let decided = |key: &str| number(&period.decided["setting"], key);
        assert!(
            decided("cores") >= period.cores.unwrap().get() - 1e-9,
            "{period:?}"
        );
        if share >= 0.1 {
            assert!(decided("cores") >= full - 1e-9, "{period:?}");
            assert_eq!(period.reasons[0].rule, "failing-full", "{period:?}");
        }
        // At P95.
        assert_eq!(period.slo_latency.is_none(), share > 0.05, "{period:?}");
    }
    assert!(failing >= 5, "{failing} of {} periods failed", periods.len());
    up.program.json()
}

#[test]
fn an_outage_of_fast_500s_is_no_excellent_service() {
    let Some(group) = Group::new() else { return };
    let config = Config::new(&group, service(10, Duration::ZERO));
    let up = Up::start(&config);
    let traffic = Traffic::to(up.gateway);
    wait("it is not ready", || {
        let answer = up.admin("/readyz");
        answer.status == 503 && answer.body.contains("most requests")
    });
    let metrics = up.metrics();
    let by = |name: &str, label: &str, value: &str| {
        let of = metrics.of(name).filter(|sample| sample.labels[label] == *value);
        of.map(|sample| sample.value).sum::<f64>()
    };
    assert!(by("headroom_responses_total", "class", "5xx") > 0.0);
    assert!(by("headroom_failures_total", "cause", "failed_status") > 0.0);
    assert_eq!(metrics.sum("headroom_service_completions_total"), Some(0.0));
    drop(traffic);

    let front = up.gateway;
    let summary = failing_run(up, front, &config);
    assert_eq!(number(&summary, "requests.completed"), 0.0, "{summary}");
    assert!(number(&summary, "requests.failed") >= 30.0, "{summary}");
    assert!(summary["slo"]["latency_ms"].is_null(), "{summary}");
    assert!(summary["joules_per_request"].is_null(), "{summary}");
    assert!(number(&summary, "slo.periods_over") > 0.0, "{summary}");
    let notes = summary["notes"].to_string();
    assert_has(&notes, &["P95 of the run is missed"]);
}

#[test]
fn a_part_that_fails_slowly_misses_the_slo_and_nothing_is_saved_meanwhile() {
    for failing in [1, 4] {
        let Some(group) = Group::new() else { return };
        let backend = service(failing, Duration::from_millis(30));
        let config = Config::new(&group, backend);
        let up = Up::start(&config);
        let front = up.gateway;
        let summary = failing_run(up, front, &config);
        let share = number(&summary, "requests.failed") / number(&summary, "requests.offered");
        // Four clients that were cut off at the end are not answered.
        assert!((share - failing as f64 / 10.0).abs() < 0.1, "{summary}");
        assert!(number(&summary, "slo.periods_over") > 0.0, "{summary}");
    }
}

#[test]
fn haproxys_500s_are_failures_too() {
    let Some(group) = Group::new() else { return };
    if !program_or_skipped("haproxy -v", "apt install haproxy") {
        return;
    }
    let front = SocketAddr::from(([127, 0, 0, 1], free_port()));
    // Free a moment ago; nobody else takes ports of the kernel's range for datagrams here.
    let log = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = Config::new(&group, NOBODY)
        .with(
            "[gateway]\nlisten = [\"127.0.0.1:0\"]\nthreads = 1\nbackends = [{ url = \"http://127.0.0.1:9\" }]",
            &format!("[telemetry.haproxy]\nlog = \"udp:{log}\""),
        )
        .with("period_ms = 200", "period_ms = 400");
    let (program, admin) = config.start();
    let file = config.dir().join("haproxy.cfg");
    let text = format!(
        "global\n    log {log} local0\ndefaults\n    mode http\n    log global\n    option httplog\n    \
         timeout connect 5s\n    timeout client 30s\n    timeout server 30s\nfrontend f\n    bind {front}\n    \
         default_backend b\nbackend b\n    server s1 {}\n",
        service(4, Duration::ZERO)
    );
    fs::write(&file, text).unwrap();
    let _haproxy = Program::start(Command::new("haproxy").args(["-db", "-f"]).arg(&file));
    until("haproxy answers", || get(front, "/").ok());
    let up = Up {
        program,
        gateway: front,
        admin,
    };
    let summary = failing_run(up, front, &config);
    let (failed, completed) = (
        number(&summary, "requests.failed"),
        number(&summary, "requests.completed"),
    );
    assert!((failed / (failed + completed) - 0.4).abs() < 0.1, "{summary}");
}
