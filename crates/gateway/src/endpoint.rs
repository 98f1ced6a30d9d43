//! The innermost layer: one exchange with one backend, over a connection of the pool or a new one.

use std::cell::RefCell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use http::header::{self, HeaderValue};
use http::{Response, StatusCode};

use crate::account::Account;
use crate::addresses::Addresses;
use crate::body::{Body, UpstreamBody};
use crate::call::{Call, Stop};
use crate::config::ms;
use crate::core::Core;
use crate::ejection::{Census, ConnectFailure, EjectionCause, Verdict};
use crate::headers::{Refusal, add_via};
use crate::layer::Answer;
use crate::pool::Pools;
use crate::request_head::RequestHead;
use crate::response_head::ResponseHead;
use crate::stats::Failure;
use crate::upload::{RequestBody, UploadError};
use crate::upstream::{ExchangeError, Upstream};
use crate::watch::Phase;

/// A request on its way to one backend, in flight there until its account is settled.
pub(crate) struct Attempt {
    pub call: Box<Call>,
    pub backend: usize,
    pub account: Account,
}

impl Attempt {
    /// The request goes to this backend.
    pub(crate) fn begin(core: &Rc<Core>, backend: usize, call: Box<Call>) -> Self {
        let account = Account::open(
            core,
            Some(backend),
            call.sized.map(|sized| sized.class),
            call.arrived,
        );
        Self {
            call,
            backend,
            account,
        }
    }

    /// The request ends here, without an answer.
    pub(crate) fn stop(mut self, stop: Stop) -> Stop {
        self.account.stop(&stop);
        stop
    }
}

/// Why an exchange gave no answer, and whether there is a request left that can be sent again.
pub(crate) enum Fault {
    /// Nothing was sent: no connection could be opened.
    Unconnected(Attempt, ConnectFailure),
    /// A kept-alive connection ended without a byte of an answer, as the backend may close it just when a request is
    /// sent.
    Died {
        attempt: Attempt,
        /// The request may have arrived.
        sent: bool,
        /// What it means where it is not sent again.
        stop: Stop,
    },
    /// There is nothing to be tried again.
    Final(Stop),
}

/// One core's way to the backends.
pub(crate) struct Endpoint {
    core: Rc<Core>,
    addresses: Vec<Addresses>,
    pub pools: Rc<Pools>,
    /// Request heads are written here.
    head: RefCell<Vec<u8>>,
}

impl Endpoint {
    /// With the addresses of each backend.
    pub(crate) fn new(core: Rc<Core>, addresses: &[Arc<[SocketAddr]>]) -> Self {
        let of_backend =
            |addresses: &Arc<[SocketAddr]>| Addresses::new(addresses, core.index(), &core.config.health);
        Self {
            addresses: addresses.iter().map(of_backend).collect(),
            pools: Rc::new(Pools::new(core.clone())),
            core,
            head: RefCell::default(),
        }
    }

    /// A backend has other addresses from now on.
    pub(crate) fn move_backend(&self, backend: usize, addresses: &[SocketAddr]) {
        self.addresses[backend].set(addresses);
        self.pools.moved(backend);
    }

    /// Sends the request and waits for the head of the answer; over a `fresh` connection, or over one of the pool where
    /// there is any.
    pub(crate) async fn call(&self, mut attempt: Attempt, fresh: bool) -> Result<Answer, Fault> {
        let pooled = match fresh {
            true => None,
            false => self.pools.check_out(attempt.backend),
        };
        let mut upstream = match pooled {
            Some(upstream) => upstream,
            // Boxed, because it is rare and large: the request path does not carry it along.
            None => match Box::pin(self.connect(&attempt)).await {
                Ok(upstream) => upstream,
                Err(failure) => return Err(Fault::Unconnected(attempt, failure)),
            },
        };
        attempt.call.watch.enter(match attempt.call.body {
            Some(_) => Phase::Upload,
            None => Phase::Response,
        });
        self.send_head(&attempt, &mut upstream);
        // How long an upload takes is its client's doing.
        let is_watched = self.core.exchanges.is_some() && attempt.call.body.is_none();
        let asked = is_watched.then(Instant::now);
        let outcome = poll_fn(|cx| {
            let call = &mut *attempt.call;
            match upstream.poll_exchange(cx, &self.core, &call.parts.method, &mut call.body) {
                Poll::Pending if call.watch.expired() => Poll::Ready(None),
                polled => polled.map(Some),
            }
        })
        .await;
        match outcome {
            Some(Ok(head)) => {
                upstream.asked = asked.filter(|_| self.tells(&head, &upstream));
                self.deliver(attempt, upstream, head).map_err(Fault::Final)
            }
            failed => {
                let error = failed.and_then(Result::err);
                let died = match &error {
                    Some(ExchangeError::Died { sent, .. }) if upstream.reused => Some(*sent),
                    _ => None,
                };
                let stop = self.explain(error, &attempt);
                // An idle connection that a backend has closed meanwhile says nothing of it, and an upload that broke off neither.
                if let (None, true, Some(exchanges)) = (died, stop.is_of_backend(), &self.core.exchanges) {
                    exchanges.failed();
                }
                Err(match died {
                    Some(sent) => Fault::Died { attempt, sent, stop },
                    None => Fault::Final(attempt.stop(stop)),
                })
            }
        }
    }

    /// Begins the exchange with the request's head.
    fn send_head(&self, attempt: &Attempt, upstream: &mut Upstream) {
        let forwarding = &self.core.config.forwarding;
        let call = &attempt.call;
        let authority = &self.core.backends[attempt.backend].authority;
        let mut head = self.head.borrow_mut();
        head.clear();
        RequestHead {
            method: &call.parts.method,
            target: &call.parts.uri,
            headers: &call.parts.headers,
            received: call.parts.version,
            host: (!forwarding.preserve_host).then(|| authority.as_bytes()),
            framing: call.framing,
            upgrade: call.upgrade.as_ref().map(HeaderValue::as_bytes),
            te_trailers: call.te_trailers,
            client: &call.client,
            config: forwarding,
        }
        .write(&mut head);
        upstream.begin(&head);
    }

    /// Whether the time until an answer's end tells how many at a time the backends bear; tells at once where a listen queue ran over.
    fn tells(&self, head: &ResponseHead, upstream: &Upstream) -> bool {
        let Some(exchanges) = &self.core.exchanges else {
            return false;
        };
        if let Some(in_flight) = upstream.begun_among
            && upstream.retransmits().is_some_and(|segments| segments > 0)
        {
            exchanges.overran(in_flight);
            return false;
        }
        let is_failure = self.core.config.failed_status.contains(head.status.as_u16());
        if is_failure {
            exchanges.failed();
        }
        !is_failure
    }

    /// Turns what a backend answered into an answer.
    fn deliver(
        &self,
        mut attempt: Attempt,
        upstream: Box<Upstream>,
        head: ResponseHead,
    ) -> Result<Answer, Stop> {
        attempt.account.answered(head.status);
        self.core.heard(attempt.backend);
        let mut answer = Response::new(Body::Empty);
        *answer.status_mut() = head.status;
        *answer.headers_mut() = head.headers;
        if self.core.config.forwarding.via {
            add_via(answer.headers_mut());
        }
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            let Some(protocol) = head.upgrade.filter(|_| attempt.call.upgrade.is_some()) else {
                let reason = "the backend switched protocols without being asked";
                return Err(attempt.stop(Stop::Fail(Failure::Unreachable, reason)));
            };
            answer
                .headers_mut()
                .insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            answer.headers_mut().insert(header::UPGRADE, protocol);
            *answer.body_mut() = Body::Tunnel(upstream.into_tunnel());
            attempt.account.complete();
            return Ok(answer);
        }
        let Attempt {
            mut call,
            backend,
            account,
        } = attempt;
        call.forget_head();
        call.body.take_if(|body| body.is_over());
        let over = upstream.is_response_over();
        let mut body = UpstreamBody {
            upstream: Some(upstream),
            keep_alive: head.keep_alive,
            call,
            account,
            backend,
            pools: self.pools.clone(),
        };
        if over {
            body.finish();
        }
        *answer.body_mut() = Body::Upstream(body);
        Ok(answer)
    }

    /// Opens a connection; what comes of it counts for or against the backend.
    async fn connect(&self, attempt: &Attempt) -> Result<Box<Upstream>, ConnectFailure> {
        let core = &self.core;
        let backend = attempt.backend;
        let to = &core.backends[backend];
        attempt.call.watch.enter(Phase::Untimed);
        let patience = ms(core.config.timeouts.connect_timeout_ms);
        let begun = to.ejection.begin_connect(patience);
        let signs = core.signs_of(backend);
        let among = core.exchanges.as_ref().map(|_| core.in_flight());
        // Before the address is chosen: where it changes meanwhile, this is a connection of before.
        let generation = self.pools.generation(backend);
        let opened = self.addresses[backend].connect(patience, Upstream::connect).await;
        let failure = match opened {
            Ok(Ok(mut upstream)) => {
                upstream.begun_among = among;
                upstream.generation = generation;
                to.ejection.connected();
                core.heard(backend);
                core.stats.borrow_mut().backends[backend].connects.opened += 1;
                return Ok(upstream);
            }
            Ok(Err(error)) => {
                if let Some(exchanges) = &core.exchanges {
                    exchanges.failed();
                }
                tracing::debug!(backend = to.url, %error, "a connection could not be opened");
                ConnectFailure::of(&error, core.signs_of(backend) != signs)
            }
            Err(_) => {
                if let (Some(exchanges), Some(among)) = (&core.exchanges, among) {
                    exchanges.overran(among);
                }
                ConnectFailure::TimedOut {
                    alive: core.signs_of(backend) != signs,
                }
            }
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
    fn explain(&self, error: Option<ExchangeError>, attempt: &Attempt) -> Stop {
        let backend = &self.core.backends[attempt.backend].url;
        let is_waiting = |body: &RequestBody| body.waiting;
        match error {
            None if attempt.call.body.as_ref().is_some_and(is_waiting) => Stop::Refuse(Refusal {
                status: StatusCode::REQUEST_TIMEOUT,
                reason: "the request body did not come in time",
            }),
            None => Stop::Fail(Failure::TimedOut, "the backend did not answer in time"),
            Some(ExchangeError::Upload(UploadError::TooLarge)) => Stop::Refuse(Refusal {
                status: StatusCode::PAYLOAD_TOO_LARGE,
                reason: "the request body exceeds the limit",
            }),
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
}
