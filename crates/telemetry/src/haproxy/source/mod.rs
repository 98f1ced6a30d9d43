//! Where the log comes from, and the thread that reads it.

mod datagram;
mod follow;

use super::tally::Intake;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a reader waits for something new before it looks whether it is to stop.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Where HAProxy's log comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogSource {
    /// Syslog messages over UDP, to this address. Whoever can send to it can write the log: bind loopback, or an
    /// address that only the proxies reach.
    Udp(SocketAddr),
    /// Syslog messages to a Unix datagram socket that is made here. A stale socket of the same name is replaced;
    /// one that somebody listens on, or a file of another kind, is refused.
    Unix {
        /// The socket. HAProxy opens it after its `chroot`, so it must lie inside.
        path: PathBuf,
        /// Its permissions, such as 0o660.
        mode: u32,
    },
    /// A file that a syslog daemon writes, followed across rotation. It is read from its end if it is there at
    /// the start, otherwise from its beginning once it appears.
    File(PathBuf),
}

impl fmt::Display for LogSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(address) => write!(f, "UDP {address}"),
            Self::Unix { path, .. } => write!(f, "Unix datagram socket {}", path.display()),
            Self::File(path) => write!(f, "file {}", path.display()),
        }
    }
}

/// A log source that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The UDP address cannot be bound.
    #[error("the log cannot be received on UDP {address}: {error}; is another syslog receiver there?")]
    Udp {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// The Unix socket cannot be made.
    #[error("the log socket {} cannot be made: {error}", path.display())]
    Unix {
        /// The path.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Somebody receives on the Unix socket already.
    #[error("the log socket {} is in use by another receiver: stop it, or choose another path", .0.display())]
    InUse(PathBuf),
    /// What stands at the socket's path is no socket.
    #[error("{} is there and is no socket: it is not replaced; remove it or choose another path", .0.display())]
    NoSocket(PathBuf),
    /// The path of the file is a directory.
    #[error("{} is a directory, not a log file", .0.display())]
    Directory(PathBuf),
    /// The file is there but cannot be opened.
    #[error("the log file {} cannot be read: {error}", path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The reader's thread cannot be started.
    #[error("the log's reader cannot be started: {0}")]
    Thread(io::Error),
}

/// What the reader says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// It reads.
    #[default]
    Reading,
    /// There is nothing to read from at present.
    Waiting(String),
    /// It has ended.
    Ended(String),
}

#[derive(Debug, Default)]
pub(super) struct Control {
    stop: AtomicBool,
    state: Mutex<State>,
}

impl Control {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn set(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

/// A running reader. Dropping it ends the thread and removes the Unix socket.
#[derive(Debug)]
pub(super) struct Reader {
    control: Arc<Control>,
    thread: Option<JoinHandle<()>>,
    drops: Option<datagram::Drops>,
    local: Option<SocketAddr>,
    receive_buffer: Option<usize>,
    socket_path: Option<datagram::SocketFile>,
}

impl Reader {
    pub fn start(source: &LogSource, intake: Intake) -> Result<Self, SourceError> {
        let control = Arc::new(Control::default());
        let mut reader = Self {
            control: Arc::clone(&control),
            thread: None,
            drops: None,
            local: None,
            receive_buffer: None,
            socket_path: None,
        };
        match source {
            LogSource::Udp(address) => {
                let socket = datagram::udp(*address)?;
                reader.local = socket.local_addr().ok();
                reader.drops = datagram::Drops::of(&socket);
                reader.receive_buffer = datagram::receive_buffer(&socket);
                reader.thread = Some(spawn(&control, intake, move |control, intake| {
                    datagram::read(control, intake, |buffer| socket.recv(buffer))
                })?);
            }
            LogSource::Unix { path, mode } => {
                let (socket, file) = datagram::unix(path, *mode)?;
                reader.socket_path = Some(file);
                reader.receive_buffer = datagram::receive_buffer(&socket);
                reader.thread = Some(spawn(&control, intake, move |control, intake| {
                    datagram::read(control, intake, |buffer| socket.recv(buffer))
                })?);
            }
            LogSource::File(path) => {
                let follower = follow::Follower::new(path.clone())?;
                reader.thread = Some(spawn(&control, intake, move |control, intake| {
                    follow::read(control, intake, follower)
                })?);
            }
        }
        Ok(reader)
    }

    /// What the reader does at present.
    pub fn state(&self) -> State {
        let state = self
            .control
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        match &self.thread {
            Some(thread) if thread.is_finished() && !matches!(state, State::Ended(_)) => {
                State::Ended("its thread has panicked".into())
            }
            _ => state,
        }
    }

    /// The UDP address that is bound.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.local
    }

    /// How much the kernel keeps for the reader, bytes.
    pub fn receive_buffer(&self) -> Option<usize> {
        self.receive_buffer
    }

    /// Datagrams that the kernel has thrown away since the start because the reader was too slow; `None` where it
    /// does not tell.
    pub fn dropped(&self) -> Option<u64> {
        self.drops.as_ref().and_then(datagram::Drops::read)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.control.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been shown by the panic hook; there is nothing left to do for it.
            let _ = thread.join();
        }
    }
}

fn spawn<F>(control: &Arc<Control>, mut intake: Intake, body: F) -> Result<JoinHandle<()>, SourceError>
where
    F: FnOnce(&Control, &mut Intake) -> io::Result<()> + Send + 'static,
{
    let control = Arc::clone(control);
    std::thread::Builder::new()
        .name("headroom-log".into())
        .spawn(move || {
            let ended = body(&control, &mut intake);
            control.set(State::Ended(match ended {
                Ok(()) => "it was stopped".into(),
                Err(error) => error.to_string(),
            }));
        })
        .map_err(SourceError::Thread)
}

/// Milliseconds since 1970.
fn now_utc_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
