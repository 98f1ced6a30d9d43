//! What is to be sent over a connection and is not with the kernel yet.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;

use crate::socket::Socket;

/// Up to this many bytes of head and body are copied together: one plain write costs the kernel less than to gather them.
const TOGETHER_BYTES: usize = 4096;

/// How a piece of a body is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Not at all.
    Plain,
    /// As a chunk.
    Chunk,
    /// As a chunk, behind which the body ends without trailer fields.
    LastChunk,
}

/// Bytes in the order in which they are sent: what is framed, a piece of body, what ends that.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pub framed: Vec<u8>,
    piece: Bytes,
    tail: &'static [u8],
}

impl Outgoing {
    /// Whether there is nothing to be sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.framed.is_empty() && self.is_framed()
    }

    /// Whether nothing is behind what is framed, so that more may be.
    pub(crate) fn is_framed(&self) -> bool {
        self.piece.is_empty() && self.tail.is_empty()
    }

    /// Adds a piece of a body behind what is framed, where nothing else is.
    pub(crate) fn add(&mut self, piece: Bytes, framing: Piece) {
        debug_assert!(self.is_framed(), "the piece before is sent");
        let tail: &[u8] = match framing {
            Piece::Plain => b"",
            Piece::Chunk => b"\r\n",
            Piece::LastChunk => b"\r\n0\r\n\r\n",
        };
        if framing != Piece::Plain {
            // Writing to a Vec cannot fail.
            let _ = io::Write::write_fmt(&mut self.framed, format_args!("{:x}\r\n", piece.len()));
        }
        if self.framed.len() + piece.len() <= TOGETHER_BYTES {
            self.framed.extend_from_slice(&piece);
            self.framed.extend_from_slice(tail);
        } else {
            (self.piece, self.tail) = (piece, tail);
        }
    }

    /// Sends what waits; ready once all of it is with the kernel. How many bytes it took is added to `taken`, whatever comes of the rest.
    ///
    /// # Errors
    /// Those of the socket.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut Socket,
        taken: &mut usize,
    ) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let mut length = if self.is_framed() {
                ready!(Pin::new(&mut *socket).poll_write(cx, &self.framed))?
            } else {
                let slices = [&self.framed[..], &self.piece, self.tail].map(io::IoSlice::new);
                ready!(Pin::new(&mut *socket).poll_write_vectored(cx, &slices))?
            };
            if length == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *taken += length;
            let framed = length.min(self.framed.len());
            self.framed.drain(..framed);
            length -= framed;
            let piece = length.min(self.piece.len());
            self.piece.advance(piece);
            if self.piece.is_empty() {
                // Even empty it would hold what it is a part of.
                self.piece = Bytes::new();
            }
            self.tail = &self.tail[length - piece..];
        }
        match socket.is_flushed() {
            true => Poll::Ready(Ok(())),
            false => Pin::new(socket).poll_flush(cx),
        }
    }
}
