//! Answers that are read ahead of a slow client, so that it holds no backend.
//!
//! Who sends to a client asks for the next piece when it can send it. Where it does not ask, though a piece was there the last time, it
//! is the client that is slow: then the connection's task reads on by itself, up to a bound, and once the backend's answer is whole here,
//! the backend is free. Nothing is held for a client that is quicker than its backend.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};

use crate::body::{Body, BodyError};
use crate::buffered::{Buffered, Share};

/// An answer that its client and its connection's task share.
pub(crate) type SharedAhead = Rc<RefCell<Ahead>>;

/// What comes out of a body.
type Next = Option<Result<Frame<Bytes>, BodyError>>;

/// A body, and what was read of it that its client has not taken yet.
pub(crate) struct Ahead {
    body: Body,
    ready: VecDeque<Frame<Bytes>>,
    /// What came behind that: its end, or why it broke off.
    end: Option<Next>,
    share: Share,
    /// When it was last asked for a piece there was one: it is not the body that is waited for.
    is_blocked: bool,
}

impl Ahead {
    pub(crate) fn new(body: Body, buffered: &Rc<Buffered>) -> Self {
        Self {
            body,
            ready: VecDeque::new(),
            end: None,
            share: Share::new(buffered),
            is_blocked: false,
        }
    }

    /// The next piece for the client.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        let polled = match self.ready.pop_front() {
            Some(frame) => {
                self.share.give_back(frame.data_ref().map_or(0, Bytes::len));
                Poll::Ready(Some(Ok(frame)))
            }
            None => match self.end.take() {
                Some(end) => Poll::Ready(end),
                None => Pin::new(&mut self.body).poll_frame(cx),
            },
        };
        self.is_blocked = polled.is_ready();
        polled
    }

    /// Reads on where the client does not take what is there; at most `bound` bytes are held.
    pub(crate) fn read_on(&mut self, cx: &mut Context<'_>, bound: usize) {
        while self.is_blocked
            && self.end.is_none()
            && !self.body.is_end_stream()
            && self.share.bytes() < bound
            && self.share.has_room()
        {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.share.take(frame.data_ref().map_or(0, Bytes::len));
                    self.ready.push_back(frame);
                }
                Poll::Ready(end) => self.end = Some(end),
                Poll::Pending => return,
            }
        }
    }

    /// Whether the client's own request is what its answer waits for.
    pub(crate) fn waits_for_client(&self) -> bool {
        self.ready.is_empty() && self.body.waits_for_client()
    }

    pub(crate) fn is_uploading(&self) -> bool {
        self.body.is_uploading()
    }

    pub(crate) fn is_withheld(&self) -> bool {
        self.body.is_withheld()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.ready.is_empty() && matches!(self.end, None | Some(None)) && self.body.is_end_stream()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        match self.body.size_hint().exact() {
            Some(left) => SizeHint::with_exact(left + self.share.bytes() as u64),
            None => SizeHint::default(),
        }
    }
}
