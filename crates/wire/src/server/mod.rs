//! Serves an implementation of the contract.

mod handshakes;
mod listen;
mod peer;

pub use listen::{Listen, ListenError, Listener, SOCKET_MODE};
pub use peer::Peer;

use crate::access::{Access, Identity, Rules};
use crate::proto::agent_server::{Agent, AgentServer};
use crate::proto::gateway_server::{Gateway, GatewayServer};
use crate::tls::{ServerTls, Side, explain};
use crate::{Refusal, limiter};
use handshakes::{Handshakes, network};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use listen::Kind;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, watch};
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
    /// Connections served at once, of which readers have half at most; more are closed at once, with a line in the log.
    pub connections: usize,
    /// Handshakes at once, of which one address has a quarter at most; beyond that the oldest one is given up, of the
    /// address that has the most.
    pub handshakes: usize,
    /// How long a handshake may take, and then the first request: who connects and asks nothing holds a place that others need.
    pub handshake_time: Duration,
    /// How often certificates, keys and revocation lists are looked at for changes, and each open connection's peer is
    /// checked against them.
    pub recheck: Duration,
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
            handshake_time: Duration::from_secs(3),
            recheck: Duration::from_secs(10),
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
    /// Who: an address with its port, and a name where one was proven.
    pub peer: String,
    /// What of it cannot be changed at will: its network address, or its proven name.
    pub host: String,
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

/// Is told of each request that a peer's role does not allow: who, and why. It is called on the runtime's thread and must
/// not block.
pub type OnRefused = Arc<dyn Fn(&Peer, &Refusal) + Send + Sync>;

/// Who is let in, and who is told of those that are not.
#[derive(Clone)]
pub struct Admission {
    /// Who may do what.
    pub rules: Rules,
    /// Is told of connections.
    pub on_rejected: OnRejected,
    /// Is told of requests.
    pub on_refused: OnRefused,
}

impl Admission {
    /// By the given rules, with the log told of whoever is not let in.
    pub fn logged(rules: Rules) -> Self {
        Self {
            rules,
            on_rejected: log_rejected(),
            on_refused: log_refused(),
        }
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission")
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

/// What a call of a contract is for. What is not known to be harmless is for operators.
type Needed = fn(&str) -> Access;

fn needed_of_agent(call: &str) -> Access {
    match call {
        // Who may watch is the agent's to say: it has a setting for it.
        "Describe" | "Observe" | "WatchQueue" => Access::Reader,
        _ => Access::Operator,
    }
}

fn needed_of_gateway(call: &str) -> Access {
    match call {
        "Describe" => Access::Reader,
        // A gateway's counters are taken by one: a reader would take them from the controller.
        _ => Access::Operator,
    }
}

/// Serves until `stop` is ready; then takes no more connections and gives the open requests [`Limits::drain`] to end.
/// Streams must end by themselves when the agent ends; those that do not are cut.
///
/// A peer does what its role allows, by the rules of the admission, which is told of what is refused.
pub async fn serve<A: Agent>(
    listener: Listener,
    agent: A,
    limits: Limits,
    admission: Admission,
    stop: impl Future<Output = ()>,
) {
    let service = AgentServer::new(agent).max_decoding_message_size(limits.request_bytes);
    serve_any(listener, service, limits, admission, needed_of_agent, stop).await;
}

/// [`serve`] for a gateway's contract.
pub async fn serve_gateway<G: Gateway>(
    listener: Listener,
    gateway: G,
    limits: Limits,
    admission: Admission,
    stop: impl Future<Output = ()>,
) {
    let service = GatewayServer::new(gateway).max_decoding_message_size(limits.request_bytes);
    serve_any(listener, service, limits, admission, needed_of_gateway, stop).await;
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
    admission: Admission,
    needed: Needed,
    stop: impl Future<Output = ()>,
) {
    let (stopping, stopped) = watch::channel(false);
    let mut recheck = tokio::time::interval(limits.recheck.max(Duration::from_millis(1)));
    recheck.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (rechecking, rechecked) = watch::channel(());
    let server = Arc::new(Server {
        connections: Arc::new(Semaphore::new(limits.connections)),
        of_readers: Arc::new(Semaphore::new(limits.connections.div_ceil(2))),
        handshakes: Handshakes::new(limits.handshakes),
        limits,
        admission,
        needed,
        service,
        stopped,
        rechecked,
    });
    let mut tasks = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            Some(ended) = tasks.join_next(), if !tasks.is_empty() => {
                if let Err(error) = ended { tracing::error!(%error, "a connection's task failed") }
            }
            _ = recheck.tick() => {
                listener.refresh();
                limiter::tell_left_out();
                let _ = rechecking.send(());
            }
            accepted = listener.accept() => match accepted {
                Ok(accepted) => { tasks.spawn(server.clone().attend(accepted)); }
                Err(error) => {
                    if limiter::admits("this machine", "not accepted") {
                        tracing::warn!(%error, "cannot accept a connection");
                    }
                    tokio::time::sleep(REST).await;
                }
            },
        }
    }
    let drain = server.limits.drain;
    drop(listener);
    let _ = stopping.send(true);
    let _ = tokio::time::timeout(drain, async { while tasks.join_next().await.is_some() {} }).await;
    tasks.shutdown().await;
}

/// Writes each rejected connection to the log; of one address not more than [`limiter::MAX_LINES`] in a while.
pub fn log_rejected() -> OnRejected {
    Arc::new(|rejected| {
        if limiter::admits(&rejected.host, "connection rejected") {
            tracing::warn!(peer = rejected.peer, why = rejected.why, "connection rejected");
        }
    })
}

/// Writes each refused request to the log; of one peer not more than [`limiter::MAX_LINES`] in a while.
pub fn log_refused() -> OnRefused {
    Arc::new(|peer, refusal| {
        if limiter::admits(&peer.key(), "request refused") {
            tracing::warn!(%peer, "request refused: {refusal}");
        }
    })
}

enum Accepted {
    Unix(tokio::net::UnixStream),
    Tcp(tokio::net::TcpStream, std::net::SocketAddr, ServerTls),
}

impl Listener {
    async fn accept(&self) -> io::Result<Accepted> {
        match &self.kind {
            Kind::Unix { listener, .. } => Ok(Accepted::Unix(listener.accept().await?.0)),
            Kind::Tcp { listener, tls } => {
                let (stream, peer) = listener.accept().await?;
                Ok(Accepted::Tcp(stream, peer, tls.clone()))
            }
        }
    }

    fn refresh(&self) {
        if let Kind::Tcp { tls, .. } = &self.kind {
            tls.refresh(Duration::ZERO);
        }
    }
}

/// What a peer showed, to be checked again while it is connected.
struct Shown {
    tls: ServerTls,
    chain: Vec<rustls::pki_types::CertificateDer<'static>>,
}

struct Server<S> {
    connections: Arc<Semaphore>,
    /// Of these, those that readers may have.
    of_readers: Arc<Semaphore>,
    handshakes: Handshakes,
    limits: Limits,
    admission: Admission,
    needed: Needed,
    service: S,
    stopped: watch::Receiver<bool>,
    rechecked: watch::Receiver<()>,
}

impl<S: Answers> Server<S> {
    async fn attend(self: Arc<Self>, accepted: Accepted) {
        match accepted {
            Accepted::Unix(stream) => {
                let user = stream.peer_cred().map(|peer| Identity::User(peer.uid()));
                let peer = self.peer(None, user.unwrap_or(Identity::Unknown));
                self.converse(stream, peer, None).await;
            }
            Accepted::Tcp(stream, address, tls) => {
                let _ = stream.set_nodelay(true);
                let mut place = self.handshakes.begin(address.ip());
                let acceptor = TlsAcceptor::from(tls.config());
                let handshake = tokio::time::timeout(
                    self.limits.handshake_time,
                    acceptor.accept(stream).into_fallible(),
                );
                let outcome = tokio::select! {
                    outcome = handshake => outcome,
                    () = place.taken() => {
                        let why = "its handshake was not finished when others needed the place";
                        return self.reject(address, why.into());
                    }
                    () = self.until_stopped() => return,
                };
                drop(place);
                match outcome {
                    Ok(Ok(stream)) => {
                        let chain: Vec<_> = stream
                            .get_ref()
                            .1
                            .peer_certificates()
                            .unwrap_or_default()
                            .to_vec();
                        let chain: Vec<_> = chain.into_iter().map(|one| one.into_owned()).collect();
                        let identity = chain.first().and_then(crate::certs::identify);
                        let identity = identity.map_or(Identity::Unknown, |(name, role)| {
                            Identity::Certificate { name, role }
                        });
                        let peer = self.peer(Some(address), identity);
                        let operator = peer.access == Access::Operator;
                        let _established = operator.then(|| self.handshakes.establish(address.ip()));
                        self.converse(stream, peer, Some(Shown { tls, chain })).await;
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

    fn peer(&self, address: Option<std::net::SocketAddr>, identity: Identity) -> Peer {
        let owner = rustix::process::geteuid().as_raw();
        let access = self.admission.rules.access(&identity, owner);
        Peer::new(address, identity, access)
    }

    fn reject(&self, address: std::net::SocketAddr, why: String) {
        (self.admission.on_rejected)(&Rejected {
            peer: address.to_string(),
            host: network(address.ip()).to_string(),
            why,
        });
    }

    async fn until_stopped(&self) {
        // An error is the sender's end, which is the server's.
        let _ = self.stopped.clone().wait_for(|stopped| *stopped).await;
    }

    /// Ready when what a peer showed is good no more, with the reason.
    async fn until_invalid(&self, shown: Option<&Shown>) -> String {
        let mut rechecked = self.rechecked.clone();
        loop {
            if rechecked.changed().await.is_err() {
                // The server ends, and tells so elsewhere.
                std::future::pending::<()>().await;
            }
            if let Some(Err(why)) = shown.map(|shown| shown.tls.still_accepts(&shown.chain)) {
                return why;
            }
        }
    }

    /// A place for a connection; the reason where there is none.
    fn place(&self, peer: &Peer) -> Result<impl Send + use<S>, String> {
        let all = self.limits.connections;
        let of_readers =
            match peer.access {
                Access::Operator => None,
                _ => {
                    let place = self.of_readers.clone().try_acquire_owned();
                    let limit = all.div_ceil(2);
                    Some(place.map_err(|_| {
                        format!("{limit} connections of readers are open and no more are served")
                    })?)
                }
            };
        let place = self.connections.clone().try_acquire_owned();
        let place = place.map_err(|_| format!("{all} connections are open and no more are served"))?;
        Ok((place, of_readers))
    }

    async fn converse<T>(&self, stream: T, peer: Peer, shown: Option<Shown>)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let rejected = |why: String| {
            (self.admission.on_rejected)(&Rejected {
                peer: peer.to_string(),
                host: peer.key(),
                why,
            });
        };
        let _place = match self.place(&peer) {
            Ok(place) => place,
            Err(why) => return rejected(why),
        };
        let _served = peer.served();
        let service = self.service.clone();
        let admission = self.admission.clone();
        let needed = self.needed;
        let peer_of_requests = peer.clone();
        let asked = Arc::new(AtomicBool::new(false));
        let asks = Arc::clone(&asked);
        let answer = service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
            let call = request.uri().path().rsplit('/').next().unwrap_or_default();
            let needed = needed(call);
            asks.store(true, Ordering::Relaxed);
            let refused = (peer_of_requests.access < needed).then(|| {
                let refusal = peer_of_requests.refuse(call, needed, &admission.rules);
                (admission.on_refused)(&peer_of_requests, &refusal);
                refusal
            });
            request.extensions_mut().insert(peer_of_requests.clone());
            let mut service = service.clone();
            async move {
                let answer = match refused {
                    Some(refusal) => tonic::Status::from(refusal).into_http(),
                    None => service.call(request).await.unwrap_or_else(|never| match never {}),
                };
                Ok::<_, Infallible>(answer)
            }
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
            () = until_silent(&asked, self.limits.handshake_time) => {
                let seconds = self.limits.handshake_time.as_secs_f64();
                return rejected(format!("no request within {seconds} s"));
            }
            why = self.until_invalid(shown.as_ref()) => return rejected(format!("it is cut off: {why}")),
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

/// Ready where nothing was asked for so long; never where something was.
async fn until_silent(asked: &AtomicBool, patience: Duration) {
    tokio::time::sleep(patience).await;
    if asked.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
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
