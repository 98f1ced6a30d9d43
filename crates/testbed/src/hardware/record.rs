//! The undo record: what an emulator changes in real control groups is written down before it is changed, so that a
//! successor, or [`recover`], can put it back after kill -9.

use super::error::HardwareError;
use super::place::Place;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A record longer than this is none of ours.
const MAX_BYTES: u64 = 1 << 20;
const PROC: &str = "/proc";
const REMEDY: &str = "look what it says, undo that by hand, and remove it";

/// What was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    /// The emulator's process.
    pub pid: u32,
    /// When that process began, in the kernel's clock ticks since boot: tells it from a later one of the same number.
    pub started: u64,
    /// The group that holds the emulated groups, and the one above it.
    pub base: Option<(Place, Place)>,
    /// Version 2: the file in which the cpu controller was enabled for it, where it was not before.
    pub enabled_in: Option<PathBuf>,
}

impl Record {
    /// A record of this process that says nothing yet.
    ///
    /// # Errors
    /// It cannot be read when this process began.
    pub(super) fn new() -> io::Result<Self> {
        let pid = std::process::id();
        Ok(Self {
            pid,
            started: started(Path::new(PROC), pid)?.ok_or(io::ErrorKind::NotFound)?,
            base: None,
            enabled_in: None,
        })
    }

    /// Whether the process that wrote it still runs, as far as that can be known: what cannot be read may do.
    pub(super) fn owner_runs(&self) -> bool {
        !started(Path::new(PROC), self.pid).is_ok_and(|began| began != Some(self.started))
    }

    /// Reads a record; nothing where there is no file.
    pub(super) fn load(path: &Path) -> Result<Option<Self>, HardwareError> {
        let fail = |cause| error("read the emulator's undo record", path, cause, REMEDY);
        let text = match fs::metadata(path).and_then(|meta| match meta.len() <= MAX_BYTES {
            true => fs::read_to_string(path),
            false => Err(io::Error::other("it is too long")),
        }) {
            Ok(text) => text,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(cause) => return Err(fail(cause)),
        };
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|cause| fail(io::Error::other(cause)))
    }

    /// Writes it so that a reader, after a crash too, finds either the old or the new one whole.
    pub(super) fn save(&self, path: &Path) -> Result<(), HardwareError> {
        let fail = |cause| {
            error(
                "write the emulator's undo record",
                path,
                cause,
                "give a place that may be written",
            )
        };
        let text = serde_json::to_string_pretty(self).map_err(|cause| fail(io::Error::other(cause)))?;
        let temporary = temporary(path);
        let write = || -> io::Result<()> {
            let mut file = File::create(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, path)
        };
        write().map_err(fail)
    }

    /// Removes the file, and one that was being written: nothing is to be undone any more.
    pub(super) fn remove(path: &Path) -> Result<(), HardwareError> {
        for path in [path, &temporary(path)] {
            match fs::remove_file(path) {
                Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                    return Err(error("remove the emulator's undo record", path, cause, REMEDY));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Where a record is written before it takes the place of the last one.
fn temporary(path: &Path) -> PathBuf {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    temporary.into()
}

fn error(action: &'static str, path: &Path, cause: io::Error, remedy: &'static str) -> HardwareError {
    HardwareError::Io {
        action,
        path: path.to_path_buf(),
        cause,
        remedy,
    }
}

/// When a process began: field 22 of `/proc/PID/stat`, counted after the name, which may hold anything. Nothing where it
/// does not run, or is dead and not yet reaped.
///
/// # Errors
/// It cannot be read, which says nothing of whether the process runs: no file may be opened any more, there is no `/proc`.
fn started(proc_: &Path, pid: u32) -> io::Result<Option<u64>> {
    let stat = match fs::read_to_string(proc_.join(pid.to_string()).join("stat")) {
        Ok(stat) => stat,
        // It ended after the file was opened.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::SRCH) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound && proc_.join("self/stat").exists() => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let state = fields.next();
    if matches!(state, Some("Z" | "X")) {
        return Ok(None);
    }
    let began = fields.nth(18).and_then(|field| field.parse().ok());
    began.map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// What [`recover`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Groups of the emulator that were removed.
    pub removed: Vec<PathBuf>,
    /// Processes that were moved out of them, into the group above.
    pub moved: Vec<u32>,
}

/// Puts back, by hand, what an emulator that was killed left in real control groups: its groups are removed and their processes, which go on running, move to the group above. Nothing
/// is done where there is no record. The next [`super::Emulated::mount`] with the same record does as much, but keeps the
/// groups in which processes still live, without a limit, and takes them over.
///
/// # Errors
/// [`HardwareError`]: the emulator still runs, the record is not understood, or the kernel refuses. The record stays then.
pub fn recover(record: &Path) -> Result<Recovered, HardwareError> {
    let Some(found) = Record::load(record)? else {
        // One may have been killed while it wrote its first.
        Record::remove(record)?;
        return Ok(Recovered::default());
    };
    if found.owner_runs() && found.pid != std::process::id() {
        return Err(HardwareError::StillRuns {
            pid: found.pid,
            path: record.to_path_buf(),
        });
    }
    let recovered = super::real::undo(&found)?;
    Record::remove(record)?;
    Ok(recovered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_knows_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record.json");
        assert_eq!(Record::load(&path).unwrap(), None);
        let mut record = Record::new().unwrap();
        record.save(&path).unwrap();
        assert_eq!(Record::load(&path).unwrap(), Some(record.clone()));
        assert!(record.owner_runs());
        record.started += 1;
        assert!(!record.owner_runs());
        Record::remove(&path).unwrap();
        Record::remove(&path).unwrap();
        assert_eq!(recover(&path).unwrap(), Recovered::default());
    }

    #[test]
    fn a_record_that_is_none_is_an_error_that_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record.json");
        fs::write(&path, "{\"pid\": 1}").unwrap();
        assert!(recover(&path).unwrap_err().to_string().contains("record.json"));
        assert!(path.exists());
    }

    #[test]
    fn a_process_counts_as_dead_only_where_that_is_known() {
        let proc_ = tempfile::tempdir().unwrap();
        let (proc_, own) = (proc_.path(), proc_.path().join("self"));
        fs::create_dir(&own).unwrap();
        assert!(started(proc_, 7).is_err(), "that is no /proc");
        fs::write(own.join("stat"), "").unwrap();
        assert_eq!(started(proc_, 7).unwrap(), None);
        let dir = proc_.join("7");
        fs::create_dir(&dir).unwrap();
        for (stat, began) in [
            (
                "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 8192 1",
                Some(4711),
            ),
            (
                "7 (a) Z 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0",
                None,
            ),
        ] {
            fs::write(dir.join("stat"), stat).unwrap();
            assert_eq!(started(proc_, 7).unwrap(), began, "{stat}");
        }
        fs::write(dir.join("stat"), "7 (a) S 1").unwrap();
        assert!(started(proc_, 7).is_err());
        fs::remove_file(dir.join("stat")).unwrap();
        fs::create_dir(dir.join("stat")).unwrap();
        assert!(started(proc_, 7).is_err(), "it cannot be read");
    }

    #[test]
    fn a_record_that_was_being_written_goes_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record.json");
        for has_record in [false, true] {
            if has_record {
                Record::new().unwrap().save(&path).unwrap();
            }
            fs::write(temporary(&path), "{").unwrap();
            assert_eq!(recover(&path).unwrap(), Recovered::default());
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }
}
