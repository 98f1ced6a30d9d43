//! A listener with an accept queue of any limit, for the tests of this crate and of those above it.

use rustix::net::sockopt::{set_socket_reuseaddr, set_socket_reuseport};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

/// A listener whose accept queue has this limit; port 0 takes a free one.
pub fn listener(port: u16, limit: i32) -> TcpListener {
    let address: SocketAddr = (Ipv4Addr::LOCALHOST, port).into();
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    set_socket_reuseaddr(&socket, true).unwrap();
    set_socket_reuseport(&socket, true).unwrap();
    // A process that another test starts has a copy of the listener that stood there before, until it executes its program.
    let until = Instant::now() + Duration::from_secs(5);
    while let Err(error) = bind(&socket, &address) {
        assert!(
            error == rustix::io::Errno::ADDRINUSE && Instant::now() < until,
            "port {port}: {error}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    listen(&socket, limit).unwrap();
    socket.into()
}
