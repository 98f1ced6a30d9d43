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
const MAX_FILES: usize = 10_000;

/// Whose certificate it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// An authority's: it signs others.
    Authority,
    /// A node's: good for a server.
    Node,
    /// A controller's: good for a client that commands.
    Controller,
    /// A reader's: good for a client that commands nothing.
    Reader,
    /// Good for a client, with no role of ours in it: what it may do is for lists of names to say.
    Client,
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
    pub(super) serial: Vec<u8>,
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

impl Role {
    /// The name that a certificate of this role has beside its own (a URI among its alternative names).
    pub(super) const fn uri(self) -> Option<&'static str> {
        match self {
            Self::Controller => Some("headroom:role/controller"),
            Self::Reader => Some("headroom:role/reader"),
            _ => None,
        }
    }
}

impl Certificate {
    /// Whole days until it ends, rounded down; negative where it has.
    pub fn days_left(&self, now: SystemTime) -> i64 {
        days_between(now, self.not_after)
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

/// Whole days from one time to another, rounded down; negative where the other is before.
pub(crate) fn days_between(now: SystemTime, then: SystemTime) -> i64 {
    let days = |length: Duration| i64::try_from(length.as_secs() / 86_400).unwrap_or(i64::MAX);
    match then.duration_since(now) {
        Ok(left) => days(left),
        Err(past) => -1 - days(past.duration()),
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
    let unusable = |why: String| CertError::unusable(path, why);
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
    Ok(Certificate {
        path: path.into(),
        role: role_of(&parsed),
        subject: common_name(parsed.subject()),
        issuer: common_name(parsed.issuer()),
        names: names_of(&parsed).iter().filter_map(host).collect(),
        not_before: time(parsed.validity().not_before.timestamp())?,
        not_after: time(parsed.validity().not_after.timestamp())?,
        public_key: parsed.public_key().subject_public_key.data.to_vec(),
        serial: parsed.raw_serial().to_vec(),
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
        .take(MAX_FILES)
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "crt"))
        .collect();
    paths.sort();
    paths.iter().map(|path| inspect(path)).collect()
}

/// The name and the role of a certificate that was accepted: the common name, or the first alternative name.
pub(crate) fn identify(der: &CertificateDer<'_>) -> Option<(String, Role)> {
    let (_, parsed) = X509Certificate::from_der(der).ok()?;
    let name = Some(common_name(parsed.subject())).filter(|name| !name.is_empty());
    let name = name.or_else(|| names_of(&parsed).iter().find_map(host))?;
    Some((name, role_of(&parsed)))
}

/// When a certificate ends, in seconds since 1970.
pub(crate) fn ends(der: &CertificateDer<'_>) -> Option<SystemTime> {
    let (_, parsed) = X509Certificate::from_der(der).ok()?;
    let seconds = u64::try_from(parsed.validity().not_after.timestamp()).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

fn names_of<'a>(parsed: &'a X509Certificate<'_>) -> &'a [GeneralName<'a>] {
    let names = parsed.subject_alternative_name().ok().flatten();
    names.map_or(&[], |names| names.value.general_names.as_slice())
}

fn role_of(parsed: &X509Certificate<'_>) -> Role {
    let usage = parsed.extended_key_usage().ok().flatten();
    let has = |role: Role| {
        let uri = |name: &GeneralName<'_>| matches!(name, GeneralName::URI(uri) if Some(*uri) == role.uri());
        names_of(parsed).iter().any(uri)
    };
    match usage.map(|usage| usage.value) {
        _ if parsed.is_ca() => Role::Authority,
        Some(usage) if usage.server_auth && !usage.client_auth => Role::Node,
        // One that has both is the lesser.
        Some(usage) if usage.client_auth && !usage.server_auth => {
            match (has(Role::Reader), has(Role::Controller)) {
                (true, _) => Role::Reader,
                (false, true) => Role::Controller,
                (false, false) => Role::Client,
            }
        }
        _ => Role::Other,
    }
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
