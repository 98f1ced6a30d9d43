//! The undo records in a file, so that they outlive the process.
//!
//! The file is replaced atomically (written beside, then renamed) before each change to the machine, and removed
//! when nothing is left to undo. It is not synced to the disk: what it undoes does not survive a crash of the machine
//! either. A lock on the run directory, which the kernel drops with the process, tells a dead owner from a live one.

use super::undo::{Outcome, Undo};
use super::{RestoreReport, lever};
use crate::cgroup::Hierarchies;
use crate::ours::{self, NotOurs};
use crate::tool::is_device_file;
use crate::{Roots, file};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(super) const FILE: &str = "undo.json";
/// The record while it is written, which replaces the other when it is whole.
pub(super) const UNFINISHED: &str = "undo.json.new";
pub(super) const LOCK: &str = "lock";
const VERSION: u32 = 1;
/// Larger than any ledger of [`super::MAX_RECORDS`] records that we write.
const MAX_BYTES: u64 = 16 << 20;

/// A state file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The directory or a file in it could not be used.
    #[error("cannot {action} {path}: {cause}; give --run-dir a directory that this user may write", path = path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The answer.
        cause: io::Error,
    },
    /// A running process owns it.
    #[error(
        "{dir} is in use by a running headroom (pid {owner}): stop that one, or give this one another run directory",
        dir = dir.display()
    )]
    InUse {
        /// The run directory.
        dir: PathBuf,
        /// The owner's process number, as it wrote it down.
        owner: String,
    },
    /// The file is not one of ours.
    #[error(
        "{path} is no undo record that this version understands ({why}): read it, put back by hand what it names, \
         and remove it", path = path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Somebody else could have written it, and its contents would be written to kernel files.
    #[error(transparent)]
    Exposed(#[from] NotOurs),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents<R> {
    version: u32,
    /// Of the kernel that the records belong to: after a reboot nothing of them is left.
    boot_id: String,
    pid: u32,
    records: R,
}

/// A run directory that is this process's until this is dropped.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    /// Held for its lock, which the kernel releases with the process however it ends, in whatever PID namespace.
    lock: File,
}

impl RunDir {
    /// Takes a run directory, which is made where it is missing, mode 0700.
    ///
    /// # Errors
    /// [`LedgerError`]: in use, or not ours.
    pub fn take(dir: &Path) -> Result<Self, LedgerError> {
        let io = |action, path: &Path| {
            let path = path.to_path_buf();
            move |cause| LedgerError::Io { action, path, cause }
        };
        ours::make(dir, 0o700)?;
        let lock_path = dir.join(LOCK);
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
        let mut lock = match options.open(&lock_path) {
            // A lock needs no writing: what a killed process left is put back also where the disk has become read-only.
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                options.write(false).create(false).open(&lock_path)
            }
            opened => opened,
        }
        .map_err(io("open", &lock_path))?;
        if let Err(errno) = take(&lock) {
            if errno != rustix::io::Errno::WOULDBLOCK {
                return Err(io("lock", &lock_path)(errno.into()));
            }
            let mut owner = String::new();
            let _ = lock.take(32).read_to_string(&mut owner);
            return Err(LedgerError::InUse {
                dir: dir.into(),
                owner: owner.trim().into(),
            });
        }
        // On a full or read-only disk nobody learns the number, and what is recorded can still be put back.
        let _ = lock
            .set_len(0)
            .and_then(|()| writeln!(lock, "{}", std::process::id()));
        Ok(Self {
            path: dir.to_path_buf(),
            lock,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts back what a dead owner left in it, and starts an empty record.
    ///
    /// # Errors
    /// [`LedgerError`]: what is there is unreadable. Nothing was changed on the machine then.
    pub fn ledger(self, roots: &Roots) -> Result<(Ledger, RestoreReport), LedgerError> {
        let mut ledger = Ledger {
            path: self.path.join(FILE),
            boot_id: boot_id(roots),
            kept: Vec::new(),
            roots: roots.clone(),
            anew: Mutex::default(),
            run_dir: self,
        };
        let report = ledger.undo_what_is_left(roots)?;
        if ledger.kept.is_empty() {
            lever::disown(ledger.run_dir());
        }
        Ok((ledger, report))
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        // Closing the file is not enough while a child of this process is between fork and exec: it shares the lock.
        let _ = rustix::fs::flock(&self.lock, FlockOperation::Unlock);
    }
}

/// The state file of one process, in its run directory.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    boot_id: String,
    /// What a dead owner left and could not be put back yet.
    kept: Vec<Undo>,
    roots: Roots,
    /// It stays taken as long.
    /// The same directory where it was removed and made anew: held for its lock.
    anew: Mutex<Option<RunDir>>,
    run_dir: RunDir,
}

impl Ledger {
    /// Takes a run directory as [`RunDir::take`] does, and puts back what is left in it as [`RunDir::ledger`] does.
    ///
    /// # Errors
    /// [`LedgerError`]: in use, unreadable, or not ours. Nothing was changed on the machine then.
    pub fn open(dir: &Path, roots: &Roots) -> Result<(Self, RestoreReport), LedgerError> {
        RunDir::take(dir)?.ledger(roots)
    }

    /// The directory that it is in.
    pub(super) fn run_dir(&self) -> &Path {
        self.run_dir.path()
    }

    /// Where the kernel's files are.
    pub(super) fn roots(&self) -> &Roots {
        &self.roots
    }

    fn undo_what_is_left(&mut self, roots: &Roots) -> Result<RestoreReport, LedgerError> {
        // Of an owner that was killed while it wrote; on a disk that is read-only by now it does no harm.
        let _ = fs::remove_file(self.beside());
        let Some(records) = read(&self.path, roots, &self.boot_id)? else {
            return Ok(RestoreReport::default());
        };
        let mut report = RestoreReport::default();
        for undo in records.into_iter().rev() {
            let outcome = undo.carry_out();
            if matches!(outcome, Outcome::Failed { .. }) {
                self.kept.insert(0, undo);
            }
            report.outcomes.push(outcome);
        }
        if let Err(error) = self.save(std::iter::empty()) {
            // Everything is put back, which is what counts: whoever reads the record again finds it so.
            report.outcomes.push(Outcome::Failed {
                what: "the state file".into(),
                reason: error.to_string(),
            });
        }
        Ok(report)
    }

    /// Whether there is a record where it is looked for.
    pub(super) fn is_there(&self) -> bool {
        self.path.exists()
    }

    /// That it can be saved, tried with a record of nothing beside it.
    pub(super) fn check_writable(&self) -> Result<(), LedgerError> {
        let beside = self.beside();
        let written = write_new(&beside, b"{}\n");
        let removed = fs::remove_file(&beside);
        written.and(removed).map_err(|cause| LedgerError::Io {
            action: "write",
            path: beside,
            cause,
        })
    }

    fn beside(&self) -> PathBuf {
        self.path.with_file_name(UNFINISHED)
    }

    /// Replaces what is recorded, keeping what a dead owner left.
    pub(super) fn save<'a>(&'a self, records: impl Iterator<Item = &'a Undo>) -> Result<(), LedgerError> {
        let records: Vec<&Undo> = self.kept.iter().chain(records).collect();
        let io = |action, path: &Path, cause| LedgerError::Io {
            action,
            path: path.into(),
            cause,
        };
        if records.is_empty() {
            return match fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io("remove", &self.path, error)),
                _ => Ok(()),
            };
        }
        let contents = Contents {
            version: VERSION,
            boot_id: self.boot_id.clone(),
            pid: std::process::id(),
            records,
        };
        let beside = self.beside();
        let text =
            serde_json::to_vec(&contents).map_err(|error| io("write", &beside, io::Error::other(error)))?;
        let written = match write_new(&beside, &text) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Somebody removed the run directory. Whoever ends or replaces this process looks for the record there.
                let anew = RunDir::take(self.run_dir.path())?;
                tracing::warn!(
                    "{} was removed and is made anew: operators' commands reach this process again after its next start",
                    anew.path().display()
                );
                *self.anew.lock().unwrap_or_else(PoisonError::into_inner) = Some(anew);
                write_new(&beside, &text)
            }
            written => written,
        };
        if let Err(error) = written {
            // What was saved before stays, and half a file must not take the room of the next try.
            let _ = fs::remove_file(&beside);
            return Err(io("write", &beside, error));
        }
        fs::rename(&beside, &self.path).map_err(|error| io("replace", &self.path, error))
    }
}

pub(super) fn write_new(path: &Path, text: &[u8]) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
        .open(path)?
        .write_all(text)
}

/// The records in a state file that are of the kernel that runs, the oldest first; nothing where there is no file.
fn read(path: &Path, roots: &Roots, boot_id: &str) -> Result<Option<Vec<Undo>>, LedgerError> {
    let unreadable = |why: String| LedgerError::Unreadable {
        path: path.into(),
        why,
    };
    let text = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => {
            return Err(LedgerError::Io {
                action: "read",
                path: path.into(),
                cause,
            });
        }
        Ok(file) => {
            ours::check(path)?;
            let mut text = String::new();
            file.take(MAX_BYTES)
                .read_to_string(&mut text)
                .map_err(|error| unreadable(error.to_string()))?;
            text
        }
    };
    let left: Contents<Vec<Undo>> =
        serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
    if left.version != VERSION {
        return Err(unreadable(format!(
            "version {} instead of {VERSION}",
            left.version
        )));
    }
    if let Some(path) = left
        .records
        .iter()
        .flat_map(Undo::touches)
        .find(|touched| !(is_plausible(touched, roots) || is_of_gone_demo(touched, path)))
    {
        return Err(unreadable(format!(
            "it names {}, which is not a file of the kernel",
            path.display()
        )));
    }
    match left.boot_id == boot_id {
        true => Ok(Some(left.records)),
        false => Ok(Some(Vec::new())),
    }
}

/// What a run directory records, whoever owns it, the oldest first.
pub(super) fn records(dir: &Path, roots: &Roots) -> Result<Vec<Undo>, LedgerError> {
    let records = read(&dir.join(FILE), roots, &boot_id(roots))?;
    Ok(records.unwrap_or_default())
}

fn boot_id(roots: &Roots) -> String {
    file::read(&roots.proc_("sys/kernel/random/boot_id")).unwrap_or_default()
}

/// Takes the lock, with a little patience: a child of a process that was just killed may be between fork and exec.
pub(super) fn take(lock: &File) -> Result<(), rustix::io::Errno> {
    let until = Instant::now() + Duration::from_millis(500);
    loop {
        match rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(10));
            }
            result => return result,
        }
    }
}

/// Puts back what a dead process left in a run directory, and leaves the directory free for the next.
///
/// # Errors
/// [`LedgerError`], as for [`Ledger::open`].
pub fn recover(dir: &Path, roots: &Roots) -> Result<RestoreReport, LedgerError> {
    Ledger::open(dir, roots).map(|(_, report)| report)
}

/// Whether a path is of the emulated server of a demo, which stands in the run directory, and is gone with it: there is nothing
/// to write.
fn is_of_gone_demo(touched: &Path, record: &Path) -> bool {
    let straight = touched.components().all(|part| part != Component::ParentDir);
    let run_dir = record.parent();
    straight && !touched.exists() && run_dir.is_some_and(|run_dir| touched.starts_with(run_dir))
}

/// The files that levers are, by their names; `*` stands for digits.
const LEVERS: [&str; 13] = [
    "cpu.max",
    "cpu.cfs_quota_us",
    "cpu.cfs_period_us",
    "cpuset.cpus",
    "cpuset.mems",
    "cgroup.subtree_control",
    "constraint_*_power_limit_uw",
    "enabled",
    "scaling_max_freq",
    "scaling_min_freq",
    "scaling_governor",
    "scaling_setspeed",
    "power*_cap",
];

/// A file that we could have changed, or a control group that we could have made: absolute, without `..`, below the kernel's
/// tree or a mounted hierarchy of control groups, and by its name a lever; or the one device that is a lever. A record is
/// its owner's alone, but what is in it is written by whoever undoes it, which may be a guard outside of the owner's
/// container.
fn is_plausible(path: &Path, roots: &Roots) -> bool {
    if path == Path::new(crate::hsmp::DEVICE) {
        return true;
    }
    let straight = path.is_absolute() && path.components().all(|part| part != Component::ParentDir);
    // A demo's groups are the kernel's own, also where its hardware is emulated; and those of its tree may be gone with it.
    let in_group = || {
        path.starts_with(roots.sys("fs/cgroup"))
            || [roots, &Roots::default()].into_iter().any(|roots| {
                Hierarchies::read(roots)
                    .is_ok_and(|mounts| mounts.all().any(|mount| path.starts_with(&mount.point)))
            })
    };
    let is_group = || path.is_dir() || !path.exists();
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let is_lever = is_device_file(name)
        || LEVERS.iter().any(|lever| match lever.split_once('*') {
            None => *lever == name,
            Some((before, after)) => name
                .strip_prefix(before)
                .and_then(|rest| rest.strip_suffix(after))
                .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())),
        });
    // A tree that stands in the place of /sys has nothing in it but what is emulated.
    let stands_in = roots.sys != Roots::default().sys;
    let below = (is_lever || stands_in) && path.starts_with(&roots.sys);
    straight && (below || (is_lever || is_group()) && in_group())
}
