//! The two databases' protocols, as far as the stress needs them: whole answers, and everything that a client should not do.

mod line;
mod maria;
mod postgres;

pub use line::{Address, Broken, Line, Overdue};

use std::sync::mpsc::Sender;
use std::time::Duration;

/// Which database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Database {
    /// Threads.
    Maria,
    /// Processes.
    Postgres,
}

/// What a query came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was carried out: the first value, and how many bytes of rows.
    Done {
        /// The first column of the first row.
        first: Option<String>,
        /// Bytes.
        bytes: usize,
    },
    /// The server said why not: its code, and its words.
    Refused {
        /// A number, or five characters.
        code: String,
        /// Words.
        text: String,
    },
}

/// A client's connection.
pub trait Wire: Send {
    /// Sends a statement without waiting.
    fn send(&mut self, statement: &str) -> Result<(), Broken>;
    /// Waits for the answer of one that was sent.
    fn receive(&mut self) -> Result<Answer, Broken>;
    /// The same statement prepared first, then executed.
    fn prepared(&mut self, statement: &str) -> Result<Answer, Broken>;
    /// Sends the first part of a statement's message alone.
    fn send_half(&mut self, statement: &str) -> Result<(), Broken>;
    /// Several statements at once, before the first is answered.
    fn several(&mut self, statements: &[&str]) -> Result<Vec<Answer>, Broken>;
    /// Says goodbye, and closes.
    fn leave(self: Box<Self>);
    /// The server's number of it.
    fn id(&self) -> u32;
    /// What it runs over.
    fn line(&mut self) -> &mut Line;

    /// One statement and its answer, which is due within so long.
    fn ask(&mut self, statement: &str, bound: Duration) -> Result<Answer, Broken> {
        self.line().begins(bound, statement);
        self.send(statement)?;
        self.receive()
    }
}

/// What a client says of itself as it connects.
#[derive(Clone)]
pub struct Login<'a> {
    /// Where.
    pub address: &'a Address,
    /// The user, without a password.
    pub user: &'a str,
    /// Within which time each answer is due until another is said.
    pub bound: Duration,
    /// Who is told of answers that are overdue.
    pub overdue: Sender<Overdue>,
}

/// What a connection came to.
pub enum Connected {
    /// It is there.
    Yes(Box<dyn Wire>),
    /// The server said no.
    Refused(Answer),
}

/// Connects.
pub fn connect(database: Database, login: &Login<'_>) -> Result<Connected, Broken> {
    match database {
        Database::Maria => maria::connect(login),
        Database::Postgres => postgres::connect(login),
    }
}

/// Asks that a query be cancelled, as PostgreSQL's clients do.
pub fn cancel(address: &Address, id: u32, secret: u32) -> Result<(), Broken> {
    postgres::cancel(address, id, secret)
}
