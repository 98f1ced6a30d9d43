//! SQLite, within this process.

use super::database::{Changed, DatabaseError, Row, Session, Value};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, params_from_iter};
use std::path::Path;
use std::time::Duration;

/// How long a writer waits for another.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Statements that are kept prepared.
const PREPARED: usize = 64;

pub(super) struct Sqlite(Connection);

impl Sqlite {
    /// Opens a file, or with none a database in memory.
    pub(super) fn open(file: Option<&Path>) -> Result<Self, DatabaseError> {
        let open = || {
            let connection = match file {
                Some(file) => Connection::open(file)?,
                None => Connection::open_in_memory()?,
            };
            connection.busy_timeout(BUSY_TIMEOUT)?;
            connection.set_prepared_statement_cache_capacity(PREPARED);
            // Readers do not wait for a writer; what was committed survives the process, the last of it not the machine.
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "NORMAL")?;
            Ok(Self(connection))
        };
        open().map_err(|error: rusqlite::Error| DatabaseError::Unreachable {
            database: file.map_or("sqlite".to_owned(), |file| file.display().to_string()),
            problem: error.to_string(),
        })
    }
}

impl rusqlite::ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        Ok(match self {
            Self::Null => rusqlite::types::Null.into(),
            Self::Number(number) => (*number).into(),
            Self::Text(text) => text.as_str().into(),
        })
    }
}

impl Session for Sqlite {
    fn rows(&mut self, sql: &str, parameters: &[Value]) -> Result<Vec<Row>, DatabaseError> {
        let rows = || {
            let mut statement = self.0.prepare_cached(sql)?;
            let columns = statement.column_count();
            let mut found = statement.query(params_from_iter(parameters))?;
            let mut rows = Vec::new();
            while let Some(row) = found.next()? {
                let value = |column| {
                    Ok(match row.get_ref(column)? {
                        ValueRef::Integer(number) => Value::Number(number),
                        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
                        ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => Value::Null,
                    })
                };
                rows.push((0..columns).map(value).collect::<rusqlite::Result<Row>>()?);
            }
            Ok(rows)
        };
        rows().map_err(|error: rusqlite::Error| DatabaseError::refused(sql, error))
    }

    fn change(&mut self, sql: &str, parameters: &[Value]) -> Result<Changed, DatabaseError> {
        let change = || {
            let rows = self
                .0
                .prepare_cached(sql)?
                .execute(params_from_iter(parameters))?;
            Ok(Changed {
                rows: rows as u64,
                id: self.0.last_insert_rowid(),
            })
        };
        change().map_err(|error: rusqlite::Error| DatabaseError::refused(sql, error))
    }

    fn begin(&mut self) -> Result<(), DatabaseError> {
        // Takes the lock at once: one that reads first and then writes could not wait for another writer.
        self.change("BEGIN IMMEDIATE", &[]).map(|_| ())
    }

    fn counting_key(&self) -> &'static str {
        "INTEGER PRIMARY KEY"
    }
}
