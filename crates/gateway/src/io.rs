//! The byte stream under a client's connection.

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

use crate::client::ClientConn;
use crate::watch::Phase;

/// A socket, with or without TLS.
pub(crate) trait ClientStream: AsyncRead + AsyncWrite + Unpin + 'static {
    /// Makes the close a reset, which no client can take for a body's regular end.
    fn reset_on_close(&self);
}

impl ClientStream for TcpStream {
    fn reset_on_close(&self) {
        if let Err(error) = socket2::SockRef::from(self).set_linger(Some(Duration::ZERO)) {
            tracing::debug!(%error, "a connection could not be reset");
        }
    }
}

impl ClientStream for TlsStream<TcpStream> {
    fn reset_on_close(&self) {
        self.get_ref().0.reset_on_close();
    }
}

/// A client's socket under hyper. For HTTP/1 it notes when a request head begins, and keeps its raw bytes for
/// the checks that the parsed head no longer allows.
pub(crate) struct ClientIo<S> {
    inner: TokioIo<S>,
    /// What was read before the protocol was known.
    start: Bytes,
    client: Rc<ClientConn>,
}

impl<S: ClientStream> ClientIo<S> {
    pub(crate) fn new(inner: S, start: Bytes, client: Rc<ClientConn>) -> Self {
        Self {
            inner: TokioIo::new(inner),
            start,
            client,
        }
    }

    pub(crate) fn into_inner(self) -> S {
        self.inner.into_inner()
    }
}

/// Notes bytes that belong to a request head.
fn note_head(client: &ClientConn, bytes: &[u8]) {
    let mut raw = client.raw_heads.borrow_mut();
    if client.watch.phase() != Phase::Head {
        client.watch.enter(Phase::Head);
        raw.clear();
    }
    let room = client
        .core()
        .config
        .limits
        .max_header_bytes
        .saturating_sub(raw.len());
    raw.extend_from_slice(&bytes[..bytes.len().min(room)]);
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
                note_head(&this.client, &this.start[..length]);
            }
            cursor.put_slice(&this.start[..length]);
            this.start.advance(length);
            return Poll::Ready(Ok(()));
        }
        if !expects_head {
            return Pin::new(&mut this.inner).poll_read(cx, cursor);
        }
        let mut scratch = this.client.core().scratch.borrow_mut();
        let length = scratch.len().min(cursor.remaining());
        let mut buffer = ReadBuf::new(&mut scratch[..length]);
        ready!(Pin::new(this.inner.inner_mut()).poll_read(cx, &mut buffer))?;
        let read = buffer.filled();
        if !read.is_empty() {
            note_head(&this.client, read);
            cursor.put_slice(read);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: ClientStream> Write for ClientIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }
}
