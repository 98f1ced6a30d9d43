//! The one HTTP client: hyper-util's, with a bound on the length of an answer, the authorities of TLS read from a file, and
//! connections that can be closed and waited for.
//!
//! ```no_run
//! use headroom_client::get;
//! use std::time::Duration;
//!
//! let page = get("http://127.0.0.1/server-status?auto", Duration::from_secs(1), 64 << 10)?;
//! println!("{}", String::from_utf8_lossy(&page));
//! # Ok::<(), headroom_client::ClientError>(())
//! ```

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{
    DefaultServerNameResolver, FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder,
};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};
use std::error::Error;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;

/// Certificate authorities where no file is named: those of Debian and its kin.
const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody answers at the address.
    #[error("no connection: {0}")]
    Connect(String),
    /// The encryption was not agreed upon.
    #[error("no connection: {cause}")]
    Tls {
        /// What went wrong.
        cause: String,
        /// The same as rustls has it, where it was its finding.
        error: Option<rustls::Error>,
    },
    /// The connection ended before the answer did, or what came is no HTTP.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The answer did not come whole, or is longer than allowed.
    #[error("the reply did not come whole, or is longer than {} KiB: {cause}", max_bytes >> 10)]
    Body {
        /// The longest that is read, in bytes.
        max_bytes: usize,
        /// What went wrong.
        cause: String,
    },
    /// The address or a header cannot be sent.
    #[error("the request cannot be made: {0}")]
    Request(#[from] http::Error),
    /// The answer is a refusal.
    #[error("the answer is \"{0}\"")]
    Status(StatusCode),
    /// The time is over.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// This machine has no more threads or files.
    #[error("a client cannot be made: {0}")]
    Io(#[from] io::Error),
}

/// Its connections: one for each server that is asked one thing at a time, kept alive between requests.
#[derive(Debug)]
pub struct Client {
    client: hyper_util::client::legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    tasks: Tasks,
}

/// What moves the bytes of each connection, to its end.
#[derive(Clone, Debug, Default)]
struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, task: F) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that have ended are forgotten.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}

impl Client {
    /// A client that trusts as `config` says; without, `https` is refused by every certificate.
    pub fn new(config: Option<ClientConfig>) -> Self {
        Self::named(config, None)
    }

    /// The same, where the certificates of servers must have this name and not that of their address.
    pub fn named(config: Option<ClientConfig>, name: Option<ServerName<'static>>) -> Self {
        let config = config.unwrap_or_else(|| {
            tls()
                .with_root_certificates(RootCertStore::empty())
                .with_no_client_auth()
        });
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        let builder = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http();
        let builder = match name {
            Some(name) => builder.with_server_name_resolver(FixedServerNameResolver::new(name)),
            None => builder.with_server_name_resolver(DefaultServerNameResolver::default()),
        };
        let connector = builder.enable_http1().wrap_connector(connector);
        let tasks = Tasks::default();
        let client = hyper_util::client::legacy::Client::builder(tasks.clone()).build(connector);
        Self { client, tasks }
    }

    /// Sends a request to its whole address, and waits for the head of the answer. Redirections are not followed. It takes
    /// as long as it takes: put a time limit around it; one that is dropped half done closes its connection.
    ///
    /// # Errors
    /// [`ClientError::Connect`], [`ClientError::Tls`], [`ClientError::Broken`].
    pub async fn head(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, ClientError> {
        self.client.request(request).await.map_err(|error| {
            let cause = error.source().map_or_else(|| error.to_string(), root_cause);
            match error
                .source()
                .and_then(|source| source.downcast_ref::<io::Error>())
            {
                // The connector's own errors are of another type than those of TLS after it.
                Some(io) if error.is_connect() => ClientError::Tls {
                    cause,
                    error: find::<rustls::Error>(io).cloned(),
                },
                _ if error.is_connect() => ClientError::Connect(cause),
                _ => ClientError::Broken(cause),
            }
        })
    }

    /// As [`Client::head`], with the whole body of at most `max_bytes`. A request that breaks is sent once more where
    /// `again` says that this does no harm: a server may close a kept connection as the request comes.
    ///
    /// # Errors
    /// As [`Client::head`]; [`ClientError::Body`].
    pub async fn ask(
        &self,
        request: Request<Full<Bytes>>,
        max_bytes: usize,
        again: bool,
    ) -> Result<Response<Bytes>, ClientError> {
        let response = match self.head(request.clone()).await {
            Err(ClientError::Broken(_)) if again => self.head(request).await?,
            response => response?,
        };
        let (head, body) = response.into_parts();
        // Small servers end an answer without a length by closing the connection, and do not say so in TLS. Where there is a
        // length, one that is cut short still is an error.
        let has_length = [header::CONTENT_LENGTH, header::TRANSFER_ENCODING]
            .iter()
            .any(|name| head.headers.contains_key(name));
        let mut body = Limited::new(body, max_bytes);
        let mut whole = Vec::new();
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => whole.extend_from_slice(&frame.into_data().unwrap_or_default()),
                Err(error) => {
                    let io = find::<io::Error>(&*error);
                    if !has_length && io.is_some_and(|io| io.kind() == io::ErrorKind::UnexpectedEof) {
                        break;
                    }
                    let cause = root_cause(&*error);
                    return Err(ClientError::Body { max_bytes, cause });
                }
            }
        }
        Ok(Response::from_parts(head, whole.into()))
    }

    /// Closes its connections, and tells the other ends; where that takes longer than this, they are cut off.
    pub async fn close(self, within: Duration) {
        drop(self.client);
        let mut tasks = std::mem::take(&mut *self.tasks.0.lock().unwrap_or_else(PoisonError::into_inner));
        let closed = async { while tasks.join_next().await.is_some() {} };
        // What is left is cut off with the set.
        let _ = tokio::time::timeout(within, closed).await;
    }
}

/// One page, over a connection of its own, from a thread that may block.
///
/// # Errors
/// [`ClientError`]; [`ClientError::Status`] where the answer is not 200.
pub fn get(url: &str, within: Duration, max_bytes: usize) -> Result<Bytes, ClientError> {
    let request = Request::get(url)
        .header(header::CONNECTION, "close")
        .body(Full::default())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let answer = runtime.block_on(async {
        let client = Client::new(None);
        tokio::time::timeout(within, client.ask(request, max_bytes, false)).await
    });
    // A name that is still being resolved is not waited for.
    runtime.shutdown_background();
    let answer = answer.map_err(|_| ClientError::Timeout(within))??;
    match answer.status() {
        StatusCode::OK => Ok(answer.into_body()),
        status => Err(ClientError::Status(status)),
    }
}

/// The beginning of a TLS configuration: ring's ciphers, TLS 1.2 and 1.3.
pub fn tls() -> ConfigBuilder<ClientConfig, WantsVerifier> {
    ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has ciphers for the default versions")
}

/// The authorities in a PEM file, or the system's.
///
/// # Errors
/// The file, and what is wrong with it.
pub fn authorities(file: Option<&Path>) -> Result<RootCertStore, (&Path, String)> {
    let file = file.unwrap_or(Path::new(SYSTEM_AUTHORITIES));
    let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(|error| (file, error.to_string()))?;
    let mut roots = RootCertStore::empty();
    // A bundle may hold one that is too old a kind; the others still count.
    match roots.add_parsable_certificates(certificates) {
        (0, _) => Err((file, "there is no authority's certificate in it".into())),
        _ => Ok(roots),
    }
}

/// The first of this type among an error and its causes, also those that an [`io::Error`] wraps.
fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

fn root_cause(error: &(dyn Error + 'static)) -> String {
    causes(error).last().unwrap_or(error).to_string()
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error: &&'a (dyn Error + 'static)| {
        match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    #[test]
    fn only_a_good_answer_that_is_short_and_whole_is_a_page() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!(
            "http://localhost:{}/status",
            listener.local_addr().unwrap().port()
        );
        for (answer, outcome) in [
            ("HTTP/1.1 200 OK\r\nA: b\r\n\r\nx: 1\n", "x: 1\n"),
            ("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", "x"),
            ("HTTP/1.1 403 Forbidden\r\n\r\nno", "403 Forbidden"),
            ("HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", "302 Found"),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx",
                "did not come whole",
            ),
            ("HTTP/1.1 200 OK\r\n\r\n0123456789abcdefg", "longer than"),
            ("SSH-2.0-OpenSSH\r\n", "broke"),
            ("", "broke"),
        ] {
            let page = std::thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut stream, _) = listener.accept().unwrap();
                    // The whole request, so that the close is no reset.
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        let mut byte = [0];
                        stream.read_exact(&mut byte).unwrap();
                        head.extend(byte);
                    }
                    assert!(
                        String::from_utf8(head)
                            .unwrap()
                            .starts_with("GET /status HTTP/1.1\r\n")
                    );
                    stream.write_all(answer.as_bytes()).unwrap();
                });
                get(&url, Duration::from_secs(20), 16)
            });
            match page {
                Ok(page) => assert_eq!(page, outcome),
                Err(error) => assert!(error.to_string().contains(outcome), "{answer:?}: {error}"),
            }
        }
        drop(listener);
        let error = get(&url, Duration::from_secs(20), 16).unwrap_err();
        assert!(matches!(error, ClientError::Connect(_)), "{error}");
    }

    #[test]
    fn a_server_that_hangs_has_its_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let error = get(&url, Duration::from_millis(50), 16).unwrap_err();
        assert!(matches!(error, ClientError::Timeout(_)), "{error}");
    }
}
