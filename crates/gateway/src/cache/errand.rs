//! A fetch, in a task of its own: for whoever asked first, for those that wait, for what is stored.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::{self, HeaderMap};
use http::{Method, StatusCode, request};
use tokio::sync::oneshot;

use super::fetched::{Fate, Fetch};
use super::flight::FlightTicket;
use super::selection::Selection;
use super::stored::{Stored, remove_conditions};
use super::terms::{Asked, Exchange, Terms};
use crate::batch::Member;
use crate::body::Body;
use crate::call::{Call, Stop};
use crate::core::Core;
use crate::interim::InterimTo;
use crate::layer::{Answer, Layer};
use crate::request_head::BodyFraming;
use crate::sizes::Sized;
use crate::watch::{Phase, Watch};

/// What a fetch comes to for whoever asked first.
// One is made for each fetch, and handed over at once.
#[allow(clippy::large_enum_variant)]
pub(super) enum Fetched {
    /// What was stored is still so.
    Stored(Arc<Stored>),
    /// The backend failed, with this status if it answered, and what is stale may be used then.
    Stale(Arc<Stored>, Option<StatusCode>),
    Answer(Answer),
}

/// Whoever asked first, if anybody did: otherwise what is stale is used meanwhile.
pub(super) struct First(pub Option<oneshot::Sender<Result<Fetched, Stop>>>);

impl First {
    fn say(self, fetched: Result<Fetched, Stop>) {
        if let Some(first) = self.0 {
            // It may be gone: what is fetched is stored all the same.
            drop(first.send(fetched));
        }
    }

    /// Waits until nobody wants the answer: neither the client that it is fetched for nor one that waits for it.
    async fn gone(&mut self, ticket: &FlightTicket) {
        match &mut self.0 {
            Some(first) => first.closed().await,
            None => std::future::pending().await,
        }
        ticket.left_alone().await;
    }
}

/// A watch of a core that is not a client's.
pub(super) struct OwnWatch {
    core: Rc<Core>,
    watch: Rc<Watch>,
}

impl OwnWatch {
    pub(super) fn new(core: Rc<Core>) -> Self {
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
pub(super) struct Errand<L> {
    /// What is asked for, whole: a GET, without a part.
    parts: request::Parts,
    te_trailers: bool,
    /// Of the client that it is for.
    interim: Option<InterimTo>,
    client: Rc<crate::headers::ClientIdentity>,
    client_watch: Option<Rc<Watch>>,
    /// Of the client that it is for.
    place: Option<Rc<Member>>,
    sized: Option<Sized>,
    rank: usize,
    watch: OwnWatch,
    ticket: FlightTicket,
    stale: Option<Arc<Stored>>,
    /// Whether the request accepts what is stale where asking fails.
    falls_back: bool,
    core: Rc<Core>,
    inner: Rc<L>,
}

impl<L: Layer> Errand<L> {
    /// For a request, in place of what is stored for it, if anything is. `watch`: of the client, where one waits for the answer.
    pub(super) fn new(
        call: &Call,
        ticket: FlightTicket,
        stale: Option<Arc<Stored>>,
        falls_back: bool,
        watch: Option<Rc<Watch>>,
        (core, inner): (Rc<Core>, Rc<L>),
    ) -> Self {
        let mut parts = call.parts.clone();
        // What is asked for with a HEAD, or of which a part is, is fetched whole where it is fetched for the store.
        parts.method = Method::GET;
        parts.headers.remove(header::RANGE);
        parts.headers.remove(header::IF_RANGE);
        Self {
            parts,
            te_trailers: call.te_trailers,
            interim: watch.as_ref().and_then(|_| call.interim.clone()),
            client: call.client.clone(),
            place: watch.as_ref().and_then(|_| call.place.clone()),
            client_watch: watch,
            sized: call.sized,
            rank: call.rank,
            watch: OwnWatch::new(core.clone()),
            ticket,
            stale,
            falls_back,
            core,
            inner,
        }
    }

    fn asked(&self) -> Asked {
        Asked {
            authorized: self.parts.headers.contains_key(header::AUTHORIZATION),
        }
    }

    /// Goes and asks.
    pub(super) async fn run(mut self, mut first: First) {
        loop {
            let asked = Instant::now();
            let answer = tokio::select! {
                answer = self.ask() => answer,
                // Nobody is answered: the backend is not kept busy for it.
                () = first.gone(&self.ticket) => return,
            };
            let mut answer = match answer {
                Ok(answer) => answer,
                Err(stop) => {
                    self.failed(None);
                    let usable = self.usable(Instant::now()).cloned();
                    first.say(usable.map_or(Err(stop), |stored| Ok(Fetched::Stale(stored, None))));
                    return;
                }
            };
            let exchange = Exchange::since(asked);
            if fails(answer.status)
                && let Some(stale) = self.usable(exchange.answered)
            {
                self.failed(Some(answer.status));
                first.say(Ok(Fetched::Stale(stale.clone(), Some(answer.status))));
                return;
            }
            if answer.status == StatusCode::NOT_MODIFIED
                && let Some(stale) = self.stale.take()
            {
                match self.validated(&stale, answer.fields.map(), exchange) {
                    Some(stored) => {
                        first.say(Ok(Fetched::Stored(stored)));
                        return;
                    }
                    // It is about another response: what is there now is asked for without a condition.
                    None => {
                        remove_conditions(&mut self.parts.headers);
                        continue;
                    }
                }
            }
            return self.keep(answer, exchange, first).await;
        }
    }

    /// What is stale, where it may be used now since asking failed.
    fn usable(&self, now: Instant) -> Option<&Arc<Stored>> {
        let stale = self.stale.as_ref().filter(|_| self.falls_back)?;
        stale.terms.serves_if_error(now).then_some(stale)
    }

    /// Asking failed: those that wait may use what is stale, and nobody asks for a while where nobody waits.
    fn failed(&self, status: Option<StatusCode>) {
        self.ticket.failed(status);
        self.changed_nothing();
    }

    /// What is stored is as it was: in the background it is not asked for again at once.
    fn changed_nothing(&self) {
        if let (None, Some(stale)) = (&self.client_watch, &self.stale) {
            stale.failed(Instant::now());
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
            interim: self.interim.clone(),
            body: None,
            client: self.client.clone(),
            place: self.place.clone(),
            grpc: None,
            sized: self.sized,
            rank: self.rank,
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
    fn validated(&self, stale: &Arc<Stored>, answer: &HeaderMap, exchange: Exchange) -> Option<Arc<Stored>> {
        let asked = self.asked();
        let headers = stale.updated(answer);
        let terms = headers
            .as_ref()
            .and_then(|headers| Terms::of(asked, stale.status, headers, exchange));
        let selection = headers
            .as_ref()
            .and_then(|headers| Selection::of(headers, &self.parts.headers));
        // What somebody with credentials is told is of no other: what is stored for all stays.
        let is_outdated = terms.is_none() || selection.as_ref() != Some(&stale.selection);
        if is_outdated && !asked.authorized {
            self.ticket.forget(stale);
        }
        let keeps = terms.is_some() && selection.is_some();
        let stored = Arc::new(Stored::new(
            stale.status,
            &headers?,
            stale.body.clone(),
            terms.unwrap_or(stale.terms),
            selection.unwrap_or_else(|| stale.selection.clone()),
        ));
        if keeps {
            self.store(&stored);
        } else if self.client_watch.is_none() {
            stale.failed(exchange.answered);
        }
        Some(stored)
    }

    fn store(&self, stored: &Arc<Stored>) {
        if self.ticket.store(stored.clone()) {
            self.core.stats.borrow_mut().cache.stored += 1;
        }
    }

    /// An answer with this status was not stored.
    fn is_not_stored(&self, status: StatusCode) {
        // What is one client's, that it has it still, or a failure, says nothing of what others would be answered: whoever sends
        // credentials must neither keep a target out of the cache nor remove it.
        if status.is_server_error() {
            if fails(status) {
                self.ticket.failed(Some(status));
            }
            self.changed_nothing();
        } else if self.asked().authorized || status == StatusCode::NOT_MODIFIED {
            self.changed_nothing();
        } else {
            // RFC 9111 section 4.3.3: a full answer takes the place of what was asked about, also where it is not stored itself.
            if let Some(stale) = &self.stale {
                self.ticket.forget(stale);
            }
            self.ticket.missed();
        }
    }

    /// Stores an answer while it is sent, where it may be stored.
    async fn keep(self, answer: Answer, exchange: Exchange, first: First) {
        let Answer { status, fields, body } = answer;
        let fields = fields.into_map();
        self.watch.watch.enter(Phase::Body);
        let terms = Terms::of(self.asked(), status, &fields, exchange);
        let selection = Selection::of(&fields, &self.parts.headers);
        // Whoever asks with longer fields than are kept says nothing of what others would be answered.
        let is_own = terms.is_some() && selection.is_none();
        let fits = http_body::Body::size_hint(&body).lower() <= self.ticket.store_of().max_object_bytes();
        // Whether a body is whole that ends with its connection nobody knows.
        let ends = !matches!(&body, Body::Upstream(body) if body.ends_with_connection());
        let kept = terms
            .zip(selection)
            .filter(|_| fits && ends && self.parts.method == Method::GET);
        let ((terms, selection), body) = match (kept, body) {
            (Some(kept), body @ (Body::Upstream(_) | Body::Empty)) => (kept, body),
            (_, body) => {
                match is_own {
                    true => self.changed_nothing(),
                    false => self.is_not_stored(status),
                }
                let body = match (body, &self.client_watch) {
                    // From here on its client reads it, and its client's watch times it.
                    (Body::Upstream(mut body), Some(watch)) => {
                        body.call.watch = watch.clone();
                        Body::Upstream(body)
                    }
                    (body, _) => body,
                };
                first.say(Ok(Fetched::Answer(Answer::new(status, fields, body))));
                return;
            }
        };
        // Its fields are copied now: those that came are in a buffer with much else.
        let stored = |body, fields: &HeaderMap| Arc::new(Stored::new(status, fields, body, terms, selection));
        let body = match body {
            Body::Upstream(body) if !body.is_over() => body,
            _ => {
                self.store(&stored(Bytes::new(), &fields));
                first.say(Ok(Fetched::Answer(Answer::new(status, fields, Body::Empty))));
                return;
            }
        };
        let (fetch, client) = Fetch::new(body, self.ticket.store_of().clone());
        let answer = Answer::new(status, fields.clone(), Body::Fetched(client));
        first.say(Ok(Fetched::Answer(answer)));
        match fetch.run(self.client_watch.clone()).await {
            Fate::Whole(body) => self.store(&stored(body, &fields)),
            Fate::Unfit => self.is_not_stored(status),
            Fate::NoRoom => self.changed_nothing(),
            Fate::Broken => self.failed(None),
        }
    }
}

/// Statuses for which what is stale may be used where the origin allows it (RFC 5861 section 4).
pub(super) fn fails(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
}
