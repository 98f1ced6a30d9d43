//! Why a TLS connection came to nothing, in plain words, told from either side.

use crate::Server;
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible};
use std::io;

/// Which end of the connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// An agent or a gateway, about a client.
    Server,
    /// The client, about an agent or a gateway.
    Client(Server),
}

impl Side {
    const fn peer(self) -> &'static str {
        match self {
            Self::Server => "client",
            Self::Client(server) => server.as_str(),
        }
    }

    /// The command that makes what the peer should have shown.
    const fn remedy(self) -> &'static str {
        match self {
            Self::Server => "it needs controller.crt of the same authority as this node's certificate",
            Self::Client(_) => "it needs node-NAME.crt of the same authority as the controller's certificate",
        }
    }
}

/// Why reading from or writing to a peer failed.
pub(crate) fn explain(error: &io::Error, side: Side) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(error) => explain_tls(error, side),
        None => explain_io(error, side),
    }
}

fn explain_io(error: &io::Error, side: Side) -> String {
    let peer = side.peer();
    match error.kind() {
        io::ErrorKind::UnexpectedEof => format!("the {peer} hung up in the middle of the handshake"),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            format!("the {peer} cut the connection")
        }
        _ => error.to_string(),
    }
}

fn explain_tls(error: &Error, side: Side) -> String {
    let peer = side.peer();
    match error {
        Error::NoCertificatesPresented => {
            format!("the {peer} showed no certificate: {}", side.remedy())
        }
        Error::InvalidCertificate(error) => explain_certificate(error, side),
        Error::InvalidMessage(
            InvalidMessage::InvalidContentType
            | InvalidMessage::UnknownProtocolVersion
            | InvalidMessage::MessageTooLarge
            | InvalidMessage::InvalidEmptyPayload,
        ) => format!("the {peer} does not speak TLS: over TCP no cleartext connections are taken"),
        Error::PeerIncompatible(
            PeerIncompatible::Tls13RequiredForQuic
            | PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::Tls12NotOfferedOrEnabled,
        ) => format!("the {peer} does not speak TLS 1.3, and nothing older is accepted"),
        Error::NoApplicationProtocol => {
            format!("the {peer} does not speak HTTP/2 (ALPN h2), which gRPC needs")
        }
        Error::AlertReceived(alert) => explain_alert(*alert, side),
        other => format!("the {peer} broke the TLS protocol: {other}"),
    }
}

fn explain_certificate(error: &CertificateError, side: Side) -> String {
    let peer = side.peer();
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            format!(
                "the {peer}'s certificate was signed by another authority: {}",
                side.remedy()
            )
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            let since = match error {
                CertificateError::ExpiredContext { time, not_after } => {
                    format!(" {}", ago(time.as_secs().saturating_sub(not_after.as_secs())))
                }
                _ => String::new(),
            };
            format!(
                "the {peer}'s certificate expired{since}: renew it with `headroom certs renew` (or this machine's clock is wrong)"
            )
        }
        CertificateError::Revoked => format!(
            "the {peer}'s certificate was revoked: issue another one to it with `headroom certs`, if it is to be let in"
        ),
        CertificateError::UnknownRevocationStatus => format!(
            "the revocation list here says nothing of the authority that signed the {peer}'s certificate: add that authority's \
             list to the file"
        ),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("the {peer}'s certificate is not valid yet: check the clocks of both machines")
        }
        CertificateError::NotValidForNameContext { expected, presented } => format!(
            "the {peer}'s certificate is good for {}, not for {}: reach it by one of these names, or make a certificate \
             that has this name too",
            presented
                .iter()
                .map(|name| plain_name(name))
                .collect::<Vec<_>>()
                .join(", "),
            expected.to_str()
        ),
        CertificateError::NotValidForName => {
            format!("the {peer}'s certificate is good for another name: make one that has this name too")
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => match side {
            Side::Server => {
                "the client showed a certificate that is not the controller's (a node's commands no other \
                            node): it needs controller.crt"
                    .into()
            }
            Side::Client(server) => {
                format!("the {server} showed a certificate that is not a node's: it needs node-NAME.crt")
            }
        },
        other => format!("the {peer}'s certificate cannot be accepted: {other}"),
    }
}

fn explain_alert(alert: AlertDescription, side: Side) -> String {
    let peer = side.peer();
    match alert {
        AlertDescription::CertificateRequired => {
            format!("the {peer} demands a certificate and was shown none: give `certificate` and `key`")
        }
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            format!(
                "the {peer} does not accept our certificate: another authority signed it than the {peer} trusts"
            )
        }
        AlertDescription::CertificateExpired => {
            format!(
                "the {peer} does not accept our certificate: it says that it expired; renew it (or the {peer}'s clock is wrong)"
            )
        }
        AlertDescription::CertificateRevoked => {
            format!(
                "the {peer} does not accept our certificate: it was revoked; issue another one with `headroom certs`"
            )
        }
        AlertDescription::UnsupportedCertificate => format!(
            "the {peer} does not accept our certificate: it is not for this end (the controller needs controller.crt, a \
             node node-NAME.crt)"
        ),
        AlertDescription::BadCertificate | AlertDescription::CertificateUnknown => {
            format!(
                "the {peer} does not accept our certificate (another name, or not valid yet: see its log)"
            )
        }
        AlertDescription::ProtocolVersion => format!("the {peer} does not speak TLS 1.3"),
        AlertDescription::NoApplicationProtocol => {
            format!("the {peer} does not speak HTTP/2, which gRPC needs")
        }
        other => format!("the {peer} refused the connection: {other:?}"),
    }
}

/// rustls writes names as `DnsName("n1")` and `IpAddress(10.0.0.3)`: what stands inside is what people know.
fn plain_name(name: &str) -> &str {
    name.split_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'))
        .unwrap_or(name)
        .trim_matches('"')
}

fn ago(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} seconds ago"),
        120..7_200 => format!("{} minutes ago", seconds / 60),
        7_200..172_800 => format!("{} hours ago", seconds / 3_600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(error: Error, side: Side) -> String {
        explain(&io::Error::new(io::ErrorKind::InvalidData, error), side)
    }

    #[test]
    fn each_side_names_the_other() {
        let agent = words(Error::NoCertificatesPresented, Side::Server);
        assert!(agent.starts_with("the client showed no certificate") && agent.contains("controller.crt"));
        let client = words(
            CertificateError::UnknownIssuer.into(),
            Side::Client(Server::Agent),
        );
        assert!(
            client.contains("agent's certificate was signed by another authority"),
            "{client}"
        );
        let gateway = words(
            CertificateError::UnknownIssuer.into(),
            Side::Client(Server::Gateway),
        );
        assert!(gateway.contains("gateway's certificate was signed"), "{gateway}");
        let cut = explain(
            &io::ErrorKind::ConnectionReset.into(),
            Side::Client(Server::Agent),
        );
        assert_eq!(cut, "the agent cut the connection");
    }

    #[test]
    fn names_are_written_as_people_know_them() {
        assert_eq!(plain_name("DnsName(\"n1\")"), "n1");
        assert_eq!(plain_name("IpAddress(10.0.0.3)"), "10.0.0.3");
        assert_eq!(plain_name("n1"), "n1");
    }

    #[test]
    fn a_time_is_told_in_its_own_unit() {
        let reported: Vec<String> = [5, 600, 7_200, 864_000].into_iter().map(ago).collect();
        assert_eq!(
            reported,
            ["5 seconds ago", "10 minutes ago", "2 hours ago", "10 days ago"]
        );
    }
}
