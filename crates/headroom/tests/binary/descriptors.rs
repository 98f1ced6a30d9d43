//! A gateway that has few descriptors, and more clients than they are enough for.

use crate::common::{
    KeepAlive, Load, Program, Server, assert_has, connect_and_send, free_address, get, program_or_skipped,
    read_answer, serves, until, wait,
};
use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

/// `headroom gateway` that may have so many descriptors.
fn limited(server: &Server, limit: &str, more: &str) -> (Program, SocketAddr) {
    let line = format!(
        "ulimit {limit} && exec {} {more} gateway --listen 127.0.0.1:0 --threads 2 --backend http://{}",
        env!("CARGO_BIN_EXE_headroom"),
        server.address
    );
    let mut command = Command::new("sh");
    command.env_remove("RUST_LOG").args(["-c", &line]);
    let mut program = Program::start(&mut command);
    let address = program.said("listening on ").parse().unwrap();
    (program, address)
}

#[test]
fn idle_clients_leave_descriptors_for_the_backends_of_the_others() {
    let server = Server::start(Duration::from_millis(20));
    let (mut program, address) = limited(&server, "-n 256", "");
    // Established: each has been answered.
    let traffic = KeepAlive::to(address, 20);
    wait("all are established", || traffic.answered() >= 200);
    let idle: Vec<_> = (0..400)
        .map(|_| std::net::TcpStream::connect(address).unwrap())
        .collect();
    program.said("no more connections are accepted");
    let from = traffic.answered();
    wait("the established are answered", || {
        traffic.answered() >= from + 500
    });
    assert_eq!(traffic.failed(), Vec::<String>::new());
    let said = program.err();
    assert_eq!(
        said.matches("no more connections").count(),
        1,
        "said once: {said}"
    );
    assert!(!said.contains("Too many open files"), "{said}");
    drop(idle);
    serves(address);
    program.said("connections are accepted again");
    assert_eq!(traffic.failed(), Vec::<String>::new());
    drop(traffic);
    program.stop();
}

#[test]
fn the_limit_of_descriptors_is_raised_to_what_the_system_lets() {
    let server = Server::start(Duration::ZERO);
    let (program, address) = limited(&server, "-S -n 200", "-v");
    let limits = fs::read_to_string(format!("/proc/{}/limits", program.pid())).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let fields: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(fields[3], fields[4], "soft and hard: {line}");
    if fields[3] != "200" {
        assert_has(program.err(), &["the limit of open files was raised"]);
    }
    let request = "GET / HTTP/1.1\r\nHost: e2e\r\nConnection: close\r\n\r\n";
    assert_eq!(
        read_answer(connect_and_send(address, request).unwrap())
            .unwrap()
            .status,
        200
    );
}

/// How long a request of a flood takes: long enough that the requests under way, not the machine, take the connections.
const OF_A_FLOOD: Duration = Duration::from_millis(100);

/// Clients that are there, with requests under way all the time, and how they fare while many more come than there are descriptors for;
/// in the end all are served.
fn flood(address: SocketAddr, program: &Program) -> Vec<String> {
    let established = KeepAlive::to(address, 20);
    wait("all are established", || established.answered() >= 100);
    // Each of them on a connection of its own for each request, more at once than fit: however fast the machine is, the next request of each
    // is due before the last is answered.
    let crowd = Load::of_clients(150, address, 15_000);
    let from = (established.answered(), crowd.counts().0);
    wait("the established are answered among them", || {
        established.answered() >= from.0 + 500
    });
    wait("the others are answered in turn", || {
        crowd.counts().0 >= from.1 + 300
    });
    let failed = established.failed();
    println!(
        "{} requests of 20 established clients, {} failed; {:?} right and wrong of 150 others",
        established.answered(),
        failed.len(),
        crowd.counts()
    );
    assert!(
        !program.err().contains("Too many open files"),
        "{}",
        program.err()
    );
    drop(crowd);
    serves(address);
    failed
}

#[test]
fn clients_with_requests_under_way_get_no_error_while_more_come_than_fit() {
    let server = Server::start(OF_A_FLOOD);
    let (mut program, address) = limited(&server, "-n 256", "");
    assert_eq!(flood(address, &program), Vec::<String>::new());
    program.said("connections are accepted again");
    let said = program.err();
    assert_eq!(
        said.matches("no more connections").count(),
        1,
        "said once: {said}"
    );
    program.stop();
}

#[test]
fn an_haproxy_with_as_few_descriptors_fares_no_better() {
    if !program_or_skipped("haproxy -v", "apt install haproxy") {
        return;
    }
    let server = Server::start(OF_A_FLOOD);
    let dir = tempfile::tempdir().unwrap();
    let (file, address) = (dir.path().join("haproxy.cfg"), free_address());
    let text = format!(
        "defaults\n mode http\n timeout connect 60s\n timeout client 60s\n timeout server 60s\nfrontend in\n bind {address}\n \
         default_backend app\nbackend app\n server one {}\n",
        server.address
    );
    fs::write(&file, text).unwrap();
    let line = format!("ulimit -n 256 && exec haproxy -db -f {}", file.display());
    let mut haproxy = Program::start(Command::new("sh").args(["-c", &line]));
    until("haproxy answers", || get(address, "/").ok());
    let theirs = flood(address, &haproxy).len();
    haproxy.signal(rustix::process::Signal::KILL);
    haproxy.wait();
    let (mut program, address) = limited(&server, "-n 256", "");
    let ours = flood(address, &program).len();
    println!(
        "established clients' requests that failed: {ours} behind this gateway, {theirs} behind HAProxy"
    );
    assert!(ours <= theirs);
    program.stop();
}

/// A client of HTTP/2 has many requests at a time, each with a connection to a backend: more than descriptors are kept for them.
#[test]
fn streams_that_want_more_connections_than_there_are_descriptors_wait_for_each_other() {
    if !program_or_skipped("h2load --version", "apt install nghttp2-client") {
        return;
    }
    let server = Server::start(Duration::from_millis(5));
    let (mut program, address) = limited(&server, "-n 128", "");
    let established = KeepAlive::to(address, 4);
    wait("all are established", || established.answered() >= 40);
    // 400 at once, with 128 descriptors.
    let load = Command::new("h2load")
        .args([
            "-n",
            "2000",
            "-c",
            "4",
            "-m",
            "100",
            &format!("http://{address}/"),
        ])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&load.stdout).into_owned();
    let from = established.answered();
    wait("the established are answered", || {
        established.answered() >= from + 40
    });
    assert_has(&said, &["2000 done, 2000 succeeded", "2000 2xx"]);
    assert_eq!(established.failed(), Vec::<String>::new());
    let said = program.err();
    assert_eq!(
        said.matches("requests wait for a descriptor").count(),
        1,
        "said once: {said}"
    );
    drop(established);
    program.stop();
}
