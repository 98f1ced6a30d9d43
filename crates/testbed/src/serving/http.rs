//! Apache in the machine's place: a path is a size, and that many bytes are the answer.

use super::Front;
use crate::server::Service;
use crate::server::answers::{json, not_allowed, plain, too_busy, typed};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use std::sync::Arc;

/// The largest answer, bytes.
pub(super) const MAX_BYTES: usize = 16 << 20;

/// What every connection needs.
pub(super) struct Pages {
    front: Arc<Front>,
    content: Bytes,
}

impl Pages {
    pub(super) fn new(front: Arc<Front>) -> Arc<Self> {
        let content = vec![b'.'; MAX_BYTES].into();
        Arc::new(Self { front, content })
    }
}

impl Service for Pages {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return not_allowed("only GET and HEAD\n", "GET, HEAD");
        }
        match request.uri().path() {
            "/" => plain(
                StatusCode::OK,
                "an emulated machine: /SIZE answers so many bytes, as /1024, /10KB; /machine says what it would draw\n",
            ),
            "/healthz" => plain(StatusCode::OK, "ok\n"),
            "/machine" => json(&self.front.status()),
            path => match size(path) {
                Some(bytes) if bytes <= MAX_BYTES => {
                    let sent = if request.method() == Method::HEAD {
                        0
                    } else {
                        bytes
                    };
                    // Of a request's head its line is known here; that is enough for a link that answers fill.
                    let asked = path.len() + 16;
                    if !self.front.hold(asked, sent).await {
                        return too_busy();
                    }
                    typed(
                        StatusCode::OK,
                        "application/octet-stream",
                        self.content.slice(..bytes),
                    )
                }
                Some(_) => plain(StatusCode::BAD_REQUEST, "more than 16 MB: ask for less\n"),
                None => plain(StatusCode::NOT_FOUND, "no size; ask for /1024 or /10KB\n"),
            },
        }
    }
}

/// The size that a path is: bytes, or with `KB` units of 1024; `None` of anything else.
fn size(path: &str) -> Option<usize> {
    let text = path.strip_prefix('/')?;
    let (digits, unit) = match text.strip_suffix("KB").or_else(|| text.strip_suffix("kb")) {
        Some(digits) => (digits, 1_024),
        None => (text, 1),
    };
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    // More digits than a number has are more than the most.
    Some(digits.parse().unwrap_or(usize::MAX).saturating_mul(unit))
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn a_path_is_a_size_or_none() {
        for (path, bytes) in [
            ("/1024", 1_024),
            ("/10KB", 10_240),
            ("/999kb", 1_022_976),
            ("/0", 0),
        ] {
            assert_eq!(size(path), Some(bytes), "{path}");
        }
        assert_eq!(size("/99999999999999999999999999KB"), Some(usize::MAX));
        for path in ["/", "/KB", "/+1", "/1.5KB", "/-1", "/10 KB", "/1/2", "1024"] {
            assert_eq!(size(path), None, "{path}");
        }
    }
}
