//! What goes down the layers: a request that was admitted. And why a layer gives no answer to it.

use std::rc::Rc;
use std::time::Instant;

use http::{HeaderValue, StatusCode, request};

use crate::batch::Member;
use crate::grpc::GrpcCall;
use crate::headers::{ClientIdentity, Refusal};
use crate::interim::InterimTo;
use crate::request_head::BodyFraming;
use crate::sizes::Sized;
use crate::stats::Failure;
use crate::upload::RequestBody;
use crate::watch::Watch;

/// A request that was admitted. It is owned and borrows nothing, so that a layer may hold it as long as it likes, from
/// another task too; boxed, because it is large and handed down from layer to layer.
pub(crate) struct Call {
    /// The head, without what ends at a proxy: the target in origin form, one Host at most.
    pub parts: request::Parts,
    pub framing: BodyFraming,
    /// The protocol that the client asks to switch to.
    pub upgrade: Option<HeaderValue>,
    pub te_trailers: bool,
    /// Who is sent the interim answers; `None` where nobody can be.
    pub interim: Option<InterimTo>,
    pub body: Option<RequestBody>,
    pub client: Rc<ClientIdentity>,
    /// Its place among those that a batcher let go; until the end of what answers it, where that comes from a backend.
    pub place: Option<Rc<Member>>,
    /// It is a call of gRPC, whose outcome is not what HTTP says.
    pub grpc: Option<GrpcCall>,
    /// What was known of the size of its answer; `None` where sizes are not looked at.
    pub sized: Option<Sized>,
    /// How important it is where not all can be served; 0 for the most important.
    pub rank: usize,
    /// When its head was received: latencies count from here, deadlines of a layer too.
    pub arrived: Instant,
    /// On which a layer writes what it waits for, and finds whether that took too long.
    pub watch: Rc<Watch>,
}

impl Call {
    /// It was held in a batch: others that ask for the same came with it.
    pub(crate) fn is_batched(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.is_of_batch())
    }

    /// The answer has begun, and nobody asks for the request's head any more: its memory is freed before a long body.
    pub(crate) fn forget_head(&mut self) {
        self.parts.headers = http::HeaderMap::new();
        self.parts.uri = http::Uri::default();
        self.parts.extensions = http::Extensions::new();
    }
}

/// Why there is no answer but the gateway's own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The request is not one that may pass: counted as refused.
    Refuse(Refusal),
    /// It failed, with words for the client.
    Fail(Failure, &'static str),
}

impl Stop {
    /// Whether what follows on the connection cannot be trusted to be another request: this one was malformed. One that came too soon, or
    /// to the wrong name, was not, and to close its connection would only have it opened again.
    pub(crate) fn leaves_connection_unknown(self) -> bool {
        match self {
            Self::Refuse(refusal) => !matches!(
                refusal.status,
                StatusCode::TOO_MANY_REQUESTS | StatusCode::MISDIRECTED_REQUEST
            ),
            Self::Fail(..) => false,
        }
    }

    /// Whether a backend failed, and not the request, its client or its time, which a client may grant itself.
    pub(crate) fn is_of_backend(self) -> bool {
        matches!(
            self,
            Self::Fail(Failure::Unreachable | Failure::AbortedByBackend, _)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_breaks_off_is_no_failure_of_a_backend() {
        for (failure, is_of_backend) in [
            (Failure::Unreachable, true),
            (Failure::TimedOut, false),
            (Failure::AbortedByBackend, true),
            (Failure::AbortedByClient, false),
            (Failure::OverLimit, false),
        ] {
            assert_eq!(Stop::Fail(failure, "why").is_of_backend(), is_of_backend);
        }
    }
}
