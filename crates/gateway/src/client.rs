//! A client's connection: how it is let in, and which protocol it speaks.

use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Context;

use bytes::Bytes;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::admit::Admit;
use crate::config::ms;
use crate::conn::ClientConn;
use crate::core::Core;
use crate::entry::Entry;
use crate::headers::ClientIdentity;
use crate::http1::{self, Http1};
use crate::layer::Layer;
use crate::send_proxy::Ends;
use crate::socket::Socket;
use crate::sources::Source;
use crate::watch::{Phase, Watch};
use crate::{files, http2, refusals};

/// What every HTTP/2 connection begins with (RFC 9113 section 3.4).
const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes read to tell the protocol; mostly the whole first request.
const SNIFF_BYTES: usize = 1024;

/// Counts a connection closed, however its task ends.
struct Open(Rc<Core>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections.set(self.0.connections.get() - 1);
        self.0.descriptors.closed();
        self.0.closed.notify_waiters();
    }
}

/// Serves one accepted connection to its end.
pub(crate) async fn serve<L: Layer + 'static>(
    stack: Rc<Admit<L>>,
    stream: TcpStream,
    peer: SocketAddr,
    entry: Entry,
) {
    let core = stack.core().clone();
    let _open = Open(core.clone());
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a client went away at once");
        return;
    }
    let mut stream = stream;
    let patience = ms(core.config.timeouts.request_header_timeout_ms);
    let Some(peer) = entry.client(&core, &mut stream, peer, patience).await else {
        return;
    };
    let Ok(source) = Entry::admit(&core, peer) else {
        return;
    };
    let mut identity = ClientIdentity::new(peer, entry.tls.is_some());
    if core.names_clients {
        let here = stream.local_addr().ok();
        identity.ends = here.map(|here| Ends { client: peer, here });
    }
    match entry.tls {
        None => {
            // Boxed, as all that is only there for a while: a connection that waits for its next request is small.
            let sniffed = tokio::time::timeout(patience, Box::pin(sniff(&mut stream)));
            let Ok(Ok((http2, start))) = sniffed.await else {
                return;
            };
            serve_http(stack, Socket::Plain(stream), start, http2, (identity, source)).await;
        }
        Some(end) => {
            let tls = end.current();
            let accepted = tokio::time::timeout(patience, Box::pin(tls.acceptor().accept(stream)));
            let stream = match accepted.await {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => {
                    if let Some(why) = files::refused_certificate(&error) {
                        refusals::tell(peer, &why);
                    }
                    return;
                }
                Err(_) => return,
            };
            let connection = stream.get_ref().1;
            let http2 = connection.alpn_protocol() == Some(b"h2");
            identity.certificate = tls.client(connection);
            identity.binding = tls.binding(connection.server_name());
            let socket = Socket::Tls(Box::new(stream.into()));
            serve_http(stack, socket, Bytes::new(), http2, (identity, source)).await;
        }
    }
}

/// Reads the first bytes until they tell HTTP/2 with prior knowledge from HTTP/1.
async fn sniff(stream: &mut TcpStream) -> std::io::Result<(bool, Bytes)> {
    let mut start = [0; SNIFF_BYTES];
    let mut length = 0;
    loop {
        let read = stream.read(&mut start[length..]).await?;
        length += read;
        let compared = length.min(H2_PREFACE.len());
        let so_far = H2_PREFACE.starts_with(&start[..compared]);
        if read == 0 || !so_far || compared == H2_PREFACE.len() {
            let http2 = so_far && compared == H2_PREFACE.len();
            return Ok((http2, Bytes::copy_from_slice(&start[..length])));
        }
    }
}

async fn serve_http<L: Layer + 'static>(
    stack: Rc<Admit<L>>,
    socket: Socket,
    start: Bytes,
    http2: bool,
    (identity, source): (ClientIdentity, Option<Rc<Source>>),
) {
    let phase = if start.is_empty() {
        Phase::Fresh
    } else {
        Phase::Head
    };
    let core = stack.core().clone();
    let client = |http1| Rc::new(ClientConn::new(core, identity, source, http1, phase));
    if http2 {
        let client = client(None);
        Box::pin(http2::serve(stack, client, socket, start)).await
    } else {
        let client = client(Some(Http1::new(socket, start)));
        http1::serve(&stack, &client).await
    }
}

/// Reads on of an answer that the client is slow to take, while the request path waits for it.
pub(crate) fn read_ahead(core: &Core, watch: &Watch, cx: &mut Context<'_>) {
    let ahead = watch.ahead.borrow();
    let Some(ahead) = &*ahead else { return };
    let bound = core.config.limits.response_buffer_bytes;
    ahead.borrow_mut().read_on(cx, core.pressed(bound));
}
