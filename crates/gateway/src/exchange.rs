//! An exchange with a backend, in either HTTP.

use std::task::{Context, Poll};
use std::time::Instant;

use crate::call::Call;
use crate::core::Core;
use crate::multiplex::Stream;
use crate::response_head::ResponseHead;
use crate::upload::RequestBody;
use crate::upstream::{ExchangeError, Piece, ResponseError, Upstream};

/// One exchange, with the connection or the stream that is its own meanwhile.
pub(crate) enum Exchange {
    Http1(Box<Upstream>),
    Http2(Box<Stream>),
}

impl Exchange {
    /// Sends the request body as far as the backend takes it, and reads the response head.
    pub(crate) fn poll_exchange(
        &mut self,
        cx: &mut Context<'_>,
        core: &Core,
        call: &mut Call,
    ) -> Poll<Result<ResponseHead, ExchangeError>> {
        match self {
            Self::Http1(upstream) => upstream.poll_exchange(cx, core, call),
            Self::Http2(stream) => stream.poll_exchange(cx, core, &call.parts.method, &mut call.body),
        }
    }

    /// The next piece of the response body; `None` at its end. What is left of the request body is sent on.
    pub(crate) fn poll_response(
        &mut self,
        cx: &mut Context<'_>,
        core: &Core,
        body: &mut Option<RequestBody>,
    ) -> Poll<Option<Result<Piece, ResponseError>>> {
        match self {
            Self::Http1(upstream) => upstream.poll_response(cx, core, body),
            Self::Http2(stream) => stream.poll_response(cx, body),
        }
    }

    /// Whether its connection has answered earlier requests.
    pub(crate) fn is_reused(&self) -> bool {
        match self {
            Self::Http1(upstream) => upstream.reused,
            Self::Http2(stream) => stream.is_reused(),
        }
    }

    /// Whether the rest of the response, which has a length, was read.
    pub(crate) fn is_all_read(&self) -> bool {
        match self {
            Self::Http1(upstream) => upstream.is_all_read(),
            Self::Http2(_) => false,
        }
    }

    /// Bytes of the response that were read and not yet asked for.
    pub(crate) fn unread(&self) -> usize {
        match self {
            Self::Http1(upstream) => upstream.unread(),
            // They are of the connection's windows (`limits.h2_connection_window_bytes`).
            Self::Http2(_) => 0,
        }
    }

    /// Whether the response has ended.
    pub(crate) fn is_response_over(&self) -> bool {
        match self {
            Self::Http1(upstream) => upstream.is_response_over(),
            Self::Http2(stream) => stream.is_response_over(),
        }
    }

    /// Whether only the end of the connection says where the response ends.
    pub(crate) fn response_ends_with_connection(&self) -> bool {
        match self {
            Self::Http1(upstream) => upstream.response_ends_with_connection(),
            Self::Http2(_) => false,
        }
    }

    /// The bytes that the response still has, where that is known.
    pub(crate) fn response_left(&self) -> Option<u64> {
        match self {
            Self::Http1(upstream) => upstream.response_left(),
            Self::Http2(stream) => stream.response_left(),
        }
    }

    /// When the request was sent, where the end of its answer tells how many at a time the backends bear.
    pub(crate) fn asked(&mut self) -> &mut Option<Instant> {
        match self {
            Self::Http1(upstream) => &mut upstream.asked,
            Self::Http2(stream) => &mut stream.asked,
        }
    }
}
