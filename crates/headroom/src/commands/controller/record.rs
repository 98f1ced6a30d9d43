//! What a controller that switches servers leaves on disk: who has them, and that every one is to serve at the end. Where it and its guard are
//! both killed, the next start or `headroom release` finds it and does what they could not.
//!
//! Each configuration has a folder in the run folder, with `lock`, held by whoever has the servers; `guard-RUN`, held by
//! the guards that stand; `servers.json`, the record. The record goes when every server serves. `handed-over.json` stays: which servers an
//! operator has is to be known also to a start behind an orderly end.

use super::amendment::Amendment;
use super::ownership::MAX_LOCK;
use headroom_console::Failure;
use headroom_node::restore::{LedgerError, RunDir};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How the name of each folder begins.
const PREFIX: &str = "servers-";
const RECORD: &str = "servers.json";
const HANDED_OVER: &str = "handed-over.json";
const UNFINISHED: &str = "servers.json.new";
/// Held by whoever has the servers, whose number is in it.
const LOCK: &str = "lock";
/// The most bytes of that number.
const MAX_NUMBER: u64 = 32;
/// How the name of a run's lock of guards begins.
const GUARD: &str = "guard-";
const VERSION: u32 = 1;
/// The time between two tries of a lock.
const AGAIN: Duration = Duration::from_millis(50);

/// A run that is to leave every server serving, and has not yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    version: u32,
    /// The run's own number.
    pub run: u64,
    /// The controller's process.
    pub pid: u32,
    /// The command that it is.
    pub command: String,
    /// The folder in which it was started, from which its configuration names files.
    pub started_in: PathBuf,
    /// Its configuration.
    pub file: PathBuf,
    /// What stood there at the start.
    pub text: String,
    /// What was read of it since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amendment: Option<Amendment>,
}

impl Record {
    /// That of this process.
    ///
    /// # Errors
    /// A folder of this process's that is gone.
    pub fn new(run: u64, command: &str, file: &Path, text: &str) -> io::Result<Self> {
        Ok(Self {
            version: VERSION,
            run,
            pid: std::process::id(),
            command: command.to_owned(),
            started_in: std::env::current_dir()?,
            file: std::path::absolute(file)?,
            text: text.to_owned(),
            amendment: None,
        })
    }
}

/// The folder of one configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place(PathBuf);

impl Place {
    /// That of a file, in a run folder.
    ///
    /// # Errors
    /// A relative name, where this process's own folder is gone.
    pub fn of(run_dir: &Path, file: &Path) -> io::Result<Self> {
        // One file has one name, whatever links lead to it; one that is gone has the name that it is asked for by.
        let file = fs::canonicalize(file).or_else(|_| std::path::absolute(file))?;
        let name = format!("{PREFIX}{:016x}", fnv(file.as_os_str().as_bytes()));
        Ok(Self(run_dir.join(name)))
    }

    /// All that have a record in a run folder.
    pub fn all(run_dir: &Path) -> Vec<Self> {
        let entries = fs::read_dir(run_dir).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_name().as_bytes().starts_with(PREFIX.as_bytes()));
        let mut all: Vec<Self> = folders.map(|entry| Self(entry.path())).collect();
        all.retain(|place| place.0.join(RECORD).exists());
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// Takes the servers for this process, until the result is dropped.
    ///
    /// # Errors
    /// [`LedgerError`]: somebody has them, or the folder is not ours alone.
    pub fn take(&self) -> Result<RunDir, LedgerError> {
        let until = Instant::now() + MAX_LOCK;
        loop {
            match RunDir::take(&self.0) {
                // A guard that has done its work holds it for a moment.
                Err(LedgerError::InUse { .. }) if Instant::now() < until => std::thread::sleep(AGAIN),
                taken => return taken,
            }
        }
    }

    /// Whose the servers are, as it wrote it down; `None` where they are nobody's.
    pub fn holder(&self) -> Option<String> {
        let lock = File::open(self.0.join(LOCK)).ok()?;
        match lock.try_lock_shared() {
            Err(TryLockError::WouldBlock) => {
                let mut owner = String::new();
                let read = lock.take(MAX_NUMBER).read_to_string(&mut owner);
                Some(match read {
                    Ok(_) => owner.trim().to_owned(),
                    Err(_) => "unknown".to_owned(),
                })
            }
            _ => None,
        }
    }

    /// What is recorded; nothing where nothing is left to do.
    ///
    /// # Errors
    /// A record that cannot be read, or that another version wrote.
    pub fn record(&self) -> Result<Option<Record>, Failure> {
        let path = self.0.join(RECORD);
        let read = || -> anyhow::Result<Option<Record>> {
            let text = match fs::read_to_string(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                text => text?,
            };
            let record: Record = serde_json::from_str(&text)?;
            anyhow::ensure!(
                record.version == VERSION,
                "it is of version {}, this is {VERSION}",
                record.version
            );
            Ok(Some(record))
        };
        read().map_err(|error| Failure::usage(unusable(&path, error)))
    }

    /// Whether this run is still the one that has the servers.
    pub fn is_of(&self, run: u64) -> bool {
        self.record()
            .is_ok_and(|found| found.is_some_and(|record| record.run == run))
    }

    /// Records a run, before it switches anything off. The disk has it then: servers that are off outlive a crash of this machine.
    ///
    /// # Errors
    /// What cannot be written.
    pub fn write(&self, record: &Record) -> io::Result<()> {
        let unfinished = self.0.join(UNFINISHED);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&unfinished)?;
        file.write_all(&serde_json::to_vec_pretty(record)?)?;
        file.sync_all()?;
        fs::rename(&unfinished, self.0.join(RECORD))?;
        self.clear(&[RECORD, &guard_of(record.run)])?;
        File::open(&self.0)?.sync_all()
    }

    /// Every server serves, or is somebody else's: nothing is left to do.
    ///
    /// # Errors
    /// What cannot be removed.
    pub fn remove(&self) -> io::Result<()> {
        self.clear(&[])
    }

    /// Removes the records and the guards' locks but these.
    fn clear(&self, but: &[&str]) -> io::Result<()> {
        for entry in fs::read_dir(&self.0)? {
            let name = entry?.file_name();
            let name = name.to_string_lossy();
            let is_ours = [RECORD, UNFINISHED].contains(&&*name) || name.starts_with(GUARD);
            if is_ours && !but.contains(&&*name) {
                match fs::remove_file(self.0.join(&*name)) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// A guard of a run stands from now on, until the result is dropped.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn stand(&self, run: u64) -> io::Result<File> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(self.0.join(guard_of(run)))?;
        file.lock_shared()?;
        Ok(file)
    }

    /// Whether a guard of a run stands.
    pub fn is_guarded(&self, run: u64) -> bool {
        let file = File::open(self.0.join(guard_of(run)));
        file.is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
    }

    /// Where it is kept which servers an operator has.
    pub fn handed_over(&self) -> PathBuf {
        self.0.join(HANDED_OVER)
    }

    /// The folder, for messages.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// What is wrong with a record, and the remedy.
fn unusable(path: &Path, error: anyhow::Error) -> anyhow::Error {
    let path = path.display();
    let cause = error.downcast_ref::<io::Error>().map(io::Error::kind);
    let remedy = match cause == Some(ErrorKind::PermissionDenied) {
        true => format!(
            "{path} is not this user's to read: give --run-dir another folder, or run as the user whose it is"
        ),
        false => {
            format!(
                "{path} cannot be used: see by hand that every server of its configuration is on, and remove it"
            )
        }
    };
    error.context(remedy)
}

fn guard_of(run: u64) -> String {
    format!("{GUARD}{run:016x}")
}

/// FNV-1a of 64 bits: a name that stays the same from version to version.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_the_published_hash() {
        // Vectors of the FNV draft (draft-eastlake-fnv).
        assert_eq!(fnv(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn one_file_has_one_folder_whatever_leads_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = dir.path().join("run");
        let file = dir.path().join("a.toml");
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, dir.path().join("link")).unwrap();
        let of = |name: &str| Place::of(&run_dir, &dir.path().join(name)).unwrap();
        assert_eq!(of("a.toml"), of("link"));
        assert_ne!(of("a.toml"), of("b.toml"));
    }

    #[test]
    fn a_record_is_there_from_its_writing_to_its_removal_and_is_one_runs() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::of(dir.path(), Path::new("/etc/c.toml")).unwrap();
        assert_eq!(place.record().unwrap(), None);
        assert!(Place::all(dir.path()).is_empty());
        let taken = place.take().unwrap();
        let record = Record::new(7, "resize", Path::new("/etc/c.toml"), "[slo]\n").unwrap();
        place.write(&record).unwrap();
        assert_eq!(place.record().unwrap(), Some(record));
        assert_eq!(Place::all(dir.path()), std::slice::from_ref(&place));
        assert!(place.is_of(7) && !place.is_of(8));
        assert!(matches!(place.take(), Err(LedgerError::InUse { .. })));
        assert_eq!(place.holder(), Some(std::process::id().to_string()));
        drop(taken);
        assert_eq!(place.holder(), None);
        assert!(place.take().is_ok());
        place.remove().unwrap();
        place.remove().unwrap();
        assert!(!place.is_of(7) && Place::all(dir.path()).is_empty());
    }

    #[test]
    fn a_guard_stands_as_long_as_one_of_them_lives() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::of(dir.path(), Path::new("/etc/c.toml")).unwrap();
        assert!(!place.is_guarded(7));
        let (first, second) = (place.stand(7).unwrap(), place.stand(7).unwrap());
        drop(first);
        assert!(place.is_guarded(7) && !place.is_guarded(8));
        // One of a run that is not recorded any more stands for nobody, and keeps its lock from no other.
        let _taken = place.take().unwrap();
        let third = place.stand(8).unwrap();
        let record = Record {
            run: 8,
            ..Record::new(7, "resize", Path::new("/etc/c.toml"), "").unwrap()
        };
        place.write(&record).unwrap();
        assert!(place.is_guarded(8) && !place.is_guarded(7));
        drop((second, third));
        assert!(!place.is_guarded(8));
    }

    #[test]
    fn of_a_folder_that_this_user_may_not_read_another_is_wanted_and_not_that_it_be_removed() {
        let said = |error: anyhow::Error| format!("{:#}", unusable(Path::new("/root/x/servers.json"), error));
        let closed = said(io::Error::from(ErrorKind::PermissionDenied).into());
        assert_eq!(
            closed,
            "/root/x/servers.json is not this user's to read: give --run-dir another folder, or run as the user whose it is: permission denied"
        );
        assert!(said(anyhow::anyhow!("no")).ends_with("and remove it: no"));
    }

    #[test]
    fn a_record_of_another_version_is_named_and_not_guessed_at() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::of(dir.path(), Path::new("/etc/c.toml")).unwrap();
        let _taken = place.take().unwrap();
        let mut record = Record::new(7, "resize", Path::new("/etc/c.toml"), "").unwrap();
        record.version = 2;
        place.write(&record).unwrap();
        let why = place.record().unwrap_err().to_string();
        assert!(why.contains("servers.json") && why.contains("by hand"), "{why}");
    }

    #[test]
    fn what_is_read_is_what_was_written() {
        let dir = tempfile::tempdir().unwrap();
        for (run, text) in [
            (0, ""),
            (u64::MAX, "a = \"\u{e9}\\\"\n\t\u{0}\u{1f600}\""),
            (1, "\r\n"),
        ] {
            let file = Path::new("/a b/\u{e9}.toml");
            let place = Place::of(dir.path(), file).unwrap();
            let _taken = place.take().unwrap();
            let record = Record {
                amendment: (run > 0).then(Amendment::default),
                ..Record::new(run, "controller", file, text).unwrap()
            };
            place.write(&record).unwrap();
            assert_eq!(place.record().unwrap(), Some(record));
        }
    }
}
