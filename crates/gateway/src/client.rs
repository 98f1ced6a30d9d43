//! A client's connection: which protocol it speaks, how it is served, how it ends.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::admit::Admit;
use crate::config::ms;
use crate::conn::ClientConn;
use crate::core::Core;
use crate::entry::Entry;
use crate::headers::ClientIdentity;
use crate::io::{ClientIo, ClientStream, Side};
use crate::layer::Layer;
use crate::send_proxy::Ends;
use crate::sources::Source;
use crate::tunnel;
use crate::watch::{Phase, Watch};
use crate::{files, refusals};

/// What every HTTP/2 connection begins with (RFC 9113 section 3.4).
const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes read to tell the protocol; mostly the whole first request.
const SNIFF_BYTES: usize = 1024;

/// After an answer that did not wait for the whole request, the rest is read and discarded for this long and
/// this much; a socket closed with unread bytes would be reset, and the answer lost on its way.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 1 << 20;

/// A stream whose client takes nothing of it is given more time so often, while its connection's other streams move.
const MORE_TIME: u32 = 10;

/// A client that has ended its side, and waits for an answer or not, is asked so often whether its connection still is: no
/// event tells.
const HALF_CLOSED_CHECK: Duration = Duration::from_millis(250);

/// Bytes of one HTTP/2 stream's response that may wait for the client.
const H2_SEND_BUFFER_BYTES: usize = 64 * 1024;

/// Smallest read buffer hyper accepts.
const H1_MIN_BUFFER_BYTES: usize = 8192;

/// Counts a connection closed, however its task ends.
struct Open(Rc<Core>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections.set(self.0.connections.get() - 1);
        self.0.descriptors.closed();
        self.0.closed.notify_waiters();
    }
}

/// Serves one accepted connection to its end.
pub(crate) async fn serve<L: Layer + 'static>(
    stack: Rc<Admit<L>>,
    stream: TcpStream,
    peer: SocketAddr,
    entry: Entry,
) {
    let core = stack.core().clone();
    let _open = Open(core.clone());
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a client went away at once");
        return;
    }
    let mut stream = stream;
    let patience = ms(core.config.timeouts.request_header_timeout_ms);
    let Some(peer) = entry.client(&core, &mut stream, peer, patience).await else {
        return;
    };
    let Ok(source) = Entry::admit(&core, peer) else {
        return;
    };
    let mut identity = ClientIdentity::new(peer, entry.tls.is_some());
    if core.names_clients {
        let here = stream.local_addr().ok();
        identity.ends = here.map(|here| Ends { client: peer, here });
    }
    match entry.tls {
        None => {
            // Boxed, as all that is only there for a while: a connection that waits for its next request is small.
            let sniffed = tokio::time::timeout(patience, Box::pin(sniff(&mut stream)));
            let Ok(Ok((http2, start))) = sniffed.await else {
                return;
            };
            serve_http(stack, stream, start, http2, (identity, source)).await;
        }
        Some(end) => {
            let tls = end.current();
            let accepted = tokio::time::timeout(patience, Box::pin(tls.acceptor().accept(stream)));
            let stream = match accepted.await {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => {
                    if let Some(why) = files::refused_certificate(&error) {
                        refusals::tell(peer, &why);
                    }
                    return;
                }
                Err(_) => return,
            };
            let connection = stream.get_ref().1;
            let http2 = connection.alpn_protocol() == Some(b"h2");
            identity.certificate = tls.client(connection);
            identity.binding = tls.binding(connection.server_name());
            // Boxed, so that a connection without TLS does not have the size of one with it.
            Box::pin(serve_http(stack, stream, Bytes::new(), http2, (identity, source))).await;
        }
    }
}

/// Reads the first bytes until they tell HTTP/2 with prior knowledge from HTTP/1.
async fn sniff(stream: &mut TcpStream) -> std::io::Result<(bool, Bytes)> {
    let mut start = [0; SNIFF_BYTES];
    let mut length = 0;
    loop {
        let read = stream.read(&mut start[length..]).await?;
        length += read;
        let compared = length.min(H2_PREFACE.len());
        let so_far = H2_PREFACE.starts_with(&start[..compared]);
        if read == 0 || !so_far || compared == H2_PREFACE.len() {
            let http2 = so_far && compared == H2_PREFACE.len();
            return Ok((http2, Bytes::copy_from_slice(&start[..length])));
        }
    }
}

async fn serve_http<L: Layer + 'static, S: ClientStream>(
    stack: Rc<Admit<L>>,
    stream: S,
    start: Bytes,
    http2: bool,
    (identity, source): (ClientIdentity, Option<Rc<Source>>),
) {
    let phase = if start.is_empty() {
        Phase::Fresh
    } else {
        Phase::Head
    };
    let client = Rc::new(ClientConn::new(
        stack.core().clone(),
        identity,
        source,
        http2,
        phase,
    ));
    let io = ClientIo::new(stream, start, client.clone());
    if http2 {
        Box::pin(serve_h2(stack, client, io)).await
    } else {
        serve_h1(stack, client, io).await
    }
}

/// Serves a client of HTTP/1. Between requests that are far apart only the socket is kept, without hyper and its buffers.
async fn serve_h1<L: Layer + 'static, S: ClientStream>(
    stack: Rc<Admit<L>>,
    client: Rc<ClientConn>,
    mut io: ClientIo<S>,
) {
    while let Some(resting) = Box::pin(converse(&stack, &client, io)).await {
        if !rest(&client, &resting).await {
            let shared = resting.share();
            drop(resting);
            if let Some(mut stream) = shared.into_inner() {
                let _ = stream.shutdown().await;
            }
            return;
        }
        io = resting;
    }
}

/// Waits for the next request; `false` where there is to be none.
async fn rest<S: ClientStream>(client: &ClientConn, io: &ClientIo<S>) -> bool {
    let core = client.core();
    poll_fn(|cx| {
        client.watch.wake_by(cx);
        if client.watch.expired() || core.draining.get() && !core.sparing_idle.get() {
            return Poll::Ready(false);
        }
        io.poll_readable(cx).map(|()| true)
    })
    .await
}

/// How the loop around a connection ended.
enum End {
    /// The connection itself ended.
    Over(hyper::Result<()>),
    /// The client let a request head, or itself, be waited for too long.
    Silent(Phase),
    /// The client closed the connection while a request was answered.
    Gone,
    /// The next request is not in sight.
    Rests,
}

/// Answers requests until the connection ends, or rests: then its socket is given back.
async fn converse<L: Layer + 'static, S: ClientStream>(
    stack: &Rc<Admit<L>>,
    client: &Rc<ClientConn>,
    io: ClientIo<S>,
) -> Option<ClientIo<S>> {
    let core = stack.core();
    let limits = &core.config.limits;
    let mut builder = http1::Builder::new();
    builder
        .header_read_timeout(None)
        .half_close(true)
        .max_buf_size(limits.max_header_bytes.max(H1_MIN_BUFFER_BYTES))
        .max_header_size(limits.max_header_bytes);
    if limits.max_headers > 100 {
        builder.max_headers(limits.max_headers);
    }
    let service = service_fn(|request| stack.call(client, request));
    let shared = io.share();
    let mut connection = builder.serve_connection(io, service);
    let mut closing = false;
    // Between two looks at a client that has ended its side.
    let mut half_closed: Option<Pin<Box<tokio::time::Sleep>>> = None;
    let mut is_gone = |cx: &mut Context<'_>| match shared.side(cx) {
        Side::Open => false,
        Side::Gone => true,
        Side::Ended if core.config.cancel_on_fin => true,
        Side::Ended => {
            let pause = half_closed.get_or_insert_with(|| Box::pin(tokio::time::sleep(HALF_CLOSED_CHECK)));
            while pause.as_mut().poll(cx).is_ready() {
                pause.set(tokio::time::sleep(HALF_CLOSED_CHECK));
            }
            false
        }
    };
    let end = poll_fn(|cx| {
        client.watch.wake_by(cx);
        let phase = client.watch.phase();
        // With `half_close`, hyper does not look for the client's end while a request is answered (it would
        // allocate a buffer for that each time); this does.
        let answers = |phase| matches!(phase, Phase::Response | Phase::Body | Phase::Untimed);
        if answers(phase) && is_gone(cx) {
            return Poll::Ready(End::Gone);
        }
        if client.watch.expired() {
            match phase {
                Phase::Fresh | Phase::Idle | Phase::Head => return Poll::Ready(End::Silent(phase)),
                Phase::Body
                    if core.watches.takes_slowly(
                        &client.watch,
                        shared.acknowledged(),
                        u32::MAX,
                        core.waiting.is_any(),
                    ) => {}
                // The client does not read: nothing polls the body, so the connection ends here.
                Phase::Body => {
                    client.reset.set(true);
                    if Pin::new(&mut connection).poll(cx).is_ready() || client.watch.expired() {
                        return Poll::Ready(End::Silent(phase));
                    }
                }
                _ => {}
            }
        }
        // While a first request, or a part of a request, is on its way, the connection stays open to answer it;
        // the handler then announces the close.
        let waits =
            matches!(phase, Phase::Fresh | Phase::Head) || phase == Phase::Idle && core.sparing_idle.get();
        if core.draining.get() && !closing && !waits {
            closing = true;
            Pin::new(&mut connection).graceful_shutdown();
        }
        let mut polled = Pin::new(&mut connection).poll(cx);
        if polled.is_pending() && client.interims.is_due() {
            match client.interims.poll_write(cx, &shared) {
                // Whoever waits with the final head for them has been woken.
                Poll::Ready(Ok(())) => polled = Pin::new(&mut connection).poll(cx),
                Poll::Ready(Err(_)) => return Poll::Ready(End::Gone),
                Poll::Pending => {}
            }
        }
        // A request has just come, and may be held for long: from here on its client's end wakes this task.
        let has_begun = polled.is_pending() && !answers(phase) && answers(client.watch.phase());
        if has_begun && is_gone(cx) {
            return Poll::Ready(End::Gone);
        }
        if polled.is_pending() {
            read_ahead(core, &client.watch, cx);
            let is_idle = client.watch.phase() == Phase::Idle;
            let may_rest = is_idle && (client.watch.rests() || core.is_mostly_idle());
            if may_rest && client.interims.is_hyper_flushed() && !closing {
                return Poll::Ready(End::Rests);
            }
        }
        polled.map(End::Over)
    })
    .await;
    let parts = connection.into_parts();
    let read_buf = parts.read_buf;
    if matches!(end, End::Rests) {
        return Some(parts.io.resumed(&read_buf));
    }
    drop(parts.io);
    let mut stream = shared.into_inner()?;
    if let Some(tunnel) = client.tunnel.take() {
        tunnel::run(client, stream, read_buf, tunnel).await;
        return None;
    }
    if client.reset.get() {
        stream.reset_on_close();
        return None;
    }
    let linger = match end {
        End::Over(Err(_)) if client.overlong.get() => {
            let answer = b"HTTP/1.1 414 URI Too Long\r\ncontent-type: text/plain\r\nconnection: close\r\n\
                content-length: 30\r\n\r\nthe request line is too long.\n";
            stream.write_all(answer).await.is_ok()
        }
        End::Silent(Phase::Head) => {
            let answer = b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain\r\nconnection: close\r\n\
                content-length: 39\r\n\r\nthe request head did not come in time.\n";
            stream.write_all(answer).await.is_ok()
        }
        End::Silent(_) | End::Gone | End::Rests => false,
        End::Over(Err(error)) => error.is_parse(),
        End::Over(Ok(())) => client.linger.get(),
    };
    let _ = stream.shutdown().await;
    if linger {
        let _ = tokio::time::timeout(LINGER, discard(&mut stream)).await;
    }
    None
}

/// Reads on of an answer that the client is slow to take, while the request path waits for it.
fn read_ahead(core: &Core, watch: &Watch, cx: &mut Context<'_>) {
    let ahead = watch.ahead.borrow();
    let Some(ahead) = &*ahead else { return };
    let bound = core.config.limits.response_buffer_bytes;
    ahead.borrow_mut().read_on(cx, core.pressed(bound));
}

async fn discard<S: ClientStream>(stream: &mut S) {
    let mut buffer = [0; 4096];
    let mut left = LINGER_BYTES;
    while left > 0 {
        match stream.read(&mut buffer).await {
            Ok(read) if read > 0 => left = left.saturating_sub(read),
            _ => return,
        }
    }
}

async fn serve_h2<L: Layer + 'static, S: ClientStream>(
    stack: Rc<Admit<L>>,
    client: Rc<ClientConn>,
    io: ClientIo<S>,
) {
    let core = stack.core();
    let limits = &core.config.limits;
    let shared = io.share();
    client
        .acknowledges
        .replace(Some(Box::new(move || shared.acknowledged())));
    let mut builder = http2::Builder::new(StreamExecutor(client.clone()));
    builder
        .max_concurrent_streams(limits.max_concurrent_streams)
        .max_header_list_size(u32::try_from(limits.max_header_bytes).unwrap_or(u32::MAX))
        .initial_stream_window_size(limits.h2_window_bytes)
        .initial_connection_window_size(limits.h2_connection_window_bytes.max(limits.h2_window_bytes))
        .max_send_buf_size(H2_SEND_BUFFER_BYTES);
    let service = service_fn(|request| stack.call(&client, request));
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
    /// Whether a client takes a stream's answer, if slowly, as far as its connection tells.
    fn takes_slowly(&self, stream: &Watch) -> bool {
        let acknowledged = self.acknowledges.borrow().as_ref().and_then(|ask| ask());
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
