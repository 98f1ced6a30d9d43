//! Bodies on their way through: never held whole, one piece at a time, paid for by the reader.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::stats::Failure;
use crate::ticket::Ticket;
use crate::upstream::{Upstream, poll_incoming};
use crate::watch::{Phase, Watch};

/// Why a body broke off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the request body exceeds the limit")]
    TooLarge,
    #[error("the client broke off its request body: {0}")]
    Client(hyper::Error),
    #[error("the backend broke off its response body")]
    Backend,
    #[error("the backend paused too long in its response body")]
    Stalled,
}

/// How the upload of a request body stands; shared between the body and the handler.
#[derive(Debug, Default)]
pub(crate) struct Upload {
    /// The whole body was read.
    pub done: Cell<bool>,
    /// It exceeded the limit.
    pub too_large: Cell<bool>,
    /// The client broke it off.
    pub broken: Cell<bool>,
    /// The backend asked for more and the client has not sent it.
    pub waiting: Cell<bool>,
}

/// A request body on its way to the backend.
pub(crate) enum RequestBody {
    /// None.
    Empty,
    /// As the client sends it.
    Stream {
        incoming: Incoming,
        /// Bytes that may still come.
        left: u64,
        upload: Rc<Upload>,
        watch: Rc<Watch>,
    },
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Self::Stream {
            incoming,
            left,
            upload,
            watch,
        } = self.get_mut()
        else {
            return Poll::Ready(None);
        };
        let frame = match Pin::new(&mut *incoming).poll_frame(cx) {
            Poll::Pending => {
                upload.waiting.set(true);
                return Poll::Pending;
            }
            Poll::Ready(frame) => frame,
        };
        upload.waiting.set(false);
        watch.touch();
        match frame {
            Some(Ok(frame)) => {
                let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                if length > *left {
                    upload.too_large.set(true);
                    return Poll::Ready(Some(Err(BodyError::TooLarge)));
                }
                *left -= length;
                if incoming.is_end_stream() {
                    finished(upload, watch);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                upload.broken.set(true);
                Poll::Ready(Some(Err(BodyError::Client(error))))
            }
            None => {
                finished(upload, watch);
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Stream { incoming, .. } => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Stream { incoming, .. } => incoming.size_hint(),
        }
    }
}

/// The upload is complete: from now on the backend's answer is waited for.
fn finished(upload: &Upload, watch: &Watch) {
    upload.done.set(true);
    if watch.phase() == Phase::Upload {
        watch.enter(Phase::Response);
    }
}

/// A response body on its way to the client.
pub(crate) enum ProxyBody {
    /// None.
    Empty,
    /// The gateway's own words.
    Text(Option<Bytes>),
    /// As the backend sends it.
    Upstream(Box<UpstreamBody>),
}

/// A response body, the connection it comes over, and the request's account.
pub(crate) struct UpstreamBody {
    incoming: Incoming,
    upstream: Option<Box<Upstream>>,
    /// The upload, where there was a request body: the connection can be used again only after it.
    upload: Option<Rc<Upload>>,
    /// Neither side asked for the connection to be closed.
    keep_alive: bool,
    ended: bool,
    ticket: Ticket,
}

impl UpstreamBody {
    pub(crate) fn new(
        incoming: Incoming,
        upstream: Box<Upstream>,
        upload: Option<Rc<Upload>>,
        keep_alive: bool,
        ticket: Ticket,
    ) -> Self {
        Self {
            incoming,
            upstream: Some(upstream),
            upload,
            keep_alive,
            ended: false,
            ticket,
        }
    }

    /// The last piece is out: gives the connection back and closes the account.
    pub(crate) fn finish(&mut self) {
        self.ended = true;
        let uploaded = self.upload.as_ref().is_none_or(|upload| upload.done.get());
        if let Some(upstream) = self.upstream.take()
            && self.keep_alive
            && uploaded
        {
            self.ticket.give_back(upstream);
        }
        self.ticket.complete();
    }

    fn abort(&mut self, error: BodyError) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.ended = true;
        self.upstream = None;
        self.ticket.fail(Failure::AbortedByBackend);
        self.ticket.client().reset.set(true);
        Poll::Ready(Some(Err(error)))
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        // Asking the body tells the connection that a piece is wanted; driving it fetches the piece.
        if let Poll::Ready(frame) = poll_incoming(&mut self.incoming) {
            return self.pass(frame);
        }
        let over = self.upstream.as_mut().is_none_or(|upstream| upstream.drive(cx));
        if let Poll::Ready(frame) = poll_incoming(&mut self.incoming) {
            return self.pass(frame);
        }
        if over {
            self.abort(BodyError::Backend)
        } else if self.ticket.watch().expired() {
            self.abort(BodyError::Stalled)
        } else {
            Poll::Pending
        }
    }

    fn pass(
        &mut self,
        frame: Option<Result<Frame<Bytes>, hyper::Error>>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.ticket.response_bytes(data.len());
                }
                self.ticket.watch().touch();
                if self.incoming.is_end_stream() {
                    self.finish();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(_)) => self.abort(BodyError::Backend),
            None => {
                self.finish();
                Poll::Ready(None)
            }
        }
    }
}

impl Body for ProxyBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Self::Upstream(body) => body.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Text(text) => text.is_none(),
            Self::Upstream(body) => body.ended,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Self::Upstream(body) => body.incoming.size_hint(),
        }
    }
}
