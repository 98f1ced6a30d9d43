//! Request bodies on their way through. As much of one as is held is taken before a backend is asked; the rest goes through one piece at
//! a time, paid for by the reader.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body::Body as _;

use crate::buffered::Share;
use crate::call::Stop;
use crate::headers::Refusal;
use crate::http1::{BrokenOff, Inbound};
use crate::pieces::Pieces;
use crate::stats::Failure;
use crate::upstream::Piece;
use crate::watch::{Phase, Watch};

/// Why a request body failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UploadError {
    #[error("it exceeds the limit")]
    TooLarge,
    #[error("the client broke it off: {0}")]
    Client(BrokenOff),
    #[error("it did not come in time")]
    TooSlow,
}

impl UploadError {
    /// What it means for the client.
    pub(crate) fn stop(&self) -> Stop {
        match self {
            Self::TooLarge => Stop::Refuse(Refusal {
                status: StatusCode::PAYLOAD_TOO_LARGE,
                reason: "the request body exceeds the limit",
            }),
            Self::TooSlow => Stop::Refuse(Refusal {
                status: StatusCode::REQUEST_TIMEOUT,
                reason: "the request body did not come in time",
            }),
            Self::Client(_) => {
                tracing::debug!(error = %self, "a request body failed");
                Stop::Fail(Failure::AbortedByClient, "the request body broke off")
            }
        }
    }
}

/// A request's body as its client sends it.
pub(crate) enum Incoming {
    Nothing,
    Http1(Inbound),
    Http2(hyper::body::Incoming),
}

impl Incoming {
    /// Whether there is nothing of it.
    pub(crate) fn is_nothing(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Http1(_) => false,
            Self::Http2(body) => body.is_end_stream(),
        }
    }

    /// Its length, where its client has said it.
    pub(crate) fn length(&self) -> Option<u64> {
        match self {
            Self::Nothing => Some(0),
            Self::Http1(body) => body.left(),
            Self::Http2(body) => body.size_hint().exact(),
        }
    }

    /// The next piece; `None` at the end.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Piece, BrokenOff>>> {
        let body = match self {
            Self::Nothing => return Poll::Ready(None),
            Self::Http1(body) => return body.poll_piece(cx),
            Self::Http2(body) => body,
        };
        loop {
            let Some(frame) = ready!(Pin::new(&mut *body).poll_frame(cx)) else {
                return Poll::Ready(None);
            };
            let piece = match frame?.into_data() {
                Ok(data) => Piece::Data(data),
                Err(frame) => match frame.into_trailers() {
                    Ok(trailers) => Piece::Trailers(trailers),
                    // A frame of a kind that nobody knows.
                    Err(_) => continue,
                },
            };
            return Poll::Ready(Some(Ok(piece)));
        }
    }
}

/// A request body on its way to a backend.
pub(crate) struct RequestBody {
    incoming: Incoming,
    /// What was taken before a backend was asked, or is asked for.
    taken: Pieces,
    share: Share,
    /// Some of it may be taken before a backend is asked; not where the client waits to be asked for it.
    pub may_wait: bool,
    /// Since when the client is waited for.
    waits_since: Option<Instant>,
    /// Bytes that may still come.
    left: u64,
    chunked: bool,
    trailers: HeaderMap,
    /// The client has sent all of it.
    received: bool,
    /// All of it is framed for the backend.
    over: bool,
    /// Some of it was handed on.
    pub begun: bool,
    /// The client waits to be asked for it, and the backend has not asked yet (RFC 9110 section 10.1.1).
    pub held: bool,
    /// The client waited to be asked for it.
    pub expected: bool,
    /// The backend would take more, and the client has not sent it.
    pub waiting: bool,
    watch: Rc<Watch>,
}

impl RequestBody {
    /// A body of at most `limit` bytes; where it is `expected`, the client waits to be asked for it.
    pub(crate) fn new(
        incoming: Incoming,
        limit: u64,
        chunked: bool,
        expected: bool,
        watch: Rc<Watch>,
        share: Share,
    ) -> Self {
        Self {
            incoming,
            taken: Pieces::default(),
            share,
            may_wait: !expected,
            waits_since: None,
            left: limit,
            chunked,
            trailers: HeaderMap::new(),
            received: false,
            over: false,
            begun: false,
            held: expected,
            expected,
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

    /// Takes what comes until `bound` bytes are held, the end has come, or no more may be held.
    pub(crate) fn poll_take(&mut self, cx: &mut Context<'_>, bound: usize) -> Poll<Result<(), UploadError>> {
        while !self.received && self.share.bytes() < bound && self.share.has_room() {
            if let Some(piece) = ready!(self.poll_incoming(cx))? {
                self.share.take(piece.len());
                self.taken.push(piece);
            }
        }
        Poll::Ready(Ok(()))
    }

    /// What was taken of it, all of it in its order, was not processed, and is to be taken again: as if it had not been begun.
    pub(crate) fn restore(&mut self, mut pieces: Pieces, trailers: HeaderMap) {
        self.share.take(pieces.len());
        while let Some(piece) = self.taken.pop() {
            pieces.push(piece);
        }
        self.taken = pieces;
        if self.over {
            self.trailers = trailers;
        }
        (self.over, self.begun) = (false, false);
    }

    /// The next piece; `None` at the end.
    pub(crate) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, UploadError>> {
        self.begun = true;
        if let Some(piece) = self.taken.pop() {
            self.share.give_back(piece.len());
            return Poll::Ready(Ok(Some(piece)));
        }
        let piece = ready!(self.poll_incoming(cx))?;
        if piece.is_none() && self.watch.phase() == Phase::Upload {
            self.watch.enter(Phase::Response);
        }
        Poll::Ready(Ok(piece))
    }

    /// The next piece from the client; `None` at the end.
    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, UploadError>> {
        loop {
            if self.received {
                return Poll::Ready(Ok(None));
            }
            let Poll::Ready(piece) = self.incoming.poll_piece(cx) else {
                if !std::mem::replace(&mut self.waiting, true) {
                    self.waits_since = Some(Instant::now());
                    self.watch.set_on_client(true);
                }
                return Poll::Pending;
            };
            if std::mem::replace(&mut self.waiting, false) {
                let waited = self.waits_since.take().map(|since| since.elapsed());
                self.watch.add_upload_wait(waited.unwrap_or_default());
                self.watch.set_on_client(false);
            }
            self.watch.touch();
            match piece {
                None => self.received = true,
                Some(Err(error)) => return Poll::Ready(Err(UploadError::Client(error))),
                Some(Ok(Piece::Data(data))) if data.is_empty() => {}
                Some(Ok(Piece::Data(data))) => {
                    self.watch.moved(data.len());
                    let Some(left) = self.left.checked_sub(data.len() as u64) else {
                        return Poll::Ready(Err(UploadError::TooLarge));
                    };
                    self.left = left;
                    return Poll::Ready(Ok(Some(data)));
                }
                Some(Ok(Piece::Trailers(trailers))) => self.trailers = trailers,
            }
        }
    }
}
