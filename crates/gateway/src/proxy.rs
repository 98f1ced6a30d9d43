//! One request: checked, sent to a backend, answered.

use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version, request};
use http_body::Body;
use hyper::body::Incoming;

use crate::backend::NoBackend;
use crate::body::{ProxyBody, RequestBody, UploadError, UpstreamBody};
use crate::config::ms;
use crate::ejection::{Census, ConnectFailure, EjectionCause, Verdict};
use crate::headers::{
    Refusal, add_via, bad_request, has_conflicting_length, join_cookies, may_tunnel, normalise_target,
    strip_hop_by_hop,
};
use crate::request_head::{BodyFraming, RequestHead};
use crate::response_head::ResponseHead;
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
    head: ResponseHead,
    upstream: Box<Upstream>,
    /// What is left of the request body.
    upload: Option<RequestBody>,
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
        Ok(reply) => deliver(ticket, reply),
        Err(stop) => Err((stop, ticket)),
    };
    let mut response = match outcome {
        Ok(response) => response,
        Err((stop, ticket)) => {
            let mut response = speak(ticket, &stop, head_only);
            // What follows a malformed request, or the rest of one, is not read as another request.
            if !client.http2 && (has_body || matches!(stop, Stop::Refuse(_))) {
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

/// What is known of a request beyond its head.
struct Checked {
    received: Version,
    framing: BodyFraming,
    upgrade: Option<HeaderValue>,
    te_trailers: bool,
}

/// Checks a request head and removes from it what ends here.
fn check(ticket: &Ticket, parts: &mut request::Parts, body: &Incoming) -> Result<Checked, Refusal> {
    let client = ticket.client();
    let limits = &client.core().config.limits;
    if parts.headers.len() > limits.max_headers {
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
    if size.lower() > limits.max_request_body_bytes {
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
    let has_body = !body.is_end_stream();
    let framing = match size.exact() {
        _ if !has_body => BodyFraming::None,
        Some(_) if parts.headers.contains_key(header::CONTENT_LENGTH) => BodyFraming::Length,
        _ => BodyFraming::Chunked,
    };
    let upgrade = hop
        .upgrade
        .filter(|protocol| received == Version::HTTP_11 && !has_body && may_tunnel(protocol));
    Ok(Checked {
        received,
        framing,
        upgrade,
        te_trailers: hop.te_trailers,
    })
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
    let checked = check(ticket, &mut parts, &incoming).map_err(Stop::Refuse)?;
    let mut body = (checked.framing != BodyFraming::None).then(|| {
        let chunked = checked.framing == BodyFraming::Chunked;
        let limit = config.limits.max_request_body_bytes;
        RequestBody::new(incoming, limit, chunked, ticket.watch().clone())
    });
    let mut retries_left = config.retry.max_retries;
    let mut unreachable: Vec<usize> = Vec::new();
    // One of these is there, and had a full accept queue.
    let mut full = false;
    let mut last = Stop::Fail(Failure::Unreachable, "no backend is available");
    loop {
        let again = !unreachable.is_empty();
        if again && retries_left == 0 {
            return Err(last);
        }
        // Nobody overtakes those that wait.
        let mut picked = if core.queue.is_empty() {
            core.pick(&unreachable)
        } else {
            Err(NoBackend::OverLimit)
        };
        if picked == Err(NoBackend::Unavailable) && std::mem::take(&mut full) {
            // By now there may be room in it, as there is for the SYN that TCP itself sends again.
            unreachable.clear();
            picked = core.pick(&unreachable);
        }
        if picked == Err(NoBackend::OverLimit) {
            picked = Box::pin(wait_turn(ticket, &unreachable)).await?;
            // After the wait each is worth a try again: it may have been full when it was tried.
            unreachable.clear();
        }
        let Ok(backend) = picked else {
            return Err(last);
        };
        if again {
            retries_left -= 1;
            ticket.retried();
        }
        ticket.assign(backend);
        let mut pooled = core.check_out(backend);
        loop {
            let mut upstream = match pooled.take() {
                Some(upstream) => upstream,
                // Boxed, because it is rare and large: the request path does not carry it along.
                None => match Box::pin(connect(ticket, backend)).await {
                    Ok(upstream) => upstream,
                    Err(failed) => {
                        let (failure, reason) = match failed {
                            ConnectFailure::Refused => (Failure::Unreachable, "no backend can be reached"),
                            ConnectFailure::TimedOut { .. } => {
                                (Failure::TimedOut, "no backend accepted a connection in time")
                            }
                            ConnectFailure::NoResources => (
                                Failure::Unreachable,
                                "the gateway has no descriptor or port left for a connection",
                            ),
                        };
                        ticket.unassign(failure);
                        unreachable.push(backend);
                        full |= failed == ConnectFailure::TimedOut { alive: true };
                        last = Stop::Fail(failure, reason);
                        break;
                    }
                },
            };
            ticket.watch().enter(if body.is_some() {
                Phase::Upload
            } else {
                Phase::Response
            });
            {
                let mut head = core.head.borrow_mut();
                head.clear();
                let host =
                    (!config.forwarding.preserve_host).then(|| core.backends[backend].authority.as_bytes());
                RequestHead {
                    method: &parts.method,
                    target: &parts.uri,
                    headers: &parts.headers,
                    received: checked.received,
                    host,
                    framing: checked.framing,
                    upgrade: checked.upgrade.as_ref().map(HeaderValue::as_bytes),
                    te_trailers: checked.te_trailers,
                    client: &ticket.client().identity,
                    config: &config.forwarding,
                }
                .write(&mut head);
                upstream.begin(&head);
            }
            let outcome = poll_fn(
                |cx| match upstream.poll_exchange(cx, &core, &parts.method, &mut body) {
                    Poll::Pending if ticket.watch().expired() => Poll::Ready(None),
                    polled => polled.map(Some),
                },
            )
            .await;
            match outcome {
                Some(Ok(head)) => {
                    let asked_upgrade = checked.upgrade.is_some();
                    return Ok(Reply {
                        head,
                        upstream,
                        upload: body,
                        asked_upgrade,
                    });
                }
                // A kept-alive connection may be closed by the backend just as a request is sent. The request is
                // repeated if nothing of it can have arrived, or if its method bears that; never once its body
                // has been begun.
                Some(Err(ExchangeError::Died { sent, .. }))
                    if upstream.reused
                        && retries_left > 0
                        && body.as_ref().is_none_or(|body| !body.begun)
                        && (!sent || is_idempotent(&parts.method)) =>
                {
                    retries_left -= 1;
                    ticket.retried();
                }
                failed => return Err(explain(failed.and_then(Result::err), ticket, body.as_ref())),
            }
        }
    }
}

/// Waits in this core's queue until a backend is below its limit: another one than those `tried`, as long as there is any.
async fn wait_turn(ticket: &Ticket, tried: &[usize]) -> Result<Result<usize, NoBackend>, Stop> {
    let core = ticket.core();
    let Some(place) = core.queue.join() else {
        core.stats.borrow_mut().queue.full += 1;
        return Err(Stop::Fail(
            Failure::OverLimit,
            "every backend is at its limit of requests in flight, and no more may wait",
        ));
    };
    core.stats.borrow_mut().queue.waited += 1;
    ticket.watch().enter(Phase::Untimed);
    let patience = ms(core.config.timeouts.queue_timeout_ms);
    let turn = place.turn(|| {
        let picked = match core.pick(tried) {
            Err(NoBackend::Unavailable) if !tried.is_empty() => core.pick(&[]),
            picked => picked,
        };
        (picked != Err(NoBackend::OverLimit)).then_some(picked)
    });
    match tokio::time::timeout(patience, turn).await {
        Ok(picked) => Ok(picked),
        Err(_) => {
            core.stats.borrow_mut().queue.expired += 1;
            Err(Stop::Fail(
                Failure::OverLimit,
                "every backend stayed at its limit of requests in flight",
            ))
        }
    }
}

async fn connect(ticket: &Ticket, backend: usize) -> Result<Box<Upstream>, ConnectFailure> {
    let core = ticket.core();
    let to = &core.backends[backend];
    ticket.watch().enter(Phase::Untimed);
    let patience = ms(core.config.timeouts.connect_timeout_ms);
    let begun = to.ejection.begin_connect(patience);
    let signs = core.signs_of(backend);
    let opened = tokio::time::timeout(patience, Upstream::connect(core.address(backend))).await;
    let failure = match opened {
        Ok(Ok(upstream)) => {
            to.ejection.connected();
            core.heard(backend);
            core.stats.borrow_mut().backends[backend].connects.opened += 1;
            return Ok(upstream);
        }
        Ok(Err(error)) => {
            tracing::debug!(backend = to.url, %error, "a connection could not be opened");
            ConnectFailure::of(&error, core.signs_of(backend) != signs)
        }
        Err(_) => ConnectFailure::TimedOut {
            alive: core.signs_of(backend) != signs,
        },
    };
    let verdict = to.ejection.failed(begun, failure, &core.config.health, || {
        Census::without(backend, &core.backends)
    });
    let connects = &mut core.stats.borrow_mut().backends[backend].connects;
    match verdict {
        Verdict::Counted => {}
        Verdict::Withheld => {
            tracing::debug!(backend = to.url, "not ejected: too many backends are away");
            connects.ejections_withheld += 1;
        }
        Verdict::Ejected(cause) => {
            tracing::debug!(backend = to.url, ?cause, "passed over for a while");
            *match cause {
                EjectionCause::Refused => &mut connects.ejected_refused,
                EjectionCause::TimedOut => &mut connects.ejected_timed_out,
            } += 1;
        }
    }
    *match failure {
        ConnectFailure::Refused => &mut connects.refused,
        ConnectFailure::TimedOut { .. } => &mut connects.timed_out,
        ConnectFailure::NoResources => &mut connects.no_resources,
    } += 1;
    Err(failure)
}

/// What an exchange that failed for good (`None`: it took too long) means for the client.
fn explain(error: Option<ExchangeError>, ticket: &Ticket, body: Option<&RequestBody>) -> Stop {
    let backend = ticket.backend_url();
    match error {
        None if body.is_some_and(|body| body.waiting) => {
            let status = StatusCode::REQUEST_TIMEOUT;
            Stop::Refuse(Refusal {
                status,
                reason: "the request body did not come in time",
            })
        }
        None => Stop::Fail(Failure::TimedOut, "the backend did not answer in time"),
        Some(ExchangeError::Upload(UploadError::TooLarge)) => {
            let status = StatusCode::PAYLOAD_TOO_LARGE;
            Stop::Refuse(Refusal {
                status,
                reason: "the request body exceeds the limit",
            })
        }
        Some(ExchangeError::Upload(error @ UploadError::Client(_))) => {
            tracing::debug!(%error, "a request body failed");
            Stop::Fail(Failure::AbortedByClient, "the request body broke off")
        }
        Some(ExchangeError::Died { error, .. }) => {
            tracing::debug!(backend, %error, "a backend closed the connection");
            Stop::Fail(
                Failure::Unreachable,
                "the backend closed the connection without an answer",
            )
        }
        Some(ExchangeError::Invalid(error)) => {
            tracing::warn!(backend, %error, "a backend's response cannot be passed on");
            Stop::Fail(
                Failure::Unreachable,
                "the backend's response is not valid HTTP/1.1",
            )
        }
    }
}

/// Turns what a backend answered into what the client is sent.
fn deliver(mut ticket: Ticket, reply: Reply) -> Result<Response<ProxyBody>, (Stop, Ticket)> {
    let Reply {
        head,
        upstream,
        upload,
        asked_upgrade,
    } = reply;
    let client = ticket.client().clone();
    ticket.answered(head.status);
    let mut response = Response::new(ProxyBody::Empty);
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    if client.core().config.forwarding.via {
        add_via(response.headers_mut());
    }
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        let Some(protocol) = head.upgrade.filter(|_| asked_upgrade) else {
            let reason = "the backend switched protocols without being asked";
            return Err((Stop::Fail(Failure::Unreachable, reason), ticket));
        };
        let (stream, read) = upstream.into_tunnel();
        client.tunnel.replace(Some(Tunnel { stream, read }));
        response
            .headers_mut()
            .insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        response.headers_mut().insert(header::UPGRADE, protocol);
        ticket.complete();
        return Ok(response);
    }
    let upload = upload.filter(|upload| !upload.is_over());
    client.linger.set(upload.is_some());
    ticket.watch().enter(Phase::Body);
    let over = upstream.is_response_over();
    let mut body = UpstreamBody::new(upstream, upload, head.keep_alive, ticket);
    if over {
        body.finish();
    } else {
        *response.body_mut() = ProxyBody::Upstream(Box::new(body));
    }
    Ok(response)
}

/// The gateway's own answer, with the account closed to match.
fn speak(mut ticket: Ticket, stop: &Stop, head_only: bool) -> Response<ProxyBody> {
    let (status, reason) = match stop {
        Stop::Refuse(refusal) => {
            ticket.refuse();
            (refusal.status, refusal.reason)
        }
        Stop::Fail(failure, reason) => {
            ticket.fail(*failure);
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
    ticket.speaks(status);
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
