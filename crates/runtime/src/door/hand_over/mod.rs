//! How one gateway hands its listening sockets to the next, so that no connection is lost between the two.
//!
//! A gateway *offers* its sockets at a Unix socket of its own. Its successor connects, says which addresses it is to listen on,
//! and is given every socket of those, as descriptors (SCM_RIGHTS, unix(7)): what is in their accept queues it accepts, whoever of the
//! two had the socket when the client connected. It serves, says so, and only then does the old one drain. A successor that
//! ends before that has changed nothing: its descriptors are closed with it, and the old one's are as they were.
//!
//! Who may ask is root and whoever started the gateway, by what the kernel says of the other side (SO_PEERCRED); and the
//! successor takes sockets of nobody else either. Both must be in one network namespace, as addresses of two are two.

mod ask;
mod offer;

pub use ask::{Taken, addresses, take, take_in};
pub use offer::{Offer, Offering};

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

/// The folder of a run folder in which gateways without a record offer their sockets.
pub const OFFERS: &str = "listeners";

/// What a successor does that is given no sockets, for the log.
pub const NEW_SOCKETS: &str = "new ones are opened beside them: a connection that comes just when the old ones close may be reset, and where the old process \
     stands still some hang until it goes on or is killed";

/// What the two understand of each other.
const VERSION: u32 = 1;
/// Descriptors of one message; the kernel allows 253.
const MAX_DESCRIPTORS: usize = 64;
/// Bytes of one message: the addresses of any configuration that there is.
const MAX_MESSAGE_BYTES: usize = 64 * 1024;
/// Messages of one answer.
const MAX_MESSAGES: usize = 1024;
/// How long either waits for the other's next message: both are processes of this machine that have nothing else to do.
const PATIENCE: Duration = Duration::from_secs(2);

/// What they say to each other, a packet each (SOCK_SEQPACKET).
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Message {
    /// The successor is to listen there.
    Ask {
        version: u32,
        /// Its network namespace, as /proc has it.
        namespace: Option<PathBuf>,
        listen: Vec<SocketAddr>,
    },
    /// Sockets of one of these addresses are with it.
    Sockets { address: SocketAddr },
    /// These were all.
    All,
    /// It gets none.
    Refused { why: String },
    /// The successor accepts.
    Serving,
}

/// This process's network namespace.
fn namespace() -> Option<PathBuf> {
    std::fs::read_link("/proc/self/ns/net").ok()
}

/// Whether that is the user on the other side, or root; who it is.
fn peer_is(socket: BorrowedFd<'_>, user: u32) -> io::Result<Result<i32, u32>> {
    let peer = sockopt::socket_peercred(socket)?;
    let uid = peer.uid.as_raw();
    Ok(match uid == 0 || uid == user {
        true => Ok(peer.pid.as_raw_nonzero().get()),
        false => Err(uid),
    })
}

fn own_user() -> u32 {
    geteuid().as_raw()
}

fn be_patient(socket: BorrowedFd<'_>) -> io::Result<()> {
    for timeout in [Timeout::Recv, Timeout::Send] {
        sockopt::set_socket_timeout(socket, timeout, Some(PATIENCE))?;
    }
    Ok(())
}

/// Sends a packet with these descriptors, at most [`MAX_DESCRIPTORS`].
fn send(socket: BorrowedFd<'_>, message: &Message, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    if text.len() > MAX_MESSAGE_BYTES {
        let why = format!(
            "a message of {} bytes, of at most {MAX_MESSAGE_BYTES}",
            text.len()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "too many descriptors for a message",
        ));
    }
    // An end that is gone is an error, not a signal.
    let flags = SendFlags::NOSIGNAL;
    rustix::io::retry_on_intr(|| sendmsg(socket, &[IoSlice::new(&text)], &mut ancillary, flags))?;
    Ok(())
}

/// Receives a packet and its descriptors; `None` where the other side has closed.
fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<(Message, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; MAX_MESSAGE_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    let descriptors: Vec<OwnedFd> = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    let bad = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(bad(
            "some of the descriptors did not come: the limit of open files is reached".to_owned(),
        ));
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(bad(format!("a message of more than {MAX_MESSAGE_BYTES} bytes")));
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    let message = serde_json::from_slice(&bytes[..received.bytes])
        .map_err(|error| bad(format!("a message that is not understood: {error}")))?;
    Ok(Some((message, descriptors)))
}

fn borrowed<T: AsFd>(all: &[T]) -> Vec<BorrowedFd<'_>> {
    all.iter().map(AsFd::as_fd).collect()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
