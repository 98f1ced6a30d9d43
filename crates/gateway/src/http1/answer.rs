//! An answer's head as a client of HTTP/1 is sent it, and how the body behind it ends.

use std::io::Write;
use std::time::SystemTime;

use http::StatusCode;
use http_body::Body as _;

use crate::admit::Reply;

/// What the request says of how it is answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub head_only: bool,
    pub http_1_0: bool,
    /// The client would send another request on the connection.
    pub keep_alive: bool,
    /// It takes trailer fields.
    pub takes_trailers: bool,
}

/// How a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// There is none.
    Nothing,
    /// After so many bytes.
    Length(u64),
    Chunked,
    /// With the connection.
    Close,
}

/// What the head that was written means for what follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Written {
    pub ending: Ending,
    /// Another request may follow.
    pub keep_alive: bool,
}

/// Appends the head of an answer to `out`.
pub(super) fn write(reply: &mut Reply, asked: Asked, out: &mut Vec<u8>) -> Written {
    let status = reply.status;
    let has_no_content = status.is_informational() || status == StatusCode::NO_CONTENT;
    // RFC 9112 section 6.3.
    let is_bodiless = asked.head_only || has_no_content || status == StatusCode::NOT_MODIFIED;
    if !asked.http_1_0 && status == StatusCode::OK {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    } else {
        out.extend_from_slice(if asked.http_1_0 {
            b"HTTP/1.0 "
        } else {
            b"HTTP/1.1 "
        });
        out.extend_from_slice(status.as_str().as_bytes());
        out.push(b' ');
        out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    // RFC 9110 section 8.6.
    let told = reply.fields.write(out, !has_no_content);
    let ending = match told.length {
        _ if is_bodiless => Ending::Nothing,
        Some(length) => Ending::Length(length),
        None => match reply.body.size_hint().exact() {
            Some(length) => {
                // Writing to a Vec cannot fail.
                let _ = write!(out, "content-length: {length}\r\n");
                Ending::Length(length)
            }
            None if asked.http_1_0 => Ending::Close,
            None => {
                out.extend_from_slice(b"transfer-encoding: chunked\r\n");
                Ending::Chunked
            }
        },
    };
    let keep_alive = asked.keep_alive && !reply.closes && ending != Ending::Close;
    if status != StatusCode::SWITCHING_PROTOCOLS {
        match keep_alive {
            true if asked.http_1_0 => out.extend_from_slice(b"connection: keep-alive\r\n"),
            true => {}
            false => out.extend_from_slice(b"connection: close\r\n"),
        }
    }
    if !told.has_date && !status.is_informational() {
        // RFC 9110 section 6.6.1.
        let _ = write!(out, "date: {}\r\n", httpdate::fmt_http_date(SystemTime::now()));
    }
    out.extend_from_slice(b"\r\n");
    Written { ending, keep_alive }
}

/// Appends a whole answer of the server itself to what could not be read as a request; the connection is closed behind it.
pub(super) fn write_refusal(status: StatusCode, reason: &str, out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail.
    let _ = write!(
        out,
        "HTTP/1.1 {} {}\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\ncontent-length: {}\r\ndate: \
         {}\r\n\r\n{reason}\n",
        status.as_str(),
        status.canonical_reason().unwrap_or_default(),
        reason.len() + 1,
        httpdate::fmt_http_date(SystemTime::now()),
    );
}
