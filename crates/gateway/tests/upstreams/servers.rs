//! Backends over TLS and over HTTP/2, and clients over HTTP/2.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use headroom_gateway::{BackendConfig, BackendProtocol, BackendTlsConfig, GatewayConfig};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

use crate::authority::{Authority, Signed};
use crate::common::PATIENCE;

/// What a TLS server shows, offers and asks for.
pub fn tls_server(shown: &Signed, protocols: &[&str], clients_of: Option<&Authority>) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap();
    let server = match clients_of {
        None => server.with_no_client_auth(),
        Some(authority) => {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(authority.root()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            server.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let chain = vec![shown.certificate.clone()];
    let mut server = server.with_single_cert(chain, shown.key.clone_key()).unwrap();
    server.alpn_protocols = protocols
        .iter()
        .map(|protocol| protocol.as_bytes().to_vec())
        .collect();
    Arc::new(server)
}

/// A backend in a thread with a runtime of its own.
pub struct Server {
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    /// Serves each connection with `serve(stream, number of the connection from 0)`.
    pub fn start<F: Future<Output = ()> + 'static>(
        serve: impl Fn(TcpStream, usize) -> F + Send + 'static,
    ) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = connections.clone();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let tasks = tokio::task::LocalSet::new();
            tasks.block_on(&runtime, async move {
                let listener = TcpListener::from_std(listener).unwrap();
                let accept = async {
                    loop {
                        let (stream, _) = listener.accept().await.unwrap();
                        stream.set_nodelay(true).unwrap();
                        let number = counter.fetch_add(1, Ordering::SeqCst);
                        tokio::task::spawn_local(serve(stream, number));
                    }
                };
                tokio::select! {
                    () = accept => {}
                    _ = stopped => {}
                }
            });
        });
        Self {
            address,
            connections,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its connections are cut with its runtime.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Serves a connection over HTTP/2: `answer` is given each request, in a task of its own.
pub async fn serve_h2<F: Future<Output = ()> + 'static>(
    io: impl AsyncRead + AsyncWrite + Unpin + 'static,
    builder: h2::server::Builder,
    answer: impl Fn(Request<RecvStream>, SendResponse<Bytes>) -> F,
) {
    let Ok(mut connection) = builder.handshake::<_, Bytes>(io).await else {
        return;
    };
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::task::spawn_local(answer(request, respond));
    }
}

/// Answers with this body at once.
pub fn answer_h2(mut respond: SendResponse<Bytes>, body: impl Into<Bytes>) {
    if let Ok(mut stream) = respond.send_response(Response::new(()), false) {
        let _ = stream.send_data(body.into(), true);
    }
}

/// All of a body, and its trailers.
pub async fn read_h2(mut body: RecvStream) -> Option<(Vec<u8>, HeaderMap)> {
    let mut all = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.ok()?;
        let _ = body.flow_control().release_capacity(data.len());
        all.extend_from_slice(&data);
    }
    Some((all, body.trailers().await.ok()?.unwrap_or_default()))
}

/// A gateway of one core in front of this backend.
pub fn config(url: impl Into<String>) -> GatewayConfig {
    GatewayConfig {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        backends: vec![BackendConfig::new(url)],
        threads: 1,
        ..GatewayConfig::default()
    }
}

/// The same, with TLS.
pub fn tls_config(
    address: SocketAddr,
    tls: BackendTlsConfig,
    protocol: Option<BackendProtocol>,
) -> GatewayConfig {
    let mut config = config(format!("https://{address}"));
    config.backends[0].tls = Some(tls);
    config.backends[0].protocol = protocol;
    config
}

/// The same, over h2c.
pub fn h2c_config(address: SocketAddr) -> GatewayConfig {
    let mut config = config(format!("http://{address}"));
    config.backends[0].protocol = Some(BackendProtocol::H2);
    config
}

/// Runs a test of a client that needs a runtime.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
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

pub type Outgoing = BoxBody<Bytes, Infallible>;

/// A client over HTTP/2.
pub async fn h2_client(address: SocketAddr) -> SendRequest<Outgoing> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    sender
}

pub fn full(bytes: impl Into<Bytes>) -> Outgoing {
    Full::new(bytes.into()).boxed()
}

pub fn get(path: &str) -> Request<Outgoing> {
    Request::get(format!("http://shop.example{path}"))
        .body(full(""))
        .unwrap()
}

pub async fn text<B: hyper::body::Body>(response: Response<B>) -> String
where
    B::Error: std::fmt::Debug,
{
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}
