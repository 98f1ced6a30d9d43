//! One HTTP/1.1 connection, driven by the task that uses it: a write and a read for each request, no task, channel or lock of
//! its own, and no memory but for what comes in pieces. Requests are written as bytes that the load composes, answers are read
//! up to their end and their bodies thrown away.

mod answer;

use answer::AnswerReader;
use bytes::Bytes;
use http::StatusCode;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// How much is read at a time, bytes.
const BUFFER: usize = 64 << 10;

/// What the connections of a thread share.
pub(crate) struct Shared {
    /// Bytes that they moved.
    pub(crate) received: Cell<u64>,
    pub(crate) sent: Cell<u64>,
    /// Into which one of them reads at a time.
    buffer: RefCell<Box<[u8]>>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            received: Cell::new(0),
            sent: Cell::new(0),
            buffer: RefCell::new(vec![0; BUFFER].into()),
        }
    }
}

/// A connection that a request can be sent on.
pub(crate) struct Connection {
    stream: TcpStream,
    shared: Rc<Shared>,
    reader: AnswerReader,
    /// What the socket did not take yet of the request's head.
    unsent: Vec<u8>,
    /// And of its body.
    unsent_body: Bytes,
    /// The request cannot be sent to its end, but an answer may have come before.
    write_failed: bool,
    /// Nothing can be asked on it any more.
    ended: bool,
    /// Whether a request was answered on it.
    pub(crate) used: bool,
}

/// A complete answer.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body_bytes: u64,
    /// Whether the body's beginning holds the marker that was looked for.
    pub(crate) has_marker: bool,
}

/// Why there was no complete answer.
pub(crate) enum Broken {
    /// The connection had ended before the request was given to it: nothing was sent.
    BeforeSending,
    /// It ended before any part of the answer came.
    BeforeAnswer,
    /// The answer was cut short or is not HTTP.
    InAnswer,
}

impl Connection {
    /// Connects to the first address that answers.
    pub(crate) async fn open(addresses: &[SocketAddr], shared: &Rc<Shared>) -> io::Result<Self> {
        let stream = TcpStream::connect(addresses).await?;
        // Requests are written whole; waiting for more to send with them would only delay them.
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            shared: Rc::clone(shared),
            reader: AnswerReader::new(),
            unsent: Vec::new(),
            unsent_body: Bytes::new(),
            write_failed: false,
            ended: false,
            used: false,
        })
    }

    /// Watches a connection on which nothing was asked; ready once it has ended, as it has where something comes unasked.
    pub(crate) fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.ended {
            let mut byte = [0];
            let _ = ready!(poll_read(&mut self.stream, &mut byte, cx));
            self.ended = true;
        }
        Poll::Ready(())
    }

    /// Whether a request may be sent.
    pub(crate) async fn ready(&mut self) -> Result<(), Broken> {
        poll_fn(|cx| {
            Poll::Ready(match self.poll_ended(cx) {
                Poll::Ready(()) => Err(Broken::BeforeSending),
                Poll::Pending => Ok(()),
            })
        })
        .await
    }

    /// Sends a request, of which this is the head and its body, and reads the whole answer, whose body is thrown away but for
    /// its first bytes, in which a marker is looked for where there is one. Call [`Connection::ready`] before.
    ///
    /// The head's memory is that of all connections: only what the socket does not take at once is copied.
    pub(crate) async fn exchange(
        &mut self,
        head: &RefCell<Vec<u8>>,
        body: Bytes,
        is_head: bool,
        marker: Option<&[u8]>,
    ) -> Result<Answer, Broken> {
        self.reader.begin(is_head, marker.is_some());
        self.write_failed = false;
        let mut begun = Some(body);
        let mut nothing_sent = false;
        poll_fn(|cx| {
            if let Some(body) = begun.take() {
                nothing_sent = self.begin(&head.borrow(), body, cx) == 0;
            } else if !self.unsent.is_empty() || !self.unsent_body.is_empty() {
                self.go_on_sending(cx);
            }
            self.poll_answer(cx)
        })
        .await
        .map_err(|broken| match broken {
            Broken::BeforeAnswer if nothing_sent && self.write_failed => Broken::BeforeSending,
            broken => broken,
        })?;
        self.used = true;
        let is_sent = self.unsent.is_empty() && self.unsent_body.is_empty() && !self.write_failed;
        // A server that answered before it had the whole request may take the rest for another.
        self.ended = !self.reader.keeps_alive || !is_sent;
        Ok(Answer {
            status: self.reader.status,
            body_bytes: self.reader.body_bytes,
            has_marker: marker.is_some_and(|marker| self.reader.holds(marker)),
        })
    }

    /// Sends what the socket takes of a request and keeps the rest; how many bytes went.
    fn begin(&mut self, head: &[u8], mut body: Bytes, cx: &mut Context<'_>) -> usize {
        let sent = match self.write(head, &body, cx) {
            Some(sent) => sent,
            None if self.write_failed => return 0,
            None => 0,
        };
        if sent < head.len() {
            self.unsent.extend_from_slice(&head[sent..]);
        }
        let _ = body.split_to(sent.saturating_sub(head.len()).min(body.len()));
        self.unsent_body = body;
        if !self.unsent.is_empty() || !self.unsent_body.is_empty() {
            // So that this task is woken when the socket takes more.
            self.go_on_sending(cx);
        }
        sent
    }

    fn go_on_sending(&mut self, cx: &mut Context<'_>) {
        while !self.unsent.is_empty() || !self.unsent_body.is_empty() {
            let (head, mut body) = (
                std::mem::take(&mut self.unsent),
                std::mem::take(&mut self.unsent_body),
            );
            let sent = self.write(&head, &body, cx);
            if self.write_failed {
                return;
            }
            let bytes = sent.unwrap_or(0);
            self.unsent = head[bytes.min(head.len())..].to_vec();
            let _ = body.split_to(bytes.saturating_sub(head.len()).min(body.len()));
            self.unsent_body = body;
            if sent.is_none() {
                return;
            }
        }
    }

    /// One write; none where the socket is full, or where it failed.
    fn write(&mut self, head: &[u8], body: &[u8], cx: &mut Context<'_>) -> Option<usize> {
        let stream = Pin::new(&mut self.stream);
        let written = match (head.is_empty(), body.is_empty()) {
            (_, true) => stream.poll_write(cx, head),
            (true, false) => stream.poll_write(cx, body),
            (false, false) => stream.poll_write_vectored(cx, &[IoSlice::new(head), IoSlice::new(body)]),
        };
        match written {
            Poll::Ready(Ok(bytes)) => {
                self.shared.sent.set(self.shared.sent.get() + bytes as u64);
                Some(bytes)
            }
            Poll::Ready(Err(_)) => {
                self.write_failed = true;
                None
            }
            Poll::Pending => None,
        }
    }

    /// Reads until the answer is whole.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        let buffer = &mut *self.shared.buffer.borrow_mut();
        loop {
            let read = ready!(poll_read(&mut self.stream, buffer, cx));
            let bytes = match read {
                Ok(bytes @ 1..) => bytes,
                Ok(0) if self.reader.ended() => return Poll::Ready(Ok(())),
                Ok(0) | Err(_) if self.reader.has_begun => return Poll::Ready(Err(Broken::InAnswer)),
                Ok(_) | Err(_) => return Poll::Ready(Err(Broken::BeforeAnswer)),
            };
            self.shared
                .received
                .set(self.shared.received.get() + bytes as u64);
            match self.reader.feed(&buffer[..bytes]) {
                Ok(true) => return Poll::Ready(Ok(())),
                Ok(false) => {}
                Err(_) => return Poll::Ready(Err(Broken::InAnswer)),
            }
        }
    }
}

/// One read. One that does not fill the buffer costs no second to see that nothing more is there: tokio takes it for that.
fn poll_read(stream: &mut TcpStream, buffer: &mut [u8], cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
    let mut buffer = ReadBuf::new(buffer);
    ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
    Poll::Ready(Ok(buffer.filled().len()))
}
