//! What is listened on beside plain addresses: TLS with its certificates, and who may say for whom it connects.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};

use super::GatewayConfig;

/// The most certificates of one TLS listener.
pub const MAX_CERTIFICATES: usize = 1_024;

/// One TLS listener: TLS 1.2 and 1.3, sessions resumed by tickets that all cores understand.
///
/// Its files are read again when they change, looked at every 5 s, and at [`crate::Handle::reload_certificates`]; connections that are
/// open keep what they have. New files that cannot be used are reported, and those before stay in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table, as { listen = \"0.0.0.0:443\", certificate = \"cert.pem\", key = \"key.pem\" }"
)]
pub struct TlsListenConfig {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// PEM file with the certificate chain, leaf first: short for the first of `certificates`.
    #[serde(default)]
    pub certificate: Option<PathBuf>,
    /// PEM file with its private key (PKCS#8, PKCS#1 or SEC1).
    #[serde(default)]
    pub key: Option<PathBuf>,
    /// Certificates, chosen among by the name that the client asks for (SNI), at most 1 024; the first (`certificate`, where it is given)
    /// is for clients that ask for none. A name as it is goes before one with a wildcard; of several certificates of one name the first
    /// whose key the client can check.
    #[serde(default)]
    pub certificates: Vec<CertificateConfig>,
    /// What a client gets that asks for a name of none of them. Default `default`.
    #[serde(default)]
    pub unknown_name: UnknownName,
    /// PEM file with the authorities whose client certificates are accepted (mutual TLS). Then a request whose Host is no name of the
    /// connection's certificate is answered 421: what was proved to one name holds for it alone. Default none: clients show no certificate.
    #[serde(default)]
    pub client_ca: Option<PathBuf>,
    /// Whether a client must have a certificate, where `client_ca` is given. `false`: it may have none, which backends see by the absence
    /// of `X-Forwarded-Client-Cert`; a bad one is refused all the same. Default `true`.
    #[serde(default = "yes")]
    pub require: bool,
    /// PEM file with revocation lists of these authorities. A client's certificate is checked against it, and not its issuers'. Default
    /// none.
    #[serde(default)]
    pub client_revoked: Option<PathBuf>,
    /// Each connection begins with a PROXY protocol header, before TLS: see [`HttpListenConfig::proxy_protocol`]. Default `false`.
    #[serde(default)]
    pub proxy_protocol: bool,
    /// Who may send one: see [`HttpListenConfig::trusted`].
    #[serde(default)]
    pub trusted: Vec<Network>,
}

fn yes() -> bool {
    true
}

impl GatewayConfig {
    /// The key of the TLS listener's file, with its tables and their numbers: `tls[1].certificates[0].key`.
    pub fn tls_key_of(&self, file: &Path) -> Option<String> {
        let mut all = self.tls.iter().enumerate();
        all.find_map(|(at, tls)| Some(format!("tls[{at}].{}", tls.key_of(file)?)))
    }
}

impl TlsListenConfig {
    /// A listener with one certificate.
    pub fn new(listen: SocketAddr, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self {
            certificate: Some(certificate.into()),
            key: Some(key.into()),
            ..Self::without_certificate(listen)
        }
    }

    /// A listener that has yet to be given certificates.
    pub fn without_certificate(listen: SocketAddr) -> Self {
        Self {
            listen,
            certificate: None,
            key: None,
            certificates: Vec::new(),
            unknown_name: UnknownName::Default,
            client_ca: None,
            require: true,
            client_revoked: None,
            proxy_protocol: false,
            trusted: Vec::new(),
        }
    }

    /// Its certificates, the default first.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = CertificateConfig> + '_ {
        let own = self.certificate.clone().zip(self.key.clone());
        own.map(|(certificate, key)| CertificateConfig {
            certificate,
            key,
            names: Vec::new(),
        })
        .into_iter()
        .chain(self.certificates.iter().cloned())
    }

    /// The key in this table that names a file.
    fn key_of(&self, file: &Path) -> Option<String> {
        let of_pairs = self.certificates.iter().enumerate().flat_map(|(at, pair)| {
            [("certificate", &pair.certificate), ("key", &pair.key)]
                .map(|(key, path)| (format!("certificates[{at}].{key}"), path))
        });
        let own = [
            ("certificate", &self.certificate),
            ("key", &self.key),
            ("client_ca", &self.client_ca),
            ("client_revoked", &self.client_revoked),
        ];
        let own = own
            .into_iter()
            .filter_map(|(key, path)| Some((key.to_owned(), path.as_ref()?)));
        let mut all = own.chain(of_pairs);
        all.find(|(_, path)| *path == file).map(|(key, _)| key)
    }

    /// All files that it is made of.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let pairs = self
            .certificates
            .iter()
            .flat_map(|pair| [&pair.certificate, &pair.key]);
        let own = [
            &self.certificate,
            &self.key,
            &self.client_ca,
            &self.client_revoked,
        ];
        pairs.chain(own.into_iter().flatten()).map(PathBuf::as_path)
    }
}

/// One certificate of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table, as { certificate = \"cert.pem\", key = \"key.pem\" }"
)]
pub struct CertificateConfig {
    /// PEM file with the certificate chain, leaf first.
    pub certificate: PathBuf,
    /// PEM file with the private key.
    pub key: PathBuf,
    /// The names that it is for, as `a.example`, or `*.b.example` for any one label there. Default: those in the certificate
    /// (subjectAltName).
    #[serde(default)]
    pub names: Vec<String>,
}

/// What a TLS client gets that asks for a name that no certificate has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownName {
    /// The first certificate.
    #[default]
    Default,
    /// The end of its handshake. A client that asks for no name at all still gets the first certificate.
    Refuse,
}

/// One cleartext listener, as those of `listen`, with more to say of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table, as { listen = \"0.0.0.0:80\", proxy_protocol = true, trusted = [\"10.0.0.0/8\"] }"
)]
pub struct HttpListenConfig {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Each connection begins with a PROXY protocol header (haproxy.org, proxy-protocol.txt), version 1 or 2, within
    /// `timeouts.request_header_timeout_ms`. The address in it is the client's, for what backends are sent of it and for `sources`; of LOCAL
    /// and UNKNOWN the connection's own. Its TLVs are skipped; one of more than 4 096 bytes is refused, as is a connection without one.
    /// Default `false`.
    #[serde(default)]
    pub proxy_protocol: bool,
    /// The proxies: addresses and networks, as `["10.0.0.0/8", "192.0.2.7"]`; at least one, at most 256. A connection from elsewhere is
    /// closed: its header could name any client.
    #[serde(default)]
    pub trusted: Vec<Network>,
}

impl HttpListenConfig {
    /// A listener as those of `listen`.
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            proxy_protocol: false,
            trusted: Vec::new(),
        }
    }
}

/// A network as `10.0.0.0/8` or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Network(IpNet);

impl Network {
    /// Whether an address is in it; an IPv4 address that is mapped into IPv6 is one of IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl std::str::FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        network.map(Self).map_err(|_| {
            format!("{text:?} is no network: write an address, as 192.0.2.7, or a network, as 10.0.0.0/8 or 2001:db8::/32")
        })
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        String::deserialize(input)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_with_and_without_a_length() {
        let network = |text: &str| text.parse::<Network>().unwrap();
        assert!(network("10.0.0.0/8").contains("10.200.3.4".parse().unwrap()));
        assert!(network("10.0.0.0/8").contains("::ffff:10.1.1.1".parse().unwrap()));
        assert!(!network("10.0.0.0/8").contains("11.0.0.1".parse().unwrap()));
        assert!(network("2001:db8::/32").contains("2001:db8:7::1".parse().unwrap()));
        assert!(network("192.0.2.7").contains("192.0.2.7".parse().unwrap()));
        assert!(!network("192.0.2.7").contains("192.0.2.8".parse().unwrap()));
        assert!(!network("0.0.0.0/0").contains("::1".parse().unwrap()));
        for bad in ["10.0.0.0/33", "localhost", "", "10.0.0"] {
            assert!(bad.parse::<Network>().unwrap_err().contains("is no network"));
        }
    }
}
