//! One backend, and how it is spoken to.

use std::path::PathBuf;

use rustls::pki_types::ServerName;
use serde::{Deserialize, Serialize};

use super::MAX_WEIGHT;
use super::check::Wrong;

/// One backend.
///
/// ```
/// use headroom_gateway::{BackendConfig, BackendProtocol};
///
/// let backend: BackendConfig = toml::from_str(
///     r#"
///     url = "https://10.0.0.7:8443"
///     protocol = "h2"
///     tls = { ca = "backends-ca.pem", server_name = "web.internal" }
///     "#,
/// )?;
/// assert_eq!(backend.protocol(), BackendProtocol::H2);
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table, as { url = \"http://10.0.0.7:8081\" } or { url = \"http://10.0.0.7:8081\", weight = 2 }"
)]
pub struct BackendConfig {
    /// `http://host:port` or `https://host:port`; the port defaults to 80 or 443. A host name is resolved at the start and again
    /// every 30 s.
    pub url: String,
    /// Share of the requests relative to the other backends, 0 to 1000. Default 1.
    #[serde(default = "one")]
    pub weight: u32,
    /// Which HTTP it is spoken to in. Default `auto` for `https`, `http1` for `http`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<BackendProtocol>,
    /// What an `https` backend is believed by, and shown. Default: the certificate authorities that this machine trusts, and no
    /// certificate of our own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<BackendTlsConfig>,
    /// Begin each connection with the client's address (the PROXY protocol, version 1 or 2), for a backend that expects it: one that does
    /// not would take it for a broken request. Such a connection is its client's alone: it carries one request and is not kept (as HAProxy
    /// reuses none of them), and is HTTP/1.1. A health check says that it is for nobody (`UNKNOWN`, `LOCAL`). Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_proxy: Option<ProxyVersion>,
}

/// Which HTTP a backend is spoken to in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackendProtocol {
    /// HTTP/1.1, a request at a time over each connection.
    #[serde(alias = "http/1.1")]
    Http1,
    /// HTTP/2, up to 100 requests at a time over each connection, and as many connections as that takes: over TLS where the backend
    /// offers it (ALPN `h2`), else in cleartext with prior knowledge (h2c). Upgrades (WebSockets) are not passed on.
    H2,
    /// What the backend chooses of both (ALPN), so for `https` alone. Upgrades go over HTTP/1.1.
    Auto,
}

/// What an `https` backend is believed by, and what it is shown. Files are read at the start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BackendTlsConfig {
    /// PEM file with the certificate authorities that may have signed its certificate, these alone. Default those that this machine
    /// trusts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// The name, or the IP address, that its certificate must be for, and that it is asked for (SNI). Default the host of the URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// PEM file with our certificate chain, leaf first, for a backend that asks for one (mutual TLS). Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// PEM file with its private key (PKCS#8, PKCS#1 or SEC1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
}

/// A version of the PROXY protocol (<https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

fn one() -> u32 {
    1
}

impl BackendConfig {
    /// A backend at `url` with weight 1.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            weight: 1,
            protocol: None,
            tls: None,
            send_proxy: None,
        }
    }

    /// Whether its URL is an `https` one.
    pub(crate) fn is_https(&self) -> bool {
        self.url
            .get(..8)
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"))
    }

    /// Which HTTP it is spoken to in.
    pub fn protocol(&self) -> BackendProtocol {
        match self.protocol {
            _ if self.send_proxy.is_some() => BackendProtocol::Http1,
            Some(protocol) => protocol,
            None if self.is_https() => BackendProtocol::Auto,
            None => BackendProtocol::Http1,
        }
    }

    /// What is wrong with it but for its URL.
    pub(super) fn check(&self, wrong: &mut Wrong) {
        let url = &self.url;
        wrong.need(
            self.weight <= MAX_WEIGHT,
            "backends.weight",
            format!("{} (of {url})", self.weight),
            "0 to 1000",
        );
        wrong.need(
            self.protocol != Some(BackendProtocol::Auto) || self.is_https(),
            "backends.protocol",
            format!("auto (of {url})"),
            "http1 or h2 for an http:// URL: a backend can choose (ALPN) over TLS alone",
        );
        wrong.need(
            self.protocol != Some(BackendProtocol::H2) || self.send_proxy.is_none(),
            "backends.send_proxy",
            format!("together with protocol = \"h2\" (of {url})"),
            "with HTTP/1.1 alone: an HTTP/2 connection carries the requests of many clients, and the PROXY protocol names one",
        );
        let Some(tls) = &self.tls else { return };
        wrong.need(
            self.is_https(),
            "backends.tls",
            format!("given for {url}"),
            "for an https:// URL",
        );
        wrong.need(
            tls.certificate.is_some() == tls.key.is_some(),
            "backends.tls",
            format!("certificate without key, or key without certificate (of {url})"),
            "both, to show the backend our certificate, or neither",
        );
        if let Some(name) = &tls.server_name {
            wrong.need(
                ServerName::try_from(name.as_str()).is_ok(),
                "backends.tls.server_name",
                format!("{name} (of {url})"),
                "a host name such as web.internal, or an IP address",
            );
        }
    }
}
