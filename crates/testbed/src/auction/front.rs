//! What the auction site answers over HTTP.

use super::queries::{Fields, Problem};
use super::worker::{Job, Workers};
use crate::server::Service;
use crate::server::answers::{html, json, not_allowed, plain, too_busy};
use bytes::Bytes;
use headroom_units::Seconds;
use headroom_workload::auction::Place;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use std::sync::Arc;

/// The most bytes of a form.
const MAX_FORM: usize = 16 << 10;

pub(super) struct Front {
    workers: Arc<Workers>,
    /// `Cache-Control` of pages that all see alike.
    shared: HeaderValue,
}

impl Front {
    pub(super) fn new(workers: Arc<Workers>, max_age: Seconds) -> Self {
        let shared = format!("public, max-age={}", max_age.get());
        Self {
            workers,
            // Whole seconds, as was checked.
            shared: HeaderValue::from_str(&shared).unwrap_or(HeaderValue::from_static("no-cache")),
        }
    }

    async fn page(&self, place: Place, fields: Fields, asked: &HeaderMap) -> Response<Full<Bytes>> {
        let Ok(done) = self.workers.submit(Job { place, fields }) else {
            return too_busy();
        };
        let Ok(done) = done.await else {
            return plain(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the worker of this page has ended\n",
            );
        };
        let (document, next) = match done {
            Ok(done) => done,
            Err(Problem::Missing) => {
                return plain(
                    StatusCode::NOT_FOUND,
                    "there is no such item, user, category or region\n",
                );
            }
            Err(Problem::Field(name)) => {
                return plain_owned(
                    StatusCode::UNPROCESSABLE_ENTITY,
                    format!("the form's `{name}` is absent, or is none of this site\n"),
                );
            }
            Err(Problem::Nothing(name)) => {
                return plain_owned(
                    StatusCode::BAD_REQUEST,
                    format!("the form's `{name}` is 0: it must be 1 or more, as {name}=1\n"),
                );
            }
            Err(Problem::Database(_)) => {
                let mut failed = plain(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "the database did not answer; see the service's log\n",
                );
                failed
                    .headers_mut()
                    .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
                return failed;
            }
        };
        if place.page.writes() {
            let mut written = html(document);
            *written.status_mut() = StatusCode::CREATED;
            if let Some(location) = next.and_then(|next| HeaderValue::from_str(&next.target()).ok()) {
                written.headers_mut().insert(header::LOCATION, location);
            }
            return written;
        }
        if place.page.is_personal() {
            return html(document);
        }
        let tag = entity_tag(&document);
        let is_held = asked
            .get_all(header::IF_NONE_MATCH)
            .iter()
            .any(|held| matches(held.as_bytes(), tag.as_bytes()));
        let mut answer = if is_held {
            let mut answer = html(Bytes::new());
            *answer.status_mut() = StatusCode::NOT_MODIFIED;
            answer
        } else {
            html(document)
        };
        let headers = answer.headers_mut();
        headers.insert(header::CACHE_CONTROL, self.shared.clone());
        headers.insert(header::ETAG, tag);
        answer
    }
}

impl Service for Front {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
        let reads = matches!(head.method, Method::GET | Method::HEAD);
        match target {
            "/healthz" if reads => return plain(StatusCode::OK, "ok\n"),
            "/stats" if reads => return json(&self.workers.stats()),
            _ => {}
        }
        let writes = head.method == Method::POST;
        let (read, written) = (Place::parse(false, target), Place::parse(true, target));
        let place = match (reads, writes) {
            (true, _) => read,
            (_, true) => written,
            _ => None,
        };
        let Some(place) = place else {
            return match (read, written) {
                (None, None) => plain(StatusCode::NOT_FOUND, "no such page; / leads to them all\n"),
                (Some(_), Some(_)) => not_allowed("only GET, HEAD and POST\n", "GET, HEAD, POST"),
                (Some(_), None) => not_allowed("only GET and HEAD\n", "GET, HEAD"),
                (None, Some(_)) => not_allowed("only POST\n", "POST"),
            };
        };
        let fields = if writes {
            let Ok(body) = Limited::new(body, MAX_FORM).collect().await else {
                return plain(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "the form is longer than 16 KiB, or was cut short\n",
                );
            };
            match fields(&body.to_bytes()) {
                Some(fields) => fields,
                None => {
                    return plain(
                        StatusCode::BAD_REQUEST,
                        "the form is not name=number pairs joined by &\n",
                    );
                }
            }
        } else {
            Fields(Vec::new())
        };
        self.page(place, fields, &head.headers).await
    }
}

fn plain_owned(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    crate::server::answers::typed(status, "text/plain; charset=utf-8", text.into())
}

/// What a form says: names and numbers, which need no percent-encoding.
fn fields(body: &[u8]) -> Option<Fields> {
    let body = std::str::from_utf8(body).ok()?;
    let pairs = body.split('&').filter(|pair| !pair.is_empty());
    let fields = pairs.map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let digits = value.bytes().all(|byte| byte.is_ascii_digit());
        Some((name.to_owned(), value.parse().ok().filter(|_| digits)?))
    });
    fields.collect::<Option<Vec<_>>>().map(Fields)
}

/// A strong entity tag: the bytes' FNV-1a hash of 64 bits, and their number.
fn entity_tag(document: &[u8]) -> HeaderValue {
    let hash = document.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let tag = format!("\"{hash:016x}-{:x}\"", document.len());
    HeaderValue::from_str(&tag).unwrap_or(HeaderValue::from_static("\"\""))
}

/// Whether `If-None-Match` names a tag (RFC 9110, Section 13.1.2: weakly compared).
fn matches(held: &[u8], tag: &[u8]) -> bool {
    held == b"*"
        || held.split(|byte| *byte == b',').any(|one| {
            let one = one.trim_ascii();
            one.strip_prefix(b"W/").unwrap_or(one) == tag
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_names_and_numbers() {
        let read = fields(b"user=5&raise_cents=10").unwrap().0;
        assert_eq!(read, [("user".to_owned(), 5), ("raise_cents".to_owned(), 10)]);
        for bad in [
            "user",
            "user=",
            "user=-1",
            "user=+1",
            "user=4294967296",
            "user=%35",
        ] {
            assert!(fields(bad.as_bytes()).is_none(), "{bad}");
        }
        assert!(fields(b"").unwrap().0.is_empty());
    }

    #[test]
    fn tags_are_compared_weakly() {
        let tag = entity_tag(b"page");
        assert_ne!(tag, entity_tag(b"Page"));
        let held = format!("\"x\", W/{}", tag.to_str().unwrap());
        assert!(matches(held.as_bytes(), tag.as_bytes()) && matches(b"*", tag.as_bytes()));
        assert!(!matches(b"\"x\"", tag.as_bytes()));
    }
}
