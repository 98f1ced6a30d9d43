//! How an answer came about, as Cache-Status (RFC 9211) says it.

use std::io::Write;

use http::{HeaderValue, StatusCode};

/// Bytes of the longest value, and some more.
const LONGEST: usize = 128;

/// Why a request was passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Nothing was stored for this target.
    UriMiss,
    /// What was stored is for other requests.
    VaryMiss,
    /// What was stored was stale.
    Stale,
    /// The request asked to ask.
    Request,
    /// The cache takes no part in such requests.
    Bypass,
    /// Nor in such methods.
    Method,
}

/// How an answer came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct How {
    /// `None`: it was answered from memory.
    forwarded: Option<Why>,
    /// The origin's answer, where that is not the one that is given.
    status: Option<StatusCode>,
    /// It waited for another request, whose answer it got or did not.
    collapsed: Option<bool>,
}

impl How {
    /// From memory, without asking.
    pub(super) const HIT: Self = Self {
        forwarded: None,
        status: None,
        collapsed: None,
    };

    /// Passed on.
    pub(super) const fn forwarded(why: Why) -> Self {
        Self {
            forwarded: Some(why),
            ..Self::HIT
        }
    }

    /// The origin answered so, and what was stored was given instead.
    pub(super) const fn answered(self, status: Option<StatusCode>) -> Self {
        Self { status, ..self }
    }

    /// It waited for another request, and got its answer or did not.
    pub(super) const fn collapsed(self, shared: bool) -> Self {
        Self {
            collapsed: Some(shared),
            ..self
        }
    }

    /// The value of Cache-Status, of what is fresh for so many seconds still (negative: stale for so many).
    pub(super) fn value(self, fresh_s: Option<i64>) -> HeaderValue {
        let mut buffer = [0; LONGEST];
        let mut rest = &mut buffer[..];
        let forwarded = match self.forwarded {
            None => "headroom; hit",
            Some(Why::UriMiss) => "headroom; fwd=uri-miss",
            Some(Why::VaryMiss) => "headroom; fwd=vary-miss",
            Some(Why::Stale) => "headroom; fwd=stale",
            Some(Why::Request) => "headroom; fwd=request",
            Some(Why::Bypass) => "headroom; fwd=bypass",
            Some(Why::Method) => "headroom; fwd=method",
        };
        // It has room for all of them.
        let _ = rest.write_all(forwarded.as_bytes());
        if let Some(status) = self.status {
            let _ = write!(rest, "; fwd-status={}", status.as_u16());
        }
        if let Some(fresh_s) = fresh_s {
            let _ = write!(rest, "; ttl={fresh_s}");
        }
        let collapsed = match self.collapsed {
            None => "",
            Some(true) => "; collapsed",
            Some(false) => "; collapsed=?0",
        };
        let _ = rest.write_all(collapsed.as_bytes());
        let length = LONGEST - rest.len();
        // Of letters, digits and separators alone.
        HeaderValue::from_bytes(&buffer[..length]).unwrap_or(HeaderValue::from_static("headroom"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_says_what_became_of_the_request() {
        let stale = How::forwarded(Why::Stale);
        for (how, fresh_s, value) in [
            (How::HIT, Some(5), "headroom; hit; ttl=5"),
            (How::HIT, Some(-3), "headroom; hit; ttl=-3"),
            (stale, None, "headroom; fwd=stale"),
            (
                stale.answered(Some(StatusCode::BAD_GATEWAY)),
                Some(-1),
                "headroom; fwd=stale; fwd-status=502; ttl=-1",
            ),
            (
                stale.collapsed(true),
                Some(9),
                "headroom; fwd=stale; ttl=9; collapsed",
            ),
            (
                How::forwarded(Why::UriMiss).collapsed(false),
                None,
                "headroom; fwd=uri-miss; collapsed=?0",
            ),
        ] {
            assert_eq!(how.value(fresh_s), value);
        }
        let longest = How::forwarded(Why::VaryMiss)
            .answered(Some(StatusCode::BAD_GATEWAY))
            .collapsed(false)
            .value(Some(i64::MIN));
        assert!(longest.len() < LONGEST && longest.to_str().unwrap().ends_with("; collapsed=?0"));
    }
}
