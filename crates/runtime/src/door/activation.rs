//! Listening sockets that a service manager opened and passes on (sd_listen_fds(3)): they stay open while the service is started
//! again, and connections wait in them.

use anyhow::{Context, ensure};
use rustix::net::sockopt;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use std::net::{SocketAddr, TcpListener};

/// The sockets that were passed to this process; none where none were. Each must be one of these addresses. To be asked once, before
/// anything else is opened.
///
/// # Errors
/// Something else was passed, a socket of another address, or a kernel before 5.6.
pub fn passed(listen: &[SocketAddr]) -> anyhow::Result<Vec<TcpListener>> {
    let numbers = sd_notify::listen_fds().context("LISTEN_PID and LISTEN_FDS of the environment")?;
    if numbers.len() == 0 {
        return Ok(Vec::new());
    }
    let this =
        pidfd_open(getpid(), PidfdFlags::empty()).context("the sockets of LISTEN_FDS cannot be taken")?;
    let mut sockets = Vec::new();
    for number in numbers {
        // A descriptor of our own in place of a bare number, which may be nobody's.
        let socket = pidfd_getfd(&this, number, PidfdGetfdFlags::empty())
            .with_context(|| format!("descriptor {number} of LISTEN_FDS cannot be taken"))?;
        let _ = nix::unistd::close(number);
        let is_listener = sockopt::socket_acceptconn(&socket).unwrap_or(false);
        let socket = TcpListener::from(socket);
        let address = socket.local_addr().ok().filter(|_| is_listener);
        let address = address.with_context(|| {
            format!("descriptor {number} of LISTEN_FDS is no TCP socket that listens (ListenStream= with an address and a port)")
        })?;
        ensure!(
            listen.contains(&address),
            "LISTEN_FDS has a socket of {address}, and neither --listen nor --tls-listen is that address: give it"
        );
        sockets.push(socket);
    }
    Ok(sockets)
}
