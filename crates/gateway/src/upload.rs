//! Request bodies on their way through: never held whole, one piece at a time, paid for by the reader.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::Body;
use hyper::body::Incoming;

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
    ) -> Self {
        Self {
            incoming,
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
