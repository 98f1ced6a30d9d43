//! What can go wrong with a recorder file.

use std::path::{Path, PathBuf};

/// An error of the recorder, the archive or a report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file that holds no load.
    #[error("{}: is not what `headroom load --json` printed: {why}. Keep its standard output in a file and give that", file.display())]
    NoLoad {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The folder of the file could not be made.
    #[error(
        "{path}: cannot make the folder of the flight recorder: {source}. Name another file (--db), or make it writable"
    )]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// There is no file to read.
    #[error(
        "{path}: there is no such file, and so no run recorded in it. Name the one that a run was recorded in (its record.db or --db)"
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// It is a folder.
    #[error("{path}: this is a folder. Name the flight recorder's file in it, as {path}/headroom.db")]
    IsFolder {
        /// The folder.
        path: PathBuf,
    },
    /// The file could not be opened or set up.
    #[error(
        "{path}: cannot open the flight recorder: {source}. Check that the file exists, may be read and written, and that its disk has room, or name another (--db)"
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// There is no room for a run.
    #[error(
        "{path}: its disk has no room for a run: {source}. Free a mebibyte or more there, or name another file (--db)"
    )]
    NoRoom {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is no database.
    #[error(
        "{path}: this is no SQLite database, and so no flight recorder of headroom. Name another file, as out/headroom.db"
    )]
    NoDatabase {
        /// The file.
        path: PathBuf,
    },
    /// The file is no recorder file.
    #[error("{path}: this is a SQLite database, but not a flight recorder of headroom. Name another file")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// Another version of the program wrote the file.
    #[error(
        "{path}: written by another version of headroom (its layout is {found}, this one's {own}). Move the file away, or name another file"
    )]
    OtherVersion {
        /// The file.
        path: PathBuf,
        /// The layout of the file.
        found: i64,
        /// The layout that this program reads and writes.
        own: i64,
    },
    /// The limits make no sense.
    #[error("limit {name} is {value}: {remedy}")]
    Limit {
        /// Which limit.
        name: &'static str,
        /// Its value.
        value: String,
        /// What to set instead.
        remedy: &'static str,
    },
    /// A statement failed.
    #[error("{path}: {doing} failed: {source}")]
    Database {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// A stored value could not be understood.
    #[error("{path}: run {run}: {what} is damaged ({detail}). Other runs of the file are not affected")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The run.
        run: i64,
        /// Which value.
        what: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// No run fits what was asked for.
    #[error("{path}: no run fits \"{asked}\". {candidates}")]
    NoSuchRun {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        asked: String,
        /// What there is, as a sentence.
        candidates: String,
    },
    /// Several runs fit what was asked for.
    #[error("{path}: \"{asked}\" fits several runs: {candidates}. Give the id of one")]
    Ambiguous {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        asked: String,
        /// The runs, with their ids.
        candidates: String,
    },
    /// The recorder's thread could not be started.
    #[error("cannot start the thread of the flight recorder: {0}")]
    Thread(std::io::Error),
    /// The recorder's thread did not answer in time.
    #[error(
        "{path}: the disk of the flight recorder did not answer within {seconds} s: the end of the run is not recorded"
    )]
    Stalled {
        /// The file.
        path: PathBuf,
        /// How long was waited.
        seconds: u64,
    },
    /// The recorder's thread is gone.
    #[error("{path}: the flight recorder has stopped: the end of the run is not recorded")]
    Stopped {
        /// The file.
        path: PathBuf,
    },
    /// Writing an export failed.
    #[error("cannot write the export: {0}")]
    Export(#[from] std::io::Error),
    /// Recorded runs are to be drawn, and the file that holds them was not given.
    #[error("run {0} is to be drawn, and no flight recorder file was given: name the one that holds it")]
    NoArchive(i64),
    /// A comparison of no runs was asked for.
    #[error("a comparison needs at least one run")]
    NothingToCompare,
}

/// What names the recorder's file in the texts above.
const FLAG: &str = "(--db)";

impl Error {
    /// Its words where the file is named by something else than `--db`, such as a configuration's key.
    ///
    /// ```
    /// use headroom_record::Error;
    ///
    /// let source = std::io::ErrorKind::PermissionDenied.into();
    /// let error = Error::Folder { path: "/root/x".into(), source };
    /// assert!(error.with_file_named_by("record.db").contains("Name another file (record.db)"));
    /// ```
    pub fn with_file_named_by(&self, name: &str) -> String {
        self.to_string().replace(FLAG, &format!("({name})"))
    }

    /// A file that cannot be opened.
    pub(crate) fn open(path: &Path) -> impl Fn(rusqlite::Error) -> Self + Copy {
        move |source| match source.sqlite_error_code() {
            Some(rusqlite::ErrorCode::NotADatabase) => Self::NoDatabase {
                path: path.to_owned(),
            },
            _ => Self::Open {
                path: path.to_owned(),
                source,
            },
        }
    }
}
