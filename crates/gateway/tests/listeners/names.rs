//! All addresses of a backend's name: in turn, past those that refuse, looked up again by their time to live.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Backend, Client, config, eventually, ok, start, take};
use headroom_gateway::{BackendConfig, Gateway, GatewayConfig, GatewayError, Handle};

/// What a name server says of every name: addresses and their time to live; nothing: SERVFAIL.
type Zone = Arc<Mutex<Option<(Vec<Ipv4Addr>, u32)>>>;

/// A name server for `service.test` and below on UDP; other names do not exist. How often it was asked for an A record.
fn name_server(socket: UdpSocket, zone: Zone) -> Arc<Mutex<Vec<String>>> {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    std::thread::spawn(move || {
        let mut query = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut query) {
            let answer = respond(&query[..length], &zone, &log);
            let _ = socket.send_to(&answer, from);
        }
    });
    asked
}

fn respond(query: &[u8], zone: &Zone, log: &Mutex<Vec<String>>) -> Vec<u8> {
    // The name: labels, each after its length, to an empty one; then type and class (RFC 1035 section 4.1.2).
    let (mut at, mut labels) = (12, Vec::new());
    while query[at] != 0 {
        let length = usize::from(query[at]);
        labels.push(String::from_utf8_lossy(&query[at + 1..=at + length]).into_owned());
        at += length + 1;
    }
    let kind = u16::from_be_bytes([query[at + 1], query[at + 2]]);
    let question = &query[12..at + 5];
    let name = labels.join(".");
    let known = name.ends_with("service.test");
    if kind == 1 {
        log.lock().unwrap().push(name);
    }
    let zone = zone.lock().unwrap();
    let (code, records) = match &*zone {
        None => (2, Vec::new()),
        Some(_) if !known => (3, Vec::new()),
        Some((addresses, ttl)) if kind == 1 => (0, addresses.iter().map(|ip| (*ip, *ttl)).collect()),
        Some(_) => (0, Vec::new()),
    };
    let mut answer = query[..2].to_vec();
    answer.extend([0x81, 0x80 | code, 0, 1, 0, records.len() as u8, 0, 0, 0, 0]);
    answer.extend(question);
    for (ip, ttl) in records {
        answer.extend([0xc0, 12, 0, 1, 0, 1]);
        answer.extend(u32::to_be_bytes(ttl));
        answer.extend([0, 4]);
        answer.extend(ip.octets());
    }
    answer
}

/// Backends at the same port of several addresses, each answering with its own.
fn site(addresses: &[Ipv4Addr]) -> (u16, Vec<Backend>) {
    'ports: loop {
        let first = TcpListener::bind((addresses[0], 0)).unwrap();
        let port = first.local_addr().unwrap().port();
        let mut listeners = vec![first];
        for address in &addresses[1..] {
            match TcpListener::bind((*address, port)) {
                Ok(listener) => listeners.push(listener),
                Err(_) => continue 'ports,
            }
        }
        let serve = |listener: TcpListener| {
            let address = listener.local_addr().unwrap().ip().to_string();
            Backend::http_on(listener, move |_| ok(&address))
        };
        return (port, listeners.into_iter().map(serve).collect());
    }
}

fn ip(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 44, 0, last)
}

struct Place {
    zone: Zone,
    asked: Arc<Mutex<Vec<String>>>,
    folder: tempfile::TempDir,
    server: SocketAddr,
}

fn place(addresses: &[Ipv4Addr], ttl: u32) -> Place {
    let zone: Zone = Arc::new(Mutex::new(Some((addresses.to_vec(), ttl))));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let server = socket.local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("hosts"), "127.0.0.1 localhost\n").unwrap();
    std::fs::write(
        folder.path().join("resolv.conf"),
        "search inner.service.test service.test\n",
    )
    .unwrap();
    Place {
        asked: name_server(socket, zone.clone()),
        zone,
        folder,
        server,
    }
}

impl Place {
    fn config(&self, url: String) -> GatewayConfig {
        let mut config = config(&[]);
        config.backends = vec![BackendConfig::new(url)];
        config.resolver.nameservers = vec![self.server];
        config.resolver.resolv_conf = self.folder.path().join("resolv.conf");
        config.resolver.hosts = self.folder.path().join("hosts");
        // Each request a connection of its own, so that each takes the next address.
        config.limits.max_idle_per_backend_per_core = 0;
        config
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

/// Which addresses so many requests reach.
fn reached(address: SocketAddr, requests: usize) -> Vec<String> {
    let mut client = Client::connect(address);
    (0..requests)
        .map(|_| {
            let answer = client.get("/");
            assert_eq!(answer.status(), 200);
            answer.text()
        })
        .collect()
}

fn count(reached: &[String], last: u8) -> usize {
    reached.iter().filter(|one| **one == ip(last).to_string()).count()
}

#[test]
fn every_address_takes_its_turn_and_one_that_refuses_is_passed_over() {
    let (port, mut backends) = site(&[ip(1), ip(2), ip(3)]);
    let place = place(&[ip(1), ip(2), ip(3)], 300);
    let (gateway, address) = start(place.config(format!("http://service.test:{port}")));
    let spread = reached(address, 30);
    assert_eq!(
        [1, 2, 3].map(|last| count(&spread, last)),
        [10, 10, 10],
        "{spread:?}"
    );
    // One server goes: no request fails.
    let gone = backends.remove(1);
    drop(gone);
    let spread = reached(address, 30);
    assert_eq!(count(&spread, 2), 0);
    assert!(count(&spread, 1) >= 10 && count(&spread, 3) >= 10, "{spread:?}");
    let period = take(&gateway);
    assert_eq!((period.service.completions, period.service.failures), (60, 0));
    assert_eq!(
        period.backends[0].connects.ejected_refused, 0,
        "the backend is there"
    );
    // All gone: that is the backend's.
    backends.clear();
    assert_eq!(Client::connect(address).get("/").status(), 502);
}

#[test]
fn a_name_is_looked_up_again_when_its_time_to_live_is_over_and_failing_look_ups_change_nothing() {
    let (port, _backends) = site(&[ip(11), ip(12)]);
    let place = place(&[ip(11)], 1);
    let (_gateway, address) = start(place.config(format!("http://service.test:{port}")));
    assert_eq!(count(&reached(address, 4), 11), 4);
    *place.zone.lock().unwrap() = Some((vec![ip(11), ip(12)], 1));
    eventually("the second address is used", || {
        count(&reached(address, 2), 12) > 0
    });
    *place.zone.lock().unwrap() = Some((vec![ip(12)], 1));
    eventually("the first is not any more", || {
        count(&reached(address, 2), 12) == 2
    });
    // The name server fails: the last addresses stay, and it is asked again.
    *place.zone.lock().unwrap() = None;
    let before = place.asked();
    eventually("it is asked while it fails", || place.asked() >= before + 2);
    assert_eq!(count(&reached(address, 4), 12), 4);
    *place.zone.lock().unwrap() = Some((vec![ip(11)], 1));
    eventually("what it says when it is back holds", || {
        count(&reached(address, 2), 11) == 2
    });
}

#[test]
fn a_long_time_to_live_is_kept_to_and_none_is_a_second() {
    let (port, _backends) = site(&[ip(21)]);
    let (long, none) = (place(&[ip(21)], 300), place(&[ip(21)], 0));
    let (_long, _) = start(long.config(format!("http://service.test:{port}")));
    let (_none, _) = start(none.config(format!("http://service.test:{port}")));
    let begun = std::time::Instant::now();
    eventually("asked again", || none.asked() >= 3);
    // Twice within two seconds and more, not in a busy loop.
    assert!(
        begun.elapsed() >= Duration::from_millis(1_500),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(long.asked(), 1);
}

#[test]
fn the_hosts_file_goes_first_and_search_domains_complete_a_name() {
    let (port, _backends) = site(&[ip(31), ip(32)]);
    let place = place(&[ip(31)], 300);
    let (_gateway, address) = start(place.config(format!("http://web:{port}")));
    assert_eq!(count(&reached(address, 2), 31), 2);
    assert_eq!(*place.asked.lock().unwrap(), ["web.inner.service.test"]);
    std::fs::write(
        place.folder.path().join("hosts"),
        format!("{} other Service.Test # here\n", ip(32)),
    )
    .unwrap();
    let (_gateway, address) = start(place.config(format!("http://service.test:{port}")));
    assert_eq!(count(&reached(address, 2), 32), 2);
    assert_eq!(place.asked(), 1);
}

#[test]
fn a_name_that_is_unknown_or_a_server_that_fails_is_said_at_the_start() {
    let place = place(&[], 300);
    for (url, name) in [
        ("http://nobody.example:1", "nobody.example"),
        ("http://service.test:1", "service.test"),
    ] {
        let error = Gateway::start(place.config(url.to_owned())).unwrap_err();
        assert!(matches!(error, GatewayError::Resolve { .. }), "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
    *place.zone.lock().unwrap() = None;
    let error = Gateway::start(place.config("http://service.test:1".to_owned()))
        .unwrap_err()
        .to_string();
    assert!(error.contains("SERVFAIL"), "{error}");
    let mut config = place.config("http://service.test:1".to_owned());
    config.resolver.nameservers.clear();
    let error = Gateway::start(config).unwrap_err().to_string();
    assert!(error.contains("resolv.conf names no nameserver"), "{error}");
}

/// A `resolv.conf` names a server by its address alone, so that it must be at port 53.
#[test]
fn a_resolv_conf_says_who_is_asked() {
    let server = ip(53);
    let socket = match UdpSocket::bind((server, 53)) {
        Ok(socket) => socket,
        Err(error) => {
            println!("skipped: {server}:53 cannot be bound: {error}");
            return;
        }
    };
    let (port, _backends) = site(&[ip(41)]);
    let place = place(&[ip(41)], 300);
    let asked = name_server(socket, place.zone.clone());
    let mut config = place.config(format!("http://service.test:{port}"));
    config.resolver.nameservers.clear();
    let text = format!("# by hand\noptions edns0 trust-ad no-such-option\nnameserver {server}\nsearch .\n");
    std::fs::write(&config.resolver.resolv_conf, text).unwrap();
    let (_gateway, address): (Handle, _) = start(config);
    assert_eq!(count(&reached(address, 2), 41), 2);
    assert_eq!(*asked.lock().unwrap(), ["service.test"]);
    assert_eq!(place.asked(), 0);
}

#[test]
fn an_active_check_goes_by_whichever_address_answers() {
    let (port, mut backends) = site(&[ip(51), ip(52)]);
    let place = place(&[ip(51), ip(52)], 300);
    let mut config = place.config(format!("http://service.test:{port}"));
    config.health.path = Some("/up".to_owned());
    config.health.interval_ms = 20;
    config.health.fall = 2;
    let (gateway, _) = start(config);
    drop(backends.remove(0));
    let seen = backends[0].connections();
    eventually("it is checked by the other", || {
        backends[0].connections() > seen + 5
    });
    assert!(gateway.backends_health()[0].healthy);
    backends.clear();
    eventually("it is unhealthy", || !gateway.backends_health()[0].healthy);
}

/// A listener whose accept queue is full answers nothing, as a host that is gone.
fn silent(address: SocketAddr) -> (socket2::Socket, Vec<std::net::TcpStream>) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&address.into()).unwrap();
    socket.listen(0).unwrap();
    let brief = Duration::from_millis(200);
    let held = (0..4)
        .filter_map(|_| std::net::TcpStream::connect_timeout(&address, brief).ok())
        .collect();
    assert!(
        std::net::TcpStream::connect_timeout(&address, brief).is_err(),
        "it is not full"
    );
    (socket, held)
}

#[test]
fn a_silent_address_costs_neither_checks_nor_requests() {
    let (port, _backends) = site(&[ip(62)]);
    // It is the first of the two, which whoever tries them in their order tries first.
    let _silent = silent((ip(61), port).into());
    let place = place(&[ip(61), ip(62)], 300);
    let mut config = place.config(format!("http://service.test:{port}"));
    config.health.path = Some("/up".to_owned());
    config.health.interval_ms = 20;
    config.health.timeout_ms = 800;
    config.health.fall = 1;
    let (gateway, address) = start(config);
    assert_eq!(count(&reached(address, 10), 62), 10);
    std::thread::sleep(Duration::from_millis(1_500));
    let health = &gateway.backends_health()[0];
    assert!(health.healthy && health.ejected_for.is_none(), "{health:?}");
}

#[test]
fn a_connection_to_an_address_that_is_gone_is_not_used_again() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let released = Arc::new(AtomicBool::new(false));
    let (port, new) = site(&[ip(72)]);
    let waits = released.clone();
    let old = Backend::http_on(TcpListener::bind((ip(71), port)).unwrap(), move |request| {
        eventually("released", || {
            !request.start.contains("/slow") || waits.load(Ordering::SeqCst)
        });
        ok("old")
    });
    let place = place(&[ip(71)], 1);
    let mut config = place.config(format!("http://service.test:{port}"));
    config.limits.max_idle_per_backend_per_core = 8;
    let (_gateway, address) = start(config);
    let mut slow = Client::connect(address);
    slow.send("GET /slow HTTP/1.1\r\nHost: test\r\n\r\n");
    eventually("it is under way", || old.connections() == 1);
    *place.zone.lock().unwrap() = Some((vec![ip(72)], 300));
    eventually("the new address is used", || count(&reached(address, 1), 72) == 1);
    let before = old.connections();
    released.store(true, Ordering::SeqCst);
    assert_eq!(slow.receive().text(), "old", "what is under way finishes");
    let later = reached(address, 20);
    assert_eq!(count(&later, 72), 20, "{later:?}");
    assert_eq!(old.connections(), before);
    drop(new);
}
