//! One request of a client: its account with the service, and its place on the client's connection.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::StatusCode;
use http_body::{Frame, SizeHint};

use crate::account::Account;
use crate::body::{Body, BodyError};
use crate::call::Stop;
use crate::conn::ClientConn;
use crate::sizes::Sized;
use crate::stats::Failure;
use crate::watch::{Phase, Watch};

/// A request in flight. Dropped unsettled, it counts as aborted by the client: that is what the server does with a request
/// whose client has gone.
pub(crate) struct Ticket {
    client: Rc<ClientConn>,
    watch: Rc<Watch>,
    /// Opened when it arrives: whole, or as much of it as is taken before a backend is asked.
    account: Option<Account>,
    /// What was known of the size of its answer when it came.
    sized: Option<Sized>,
    /// It has left the client's connection.
    over: bool,
}

impl Ticket {
    /// The head of a request came.
    pub(crate) fn open(client: &Rc<ClientConn>, sized: Option<Sized>) -> Self {
        let begun = Instant::now();
        let core = client.core();
        let watch = if client.http2 {
            client.stream_opened();
            core.watches.add(Phase::Response)
        } else {
            client.watch.enter(Phase::Response);
            client.watch.clone()
        };
        watch.set_begun(Some(begun));
        Self {
            client: client.clone(),
            watch,
            account: None,
            sized,
            over: false,
        }
    }

    /// The request has arrived at this time: it is counted, and latencies count from there.
    pub(crate) fn arrive(&mut self, at: Instant) {
        self.watch.set_started(Some(at));
        let class = self.sized.map(|sized| sized.class);
        self.account = Some(Account::open(self.client.core(), None, class, at));
    }

    /// Its account; whatever ends it, it has arrived.
    fn account(&mut self) -> &mut Account {
        if self.account.is_none() {
            self.arrive(Instant::now());
        }
        let (client, sized) = (&self.client, self.sized);
        self.account.get_or_insert_with(|| {
            Account::open(
                client.core(),
                None,
                sized.map(|sized| sized.class),
                Instant::now(),
            )
        })
    }

    pub(crate) fn client(&self) -> &Rc<ClientConn> {
        &self.client
    }

    pub(crate) fn watch(&self) -> &Rc<Watch> {
        &self.watch
    }

    pub(crate) fn sized(&self) -> Option<Sized> {
        self.sized
    }

    /// The answer begins, with this status.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        let waits = self.watch.upload_waits();
        self.account().answered(status, waits);
    }

    /// The response was handed over whole.
    pub(crate) fn complete(&mut self) {
        if let (Some(sized), false) = (self.sized, self.over)
            && let Some((status, bytes)) = self.account().content()
            && let Some(sizes) = &self.client.core().sizes
        {
            sizes.learn(sized, status, bytes);
        }
        self.account().complete();
        if self.client.http2 && !self.over {
            self.client.ended(false);
        }
        self.leave();
    }

    /// The gateway answers with this status of its own.
    pub(crate) fn stop(&mut self, stop: &Stop, status: StatusCode) {
        let account = self.account();
        account.stop(stop);
        account.spoke(status);
        self.leave();
    }

    fn fail(&mut self, cause: Failure) {
        let waits = self.watch.upload_waits();
        let account = self.account();
        account.excuse(waits);
        account.fail(cause);
        self.leave();
    }

    /// Leaves the client's connection to its next request.
    fn leave(&mut self) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        self.watch.set_started(None);
        self.watch.set_begun(None);
        self.watch.ahead.take();
        if self.client.http2 {
            self.client.core().watches.remove(&self.watch);
            self.client.stream_closed();
        } else {
            self.watch.enter(Phase::Idle);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.over {
            if self.client.http2 {
                self.client.ended(true);
            }
            self.fail(Failure::AbortedByClient);
        }
    }
}

/// A response body on its way to the client, whoever answers: what is handed over is counted here, and its end closes the
/// request's account.
pub(crate) struct CountedBody {
    body: Body,
    ticket: Ticket,
}

impl CountedBody {
    /// The answer has begun. A body that is over at once closes the account.
    pub(crate) fn new(body: Body, mut ticket: Ticket) -> Self {
        if http_body::Body::is_end_stream(&body) {
            ticket.complete();
        }
        Self { body, ticket }
    }
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Self { body, ticket } = self.get_mut();
        let polled = Pin::new(&mut *body).poll_frame(cx);
        // Where the rest of the request is waited for, that is the client's doing too.
        ticket
            .watch
            .set_on_client(polled.is_ready() || body.waits_for_client());
        let Poll::Ready(frame) = polled else {
            if !body.waits_for_client() {
                ticket.account().waits();
            }
            return Poll::Pending;
        };
        ticket.account().goes_on();
        match &frame {
            Some(Err(error)) => {
                ticket.client.reset.set(true);
                tracing::debug!(%error, "a response was broken off");
                ticket.fail(error.failure());
            }
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                ticket.account().response_bytes(bytes);
                match ticket.client.http2 {
                    true => ticket.watch.moved(bytes),
                    // What the socket takes is noted there.
                    false => ticket.watch.touch(),
                }
            }
            None => {}
        }
        if frame.is_none() || body.is_end_stream() {
            ticket.complete();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
