//! Interim (1xx) answers on their way to the client (RFC 9110 section 15.2: a proxy forwards them).
//!
//! hyper's server knows no interim answer but its own 100. Towards an HTTP/1.1 client the gateway owns the socket under hyper,
//! and writes them there itself: while a request is answered hyper has nothing to write but what is left of the answer before,
//! so its last flush says when the connection is between two messages; and the final head is not given to hyper before the
//! interim ones are out. An HTTP/2 connection's frames are hyper's alone, and a client of HTTP/1.0 knows no interim answer:
//! neither is sent any.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use http::header;

use crate::call::Call;
use crate::conn::ClientConn;
use crate::headers::add_via;
use crate::io::{ClientStream, SharedStream};
use crate::response_head::ResponseHead;
use crate::watch::{Phase, Watch};

/// The interim answers of one HTTP/1 connection.
#[derive(Debug, Default)]
pub(crate) struct Interims {
    /// Heads that the kernel has not taken yet, at most `limits.max_header_bytes`.
    waiting: RefCell<Vec<u8>>,
    /// They are written, and perhaps not flushed yet.
    unflushed: Cell<bool>,
    /// hyper has something to write.
    hyper_writes: Cell<bool>,
    /// The number of the request in hand, and whether its final head may be on its way.
    request: Cell<u64>,
    answered: Cell<bool>,
    /// Who waits for the interim heads to be out.
    waker: RefCell<Option<Waker>>,
}

impl Interims {
    pub(crate) fn hyper_writes(&self) {
        self.hyper_writes.set(true);
    }

    /// hyper flushes when it has written everything, and only then.
    pub(crate) fn hyper_is_flushed(&self) {
        self.hyper_writes.set(false);
    }

    /// Whether hyper has nothing left to write.
    pub(crate) fn is_hyper_flushed(&self) -> bool {
        !self.hyper_writes.get()
    }

    /// A request was read; the number it has.
    fn next_request(&self) -> u64 {
        self.answered.set(false);
        self.request.set(self.request.get() + 1);
        self.request.get()
    }

    fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty() && !self.unflushed.get()
    }

    /// Whether anything is to be written.
    pub(crate) fn is_due(&self) -> bool {
        !self.is_empty() && !self.hyper_writes.get()
    }

    /// Ready once the request's interim answers are out; a client that does not read them is given up as one that does not
    /// read a body. From here on there are no more of them.
    pub(crate) async fn out(&self, watch: &Watch) {
        self.answered.set(true);
        if self.is_empty() {
            return;
        }
        watch.enter(Phase::Body);
        poll_fn(|cx| {
            if self.is_empty() {
                return Poll::Ready(());
            }
            self.waker.replace(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    /// Writes what waits; to be called between two messages ([`Interims::is_due`]).
    ///
    /// # Errors
    /// The client takes nothing any more.
    pub(crate) fn poll_write<S: ClientStream>(
        &self,
        cx: &mut Context<'_>,
        stream: &SharedStream<S>,
    ) -> Poll<io::Result<()>> {
        let mut waiting = self.waiting.borrow_mut();
        while !waiting.is_empty() {
            self.unflushed.set(true);
            let written = ready!(stream.poll_write(cx, &waiting))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            waiting.drain(..written);
        }
        ready!(stream.poll_flush(cx))?;
        self.unflushed.set(false);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
        Poll::Ready(Ok(()))
    }
}

/// The request that interim answers are for. Another one on its connection is not sent them.
#[derive(Clone)]
pub(crate) struct InterimTo {
    client: Rc<ClientConn>,
    request: u64,
}

impl InterimTo {
    /// For the request that was just read, of an HTTP/1.1 client.
    pub(crate) fn new(client: &Rc<ClientConn>) -> Self {
        Self {
            client: client.clone(),
            request: client.interims.next_request(),
        }
    }

    /// Sends the client this interim head; one for which there is no room, because the client does not read, is dropped.
    fn send(&self, head: &ResponseHead, via: bool) {
        let interims = &self.client.interims;
        if interims.answered.get() || interims.request.get() != self.request {
            return;
        }
        let mut headers = head.headers.clone();
        // RFC 9110 section 8.6: none of them has content.
        headers.remove(header::CONTENT_LENGTH);
        if via {
            add_via(&mut headers, false);
        }
        let mut text = format!("HTTP/1.1 {}", head.status.as_str()).into_bytes();
        text.push(b' ');
        text.extend_from_slice(head.status.canonical_reason().unwrap_or_default().as_bytes());
        text.extend_from_slice(b"\r\n");
        for (name, value) in &headers {
            text.extend_from_slice(name.as_str().as_bytes());
            text.extend_from_slice(b": ");
            text.extend_from_slice(value.as_bytes());
            text.extend_from_slice(b"\r\n");
        }
        text.extend_from_slice(b"\r\n");
        let mut waiting = interims.waiting.borrow_mut();
        if waiting.len() + text.len() <= self.client.core().config.limits.max_header_bytes {
            waiting.extend_from_slice(&text);
            // The exchange may be another task's.
            self.client.watch.wake();
        }
    }
}

impl Call {
    /// A backend sent this interim head. A 100 is the word that the client waits for, where it waits for one: hyper says it
    /// when the body is asked for.
    pub(crate) fn interim(&mut self, head: &ResponseHead, via: bool) {
        let is_continue = head.status == http::StatusCode::CONTINUE;
        match &self.body {
            Some(body) if is_continue && body.held => self.ask_for_body(),
            // The client was asked already: by the gateway, or it did not wait.
            Some(body) if is_continue && body.expected => {}
            _ => {
                if let Some(to) = &self.interim {
                    to.send(head, via);
                }
            }
        }
    }

    /// The client is asked for the body that it holds back.
    pub(crate) fn ask_for_body(&mut self) {
        if let Some(body) = self.body.as_mut().filter(|body| body.held) {
            body.held = false;
            self.watch.enter(Phase::Upload);
        }
    }
}
