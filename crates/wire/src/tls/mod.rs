//! Mutual TLS: both ends show a certificate, and both check the other's against one authority. TLS 1.3 only.

mod explain;

pub use explain::Side;
pub(crate) use explain::explain;

use crate::certs::{self, CertError, Role, Standing};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// The files that one end of a connection needs, as `headroom certs` makes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The authority's certificate: the other end's must be signed by it.
    pub ca: PathBuf,
    /// What this end shows.
    pub certificate: PathBuf,
    /// The private key to it.
    pub key: PathBuf,
}

/// Certificates that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that cannot be read, or is not what it was given for.
    #[error(transparent)]
    File(#[from] CertError),
    /// The certificate is not valid today.
    #[error("{path}: certificate {standing}", path = path.display())]
    NotValid {
        /// The file.
        path: PathBuf,
        /// Since when.
        standing: Standing,
    },
    /// A key that others can read.
    #[error(
        "{path} can be read by every user (mode {mode:o}): whoever has this key is taken for us; chmod 600 it, and \
         make a new certificate if others use this machine", path = path.display()
    )]
    ExposedKey {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The wrong one of two files.
    #[error("{path} is the certificate of {is}: this end needs {needs}", path = path.display())]
    WrongRole {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        is: &'static str,
        /// Whose is needed.
        needs: &'static str,
    },
    /// Key and certificate, or certificate and authority, are of different pairs.
    #[error("{path} does not belong to {to}: {why}", path = path.display(), to = to.display())]
    Mismatch {
        /// The one.
        path: PathBuf,
        /// The other.
        to: PathBuf,
        /// What the library says.
        why: String,
    },
    /// A name that no certificate can hold.
    #[error("{0:?} is neither a DNS name nor an IP address, so no certificate can be checked against it")]
    BadName(String),
}

/// What a TCP listener needs. It always demands a client's certificate: there is no value of this type that does not.
#[derive(Clone)]
pub struct ServerTls(pub(crate) Arc<ServerConfig>);

/// What a client needs to reach an agent over TCP.
#[derive(Clone)]
pub struct ClientTls(pub(crate) Arc<ClientConfig>);

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerTls")
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientTls")
    }
}

struct Loaded {
    roots: Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl ServerTls {
    /// Reads and checks a node's files.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let loaded = load(files, Role::Node)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(loaded.roots, provider.clone())
            .build()
            .map_err(|error| unusable(&files.ca, error))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| unusable(&files.certificate, error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(loaded.chain, loaded.key)
            .map_err(|error| mismatch(&files.key, &files.certificate, error))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        // A resumed session would not be checked against the clock again.
        config.send_tls13_tickets = 0;
        Ok(Self(Arc::new(config)))
    }
}

impl ClientTls {
    /// Reads and checks the controller's files.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let loaded = load(files, Role::Controller)?;
        let mut config =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_protocol_versions(&[&rustls::version::TLS13])
                .map_err(|error| unusable(&files.certificate, error))?
                .with_root_certificates(loaded.roots)
                .with_client_auth_cert(loaded.chain, loaded.key)
                .map_err(|error| mismatch(&files.key, &files.certificate, error))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Self(Arc::new(config)))
    }
}

/// The name that an agent's certificate must be good for.
pub(crate) fn server_name(name: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(name.to_string()).map_err(|_: InvalidDnsNameError| TlsError::BadName(name.into()))
}

fn load(files: &TlsFiles, role: Role) -> Result<Loaded, TlsError> {
    let ca = certs::inspect(&files.ca)?;
    let own = certs::inspect(&files.certificate)?;
    for (certificate, wanted) in [(&ca, Role::Authority), (&own, role)] {
        if certificate.role != wanted {
            let (path, is, needs) = (certificate.path.clone(), owner(certificate.role), owner(wanted));
            return Err(TlsError::WrongRole { path, is, needs });
        }
        let standing = certificate.standing(SystemTime::now(), 0);
        if !matches!(standing, Standing::Valid { .. }) {
            return Err(TlsError::NotValid {
                path: certificate.path.clone(),
                standing,
            });
        }
    }
    if own.issuer != ca.subject {
        let why = format!(
            "{:?} signed it, and the authority is {:?}",
            own.issuer, ca.subject
        );
        return Err(TlsError::Mismatch {
            path: files.certificate.clone(),
            to: files.ca.clone(),
            why,
        });
    }
    let mode = std::fs::metadata(&files.key)
        .map_err(|cause| CertError::Io {
            action: "read",
            path: files.key.clone(),
            cause,
        })?
        .permissions()
        .mode();
    if mode & 0o007 != 0 {
        return Err(TlsError::ExposedKey {
            path: files.key.clone(),
            mode: mode & 0o777,
        });
    }
    let mut roots = RootCertStore::empty();
    for certificate in chain(&files.ca)? {
        roots
            .add(certificate)
            .map_err(|error| unusable(&files.ca, error))?;
    }
    Ok(Loaded {
        roots: Arc::new(roots),
        chain: chain(&files.certificate)?,
        key: PrivateKeyDer::from_pem_file(&files.key).map_err(|error| unusable(&files.key, error))?,
    })
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| unusable(path, error))
}

const fn owner(role: Role) -> &'static str {
    match role {
        Role::Authority => "an authority (ca.crt)",
        Role::Node => "a node (node-NAME.crt)",
        Role::Controller => "the controller (controller.crt)",
        Role::Other => "neither an authority, a node nor a controller",
    }
}

fn unusable(path: &Path, why: impl fmt::Display) -> TlsError {
    CertError::Unusable {
        path: path.into(),
        why: why.to_string(),
    }
    .into()
}

fn mismatch(path: &Path, to: &Path, why: impl fmt::Display) -> TlsError {
    TlsError::Mismatch {
        path: path.into(),
        to: to.into(),
        why: why.to_string(),
    }
}
