//! gRPC: what became of a call, and how the gateway answers one itself.
//!
//! An HTTP status of 200 says nothing of a call: its outcome is the `grpc-status` behind the messages, or in the head where there are none
//! (PROTOCOL-HTTP2.md of gRPC, "Responses").

use std::fmt;
use std::time::Duration;

use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Method, StatusCode, request};
use serde::{Deserialize, Serialize};

use crate::deadline::grpc_deadline;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// The names of the statuses, by their codes (statuscodes.md of gRPC).
const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];
const UNKNOWN: u8 = 2;
const DEADLINE_EXCEEDED: u8 = 4;
const PERMISSION_DENIED: u8 = 7;
const RESOURCE_EXHAUSTED: u8 = 8;
const UNIMPLEMENTED: u8 = 12;
const INTERNAL: u8 = 13;
const UNAVAILABLE: u8 = 14;
const DATA_LOSS: u8 = 15;
const UNAUTHENTICATED: u8 = 16;

/// The statuses of gRPC with which a call counts as failed, as a 5xx does: in a configuration a list of names or codes, as
/// `["UNAVAILABLE", "13"]`.
///
/// By default those that are the server's failure: UNKNOWN, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, INTERNAL, UNAVAILABLE and DATA_LOSS. Not
/// CANCELLED, which servers pass on of a caller that went away, nor UNIMPLEMENTED and others that are what the call asked for. A call
/// that ends without a status has failed, whatever is listed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct FailedGrpcStatus(u32);

/// A word that is no status of gRPC that can have failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is no status of gRPC with which a call can have failed: write its name, as \"UNAVAILABLE\", or its code, \"1\" to \"16\""
)]
pub struct FailedGrpcStatusError(String);

impl FailedGrpcStatus {
    fn contains(self, code: u8) -> bool {
        self.0 & (1 << code) != 0
    }
}

impl Default for FailedGrpcStatus {
    fn default() -> Self {
        let codes = [
            UNKNOWN,
            DEADLINE_EXCEEDED,
            RESOURCE_EXHAUSTED,
            INTERNAL,
            UNAVAILABLE,
            DATA_LOSS,
        ];
        Self(codes.iter().fold(0, |all, code| all | 1 << code))
    }
}

impl TryFrom<Vec<String>> for FailedGrpcStatus {
    type Error = FailedGrpcStatusError;

    fn try_from(words: Vec<String>) -> Result<Self, FailedGrpcStatusError> {
        let mut all = 0;
        for word in words {
            let word = word.trim();
            let named = NAMES.iter().position(|name| name.eq_ignore_ascii_case(word));
            let code = named
                .or_else(|| word.parse().ok())
                .filter(|code| (1..NAMES.len()).contains(code));
            match code {
                Some(code) => all |= 1 << code,
                None => return Err(FailedGrpcStatusError(word.chars().take(40).collect())),
            }
        }
        Ok(Self(all))
    }
}

impl From<FailedGrpcStatus> for Vec<String> {
    fn from(statuses: FailedGrpcStatus) -> Self {
        let named = NAMES.iter().enumerate();
        let listed = named.filter(|(code, _)| statuses.0 & (1 << code) != 0);
        listed.map(|(_, name)| (*name).to_owned()).collect()
    }
}

impl fmt::Debug for FailedGrpcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FailedGrpcStatus({})", Vec::from(*self).join(","))
    }
}

/// Whether a request is a call of gRPC: `application/grpc`, with a codec or without. gRPC-Web is not: its status is in the body.
fn is_call(request: &request::Parts) -> bool {
    if request.method != Method::POST {
        return false;
    }
    let Some(kind) = request.headers.get(header::CONTENT_TYPE) else {
        return false;
    };
    let rest = kind.as_bytes().strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// A request that is a call of gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GrpcCall {
    /// How long its client waits for its end.
    pub patience: Option<Duration>,
}

impl GrpcCall {
    /// `None` if it is none.
    pub(crate) fn of(request: &request::Parts) -> Option<Self> {
        is_call(request).then(|| Self {
            patience: grpc_deadline(&request.headers),
        })
    }
}

/// What is known of the outcome of a request, as far as gRPC goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is no call.
    #[default]
    NoCall,
    /// It is a call, and has no status yet.
    Open,
    /// Its status.
    Status(u8),
}

impl Outcome {
    /// Reads the status from these fields, if they have one and it is a call.
    pub(crate) fn read(&mut self, fields: &HeaderMap) {
        if *self == Self::NoCall {
            return;
        }
        if let Some(value) = fields.get(GRPC_STATUS) {
            let code = value.to_str().ok().and_then(|text| text.parse::<u8>().ok());
            // A code that nobody knows is UNKNOWN to clients.
            *self = Self::Status(
                code.filter(|code| usize::from(*code) < NAMES.len())
                    .unwrap_or(UNKNOWN),
            );
        }
    }

    /// Whether a call that has ended, with this status of HTTP, has failed.
    pub(crate) fn has_failed(self, http: Option<StatusCode>, failed: FailedGrpcStatus) -> bool {
        match (self, http) {
            (Self::NoCall, _) => false,
            (Self::Status(code), _) => failed.contains(code),
            // What is no answer of gRPC is one to clients by its status.
            (Self::Open, Some(status)) if status != StatusCode::OK => failed.contains(of_http(status)),
            (Self::Open, _) => true,
        }
    }
}

/// What an answer without a status of gRPC is to clients (http-grpc-status-mapping.md of gRPC).
fn of_http(status: StatusCode) -> u8 {
    match status.as_u16() {
        400 => INTERNAL,
        401 => UNAUTHENTICATED,
        403 => PERMISSION_DENIED,
        404 => UNIMPLEMENTED,
        429 | 502 | 503 | 504 => UNAVAILABLE,
        _ => UNKNOWN,
    }
}

/// The status of an answer of the gateway itself, that would have this status of HTTP. Not quite what clients make of it: what took too long is
/// DEADLINE_EXCEEDED, and what is too large RESOURCE_EXHAUSTED.
fn of_own(status: StatusCode) -> u8 {
    match status {
        StatusCode::GATEWAY_TIMEOUT | StatusCode::REQUEST_TIMEOUT => DEADLINE_EXCEEDED,
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => RESOURCE_EXHAUSTED,
        StatusCode::NOT_IMPLEMENTED => UNIMPLEMENTED,
        other => of_http(other),
    }
}

/// The fields of an answer of the gateway itself to a call: all of it is in the head ("Trailers-Only"), with HTTP status 200.
pub(crate) fn refusal(status: StatusCode, reason: &'static str) -> HeaderMap {
    let mut fields = trailers(of_own(status), reason);
    let kind = HeaderValue::from_static("application/grpc");
    fields.insert(header::CONTENT_TYPE, kind);
    fields
}

/// The end of an answer whose call's deadline has passed.
pub(crate) fn deadline_exceeded() -> HeaderMap {
    trailers(DEADLINE_EXCEEDED, "the deadline of the call has passed")
}

/// `reason` has no character that grpc-message must escape.
fn trailers(code: u8, reason: &'static str) -> HeaderMap {
    let mut fields = HeaderMap::with_capacity(3);
    fields.insert(GRPC_STATUS, HeaderValue::from(u16::from(code)));
    fields.insert(GRPC_MESSAGE, HeaderValue::from_static(reason));
    fields
}

#[cfg(test)]
#[path = "grpc_tests.rs"]
mod tests;
