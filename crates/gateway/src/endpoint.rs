//! The innermost layer: one exchange with one backend, over a connection of the pool or a new one.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use http::StatusCode;
use http::header::{self, HeaderValue};

use crate::account::{Account, is_endless};
use crate::addresses::Addresses;
use crate::body::{Body, UpstreamBody};
use crate::buffered::Share;
use crate::call::{Call, Stop};
use crate::config::{BackendProtocol, ms};
use crate::connections::{Lease, Taken};
use crate::core::Core;
use crate::ejection::{Census, ConnectFailure, EjectionCause, Verdict};
use crate::exchange::Exchange;
use crate::layer::Answer;
use crate::multiplex::{self, Connection, Lines, Stream, Turn};
use crate::pool::Pools;
use crate::request_head::RequestHead;
use crate::response_head::ResponseHead;
use crate::stats::Failure;
use crate::upload::{RequestBody, UploadError};
use crate::upstream::{ExchangeError, Upstream};
use crate::watch::Phase;

/// A probe that takes longer has failed as far as others are concerned: another one may be sent.
const PROBE_PATIENCE: Duration = Duration::from_secs(1);

/// A backend that is not connected to within this is as one within `timeouts.connect_timeout_ms`, where the request has no more time.
const TELLING_CONNECT: Duration = Duration::from_millis(100);

/// The end of a connection attempt comes so long before that of the request for which it is made.
const END_FIRST: Duration = Duration::from_millis(20);

/// A request that has taken as long as any may, and has no answer.
pub(crate) const OVERDUE: Stop = Stop::Fail(
    Failure::TimedOut,
    "the request took longer than any may (timeouts.request_timeout_ms)",
);

/// A request on its way to one backend, in flight there until its account is settled.
pub(crate) struct Attempt {
    pub call: Box<Call>,
    pub backend: usize,
    pub account: Account,
}

impl Attempt {
    /// The request goes to this backend.
    pub(crate) fn begin(core: &Rc<Core>, backend: usize, call: Box<Call>) -> Self {
        let mut account = Account::open(
            core,
            &call.watch,
            Some(backend),
            call.sized.map(|sized| sized.class),
            call.arrived,
        );
        if core.backends[backend].failing.begin(PROBE_PATIENCE) {
            account.is_probe();
        }
        if let Some(grpc) = call.grpc {
            account.expect(grpc);
        }
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
    /// The connection ended before there was a head of an answer: the backend died, or closed it just when a request was
    /// sent.
    Died {
        attempt: Attempt,
        /// The request may have arrived.
        sent: bool,
        /// An earlier request was answered on it, or the backend said that it did not process this one (HTTP/2).
        reused: bool,
        /// What it means where it is not sent again.
        stop: Stop,
    },
    /// There is nothing to be tried again.
    Final(Stop),
}

/// What an exchange goes over.
enum Way {
    /// A connection of its own.
    Http1(Box<Upstream>),
    /// A stream of a connection that others share.
    Http2(Rc<Connection>),
}

/// Why an exchange over HTTP/2 did not begin.
#[derive(Debug, thiserror::Error)]
enum BeginError {
    #[error("it cannot be said in HTTP/2: {0}")]
    Request(#[from] http::Error),
    #[error(transparent)]
    Connection(#[from] h2::Error),
}

/// Whether two Upgrade fields, each of one protocol, name the same.
fn is_same_protocol(asked: &HeaderValue, switched: &HeaderValue) -> bool {
    let trimmed = |value: &HeaderValue| value.as_bytes().trim_ascii().to_ascii_lowercase();
    trimmed(asked) == trimmed(switched)
}

/// One core's way to the backends.
pub(crate) struct Endpoint {
    core: Rc<Core>,
    addresses: Vec<Addresses>,
    pub pools: Rc<Pools>,
    /// Connections that many requests share.
    lines: Rc<Lines>,
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
            lines: Rc::new(Lines::new(core.clone())),
            core,
            head: RefCell::default(),
        }
    }

    /// A backend has other addresses from now on.
    pub(crate) fn move_backend(&self, backend: usize, addresses: &[SocketAddr]) {
        self.addresses[backend].set(addresses);
        self.pools.moved(backend);
        self.lines.clear_backend(backend);
    }

    /// Closes all connections that carry nothing, and the others with what they carry.
    pub(crate) fn clear(&self) {
        self.pools.clear();
        self.lines.clear();
    }

    /// What there is to send the request over at once.
    fn ready(&self, attempt: &Attempt, fresh: bool) -> Option<Way> {
        let backend = attempt.backend;
        if self.is_multiplexed(attempt) {
            return self.lines.with_room(backend).map(Way::Http2);
        }
        match fresh {
            true => None,
            false => self.pools.check_out(backend).map(Way::Http1),
        }
    }

    /// Whether the request shares its connection, as far as is known. One that asks for another protocol has its own, where the backend
    /// has HTTP/1.1.
    fn is_multiplexed(&self, attempt: &Attempt) -> bool {
        let backend = attempt.backend;
        let dial = &self.core.backends[backend].dial;
        self.lines.is_for(backend)
            && (attempt.call.upgrade.is_none() || dial.protocol() == BackendProtocol::H2)
    }

    /// The same within what is left of the longest that a request may take; `None` where that is over.
    async fn open_in_time(&self, attempt: &Attempt) -> Option<Result<Way, ConnectFailure>> {
        let opened = self.open(attempt);
        match self.core.watches.left(&attempt.call.watch) {
            None => Some(opened.await),
            Some(Duration::ZERO) => None,
            // What it waits for a connection itself has its end first, so that the backend is charged for it.
            Some(left) => tokio::time::timeout(left + END_FIRST, opened).await.ok(),
        }
    }

    /// Opens a connection, or waits for one that another request opens.
    async fn open(&self, attempt: &Attempt) -> Result<Way, ConnectFailure> {
        while self.is_multiplexed(attempt) {
            match self.lines.turn(attempt.backend).await {
                Turn::Mine(dial) => {
                    let opened = self.connect(attempt, false).await;
                    dial.finish(opened.as_ref().map(drop).map_err(|failure| *failure));
                    return opened;
                }
                Turn::Theirs(Err(failure)) => return Err(failure),
                Turn::Theirs(Ok(())) => {}
            }
            if let Some(way) = self.ready(attempt, false) {
                return Ok(way);
            }
        }
        let only_http1 = attempt.call.upgrade.is_some();
        self.connect(attempt, only_http1).await
    }

    /// Sends the request and waits for the head of the answer; over a `fresh` connection, or over one of the pool where
    /// there is any.
    pub(crate) async fn call(&self, mut attempt: Attempt, fresh: bool) -> Result<Answer, Fault> {
        let way = match self.ready(&attempt, fresh) {
            Some(way) => way,
            // Boxed, because it is rare and large: the request path does not carry it along.
            None => match Box::pin(self.open_in_time(&attempt)).await {
                Some(Ok(way)) => way,
                Some(Err(failure)) => return Err(Fault::Unconnected(attempt, failure)),
                None => return Err(Fault::Final(attempt.stop(OVERDUE))),
            },
        };
        if self.core.watches.left(&attempt.call.watch) == Some(Duration::ZERO) {
            return Err(Fault::Final(attempt.stop(OVERDUE)));
        }
        if matches!(way, Way::Http2(_)) {
            // Interim answers are not passed on from HTTP/2: the client is asked for its body at once.
            attempt.call.ask_for_body();
        }
        attempt.account.exchange();
        attempt.call.watch.set_holds_backend(true);
        attempt.call.watch.enter(match &attempt.call.body {
            Some(body) if !body.held => Phase::Upload,
            _ => Phase::Response,
        });
        let mut exchange = match self.begin(&attempt, way) {
            Ok(exchange) => exchange,
            Err(error) => {
                let (error, sent) = (io::Error::other(error), false);
                let stop = self.explain(Some(ExchangeError::Died { error, sent }), &attempt);
                return Err(Fault::Died {
                    attempt,
                    sent,
                    reused: true,
                    stop,
                });
            }
        };
        // How long an upload takes is its client's doing.
        let is_watched = self.core.exchanges.is_some() && attempt.call.body.is_none();
        let asked = is_watched.then(Instant::now);
        let mut asking = match &attempt.call.body {
            Some(body) if body.held => Some(Box::pin(tokio::time::sleep(ms(self
                .core
                .config
                .timeouts
                .expect_timeout_ms)))),
            _ => None,
        };
        let outcome = poll_fn(|cx| {
            let call = &mut *attempt.call;
            // RFC 9110 section 10.1.1: nobody waits forever for a 100; there are servers that send none.
            if asking
                .as_mut()
                .is_some_and(|asking| asking.as_mut().poll(cx).is_ready())
            {
                asking = None;
                call.ask_for_body();
            }
            match exchange.poll_exchange(cx, &self.core, call) {
                Poll::Pending if call.watch.expired() => Poll::Ready(None),
                polled => polled.map(Some),
            }
        })
        .await;
        match outcome {
            Some(Ok(head)) => {
                *exchange.asked() = asked.filter(|_| self.tells(&head, &exchange));
                self.deliver(attempt, exchange, head).map_err(Fault::Final)
            }
            failed => {
                let error = failed.and_then(Result::err);
                let died = match &error {
                    Some(ExchangeError::Died { sent, .. }) => Some(*sent),
                    _ => None,
                };
                let is_unprocessed = matches!(exchange, Exchange::Http2(_)) && died == Some(false);
                let reused = exchange.is_reused() || is_unprocessed;
                let stop = self.explain(error, &attempt);
                // An idle connection that a backend has closed meanwhile says nothing of it, and an upload that broke off neither.
                let is_news = died.is_none() || !reused;
                if let (true, true, Some(exchanges)) = (is_news, stop.is_of_backend(), &self.core.exchanges) {
                    exchanges.failed();
                }
                Err(match died {
                    Some(sent) => Fault::Died {
                        attempt,
                        sent,
                        reused,
                        stop,
                    },
                    None => Fault::Final(attempt.stop(stop)),
                })
            }
        }
    }

    /// Begins the exchange with the request's head.
    ///
    /// # Errors
    /// An HTTP/2 connection that takes no request any more, or a request that HTTP/2 has no words for. Nothing was sent.
    fn begin(&self, attempt: &Attempt, way: Way) -> Result<Exchange, BeginError> {
        let forwarding = &self.core.config.forwarding;
        let call = &attempt.call;
        let to = &self.core.backends[attempt.backend];
        let mut scratch = self.head.borrow_mut();
        scratch.clear();
        let head = RequestHead {
            method: &call.parts.method,
            target: &call.parts.uri,
            headers: &call.parts.headers,
            received: call.parts.version,
            host: (!forwarding.preserve_host).then(|| to.authority.as_bytes()),
            authority: to.authority.as_bytes(),
            framing: call.framing,
            upgrade: call.upgrade.as_ref().map(HeaderValue::as_bytes),
            te_trailers: call.te_trailers,
            expects: call.body.as_ref().is_some_and(|body| body.held),
            client: &call.client,
            config: forwarding,
        };
        match way {
            Way::Http1(mut upstream) => {
                head.write(&mut scratch);
                upstream.begin(&scratch);
                Ok(Exchange::Http1(upstream))
            }
            Way::Http2(connection) => {
                let request = multiplex::request(&head, to.dial.scheme(), &to.authority, &mut scratch)?;
                let stream = Stream::begin(
                    connection,
                    request,
                    call.body.is_none(),
                    Share::new(&self.core.buffered),
                )?;
                Ok(Exchange::Http2(stream))
            }
        }
    }

    /// Whether the time until an answer's end tells how many at a time the backends bear; tells at once where a listen queue ran over.
    fn tells(&self, head: &ResponseHead, exchange: &Exchange) -> bool {
        let Some(exchanges) = &self.core.exchanges else {
            return false;
        };
        if let Exchange::Http1(upstream) = exchange
            && let Some(in_flight) = upstream.begun_among
            && upstream.retransmits().is_some_and(|segments| segments > 0)
        {
            exchanges.overran(in_flight);
            return false;
        }
        let is_failure = self.core.config.has_failed(head.status);
        if is_failure {
            exchanges.failed();
        }
        !is_failure
    }

    /// Turns what a backend answered into an answer.
    fn deliver(&self, mut attempt: Attempt, exchange: Exchange, head: ResponseHead) -> Result<Answer, Stop> {
        attempt.account.answered(head.status);
        self.core.heard(attempt.backend);
        let mut fields = head.fields;
        if attempt.call.grpc.is_some() {
            attempt.account.read(fields.map());
        }
        if self.core.config.forwarding.via {
            fields.add_via(matches!(exchange, Exchange::Http2(_)));
        }
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            // RFC 9110 section 7.8: to what the client did not name nobody switches.
            let asked = attempt.call.upgrade.as_ref();
            let is_asked = |to: &HeaderValue| asked.is_some_and(|asked| is_same_protocol(asked, to));
            let (Some(protocol), Exchange::Http1(upstream)) = (head.upgrade.filter(is_asked), exchange)
            else {
                let reason = "the backend switched protocols without being asked";
                return Err(attempt.stop(Stop::Fail(Failure::Unreachable, reason)));
            };
            let map = fields.map();
            map.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            map.insert(header::UPGRADE, protocol);
            attempt.account.complete();
            return Ok(Answer {
                status: head.status,
                fields,
                body: Body::Tunnel(upstream.into_tunnel()),
            });
        }
        let Attempt {
            mut call,
            backend,
            mut account,
        } = attempt;
        call.forget_head();
        call.body.take_if(|body| body.is_over());
        let over = exchange.is_response_over();
        if !over && is_endless(fields.kind()) {
            account.is_endless();
        }
        let mut body = Box::new(UpstreamBody {
            upstream: Some(exchange),
            keep_alive: head.keep_alive,
            call,
            account,
            backend: backend as u16,
            pools: self.pools.clone(),
        });
        if over {
            body.finish();
        }
        Ok(Answer {
            status: head.status,
            fields,
            body: Body::Upstream(body),
        })
    }

    /// Opens a connection; what comes of it counts for or against the backend.
    async fn connect(&self, attempt: &Attempt, only_http1: bool) -> Result<Way, ConnectFailure> {
        let core = &self.core;
        let backend = attempt.backend;
        let to = &core.backends[backend];
        attempt.call.watch.enter(Phase::Untimed);
        let timeout = ms(core.config.timeouts.connect_timeout_ms);
        let taken = Lease::take(to, core.config.limits.max_in_flight_per_backend, &core.waiting).await;
        let lease = match taken {
            Taken::Room(lease) => lease,
            Taken::Connection(idle, lease) => match Upstream::from_idle(idle, lease) {
                Ok(upstream) => return Ok(Way::Http1(upstream)),
                Err(lease) => lease,
            },
        };
        // The request's own time may be up before. Whom a connection takes that long is charged for it all the same, unless it had next
        // to none.
        let left = core.watches.left(&attempt.call.watch);
        let patience = left.map_or(timeout, |left| left.min(timeout));
        let tells = patience >= timeout.min(TELLING_CONNECT);
        let begun = to.ejection.begin_connect(timeout);
        let signs = core.signs_of(backend);
        let among = core.exchanges.as_ref().map(|_| core.in_flight());
        let lease = Cell::new(Some(lease));
        let ends = attempt.call.client.ends;
        // Before the address is chosen: where it changes meanwhile, this is a connection of before.
        let generation = self.pools.generation(backend);
        let open = async |address| {
            let opened = to.dial.open(address, ends, only_http1).await?;
            self.lines
                .chose(backend, opened.http2 || only_http1 && self.lines.is_for(backend));
            if opened.http2 {
                // One connection carries many requests: it is none of those that the limit is of.
                drop(lease.take());
                let (connection, driver) = multiplex::connect(opened.stream, &core.config.limits).await?;
                self.lines.add(backend, &connection, driver);
                return Ok(Way::Http2(connection));
            }
            let mut upstream = Upstream::new(opened.stream);
            upstream.begun_among = among;
            upstream.generation = generation;
            upstream.lease = lease.take();
            Ok(Way::Http1(upstream))
        };
        let opened = self.addresses[backend].connect(patience, open).await;
        let mut why = format!("no connection within {} ms", patience.as_millis());
        let failure = match opened {
            Ok(Ok(way)) => {
                if to.ejection.connected() {
                    tracing::info!(backend = to.url, "it can be connected to again");
                }
                core.heard(backend);
                core.stats.borrow_mut().backends[backend].connects.opened += 1;
                return Ok(way);
            }
            Ok(Err(error)) => {
                if let Some(exchanges) = &core.exchanges {
                    exchanges.failed();
                }
                tracing::debug!(backend = to.url, %error, "a connection could not be opened");
                why = error.to_string();
                ConnectFailure::of(&error, core.signs_of(backend) != signs)
            }
            // The end of the request comes next.
            Err(_) if !tells => return std::future::pending().await,
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
                // Once, until it is back: there may be a probe each second.
                if to.ejection.is_first() {
                    tracing::warn!(
                        backend = to.url,
                        why,
                        "it cannot be connected to: passed over for a while"
                    );
                }
                *match cause {
                    EjectionCause::Refused => &mut connects.ejected_refused,
                    EjectionCause::TimedOut => &mut connects.ejected_timed_out,
                    EjectionCause::Failing => &mut connects.ejected_failing,
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
            None if attempt.call.body.as_ref().is_some_and(is_waiting) => UploadError::TooSlow.stop(),
            None => Stop::Fail(Failure::TimedOut, "the backend did not answer in time"),
            Some(ExchangeError::Upload(error)) => error.stop(),
            Some(ExchangeError::Died { error, .. }) => {
                tracing::debug!(backend, %error, "a backend closed the connection");
                Stop::Fail(
                    Failure::Unreachable,
                    "the backend closed the connection without an answer",
                )
            }
            Some(ExchangeError::Reset(error)) => {
                tracing::debug!(backend, %error, "a backend gave a request up");
                Stop::Fail(Failure::AbortedByBackend, "the backend gave the request up")
            }
            Some(ExchangeError::Invalid(error)) => {
                tracing::warn!(backend, %error, "a backend's response cannot be passed on");
                Stop::Fail(Failure::Unreachable, "the backend's response is not valid HTTP")
            }
        }
    }
}
