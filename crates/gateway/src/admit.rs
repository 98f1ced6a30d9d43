//! The outermost layer: which requests pass, what each comes to, and the gateway's own words where nobody answers.
//!
//! Whatever answers (a backend, a layer between, this one), each request is counted here, once: that it came, what came of
//! it, how long it took, who gave up first.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Method, StatusCode, Uri, Version, request};
use http_body::Body as _;

use crate::account::is_endless;
use crate::body::Body;
use crate::buffered::Share;
use crate::call::{Call, Stop};
use crate::conn::ClientConn;
use crate::core::Core;
use crate::fields::Fields;
use crate::grpc::{self, GrpcCall};
use crate::headers::{
    Refusal, bad_request, is_padded, join_cookies, join_lengths, may_tunnel, normalise_target,
    strip_hop_by_hop,
};
use crate::http1::Text;
use crate::interim::InterimTo;
use crate::layer::{Answer, Layer};
use crate::max_forwards::count_down;
use crate::request_head::BodyFraming;
use crate::stats::Failure;
use crate::ticket::{CountedBody, Ticket};
use crate::upload::{Incoming, RequestBody, UploadError};
use crate::watch::Phase;

/// Seconds after which a client that met a limit of its own may come again.
const RETRY_AFTER_S: HeaderValue = HeaderValue::from_static("1");

/// One core's admission, in front of the layers that answer.
pub(crate) struct Admit<L> {
    core: Rc<Core>,
    inner: L,
}

/// What a client is sent.
pub(crate) struct Reply {
    pub status: StatusCode,
    /// No connection-specific one, but those of a switch of protocols.
    pub fields: Fields,
    /// Of HTTP/1: no other request may follow.
    pub closes: bool,
    pub body: CountedBody,
}

impl Reply {
    fn new(status: StatusCode, fields: Fields, body: CountedBody) -> Self {
        Self {
            status,
            fields,
            closes: false,
            body,
        }
    }
}

impl<L: Layer> Admit<L> {
    pub(crate) fn new(core: Rc<Core>, inner: L) -> Self {
        Self { core, inner }
    }

    pub(crate) fn core(&self) -> &Rc<Core> {
        &self.core
    }

    /// Answers one request, of whose head `text` is what only its text tells. It is checked at once, so that what is carried along is
    /// small.
    pub(crate) fn call(
        self: &Rc<Self>,
        client: &Rc<ClientConn>,
        parts: request::Parts,
        body: Incoming,
        text: Text,
    ) -> impl Future<Output = Reply> + use<L> {
        let this = self.clone();
        let sized = self.core.sizes.as_ref().map(|sizes| sizes.of(&parts));
        let grpc = client.http2.then(|| GrpcCall::of(&parts)).flatten();
        let mut ticket = Ticket::open(client, sized, grpc);
        let head_only = parts.method == Method::HEAD;
        let has_body = !body.is_nothing();
        let is_http_1_0 = parts.version == Version::HTTP_10;
        let admitted = admit(&self.core, &ticket, parts, body, text).map(|mut admitted| {
            if let (Some(_), Admitted::Call(call)) = (grpc, &mut admitted) {
                call.grpc = grpc;
                call.watch.set_call();
                // It may want answers while it is sent.
                if let Some(body) = &mut call.body {
                    body.may_wait = false;
                }
            }
            admitted
        });
        async move {
            let client = ticket.client().clone();
            let is_http2 = client.http2;
            if is_http2 {
                this.core.stream_watch.replace(Some(ticket.watch().clone()));
            }
            let outcome = match admitted {
                Ok(Admitted::Call(mut call)) => {
                    let taken = match has_body {
                        // Boxed, because it is rare: the request path does not carry it along.
                        true => Box::pin(take_body(&this.core, &mut call)).await,
                        false => Ok(()),
                    };
                    if taken.is_ok() {
                        ticket.arrive(call.arrived);
                    }
                    match taken {
                        // As rare.
                        Ok(()) if ticket.has_deadline() => {
                            Box::pin(until_deadline(&mut ticket, this.inner.call(call))).await
                        }
                        Ok(()) => this.inner.call(call).await,
                        Err(stop) => Err(stop),
                    }
                }
                Ok(Admitted::Answered(answer)) => Ok(*answer),
                Err(refusal) => Err(Stop::Refuse(refusal)),
            };
            if let Some(http1) = &client.http1 {
                http1.interims_out(ticket.watch()).await;
            }
            let (mut reply, closes) = match outcome {
                Ok(answer) => {
                    // A layer that answers by itself may have left the request's body unread; where the client holds it back it
                    // may come or not (RFC 9110 section 10.1.1).
                    let body = &answer.body;
                    let unread = body.is_withheld() || has_body && !matches!(body, Body::Upstream(_));
                    (deliver(ticket, answer, unread), unread)
                }
                // What follows a malformed request, or the rest of one, is not read as another request.
                Err(stop) => {
                    let has_rest = match &client.http1 {
                        Some(http1) => http1.has_rest(),
                        None => has_body,
                    };
                    let closes = has_rest || stop.leaves_connection_unknown();
                    client.linger.set(closes);
                    (speak(ticket, &stop, head_only), closes)
                }
            };
            // A client of HTTP/1.0 is told of no length but by the end of the connection.
            let until_close = is_http_1_0 && reply.body.size_hint().exact().is_none();
            reply.closes = closes || until_close || this.core.draining.get();
            reply
        }
    }
}

/// Takes the request's body before a backend is asked, as much of it as is held: a client that is slow to send it holds no backend. The
/// request has arrived when this is over.
async fn take_body(core: &Core, call: &mut Call) -> Result<(), Stop> {
    let bound = core.config.limits.request_buffer_bytes;
    let Some(body) = call.body.as_mut().filter(|body| bound > 0 && body.may_wait) else {
        return Ok(());
    };
    let watch = &call.watch;
    watch.enter(Phase::Upload);
    let taken = poll_fn(|cx| match body.poll_take(cx, core.pressed(bound)) {
        Poll::Pending if watch.expired() => Poll::Ready(None),
        polled => polled.map(Some),
    })
    .await;
    call.arrived = Instant::now();
    match taken {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) => Err(error.stop()),
        None => Err(UploadError::TooSlow.stop()),
    }
}

/// What becomes of a request that passes.
enum Admitted {
    Call(Box<Call>),
    /// It goes no further than to the gateway, which answers.
    Answered(Box<Answer>),
}

/// Checks a request and removes from its head what ends here.
fn admit(
    core: &Core,
    ticket: &Ticket,
    mut parts: request::Parts,
    body: Incoming,
    text: Text,
) -> Result<Admitted, Refusal> {
    let client = ticket.client();
    let limits = &core.config.limits;
    let received = parts.version;
    let interim = (received == Version::HTTP_11)
        .then(|| InterimTo::new(client))
        .flatten();
    let refuse = |status, reason| Err(Refusal { status, reason });
    // Before all else: what is malformed costs its source as much.
    if let Some(source) = &client.source
        && source.ask(ticket.begun()).is_err()
    {
        core.stats.borrow_mut().sources.requests += 1;
        let reason = "too many requests from this address: come again later";
        return refuse(StatusCode::TOO_MANY_REQUESTS, reason);
    }
    if parts.headers.len() > limits.max_headers {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return refuse(status, "too many header fields");
    }
    let hop = strip_hop_by_hop(&mut parts.headers);
    match hop.transfer_encoding {
        Some(false) => {
            let reason = "the only transfer coding supported is chunked";
            return refuse(StatusCode::NOT_IMPLEMENTED, reason);
        }
        Some(true) if text.has_both_lengths => {
            return Err(bad_request("both Transfer-Encoding and Content-Length"));
        }
        _ => {}
    }
    let is_of_server = parts.method == Method::OPTIONS && text.has_empty_path;
    normalise_target(&mut parts)?;
    if is_of_server {
        // RFC 9112 section 3.2.4.
        parts.uri = Uri::from_static("*");
    }
    join_lengths(&mut parts.headers)?;
    let has_body = !body.is_nothing();
    if parts.method == Method::TRACE && has_body {
        // RFC 9110 section 9.3.8.
        return Err(bad_request("a TRACE has no content"));
    }
    if let Some(answer) = count_down(&mut parts)? {
        return Ok(Admitted::Answered(Box::new(answer)));
    }
    if !client.identity.may_ask(&parts.headers) {
        let reason = "this connection's certificate is not for this host: open another connection";
        return refuse(StatusCode::MISDIRECTED_REQUEST, reason);
    }
    let length = body.length();
    if length.is_some_and(|length| length > limits.request_body()) {
        let reason = "the request body exceeds the limit";
        return refuse(StatusCode::PAYLOAD_TOO_LARGE, reason);
    }
    let expected = match parts.headers.contains_key(header::EXPECT) {
        true => expects_continue(&mut parts)? && received == Version::HTTP_11 && has_body,
        false => false,
    };
    if received == Version::HTTP_2 {
        if parts.headers.values().any(is_padded) {
            return Err(bad_request("a field value begins or ends with a blank"));
        }
        join_cookies(&mut parts.headers);
    }
    let framing = match length {
        _ if !has_body => BodyFraming::None,
        Some(_) if parts.headers.contains_key(header::CONTENT_LENGTH) => BodyFraming::Length,
        _ => BodyFraming::Chunked,
    };
    let upgrade = hop
        .upgrade
        .filter(|protocol| received == Version::HTTP_11 && !has_body && may_tunnel(protocol));
    let rank = core.ranking.as_ref().map_or(0, |ranking| ranking.of(&parts));
    ticket.set_rank(rank);
    let watch = ticket.watch().clone();
    let body = has_body.then(|| {
        let chunked = framing == BodyFraming::Chunked;
        let share = Share::new(&core.buffered);
        let limit = limits.request_body();
        RequestBody::new(body, limit, chunked, expected, watch.clone(), share)
    });
    Ok(Admitted::Call(Box::new(Call {
        parts,
        framing,
        upgrade,
        te_trailers: hop.te_trailers,
        interim,
        body,
        client: client.identity.clone(),
        place: None,
        grpc: None,
        sized: ticket.sized(),
        rank,
        arrived: ticket.begun(),
        watch,
    })))
}

/// Takes the Expect fields out. The only expectation there is, `100-continue`, goes on to the backend (RFC 9110 section
/// 10.1.1), unless the client is of HTTP/1.0, whose expectations are ignored, or of HTTP/2, which hyper has no way to send a
/// 100 to: it is asked for the body at once.
///
/// # Errors
/// There is another one.
fn expects_continue(parts: &mut request::Parts) -> Result<bool, Refusal> {
    let mut expectations = parts.headers.get_all(header::EXPECT).iter();
    let is_continue = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    if parts.version != Version::HTTP_10 && !expectations.all(is_continue) {
        return Err(Refusal {
            status: StatusCode::EXPECTATION_FAILED,
            reason: "the only expectation supported is 100-continue",
        });
    }
    parts.headers.remove(header::EXPECT);
    Ok(true)
}

/// Waits for the answer to a call of gRPC until its deadline.
async fn until_deadline(
    ticket: &mut Ticket,
    answer: impl Future<Output = Result<Answer, Stop>>,
) -> Result<Answer, Stop> {
    let mut answer = pin!(answer);
    poll_fn(|cx| {
        if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
            return Poll::Ready(answer);
        }
        ticket.poll_deadline(cx).map(|()| {
            Err(Stop::Fail(
                Failure::TimedOut,
                "the deadline of the call has passed",
            ))
        })
    })
    .await
}

/// Turns an answer into what the client is sent.
fn deliver(mut ticket: Box<Ticket>, answer: Answer, unread: bool) -> Reply {
    let Answer {
        status,
        mut fields,
        body,
    } = answer;
    ticket.answered(status);
    if ticket.is_call() {
        ticket.read(fields.map());
    }
    if !matches!(body, Body::Empty | Body::Memory(_)) && is_endless(fields.kind()) {
        ticket.is_endless();
    }
    let client = ticket.client();
    client.linger.set(unread || body.is_uploading());
    ticket.watch().enter(Phase::Body);
    let body = match body {
        Body::Tunnel(tunnel) => {
            client.tunnel.replace(Some(tunnel));
            Body::Empty
        }
        body => body.for_client(ticket.watch(), &client.core().buffered, client.http2),
    };
    // HTTP/2 waits for the client's window before it takes a piece.
    if !ticket.client().http2 && body.is_one_piece() {
        ticket.at_once();
    }
    Reply::new(status, fields, CountedBody::new(body, ticket))
}

/// The gateway's own answer, with the account closed to match.
fn speak(mut ticket: Box<Ticket>, stop: &Stop, head_only: bool) -> Reply {
    let (status, reason) = match stop {
        Stop::Refuse(refusal) => (refusal.status, refusal.reason),
        Stop::Fail(failure, reason) => {
            let status = match failure {
                Failure::Unreachable | Failure::AbortedByBackend | Failure::Answered => {
                    StatusCode::BAD_GATEWAY
                }
                Failure::OverLimit => StatusCode::SERVICE_UNAVAILABLE,
                Failure::TimedOut => StatusCode::GATEWAY_TIMEOUT,
                Failure::AbortedByClient => StatusCode::BAD_REQUEST,
            };
            (status, *reason)
        }
    };
    let is_call = ticket.is_call();
    let retry_after = match status {
        StatusCode::SERVICE_UNAVAILABLE => ticket.client().core().waiting.retry_after_s(ticket.rank()),
        _ => 0,
    };
    // Of a call too it is counted as what it would be without gRPC: to HTTP each is a 200.
    ticket.stop(stop, status);
    if is_call {
        let body = CountedBody::new(Body::Empty, ticket);
        return Reply::new(StatusCode::OK, grpc::refusal(status, reason).into(), body);
    }
    let text = format!("{reason}\n");
    let length = HeaderValue::from(text.len());
    let body = if head_only {
        Body::Empty
    } else {
        Body::Memory(Bytes::from(text))
    };
    let mut headers = HeaderMap::new();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(header::CONTENT_LENGTH, length);
    match status {
        StatusCode::TOO_MANY_REQUESTS => {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER_S);
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            headers.insert(header::RETRY_AFTER, retry_after.into());
        }
        _ => {}
    }
    Reply::new(status, headers.into(), CountedBody::new(body, ticket))
}
