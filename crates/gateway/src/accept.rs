//! Which connections are admitted: as many as the core's limit and the process's descriptors allow.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

use crate::admit::Admit;
use crate::client;
use crate::entry::Entry;
use crate::layer::Layer;

/// Pause after the kernel refused a connection for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts until the drain begins, then takes what the kernel had accepted before and closes the socket.
pub(crate) async fn run<L: Layer + 'static>(stack: Rc<Admit<L>>, listener: TcpListener, entry: Entry) {
    let core = stack.core();
    let spawn = |stream: TcpStream, peer: SocketAddr| {
        core.connections.set(core.connections.get() + 1);
        core.descriptors.opened();
        tokio::task::spawn_local(client::serve(stack.clone(), stream, peer, entry.clone()));
    };
    while !core.draining.get() {
        if core.connections.get() >= core.config.limits.max_connections_per_core {
            tokio::select! {
                () = core.closed.notified() => {}
                () = core.drain.notified() => {}
            }
            continue;
        }
        if !core.descriptors.has_room() {
            // Another core's client may be the one that leaves: nobody says so, it is asked again and again.
            tokio::select! {
                () = tokio::time::sleep(ACCEPT_PAUSE) => {}
                () = core.closed.notified() => {}
                () = core.drain.notified() => {}
            }
            continue;
        }
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => spawn(stream, peer),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            () = core.drain.notified() => {}
        }
    }
    // Closing the socket would reset what is in its accept queue, so the queue is emptied first.
    if let Ok(listener) = listener.into_std() {
        while let Ok((stream, peer)) = listener.accept() {
            if stream.set_nonblocking(true).is_ok()
                && let Ok(stream) = TcpStream::from_std(stream)
            {
                spawn(stream, peer);
            }
        }
    }
    core.accepting.set(core.accepting.get() - 1);
    core.closed.notify_waiters();
}
