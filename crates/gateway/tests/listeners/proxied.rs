//! The PROXY protocol from clients: before HTTP and before TLS, from whom it is trusted, and hostile headers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use crate::common::{Backend, Client, Message, PATIENCE, config, eventually, ok, start, take};
use crate::tls::{Authority, ask, connect_over};
use headroom_gateway::{GatewayConfig, Handle, HttpListenConfig};

/// A backend that answers with the client's address that it was sent.
fn echo(request: &Message) -> Vec<u8> {
    ok(request.header("x-forwarded-for").unwrap_or("none"))
}

fn listener(trusted: &[&str]) -> HttpListenConfig {
    let mut listener = HttpListenConfig::new("127.0.0.1:0".parse().unwrap());
    listener.proxy_protocol = true;
    listener.trusted = trusted.iter().map(|text| text.parse().unwrap()).collect();
    listener
}

fn proxied(backend: &Backend, change: impl FnOnce(&mut GatewayConfig)) -> (Handle, SocketAddr) {
    let mut config = config(&[backend]);
    config.listen.clear();
    config.http = vec![listener(&["127.0.0.0/8"])];
    change(&mut config);
    start(config)
}

fn v2(command: u8, family: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    bytes.extend([command, family]);
    bytes.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn v2_of_192_0_2_7() -> Vec<u8> {
    v2(
        0x21,
        0x11,
        &[192, 0, 2, 7, 127, 0, 0, 1, 0x30, 0x39, 0, 80, 4, 0, 1, 0],
    )
}

const V1: &str = "PROXY TCP4 192.0.2.9 127.0.0.1 4711 80\r\n";

#[test]
fn the_address_in_the_header_is_the_clients() {
    let backend = Backend::http(echo);
    let (_gateway, address) = proxied(&backend, |_| {});
    for (header, client) in [
        (V1.as_bytes().to_vec(), "192.0.2.9"),
        (b"PROXY TCP6 2001:db8::9 ::1 4711 80\r\n".to_vec(), "2001:db8::9"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1"),
        (v2_of_192_0_2_7(), "192.0.2.7"),
        (v2(0x20, 0, &[]), "127.0.0.1"),
    ] {
        // In one piece with the request, and byte by byte.
        let mut whole = Client::connect(address);
        whole.send([&header[..], b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"].concat());
        assert_eq!(whole.receive().text(), client);
        assert_eq!(whole.get("/again").text(), client, "it is the connection's");
        let mut pieces = Client::connect(address);
        for byte in &header {
            pieces.send([*byte]);
        }
        assert_eq!(pieces.get("/").text(), client);
    }
}

#[test]
fn it_comes_before_tls() {
    let authority = Authority::new("authority");
    authority.issue("first", &["a.example"], 1);
    let backend = Backend::http(echo);
    let (_gateway, address) = proxied(&backend, |it| {
        it.http.clear();
        it.tls = vec![authority.listener(&["first"])];
        it.tls[0].proxy_protocol = true;
        it.tls[0].trusted = vec!["127.0.0.1".parse().unwrap()];
    });
    for (header, client) in [
        (V1.as_bytes().to_vec(), "192.0.2.9"),
        (v2_of_192_0_2_7(), "192.0.2.7"),
    ] {
        let mut tcp = TcpStream::connect(address).unwrap();
        tcp.write_all(&header).unwrap();
        let mut stream = connect_over(tcp, &authority.client(None), "a.example").unwrap();
        assert_eq!(ask(&mut stream, "a.example", "").unwrap().text(), client);
    }
    let tcp = TcpStream::connect(address).unwrap();
    assert!(
        connect_over(tcp, &authority.client(None), "a.example").is_err(),
        "TLS is no header"
    );
}

#[test]
fn who_is_not_trusted_or_sends_none_is_closed_and_counted() {
    let backend = Backend::http(echo);
    let (gateway, address) = proxied(&backend, |it| {
        it.http.push(listener(&["10.0.0.0/8", "::1"]));
        it.timeouts.request_header_timeout_ms = 300;
    });
    let distrusting = gateway.local_addrs()[1];
    let mut client = Client::connect(distrusting);
    client.send([V1.as_bytes(), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"].concat());
    assert!(client.is_closed());
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
        b"PROXY TCP4 1.1.1.1 1.1.1.1 1 99999\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        &[b'P'; 4000],
        &v2(0x31, 0x11, &[0; 12]),
        &v2(0x21, 0x11, &[0; 5000]),
    ] {
        let mut client = Client::connect(address);
        // It may be closed before all of it is sent.
        let _ = client.stream.write_all(bytes);
        let mut rest = Vec::new();
        let _ = client.stream.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    }
    // One that does not come, or not whole, within the time for a request's head.
    for bytes in ["", "PROXY TCP4 192.0.2"] {
        let mut client = Client::connect(address);
        client.send(bytes);
        let begun = Instant::now();
        assert!(client.is_closed());
        assert!(begun.elapsed() < PATIENCE / 2, "by the timeout");
    }
    eventually("all are counted", {
        let mut refused = 0;
        move || {
            refused += take(&gateway).sources.proxy_headers;
            refused == 8
        }
    });
    assert_eq!(backend.connections(), 0);
}

#[test]
fn a_sources_limits_go_by_the_address_in_the_header() {
    let backend = Backend::http(echo);
    let (gateway, address) = proxied(&backend, |it| it.sources.max_connections = 1);
    let connect = |header: &[u8]| {
        let mut client = Client::connect(address);
        client.send([header, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"].concat());
        client
    };
    let mut one = connect(V1.as_bytes());
    assert_eq!(one.receive().text(), "192.0.2.9");
    // Another client over the same proxy, and the same client once more.
    assert_eq!(connect(&v2_of_192_0_2_7()).receive().text(), "192.0.2.7");
    assert!(connect(V1.as_bytes()).is_closed());
    assert_eq!(take(&gateway).sources.connections, 1);
    assert_eq!(one.get("/").status(), 200);
}
