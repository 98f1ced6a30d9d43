//! An authority, certificates and a TLS client over plain sockets.

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headroom_gateway::{CertificateConfig, TlsListenConfig};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};

use crate::common::{Message, PATIENCE};

/// An authority and a folder for what it issues.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![
            rcgen::KeyUsagePurpose::KeyCertSign,
            rcgen::KeyUsagePurpose::CrlSign,
        ];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn ca(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// Issues a certificate for these names into `FILE.pem` and `FILE.key`; its serial number is the last byte given.
    pub fn issue(&self, file: &str, names: &[&str], serial: u8) {
        let dns: Vec<String> = names
            .iter()
            .filter(|name| !name.contains("://"))
            .map(|name| (*name).to_owned())
            .collect();
        let mut params = CertificateParams::new(dns).unwrap();
        for uri in names.iter().filter(|name| name.contains("://")) {
            params
                .subject_alt_names
                .push(SanType::URI((*uri).try_into().unwrap()));
        }
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, file);
        params.serial_number = Some(vec![1, serial].into());
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        // The key first: whoever reads both when the certificate has changed finds the right one.
        self.replace(&format!("{file}.key"), &key.serialize_pem());
        self.replace(&format!("{file}.pem"), &certificate.pem());
    }

    /// Writes a file as a renewal does: whole, in the place of the old one.
    fn replace(&self, name: &str, text: &str) {
        let new = self.path(&format!("{name}.new"));
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.path(name)).unwrap();
    }

    /// Writes a revocation list of these serial numbers.
    pub fn revoke(&self, serials: &[u8]) -> PathBuf {
        let revoked = |serial: &u8| rcgen::RevokedCertParams {
            serial_number: vec![1, *serial].into(),
            revocation_time: rcgen::date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = rcgen::CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2024, 1, 1),
            next_update: rcgen::date_time_ymd(2090, 1, 1),
            crl_number: vec![1].into(),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        self.replace(
            "revoked.pem",
            &list.signed_by(&self.issuer).unwrap().pem().unwrap(),
        );
        self.path("revoked.pem")
    }

    pub fn pair(&self, file: &str) -> CertificateConfig {
        CertificateConfig {
            certificate: self.path(&format!("{file}.pem")),
            key: self.path(&format!("{file}.key")),
            names: Vec::new(),
        }
    }

    /// A listener with these certificates.
    pub fn listener(&self, files: &[&str]) -> TlsListenConfig {
        let mut listener = TlsListenConfig::without_certificate("127.0.0.1:0".parse().unwrap());
        listener.certificates = files.iter().map(|file| self.pair(file)).collect();
        listener
    }

    /// A client that trusts this authority, with a certificate of the same or of another one.
    pub fn client(&self, identity: Option<(&Path, &Path)>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(self.ca()).unwrap() {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        Arc::new(match identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = CertificateDer::pem_file_iter(certificate)
                    .unwrap()
                    .map(Result::unwrap)
                    .collect();
                let key = PrivateKeyDer::from_pem_file(key).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        })
    }
}

pub type Stream = StreamOwned<ClientConnection, TcpStream>;

/// Shakes hands, asking for this name.
pub fn connect(config: &Arc<ClientConfig>, address: SocketAddr, name: &str) -> std::io::Result<Stream> {
    let tcp = TcpStream::connect(address)?;
    connect_over(tcp, config, name)
}

pub fn connect_over(tcp: TcpStream, config: &Arc<ClientConfig>, name: &str) -> std::io::Result<Stream> {
    tcp.set_read_timeout(Some(PATIENCE))?;
    tcp.set_nodelay(true)?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connection = ClientConnection::new(Arc::clone(config), name).unwrap();
    let mut stream = StreamOwned::new(connection, tcp);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

/// Asks for `/` at a host; an error where the connection ends instead.
pub fn ask(stream: &mut Stream, host: &str, more: &str) -> std::io::Result<Message> {
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: {host}\r\n{more}\r\n").as_bytes())?;
    let message = Message::read(&mut BufReader::new(stream), false);
    message.ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
}

/// The common name of the certificate that a client was shown, as [`Authority::issue`] named it.
pub fn shown(stream: &Stream) -> String {
    let certificate = &stream.conn.peer_certificates().unwrap()[0];
    let text = String::from_utf8_lossy(certificate);
    let known = ["first", "second", "wild", "renewed", "named"];
    // Both the issuer's and the subject's name are in it; only the subjects have these.
    known
        .into_iter()
        .find(|name| text.contains(name))
        .unwrap()
        .to_owned()
}

pub fn is_resumed(stream: &Stream) -> bool {
    stream.conn.handshake_kind() == Some(HandshakeKind::Resumed)
}
