//! What one source may ask, and how names become addresses.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Network;
use crate::error::GatewayError;

/// What one source may have, over all cores. A source is an IPv4 address or the first 64 bits of an IPv6 address, of the connection, or
/// of the PROXY protocol's header where there is one. Everything is off by default, and then costs nothing.
///
/// What is over a limit is refused, not failed: a connection is closed, a request is answered 429 with Retry-After. At most
/// `max_sources` sources are remembered at once, each for as long as it has connections or has used of its rates; where there are more, the
/// further ones pass without a limit (and are counted), for otherwise a crowd would lock everybody out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SourceLimitConfig {
    /// Connections that a source may have open; one more is closed at once. 0, the default: no limit.
    pub max_connections: u32,
    /// Connections a second that a source may open, in the long run; one more is closed at once. 0, the default: no limit.
    pub connections_per_s: u32,
    /// Connections that it may open at once after it opened none for a while. 0, the default: those of a second.
    pub connections_burst: u32,
    /// Requests a second that a source may send, in the long run; one more is answered 429. 0, the default: no limit.
    pub requests_per_s: u32,
    /// Requests that it may send at once after it sent none for a while. 0, the default: those of a second.
    pub requests_burst: u32,
    /// Sources remembered, 64 to 4 194 304, each in some 150 bytes. Default 65 536.
    pub max_sources: usize,
    /// Sources without limits, as `["10.0.0.0/8"]`: one's own proxies, monitoring. At most 256. Default none.
    pub exempt: Vec<Network>,
}

impl SourceLimitConfig {
    /// Whether anything is limited.
    pub(crate) fn is_on(&self) -> bool {
        self.max_connections > 0 || self.connections_per_s > 0 || self.requests_per_s > 0
    }
}

impl Default for SourceLimitConfig {
    fn default() -> Self {
        Self {
            max_connections: 0,
            connections_per_s: 0,
            connections_burst: 0,
            requests_per_s: 0,
            requests_burst: 0,
            max_sources: 65_536,
            exempt: Vec::new(),
        }
    }
}

/// How the names of backends become addresses. All addresses of a name are used, one connection after the other in turn; one that fails is
/// passed over for a while, and the next is tried within the same `timeouts.connect_timeout_ms`.
///
/// A name in the hosts file has the addresses there. Others are asked of DNS, again when the answer's time to live is over (1 s at least, 5
/// minutes at most). Where there is no nameserver, or it does not know the name, the system is asked (as `getent` does), every
/// `interval_ms`, for it says no time to live. While look-ups fail the last addresses stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ResolverConfig {
    /// Where nameservers, search domains and options are. Read again at each look-up. Default `/etc/resolv.conf`.
    pub resolv_conf: PathBuf,
    /// Names that need no DNS. Read again at each look-up. Default `/etc/hosts`.
    pub hosts: PathBuf,
    /// Nameservers instead of those of `resolv_conf`, as `["10.0.0.2:53"]`; at most 8. Default none.
    pub nameservers: Vec<SocketAddr>,
    /// How often names are looked up whose time to live is not known, in milliseconds. Default 30 000.
    pub interval_ms: u64,
}

impl ResolverConfig {
    /// Files that are named must be there to be read; the defaults need not be, as in a container.
    pub(crate) fn check_files(&self) -> Result<(), GatewayError> {
        let usual = Self::default();
        // With `nameservers` there is little in it, and it need not be there.
        let conf = self.nameservers.is_empty().then_some(&self.resolv_conf);
        for (key, file, usual) in [
            ("resolver.resolv_conf", conf, usual.resolv_conf),
            ("resolver.hosts", Some(&self.hosts), usual.hosts),
        ] {
            let Some(file) = file.filter(|file| **file != usual) else {
                continue;
            };
            std::fs::read(file).map_err(|error| GatewayError::Config {
                key: key.to_owned(),
                value: file.display().to_string(),
                allowed: format!(
                    "a file that can be read, and {}; by default {}",
                    crate::files::unreadable(&error),
                    usual.display()
                ),
            })?;
        }
        Ok(())
    }
}

impl Default for ResolverConfig {
    fn default() -> Self {
        Self {
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
            hosts: PathBuf::from("/etc/hosts"),
            nameservers: Vec::new(),
            interval_ms: 30_000,
        }
    }
}
