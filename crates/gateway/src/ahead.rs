//! Answers that are read ahead of a slow client, so that it holds no backend.
//!
//! Who sends to a client asks for the next piece when it can send it. Where it does not ask, though a piece was there the last time, it
//! is the client that is slow: then the connection's task reads on by itself, up to a bound, and once the backend's answer is whole here,
//! the backend is free. Nothing is held for a client that is quicker than its backend.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame, SizeHint};

use crate::body::{Body, BodyError};
use crate::buffered::Share;
use crate::pieces::Pieces;

/// An answer that its client and its connection's task share.
pub(crate) type SharedAhead = Rc<RefCell<Ahead>>;

/// What comes out of a body.
type Next = Option<Result<Frame<Bytes>, BodyError>>;

/// A body, and what was read of it that its client has not taken yet.
pub(crate) struct Ahead {
    body: Body,
    ready: Pieces,
    /// The trailers behind that.
    trailers: Option<HeaderMap>,
    /// What came behind that: its end, or why it broke off.
    end: Option<Next>,
    share: Share,
    /// Of that, what had come with its head and is with the body still.
    unread: usize,
    /// The client is handed at most so many bytes at a time.
    most: usize,
    /// When it was last asked for a piece there was one: it is not the body that is waited for.
    is_blocked: bool,
}

impl Ahead {
    /// What it holds is of this share; the client is handed at most so many bytes at a time.
    pub(crate) fn new(body: Body, mut share: Share, most: usize) -> Self {
        let unread = body.unread();
        share.take(unread);
        Self {
            body,
            ready: Pieces::default(),
            trailers: None,
            end: None,
            share,
            unread,
            most,
            is_blocked: false,
        }
    }

    /// The next piece for the client.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        let polled = if let Some(piece) = self.ready.pop_at_most(self.most) {
            self.share.give_back(piece.len());
            Poll::Ready(Some(Ok(Frame::data(piece))))
        } else if let Some(trailers) = self.trailers.take() {
            Poll::Ready(Some(Ok(Frame::trailers(trailers))))
        } else {
            match self.end.take() {
                Some(end) => Poll::Ready(end),
                None => self.poll_body(cx).map(|next| self.part(next)),
            }
        };
        self.is_blocked = polled.is_ready();
        polled
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if polled.is_ready() {
            // What is read from here on the client asked for.
            self.share.give_back(std::mem::take(&mut self.unread));
        }
        polled
    }

    /// As much of it as the client is handed at a time; the rest waits.
    fn part(&mut self, next: Next) -> Next {
        let Some(Ok(frame)) = next else { return next };
        Some(Ok(match frame.into_data() {
            Ok(mut piece) if piece.len() > self.most => {
                let rest = piece.split_off(self.most);
                self.share.take(rest.len());
                self.ready.push(rest);
                Frame::data(piece)
            }
            Ok(piece) => Frame::data(piece),
            Err(frame) => frame,
        }))
    }

    /// Reads on where the client does not take what is there; at most `bound` bytes are held.
    pub(crate) fn read_on(&mut self, cx: &mut Context<'_>, bound: usize) {
        while self.is_blocked
            && self.body.may_be_read_ahead()
            && self.end.is_none()
            && self.trailers.is_none()
            && !self.body.is_end_stream()
            && self.ready.len() < bound
            && self.share.has_room()
        {
            match self.poll_body(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(piece) => {
                        self.share.take(piece.len());
                        self.ready.push(piece);
                    }
                    Err(frame) => self.trailers = frame.into_trailers().ok(),
                },
                Poll::Ready(end) => self.end = Some(end),
                Poll::Pending => return,
            }
        }
    }

    /// Nothing that was read waits for the client.
    fn has_none(&self) -> bool {
        self.ready.is_empty() && self.trailers.is_none()
    }

    /// Whether the client's own request is what its answer waits for.
    pub(crate) fn waits_for_client(&self) -> bool {
        self.has_none() && self.body.waits_for_client()
    }

    pub(crate) fn is_uploading(&self) -> bool {
        self.body.is_uploading()
    }

    pub(crate) fn is_withheld(&self) -> bool {
        self.body.is_withheld()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.has_none() && matches!(self.end, None | Some(None)) && self.body.is_end_stream()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        match self.body.size_hint().exact() {
            Some(left) => SizeHint::with_exact(left + self.ready.len() as u64),
            None => SizeHint::default(),
        }
    }
}
