//! Whose certificate is taken.

use super::*;
use crate::testing::says;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use x509_parser::asn1_rs::{Any, FromDer};

#[test]
fn a_certificate_that_nobody_vouches_for_is_refused_before_the_password_is_sent() {
    let (bmc, other) = (Bmc::start(), Bmc::start());
    for config in [
        RedfishConfig {
            ca_file: Some(other.dir.path().join("ca.crt")),
            ..bmc.config()
        },
        RedfishConfig {
            ca_file: None,
            certificate: Some(other.dir.path().join("leaf.crt")),
            ..bmc.config()
        },
        // The right authority and the wrong name.
        RedfishConfig {
            url: format!("https://127.0.0.1:{}", bmc.port),
            ..bmc.config()
        },
    ] {
        says(open(config).state().unwrap_err(), &["ca_file"]);
    }
    assert!(bmc.machine.lock().unwrap().log.is_empty());
}

/// Shows whatever it was given.
#[derive(Debug)]
struct Shows(Arc<CertifiedKey>);

impl ResolvesServerCert for Shows {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// A certificate that signed itself, of version 1 as `openssl x509 -req -signkey` makes them and rcgen does not: its key,
/// version and extensions are rewritten. (Its own signature no longer fits, and nobody looks at it.)
fn old(certificate: &[u8]) -> Vec<u8> {
    let sequence = |parts: &[&[u8]]| {
        let content = parts.concat();
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[0x30, 0x82], &length[..], &content].concat()
    };
    let part = |bytes| {
        let (rest, part) = Any::from_der(bytes).unwrap();
        (part.data, rest)
    };
    let (outer, _) = part(certificate);
    let (signed, after) = part(outer);
    let (_version, mut rest) = part(signed);
    let from = rest;
    // Serial number, signature, issuer, validity, subject, key; what follows are extensions.
    for _ in 0..6 {
        rest = part(rest).1;
    }
    assert!(!rest.is_empty());
    let kept = &from[..from.len() - rest.len()];
    sequence(&[&sequence(&[kept]), after])
}

/// A server that shows a certificate, has a key, and answers each request with a system that is on.
fn serve(shown: Vec<u8>, key: &rcgen::KeyPair, version: &'static SupportedProtocolVersion) -> u16 {
    let provider = Arc::new(default_provider());
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let key = provider.key_provider.load_private_key(key).unwrap();
    let shows = Shows(Arc::new(CertifiedKey::new(
        vec![CertificateDer::from(shown)],
        key,
    )));
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(shows));
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // It ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let tls = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::StreamOwned::new(tls, stream.unwrap());
            // One that is refused is gone.
            if stream.read(&mut [0; 4096]).is_ok() {
                let answer = "HTTP/1.0 200 OK\r\n\r\n{\"PowerState\": \"On\"}";
                stream.write_all(answer.as_bytes()).unwrap();
            }
        }
    });
    port
}

fn look(bmc: &Bmc, port: u16, certificate: &Path) -> Result<Option<bool>, SwitchError> {
    let config = RedfishConfig {
        url: format!("https://127.0.0.1:{port}"),
        system: Some("1".into()),
        auth: RedfishAuth::Basic,
        ca_file: None,
        certificate: Some(certificate.to_owned()),
        ..bmc.config()
    };
    open(config).state()
}

#[test]
fn a_named_certificate_may_be_of_any_version_but_whoever_shows_it_must_have_its_key() {
    let bmc = Bmc::start();
    let (own, other) = (
        rcgen::KeyPair::generate().unwrap(),
        rcgen::KeyPair::generate().unwrap(),
    );
    let new = rcgen::CertificateParams::new(vec!["bmc".to_owned()])
        .unwrap()
        .self_signed(&own)
        .unwrap();
    let versions = [new.der().to_vec(), old(new.der())];
    assert_ne!(versions[0].len(), versions[1].len());
    for (number, der) in versions.into_iter().enumerate() {
        let file = bmc.dir.path().join(format!("{number}.crt"));
        let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &der);
        let pem = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
        fs::write(&file, pem).unwrap();
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let port = serve(der.clone(), &own, version);
            assert_eq!(look(&bmc, port, &file).unwrap(), Some(true));
            let port = serve(der.clone(), &other, version);
            says(look(&bmc, port, &file).unwrap_err(), &["BadSignature"]);
        }
    }
}

#[test]
fn what_is_no_certificate_has_no_key() {
    let key = rcgen::KeyPair::generate().unwrap();
    let whole = rcgen::CertificateParams::new(vec!["bmc".to_owned()])
        .unwrap()
        .self_signed(&key)
        .unwrap();
    assert!(tls::key_info(whole.der()).is_some());
    for length in 0..whole.der().len() {
        assert_eq!(tls::key_info(&whole.der()[..length]), None);
    }
}

#[test]
fn one_that_speaks_no_tls_is_not_asked_for_a_certificate() {
    let bmc = Bmc::start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n").unwrap();
    });
    let error = look(&bmc, port, &bmc.dir.path().join("leaf.crt")).unwrap_err();
    assert!(
        error.to_string().contains("does HTTPS answer at this port?"),
        "{error}"
    );
}
