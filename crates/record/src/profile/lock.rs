//! A profile's file is one measurement's at a time.

use super::file::ProfileError;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Held by who measures into a file. The kernel's lock (flock) is on a file beside it, `NAME.lock`, since the profile is another file each time
/// it is written; it ends with the process, however that ends.
#[derive(Debug)]
pub struct Lock {
    beside: PathBuf,
    /// Locked for as long as it is open.
    _file: File,
}

impl Lock {
    /// Takes it, and makes the file's folder where there is none.
    ///
    /// # Errors
    /// [`ProfileError::Busy`] while another holds it, [`ProfileError::Write`] where the file or its folder cannot be written.
    pub fn of(file: &Path) -> Result<Self, ProfileError> {
        let cannot = |source| ProfileError::Write {
            file: file.to_owned(),
            source,
        };
        if file.is_dir() {
            return Err(cannot(io::ErrorKind::IsADirectory.into()));
        }
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder {
            fs::create_dir_all(folder).map_err(cannot)?;
        }
        let mut beside = file.as_os_str().to_owned();
        beside.push(".lock");
        let beside = PathBuf::from(beside);
        loop {
            let mut how = OpenOptions::new();
            let opened = how.write(true).create(true).truncate(false).open(&beside);
            let opened = opened.map_err(cannot)?;
            match opened.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(ProfileError::Busy {
                        file: file.to_owned(),
                    });
                }
                Err(TryLockError::Error(error)) => return Err(cannot(error)),
            }
            // Its last holder took the file away: a lock on one that is gone keeps nobody out.
            let (own, named) = (opened.metadata().map_err(cannot)?, fs::metadata(&beside));
            if named.is_ok_and(|named| (named.dev(), named.ino()) == (own.dev(), own.ino())) {
                return Ok(Self {
                    beside,
                    _file: opened,
                });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is still locked; one that stays is locked by nobody and does no harm.
        let _ = fs::remove_file(&self.beside);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_one_measurements_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep/web1.json");
        let first = Lock::of(&file).unwrap();
        let other = Lock::of(&folder.path().join("deep/web2.json")).unwrap();
        let why = Lock::of(&file).unwrap_err().to_string();
        assert!(why.contains("web1.json") && why.contains("--out"), "{why}");
        drop(first);
        let again = Lock::of(&file).unwrap();
        drop((again, other));
        let left = fs::read_dir(folder.path().join("deep")).unwrap().count();
        assert_eq!(left, 0, "nothing is left beside it");
    }

    #[test]
    fn one_that_a_killed_program_left_keeps_nobody_out() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("web1.json.lock"), "").unwrap();
        let held = Lock::of(&folder.path().join("web1.json")).unwrap();
        assert!(matches!(
            Lock::of(&folder.path().join("web1.json")),
            Err(ProfileError::Busy { .. })
        ));
        drop(held);
    }

    #[test]
    fn what_cannot_be_written_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let why = Lock::of(folder.path()).unwrap_err().to_string();
        assert!(why.contains("cannot be written"), "{why}");
        fs::write(folder.path().join("plain"), "").unwrap();
        let below = Lock::of(&folder.path().join("plain/web1.json")).unwrap_err();
        assert!(matches!(below, ProfileError::Write { .. }), "{below}");
    }
}
