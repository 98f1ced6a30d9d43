//! How a connection to a backend is opened: TCP, then whose it is (PROXY protocol), then TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use http::uri::Scheme;
use rustls::pki_types::ServerName;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::backend_tls;
use crate::config::{BackendConfig, BackendProtocol, ProxyVersion};
use crate::error::GatewayError;
use crate::send_proxy::{self, Ends};
use crate::socket::Socket;

const H2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

/// How one backend is connected to; the same for all cores.
pub(crate) struct Dial {
    url: String,
    protocol: BackendProtocol,
    send_proxy: Option<ProxyVersion>,
    tls: Option<Tls>,
}

struct Tls {
    /// Offers what the backend's protocol allows.
    connector: TlsConnector,
    /// Offers HTTP/1.1 alone.
    http1: TlsConnector,
    name: ServerName<'static>,
    /// The last handshake failed, and that was said.
    is_failing: AtomicBool,
}

/// An open connection.
pub(crate) struct Opened {
    pub stream: Socket,
    /// It is to be spoken HTTP/2 on.
    pub http2: bool,
}

impl Dial {
    /// In cleartext; whether the configuration asks for TLS is not looked at, no file is read.
    pub(crate) fn cleartext(config: &BackendConfig) -> Self {
        Self {
            url: config.url.clone(),
            protocol: config.protocol(),
            send_proxy: config.send_proxy,
            tls: None,
        }
    }

    /// As configured; reads certificates and keys.
    ///
    /// # Errors
    /// A file that cannot be used, or no authority to believe the backend by.
    pub(crate) fn new(config: &BackendConfig, host: &str) -> Result<Self, GatewayError> {
        let mut dial = Self::cleartext(config);
        if !config.is_https() {
            return Ok(dial);
        }
        let name = config.tls.as_ref().and_then(|tls| tls.server_name.clone());
        let name = name.unwrap_or_else(|| host.to_owned());
        let name = ServerName::try_from(name).map_err(|error| GatewayError::BackendUrl {
            url: config.url.clone(),
            why: format!("its host is no name that a certificate can be for: {error}"),
        })?;
        let client = backend_tls::backend(config)?;
        let offering = |protocols: &[&[u8]]| {
            let mut client = client.clone();
            client.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            TlsConnector::from(Arc::new(client))
        };
        dial.tls = Some(Tls {
            connector: offering(match dial.protocol {
                BackendProtocol::Http1 => &[HTTP_1_1],
                BackendProtocol::H2 => &[H2],
                BackendProtocol::Auto => &[H2, HTTP_1_1],
            }),
            http1: offering(&[HTTP_1_1]),
            name,
            is_failing: AtomicBool::new(false),
        });
        Ok(dial)
    }

    /// Which HTTP the backend is spoken to in.
    pub(crate) fn protocol(&self) -> BackendProtocol {
        self.protocol
    }

    /// The scheme of what is asked of it.
    pub(crate) fn scheme(&self) -> Scheme {
        match self.tls {
            Some(_) => Scheme::HTTPS,
            None => Scheme::HTTP,
        }
    }

    /// Whether each of its connections is one client's.
    pub(crate) fn names_client(&self) -> bool {
        self.send_proxy.is_some()
    }

    /// Opens a connection for the client of these ends, for nobody if there are none; `only_http1` where the backend is not to choose HTTP/2.
    ///
    /// # Errors
    /// TCP's; of TLS with kind `InvalidData`, or `UnexpectedEof` where the backend broke the handshake off.
    pub(crate) async fn open(
        &self,
        address: SocketAddr,
        ends: Option<Ends>,
        only_http1: bool,
    ) -> io::Result<Opened> {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        if let Some(version) = self.send_proxy {
            stream.write_all(&send_proxy::header(version, ends)).await?;
        }
        let Some(tls) = &self.tls else {
            return Ok(Opened {
                stream: Socket::Plain(stream),
                http2: self.protocol == BackendProtocol::H2,
            });
        };
        let outcome = self.shake_hands(tls, stream, only_http1).await;
        match &outcome {
            Ok(_) if !tls.is_failing.load(Relaxed) => {}
            Ok(_) => {
                tls.is_failing.store(false, Relaxed);
                tracing::info!(backend = self.url, "TLS works again");
            }
            // Said once, until it works: requests may come by the thousand.
            Err(error) if !tls.is_failing.swap(true, Relaxed) => {
                tracing::warn!(
                    backend = self.url,
                    %error,
                    "TLS failed: no request goes there until it works (backends.tls says which authority is believed, `ca`, for which \
                     name, `server_name`, and what we show, `certificate` and `key`)"
                );
            }
            Err(_) => {}
        }
        outcome
    }

    async fn shake_hands(&self, tls: &Tls, stream: TcpStream, only_http1: bool) -> io::Result<Opened> {
        let connector = match only_http1 {
            true => &tls.http1,
            false => &tls.connector,
        };
        let stream = connector.connect(tls.name.clone(), stream).await?;
        let http2 = stream.get_ref().1.alpn_protocol() == Some(H2);
        if self.protocol == BackendProtocol::H2 && !http2 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the backend does not offer HTTP/2 (ALPN h2), and protocol = \"h2\" asks for it; \"auto\" takes what it offers",
            ));
        }
        Ok(Opened {
            stream: Socket::Tls(Box::new(stream.into())),
            http2,
        })
    }
}

impl std::fmt::Debug for Dial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dial")
            .field("url", &self.url)
            .field("protocol", &self.protocol)
            .field("tls", &self.tls.is_some())
            .finish_non_exhaustive()
    }
}
