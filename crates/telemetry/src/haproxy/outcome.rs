//! What became of a request, from its status and its termination state (section 8.5 of HAProxy's configuration
//! manual, "Session state at disconnection").

use super::line::Entry;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A server's answer was handed over whole, whatever its status.
    Completed,
    /// The connection became a tunnel (101); its length is no latency.
    Tunnel,
    /// The server refused, broke off or did not answer in time.
    FailedByServer,
    /// HAProxy gave up: no server, a full queue, a limit, a resource, an administrator.
    FailedByProxy,
    /// The client went away or stopped reading after the request was complete.
    FailedByClient,
    /// HAProxy answered or dropped it before any server had to do with it.
    Local,
}

impl Entry<'_> {
    /// Whether a server was chosen.
    pub fn has_server(&self) -> bool {
        !self.server.starts_with('<')
    }

    /// What became of the request.
    pub fn outcome(&self) -> Outcome {
        let [who, when] = self.termination;
        let proxy_error = !self.has_server() && self.status.is_none_or(|status| status >= 500);
        if self.status == Some(101) {
            return Outcome::Tunnel;
        }
        match (who, when) {
            // The request was never complete (a port scan, a browser's unused connection), refused as invalid or
            // denied, or held in the tarpit.
            (b'C' | b'c' | b'P', b'R' | b'T') if self.status.is_none_or(|status| status < 500) => {
                Outcome::Local
            }
            (b'L', _) => Outcome::Local,
            (b'C' | b'c', _) => Outcome::FailedByClient,
            // A request that waited for a server in vain did not fail by a server's fault.
            (_, b'Q') => Outcome::FailedByProxy,
            // No server was there to ask, although the state says S: HAProxy answered 503.
            (b'S' | b's', _) if !self.has_server() => Outcome::FailedByProxy,
            (b'S' | b's' | b'D' | b'U', _) => Outcome::FailedByServer,
            (b'-', _) if proxy_error => Outcome::FailedByProxy,
            (b'-', _) if self.has_server() => Outcome::Completed,
            (b'-', _) => Outcome::Local,
            // P, R, I, K, and whatever a newer version adds: it did not end normally, and neither client nor
            // server is named.
            _ => Outcome::FailedByProxy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(state: &[u8; 2], status: i32, server: &str) -> Outcome {
        Entry {
            frontend: None,
            backend: "b",
            server,
            status: u16::try_from(status).ok(),
            termination: *state,
            latency_ms: Some(1),
            to_last_byte_ms: None,
            ended: None,
        }
        .outcome()
    }

    #[test]
    fn the_common_states_of_the_manual() {
        use Outcome::*;
        let cases: &[(&[u8; 2], i32, &str, Outcome)] = &[
            (b"--", 200, "s1", Completed),
            (b"--", 404, "s1", Completed),
            (b"--", 500, "s1", Completed),
            (b"--", 101, "s1", Tunnel),
            (b"CD", 101, "s1", Tunnel),
            (b"CC", -1, "s1", FailedByClient),
            (b"CD", 200, "s1", FailedByClient),
            (b"cD", 200, "s1", FailedByClient),
            (b"CH", -1, "s1", FailedByClient),
            (b"CQ", -1, "<NOSRV>", FailedByClient),
            (b"CR", -1, "<NOSRV>", Local),
            (b"cR", 408, "<NOSRV>", Local),
            (b"CT", -1, "<NOSRV>", Local),
            (b"LR", 301, "<NOSRV>", Local),
            (b"LR", 200, "<STATS>", Local),
            (b"LR", 200, "<CACHE>", Local),
            (b"PR", 403, "<NOSRV>", Local),
            (b"PR", 400, "<NOSRV>", Local),
            (b"PR", 503, "<NOSRV>", FailedByProxy),
            (b"PC", -1, "s1", FailedByProxy),
            (b"PH", 502, "s1", FailedByProxy),
            (b"RC", 503, "s1", FailedByProxy),
            (b"IH", 500, "s1", FailedByProxy),
            (b"KD", 200, "s1", FailedByProxy),
            (b"SC", 503, "s1", FailedByServer),
            (b"SC", 503, "<NOSRV>", FailedByProxy),
            (b"sC", 504, "s1", FailedByServer),
            (b"SH", 502, "s1", FailedByServer),
            (b"sH", 504, "s1", FailedByServer),
            (b"SD", 200, "s1", FailedByServer),
            (b"sQ", 503, "<NOSRV>", FailedByProxy),
            (b"SQ", 503, "s1", FailedByProxy),
            (b"D-", 200, "s1", FailedByServer),
        ];
        for &(state, status, server, expected) in cases {
            let state_text = String::from_utf8_lossy(state);
            assert_eq!(
                outcome(state, status, server),
                expected,
                "{state_text} {status} {server}"
            );
        }
    }
}
