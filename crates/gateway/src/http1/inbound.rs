//! The body of a request as an HTTP/1 client sends it.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use crate::chunked::{self, ChunkError, Decoder};
use crate::conn::ClientConn;
use crate::http1::head::Coming;
use crate::upstream::Piece;

/// Why a body broke off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BrokenOff {
    #[error("{0}")]
    Http2(#[from] hyper::Error),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the connection ended before it")]
    Ended,
    #[error("{0}")]
    Chunk(#[from] ChunkError),
}

/// A body that is read from its connection as it is asked for.
pub(crate) struct Inbound {
    client: Rc<ClientConn>,
    reader: Reader,
}

enum Reader {
    Length(u64),
    Chunked(Decoder),
    Done,
}

impl Inbound {
    /// The body that comes next on the connection of this client; `None` where there is none.
    pub(super) fn new(client: &Rc<ClientConn>, coming: Coming) -> Option<Self> {
        let reader = match coming {
            Coming::Nothing => return None,
            Coming::Length(length) => Reader::Length(length),
            Coming::Chunked => Reader::Chunked(Decoder::new()),
        };
        Some(Self {
            client: client.clone(),
            reader,
        })
    }

    /// The bytes that are still to come, where that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        match self.reader {
            Reader::Length(left) => Some(left),
            Reader::Chunked(_) => None,
            Reader::Done => Some(0),
        }
    }

    /// The next piece; `None` at the end.
    pub(crate) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Piece, BrokenOff>>> {
        let Some(http1) = &self.client.http1 else {
            return Poll::Ready(None);
        };
        let received = &mut *http1.received.borrow_mut();
        loop {
            match &mut self.reader {
                Reader::Done => return Poll::Ready(None),
                Reader::Length(left) if !received.is_empty() => {
                    // The lesser of a usize and a u64 fits both.
                    let length = usize::try_from(*left).unwrap_or(usize::MAX).min(received.len());
                    *left -= length as u64;
                    if *left == 0 {
                        self.reader = Reader::Done;
                        http1.body_is_over();
                    }
                    let piece = match length == received.len() {
                        true => std::mem::take(received),
                        false => received.split_to(length),
                    };
                    return Poll::Ready(Some(Ok(Piece::Data(piece))));
                }
                Reader::Length(_) => {}
                Reader::Chunked(decoder) => match decoder.next(received) {
                    Err(error) => return Poll::Ready(Some(Err(error.into()))),
                    Ok(chunked::Piece::Data(data)) => return Poll::Ready(Some(Ok(Piece::Data(data)))),
                    Ok(chunked::Piece::More) => {}
                    Ok(end) => {
                        self.reader = Reader::Done;
                        http1.body_is_over();
                        if received.is_empty() {
                            // Even empty it would hold what it is a part of.
                            *received = Bytes::new();
                        }
                        return Poll::Ready(match end {
                            chunked::Piece::Trailers(trailers) => Some(Ok(Piece::Trailers(trailers))),
                            _ => None,
                        });
                    }
                },
            }
            match ready!(http1.poll_fill(cx, self.client.core(), received, usize::MAX)) {
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
                Ok(0) => return Poll::Ready(Some(Err(BrokenOff::Ended))),
                Ok(_) => {}
            }
        }
    }
}
