//! HTTP/1 towards clients.
//!
//! A connection is one task. It reads a head ([`head`]), asks the layers, and sends the answer ([`answer`]) as its body comes; what the
//! request has for a body is read by whoever takes it ([`inbound`]), in the same task. Between requests that are far apart only the
//! socket is kept.

mod answer;
mod finish;
mod head;
mod inbound;
mod serve;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::ReadBuf;

use crate::core::Core;
use crate::outgoing::Outgoing;
use crate::received;
use crate::socket::Socket;
use crate::tcp_info::{State, state};
use crate::watch::{Phase, Watch};

pub(crate) use head::Text;
#[cfg(test)]
pub(crate) use head::{Bounds, Coming, Head, take};
pub(crate) use inbound::{BrokenOff, Inbound};
pub(crate) use serve::serve;

/// A client's side of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// It may send more.
    Open,
    /// The same, and it has sent what nobody reads yet: nothing tells of its end behind that.
    Unread,
    /// It sends no more, and may still read.
    Ended,
    /// The connection is reset.
    Gone,
}

/// What the task of an HTTP/1 connection and its requests share.
pub(crate) struct Http1 {
    /// Gone once the connection has ended, whoever still holds a request of it.
    socket: RefCell<Option<Socket>>,
    /// What has come and is of no request yet.
    pub(super) received: RefCell<Bytes>,
    /// What is to be sent.
    outgoing: RefCell<Outgoing>,
    /// The request in hand has a body that has not come to its end.
    has_rest: Cell<bool>,
    /// The number of the request in hand, and whether its final answer has begun.
    request: Cell<u64>,
    answered: Cell<bool>,
    /// What the client's machine had acknowledged before an answer whose taking shows whether the client had left.
    acknowledged_before: Cell<Option<u64>>,
}

impl Http1 {
    /// Over a socket, of which `start` was read already.
    pub(crate) fn new(socket: Socket, start: Bytes) -> Self {
        Self {
            socket: RefCell::new(Some(socket)),
            received: RefCell::new(start),
            outgoing: RefCell::default(),
            has_rest: Cell::new(false),
            request: Cell::new(0),
            answered: Cell::new(true),
            acknowledged_before: Cell::new(None),
        }
    }

    /// The request in hand, while it has no final answer.
    pub(crate) fn in_hand(&self) -> Option<u64> {
        (!self.answered.get()).then(|| self.request.get())
    }

    /// Sends these bytes, an interim answer, before the final one, if there is room among `most` bytes.
    pub(crate) fn say(&self, interim: &[u8], most: usize) {
        let framed = &mut self.outgoing.borrow_mut().framed;
        if framed.len() + interim.len() <= most {
            framed.extend_from_slice(interim);
        }
    }

    /// Whether the request in hand has a body that has not come to its end.
    pub(crate) fn has_rest(&self) -> bool {
        self.has_rest.get()
    }

    /// The body of the request in hand has come to its end.
    fn body_is_over(&self) {
        self.has_rest.set(false);
    }

    /// Reads once behind what was [`received`](Self::received), at most so many bytes; 0 at the end, and where the connection has ended.
    fn poll_fill(
        &self,
        cx: &mut Context<'_>,
        core: &Core,
        received: &mut Bytes,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        match &mut *self.socket.borrow_mut() {
            Some(socket) => received::poll_fill(cx, socket, received, core, most),
            None => Poll::Ready(Ok(0)),
        }
    }

    /// Sends what waits; ready once all of it is with the kernel.
    fn poll_send(&self, cx: &mut Context<'_>, watch: &Watch) -> Poll<io::Result<()>> {
        let outgoing = &mut *self.outgoing.borrow_mut();
        match &mut *self.socket.borrow_mut() {
            Some(socket) => {
                let mut taken = 0;
                let sent = outgoing.poll_send(cx, socket, &mut taken);
                // That an interim answer goes out is no progress of the service.
                if taken > 0 && self.answered.get() {
                    watch.moved(taken);
                }
                sent
            }
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Whether all is with the kernel.
    fn is_sent(&self) -> bool {
        let is_flushed = self.socket.borrow().as_ref().is_none_or(Socket::is_flushed);
        is_flushed && self.outgoing.borrow().is_empty()
    }

    /// Ready once the interim answers to the request in hand are out; from here on there are no more of them. A client that does not read
    /// them is given up as one that does not read a body.
    pub(crate) async fn interims_out(&self, watch: &Watch) {
        self.answered.set(true);
        if self.is_sent() {
            return;
        }
        watch.enter(Phase::Body);
        watch.set_on_client(true);
        poll_fn(|cx| match self.poll_send(cx, watch) {
            Poll::Ready(Ok(())) => Poll::Ready(()),
            // The connection's task meets the same error, and ends.
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        })
        .await;
    }

    /// Ready once there is something to be read, or the client has ended.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        match &*self.socket.borrow() {
            Some(socket) => {
                let peeked = socket.tcp().poll_peek(cx, &mut ReadBuf::new(&mut [0]));
                peeked.map(|_| ())
            }
            None => Poll::Ready(()),
        }
    }

    /// What the client's side of the connection is while it waits for an answer. It costs a system call only when something has
    /// arrived. After a [`Side::Ended`] or [`Side::Unread`] nothing wakes the task any more: it has to ask again by itself.
    fn side(&self, cx: &mut Context<'_>) -> Side {
        let socket = self.socket.borrow();
        let Some(tcp) = socket.as_ref().map(Socket::tcp) else {
            return Side::Gone;
        };
        // Mostly nothing has: to ask for no more than that is quicker.
        if tcp.poll_read_ready(cx).is_pending() {
            return Side::Open;
        }
        match tcp.poll_peek(cx, &mut ReadBuf::new(&mut [0])) {
            Poll::Ready(Err(_)) => Side::Gone,
            // A reset that comes after the end is an error of the socket, and no longer one of reading.
            Poll::Ready(Ok(0)) => match tcp.take_error() {
                Ok(None) => Side::Ended,
                Ok(Some(_)) | Err(_) => Side::Gone,
            },
            // It is the next request, or the goodbye of TLS: what is behind it the state of the connection tells.
            Poll::Ready(Ok(_)) => match state(tcp) {
                Some(State::Reset) => Side::Gone,
                Some(State::Ended) => Side::Ended,
                Some(State::Open) | None => Side::Unread,
            },
            Poll::Pending => Side::Open,
        }
    }

    /// Bytes that the client's machine has acknowledged; `None` where the kernel does not say.
    fn acknowledged(&self) -> Option<u64> {
        self.socket.borrow().as_ref().and_then(Socket::acknowledged)
    }

    /// Gives back what only requests need.
    fn rest(&self) {
        self.outgoing.take();
    }
}
