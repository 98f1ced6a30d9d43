//! The folder of one wrapped server in the run folder: its library and its region.

use super::server::StartError;
use headroom_node::ours;
use headroom_oncall::LIBRARY;
use rustix::fs::{FlockOperation, StatVfsMountFlags, flock, statvfs};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The library's file in it.
pub const LIBRARY_FILE: &str = "libheadroom_oncall.so";
/// The region's file in it.
pub const REGION_FILE: &str = "region";
/// The file that whoever made it has locked for as long as it lives: a number says nothing of a process in another PID namespace.
const LOCK_FILE: &str = "lock";
/// How the name of each begins.
const PREFIX: &str = "oncall-";
/// Processes of one number in one run folder, each in a PID namespace of its own, at most.
pub(super) const SAME_NUMBER: u32 = 1_000;
/// One without its lock is being made, unless it is as old as this.
const BEING_MADE: Duration = Duration::from_secs(10);

/// The folder, removed with this value.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Makes it, with the library. Whoever the server runs as must be able to read that.
    ///
    /// # Errors
    /// [`StartError::Folder`], [`StartError::NotOurs`], [`StartError::Separator`], [`StartError::NoExec`].
    pub fn make(run_dir: &Path) -> Result<Self, StartError> {
        let named = |more: &str| run_dir.join(format!("{PREFIX}{}{more}", std::process::id()));
        // The loader separates libraries by both.
        if named("")
            .as_os_str()
            .as_encoded_bytes()
            .iter()
            .any(|byte| b" :".contains(byte))
        {
            return Err(StartError::Separator { path: named("") });
        }
        // A server of root's may be executed as another user, who must find the library; another user's server cannot.
        let mode = match rustix::process::geteuid().is_root() {
            true => 0o755,
            false => 0o700,
        };
        ours::make(run_dir, mode)?;
        sweep(run_dir);
        let names = std::iter::once(String::new()).chain((1..SAME_NUMBER).map(|number| format!("-{number}")));
        let mut made = Err(io::Error::from(io::ErrorKind::AlreadyExists));
        let mut path = named("");
        for name in names {
            path = named(&name);
            made = fs::DirBuilder::new().mode(0o755).create(&path);
            if !matches!(&made, Err(error) if error.kind() == io::ErrorKind::AlreadyExists) {
                break;
            }
        }
        let failed = |source: io::Error| StartError::Folder {
            path: path.clone(),
            source,
        };
        made.map_err(failed)?;
        let lock = match locked(&path) {
            Ok(lock) => lock,
            Err(source) => {
                let _ = fs::remove_dir_all(&path);
                return Err(failed(source));
            }
        };
        // Whatever becomes of it from now on, nothing of it is left.
        let folder = Self {
            path: path.clone(),
            _lock: lock,
        };
        let fill = || {
            fs::set_permissions(&path, Permissions::from_mode(0o755))?;
            let library = path.join(LIBRARY_FILE);
            fs::write(&library, LIBRARY)?;
            // Whoever the server is executed as loads it, whatever our own mask says.
            fs::set_permissions(&library, Permissions::from_mode(0o644))?;
            Ok(statvfs(&path)?)
        };
        let at = fill().map_err(failed)?;
        match at.f_flag.contains(StatVfsMountFlags::NOEXEC) {
            true => Err(StartError::NoExec { path }),
            false => Ok(folder),
        }
    }

    /// Where the region is to be.
    pub fn region(&self) -> PathBuf {
        self.path.join(REGION_FILE)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Takes a folder's lock, which nobody can have yet.
fn locked(folder: &Path) -> io::Result<File> {
    // Under its name it is locked from the beginning.
    let unlocked = folder.join("unlocked");
    let lock = File::create_new(&unlocked)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    fs::rename(unlocked, folder.join(LOCK_FILE))?;
    Ok(lock)
}

/// Whether whoever made a file that it keeps locked has ended; `None` where that cannot be seen.
pub(super) fn is_left(file: &Path) -> Option<bool> {
    let file = File::open(file).ok()?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Some(true),
        Err(Errno::WOULDBLOCK) => Some(false),
        Err(_) => None,
    }
}

/// Whether the process of a folder's name runs, as far as its number says.
fn is_running(name: &OsStr) -> bool {
    let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    number.is_some_and(|number| Path::new("/proc").join(number).exists())
}

/// Takes away the folders of those that were killed, and says which. A server of theirs that still runs has what it needs of them mapped.
pub fn sweep(run_dir: &Path) -> Vec<PathBuf> {
    let mut gone = Vec::new();
    for entry in fs::read_dir(run_dir).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let is_one = name.to_str().is_some_and(|name| name.starts_with(PREFIX));
        let is_dead = || match path.join(LOCK_FILE).exists() {
            true => is_left(&path.join(LOCK_FILE)) == Some(true),
            // Of an older version, or being made.
            false => {
                let made = entry.metadata().and_then(|about| about.modified());
                let is_old = |at| {
                    SystemTime::now()
                        .duration_since(at)
                        .is_ok_and(|age| age > BEING_MADE)
                };
                made.is_ok_and(is_old) && !is_running(&name)
            }
        };
        if is_one && is_dead() && fs::remove_dir_all(&path).is_ok() {
            gone.push(path);
        }
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folders_of_the_living_stay_whatever_their_number_and_those_of_the_dead_go() {
        let run_dir = tempfile::tempdir().unwrap();
        let first = Folder::make(run_dir.path()).unwrap();
        // One of the same number, as in another PID namespace.
        let second = Folder::make(run_dir.path()).unwrap();
        assert_ne!(first.path(), second.path());
        assert!(first.path().join(LIBRARY_FILE).exists() && second.path().join(LIBRARY_FILE).exists());
        // Of a number that no process has here.
        let elsewhere = run_dir.path().join("oncall-4194304");
        fs::create_dir(&elsewhere).unwrap();
        let lock = locked(&elsewhere).unwrap();
        let being_made = run_dir.path().join("oncall-4194305");
        fs::create_dir(&being_made).unwrap();
        assert_eq!(sweep(run_dir.path()), [""; 0].map(PathBuf::from));
        drop(lock);
        assert_eq!(sweep(run_dir.path()), [elsewhere]);
        drop((first, second));
        let left = fs::read_dir(run_dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().path());
        assert_eq!(left.collect::<Vec<_>>(), [being_made]);
    }

    #[test]
    fn what_is_refused_is_left_as_it_was() {
        let run_dir = tempfile::tempdir().unwrap();
        let spaced = run_dir.path().join("a b");
        let there = spaced.join(format!("oncall-{}", std::process::id()));
        fs::create_dir_all(&there).unwrap();
        let error = Folder::make(&spaced).unwrap_err();
        assert!(matches!(error, StartError::Separator { .. }), "{error}");
        assert!(there.exists());
    }
}
