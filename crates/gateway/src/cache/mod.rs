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
mod errand;
mod fetched;
mod flight;
mod how;
mod key;
mod range;
mod selection;
mod store;
mod stored;
mod terms;

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{Method, StatusCode, request};
use tokio::sync::oneshot;

use self::directives::Directives;
use self::errand::{Errand, Fetched, First, fails};
use self::flight::{Failed, FlightTicket, Role};
use self::how::{How, Why};
use self::key::{key, place_key};
use self::store::{Found, Turn};
use self::stored::Stored;
use crate::call::{Call, Stop};
use crate::config::ms;
use crate::core::Core;
use crate::deadline::client_deadline;
use crate::headers::Refusal;
use crate::layer::{Answer, Layer};
use crate::stats::{CacheCounts, Failure};
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

/// What waiting for another request came to.
struct Waited {
    /// Why the request would have been passed on.
    why: Why,
    /// The other failed.
    failed: Option<Failed>,
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

    /// Passes a request on, of whose answer nothing is stored; where that fails what is `usable` is given.
    async fn pass(&self, call: Box<Call>, how: How, usable: Option<Arc<Stored>>) -> Result<Answer, Stop> {
        let parts = usable.is_some().then(|| call.parts.clone());
        let mut answer = self.inner.call(call).await;
        let failed = match &answer {
            Ok(answer) => fails(answer.status).then_some(Some(answer.status)),
            Err(_) => Some(None),
        };
        if let (Some(status), Some(stored), Some(parts)) = (failed, usable, parts) {
            self.count(|counts| counts.stale += 1);
            return Ok(stored.answer(&parts, Instant::now(), how.answered(status)));
        }
        if let Ok(answer) = &mut answer {
            answer.fields.map().append(CACHE_STATUS, how.value(None));
        }
        answer
    }

    /// Passes a request on that may change what is stored.
    async fn change(&self, call: Box<Call>) -> Result<Answer, Stop> {
        let method = &call.parts.method;
        let why = match matches!(*method, Method::GET | Method::HEAD) {
            true => Why::Bypass,
            false => Why::Method,
        };
        if why == Why::Bypass || matches!(*method, Method::OPTIONS | Method::TRACE) {
            return self.pass(call, How::forwarded(why), None).await;
        }
        let (proto, parts) = (call.client.proto, call.parts.clone());
        // Until a backend is sent it.
        call.watch.enter(Phase::Untimed);
        let mut change = Change {
            core: self.core.clone(),
            store: self.store.clone(),
            key: key(proto, &parts),
            watch: call.watch.clone(),
            is_answered: false,
        };
        let mut answer = self.pass(call, How::forwarded(why), None).await?;
        change.is_answered = true;
        let status = answer.status;
        if status.is_success() || status.is_redirection() {
            let named = [header::LOCATION, header::CONTENT_LOCATION];
            let fields = answer.fields.map();
            let named = named.iter().filter_map(|name| fields.get(name));
            for key in named.filter_map(|place| place_key(proto, &parts, place.as_bytes())) {
                change.invalidate(&key);
            }
            change.invalidate(&change.key);
        }
        Ok(answer)
    }

    /// Answers from what is stored, or fetches.
    async fn look(&self, call: Box<Call>) -> Result<Answer, Stop> {
        let key = key(call.client.proto, &call.parts);
        let request = Directives::of_message(&call.parts.headers);
        // What answers credentials is seldom another's: they wait for nobody, and nobody for them.
        let authorized = call.parts.headers.contains_key(header::AUTHORIZATION);
        let mut waited: Option<Waited> = None;
        loop {
            let now = Instant::now();
            let (why, stale, missed) = match self.store.find(&key, &call.parts.headers) {
                Found::Stored(stored) => {
                    let how = waited
                        .as_ref()
                        .map_or(How::HIT, |waited| How::forwarded(waited.why).collapsed(true));
                    if stored.terms.serves(&request, now) {
                        self.count(|counts| counts.hits += 1);
                        return Ok(stored.answer(&call.parts, now, how));
                    }
                    if !request.only_if_cached && stored.terms.serves_while_revalidating(&request, now) {
                        self.count(|counts| counts.stale += 1);
                        let answer = stored.answer(&call.parts, now, how);
                        if stored.may_be_asked_for(now)
                            && let Turn::Own(ticket) = self.store.turn(&key, Role::Background)
                        {
                            self.fetch(&call, ticket, Some(stored), true, First(None));
                        }
                        return Ok(answer);
                    }
                    let asked = request.no_cache || !stored.terms.fresh_for(now).is_zero();
                    (if asked { Why::Request } else { Why::Stale }, Some(stored), false)
                }
                Found::Nothing { varies, missed } => {
                    (if varies { Why::VaryMiss } else { Why::UriMiss }, None, missed)
                }
            };
            if request.only_if_cached {
                return Err(Stop::Refuse(Refusal {
                    status: StatusCode::GATEWAY_TIMEOUT,
                    reason: "only what is cached was asked for, and it is not",
                }));
            }
            let mut how = How::forwarded(why);
            // Who asks for an answer of the origin's own is given no other.
            let falls_back = !request.no_cache;
            let usable = stale
                .as_ref()
                .filter(|stored| falls_back && stored.terms.serves_if_error(now));
            if let Some(waited) = &waited {
                if let (Some(failed), Some(stored)) = (waited.failed, usable) {
                    self.count(|counts| counts.stale += 1);
                    let how = how.answered(failed.0).collapsed(true);
                    return Ok(stored.answer(&call.parts, now, how));
                }
                how = how.collapsed(false);
            }
            // A part, or a head, says nothing that could be stored.
            let whole = call.parts.method == Method::GET && !call.parts.headers.contains_key(header::RANGE);
            if !whole {
                self.count(|counts| counts.passed += 1);
                return self.pass(call, how, usable.cloned()).await;
            }
            let turn = match missed || authorized {
                true => Turn::Own(self.store.alone(&key)),
                false => self.store.turn(&key, Role::Leads),
            };
            let ticket = match turn {
                Turn::Own(ticket) => ticket,
                Turn::Others(flight) if waited.is_none() && self.may_wait(&call, &request) => {
                    self.count(|counts| counts.collapsed += 1);
                    call.watch.enter(Phase::Untimed);
                    // Whoever waited for too long goes by itself.
                    let over = tokio::time::timeout(self.patience(&call), flight.wait()).await;
                    waited = Some(Waited {
                        why,
                        failed: over.ok().flatten(),
                    });
                    continue;
                }
                Turn::Others(_) => self.store.alone(&key),
            };
            self.count(|counts| match ticket.role() {
                Role::Leads => counts.misses += 1,
                Role::Alone | Role::Background => counts.passed += 1,
            });
            call.watch.enter(Phase::Untimed);
            let (tell, told) = oneshot::channel();
            self.fetch(&call, ticket, stale, falls_back, First(Some(tell)));
            let Ok(fetched) = told.await else {
                // The core ends, and its tasks with it.
                return Err(Stop::Fail(Failure::AbortedByBackend, "the gateway stops"));
            };
            return Ok(self.deliver(fetched?, &call.parts, how));
        }
    }

    /// Whether a request may wait for another: its answer could be of use, and it has the time.
    fn may_wait(&self, call: &Call, request: &Directives) -> bool {
        let collapses = call.is_batched() || self.core.config.cache.collapse;
        collapses && !request.no_cache && !self.patience(call).is_zero()
    }

    /// For how long a request waits for another at most: as configured, and no longer than half of the latency that is promised and half of
    /// what its client grants, less what is over of these. The rest is for asking by itself. Those of a batch were let go together: what
    /// they were held for is no reason not to ask once for all of them, and counts against what their clients grant alone.
    fn patience(&self, call: &Call) -> Duration {
        let over = call.arrived.elapsed();
        let over_of_promise = if call.is_batched() { Duration::ZERO } else { over };
        let half = |time: Duration, over| (time / 2).saturating_sub(over);
        let promised = self
            .core
            .config
            .target_ms
            .map(|target| half(ms(target), over_of_promise));
        let granted = client_deadline(&call.parts.headers).map(|granted| half(granted, over));
        let most = ms(self.core.config.cache.collapse_timeout_ms);
        promised.into_iter().chain(granted).fold(most, Duration::min)
    }

    /// Turns what was fetched into the answer to whoever asked first.
    fn deliver(&self, fetched: Fetched, request: &request::Parts, how: How) -> Answer {
        let now = Instant::now();
        match fetched {
            Fetched::Stored(stored) => {
                self.count(|counts| counts.validated += 1);
                stored.answer(request, now, how.answered(Some(StatusCode::NOT_MODIFIED)))
            }
            Fetched::Stale(stored, status) => {
                self.count(|counts| counts.stale += 1);
                stored.answer(request, now, how.answered(status))
            }
            Fetched::Answer(mut answer) => {
                answer.fields.map().append(CACHE_STATUS, how.value(None));
                answer
            }
        }
    }

    /// Fetches, in a task of its own, for whoever asked first and for those that wait.
    fn fetch(
        &self,
        call: &Call,
        ticket: FlightTicket,
        stale: Option<Arc<Stored>>,
        falls_back: bool,
        first: First,
    ) {
        // Where nobody waits for the answer, nobody's watch times it.
        let watch = first.0.is_some().then(|| call.watch.clone());
        let with = (self.core.clone(), self.inner.clone());
        let errand = Errand::new(call, ticket, stale, falls_back, watch, with);
        tokio::task::spawn_local(errand.run(first));
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

/// A request that changes what it is of. Where it was sent and no answer came, nobody knows whether it did: what is stored may be
/// no more true.
struct Change {
    core: Rc<Core>,
    store: Arc<Store>,
    key: Bytes,
    /// Says whether it was sent.
    watch: Rc<Watch>,
    is_answered: bool,
}

impl Change {
    fn invalidate(&self, key: &Bytes) {
        if self.store.invalidate(key) {
            self.core.stats.borrow_mut().cache.invalidated += 1;
        }
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        if !self.is_answered && self.watch.phase() != Phase::Untimed {
            self.invalidate(&self.key);
        }
    }
}
