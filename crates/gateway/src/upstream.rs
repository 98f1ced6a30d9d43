//! A connection to a backend.
//!
//! The connection's state machine is driven by the task that uses it, not by a task of its own: a request then
//! costs one wake-up for the answer instead of three, and a connection in the pool costs nothing. Whoever takes
//! one out of the pool first asks it whether it is still alive.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use tokio::net::TcpStream;

use crate::body::RequestBody;
use crate::config::LimitConfig;
use crate::io::BackendIo;
use crate::watch::Watch;

/// Smallest bound of a connection's read buffer; a response body streams through it.
const READ_BUFFER_BYTES: usize = 64 * 1024;

/// One HTTP/1.1 connection to a backend.
pub(crate) struct Upstream {
    sender: http1::SendRequest<RequestBody>,
    connection: http1::Connection<BackendIo, RequestBody>,
    /// The state machine has ended and must not be driven again.
    done: bool,
    /// Whether an earlier request was answered on it.
    pub reused: bool,
    /// When a sweep first found it in the pool.
    pub idle_since: Option<Instant>,
}

/// How an exchange failed before its response head.
pub(crate) enum ExchangeError {
    /// Nothing of the request was sent; here it is.
    NotSent(Box<Request<RequestBody>>),
    /// The connection ended without a byte of a response.
    Died(hyper::Error),
    /// The response was not HTTP.
    Invalid(hyper::Error),
    /// The watch expired.
    Expired,
}

impl Upstream {
    /// Opens a connection.
    pub(crate) async fn connect(address: SocketAddr, limits: &LimitConfig) -> io::Result<Box<Self>> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut builder = http1::Builder::new();
        builder.max_buf_size(limits.max_header_bytes.max(READ_BUFFER_BYTES));
        // Above the parser's own default it allocates; at or below, the handler checks.
        if limits.max_headers > 100 {
            builder.max_headers(limits.max_headers);
        }
        let (sender, connection) = builder
            .handshake(BackendIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        Ok(Box::new(Self {
            sender,
            connection,
            done: false,
            reused: false,
            idle_since: None,
        }))
    }

    /// Moves the connection forward; true once it has ended.
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.done && self.connection.poll_without_shutdown(cx).is_ready() {
            self.done = true;
        }
        self.done
    }

    /// Whether the pooled connection can carry a request.
    pub(crate) fn is_usable(&mut self) -> bool {
        // No waker: nobody waits for an idle connection, and one registered here would wake the task for
        // nothing when the request is handed over.
        !self.drive(&mut Context::from_waker(Waker::noop())) && self.sender.is_ready()
    }

    /// Sends a request and waits for the response head.
    pub(crate) async fn exchange(
        &mut self,
        request: Request<RequestBody>,
        watch: &Watch,
    ) -> Result<Response<Incoming>, ExchangeError> {
        let mut answer = pin!(self.sender.try_send_request(request));
        poll_fn(|cx| {
            let ended = self.drive(cx);
            // The answer comes out of the connection just driven, so it needs no waker of its own.
            match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Ok(response)) => {
                    // The connection now waits, with this task's waker, to be asked for the body. Driven once
                    // more it waits with none, so that asking does not schedule the very task that asks.
                    self.drive(&mut Context::from_waker(Waker::noop()));
                    Poll::Ready(Ok(response))
                }
                Poll::Ready(Err(mut error)) => Poll::Ready(Err(match error.take_message() {
                    Some(request) => ExchangeError::NotSent(Box::new(request)),
                    None => {
                        let error = error.into_error();
                        if error.is_parse() {
                            ExchangeError::Invalid(error)
                        } else {
                            ExchangeError::Died(error)
                        }
                    }
                })),
                Poll::Pending if watch.expired() => Poll::Ready(Err(ExchangeError::Expired)),
                Poll::Pending if ended => {
                    // An ended connection has always settled its caller; were it not so, waiting would hang.
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// Waits until the connection has switched protocols, and takes its socket and what was read too far.
    pub(crate) async fn into_tunnel(mut self: Box<Self>) -> (TcpStream, Bytes) {
        poll_fn(|cx| {
            if self.drive(cx) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        let parts = self.connection.into_parts();
        (parts.io.into_inner(), parts.read_buf)
    }
}

/// Polls a body that a connection feeds which the same task drives.
pub(crate) fn poll_incoming(
    incoming: &mut Incoming,
) -> Poll<Option<Result<http_body::Frame<Bytes>, hyper::Error>>> {
    http_body::Body::poll_frame(Pin::new(incoming), &mut Context::from_waker(Waker::noop()))
}
