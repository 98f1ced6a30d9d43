//! Mutual TLS: both ends show a certificate, and both check the other's against one authority. TLS 1.3 only.

pub(crate) mod expiry;
mod explain;
mod reload;

pub use expiry::days_left;
pub use explain::Side;
pub(crate) use explain::explain;

use crate::certs::{self, CertError, Certificate, Role, Standing};
use reload::{End, Reloading};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, InvalidDnsNameError, PrivateKeyDer, ServerName, UnixTime,
};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The files that one end of a connection needs, as `headroom certs` makes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The authority's certificate: the other end's must be signed by it.
    pub ca: PathBuf,
    /// What this end shows.
    pub certificate: PathBuf,
    /// The private key to it.
    pub key: PathBuf,
    /// The authority's revocation list, where there is one: a peer whose certificate is in it is not let in.
    pub revoked: Option<PathBuf>,
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

/// The certificates of one end, read again when their files change; a clone shares what was read.
pub struct Tls<E>(Arc<Reloading<E>>);

/// What a TCP listener needs. It always demands a client's certificate: there is no value of this type that does not.
pub type ServerTls = Tls<ServerEnd>;

/// What a client needs to reach an agent over TCP.
pub type ClientTls = Tls<ClientEnd>;

/// The end that listens.
pub struct ServerEnd {
    config: Arc<ServerConfig>,
    clients: Arc<dyn ClientCertVerifier>,
}

/// The end that connects.
pub struct ClientEnd {
    config: Arc<ClientConfig>,
    servers: Arc<WebPkiServerVerifier>,
}

impl<E> Clone for Tls<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<E> fmt::Debug for Tls<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

struct Loaded {
    roots: Arc<RootCertStore>,
    revoked: Vec<CertificateRevocationListDer<'static>>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    own: Certificate,
}

impl<E: End> Tls<E> {
    /// Reads and checks the files.
    ///
    /// # Errors
    /// [`TlsError`], which names the file and what is wrong with it.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        Ok(Self(Arc::new(Reloading::load(files)?)))
    }

    /// Whole days until its certificate ends; negative afterwards.
    pub fn days_left(&self) -> i64 {
        self.0.days_left()
    }

    /// Reads the files again where they changed, and were last looked at so long ago.
    pub(crate) fn refresh(&self, every: Duration) {
        self.0.refresh(every);
    }
}

impl ServerTls {
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.current().config)
    }

    /// Whether a client that was let in with this chain would be let in now.
    pub(crate) fn still_accepts(&self, chain: &[CertificateDer<'_>]) -> Result<(), String> {
        let clients = &self.0.current().clients;
        still_accepted(chain, Side::Server, |own, between| {
            clients
                .verify_client_cert(own, between, UnixTime::now())
                .map(drop)
        })
    }
}

impl ClientTls {
    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.0.current().config)
    }

    /// Whether a server that was reached with this chain would be accepted now.
    pub(crate) fn still_accepts(
        &self,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        side: Side,
    ) -> Result<(), String> {
        let servers = &self.0.current().servers;
        still_accepted(chain, side, |own, between| {
            let now = UnixTime::now();
            servers.verify_server_cert(own, between, name, &[], now).map(drop)
        })
    }
}

fn still_accepted(
    chain: &[CertificateDer<'_>],
    side: Side,
    verify: impl FnOnce(&CertificateDer<'_>, &[CertificateDer<'_>]) -> Result<(), rustls::Error>,
) -> Result<(), String> {
    let (own, between) = chain.split_first().ok_or("it showed no certificate")?;
    verify(own, between).map_err(|error| explain(&io::Error::other(error), side))
}

impl End for ServerEnd {
    fn load(files: &TlsFiles) -> Result<(Self, Certificate), TlsError> {
        let loaded = load(files, &[Role::Node])?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(loaded.roots, provider.clone())
            .with_crls(loaded.revoked)
            .only_check_end_entity_revocation()
            .build()
            .map_err(|error| CertError::unusable(files.revoked.as_ref().unwrap_or(&files.ca), error))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| CertError::unusable(&files.certificate, error))?
            .with_client_cert_verifier(Arc::clone(&clients))
            .with_single_cert(loaded.chain, loaded.key)
            .map_err(|error| mismatch(&files.key, &files.certificate, error))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        // A resumed session would not be checked against the clock again.
        config.send_tls13_tickets = 0;
        let config = Arc::new(config);
        Ok((Self { config, clients }, loaded.own))
    }
}

impl End for ClientEnd {
    fn load(files: &TlsFiles) -> Result<(Self, Certificate), TlsError> {
        let loaded = load(files, &[Role::Controller, Role::Reader, Role::Client])?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let servers = WebPkiServerVerifier::builder_with_provider(loaded.roots, provider.clone())
            .with_crls(loaded.revoked)
            .only_check_end_entity_revocation()
            .build()
            .map_err(|error| CertError::unusable(files.revoked.as_ref().unwrap_or(&files.ca), error))?;
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| CertError::unusable(&files.certificate, error))?
            .with_webpki_verifier(Arc::clone(&servers))
            .with_client_auth_cert(loaded.chain, loaded.key)
            .map_err(|error| mismatch(&files.key, &files.certificate, error))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        let config = Arc::new(config);
        Ok((Self { config, servers }, loaded.own))
    }
}

/// The name that an agent's certificate must be good for.
pub(crate) fn server_name(name: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(name.to_string()).map_err(|_: InvalidDnsNameError| TlsError::BadName(name.into()))
}

fn load(files: &TlsFiles, roles: &[Role]) -> Result<Loaded, TlsError> {
    let ca = certs::inspect(&files.ca)?;
    let own = certs::inspect(&files.certificate)?;
    for (certificate, wanted) in [(&ca, &[Role::Authority][..]), (&own, roles)] {
        if !wanted.contains(&certificate.role) {
            let (path, is, needs) = (
                certificate.path.clone(),
                owner(certificate.role),
                owner(wanted[0]),
            );
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
    for certificate in pem_of(&files.ca)? {
        roots
            .add(certificate)
            .map_err(|error| CertError::unusable(&files.ca, error))?;
    }
    let revoked = match &files.revoked {
        Some(path) => revocation_lists(path)?,
        None => Vec::new(),
    };
    Ok(Loaded {
        roots: Arc::new(roots),
        revoked,
        chain: pem_of(&files.certificate)?,
        key: PrivateKeyDer::from_pem_file(&files.key)
            .map_err(|error| CertError::unusable(&files.key, error))?,
        own,
    })
}

/// What a PEM file has of one kind.
fn pem_of<T: PemObject>(path: &Path) -> Result<Vec<T>, CertError> {
    T::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| CertError::unusable(path, error))
}

/// A file without a list would revoke nothing, which nobody means who names one.
fn revocation_lists(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, CertError> {
    let lists = pem_of(path)?;
    match lists.is_empty() {
        true => {
            let why = "it holds no revocation list: `headroom certs revoke NAME` makes one";
            Err(CertError::unusable(path, why))
        }
        false => Ok(lists),
    }
}

const fn owner(role: Role) -> &'static str {
    match role {
        Role::Authority => "an authority (ca.crt)",
        Role::Node => "a node (node-NAME.crt)",
        Role::Controller => "the controller (controller.crt)",
        Role::Reader => "a reader (reader-NAME.crt)",
        Role::Client => "a client without a role of ours",
        Role::Other => "neither an authority, a node, a controller nor a reader",
    }
}

fn mismatch(path: &Path, to: &Path, why: impl fmt::Display) -> TlsError {
    TlsError::Mismatch {
        path: path.into(),
        to: to.into(),
        why: why.to_string(),
    }
}
