//! Serves an implementation of the contract.

mod listen;

pub use listen::{Listen, ListenError, Listener, SOCKET_MODE};

use crate::proto::agent_server::{Agent, AgentServer};
use crate::proto::gateway_server::{Gateway, GatewayServer};
use crate::tls::{Side, explain};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use listen::Kind;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tonic::body::Body;
use tonic::codegen::Service;

/// After a handshake that failed, so many bytes are still read and thrown away: a connection closed on unread bytes
/// is reset, and the reset would overtake the alert that says why.
const LINGER_BYTES: u64 = 64 << 10;
/// And for so long.
const LINGER: Duration = Duration::from_millis(500);
/// How long accepting rests when the system is out of descriptors.
const REST: Duration = Duration::from_millis(100);

/// The limits of a server. What is beyond them waits to be accepted or is closed; it never costs memory.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections served at once; more are closed at once, with a line in the log.
    pub connections: usize,
    /// Handshakes at once; more wait in the listen backlog.
    pub handshakes: usize,
    /// How long a handshake may take.
    pub handshake_time: Duration,
    /// Requests and streams at once on one connection; more are refused by HTTP/2.
    pub streams: u32,
    /// The longest request, in bytes.
    pub request_bytes: usize,
    /// A peer that answers no ping for this long is gone; a ping is sent when it was silent for as long.
    pub silence: Duration,
    /// How long open requests may take to end when the server is stopped.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 64,
            handshakes: 16,
            handshake_time: Duration::from_secs(10),
            streams: 32,
            request_bytes: 64 << 10,
            silence: Duration::from_secs(10),
            drain: Duration::from_secs(2),
        }
    }
}

/// A connection that was not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Who: an address, or "a local process".
    pub peer: String,
    /// Why, in plain words.
    pub why: String,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection of {} rejected: {}", self.peer, self.why)
    }
}

/// Is told of each connection that was not served. It is called on the runtime's thread and must not block.
pub type OnRejected = Arc<dyn Fn(&Rejected) + Send + Sync>;

/// Who sent a request; an extension of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Counts the connections of this process from 1: requests of one number came over one connection.
    pub connection: u64,
    /// An address, or "a local process".
    pub address: String,
    /// The common name of its certificate; `None` over a Unix socket.
    pub certificate: Option<String>,
}

impl Peer {
    fn new(address: String, certificate: Option<String>) -> Self {
        static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
        let connection = CONNECTIONS.fetch_add(1, Ordering::Relaxed) + 1;
        Self {
            connection,
            address,
            certificate,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.certificate {
            Some(name) => write!(f, "{} ({name})", self.address),
            None => f.write_str(&self.address),
        }
    }
}

/// Serves until `stop` is ready; then takes no more connections and gives the open requests [`Limits::drain`] to end.
/// Streams must end by themselves when the agent ends; those that do not are cut.
///
/// Each connection that is not served is told to `on_rejected`; [`log_rejected`] is the usual one.
pub async fn serve<A: Agent>(
    listener: Listener,
    agent: A,
    limits: Limits,
    on_rejected: OnRejected,
    stop: impl Future<Output = ()>,
) {
    let service = AgentServer::new(agent).max_decoding_message_size(limits.request_bytes);
    serve_any(listener, service, limits, on_rejected, stop).await;
}

/// [`serve`] for a gateway's contract.
pub async fn serve_gateway<G: Gateway>(
    listener: Listener,
    gateway: G,
    limits: Limits,
    on_rejected: OnRejected,
    stop: impl Future<Output = ()>,
) {
    let service = GatewayServer::new(gateway).max_decoding_message_size(limits.request_bytes);
    serve_any(listener, service, limits, on_rejected, stop).await;
}

/// What answers requests: a service as generated.
trait Answers:
    Service<
        http::Request<hyper::body::Incoming>,
        Response = http::Response<Body>,
        Error = Infallible,
        Future: Send + 'static,
    > + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> Answers for S where
    S: Service<
            http::Request<hyper::body::Incoming>,
            Response = http::Response<Body>,
            Error = Infallible,
            Future: Send + 'static,
        > + Clone
        + Send
        + Sync
        + 'static
{
}

async fn serve_any<S: Answers>(
    listener: Listener,
    service: S,
    limits: Limits,
    on_rejected: OnRejected,
    stop: impl Future<Output = ()>,
) {
    let (stopping, stopped) = watch::channel(false);
    let server = Arc::new(Server {
        connections: Arc::new(Semaphore::new(limits.connections)),
        handshakes: Arc::new(Semaphore::new(limits.handshakes.max(1))),
        limits,
        on_rejected,
        service,
        stopped,
    });
    let mut tasks = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        // A permit before the connection: what cannot be shaken hands with stays in the backlog.
        let accept = async {
            let permit = server.handshakes.clone().acquire_owned().await;
            (permit, listener.accept().await)
        };
        tokio::select! {
            () = &mut stop => break,
            Some(ended) = tasks.join_next(), if !tasks.is_empty() => {
                if let Err(error) = ended { tracing::error!(%error, "a connection's task failed") }
            }
            accepted = accept => match accepted {
                (Ok(permit), Ok(accepted)) => { tasks.spawn(server.clone().attend(accepted, permit)); }
                (_, Err(error)) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(REST).await;
                }
                // The semaphore is never closed.
                (Err(_), _) => break,
            },
        }
    }
    let drain = server.limits.drain;
    drop(listener);
    let _ = stopping.send(true);
    let _ = tokio::time::timeout(drain, async { while tasks.join_next().await.is_some() {} }).await;
    tasks.shutdown().await;
}

/// Writes each rejected connection to the log.
pub fn log_rejected() -> OnRejected {
    Arc::new(|rejected| tracing::warn!(peer = rejected.peer, why = rejected.why, "connection rejected"))
}

enum Accepted {
    Unix(tokio::net::UnixStream),
    Tcp(tokio::net::TcpStream, std::net::SocketAddr, TlsAcceptor),
}

impl Listener {
    async fn accept(&self) -> io::Result<Accepted> {
        match &self.kind {
            Kind::Unix { listener, .. } => Ok(Accepted::Unix(listener.accept().await?.0)),
            Kind::Tcp { listener, tls } => {
                let (stream, peer) = listener.accept().await?;
                Ok(Accepted::Tcp(stream, peer, TlsAcceptor::from(tls.0.clone())))
            }
        }
    }
}

struct Server<S> {
    connections: Arc<Semaphore>,
    handshakes: Arc<Semaphore>,
    limits: Limits,
    on_rejected: OnRejected,
    service: S,
    stopped: watch::Receiver<bool>,
}

impl<S: Answers> Server<S> {
    async fn attend(self: Arc<Self>, accepted: Accepted, handshaking: OwnedSemaphorePermit) {
        match accepted {
            Accepted::Unix(stream) => {
                drop(handshaking);
                self.converse(stream, Peer::new("a local process".into(), None))
                    .await;
            }
            Accepted::Tcp(stream, address, acceptor) => {
                let _ = stream.set_nodelay(true);
                let address = address.to_string();
                let handshake = tokio::time::timeout(
                    self.limits.handshake_time,
                    acceptor.accept(stream).into_fallible(),
                );
                let outcome = tokio::select! {
                    outcome = handshake => outcome,
                    () = self.until_stopped() => return,
                };
                match outcome {
                    Ok(Ok(stream)) => {
                        drop(handshaking);
                        let shown = stream
                            .get_ref()
                            .1
                            .peer_certificates()
                            .and_then(|chain| chain.first());
                        let certificate = shown.and_then(crate::certs::subject_of);
                        self.converse(stream, Peer::new(address, certificate)).await;
                    }
                    Ok(Err((error, stream))) => {
                        self.reject(address, explain(&error, Side::Server));
                        linger(stream).await;
                    }
                    Err(_) => {
                        let seconds = self.limits.handshake_time.as_secs_f64();
                        self.reject(address, format!("no TLS handshake within {seconds} s"));
                    }
                }
            }
        }
    }

    fn reject(&self, peer: String, why: String) {
        (self.on_rejected)(&Rejected { peer, why });
    }

    async fn until_stopped(&self) {
        // An error is the sender's end, which is the server's.
        let _ = self.stopped.clone().wait_for(|stopped| *stopped).await;
    }

    async fn converse<T>(&self, stream: T, peer: Peer)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Ok(_permit) = self.connections.clone().try_acquire_owned() else {
            let limit = self.limits.connections;
            return self.reject(
                peer.to_string(),
                format!("{limit} connections are open and no more are served"),
            );
        };
        let service = self.service.clone();
        let peer_of_requests = peer.clone();
        let answer = service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
            request.extensions_mut().insert(peer_of_requests.clone());
            let mut service = service.clone();
            async move { Ok::<_, Infallible>(service.call(request).await.unwrap_or_else(|never| match never {})) }
        });
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(self.limits.streams)
            .max_header_list_size(16 << 10)
            .keep_alive_interval(self.limits.silence)
            .keep_alive_timeout(self.limits.silence)
            .serve_connection(TokioIo::new(stream), answer);
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = &mut connection => ended,
            () = self.until_stopped() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%peer, %error, "connection ended");
        }
    }
}

/// Lets the alert arrive before the connection is closed.
async fn linger<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    let _ = tokio::time::timeout(LINGER, async {
        let _ = stream.flush().await;
        let _ = stream.shutdown().await;
        let _ = tokio::io::copy(&mut stream.take(LINGER_BYTES), &mut tokio::io::sink()).await;
    })
    .await;
}
