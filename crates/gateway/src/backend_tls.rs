//! TLS towards backends: by whom they are believed, and what they are shown.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::config::BackendConfig;
use crate::error::GatewayError;
use crate::files::{no_pair, not_pem};

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The certificates of a PEM file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| not_pem(&error, "certificate"))?;
    match chain.is_empty() {
        true => Err("it holds no certificate".into()),
        false => Ok(chain),
    }
}

/// The private key of a PEM file.
fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| not_pem(&error, "private key"))
}

/// Reads what a backend is believed by and shown. Sessions are resumed, over all cores: the store is the configuration's.
pub(crate) fn backend(config: &BackendConfig) -> Result<ClientConfig, GatewayError> {
    let bad = |key: &'static str, path: Option<&Path>, why: String| GatewayError::BackendTls {
        url: config.url.clone(),
        key,
        path: path.map(Path::to_owned),
        why,
    };
    let tls = config.tls.clone().unwrap_or_default();
    let mut roots = RootCertStore::empty();
    match &tls.ca {
        Some(path) => {
            for certificate in certificates(path).map_err(|why| bad("ca", Some(path), why))? {
                roots.add(certificate).map_err(|error| {
                    let why = format!("it holds a certificate that cannot be an authority: {error}");
                    bad("ca", Some(path), why)
                })?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                let errors: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
                let why = format!(
                    "this machine trusts no certificate authority that could be read ({}); install ca-certificates, or name the \
                     authority of the backend",
                    match errors.is_empty() {
                        true => "there is none".to_owned(),
                        false => errors.join("; "),
                    }
                );
                return Err(bad("ca", None, why));
            }
        }
    }
    let client = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| bad("ca", None, error.to_string()))?
        .with_root_certificates(roots);
    let (Some(certificate), Some(key)) = (&tls.certificate, &tls.key) else {
        return Ok(client.with_no_client_auth());
    };
    let chain = certificates(certificate).map_err(|why| bad("certificate", Some(certificate), why))?;
    let private = private_key(key).map_err(|why| bad("key", Some(key), why))?;
    client
        .with_client_auth_cert(chain, private)
        .map_err(|error| bad("key", Some(key), no_pair(&error, certificate)))
}
