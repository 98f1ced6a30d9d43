//! Queries of the API: one kept-alive connection, one request at a time.

use super::access::Credentials;
use super::reply::{self, Fault, Sample};
use bytes::Bytes;
use headroom_client::{Client, ClientError};
use http::{HeaderValue, Request, Uri, header};
use std::net::IpAddr;
use std::time::Duration;

/// The longest reply that is read, bytes. One number takes some hundred.
const MAX_REPLY_BYTES: usize = 1 << 20;

/// Why a query brought no number.
#[derive(Debug, thiserror::Error)]
pub(super) enum QueryError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("no reply within {0:?}")]
    Timeout(Duration),
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// The query API of one server.
#[derive(Debug)]
pub(super) struct QueryApi {
    client: Client,
    address: Uri,
    credentials: Option<Credentials>,
}

impl QueryApi {
    pub fn new(client: Client, address: Uri, credentials: Option<Credentials>) -> Self {
        Self {
            client,
            address,
            credentials,
        }
    }

    /// Whether what is sent can be read between here and a server on another machine.
    pub fn is_in_clear(&self) -> bool {
        let host = self.address.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_here =
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        self.address.scheme_str() != Some("https") && !is_here
    }

    /// Who asks, as the file says now.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn authorization(&self) -> Result<Option<HeaderValue>, String> {
        self.credentials.as_ref().map(Credentials::header).transpose()
    }

    /// Asks for the value of an expression now.
    pub async fn ask(
        &self,
        expression: &str,
        authorization: Option<&HeaderValue>,
        within: Duration,
    ) -> Result<Sample, QueryError> {
        let timeout = format!("{}ms", within.as_millis().max(1));
        let body = super::endpoint::form(&[("query", expression), ("timeout", &timeout)]);
        let mut request = Request::post(&self.address);
        if let Some(authorization) = authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Bytes::from(body).into())
            .map_err(ClientError::from)?;
        // A query can be asked again.
        let response = tokio::time::timeout(within, self.client.ask(request, MAX_REPLY_BYTES, true));
        let response = response.await.map_err(|_| QueryError::Timeout(within))??;
        let status = response.status().as_u16();
        if response.status().is_redirection() {
            let location = response.headers().get(header::LOCATION);
            return Err(QueryError::Fault(Fault::Refused {
                status,
                message: format!("it redirects to {location:?}; give that address"),
            }));
        }
        // Who answers so need not be a Prometheus, and what it says need not be shown.
        if matches!(status, 401 | 403) {
            let message = Credentials::refused(self.credentials.as_ref());
            return Err(QueryError::Fault(Fault::Refused { status, message }));
        }
        Ok(reply::read(status, response.body())?)
    }
}
