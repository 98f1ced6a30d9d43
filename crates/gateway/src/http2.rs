//! HTTP/2 towards clients: hyper's server, a task for each stream, and the socket under both.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use crate::admit::Admit;
use crate::client::read_ahead;
use crate::conn::ClientConn;
use crate::http1::Text;
use crate::layer::Layer;
use crate::socket::Socket;
use crate::upload::Incoming;
use crate::watch::{Phase, Watch};

/// A stream whose client takes nothing of it is given more time so often, while its connection's other streams move.
const MORE_TIME: u32 = 10;

/// Bytes of one stream's response that may wait for the client.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// Serves a client of HTTP/2, of whose connection `start` was read already.
pub(crate) async fn serve<L: Layer + 'static>(
    stack: Rc<Admit<L>>,
    client: Rc<ClientConn>,
    socket: Socket,
    start: Bytes,
) {
    let core = stack.core();
    let limits = &core.config.limits;
    let socket = Rc::new(RefCell::new(TokioIo::new(socket)));
    let shared = socket.clone();
    let acknowledged = move || shared.borrow().inner().acknowledged();
    client.acknowledges.replace(Some(Box::new(acknowledged)));
    let io = ClientIo { start, socket };
    let mut builder = http2::Builder::new(StreamExecutor(client.clone()));
    builder
        .max_concurrent_streams(limits.max_concurrent_streams)
        .max_header_list_size(u32::try_from(limits.max_header_bytes).unwrap_or(u32::MAX))
        .initial_stream_window_size(limits.h2_window_bytes)
        .initial_connection_window_size(limits.h2_connection_window_bytes.max(limits.h2_window_bytes))
        .max_send_buf_size(SEND_BUFFER_BYTES);
    let service = service_fn(|request: http::Request<_>| {
        let (parts, body) = request.into_parts();
        let answer = stack.call(&client, parts, Incoming::Http2(body), Text::default());
        async {
            let reply = answer.await;
            let mut response = http::Response::new(reply.body);
            *response.status_mut() = reply.status;
            *response.headers_mut() = reply.fields.into_map();
            Ok::<_, Infallible>(response)
        }
    });
    client.watch.enter(Phase::Idle);
    let mut connection = pin!(builder.serve_connection(io, service));
    let mut closing = false;
    poll_fn(|cx| {
        client.watch.wake_by(cx);
        if client.cancels_too_much() {
            tracing::info!(
                client = client.identity.address,
                "an HTTP/2 connection was closed: its client cancels its requests (limits.max_h2_resets)"
            );
            return Poll::Ready(());
        }
        let expired = client.watch.expired();
        if expired && closing {
            return Poll::Ready(());
        }
        if (expired || core.draining.get()) && !closing {
            closing = true;
            if expired {
                // The goodbye has the same time again to go out.
                client.watch.enter(Phase::Idle);
            }
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(cx).map(|_| ())
    })
    .await;
}

impl ClientConn {
    /// What the client's machine has acknowledged of all its streams.
    fn acknowledged(&self) -> Option<u64> {
        self.acknowledges.borrow().as_ref().and_then(|ask| ask())
    }

    /// Whether a client takes a stream's answer, if slowly, as far as its connection tells.
    fn takes_slowly(&self, stream: &Watch) -> bool {
        let acknowledged = self.acknowledged();
        let core = self.core();
        core.watches
            .takes_slowly(stream, acknowledged, MORE_TIME, core.waiting.is_any())
    }
}

/// Runs the streams of HTTP/2 connections on this core.
#[derive(Clone)]
struct StreamExecutor(Rc<ClientConn>);

impl<F: Future + 'static> hyper::rt::Executor<F> for StreamExecutor {
    fn execute(&self, stream: F) {
        tokio::task::spawn_local(StreamTask {
            client: self.0.clone(),
            watch: None,
            stream: Some(Box::pin(stream)),
        });
    }
}

/// One HTTP/2 stream; it learns from its handler which watch is its own, so that a client that stops reading
/// costs this stream and not the connection.
struct StreamTask<F> {
    client: Rc<ClientConn>,
    watch: Option<Rc<Watch>>,
    stream: Option<Pin<Box<F>>>,
}

impl<F: Future> Future for StreamTask<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let Some(stream) = &mut this.stream else {
            return Poll::Ready(());
        };
        if let Some(watch) = &this.watch {
            watch.wake_by(cx);
            if watch.wants_acknowledged() {
                watch.note_acknowledged(this.client.acknowledged());
            }
        }
        let polled = stream.as_mut().poll(cx);
        if let (true, Some(watch)) = (polled.is_pending(), &this.watch) {
            read_ahead(this.client.core(), watch, cx);
        }
        if this.watch.is_none()
            && let Some(watch) = this.client.core().stream_watch.take()
        {
            watch.wake_by(cx);
            this.watch = Some(watch);
        }
        let stuck = this.watch.as_ref().is_some_and(|watch| {
            watch.expired() && watch.phase() == Phase::Body && !this.client.takes_slowly(watch)
        });
        if polled.is_ready() || stuck {
            this.stream = None;
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

/// A client's socket under hyper.
struct ClientIo {
    /// What was read before the protocol was known.
    start: Bytes,
    /// Shared with who asks what of it was acknowledged.
    socket: Rc<RefCell<TokioIo<Socket>>>,
}

impl Read for ClientIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.start.is_empty() {
            let length = self.start.len().min(cursor.remaining());
            cursor.put_slice(&self.start[..length]);
            self.start.advance(length);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut *self.socket.borrow_mut()).poll_read(cx, cursor)
    }
}

impl Write for ClientIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.socket.borrow_mut()).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.socket.borrow_mut()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.socket.borrow_mut()).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.socket.borrow_mut()).poll_write_vectored(cx, slices)
    }
}
