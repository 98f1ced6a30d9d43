//! Bodies of answers, wherever they come from.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::account::Account;
use crate::ahead::{Ahead, SharedAhead};
use crate::buffered::{Buffered, Share};
use crate::cache::FetchedBody;
use crate::call::Call;
use crate::exchange::Exchange;
use crate::pool::Pools;
use crate::stats::Failure;
use crate::upload::RequestBody;
use crate::upstream::{Piece, ResponseError, Tunnel};
use crate::watch::Watch;

/// A body in memory is handed over in pieces of at most this, so that a slow client is noticed between two of them.
pub(crate) const MAX_PIECE_BYTES: usize = 64 * 1024;

/// And to an HTTP/2 client, whose stream holds a piece until the client's window has room for it, in pieces of at most this: as much as
/// a DATA frame carries (RFC 9113 section 4.2).
const H2_PIECE_BYTES: usize = 16 * 1024;

/// Why a response body broke off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error(transparent)]
    Backend(#[from] ResponseError),
    #[error("the backend paused too long in its response body")]
    Stalled,
}

impl BodyError {
    /// As what the request that was answered so failed.
    pub(crate) fn failure(&self) -> Failure {
        match self {
            Self::Backend(ResponseError::Upload(_)) => Failure::AbortedByClient,
            Self::Backend(_) | Self::Stalled => Failure::AbortedByBackend,
        }
    }
}

/// What a backend sent, and its part of what may be held for clients.
pub(crate) struct Whole {
    bytes: Bytes,
    share: Share,
    /// The client is handed at most so many bytes at a time.
    most: usize,
}

/// The body of an answer.
pub(crate) enum Body {
    Empty,
    /// Held whole. Its memory may be shared: one answer for many requests.
    Memory(Bytes),
    /// What a backend sent, whole.
    Whole(Whole),
    /// As a backend sends it. Boxed, as what is large: answers are handed up from layer to layer.
    Upstream(Box<UpstreamBody>),
    /// As a backend sends it, and the cache takes it.
    Fetched(FetchedBody),
    /// Read ahead of its client where that is slow.
    Ahead(SharedAhead),
    /// None: behind the head both ends speak another protocol. Whoever has the client's connection takes it.
    Tunnel(Tunnel),
}

impl Body {
    /// Whether the answer came without the request's body, which its client holds back.
    pub(crate) fn is_withheld(&self) -> bool {
        match self {
            Self::Upstream(body) => body.call.body.as_ref().is_some_and(|body| body.held),
            Self::Ahead(ahead) => ahead.borrow().is_withheld(),
            Self::Empty | Self::Memory(_) | Self::Whole(_) | Self::Fetched(_) | Self::Tunnel(_) => false,
        }
    }

    /// Whether all of it is there, and no more than one piece of it.
    pub(crate) fn is_one_piece(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Memory(bytes) => bytes.len() <= MAX_PIECE_BYTES,
            Self::Whole(whole) => whole.bytes.len() <= whole.most,
            Self::Upstream(_) | Self::Fetched(_) | Self::Ahead(_) | Self::Tunnel(_) => false,
        }
    }

    /// Bytes that have come of it and are held before anybody has asked for them.
    pub(crate) fn unread(&self) -> usize {
        match self {
            Self::Upstream(body) => body.upstream.as_ref().map_or(0, Exchange::unread),
            _ => 0,
        }
    }

    /// Whether the client still sends its request while it is answered.
    pub(crate) fn is_uploading(&self) -> bool {
        match self {
            Self::Upstream(body) => body.call.body.is_some(),
            Self::Ahead(ahead) => ahead.borrow().is_uploading(),
            Self::Empty | Self::Memory(_) | Self::Whole(_) | Self::Fetched(_) | Self::Tunnel(_) => false,
        }
    }

    /// Whether the client is waited for: the rest of its request, which is answered already.
    pub(crate) fn waits_for_client(&self) -> bool {
        match self {
            Self::Upstream(body) => body.call.body.as_ref().is_some_and(|body| body.waiting),
            Self::Ahead(ahead) => ahead.borrow().waits_for_client(),
            Self::Empty | Self::Memory(_) | Self::Whole(_) | Self::Fetched(_) | Self::Tunnel(_) => false,
        }
    }
}

impl Body {
    /// The same body for a client that may be slow: what has come whole is held as that, what comes is read ahead as its `watch` says.
    pub(crate) fn for_client(mut self, watch: &Watch, buffered: &Rc<Buffered>, http2: bool) -> Self {
        let mut share = Share::new(buffered);
        let most = match http2 {
            true => H2_PIECE_BYTES,
            false => MAX_PIECE_BYTES,
        };
        match &mut self {
            Self::Upstream(body) => {
                if let Some(bytes) = share.has_room().then(|| body.take_whole()).flatten() {
                    share.take(bytes.len());
                    return Self::Whole(Whole { bytes, share, most });
                }
            }
            // What the cache does not take after all is its client's to read.
            Self::Fetched(_) => {}
            _ => return self,
        }
        let ahead = Rc::new(RefCell::new(Ahead::new(self, share, most)));
        watch.ahead.replace(Some(ahead.clone()));
        Self::Ahead(ahead)
    }

    /// Whether more of it may be read than its client has asked for: what the cache fetches is held there, until the rest of it is left to
    /// its client.
    pub(crate) fn may_be_read_ahead(&self) -> bool {
        match self {
            Self::Fetched(body) => body.is_left_to_client(),
            _ => true,
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Empty | Self::Tunnel(_) => Poll::Ready(None),
            Self::Memory(bytes) => {
                let piece = bytes.split_to(bytes.len().min(MAX_PIECE_BYTES));
                Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
            }
            Self::Whole(Whole { bytes, share, most }) => {
                let piece = bytes.split_to(bytes.len().min(*most));
                share.give_back(piece.len());
                Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
            }
            Self::Upstream(body) => body.poll_frame(cx),
            Self::Fetched(body) => body.poll_frame(cx),
            Self::Ahead(ahead) => ahead.borrow_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty | Self::Tunnel(_) => true,
            Self::Memory(bytes) => bytes.is_empty(),
            Self::Whole(whole) => whole.bytes.is_empty(),
            Self::Upstream(body) => body.is_over(),
            Self::Fetched(body) => body.is_over(),
            Self::Ahead(ahead) => ahead.borrow().is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let left = match self {
            Self::Empty | Self::Tunnel(_) => Some(0),
            Self::Memory(bytes) => Some(bytes.len() as u64),
            Self::Whole(whole) => Some(whole.bytes.len() as u64),
            Self::Upstream(body) => body.left(),
            Self::Fetched(body) => body.left(),
            Self::Ahead(ahead) => return ahead.borrow().size_hint(),
        };
        left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// A response body, the connection it comes over, and what the backend is charged for it.
pub(crate) struct UpstreamBody {
    pub upstream: Option<Exchange>,
    /// The backend keeps the connection open.
    pub keep_alive: bool,
    /// What was asked; it has what is left of the request body.
    pub call: Box<Call>,
    pub account: Account,
    /// At most [`crate::MAX_BACKENDS`]. Small, for answers carry it along.
    pub backend: u16,
    pub pools: Rc<Pools>,
}

impl UpstreamBody {
    /// The last piece is out: gives the connection back and closes the account.
    pub(crate) fn finish(&mut self) {
        let mut upstream = self.upstream.take();
        let asked = upstream.as_mut().and_then(|upstream| upstream.asked().take());
        if let (Some(asked), Some(exchanges)) = (asked, &self.account.core().exchanges) {
            exchanges.answered(asked.elapsed());
        }
        match upstream {
            Some(Exchange::Http1(upstream))
                if self.keep_alive
                    && self.call.body.as_ref().is_none_or(RequestBody::is_over)
                    && upstream.is_clean() =>
            {
                self.pools.give_back(self.backend.into(), upstream);
            }
            Some(Exchange::Http2(stream)) => stream.finish(),
            Some(Exchange::Http1(_)) | None => {}
        }
        self.account.complete();
        self.call.watch.set_holds_backend(false);
        self.call.place = None;
    }

    /// Whether nothing is left of it.
    pub(crate) fn is_over(&self) -> bool {
        self.upstream.is_none()
    }

    /// All of it, where all of it has come with its head: then its backend is free at once.
    fn take_whole(&mut self) -> Option<Bytes> {
        let upstream = self.upstream.as_ref().filter(|_| self.call.body.is_none())?;
        if !upstream.is_all_read() {
            return None;
        }
        let mut cx = Context::from_waker(Waker::noop());
        match self.poll_frame(&mut cx) {
            Poll::Ready(Some(Ok(frame))) => frame.into_data().ok(),
            _ => None,
        }
    }

    /// Whether only the end of its connection says where it ends.
    pub(crate) fn ends_with_connection(&self) -> bool {
        let upstream = self.upstream.as_ref();
        upstream.is_some_and(|upstream| upstream.response_ends_with_connection())
    }

    /// Bytes that are left, where that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        match &self.upstream {
            Some(upstream) => upstream.response_left(),
            None => Some(0),
        }
    }

    /// The next piece.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(upstream) = &mut self.upstream else {
            return Poll::Ready(None);
        };
        let piece = match upstream.poll_response(cx, self.account.core(), &mut self.call.body) {
            // The time of a client that does not take what is there is not the backend's.
            Poll::Pending if !self.call.watch.expired() || self.call.watch.is_of_client() => {
                if self.call.body.as_ref().is_none_or(|body| !body.waiting) {
                    self.account.waits();
                }
                return Poll::Pending;
            }
            Poll::Pending => Some(Err(BodyError::Stalled)),
            Poll::Ready(piece) => piece.map(|piece| piece.map_err(BodyError::from)),
        };
        self.account.goes_on();
        let frame = match piece {
            None => {
                self.finish();
                return Poll::Ready(None);
            }
            Some(Err(error)) => {
                self.upstream = None;
                self.account.fail(error.failure());
                self.call.place = None;
                return Poll::Ready(Some(Err(error)));
            }
            Some(Ok(Piece::Data(data))) => {
                self.account.response_bytes(data.len());
                Frame::data(data)
            }
            Some(Ok(Piece::Trailers(trailers))) => {
                self.account.read(&trailers);
                Frame::trailers(trailers)
            }
        };
        self.call.watch.touch();
        if upstream.is_response_over() {
            self.finish();
        }
        Poll::Ready(Some(Ok(frame)))
    }
}
