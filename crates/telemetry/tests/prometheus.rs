//! The queries against a server that answers like Prometheus.

use headroom_telemetry::Source;
use headroom_telemetry::prometheus::{Credentials, PrometheusError, TlsFiles};
use headroom_telemetry::{Latency, Lost, PrometheusConfig, PrometheusTelemetry};
use headroom_units::Seconds;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const PATIENCE: Duration = Duration::from_secs(5);

/// What the server does with a query.
#[derive(Clone, Debug)]
enum Behaviour {
    /// Status and body.
    Answer(u16, String),
    /// Nothing, for long.
    Hang,
    /// It closes the connection after the answer, without saying so before.
    AnswerAndClose(u16, String),
    /// A redirection.
    Elsewhere,
}

#[derive(Clone, Default)]
struct Server {
    answers: Arc<Mutex<HashMap<String, Behaviour>>>,
    connections: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<String>>>,
    /// The only `Authorization` that is let in; any where none is set.
    wanted: Arc<Mutex<Option<String>>>,
}

impl Server {
    /// Listens on loopback; the thread ends with the test's process.
    fn start() -> (Self, String) {
        let server = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                serving.connections.fetch_add(1, Ordering::Relaxed);
                let serving = serving.clone();
                std::thread::spawn(move || serving.serve(stream));
            }
        });
        (server, url)
    }

    fn set(&self, query: &str, behaviour: Behaviour) {
        self.answers.lock().unwrap().insert(query.into(), behaviour);
    }

    fn serve(&self, mut stream: TcpStream) {
        while let Some((head, query)) = request(&mut stream) {
            let mut behaviour = self.answers.lock().unwrap().get(&query).cloned();
            if let Some(wanted) = &*self.wanted.lock().unwrap()
                && !head.contains(&format!("authorization: {wanted}\r\n"))
            {
                // As a proxy that is badly written may.
                behaviour = Some(Behaviour::Answer(401, head.clone()));
            }
            self.seen.lock().unwrap().push(head);
            let (status, body, close) = match behaviour {
                Some(Behaviour::Answer(status, body)) => (status, body, false),
                Some(Behaviour::AnswerAndClose(status, body)) => (status, body, true),
                Some(Behaviour::Elsewhere) => (302, String::new(), false),
                Some(Behaviour::Hang) => {
                    std::thread::sleep(Duration::from_secs(3));
                    return;
                }
                None => (
                    400,
                    format!(r#"{{"status":"error","error":"unknown query {query}"}}"#),
                    false,
                ),
            };
            let location = if status == 302 {
                "location: http://elsewhere/\r\n"
            } else {
                ""
            };
            let reply = format!(
                "HTTP/1.1 {status} X\r\n{location}content-length: {}\r\n\r\n{body}",
                body.len()
            );
            if stream.write_all(reply.as_bytes()).is_err() || close {
                return;
            }
        }
    }
}

/// The head and the query of the next request.
fn request(stream: &mut impl Read) -> Option<(String, String)> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| {
        line.to_ascii_lowercase()
            .strip_prefix("content-length:")?
            .trim()
            .parse()
            .ok()
    })?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    let body = String::from_utf8(body).unwrap();
    let query = body.split('&').find_map(|pair| pair.strip_prefix("query="))?;
    let mut decoded = Vec::new();
    let mut bytes = query.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(if byte == b'%' {
            let hex = [bytes.next()?, bytes.next()?];
            u8::from_str_radix(std::str::from_utf8(&hex).ok()?, 16).ok()?
        } else {
            byte
        });
    }
    Some((head, String::from_utf8(decoded).unwrap()))
}

fn now_s() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs_f64()
}

fn vector(values: &[&str], at_s: f64) -> Behaviour {
    let series: Vec<String> = values
        .iter()
        .enumerate()
        .map(|(number, value)| format!(r#"{{"metric":{{"pod":"p{number}"}},"value":[{at_s:.3},"{value}"]}}"#))
        .collect();
    let series = series.join(",");
    Behaviour::Answer(
        200,
        format!(r#"{{"status":"success","data":{{"resultType":"vector","result":[{series}]}}}}"#),
    )
}

fn config(url: &str) -> PrometheusConfig {
    PrometheusConfig::new(url, 95.0, "latency{a=\"b c\"}", "rate")
}

const LATENCY: &str = "latency{a=\"b c\"}";

fn lost(telemetry: &mut PrometheusTelemetry) -> String {
    match telemetry.take_period(PATIENCE).lost {
        Some(Lost::Query(why)) => why,
        other => panic!("not lost: {other:?}"),
    }
}

#[test]
fn latency_and_rate_make_a_period() {
    let (server, url) = Server::start();
    server.set(LATENCY, vector(&["0.125"], now_s()));
    server.set(
        "rate",
        Behaviour::Answer(
            200,
            format!(
                r#"{{"status":"success","data":{{"resultType":"scalar","result":[{},"100"]}}}}"#,
                now_s()
            ),
        ),
    );
    server.set("flight", vector(&["7"], now_s()));
    server.set("failing", vector(&["10"], now_s()));
    let mut config = config(&url);
    config.in_flight = Some("flight".into());
    config.failure_rate = Some("failing".into());
    let mut telemetry = PrometheusTelemetry::start(config).unwrap();
    let (mut arrivals, mut failures, mut length_s) = (0, 0, 0.0);
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(13));
        let period = telemetry.take_period(PATIENCE);
        assert!(period.lost.is_none(), "{:?}", period.lost);
        assert_eq!(period.latency.at(95.0), Some(Seconds::new(0.125)));
        assert!(matches!(period.latency, Latency::Percentile { .. }));
        assert_eq!(period.in_flight, Some(7));
        assert_eq!(period.completions + period.failures, period.arrivals);
        arrivals += period.arrivals;
        failures += period.failures;
        length_s += period.since.as_secs_f64();
    }
    // Fractions of requests are carried, not lost.
    assert!(
        (arrivals as f64 - 100.0 * length_s).abs() <= 1.5,
        "{arrivals} in {length_s} s"
    );
    assert!(
        (failures as f64 - 10.0 * length_s).abs() <= 1.5,
        "{failures} in {length_s} s"
    );
    assert_eq!(server.connections.load(Ordering::Relaxed), 1);
    let seen = server.seen.lock().unwrap();
    assert!(seen[0].starts_with("POST /api/v1/query HTTP/1.1"), "{}", seen[0]);
}

#[test]
fn a_quantile_of_no_request_is_idleness_and_of_some_a_loss() {
    let (server, url) = Server::start();
    let mut telemetry = PrometheusTelemetry::start(config(&url)).unwrap();
    server.set(LATENCY, vector(&["NaN"], now_s()));
    server.set("rate", vector(&["0"], now_s()));
    let period = telemetry.take_period(PATIENCE);
    assert!(period.lost.is_none() && period.arrivals == 0, "{period:?}");
    assert_eq!(period.latency.at(95.0), None);
    server.set("rate", vector(&["5"], now_s()));
    assert!(lost(&mut telemetry).contains("NaN"));
    server.set(LATENCY, vector(&["+Inf"], now_s()));
    assert!(lost(&mut telemetry).contains("bucket"));
    server.set("rate", vector(&["NaN"], now_s()));
    assert!(lost(&mut telemetry).contains("request rate"));
    server.set("rate", vector(&["-1"], now_s()));
    assert!(lost(&mut telemetry).contains("request rate"));
}

#[test]
fn what_is_no_number_is_lost_with_the_remedy() {
    let (server, url) = Server::start();
    let mut telemetry = PrometheusTelemetry::start(config(&url)).unwrap();
    server.set("rate", vector(&["1"], now_s()));
    for (behaviour, word) in [
        (vector(&[], now_s()), "empty"),
        (vector(&["1", "2", "3"], now_s()), "sum("),
        (vector(&["1"], now_s() - 300.0), "clocks"),
        (Behaviour::Answer(503, "<html>busy</html>".into()), "503"),
        (Behaviour::Answer(200, "x".repeat(2 << 20)), "1024 KiB"),
        (Behaviour::Elsewhere, "redirects"),
        (Behaviour::Answer(200, "[]".into()), "not that of a Prometheus"),
    ] {
        server.set(LATENCY, behaviour.clone());
        let why = lost(&mut telemetry);
        assert!(why.contains(word), "{word}: {why}");
        assert!(why.contains(LATENCY) && why.contains(&url), "{why}");
    }
    // And then it is well again.
    server.set(LATENCY, vector(&["1"], now_s()));
    assert!(telemetry.take_period(PATIENCE).lost.is_none());
}

#[test]
fn an_old_sample_is_stale() {
    let (server, url) = Server::start();
    server.set(LATENCY, vector(&["1"], now_s()));
    server.set("rate", vector(&["1"], now_s()));
    server.set("newest", vector(&[&format!("{}", now_s() - 90.0)], now_s()));
    let mut config = config(&url);
    config.latest_sample = Some("newest".into());
    let mut telemetry = PrometheusTelemetry::start(config).unwrap();
    assert!(lost(&mut telemetry).contains("scraped"));
    server.set("newest", vector(&[&format!("{}", now_s() - 5.0)], now_s()));
    assert!(telemetry.take_period(PATIENCE).lost.is_none());
}

#[test]
fn a_server_that_hangs_or_is_gone_costs_no_more_than_the_patience() {
    let (server, url) = Server::start();
    server.set("rate", Behaviour::Hang);
    let mut telemetry = PrometheusTelemetry::start(config(&url)).unwrap();
    let begun = Instant::now();
    let period = telemetry.take_period(Duration::from_millis(200));
    assert!(period.lost.is_some());
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    server.set("rate", vector(&["1"], now_s()));
    server.set(LATENCY, vector(&["1"], now_s()));
    assert!(telemetry.take_period(PATIENCE).lost.is_none());
    assert_eq!(telemetry.answers(PATIENCE), Ok(()));

    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut telemetry = PrometheusTelemetry::start(config(&format!("http://{nobody}"))).unwrap();
    assert!(lost(&mut telemetry).contains("no connection"));
    assert!(telemetry.answers(PATIENCE).unwrap_err().contains("no connection"));
}

#[test]
fn a_kept_connection_that_was_closed_is_opened_again() {
    let (server, url) = Server::start();
    let Behaviour::Answer(status, body) = vector(&["1"], now_s()) else {
        unreachable!("a vector is an answer");
    };
    server.set(LATENCY, Behaviour::AnswerAndClose(status, body.clone()));
    server.set("rate", Behaviour::AnswerAndClose(status, body));
    let mut telemetry = PrometheusTelemetry::start(config(&url)).unwrap();
    for _ in 0..5 {
        let period = telemetry.take_period(PATIENCE);
        assert!(period.lost.is_none(), "{:?}", period.lost);
    }
    assert_eq!(server.connections.load(Ordering::Relaxed), 10);
}

#[test]
fn a_token_and_a_password_are_sent_and_read_again_and_never_shown() {
    let (server, url) = Server::start();
    server.set(LATENCY, vector(&["0.125"], now_s()));
    server.set("rate", vector(&["100"], now_s()));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, "first-hidden\n").unwrap();
    let mut config = config(&url);
    *server.wanted.lock().unwrap() = Some("Bearer first-hidden".into());
    let mut nobody = PrometheusTelemetry::start(config.clone()).unwrap();
    assert!(lost(&mut nobody).contains("token_file"));

    config.credentials = Some(Credentials::Token { file: file.clone() });
    let mut telemetry = PrometheusTelemetry::start(config.clone()).unwrap();
    assert!(telemetry.take_period(PATIENCE).lost.is_none());
    assert_eq!(telemetry.answers(PATIENCE), Ok(()));
    // The token is replaced, first there and then here.
    *server.wanted.lock().unwrap() = Some("Bearer second-hidden".into());
    let why = lost(&mut telemetry);
    assert!(
        why.contains("401") && why.contains(&*file.to_string_lossy()),
        "{why}"
    );
    assert!(
        !why.contains("hidden") && !format!("{telemetry:?}").contains("hidden"),
        "{why}"
    );
    std::fs::write(&file, "second-hidden").unwrap();
    assert!(telemetry.take_period(PATIENCE).lost.is_none());
    std::fs::remove_file(&file).unwrap();
    assert!(lost(&mut telemetry).contains("cannot be read"));

    // RFC 7617, section 2.
    std::fs::write(&file, "open sesame").unwrap();
    *server.wanted.lock().unwrap() = Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==".into());
    let user = |user: &str| {
        Some(Credentials::Password {
            user: user.into(),
            file: file.clone(),
        })
    };
    config.credentials = user("Aladdin");
    let mut telemetry = PrometheusTelemetry::start(config.clone()).unwrap();
    assert!(telemetry.take_period(PATIENCE).lost.is_none());
    config.credentials = user("Cassim");
    let mut telemetry = PrometheusTelemetry::start(config.clone()).unwrap();
    let why = lost(&mut telemetry);
    assert!(why.contains("Cassim") && !why.contains("sesame"), "{why}");
    config.credentials = user("Ala:ddin");
    assert!(matches!(
        PrometheusTelemetry::start(config),
        Err(PrometheusError::User(_))
    ));
}

#[test]
fn secrets_that_others_can_see_are_warned_of() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "x").unwrap();
    let warnings = |url: &str, mode: u32| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let mut config = config(url);
        config.credentials = Some(Credentials::Token { file: file.clone() });
        let notes = PrometheusTelemetry::start(config).unwrap().notes();
        notes.iter().filter(|note| note.starts_with("warning")).count()
    };
    assert_eq!(warnings("http://127.0.0.1:9090", 0o600), 0);
    assert_eq!(warnings("http://127.0.0.1:9090", 0o604), 1);
    assert_eq!(warnings("http://monitor.example", 0o644), 2);
    assert_eq!(warnings("https://monitor.example", 0o600), 0);
}

#[test]
fn more_failures_than_requests_are_refused() {
    let (server, url) = Server::start();
    server.set(LATENCY, vector(&["0.125"], now_s()));
    server.set("rate", vector(&["100"], now_s()));
    server.set("failing", vector(&["150"], now_s()));
    let mut config = config(&url);
    config.failure_rate = Some("failing".into());
    let mut telemetry = PrometheusTelemetry::start(config).unwrap();
    assert!(lost(&mut telemetry).contains("more requests fail"));
    server.set("failing", vector(&["100"], now_s()));
    let period = telemetry.take_period(PATIENCE);
    assert!(period.lost.is_none() && period.completions == 0, "{period:?}");
}

/// A server by TLS that answers 2 to each query; of clients it wants a certificate of an authority, where one is given.
fn tls_server(certified: &rcgen::CertifiedKey<rcgen::KeyPair>, clients: Option<&rcgen::Certificate>) -> u16 {
    let key = rustls::pki_types::PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(authority.der().clone()).unwrap();
            let verifier =
                rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let tls = builder.with_single_cert(vec![certified.cert.der().clone()], key);
    let tls = Arc::new(tls.unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let tls = Arc::clone(&tls);
            std::thread::spawn(move || {
                let connection = rustls::ServerConnection::new(tls).unwrap();
                let mut stream = rustls::StreamOwned::new(connection, stream);
                while request(&mut stream).is_some() {
                    let Behaviour::Answer(_, body) = vector(&["2"], now_s()) else {
                        unreachable!("a vector is an answer");
                    };
                    let reply = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                    if stream
                        .write_all(reply.as_bytes())
                        .and_then(|()| stream.flush())
                        .is_err()
                    {
                        break;
                    }
                }
            });
        }
    });
    port
}

fn certified(name: &str) -> rcgen::CertifiedKey<rcgen::KeyPair> {
    rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap()
}

#[test]
fn https_needs_a_certificate_of_the_authority_and_of_the_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        Some(path)
    };
    let (server, other) = (certified("localhost"), certified("localhost"));
    let port = tls_server(&server, None);
    let mut secure = config(&format!("https://localhost:{port}"));
    secure.tls.ca_file = file("ca.pem", &server.cert.pem());
    let mut telemetry = PrometheusTelemetry::start(secure.clone()).unwrap();
    let period = telemetry.take_period(PATIENCE);
    assert_eq!(
        period.latency.at(95.0),
        Some(Seconds::new(2.0)),
        "{:?}",
        period.lost
    );
    secure.tls.ca_file = file("other.pem", &other.cert.pem());
    let mut telemetry = PrometheusTelemetry::start(secure.clone()).unwrap();
    assert!(lost(&mut telemetry).contains("certificate"));
    secure.tls.ca_file = file("empty.pem", "");
    let error = PrometheusTelemetry::start(secure).unwrap_err();
    assert!(error.to_string().contains("empty.pem"), "{error}");

    // A certificate of another name than the address.
    let named = certified("prometheus.internal");
    let port = tls_server(&named, None);
    let mut secure = config(&format!("https://localhost:{port}"));
    secure.tls.ca_file = file("named.pem", &named.cert.pem());
    let mut telemetry = PrometheusTelemetry::start(secure.clone()).unwrap();
    assert!(lost(&mut telemetry).contains("certificate"));
    secure.tls.server_name = Some("prometheus.internal".into());
    let mut telemetry = PrometheusTelemetry::start(secure.clone()).unwrap();
    assert!(telemetry.take_period(PATIENCE).lost.is_none());
    secure.tls.server_name = Some("no name".into());
    let error = PrometheusTelemetry::start(secure.clone()).unwrap_err();
    assert!(matches!(error, PrometheusError::ServerName { .. }), "{error}");
    secure.url = "http://localhost".into();
    let error = PrometheusTelemetry::start(secure).unwrap_err();
    assert!(matches!(error, PrometheusError::NoTls(_)), "{error}");
}

#[test]
fn a_client_shows_its_certificate_where_one_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (server, client, other) = (
        certified("localhost"),
        certified("headroom"),
        certified("headroom"),
    );
    let port = tls_server(&server, Some(&client.cert));
    let mut secure = config(&format!("https://localhost:{port}"));
    let files = |client: Option<(std::path::PathBuf, std::path::PathBuf)>| TlsFiles {
        ca_file: Some(file("ca.pem", &server.cert.pem())),
        client,
        server_name: None,
    };
    let of = |name: &str, certified: &rcgen::CertifiedKey<rcgen::KeyPair>| {
        Some((
            file(&format!("{name}.crt"), &certified.cert.pem()),
            file(&format!("{name}.key"), &certified.signing_key.serialize_pem()),
        ))
    };
    for (shown, is_let_in) in [
        (None, false),
        (of("other", &other), false),
        (of("client", &client), true),
    ] {
        secure.tls = files(shown);
        let mut telemetry = PrometheusTelemetry::start(secure.clone()).unwrap();
        let lost = telemetry.take_period(PATIENCE).lost;
        assert_eq!(lost.is_none(), is_let_in, "{lost:?}");
    }
    let (certificate, _) = of("client", &client).unwrap();
    let (_, key) = of("other", &other).unwrap();
    secure.tls = files(Some((certificate, key.clone())));
    let error = PrometheusTelemetry::start(secure.clone()).unwrap_err();
    assert!(error.to_string().contains("other.key"), "{error}");
    secure.tls = files(Some((key.clone(), key)));
    let error = PrometheusTelemetry::start(secure).unwrap_err();
    assert!(error.to_string().contains("no certificate"), "{error}");
}

#[test]
fn a_wrong_configuration_is_refused() {
    for (change, word) in [
        (
            (|c: &mut PrometheusConfig| c.url = "prometheus:9090".into()) as fn(&mut PrometheusConfig),
            "http://",
        ),
        (|c| c.url = "http://me:hidden@h".into(), "password_file"),
        (|c| c.percentile = 100.0, "100"),
        (|c| c.percentile = f64::NAN, "NaN"),
        (|c| c.rate = " ".into(), "request rate"),
    ] {
        let mut config = config("http://127.0.0.1:9");
        change(&mut config);
        let text = PrometheusTelemetry::start(config).unwrap_err().to_string();
        assert!(text.contains(word) && !text.contains("hidden"), "{word}: {text}");
    }
}
