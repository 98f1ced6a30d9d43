//! What a connection that waits for its next request holds: alone in its process, whose memory is measured.

#[path = "../common/mod.rs"]
mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use common::{Backend, PATIENCE, config, eventually, ok, start, take};

/// The memory that this process has resident, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// A client that holds nothing: it is of this process too.
fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn ask(client: &mut TcpStream) {
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: test.example\r\n\r\n")
        .unwrap();
    let mut answer = [0; 512];
    let mut length = 0;
    while !answer[..length].ends_with(b"answered") {
        let read = client.read(&mut answer[length..]).unwrap();
        assert!(read > 0, "the connection was closed");
        length += read;
    }
}

#[test]
fn a_connection_that_has_been_answered_holds_no_more_than_one_that_was_only_opened() {
    const CONNECTIONS: usize = 400;
    let backend = Backend::http(|_| ok("answered"));
    let mut config = config(&[&backend]);
    config.threads = 1;
    let (gateway, address) = start(config);
    // What all share is there.
    let mut first = connect(address);
    for _ in 0..100 {
        ask(&mut first);
    }
    let mut clients: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(address)).collect();
    eventually("all are accepted", || {
        take(&gateway).connections > CONNECTIONS as u64
    });
    let opened = resident();
    for client in &mut clients {
        ask(client);
    }
    let grown = resident().saturating_sub(opened);
    // A buffer of its own would be a page at least.
    assert!(
        grown < CONNECTIONS as u64 * 2048,
        "{CONNECTIONS} connections hold {grown} bytes more since they were answered"
    );
}
