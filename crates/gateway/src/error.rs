//! What can stop the gateway from starting.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why [`crate::Gateway::start`], or a change of a backend's state, did not happen. Nothing is left running.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// A configured value is outside what is allowed.
    #[error("{key} = {value}: allowed is {allowed}")]
    Config {
        /// The key, with its table.
        key: String,
        /// The value found.
        value: String,
        /// What would be accepted.
        allowed: String,
    },
    /// Two listeners are to have one address.
    #[error("{key}: {address} is given twice, {also} has {}; each address and port has one listener: leave one out, or give it another port", had(.address, .other))]
    ListenTwice {
        /// The key of the later one, with its table.
        key: String,
        /// Its address.
        address: SocketAddr,
        /// The key of the earlier one.
        also: String,
        /// The earlier one's address: the same, or one that has the later one in it (`0.0.0.0:80` has every address of port 80).
        other: SocketAddr,
    },
    /// A backend's URL cannot be used.
    #[error("backend `{url}`: {why}; write it as http://host:port or https://host:port")]
    BackendUrl {
        /// The URL as configured.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// A backend's host name has no address.
    #[error("backend `{url}`: its host name does not resolve: {source}")]
    Resolve {
        /// The URL as configured.
        url: String,
        /// The resolver's answer.
        source: io::Error,
    },
    /// A listening socket could not be opened.
    #[error("cannot listen on {address}: {source}{}", bind_remedy(.source))]
    Bind {
        /// The address as configured.
        address: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A certificate or key file cannot be used.
    #[error("{}: {why}", .path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A certificate or key file for an `https` backend cannot be used.
    #[error("backend `{url}`: {}{why}; see backends.tls.{key}", .path.as_ref().map_or_else(String::new, |path| format!("{}: ", path.display())))]
    BackendTls {
        /// The backend's URL as configured.
        url: String,
        /// The key of its `tls` table that the mistake is of.
        key: &'static str,
        /// The file, where one was named.
        path: Option<PathBuf>,
        /// What is wrong with it.
        why: String,
    },
    /// A thread or its runtime could not be started.
    #[error("cannot start thread {thread}: {source}")]
    Thread {
        /// Name of the thread.
        thread: String,
        /// The system's answer.
        source: io::Error,
    },
    /// There is no backend of this number.
    #[error("there is no backend {index}: the {count} backends are numbered from 0")]
    NoSuchBackend {
        /// The number asked for.
        index: usize,
        /// How many there are.
        count: usize,
    },
}

/// What the other listener has.
fn had(address: &SocketAddr, other: &SocketAddr) -> String {
    match address == other {
        true => "it too".to_owned(),
        false => format!("{other}, and one of the two is every address of this machine"),
    }
}

fn bind_remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => {
            "; another process has this port, which `ss -ltnp` names: stop it or choose another `listen`. From a \
             `headroom gateway` another one takes it over without a lost connection with `--takeover` (beside one, `--check \
             --takeover` checks a file). The gateway of a killed `up` serves on; the next `up` with the same `--run-dir` takes \
             it over"
        }
        io::ErrorKind::PermissionDenied => "; ports below 1024 need CAP_NET_BIND_SERVICE",
        io::ErrorKind::AddrNotAvailable => "; this machine has no such address",
        _ => "",
    }
}
