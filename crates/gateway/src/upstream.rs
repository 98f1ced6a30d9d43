//! A connection to a backend.
//!
//! It is driven by the task that uses it: a request then costs one wake-up for its answer, and a connection in
//! the pool costs nothing. It reads through the core's scratch buffer, which stays in the cache, and copies out
//! only what it read. Whoever takes a connection out of the pool first asks whether it is still alive.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use bytes::{Buf, Bytes};
use http::{HeaderMap, StatusCode, Version};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::call::Call;
use crate::chunked::{self, ChunkError, Decoder};
use crate::connections::{Idle, Lease};
use crate::core::Core;
use crate::outgoing::{self, Outgoing};
use crate::received;
use crate::response_head::{self, Framing, HeadError, Reading, ResponseHead};
use crate::socket::Socket;
use crate::tcp_info::retransmits;
use crate::upload::{RequestBody, UploadError};

/// Interim answers passed on before other tasks have their turn.
const INTERIMS_IN_A_ROW: u32 = 16;

/// Pieces of a request body sent before other tasks have their turn.
const PIECES_IN_A_ROW: u32 = 32;

/// One HTTP/1.1 connection to a backend.
pub(crate) struct Upstream {
    stream: Socket,
    /// Of the request, what the kernel has not taken yet.
    outgoing: Outgoing,
    /// Bytes of the response read and not yet consumed.
    read: Bytes,
    response: BodyReader,
    /// Anything of the present request was taken by the kernel.
    sent_any: bool,
    /// Anything of the present response has come.
    received_any: bool,
    interims: u32,
    /// An earlier request was answered on it.
    pub reused: bool,
    /// How often its backend's addresses had changed when it was opened.
    pub generation: u32,
    /// How many exchanges of the core were in flight when it was opened, where anybody asks; until its first answer.
    pub begun_among: Option<usize>,
    /// When the present request was sent, where the end of its answer tells how many at a time the backends bear.
    pub asked: Option<Instant>,
    /// When a sweep first found it in the pool.
    pub idle_since: Option<Instant>,
    /// Its part of its backend's limit; `None` in tests.
    pub lease: Option<Lease>,
}

enum BodyReader {
    Length(u64),
    Chunked(Decoder),
    UntilClose,
    Done,
}

/// A piece of a response body.
pub(crate) enum Piece {
    Data(Bytes),
    Trailers(HeaderMap),
}

/// The backend's end of a connection that has switched protocols.
pub(crate) struct Tunnel {
    pub stream: Socket,
    /// What it sent right behind its response head.
    pub read: Bytes,
}

/// How an exchange failed before its response head.
#[derive(Debug)]
pub(crate) enum ExchangeError {
    /// The connection ended before there was a whole head of a final response; `sent` tells whether the request may have arrived.
    Died { error: io::Error, sent: bool },
    /// The response is not one that can be passed on.
    Invalid(HeadError),
    /// The request body failed.
    Upload(UploadError),
    /// The backend reset the stream (HTTP/2): it gave this request up, whatever it had done of it.
    Reset(String),
}

/// How a response body broke off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResponseError {
    #[error("the backend broke off its response: {0}")]
    Io(#[from] io::Error),
    #[error("the backend's response: {0}")]
    Chunk(#[from] ChunkError),
    /// As text: hyper would pass the reason of an error of HTTP/2 on to the client, and one such as REFUSED_STREAM would be wrong there.
    #[error("the backend broke off its response: {0}")]
    Stream(String),
    #[error("the request body failed while the backend was answering: {0}")]
    Upload(#[from] UploadError),
}

impl Upstream {
    /// Over an open connection.
    pub(crate) fn new(stream: Socket) -> Box<Self> {
        Box::new(Self {
            stream,
            outgoing: Outgoing::default(),
            read: Bytes::new(),
            response: BodyReader::Done,
            sent_any: false,
            received_any: false,
            interims: 0,
            reused: false,
            begun_among: None,
            generation: 0,
            asked: None,
            idle_since: None,
            lease: None,
        })
    }

    /// Whether a pooled connection can carry a request: it is open, and silent as it should be. It costs a
    /// system call only if something has arrived.
    pub(crate) fn is_usable(&mut self) -> bool {
        let mut byte = [0];
        let mut cx = Context::from_waker(Waker::noop());
        Pin::new(&mut self.stream)
            .poll_read(&mut cx, &mut ReadBuf::new(&mut byte))
            .is_pending()
    }

    /// The segments that were sent again since it was begun, where the kernel says.
    pub(crate) fn retransmits(&self) -> Option<u32> {
        retransmits(self.stream.tcp())
    }

    /// Whether its exchange ended so that another may follow.
    pub(crate) fn is_clean(&self) -> bool {
        matches!(self.response, BodyReader::Done)
            && self.read.is_empty()
            && self.outgoing.is_empty()
            && self.stream.is_flushed()
    }

    /// Bytes of the response that were read and not yet asked for.
    pub(crate) fn unread(&self) -> usize {
        self.read.len()
    }

    /// Begins an exchange with this request head.
    pub(crate) fn begin(&mut self, head: &[u8]) {
        (self.sent_any, self.received_any, self.interims) = (false, false, 0);
        let mut cx = Context::from_waker(Waker::noop());
        // Nearly always the kernel takes the whole head at once, and nothing has to be kept. What it does not
        // take, and any error, is met again by `poll_flush` or by the read.
        let taken = match Pin::new(&mut self.stream).poll_write(&mut cx, head) {
            Poll::Ready(Ok(taken)) => taken,
            _ => 0,
        };
        self.sent_any = taken > 0;
        self.outgoing.framed.clear();
        self.outgoing.framed.extend_from_slice(&head[taken..]);
    }

    /// Sends what is waiting to be sent.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut taken = 0;
        let sent = self.outgoing.poll_send(cx, &mut self.stream, &mut taken);
        self.sent_any |= taken > 0;
        sent
    }

    /// Sends the request body; ready once all of it is with the kernel.
    fn poll_upload(&mut self, cx: &mut Context<'_>, body: &mut RequestBody) -> Poll<Result<(), SendError>> {
        for _ in 0..PIECES_IN_A_ROW {
            ready!(self.poll_flush(cx)).map_err(|_| SendError::Io)?;
            match ready!(body.poll_piece(cx)).map_err(SendError::Body)? {
                None if body.is_over() => return Poll::Ready(Ok(())),
                None => {
                    if body.is_chunked() {
                        chunked::encode_end(&body.take_trailers(), &mut self.outgoing.framed);
                    }
                    body.set_over();
                }
                Some(data) => self.outgoing.add(
                    data,
                    match body.is_chunked() {
                        true => outgoing::Piece::Chunk,
                        false => outgoing::Piece::Plain,
                    },
                ),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Sends the request body as far as the backend takes it, or once it asks for it where the client waits for that.
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut Option<RequestBody>,
    ) -> Result<(), ExchangeError> {
        let sending = match body {
            Some(body) if !body.held => self.poll_upload(cx, body),
            _ => self.poll_flush(cx).map_err(|_| SendError::Io),
        };
        match sending {
            Poll::Ready(Err(SendError::Body(error))) => Err(ExchangeError::Upload(error)),
            // A backend may answer and close without reading to the end: its answer is still to be read, and
            // if there is none, reading says so too.
            Poll::Ready(Ok(()) | Err(SendError::Io)) | Poll::Pending => Ok(()),
        }
    }

    /// Sends the request body, passes interim answers on, and reads the response head.
    pub(crate) fn poll_exchange(
        &mut self,
        cx: &mut Context<'_>,
        core: &Core,
        call: &mut Call,
    ) -> Poll<Result<ResponseHead, ExchangeError>> {
        self.poll_send(cx, &mut call.body)?;
        let limits = &core.config.limits;
        let reading = match core.stores || call.parts.version == Version::HTTP_2 {
            true => Reading::Fields,
            false => Reading::Lines,
        };
        let mut interims = 0;
        loop {
            if !self.read.is_empty() {
                let names = &mut *core.names.borrow_mut();
                match response_head::parse(&self.read, &call.parts.method, limits.max_headers, reading, names)
                {
                    Err(error) => return Poll::Ready(Err(ExchangeError::Invalid(error))),
                    Ok(Some((_, length))) if length > limits.max_header_bytes => {
                        return Poll::Ready(Err(ExchangeError::Invalid(HeadError::TooLarge)));
                    }
                    Ok(Some((head, length))) => {
                        self.read.advance(length);
                        let is_interim = head.status.is_informational();
                        if !is_interim || head.status == StatusCode::SWITCHING_PROTOCOLS {
                            self.begin_response(head.framing);
                            return Poll::Ready(Ok(head));
                        }
                        self.interims += 1;
                        if self.interims > limits.max_interim {
                            return Poll::Ready(Err(ExchangeError::Invalid(HeadError::TooManyInterim)));
                        }
                        call.interim(head, core.config.forwarding.via);
                        self.poll_send(cx, &mut call.body)?;
                        interims += 1;
                        if interims == INTERIMS_IN_A_ROW {
                            cx.waker().wake_by_ref();
                            return Poll::Pending;
                        }
                        continue;
                    }
                    Ok(None) if self.read.len() > core.config.limits.max_header_bytes => {
                        return Poll::Ready(Err(ExchangeError::Invalid(HeadError::TooLarge)));
                    }
                    Ok(None) => {}
                }
            }
            let ended = match ready!(self.poll_fill(cx, core)) {
                Ok(0) => io::ErrorKind::UnexpectedEof.into(),
                Ok(_) => {
                    self.received_any = true;
                    continue;
                }
                Err(error) => error,
            };
            return Poll::Ready(Err(ExchangeError::Died {
                error: ended,
                sent: self.sent_any || self.received_any,
            }));
        }
    }

    fn begin_response(&mut self, framing: Framing) {
        self.response = match framing {
            Framing::None => BodyReader::Done,
            Framing::Length(length) => BodyReader::Length(length),
            Framing::Chunked => BodyReader::Chunked(Decoder::new()),
            Framing::UntilClose => BodyReader::UntilClose,
        };
    }

    /// Whether the response has ended.
    pub(crate) fn is_response_over(&self) -> bool {
        matches!(self.response, BodyReader::Done)
    }

    /// Whether the rest of the response, which has a length, was read.
    pub(crate) fn is_all_read(&self) -> bool {
        matches!(self.response, BodyReader::Length(left) if left <= self.read.len() as u64)
    }

    /// Whether only the end of the connection says where the response ends.
    pub(crate) fn response_ends_with_connection(&self) -> bool {
        matches!(self.response, BodyReader::UntilClose)
    }

    /// The bytes that the response still has, where that is known.
    pub(crate) fn response_left(&self) -> Option<u64> {
        match self.response {
            BodyReader::Done => Some(0),
            BodyReader::Length(left) => Some(left),
            BodyReader::Chunked(_) | BodyReader::UntilClose => None,
        }
    }

    /// The next piece of the response body; `None` at its end. What is left of the request body is sent on.
    pub(crate) fn poll_response(
        &mut self,
        cx: &mut Context<'_>,
        core: &Core,
        body: &mut Option<RequestBody>,
    ) -> Poll<Option<Result<Piece, ResponseError>>> {
        match body {
            // The backend answered without asking for it: its client need not send it.
            Some(withheld) if withheld.held => drop(self.poll_flush(cx)),
            Some(uploading) => match self.poll_upload(cx, uploading) {
                Poll::Ready(Err(SendError::Body(error))) => return Poll::Ready(Some(Err(error.into()))),
                // The backend wants no more of it; the rest of its answer is still to be read.
                Poll::Ready(Err(SendError::Io)) | Poll::Pending => {}
                Poll::Ready(Ok(())) => *body = None,
            },
            // The end of a request may still be on its way when the answer begins.
            None => drop(self.poll_flush(cx)),
        }
        loop {
            match &mut self.response {
                BodyReader::Done => return Poll::Ready(None),
                BodyReader::Length(left) if !self.read.is_empty() => {
                    // The lesser of a usize and a u64 fits both.
                    let length = usize::try_from(*left).unwrap_or(usize::MAX).min(self.read.len());
                    *left -= length as u64;
                    if *left == 0 {
                        self.response = BodyReader::Done;
                    }
                    return Poll::Ready(Some(Ok(Piece::Data(self.read.split_to(length)))));
                }
                BodyReader::UntilClose if !self.read.is_empty() => {
                    return Poll::Ready(Some(Ok(Piece::Data(self.read.split_to(self.read.len())))));
                }
                BodyReader::Chunked(decoder) => match decoder.next(&mut self.read) {
                    Err(error) => return Poll::Ready(Some(Err(error.into()))),
                    Ok(chunked::Piece::Data(data)) => return Poll::Ready(Some(Ok(Piece::Data(data)))),
                    Ok(chunked::Piece::Trailers(trailers)) => {
                        self.response = BodyReader::Done;
                        return Poll::Ready(Some(Ok(Piece::Trailers(trailers))));
                    }
                    Ok(chunked::Piece::End) => {
                        self.response = BodyReader::Done;
                        return Poll::Ready(None);
                    }
                    Ok(chunked::Piece::More) => {}
                },
                BodyReader::Length(_) | BodyReader::UntilClose => {}
            }
            match ready!(self.poll_fill(cx, core)) {
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
                Ok(0) if matches!(self.response, BodyReader::UntilClose) => {
                    self.response = BodyReader::Done;
                    return Poll::Ready(None);
                }
                Ok(0) => {
                    let error = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return Poll::Ready(Some(Err(error.into())));
                }
                Ok(_) => {}
            }
        }
    }

    /// Reads once, behind what is still unconsumed.
    fn poll_fill(&mut self, cx: &mut Context<'_>, core: &Core) -> Poll<io::Result<usize>> {
        received::poll_fill(cx, &mut self.stream, &mut self.read, core, usize::MAX)
    }

    /// An idle connection as another core can take it; `None` where none can, because of TLS, and it is closed.
    pub(crate) fn into_idle(self) -> Option<(Idle, Lease)> {
        let (Socket::Plain(stream), Some(lease)) = (self.stream, self.lease) else {
            return None;
        };
        let stream = stream.into_std().ok()?;
        let generation = self.generation;
        Some((Idle { stream, generation }, lease))
    }

    /// What another core handed over.
    ///
    /// # Errors
    /// It could not be taken, and is closed; there is room for another in its place.
    pub(crate) fn from_idle(idle: Idle, lease: Lease) -> Result<Box<Self>, Lease> {
        let Ok(stream) = TcpStream::from_std(idle.stream) else {
            return Err(lease);
        };
        let mut upstream = Self::new(Socket::Plain(stream));
        upstream.reused = true;
        upstream.generation = idle.generation;
        upstream.lease = Some(lease);
        Ok(upstream)
    }

    /// What is left of a connection that has switched protocols.
    pub(crate) fn into_tunnel(self) -> Tunnel {
        Tunnel {
            stream: self.stream,
            read: self.read,
        }
    }
}

/// How sending failed.
enum SendError {
    /// The backend does not take it; reading will tell why.
    Io,
    Body(UploadError),
}
