//! Where the data is, and what every database is asked in: one dialect of SQL, which SQLite and MariaDB both speak.

use super::mariadb::{self, Address};
use super::populate;
use super::sqlite;
use headroom_workload::auction::Site;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

/// Where the data is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    /// SQLite, in memory: gone with the process.
    Memory,
    /// SQLite, in a file that is kept: the next start continues with it.
    File(PathBuf),
    /// A MariaDB server.
    Server(Address),
}

/// What is wrong with a database.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// Its name on the command line.
    #[error(
        "`{text}` is no database: {problem}; write sqlite, sqlite:FILE or mysql://USER[:PASSWORD]@HOST[:PORT]/NAME"
    )]
    Name {
        /// What was written, without a password.
        text: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// It holds a site of other figures.
    #[error(
        "{database} holds another site ({held}; asked for: {asked}); give the figures that it was filled with, or another \
         file or name"
    )]
    OtherSite {
        /// The database.
        database: String,
        /// What it was filled with.
        held: String,
        /// What was asked for.
        asked: String,
    },
    /// It cannot be reached, or the connection broke.
    #[error("{database}: {problem}; check that the server runs and that the user may use the database")]
    Unreachable {
        /// The database.
        database: String,
        /// What the system or the server answered.
        problem: String,
    },
    /// It refused a statement.
    #[error("the database refused `{statement}`: {problem}")]
    Refused {
        /// The statement's beginning.
        statement: String,
        /// What it answered.
        problem: String,
    },
}

impl DatabaseError {
    pub(super) fn refused(statement: &str, problem: impl fmt::Display) -> Self {
        Self::Refused {
            statement: statement.chars().take(60).collect(),
            problem: problem.to_string(),
        }
    }
}

impl FromStr for Database {
    type Err = DatabaseError;

    fn from_str(text: &str) -> Result<Self, DatabaseError> {
        if text == "sqlite" {
            return Ok(Self::Memory);
        }
        if let Some(file) = text.strip_prefix("sqlite:") {
            return match file {
                "" => Err(DatabaseError::Name {
                    text: text.to_owned(),
                    problem: "it names no file",
                }),
                file => Ok(Self::File(file.into())),
            };
        }
        Address::parse(text).map(Self::Server)
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("sqlite"),
            Self::File(file) => write!(f, "sqlite:{}", file.display()),
            Self::Server(address) => address.fmt(f),
        }
    }
}

/// A value of a row, or of a statement's parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Null,
    Number(i64),
    Text(String),
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(i64::from(number))
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl Value {
    /// As a number; 0 where it is none (a sum of nothing).
    pub(super) fn number(&self) -> i64 {
        match self {
            Self::Number(number) => *number,
            Self::Text(text) => text.parse().unwrap_or(0),
            Self::Null => 0,
        }
    }

    pub(super) fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Null | Self::Number(_) => "",
        }
    }
}

/// What a statement that changes something did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) rows: u64,
    /// The number of the row that was inserted.
    pub(super) id: i64,
}

pub(super) type Row = Vec<Value>;

/// One connection to a database.
pub(super) trait Session: Send {
    /// The rows that a query answers; `?` stands for a parameter.
    fn rows(&mut self, sql: &str, parameters: &[Value]) -> Result<Vec<Row>, DatabaseError>;

    /// Changes rows.
    fn change(&mut self, sql: &str, parameters: &[Value]) -> Result<Changed, DatabaseError>;

    /// Begins a transaction that will write.
    fn begin(&mut self) -> Result<(), DatabaseError>;

    /// What a column of numbers that count themselves is, in this database's words.
    fn counting_key(&self) -> &'static str;
}

/// Does what belongs together: all of it or, where it fails, nothing.
pub(super) fn transaction<T>(
    session: &mut dyn Session,
    work: impl FnOnce(&mut dyn Session) -> Result<T, DatabaseError>,
) -> Result<T, DatabaseError> {
    session.begin()?;
    let done = work(session).and_then(|done| session.change("COMMIT", &[]).map(|_| done));
    if done.is_err() {
        // The first error is the one that is reported; a connection that broke has rolled back by itself.
        let _ = session.change("ROLLBACK", &[]);
    }
    done
}

/// A worker's way to the database.
pub(super) enum Link {
    /// One that all share, because a database in memory is one connection's.
    Shared(Arc<Mutex<Box<dyn Session>>>),
    Own(Box<dyn Session>),
}

impl Link {
    /// Does something with the connection. It is nobody else's meanwhile.
    pub(super) fn with<T>(&mut self, work: impl FnOnce(&mut dyn Session) -> T) -> T {
        match self {
            // A panic elsewhere left at most an open transaction, and none panics within one.
            Self::Shared(session) => work(&mut **session.lock().unwrap_or_else(PoisonError::into_inner)),
            Self::Own(session) => work(&mut **session),
        }
    }
}

/// Opens the database, fills it where it is empty, and gives a way to it for each worker; and whether it was filled.
pub(super) fn prepare(
    database: &Database,
    site: &Site,
    workers: usize,
) -> Result<(Vec<Link>, bool), DatabaseError> {
    let mut first = open(database)?;
    let populated = populate::fill(&mut *first, site, &database.to_string())?;
    if *database == Database::Memory {
        let shared = Arc::new(Mutex::new(first));
        let links = (0..workers).map(|_| Link::Shared(Arc::clone(&shared)));
        return Ok((links.collect(), populated));
    }
    let mut links = vec![Link::Own(first)];
    while links.len() < workers {
        links.push(Link::Own(open(database)?));
    }
    Ok((links, populated))
}

fn open(database: &Database) -> Result<Box<dyn Session>, DatabaseError> {
    Ok(match database {
        Database::Memory => Box::new(sqlite::Sqlite::open(None)?),
        Database::File(file) => Box::new(sqlite::Sqlite::open(Some(Path::new(file)))?),
        Database::Server(address) => Box::new(mariadb::MariaDb::connect(address.clone())?),
    })
}
