//! When a connection of HTTP/1 ends, and what of its last answer arrives.

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use crate::common::{Backend, Client, PATIENCE, config, gateway_with, ok, start};

/// Longer than a client is given, shorter than a connection may be idle.
const IDLE: Duration = Duration::from_millis(1_500);

/// Where nobody listens.
fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Reads slowly to the end of the connection; how much, and whether it ended as it should.
fn read_slowly(client: &mut Client) -> (usize, bool) {
    let (mut sum, mut buffer) = (0, [0; 16 * 1024]);
    loop {
        match client.stream.read(&mut buffer) {
            Ok(0) => return (sum, true),
            Ok(length) => sum += length,
            Err(_) => return (sum, false),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn what_a_client_sends_behind_its_last_request_does_not_cost_it_the_answer() {
    let large = "z".repeat(1_500_000);
    let backend = Backend::http(move |_| ok(&large));
    let (_gateway, address) = gateway_with(&backend, |_| {});
    for behind in ["\r\n", "GET /next HTTP/1.1\r\nHost: t\r\n\r\n"] {
        let mut client = Client::narrow(address);
        client.send("POST / HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx");
        std::thread::sleep(Duration::from_millis(300));
        client.send(behind);
        let (read, whole) = read_slowly(&mut client);
        assert!(whole && read > 1_500_000, "{behind:?}: {read} bytes, {whole}");
    }
}

#[test]
fn nor_does_what_it_sends_while_the_gateway_stops() {
    let large = "z".repeat(1_500_000);
    let backend = Backend::http(move |_| ok(&large));
    let (gateway, address) = gateway_with(&backend, |_| {});
    let mut client = Client::narrow(address);
    client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    std::thread::sleep(Duration::from_millis(300));
    let mut sender = client.stream.try_clone().unwrap();
    let late = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        std::io::Write::write_all(&mut sender, b"GET /next HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
    });
    let reading = std::thread::spawn(move || read_slowly(&mut client));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    assert_eq!(runtime.block_on(gateway.shutdown(PATIENCE)).connections_cut, 0);
    late.join().unwrap();
    let (read, whole) = reading.join().unwrap();
    assert!(whole && read > 1_500_000, "{read} bytes, {whole}");
}

#[test]
fn an_empty_line_behind_a_request_is_no_other_one() {
    let backend = Backend::http(|_| ok("well"));
    let (_gateway, address) = gateway_with(&backend, |config| {
        config.timeouts.request_header_timeout_ms = 300;
    });
    for line in ["\r\n", "\n", "\r", "\r\n\r\n"] {
        let mut client = Client::connect(address);
        client.send(format!(
            "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\nx{line}"
        ));
        assert_eq!(client.receive().status(), 200);
        std::thread::sleep(Duration::from_millis(900));
        if line == "\r" {
            client.send("\n");
        }
        assert_eq!(client.get("/").status(), 200, "behind {line:?}");
    }
}

#[test]
fn a_connection_goes_on_behind_an_answer_of_the_gateway_s_own() {
    let mut config = config(&[]);
    config.backends = vec![headroom_gateway::BackendConfig::new(format!(
        "http://{}",
        nobody()
    ))];
    config.timeouts.client_grace_ms = 300;
    let (_gateway, address) = start(config);
    let mut client = Client::connect(address);
    assert_eq!(client.get("/").status(), 502);
    // An idle connection owes no bytes.
    std::thread::sleep(IDLE);
    client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nxx");
    let answer = client.receive();
    assert_eq!((answer.status(), answer.header("connection")), (502, None));
    // Its body came whole, so that it is known where the next request begins.
    assert_eq!(client.get("/").status(), 502);
    let begun = Instant::now();
    client.send("POST / HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    let answer = client.receive();
    assert_eq!(
        (answer.status(), answer.header("connection")),
        (502, Some("close"))
    );
    assert!(begun.elapsed() < PATIENCE);
}
