//! Answers as every built-in service gives them.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;

/// An answer that no cache may store.
pub(crate) fn typed(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    // Each view is rendered, so that the load is the service's and not a cache's.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Statistics.
pub(crate) fn json(value: &impl serde::Serialize) -> Response<Full<Bytes>> {
    match serde_json::to_vec(value) {
        Ok(json) => typed(StatusCode::OK, "application/json", json.into()),
        Err(_) => plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the statistics cannot be written\n",
        ),
    }
}

/// A page.
pub(crate) fn html(document: Bytes) -> Response<Full<Bytes>> {
    typed(StatusCode::OK, "text/html; charset=utf-8", document)
}

/// A line of text.
pub(crate) fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    typed(
        status,
        "text/plain; charset=utf-8",
        Bytes::from_static(text.as_bytes()),
    )
}

/// What is answered where every worker is busy and the queue is full.
pub(crate) fn too_busy() -> Response<Full<Bytes>> {
    let mut full = plain(
        StatusCode::SERVICE_UNAVAILABLE,
        "every worker is busy and the queue is full\n",
    );
    full.headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    full
}

/// A method that a page has not.
pub(crate) fn not_allowed(text: &'static str, allowed: &'static str) -> Response<Full<Bytes>> {
    let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, text);
    refused
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static(allowed));
    refused
}
