//! Backends over TLS: whom the gateway believes, what it shows, and how connections end.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use headroom_gateway::{BackendProtocol, BackendTlsConfig, Gateway};
use rustls::{HandshakeKind, ServerConfig, ServerConnection, StreamOwned};

use crate::authority::Authority;
use crate::common::{Backend, Client, Message, eventually, ok, start, take};
use crate::servers::{config, tls_config, tls_server};

type Tls = StreamOwned<ServerConnection, TcpStream>;

/// A backend that speaks TLS; a connection whose handshake fails ends.
fn raw(server: Arc<ServerConfig>, serve: impl Fn(Tls, usize) + Send + Sync + 'static) -> Backend {
    Backend::raw(move |mut stream, number| {
        let mut session = ServerConnection::new(server.clone()).unwrap();
        while session.is_handshaking() {
            if session.complete_io(&mut stream).is_err() {
                return;
            }
        }
        serve(StreamOwned::new(session, stream), number);
    })
}

fn http(server: Arc<ServerConfig>, answer: impl Fn(&Message) -> Vec<u8> + Send + Sync + 'static) -> Backend {
    raw(server, move |stream, _| {
        let mut stream = BufReader::new(stream);
        while let Some(request) = Message::read(&mut stream, false) {
            if stream.get_mut().write_all(&answer(&request)).is_err() {
                return;
            }
            stream.get_mut().flush().unwrap();
        }
    })
}

#[test]
fn a_backend_that_an_authority_vouches_for_is_spoken_to_over_kept_connections() {
    let authority = Authority::new();
    let shown = authority.sign("127.0.0.1");
    for protocol in [None, Some(BackendProtocol::Http1)] {
        let backend = http(tls_server(&shown, &["http/1.1"], None), |request| {
            ok(&format!("{} {}", request.start, request.header("host").unwrap()))
        });
        let (gateway, address) = start(tls_config(backend.address, authority.trusted(), protocol));
        let mut client = Client::connect(address);
        for path in ["/a", "/b", "/c"] {
            let answer = client.get(path);
            assert_eq!(answer.status(), 200, "{}", answer.text());
            assert_eq!(answer.text(), format!("GET {path} HTTP/1.1 test"));
        }
        assert_eq!(backend.connections(), 1);
        let period = take(&gateway);
        assert_eq!((period.service.completions, period.service.failures), (3, 0));
    }
}

/// One of TLS cannot go from core to core: it is closed, so that there is room for another.
#[test]
fn a_limit_of_one_is_kept_whichever_core_needs_a_connection() {
    let authority = Authority::new();
    let shown = authority.sign("127.0.0.1");
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let busiest = most.clone();
    let backend = http(tls_server(&shown, &["http/1.1"], None), move |_| {
        busiest.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(1));
        now.fetch_sub(1, Ordering::SeqCst);
        ok("one")
    });
    let mut config = tls_config(backend.address, authority.trusted(), None);
    config.threads = 4;
    config.limits.max_in_flight_per_backend = 1;
    config.timeouts.queue_timeout_ms = 20_000;
    let (gateway, address) = start(config);
    let clients: Vec<_> = (0..6)
        .map(|_| {
            std::thread::spawn(move || {
                for _ in 0..5 {
                    assert_eq!(Client::connect(address).get("/").text(), "one");
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    let period = take(&gateway);
    assert_eq!((period.service.completions, period.service.failures), (30, 0));
    assert_eq!(most.load(Ordering::SeqCst), 1);
}

#[test]
fn bodies_of_many_records_pass_both_ways() {
    let authority = Authority::new();
    let shown = authority.sign("127.0.0.1");
    let backend = http(tls_server(&shown, &[], None), |request| {
        let mut answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
            request.body.len()
        )
        .into_bytes();
        answer.extend(request.body.iter().rev());
        answer
    });
    let (_gateway, address) = start(tls_config(backend.address, authority.trusted(), None));
    let body: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    let mut client = Client::connect(address);
    for _ in 0..2 {
        let mut sender = client.stream.try_clone().unwrap();
        let sent = body.clone();
        let sending = std::thread::spawn(move || {
            let head = format!(
                "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n",
                sent.len()
            );
            sender.write_all(head.as_bytes()).unwrap();
            sender.write_all(&sent).unwrap();
        });
        let answer = client.receive();
        sending.join().unwrap();
        assert_eq!(answer.status(), 200);
        assert!(answer.body.iter().eq(body.iter().rev()));
    }
    assert_eq!(backend.connections(), 1);
}

#[test]
fn a_certificate_that_is_not_right_ends_the_connection_before_a_request() {
    let authority = Authority::new();
    let stranger = Authority::new();
    let expired = |params: &mut rcgen::CertificateParams| {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    };
    for (what, shown) in [
        ("of another authority", stranger.sign("127.0.0.1")),
        ("expired", authority.sign_with("127.0.0.1", expired)),
        ("for another name", authority.sign("web.internal")),
    ] {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        let backend = http(tls_server(&shown, &[], None), move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
            ok("")
        });
        let (gateway, address) = start(tls_config(backend.address, authority.trusted(), None));
        assert_eq!(Client::connect(address).get("/").status(), 502, "{what}");
        assert_eq!(asked.load(Ordering::SeqCst), 0, "{what}");
        assert!(backend.connections() > 0);
        let period = take(&gateway);
        assert_eq!(
            (period.service.unreachable, period.service.completions),
            (1, 0),
            "{what}"
        );
        assert!(period.backends[0].connects.refused > 0, "{what}");
    }
}

#[test]
fn a_certificate_may_be_for_the_name_that_is_configured() {
    let authority = Authority::new();
    let shown = authority.sign("web.internal");
    let names = Arc::new(Mutex::new(Vec::new()));
    let noted = names.clone();
    let backend = raw(tls_server(&shown, &[], None), move |stream, _| {
        noted
            .lock()
            .unwrap()
            .push(stream.conn.server_name().map(str::to_owned));
        let mut stream = BufReader::new(stream);
        while Message::read(&mut stream, false).is_some() {
            stream.get_mut().write_all(&ok("here")).unwrap();
        }
    });
    let tls = BackendTlsConfig {
        server_name: Some("web.internal".to_owned()),
        ..authority.trusted()
    };
    let (_gateway, address) = start(tls_config(backend.address, tls, None));
    assert_eq!(Client::connect(address).get("/").text(), "here");
    assert_eq!(*names.lock().unwrap(), [Some("web.internal".to_owned())]);
}

#[test]
fn a_backend_that_asks_for_a_certificate_is_shown_ours() {
    let authority = Authority::new();
    let shown = authority.sign("127.0.0.1");
    let ours = authority.sign("gateway.internal");
    let backend = http(tls_server(&shown, &[], Some(&authority)), |_| ok("welcome"));
    let (_gateway, address) = start(tls_config(backend.address, authority.trusted_as(&ours), None));
    assert_eq!(Client::connect(address).get("/").text(), "welcome");
    let (_gateway, address) = start(tls_config(backend.address, authority.trusted(), None));
    assert_eq!(Client::connect(address).get("/").status(), 502);
    let stranger = Authority::new();
    let theirs = authority.trusted_as(&stranger.sign("gateway.internal"));
    let (_gateway, address) = start(tls_config(backend.address, theirs, None));
    assert_eq!(Client::connect(address).get("/").status(), 502);
}

#[test]
fn a_body_that_ends_with_its_connection_is_whole_only_after_close_notify() {
    let authority = Authority::new();
    let shown = authority.sign("127.0.0.1");
    let (read, was_read) = mpsc::channel();
    let was_read = Mutex::new(was_read);
    let backend = raw(tls_server(&shown, &[], None), move |stream, _| {
        let mut stream = BufReader::new(stream);
        let request = Message::read(&mut stream, false).unwrap();
        let stream = stream.get_mut();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\n\r\nall that there is")
            .unwrap();
        stream.flush().unwrap();
        // A reset would else overtake what the client has not read.
        was_read.lock().unwrap().recv().unwrap();
        if request.start.contains("/whole") {
            stream.conn.send_close_notify();
            stream.flush().unwrap();
        }
        stream.sock.shutdown(std::net::Shutdown::Write).unwrap();
        let _ = stream.sock.read(&mut [0]);
    });
    let (gateway, address) = start(tls_config(backend.address, authority.trusted(), None));
    for (path, is_whole) in [("/whole", true), ("/cut", false)] {
        let mut client = Client::connect(address);
        // As HTTP/1.0, where the body ends with the connection for the client too.
        client.send(format!("GET {path} HTTP/1.0\r\n\r\n"));
        assert_eq!(Message::read_head(&mut client.reader).unwrap().status(), 200);
        let mut body = [0; 17];
        client.reader.read_exact(&mut body).unwrap();
        assert_eq!(&body, b"all that there is");
        read.send(()).unwrap();
        let end = client.reader.read(&mut body);
        assert_eq!(matches!(end, Ok(0)), is_whole, "{path}: {end:?}");
    }
    let period = take(&gateway);
    assert_eq!(
        (period.service.completions, period.service.aborted_by_backend),
        (1, 1)
    );
}

#[test]
fn a_kept_connection_that_the_backend_closed_is_not_used_and_the_next_resumes_its_session() {
    let authority = Authority::new();
    let shown = authority.sign("127.0.0.1");
    let kinds = Arc::new(Mutex::new(Vec::new()));
    let noted = kinds.clone();
    let backend = raw(tls_server(&shown, &[], None), move |stream, number| {
        noted.lock().unwrap().push(stream.conn.handshake_kind());
        let mut stream = BufReader::new(stream);
        Message::read(&mut stream, false).unwrap();
        stream.get_mut().write_all(&ok(&number.to_string())).unwrap();
        stream.get_mut().conn.send_close_notify();
        stream.get_mut().flush().unwrap();
        // The client's end.
        let _ = stream.read(&mut [0]);
    });
    let (gateway, address) = start(tls_config(backend.address, authority.trusted(), None));
    let mut client = Client::connect(address);
    for number in ["0", "1", "2"] {
        assert_eq!(client.get("/").text(), number);
    }
    let kinds = kinds.lock().unwrap();
    assert_eq!(kinds[0], Some(HandshakeKind::Full));
    assert!(
        kinds[1..]
            .iter()
            .all(|kind| *kind == Some(HandshakeKind::Resumed)),
        "{kinds:?}"
    );
    assert_eq!(take(&gateway).service.completions, 3);
}

#[test]
fn health_checks_believe_whom_requests_believe() {
    let authority = Authority::new();
    let good = http(tls_server(&authority.sign("127.0.0.1"), &[], None), |_| ok(""));
    let bad = http(tls_server(&authority.sign("web.internal"), &[], None), |_| ok(""));
    let mut config = tls_config(good.address, authority.trusted(), None);
    let mut other = config.backends[0].clone();
    other.url = format!("https://{}", bad.address);
    config.backends.push(other);
    config.health.path = Some("/healthz".to_owned());
    config.health.interval_ms = 20;
    let (gateway, _) = start(config);
    eventually("the one of another name is unhealthy", || {
        let health = gateway.backends_health();
        health[0].healthy && !health[1].healthy
    });
}

#[test]
fn mistakes_name_the_backend_the_key_and_the_file() {
    let authority = Authority::new();
    let address = "127.0.0.1:1".parse().unwrap();
    let missing = BackendTlsConfig {
        ca: Some("/nowhere/ca.pem".into()),
        ..BackendTlsConfig::default()
    };
    let empty = BackendTlsConfig {
        ca: Some(authority.file("empty.pem", "")),
        ..BackendTlsConfig::default()
    };
    let mut unfit = authority.trusted_as(&authority.sign("a"));
    unfit.key = authority.trusted_as(&authority.sign("b")).key;
    // The certificate of the first was written over by the second's.
    let first = authority.trusted_as(&authority.sign("a"));
    let other_key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let unfit = BackendTlsConfig {
        key: Some(authority.file("other-key.pem", &other_key)),
        ..BackendTlsConfig {
            ca: unfit.ca,
            ..first
        }
    };
    let alone = BackendTlsConfig {
        certificate: Some("a.pem".into()),
        ..authority.trusted()
    };
    let unnamed = BackendTlsConfig {
        server_name: Some("a b".to_owned()),
        ..authority.trusted()
    };
    for (tls, words) in [
        (missing, ["backends.tls.ca", "/nowhere/ca.pem"]),
        (empty, ["backends.tls.ca", "no certificate"]),
        (unfit, ["backends.tls.key", "does not fit"]),
        (alone, ["backends.tls", "without key"]),
        (unnamed, ["backends.tls.server_name", "a b"]),
    ] {
        let error = Gateway::check(&tls_config(address, tls, None), |_| false).unwrap_err();
        let error = error.to_string();
        for word in words.iter().chain(&["https://127.0.0.1:1"]) {
            assert!(error.contains(word), "{error}");
        }
    }
    let mut cleartext = config("http://127.0.0.1:1");
    cleartext.backends[0].tls = Some(authority.trusted());
    assert!(Gateway::check(&cleartext, |_| false).is_err());
    let mut cleartext = config("http://127.0.0.1:1");
    cleartext.backends[0].protocol = Some(BackendProtocol::Auto);
    let error = Gateway::check(&cleartext, |_| false).unwrap_err();
    assert!(error.to_string().contains("backends.protocol"), "{error}");
}
