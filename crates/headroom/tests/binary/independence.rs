//! The data plane never waits on the control plane: requests flow whatever becomes of the record and the admin port.

use crate::common::place::Disk;
use crate::common::{Config, Group, Server, Traffic, Up, assert_has, free_port, get, number, signal, until};
use headroom_record::{Archive, PeriodRecord};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn a_record_that_another_program_holds_stops_neither_requests_nor_the_loop() {
    let Some(group) = Group::new() else { return };
    let server = Server::start(Duration::ZERO);
    let config = Config::new(&group, server.address);
    let mut up = Up::start(&config);
    let traffic = Traffic::to(up.gateway);
    traffic.flows(10);
    let other = rusqlite::Connection::open(config.db()).unwrap();
    other.busy_timeout(Duration::from_secs(30)).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    up.counts("headroom_periods_total", 15.0);
    traffic.flows(30);
    assert_eq!(up.admin("/healthz").status, 200);
    other.execute_batch("ROLLBACK").unwrap();
    drop(other);
    up.counts("headroom_periods_total", 2.0);
    assert_eq!(traffic.wrong(), 0, "{}", up.program.err());
    drop(traffic);
    up.program.stop();
    let summary = up.program.json();
    assert_eq!(number(&summary, "requests.failed"), 0.0);
    assert_eq!(
        number(&summary, "dropped_periods"),
        0.0,
        "what waited was written, or is said to be missing"
    );
    assert!(number(&summary, "periods") >= 17.0);
}

#[test]
fn a_full_disk_stops_neither_requests_nor_the_loop_and_is_said() {
    let Some(group) = Group::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let Some(_disk) = Disk::or_skipped(dir.path(), "3m") else {
        return;
    };
    let before = group.settings();
    let server = Server::start(Duration::ZERO);
    let config = Config::new(&group, server.address);
    let db = config.db().to_str().unwrap().to_owned();
    let config = config
        .with(&db, dir.path().join("record.db").to_str().unwrap())
        .with("period_ms = 200", "period_ms = 100");
    let mut up = Up::start(&config);
    let traffic = Traffic::to(up.gateway);
    let mut filler = std::fs::File::create(dir.path().join("filler")).unwrap();
    while filler.write_all(&[0; 512]).is_ok() {}
    up.program.said("the flight recorder cannot write");
    up.counts("headroom_periods_total", 10.0);
    traffic.flows(30);
    // What flows is in a period once that has ended.
    up.counts("headroom_periods_total", 2.0);
    assert_eq!(up.admin("/healthz").status, 200);
    assert_eq!(traffic.wrong(), 0, "{}", up.program.err());
    drop(traffic);
    up.program.stop();
    assert_eq!(group.settings(), before);
    let summary = up.program.json();
    assert!(
        number(&summary, "requests.completed") >= 30.0,
        "the summary covers what the disk refused"
    );
    assert_has(summary["notes"].to_string(), &["could not be written"]);
}

#[test]
fn an_admin_port_under_siege_delays_no_request_and_recovers() {
    let Some(group) = Group::new() else { return };
    let server = Server::start(Duration::ZERO);
    let config = Config::new(&group, server.address);
    let mut up = Up::start(&config);
    let traffic = Traffic::to(up.gateway);
    traffic.flows(5);
    // Some say nothing, some half a request, some ask once and stay.
    let mut besiegers: Vec<TcpStream> = Vec::new();
    for number in 0..150 {
        let Ok(mut stream) = TcpStream::connect_timeout(&up.admin, Duration::from_secs(5)) else {
            break;
        };
        let _ = match number % 3 {
            0 => Ok(()),
            1 => stream.write_all(b"GET /metrics HTT"),
            _ => stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: e2e\r\n\r\n"),
        };
        besiegers.push(stream);
    }
    assert!(besiegers.len() > 64, "more than are served at once");
    // And some ask without end.
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let Ok(mut stream) = TcpStream::connect_timeout(&up.admin, Duration::from_millis(200))
                    else {
                        continue;
                    };
                    let _ = stream.set_read_timeout(Some(Duration::from_millis(50)));
                    let _ =
                        stream.write_all(b"GET /metrics HTTP/1.1\r\nConnection: close\r\nHost: e2e\r\n\r\n");
                    let _ = stream.read(&mut [0; 64]);
                }
            });
        }
        traffic.flows(60);
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(traffic.wrong(), 0, "{}", up.program.err());
    // Those who neither ask nor go are shown the door, so the port is of use again while they are still there.
    until("the admin port answers", || {
        get(up.admin, "/healthz")
            .ok()
            .filter(|answer| answer.status == 200)
    });
    assert_eq!(get(up.gateway, "/").unwrap().status, 200);
    drop((besiegers, traffic));
    up.program.stop();
    assert_eq!(number(&up.program.json(), "requests.failed"), 0.0);
}

#[test]
fn a_program_that_was_stopped_for_a_while_goes_on() {
    let Some(group) = Group::new() else { return };
    let before = group.settings();
    let server = Server::start(Duration::ZERO);
    let config = Config::new(&group, server.address);
    let mut up = Up::start(&config);
    up.counts("headroom_periods_total", 2.0);
    up.program.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(1_500));
    up.program.signal(Signal::CONT);
    up.program.said("the control loop is late");
    up.counts("headroom_periods_total", 3.0);
    assert_eq!(get(up.gateway, "/").unwrap().status, 200);
    assert_eq!(up.admin("/healthz").status, 200);
    up.program.stop();
    assert_eq!(group.settings(), before);
    let summary = up.program.json();
    let mean = number(&summary, "duration_s") / number(&summary, "periods");
    assert!(mean > 0.2, "skipped periods are not invented: {mean} s a period");
}

#[test]
fn the_reader_of_its_log_may_go() {
    let Some(group) = Group::new() else { return };
    let server = Server::start(Duration::ZERO);
    let listen = format!("127.0.0.1:{}", free_port());
    let config = Config::new(&group, server.address)
        .with(
            "[gateway]\nlisten = [\"127.0.0.1:0\"]",
            &format!("[gateway]\nlisten = [\"{listen}\"]"),
        )
        .with("period_ms = 200", "period_ms = 100");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut up = config
        .command()
        .stderr(writer)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let gateway = listen.parse().unwrap();
    until("it serves", || {
        get(gateway, "/").ok().filter(|answer| answer.status == 200)
    });
    // Ten periods make a line of its log.
    std::thread::sleep(Duration::from_millis(1_500));
    let flows = get(gateway, "/");
    let ended = up.try_wait().unwrap();
    let pid = Pid::from_raw(i32::try_from(up.id()).unwrap()).unwrap();
    let _ = kill_process(pid, Signal::TERM);
    let output = up.wait_with_output().unwrap();
    assert_eq!(ended, None, "it ended with the reader of its log");
    assert_eq!(flows.unwrap().status, 200);
    assert!(output.status.success());
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(number(&summary, "periods") >= 10.0, "{summary}");
}

/// Requests that a client which waits 5 ms after each answer can send in a period of 200 ms.
const MOST_A_PERIOD: u64 = 40;

#[test]
fn what_came_while_the_control_side_stood_still_is_counted_in_no_other_period() {
    let Some(group) = Group::new() else { return };
    let server = Server::start(Duration::ZERO);
    let config = Config::new(&group, server.address);
    let mut up = Up::start(&config);
    let traffic = Traffic::to(up.gateway);
    traffic.flows(30);
    up.counts("headroom_periods_total", 10.0);
    signal(up.program.pid(), Signal::STOP);
    // Many periods of 200 ms, and more requests than one of them can have.
    let stood = Instant::now();
    traffic.flows(3 * MOST_A_PERIOD);
    std::thread::sleep(Duration::from_secs(4).saturating_sub(stood.elapsed()));
    signal(up.program.pid(), Signal::CONT);
    up.counts("headroom_periods_total", 10.0);
    assert_eq!(traffic.wrong(), 0, "{}", up.program.err());
    drop(traffic);
    up.program.stop();
    let archive = Archive::open(&config.db()).unwrap();
    let periods = archive.periods(archive.find("latest").unwrap().id).unwrap();
    let is_told = |one: &&PeriodRecord| !one.telemetry_lost;
    for one in periods.iter().filter(is_told) {
        // One client, which waits 5 ms after each answer; what it had begun before may end in it.
        let most = one.duration.get() / 5e-3 + MOST_A_PERIOD as f64;
        assert!((one.arrivals as f64) < most, "{one:?}");
    }
    // The long period is lost where the loop came to its end before what the gateway had told meanwhile was read; else it is whole.
    assert!(periods.iter().any(|one| one.duration.get() > 2.0));
}
