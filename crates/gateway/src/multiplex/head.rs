//! The head of a request to a backend over HTTP/2, and what of an answer's head may be passed on.

use http::header::{self, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, Uri, Version};

use crate::headers::strip_hop_by_hop;
use crate::request_head::RequestHead;
use crate::response_head::{Framing, HeadError, ResponseHead};

/// The head of a request, from the same that an HTTP/1.1 one is written from (RFC 9113 section 8.3.1). What a gateway says of the client is
/// said in the same fields.
///
/// # Errors
/// What cannot be said in HTTP/2.
pub(crate) fn request(
    head: &RequestHead<'_>,
    scheme: Scheme,
    backend: &HeaderValue,
    scratch: &mut Vec<u8>,
) -> Result<Request<()>, http::Error> {
    let came = head.headers.get(header::HOST).map(HeaderValue::as_bytes);
    let host = head.host.or(came).filter(|host| !host.is_empty());
    let authority = Authority::try_from(host.unwrap_or(backend.as_bytes()))?;
    let target = head.target.path_and_query().cloned();
    let uri = Uri::builder()
        .scheme(scheme)
        .authority(authority)
        .path_and_query(target.unwrap_or_else(|| PathAndQuery::from_static("/")))
        .build()?;
    let mut request = Request::builder()
        .version(Version::HTTP_2)
        .method(head.method.clone())
        .uri(uri)
        .body(())?;
    let headers = request.headers_mut();
    headers.reserve(head.headers.len() + 4);
    for (name, value) in head.headers {
        if !head.is_rewritten(name) {
            headers.append(name, value.clone());
        }
    }
    scratch.clear();
    head.write_forwarding(scratch, came);
    // Fields of our own writing, each `name: value` and a line's end.
    for line in scratch.split(|byte| *byte == b'\n') {
        let line = line.trim_ascii_end();
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            continue;
        };
        let name = HeaderName::from_bytes(&line[..colon])?;
        headers.append(
            name,
            HeaderValue::from_bytes(line[colon + 1..].trim_ascii_start())?,
        );
    }
    if head.te_trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    Ok(request)
}

/// What is passed on of an answer's head.
///
/// # Errors
/// Why it cannot be passed on.
pub(super) fn response(
    answer: Response<()>,
    max_headers: usize,
) -> Result<(ResponseHead, Option<u64>), HeadError> {
    let (parts, ()) = answer.into_parts();
    let mut headers = parts.headers;
    if headers.len() > max_headers {
        return Err(HeadError::TooMany);
    }
    strip_hop_by_hop(&mut headers);
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let length = lengths.next().cloned();
    if lengths.any(|other| Some(other) != length.as_ref()) {
        return Err(HeadError::Length);
    }
    let left = match &length {
        None => None,
        Some(value) => {
            let text = value.to_str().map_err(|_| HeadError::Length)?;
            Some(text.parse().map_err(|_| HeadError::Length)?)
        }
    };
    if let Some(length) = length {
        headers.insert(header::CONTENT_LENGTH, length);
    }
    let head = ResponseHead {
        status: parts.status,
        fields: headers.into(),
        framing: Framing::None,
        keep_alive: true,
        upgrade: None,
    };
    Ok((head, left))
}
