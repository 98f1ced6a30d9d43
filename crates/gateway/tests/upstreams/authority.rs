//! A certificate authority of the tests, and what it signs.

use std::path::PathBuf;

use headroom_gateway::BackendTlsConfig;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: rcgen::Certificate,
    directory: tempfile::TempDir,
}

/// A certificate and its key.
pub struct Signed {
    pub certificate: CertificateDer<'static>,
    pub key: PrivateKeyDer<'static>,
    certificate_pem: String,
    key_pem: String,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self {
            certificate: params.self_signed(&key).unwrap(),
            issuer: Issuer::new(params, key),
            directory: tempfile::tempdir().unwrap(),
        }
    }

    /// Signs a certificate for this name, with something changed.
    pub fn sign_with(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Signed {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Signed {
            certificate: certificate.der().clone(),
            key: PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        }
    }

    pub fn sign(&self, name: &str) -> Signed {
        self.sign_with(name, |_| {})
    }

    /// Its own certificate.
    pub fn root(&self) -> CertificateDer<'static> {
        self.certificate.der().clone()
    }

    /// Writes a file that lasts as long as the authority.
    pub fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// What a backend that this authority signed for is believed by.
    pub fn trusted(&self) -> BackendTlsConfig {
        BackendTlsConfig {
            ca: Some(self.file("ca.pem", &self.certificate.pem())),
            ..BackendTlsConfig::default()
        }
    }

    /// The same, showing this certificate.
    pub fn trusted_as(&self, who: &Signed) -> BackendTlsConfig {
        BackendTlsConfig {
            certificate: Some(self.file("client.pem", &who.certificate_pem)),
            key: Some(self.file("client-key.pem", &who.key_pem)),
            ..self.trusted()
        }
    }
}
