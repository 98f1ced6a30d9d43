//! The listeners of a port, asked of the kernel (sock_diag(7)): each with its queue, its limit and its drops. No
//! privilege is needed.

mod message;

use super::{Listener, MAX_LISTENERS, QueueError};
pub(super) use message::Connection;
use message::{Message, Wanted};
use netlink_packet_sock_diag::{AF_INET, AF_INET6};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The kernel answers from memory; should it not, the caller is not held.
const PATIENCE: Duration = Duration::from_secs(1);
/// The kernel puts at most 32 KiB in one read.
const BUFFER_BYTES: usize = 64 << 10;
/// How often a dump is made again that sockets came or went in.
const TRIES: usize = 4;
/// How many ports a message names.
const MAX_PORTS_NAMED: usize = 12;

/// A socket to ask on.
#[derive(Debug)]
pub(super) struct Diag {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Diag {
    /// Opens it.
    pub(super) fn open() -> Result<Self, QueueError> {
        let remedy = "the kernel needs CONFIG_INET_DIAG, and a sandbox must allow netlink sockets";
        let fail = |errno: Errno| {
            QueueError::refused("open a socket to ask for listeners on (sock_diag)", errno, remedy)
        };
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            Some(SOCK_DIAG),
        )
        .map_err(fail)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).map_err(fail)?;
        Ok(Self {
            socket,
            sequence: 0,
            buffer: vec![0; BUFFER_BYTES],
        })
    }

    /// The listeners of a port, by cookie; at least one.
    pub(super) fn listeners(&mut self, port: u16) -> Result<Vec<Listener>, QueueError> {
        // Port 0 would ask for all; nobody listens on it.
        let mut found = match port {
            0 => Vec::new(),
            port => self
                .all(port)?
                .into_iter()
                .map(|(listener, _)| listener)
                .collect(),
        };
        if found.is_empty() {
            return Err(QueueError::NobodyListens {
                port,
                others: self.others(),
            });
        }
        if found.len() > MAX_LISTENERS {
            return Err(QueueError::TooManyListeners { port });
        }
        found.sort_by_key(|listener| listener.cookie);
        Ok(found)
    }

    /// The numbers of the files of a port's listening sockets, by which those who hold them are found.
    pub(super) fn listening_inodes(&mut self, port: u16) -> Result<BTreeSet<u64>, QueueError> {
        Ok(self.all(port)?.into_iter().map(|(_, inode)| inode).collect())
    }

    /// The ports but this one that somebody listens on, by the number of the listening socket's file.
    pub(super) fn inodes_of_others(&mut self, port: u16) -> Result<BTreeMap<u64, u16>, QueueError> {
        let all = self.all(0)?.into_iter();
        let by_inode = all.map(|(listener, inode)| (inode, listener.address.port()));
        Ok(by_inode.filter(|(_, other)| *other != port).collect())
    }

    /// All ports that somebody listens on.
    pub(super) fn ports(&mut self) -> Result<BTreeSet<u16>, QueueError> {
        Ok(self
            .all(0)?
            .iter()
            .map(|(listener, _)| listener.address.port())
            .collect())
    }

    /// The connections that came to a port's listeners, or to one at the same port of another address, whether they wait or were
    /// accepted.
    pub(super) fn connections(&mut self, port: u16) -> Result<Vec<Connection>, QueueError> {
        let mut found = Vec::new();
        for family in [AF_INET, AF_INET6] {
            let asked = self.ask(Wanted::Connections, family, port, |message| {
                if let Message::Connection(connection) = message {
                    found.push(connection);
                }
            });
            match asked {
                // One that came or went meanwhile is one of many.
                Ok(_) => {}
                Err(Errno::NOENT | Errno::AFNOSUPPORT) if family == AF_INET6 => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(found)
    }

    /// Which ports somebody listens on, in words.
    fn others(&mut self) -> String {
        let Ok(ports) = self.ports() else {
            return "the others could not be read".into();
        };
        let named: Vec<String> = ports.iter().take(MAX_PORTS_NAMED).map(u16::to_string).collect();
        match (named.is_empty(), ports.len() > named.len()) {
            (true, _) => "there is no listener at all".into(),
            (_, false) => format!("somebody does on {}", named.join(", ")),
            (_, true) => format!("somebody does on {} and others", named.join(", ")),
        }
    }

    fn all(&mut self, port: u16) -> Result<Vec<(Listener, u64)>, QueueError> {
        let mut found = self.dump(AF_INET, port)?;
        match self.dump(AF_INET6, port) {
            Ok(more) => found.extend(more),
            // A kernel without IPv6 has no listeners on it.
            Err(Errno::NOENT | Errno::AFNOSUPPORT) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(found)
    }

    fn dump(&mut self, family: u8, port: u16) -> Result<Vec<(Listener, u64)>, Errno> {
        for _ in 1..TRIES {
            if let Some(found) = self.dump_once(family, port)? {
                return Ok(found);
            }
        }
        self.dump_once(family, port)?.ok_or(Errno::AGAIN)
    }

    /// Nothing where sockets came or went meanwhile.
    fn dump_once(&mut self, family: u8, port: u16) -> Result<Option<Vec<(Listener, u64)>>, Errno> {
        let mut found = Vec::new();
        let whole = self.ask(Wanted::Listeners, family, port, |message| match message {
            // One more than the most shows that there are too many.
            Message::Listener(listener, inode) if found.len() <= MAX_LISTENERS => {
                found.push((listener, inode))
            }
            _ => {}
        })?;
        Ok(whole.then_some(found))
    }

    /// Asks for sockets and hands over each that comes; whether none came or went meanwhile.
    fn ask(
        &mut self,
        wanted: Wanted,
        family: u8,
        port: u16,
        mut take: impl FnMut(Message),
    ) -> Result<bool, Errno> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = message::request(wanted, family, port, self.sequence);
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&self.socket, &request, SendFlags::empty(), &kernel)?;
        let mut whole = true;
        loop {
            let length = match recv(&self.socket, &mut self.buffer[..], RecvFlags::empty()) {
                Ok((_, length)) => length.min(self.buffer.len()),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno),
            };
            for message in message::messages(&self.buffer[..length], self.sequence) {
                match message {
                    Message::Listener(..) | Message::Connection(_) => take(message),
                    Message::Other => {}
                    Message::Interrupted => whole = false,
                    Message::Error(errno) => return Err(Errno::from_raw_os_error(errno)),
                    Message::Done => return Ok(whole),
                }
            }
        }
    }
}

impl From<Errno> for QueueError {
    fn from(errno: Errno) -> Self {
        let remedy = "the kernel needs CONFIG_INET_TCP_DIAG (modprobe tcp_diag)";
        Self::refused(
            "ask the kernel for the port's listeners (sock_diag)",
            errno,
            remedy,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::says;
    use std::net::TcpListener;

    #[test]
    fn listeners_of_both_families_are_found_and_those_of_other_ports_are_not() {
        let mut diag = Diag::open().unwrap();
        let four = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = four.local_addr().unwrap().port();
        let found = diag.listeners(port).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].address, four.local_addr().unwrap());
        assert!(found[0].cookie != 0 && found[0].drops == Some(0));
        match TcpListener::bind(("::1", port)) {
            Ok(six) => {
                let found = diag.listeners(port).unwrap();
                assert_eq!(found.len(), 2);
                assert!(
                    found
                        .iter()
                        .any(|listener| listener.address == six.local_addr().unwrap())
                );
            }
            Err(error) => println!("skipped: a listener on IPv6's loopback: {error}"),
        }
    }

    #[test]
    fn a_port_that_nobody_listens_on_is_named_with_those_that_somebody_does() {
        let mut diag = Diag::open().unwrap();
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let closed = {
            let short = TcpListener::bind("127.0.0.1:0").unwrap();
            short.local_addr().unwrap().port()
        };
        for port in [closed, 0] {
            says(
                diag.listeners(port).unwrap_err(),
                &[&format!("port {port} "), "somebody does on"],
            );
        }
        drop(other);
    }
}
