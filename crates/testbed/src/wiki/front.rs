//! What the wiki answers.

use super::render;
use super::store::Store;
use super::workers::Workers;
use crate::server::Service;
use crate::server::answers::{html, json, not_allowed, plain, too_busy, typed};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use std::sync::Arc;

/// What every connection needs.
pub(super) struct Front {
    store: Arc<Store>,
    workers: Arc<Workers>,
    index: Bytes,
    list: Bytes,
}

impl Front {
    pub(super) fn new(store: Arc<Store>, workers: Arc<Workers>) -> Arc<Self> {
        let list: String = store
            .pages
            .iter()
            .map(|page| format!("/wiki/{}\n", page.title))
            .collect();
        Arc::new(Self {
            index: render::index(&store).into(),
            list: list.into(),
            store,
            workers,
        })
    }

    async fn page(&self, page: usize) -> Response<Full<Bytes>> {
        let Ok(document) = self.workers.submit(page) else {
            return too_busy();
        };
        match document.await {
            Ok(document) => html(document),
            Err(_) => plain(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the worker that rendered this page has ended\n",
            ),
        }
    }
}

impl Service for Front {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        // To HEAD hyper sends the head only, with the length that GET would have.
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return not_allowed("only GET and HEAD\n", "GET, HEAD");
        }
        let Some(path) = percent_decoded(request.uri().path()) else {
            return plain(StatusCode::BAD_REQUEST, "the path's percent-encoding is broken\n");
        };
        match path.as_str() {
            "/" => html(self.index.clone()),
            "/healthz" => plain(StatusCode::OK, "ok\n"),
            "/pages.txt" => typed(StatusCode::OK, "text/plain; charset=utf-8", self.list.clone()),
            "/stats" => json(&self.workers.stats()),
            "/costs" => json(&self.workers.costs()),
            path => match path
                .strip_prefix("/wiki/")
                .and_then(|title| self.store.find(title))
            {
                Some(page) => self.page(page).await,
                None => plain(StatusCode::NOT_FOUND, "no such page; / lists them all\n"),
            },
        }
    }
}

/// A path with its percent-encoding taken away; none where that is broken or gives no UTF-8.
fn percent_decoded(path: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        decoded.push((high * 16 + low) as u8);
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::percent_decoded;

    #[test]
    fn percent_encoding_is_taken_away() {
        assert_eq!(
            percent_decoded("/wiki/Quiet%5FQuay").as_deref(),
            Some("/wiki/Quiet_Quay")
        );
        assert_eq!(percent_decoded("/%e2%82%ac").as_deref(), Some("/\u{20ac}"));
        for broken in ["/%", "/%5", "/%zz", "/%ff", "/%+1"] {
            assert_eq!(percent_decoded(broken), None, "{broken}");
        }
    }
}
