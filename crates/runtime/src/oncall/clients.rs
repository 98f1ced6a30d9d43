//! The clients of a class of connections: by their network, their socket, or the user that they name.

use headroom_oncall::ConnectionTotals;
use headroom_oncall::layout::USER;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Which clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clients {
    /// Those of a Unix socket.
    Unix,
    /// Those whose address begins with these bits.
    Network(IpAddr, u8),
    /// Those that gave this user name.
    User(String),
}

impl std::fmt::Display for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix => f.write_str("unix"),
            Self::Network(address, bits) => write!(f, "{address}/{bits}"),
            Self::User(user) => write!(f, "user:{user}"),
        }
    }
}

impl std::str::FromStr for Clients {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "unix" {
            return Ok(Self::Unix);
        }
        if let Some(user) = text.strip_prefix("user:").filter(|user| !user.is_empty()) {
            return match user.len() < USER {
                true => Ok(Self::User(user.to_owned())),
                false => Err(format!(
                    "{user:?} is {} bytes long, and of a user's name {} are kept: name its network",
                    user.len(),
                    USER - 1
                )),
            };
        }
        let wrong = || {
            format!(
                "{text:?} names no clients: write a network (\"10.0.0.0/8\"), an address, \"unix\", or \"user:NAME\""
            )
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = match address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        let bits = match bits {
            None => most,
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= most).ok_or_else(wrong)?,
        };
        // Whoever wrote it means the one or the other, and these are not the same clients.
        match start_of(address, bits) {
            start if start == address => Ok(Self::Network(address, bits)),
            start => Err(format!(
                "{text:?} is an address within a network: write \"{start}/{bits}\" for all of it, or \"{address}\" for that address alone"
            )),
        }
    }
}

/// The first address of the network that an address is in.
fn start_of(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(of) => {
            Ipv4Addr::from_bits(of.to_bits() & u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0)).into()
        }
        IpAddr::V6(of) => {
            Ipv6Addr::from_bits(of.to_bits() & u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0))
                .into()
        }
    }
}

impl<'de> Deserialize<'de> for Clients {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        String::deserialize(input)?.parse().map_err(D::Error::custom)
    }
}

impl Clients {
    /// Whether all of them are among others.
    pub(super) fn are_within(&self, others: &Self) -> bool {
        match (self, others) {
            (Self::Network(inner, bits), Self::Network(network, outer)) => {
                inner.is_ipv4() == network.is_ipv4() && bits >= outer && start_of(*inner, *outer) == *network
            }
            _ => self == others,
        }
    }

    pub(super) fn hold(&self, connection: &ConnectionTotals) -> bool {
        match (self, connection.client.map(|client| client.ip())) {
            (Self::Unix, client) => client.is_none(),
            (Self::Network(network, bits), Some(client)) => {
                network.is_ipv4() == client.is_ipv4() && start_of(client, *bits) == *network
            }
            (Self::User(user), _) => connection.user.as_ref() == Some(user),
            (Self::Network(..), None) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::connection;
    use super::*;

    #[test]
    fn clients_are_read_and_what_names_none_is_refused() {
        for text in ["10.0.0.0/8", "::1", "fd00::/64", "unix", "user:app"] {
            assert!(text.parse::<Clients>().is_ok(), "{text}");
        }
        for text in ["10.0.0.0/33", "user:", "localhost", ""] {
            assert!(
                text.parse::<Clients>().unwrap_err().contains("names no clients"),
                "{text}"
            );
        }
        for (text, remedy) in [
            ("10.1.2.3/8", "\"10.0.0.0/8\" for all of it"),
            ("fd00::1/64", "\"fd00::/64\" for all of it"),
        ] {
            assert!(text.parse::<Clients>().unwrap_err().contains(remedy), "{text}");
        }
        let every: Clients = "0.0.0.0/0".parse().unwrap();
        assert!(every.hold(&connection(0, Some("1.2.3.4:5"), 0, &[])));
        assert!(!every.hold(&connection(0, None, 0, &[])));
    }
}
