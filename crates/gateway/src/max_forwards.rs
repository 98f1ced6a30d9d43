//! `Max-Forwards`: how many more intermediaries a TRACE or OPTIONS may pass (RFC 9110 section 7.6.2).

use http::header::{self, HeaderValue};
use http::{HeaderMap, Method, StatusCode, request};

use crate::body::Body;
use crate::headers::{Refusal, bad_request};
use crate::layer::Answer;

/// Counts this gateway, and answers in its place where the request may go no further: an OPTIONS with 200 and no content; a
/// TRACE with 405, for to send a request back would show its client what was added on the way, credentials among it.
///
/// # Errors
/// The field is no number, or there is more than one.
pub(crate) fn count_down(parts: &mut request::Parts) -> Result<Option<Answer>, Refusal> {
    if !matches!(parts.method, Method::OPTIONS | Method::TRACE) {
        return Ok(None);
    }
    let mut values = parts.headers.get_all(header::MAX_FORWARDS).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let digits = value.as_bytes();
    if values.next().is_some() || digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(bad_request("Max-Forwards is not a number"));
    }
    // What is more than can be counted becomes the most that can, as the section allows.
    let left = value
        .to_str()
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(u32::MAX);
    if let Some(left) = left.checked_sub(1) {
        parts
            .headers
            .insert(header::MAX_FORWARDS, HeaderValue::from(left));
        return Ok(None);
    }
    let (mut status, mut headers) = (StatusCode::OK, HeaderMap::new());
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(0));
    if parts.method == Method::TRACE {
        headers.insert(header::ALLOW, HeaderValue::from_static("OPTIONS"));
        status = StatusCode::METHOD_NOT_ALLOWED;
    }
    Ok(Some(Answer::new(status, headers, Body::Empty)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status of the gateway's own answer or refusal, or what is passed on.
    fn counted(method: &str, values: &[&str]) -> Result<Option<String>, u16> {
        let mut request = http::Request::builder().method(method);
        for value in values {
            request = request.header("max-forwards", *value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        match count_down(&mut parts) {
            Ok(None) => Ok(parts
                .headers
                .get("max-forwards")
                .map(|value| value.to_str().unwrap().to_owned())),
            Ok(Some(answer)) => Err(answer.status.as_u16()),
            Err(refusal) => Err(refusal.status.as_u16()),
        }
    }

    #[test]
    fn an_intermediary_counts_itself() {
        let some = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(counted("OPTIONS", &[]), Ok(None));
        assert_eq!(counted("OPTIONS", &["10"]), some("9"));
        assert_eq!(counted("TRACE", &["1"]), some("0"));
        assert_eq!(counted("TRACE", &["0"]), Err(405));
        assert_eq!(counted("OPTIONS", &["000"]), Err(200));
        assert_eq!(counted("OPTIONS", &["99999999999999999999"]), some("4294967294"));
        for bad in [&["-1"][..], &["1x"], &[""], &["1, 1"], &["1", "1"]] {
            assert_eq!(counted("TRACE", bad), Err(400), "{bad:?}");
        }
        assert_eq!(counted("GET", &["0"]), some("0"), "it is for TRACE and OPTIONS");
    }
}
