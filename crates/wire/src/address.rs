//! Where an agent listens.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where an agent listens: a Unix socket on the same machine, or TCP (always with mutual TLS).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A Unix socket, by its path: `unix:/run/headroom/agent.sock`, or the path alone.
    Unix(PathBuf),
    /// A host name or IP address and a port: `node1:7443`, `10.0.0.3:7443`, `[fd00::3]:7443`.
    Tcp {
        /// The host's name or its IP address, without brackets.
        host: String,
        /// The port.
        port: u16,
    },
}

/// A text that names no place to listen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no address of an agent ({why}): write unix:/path/to/socket, host:port, 1.2.3.4:port or [ipv6]:port"
)]
pub struct AddressError {
    text: String,
    why: &'static str,
}

impl FromStr for Address {
    type Err = AddressError;
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let no = |why| AddressError {
            text: without_user(text).into_owned(),
            why,
        };
        if let Some(path) = text
            .strip_prefix("unix:")
            .or_else(|| text.starts_with('/').then_some(text))
        {
            // The kernel's limit: sun_path has 108 bytes, the last one 0.
            return match path.len() {
                0 => Err(no("the path is missing")),
                1..=107 if path.starts_with('/') => Ok(Self::Unix(path.into())),
                1..=107 => Err(no("the path must be absolute")),
                _ => Err(no("a socket's path has at most 107 bytes")),
            };
        }
        if without_user(text) != text {
            return Err(no(
                "nobody logs in to an agent: leave out what stands before the @",
            ));
        }
        if text.contains("://") {
            return Err(no("no scheme is needed"));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(|| no("the port is missing"))?;
        let port = port
            .parse()
            .map_err(|_| no("the port is no number from 1 to 65535"))?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest
                .strip_suffix(']')
                .ok_or_else(|| no("the bracket is not closed"))?,
            None if host.contains(':') => return Err(no("an IPv6 address needs brackets")),
            None => host,
        };
        let plain = !host.is_empty()
            && host
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-._:%".contains(c));
        if plain {
            Ok(Self::Tcp {
                host: host.into(),
                port,
            })
        } else {
            Err(no("the host is no name and no IP address"))
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// An address to name in a message: what stands before its host may be a password.
pub fn without_user(text: &str) -> Cow<'_, str> {
    let Some((before, host)) = text.rsplit_once('@') else {
        return text.into();
    };
    match before.split_once("://") {
        Some((scheme, _)) => format!("{scheme}://…@{host}").into(),
        None => format!("…@{host}").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_password_is_not_in_the_message() {
        for (text, shown) in [
            ("http://u:S3CRET@127.0.0.1:7443", "http://…@127.0.0.1:7443"),
            ("u:S3C@RET@node1:7443", "…@node1:7443"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(shown) && error.contains("before the @"), "{error}");
            assert!(!error.contains("S3C"), "{error}");
        }
    }

    #[test]
    fn an_address_reads_as_it_is_written() {
        for text in [
            "unix:/run/headroom/agent.sock",
            "node1:7443",
            "10.0.0.3:1",
            "[fd00::3]:65535",
            "unix:/run/agent@web1.sock",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!("/run/a.sock".parse(), Ok(Address::Unix("/run/a.sock".into())));
    }

    #[test]
    fn what_is_no_address_says_why() {
        let long = format!("unix:/{}", "x".repeat(107));
        for (text, why) in [
            ("", "port is missing"),
            ("node1", "port is missing"),
            ("node1:70000", "port is no number"),
            ("fd00::3:7443", "needs brackets"),
            ("[fd00::3:7443", "bracket"),
            ("https://node1:7443", "no scheme"),
            (":7443", "host is no name"),
            ("a b:7443", "host is no name"),
            ("unix:", "path is missing"),
            ("unix:agent.sock", "absolute"),
            (long.as_str(), "107 bytes"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
