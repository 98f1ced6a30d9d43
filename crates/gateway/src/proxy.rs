//! One request: checked, rewritten, sent to a backend, answered.

use std::rc::Rc;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version, request, response};
use http_body::Body;
use hyper::body::Incoming;

use crate::backend::NoBackend;
use crate::body::{ProxyBody, RequestBody, Upload, UpstreamBody};
use crate::config::ms;
use crate::headers::{
    Refusal, add_forwarding, add_via, bad_request, has_conflicting_length, join_cookies, may_tunnel,
    normalise_target, strip_hop_by_hop,
};
use crate::stats::Failure;
use crate::ticket::Ticket;
use crate::tunnel::Tunnel;
use crate::upstream::{ExchangeError, Upstream};
use crate::watch::Phase;

/// Seconds after which a client that met a limit may come again.
const RETRY_AFTER_S: HeaderValue = HeaderValue::from_static("1");

/// Why the gateway answers instead of a backend.
enum Stop {
    Refuse(Refusal),
    Fail(Failure, &'static str),
}

/// What a backend answered.
struct Reply {
    head: response::Parts,
    body: Incoming,
    upstream: Box<Upstream>,
    upload: Option<Rc<Upload>>,
    /// The client asked to switch protocols.
    asked_upgrade: bool,
}

/// Answers one request.
pub(crate) async fn handle(mut ticket: Ticket, request: Request<Incoming>) -> Response<ProxyBody> {
    let client = ticket.client().clone();
    if client.http2 {
        client.core().stream_watch.replace(Some(ticket.watch().clone()));
    }
    let head_only = request.method() == Method::HEAD;
    let has_body = !request.body().is_end_stream();
    let outcome = match forward(&mut ticket, request).await {
        Ok(reply) => deliver(&mut ticket, reply).await,
        Err(stop) => Err(stop),
    };
    let mut response = match outcome {
        Ok((head, Some((body, upstream, upload, keep_alive)))) => {
            let body = UpstreamBody::new(body, upstream, upload, keep_alive, ticket);
            Response::from_parts(head, ProxyBody::Upstream(Box::new(body)))
        }
        Ok((head, None)) => Response::from_parts(head, ProxyBody::Empty),
        Err(stop) => {
            let mut response = speak(&mut ticket, &stop, head_only);
            if has_body && !client.http2 {
                client.linger.set(true);
                response
                    .headers_mut()
                    .insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            response
        }
    };
    if client.core().draining.get() && !client.http2 && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response
            .headers_mut()
            .insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// What an upgrade and trailers need on the connection to the backend.
struct Rewritten {
    upgrade: bool,
}

/// Checks a request head and turns it into what the backend is sent, whichever backend that is.
fn rewrite(ticket: &Ticket, parts: &mut request::Parts, body: &Incoming) -> Result<Rewritten, Refusal> {
    let client = ticket.client();
    let config = &client.core().config;
    if parts.headers.len() > config.limits.max_headers {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return Err(Refusal {
            status,
            reason: "too many header fields",
        });
    }
    let received = parts.version;
    let hop = strip_hop_by_hop(&mut parts.headers);
    match hop.transfer_encoding {
        Some(false) => {
            let status = StatusCode::NOT_IMPLEMENTED;
            return Err(Refusal {
                status,
                reason: "the only transfer coding supported is chunked",
            });
        }
        Some(true) if has_conflicting_length(&client.raw_heads.borrow()) => {
            return Err(bad_request("both Transfer-Encoding and Content-Length"));
        }
        _ => {}
    }
    normalise_target(parts)?;
    let size = body.size_hint();
    if size.lower() > config.limits.max_request_body_bytes {
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        return Err(Refusal {
            status,
            reason: "the request body exceeds the limit",
        });
    }
    // The gateway itself says 100 Continue, once a backend asks for the body.
    if let Some(expectation) = parts.headers.remove(header::EXPECT)
        && !expectation.as_bytes().eq_ignore_ascii_case(b"100-continue")
    {
        let status = StatusCode::EXPECTATION_FAILED;
        return Err(Refusal {
            status,
            reason: "the only expectation supported is 100-continue",
        });
    }
    if received == Version::HTTP_2 {
        join_cookies(&mut parts.headers);
    }
    add_forwarding(&mut parts.headers, &client.identity, &config.forwarding, received);
    let has_body = !body.is_end_stream();
    if has_body && size.exact().is_none() {
        parts.headers.remove(header::CONTENT_LENGTH);
        parts
            .headers
            .insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    let upgrade = hop
        .upgrade
        .filter(|protocol| received == Version::HTTP_11 && !has_body && may_tunnel(protocol));
    let connection = match (&upgrade, hop.te_trailers) {
        (None, false) => None,
        (None, true) => Some(HeaderValue::from_static("te")),
        (Some(_), false) => Some(HeaderValue::from_static("upgrade")),
        (Some(_), true) => Some(HeaderValue::from_static("upgrade, te")),
    };
    if let Some(connection) = connection {
        parts.headers.insert(header::CONNECTION, connection);
    }
    if hop.te_trailers {
        parts
            .headers
            .insert(header::TE, HeaderValue::from_static("trailers"));
    }
    let upgrade = upgrade
        .map(|protocol| parts.headers.insert(header::UPGRADE, protocol))
        .is_some();
    parts.version = Version::HTTP_11;
    Ok(Rewritten { upgrade })
}

/// Methods that may be repeated without changing what they do (RFC 9110 section 9.2.2).
fn is_idempotent(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE | Method::TRACE
    )
}

/// Sends the request to a backend, to another one if that cannot be reached, and waits for the head of the
/// answer.
async fn forward(ticket: &mut Ticket, request: Request<Incoming>) -> Result<Reply, Stop> {
    let core = ticket.core().clone();
    let config = &core.config;
    let (mut parts, incoming) = request.into_parts();
    let rewritten = rewrite(ticket, &mut parts, &incoming).map_err(Stop::Refuse)?;
    let (body, upload) = if incoming.is_end_stream() {
        (RequestBody::Empty, None)
    } else {
        let upload = Rc::new(Upload::default());
        let left = config.limits.max_request_body_bytes;
        let watch = ticket.watch().clone();
        (
            RequestBody::Stream {
                incoming,
                left,
                upload: upload.clone(),
                watch,
            },
            Some(upload),
        )
    };
    let repeatable = upload.is_none() && is_idempotent(&parts.method);
    let mut request = Request::from_parts(parts, body);
    let mut retries_left = config.retry.max_retries;
    let mut unreachable: Vec<usize> = Vec::new();
    let mut last = Stop::Fail(Failure::Unreachable, "no backend is available");
    loop {
        let backend = match core.pick(&unreachable) {
            Ok(backend) => backend,
            Err(_) if !unreachable.is_empty() => return Err(last),
            Err(NoBackend::Unavailable) => return Err(last),
            Err(NoBackend::OverLimit) => {
                return Err(Stop::Fail(
                    Failure::OverLimit,
                    "every backend is at its limit of requests in flight",
                ));
            }
        };
        if !unreachable.is_empty() {
            if retries_left == 0 {
                return Err(last);
            }
            retries_left -= 1;
            ticket.retried();
        }
        ticket.assign(backend);
        if !config.forwarding.preserve_host {
            request
                .headers_mut()
                .insert(header::HOST, core.backends[backend].authority.clone());
        }
        let mut pooled = core.check_out(backend);
        loop {
            let mut upstream = match pooled.take() {
                Some(upstream) => upstream,
                None => match connect(ticket, backend).await {
                    Ok(upstream) => upstream,
                    Err((failure, reason)) => {
                        ticket.unassign(failure);
                        unreachable.push(backend);
                        last = Stop::Fail(failure, reason);
                        break;
                    }
                },
            };
            ticket.watch().enter(if upload.is_some() {
                Phase::Upload
            } else {
                Phase::Response
            });
            // Only a kept-alive connection can have died of old age; only then is a second copy worth its cost.
            let spare = (upstream.reused && repeatable && retries_left > 0).then(|| copy_head(&request));
            match upstream.exchange(request, ticket.watch()).await {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    return Ok(Reply {
                        head,
                        body,
                        upstream,
                        upload,
                        asked_upgrade: rewritten.upgrade,
                    });
                }
                Err(ExchangeError::NotSent(unsent)) if upstream.reused && retries_left > 0 => {
                    request = *unsent
                }
                Err(ExchangeError::Died(_)) if spare.is_some() => {
                    // `spare` is Some by the guard.
                    let Some(copy) = spare else { return Err(last) };
                    request = copy;
                }
                Err(error) => return Err(explain(error, ticket, upload.as_deref())),
            }
            retries_left -= 1;
            ticket.retried();
        }
    }
}

/// A request without a body, again.
fn copy_head(request: &Request<RequestBody>) -> Request<RequestBody> {
    let mut copy = Request::new(RequestBody::Empty);
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    copy
}

async fn connect(ticket: &Ticket, backend: usize) -> Result<Box<Upstream>, (Failure, &'static str)> {
    let core = ticket.core();
    ticket.watch().enter(Phase::Untimed);
    let patience = ms(core.config.timeouts.connect_timeout_ms);
    let opening = Upstream::connect(core.address(backend), &core.config.limits);
    let (failure, reason) = match tokio::time::timeout(patience, opening).await {
        Ok(Ok(upstream)) => {
            core.backends[backend].connect_succeeded();
            return Ok(upstream);
        }
        Ok(Err(error)) => {
            tracing::debug!(backend = core.backends[backend].url, %error, "a connection could not be opened");
            (Failure::Unreachable, "no backend can be reached")
        }
        Err(_) => (Failure::TimedOut, "no backend accepted a connection in time"),
    };
    core.backends[backend].connect_failed(&core.config.health);
    Err((failure, reason))
}

/// What an exchange that failed for good means for the client.
fn explain(error: ExchangeError, ticket: &Ticket, upload: Option<&Upload>) -> Stop {
    if upload.is_some_and(|upload| upload.too_large.get()) {
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        return Stop::Refuse(Refusal {
            status,
            reason: "the request body exceeds the limit",
        });
    }
    if upload.is_some_and(|upload| upload.broken.get()) {
        return Stop::Fail(Failure::AbortedByClient, "the request body broke off");
    }
    let waits_for_client = upload.is_some_and(|upload| !upload.done.get() && upload.waiting.get());
    match error {
        ExchangeError::Expired if waits_for_client => {
            let status = StatusCode::REQUEST_TIMEOUT;
            Stop::Refuse(Refusal {
                status,
                reason: "the request body did not come in time",
            })
        }
        ExchangeError::Expired => Stop::Fail(Failure::TimedOut, "the backend did not answer in time"),
        ExchangeError::NotSent(_) => Stop::Fail(Failure::Unreachable, "the backend closed the connection"),
        ExchangeError::Died(error) => {
            tracing::debug!(backend = ticket.backend_url(), %error, "a backend closed the connection");
            Stop::Fail(
                Failure::Unreachable,
                "the backend closed the connection without an answer",
            )
        }
        ExchangeError::Invalid(error) => {
            let backend = ticket.backend_url();
            tracing::warn!(backend, %error, "a backend's answer is not valid HTTP/1.1");
            Stop::Fail(Failure::Unreachable, "the backend's answer is not valid HTTP/1.1")
        }
    }
}

/// A body still to be streamed, and what comes free with its end.
type Streaming = (Incoming, Box<Upstream>, Option<Rc<Upload>>, bool);

/// Turns what a backend answered into what the client is sent.
async fn deliver(ticket: &mut Ticket, reply: Reply) -> Result<(response::Parts, Option<Streaming>), Stop> {
    let Reply {
        mut head,
        body,
        upstream,
        upload,
        asked_upgrade,
    } = reply;
    let hop = strip_hop_by_hop(&mut head.headers);
    if hop.transfer_encoding == Some(false) {
        return Err(Stop::Fail(
            Failure::Unreachable,
            "the backend used a transfer coding other than chunked",
        ));
    }
    head.version = Version::HTTP_11;
    let client = ticket.client().clone();
    if client.core().config.forwarding.via {
        add_via(&mut head.headers, Version::HTTP_11);
    }
    ticket.answered(head.status);
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        let Some(protocol) = hop.upgrade.filter(|_| asked_upgrade) else {
            return Err(Stop::Fail(
                Failure::Unreachable,
                "the backend switched protocols without being asked",
            ));
        };
        let (stream, read) = upstream.into_tunnel().await;
        client.tunnel.replace(Some(Tunnel { stream, read }));
        head.headers
            .insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        head.headers.insert(header::UPGRADE, protocol);
        ticket.complete();
        return Ok((head, None));
    }
    if upload.as_ref().is_some_and(|upload| !upload.done.get()) {
        client.linger.set(true);
    }
    ticket.watch().enter(Phase::Body);
    Ok((head, Some((body, upstream, upload, !hop.close))))
}

/// The gateway's own answer, with the account closed to match.
fn speak(ticket: &mut Ticket, stop: &Stop, head_only: bool) -> Response<ProxyBody> {
    let (status, reason) = match stop {
        Stop::Refuse(refusal) => {
            ticket.refuse();
            (refusal.status, refusal.reason)
        }
        Stop::Fail(failure, reason) => {
            ticket.fail(*failure);
            let status = match failure {
                Failure::Unreachable | Failure::AbortedByBackend => StatusCode::BAD_GATEWAY,
                Failure::OverLimit => StatusCode::SERVICE_UNAVAILABLE,
                Failure::TimedOut => StatusCode::GATEWAY_TIMEOUT,
                Failure::AbortedByClient => StatusCode::BAD_REQUEST,
            };
            (status, *reason)
        }
    };
    let text = format!("{reason}\n");
    let length = HeaderValue::from(text.len());
    let body = if head_only {
        ProxyBody::Empty
    } else {
        ProxyBody::Text(Some(Bytes::from(text)))
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(header::CONTENT_LENGTH, length);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(header::RETRY_AFTER, RETRY_AFTER_S);
    }
    response
}
