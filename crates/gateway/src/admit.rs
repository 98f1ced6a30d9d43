//! The outermost layer: which requests pass, what each comes to, and the gateway's own words where nobody answers.
//!
//! Whatever answers (a backend, a layer between, this one), each request is counted here, once: that it came, what came of
//! it, how long it took, who gave up first.

use std::convert::Infallible;
use std::rc::Rc;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;

use crate::body::Body;
use crate::call::{Call, Stop};
use crate::conn::ClientConn;
use crate::core::Core;
use crate::headers::{
    Refusal, bad_request, has_conflicting_length, join_cookies, may_tunnel, normalise_target,
    strip_hop_by_hop,
};
use crate::layer::{Answer, Layer};
use crate::request_head::BodyFraming;
use crate::stats::Failure;
use crate::ticket::{CountedBody, Ticket};
use crate::upload::RequestBody;
use crate::watch::Phase;

/// Seconds after which a client that met a limit may come again.
const RETRY_AFTER_S: HeaderValue = HeaderValue::from_static("1");

/// One core's admission, in front of the layers that answer.
pub(crate) struct Admit<L> {
    core: Rc<Core>,
    inner: L,
}

impl<L: Layer> Admit<L> {
    pub(crate) fn new(core: Rc<Core>, inner: L) -> Self {
        Self { core, inner }
    }

    pub(crate) fn core(&self) -> &Rc<Core> {
        &self.core
    }

    /// Answers one request. It is checked at once, so that what is carried along is small.
    pub(crate) fn call(
        self: &Rc<Self>,
        client: &Rc<ClientConn>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<CountedBody>, Infallible>> + use<L> {
        let this = self.clone();
        let sized = self.core.sizes.as_ref().map(|sizes| sizes.of(&request));
        let ticket = Ticket::open(client, sized);
        let head_only = request.method() == Method::HEAD;
        let has_body = !request.body().is_end_stream();
        let admitted = admit(&self.core, &ticket, request);
        async move {
            let client = ticket.client().clone();
            if client.http2 {
                this.core.stream_watch.replace(Some(ticket.watch().clone()));
            }
            let outcome = match admitted {
                Ok(call) => this.inner.call(call).await,
                Err(refusal) => Err(Stop::Refuse(refusal)),
            };
            let (mut response, closes) = match outcome {
                Ok(answer) => {
                    // A layer that answers by itself may have left the request's body unread.
                    let unread = has_body && !matches!(answer.body(), Body::Upstream(_));
                    (deliver(ticket, answer, unread), unread)
                }
                // What follows a malformed request, or the rest of one, is not read as another request.
                Err(stop) => {
                    let closes = has_body || stop.leaves_connection_unknown();
                    client.linger.set(closes);
                    (speak(ticket, &stop, head_only), closes)
                }
            };
            let closes = closes || this.core.draining.get();
            if closes && !client.http2 && response.status() != StatusCode::SWITCHING_PROTOCOLS {
                response
                    .headers_mut()
                    .insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response)
        }
    }
}

/// Checks a request and removes from its head what ends here.
fn admit(core: &Core, ticket: &Ticket, request: Request<Incoming>) -> Result<Box<Call>, Refusal> {
    let client = ticket.client();
    let limits = &core.config.limits;
    let (mut parts, body) = request.into_parts();
    let refuse = |status, reason| Err(Refusal { status, reason });
    // Before all else: what is malformed costs its source as much.
    if let Some(source) = &client.source
        && source.ask(ticket.arrived()).is_err()
    {
        core.stats.borrow_mut().sources.requests += 1;
        let reason = "too many requests from this address: come again later";
        return refuse(StatusCode::TOO_MANY_REQUESTS, reason);
    }
    if parts.headers.len() > limits.max_headers {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return refuse(status, "too many header fields");
    }
    let received = parts.version;
    let hop = strip_hop_by_hop(&mut parts.headers);
    match hop.transfer_encoding {
        Some(false) => {
            let reason = "the only transfer coding supported is chunked";
            return refuse(StatusCode::NOT_IMPLEMENTED, reason);
        }
        Some(true) if has_conflicting_length(&client.raw_heads.borrow()) => {
            return Err(bad_request("both Transfer-Encoding and Content-Length"));
        }
        _ => {}
    }
    normalise_target(&mut parts)?;
    if !client.identity.may_ask(parts.headers.get(header::HOST)) {
        let reason = "this connection's certificate is not for this host: open another connection";
        return refuse(StatusCode::MISDIRECTED_REQUEST, reason);
    }
    let size = body.size_hint();
    if size.lower() > limits.request_body() {
        let reason = "the request body exceeds the limit";
        return refuse(StatusCode::PAYLOAD_TOO_LARGE, reason);
    }
    // The gateway itself says 100 Continue, once a backend asks for the body.
    if let Some(expectation) = parts.headers.remove(header::EXPECT)
        && !expectation.as_bytes().eq_ignore_ascii_case(b"100-continue")
    {
        let reason = "the only expectation supported is 100-continue";
        return refuse(StatusCode::EXPECTATION_FAILED, reason);
    }
    if received == Version::HTTP_2 {
        join_cookies(&mut parts.headers);
    }
    let has_body = !body.is_end_stream();
    let framing = match size.exact() {
        _ if !has_body => BodyFraming::None,
        Some(_) if parts.headers.contains_key(header::CONTENT_LENGTH) => BodyFraming::Length,
        _ => BodyFraming::Chunked,
    };
    let upgrade = hop
        .upgrade
        .filter(|protocol| received == Version::HTTP_11 && !has_body && may_tunnel(protocol));
    let watch = ticket.watch().clone();
    let body = has_body.then(|| {
        let chunked = framing == BodyFraming::Chunked;
        RequestBody::new(body, limits.request_body(), chunked, watch.clone())
    });
    Ok(Box::new(Call {
        parts,
        framing,
        upgrade,
        te_trailers: hop.te_trailers,
        body,
        client: client.identity.clone(),
        place: None,
        sized: ticket.sized(),
        arrived: ticket.arrived(),
        watch,
    }))
}

/// Turns an answer into what the client is sent.
fn deliver(mut ticket: Ticket, answer: Answer, unread: bool) -> Response<CountedBody> {
    let (head, body) = answer.into_parts();
    ticket.answered(head.status);
    let client = ticket.client();
    client.linger.set(unread || body.is_uploading());
    let body = match body {
        Body::Tunnel(tunnel) => {
            client.tunnel.replace(Some(tunnel));
            Body::Empty
        }
        body => body,
    };
    ticket.watch().enter(Phase::Body);
    Response::from_parts(head, CountedBody::new(body, ticket))
}

/// The gateway's own answer, with the account closed to match.
fn speak(mut ticket: Ticket, stop: &Stop, head_only: bool) -> Response<CountedBody> {
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
    ticket.stop(stop, status);
    let text = format!("{reason}\n");
    let length = HeaderValue::from(text.len());
    let body = if head_only {
        Body::Empty
    } else {
        Body::Memory(Bytes::from(text))
    };
    let mut response = Response::new(CountedBody::new(body, ticket));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(header::CONTENT_LENGTH, length);
    if matches!(
        status,
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS
    ) {
        headers.insert(header::RETRY_AFTER, RETRY_AFTER_S);
    }
    response
}
