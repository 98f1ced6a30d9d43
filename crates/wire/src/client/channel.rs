//! One HTTP/2 connection to an agent or a gateway, which remembers why it ended.

use super::{CallError, ClientOptions};
use crate::tls::{ClientTls, Side, explain, server_name};
use crate::{Address, Invalid, Refusal, Server};
use http::Uri;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::{CertificateDer, ServerName};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::{Code, Status};

/// How long a failed call waits for the connection to say why it ended: the two are told at the same moment, by two
/// tasks.
const SETTLE: Duration = Duration::from_millis(500);

/// How often certificates and revocation lists are looked at for changes, and the server checked against them.
const RECHECK: Duration = Duration::from_secs(10);

/// How much of one stream may be under way. A reader that falls behind finds at most this much of old samples before
/// the newest; the default of several hundred kilobytes would be minutes of them.
const STREAM_WINDOW_BYTES: u32 = 8 << 10;

/// The `:authority` of requests. Which agent is meant was settled when the connection was made.
pub(super) fn origin() -> Uri {
    Uri::from_static("http://agent")
}

/// A connection.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    sender: SendRequest<Body>,
    address: Arc<Address>,
    /// Becomes true when the connection has ended.
    ended: watch::Receiver<bool>,
    why: Arc<OnceLock<String>>,
    /// When the server's certificate ends; `None` over a Unix socket.
    certificate_ends: Option<SystemTime>,
}

/// What the server showed, to be checked again while the connection is open.
struct Shown {
    tls: ClientTls,
    name: ServerName<'static>,
    chain: Vec<CertificateDer<'static>>,
    server: Server,
}

impl Shown {
    /// Ready when it is good no more, with the reason.
    async fn until_invalid(self) -> String {
        loop {
            tokio::time::sleep(RECHECK).await;
            self.tls.refresh(RECHECK / 2);
            if let Err(why) = self
                .tls
                .still_accepts(&self.chain, &self.name, Side::Client(self.server))
            {
                return why;
            }
        }
    }
}

/// Connects; the first request tells whether the agent accepted our certificate, since in TLS 1.3 a client is done
/// before its certificate was looked at.
pub(super) async fn connect(
    address: &Address,
    options: &ClientOptions,
    server: Server,
) -> Result<Channel, CallError> {
    let unreachable = |why: String| CallError::Unreachable {
        address: address.clone(),
        why,
    };
    let connecting = async {
        match address {
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)
                    .await
                    .map_err(|error| failed(address, explain_unix(&error, server), &error))?;
                converse(address, stream, options, server, None).await
            }
            Address::Tcp { host, port } => {
                let Some(tls) = &options.tls else {
                    return Err(CallError::NoCertificate {
                        address: address.clone(),
                    });
                };
                let name = server_name(options.server_name.as_deref().unwrap_or(host))?;
                let stream = connect_tcp(host, *port)
                    .await
                    .map_err(|error| failed(address, explain_tcp(&error, server), &error))?;
                let _ = stream.set_nodelay(true);
                tls.refresh(RECHECK);
                let stream = TlsConnector::from(tls.config())
                    .connect(name.clone(), stream)
                    .await
                    .map_err(|error| unreachable(explain(&error, Side::Client(server))))?;
                let chain = stream.get_ref().1.peer_certificates().unwrap_or_default().iter();
                let shown = Shown {
                    tls: tls.clone(),
                    name,
                    chain: chain.map(|one| one.clone().into_owned()).collect(),
                    server,
                };
                converse(address, stream, options, server, Some(shown)).await
            }
        }
    };
    match tokio::time::timeout(options.connect_time, connecting).await {
        Ok(connected) => connected,
        Err(_) => Err(unreachable(format!(
            "no connection within {} s",
            options.connect_time.as_secs_f64()
        ))),
    }
}

/// Connects to the first of a host's addresses that answers. The error is a refusal only where every address refused: else the
/// peer may be there.
async fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut failed: Option<io::Error> = None;
    for address in tokio::net::lookup_host((host, port)).await? {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => {
                let is_refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
                failed = failed.filter(|before| !is_refused(before)).or(Some(error));
            }
        }
    }
    Err(failed.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the host's name has no address")))
}

/// What a connection that was not made means.
fn failed(address: &Address, why: String, error: &io::Error) -> CallError {
    let address = address.clone();
    let is_missing = matches!(address, Address::Unix(_)) && error.kind() == io::ErrorKind::NotFound;
    match is_missing || error.kind() == io::ErrorKind::ConnectionRefused {
        true => CallError::NotListening {
            address,
            why,
            is_missing,
        },
        false => CallError::Unreachable { address, why },
    }
}

/// What is to listen there.
const fn wanted(server: Server) -> &'static str {
    match server {
        Server::Agent => "`headroom agent`",
        Server::Gateway => "the gateway with --control",
    }
}

fn explain_unix(error: &io::Error, server: Server) -> String {
    let wanted = wanted(server);
    match error.kind() {
        io::ErrorKind::NotFound => format!("there is no such socket: start {wanted} there"),
        io::ErrorKind::ConnectionRefused => format!("nobody listens on that socket: start {wanted} there"),
        io::ErrorKind::PermissionDenied => {
            "this user may not open the socket: run as its owner, or as a member of its group".into()
        }
        _ => error.to_string(),
    }
}

fn explain_tcp(error: &io::Error, server: Server) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            format!("nobody listens there: start {} on that machine", wanted(server))
        }
        _ => error.to_string(),
    }
}

async fn converse<S>(
    address: &Address,
    stream: S,
    options: &ClientOptions,
    server: Server,
    shown: Option<Shown>,
) -> Result<Channel, CallError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let why = Arc::new(OnceLock::new());
    let stream = Watched {
        stream,
        server,
        why: why.clone(),
    };
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(options.silence)
        .keep_alive_timeout(options.silence)
        .keep_alive_while_idle(true)
        .max_header_list_size(64 << 10)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| CallError::Unreachable {
            address: address.clone(),
            why: error.to_string(),
        })?;
    let (ending, ended) = watch::channel(false);
    let reason = why.clone();
    let first = shown.as_ref().and_then(|shown| shown.chain.first());
    let certificate_ends = first.and_then(crate::certs::ends);
    if let (Some((name, _)), Some(ends)) = (first.and_then(crate::certs::identify), certificate_ends) {
        crate::tls::expiry::note(&name, ends);
    }
    tokio::spawn(async move {
        let invalid = async {
            match shown {
                Some(shown) => shown.until_invalid().await,
                None => std::future::pending().await,
            }
        };
        let outcome = tokio::select! {
            outcome = connection => outcome,
            why = invalid => {
                tracing::warn!("a connection is cut: {why}");
                let _ = reason.set(why);
                Ok(())
            }
        };
        let fallback = match outcome {
            Ok(()) => format!("the {server} closed the connection"),
            Err(error) if error.is_timeout() => format!("the {server} answers no more"),
            Err(error) => with_sources(&error),
        };
        // What the stream itself said comes first: HTTP/2 keeps only its text.
        let _ = reason.set(fallback);
        let _ = ending.send(true);
    });
    Ok(Channel {
        sender,
        address: Arc::new(address.clone()),
        ended,
        why,
        certificate_ends,
    })
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}

impl Channel {
    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    pub(super) const fn certificate_ends(&self) -> Option<SystemTime> {
        self.certificate_ends
    }

    pub(super) fn is_open(&self) -> bool {
        !*self.ended.borrow() && !self.sender.is_closed()
    }

    pub(super) fn nonsense(&self, invalid: Invalid) -> CallError {
        CallError::Nonsense {
            address: Address::clone(&self.address),
            invalid,
        }
    }

    /// What a failed call means: the agent's refusal, else the end of the connection, else what the status says.
    pub(super) async fn failed(&self, status: Status) -> CallError {
        if let Some(refusal) = Refusal::from_status(&status) {
            return refusal.into();
        }
        let address = Address::clone(&self.address);
        let of_the_connection = matches!(
            status.code(),
            Code::Unknown | Code::Unavailable | Code::Internal | Code::Cancelled
        );
        if of_the_connection {
            let mut ended = self.ended.clone();
            let settled = tokio::time::timeout(SETTLE, ended.wait_for(|ended| *ended)).await;
            if settled.is_ok() || self.sender.is_closed() {
                let why = self
                    .why
                    .get()
                    .cloned()
                    .unwrap_or_else(|| "the connection was lost".into());
                return CallError::Unreachable { address, why };
            }
        }
        CallError::Other {
            address,
            code: status.code(),
            message: status.message().into(),
        }
    }
}

impl Service<http::Request<Body>> for Channel {
    type Response = http::Response<hyper::body::Incoming>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Status>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.sender
            .poll_ready(context)
            .map_err(|error| Status::unavailable(error.to_string()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let sent = self.sender.send_request(request);
        Box::pin(async move { sent.await.map_err(|error| Status::unavailable(error.to_string())) })
    }
}

/// A stream that remembers the first error of its peer in plain words.
struct Watched<S> {
    stream: S,
    /// Whom the stream leads to.
    server: Server,
    why: Arc<OnceLock<String>>,
}

impl<S> Watched<S> {
    fn note<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &result {
            let why = match error.kind() {
                // The handshake is over: the peer was killed, or its machine took the connection down.
                io::ErrorKind::UnexpectedEof => format!("the {} hung up", self.server),
                _ => explain(error, Side::Client(self.server)),
            };
            let _ = self.why.set(why);
        }
        result
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.note(result)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
