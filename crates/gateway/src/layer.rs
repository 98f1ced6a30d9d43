//! The layers of the request path.
//!
//! ```text
//! accept ─> Admit ─> (cache) ─> (batch) ─> Balance ─> Endpoint ─> backend
//! ```
//!
//! A layer is a value with one method; it has the next layer as a field of a type known at compile time, so a layer that
//! is not there costs nothing and none costs an allocation. Requests go down as a [`Call`], which a layer may hold, change
//! or drop; answers come up as an [`Answer`], whose body comes from an upstream or from memory. Whatever answers, [`Admit`]
//! counts it, once. Below it each exchange with a backend is counted for that backend, by the layer that makes it.
//!
//! [`Admit`]: crate::admit::Admit

use http::{HeaderMap, StatusCode};

use crate::body::Body;
use crate::call::{Call, Stop};
use crate::fields::Fields;

/// What a layer answers.
pub(crate) struct Answer {
    pub status: StatusCode,
    /// No connection-specific one, but those of a switch of protocols.
    pub fields: Fields,
    pub body: Body,
}

impl Answer {
    pub(crate) fn new(status: StatusCode, fields: HeaderMap, body: Body) -> Self {
        Self {
            status,
            fields: fields.into(),
            body,
        }
    }
}

/// One layer of the request path.
///
/// The future is dropped when the client goes away. A layer whose work serves others too does it in a task of its own.
pub(crate) trait Layer {
    /// Answers a request, by itself or by asking the layer below.
    ///
    /// # Errors
    /// Why there is no answer; the outermost layer answers the client.
    async fn call(&self, call: Box<Call>) -> Result<Answer, Stop>;
}

#[cfg(test)]
#[path = "layer_tests.rs"]
mod tests;
