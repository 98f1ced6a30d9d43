//! Syslog messages as datagrams, over UDP or a Unix socket.

use super::super::line::LINE_MAX;
use super::super::tally::Intake;
use super::{Control, LOOK_EVERY, SourceError, State, now_utc_ms};
use rustix::fs::{Mode, fstat};
use rustix::net::sockopt;
use std::fs;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// How much the kernel is asked to keep for the reader while it is not running: several thousand lines.
const RECEIVE_BUFFER: usize = 4 << 20;

/// After so many read errors in a row the reader gives up.
const ERRORS_MAX: u32 = 100;

pub(super) fn udp(address: SocketAddr) -> Result<UdpSocket, SourceError> {
    let error = |error| SourceError::Udp { address, error };
    let socket = UdpSocket::bind(address).map_err(error)?;
    socket.set_read_timeout(Some(LOOK_EVERY)).map_err(error)?;
    widen(&socket);
    Ok(socket)
}

/// Makes the Unix socket, in place of a stale one.
pub(super) fn unix(path: &Path, mode: u32) -> Result<(UnixDatagram, SocketFile), SourceError> {
    let error = |error| SourceError::Unix {
        path: path.to_owned(),
        error,
    };
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(SourceError::NoSocket(path.to_owned())),
        Ok(_) => {
            let probe = UnixDatagram::unbound().map_err(error)?;
            match probe.connect(path) {
                Err(refused) if refused.kind() == io::ErrorKind::ConnectionRefused => {
                    fs::remove_file(path).map_err(error)?;
                }
                // A socket of another type answers EPROTOTYPE: somebody listens there too.
                Ok(()) => return Err(SourceError::InUse(path.to_owned())),
                Err(other) if other.raw_os_error() == Some(rustix::io::Errno::PROTOTYPE.raw_os_error()) => {
                    return Err(SourceError::InUse(path.to_owned()));
                }
                Err(other) => return Err(error(other)),
            }
        }
        Err(absent) if absent.kind() == io::ErrorKind::NotFound => {}
        Err(other) => return Err(error(other)),
    }
    let socket = UnixDatagram::bind(path).map_err(error)?;
    let made = fs::symlink_metadata(path).map_err(error)?;
    let file = SocketFile {
        path: path.to_owned(),
        identity: (made.dev(), made.ino()),
    };
    rustix::fs::chmod(path, Mode::from_raw_mode(mode)).map_err(|errno| error(errno.into()))?;
    socket.set_read_timeout(Some(LOOK_EVERY)).map_err(error)?;
    widen(&socket);
    Ok((socket, file))
}

/// Asks for a large buffer: beyond the system's limit where that is allowed, else up to it.
fn widen(socket: impl AsFd) {
    if sockopt::set_socket_recv_buffer_size_force(socket.as_fd(), RECEIVE_BUFFER).is_err() {
        // The kernel cuts it to net.core.rmem_max and never refuses; what it became can be asked.
        let _ = sockopt::set_socket_recv_buffer_size(socket.as_fd(), RECEIVE_BUFFER);
    }
}

/// How much the kernel keeps for the socket, bytes.
pub(super) fn receive_buffer(socket: impl AsFd) -> Option<usize> {
    sockopt::socket_recv_buffer_size(socket).ok()
}

/// The socket's file, removed when dropped unless another has taken its place.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours =
            fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.identity);
        if ours {
            // A socket left behind is stale and is replaced by the next start.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Reads datagrams until it is stopped.
pub(super) fn read(
    control: &Control,
    intake: &mut Intake,
    receive: impl Fn(&mut [u8]) -> io::Result<usize>,
) -> io::Result<()> {
    // One byte more than the longest line, so that a longer one is seen to be longer.
    let mut buffer = vec![0; LINE_MAX + 1];
    let mut errors = 0;
    while !control.stopped() {
        match receive(&mut buffer) {
            Ok(length) => {
                if errors > 0 {
                    errors = 0;
                    control.set(State::Reading);
                }
                let now = now_utc_ms();
                for line in buffer[..length].split(|&b| b == b'\n') {
                    intake.line(line, now);
                }
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
                ) => {}
            Err(error) => {
                errors += 1;
                if errors >= ERRORS_MAX {
                    return Err(error);
                }
                control.set(State::Waiting(error.to_string()));
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }
    Ok(())
}

/// The kernel's count of datagrams that found a UDP socket's buffer full, from `/proc/net/udp` and `udp6`
/// (column `drops`), where a socket is known by its inode. A Unix socket drops nothing: HAProxy's send fails and
/// HAProxy counts it.
#[derive(Debug)]
pub(super) struct Drops {
    inode: u64,
    table: &'static str,
}

impl Drops {
    pub fn of(socket: &UdpSocket) -> Option<Self> {
        let table = match socket.local_addr().ok()? {
            SocketAddr::V4(_) => "/proc/self/net/udp",
            SocketAddr::V6(_) => "/proc/self/net/udp6",
        };
        let inode = fstat(socket).ok()?.st_ino;
        Some(Self { inode, table })
    }

    pub fn read(&self) -> Option<u64> {
        let table = fs::read_to_string(self.table).ok()?;
        drops_of(&table, self.inode)
    }
}

fn drops_of(table: &str, inode: u64) -> Option<u64> {
    table.lines().skip(1).find_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        // sl local remote st tx:rx tr:when retrnsmt uid timeout inode ref pointer drops
        (columns.get(9)?.parse() == Ok(inode)).then(|| columns.get(12)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drops_of_a_socket_are_found_by_its_inode() {
        let table = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
                      12: 0100007F:0202 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 777 2 0000000000000000 3\n\
                      13: 0100007F:0203 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 778 2 0000000000000000 41\n";
        assert_eq!(drops_of(table, 778), Some(41));
        assert_eq!(drops_of(table, 779), None);
        let socket = udp("127.0.0.1:0".parse().unwrap()).unwrap();
        assert_eq!(Drops::of(&socket).unwrap().read(), Some(0));
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_living_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.sock");
        let (first, file) = unix(&path, 0o600).unwrap();
        assert!(matches!(unix(&path, 0o600), Err(SourceError::InUse(_))));
        // Closed without removing the file, as after kill -9.
        drop(first);
        std::mem::forget(file);
        let (_second, file) = unix(&path, 0o620).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o620);
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_is_no_socket_is_never_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.sock");
        fs::write(&path, "precious").unwrap();
        assert!(matches!(unix(&path, 0o600), Err(SourceError::NoSocket(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }
}
