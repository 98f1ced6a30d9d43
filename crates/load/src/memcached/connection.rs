//! One connection to a memcached: bytes in and out, without waiting.

use super::protocol::{Answer, Kind, Parser};
use crate::clock::Moment;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socket_with, sockopt};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;

/// From so many bytes of a value on, the kernel throws them away without copying them.
const DISCARDED: u64 = 16 << 10;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// Nothing.
    Idle,
    /// Opening its socket since then; with a request to send afterwards, or none.
    Connecting { since: Moment, intended: Option<Moment> },
    /// Waiting for the answer to a request.
    Asking {
        kind: Kind,
        intended: Moment,
        sent: Moment,
    },
}

/// Why an exchange broke.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// The connection ended.
    Closed,
    /// What came is no answer.
    Garbage,
}

/// A connection; its socket is there or not.
pub(super) struct Connection {
    pub(super) stream: Option<TcpStream>,
    pub(super) doing: Doing,
    /// When what it is doing is given up.
    pub(super) deadline: Moment,
    /// Of a closed loop: when its window began.
    pub(super) window_began: Moment,
    /// How many sockets it has had: events of an earlier one are not its own.
    pub(super) sockets: u32,
    /// How many addresses were tried since it began to connect.
    pub(super) tried: usize,
    /// The server has closed its side: after what has come nothing will.
    pub(super) ended: bool,
    pub(super) parser: Parser,
    /// The head of the request.
    pub(super) head: Vec<u8>,
    /// How many bytes of the request are sent.
    pub(super) written: usize,
}

impl Connection {
    pub(super) fn new() -> Self {
        Self {
            stream: None,
            doing: Doing::Idle,
            deadline: Moment::NEVER,
            window_began: Moment::ORIGIN,
            sockets: 0,
            tried: 0,
            ended: false,
            parser: Parser::new(),
            head: Vec::new(),
            written: 0,
        }
    }

    /// Begins to open a socket whose events have this number in their upper half and the connection's in their lower.
    pub(super) fn connect(&mut self, epoll: &OwnedFd, index: usize, address: SocketAddr) -> io::Result<()> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let stream = TcpStream::from(socket_with(family, SocketType::STREAM, flags, None)?);
        match rustix::net::connect(&stream, &address) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        // Requests are written whole; waiting for more to send with them would only delay them.
        stream.set_nodelay(true)?;
        self.sockets = self.sockets.wrapping_add(1);
        let data = EventData::new_u64(u64::from(self.sockets) << 32 | index as u64);
        let interest = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(epoll, &stream, data, interest)?;
        self.stream = Some(stream);
        Ok(())
    }

    /// Whether the socket that was being opened is open; an error where it never will be.
    pub(super) fn connected(&self) -> io::Result<()> {
        match &self.stream {
            Some(stream) => Ok(sockopt::socket_error(stream)??),
            None => Err(ErrorKind::NotConnected.into()),
        }
    }

    pub(super) fn close(&mut self) {
        // epoll forgets a socket that is closed.
        self.stream = None;
        self.ended = false;
        self.parser.reset();
    }

    /// Sends what the socket takes of the request: its head, and for a `set` the value. How many bytes went.
    pub(super) fn send(&mut self, value: &[u8]) -> Result<u64, Broken> {
        let value = match self.doing {
            Doing::Asking { kind: Kind::Set, .. } => value,
            _ => &[],
        };
        let whole = self.head.len() + value.len();
        let Some(stream) = &mut self.stream else {
            return Err(Broken::Closed);
        };
        let mut sent = 0;
        while self.written < whole {
            let head = self.head.get(self.written..).unwrap_or_default();
            let rest = &value[self.written.saturating_sub(self.head.len())..];
            let wrote = match (head.is_empty(), rest.is_empty()) {
                (false, true) => stream.write(head),
                (true, _) => stream.write(rest),
                (false, false) => stream.write_vectored(&[IoSlice::new(head), IoSlice::new(rest)]),
            };
            match wrote {
                Ok(bytes) => {
                    self.written += bytes;
                    sent += bytes as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(Broken::Closed),
            }
        }
        Ok(sent)
    }

    /// Reads until an answer is complete or nothing more has come. `received` counts the bytes.
    pub(super) fn receive(
        &mut self,
        buffer: &mut [u8],
        received: &mut u64,
    ) -> Result<Option<Answer>, Broken> {
        let Some(stream) = &mut self.stream else {
            return Err(Broken::Closed);
        };
        loop {
            let left = self.parser.data_left();
            let discards = left >= DISCARDED;
            let most = buffer.len();
            let read = if discards {
                let room = usize::try_from(left).unwrap_or(most).min(most);
                recv(&*stream, &mut buffer[..room], RecvFlags::TRUNC)
                    .map(|(_, bytes)| (bytes, room))
                    .map_err(io::Error::from)
            } else {
                stream.read(buffer).map(|bytes| (bytes, most))
            };
            let (bytes, room) = match read {
                Ok((0, _)) => return Err(Broken::Closed),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return Err(Broken::Closed),
            };
            *received += bytes as u64;
            if discards {
                self.parser.skipped(bytes as u64);
            } else {
                match self.parser.feed(&buffer[..bytes]) {
                    Ok((taken, Some(answer))) if taken == bytes => return Ok(Some(answer)),
                    // More than one answer to one request.
                    Ok((_, Some(_))) | Err(_) => return Err(Broken::Garbage),
                    Ok((_, None)) => {}
                }
            }
            if bytes < room && !self.ended {
                // Nothing more is there: what comes later is an event of its own.
                return Ok(None);
            }
        }
    }
}
