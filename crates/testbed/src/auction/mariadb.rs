//! MariaDB, spoken to in their client/server protocol over TCP: handshake, native password, text queries. That is
//! all the service needs; the `mysql` crate brings some 45 crates with it for the rest.

mod wire;

use super::database::{Changed, DatabaseError, Row, Session, Value};
use std::fmt;
use std::net::TcpStream;
use std::time::Duration;
use wire::{Answer, Wire};

/// How long the server may take to answer. Longer than a wait for a lock that others hold.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Of a session: no silent cutting of values, a 0 in a counting key is a 0, and a backslash in a text escapes.
const MODE: &str =
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO', innodb_lock_wait_timeout = 5";

/// Which server, who asks, and which of its databases.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    user: String,
    password: String,
    host: String,
    port: u16,
    name: String,
}

impl Address {
    /// Reads `mysql://USER[:PASSWORD]@HOST[:PORT]/NAME`; the port is 3306 where none is given.
    pub(super) fn parse(text: &str) -> Result<Self, DatabaseError> {
        let bad = |problem| DatabaseError::Name {
            // What stands before the `@` may hold a password.
            text: match text.rsplit_once('@') {
                Some((_, place)) => format!("...@{place}"),
                None => text.to_owned(),
            },
            problem,
        };
        let rest = text
            .strip_prefix("mysql://")
            .ok_or_else(|| bad("it is of no known kind"))?;
        let (who, place) = rest.rsplit_once('@').ok_or_else(|| bad("it names no user"))?;
        let (user, password) = who.split_once(':').unwrap_or((who, ""));
        let (server, name) = place
            .split_once('/')
            .ok_or_else(|| bad("it names no database after the host"))?;
        let (host, port) = match server.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().map_err(|_| bad("its port is no number"))?),
            None => (server, 3306),
        };
        let holds = |text: &str| !text.is_empty() && !text.contains(['\0', '/']);
        if !holds(user) || !holds(host) || !holds(name) || password.contains('\0') {
            return Err(bad("a user, host or database in it is empty"));
        }
        Ok(Self {
            user: user.to_owned(),
            password: password.to_owned(),
            host: host.to_owned(),
            port,
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "mysql://{}@{}:{}/{}",
            self.user, self.host, self.port, self.name
        )
    }
}

/// Never the password.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A connection, which is opened again after it broke.
pub(super) struct MariaDb {
    address: Address,
    wire: Option<Wire>,
}

impl MariaDb {
    pub(super) fn connect(address: Address) -> Result<Self, DatabaseError> {
        let wire = Some(open(&address)?);
        Ok(Self { address, wire })
    }

    fn query(&mut self, sql: &str, parameters: &[Value]) -> Result<Answer, DatabaseError> {
        let sql = literal(sql, parameters);
        let mut wire = match self.wire.take() {
            Some(wire) => wire,
            None => open(&self.address)?,
        };
        let answer = wire
            .query(&sql)
            .map_err(|error| unreachable(&self.address, error))?;
        // Where the exchange broke off, the connection is not used again.
        self.wire = Some(wire);
        match answer {
            Answer::Refused(problem) => Err(DatabaseError::refused(&sql, problem)),
            answer => Ok(answer),
        }
    }
}

fn open(address: &Address) -> Result<Wire, DatabaseError> {
    let open = || {
        let stream = TcpStream::connect((address.host.as_str(), address.port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut wire = Wire::new(stream);
        wire.log_in(&address.user, &address.password, &address.name)?;
        match wire.query(MODE)? {
            Answer::Refused(problem) => Err(std::io::Error::other(problem)),
            _ => Ok(wire),
        }
    };
    open().map_err(|error| unreachable(address, error))
}

fn unreachable(address: &Address, error: std::io::Error) -> DatabaseError {
    DatabaseError::Unreachable {
        database: address.to_string(),
        problem: error.to_string(),
    }
}

impl Session for MariaDb {
    fn rows(&mut self, sql: &str, parameters: &[Value]) -> Result<Vec<Row>, DatabaseError> {
        match self.query(sql, parameters)? {
            Answer::Rows(rows) => Ok(rows),
            _ => Ok(Vec::new()),
        }
    }

    fn change(&mut self, sql: &str, parameters: &[Value]) -> Result<Changed, DatabaseError> {
        match self.query(sql, parameters)? {
            Answer::Changed(changed) => Ok(changed),
            _ => Ok(Changed { rows: 0, id: 0 }),
        }
    }

    fn begin(&mut self) -> Result<(), DatabaseError> {
        self.change("START TRANSACTION", &[]).map(|_| ())
    }

    fn counting_key(&self) -> &'static str {
        "BIGINT AUTO_INCREMENT PRIMARY KEY"
    }
}

/// A statement with its parameters written in the place of its `?`; the service's own statements have no other.
fn literal(sql: &str, parameters: &[Value]) -> String {
    let mut written = String::with_capacity(sql.len() + 16 * parameters.len());
    let mut parameters = parameters.iter();
    for piece in sql.split_inclusive('?') {
        let Some(piece) = piece.strip_suffix('?') else {
            written.push_str(piece);
            continue;
        };
        written.push_str(piece);
        match parameters.next() {
            None | Some(Value::Null) => written.push_str("NULL"),
            Some(Value::Number(number)) => written.push_str(&number.to_string()),
            Some(Value::Text(text)) => {
                written.push('\'');
                for letter in text.chars() {
                    match letter {
                        '\'' => written.push_str("''"),
                        '\\' => written.push_str("\\\\"),
                        '\0' => written.push_str("\\0"),
                        letter => written.push(letter),
                    }
                }
                written.push('\'');
            }
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_and_never_shows_its_password() {
        let address = Address::parse("mysql://me:se@cret@db.test:3307/auction").unwrap();
        assert_eq!(
            (address.user.as_str(), address.password.as_str(), address.port),
            ("me", "se@cret", 3307)
        );
        assert_eq!(format!("{address:?}"), "mysql://me@db.test:3307/auction");
        assert_eq!(Address::parse("mysql://root@localhost/a").unwrap().port, 3306);
        for bad in [
            "postgres://me@h/a",
            "mysql://h/a",
            "mysql://me:se@h",
            "mysql://me:se@h:x/a",
            "mysql://me:se@h/",
            "mysql://@h/a",
        ] {
            let error = Address::parse(bad).unwrap_err().to_string();
            assert!(
                error.contains("mysql://USER") && !error.contains("se@"),
                "{error}"
            );
        }
    }

    #[test]
    fn texts_cannot_leave_their_quotes() {
        let text = Value::Text("a' OR 1=1 \\' -- ?\0".to_owned());
        assert_eq!(
            literal("SELECT ?, ? FROM t WHERE a = ?", &[text, Value::Number(-3)]),
            "SELECT 'a'' OR 1=1 \\\\'' -- ?\\0', -3 FROM t WHERE a = NULL"
        );
    }
}
