//! Queries of the API: one kept-alive connection, one request at a time.

use super::reply::{self, Fault, Sample};
use bytes::Bytes;
use headroom_client::{Client, ClientError};
use http::{Request, Uri, header};
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
}

impl QueryApi {
    pub fn new(client: Client, address: Uri) -> Self {
        Self { client, address }
    }

    /// Asks for the value of an expression now.
    pub async fn ask(&self, expression: &str, within: Duration) -> Result<Sample, QueryError> {
        let timeout = format!("{}ms", within.as_millis().max(1));
        let body = super::endpoint::form(&[("query", expression), ("timeout", &timeout)]);
        let request = Request::post(&self.address)
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
        Ok(reply::read(status, response.body())?)
    }
}
