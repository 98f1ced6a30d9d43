//! The successor's side: asks for the sockets, and says that it serves.

use super::offer::packets;
use super::{
    MAX_MESSAGES, Message, OFFERS, VERSION, be_patient, namespace, own_user, peer_is, receive, send,
};
use anyhow::{Context, bail, ensure};
use headroom_gateway::GatewayConfig;
use rustix::net::{SocketAddrUnix, connect, sockopt};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Gateways of one folder that are asked.
const MAX_ASKED: usize = 256;

/// What predecessors gave: they serve on until [`Taken::serving`]. Dropped before, they go on.
#[derive(Debug, Default)]
pub struct Taken {
    /// The listening sockets.
    pub sockets: Vec<TcpListener>,
    predecessors: Vec<Predecessor>,
}

#[derive(Debug)]
struct Predecessor {
    socket: OwnedFd,
    pid: i32,
}

impl Taken {
    /// The processes that serve still.
    pub fn predecessors(&self) -> Vec<i32> {
        self.predecessors.iter().map(|one| one.pid).collect()
    }

    /// This process accepts: the predecessors accept no more, and finish what they serve. Whether all were reached, and there are any;
    /// one that was not goes on.
    pub fn serving(&self) -> bool {
        let mut reached = !self.predecessors.is_empty();
        for Predecessor { socket, pid } in &self.predecessors {
            if let Err(error) = send(socket.as_fd(), &Message::Serving, &[]) {
                tracing::warn!(pid, %error, "the gateway that was taken over does not hear it, or has ended");
                reached = false;
            }
        }
        reached
    }
}

/// Asks the gateway that offers its sockets at this path for those of these addresses.
///
/// # Errors
/// Nobody offers there, it refuses, or what it gives are not listening sockets of these addresses.
pub fn take(path: &Path, listen: &[SocketAddr]) -> anyhow::Result<Taken> {
    ask(path, listen).with_context(|| format!("{} gives no listening sockets", path.display()))
}

/// Asks every gateway that offers its sockets in a run folder; those that have none of these addresses are left alone. What keeps one
/// from giving its own is said, and the others are asked.
pub fn take_in(run_dir: &Path, listen: &[SocketAddr]) -> Taken {
    let mut all = Taken::default();
    for path in offers_in(&run_dir.join(OFFERS)) {
        match take(&path, listen) {
            Ok(taken) if taken.sockets.is_empty() => {}
            Ok(mut taken) => {
                all.sockets.append(&mut taken.sockets);
                all.predecessors.append(&mut taken.predecessors);
            }
            // What a dead gateway has left.
            Err(error) if is_refused(&error) => {}
            Err(error) => tracing::warn!("{error:#}"),
        }
    }
    all
}

fn is_refused(error: &anyhow::Error) -> bool {
    let errno = error.downcast_ref::<rustix::io::Errno>();
    matches!(
        errno,
        Some(&rustix::io::Errno::CONNREFUSED | &rustix::io::Errno::NOENT)
    )
}

/// The sockets in a folder at which somebody offers, or has.
pub(super) fn offers_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sockets = entries.filter(|entry| {
        let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
        is_socket && entry.path().extension().is_some_and(|kind| kind == "sock")
    });
    sockets.map(|entry| entry.path()).take(MAX_ASKED).collect()
}

fn ask(path: &Path, listen: &[SocketAddr]) -> anyhow::Result<Taken> {
    let socket = packets()?;
    let peer = socket.as_fd();
    be_patient(peer)?;
    connect(peer, &SocketAddrUnix::new(path)?)?;
    // Whoever bound it: a gateway that has given up its user since was root's when it did.
    let pid = match peer_is(peer, own_user())? {
        Ok(pid) => pid,
        Err(uid) => bail!("it is of user {uid}"),
    };
    send(
        peer,
        &Message::Ask {
            version: VERSION,
            namespace: namespace(),
            listen: listen.to_vec(),
        },
        &[],
    )?;
    let mut sockets = Vec::new();
    for _ in 0..MAX_MESSAGES {
        let answer = receive(peer).context("it does not answer")?;
        let (message, descriptors) = answer.context("it has ended, or is about to")?;
        match message {
            Message::Sockets { address } => {
                ensure!(
                    listen.contains(&address),
                    "it gave sockets of {address}, for which it was not asked"
                );
                for descriptor in descriptors {
                    sockets.push(checked(descriptor, address)?);
                }
            }
            Message::All => {
                return Ok(Taken {
                    sockets,
                    predecessors: vec![Predecessor { socket, pid }],
                });
            }
            Message::Refused { why } => bail!(why),
            other => bail!("it said {other:?}"),
        }
    }
    bail!("its answer does not end")
}

/// The descriptor as what it is said to be.
fn checked(descriptor: OwnedFd, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let is_listener = sockopt::socket_acceptconn(&descriptor)?
        && sockopt::socket_protocol(&descriptor)? == Some(rustix::net::ipproto::TCP);
    ensure!(is_listener, "it gave something else than a socket that listens");
    let listener = TcpListener::from(descriptor);
    let bound = listener.local_addr()?;
    ensure!(
        bound == address,
        "it gave a socket of {bound} as one of {address}"
    );
    Ok(listener)
}

/// The addresses that a configuration listens on.
pub fn addresses(config: &GatewayConfig) -> Vec<SocketAddr> {
    config.listen_addresses().collect()
}
