//! HAProxy's statistics socket: what it counts, and the commands that change a server.
//!
//! Each call opens a connection, sends one line, and reads until HAProxy closes: at most [`REPLY_MAX`] bytes, within
//! the time given. `level user` is enough to read; changing a server needs `level admin`.

mod reply;

pub use reply::ServerRow;

use super::csv;
use headroom_units::Seconds;
use reply::{dropped_logs, oldest, pid, server_rows};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The longest reply that is read, bytes: some 30 000 servers.
const REPLY_MAX: usize = 16 << 20;

/// How long to wait before another try where HAProxy does not listen, as in the moment of a reload.
const RETRY_AFTER: Duration = Duration::from_millis(10);

/// Where the statistics socket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatisticsAddress {
    /// `stats socket /path/to/it`.
    Unix(PathBuf),
    /// `stats socket 127.0.0.1:9999`. It has no password: keep it on loopback.
    Tcp(SocketAddr),
}

impl fmt::Display for StatisticsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Tcp(address) => write!(f, "{address}"),
        }
    }
}

/// The statistics socket did not answer, or not usefully.
#[derive(Debug, thiserror::Error)]
pub enum StatisticsError {
    /// No connection.
    #[error(
        "HAProxy's statistics socket {address} cannot be reached: {error}; is `stats socket {address}` in its \
         `global` section, and may this user open it?"
    )]
    Connect {
        /// The socket.
        address: StatisticsAddress,
        /// What the system says.
        error: io::Error,
    },
    /// The reply did not come, or broke off.
    #[error("HAProxy's statistics socket {address} did not answer {command:?}: {error}")]
    Reply {
        /// The socket.
        address: StatisticsAddress,
        /// What was asked.
        command: String,
        /// What the system says.
        error: io::Error,
    },
    /// The reply is longer than 16 MiB.
    #[error("HAProxy's statistics socket {address} answered {command:?} with more than 16 MiB")]
    TooLong {
        /// The socket.
        address: StatisticsAddress,
        /// What was asked.
        command: String,
    },
    /// The reply is not what the command answers.
    #[error("HAProxy's statistics socket {address} answered {command:?} with {reply:?}: {what}")]
    Unexpected {
        /// The socket.
        address: StatisticsAddress,
        /// What was asked.
        command: String,
        /// What it said, shortened.
        reply: String,
        /// What is wrong, and the remedy.
        what: String,
    },
    /// A name that cannot be one, since it would end the command.
    #[error("{0:?} is no name of a backend or server: letters, digits and `-_.:` only")]
    Name(String),
    /// A weight that HAProxy does not take.
    #[error("a weight of {0} is out of range: 0 to 256")]
    Weight(u32),
}

/// What a row of the statistics is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// A frontend.
    Frontend,
    /// A backend.
    Backend,
    /// A server of a backend.
    Server,
    /// A listener of a frontend.
    Listener,
}

/// Responses by class of status, cumulative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Responses {
    /// 1xx to 5xx.
    pub by_class: [u64; 5],
    /// None of these: most often the client went away before there was one.
    pub other: u64,
}

impl Responses {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.by_class.iter().sum::<u64>() + self.other
    }
}

/// One row of `show stat`. Counters count from the start of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The proxy (`pxname`).
    pub proxy: String,
    /// The server (`svname`); `FRONTEND` and `BACKEND` for the proxy's own rows.
    pub name: String,
    /// What it is about.
    pub kind: RowKind,
    /// Its state as HAProxy writes it, such as `UP`, `DOWN 1/2`, `MAINT`, `no check`.
    pub status: String,
    /// Effective weight.
    pub weight: Option<u64>,
    /// Sessions now (`scur`): of a backend, requests in it, queued ones included; of a server, those it serves; of a
    /// frontend, client connections.
    pub sessions: u64,
    /// Sessions so far (`stot`): of a backend, requests given to it.
    pub sessions_total: u64,
    /// Requests so far (`req_tot`): of a frontend, counted as they arrive; of a backend, as they end.
    pub requests_total: Option<u64>,
    /// Responses so far; `None` for a proxy that is not in `mode http`.
    pub responses: Option<Responses>,
}

impl Row {
    /// Whether a server is sent requests: up or unchecked, not drained, not in maintenance.
    pub fn healthy(&self) -> bool {
        self.status.starts_with("UP")
            || self.status.starts_with("no check")
            || self.status.starts_with("OPEN")
    }
}

/// One look at HAProxy's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// The process id; another one after a reload.
    pub pid: u64,
    /// Log lines that it could not send since its start (`DroppedLogs`); `None` where it does not say.
    pub dropped_logs: Option<u64>,
    /// The rows, in HAProxy's order.
    pub rows: Vec<Row>,
}

/// What a server is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// It gets requests.
    Ready,
    /// It finishes what it has and gets no new requests, save those that persistence binds to it.
    Drain,
    /// It gets nothing and is not checked.
    Maintenance,
}

/// HAProxy's statistics socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatisticsSocket {
    address: StatisticsAddress,
}

impl StatisticsSocket {
    /// The socket at an address; nothing is opened yet.
    pub const fn new(address: StatisticsAddress) -> Self {
        Self { address }
    }

    /// Where it is.
    pub const fn address(&self) -> &StatisticsAddress {
        &self.address
    }

    /// Reads the counters (`show info` and `show stat`).
    ///
    /// # Errors
    /// [`StatisticsError`].
    pub fn read(&self, patience: Duration) -> Result<Statistics, StatisticsError> {
        let command = "show info;show stat";
        let reply = self.ask(command, patience)?;
        let Some(header) = reply.find("# pxname,") else {
            return Err(self.unexpected(
                command,
                &reply,
                "no statistics in it; the socket must be HAProxy's own (`stats socket`), not that of its master",
            ));
        };
        let (info, table) = reply.split_at(header);
        let rows = csv::rows(table).map_err(|what| self.unexpected(command, table, &what))?;
        Ok(Statistics {
            pid: pid(info),
            dropped_logs: dropped_logs(info),
            rows,
        })
    }

    /// Age of the oldest request in one of these backends (`show sess`); `None` where there is none. HAProxy gives
    /// whole seconds.
    ///
    /// # Errors
    /// [`StatisticsError`].
    pub fn oldest_session(
        &self,
        in_backend: impl Fn(&str) -> bool,
        patience: Duration,
    ) -> Result<Option<Seconds>, StatisticsError> {
        let reply = self.ask("show sess", patience)?;
        Ok(oldest(&reply, in_backend))
    }

    /// Sets a server's state (`set server b/s state …`). Needs `level admin`.
    ///
    /// # Errors
    /// [`StatisticsError`]; HAProxy's words where it refuses, such as `No such server.`
    pub fn set_state(
        &self,
        backend: &str,
        server: &str,
        state: ServerState,
        patience: Duration,
    ) -> Result<(), StatisticsError> {
        let state = match state {
            ServerState::Ready => "ready",
            ServerState::Drain => "drain",
            ServerState::Maintenance => "maint",
        };
        let (backend, server) = (plain_name(backend)?, plain_name(server)?);
        self.change(&format!("set server {backend}/{server} state {state}"), patience)
    }

    /// Sets a server's weight as a share of the one that it is configured with, in percent. Needs `level admin`.
    ///
    /// # Errors
    /// [`StatisticsError`]; HAProxy's words where it refuses, as for a balancing method whose weights are fixed.
    pub fn set_weight_percent(
        &self,
        backend: &str,
        server: &str,
        percent: u32,
        patience: Duration,
    ) -> Result<(), StatisticsError> {
        if percent > 100 {
            return Err(StatisticsError::Weight(percent));
        }
        let (backend, server) = (plain_name(backend)?, plain_name(server)?);
        self.change(
            &format!("set server {backend}/{server} weight {percent}%"),
            patience,
        )
    }

    /// The servers of a backend, as they were commanded to be and as they are (`show servers state`).
    ///
    /// # Errors
    /// [`StatisticsError`]; HAProxy's words where it refuses, such as `Can't find backend.`
    pub fn servers(&self, backend: &str, patience: Duration) -> Result<Vec<ServerRow>, StatisticsError> {
        let command = format!("show servers state {}", plain_name(backend)?);
        let reply = self.ask(&command, patience)?;
        server_rows(&reply).map_err(|what| self.unexpected(&command, &reply, what))
    }

    /// A command that answers with nothing where it succeeds.
    fn change(&self, command: &str, patience: Duration) -> Result<(), StatisticsError> {
        let reply = self.ask(command, patience)?;
        match reply.trim() {
            "" => Ok(()),
            refusal if refusal.starts_with("Permission denied") => {
                Err(self.unexpected(command, refusal, "the socket needs `level admin`"))
            }
            refusal => Err(self.unexpected(command, refusal, "HAProxy refused; nothing was changed")),
        }
    }

    fn unexpected(&self, command: &str, reply: &str, what: &str) -> StatisticsError {
        StatisticsError::Unexpected {
            address: self.address.clone(),
            command: command.into(),
            reply: reply.trim().chars().take(200).collect(),
            what: what.into(),
        }
    }

    /// Sends one command and reads the whole reply.
    fn ask(&self, command: &str, patience: Duration) -> Result<String, StatisticsError> {
        let deadline = Instant::now() + patience;
        let mut stream = self.connect(deadline)?;
        let failed = |error| StatisticsError::Reply {
            address: self.address.clone(),
            command: command.into(),
            error,
        };
        limit(&stream, deadline).map_err(failed)?;
        stream
            .write_all(format!("{command}\n").as_bytes())
            .map_err(failed)?;
        let mut reply = Vec::new();
        let mut chunk = vec![0; 64 << 10];
        loop {
            limit(&stream, deadline).map_err(failed)?;
            match stream.read(&mut chunk) {
                Ok(0) => break,
                Ok(length) => reply.extend_from_slice(&chunk[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(failed(io::ErrorKind::TimedOut.into()));
                }
                Err(error) => return Err(failed(error)),
            }
            if reply.len() > REPLY_MAX {
                return Err(StatisticsError::TooLong {
                    address: self.address.clone(),
                    command: command.into(),
                });
            }
        }
        Ok(String::from_utf8_lossy(&reply).into_owned())
    }

    /// Connects, again and again until the deadline: in the moment of a reload nobody listens.
    fn connect(&self, deadline: Instant) -> Result<Socket, StatisticsError> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.open(left.max(Duration::from_millis(1))) {
                Ok(stream) => return Ok(stream),
                Err(error)
                    if left > RETRY_AFTER
                        && matches!(
                            error.kind(),
                            io::ErrorKind::ConnectionRefused
                                | io::ErrorKind::NotFound
                                | io::ErrorKind::WouldBlock
                        ) =>
                {
                    std::thread::sleep(RETRY_AFTER);
                }
                Err(error) => {
                    return Err(StatisticsError::Connect {
                        address: self.address.clone(),
                        error,
                    });
                }
            }
        }
    }

    fn open(&self, patience: Duration) -> io::Result<Socket> {
        match &self.address {
            StatisticsAddress::Unix(path) => {
                let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
                // Of a Unix socket that is how long connecting may last.
                socket.set_write_timeout(Some(patience))?;
                socket.connect(&SockAddr::unix(path)?)?;
                Ok(socket)
            }
            StatisticsAddress::Tcp(address) => {
                let socket = Socket::new(Domain::for_address(*address), Type::STREAM, Some(Protocol::TCP))?;
                socket.connect_timeout(&(*address).into(), patience)?;
                Ok(socket)
            }
        }
    }
}

/// Lets the next read and write last until the deadline at most.
fn limit(stream: &Socket, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    stream.set_read_timeout(Some(left))?;
    stream.set_write_timeout(Some(left))
}

/// A name that ends no command and separates nothing.
fn plain_name(name: &str) -> Result<&str, StatisticsError> {
    let plain = !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c));
    plain
        .then_some(name)
        .ok_or_else(|| StatisticsError::Name(name.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_would_end_the_command_is_refused() {
        let socket = StatisticsSocket::new(StatisticsAddress::Unix("/nonexistent".into()));
        for name in ["a b", "a;shutdown", "a\nb", "", "a/b"] {
            let refused = socket.set_state("b", name, ServerState::Drain, Duration::ZERO);
            assert!(matches!(refused, Err(StatisticsError::Name(_))), "{name:?}");
        }
    }
}
