//! `headroom gateway` as a process: what it does when it is told to stop.

use crate::common::{
    Program, Server, assert_has, connect_and_send, get, headroom, read_answer, refused, wait,
};
use rustix::process::Signal;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

fn start(backend: SocketAddr, more: &[&str]) -> (Program, SocketAddr) {
    let mut program = Program::start(
        headroom(format!(
            "gateway --listen 127.0.0.1:0 --threads 2 --backend http://{backend}"
        ))
        .args(more),
    );
    let address = program.said("listening on ").parse().unwrap();
    (program, address)
}

fn seen(server: &Server, least: u64) {
    wait("the backend is asked", || {
        server.seen.load(Ordering::Relaxed) >= least
    });
}

#[test]
fn finishes_a_slow_request_when_told_to_stop() {
    let server = Server::start(Duration::from_secs(2));
    let (mut gateway, address) = start(server.address, &[]);
    let request = "GET /slow HTTP/1.1\r\nHost: e2e\r\nConnection: close\r\n\r\n";
    let slow = connect_and_send(address, request).unwrap();
    seen(&server, 1);
    gateway.signal(Signal::TERM);
    wait("it takes no new connections", || {
        TcpStream::connect(address).is_err()
    });
    let answer = read_answer(slow).unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (200, "hello"));
    gateway.succeeds();
    assert_has(gateway.err(), &["draining"]);
}

#[test]
fn waits_neither_for_idle_connections_nor_beyond_its_drain_time() {
    let server = Server::start(Duration::from_secs(600));
    let (mut gateway, address) = start(server.address, &["--drain", "1"]);
    // One that never asks, and one whose answer never comes.
    let _idle = TcpStream::connect(address).unwrap();
    let hanging = connect_and_send(address, "GET / HTTP/1.1\r\nHost: e2e\r\n\r\n").unwrap();
    seen(&server, 1);
    let begin = Instant::now();
    gateway.stop();
    // Far under the 30 s that the default allows, with room for a busy machine.
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    drop(hanging);

    let server = Server::start(Duration::ZERO);
    let (mut gateway, address) = start(server.address, &["--drain", "600"]);
    assert_eq!(get(address, "/").unwrap().status, 200);
    let _idle = TcpStream::connect(address).unwrap();
    gateway.signal(Signal::INT);
    gateway.succeeds();
}

#[test]
fn says_once_a_second_what_happened_without_colours_into_a_file() {
    let server = Server::start(Duration::ZERO);
    let (mut gateway, address) = start(server.address, &["-v"]);
    for _ in 0..50 {
        assert_eq!(get(address, "/").unwrap().status, 200);
    }
    let said = gateway.says("what happened in a second", |err| {
        err.contains("one second").then(|| err.to_owned())
    });
    assert!(!said.contains('\u{1b}'), "no colours into a file: {said}");
}

/// Bounds of sizes are taken with commas between them; what is said without a control port is that nobody can use them.
#[test]
fn bounds_of_sizes_are_taken_and_checked() {
    let server = Server::start(Duration::ZERO);
    let (mut gateway, address) = start(server.address, &["--size-bounds", "4K,65536"]);
    assert_eq!(get(address, "/").unwrap().status, 200);
    gateway.stop();
    let backend = "gateway --listen 127.0.0.1:0 --backend http://127.0.0.1:9";
    for (flags, said) in [
        (
            "--size-bounds 9,9",
            &["--size-bounds [9, 9]: allowed is at most 7 sizes"][..],
        ),
        (
            "--size-bounds 1,2,3,4,5,6,7,8",
            &["--size-bounds [1, 2, 3", "at most 7"],
        ),
        ("--size-bounds 4XB", &["--size-bounds", "4XB", "10K"]),
    ] {
        refused(headroom(format!("{backend} {flags}")), said);
    }
}

/// Every flag of the batcher is taken; what cannot be is refused in the words of the command line, with an example of what can.
#[test]
fn flags_of_the_cache_and_the_batcher_are_checked_and_named_with_a_right_value() {
    let server = Server::start(Duration::ZERO);
    let all = "--cache 8MiB --cache-no-collapse --batch 20 --batch-max-wait 40 --batch-max-held 64 --batch-key path";
    let words: Vec<&str> = all.split(' ').collect();
    let (mut gateway, address) = start(server.address, &words);
    assert_eq!(get(address, "/").unwrap().status, 200);
    gateway.stop();
    let backend = "gateway --listen 127.0.0.1:0 --backend http://127.0.0.1:9";
    for (flags, said) in [
        ("--cache 64", &["--cache", "no unit", "64MiB"][..]),
        ("--cache 64MBytes", &["--cache", "64MiB"]),
        ("--batch 100 --target-ms 0", &["--target-ms", "0 is not in 1.."]),
        ("--batch 100ms", &["--batch", "without a unit", "write 100"]),
        (
            "--batch 2000",
            &["--batch 2000: allowed is 0 to 1000", "--batch-max-wait"],
        ),
        (
            "--batch 300 --target-ms 250",
            &["--batch 300: allowed is 0 to 125", "--target-ms"],
        ),
        (
            "--batch 0 --batch-max-held 0",
            &["--batch-max-held 0: allowed is 1 to 1048576"],
        ),
        ("--batch-max-held 9", &["--batch <MS>"]),
        ("--batch 0 --batch-key query", &["--batch-key", "target", "path"]),
        ("--cache-no-collapse", &["--cache <SIZE>"]),
        (
            "--cache 4096TiB",
            &[
                "--cache 4096TiB: allowed is at most the ",
                "iB of memory of this machine",
            ],
        ),
        (
            "--batch 5 --batch-max-held 2000000",
            &["--batch-max-held 2000000: allowed is 1 to 1048576: each"],
        ),
    ] {
        refused(headroom(format!("{backend} {flags}")), said);
    }
}
