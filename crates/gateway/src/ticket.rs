//! One request of a client: its account with the service, and its place on the client's connection.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body::{Frame, SizeHint};
use tokio::time::Sleep;

use crate::account::Account;
use crate::body::{Body, BodyError};
use crate::call::Stop;
use crate::conn::ClientConn;
use crate::grpc::{self, GrpcCall};
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
    /// The call of gRPC that it is.
    grpc: Option<GrpcCall>,
    /// How important it is where not all can be served; 0 until that is known.
    rank: Cell<usize>,
    /// When its call of gRPC is to be over, where its client said that.
    deadline: Option<Pin<Box<Sleep>>>,
    /// It has left the client's connection.
    over: bool,
}

impl Ticket {
    /// The head of a request came. Boxed, for it is handed on and on until the answer is out.
    pub(crate) fn open(client: &Rc<ClientConn>, sized: Option<Sized>, grpc: Option<GrpcCall>) -> Box<Self> {
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
        let patience = grpc.and_then(|grpc| grpc.patience);
        Box::new(Self {
            client: client.clone(),
            watch,
            account: None,
            grpc,
            sized,
            rank: Cell::new(0),
            deadline: patience.map(|patience| Box::pin(tokio::time::sleep(patience))),
            over: false,
        })
    }

    /// When its head came.
    pub(crate) fn begun(&self) -> Instant {
        self.watch.begun().unwrap_or_else(Instant::now)
    }

    /// The request has arrived at this time: it is counted, and latencies count from there.
    pub(crate) fn arrive(&mut self, at: Instant) {
        self.watch.set_started(Some(at));
        self.account = Some(counted(&self.client, &self.watch, self.sized, self.grpc, at));
    }

    /// Its account; whatever ends it, it has arrived.
    fn account(&mut self) -> &mut Account {
        let Self {
            client,
            watch,
            sized,
            grpc,
            account,
            ..
        } = self;
        account.get_or_insert_with(|| counted(client, watch, *sized, *grpc, Instant::now()))
    }

    /// Whether it is a call of gRPC.
    pub(crate) fn is_call(&self) -> bool {
        self.grpc.is_some()
    }

    /// Whether its client said when it is to be over.
    pub(crate) fn has_deadline(&self) -> bool {
        self.deadline.is_some()
    }

    /// Ready once its deadline has passed; never where it has none.
    pub(crate) fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.deadline {
            Some(deadline) => deadline.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }

    /// The fields of the answer's head.
    pub(crate) fn read(&mut self, fields: &HeaderMap) {
        self.account().read(fields);
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

    /// How important it is where not all can be served.
    pub(crate) fn set_rank(&self, rank: usize) {
        self.rank.set(rank);
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank.get()
    }

    /// The answer begins, with this status.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.account().answered(status);
    }

    /// The answer that has begun has no end but that its client leaves.
    pub(crate) fn is_endless(&mut self) {
        self.account().is_endless();
    }

    /// All of the answer is handed over in one piece, now that it begins.
    pub(crate) fn at_once(&mut self) {
        self.account().at_once();
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

    /// The gateway answers with this status of its own. What is refused after it has arrived is its client's failure: a backend is busy
    /// with it, and what was counted as demand stays that.
    pub(crate) fn stop(&mut self, stop: &Stop, status: StatusCode) {
        let has_arrived = self.account.is_some();
        let account = self.account();
        match stop {
            Stop::Refuse(refusal) if has_arrived && refusal.is_of_body() => account.break_off(),
            stop => account.stop(stop),
        }
        account.spoke(status);
        self.leave();
    }

    fn fail(&mut self, cause: Failure) {
        self.account().fail(cause);
        self.leave();
    }

    /// Leaves the client's connection to its next request.
    fn leave(&mut self) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        // With it goes the account with its backend, which is still to know for how long the client was waited for.
        self.watch.ahead.take();
        self.watch.set_started(None);
        self.watch.set_begun(None);
        if self.client.http2 {
            self.client.core().watches.remove(&self.watch);
            self.client.stream_closed();
        } else {
            self.watch.enter(Phase::Idle);
        }
    }
}

/// Counts the arrival of a request.
fn counted(
    client: &ClientConn,
    watch: &Rc<Watch>,
    sized: Option<Sized>,
    grpc: Option<GrpcCall>,
    at: Instant,
) -> Account {
    let mut account = Account::open(client.core(), watch, None, sized.map(|sized| sized.class), at);
    if let Some(grpc) = grpc {
        account.expect(grpc);
    }
    account
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.over {
            if self.client.http2 {
                // One whose time was up was not cancelled.
                self.client.ended(!self.watch.expired());
            }
            self.fail(Failure::AbortedByClient);
        }
    }
}

/// A response body on its way to the client, whoever answers: what is handed over is counted here, and its end closes the
/// request's account.
pub(crate) struct CountedBody {
    body: Body,
    ticket: Box<Ticket>,
}

impl CountedBody {
    /// The answer has begun. A body that is over at once closes the account.
    pub(crate) fn new(body: Body, mut ticket: Box<Ticket>) -> Self {
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
        if ticket.deadline.is_some() && ticket.poll_deadline(cx).is_ready() && !body.is_end_stream() {
            // Dropped, it breaks off what the backend still does.
            *body = Body::Empty;
            ticket.fail(Failure::TimedOut);
            return Poll::Ready(Some(Ok(Frame::trailers(grpc::deadline_exceeded()))));
        }
        let polled = Pin::new(&mut *body).poll_frame(cx);
        // Where the rest of the request is waited for, that is the client's doing too. The gateway's own answers have left it to the next
        // request already.
        if !ticket.over {
            let on_client = polled.is_ready() || body.waits_for_client();
            ticket.watch.set_on_client(on_client);
        }
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
                if let Some(trailers) = frame.trailers_ref() {
                    ticket.account().read(trailers);
                }
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
