//! Whom a switch trusts, and what a refusal means.

use super::super::SwitchError;
use headroom_client::{authorities, tls};
use rustls::client::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error as TlsError, PeerMisbehaved, SignatureScheme};
use std::path::Path;
use std::sync::Arc;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::SubjectPublicKeyInfo;

/// Trust in the named authorities, in one certificate alone, or in the system's authorities.
pub(super) fn config(
    ca_file: Option<&Path>,
    certificate: Option<&Path>,
) -> Result<ClientConfig, SwitchError> {
    if let Some(file) = certificate {
        if ca_file.is_some() {
            return Err(SwitchError::Value {
                key: "certificate",
                value: format!("{:?}", file.display()),
                expected: "ca_file or certificate, not both".into(),
            });
        }
        let pinned =
            CertificateDer::from_pem_file(file).map_err(|error| no_certificate(file, &error.to_string()))?;
        let verifier = Pinned::new(pinned)
            .ok_or_else(|| no_certificate(file, "the certificate in it has no key that can be read"))?;
        let config = tls()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        return Ok(config.with_no_client_auth());
    }
    let roots = authorities(ca_file).map_err(|(file, cause)| no_certificate(file, &cause))?;
    Ok(tls().with_root_certificates(roots).with_no_client_auth())
}

fn no_certificate(file: &Path, cause: &str) -> SwitchError {
    SwitchError::File {
        file: file.to_owned(),
        cause: cause.into(),
        remedy: "what ca_file or certificate names must hold certificates as PEM".into(),
    }
}

/// Why a connection's encryption could not be agreed upon, and what to do.
pub(super) fn refused(cause: String, tls: Option<&TlsError>) -> (String, &'static str) {
    let Some(tls) = tls else {
        return (cause, "does HTTPS answer at this port?");
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
    provider: CryptoProvider,
}

impl Pinned {
    /// None where there is no key in it.
    fn new(pinned: CertificateDer<'static>) -> Option<Self> {
        let key = key_info(&pinned)?.into();
        Some(Self {
            pinned,
            key,
            provider: default_provider(),
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
        let (_, key) =
            SubjectPublicKeyInfo::from_der(&self.key).map_err(|_| CertificateError::BadEncoding)?;
        let key = &key.subject_public_key.data;
        let is_valid = possible.iter().any(|algorithm| {
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

/// The SubjectPublicKeyInfo of a certificate of any version (RFC 5280, 4.1).
pub(super) fn key_info(certificate: &[u8]) -> Option<Vec<u8>> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(certificate.public_key().raw.to_vec())
}
