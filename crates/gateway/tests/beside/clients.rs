//! Clients that count what they get, whatever it is.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::ops::AddAssign;
use std::time::Duration;

use crate::common::{Client, Message};

/// What came of requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub answered: usize,
    /// Another status than 200, or no whole answer.
    pub failed: usize,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.answered += other.answered;
        self.failed += other.failed;
    }
}

impl Counts {
    pub fn requests(&self) -> usize {
        self.answered + self.failed
    }

    pub fn count(&mut self, is_answered: bool) {
        match is_answered {
            true => self.answered += 1,
            false => self.failed += 1,
        }
    }
}

/// Asks one request after another on a connection that is kept, a new one where that was closed.
pub struct Asking {
    address: SocketAddr,
    connection: Option<Client>,
}

impl Asking {
    pub fn at(address: SocketAddr) -> Self {
        Self {
            address,
            connection: None,
        }
    }

    /// The whole answer; `None` where there was none, or no connection.
    pub fn get(&mut self, path: &str) -> Option<Message> {
        let mut client = match self.connection.take() {
            Some(client) => client,
            None => Client::over(TcpStream::connect(self.address).ok()?),
        };
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n");
        client.stream.write_all(request.as_bytes()).ok()?;
        let answer = Message::read(&mut client.reader, false).filter(|answer| answer.complete)?;
        let closes = answer
            .header("connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"));
        if !closes {
            self.connection = Some(client);
        }
        Some(answer)
    }

    /// Whether the answer was there, and 200.
    pub fn is_answered(&mut self, path: &str) -> bool {
        self.get(path).is_some_and(|answer| answer.status() == 200)
    }
}

/// What so many clients at a time get, of which each does the same.
pub fn crowd(clients: usize, does: impl Fn(&mut Counts) + Send + Sync) -> Counts {
    std::thread::scope(|scope| {
        let client = || {
            let mut counts = Counts::default();
            does(&mut counts);
            counts
        };
        let all: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
        let mut counts = Counts::default();
        for client in all {
            counts += client.join().unwrap();
        }
        counts
    })
}

/// So many clients at a time ask for `/` so many times each, with a pause after each request.
pub fn ask(address: SocketAddr, clients: usize, times: usize, pause: Duration) -> Counts {
    crowd(clients, |counts| {
        let mut client = Asking::at(address);
        for _ in 0..times {
            counts.count(client.is_answered("/"));
            std::thread::sleep(pause);
        }
    })
}

/// The same without a pause, and each request on a connection of its own, so that no thread keeps its clients.
pub fn ask_anew(address: SocketAddr, clients: usize, times: usize) -> Counts {
    crowd(clients, |counts| {
        for _ in 0..times {
            counts.count(Asking::at(address).is_answered("/"));
        }
    })
}
