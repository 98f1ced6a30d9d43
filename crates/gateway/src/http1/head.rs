//! A client's request head, read strictly, and what it says of its body and of its connection (RFC 9112 sections 2 to 7 and 9).

use std::mem::MaybeUninit;

use bytes::{Buf, Bytes};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, StatusCode, Uri, Version, request};

use crate::headers::{CONNECTION, Refusal, TE, TRANSFER_ENCODING, bad_request};
use crate::names::Names;

/// Header fields parsed without allocating.
const FIELDS_ON_STACK: usize = 100;

/// How a request's body comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coming {
    /// There is none.
    Nothing,
    /// So many bytes, more than none.
    Length(u64),
    Chunked,
}

/// A request's head.
#[derive(Debug)]
pub(crate) struct Head {
    pub parts: request::Parts,
    pub coming: Coming,
    /// What only its text tells.
    pub text: Text,
    /// The client would send another request on the connection.
    pub keep_alive: bool,
    /// It takes trailer fields.
    pub takes_trailers: bool,
}

/// What the text of a head tells, and what is parsed of it does not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Text {
    /// It has both Transfer-Encoding and Content-Length, of which the second is left out.
    pub has_both_lengths: bool,
    /// Its target is an absolute one with neither path nor query: parsed, its path is `/` as if it had been sent.
    pub has_empty_path: bool,
}

/// What a head may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub bytes: usize,
    pub fields: usize,
}

/// Takes the head off the front of what was `received`; `None` if its end is not there yet.
///
/// # Errors
/// It is not one that can be read, so that where the next one begins is not known either.
pub(crate) fn take(received: &mut Bytes, bounds: Bounds, names: &mut Names) -> Result<Option<Head>, Refusal> {
    // Mostly more than may be are read, so that a request that has too many is counted as one.
    let most = bounds.fields.max(FIELDS_ON_STACK);
    if most <= FIELDS_ON_STACK {
        let mut fields = [const { MaybeUninit::uninit() }; FIELDS_ON_STACK];
        parse(received, bounds, &mut fields, names)
    } else {
        let mut fields = vec![MaybeUninit::uninit(); most];
        parse(received, bounds, &mut fields, names)
    }
    .map(|parsed| {
        parsed.map(|(head, length)| {
            match length == received.len() {
                // Even empty it would hold the head's memory.
                true => *received = Bytes::new(),
                false => received.advance(length),
            }
            head
        })
    })
}

fn too_large(received: &[u8]) -> Refusal {
    // For a request line that is too long there is a status of its own (RFC 9112 section 3).
    match received.trim_ascii_start().contains(&b'\n') {
        false => Refusal {
            status: StatusCode::URI_TOO_LONG,
            reason: "the request line is too long",
        },
        true => too_many(),
    }
}

fn too_many() -> Refusal {
    Refusal {
        status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        reason: "the request head is too large",
    }
}

/// Whether the first line ends with a version of HTTP, and one whose messages may be other ones (RFC 9110 section 2.5).
fn is_of_another_version(received: &[u8]) -> bool {
    let line = received.trim_ascii_start();
    let end = line.iter().position(|byte| *byte == b'\n').unwrap_or(line.len());
    let word = line[..end].trim_ascii_end().rsplit(|byte| *byte == b' ').next();
    matches!(word, Some([b'H', b'T', b'T', b'P', b'/', major, b'.', minor])
        if *major != b'1' && major.is_ascii_digit() && minor.is_ascii_digit())
}

fn parse<'b>(
    received: &'b Bytes,
    bounds: Bounds,
    fields: &mut [MaybeUninit<httparse::Header<'b>>],
    names: &mut Names,
) -> Result<Option<(Head, usize)>, Refusal> {
    let mut request = httparse::Request::new(&mut []);
    let length = match request.parse_with_uninit_headers(received, fields) {
        Ok(httparse::Status::Complete(length)) if length <= bounds.bytes => length,
        Ok(httparse::Status::Partial) if received.len() < bounds.bytes => return Ok(None),
        Ok(_) => return Err(too_large(&received[..bounds.bytes.min(received.len())])),
        Err(httparse::Error::TooManyHeaders) => return Err(too_many()),
        Err(httparse::Error::Version) if is_of_another_version(received) => {
            return Err(Refusal {
                status: StatusCode::HTTP_VERSION_NOT_SUPPORTED,
                reason: "the version of HTTP is not 1",
            });
        }
        Err(_) => return Err(bad_request("the request head is not valid HTTP")),
    };
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        return Err(bad_request("the request line is not valid HTTP"));
    };
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.method =
        Method::from_bytes(method.as_bytes()).map_err(|_| bad_request("the method is not valid"))?;
    parts.uri = uri(received, target)?;
    parts.version = match version {
        0 => Version::HTTP_10,
        _ => Version::HTTP_11,
    };
    // One more for what may be set.
    parts.headers = HeaderMap::with_capacity(request.headers.len() + 1);
    let mut text = Text {
        has_both_lengths: false,
        has_empty_path: has_empty_path(target.as_bytes()),
    };
    let mut connection = Connection::default();
    let (mut length_of_body, mut last_is_chunked, mut takes_trailers) = (None, None, false);
    for field in request.headers {
        let bad = || bad_request("a header field is not valid");
        let (name, bit) = names.read(field.name.as_bytes()).ok_or_else(bad)?;
        match bit {
            0 if *name == header::CONTENT_LENGTH => {
                let number = number(field.value)?;
                match length_of_body.replace(number) {
                    // RFC 9110 section 8.6: several that are equal are one.
                    Some(earlier) if earlier == number => continue,
                    Some(_) => return Err(bad_request("more than one Content-Length")),
                    None => {}
                }
            }
            CONNECTION => connection.read(field.value),
            TE => {
                takes_trailers |= options(field.value).any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
            }
            TRANSFER_ENCODING => {
                let last = options(field.value).last();
                last_is_chunked = Some(last.is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked")));
            }
            _ => {}
        }
        let value = HeaderValue::from_maybe_shared(received.slice_ref(field.value)).map_err(|_| bad())?;
        parts.headers.append(name.clone(), value);
    }
    let coming = match (last_is_chunked, length_of_body) {
        (Some(_), _) if version == 0 => {
            // RFC 9112 section 6.1.
            return Err(bad_request("Transfer-Encoding in a request of HTTP/1.0"));
        }
        (Some(false), _) => return Err(bad_request("the last transfer coding is not chunked")),
        (Some(true), length) => {
            text.has_both_lengths = length.is_some();
            parts.headers.remove(header::CONTENT_LENGTH);
            Coming::Chunked
        }
        (None, None | Some(0)) => Coming::Nothing,
        (None, Some(length)) => Coming::Length(length),
    };
    let head = Head {
        parts,
        coming,
        text,
        keep_alive: connection.keeps(version),
        takes_trailers,
    };
    Ok(Some((head, length)))
}

/// What the Connection fields say.
#[derive(Debug, Default)]
struct Connection {
    closes: bool,
    stays: bool,
}

impl Connection {
    fn read(&mut self, value: &[u8]) {
        for option in options(value) {
            self.closes |= option.eq_ignore_ascii_case(b"close");
            self.stays |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// Whether another request may follow (RFC 9112 section 9.3), of HTTP/1 with this minor version.
    fn keeps(&self, version: u8) -> bool {
        !self.closes && (version == 1 || self.stays)
    }
}

/// The elements of a list (RFC 9110 section 5.6.1), also those beside bytes that are no text.
fn options(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

fn uri(received: &Bytes, target: &str) -> Result<Uri, Refusal> {
    // It would be the one error of `Uri` with a status of its own.
    if target.len() >= usize::from(u16::MAX) {
        return Err(too_large(target.as_bytes()));
    }
    Uri::from_maybe_shared(received.slice_ref(target.as_bytes()))
        .map_err(|_| bad_request("the request target is not valid"))
}

fn has_empty_path(target: &[u8]) -> bool {
    if target.starts_with(b"/") {
        return false;
    }
    let scheme_end = target.windows(3).position(|three| three == b"://");
    scheme_end.is_some_and(|end| !target[end + 3..].iter().any(|byte| b"/?".contains(byte)))
}

/// `1*DIGIT`, nothing else.
fn number(value: &[u8]) -> Result<u64, Refusal> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let number = is_number.then(|| std::str::from_utf8(value).ok()?.parse().ok());
    number
        .flatten()
        .ok_or_else(|| bad_request("Content-Length is not a number"))
}

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
