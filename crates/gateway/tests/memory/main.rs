//! What the gateway holds for clients: alone in its process, whose memory is measured.

#[path = "../common/mod.rs"]
mod common;

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::{Backend, Client, Message, PATIENCE, config, eventually, ok, start, take};
use headroom_gateway::{GatewayConfig, Handle};

/// One after the other: each looks at what the whole process holds.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The memory that this process has resident, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// By how much more than `before` this process has resident at most within a while.
fn most_grown(before: u64, within: Duration) -> u64 {
    let end = std::time::Instant::now() + within;
    let mut most = 0;
    while std::time::Instant::now() < end {
        most = most.max(resident().saturating_sub(before));
        std::thread::sleep(Duration::from_millis(20));
    }
    most
}

/// A client that holds nothing: it is of this process too.
fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
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

/// A gateway of one thread that has served already: what all requests share is there.
fn warm(backend: &Backend, change: impl FnOnce(&mut GatewayConfig)) -> (Handle, SocketAddr) {
    let mut config = config(&[backend]);
    config.threads = 1;
    // Nobody is cut off before the test has seen what is held for it.
    config.timeouts.client_grace_ms = 60_000;
    change(&mut config);
    let (gateway, address) = start(config);
    let mut first = connect(address);
    for _ in 0..100 {
        ask(&mut first);
    }
    (gateway, address)
}

#[test]
fn a_connection_that_has_been_answered_holds_no_more_than_one_that_was_only_opened() {
    let _alone = alone();
    const CONNECTIONS: usize = 400;
    let backend = Backend::http(|_| ok("answered"));
    let (gateway, address) = warm(&backend, |_| {});
    let mut clients: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(address)).collect();
    eventually("all are accepted", || {
        take(&gateway).connections >= CONNECTIONS as u64
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

#[test]
fn a_body_in_chunks_of_a_byte_is_held_in_about_its_bytes() {
    let _alone = alone();
    const CLIENTS: usize = 30;
    const CHUNKS: usize = 30_000;
    let backend = Backend::http(|_| ok("answered"));
    let (_gateway, address) = warm(&backend, |_| {});
    let chunks = "1\r\nx\r\n".repeat(CHUNKS);
    let before = resident();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = connect(address);
            let head = b"POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
            client.write_all(head).unwrap();
            client.write_all(chunks.as_bytes()).unwrap();
            client
        })
        .collect();
    let grown = most_grown(before, Duration::from_secs(2));
    drop(clients);
    // An entry of a queue for each would be 29 MB, and more.
    let most = (CLIENTS * CHUNKS * 10) as u64;
    assert!(grown < most, "{grown} bytes for {} of bodies", CLIENTS * CHUNKS);
}

#[test]
fn an_answer_in_chunks_of_a_byte_is_read_ahead_in_about_its_bytes() {
    let _alone = alone();
    const CLIENTS: usize = 2;
    let chunks = "1\r\nx\r\n".repeat(4_000_000);
    let backend = Backend::raw(move |mut stream, _| {
        let mut reader = std::io::BufReader::new(stream.try_clone().unwrap());
        while let Some(request) = Message::read(&mut reader, false) {
            let written = match request.start.contains("chunks") {
                true => stream
                    .write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                    .and_then(|()| stream.write_all(chunks.as_bytes())),
                false => stream.write_all(&ok("answered")),
            };
            if written.is_err() {
                return;
            }
        }
    });
    let (_gateway, address) = warm(&backend, |_| {});
    let before = resident();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = Client::narrow(address);
            client.send("GET /chunks HTTP/1.1\r\nHost: t\r\n\r\n");
            client
        })
        .collect();
    let grown = most_grown(before, Duration::from_secs(8));
    drop(clients);
    // 256 KiB of each are read ahead; an entry of a queue for each byte would be 14 MB of each.
    let most = CLIENTS as u64 * (4 << 20);
    assert!(grown < most, "{grown} bytes for {CLIENTS} clients");
}

#[test]
fn answers_that_http_2_clients_leave_no_room_for_are_held_within_the_bound() {
    let _alone = alone();
    const CONNECTIONS: usize = 8;
    const STREAMS: usize = 100;
    const BYTES: usize = 60_000;
    let large = "z".repeat(BYTES);
    let backend = Backend::http(move |request| match request.start.contains("large") {
        true => ok(&large),
        false => ok("answered"),
    });
    let (gateway, address) = warm(&backend, |config| {
        config.limits.max_buffered_bytes = 2 << 20;
        // Connections between this process and itself need descriptors.
        config.limits.max_in_flight_per_backend = 200;
    });
    let before = resident();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let watcher = std::thread::spawn(move || most_grown(before, Duration::from_secs(4)));
    let kept = runtime.block_on(async {
        let mut kept = Vec::new();
        for _ in 0..CONNECTIONS {
            let stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let mut builder = h2::client::Builder::new();
            builder.initial_window_size(0);
            let (mut sender, connection) = builder.handshake::<_, bytes::Bytes>(stream).await.unwrap();
            tokio::spawn(connection);
            for _ in 0..STREAMS {
                poll_fn(|cx| sender.poll_ready(cx)).await.unwrap();
                let request = http::Request::get("http://t/large").body(()).unwrap();
                kept.push(sender.send_request(request, true).unwrap().0);
            }
        }
        tokio::time::sleep(Duration::from_secs(4)).await;
        kept
    });
    let grown = watcher.join().unwrap();
    let asked = (CONNECTIONS * STREAMS * BYTES) as u64;
    assert!(grown < asked / 2, "{grown} bytes of {asked} that were asked for");
    let period = take(&gateway);
    assert!(
        period.service.in_flight > 100,
        "they wait for their clients: {:?}",
        period.service
    );
    drop(kept);
}
