//! The layer that answers from memory: a shared HTTP cache (RFC 9111) with collapsed requests, stale-while-revalidate and
//! stale-if-error (RFC 5861), Cache-Status (RFC 9211).
//!
//! What is stored is shared by the cores (`store.rs`): a hit costs a lock that is held for a look-up. Who finds nothing, or what must be
//! asked for again, fetches for all that ask meanwhile; these wait until it is stored, and go by themselves where it was not.
//!
//! The rules are our own and not the crate `http-cache-semantics` (3.0.0): that keeps only the last of repeated fields, compares only the
//! first of those that Vary names, does not know directives in capitals, and knows neither stale-while-revalidate nor statuses beyond
//! its list.

mod directives;
mod fetched;
mod range;
mod store;
mod stored;
mod terms;

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName};
use http::{Method, Response, StatusCode, Uri, request};
use tokio::sync::oneshot;

use self::directives::Directives;
use self::fetched::Fetch;
use self::store::{FlightTicket, Found, Turn};
use self::stored::{How, Stored, remove_conditions};
use self::terms::{Asked, Exchange, Terms};
use crate::body::Body;
use crate::call::{Call, Stop};
use crate::config::ms;
use crate::core::Core;
use crate::headers::Refusal;
use crate::layer::{Answer, Layer};
use crate::request_head::BodyFraming;
use crate::stats::CacheCounts;
use crate::watch::{Phase, Watch};

pub(crate) use self::fetched::FetchedBody;
pub(crate) use self::store::Store;

/// How an answer came about (RFC 9211).
const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// One core's access to the cache, in front of the layers that ask backends.
pub(crate) struct Cache<L> {
    core: Rc<Core>,
    store: Arc<Store>,
    inner: Rc<L>,
}

impl<L: Layer + 'static> Cache<L> {
    /// In front of `inner`, with what all cores store.
    pub(crate) fn new(core: Rc<Core>, store: Arc<Store>, inner: L) -> Self {
        Self {
            core,
            store,
            inner: Rc::new(inner),
        }
    }

    fn count(&self, count: impl FnOnce(&mut CacheCounts)) {
        count(&mut self.core.stats.borrow_mut().cache);
    }

    /// Answers a request that the cache takes no part in.
    async fn pass(&self, call: Box<Call>, how: How) -> Result<Answer, Stop> {
        let mut answer = self.inner.call(call).await?;
        answer.headers_mut().append(CACHE_STATUS, how.status(None));
        Ok(answer)
    }

    /// Passes a request on that may change what is stored.
    async fn change(&self, call: Box<Call>) -> Result<Answer, Stop> {
        let (key, parts) = (key(call.client.proto, &call.parts), call.parts.clone());
        let changes = !matches!(
            call.parts.method,
            Method::OPTIONS | Method::TRACE | Method::GET | Method::HEAD
        );
        let answer = self.pass(call, How::Bypass).await?;
        let status = answer.status();
        if changes && (status.is_success() || status.is_redirection()) {
            let named = [header::LOCATION, header::CONTENT_LOCATION];
            let named = named.iter().filter_map(|name| answer.headers().get(name));
            let named = named.filter_map(|place| place_key(&key, &parts, place.as_bytes()));
            for key in named.chain([key.clone()]) {
                if self.store.invalidate(&key) {
                    self.count(|counts| counts.invalidated += 1);
                }
            }
        }
        Ok(answer)
    }

    /// Answers from what is stored, or fetches.
    async fn look(&self, call: Box<Call>) -> Result<Answer, Stop> {
        let key = key(call.client.proto, &call.parts);
        let request = Directives::of_message(&call.parts.headers);
        let mut waited = false;
        loop {
            let now = SystemTime::now();
            let (how, stale) = match self.store.find(&key, &call.parts.headers) {
                Found::Passed => {
                    self.count(|counts| counts.passed += 1);
                    return self.pass(call, How::Bypass).await;
                }
                Found::Stored(stored) => {
                    if stored.terms.serves(&request, now) {
                        self.count(|counts| counts.hits += 1);
                        return Ok(stored.answer(&call.parts, now, How::Hit));
                    }
                    if !request.only_if_cached && stored.terms.serves_while_revalidating(&request, now) {
                        self.count(|counts| counts.stale += 1);
                        let answer = stored.answer(&call.parts, now, How::Hit);
                        if let Turn::Own(ticket) = self.store.turn(&key) {
                            self.fetch(&call, ticket, Some(stored), First(None));
                        }
                        return Ok(answer);
                    }
                    let asked = request.no_cache || !stored.terms.fresh_for(now).is_zero();
                    (if asked { How::Asked } else { How::Stale }, Some(stored))
                }
                Found::Nothing { varies: true } => (How::VaryMiss, None),
                Found::Nothing { varies: false } => (How::Miss, None),
            };
            if request.only_if_cached {
                return Err(Stop::Refuse(Refusal {
                    status: StatusCode::GATEWAY_TIMEOUT,
                    reason: "only what is cached was asked for, and it is not",
                }));
            }
            // A part, or a head, says nothing that could be stored.
            let whole = call.parts.method == Method::GET && !call.parts.headers.contains_key(header::RANGE);
            if !whole {
                self.count(|counts| counts.passed += 1);
                return self.pass(call, how).await;
            }
            let ticket = match self.store.turn(&key) {
                Turn::Own(ticket) => ticket,
                Turn::Others(flight) if !waited && (call.batched || self.core.config.cache.collapse) => {
                    waited = true;
                    self.count(|counts| counts.collapsed += 1);
                    call.watch.enter(Phase::Untimed);
                    let patience = ms(self.core.config.cache.collapse_timeout_ms);
                    // Whoever waited for too long goes by itself.
                    let _ = tokio::time::timeout(patience, flight.wait()).await;
                    continue;
                }
                Turn::Others(_) => {
                    self.count(|counts| counts.passed += 1);
                    return self.pass(call, how).await;
                }
            };
            self.count(|counts| counts.misses += 1);
            call.watch.enter(Phase::Untimed);
            let (tell, told) = oneshot::channel();
            self.fetch(&call, ticket, stale, First(Some(tell)));
            let Ok(fetched) = told.await else {
                // The core ends, and its tasks with it.
                return Err(Stop::Fail(
                    crate::stats::Failure::AbortedByBackend,
                    "the gateway stops",
                ));
            };
            return self.deliver(fetched?, &call.parts, how);
        }
    }

    /// Turns what was fetched into the answer to whoever asked first.
    fn deliver(&self, fetched: Fetched, request: &request::Parts, how: How) -> Result<Answer, Stop> {
        let now = SystemTime::now();
        Ok(match fetched {
            Fetched::Stored(stored) => {
                self.count(|counts| counts.validated += 1);
                stored.answer(request, now, How::Validated)
            }
            Fetched::Stale(stored) => {
                self.count(|counts| counts.stale += 1);
                stored.answer(request, now, How::Hit)
            }
            Fetched::Answer(mut answer) => {
                answer.headers_mut().append(CACHE_STATUS, how.status(None));
                answer
            }
        })
    }

    /// Fetches, in a task of its own, for whoever asked first and for those that wait.
    fn fetch(&self, call: &Call, ticket: FlightTicket, stale: Option<Arc<Stored>>, tell: First) {
        let watch = OwnWatch::new(self.core.clone());
        let errand = Errand {
            parts: call.parts.clone(),
            te_trailers: call.te_trailers,
            client: call.client.clone(),
            // Where nobody waits for the answer, nobody's watch times it.
            client_watch: tell.0.is_some().then(|| call.watch.clone()),
            watch,
            ticket,
            stale,
            core: self.core.clone(),
            inner: self.inner.clone(),
        };
        tokio::task::spawn_local(errand.run(tell));
    }
}

impl<L: Layer + 'static> Layer for Cache<L> {
    async fn call(&self, call: Box<Call>) -> Result<Answer, Stop> {
        let headers = &call.parts.headers;
        let looks = matches!(call.parts.method, Method::GET | Method::HEAD) && call.body.is_none();
        // Whether a precondition fails is the origin's to say; an exchange of protocols is nobody else's.
        let origin_only = call.upgrade.is_some()
            || headers.contains_key(header::IF_MATCH)
            || headers.contains_key(header::IF_UNMODIFIED_SINCE)
            || Directives::of_message(headers).no_store;
        match looks && !origin_only {
            // Boxed: only what asks a backend is large.
            true => Box::pin(self.look(call)).await,
            false => Box::pin(self.change(call)).await,
        }
    }
}

/// What a fetch comes to for whoever asked first.
enum Fetched {
    /// What was stored is still so.
    Stored(Arc<Stored>),
    /// The backend failed, and what is stale may be used then.
    Stale(Arc<Stored>),
    Answer(Answer),
}

/// Whoever asked first, if anybody did.
struct First(Option<oneshot::Sender<Result<Fetched, Stop>>>);

impl First {
    fn say(self, fetched: Result<Fetched, Stop>) {
        if let Some(first) = self.0 {
            // It may be gone: what is fetched is stored all the same.
            drop(first.send(fetched));
        }
    }
}

/// A watch of a core that is not a client's.
struct OwnWatch {
    core: Rc<Core>,
    watch: Rc<Watch>,
}

impl OwnWatch {
    fn new(core: Rc<Core>) -> Self {
        let watch = core.watches.add(Phase::Response);
        Self { core, watch }
    }
}

impl Drop for OwnWatch {
    fn drop(&mut self) {
        self.core.watches.remove(&self.watch);
    }
}

/// A fetch for whoever asked first and for those that wait.
struct Errand<L> {
    parts: request::Parts,
    te_trailers: bool,
    client: Rc<crate::headers::ClientIdentity>,
    client_watch: Option<Rc<Watch>>,
    watch: OwnWatch,
    ticket: FlightTicket,
    stale: Option<Arc<Stored>>,
    core: Rc<Core>,
    inner: Rc<L>,
}

impl<L: Layer> Errand<L> {
    async fn run(mut self, tell: First) {
        let asks = Asked {
            authorized: self.parts.headers.contains_key(header::AUTHORIZATION),
        };
        loop {
            let asked = SystemTime::now();
            let answer = match self.ask().await {
                Ok(answer) => answer,
                Err(stop) => {
                    let usable = self.stale.take();
                    let usable = usable.filter(|stored| stored.terms.serves_if_error(SystemTime::now()));
                    tell.say(usable.map_or(Err(stop), |stored| Ok(Fetched::Stale(stored))));
                    return;
                }
            };
            let exchange = Exchange {
                asked,
                answered: SystemTime::now(),
            };
            if let Some(stale) = self.stale.take() {
                if answer.status() == StatusCode::NOT_MODIFIED {
                    match self.validated(&stale, answer.headers(), asks, exchange) {
                        Some(stored) => {
                            tell.say(Ok(Fetched::Stored(stored)));
                            return;
                        }
                        // It is about another response: what is there now is asked for without a condition.
                        None => {
                            remove_conditions(&mut self.parts.headers);
                            continue;
                        }
                    }
                }
                if fails(answer.status()) && stale.terms.serves_if_error(exchange.answered) {
                    tell.say(Ok(Fetched::Stale(stale)));
                    return;
                }
            }
            return self.keep(answer, asks, exchange, tell).await;
        }
    }

    /// Asks the backend, on condition where something is stored.
    async fn ask(&self) -> Result<Answer, Stop> {
        let mut parts = self.parts.clone();
        // Where nothing is stored the client's own conditions stay: the origin may answer that it has it still.
        if let Some(stale) = &self.stale {
            stale.ask(&mut parts.headers);
        }
        let call = Box::new(Call {
            parts,
            framing: BodyFraming::None,
            upgrade: None,
            te_trailers: self.te_trailers,
            body: None,
            client: self.client.clone(),
            batched: false,
            arrived: Instant::now(),
            watch: self.watch.watch.clone(),
        });
        let mut asking = std::pin::pin!(self.inner.call(call));
        std::future::poll_fn(|cx| {
            self.watch.watch.wake_by(cx);
            asking.as_mut().poll(cx)
        })
        .await
    }

    /// What is stored, with what the backend says of it; `None` where that is about another response.
    fn validated(
        &self,
        stale: &Stored,
        answer: &HeaderMap,
        asks: Asked,
        exchange: Exchange,
    ) -> Option<Arc<Stored>> {
        let Some(headers) = stale.updated(answer) else {
            self.ticket.forget();
            return None;
        };
        let terms = Terms::of(asks, stale.status, &headers, exchange);
        let (terms, keeps) = terms.map_or((stale.terms, false), |terms| (terms, true));
        let body = stale.body.clone();
        let stored = Arc::new(Stored::new(
            stale.status,
            headers,
            body,
            terms,
            &self.parts.headers,
        ));
        match keeps {
            true => self.store(&stored),
            false => self.ticket.forget(),
        }
        Some(stored)
    }

    fn store(&self, stored: &Arc<Stored>) {
        if self.ticket.store(stored.clone()) {
            self.core.stats.borrow_mut().cache.stored += 1;
        }
    }

    /// Stores an answer while it is sent, where it may be stored.
    async fn keep(self, answer: Answer, asks: Asked, exchange: Exchange, tell: First) {
        let (head, body) = answer.into_parts();
        self.watch.watch.enter(Phase::Body);
        let terms = Terms::of(asks, head.status, &head.headers, exchange);
        let most = self.ticket.store_of().max_object_bytes();
        let fits = http_body::Body::size_hint(&body).lower() <= most;
        let (terms, body) = match (terms.filter(|_| fits), body) {
            (Some(terms), body @ (Body::Upstream(_) | Body::Empty)) => (terms, body),
            (_, body) => {
                // What is one client's, that it has it still, or a failure, says nothing of what others would be answered: whoever sends
                // credentials must not keep a target out of the cache.
                let says_nothing = asks.authorized
                    || head.status == StatusCode::NOT_MODIFIED
                    || head.status.is_server_error();
                if !says_nothing {
                    self.ticket.pass();
                }
                let body = match (body, &self.client_watch) {
                    // From here on its client reads it, and its client's watch times it.
                    (Body::Upstream(mut body), Some(watch)) => {
                        body.call.watch = watch.clone();
                        Body::Upstream(body)
                    }
                    (body, _) => body,
                };
                tell.say(Ok(Fetched::Answer(Response::from_parts(head, body))));
                return;
            }
        };
        let stored = |body| {
            Stored::new(
                head.status,
                head.headers.clone(),
                body,
                terms,
                &self.parts.headers,
            )
        };
        let Body::Upstream(body) = body else {
            self.store(&Arc::new(stored(Bytes::new())));
            tell.say(Ok(Fetched::Answer(Response::from_parts(head, Body::Empty))));
            return;
        };
        if body.is_over() {
            self.store(&Arc::new(stored(Bytes::new())));
            tell.say(Ok(Fetched::Answer(Response::from_parts(head, Body::Empty))));
            return;
        }
        let (fetch, client) = Fetch::new(body, self.ticket.store_of().clone());
        let mut answer = Response::new(Body::Fetched(client));
        *answer.status_mut() = head.status;
        answer.headers_mut().clone_from(&head.headers);
        tell.say(Ok(Fetched::Answer(answer)));
        match fetch.run(self.client_watch.clone()).await {
            Some(body) => self.store(&Arc::new(stored(body))),
            None => self.ticket.pass(),
        }
    }
}

/// Statuses for which what is stale may be used where the origin allows it (RFC 5861 section 4).
fn fails(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
}

/// What a request is of: scheme, authority and target.
fn key(proto: &str, parts: &request::Parts) -> Bytes {
    let host = parts
        .headers
        .get(header::HOST)
        .map_or(&b""[..], |host| host.as_bytes());
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let mut key = Vec::with_capacity(proto.len() + host.len() + target.len() + 1);
    key.extend_from_slice(proto.as_bytes());
    key.push(b' ');
    key.extend(host.iter().map(u8::to_ascii_lowercase));
    // No host has a slash in it, and each target begins with one.
    key.extend_from_slice(target.as_bytes());
    key.into()
}

/// The key of a place that an answer to this request names, where that is of the same origin (RFC 9111 section 4.4).
fn place_key(own: &Bytes, parts: &request::Parts, place: &[u8]) -> Option<Bytes> {
    let place: Uri = std::str::from_utf8(place).ok()?.parse().ok()?;
    let host = parts.headers.get(header::HOST)?.as_bytes();
    if let Some(authority) = place.authority()
        && !authority.as_str().as_bytes().eq_ignore_ascii_case(host)
    {
        return None;
    }
    let target = place.path_and_query()?.as_str();
    let own_target = parts.uri.path_and_query()?.as_str();
    let origin = own.strip_suffix(own_target.as_bytes())?;
    target
        .starts_with('/')
        .then(|| [origin, target.as_bytes()].concat().into())
}
