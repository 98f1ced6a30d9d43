//! Wake-on-LAN: a machine that is off or suspended wakes at a packet that names its network card.

use super::command::{ask_state, check_argv, default_limit_s, must_succeed};
use super::networks::broadcasts;
use super::{PowerSwitch, SwitchError, limit};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::str::FromStr;
use std::time::Duration;

/// The port that packets go to where none is named: discard, so that nobody answers.
const PORT: u16 = 9;
/// How often one packet is sent: UDP may lose it, and waking twice does nothing.
const REPEATS: usize = 3;

/// A MAC address.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no MAC address: write 00:25:90:ab:cd:ef");
        let mut bytes = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2).ok_or_else(wrong)?;
            // A sign would be taken for part of a number.
            if !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(wrong());
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() {
            return Err(wrong());
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Mac {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

/// A SecureOn password, which is written like a MAC address. Neither its `Debug` nor the error where it cannot be read
/// shows it.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "String")]
pub struct SecureOn(pub [u8; 6]);

impl fmt::Debug for SecureOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecureOn(…)")
    }
}

/// What stands in the place of a SecureOn password. An error of serde's would show what is no text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Other(IgnoredAny),
}

impl TryFrom<Written> for SecureOn {
    type Error = &'static str;
    fn try_from(written: Written) -> Result<Self, &'static str> {
        let bytes = match written {
            Written::Text(text) => text.parse().ok(),
            Written::Other(_) => None,
        };
        bytes
            .map(|Mac(bytes)| Self(bytes))
            .ok_or("secure_on: is no SecureOn password: write it as \"01:02:03:04:05:06\"")
    }
}

impl From<SecureOn> for String {
    fn from(password: SecureOn) -> Self {
        Mac(password.0).to_string()
    }
}

/// The packet (AMD, "Magic Packet Technology", 1995): six bytes of ones, sixteen times the address, and the SecureOn
/// password where the card asks for one.
pub fn magic_packet(mac: Mac, secure_on: Option<SecureOn>) -> Vec<u8> {
    let mut packet = vec![0xff; 6];
    packet.extend(mac.0.repeat(16));
    packet.extend(secure_on.iter().flat_map(|password| password.0));
    packet
}

/// A machine that wakes by Wake-on-LAN. `ethtool INTERFACE` on it must show `Wake-on: g`, or `s` with SecureOn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WakeConfig {
    /// The network card's address.
    pub mac: Mac,
    /// Where the packet is sent: the broadcast address of the machine's network, and a port. By default to those of all
    /// networks that this machine is in, port 9. (255.255.255.255 leaves by one interface only: the default route's.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broadcast: Option<SocketAddr>,
    /// The SecureOn password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secure_on: Option<SecureOn>,
    /// Shuts the machine down or suspends it, and returns: for instance `["ssh", "web1", "systemctl", "suspend"]`.
    pub stop: Vec<String>,
    /// Ends with 0 where the machine is on, with 1 or 3 where it is off or suspended: for instance
    /// `["ping", "-c", "1", "-W", "1", "web1"]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Vec<String>>,
    /// Seconds that a command has. 30.
    #[serde(default = "default_limit_s")]
    pub limit_s: f64,
}

/// Switches by Wake-on-LAN and a command.
#[derive(Debug)]
pub struct WakeSwitch {
    config: WakeConfig,
    limit: Duration,
}

impl WakeSwitch {
    /// A switch for this machine.
    ///
    /// # Errors
    /// [`SwitchError::Value`].
    pub fn open(config: WakeConfig) -> Result<Self, SwitchError> {
        check_argv("stop", &config.stop)?;
        config
            .state
            .as_deref()
            .map_or(Ok(()), |argv| check_argv("state", argv))?;
        let limit = limit("limit_s", config.limit_s)?;
        Ok(Self { config, limit })
    }
}

impl WakeSwitch {
    /// Sends the packet to one address.
    fn send(&self, target: SocketAddr) -> io::Result<()> {
        let any: SocketAddr = match target {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        socket.set_broadcast(true)?;
        let packet = magic_packet(self.config.mac, self.config.secure_on);
        for _ in 0..REPEATS {
            if socket.send_to(&packet, target)? != packet.len() {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    fn failed(&self, whither: &str, cause: &io::Error) -> SwitchError {
        SwitchError::Network {
            who: format!("Wake-on-LAN for {} to {whither}", self.config.mac),
            cause: cause.to_string(),
            remedy: "name the broadcast address of the machine's own network as broadcast".into(),
        }
    }
}

impl PowerSwitch for WakeSwitch {
    fn on(&mut self) -> Result<(), SwitchError> {
        if let Some(target) = self.config.broadcast {
            return self
                .send(target)
                .map_err(|cause| self.failed(&target.to_string(), &cause));
        }
        let every = "every network that this machine is in";
        let targets = broadcasts().map_err(|cause| self.failed(every, &cause))?;
        let mut outcome = Err(self.failed(every, &io::ErrorKind::NetworkUnreachable.into()));
        for address in targets {
            match self.send((address, PORT).into()) {
                Ok(()) => outcome = Ok(()),
                Err(cause) => {
                    let error = self.failed(&address.to_string(), &cause);
                    // The machine may be in another network, where the packet did go.
                    tracing::warn!("{error}");
                    outcome = outcome.or(Err(error));
                }
            }
        }
        outcome
    }

    fn off(&mut self, _force: bool) -> Result<(), SwitchError> {
        let stopped = must_succeed(&self.config.stop, &[], self.limit);
        match stopped {
            Ok(_) => Ok(()),
            // A machine that falls asleep may well take the connection with it that told it to.
            Err(SwitchError::Failed { .. } | SwitchError::TimeLimit { .. })
                if matches!(self.state(), Ok(Some(false))) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn state(&mut self) -> Result<Option<bool>, SwitchError> {
        match &self.config.state {
            Some(state) => ask_state(state, self.limit),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::says;
    use proptest::prelude::*;

    fn config(broadcast: SocketAddr, secure_on: Option<SecureOn>) -> WakeConfig {
        WakeConfig {
            mac: "00:25:90:ab:cd:ef".parse().unwrap(),
            broadcast: Some(broadcast),
            secure_on,
            stop: vec!["/bin/true".into()],
            state: Some(vec!["/bin/false".into()]),
            limit_s: 10.0,
        }
    }

    #[test]
    fn the_packet_arrives_as_network_cards_expect_it() {
        let card = UdpSocket::bind("127.0.0.1:0").unwrap();
        card.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let password = SecureOn([1, 2, 3, 4, 5, 6]);
        for secure_on in [None, Some(password)] {
            let mut switch = WakeSwitch::open(config(card.local_addr().unwrap(), secure_on)).unwrap();
            switch.on().unwrap();
            let mut packet = [0; 200];
            for _ in 0..REPEATS {
                let (length, _) = card.recv_from(&mut packet).unwrap();
                assert_eq!(length, 102 + secure_on.map_or(0, |_| 6));
                assert_eq!(packet[..6], [0xff; 6]);
                assert!(
                    packet[6..102]
                        .chunks(6)
                        .all(|mac| mac == [0x00, 0x25, 0x90, 0xab, 0xcd, 0xef])
                );
                if secure_on.is_some() {
                    assert_eq!(packet[102..108], password.0);
                }
            }
            switch.off(false).unwrap();
            assert_eq!(switch.state().unwrap(), Some(false));
        }
    }

    #[test]
    fn a_machine_that_sleeps_need_not_have_said_so() {
        let mut config = config("127.0.0.1:9".parse().unwrap(), None);
        // As ssh does, which loses its connection; as it does where nobody tells it that it lost it.
        for stop in ["exit 255", "sleep 60"] {
            config.stop = ["/bin/sh", "-c", stop].map(str::to_owned).into();
            config.limit_s = if stop == "sleep 60" { 0.5 } else { 10.0 };
            config.state = Some(vec!["/bin/false".into()]);
            WakeSwitch::open(config.clone()).unwrap().off(false).unwrap();
            config.state = Some(vec!["/bin/true".into()]);
            assert!(WakeSwitch::open(config.clone()).unwrap().off(false).is_err());
            config.state = None;
            assert!(WakeSwitch::open(config.clone()).unwrap().off(false).is_err());
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "00:25:90:ab:cd",
            "00:25:90:ab:cd:ef:00",
            "00:25:90:ab:cd:+f",
            "0025.90ab.cdef",
        ] {
            assert!(
                text.parse::<Mac>().unwrap_err().contains("no MAC address"),
                "{text}"
            );
        }
        assert!("00-25-90-AB-CD-EF".parse::<Mac>().is_ok());
    }

    #[test]
    fn the_password_is_in_no_debug_output_and_in_no_error() {
        let password = SecureOn([0xa1, 0xb2, 0xc3, 0xd4, 0xe5, 0xf6]);
        let config = config("127.0.0.1:9".parse().unwrap(), Some(password));
        let text = serde_json::to_string(&config).unwrap();
        assert!(
            text.contains("a1:b2:c3:d4:e5:f6"),
            "a file can be written from it: {text}"
        );
        assert_eq!(serde_json::from_str::<WakeConfig>(&text).unwrap(), config);
        let shown = format!("{config:?} {:#?}", WakeSwitch::open(config.clone()).unwrap());
        says(&shown, &["00:25:90:ab:cd:ef", "SecureOn"]);
        // Neither as it is written nor as the numbers that it is.
        let known = ["a1:b2", "161", "178", "b2:c3"];
        assert!(!known.iter().any(|part| shown.contains(part)), "{shown}");
        let mistyped = text.replace("a1:b2:", "a1b2:");
        let error = serde_json::from_str::<WakeConfig>(&mistyped)
            .unwrap_err()
            .to_string();
        assert!(error.contains("secure_on") && !error.contains("c3:d4"), "{error}");
    }

    proptest! {
        #[test]
        fn an_address_reads_as_it_was_written(bytes: [u8; 6]) {
            let mac = Mac(bytes);
            prop_assert_eq!(mac.to_string().parse(), Ok(mac));
        }
    }
}
