//! A socket on which answers are due: whoever waits beyond the bound says so once, and waits on for a while, so that what is late is
//! told from what never comes.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// How long beyond its bound an answer is waited for.
const GRACE: Duration = Duration::from_secs(60);
/// How often a wait looks at the clock.
const TICK: Duration = Duration::from_millis(500);

/// Where a server is.
#[derive(Clone, Debug)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// A port of loopback.
    Tcp(SocketAddr),
}

/// An answer that is late. All of it is read as it is printed.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "rustc counts no field as read that is printed alone")]
pub struct Overdue {
    /// The server's number of the connection; 0 before it has one.
    pub id: u32,
    /// The client's port; 0 on a Unix socket.
    pub port: u16,
    /// What was asked, its first characters.
    pub statement: String,
    /// For how long it was waited.
    pub waited: Duration,
}

/// Why there is no answer.
#[derive(Debug)]
#[allow(dead_code, reason = "rustc counts no field as read that is printed alone")]
pub enum Broken {
    /// It did not come, far beyond its bound.
    Stuck(Duration),
    /// The connection ended.
    Closed(io::Error),
    /// It was none that the protocol knows.
    Nonsense(String),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Closed(error)
    }
}

enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// A connection as bytes.
pub struct Line {
    socket: Socket,
    buffer: Vec<u8>,
    at: usize,
    /// The server's number of it, once that is known.
    pub id: u32,
    /// What a request to cancel must name beside that number.
    pub secret: u32,
    began: Instant,
    bound: Duration,
    statement: String,
    has_said: bool,
    overdue: Sender<Overdue>,
    /// The longest wait for an answer that was within its bound, or came at least.
    pub waited: Duration,
    /// A pause before each read, for a reader that is slow.
    pub pace: Option<Duration>,
}

impl Line {
    /// Connects.
    pub fn open(address: &Address, bound: Duration, overdue: Sender<Overdue>) -> Result<Self, Broken> {
        let began = Instant::now();
        let socket = match address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, bound)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(TICK))?;
                stream.set_write_timeout(Some(bound))?;
                Socket::Tcp(stream)
            }
            Address::Unix(path) => {
                let socket = rustix::net::socket_with(
                    AddressFamily::UNIX,
                    SocketType::STREAM,
                    // A program that is started meanwhile would keep it open.
                    SocketFlags::CLOEXEC,
                    None,
                )
                .map_err(io::Error::from)?;
                // A connection waits for room in the backlog for so long.
                sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(bound))
                    .map_err(io::Error::from)?;
                let to = SocketAddrUnix::new(path).map_err(io::Error::from)?;
                rustix::net::connect(&socket, &to).map_err(io::Error::from)?;
                let stream = UnixStream::from(socket);
                stream.set_read_timeout(Some(TICK))?;
                Socket::Unix(stream)
            }
        };
        Ok(Self {
            socket,
            buffer: Vec::new(),
            at: 0,
            id: 0,
            secret: 0,
            began,
            bound,
            statement: "the greeting".to_owned(),
            has_said: false,
            overdue,
            waited: Duration::ZERO,
            pace: None,
        })
    }

    /// From now on an answer is due within so long.
    pub fn begins(&mut self, bound: Duration, statement: &str) {
        self.began = Instant::now();
        self.bound = bound;
        self.statement = statement.chars().take(120).collect();
        self.has_said = false;
    }

    /// An answer is there.
    pub fn ends(&mut self) {
        self.waited = self.waited.max(self.began.elapsed());
    }

    /// Since when an answer is waited for.
    pub fn since(&self) -> Duration {
        self.began.elapsed()
    }

    fn port(&self) -> u16 {
        match &self.socket {
            Socket::Tcp(stream) => stream.local_addr().map_or(0, |address| address.port()),
            Socket::Unix(_) => 0,
        }
    }

    /// Closing it is to be a reset, with nothing sent that was not yet.
    pub fn reset_on_close(&self) {
        if let Socket::Tcp(stream) = &self.socket {
            let _ = sockopt::set_socket_linger(stream, Some(Duration::ZERO));
        }
    }

    /// Ends it in both directions.
    pub fn shut(&self) {
        let _ = match &self.socket {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Sends all of it. A server that reads nothing for as long as an answer may take is stuck too.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        let written = match &mut self.socket {
            Socket::Unix(stream) => stream.write_all(bytes),
            Socket::Tcp(stream) => stream.write_all(bytes),
        };
        match written {
            Err(error) if is_timeout(&error) => Err(Broken::Stuck(self.began.elapsed())),
            written => Ok(written?),
        }
    }

    /// The next bytes, so many.
    pub fn read(&mut self, count: usize) -> Result<&[u8], Broken> {
        if self.buffer.len() - self.at < count {
            self.buffer.drain(..self.at);
            self.at = 0;
        }
        while self.buffer.len() < count {
            self.fill()?;
        }
        let from = self.at;
        self.at += count;
        Ok(&self.buffer[from..self.at])
    }

    fn fill(&mut self) -> Result<(), Broken> {
        if let Some(pace) = self.pace {
            std::thread::sleep(pace);
        }
        let mut bytes = [0; 65_536];
        loop {
            let read = match &mut self.socket {
                Socket::Unix(stream) => stream.read(&mut bytes),
                Socket::Tcp(stream) => stream.read(&mut bytes),
            };
            match read {
                Ok(0) => return Err(Broken::Closed(ErrorKind::UnexpectedEof.into())),
                Ok(count) => {
                    self.buffer.extend_from_slice(&bytes[..count]);
                    return Ok(());
                }
                Err(error) if is_timeout(&error) => {
                    let waited = self.began.elapsed();
                    if waited > self.bound && !std::mem::replace(&mut self.has_said, true) {
                        let _ = self.overdue.send(Overdue {
                            id: self.id,
                            port: self.port(),
                            statement: self.statement.clone(),
                            waited,
                        });
                    }
                    if waited > self.bound + GRACE {
                        return Err(Broken::Stuck(waited));
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Broken::Closed(error)),
            }
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
