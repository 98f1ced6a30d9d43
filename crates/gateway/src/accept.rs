//! Which connections are admitted: as many as the core's limit and the process's descriptors allow.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream};

use crate::admit::Admit;
use crate::client;
use crate::core::Core;
use crate::layer::Layer;
use crate::listeners::Listener;

/// Pause after the kernel refused a connection for want of descriptors or memory, or for a reason that is not of that connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts until the drain begins, then takes what the kernel had accepted before, unless a successor does, and closes the
/// socket.
pub(crate) async fn run<L: Layer + 'static>(stack: Rc<Admit<L>>, listener: Listener) {
    let core = stack.core();
    let Listener {
        socket,
        entry,
        handed_over,
        ..
    } = listener;
    let spawn = |stream: TcpStream, peer: SocketAddr| {
        core.connections.set(core.connections.get() + 1);
        core.descriptors.opened();
        tokio::task::spawn_local(client::serve(stack.clone(), stream, peer, entry.clone()));
    };
    match TcpListener::from_std(socket) {
        Ok(listener) => {
            accept(core, &listener, spawn).await;
            // Closing the socket would reset what is in its accept queue, so the queue is emptied first. A successor's descriptor
            // of it keeps it open, and it has its own limits of whom it accepts.
            if !handed_over.load(Ordering::Acquire)
                && let Ok(listener) = listener.into_std()
            {
                while let Ok((stream, peer)) = listener.accept() {
                    if stream.set_nonblocking(true).is_ok()
                        && let Ok(stream) = TcpStream::from_std(stream)
                    {
                        spawn(stream, peer);
                    }
                }
            }
        }
        Err(error) => tracing::error!(%error, core = core.index(), "a listener could not be registered"),
    }
    core.accepting.set(core.accepting.get() - 1);
    core.closed.notify_waiters();
}

/// Accepts until the drain begins.
async fn accept(core: &Core, listener: &TcpListener, spawn: impl Fn(TcpStream, SocketAddr)) {
    while !core.draining.get() {
        if core.connections.get() >= core.config.limits.max_connections_per_core {
            tokio::select! {
                () = core.closed.notified() => {}
                () = core.drain.notified() => {}
            }
            continue;
        }
        if !core.descriptors.has_room() {
            tokio::select! {
                () = core.descriptors.room() => {}
                () = core.drain.notified() => {}
            }
            continue;
        }
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => spawn(stream, peer),
                // The next one in the queue may be sound.
                Err(error) if is_of_connection(&error) => {
                    tracing::debug!(%error, "a connection ended before it was accepted");
                }
                Err(error) => {
                    core.descriptors.refused(&error);
                    tokio::select! {
                        () = tokio::time::sleep(ACCEPT_PAUSE) => {}
                        () = core.drain.notified() => {}
                    }
                }
            },
            () = core.drain.notified() => {}
        }
    }
}

/// Whether `accept` failed for that connection alone: Linux passes on what has become of it (accept(2)), and a firewall may
/// forbid it.
fn is_of_connection(error: &std::io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(
            Errno::CONNABORTED
                | Errno::CONNRESET
                | Errno::HOSTDOWN
                | Errno::HOSTUNREACH
                | Errno::INTR
                | Errno::NETDOWN
                | Errno::NETUNREACH
                | Errno::NONET
                | Errno::NOPROTOOPT
                | Errno::OPNOTSUPP
                | Errno::PERM
                | Errno::PROTO
                | Errno::TIMEDOUT
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aborted_connection_does_not_pause_the_others_and_a_shortage_does() {
        let of = |errno: Errno| is_of_connection(&errno.into());
        for errno in [Errno::CONNABORTED, Errno::PERM, Errno::PROTO] {
            assert!(of(errno), "{errno}");
        }
        for errno in [
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOBUFS,
            Errno::NOMEM,
            Errno::INVAL,
        ] {
            assert!(!of(errno), "{errno}");
        }
    }
}
