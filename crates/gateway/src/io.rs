//! The byte stream under a client's connection.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::conn::ClientConn;
use crate::tcp_info::acknowledged;
use crate::watch::Phase;

/// A socket, with or without TLS.
pub(crate) trait ClientStream: AsyncRead + AsyncWrite + Unpin + 'static {
    /// Makes the close a reset, which no client can take for a body's regular end.
    fn reset_on_close(&self) {
        if let Err(error) = socket2::SockRef::from(self.tcp()).set_linger(Some(Duration::ZERO)) {
            tracing::debug!(%error, "a connection could not be reset");
        }
    }

    /// The socket itself.
    fn tcp(&self) -> &TcpStream;
}

impl ClientStream for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl ClientStream for TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// Up to this many bytes of head and body are copied together and sent by one plain write.
const COALESCE_BYTES: usize = 4096;

/// A client's socket under hyper. For HTTP/1 it notes when a request head begins, and keeps its raw bytes for
/// the checks that the parsed head no longer allows.
pub(crate) struct ClientIo<S> {
    inner: Rc<RefCell<TokioIo<S>>>,
    /// What was read before the protocol was known.
    start: Bytes,
    client: Rc<ClientConn>,
}

impl<S: ClientStream> ClientIo<S> {
    pub(crate) fn new(inner: S, start: Bytes, client: Rc<ClientConn>) -> Self {
        Self {
            inner: Rc::new(RefCell::new(TokioIo::new(inner))),
            start,
            client,
        }
    }

    /// What the socket takes of an answer the client has taken, as far as is seen here.
    fn note_written(&self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written
            && !self.client.http2
        {
            self.client.watch.moved(*bytes);
        }
    }

    /// Ready once there is something to be read, or the client has ended.
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.start.is_empty() {
            return Poll::Ready(());
        }
        let inner = self.inner.borrow();
        let mut byte = [0];
        inner
            .inner()
            .tcp()
            .poll_peek(cx, &mut ReadBuf::new(&mut byte))
            .map(|_| ())
    }

    /// The same socket, read on from what hyper had read of a request.
    pub(crate) fn resumed(self, read: &[u8]) -> Self {
        // What is read again is noted again.
        self.client.raw_heads.take();
        // A copy, nearly always of nothing: even empty it would hold hyper's whole buffer.
        let start = Bytes::copy_from_slice(read);
        Self { start, ..self }
    }

    /// The same socket for whoever watches over the connection.
    pub(crate) fn share(&self) -> SharedStream<S> {
        SharedStream(self.inner.clone())
    }
}

/// A client's side of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// It may send more.
    Open,
    /// It sends no more, and may still read.
    Ended,
    /// The connection is reset.
    Gone,
}

/// A client's socket, seen beside hyper.
pub(crate) struct SharedStream<S>(Rc<RefCell<TokioIo<S>>>);

impl<S: ClientStream> SharedStream<S> {
    /// What the client's side of the connection is while it waits for an answer. It costs a system call only when something
    /// has arrived. After a [`Side::Ended`] nothing wakes the task any more: it has to ask again by itself.
    pub(crate) fn side(&self, cx: &mut Context<'_>) -> Side {
        let inner = self.0.borrow();
        let tcp = inner.inner().tcp();
        // Mostly nothing has: to ask for no more than that is quicker.
        if tcp.poll_read_ready(cx).is_pending() {
            return Side::Open;
        }
        let mut byte = [0];
        match tcp.poll_peek(cx, &mut ReadBuf::new(&mut byte)) {
            Poll::Ready(Err(_)) => Side::Gone,
            // A reset that comes after the end is an error of the socket, and no longer one of reading.
            Poll::Ready(Ok(0)) => match tcp.take_error() {
                Ok(None) => Side::Ended,
                Ok(Some(_)) | Err(_) => Side::Gone,
            },
            Poll::Ready(Ok(_)) | Poll::Pending => Side::Open,
        }
    }

    /// Writes to the client beside hyper, which must have nothing of its own to write.
    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(self.0.borrow_mut().inner_mut()).poll_write(cx, bytes)
    }

    /// Sees to it that what was written leaves.
    pub(crate) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.0.borrow_mut().inner_mut()).poll_flush(cx)
    }

    /// Bytes that the client's machine has acknowledged; `None` where the kernel does not say.
    pub(crate) fn acknowledged(&self) -> Option<u64> {
        acknowledged(self.0.borrow().inner().tcp())
    }

    /// The socket, once hyper has let go of it.
    pub(crate) fn into_inner(self) -> Option<S> {
        Rc::into_inner(self.0).map(|inner| inner.into_inner().into_inner())
    }
}

/// Notes bytes that belong to a request head.
///
/// # Errors
/// A request line does not end within the limit: for that there is a status (RFC 9112 section 3), which hyper does not know from that of a
/// head that is too large. Or what came first on the connection is not HTTP at all. Somebody who speaks another protocol (or a broken
/// HTTP/2 preface) is better served by a closed connection than by an answer it cannot read.
fn note_head(client: &ClientConn, bytes: &[u8]) -> io::Result<()> {
    let mut raw = client.raw_heads.borrow_mut();
    if client.watch.phase() != Phase::Head {
        client.watch.enter(Phase::Head);
        raw.begin();
    }
    let limit = client.core().config.limits.max_header_bytes;
    raw.note(bytes, limit);
    if raw.bytes().len() >= limit && !raw.bytes().trim_ascii_start().contains(&b'\n') {
        client.overlong.set(true);
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the request line is too long",
        ));
    }
    if !client.looked.get() {
        // An empty line or two may come before the request line (RFC 9112 section 2.2).
        let line = raw.bytes().trim_ascii_start();
        if let Some(end) = line.iter().position(|byte| *byte == b'\n') {
            client.looked.set(true);
            if !line[..end]
                .windows(5)
                .any(|word| word.eq_ignore_ascii_case(b"HTTP/"))
            {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "this is not HTTP"));
            }
        }
    }
    Ok(())
}

impl<S: ClientStream> Read for ClientIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let expects_head = !this.client.http2
            && matches!(
                this.client.watch.phase(),
                Phase::Fresh | Phase::Idle | Phase::Head
            );
        if !this.start.is_empty() {
            let length = this.start.len().min(cursor.remaining());
            if expects_head {
                note_head(&this.client, &this.start[..length])?;
            }
            cursor.put_slice(&this.start[..length]);
            this.start.advance(length);
            return Poll::Ready(Ok(()));
        }
        if !expects_head {
            return Pin::new(&mut *this.inner.borrow_mut()).poll_read(cx, cursor);
        }
        let mut scratch = this.client.core().scratch.borrow_mut();
        let length = scratch.len().min(cursor.remaining());
        let mut buffer = ReadBuf::new(&mut scratch[..length]);
        ready!(Pin::new(this.inner.borrow_mut().inner_mut()).poll_read(cx, &mut buffer))?;
        let read = buffer.filled();
        if !read.is_empty() {
            note_head(&this.client, read)?;
            cursor.put_slice(read);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: ClientStream> Write for ClientIo<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.client.interims.hyper_writes();
        let written = Pin::new(&mut *self.inner.borrow_mut()).poll_write(cx, bytes);
        self.note_written(&written);
        written
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut *self.inner.borrow_mut()).poll_flush(cx);
        if let Poll::Ready(Ok(())) = flushed {
            self.client.interims.hyper_is_flushed();
        }
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.inner.borrow_mut()).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.borrow().is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &*self;
        this.client.interims.hyper_writes();
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        if total > COALESCE_BYTES {
            let written = Pin::new(&mut *this.inner.borrow_mut()).poll_write_vectored(cx, slices);
            this.note_written(&written);
            return written;
        }
        // A small response in one plain write costs the kernel less than a gather of head and body.
        let mut scratch = this.client.core().scratch.borrow_mut();
        let mut length = 0;
        for slice in slices {
            scratch[length..length + slice.len()].copy_from_slice(slice);
            length += slice.len();
        }
        let written = Pin::new(&mut *this.inner.borrow_mut()).poll_write(cx, &scratch[..length]);
        this.note_written(&written);
        written
    }
}
