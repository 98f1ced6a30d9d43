//! Which latency a log format gives: from where to where it is measured.

use super::format::Slot;
use std::fmt;

/// From where to where the latency of a request is measured.
///
/// HAProxy's time of the request's head (`%TR`) is the client's, and so is the time in which it takes the answer: neither is
/// in [`LatencyFrom::FirstByte`]. The upload of a body is in all of them, since HAProxy sends it on as it comes, but where
/// `option http-buffer-request` has it wait for the body: then that is in `%TR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyFrom {
    /// `%Tw + %Tc + %Tr`: from the request complete to the head of the answer, with the time in HAProxy's queue and that of
    /// connecting.
    FirstByte,
    /// `%Ta - %TR`: from the request complete to the last byte of the answer, as the client takes it.
    LastByte,
    /// `%Ta`: from the first byte of the request, as the client sends it, to the last of the answer, as it takes that.
    Active,
    /// `%Tt - %Th - %Ti`, which is the same.
    TotalLessIdle,
    /// `%Tt`: the client's idle time on a kept-alive connection and its handshake are in it too, so it is right only for
    /// connections of one request.
    Total,
}

impl LatencyFrom {
    /// The one that is the least the client's doing, of a format that has these fields.
    pub(super) fn of(has: impl Fn(Slot) -> bool) -> Self {
        let active = has(Slot::ActiveTime);
        let total_less_idle = has(Slot::TotalTime) && has(Slot::HandshakeTime) && has(Slot::IdleTime);
        if tells_first_byte(&has) {
            Self::FirstByte
        } else if (active || total_less_idle) && has(Slot::RequestTime) {
            Self::LastByte
        } else if active {
            Self::Active
        } else if total_less_idle {
            Self::TotalLessIdle
        } else {
            Self::Total
        }
    }
}

/// Whether all parts of the time to the first byte are there.
pub(super) fn tells_first_byte(has: &impl Fn(Slot) -> bool) -> bool {
    [Slot::QueueTime, Slot::ConnectTime, Slot::ResponseTime]
        .into_iter()
        .all(has)
}

impl fmt::Display for LatencyFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FirstByte => {
                "from the request complete to the first byte of the answer (%Tw + %Tc + %Tr)"
            }
            Self::LastByte => {
                "from the request complete to the last byte of the answer, as the client takes it (%Ta - %TR)"
            }
            Self::Active => {
                "from the first byte of the request, as the client sends it, to the last of the answer, as it takes it (%Ta)"
            }
            Self::TotalLessIdle => {
                "from the first byte of the request, as the client sends it, to the last of the answer, as it takes it \
                 (%Tt - %Th - %Ti)"
            }
            Self::Total => {
                "from the client's connection, its idle time included, to the last byte of the answer (%Tt)"
            }
        })
    }
}
