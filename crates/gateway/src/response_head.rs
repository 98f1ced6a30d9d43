//! A backend's response head, read strictly, and what it says about the body (RFC 9112 section 6.3).

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};

use crate::fields::{Fields, Lines};
use crate::headers::{CONNECTION, TRANSFER_ENCODING, UPGRADE, is_protected};
use crate::names::Names;

/// Header fields parsed without allocating.
const FIELDS_ON_STACK: usize = 100;

/// How a response body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// There is none.
    None,
    /// After so many bytes.
    Length(u64),
    /// With the last chunk.
    Chunked,
    /// With the connection.
    UntilClose,
}

/// A response head without its connection-specific fields.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub status: StatusCode,
    pub fields: Fields,
    pub framing: Framing,
    /// The connection may carry another request.
    pub keep_alive: bool,
    /// `Connection: upgrade` and the protocol.
    pub upgrade: Option<HeaderValue>,
}

/// Why a backend's response cannot be passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeadError {
    #[error(
        "it is not HTTP/1.x: {0}; of a backend that has HTTP/2 alone, as gRPC servers do, say `protocol = \"h2\"` (--backend-protocol h2)"
    )]
    Syntax(httparse::Error),
    #[error("a header field is not valid")]
    Field,
    #[error("its Content-Length is not a number, or there are two that differ")]
    Length,
    #[error("its Transfer-Encoding is not `chunked` alone, or comes together with a Content-Length")]
    TransferEncoding,
    #[error("there are more interim answers before it than `limits.max_interim`")]
    TooManyInterim,
    #[error("it has too many header fields")]
    TooMany,
    #[error("its head exceeds `limits.max_header_bytes`")]
    TooLarge,
    #[error("it breaks the rules of HTTP/2, or its head exceeds `limits.max_header_bytes`")]
    Http2,
}

/// What a head is read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Whoever it is for looks at its fields.
    Fields,
    /// It is passed on, its fields as lines where they can be.
    Lines,
}

/// Parses the head at the front of `data`; `None` if its end is not there yet. The second value is its length.
pub(crate) fn parse(
    data: &Bytes,
    request_method: &Method,
    max_headers: usize,
    reading: Reading,
    names: &mut Names,
) -> Result<Option<(ResponseHead, usize)>, HeadError> {
    if max_headers <= FIELDS_ON_STACK {
        let mut fields = [const { MaybeUninit::uninit() }; FIELDS_ON_STACK];
        parse_into(data, request_method, &mut fields[..max_headers], reading, names)
    } else {
        let mut fields = vec![MaybeUninit::uninit(); max_headers];
        parse_into(data, request_method, &mut fields, reading, names)
    }
}

fn parse_into<'b>(
    data: &'b Bytes,
    request_method: &Method,
    fields: &mut [MaybeUninit<httparse::Header<'b>>],
    reading: Reading,
    names: &mut Names,
) -> Result<Option<(ResponseHead, usize)>, HeadError> {
    let mut response = httparse::Response::new(&mut []);
    let mut config = httparse::ParserConfig::default();
    // RFC 9112 section 5.1: a proxy removes such a blank from an answer.
    config.allow_spaces_after_header_name_in_responses(true);
    let length = match config.parse_response_with_uninit_headers(&mut response, data, fields) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(HeadError::TooMany),
        Err(error) => return Err(HeadError::Syntax(error)),
    };
    let status = response
        .code
        .and_then(|code| StatusCode::from_u16(code).ok())
        .ok_or(HeadError::Syntax(httparse::Error::Status))?;
    let http_1_1 = response.version == Some(1);
    let mut lines = (reading == Reading::Lines).then(|| Lines::new(data));
    let mut keep_alive = http_1_1;
    let (mut content_length, mut chunked, mut closes, mut named) = (None, None, false, Vec::new());
    let (mut wants_upgrade, mut protocol) = (false, None);
    for field in response.headers.iter() {
        let (name, bit) = names.read(field.name.as_bytes()).ok_or(HeadError::Field)?;
        match bit {
            0 => {
                lines = lines.and_then(|mut lines| lines.add(name, field).then_some(lines));
                if *name == header::CONTENT_LENGTH {
                    let length = parse_length(field.value).ok_or(HeadError::Length)?;
                    match content_length.replace(length) {
                        None => {}
                        Some(earlier) if earlier == length => lines = None,
                        Some(_) => return Err(HeadError::Length),
                    }
                }
            }
            CONNECTION => {
                for option in field.value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                    if option.eq_ignore_ascii_case(b"keep-alive") {
                        keep_alive = true;
                    } else if option.eq_ignore_ascii_case(b"close") {
                        closes = true;
                    } else if option.eq_ignore_ascii_case(b"upgrade") {
                        wants_upgrade = true;
                    } else if let Ok(name) = HeaderName::from_bytes(option) {
                        named.push(name);
                    }
                }
            }
            TRANSFER_ENCODING => {
                let is_chunked = field.value.eq_ignore_ascii_case(b"chunked");
                chunked = Some(chunked.is_none() && is_chunked && http_1_1);
            }
            UPGRADE => protocol = Some(value(data, field.value)?),
            _ => {}
        }
    }
    let fields = match lines.filter(|_| named.is_empty()) {
        Some(mut lines) => {
            if let Some(length) = content_length {
                lines.set_length(length);
            }
            Fields::lines(lines)
        }
        None => map(data, response.headers, &named, names)?.into(),
    };
    keep_alive &= !closes;
    let bodiless = *request_method == Method::HEAD
        || status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let framing = match (chunked, content_length) {
        (Some(false), _) | (Some(true), Some(_)) => return Err(HeadError::TransferEncoding),
        _ if bodiless => Framing::None,
        (Some(true), None) => Framing::Chunked,
        (None, Some(0)) => Framing::None,
        (None, Some(length)) => Framing::Length(length),
        (None, None) => {
            keep_alive = false;
            Framing::UntilClose
        }
    };
    let head = ResponseHead {
        status,
        fields,
        framing,
        keep_alive,
        upgrade: protocol.filter(|_| wants_upgrade),
    };
    Ok(Some((head, length)))
}

/// The fields but those that are connection-specific or `named` so; one Content-Length, for all are the same.
fn map(
    data: &Bytes,
    fields: &[httparse::Header<'_>],
    named: &[HeaderName],
    names: &mut Names,
) -> Result<HeaderMap, HeadError> {
    // One more for Via.
    let mut map = HeaderMap::with_capacity(fields.len() + 1);
    for field in fields {
        let (name, bit) = names.read(field.name.as_bytes()).ok_or(HeadError::Field)?;
        if bit != 0 || *name == header::CONTENT_LENGTH && map.contains_key(name) {
            continue;
        }
        map.append(name.clone(), value(data, field.value)?);
    }
    for name in named.iter().filter(|name| !is_protected(name.as_str())) {
        map.remove(name);
    }
    Ok(map)
}

/// A field value that shares the memory of the head.
fn value(data: &Bytes, value: &[u8]) -> Result<HeaderValue, HeadError> {
    HeaderValue::from_maybe_shared(data.slice_ref(value)).map_err(|_| HeadError::Field)
}

/// `1*DIGIT`, nothing else.
fn parse_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 19 || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
#[path = "response_head_tests.rs"]
mod tests;
