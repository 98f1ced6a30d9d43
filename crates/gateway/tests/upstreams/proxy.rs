//! The PROXY protocol in front of connections to backends.

use std::io::{BufRead, BufReader, Read, Write};
use std::sync::{Arc, Mutex};

use headroom_gateway::{BackendProtocol, Gateway, ProxyVersion};

use crate::common::{Backend, Client, Message, eventually, ok, start};
use crate::servers::config;

/// A backend that keeps what each connection began with, and answers every request on it.
fn proxied(version: ProxyVersion) -> (Backend, Arc<Mutex<Vec<Vec<u8>>>>) {
    let headers = Arc::new(Mutex::new(Vec::new()));
    let noted = headers.clone();
    let backend = Backend::raw(move |stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut header = Vec::new();
        match version {
            ProxyVersion::V1 => drop(reader.read_until(b'\n', &mut header)),
            ProxyVersion::V2 => {
                let mut fixed = [0; 16];
                if reader.read_exact(&mut fixed).is_err() {
                    return;
                }
                let mut rest = vec![0; usize::from(u16::from_be_bytes([fixed[14], fixed[15]]))];
                reader.read_exact(&mut rest).unwrap();
                header = [&fixed[..], &rest].concat();
            }
        }
        noted.lock().unwrap().push(header);
        let mut writer = stream;
        while Message::read(&mut reader, false).is_some() {
            writer.write_all(&ok("")).unwrap();
        }
    });
    (backend, headers)
}

#[test]
fn each_connection_begins_with_its_clients_address_and_is_not_shared() {
    for version in [ProxyVersion::V1, ProxyVersion::V2] {
        let (backend, headers) = proxied(version);
        let mut config = config(backend.url());
        config.backends[0].send_proxy = Some(version);
        let (_gateway, address) = start(config);
        let mut clients = [Client::connect(address), Client::connect(address)];
        let mut expected = Vec::new();
        for client in clients.iter_mut().chain([&mut Client::connect(address)]) {
            let here = client.stream.local_addr().unwrap();
            for _ in 0..2 {
                assert_eq!(client.get("/").status(), 200);
                expected.push(match version {
                    ProxyVersion::V1 => {
                        let (from, to) = (here.port(), address.port());
                        format!("PROXY TCP4 127.0.0.1 127.0.0.1 {from} {to}\r\n").into_bytes()
                    }
                    ProxyVersion::V2 => [
                        &b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\0\0\x01\x7f\0\0\x01"[..],
                        &here.port().to_be_bytes(),
                        &address.port().to_be_bytes(),
                    ]
                    .concat(),
                });
            }
        }
        assert_eq!(*headers.lock().unwrap(), expected);
    }
}

#[test]
fn a_health_check_is_for_nobody() {
    for (version, header) in [
        (ProxyVersion::V1, &b"PROXY UNKNOWN\r\n"[..]),
        (ProxyVersion::V2, b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"),
    ] {
        let (backend, headers) = proxied(version);
        let mut config = config(backend.url());
        config.backends[0].send_proxy = Some(version);
        config.health.path = Some("/healthz".to_owned());
        config.health.interval_ms = 20;
        let (gateway, _) = start(config);
        eventually("checks came", || headers.lock().unwrap().len() > 3);
        assert!(headers.lock().unwrap().iter().all(|seen| seen == header));
        assert!(gateway.backends_health()[0].healthy);
    }
}

#[test]
fn a_connection_of_many_clients_can_name_none() {
    let mut config = config("http://127.0.0.1:1");
    config.backends[0].send_proxy = Some(ProxyVersion::V2);
    config.backends[0].protocol = Some(BackendProtocol::H2);
    let error = Gateway::check(&config, |_| false).unwrap_err();
    assert!(error.to_string().contains("backends.send_proxy"), "{error}");
}
