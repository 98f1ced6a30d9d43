//! The region of a server that somebody else started: found, checked, and commanded by one program at a time.

use super::{RegionError, Steering, mapped};
use crate::layout::{MAGIC, Region};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why a region that is said to be there cannot be commanded.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// It cannot be opened or mapped.
    #[error("{path}: the region of a wrapped server cannot be opened: {source}: start the server with `headroom wrap --steered`, as the user who attaches", path = path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It is something else.
    #[error("{path}: is no file, and so no region of a wrapped server: give the name of one that `headroom wrap --list` shows", path = path.display())]
    NoFile {
        /// What is there.
        path: PathBuf,
    },
    /// Whoever made it could make its readers wait.
    #[error("{path}: belongs to user {owner}, and is used by its owner alone, which here would be {own}: run both, `headroom wrap` and who attaches to it, as one user", path = path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its user's number.
        owner: u32,
        /// Ours.
        own: u32,
    },
    /// Others could change it.
    #[error("{path}: its mode is {mode:03o}, so that others than its owner may use it: chmod 600 it, or start the server again", path = path.display())]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It is of another layout.
    #[error("{path}: has {bytes} bytes, and a region of this version has {wanted}: start the server again with the `headroom wrap` of this version", path = path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
        /// A region's.
        wanted: u64,
    },
    /// It is of another version, or is being made.
    #[error("{path}: begins with {found:?}, and a region of this version with {:?}: start the server again with the `headroom wrap` of this version", name(MAGIC), path = path.display())]
    Magic {
        /// The file.
        path: PathBuf,
        /// What it begins with.
        found: String,
    },
    /// Somebody commands it.
    #[error("{path}: is commanded by another program ({by}) already: stop that first, for a server has one commander at a time", path = path.display(), by = words(*pid))]
    Commanded {
        /// The file.
        path: PathBuf,
        /// Who does, where that is told.
        pid: Option<u32>,
    },
}

fn words(pid: Option<u32>) -> String {
    pid.map_or_else(|| "of an unknown pid".to_owned(), |pid| format!("pid {pid}"))
}

fn name(magic: u64) -> String {
    String::from_utf8_lossy(&magic.to_le_bytes()).into_owned()
}

/// Milliseconds within which whoever only looks has gone.
const LOOKERS: u32 = 20;

/// The lock beside a region that its commander holds. The kernel lets it go with the process, however that ends.
pub(super) fn lock_beside(region: &Path) -> PathBuf {
    let mut path = region.as_os_str().to_owned();
    path.push(".commander");
    path.into()
}

fn opened(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    Ok(open(path, flags, Mode::from_raw_mode(0o600))?.into())
}

/// The region's file, if it is one that may be used.
fn checked(path: &Path) -> Result<File, AttachError> {
    let path = || path.to_owned();
    let cannot = |source| AttachError::Open { path: path(), source };
    let file = match opened(&path(), OFlags::empty()) {
        // What a link or a folder answers.
        Err(error)
            if matches!(
                Errno::from_io_error(&error),
                Some(Errno::LOOP | Errno::ISDIR | Errno::NXIO)
            ) =>
        {
            return Err(AttachError::NoFile { path: path() });
        }
        opened => opened.map_err(cannot)?,
    };
    let about = file.metadata().map_err(cannot)?;
    if !about.is_file() {
        return Err(AttachError::NoFile { path: path() });
    }
    let (owner, own) = (about.uid(), rustix::process::geteuid().as_raw());
    // Also root's: the lock in a region links to memory of whoever holds it, and to follow another user's links is to trust that user.
    if owner != own {
        return Err(AttachError::Owner {
            path: path(),
            owner,
            own,
        });
    }
    let mode = about.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(AttachError::Mode { path: path(), mode });
    }
    let wanted = size_of::<Region>() as u64;
    if about.len() != wanted {
        return Err(AttachError::Size {
            path: path(),
            bytes: about.len(),
            wanted,
        });
    }
    let mut magic = [0; size_of::<u64>()];
    file.read_exact_at(&mut magic, 0).map_err(cannot)?;
    // The first field, whichever the order of the others.
    match u64::from_le_bytes(magic) {
        MAGIC => Ok(file),
        found => Err(AttachError::Magic {
            path: path(),
            found: name(found),
        }),
    }
}

/// Takes the lock and writes who has it; else says who does.
fn lock(region: &Path) -> Result<File, AttachError> {
    // Whoever looks whether there is a commander has it for a moment.
    let mut tries = 0;
    let mut file = loop {
        match locked(region, FlockOperation::NonBlockingLockExclusive) {
            Err(AttachError::Commanded { .. }) if tries < LOOKERS => tries += 1,
            done => break done?,
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let mut write = || {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    };
    write().map_err(|source| AttachError::Open {
        path: lock_beside(region),
        source,
    })?;
    Ok(file)
}

/// The lock's file, locked in this way; else who has it.
fn locked(region: &Path, how: FlockOperation) -> Result<File, AttachError> {
    let path = lock_beside(region);
    let cannot = |source| AttachError::Open {
        path: path.clone(),
        source,
    };
    let mut file = opened(&path, OFlags::CREATE).map_err(cannot)?;
    match flock(&file, how) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => {
            let mut text = String::new();
            let pid = file.read_to_string(&mut text).ok();
            Err(AttachError::Commanded {
                path: region.to_owned(),
                pid: pid.and_then(|_| text.trim().parse().ok()),
            })
        }
        Err(errno) => Err(cannot(errno.into())),
    }
}

impl Steering {
    /// The region of a server that another program started, which is commanded through this value from now on. With it the workers are
    /// let go; the region stays, for it is of who made it.
    ///
    /// # Errors
    /// [`AttachError`]: it is not there, not ours, of another version, or somebody commands it.
    pub fn attach(path: &Path) -> Result<Self, AttachError> {
        let file = checked(path)?;
        let commander = lock(path)?;
        let region = mapped(&file).map_err(|source| AttachError::Open {
            path: path.to_owned(),
            source,
        })?;
        let steering = Self {
            path: path.to_owned(),
            region,
            is_own: false,
            trusts: !rustix::process::geteuid().is_root(),
            _commander: Some(commander),
        };
        // Of one that was killed.
        steering.take_turns_back();
        Ok(steering)
    }

    /// As [`Self::create`], for another program to command: until one does, everybody runs.
    ///
    /// # Errors
    /// As there.
    pub fn create_for_others(path: &Path) -> Result<Self, RegionError> {
        Self::make(path, false)
    }

    /// Who commands the server of a region that could be attached to; `None` where nobody does.
    ///
    /// # Errors
    /// [`AttachError`], but for [`AttachError::Commanded`] by somebody whose number is told.
    pub fn commander_of(path: &Path) -> Result<Option<u32>, AttachError> {
        checked(path)?;
        match locked(path, FlockOperation::NonBlockingLockShared) {
            Ok(_) => Ok(None),
            Err(AttachError::Commanded { pid: Some(pid), .. }) => Ok(Some(pid)),
            Err(error) => Err(error),
        }
    }
}

/// The lock, taken by who makes a region of its own.
pub(super) fn lock_own(region: &Path) -> io::Result<File> {
    lock(region).map_err(|error| match error {
        AttachError::Open { source, .. } => source,
        other => io::Error::other(other.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::COMMON;
    use crate::{Levers, Totals, Turns};
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::atomic::Ordering::Relaxed;

    fn refused(path: &Path, parts: &[&str]) {
        let error = Steering::attach(path).unwrap_err().to_string();
        for part in parts
            .iter()
            .copied()
            .chain([path.file_name().unwrap().to_str().unwrap()])
        {
            assert!(error.contains(part), "without {part:?}: {error}");
        }
    }

    #[test]
    fn what_one_commands_of_a_region_that_is_there_the_other_sees() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("region");
        let of_wrap = Steering::create_for_others(&path).unwrap();
        assert_eq!(Steering::commander_of(&path).unwrap(), None);
        let attached = Steering::attach(&path).unwrap();
        let levers = Levers {
            enabled: true,
            concurrency: 3,
            batch: 2,
            ..Levers::default()
        };
        attached.command(levers, Some(Duration::from_secs(5)));
        assert_eq!(of_wrap.commanded(), levers);
        let Totals { owner, queries, .. } = attached.totals();
        assert_eq!((owner, queries), (0, 0));
        // With whoever commands it everybody is let go, and the region is there for the next.
        drop(attached);
        assert!(!of_wrap.commanded().enabled && path.exists());
        drop(Steering::attach(&path).unwrap());
        drop(of_wrap);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        refused(&path, &["No such file", "wrap --steered"]);
    }

    #[test]
    fn what_a_killed_one_gave_to_connections_ends_with_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("region");
        let of_wrap = Steering::create_for_others(&path).unwrap();
        let first = Steering::attach(&path).unwrap();
        let connection = &first.region().connections[3];
        connection.generation.store(1, Relaxed);
        let turns = Turns {
            batch: Some(0),
            yields: true,
            rests: true,
            pause: Duration::from_millis(20),
        };
        first.give((3, 1), turns);
        let given = || {
            let of = &of_wrap.region().connections[3];
            (
                of.quota.load(Relaxed),
                of.yields.load(Relaxed),
                of.rests.load(Relaxed),
                of.pause_ns.load(Relaxed),
            )
        };
        assert_eq!(given(), (0, 1, 1, 20_000_000));
        // Killed: its lock is free, and nothing of it was done at its end.
        let region = first.region;
        let commander = std::mem::ManuallyDrop::new(first);
        let lock = commander._commander.as_ref().unwrap();
        flock(lock, FlockOperation::Unlock).unwrap();
        let next = Steering::attach(&path).unwrap();
        assert_eq!(given(), (COMMON, 0, 0, 0));
        next.give((3, 1), turns);
        drop(next);
        assert_eq!(given(), (COMMON, 0, 0, 0));
        super::super::shrunk::forget(region.as_ptr());
    }

    #[test]
    fn a_region_has_all_of_its_pages_before_anybody_touches_them() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("region");
        let _region = Steering::create(&path).unwrap();
        let about = fs::metadata(&path).unwrap();
        assert!(about.blocks() * 512 >= about.len(), "{} blocks", about.blocks());
        // Where it can be done by a write alone.
        let other = File::create(folder.path().join("other")).unwrap();
        super::super::allocate(&other, 10_000).unwrap();
        assert_eq!(other.metadata().unwrap().len(), 10_000);
    }

    #[test]
    fn there_is_one_commander_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("region");
        let own = Steering::create(&path).unwrap();
        let pid = std::process::id();
        refused(&path, &[&format!("pid {pid}"), "stop that first"]);
        assert_eq!(Steering::commander_of(&path).unwrap(), Some(pid));
        drop(own);
        let _of_wrap = Steering::create_for_others(&path).unwrap();
        let first = Steering::attach(&path).unwrap();
        refused(&path, &[&format!("pid {pid}")]);
        drop(first);
        assert_eq!(Steering::commander_of(&path).unwrap(), None);
    }

    #[test]
    fn what_is_no_region_of_ours_is_refused_with_what_is_wrong_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("region");
        let region = Steering::create_for_others(&path).unwrap();
        let mode = |mode| fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        mode(0o640);
        refused(&path, &["640", "chmod 600"]);
        mode(0o600);
        let (link, other) = (folder.path().join("link"), folder.path().join("folder"));
        symlink(&path, &link).unwrap();
        fs::create_dir(&other).unwrap();
        refused(&link, &["is no file"]);
        refused(&other, &["is no file"]);
        let short = folder.path().join("short");
        fs::write(&short, MAGIC.to_le_bytes()).unwrap();
        fs::set_permissions(&short, Permissions::from_mode(0o600)).unwrap();
        refused(&short, &["has 8 bytes", "this version"]);
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(b"hdrmonc1", 0).unwrap();
        let own = String::from_utf8(MAGIC.to_le_bytes().to_vec()).unwrap();
        refused(&path, &["\"hdrmonc1\"", &format!("{own:?}")]);
        file.write_all_at(own.as_bytes(), 0).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            refused(&path, &["user 65534", "as one user"]);
        } else {
            println!("skipped: a region of another user needs root");
        }
        drop(region);
    }
}
