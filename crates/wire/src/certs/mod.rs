//! The certificates that the agents and the controller show each other.
//!
//! One authority signs them all. A node's certificate is good for a server only and a controller's or reader's for a
//! client only, so what is stolen from one node commands no other; a reader's says so, and commands nothing. Keys are
//! ECDSA P-256, files PEM.
//!
//! | file | what it is for | where it belongs |
//! |---|---|---|
//! | `ca.key` | signs every other certificate | nowhere but in this directory, best offline |
//! | `ca.crt` | tells who signed | every node and the controller |
//! | `ca.crl` | tells which certificates are good no more | every node and the controller |
//! | `issued` | every certificate ever signed, a line each, so that one that was replaced can be revoked too | this directory |
//! | `controller.crt`, `controller.key` | the controller shows them to the agents | the controller |
//! | `controller-NAME.crt`, `controller-NAME.key` | the same, of one of many controllers | that controller |
//! | `reader-NAME.crt`, `reader-NAME.key` | who only observes shows them to the agents | that reader |
//! | `node-NAME.crt`, `node-NAME.key` | the agent of a node shows them to the controller | that node |

mod files;
mod inspect;
mod revoke;

pub use inspect::{Certificate, Role, Standing, inspect, inspect_dir};
pub(crate) use inspect::{days_between, ends, identify};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use std::fmt;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use time::OffsetDateTime;

/// How long a new authority is valid where nothing else is said.
pub const AUTHORITY_DAYS: u32 = 3650;
/// How long a new node's or controller's certificate is valid where nothing else is said.
pub const CERTIFICATE_DAYS: u32 = 365;
/// The most days that a certificate may be made for.
pub const MAX_DAYS: u32 = 36_500;
/// The most names that one certificate holds.
pub const MAX_NAMES: usize = 64;

/// How far two machines' clocks may differ before a fresh certificate is refused as not valid yet.
const SKEW: Duration = Duration::from_secs(300);
const DAY: Duration = Duration::from_secs(86_400);
const MAX_NAME: usize = 63;
/// The name of the only controller.
const CONTROLLER: &str = "controller";

/// A certificate or key that cannot be made, read or written.
#[derive(Debug, thiserror::Error)]
pub enum CertError {
    /// A file or directory could not be used.
    #[error("cannot {action} {path}: {cause}", path = path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The answer.
        cause: io::Error,
    },
    /// A file is there already.
    #[error(
        "{path} exists already and is not overwritten: use another directory, move it away, or renew it",
        path = path.display()
    )]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A file is not what its name says.
    #[error("{path} cannot be used: {why}", path = path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// A name that cannot stand in a certificate.
    #[error("{name:?} is no {what}: {expected}")]
    BadName {
        /// What was given.
        name: String,
        /// What it was to be.
        what: &'static str,
        /// What is accepted.
        expected: &'static str,
    },
    /// A length of validity that is none.
    #[error("{days} days is no validity: give 1 to {MAX_DAYS} days")]
    BadDays {
        /// What was given.
        days: u32,
    },
    /// A certificate would be valid longer than the authority that signs it.
    #[error(
        "{days} days is longer than the authority itself is valid ({left} more days): give fewer, or make a new \
         authority in another directory"
    )]
    OutlivesAuthority {
        /// What was given.
        days: u32,
        /// What the authority has left.
        left: i64,
    },
    /// The cryptographic library refused.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

impl CertError {
    /// A file that is not what its name says.
    pub(crate) fn unusable(path: &Path, why: impl fmt::Display) -> Self {
        Self::Unusable {
            path: path.into(),
            why: why.to_string(),
        }
    }
}

/// When a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    from: SystemTime,
    days: u32,
}

impl Validity {
    /// From now (less five minutes, for clocks that differ) for so many days.
    ///
    /// # Errors
    /// [`CertError::BadDays`].
    pub fn days(days: u32) -> Result<Self, CertError> {
        Self::starting(SystemTime::now(), days)
    }

    /// From a given time (less five minutes) for so many days.
    ///
    /// # Errors
    /// [`CertError::BadDays`].
    pub fn starting(from: SystemTime, days: u32) -> Result<Self, CertError> {
        if (1..=MAX_DAYS).contains(&days) {
            Ok(Self { from, days })
        } else {
            Err(CertError::BadDays { days })
        }
    }

    fn not_before(&self) -> SystemTime {
        self.from - SKEW
    }

    fn not_after(&self) -> SystemTime {
        self.from + DAY * self.days
    }
}

/// A file that was written, and what it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The file.
    pub path: PathBuf,
    /// What it is for and where it belongs, in words.
    pub purpose: String,
    /// It must stay secret; its mode is 0600.
    pub secret: bool,
}

impl Written {
    /// A key and its certificate.
    fn pair(key: PathBuf, of_key: String, crt: PathBuf, of_crt: String) -> Vec<Self> {
        let one = |path, purpose, secret| Self {
            path,
            purpose,
            secret,
        };
        vec![one(key, of_key, true), one(crt, of_crt, false)]
    }
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secret = if self.secret { " [secret]" } else { "" };
        write!(f, "{}{secret}: {}", self.path.display(), self.purpose)
    }
}

/// A directory with an authority in it, which signs certificates into the same directory.
pub struct Authority {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    certificate: Certificate,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
            .field("dir", &self.dir)
            .field("certificate", &self.certificate)
            .finish()
    }
}

impl Authority {
    /// Makes a new authority: `ca.crt` and `ca.key` in a directory (made where it is missing, mode 0700).
    ///
    /// # Errors
    /// [`CertError::Exists`] where there is one already; nothing is changed then. [`CertError::Io`].
    pub fn create(dir: &Path, validity: Validity) -> Result<(Self, Vec<Written>), CertError> {
        files::make_dir(dir)?;
        let key = KeyPair::generate()?;
        let mut params = params(&authority_name(&key), validity);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let signed = params.self_signed(&key)?;
        let (crt, key_file) = (dir.join("ca.crt"), dir.join("ca.key"));
        files::write_pair(&crt, &signed.pem(), &key_file, &key.serialize_pem())?;
        let of_key = "signs every other certificate. Whoever has it commands every node: keep it here, best offline, and \
                      copy it nowhere";
        let of_crt = "tells who signed. Copy it to every node and to the controller (their setting `ca`)";
        let written = Written::pair(key_file, of_key.into(), crt, of_crt.into());
        Ok((Self::open(dir)?, written))
    }

    /// Opens the authority of a directory.
    ///
    /// # Errors
    /// [`CertError::Io`] where a file is missing, [`CertError::Unusable`] where it is not an authority's, or its key is
    /// another's.
    pub fn open(dir: &Path) -> Result<Self, CertError> {
        let (crt, key_file) = (dir.join("ca.crt"), dir.join("ca.key"));
        let certificate = inspect(&crt)?;
        if certificate.role != Role::Authority {
            return Err(CertError::unusable(&crt, "it is no authority's certificate"));
        }
        let key = read_key(&key_file)?;
        if certificate.public_key != rcgen::PublicKeyData::der_bytes(&key) {
            let why = format!("it is not the key of {}", crt.display());
            return Err(CertError::unusable(&key_file, why));
        }
        let pem = files::read(&crt)?;
        Ok(Self {
            dir: dir.into(),
            issuer: Issuer::from_ca_cert_pem(&pem, key)?,
            certificate,
        })
    }

    /// The authority's own certificate.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Makes the controller's certificate: `controller.crt` and `controller.key`.
    ///
    /// # Errors
    /// [`CertError`]; nothing is written then.
    pub fn issue_controller(&self, validity: Validity) -> Result<Vec<Written>, CertError> {
        self.issue_client("controller", CONTROLLER, Role::Controller, validity)
    }

    /// Makes the certificate of one of many controllers: `controller-NAME.crt` and `controller-NAME.key`.
    ///
    /// # Errors
    /// [`CertError`]; nothing is written then.
    pub fn issue_controller_named(&self, name: &str, validity: Validity) -> Result<Vec<Written>, CertError> {
        check_host(name, "name of a controller")?;
        let stem = format!("controller-{}", name.replace(':', "-"));
        self.issue_client(&stem, name, Role::Controller, validity)
    }

    /// Makes the certificate of one that may observe and command nothing: `reader-NAME.crt` and `reader-NAME.key`.
    ///
    /// # Errors
    /// [`CertError`]; nothing is written then.
    pub fn issue_reader(&self, name: &str, validity: Validity) -> Result<Vec<Written>, CertError> {
        check_host(name, "name of a reader")?;
        let stem = format!("reader-{}", name.replace(':', "-"));
        self.issue_client(&stem, name, Role::Reader, validity)
    }

    fn issue_client(
        &self,
        stem: &str,
        name: &str,
        role: Role,
        validity: Validity,
    ) -> Result<Vec<Written>, CertError> {
        self.issue(stem, name, &[], role, validity, Replace::No)
    }

    /// Makes the certificate of a node's agent: `node-NAME.crt` and `node-NAME.key`, good for the node's name and for
    /// the other DNS names and IP addresses under which the controller reaches it.
    ///
    /// # Errors
    /// [`CertError`]; nothing is written then.
    pub fn issue_node(
        &self,
        name: &str,
        also: &[String],
        validity: Validity,
    ) -> Result<Vec<Written>, CertError> {
        check_host(name, "name of a node")?;
        let mut names = vec![name.to_string()];
        for other in also {
            check_host(other, "DNS name or IP address")?;
            if !names.contains(other) {
                names.push(other.clone());
            }
        }
        if names.len() > MAX_NAMES {
            let name = format!("a list of {} names", names.len());
            return Err(CertError::BadName {
                name,
                what: "list for one certificate",
                expected: "at most 64 names",
            });
        }
        self.issue(
            &format!("node-{}", name.replace(':', "-")),
            name,
            &names,
            Role::Node,
            validity,
            Replace::No,
        )
    }

    /// Replaces a certificate of this directory by a new one of the same kind and names, with a new key. The program
    /// that shows it reads it again by itself. The old one stays good until it ends or is revoked.
    ///
    /// # Errors
    /// [`CertError`]: not a node's or controller's certificate signed by this authority. Nothing is changed then.
    pub fn renew(&self, file: &Path, validity: Validity) -> Result<Vec<Written>, CertError> {
        let old = inspect(file)?;
        let unusable = |why: &str| Err(CertError::unusable(file, why));
        if old.issuer != self.certificate.subject {
            return unusable("another authority signed it");
        }
        if !matches!(old.role, Role::Controller | Role::Node | Role::Reader) {
            return unusable("only a node's, a controller's or a reader's certificate can be renewed");
        }
        let Some(stem) = file.file_stem().and_then(|stem| stem.to_str()) else {
            return unusable("its name is no text");
        };
        if file.parent() != Some(self.dir.as_path()) || file.extension().is_none_or(|e| e != "crt") {
            return unusable("it is not a .crt file in the authority's directory");
        }
        self.issue(stem, &old.subject, &old.names, old.role, validity, Replace::Yes)
    }

    fn issue(
        &self,
        stem: &str,
        subject: &str,
        names: &[String],
        role: Role,
        validity: Validity,
        replace: Replace,
    ) -> Result<Vec<Written>, CertError> {
        if validity.not_after() > self.certificate.not_after {
            let left = self.certificate.days_left(SystemTime::now());
            return Err(CertError::OutlivesAuthority {
                days: validity.days,
                left,
            });
        }
        let key = KeyPair::generate()?;
        let mut params = params(subject, validity);
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match role {
            Role::Node => ExtendedKeyUsagePurpose::ServerAuth,
            _ => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        for name in names {
            params.subject_alt_names.push(match name.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(name.as_str().try_into()?),
            });
        }
        if let Some(uri) = role.uri() {
            params.subject_alt_names.push(SanType::URI(uri.try_into()?));
        }
        let signed = params.signed_by(&key, &self.issuer)?;
        // Before it exists: what is not in the list could not be revoked once it was replaced.
        self.note_issued(stem, subject, signed.der())?;
        let (crt, key_file) = (
            self.dir.join(format!("{stem}.crt")),
            self.dir.join(format!("{stem}.key")),
        );
        match replace {
            Replace::No => files::write_pair(&crt, &signed.pem(), &key_file, &key.serialize_pem())?,
            Replace::Yes => files::replace_pair(&crt, &signed.pem(), &key_file, &key.serialize_pem())?,
        }
        let (shows, place) = match role {
            Role::Node => {
                let names = names.join(", ");
                (
                    format!(
                        "the agent of {subject} shows it to the controller, which must reach the node as {names}"
                    ),
                    format!("to {subject}"),
                )
            }
            Role::Reader => (
                format!(
                    "{subject} shows it to the agents: with it and its key every node can be observed, and none commanded"
                ),
                format!("to {subject}"),
            ),
            _ => (
                "the controller shows it to the agents: with it and its key every node can be commanded"
                    .into(),
                "to the controller".into(),
            ),
        };
        let of_key = format!("the private key to {stem}.crt. Copy it {place} alone (its setting `key`)");
        let of_crt = format!("{shows}. Copy it {place} (its setting `certificate`)");
        Ok(Written::pair(key_file, of_key, crt, of_crt))
    }
}

#[derive(Clone, Copy)]
enum Replace {
    Yes,
    No,
}

fn params(subject: &str, validity: Validity) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, subject);
    params.distinguished_name = name;
    params.not_before = OffsetDateTime::from(validity.not_before());
    params.not_after = OffsetDateTime::from(validity.not_after());
    params
}

/// A name that no other authority has: a verifier looks an issuer up by its name, and two authorities of one name
/// would make "another authority signed it" look like a damaged signature.
fn authority_name(key: &KeyPair) -> String {
    let tail: String = key
        .public_key_raw()
        .iter()
        .rev()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("Headroom authority {tail}")
}

/// A DNS name or an IP address, also fit to stand in a file's name.
fn check_host(name: &str, what: &'static str) -> Result<(), CertError> {
    let label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    let dns = name.len() <= MAX_NAME && name.split('.').all(label);
    if dns || name.parse::<IpAddr>().is_ok() {
        Ok(())
    } else {
        let expected =
            "give a DNS name (letters, digits, hyphens and dots, at most 63 characters) or an IP address";
        Err(CertError::BadName {
            name: name.into(),
            what,
            expected,
        })
    }
}

fn read_key(path: &Path) -> Result<KeyPair, CertError> {
    let text = files::read(path)?;
    KeyPair::from_pem(&text)
        .map_err(|error| CertError::unusable(path, format!("it is no private key: {error}")))
}

/// Whether a file is there at all: `symlink_metadata`, so that a dangling link counts too.
fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

#[cfg(test)]
mod tests;
