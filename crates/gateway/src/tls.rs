//! A TLS listener: its certificates by name, its clients' certificates, and both read again when their files change.

mod certificates;
mod client;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use rustls::server::{ProducesTickets, ServerConfig, ServerConnection};
use rustls::version::{TLS12, TLS13};
use tokio_rustls::TlsAcceptor;

use crate::config::TlsListenConfig;
use crate::error::GatewayError;

use certificates::Certificates;
pub(crate) use client::ClientCertificate;

/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What is wrong with a file.
fn bad(path: &Path, why: impl ToString) -> GatewayError {
    GatewayError::Tls {
        path: path.to_owned(),
        why: why.to_string(),
    }
}

/// What changes when a file is written or replaced; `None` where it is missing.
type FileState = Option<(u64, u64, u64, i64, i64)>;

fn states(config: &TlsListenConfig) -> Vec<FileState> {
    let state = |path: &Path| {
        let about = std::fs::metadata(path).ok()?;
        Some((
            about.dev(),
            about.ino(),
            about.size(),
            about.mtime(),
            about.mtime_nsec(),
        ))
    };
    config.files().map(state).collect()
}

/// What is good at a time.
pub(crate) struct Current {
    server: Arc<ServerConfig>,
    certificates: Arc<Certificates>,
    /// What clients are verified by, as it was read: tickets hold only as long as it does.
    authorities: Vec<Vec<u8>>,
    tickets: Arc<dyn ProducesTickets>,
}

impl Current {
    fn load(config: &TlsListenConfig, before: Option<&Self>) -> Result<Self, GatewayError> {
        let certificates = Arc::new(Certificates::load(config)?);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let first = certificates.first_file();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| bad(first, error))?;
        let (builder, authorities) = match &config.client_ca {
            None => (builder.with_no_client_auth(), Vec::new()),
            Some(ca) => {
                let (verifier, read) = client::verifier(config, ca, provider)?;
                (builder.with_client_cert_verifier(verifier), read)
            }
        };
        let mut server = builder.with_cert_resolver(certificates.clone());
        server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // Whom another authority would not have let in must not come back by a ticket.
        let tickets = match before.filter(|before| before.authorities == authorities) {
            Some(before) => Arc::clone(&before.tickets),
            None => rustls::crypto::ring::Ticketer::new().map_err(|error| bad(first, error))?,
        };
        server.ticketer = Arc::clone(&tickets);
        Ok(Self {
            server: Arc::new(server),
            certificates,
            authorities,
            tickets,
        })
    }

    /// What answers a handshake.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.server))
    }

    /// What a client has shown, on a listener that asks for certificates: `None` inside where it has none.
    pub(crate) fn client(&self, connection: &ServerConnection) -> Option<ClientCertificate> {
        let shown = connection.peer_certificates()?.first()?;
        ClientCertificate::read(shown)
    }

    /// The certificate of a connection whose client asked for this name, where it binds what the client may ask (mutual TLS).
    pub(crate) fn binding(&self, asked: Option<&str>) -> Option<Binding> {
        (!self.authorities.is_empty()).then(|| Binding {
            index: self.certificates.index_for(asked),
            certificates: Arc::clone(&self.certificates),
        })
    }
}

/// The certificate that a connection was opened with.
#[derive(Debug, Clone)]
pub(crate) struct Binding {
    certificates: Arc<Certificates>,
    index: usize,
}

impl Binding {
    /// Whether the value of a Host field is one of its names.
    pub(crate) fn is_for(&self, host: &[u8]) -> bool {
        std::str::from_utf8(host).is_ok_and(|host| self.certificates.is_name_of(self.index, host))
    }
}

/// A TLS listener's end of its connections, shared by the cores.
pub(crate) struct TlsEnd {
    config: TlsListenConfig,
    current: RwLock<Arc<Current>>,
    seen: Mutex<Seen>,
}

impl std::fmt::Debug for TlsEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsEnd")
            .field("listen", &self.config.listen)
            .finish_non_exhaustive()
    }
}

struct Seen {
    states: Vec<FileState>,
    /// Why the new files are not used, as the log has it.
    complaint: Option<String>,
}

impl TlsEnd {
    /// Reads all files.
    ///
    /// # Errors
    /// The file that cannot be used, and why.
    pub(crate) fn load(config: &TlsListenConfig) -> Result<Self, GatewayError> {
        // Before they are read: one that changes meanwhile is read again.
        let states = states(config);
        Ok(Self {
            current: RwLock::new(Arc::new(Current::load(config, None)?)),
            config: config.clone(),
            seen: Mutex::new(Seen {
                states,
                complaint: None,
            }),
        })
    }

    /// What is good now.
    pub(crate) fn current(&self) -> Arc<Current> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the files again where they changed, or `always`. Connections that are open keep what they have.
    ///
    /// # Errors
    /// The file that cannot be used; those before stay in use. It is logged once for as long as it is the same.
    pub(crate) fn refresh(&self, always: bool) -> Result<(), GatewayError> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now = states(&self.config);
        if now == seen.states && seen.complaint.is_none() && !always {
            return Ok(());
        }
        match Current::load(&self.config, Some(&self.current())) {
            Ok(fresh) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(fresh);
                seen.states = now;
                seen.complaint = None;
                tracing::info!(listen = %self.config.listen, "certificates were read again");
                Ok(())
            }
            Err(error) => {
                let why = error.to_string();
                if seen.complaint.as_ref() != Some(&why) {
                    tracing::error!(
                        listen = %self.config.listen,
                        "new certificates cannot be used, those before stay in use: {why}"
                    );
                    seen.complaint = Some(why);
                }
                Err(error)
            }
        }
    }
}

/// Reads certificates again when their files change, until dropped.
pub(crate) async fn refresh_forever(ends: Vec<Arc<TlsEnd>>) {
    if ends.is_empty() {
        return;
    }
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let ends = ends.clone();
        // Files may be on a slow disk; periods must not wait for them. What is wrong with them is logged there.
        let looked = tokio::task::spawn_blocking(move || {
            for end in &ends {
                let _ = end.refresh(false);
            }
        });
        let _ = looked.await;
    }
}
