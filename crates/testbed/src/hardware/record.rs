//! The undo record: what an emulator changes in real control groups is written down before it is changed, so that a
//! successor, or [`recover`], can put it back after kill -9.

use super::error::HardwareError;
use super::place::{CpuLimit, Place};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A record longer than this is none of ours.
const LONGEST_BYTES: u64 = 1 << 20;
const REMEDY: &str = "look what it says, undo that by hand, and remove it";

/// A limit of somebody else's group, as it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Found {
    /// The group.
    pub place: Place,
    /// Its limit.
    pub limit: CpuLimit,
}

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
    /// Limits of groups that were attached.
    pub found: Vec<Found>,
}

impl Record {
    /// A record of this process that says nothing yet.
    pub(super) fn new() -> Self {
        let pid = std::process::id();
        Self {
            pid,
            started: started(pid).unwrap_or(0),
            base: None,
            enabled_in: None,
            found: Vec::new(),
        }
    }

    /// Whether the process that wrote it still runs.
    pub(super) fn owner_runs(&self) -> bool {
        started(self.pid).is_some_and(|started| started == self.started)
    }

    /// Reads a record; nothing where there is no file.
    pub(super) fn load(path: &Path) -> Result<Option<Self>, HardwareError> {
        let fail = |cause| error("read", path, cause, REMEDY);
        let text = match fs::metadata(path).and_then(|meta| match meta.len() <= LONGEST_BYTES {
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
        let fail = |cause| error("write", path, cause, "give a place that may be written");
        let text = serde_json::to_string_pretty(self).map_err(|cause| fail(io::Error::other(cause)))?;
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let write = || -> io::Result<()> {
            let mut file = File::create(&beside)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&beside, path)
        };
        write().map_err(fail)
    }

    /// Removes the file: nothing is to be undone any more.
    pub(super) fn remove(path: &Path) -> Result<(), HardwareError> {
        match fs::remove_file(path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                Err(error("remove", path, cause, REMEDY))
            }
            _ => Ok(()),
        }
    }
}

fn error(action: &'static str, path: &Path, cause: io::Error, remedy: &'static str) -> HardwareError {
    HardwareError::Record {
        action,
        path: path.to_path_buf(),
        cause,
        remedy,
    }
}

/// When a process began: field 22 of `/proc/PID/stat`, counted after the name, which may hold anything. Nothing where it
/// does not run, or is dead and not yet reaped.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Whether nobody comes back any more for what an undo record tells of: the emulator that wrote it is dead, and so is its
/// `keeper`, the process that would start it again. The keeper began before its emulator, so a process of the keeper's
/// number that began later is another one. Where there is no record (none yet, or none any more) the keeper alone counts.
///
/// # Errors
/// [`HardwareError::Record`]: the record is not understood.
pub fn is_abandoned(record: &Path, keeper: u32) -> Result<bool, HardwareError> {
    // The keeper first: once it is dead, nobody writes another record.
    let keeper = started(keeper);
    let Some(record) = Record::load(record)? else {
        return Ok(keeper.is_none());
    };
    Ok(!record.owner_runs() && keeper.is_none_or(|began| began > record.started))
}

/// What [`recover`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Groups whose limit is as it was found.
    pub restored: Vec<PathBuf>,
    /// Groups of the emulator that were removed.
    pub removed: Vec<PathBuf>,
    /// Processes that were moved out of them, into the group above.
    pub moved: Vec<u32>,
}

/// Puts back, by hand, what an emulator that was killed left in real control groups: limits of attached groups are as
/// they were found; groups of its own are removed and their processes, which go on running, move to the group above. Nothing
/// is done where there is no record. The next [`super::Emulated::mount`] with the same record does as much, but keeps the
/// groups in which processes still live, without a limit, and takes them over.
///
/// # Errors
/// [`HardwareError`]: the emulator still runs, the record is not understood, or the kernel refuses. The record stays then.
pub fn recover(record: &Path) -> Result<Recovered, HardwareError> {
    let Some(found) = Record::load(record)? else {
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
        let mut record = Record::new();
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
    fn what_a_living_keeper_or_emulator_made_is_not_abandoned() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record.json");
        let (living, dead) = (std::process::id(), u32::MAX);
        let began = started(living).unwrap();
        let abandoned = |keeper: u32| is_abandoned(&path, keeper).unwrap();
        // No record: a keeper that is just starting its emulator, or one that died.
        assert!(!abandoned(living) && abandoned(dead));
        let mut record = Record::new();
        record.save(&path).unwrap();
        assert!(!abandoned(living) && !abandoned(dead), "its emulator runs");
        // The emulator's number has gone to another process, which began later or earlier.
        for other in [began + 1, began - 1] {
            record.started = other;
            record.save(&path).unwrap();
            assert!(abandoned(dead));
        }
        assert!(
            abandoned(living),
            "a process that began after the emulator did not start it"
        );
        record.pid = dead;
        record.started = began + 1;
        record.save(&path).unwrap();
        assert!(!abandoned(living), "a keeper starts an emulator that died again");
        fs::write(&path, "{").unwrap();
        assert!(is_abandoned(&path, dead).is_err());
    }

    #[test]
    fn a_process_that_does_not_run_has_no_beginning() {
        assert_eq!(started(u32::MAX), None);
        assert!(started(std::process::id()).is_some());
    }
}
