//! One exchange with a backend over HTTP/2.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Method, Request, StatusCode};

use super::connection::Connection;
use super::head;
use crate::buffered::Share;
use crate::chunked::may_trail;
use crate::core::Core;
use crate::pieces::Pieces;
use crate::response_head::{HeadError, ResponseHead};
use crate::upload::{RequestBody, UploadError};
use crate::upstream::{ExchangeError, Piece, ResponseError};

/// Pieces of a request body sent before other tasks have their turn.
const PIECES_IN_A_ROW: u32 = 32;

/// Bytes of a request body that are kept until there is an answer, to be sent again if the backend did not process the request. Of a longer one
/// nothing is kept, and it is not sent again. Calls of gRPC have bodies, nearly all of them shorter.
const MAX_KEPT_BYTES: usize = 64 * 1024;

/// One exchange. Dropped before its end it is reset (CANCEL), and the connection serves on.
pub(crate) struct Stream {
    connection: Rc<Connection>,
    head: ResponseFuture,
    /// Until the request's end is sent, or the backend wants no more of it.
    sending: Option<SendStream<Bytes>>,
    /// What the backend's window has no room for yet.
    piece: Bytes,
    /// What was taken of the request body, and the trailers behind it; `None` once it is too much, or there is an answer.
    kept: Option<Kept>,
    receiving: Option<RecvStream>,
    /// Bytes of the response that are to come, where its head says.
    left: Option<u64>,
    is_over: bool,
    /// When the request was sent, where the end of its answer tells how many at a time the backends bear.
    pub asked: Option<Instant>,
}

struct Kept {
    pieces: Pieces,
    trailers: HeaderMap,
    /// Of what may be held of all bodies.
    share: Share,
}

/// How sending failed.
enum SendError {
    /// The backend does not take it; reading will tell why.
    Backend,
    Body(UploadError),
}

/// What a stream's error means before there is an answer.
fn no_answer(error: h2::Error) -> ExchangeError {
    // What was refused, or came after the last that a closing connection takes, was not processed (RFC 9113 section 8.7).
    let refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
    if error.is_remote() && (refused || error.is_go_away()) {
        let error = io::Error::other(error);
        return ExchangeError::Died { error, sent: false };
    }
    if error.is_io() {
        let error = error
            .into_io()
            .unwrap_or_else(|| io::ErrorKind::BrokenPipe.into());
        return ExchangeError::Died { error, sent: true };
    }
    match error.is_remote() {
        true => ExchangeError::Reset(error.to_string()),
        false => ExchangeError::Invalid(HeadError::Http2),
    }
}

impl Kept {
    fn new(share: Share) -> Self {
        Self {
            pieces: Pieces::default(),
            trailers: HeaderMap::new(),
            share,
        }
    }

    /// With one more piece, if there is room for it.
    fn with(mut self, piece: &Bytes) -> Option<Self> {
        let fits = self.pieces.len() + piece.len() <= MAX_KEPT_BYTES && self.share.has_room();
        if !fits {
            return None;
        }
        self.share.take(piece.len());
        self.pieces.push(piece.clone());
        Some(self)
    }
}

impl Stream {
    /// Begins an exchange with this request head; `ends` where there is no body. What is kept of it is of this share.
    ///
    /// # Errors
    /// Nothing was sent.
    pub(crate) fn begin(
        connection: Rc<Connection>,
        request: Request<()>,
        ends: bool,
        share: Share,
    ) -> Result<Box<Self>, h2::Error> {
        let (head, sending) = connection.begin(request, ends)?;
        Ok(Box::new(Self {
            connection,
            head,
            sending: (!ends).then_some(sending),
            piece: Bytes::new(),
            kept: (!ends).then(|| Kept::new(share)),
            receiving: None,
            left: None,
            is_over: false,
            asked: None,
        }))
    }

    /// Whether an earlier exchange was answered on its connection.
    pub(crate) fn is_reused(&self) -> bool {
        self.connection.reused.get()
    }

    /// Whether the response has ended.
    pub(crate) fn is_response_over(&self) -> bool {
        self.is_over
    }

    /// The bytes that the response still has, where that is known.
    pub(crate) fn response_left(&self) -> Option<u64> {
        match self.is_over {
            true => Some(0),
            false => self.left,
        }
    }

    /// Sends the request body as far as the backend's window has room; ready once all of it is sent.
    fn poll_upload(&mut self, cx: &mut Context<'_>, body: &mut RequestBody) -> Poll<Result<(), SendError>> {
        for _ in 0..PIECES_IN_A_ROW {
            let Some(sending) = &mut self.sending else {
                return Poll::Ready(Ok(()));
            };
            if !self.piece.is_empty() {
                sending.reserve_capacity(self.piece.len());
                let room = match ready!(sending.poll_capacity(cx)) {
                    Some(Ok(room)) => room.min(self.piece.len()),
                    Some(Err(_)) | None => return Poll::Ready(Err(SendError::Backend)),
                };
                let part = self.piece.split_to(room);
                if !part.is_empty() && sending.send_data(part, false).is_err() {
                    return Poll::Ready(Err(SendError::Backend));
                }
                continue;
            }
            match ready!(body.poll_piece(cx)).map_err(SendError::Body)? {
                Some(data) => {
                    self.kept = self.kept.take().and_then(|kept| kept.with(&data));
                    self.piece = data;
                }
                None => {
                    let came = body.take_trailers();
                    if let (Some(kept), false) = (&mut self.kept, came.is_empty()) {
                        kept.trailers.clone_from(&came);
                    }
                    let ended = match trailers(came) {
                        None => sending.send_data(Bytes::new(), true),
                        Some(trailers) => sending.send_trailers(trailers),
                    };
                    body.set_over();
                    self.sending = None;
                    return Poll::Ready(ended.map_err(|_| SendError::Backend));
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Sends of the request body what can be sent. The backend may want no more of it: then its answer, or reading, says why.
    fn upload(&mut self, cx: &mut Context<'_>, body: &mut Option<RequestBody>) -> Result<(), UploadError> {
        let Some(uploading) = body else { return Ok(()) };
        match self.poll_upload(cx, uploading) {
            Poll::Ready(Err(SendError::Body(error))) => Err(error),
            Poll::Ready(Err(SendError::Backend)) => {
                self.sending = None;
                Ok(())
            }
            Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
        }
    }

    /// Sends the request body as far as the backend takes it, and reads the response head.
    pub(crate) fn poll_exchange(
        &mut self,
        cx: &mut Context<'_>,
        core: &Core,
        method: &Method,
        body: &mut Option<RequestBody>,
    ) -> Poll<Result<ResponseHead, ExchangeError>> {
        self.upload(cx, body).map_err(ExchangeError::Upload)?;
        let answered = ready!(Pin::new(&mut self.head).poll(cx)).map_err(no_answer);
        let kept = self.kept.take();
        if let (Err(ExchangeError::Died { sent: false, .. }), Some(kept), Some(body)) =
            (&answered, kept, body)
        {
            let Kept { pieces, trailers, .. } = kept;
            body.restore(pieces, trailers);
        }
        let answer = answered?;
        let (parts, receiving) = answer.into_parts();
        let answer = http::Response::from_parts(parts, ());
        let (head, left) =
            head::response(answer, core.config.limits.max_headers).map_err(ExchangeError::Invalid)?;
        let bodiless = *method == Method::HEAD
            || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        self.is_over = bodiless || receiving.is_end_stream();
        self.left = left;
        self.receiving = Some(receiving);
        Poll::Ready(Ok(head))
    }

    /// The next piece of the response body; `None` at its end. What is left of the request body is sent on.
    pub(crate) fn poll_response(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut Option<RequestBody>,
    ) -> Poll<Option<Result<Piece, ResponseError>>> {
        if let Err(error) = self.upload(cx, body) {
            return Poll::Ready(Some(Err(error.into())));
        }
        body.take_if(|body| body.is_over());
        let broke = |error: h2::Error| Some(Err(ResponseError::Stream(error.to_string())));
        let Some(receiving) = self.receiving.as_mut().filter(|_| !self.is_over) else {
            return Poll::Ready(None);
        };
        loop {
            match ready!(receiving.poll_data(cx)) {
                Some(Ok(data)) => {
                    // It is on its way to the client, who has taken what came before: the backend may send as much again.
                    let released = receiving.flow_control().release_capacity(data.len());
                    if let Err(error) = released {
                        return Poll::Ready(broke(error));
                    }
                    // h2 has compared the sum of them with Content-Length.
                    self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
                    self.is_over = receiving.is_end_stream();
                    if !data.is_empty() {
                        return Poll::Ready(Some(Ok(Piece::Data(data))));
                    }
                    if self.is_over {
                        return Poll::Ready(None);
                    }
                }
                Some(Err(error)) => return Poll::Ready(broke(error)),
                None => {
                    let came = match ready!(receiving.poll_trailers(cx)) {
                        Ok(came) => came,
                        Err(error) => return Poll::Ready(broke(error)),
                    };
                    self.is_over = true;
                    let came = came.and_then(trailers);
                    return Poll::Ready(came.map(|trailers| Ok(Piece::Trailers(trailers))));
                }
            }
        }
    }

    /// The exchange ended well.
    pub(crate) fn finish(&self) {
        self.connection.reused.set(true);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.connection.leave();
    }
}

/// Trailer fields without those that may not be among them; `None` if there are none.
fn trailers(mut all: HeaderMap) -> Option<HeaderMap> {
    let odd: Vec<_> = all.keys().filter(|name| !may_trail(name)).cloned().collect();
    for name in odd {
        all.remove(name);
    }
    (!all.is_empty()).then_some(all)
}
