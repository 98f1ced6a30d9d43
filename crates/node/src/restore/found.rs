//! What a run directory is found to be, before anybody takes it.

use super::ledger::{FILE, LOCK, LedgerError, UNFINISHED, take};
use crate::ours;
use rustix::fs::FlockOperation;
use std::fs::{self, DirBuilder, File};
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Whether a run directory has a record of something that is to be put back. It may be that of a running process.
pub fn is_recorded(dir: &Path) -> bool {
    dir.join(FILE).exists()
}

/// Whether a run directory has a record that its owner had not finished writing. It was killed before it wrote what that
/// says: nothing is to be put back for it, but the file is a leftover, which the next who takes the directory removes.
pub fn is_unfinished(dir: &Path) -> bool {
    dir.join(UNFINISHED).exists()
}

/// What a run directory says before anything is done with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing is to be put back.
    Nothing,
    /// A running process keeps it; its process number, as it wrote it down.
    OfRunning(String),
    /// A process that was killed left something in force.
    OfKilled,
}

/// Looks at a run directory and changes nothing.
pub fn left(dir: &Path) -> Left {
    let lock = dir.join(LOCK);
    let Ok(mut owner) = File::open(&lock) else {
        return match is_recorded(dir) {
            true => Left::OfKilled,
            false => Left::Nothing,
        };
    };
    if take(&owner) == Err(rustix::io::Errno::WOULDBLOCK) {
        let mut pid = String::new();
        let _ = (&mut owner).take(32).read_to_string(&mut pid);
        return Left::OfRunning(pid.trim().into());
    }
    // As when a directory is given back: a child between fork and exec shares the lock.
    let _ = rustix::fs::flock(&owner, FlockOperation::Unlock);
    match is_recorded(dir) {
        true => Left::OfKilled,
        false => Left::Nothing,
    }
}

/// Whether [`super::RunDir::take`] would refuse a run directory for what it is; that it is in use is no such thing. Leaves nothing behind:
/// directories that are missing are made and removed again, since no other question is answered alike by every file system.
///
/// # Errors
/// [`LedgerError`]: it is none, cannot be made or written, or is not ours.
pub fn usable(dir: &Path) -> Result<(), LedgerError> {
    let made = |path: &Path| {
        let made = DirBuilder::new().mode(0o700).create(path);
        made.map_err(|cause| LedgerError::Io {
            action: "make",
            path: path.to_path_buf(),
            cause,
        })
    };
    if dir.exists() {
        // What is no directory is refused as the start refuses it.
        let there = DirBuilder::new().recursive(true).create(dir);
        there.map_err(|cause| LedgerError::Io {
            action: "make",
            path: dir.to_path_buf(),
            cause,
        })?;
        ours::check(dir)?;
        // Where the lock is there already, nothing is to be made: the disk may be read-only.
        return match dir.join(LOCK).exists() {
            true => Ok(()),
            false => {
                let trial = dir.join(format!(".check-{}", std::process::id()));
                let answer = made(&trial);
                let _ = fs::remove_dir(&trial);
                answer
            }
        };
    }
    let mut missing: Vec<&Path> = dir.ancestors().take_while(|folder| !folder.exists()).collect();
    // The one above a relative path.
    missing.retain(|folder| !folder.as_os_str().is_empty());
    let answer = missing.iter().rev().try_for_each(|folder| made(folder));
    for folder in missing {
        // One that another process has meanwhile put something into stays: only an empty one can be removed.
        let _ = fs::remove_dir(folder);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_made_or_written_is_refused_before_the_start_and_nothing_is_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        usable(&dir.path().join("a/b/c")).unwrap();
        usable(dir.path()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        for none in ["/proc/xx/run", "/proc/xx", "/proc/self/fd"] {
            let error = usable(Path::new(none)).unwrap_err().to_string();
            assert!(error.contains("cannot make /proc/"), "{error}");
        }
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(usable(&file).is_err() && usable(&file.join("run")).is_err());
    }
}
