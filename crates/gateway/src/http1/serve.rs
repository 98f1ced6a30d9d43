//! A connection of HTTP/1 from its first request to its end.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{HeaderMap, StatusCode, Version};
use http_body::Body as _;

use super::answer::{self, Asked, Ending};
use super::finish::finish;
use super::head::{self, Bounds, Head};
use super::inbound::Inbound;
use super::{Http1, Side};
use crate::admit::{Admit, Reply};
use crate::chunked;
use crate::client::read_ahead;
use crate::conn::ClientConn;
use crate::headers::Refusal;
use crate::layer::Layer;
use crate::outgoing::Piece;
use crate::ticket::CountedBody;
use crate::upload::Incoming;
use crate::watch::Phase;

/// A client that has ended its side, or has sent what is not read yet, and waits for an answer or not, is asked so often whether its
/// connection still is: no event tells.
const HALF_CLOSED_CHECK: Duration = Duration::from_millis(250);

/// A head that is not there whole is looked at again as it comes, as long as it is this short...
const SHORT_HEAD_BYTES: usize = 1024;

/// How a connection ended.
pub(super) enum End {
    /// There is to be no other request.
    Over,
    /// The client let a request head, or itself, be waited for too long.
    Silent(Phase),
    /// The client closed the connection while a request was answered.
    Gone,
    /// What came is no request, and where the next one begins is not known.
    Malformed(Refusal),
    /// What came first is not HTTP at all. Somebody who speaks another protocol (or a broken HTTP/2 preface) is better served by a
    /// closed connection than by an answer it cannot read.
    NotHttp,
    /// The next request is not in sight.
    Rests,
}

/// Serves a client of HTTP/1. Between requests that are far apart only the socket is kept.
pub(crate) async fn serve<L: Layer + 'static>(stack: &Rc<Admit<L>>, client: &Rc<ClientConn>) {
    let Some(http1) = &client.http1 else { return };
    loop {
        // Boxed, so that a connection that rests is small.
        let end = Box::pin(converse(stack, client, http1)).await;
        if !matches!(end, End::Rests) {
            return Box::pin(finish(client, http1, end)).await;
        }
        http1.rest();
        if !has_next(client, http1).await {
            return Box::pin(finish(client, http1, End::Over)).await;
        }
    }
}

/// Waits for the next request; `false` where there is to be none.
async fn has_next(client: &ClientConn, http1: &Http1) -> bool {
    let core = client.core();
    poll_fn(|cx| {
        client.watch.wake_by(cx);
        if client.watch.expired() || core.draining.get() && !core.sparing_idle.get() {
            return Poll::Ready(false);
        }
        http1.poll_readable(cx).map(|()| true)
    })
    .await
}

/// Answers requests until the connection ends, or rests.
async fn converse<L: Layer + 'static>(stack: &Rc<Admit<L>>, client: &Rc<ClientConn>, http1: &Http1) -> End {
    let mut first = http1.request.get() == 0;
    // Between two looks at a client that has ended its side.
    let mut half_closed = HalfClosed::default();
    loop {
        let mut looked = 0;
        let head = match poll_fn(|cx| poll_head(client, http1, cx, first, &mut looked)).await {
            Ok(head) => head,
            Err(end) => return end,
        };
        first = false;
        if let Some(end) = exchange(stack, client, http1, head, &mut half_closed).await {
            return end;
        }
    }
}

/// Reads the next head, of which so many bytes were `looked` at.
fn poll_head(
    client: &ClientConn,
    http1: &Http1,
    cx: &mut Context<'_>,
    first: bool,
    looked: &mut usize,
) -> Poll<Result<Head, End>> {
    let core = client.core();
    let watch = &client.watch;
    watch.wake_by(cx);
    if watch.expired() {
        return Poll::Ready(Err(End::Silent(watch.phase())));
    }
    let bounds = Bounds {
        bytes: core.config.limits.max_header_bytes,
        fields: core.config.limits.max_headers,
    };
    loop {
        // While a first request, or a part of a request, is on its way, the connection stays open to answer it; the answer then
        // announces the close.
        let waits = match watch.phase() {
            Phase::Idle => core.sparing_idle.get(),
            phase => matches!(phase, Phase::Fresh | Phase::Head),
        };
        if core.draining.get() && !waits {
            return Poll::Ready(Err(End::Over));
        }
        let received = &mut *http1.received.borrow_mut();
        if *looked == 0 {
            skip_empty_lines(received);
        }
        // Half an empty line is no begin of a request.
        if received.len() > *looked && **received != *b"\r" {
            // ...and else where it may have come to its end: who sends it byte by byte does not have all of it read for each.
            let is_worth_it = received.len() <= SHORT_HEAD_BYTES
                || received.len() >= bounds.bytes
                || received[*looked..].contains(&b'\n');
            *looked = received.len();
            if is_worth_it {
                match head::take(received, bounds, &mut core.request_names.borrow_mut()) {
                    Ok(Some(head)) => return Poll::Ready(Ok(head)),
                    Ok(None) => {}
                    Err(_) if first && !is_http(received) => return Poll::Ready(Err(End::NotHttp)),
                    Err(refusal) => return Poll::Ready(Err(End::Malformed(refusal))),
                }
            }
            if watch.phase() != Phase::Head {
                watch.enter(Phase::Head);
            }
        }
        match http1.poll_fill(cx, core, received, bounds.bytes) {
            Poll::Ready(Ok(0)) => return Poll::Ready(Err(End::Over)),
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(_)) => return Poll::Ready(Err(End::Gone)),
            Poll::Pending => {
                let is_idle = watch.phase() == Phase::Idle;
                return match is_idle && (watch.rests() || core.is_mostly_idle()) {
                    true => Poll::Ready(Err(End::Rests)),
                    false => Poll::Pending,
                };
            }
        }
    }
}

/// Takes out the empty lines before a request, which are none of it (RFC 9112 section 2.2).
fn skip_empty_lines(received: &mut Bytes) {
    let mut lines = 0;
    loop {
        match &received[lines..] {
            [b'\n', ..] => lines += 1,
            [b'\r', b'\n', ..] => lines += 2,
            _ => break,
        }
    }
    received.advance(lines);
}

/// Whether what came first may be HTTP, by its first line.
fn is_http(received: &[u8]) -> bool {
    // An empty line or two may come before the request line (RFC 9112 section 2.2).
    let line = received.trim_ascii_start();
    let end = line.iter().position(|byte| *byte == b'\n');
    end.is_none_or(|end| {
        line[..end]
            .windows(5)
            .any(|word| word.eq_ignore_ascii_case(b"HTTP/"))
    })
}

/// Answers one request; how the connection ends, if another one may not follow.
async fn exchange<L: Layer + 'static>(
    stack: &Rc<Admit<L>>,
    client: &Rc<ClientConn>,
    http1: &Http1,
    head: Head,
    half_closed: &mut HalfClosed,
) -> Option<End> {
    let asked = Asked {
        head_only: head.parts.method == http::Method::HEAD,
        http_1_0: head.parts.version == Version::HTTP_10,
        keep_alive: head.keep_alive,
        takes_trailers: head.takes_trailers,
    };
    http1.request.set(http1.request.get() + 1);
    http1.answered.set(false);
    let body = match Inbound::new(client, head.coming) {
        None => Incoming::Nothing,
        Some(body) => Incoming::Http1(body),
    };
    http1.has_rest.set(!matches!(body, Incoming::Nothing));
    let reply = {
        let mut answering = pin!(stack.call(client, head.parts, body, head.text));
        poll_fn(|cx| {
            let watch = &client.watch;
            watch.wake_by(cx);
            let phase = watch.phase();
            if phase == Phase::Body && watch.expired() && !takes_slowly(client, http1) {
                client.reset.set(true);
                return Poll::Ready(Err(End::Silent(phase)));
            }
            if let Poll::Ready(reply) = answering.as_mut().poll(cx) {
                return Poll::Ready(Ok(reply));
            }
            // The request may be held for long: from here on its client's end wakes this task.
            if answers(watch.phase()) && half_closed.is_gone(client, http1, cx) {
                return Poll::Ready(Err(End::Gone));
            }
            // Interim answers.
            match http1.poll_send(cx, watch) {
                Poll::Ready(Err(_)) => Poll::Ready(Err(End::Gone)),
                _ => Poll::Pending,
            }
        })
        .await
    };
    match reply {
        Ok(reply) => send(client, http1, reply, asked, half_closed).await,
        Err(end) => Some(end),
    }
}

/// Whether a client whose time is up takes what it is sent, if slowly.
fn takes_slowly(client: &ClientConn, http1: &Http1) -> bool {
    let core = client.core();
    let acknowledged = http1.acknowledged();
    core.watches
        .takes_slowly(&client.watch, acknowledged, u32::MAX, core.waiting.is_any())
}

/// Sends an answer; how the connection ends behind it, if another request may not follow.
async fn send(
    client: &ClientConn,
    http1: &Http1,
    mut reply: Reply,
    asked: Asked,
    half_closed: &mut HalfClosed,
) -> Option<End> {
    let core = client.core();
    let watch = &client.watch;
    if watch.is_to_be_judged() {
        http1.acknowledged_before.set(http1.acknowledged());
    }
    let written = answer::write(&mut reply, asked, &mut http1.outgoing.borrow_mut().framed);
    let switches = reply.status == StatusCode::SWITCHING_PROTOCOLS;
    drop(reply.fields);
    let mut body = reply.body;
    let mut sending = Sending::new(written.ending, asked.takes_trailers);
    if body.is_end_stream() {
        sending.end(client, http1, None);
    }
    let ended = poll_fn(|cx| {
        watch.wake_by(cx);
        let phase = watch.phase();
        if watch.wants_acknowledged() {
            watch.note_acknowledged(http1.acknowledged());
        }
        // The client does not read; nothing asks the body for more.
        let gives_up = phase == Phase::Body && watch.expired() && !takes_slowly(client, http1);
        let polled = sending.poll(client, http1, &mut body, cx);
        if gives_up && (polled.is_ready() || watch.expired()) {
            client.reset.set(true);
            return Poll::Ready(Some(End::Silent(phase)));
        }
        if polled.is_pending() {
            if watch.phase() == Phase::Idle {
                // The request is over, all of its answer handed over; its client has still to take the end of it.
                watch.enter(Phase::Body);
                watch.set_on_client(true);
            }
            if answers(watch.phase()) && half_closed.is_gone(client, http1, cx) {
                return Poll::Ready(Some(End::Gone));
            }
            read_ahead(core, watch, cx);
        }
        polled
    })
    .await;
    if ended.is_none() && watch.phase() == Phase::Body {
        watch.enter(Phase::Idle);
    }
    // A rest of the request that nobody has read is not to be read as another one.
    let follows = written.keep_alive && !http1.has_rest.get() && !switches && !client.reset.get();
    ended.or((!follows).then_some(End::Over))
}

/// An answer on its way.
struct Sending {
    ending: Ending,
    takes_trailers: bool,
    /// Nothing but its head is framed: it is sent together with what of the body is there.
    only_head: bool,
    /// All of it is framed.
    over: bool,
}

impl Sending {
    fn new(ending: Ending, takes_trailers: bool) -> Self {
        Self {
            ending,
            takes_trailers,
            only_head: true,
            over: ending == Ending::Nothing,
        }
    }

    /// Sends on; ready once all of it is with the kernel, or with how the connection ends before.
    fn poll(
        &mut self,
        client: &ClientConn,
        http1: &Http1,
        body: &mut CountedBody,
        cx: &mut Context<'_>,
    ) -> Poll<Option<End>> {
        loop {
            if !self.only_head || self.over {
                if ready!(http1.poll_send(cx, &client.watch)).is_err() {
                    return Poll::Ready(Some(End::Gone));
                }
                if self.over {
                    return Poll::Ready(None);
                }
            }
            let polled = Pin::new(&mut *body).poll_frame(cx);
            let is_first = std::mem::replace(&mut self.only_head, false);
            let frame = match polled {
                // Nobody has asked the socket yet to say when it takes the head.
                Poll::Pending if is_first => continue,
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => {
                    self.end(client, http1, None);
                    continue;
                }
                // The connection is reset.
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Some(End::Over)),
                Poll::Ready(Some(Ok(frame))) => frame,
            };
            match frame.into_data() {
                Ok(data) => self.add(client, http1, data, body.is_end_stream()),
                Err(frame) => self.end(client, http1, frame.into_trailers().ok()),
            }
        }
    }

    /// Frames a piece of the body, which is its last one or not.
    fn add(&mut self, client: &ClientConn, http1: &Http1, mut data: Bytes, is_last: bool) {
        let framing = match (&mut self.ending, is_last) {
            (Ending::Chunked, true) => Piece::LastChunk,
            (Ending::Chunked, false) => Piece::Chunk,
            (Ending::Length(left), _) => {
                // What is more than was said would be read as another answer.
                data.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= data.len() as u64;
                Piece::Plain
            }
            (Ending::Close | Ending::Nothing, _) => Piece::Plain,
        };
        // An empty chunk would be the last one.
        if !data.is_empty() {
            http1.outgoing.borrow_mut().add(data, framing);
            self.over = is_last && framing == Piece::LastChunk;
        }
        if is_last && !self.over {
            self.end(client, http1, None);
        }
    }

    /// Frames the end of the body.
    fn end(&mut self, client: &ClientConn, http1: &Http1, trailers: Option<HeaderMap>) {
        self.over = true;
        match self.ending {
            Ending::Chunked => {
                let trailers = trailers.filter(|_| self.takes_trailers).unwrap_or_default();
                chunked::encode_end(&trailers, &mut http1.outgoing.borrow_mut().framed);
            }
            // It is shorter than was said: the connection is reset, for what follows would be read as a part of it.
            Ending::Length(left) if left > 0 => client.reset.set(true),
            Ending::Length(_) | Ending::Close | Ending::Nothing => {}
        }
    }
}

/// Whether a client that leaves in this phase leaves an answer that it waits for.
fn answers(phase: Phase) -> bool {
    matches!(phase, Phase::Response | Phase::Body | Phase::Untimed)
}

/// When a client that has ended its side is looked at again.
#[derive(Default)]
struct HalfClosed(Option<Pin<Box<tokio::time::Sleep>>>);

impl HalfClosed {
    /// Whether the client has gone away, so that nobody is there to be answered.
    fn is_gone(&mut self, client: &ClientConn, http1: &Http1, cx: &mut Context<'_>) -> bool {
        let side = http1.side(cx);
        if matches!(side, Side::Ended) {
            client.watch.set_half_closed();
        }
        match side {
            Side::Open => false,
            Side::Gone => true,
            Side::Ended if client.core().config.cancel_on_fin => true,
            Side::Ended | Side::Unread => {
                let pause = self
                    .0
                    .get_or_insert_with(|| Box::pin(tokio::time::sleep(HALF_CLOSED_CHECK)));
                while pause.as_mut().poll(cx).is_ready() {
                    pause.set(tokio::time::sleep(HALF_CLOSED_CHECK));
                }
                false
            }
        }
    }
}
