//! Bodies on their way through: never held whole, one piece at a time, paid for by the reader.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::stats::Failure;
use crate::ticket::Ticket;
use crate::upstream::{Piece, ResponseError, Upstream};
use crate::watch::{Phase, Watch};

/// Why a request body failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UploadError {
    #[error("it exceeds the limit")]
    TooLarge,
    #[error("the client broke it off: {0}")]
    Client(hyper::Error),
}

/// A request body on its way to a backend.
pub(crate) struct RequestBody {
    incoming: Incoming,
    /// Bytes that may still come.
    left: u64,
    chunked: bool,
    trailers: HeaderMap,
    /// The client has sent all of it.
    received: bool,
    /// All of it is framed for the backend.
    over: bool,
    /// The client was asked for it.
    pub begun: bool,
    /// The backend would take more, and the client has not sent it.
    pub waiting: bool,
    watch: Rc<Watch>,
}

impl RequestBody {
    /// A body of at most `limit` bytes.
    pub(crate) fn new(incoming: Incoming, limit: u64, chunked: bool, watch: Rc<Watch>) -> Self {
        Self {
            incoming,
            left: limit,
            chunked,
            trailers: HeaderMap::new(),
            received: false,
            over: false,
            begun: false,
            waiting: false,
            watch,
        }
    }

    pub(crate) fn is_chunked(&self) -> bool {
        self.chunked
    }

    /// Whether everything, its end included, is framed.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    pub(crate) fn set_over(&mut self) {
        self.over = true;
    }

    /// The trailer fields that came with its end.
    pub(crate) fn take_trailers(&mut self) -> HeaderMap {
        std::mem::take(&mut self.trailers)
    }

    /// The next piece; `None` at the end.
    pub(crate) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, UploadError>> {
        self.begun = true;
        loop {
            if self.received {
                return Poll::Ready(Ok(None));
            }
            self.waiting = true;
            let frame = ready!(Pin::new(&mut self.incoming).poll_frame(cx));
            self.waiting = false;
            self.watch.touch();
            match frame {
                None => {
                    self.received = true;
                    if self.watch.phase() == Phase::Upload {
                        self.watch.enter(Phase::Response);
                    }
                }
                Some(Err(error)) => return Poll::Ready(Err(UploadError::Client(error))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if data.is_empty() => {}
                    Ok(data) => {
                        let Some(left) = self.left.checked_sub(data.len() as u64) else {
                            return Poll::Ready(Err(UploadError::TooLarge));
                        };
                        self.left = left;
                        return Poll::Ready(Ok(Some(data)));
                    }
                    Err(frame) => {
                        if let Ok(trailers) = frame.into_trailers() {
                            self.trailers = trailers;
                        }
                    }
                },
            }
        }
    }
}

/// Why a response body broke off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error(transparent)]
    Backend(#[from] ResponseError),
    #[error("the backend paused too long in its response body")]
    Stalled,
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
    upstream: Option<Box<Upstream>>,
    /// What is left of the request body.
    upload: Option<RequestBody>,
    /// The backend keeps the connection open.
    keep_alive: bool,
    ticket: Ticket,
}

impl UpstreamBody {
    pub(crate) fn new(
        upstream: Box<Upstream>,
        upload: Option<RequestBody>,
        keep_alive: bool,
        ticket: Ticket,
    ) -> Self {
        Self {
            upstream: Some(upstream),
            upload,
            keep_alive,
            ticket,
        }
    }

    /// The last piece is out: gives the connection back and closes the account.
    pub(crate) fn finish(&mut self) {
        if let Some(upstream) = self.upstream.take()
            && self.keep_alive
            && self.upload.as_ref().is_none_or(RequestBody::is_over)
            && upstream.is_clean()
        {
            self.ticket.give_back(upstream);
        }
        self.ticket.complete();
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(upstream) = &mut self.upstream else {
            return Poll::Ready(None);
        };
        let piece = match upstream.poll_response(cx, self.ticket.core(), &mut self.upload) {
            Poll::Pending if !self.ticket.watch().expired() => return Poll::Pending,
            Poll::Pending => Some(Err(BodyError::Stalled)),
            Poll::Ready(piece) => piece.map(|piece| piece.map_err(BodyError::from)),
        };
        let frame = match piece {
            None => {
                self.finish();
                return Poll::Ready(None);
            }
            Some(Err(error)) => {
                self.upstream = None;
                self.ticket.fail(match error {
                    BodyError::Backend(ResponseError::Upload(_)) => Failure::AbortedByClient,
                    _ => Failure::AbortedByBackend,
                });
                self.ticket.client().reset.set(true);
                tracing::debug!(%error, "a response was broken off");
                return Poll::Ready(Some(Err(error)));
            }
            Some(Ok(Piece::Data(data))) => {
                self.ticket.response_bytes(data.len());
                Frame::data(data)
            }
            Some(Ok(Piece::Trailers(trailers))) => Frame::trailers(trailers),
        };
        self.ticket.watch().touch();
        if upstream.is_response_over() {
            self.finish();
        }
        Poll::Ready(Some(Ok(frame)))
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
            Self::Upstream(body) => body.upstream.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let left = match self {
            Self::Empty => Some(0),
            Self::Text(text) => Some(text.as_ref().map_or(0, |text| text.len() as u64)),
            Self::Upstream(body) => body
                .upstream
                .as_ref()
                .map_or(Some(0), |upstream| upstream.response_left()),
        };
        left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
