//! The file's layout, and how a file is opened.

use crate::Error;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::time::Duration;

/// Marks a SQLite file as a flight recorder (`PRAGMA application_id`): "HDRM" in ASCII.
const APPLICATION_ID: i64 = 0x4844_524d;

/// How long a statement waits for another process that writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The file's layout (`PRAGMA user_version`): a file of another is refused. It changes with the tables below.
pub(crate) const SCHEMA_VERSION: i64 = 6;

/// The tables of a new file.
const TABLES: &str = "
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL,
        ended_at INTEGER,              -- Unix time, ms
        state TEXT NOT NULL,           -- running, finished, abandoned
        updated_at INTEGER NOT NULL,   -- Unix time, ms: the writer's last sign of life
        writer TEXT,                   -- the process that records
        meta TEXT NOT NULL,            -- JSON: what the run was of
        notes TEXT NOT NULL,           -- JSON array
        config TEXT NOT NULL,
        totals TEXT NOT NULL,          -- JSON: sums of the first `covered` periods
        histogram TEXT NOT NULL,       -- JSON: their latencies, [µs, count] of each bucket
        covered INTEGER NOT NULL DEFAULT -1, -- the last period that totals and histogram cover
        dropped INTEGER NOT NULL DEFAULT 0,  -- periods that never reached the writer
        unwritten INTEGER NOT NULL DEFAULT 0, -- periods that are in the totals but could not be written as rows
        pruned INTEGER NOT NULL DEFAULT 0,    -- periods that are in the totals and were removed as rows
        provenance TEXT NOT NULL,      -- JSON
        bystanders REAL                -- share of the machine that others used
    ) STRICT;
    CREATE INDEX runs_by_name ON runs (name);
    CREATE TABLE periods (
        run INTEGER NOT NULL,
        idx INTEGER NOT NULL,
        t_s REAL NOT NULL,
        duration_s REAL NOT NULL,
        arrivals INTEGER NOT NULL,
        completions INTEGER NOT NULL,
        failures INTEGER NOT NULL,
        in_flight INTEGER NOT NULL,
        oldest_in_flight_ms REAL,
        latency_mean_ms REAL,
        latency_p50_ms REAL,
        latency_p95_ms REAL,
        latency_p99_ms REAL,
        latency_p999_ms REAL,
        latency_max_ms REAL,
        slo_ms REAL,
        forecast_per_s REAL,
        cores REAL,
        cap_w REAL,
        cap_at_limit INTEGER NOT NULL,
        power_w REAL,
        power_source TEXT,
        energy_j REAL,
        energy_source TEXT,
        utilisation REAL,
        throttled REAL,
        frequency_hz REAL,
        frequency_limit_hz REAL,
        telemetry_lost INTEGER NOT NULL,
        levers_lost INTEGER NOT NULL,
        nodes_missing INTEGER NOT NULL,
        failed_by_client INTEGER NOT NULL,
        seen TEXT NOT NULL,            -- JSON
        decided TEXT NOT NULL,         -- JSON
        reasons TEXT NOT NULL          -- JSON array of {rule, text, numbers}
    ) STRICT;
    CREATE UNIQUE INDEX periods_by_run ON periods (run, idx);
    CREATE TABLE parts (
        run INTEGER NOT NULL,
        idx INTEGER NOT NULL,          -- the period's
        part INTEGER NOT NULL,         -- the part's place in it
        name TEXT NOT NULL,
        role TEXT NOT NULL,
        state TEXT,
        source TEXT,                   -- of its power
        vals TEXT NOT NULL,            -- JSON: values by quantity
        facts TEXT NOT NULL,           -- JSON
        trouble TEXT NOT NULL,         -- JSON array
        PRIMARY KEY (run, idx, part)
    ) STRICT, WITHOUT ROWID;
";

/// Opens a file for writing, creating it where there is none.
pub(crate) fn open_writer(path: &Path) -> Result<Connection, Error> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|source| Error::Folder {
            path: folder.to_owned(),
            source,
        })?;
    }
    let opening = Error::open(path);
    if path.exists() {
        try_file(path)?;
    }
    let mut connection = Connection::open(path).map_err(opening)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(opening)?;
    // Only an empty file takes this, before its first table; in any other it changes nothing.
    connection
        .pragma_update(None, "auto_vacuum", "INCREMENTAL")
        .map_err(opening)?;
    create(&mut connection, path)?;
    // WAL with synchronous NORMAL: a commit is in the kernel's hands at once, which `kill -9` cannot undo; a power
    // failure can undo the commits since the last checkpoint, and damages nothing.
    connection
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 256;
             PRAGMA journal_size_limit = 1048576",
        )
        .map_err(opening)?;
    Ok(connection)
}

/// Opens a file that is there: the system says better than SQLite why it cannot be.
fn try_file(path: &Path) -> Result<(), Error> {
    let opened = std::fs::OpenOptions::new().read(true).write(true).open(path);
    let failed = |error: std::io::Error| rusqlite::Error::ToSqlConversionFailure(error.into());
    opened.map(drop).map_err(failed).map_err(Error::open(path))
}

/// As much room as a run takes at its start, with the log of what was written.
const ROOM: usize = 1 << 20;

/// Tries whether there is room for a run, by a file beside it that is removed again: what cannot be begun is refused before anything else is
/// started, and a disk that is full later ends nothing.
pub(crate) fn try_room(path: &Path) -> Result<(), Error> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".room-{}", std::process::id()));
    let written = std::fs::write(&name, vec![0; ROOM]);
    let _ = std::fs::remove_file(&name);
    match written {
        Err(source)
            if matches!(
                source.kind(),
                std::io::ErrorKind::StorageFull
                    | std::io::ErrorKind::QuotaExceeded
                    | std::io::ErrorKind::FileTooLarge
            ) =>
        {
            Err(Error::NoRoom {
                path: path.to_owned(),
                source,
            })
        }
        // Whatever else keeps a file from being beside it says nothing of its room.
        _ => Ok(()),
    }
}

/// Tries whether [`open_writer`] would open a file, and changes nothing. A file that is there is opened for writing and
/// looked at; where there is none, one of another name is made in its folder, and removed with the folders made for it.
pub(crate) fn try_writer(path: &Path) -> Result<(), Error> {
    if path.exists() {
        try_file(path)?;
        let opening = Error::open(path);
        let (connection, version) = read_only(path).map_err(opening)?;
        let tables: i64 = connection
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            .map_err(opening)?;
        // An empty file becomes a recorder's.
        return if tables == 0 && version == 0 {
            Ok(())
        } else {
            check_identity(&connection, path, version)
        };
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    // The folders that would be made, the outermost last.
    let missing: Vec<&Path> = folder
        .into_iter()
        .flat_map(Path::ancestors)
        .take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists())
        .collect();
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".check-{}", std::process::id()));
    let probe = Path::new(&name);
    let tried = open_writer(probe).map(drop);
    for ending in ["", "-wal", "-shm", "-journal"] {
        let mut file = name.clone();
        file.push(ending);
        let _ = std::fs::remove_file(file);
    }
    for folder in missing {
        // Not where somebody has put something into it meanwhile.
        let _ = std::fs::remove_dir(folder);
    }
    tried.map_err(|error| match error {
        Error::Open { source, .. } => Error::open(path)(source),
        other => other,
    })
}

/// Opens a file for reading only.
pub(crate) fn open_reader(path: &Path) -> Result<Connection, Error> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::Missing {
                path: path.to_owned(),
            });
        }
        Ok(metadata) if metadata.is_dir() => {
            return Err(Error::IsFolder {
                path: path.to_owned(),
            });
        }
        _ => {}
    }
    let opening = Error::open(path);
    // Reading a file in WAL mode needs its folder to be writable, for the index of the log. Where it is not and
    // there is no log (the file came with a backup, a container image), the file cannot change under us.
    let (connection, version) = read_only(path).or_else(|first| {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        if Path::new(&log).exists() || !path.is_file() {
            return Err(opening(first));
        }
        let uri = format!("file:{}?immutable=1", uri_path(path));
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        let connection = Connection::open_with_flags(uri, flags).map_err(|_| opening(first))?;
        let version = user_version(&connection).map_err(opening)?;
        Ok((connection, version))
    })?;
    check_identity(&connection, path, version)?;
    Ok(connection)
}

/// The file opened for reading, and the version of its layout.
fn read_only(path: &Path) -> Result<(Connection, i64), rusqlite::Error> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    let version = user_version(&connection)?;
    Ok((connection, version))
}

fn uri_path(path: &Path) -> String {
    path.to_string_lossy()
        .replace('%', "%25")
        .replace('?', "%3f")
        .replace('#', "%23")
}

fn user_version(connection: &Connection) -> Result<i64, rusqlite::Error> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

fn check_identity(connection: &Connection, path: &Path, version: i64) -> Result<(), Error> {
    let opening = Error::open(path);
    let identity: i64 = connection
        .pragma_query_value(None, "application_id", |row| row.get(0))
        .map_err(opening)?;
    if identity != APPLICATION_ID {
        return Err(Error::Foreign {
            path: path.to_owned(),
        });
    }
    if version != SCHEMA_VERSION {
        return Err(Error::OtherVersion {
            path: path.to_owned(),
            found: version,
            own: SCHEMA_VERSION,
        });
    }
    Ok(())
}

/// Gives an empty file its tables, in one transaction; any other is checked.
fn create(connection: &mut Connection, path: &Path) -> Result<(), Error> {
    let opening = Error::open(path);
    let transaction = connection
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .map_err(opening)?;
    let version = user_version(&transaction).map_err(opening)?;
    let tables: i64 = transaction
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(opening)?;
    if tables > 0 || version != 0 {
        return check_identity(&transaction, path, version);
    }
    transaction
        .pragma_update(None, "application_id", APPLICATION_ID)
        .and_then(|()| transaction.execute_batch(TABLES))
        .and_then(|()| transaction.pragma_update(None, "user_version", SCHEMA_VERSION))
        .and_then(|()| transaction.commit())
        .map_err(opening)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.db");
        (folder, path)
    }

    #[test]
    fn a_new_file_has_its_layout_and_can_shrink() {
        let (_folder, path) = file();
        let connection = open_writer(&path).unwrap();
        assert_eq!(user_version(&connection).unwrap(), SCHEMA_VERSION);
        let vacuum: i64 = connection
            .pragma_query_value(None, "auto_vacuum", |row| row.get(0))
            .unwrap();
        assert_eq!(vacuum, 2, "2 is incremental");
        let mode: String = connection
            .pragma_query_value(None, "journal_mode", |row| row.get(0))
            .unwrap();
        assert_eq!(mode, "wal");
    }

    #[test]
    fn a_file_of_another_version_is_refused_with_the_remedy() {
        for version in [SCHEMA_VERSION - 1, SCHEMA_VERSION + 7] {
            let (_folder, path) = file();
            let connection = open_writer(&path).unwrap();
            connection.pragma_update(None, "user_version", version).unwrap();
            drop(connection);
            for error in [
                open_writer(&path).unwrap_err(),
                open_reader(&path).unwrap_err(),
                try_writer(&path).unwrap_err(),
            ] {
                let text = error.to_string();
                assert!(
                    text.contains(&format!("its layout is {version}, this one's {SCHEMA_VERSION}")),
                    "{text}"
                );
                assert!(
                    text.contains("Move the file away") && text.contains("runs.db"),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn another_program_s_database_is_left_alone() {
        let (_folder, path) = file();
        Connection::open(&path)
            .unwrap()
            .execute_batch("CREATE TABLE theirs (x)")
            .unwrap();
        assert!(matches!(open_writer(&path), Err(Error::Foreign { .. })));
        assert!(matches!(open_reader(&path), Err(Error::Foreign { .. })));
    }

    #[test]
    fn a_missing_file_and_a_folder_are_named_as_what_they_are() {
        let (folder, path) = file();
        let said = open_reader(&path).unwrap_err().to_string();
        assert!(
            said.contains("runs.db: there is no such file") && said.contains("--db"),
            "{said}"
        );
        assert!(!path.exists(), "reading makes none");
        let said = open_reader(folder.path()).unwrap_err().to_string();
        assert!(said.contains("this is a folder"), "{said}");
    }

    #[test]
    fn a_text_file_is_refused() {
        let (_folder, path) = file();
        std::fs::write(
            &path,
            "not a database, and longer than a SQLite header has bytes, so that it is read: ".repeat(9),
        )
        .unwrap();
        for error in [open_writer(&path).unwrap_err(), open_reader(&path).unwrap_err()] {
            assert!(matches!(error, Error::NoDatabase { .. }), "{error}");
            let said = error.to_string();
            assert!(
                said.contains("Name another file") && !said.contains("exists"),
                "{said}"
            );
        }
    }
}
