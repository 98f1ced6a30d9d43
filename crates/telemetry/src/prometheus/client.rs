//! The HTTP client of the query API: one kept-alive connection, one request at a time.

use super::endpoint::{Endpoint, form};
use super::reply::{self, Fault, Sample};
use bytes::Bytes;
use http::{HeaderValue, Request, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The longest reply that is read, bytes. One number takes some hundred.
const REPLY_MAX: usize = 1 << 20;

/// Why a query brought no number.
#[derive(Debug, thiserror::Error)]
pub(super) enum QueryError {
    #[error("no connection: {0}")]
    Connect(io::Error),
    #[error("the connection broke: {0}")]
    Http(#[from] hyper::Error),
    #[error("the request cannot be made: {0}")]
    Request(#[from] http::Error),
    #[error("the reply did not come whole, or is longer than 1 MiB: {0}")]
    Body(String),
    #[error("no reply within {0:?}")]
    Timeout(Duration),
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// The connection to one server.
pub(super) struct Client {
    endpoint: Endpoint,
    tls: Option<Arc<rustls::ClientConfig>>,
    authorization: Option<HeaderValue>,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    pub fn new(
        endpoint: Endpoint,
        tls: Option<Arc<rustls::ClientConfig>>,
        authorization: Option<HeaderValue>,
    ) -> Self {
        Self {
            endpoint,
            tls,
            authorization,
            connection: None,
        }
    }

    /// Asks for the value of an expression now.
    pub async fn ask(&mut self, expression: &str, within: Duration) -> Result<Sample, QueryError> {
        // Where the time is over the request is dropped half done, and its connection is of no further use.
        let answer = tokio::time::timeout(within, self.exchange(expression, within)).await;
        answer.unwrap_or_else(|_| {
            self.connection = None;
            Err(QueryError::Timeout(within))
        })
    }

    async fn exchange(&mut self, expression: &str, within: Duration) -> Result<Sample, QueryError> {
        let timeout = format!("{}ms", within.as_millis().max(1));
        let body = Bytes::from(form(&[("query", expression), ("timeout", &timeout)]));
        let mut kept = self.connection.take();
        if let Some(connection) = &mut kept
            && connection.ready().await.is_err()
        {
            kept = None;
        }
        let was_kept = kept.is_some();
        let mut connection = match kept {
            Some(kept) => kept,
            None => self.connect().await?,
        };
        let response = match connection.send_request(self.request(body.clone())?).await {
            // The server closed a kept-alive connection as the request came: a query can be asked again.
            Err(error) if was_kept && !error.is_timeout() => {
                connection = self.connect().await?;
                connection.send_request(self.request(body)?).await?
            }
            response => response?,
        };
        let status = response.status();
        let location = response.headers().get(header::LOCATION).cloned();
        let body = Limited::new(response.into_body(), REPLY_MAX)
            .collect()
            .await
            .map_err(|error| QueryError::Body(error.to_string()))?
            .to_bytes();
        self.connection = Some(connection);
        if status.is_redirection() {
            return Err(QueryError::Fault(Fault::Refused {
                status: status.as_u16(),
                message: format!("it redirects to {location:?}; give that address"),
            }));
        }
        Ok(reply::read(status.as_u16(), &body)?)
    }

    fn request(&self, body: Bytes) -> Result<Request<Full<Bytes>>, http::Error> {
        let mut request = Request::post(&self.endpoint.path)
            .header(header::HOST, &self.endpoint.authority)
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        request.body(Full::new(body))
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, QueryError> {
        let stream = TcpStream::connect((self.endpoint.host.as_str(), self.endpoint.port))
            .await
            .map_err(QueryError::Connect)?;
        stream.set_nodelay(true).map_err(QueryError::Connect)?;
        match &self.tls {
            None => start(stream).await,
            Some(config) => {
                let name = ServerName::try_from(self.endpoint.host.clone()).map_err(|error| {
                    QueryError::Connect(io::Error::new(io::ErrorKind::InvalidInput, error))
                })?;
                let stream = TlsConnector::from(Arc::clone(config))
                    .connect(name, stream)
                    .await
                    .map_err(QueryError::Connect)?;
                start(stream).await
            }
        }
    }
}

async fn start<S>(stream: S) -> Result<SendRequest<Full<Bytes>>, QueryError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        // What goes wrong here is told to the request that waits for it.
        let _ = connection.await;
    });
    Ok(sender)
}
