//! The flags of `headroom gateway` that say which backends there are, and how they are spoken to.

use clap::{Args, ValueEnum};
use headroom_gateway::{BackendConfig, BackendProtocol, BackendTlsConfig, ProxyVersion};
use std::path::PathBuf;

/// Backends, and what holds for all of them.
#[derive(Debug, Args)]
pub struct BackendArgs {
    /// A backend, as http://HOST:PORT or https://HOST:PORT. May be given more than once.
    #[arg(long, value_name = "URL", required_unless_present = "launched")]
    pub backend: Vec<String>,
    /// Which HTTP the backends are spoken to in. By default http1 for http://, auto for https://.
    #[arg(long, value_enum)]
    pub backend_protocol: Option<Protocol>,
    /// Certificate authorities that may have signed the certificates of https backends, PEM. By default those that this machine trusts.
    #[arg(long, value_name = "FILE")]
    pub backend_ca: Option<PathBuf>,
    /// The name that the certificates of https backends must be for. By default the host of each URL.
    #[arg(long, value_name = "NAME")]
    pub backend_name: Option<String>,
    /// Our certificate chain, for https backends that ask for one, PEM.
    #[arg(long, value_name = "FILE", requires = "backend_key")]
    pub backend_cert: Option<PathBuf>,
    /// Its private key, PEM.
    #[arg(long, value_name = "FILE", requires = "backend_cert")]
    pub backend_key: Option<PathBuf>,
    /// Begin each connection to a backend with its client's address (PROXY protocol). It then carries one request.
    #[arg(long, value_enum, value_name = "VERSION")]
    pub send_proxy: Option<Proxy>,
}

/// Which HTTP a backend is spoken to in.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2; over http:// in cleartext with prior knowledge (h2c).
    H2,
    /// What each backend chooses, over https:// alone.
    Auto,
}

/// A version of the PROXY protocol.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Proxy {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

impl BackendArgs {
    /// The backends as the gateway is given them.
    pub fn backends(&self) -> Vec<BackendConfig> {
        let tls = BackendTlsConfig {
            ca: self.backend_ca.clone(),
            server_name: self.backend_name.clone(),
            certificate: self.backend_cert.clone(),
            key: self.backend_key.clone(),
        };
        let of = |url: &String| BackendConfig {
            protocol: self.backend_protocol.map(|protocol| match protocol {
                Protocol::Http1 => BackendProtocol::Http1,
                Protocol::H2 => BackendProtocol::H2,
                Protocol::Auto => BackendProtocol::Auto,
            }),
            tls: (tls != BackendTlsConfig::default()).then(|| tls.clone()),
            send_proxy: self.send_proxy.map(|version| match version {
                Proxy::V1 => ProxyVersion::V1,
                Proxy::V2 => ProxyVersion::V2,
            }),
            ..BackendConfig::new(url)
        };
        self.backend.iter().map(of).collect()
    }
}
