//! Whom a switch trusts, and what a refusal means.

use super::super::SwitchError;
use rustls::client::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::{
    CertificateError, DigitallySignedStruct, Error as TlsError, PeerMisbehaved, RootCertStore,
    SignatureScheme,
};
use std::path::Path;
use std::sync::Arc;

/// The system's authorities where no file is named (Debian's ca-certificates).
const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// DER's tags (X.690) of what stands before a certificate's key.
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const BIT_STRING: u8 = 0x03;

/// Trust in the named authorities, in one certificate alone, or in the system's authorities.
pub(super) fn config(
    ca_file: Option<&Path>,
    certificate: Option<&Path>,
) -> Result<Arc<ClientConfig>, SwitchError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| SwitchError::Network {
            who: "TLS".into(),
            cause: error.to_string(),
            remedy: "this build lacks its protocol versions".into(),
        })?;
    if let Some(file) = certificate {
        if ca_file.is_some() {
            return Err(SwitchError::Value {
                key: "certificate",
                value: format!("{:?}", file.display()),
                expected: "ca_file or certificate, not both".into(),
            });
        }
        let pinned = certificates(file)?.into_iter().next();
        let Some(pinned) = pinned else {
            return Err(no_certificate(file, "there is no certificate in it"));
        };
        let verifier = Pinned::new(pinned, provider)
            .ok_or_else(|| no_certificate(file, "the certificate in it has no key that can be read"))?;
        let config = builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        return Ok(Arc::new(config.with_no_client_auth()));
    }
    let file = ca_file.unwrap_or(Path::new(SYSTEM_AUTHORITIES));
    let mut roots = RootCertStore::empty();
    // A bundle may hold one that is too old a kind; the others still count.
    let (added, _) = roots.add_parsable_certificates(certificates(file)?);
    if added == 0 {
        return Err(no_certificate(file, "there is no authority's certificate in it"));
    }
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    Ok(Arc::new(config))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, SwitchError> {
    CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(|error| no_certificate(file, &error.to_string()))
}

fn no_certificate(file: &Path, cause: &str) -> SwitchError {
    SwitchError::File {
        file: file.to_owned(),
        cause: cause.into(),
        remedy: "what ca_file or certificate names must hold certificates as PEM".into(),
    }
}

/// Why a connection's encryption could not be agreed upon, and what to do.
pub(super) fn refused(error: &std::io::Error) -> (String, &'static str) {
    let tls = error.get_ref().and_then(|error| error.downcast_ref::<TlsError>());
    let Some(tls) = tls else {
        return (error.to_string(), "does HTTPS answer at this port?");
    };
    let certificate =
        "name the authority that signed its certificate as ca_file, or the certificate itself as certificate";
    match tls {
        TlsError::InvalidCertificate(CertificateError::Other(other))
            if format!("{other:?}").contains("CaUsedAsEndEntity") =>
        {
            let cause = "it shows a certificate that it signed itself, as an authority";
            (
                cause.into(),
                "name that certificate as certificate, not as ca_file",
            )
        }
        TlsError::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => (
            "it shows another certificate than the one named".into(),
            certificate,
        ),
        TlsError::InvalidCertificate(_) => (tls.to_string(), certificate),
        TlsError::AlertReceived(_) | TlsError::PeerIncompatible(_) => (
            tls.to_string(),
            "it must speak TLS 1.2 with ECDHE, or 1.3: is there newer firmware for it?",
        ),
        _ => (tls.to_string(), "does HTTPS answer at this port?"),
    }
}

/// Accepts one certificate, whoever signed it and whatever name, age or version it has: service processors come with one of
/// their own. Whoever shows it must still prove to have its key.
#[derive(Debug)]
struct Pinned {
    pinned: CertificateDer<'static>,
    /// The key in it.
    key: SubjectPublicKeyInfoDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    /// None where there is no key in it.
    fn new(pinned: CertificateDer<'static>, provider: Arc<CryptoProvider>) -> Option<Self> {
        let key = key_info(&pinned)?.to_vec().into();
        Some(Self {
            pinned,
            key,
            provider,
        })
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        if end_entity.as_ref() == self.pinned.as_ref() {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        _: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        // By hand, for rustls reads the key out of a certificate of version 3 only, and self-signed ones are often of 1.
        let schemes = self.provider.signature_verification_algorithms.mapping;
        let possible = schemes.iter().find(|(scheme, _)| *scheme == signature.scheme);
        let (_, possible) = possible.ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
        let (kind, key) = key_parts(&self.key).ok_or(CertificateError::BadEncoding)?;
        let is_valid = possible
            .iter()
            .filter(|algorithm| algorithm.public_key_alg_id().as_ref() == kind)
            .any(|algorithm| {
                algorithm
                    .verify_signature(key, message, signature.signature())
                    .is_ok()
            });
        if is_valid {
            Ok(HandshakeSignatureValid::assertion())
        } else {
            Err(CertificateError::BadSignature.into())
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        _: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature_with_raw_key(
            message,
            &self.key,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// One value of DER: its tag, its content, all of it, and what follows.
pub(super) struct Der<'a> {
    tag: u8,
    pub(super) content: &'a [u8],
    pub(super) whole: &'a [u8],
    pub(super) rest: &'a [u8],
}

/// The first value in these bytes (X.690, 8.1: definite lengths), where there is one.
pub(super) fn der(bytes: &[u8]) -> Option<Der<'_>> {
    let (&[tag, first], after) = bytes.split_first_chunk::<2>()?;
    let (length, header) = if first < 0x80 {
        (usize::from(first), 2)
    } else {
        let digits = usize::from(first & 0x7f);
        let digits = after
            .get(..digits)
            .filter(|digits| (1..=4).contains(&digits.len()))?;
        let length = digits
            .iter()
            .fold(0, |length, digit| length << 8 | usize::from(*digit));
        (length, 2 + digits.len())
    };
    let end = header.checked_add(length)?;
    Some(Der {
        tag,
        content: bytes.get(header..end)?,
        whole: &bytes[..end],
        rest: &bytes[end..],
    })
}

/// The SubjectPublicKeyInfo of a certificate of any version (RFC 5280, 4.1).
pub(super) fn key_info(certificate: &[u8]) -> Option<&[u8]> {
    let mut part = der(der(certificate).filter(|outer| outer.tag == SEQUENCE)?.content)
        .and_then(|to_be_signed| der(to_be_signed.content))?;
    // Version 1 does not say that it is one.
    if part.tag == VERSION {
        part = der(part.rest)?;
    }
    // Serial number, signature, issuer, validity, subject, key.
    for _ in 0..5 {
        part = der(part.rest)?;
    }
    (part.tag == SEQUENCE && key_parts(part.whole).is_some()).then_some(part.whole)
}

/// What kind of key it is, as the content of an AlgorithmIdentifier, and the key.
fn key_parts(info: &[u8]) -> Option<(&[u8], &[u8])> {
    let kind = der(der(info)?.content)?;
    let key = der(kind.rest).filter(|key| key.tag == BIT_STRING)?;
    // The first byte says how many bits of the last are none: here always 0.
    let (0, key) = key.content.split_first().map(|(unused, key)| (*unused, key))? else {
        return None;
    };
    Some((kind.content, key))
}
