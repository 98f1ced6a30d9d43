//! Certificates.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::config::TlsListenConfig;
use crate::error::GatewayError;

/// Reads a certificate chain and its key, and offers HTTP/2 and HTTP/1.1.
pub(crate) fn acceptor(config: &TlsListenConfig) -> Result<TlsAcceptor, GatewayError> {
    let bad = |path: &Path, why: String| GatewayError::Tls {
        path: path.to_owned(),
        why,
    };
    let chain = CertificateDer::pem_file_iter(&config.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| {
            bad(
                &config.certificate,
                format!("not a PEM certificate chain: {error}"),
            )
        })?;
    if chain.is_empty() {
        return Err(bad(&config.certificate, "it holds no certificate".into()));
    }
    let key = PrivateKeyDer::from_pem_file(&config.key)
        .map_err(|error| bad(&config.key, format!("not a PEM private key: {error}")))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(&config.certificate, error.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| bad(&config.key, format!("it does not fit the certificate: {error}")))?;
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(server)))
}
