//! Clients' certificates: by whom they are verified, and what backends learn of them.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::bad;
use crate::config::TlsListenConfig;
use crate::error::GatewayError;
use crate::files::not_pem;

/// Names of a client's certificate that are passed on; further ones are left out.
const MAX_NAMES: usize = 16;
/// Bytes of the field; a certificate that makes a longer one is passed on by its hash alone.
const MAX_FIELD_BYTES: usize = 4096;

/// What verifies clients, and what it was read from.
type Verifier = (Arc<dyn ClientCertVerifier>, Vec<Vec<u8>>);

/// Reads the authorities and their revocation lists.
pub(super) fn verifier(
    config: &TlsListenConfig,
    ca: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Verifier, GatewayError> {
    let mut roots = RootCertStore::empty();
    let mut read = Vec::new();
    let certificates = CertificateDer::pem_file_iter(ca)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| bad(ca, not_pem(&error, "certificate of an authority")))?;
    for certificate in certificates {
        read.push(certificate.to_vec());
        roots
            .add(certificate)
            .map_err(|error| bad(ca, format!("a certificate in it is no authority's: {error}")))?;
    }
    if read.is_empty() {
        return Err(bad(ca, "it holds no certificate of an authority"));
    }
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    if let Some(file) = &config.client_revoked {
        let lists = CertificateRevocationListDer::pem_file_iter(file)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| bad(file, not_pem(&error, "revocation list (BEGIN X509 CRL)")))?;
        if lists.is_empty() {
            return Err(bad(file, "it holds no revocation list (BEGIN X509 CRL)"));
        }
        read.extend(lists.iter().map(|list| list.to_vec()));
        // Of an authority without a list nothing is known to be revoked.
        builder = builder
            .with_crls(lists)
            .only_check_end_entity_revocation()
            .allow_unknown_revocation_status();
    }
    if !config.require {
        builder = builder.allow_unauthenticated();
    }
    let verifier = builder.build().map_err(|error| bad(ca, error))?;
    Ok((verifier, read))
}

/// What a client's certificate says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientCertificate {
    /// The value of X-Forwarded-Client-Cert.
    pub field: Vec<u8>,
}

/// Writes what may come from an authority that is not careful: nothing of it ends the field, or a quoted value in it.
fn quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            ' '..='~' => out.push(c),
            _ => out.push('?'),
        }
    }
    out.push('"');
}

/// Writes a name, quoted where it holds what separates.
fn name(out: &mut String, key: &str, text: &str) {
    let is_plain = text
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && !b"\",;=\\".contains(&byte));
    let _ = write!(out, ";{key}=");
    match is_plain {
        true => out.push_str(text),
        false => quoted(out, text),
    }
}

impl ClientCertificate {
    /// Of a certificate that was verified; `None` for one that is not understood all the same.
    pub(super) fn read(certificate: &CertificateDer<'_>) -> Option<Self> {
        let hash = ring::digest::digest(&ring::digest::SHA256, certificate);
        let mut field = String::from("Hash=");
        for byte in hash.as_ref() {
            let _ = write!(field, "{byte:02x}");
        }
        let hash_alone = field.len();
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        field.push_str(";Subject=");
        quoted(&mut field, &parsed.subject().to_string());
        let alternative = parsed.subject_alternative_name().ok().flatten();
        let names = alternative.iter().flat_map(|names| &names.value.general_names);
        for alternative in names.take(MAX_NAMES) {
            match alternative {
                GeneralName::URI(uri) => name(&mut field, "URI", uri),
                GeneralName::DNSName(dns) => name(&mut field, "DNS", dns),
                _ => {}
            }
        }
        if field.len() > MAX_FIELD_BYTES {
            field.truncate(hash_alone);
        }
        Some(Self {
            field: field.into_bytes(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_certificate_ends_the_field_or_a_value_in_it() {
        let mut out = String::new();
        quoted(&mut out, "CN=a\";Subject=\"CN=root\r\nX-Admin: 1\u{e9}\\");
        assert_eq!(out, "\"CN=a\\\";Subject=\\\"CN=root??X-Admin: 1?\\\\\"");
        let mut out = String::new();
        name(&mut out, "URI", "spiffe://a.example/b");
        name(&mut out, "DNS", "a,b");
        name(&mut out, "DNS", "a;Subject=\"x\"");
        assert_eq!(
            out,
            ";URI=spiffe://a.example/b;DNS=\"a,b\";DNS=\"a;Subject=\\\"x\\\"\""
        );
    }
}
