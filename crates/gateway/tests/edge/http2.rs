//! HTTP/2, cleartext and over TLS, and TLS with HTTP/1.1.

use std::convert::Infallible;
use std::io::{BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use crate::common::{Backend, Message, PATIENCE, config, eventually, gateway, gateway_with, ok, start, take};
use bytes::Bytes;
use headroom_gateway::{Handle, TlsListenConfig};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::Frame;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls;

pub(crate) type Sender = SendRequest<BoxBody<Bytes, Infallible>>;

fn full(bytes: impl Into<Bytes>) -> BoxBody<Bytes, Infallible> {
    Full::new(bytes.into()).boxed()
}

/// Runs a test of a client that needs a runtime.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        tokio::time::timeout(PATIENCE, future)
            .await
            .expect("the test takes too long")
    })
}

async fn h2_over(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Sender {
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(io)).await.unwrap();
    tokio::spawn(connection);
    sender
}

pub(crate) async fn h2c(address: SocketAddr) -> Sender {
    h2_over(TcpStream::connect(address).await.unwrap()).await
}

pub(crate) fn get(path: &str) -> Request<BoxBody<Bytes, Infallible>> {
    Request::get(format!("http://shop.example{path}"))
        .body(full(""))
        .unwrap()
}

async fn text<B: hyper::body::Body>(response: Response<B>) -> String
where
    B::Error: std::fmt::Debug,
{
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

/// A gateway with a TLS listener beside the cleartext one; its certificate is for `localhost`.
fn tls_gateway(
    backend: &Backend,
) -> (
    Handle,
    SocketAddr,
    rustls::pki_types::CertificateDer<'static>,
    tempfile::TempDir,
) {
    tls_gateway_with(backend, |_| {})
}

fn tls_gateway_with(
    backend: &Backend,
    change: impl FnOnce(&mut headroom_gateway::GatewayConfig),
) -> (
    Handle,
    SocketAddr,
    rustls::pki_types::CertificateDer<'static>,
    tempfile::TempDir,
) {
    let directory = tempfile::tempdir().unwrap();
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let path = |name: &str| -> PathBuf { directory.path().join(name) };
    std::fs::write(path("cert.pem"), certified.cert.pem()).unwrap();
    std::fs::write(path("key.pem"), certified.signing_key.serialize_pem()).unwrap();
    let mut config = config(&[backend]);
    config.tls = vec![TlsListenConfig::new(
        "127.0.0.1:0".parse().unwrap(),
        path("cert.pem"),
        path("key.pem"),
    )];
    change(&mut config);
    let (gateway, _) = start(config);
    let address = gateway.local_addrs()[1];
    (gateway, address, certified.cert.der().clone(), directory)
}

async fn tls(
    address: SocketAddr,
    certificate: &rustls::pki_types::CertificateDer<'static>,
    protocol: &[u8],
) -> tokio_rustls::client::TlsStream<TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let stream = TcpStream::connect(address).await.unwrap();
    let name = "localhost".try_into().unwrap();
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol));
    stream
}

#[test]
fn h2c_requests_become_http_1_1() {
    let (sender, requests) = mpsc::channel();
    let sender = std::sync::Mutex::new(sender);
    let backend = Backend::http(move |request| {
        sender.lock().unwrap().send(request.clone()).unwrap();
        ok(&request.text())
    });
    let (gateway, address) = gateway(&backend);
    block_on(async {
        let mut client = h2c(address).await;
        let request = Request::post("http://shop.example/a?b")
            .header("cookie", "a=1")
            .header("cookie", "b=2")
            .header("te", "trailers")
            .body(full("posted"))
            .unwrap();
        let response = client.send_request(request).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["via"], "1.1 headroom");
        assert_eq!(text(response).await, "posted");
    });
    let request = requests.recv().unwrap();
    assert_eq!(request.start, "POST /a?b HTTP/1.1");
    assert_eq!(request.all("host"), ["shop.example"]);
    assert_eq!(request.all("cookie"), ["a=1; b=2"]);
    assert_eq!(request.all("via"), ["2.0 headroom"]);
    assert_eq!(request.all("te"), ["trailers"]);
    assert_eq!(request.all("content-length"), ["6"]);
    assert_eq!(take(&gateway).service.completions, 1);
}

#[test]
fn many_streams_of_one_connection_are_served_at_once() {
    // The answers come only when all have arrived: they must be on their way side by side.
    let barrier = Arc::new(std::sync::Barrier::new(20));
    let backend = Backend::http(move |request| {
        barrier.wait();
        ok(&request.start)
    });
    let (gateway, address) = gateway(&backend);
    block_on(async {
        let client = h2c(address).await;
        let requests = (0..20).map(|n| {
            let mut client = client.clone();
            tokio::spawn(async move {
                let response = client.send_request(get(&format!("/{n}"))).await.unwrap();
                assert_eq!(text(response).await, format!("GET /{n} HTTP/1.1"));
            })
        });
        for request in requests.collect::<Vec<_>>() {
            request.await.unwrap();
        }
    });
    let period = take(&gateway);
    assert_eq!((period.service.completions, period.service.in_flight), (20, 0));
}

#[test]
fn streamed_uploads_and_trailers_pass() {
    let backend = Backend::http(|request| {
        assert_eq!(request.trailers, [("x-sum".to_owned(), "9".to_owned())]);
        let length = request.body.len();
        format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{length:08}\r\n0\r\nX-Back: 1\r\n\r\n"
        )
        .into_bytes()
    });
    let (_gateway, address) = gateway(&backend);
    block_on(async {
        let mut client = h2c(address).await;
        let (frames, receiver) = tokio::sync::mpsc::channel::<Result<Frame<Bytes>, Infallible>>(1);
        let body = StreamBody::new(ReceiverStream(receiver)).boxed();
        let sending = tokio::spawn(async move {
            for _ in 0..100 {
                frames
                    .send(Ok(Frame::data(Bytes::from(vec![b'x'; 50_000]))))
                    .await
                    .unwrap();
            }
            let mut trailers = http::HeaderMap::new();
            trailers.insert("x-sum", "9".parse().unwrap());
            frames.send(Ok(Frame::trailers(trailers))).await.unwrap();
        });
        let response = client
            .send_request(Request::put("http://t/").body(body).unwrap())
            .await
            .unwrap();
        sending.await.unwrap();
        let collected = response.into_body().collect().await.unwrap();
        assert_eq!(collected.trailers().unwrap()["x-back"], "1");
        assert_eq!(collected.to_bytes(), "05000000");
    });
}

/// A channel as a stream.
pub(crate) struct ReceiverStream<T>(pub tokio::sync::mpsc::Receiver<T>);

impl<T> futures_core::Stream for ReceiverStream<T> {
    type Item = T;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<T>> {
        self.0.poll_recv(cx)
    }
}

#[test]
fn tls_offers_both_protocols() {
    let backend = Backend::http(|request| ok(request.header("x-forwarded-proto").unwrap()));
    let (gateway, address, certificate, _directory) = tls_gateway(&backend);
    block_on(async {
        let mut client = h2_over(tls(address, &certificate, b"h2").await).await;
        for _ in 0..3 {
            assert_eq!(text(client.send_request(get("/")).await.unwrap()).await, "https");
        }
        let stream = tls(address, &certificate, b"http/1.1").await;
        let (mut client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        for _ in 0..3 {
            let request = Request::get("/")
                .header("host", "localhost")
                .body(full(""))
                .unwrap();
            assert_eq!(text(client.send_request(request).await.unwrap()).await, "https");
        }
    });
    assert_eq!(take(&gateway).service.completions, 6);
}

#[test]
fn refusals_and_failures_have_their_status_on_http_2_too() {
    let backend = Backend::raw(|stream, _| {
        Message::read(&mut BufReader::new(stream), false).unwrap();
    });
    let (gateway, address) = gateway_with(&backend, |config| config.limits.max_request_body_bytes = 10);
    block_on(async {
        let mut client = h2c(address).await;
        let refused = client
            .send_request(Request::put("http://t/").body(full(vec![0; 11])).unwrap())
            .await
            .unwrap();
        assert_eq!(refused.status(), 413);
        let failed = client.send_request(get("/")).await.unwrap();
        assert_eq!(failed.status(), 502);
        assert!(!text(failed).await.is_empty());
    });
    let counts = take(&gateway).service;
    assert_eq!((counts.refused, counts.unreachable, counts.in_flight), (1, 1, 0));
}

#[test]
fn a_broken_response_resets_its_stream_alone() {
    let backend = Backend::http(|request| match request.start.as_str() {
        "GET /broken HTTP/1.1" => {
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nNO CHUNK\r\n".to_vec()
        }
        _ => ok("fine"),
    });
    let (gateway, address) = gateway(&backend);
    block_on(async {
        let mut client = h2c(address).await;
        // The reset may overtake the head.
        if let Ok(broken) = client.send_request(get("/broken")).await {
            assert!(broken.into_body().collect().await.is_err());
        }
        assert_eq!(text(client.send_request(get("/")).await.unwrap()).await, "fine");
    });
    let counts = take(&gateway).service;
    assert_eq!(
        (counts.aborted_by_backend, counts.completions, counts.in_flight),
        (1, 1, 0)
    );
}

#[test]
fn a_stream_whose_client_stops_reading_is_reset_alone() {
    let backend = Backend::http(|request| match request.start.as_str() {
        "GET /large HTTP/1.1" => ok(&"x".repeat(4_000_000)),
        _ => ok("fine"),
    });
    let (gateway, address) = gateway_with(&backend, |config| config.timeouts.body_timeout_ms = 300);
    block_on(async {
        let mut client = h2c(address).await;
        let unread = client.send_request(get("/large")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(900)).await;
        assert!(
            unread.into_body().collect().await.is_err(),
            "a stream that nobody read was kept"
        );
        assert_eq!(text(client.send_request(get("/")).await.unwrap()).await, "fine");
    });
    let counts = take(&gateway).service;
    assert_eq!((counts.failures, counts.completions, counts.in_flight), (1, 1, 0));
}

#[test]
fn a_cancelled_stream_frees_its_backend() {
    let (gone, noticed) = mpsc::channel();
    let gone = std::sync::Mutex::new(gone);
    let backend = Backend::raw(move |mut stream, _| {
        Message::read(&mut BufReader::new(stream.try_clone().unwrap()), false).unwrap();
        if stream.read(&mut [0]).is_ok_and(|read| read == 0) {
            gone.lock().unwrap().send(()).unwrap();
        }
    });
    let (gateway, address) = gateway(&backend);
    block_on(async {
        let mut client = h2c(address).await;
        let request = tokio::time::timeout(Duration::from_millis(200), client.send_request(get("/"))).await;
        assert!(request.is_err());
        while gateway.take_period(PATIENCE).await.service.in_flight != 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    noticed.recv_timeout(PATIENCE).unwrap();
}

#[test]
fn a_drain_says_goodbye_and_finishes_the_streams() {
    let (release, released) = mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let backend = Backend::http(move |_| {
        released.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        ok("held")
    });
    let (gateway, address) = gateway(&backend);
    block_on(async {
        let mut client = h2c(address).await;
        let pending = tokio::spawn(client.send_request(get("/")));
        while gateway.take_period(PATIENCE).await.service.in_flight != 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let drained = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            release.send(()).unwrap();
            text(pending.await.unwrap().unwrap()).await
        };
        let (report, body) = tokio::join!(gateway.shutdown(PATIENCE), drained);
        assert_eq!((report.connections_cut, body.as_str()), (0, "held"));
        assert!(
            client.send_request(get("/")).await.is_err(),
            "a drained connection took a request"
        );
    });
}

#[test]
fn a_silent_http_2_connection_is_closed() {
    let backend = Backend::http(|_| ok("x"));
    let (gateway, address) = gateway_with(&backend, |config| config.timeouts.idle_timeout_ms = 300);
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    eventually("the connection is closed", || take(&gateway).connections == 0);
}

/// The program, from `H2SPEC` or the `PATH`.
fn h2spec() -> Option<PathBuf> {
    let in_path = || {
        std::env::split_paths(&std::env::var_os("PATH")?)
            .map(|dir| dir.join("h2spec"))
            .find(|path| path.is_file())
    };
    std::env::var_os("H2SPEC")
        .map(PathBuf::from)
        .filter(|path| path.is_file())
        .or_else(in_path)
}

#[test]
fn h2spec_passes() {
    let Some(h2spec) = h2spec() else {
        println!("skipped: h2spec not found (go install github.com/summerwind/h2spec/cmd/h2spec@latest)");
        return;
    };
    let backend = Backend::http(|_| ok("hello"));
    let (gateway, tls, _, _directory) = tls_gateway(&backend);
    for (name, address, options) in [
        ("h2c", gateway.local_addrs()[0], vec![]),
        ("TLS", tls, vec!["--tls", "--insecure"]),
    ] {
        let output = Command::new(&h2spec)
            .args([
                "--host",
                "127.0.0.1",
                "--port",
                &address.port().to_string(),
                "--timeout",
                "3",
            ])
            .args(options)
            .output()
            .unwrap();
        let report = String::from_utf8_lossy(&output.stdout);
        let summary = report
            .lines()
            .rev()
            .find(|line| line.contains("tests,"))
            .unwrap_or("no summary");
        println!("h2spec over {name}: {summary}");
        assert!(output.status.success(), "h2spec over {name}:\n{report}");
        assert!(summary.contains(" 0 failed"), "h2spec over {name}: {summary}");
    }
    assert_eq!(take(&gateway).service.in_flight, 0);
}

/// A body of so many bytes, of which the first are sent at once.
fn large(bytes: usize) -> BoxBody<Bytes, Infallible> {
    full("x".repeat(bytes))
}

#[test]
fn uploads_that_stand_still_do_not_block_their_connection() {
    let backend = Backend::raw(|mut stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while let Some(head) = Message::read_head(&mut reader) {
            if head.start.contains("stalls") {
                // It reads nothing of the body.
                std::thread::sleep(PATIENCE);
                return;
            }
            let length = head.header("content-length").unwrap().parse().unwrap();
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            stream.write_all(&ok("read")).unwrap();
        }
    });
    let (_gateway, address) = gateway(&backend);
    block_on(async {
        let mut client = h2c(address).await;
        // More than is taken before a backend is asked, what the kernel holds for a backend that does not read, and the stream's window.
        // One alone may leave the others some of a window that is as large as its own.
        let stalled: Vec<_> = (0..4)
            .map(|_| {
                let request = Request::post("http://shop.example/stalls")
                    .header("content-length", (24 << 20).to_string())
                    .body(large(24 << 20))
                    .unwrap();
                tokio::spawn(client.send_request(request))
            })
            .collect();
        tokio::time::sleep(Duration::from_secs(1)).await;
        for _ in 0..3 {
            let quick = Request::post("http://shop.example/quick")
                .header("content-length", "200000")
                .body(large(200_000))
                .unwrap();
            let answer = client.send_request(quick).await.unwrap();
            assert_eq!(text(answer).await, "read");
        }
        assert!(stalled.iter().all(|upload| !upload.is_finished()));
        stalled.iter().for_each(tokio::task::JoinHandle::abort);
    });
}

#[test]
fn a_client_that_cancels_its_requests_again_and_again_is_left() {
    let backend = Backend::http(|_| {
        std::thread::sleep(Duration::from_millis(200));
        ok("slow")
    });
    let (gateway, address) = gateway_with(&backend, |config| config.limits.max_h2_resets = 20);
    block_on(async {
        let mut client = h2c(address).await;
        let mut cancelled = 0;
        for _ in 0..200 {
            if client.ready().await.is_err() {
                break;
            }
            let request = client.send_request(get("/"));
            // The request goes out, and is given up before it is answered.
            let outcome = tokio::time::timeout(Duration::from_millis(15), request).await;
            if outcome.is_ok_and(|answer| answer.is_err()) {
                break;
            }
            cancelled += 1;
        }
        assert!(
            (20..60).contains(&cancelled),
            "{cancelled} were cancelled before it was closed"
        );
        // Who lets most be answered may cancel some.
        let mut client = h2c(address).await;
        for number in 0..60 {
            let request = client.send_request(get("/"));
            match number % 2 {
                0 => drop(tokio::time::timeout(Duration::from_millis(15), request).await),
                _ => assert_eq!(text(request.await.unwrap()).await, "slow"),
            }
        }
    });
    assert!(take(&gateway).service.aborted_by_client >= 20);
}

/// Who reads slowly, and not less than the least rate, is kept while its backend pauses: its time is not the backend's.
#[test]
fn a_slow_reader_is_not_taken_for_a_backend_that_pauses() {
    const BEFORE: usize = 40_000;
    const BEHIND: usize = 8_000;
    let backend = Backend::raw(|mut stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        if Message::read(&mut reader, false).is_none() {
            return;
        }
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", BEFORE + BEHIND);
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&vec![b'x'; BEFORE]).unwrap();
        std::thread::sleep(Duration::from_secs(3));
        let _ = stream.write_all(&vec![b'y'; BEHIND]);
        let _ = stream.read(&mut [0]);
    });
    let (gateway, address) = gateway_with(&backend, |config| config.timeouts.client_grace_ms = 700);
    block_on(async {
        let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(2_000)
            .handshake(io)
            .await
            .unwrap();
        tokio::spawn(connection);
        let mut body = sender.send_request(get("/")).await.unwrap().into_body();
        let mut read = 0;
        while let Some(frame) = body.frame().await {
            read += frame.expect("it is not broken off").into_data().unwrap().len();
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
        assert_eq!(read, BEFORE + BEHIND);
    });
    let counts = take(&gateway).service;
    assert_eq!((counts.completions, counts.aborted_by_backend), (1, 0));
}

#[test]
fn a_client_that_says_goodbye_in_tls_has_left() {
    let backend = Backend::http(|request| {
        if request.start.contains("slow") {
            std::thread::sleep(Duration::from_secs(6));
        }
        ok("well")
    });
    let (gateway, address, certificate, _directory) = tls_gateway_with(&backend, |config| {
        config.cancel_on_fin = true;
        config.limits.max_in_flight_per_backend = 1;
        config.timeouts.queue_timeout_ms = 10_000;
    });
    block_on(async {
        let mut stream = tls(address, &certificate, b"http/1.1").await;
        let request = b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n";
        tokio::io::AsyncWriteExt::write_all(&mut stream, request)
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        tokio::io::AsyncWriteExt::shutdown(&mut stream).await.unwrap();
    });
    let begun = std::time::Instant::now();
    eventually("it is gone", || take(&gateway).service.in_flight == 0);
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}
