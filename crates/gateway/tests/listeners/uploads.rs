//! Large request bodies: as large as they may be, through memory that stays what it is.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;

use crate::common::{Backend, Client, Message, PATIENCE, gateway_with, ok};

/// A backend that reads what it is sent, keeps none of it and answers with its length.
fn counting() -> Backend {
    Backend::raw(|stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut writer = stream;
        let Some(head) = Message::read_head(&mut reader) else {
            return;
        };
        let length: u64 = head.header("content-length").unwrap().parse().unwrap();
        let read = std::io::copy(&mut reader.take(length), &mut std::io::sink()).unwrap();
        writer.write_all(&ok(&read.to_string())).unwrap();
    })
}

/// The most memory that this process had resident, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

fn upload(address: std::net::SocketAddr, bytes: u64) -> Message {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n"
    )
    .unwrap();
    std::io::copy(&mut std::io::repeat(b'x').take(bytes), &mut stream).unwrap();
    Message::read(&mut BufReader::new(stream), false).unwrap()
}

/// The client, the backend and the gateway are all in this process: what it grows by is what any of them holds of a body.
#[test]
fn a_large_body_passes_in_little_memory_where_there_is_no_limit() {
    const BYTES: u64 = 512 << 20;
    let backend = counting();
    let (_gateway, address) = gateway_with(&backend, |it| it.limits.max_request_body_bytes = 0);
    assert_eq!(upload(address, 8 << 20).text(), (8 << 20).to_string());
    let before = peak();
    assert_eq!(upload(address, BYTES).text(), BYTES.to_string());
    // The kernel counts in steps, and may say a little less than it did.
    let grown = peak().saturating_sub(before);
    assert!(grown < BYTES / 16, "{grown} bytes for a body of {BYTES}");
}

#[test]
fn a_body_over_the_limit_is_answered_413_at_once() {
    let backend = counting();
    let (_gateway, address) = gateway_with(&backend, |it| it.limits.max_request_body_bytes = 1 << 20);
    let mut client = Client::connect(address);
    client.send(format!(
        "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        (1 << 20) + 1
    ));
    assert_eq!(client.receive().status(), 413);
    assert_eq!(backend.connections(), 0);
    assert_eq!(upload(address, 1 << 20).status(), 200);
}
