//! What a certificate says, and how long it is still valid.

use super::{CertError, files};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::fmt;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate, X509Name};

/// The most files of a directory that are looked at.
const MOST_FILES: usize = 10_000;

/// Whose certificate it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// An authority's: it signs others.
    Authority,
    /// A node's: good for a server.
    Node,
    /// The controller's: good for a client.
    Controller,
    /// None of ours.
    Other,
}

/// What a certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The file it was read from.
    pub path: PathBuf,
    /// Whose it is.
    pub role: Role,
    /// Its subject's common name.
    pub subject: String,
    /// Its issuer's common name.
    pub issuer: String,
    /// The DNS names and IP addresses that it is good for.
    pub names: Vec<String>,
    /// Not valid before this time.
    pub not_before: SystemTime,
    /// Not valid after this time.
    pub not_after: SystemTime,
    pub(super) public_key: Vec<u8>,
}

/// Whether a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is, for so many whole days.
    Valid {
        /// Whole days.
        days: i64,
    },
    /// It is, but for fewer days than wished.
    EndsSoon {
        /// Whole days.
        days: i64,
    },
    /// Not yet: the clock of this machine is wrong, or it was made for later.
    NotYet,
    /// No more, since so many whole days.
    Expired {
        /// Whole days.
        days: i64,
    },
}

impl Certificate {
    /// Whole days until it ends, rounded down; negative where it has.
    pub fn days_left(&self, now: SystemTime) -> i64 {
        let days = |length: Duration| i64::try_from(length.as_secs() / 86_400).unwrap_or(i64::MAX);
        match self.not_after.duration_since(now) {
            Ok(left) => days(left),
            Err(past) => -1 - days(past.duration()),
        }
    }

    /// Whether it is valid now, and whether it ends within so many days.
    pub fn standing(&self, now: SystemTime, soon_days: u32) -> Standing {
        let days = self.days_left(now);
        if now < self.not_before {
            Standing::NotYet
        } else if days < 0 {
            Standing::Expired { days: -1 - days }
        } else if days < i64::from(soon_days) {
            Standing::EndsSoon { days }
        } else {
            Standing::Valid { days }
        }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Valid { days } => write!(f, "valid for {days} more days"),
            Self::EndsSoon { days } => write!(f, "ends in {days} days: renew it"),
            Self::NotYet => f.write_str("not valid yet: check this machine's clock"),
            Self::Expired { days: 0 } => f.write_str("expired within the last day: renew it"),
            Self::Expired { days } => write!(f, "expired {days} days ago: renew it"),
        }
    }
}

/// Reads the first certificate of a PEM file.
///
/// # Errors
/// [`CertError::Io`], or [`CertError::Unusable`] where the file holds none.
pub fn inspect(path: &Path) -> Result<Certificate, CertError> {
    let unusable = |why: String| CertError::Unusable {
        path: path.into(),
        why,
    };
    let text = files::read(path)?;
    let der = CertificateDer::from_pem_slice(text.as_bytes())
        .map_err(|error| unusable(format!("it holds no certificate: {error}")))?;
    let (_, parsed) = X509Certificate::from_der(&der)
        .map_err(|error| unusable(format!("its certificate cannot be read: {error}")))?;
    let time = |timestamp: i64| {
        let length = Duration::from_secs(timestamp.unsigned_abs());
        let time = if timestamp >= 0 {
            SystemTime::UNIX_EPOCH.checked_add(length)
        } else {
            SystemTime::UNIX_EPOCH.checked_sub(length)
        };
        time.ok_or_else(|| unusable(format!("its validity, {timestamp} s since 1970, is no time")))
    };
    let usage = parsed
        .extended_key_usage()
        .ok()
        .flatten()
        .map(|usage| usage.value);
    let role = match usage {
        _ if parsed.is_ca() => Role::Authority,
        Some(usage) if usage.server_auth && !usage.client_auth => Role::Node,
        Some(usage) if usage.client_auth && !usage.server_auth => Role::Controller,
        _ => Role::Other,
    };
    let names = parsed
        .subject_alternative_name()
        .ok()
        .flatten()
        .map(|names| &names.value.general_names);
    Ok(Certificate {
        path: path.into(),
        role,
        subject: common_name(parsed.subject()),
        issuer: common_name(parsed.issuer()),
        names: names.into_iter().flatten().filter_map(host).collect(),
        not_before: time(parsed.validity().not_before.timestamp())?,
        not_after: time(parsed.validity().not_after.timestamp())?,
        public_key: parsed.public_key().subject_public_key.data.to_vec(),
    })
}

/// Reads every `.crt` file of a directory, sorted by name.
///
/// # Errors
/// [`CertError`] of the directory, or of the first file that holds no certificate.
pub fn inspect_dir(dir: &Path) -> Result<Vec<Certificate>, CertError> {
    let entries = fs::read_dir(dir).map_err(|cause| CertError::Io {
        action: "read",
        path: dir.into(),
        cause,
    })?;
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .take(MOST_FILES)
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "crt"))
        .collect();
    paths.sort();
    paths.iter().map(|path| inspect(path)).collect()
}

/// The common name of a certificate's subject, for a peer that was accepted.
pub(crate) fn subject_of(der: &CertificateDer<'_>) -> Option<String> {
    X509Certificate::from_der(der)
        .ok()
        .map(|(_, parsed)| common_name(parsed.subject()))
}

fn common_name(name: &X509Name<'_>) -> String {
    let text = name.iter_common_name().next().and_then(|name| name.as_str().ok());
    text.unwrap_or_default()
        .chars()
        .filter(|c| !c.is_control())
        .take(128)
        .collect()
}

fn host(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_string()),
        GeneralName::IPAddress(bytes) => {
            let address = match bytes.len() {
                4 => <[u8; 4]>::try_from(*bytes).ok().map(IpAddr::from),
                _ => <[u8; 16]>::try_from(*bytes).ok().map(IpAddr::from),
            };
            address.map(|address| address.to_string())
        }
        _ => None,
    }
}
