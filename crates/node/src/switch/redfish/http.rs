//! One HTTPS connection to a service processor, one request at a time.

use super::super::{SwitchError, quoted};
use base64::Engine;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::client::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The longest answer that is read: a system's resource takes some ten kilobytes.
const MOST_BYTES: usize = 1 << 20;
/// The system's authorities where no file is named (Debian's ca-certificates).
const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Where the service processor is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    host: String,
    port: u16,
    authority: String,
    name: ServerName<'static>,
}

impl Endpoint {
    pub(super) fn parse(url: &str) -> Result<Self, SwitchError> {
        let wrong = |expected: &str| SwitchError::Value {
            key: "url",
            value: format!("{url:?}"),
            expected: expected.into(),
        };
        let uri: Uri = url
            .parse()
            .map_err(|_| wrong("an address as https://bmc1 or https://10.0.0.5:8443"))?;
        if uri.scheme_str() != Some("https") {
            return Err(wrong("https:// it must be, for a password goes there"));
        }
        let authority = uri.authority().ok_or_else(|| wrong("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("user and password are keys of their own"));
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(wrong(
                "a host and no path: Redfish begins at /redfish/v1 everywhere",
            ));
        }
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let name =
            ServerName::try_from(host.clone()).map_err(|_| wrong("its host is no name and no address"))?;
        Ok(Self {
            host,
            port: authority.port_u16().unwrap_or(443),
            authority: authority.to_string(),
            name,
        })
    }
}

/// What came back.
#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) text: String,
    pub(super) json: Option<Value>,
    /// The path of `Location`.
    pub(super) location: Option<String>,
    /// `X-Auth-Token`.
    pub(super) token: Option<String>,
    /// `Retry-After`, in seconds.
    pub(super) retry_after: Option<Duration>,
}

impl Answer {
    pub(super) const fn is_success(&self) -> bool {
        self.status >= 200 && self.status < 300
    }
}

/// A connection, opened when it is needed and again where the other end closed it.
pub(super) struct Connection {
    endpoint: Endpoint,
    tls: Arc<ClientConfig>,
    sender: Option<SendRequest<Full<Bytes>>>,
    basic: Option<HeaderValue>,
}

impl Connection {
    pub(super) const fn new(endpoint: Endpoint, tls: Arc<ClientConfig>) -> Self {
        Self {
            endpoint,
            tls,
            sender: None,
            basic: None,
        }
    }

    /// From now on each request carries name and password (RFC 7617).
    pub(super) fn basic(&mut self, user: &str, password: &str) {
        let text = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        let mut value = HeaderValue::from_str(&format!("Basic {text}")).ok();
        // It is kept out of logs.
        value.iter_mut().for_each(|value| value.set_sensitive(true));
        self.basic = value;
    }

    fn failed(&self, cause: impl std::fmt::Display, remedy: &str) -> SwitchError {
        SwitchError::Network {
            who: format!("https://{}", self.endpoint.authority),
            cause: cause.to_string(),
            remedy: remedy.into(),
        }
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, SwitchError> {
        let stream = TcpStream::connect((self.endpoint.host.as_str(), self.endpoint.port))
            .await
            .map_err(|error| {
                self.failed(error, "is the address right and the service processor reachable?")
            })?;
        let stream = TlsConnector::from(Arc::clone(&self.tls))
            .connect(self.endpoint.name.clone(), stream)
            .await
            .map_err(|error| {
                self.failed(
                    error,
                    "name the authority that signed its certificate as ca_file, or the certificate itself as certificate",
                )
            })?;
        let (sender, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.failed(error, "does it speak HTTP/1.1?"))?;
        tokio::spawn(async move {
            // What goes wrong here is told to the request that waits for it.
            let _ = connection.await;
        });
        Ok(sender)
    }

    pub(super) async fn ask(
        &mut self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Answer, SwitchError> {
        let mut kept = self.sender.take();
        if let Some(sender) = &mut kept
            && sender.ready().await.is_err()
        {
            kept = None;
        }
        let mut sender = match kept {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let request = self.request(method, path, token, body)?;
        let broke = "the connection broke; it is tried again with the next action";
        let response = sender
            .send_request(request)
            .await
            .map_err(|error| self.failed(error, broke))?;
        let mut answer = Answer {
            status: response.status().as_u16(),
            ..Answer::default()
        };
        answer.read_head(response.headers());
        let body = Limited::new(response.into_body(), MOST_BYTES)
            .collect()
            .await
            .map_err(|error| self.failed(error, broke))?
            .to_bytes();
        answer.json = serde_json::from_slice(&body).ok();
        answer.text = quoted(&String::from_utf8_lossy(&body));
        self.sender = Some(sender);
        Ok(answer)
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Request<Full<Bytes>>, SwitchError> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.endpoint.authority)
            .header(header::ACCEPT, "application/json")
            .header("OData-Version", "4.0");
        if let Some(basic) = &self.basic {
            request = request.header(header::AUTHORIZATION, basic);
        }
        if let Some(token) = token {
            request = request.header("X-Auth-Token", token);
        }
        let bytes = match body {
            Some(body) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Bytes::from(body.to_string())
            }
            None => Bytes::new(),
        };
        request
            .body(Full::new(bytes))
            .map_err(|error| self.failed(error, "it named a path that is none"))
    }
}

impl Answer {
    fn read_head(&mut self, headers: &HeaderMap) {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        self.token = text("x-auth-token").map(str::to_owned);
        // A path or a whole address; of the latter only the path is used, so that nobody is sent elsewhere.
        self.location = text("location")
            .and_then(|location| location.parse::<Uri>().ok())
            .and_then(|uri| uri.path_and_query().map(ToString::to_string));
        self.retry_after = text("retry-after")
            .and_then(|seconds| seconds.parse().ok())
            .map(Duration::from_secs);
    }
}

/// Trust in the named authorities, in one certificate alone, or in the system's authorities.
pub(super) fn tls(
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
        let verifier = Arc::new(Pinned { pinned, provider });
        let config = builder.dangerous().with_custom_certificate_verifier(verifier);
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
        remedy: "it must hold certificates as PEM; name another with ca_file".into(),
    }
}

/// Accepts one certificate, whoever signed it and whatever name it has: service processors come with one of their own.
#[derive(Debug)]
struct Pinned {
    pinned: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
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
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(
            message,
            certificate,
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
