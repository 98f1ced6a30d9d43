//! How a connection of a listener is let in: for whom a proxy connects, whether its source may, and TLS.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use crate::config::Network;
use crate::core::Core;
use crate::proxy;
use crate::refusals;
use crate::sources::{Admission, Over, Source};
use crate::tls::TlsEnd;

/// What is said of a listener.
#[derive(Clone, Default)]
pub(crate) struct Entry {
    pub tls: Option<Arc<TlsEnd>>,
    /// Who begins each connection with a PROXY protocol header; `None` where nobody does.
    pub trusted: Option<Arc<[Network]>>,
}

impl Entry {
    /// For whom a connection is: its peer, or whom a trusted proxy names, within `patience`. `None` where it is to be closed, which is
    /// counted.
    pub(crate) async fn client(
        &self,
        core: &Core,
        stream: &mut TcpStream,
        peer: SocketAddr,
        patience: Duration,
    ) -> Option<SocketAddr> {
        let Some(trusted) = &self.trusted else {
            return Some(peer);
        };
        let why = if !trusted.iter().any(|network| network.contains(peer.ip())) {
            "its source is none of `trusted`".to_owned()
        } else {
            // Boxed, so that connections of other listeners do not carry its buffers along.
            match tokio::time::timeout(patience, Box::pin(proxy::take_header(stream))).await {
                Ok(Ok(named)) => return Some(named.unwrap_or(peer)),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "its header did not come in time".to_owned(),
            }
        };
        core.stats.borrow_mut().sources.proxy_headers += 1;
        refusals::tell(
            peer,
            &format!("it is to begin with a PROXY protocol header, and {why}"),
        );
        None
    }

    /// Lets a client's connection in: its source's state, for as long as it is open; `None` inside where nobody limits it.
    ///
    /// # Errors
    /// It is over a limit, which is counted, and to be closed.
    pub(crate) fn admit(core: &Core, client: SocketAddr) -> Result<Option<Rc<Source>>, Over> {
        let Some(sources) = &core.sources else {
            return Ok(None);
        };
        let admission = sources.connect(client.ip(), Instant::now());
        let counts = &mut core.stats.borrow_mut().sources;
        let source = match admission {
            Ok(Admission::Source(source)) => Some(Rc::new(source)),
            Ok(Admission::Exempt) => None,
            Ok(Admission::Untracked) => {
                counts.untracked += 1;
                None
            }
            Err(over) => {
                *match over {
                    Over::Connections => &mut counts.connections,
                    Over::Connects => &mut counts.connects,
                } += 1;
                tracing::debug!(%client, limit = %over, "a connection over its source's limit was closed");
                return Err(over);
            }
        };
        Ok(source)
    }
}
