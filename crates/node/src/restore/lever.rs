//! One owner a lever on a host, whatever the run directory: two programs that each put back what they had found would
//! leave the limits of the other in force, lower each time.
//!
//! The lock is the kernel's own (flock) on the file that sets the lever, opened for reading: it needs no place of its own
//! to be agreed upon, holds in every mount namespace that shows the same file, ends with the process however that ends,
//! and is not passed on by exec. It was tried on control groups of both versions, sysfs, devices, and emulated hardware
//! (FUSE, where the kernel keeps it itself). A `/sys` that was mounted anew in another network or cgroup namespace has
//! files of its own, where the lock does not hold: give a container the host's. There, each sees the other's writes as
//! somebody else's, and leaves them alone.
//!
//! Beside it, a file in a directory of this user says whose the lever is: for the refusal of the next, and because a
//! killed owner's limits may still be in force when the lock is free. So the next owner puts back what is recorded in the
//! run directory of the one before, or waits until its guard has, before it reads what it finds.

use super::ledger::{self, Ledger, LedgerError, RunDir};
use super::undo::Undo;
use super::{Registry, RestoreError};
use crate::{Roots, ours};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a killed owner's guard, or a program that is just starting, is waited for.
const MAX_WAIT: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(20);
/// The longest name of an owner's file; a longer path is shortened and distinguished by a hash.
const MAX_NAME: usize = 200;

/// A lever that is this process's.
#[derive(Debug)]
pub(super) struct Lever {
    path: PathBuf,
    identity: (u64, u64),
    /// Held for its lock.
    _lock: File,
}

/// Whose a lever is, as its file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pid: String,
    run_dir: PathBuf,
}

/// Where this user's programs say which levers are theirs: the same for all, whatever their run directories.
fn owners() -> PathBuf {
    ours::folder().join("levers")
}

fn owner_file(lever: &Path) -> PathBuf {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut name = lever.display().to_string().replace('/', "!");
    if name.len() > MAX_NAME {
        let mut hasher = DefaultHasher::new();
        lever.hash(&mut hasher);
        let end: String = name.chars().rev().take(MAX_NAME / 4).collect();
        name = format!(
            "{:016x}{}",
            hasher.finish(),
            end.chars().rev().collect::<String>()
        );
    }
    owners().join(name)
}

fn read_owner(file: &Path) -> Option<Owner> {
    let text = fs::read_to_string(file).ok()?;
    let (pid, run_dir) = text.trim_end().split_once('\n')?;
    Some(Owner {
        pid: pid.into(),
        run_dir: run_dir.into(),
    })
}

fn write_owner(file: &Path, run_dir: &Path) -> Result<(), LedgerError> {
    let io = |action, path: &Path| {
        let path = path.to_path_buf();
        move |cause| LedgerError::Io { action, path, cause }
    };
    let dir = owners();
    ours::make(&dir, 0o700)?;
    let text = format!("{}\n{}\n", std::process::id(), run_dir.display());
    let beside = file.with_extension(format!("{}.new", std::process::id()));
    let written = ledger::write_new(&beside, text.as_bytes()).and_then(|()| fs::rename(&beside, file));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written.map_err(io("write", file))
}

/// Takes away what says that levers are those of a run directory, which its owner must have.
pub(super) fn disown(run_dir: &Path) {
    let run_dir = absolute(run_dir);
    for entry in fs::read_dir(owners()).into_iter().flatten().flatten() {
        if read_owner(&entry.path()).is_some_and(|owner| owner.run_dir == run_dir) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.into())
}

/// Takes a lever: nothing where it is this process's already.
fn take(levers: &[Lever], path: &Path, ledger: &Ledger) -> Result<Option<Lever>, RestoreError> {
    let fail = |cause| {
        RestoreError::Ledger(LedgerError::Io {
            action: "lock",
            path: path.into(),
            cause,
        })
    };
    let path = path.canonicalize().map_err(fail)?;
    let lock = File::open(&path).map_err(fail)?;
    let about = lock.metadata().map_err(fail)?;
    let identity = (about.dev(), about.ino());
    if levers.iter().any(|lever| lever.identity == identity) {
        return Ok(None);
    }
    let file = owner_file(&path);
    let in_use = |owner| in_use(&path, owner);
    match ledger::take(&lock) {
        Ok(()) => {}
        // Whoever may read the file may lock it: a user who cannot write it owns no lever, and must not keep anybody out.
        Err(rustix::io::Errno::WOULDBLOCK) if are_strangers(&holders(identity.1)) => {
            tracing::warn!(
                "{} is locked by a user who may not limit it: passed over",
                path.display()
            );
        }
        Err(rustix::io::Errno::WOULDBLOCK) => return Err(in_use(read_owner(&file))),
        Err(errno) => return Err(fail(io::Error::from(errno))),
    }
    let ours = absolute(ledger.run_dir());
    if let Some(before) = read_owner(&file).filter(|before| before.run_dir != ours) {
        match settle(&before.run_dir, &path, ledger.roots()) {
            Ok(()) => {}
            Err(LedgerError::InUse { .. }) => return Err(in_use(Some(before))),
            Err(error) => return Err(error.into()),
        }
    }
    write_owner(&file, &ours)?;
    Ok(Some(Lever {
        path,
        identity,
        _lock: lock,
    }))
}

fn in_use(lever: &Path, owner: Option<Owner>) -> RestoreError {
    RestoreError::InUse {
        lever: lever.into(),
        owner: owner.map_or_else(
            || "another process (see `lslocks`)".into(),
            |owner| format!("pid {}, run directory {}", owner.pid, owner.run_dir.display()),
        ),
    }
}

/// Whether [`take`] would be refused for an owner with another run directory. Changes nothing: the lock is let go at once.
fn ask(path: &Path, run_dir: &Path) -> Result<(), RestoreError> {
    let fail = |cause| {
        RestoreError::Ledger(LedgerError::Io {
            action: "lock",
            path: path.into(),
            cause,
        })
    };
    let path = path.canonicalize().map_err(fail)?;
    let lock = File::open(&path).map_err(fail)?;
    match ledger::take(&lock) {
        // A child between fork and exec shares the lock, which closing alone would leave to it.
        Ok(()) => rustix::fs::flock(&lock, rustix::fs::FlockOperation::Unlock)
            .map_err(|errno| fail(io::Error::from(errno))),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let inode = lock.metadata().map_err(fail)?.ino();
            match read_owner(&owner_file(&path)) {
                _ if are_strangers(&holders(inode)) => Ok(()),
                // That it runs is another question.
                Some(owner) if owner.run_dir == absolute(run_dir) => Ok(()),
                owner => Err(in_use(&path, owner)),
            }
        }
        Err(errno) => Err(fail(io::Error::from(errno))),
    }
}

/// The users of the processes that hold a lock on a file with this inode (proc_locks(5)); `None` for one that is not to be
/// found, as in another PID namespace.
fn holders(inode: u64) -> Vec<Option<u32>> {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    pids_on(&locks, inode)
        .map(|pid| {
            let about = fs::metadata(format!("/proc/{pid}")).ok()?;
            Some(about.uid())
        })
        .collect()
}

/// The processes that hold a lock of flock's on a file with this inode, and wait for none.
fn pids_on(locks: &str, inode: u64) -> impl Iterator<Item = &str> {
    locks.lines().filter_map(move |line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, file, ..] = fields[..] else {
            return None;
        };
        let number: u64 = file.rsplit_once(':')?.1.parse().ok()?;
        (number == inode).then_some(pid)
    })
}

/// Whether all of them are known to be neither root nor this user.
fn are_strangers(holders: &[Option<u32>]) -> bool {
    let own = rustix::process::geteuid().as_raw();
    !holders.is_empty()
        && holders
            .iter()
            .all(|user| user.is_some_and(|user| user != 0 && user != own))
}

/// Puts back what the owner before left on a lever, or waits for whoever does.
fn settle(run_dir: &Path, lever: &Path, roots: &Roots) -> Result<(), LedgerError> {
    let until = Instant::now() + MAX_WAIT;
    let touches = |undo: &Undo| {
        let mut paths = undo.touches().into_iter();
        paths.any(|path| path.canonicalize().is_ok_and(|path| path == lever))
    };
    loop {
        if !ledger::records(run_dir, roots)?.iter().any(touches) {
            return Ok(());
        }
        match RunDir::take(run_dir).and_then(|taken| taken.ledger(roots)) {
            Ok((_, report)) => {
                for outcome in &report.outcomes {
                    tracing::warn!("left by a run that was killed: {outcome}");
                }
                return Ok(());
            }
            Err(LedgerError::InUse { .. }) if Instant::now() < until => std::thread::sleep(AGAIN),
            Err(error) => return Err(error),
        }
    }
}

impl Registry {
    /// Makes a lever this process's, until it ends: the file that sets it. Nothing is done where no ledger is attached,
    /// as nothing is written for long then (tests), but that it is asked for after [`Registry::only_ask`].
    ///
    /// # Errors
    /// [`RestoreError::InUse`]: it is another's. [`RestoreError::Ledger`]: what the owner before left cannot be put back.
    pub(crate) fn claim(&self, path: &Path) -> Result<(), RestoreError> {
        let mut inner = self.lock();
        let Some(ledger) = &inner.ledger else {
            let asked = inner.asks_for.as_ref().map(|run_dir| ask(path, run_dir));
            return match asked {
                Some(Err(error @ RestoreError::InUse { .. })) => {
                    inner.refused.push(error);
                    Ok(())
                }
                asked => asked.unwrap_or(Ok(())),
            };
        };
        let taken = take(&inner.levers, path, ledger)?;
        // A group that was removed and made anew is another lever at the same path.
        if let Some(lever) = taken {
            inner.levers.retain(|known| known.path != lever.path);
            inner.levers.push(lever);
        }
        Ok(())
    }

    /// From now on no lever is taken: for a `--check`, which attaches no ledger. Where a start with this run directory would be refused
    /// one, that is kept for [`Registry::refused`] and all else is looked at too.
    pub fn only_ask(&self, run_dir: &Path) {
        self.lock().asks_for = Some(run_dir.into());
    }

    /// The levers that were asked for since the last call and are another's ([`RestoreError::InUse`]), after [`Registry::only_ask`].
    pub fn refused(&self) -> Vec<RestoreError> {
        std::mem::take(&mut self.lock().refused)
    }

    /// Whether there is one that [`Registry::refused`] would return.
    pub fn is_refused(&self) -> bool {
        !self.lock().refused.is_empty()
    }

    /// Says no longer that the levers are this process's: at its end, when everything is put back.
    pub fn disown(&self) {
        if let Some(ledger) = &self.lock().ledger {
            disown(ledger.run_dir());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_a_lock_is_read_and_who_waits_is_not() {
        let locks = "1: FLOCK  ADVISORY  WRITE 812 00:1f:4711 0 EOF\n\
                     1: -> FLOCK  ADVISORY  WRITE 813 00:1f:4711 0 EOF\n\
                     2: POSIX  ADVISORY  READ 900 00:1f:4711 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 814 00:1f:4712 0 EOF\n";
        assert_eq!(pids_on(locks, 4711).collect::<Vec<_>>(), ["812"]);
        let own = rustix::process::geteuid().as_raw();
        assert!(!are_strangers(&[]), "nobody is known");
        assert!(!are_strangers(&[None]));
        assert!(!are_strangers(&[Some(0)]));
        assert!(!are_strangers(&[Some(own), Some(65_534)]));
        assert!(are_strangers(&[Some(65_533)]));
    }
}
