//! One request of a client: its account with the service, and its place on the client's connection.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
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
    account: Account,
    /// What was known of the size of its answer when it came.
    sized: Option<Sized>,
    /// When its call of gRPC is to be over, where its client said that.
    deadline: Option<Pin<Box<Sleep>>>,
    /// It has left the client's connection.
    over: bool,
}

impl Ticket {
    /// Counts the arrival of a request.
    pub(crate) fn open(client: &Rc<ClientConn>, sized: Option<Sized>, grpc: Option<GrpcCall>) -> Self {
        let started = Instant::now();
        let core = client.core();
        let watch = if client.http2 {
            client.stream_opened();
            core.watches.add(Phase::Response)
        } else {
            client.watch.enter(Phase::Response);
            client.watch.clone()
        };
        watch.set_started(Some(started));
        let mut account = Account::open(core, None, sized.map(|sized| sized.class), started);
        if let Some(grpc) = grpc {
            account.expect(grpc);
        }
        let patience = grpc.and_then(|grpc| grpc.patience);
        Self {
            client: client.clone(),
            watch,
            account,
            sized,
            deadline: patience.map(|patience| Box::pin(tokio::time::sleep(patience))),
            over: false,
        }
    }

    /// Whether it is a call of gRPC.
    pub(crate) fn is_call(&self) -> bool {
        self.account.is_call()
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
        self.account.read(fields);
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

    pub(crate) fn arrived(&self) -> Instant {
        self.account.arrived()
    }

    /// The answer has this status.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.account.answered(status);
    }

    /// The response was handed over whole.
    pub(crate) fn complete(&mut self) {
        if let (Some(sized), false) = (self.sized, self.over)
            && let (Some(sizes), Some((status, bytes))) = (&self.client.core().sizes, self.account.content())
        {
            sizes.learn(sized, status, bytes);
        }
        self.account.complete();
        self.leave();
    }

    /// The gateway answers with this status of its own.
    pub(crate) fn stop(&mut self, stop: &Stop, status: StatusCode) {
        self.account.stop(stop);
        self.account.spoke(status);
        self.leave();
    }

    fn fail(&mut self, cause: Failure) {
        self.account.fail(cause);
        self.leave();
    }

    /// Leaves the client's connection to its next request.
    fn leave(&mut self) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        self.watch.set_started(None);
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
        if ticket.deadline.is_some() && ticket.poll_deadline(cx).is_ready() && !body.is_end_stream() {
            // Dropped, it breaks off what the backend still does.
            *body = Body::Empty;
            ticket.fail(Failure::TimedOut);
            return Poll::Ready(Some(Ok(Frame::trailers(grpc::deadline_exceeded()))));
        }
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        match &frame {
            Some(Err(error)) => {
                ticket.client.reset.set(true);
                tracing::debug!(%error, "a response was broken off");
                ticket.fail(error.failure());
            }
            Some(Ok(frame)) => {
                if let Some(trailers) = frame.trailers_ref() {
                    ticket.account.read(trailers);
                }
                ticket
                    .account
                    .response_bytes(frame.data_ref().map_or(0, Bytes::len));
                ticket.watch.touch();
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
