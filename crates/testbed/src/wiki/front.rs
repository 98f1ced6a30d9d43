//! The HTTP/1.1 front: one thread, which never renders.

use super::render;
use super::store::Store;
use super::workers::Pool;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, watch};

/// How long a client may take to send a request's head, and a connection be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// The most bytes of a request's head, and of the buffers of a connection.
const MAX_BUFFER: usize = 64 << 10;

/// How long to wait when the system refuses a connection (no file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What every connection needs.
pub(super) struct Front {
    store: Arc<Store>,
    pool: Arc<Pool>,
    index: Bytes,
    list: Bytes,
    max_connections: usize,
    drain: Duration,
}

impl Front {
    pub(super) fn new(
        store: Arc<Store>,
        pool: Arc<Pool>,
        max_connections: usize,
        drain: Duration,
    ) -> Arc<Self> {
        let list: String = store
            .pages
            .iter()
            .map(|page| format!("/wiki/{}\n", page.title))
            .collect();
        Arc::new(Self {
            index: render::index(&store).into(),
            list: list.into(),
            store,
            pool,
            max_connections,
            drain,
        })
    }

    /// Serves until it is stopped, then until open requests are answered or the drain time is over.
    pub(super) fn run(
        self: Arc<Self>,
        listener: TcpListener,
        mut stopping: watch::Receiver<bool>,
    ) -> io::Result<()> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let graceful = GracefulShutdown::new();
            let room = Arc::new(Semaphore::new(self.max_connections));
            loop {
                // The semaphore is never closed, so acquiring fails never; without room nothing is accepted.
                let accepted = async {
                    let permit = Arc::clone(&room).acquire_owned().await;
                    (listener.accept().await, permit)
                };
                let (accepted, permit) = tokio::select! {
                    accepted = accepted => accepted,
                    // A closed channel means that the handle was dropped.
                    _ = stopping.wait_for(|&stop| stop) => break,
                };
                let Ok((stream, _)) = accepted else {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                };
                // Without it an answer of several segments could wait for an acknowledgement; if it cannot be
                // set the connection only is slower.
                let _ = stream.set_nodelay(true);
                let front = Arc::clone(&self);
                let service = service_fn(move |request| {
                    let front = Arc::clone(&front);
                    async move { Ok::<_, Infallible>(front.answer(&request).await) }
                });
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_TIMEOUT)
                    .max_buf_size(MAX_BUFFER)
                    .serve_connection(TokioIo::new(stream), service);
                let connection = graceful.watch(connection);
                tokio::spawn(async move {
                    // A connection that breaks concerns its client only.
                    let _ = connection.await;
                    drop(permit);
                });
            }
            drop(listener);
            let _ = tokio::time::timeout(self.drain, graceful.shutdown()).await;
            Ok(())
        })
    }

    /// The answer to a request.
    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        // To HEAD hyper sends the head only, with the length that GET would have.
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            refused
                .headers_mut()
                .insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refused;
        }
        let Some(path) = percent_decoded(request.uri().path()) else {
            return plain(StatusCode::BAD_REQUEST, "the path's percent-encoding is broken\n");
        };
        match path.as_str() {
            "/" => html(self.index.clone()),
            "/healthz" => plain(StatusCode::OK, "ok\n"),
            "/pages.txt" => typed(StatusCode::OK, "text/plain; charset=utf-8", self.list.clone()),
            "/stats" => json(&self.pool.stats()),
            "/costs" => json(&self.pool.costs()),
            path => match path
                .strip_prefix("/wiki/")
                .and_then(|title| self.store.find(title))
            {
                Some(page) => self.page(page).await,
                None => plain(StatusCode::NOT_FOUND, "no such page; / lists them all\n"),
            },
        }
    }

    async fn page(&self, page: usize) -> Response<Full<Bytes>> {
        let Ok(document) = self.pool.submit(page) else {
            let mut full = plain(
                StatusCode::SERVICE_UNAVAILABLE,
                "every worker is busy and the queue is full\n",
            );
            full.headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            return full;
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

fn typed(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    // Each view is rendered, so that the load is the service's and not a cache's.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn json(value: &impl serde::Serialize) -> Response<Full<Bytes>> {
    match serde_json::to_vec(value) {
        Ok(json) => typed(StatusCode::OK, "application/json", json.into()),
        Err(_) => plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the statistics cannot be written\n",
        ),
    }
}

fn html(document: Bytes) -> Response<Full<Bytes>> {
    typed(StatusCode::OK, "text/html; charset=utf-8", document)
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    typed(
        status,
        "text/plain; charset=utf-8",
        Bytes::from_static(text.as_bytes()),
    )
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
