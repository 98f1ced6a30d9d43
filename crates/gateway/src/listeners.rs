//! Listening sockets: opened or inherited from another process, shared out over the cores, given to a successor.
//!
//! A connection that the kernel has taken for a listening socket and that nobody has accepted is reset when the last
//! descriptor of that socket is closed, and one whose handshake is under way is too. So a successor is given the sockets
//! themselves, as descriptors: it accepts what is in their queues, and its predecessor may close its own descriptors.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::entry::Entry;
use crate::error::GatewayError;

/// A listening socket of one core and how to speak on it.
pub(crate) struct Listener {
    pub socket: TcpListener,
    pub entry: Entry,
    origin: Origin,
    /// A successor accepts on this very socket.
    pub handed_over: Arc<AtomicBool>,
}

/// How a core came to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// It listens: opened here, or inherited.
    Listening,
    /// It is bound beside inherited ones, and listens from the start of the threads on.
    Bound,
    /// Another descriptor of one that another core serves too.
    Duplicate,
}

#[cfg(test)]
impl Listener {
    /// One that listens, without TLS.
    pub(crate) fn cleartext(socket: TcpListener) -> Self {
        Self {
            socket,
            entry: Entry::default(),
            origin: Origin::Listening,
            handed_over: Arc::default(),
        }
    }
}

/// The sockets of one address, one or more for each core.
struct Opened {
    sockets: Vec<(TcpListener, Origin)>,
    address: SocketAddr,
}

/// The listening sockets of a gateway, as descriptors of their own, for a successor.
///
/// While this is held the kernel goes on taking connections, also when the gateway accepts no more: drop it before the gateway is
/// shut down, unless a successor accepts them.
#[derive(Debug)]
pub struct SharedListeners(Vec<SharedAddress>);

#[derive(Debug)]
struct SharedAddress {
    address: SocketAddr,
    sockets: Vec<TcpListener>,
    handed_over: Arc<AtomicBool>,
}

impl SharedListeners {
    /// The sockets that listen on an address; none where it is none of the gateway's.
    pub fn of(&self, address: SocketAddr) -> &[TcpListener] {
        let shared = self.0.iter().find(|shared| shared.address == address);
        shared.map_or(&[], |shared| &shared.sockets)
    }

    /// A successor accepts on these addresses, on the sockets that it was given: shutting the gateway down leaves it what waits in their
    /// queues. What waits at other addresses is still accepted then.
    pub fn handed_over(&self, addresses: &[SocketAddr]) {
        for shared in self.0.iter().filter(|shared| addresses.contains(&shared.address)) {
            shared.handed_over.store(true, Ordering::Release);
        }
    }
}

/// Every address with what is said of it, its sockets shared out over so many cores: the sockets of each core, and the
/// addresses that they are bound to.
pub(crate) fn open_all(
    listens: Vec<(SocketAddr, Entry)>,
    inherited: Vec<TcpListener>,
    (cores, backlog): (usize, u32),
    takeover: bool,
) -> Result<(Vec<Vec<Listener>>, Vec<SocketAddr>), GatewayError> {
    let mut inherited = by_address(inherited);
    let mut of_cores = (0..cores).map(|_| Vec::new()).collect::<Vec<Vec<Listener>>>();
    let mut addresses = Vec::new();
    for (wanted, entry) in listens {
        let place = inherited.iter().position(|(address, _)| *address == wanted);
        let opened = match place.map(|place| inherited.swap_remove(place).1) {
            Some(sockets) => adopt(wanted, sockets, cores, backlog),
            None => open_for(wanted, cores, backlog, takeover),
        };
        let opened = opened.map_err(|source| GatewayError::Bind {
            address: wanted,
            source,
        })?;
        let handed_over = Arc::new(AtomicBool::new(false));
        for (index, (socket, origin)) in opened.sockets.into_iter().enumerate() {
            of_cores[index % cores].push(Listener {
                socket,
                entry: entry.clone(),
                origin,
                handed_over: Arc::clone(&handed_over),
            });
        }
        addresses.push(opened.address);
    }
    for (address, sockets) in inherited {
        let sockets = sockets.len();
        tracing::warn!(%address, sockets, "inherited sockets of an address that is not listened on are closed");
    }
    Ok((of_cores, addresses))
}

fn by_address(sockets: Vec<TcpListener>) -> Vec<(SocketAddr, Vec<TcpListener>)> {
    let mut all: Vec<(SocketAddr, Vec<TcpListener>)> = Vec::new();
    for socket in sockets {
        let Ok(address) = socket.local_addr() else {
            continue;
        };
        match all.iter_mut().find(|(known, _)| *known == address) {
            Some((_, sockets)) => sockets.push(socket),
            None => all.push((address, vec![socket])),
        }
    }
    all
}

/// Sockets of an address that nobody gave us, one for each core.
fn open_for(wanted: SocketAddr, cores: usize, backlog: u32, takeover: bool) -> io::Result<Opened> {
    if !takeover {
        check_free(wanted)?;
    }
    let mut address = wanted;
    let mut sockets = Vec::with_capacity(cores);
    for _ in 0..cores {
        let socket = TcpListener::from(open(address, true)?);
        listen(&socket, backlog)?;
        // Port 0 is chosen by the kernel once; the other cores share it.
        address = socket.local_addr()?;
        sockets.push((socket, Origin::Listening));
    }
    Ok(Opened { sockets, address })
}

/// Those that were inherited, each of them served by somebody, and more for the cores that have none then.
fn adopt(address: SocketAddr, inherited: Vec<TcpListener>, cores: usize, backlog: u32) -> io::Result<Opened> {
    let mut sockets = Vec::with_capacity(inherited.len().max(cores));
    for socket in inherited {
        socket.set_nonblocking(true)?;
        // Its queue is as long as the configuration says now.
        listen(&socket, backlog)?;
        sockets.push((socket, Origin::Listening));
    }
    let given = sockets.len();
    for core in given..cores {
        let more = match open(address, true) {
            Ok(socket) => (TcpListener::from(socket), Origin::Bound),
            // One that was not opened to be shared (a service manager's), or a port that only whoever opened it may have.
            Err(error) => {
                tracing::info!(%address, %error, "a core shares a socket with another");
                (sockets[core % given].0.try_clone()?, Origin::Duplicate)
            }
        };
        sockets.push(more);
    }
    Ok(Opened { sockets, address })
}

/// Has those listen that wait for the threads to start, and says how many descriptors accept.
pub(crate) fn listen_late(sockets: &[Vec<Listener>], backlog: u32) -> Result<(), GatewayError> {
    let late = |listener: &&Listener| listener.origin == Origin::Bound;
    for listener in sockets.iter().flatten().filter(late) {
        listen(&listener.socket, backlog).map_err(|source| GatewayError::Bind {
            address: listener
                .socket
                .local_addr()
                .unwrap_or_else(|_| ([0; 4], 0).into()),
            source,
        })?;
    }
    Ok(())
}

/// Descriptors of their own of every socket, for a successor.
pub(crate) fn share(sockets: &[Vec<Listener>], addresses: &[SocketAddr]) -> io::Result<SharedListeners> {
    let mut all = Vec::with_capacity(addresses.len());
    for address in addresses {
        let mut shared = SharedAddress {
            address: *address,
            sockets: Vec::new(),
            handed_over: Arc::default(),
        };
        for listener in sockets.iter().flatten() {
            if listener.origin != Origin::Duplicate && listener.socket.local_addr()? == *address {
                shared.handed_over = Arc::clone(&listener.handed_over);
                shared.sockets.push(listener.socket.try_clone()?);
            }
        }
        all.push(shared);
    }
    Ok(SharedListeners(all))
}

/// Whether nobody listens on an address yet. The sockets of [`open_for`] would share it with another gateway of this
/// user and say nothing; one that does not share is refused.
pub(crate) fn check_free(address: SocketAddr) -> io::Result<()> {
    open(address, false).map(drop)
}

/// A bound socket; one that shares its port does so with the other cores, and with a successor process.
pub(crate) fn open(address: SocketAddr, shares_port: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shares_port)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn listen(socket: &TcpListener, backlog: u32) -> io::Result<()> {
    SockRef::from(socket).listen(i32::try_from(backlog).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    const LOCAL: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

    fn opened(
        address: SocketAddr,
        inherited: Vec<TcpListener>,
        cores: usize,
    ) -> (Vec<Vec<Listener>>, SocketAddr) {
        let (sockets, addresses) =
            open_all(vec![(address, Entry::default())], inherited, (cores, 64), false).unwrap();
        listen_late(&sockets, 64).unwrap();
        (sockets, addresses[0])
    }

    fn counts(sockets: &[Vec<Listener>]) -> Vec<usize> {
        sockets.iter().map(Vec::len).collect()
    }

    fn cloned(shared: &SharedListeners, address: SocketAddr) -> Vec<TcpListener> {
        let sockets = shared.of(address).iter();
        sockets.map(|socket| socket.try_clone().unwrap()).collect()
    }

    /// Accepts all that waits, at any of them.
    fn accepted(sockets: &[Vec<Listener>]) -> usize {
        let all = sockets.iter().flatten();
        all.map(|listener| std::iter::from_fn(|| listener.socket.accept().ok()).count())
            .sum()
    }

    #[test]
    fn every_inherited_socket_is_served_by_more_and_by_fewer_cores() {
        let (first, address) = opened(LOCAL.into(), Vec::new(), 3);
        assert_eq!(counts(&first), [1, 1, 1]);
        let shared = share(&first, &[address]).unwrap();
        assert_eq!(shared.of(address).len(), 3);
        assert!(shared.of(LOCAL.into()).is_empty());
        let clients: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
        let (fewer, _) = opened(address, cloned(&shared, address), 2);
        assert_eq!(counts(&fewer), [2, 1]);
        let (more, _) = opened(address, cloned(&shared, address), 5);
        assert_eq!(counts(&more), [1; 5]);
        drop((first, shared));
        assert_eq!(
            accepted(&fewer),
            clients.len(),
            "what waited is taken by the successor"
        );
        // The further ones take part too.
        let more_clients: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert!(
            more[3..]
                .iter()
                .flatten()
                .any(|listener| listener.socket.accept().is_ok())
        );
        drop((more_clients, clients));
    }

    #[test]
    fn a_socket_that_shares_its_port_with_no_other_is_shared_by_the_cores_and_given_on_once() {
        let alone = TcpListener::bind(SocketAddr::from(LOCAL)).unwrap();
        let address = alone.local_addr().unwrap();
        let (sockets, _) = opened(address, vec![alone], 3);
        assert_eq!(counts(&sockets), [1, 1, 1]);
        let shared = share(&sockets, &[address]).unwrap();
        assert_eq!(shared.of(address).len(), 1);
        let client = TcpStream::connect(address).unwrap();
        assert!(sockets[2][0].socket.accept().is_ok());
        drop(client);
    }

    #[test]
    fn only_the_addresses_that_were_handed_over_are_marked() {
        let listens = vec![(LOCAL.into(), Entry::default()), (LOCAL.into(), Entry::default())];
        let (sockets, addresses) = open_all(listens, Vec::new(), (2, 64), false).unwrap();
        let shared = share(&sockets, &addresses).unwrap();
        shared.handed_over(&addresses[1..]);
        let marked = |index: usize| {
            sockets[index]
                .iter()
                .map(|one| one.handed_over.load(Ordering::Acquire))
        };
        assert_eq!(marked(0).collect::<Vec<_>>(), [false, true]);
        assert_eq!(marked(1).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn sockets_of_other_addresses_are_closed() {
        let other = TcpListener::bind(SocketAddr::from(LOCAL)).unwrap();
        let address = other.local_addr().unwrap();
        let (_sockets, _) = opened(LOCAL.into(), vec![other], 1);
        assert!(TcpStream::connect(address).is_err());
    }
}
