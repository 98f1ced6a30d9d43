//! The flags of `headroom gateway` that say how backends are spoken to.

use super::flags::Given;
use clap::{Args, ValueEnum};
use headroom_gateway::{BackendConfig, BackendProtocol, BackendTlsConfig, GatewayConfig, ProxyVersion};
use std::path::PathBuf;

/// What holds for all backends, those of the file included.
#[derive(Debug, Args)]
#[command(next_help_heading = "Backends")]
pub struct SpokenFlags {
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

/// Changes what is said of the TLS of each backend.
fn tls(config: &mut GatewayConfig, change: impl Fn(&mut BackendTlsConfig)) {
    each(config, |backend| change(backend.tls.get_or_insert_default()));
}

fn each(config: &mut GatewayConfig, change: impl Fn(&mut BackendConfig)) {
    config.backends.iter_mut().for_each(change);
}

impl SpokenFlags {
    /// Puts what is given on a configuration whose backends are there.
    pub fn put(&self, on: &mut Given) {
        let protocol = self.backend_protocol.map(|protocol| match protocol {
            Protocol::Http1 => BackendProtocol::Http1,
            Protocol::H2 => BackendProtocol::H2,
            Protocol::Auto => BackendProtocol::Auto,
        });
        on.set(
            "backends.protocol",
            "--backend-protocol",
            protocol,
            |it, protocol| {
                each(it, |backend| backend.protocol = Some(protocol));
            },
        );
        let version = self.send_proxy.map(|version| match version {
            Proxy::V1 => ProxyVersion::V1,
            Proxy::V2 => ProxyVersion::V2,
        });
        on.set("backends.send_proxy", "--send-proxy", version, |it, version| {
            each(it, |backend| backend.send_proxy = Some(version));
        });
        on.set(
            "backends.tls.ca",
            "--backend-ca",
            self.backend_ca.clone(),
            |it, ca| {
                tls(it, |tls| tls.ca = Some(ca.clone()));
            },
        );
        on.set(
            "backends.tls.server_name",
            "--backend-name",
            self.backend_name.clone(),
            |it, name| {
                tls(it, |tls| tls.server_name = Some(name.clone()));
            },
        );
        on.set(
            "backends.tls.certificate",
            "--backend-cert",
            self.backend_cert.clone(),
            |it, certificate| {
                tls(it, |tls| tls.certificate = Some(certificate.clone()));
            },
        );
        on.set(
            "backends.tls.key",
            "--backend-key",
            self.backend_key.clone(),
            |it, key| {
                tls(it, |tls| tls.key = Some(key.clone()));
            },
        );
        let any = [&self.backend_ca, &self.backend_cert]
            .into_iter()
            .any(Option::is_some)
            || self.backend_name.is_some();
        on.set(
            "backends.tls",
            "--backend-ca, -name, -cert and -key",
            any.then_some(()),
            |_, ()| {},
        );
    }
}
