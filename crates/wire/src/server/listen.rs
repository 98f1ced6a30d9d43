//! Opening the place where an agent listens.

use crate::Address;
use crate::tls::ServerTls;
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tokio::net::{TcpListener, UnixListener};

/// The mode of an agent's socket: the owner and the group may connect.
pub const SOCKET_MODE: u32 = 0o660;
/// Connections that wait to be accepted.
const BACKLOG: u32 = 64;

/// Where an agent listens, with what it needs there. Over TCP that is always mutual TLS.
#[derive(Clone, Debug)]
pub enum Listen {
    /// A Unix socket, mode 0660.
    Unix {
        /// Its path.
        path: PathBuf,
    },
    /// TCP with mutual TLS.
    Tcp {
        /// The address and port; port 0 lets the kernel choose.
        address: SocketAddr,
        /// The node's certificate, and the authority that a client's must be signed by.
        tls: ServerTls,
    },
}

/// A place that cannot be listened at.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Somebody listens there.
    #[error(
        "{address} is in use: another process listens there, perhaps an agent or a gateway; give another address, or stop that process \
         where it is not wanted"
    )]
    InUse {
        /// The address that was asked for.
        address: String,
    },
    /// Something else has that name.
    #[error("{path} exists and is no socket, so it is not removed: move it away, or give another path", path = path.display())]
    NoSocket {
        /// The path.
        path: PathBuf,
    },
    /// There is nowhere to put a socket.
    #[error("there is no folder {folder} for the socket {path}: make it first, or give another path", folder = folder.display(), path = path.display())]
    NoFolder {
        /// Where it would be.
        folder: PathBuf,
        /// The socket.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot {action} {address}: {cause}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        address: String,
        /// The answer.
        cause: io::Error,
    },
}

/// The folder that a socket is in.
fn folder_of(path: &Path) -> Result<&Path, ListenError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    match folder.exists() {
        true => Ok(folder),
        false => Err(ListenError::NoFolder {
            folder: folder.to_owned(),
            path: path.to_owned(),
        }),
    }
}

impl Listen {
    /// Tries whether it can be listened on, and leaves everything as it was.
    ///
    /// # Errors
    /// [`ListenError`], as [`Listener::open`].
    pub fn check(&self) -> Result<(), ListenError> {
        match self {
            Self::Tcp { address, .. } => bind_tcp(*address)
                .map(drop)
                .map_err(|cause| tcp_error(*address, cause)),
            Self::Unix { path } => {
                let name = format!("unix:{}", path.display());
                let folder = folder_of(path)?;
                fs::read_dir(folder).map_err(io("lock", &name))?;
                rustix::fs::access(folder, rustix::fs::Access::WRITE_OK)
                    .map_err(|errno| io("lock", &name)(errno.into()))?;
                is_stale(path, &name).map(drop)
            }
        }
    }
}

/// An open listener. A Unix socket is removed when it is dropped.
#[derive(Debug)]
pub struct Listener {
    pub(super) kind: Kind,
    address: Address,
}

pub(super) enum Kind {
    Unix { listener: UnixListener, _socket: Socket },
    Tcp { listener: TcpListener, tls: ServerTls },
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix { .. } => f.write_str("Unix"),
            Self::Tcp { .. } => f.write_str("Tcp"),
        }
    }
}

/// The file of a Unix socket.
pub(super) struct Socket {
    path: PathBuf,
    /// Device and inode: another process's socket of the same name is not ours to remove.
    id: (u64, u64),
    /// Held while we listen: of two that start at once, only one may take a stale socket for its own.
    _lock: File,
}

impl Drop for Socket {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|about| (about.dev(), about.ino()) == self.id) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Listener {
    /// Opens it. A socket file that nobody listens on is removed first; one that somebody does is left alone.
    ///
    /// # Errors
    /// [`ListenError`].
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O.
    pub async fn open(listen: Listen) -> Result<Self, ListenError> {
        match listen {
            Listen::Unix { path } => {
                let (listener, socket) = open_unix(&path)?;
                Ok(Self {
                    kind: Kind::Unix {
                        listener,
                        _socket: socket,
                    },
                    address: Address::Unix(path),
                })
            }
            Listen::Tcp { address, tls } => {
                let listener = open_tcp(address)?;
                let bound = listener
                    .local_addr()
                    .map_err(io("listen on", &address.to_string()))?;
                let address = Address::Tcp {
                    host: bound.ip().to_string(),
                    port: bound.port(),
                };
                Ok(Self {
                    kind: Kind::Tcp { listener, tls },
                    address,
                })
            }
        }
    }

    /// Where it listens; with the port that the kernel chose.
    pub fn address(&self) -> &Address {
        &self.address
    }
}

fn io(action: &'static str, address: &str) -> impl FnOnce(io::Error) -> ListenError {
    let address = address.to_string();
    move |cause| ListenError::Io {
        action,
        address,
        cause,
    }
}

fn bind_tcp(address: SocketAddr) -> io::Result<socket2::Socket> {
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, Some(socket2::Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn open_tcp(address: SocketAddr) -> Result<TcpListener, ListenError> {
    let open = || {
        let socket = bind_tcp(address)?;
        socket.listen(BACKLOG as i32)?;
        TcpListener::from_std(socket.into())
    };
    open().map_err(|cause| tcp_error(address, cause))
}

fn tcp_error(address: SocketAddr, cause: io::Error) -> ListenError {
    match cause.kind() {
        io::ErrorKind::AddrInUse => ListenError::InUse {
            address: address.to_string(),
        },
        _ => ListenError::Io {
            action: "listen on",
            address: address.to_string(),
            cause,
        },
    }
}

fn open_unix(path: &Path) -> Result<(UnixListener, Socket), ListenError> {
    let name = format!("unix:{}", path.display());
    folder_of(path)?;
    let mut lock_path = path.as_os_str().to_owned();
    lock_path.push(".lock");
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(&lock_path)
        .map_err(io("lock", &name))?;
    if let Err(errno) = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        return Err(match errno {
            rustix::io::Errno::WOULDBLOCK => ListenError::InUse { address: name },
            errno => ListenError::Io {
                action: "lock",
                address: name,
                cause: errno.into(),
            },
        });
    }
    if is_stale(path, &name)? {
        fs::remove_file(path).map_err(io("remove the stale socket", &name))?;
    }
    let open = || {
        let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
        // Linux makes the file with the mode of the descriptor less the umask: at no moment is it wider than wished.
        rustix::fs::fchmod(&socket, Mode::from_raw_mode(SOCKET_MODE))?;
        socket.set_nonblocking(true)?;
        socket.bind(&socket2::SockAddr::unix(path)?)?;
        fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE))?;
        let about = fs::symlink_metadata(path)?;
        socket.listen(BACKLOG as i32)?;
        Ok((UnixListener::from_std(socket.into())?, (about.dev(), about.ino())))
    };
    let (listener, id) = open().map_err(io("listen on", &name))?;
    Ok((
        listener,
        Socket {
            path: path.into(),
            id,
            _lock: lock,
        },
    ))
}

/// Whether the file is a socket that nobody listens at any more; false where there is none.
fn is_stale(path: &Path, name: &str) -> Result<bool, ListenError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(cause) => return Err(io("look at", name)(cause)),
        Ok(about) if !about.file_type().is_socket() => {
            return Err(ListenError::NoSocket { path: path.into() });
        }
        Ok(_) => {}
    }
    let connect = || {
        let probe = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
        // A listener with a full queue is one, and is not waited for.
        probe.set_nonblocking(true)?;
        probe.connect(&socket2::SockAddr::unix(path)?)
    };
    match connect().map_err(|cause| (cause.kind(), cause)) {
        Err((io::ErrorKind::ConnectionRefused, _)) => Ok(true),
        Ok(()) | Err((io::ErrorKind::WouldBlock, _)) => Err(ListenError::InUse {
            address: name.to_owned(),
        }),
        Err((_, cause)) => Err(io("try the socket", name)(cause)),
    }
}
