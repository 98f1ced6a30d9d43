//! The certificates of a listener and the names that each is for.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::bad;
use crate::config::{CertificateConfig, TlsListenConfig, UnknownName};
use crate::error::GatewayError;
use crate::files::{no_pair, not_pem};

/// What one certificate is for, in lower case.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    exact: Vec<String>,
    /// What comes after `*.`
    wildcards: Vec<String>,
    addresses: Vec<IpAddr>,
}

/// A name as it is compared: in lower case, without the dot of the root.
fn normal(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// What is after the first label, where there is one: that which a wildcard stands before.
fn parent(name: &str) -> Option<&str> {
    let (label, rest) = name.split_once('.')?;
    (!label.is_empty() && !rest.is_empty()).then_some(rest)
}

impl Names {
    fn add(&mut self, name: &str) {
        let name = normal(name);
        match name.strip_prefix("*.") {
            Some(rest) => self.wildcards.push(rest.to_owned()),
            None => self.exact.push(name),
        }
    }

    fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.wildcards.is_empty() && self.addresses.is_empty()
    }

    fn contain(&self, name: &str) -> bool {
        let is_under = |rest: &str| self.wildcards.iter().any(|wildcard| wildcard == rest);
        self.exact.iter().any(|exact| exact == name) || parent(name).is_some_and(is_under)
    }
}

/// The names of a certificate: its subjectAltName (RFC 6125 section 6.4.4 has clients look at nothing else).
fn names_of(certificate: &CertificateDer<'_>) -> Result<Names, String> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|error| error.to_string())?;
    let mut names = Names::default();
    let alternative = parsed
        .subject_alternative_name()
        .map_err(|error| error.to_string())?;
    for name in alternative.iter().flat_map(|names| &names.value.general_names) {
        match name {
            GeneralName::DNSName(name) => names.add(name),
            GeneralName::IPAddress(bytes) => {
                let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
                let address = v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
                names.addresses.extend(address.ok());
            }
            _ => {}
        }
    }
    Ok(names)
}

#[derive(Debug)]
struct Certificate {
    file: PathBuf,
    key: Arc<CertifiedKey>,
    names: Names,
}

fn read(pair: &CertificateConfig, needs_names: bool) -> Result<Certificate, GatewayError> {
    let file = &pair.certificate;
    let chain = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| bad(file, not_pem(&error, "certificate")))?;
    let Some(leaf) = chain.first() else {
        return Err(bad(file, "it holds no certificate"));
    };
    let names = match pair.names.is_empty() {
        true => names_of(leaf).map_err(|error| bad(file, format!("not a certificate: {error}")))?,
        false => {
            let mut names = Names::default();
            pair.names.iter().for_each(|name| names.add(name));
            names
        }
    };
    if needs_names && names.is_empty() {
        let why = "it names no host (it has no subjectAltName), so that nobody could ask for it: issue it with one, or write `names` \
                   beside it";
        return Err(bad(file, why));
    }
    let key = PrivateKeyDer::from_pem_file(&pair.key)
        .map_err(|error| bad(&pair.key, not_pem(&error, "private key")))?;
    let provider = rustls::crypto::ring::default_provider();
    let key = CertifiedKey::from_der(chain, key, &provider)
        .map_err(|error| bad(&pair.key, no_pair(&error, file)))?;
    Ok(Certificate {
        file: file.clone(),
        key: Arc::new(key),
        names,
    })
}

/// The certificates of a listener, the default first.
#[derive(Debug)]
pub(crate) struct Certificates {
    all: Vec<Certificate>,
    /// Which are for a name, in their order.
    exact: HashMap<String, Vec<usize>>,
    /// Which are for any one label before this.
    wildcards: HashMap<String, Vec<usize>>,
    unknown: UnknownName,
}

impl Certificates {
    pub(super) fn load(config: &TlsListenConfig) -> Result<Self, GatewayError> {
        let is_bound = config.client_ca.is_some();
        let all = config
            .pairs()
            .enumerate()
            .map(|(index, pair)| read(&pair, index > 0 || is_bound))
            .collect::<Result<Vec<_>, _>>()?;
        let (mut exact, mut wildcards) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
        for (index, certificate) in all.iter().enumerate() {
            for name in &certificate.names.exact {
                exact.entry(name.clone()).or_default().push(index);
            }
            for name in &certificate.names.wildcards {
                wildcards.entry(name.clone()).or_default().push(index);
            }
        }
        Ok(Self {
            all,
            exact,
            wildcards,
            unknown: config.unknown_name,
        })
    }

    /// The default's file. A checked configuration has one.
    pub(super) fn first_file(&self) -> &Path {
        self.all.first().map_or(Path::new(""), |first| &first.file)
    }

    /// Those for this name; empty where there are none.
    fn candidates(&self, name: &str) -> &[usize] {
        let name = normal(name);
        let wild = || self.wildcards.get(parent(&name)?);
        self.exact.get(&name).or_else(wild).map_or(&[], Vec::as_slice)
    }

    /// The one of a connection whose client asked for this name.
    pub(super) fn index_for(&self, asked: Option<&str>) -> usize {
        asked
            .and_then(|name| self.candidates(name).first())
            .copied()
            .unwrap_or(0)
    }

    /// Whether the value of a Host field, with or without a port, is a name of this certificate.
    pub(super) fn is_name_of(&self, index: usize, host: &str) -> bool {
        let Some(names) = self.all.get(index).map(|certificate| &certificate.names) else {
            return false;
        };
        if let Some(bracketed) = host.strip_prefix('[') {
            let address = bracketed
                .split_once(']')
                .and_then(|(address, _)| address.parse().ok());
            return address.is_some_and(|address| names.addresses.contains(&address));
        }
        let name = host.split_once(':').map_or(host, |(name, _)| name);
        match name.parse() {
            Ok(address) => names.addresses.contains(&address),
            Err(_) => names.contain(&normal(name)),
        }
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let first = self.all.first()?;
        let Some(name) = hello.server_name() else {
            return Some(Arc::clone(&first.key));
        };
        let candidates = self.candidates(name);
        if candidates.is_empty() {
            return (self.unknown == UnknownName::Default).then(|| Arc::clone(&first.key));
        }
        let schemes = hello.signature_schemes();
        let checkable = |index: &&usize| self.all[**index].key.key.choose_scheme(schemes).is_some();
        let chosen = candidates.iter().find(checkable).or_else(|| candidates.first())?;
        Some(Arc::clone(&self.all[*chosen].key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_stands_for_one_label_and_no_more() {
        let mut names = Names::default();
        ["*.A.example", "b.example."]
            .iter()
            .for_each(|name| names.add(name));
        for (name, holds) in [
            ("x.a.example", true),
            ("a.example", false),
            ("x.y.a.example", false),
            (".a.example", false),
            ("b.example", true),
            ("x.b.example", false),
            ("*.a.example", true),
            ("", false),
        ] {
            assert_eq!(names.contain(name), holds, "{name}");
        }
    }
}
