//! One thing to put back, and how that went.

use crate::file;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A value for a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileValue {
    /// The file.
    pub path: PathBuf,
    /// The value.
    pub value: String,
}

/// The values of a file that are ours: what was found, and what we wrote or are about to write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileValues {
    /// The file.
    pub path: PathBuf,
    /// Any of these means that nobody else wrote.
    pub values: Vec<String>,
}

/// How to put something back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Undo {
    /// Files that held other values.
    Files {
        /// In words.
        what: String,
        /// Put back only while every file holds one of these.
        ours: Vec<FileValues>,
        /// Written in this order; the last value of each file is the one that was found.
        steps: Vec<FileValue>,
    },
    /// Control groups that did not exist.
    Groups {
        /// In words.
        what: String,
        /// Their directories; processes in them go to the parent.
        dirs: Vec<PathBuf>,
        /// Controllers that were enabled for them, as written to disable them again (`-cpu`), while no other child
        /// group has appeared that may rely on them.
        disable: Vec<FileValue>,
    },
}

/// How putting something back went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub enum Outcome {
    /// It is as it was found.
    Restored {
        /// What.
        what: String,
    },
    /// It was as found already.
    Unchanged {
        /// What.
        what: String,
    },
    /// It no longer exists, so nothing is left to put back.
    Gone {
        /// What.
        what: String,
    },
    /// It is put back but for something that others may rely on by now, and that does no harm.
    Kept {
        /// What.
        what: String,
        /// What was left, and why.
        reason: String,
    },
    /// Somebody else has written it since: left to them.
    Foreign {
        /// What.
        what: String,
        /// The file.
        path: PathBuf,
        /// What is in it now.
        seen: String,
        /// What we had last found or written there.
        ours: Vec<String>,
    },
    /// It could not be put back.
    Failed {
        /// What.
        what: String,
        /// Why.
        reason: String,
    },
}

impl Outcome {
    /// It went as it should: nothing failed and nobody interfered.
    pub fn is_clean(&self) -> bool {
        !matches!(self, Self::Foreign { .. } | Self::Failed { .. })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Restored { what } => write!(f, "put back: {what}"),
            Self::Unchanged { what } => write!(f, "already as found: {what}"),
            Self::Kept { what, reason } => write!(f, "put back in part: {what}: {reason}"),
            Self::Gone { what } => write!(f, "gone meanwhile, nothing to put back: {what}"),
            Self::Foreign {
                what,
                path,
                seen,
                ours,
            } => write!(
                f,
                "left alone: {what}: somebody else wrote \"{seen}\" to {}, where we had {}",
                path.display(),
                ours.iter()
                    .map(|value| format!("\"{value}\""))
                    .collect::<Vec<_>>()
                    .join(" or ")
            ),
            Self::Failed { what, reason } => write!(f, "NOT put back: {what}: {reason}"),
        }
    }
}

impl Undo {
    /// What it undoes, in words.
    pub fn what(&self) -> &str {
        match self {
            Self::Files { what, .. } | Self::Groups { what, .. } => what,
        }
    }

    /// One more value that is ours.
    #[cfg(test)]
    pub(super) fn add_ours(&mut self, path: &Path, value: &str) {
        if let Self::Files { ours, .. } = self {
            ours.iter_mut()
                .filter(|file| file.path == path)
                .for_each(|file| file.values.push(value.into()));
        }
    }

    /// Every file and directory that carrying it out may touch.
    pub(super) fn touches(&self) -> Vec<&Path> {
        match self {
            Self::Files { steps, ours, .. } => steps
                .iter()
                .map(|step| step.path.as_path())
                .chain(ours.iter().map(|o| o.path.as_path()))
                .collect(),
            Self::Groups { dirs, disable, .. } => dirs
                .iter()
                .map(PathBuf::as_path)
                .chain(disable.iter().map(|d| d.path.as_path()))
                .collect(),
        }
    }

    /// Puts it back.
    pub(super) fn carry_out(&self) -> Outcome {
        match self {
            Self::Files { what, ours, steps } => put_back_files(what, ours, steps),
            Self::Groups { what, dirs, disable } => remove_groups(what, dirs, disable),
        }
    }
}

/// What a file held in the end of a sequence of writes.
fn final_value<'a>(steps: &'a [FileValue], path: &Path) -> Option<&'a str> {
    steps
        .iter()
        .rev()
        .find(|step| step.path == path)
        .map(|step| step.value.as_str())
}

fn put_back_files(what: &str, ours: &[FileValues], steps: &[FileValue]) -> Outcome {
    let what = what.to_string();
    let mut as_found = true;
    for file in ours {
        match file::read(&file.path) {
            Err(error) if error.is_gone() => return Outcome::Gone { what },
            Err(error) => {
                return Outcome::Failed {
                    what,
                    reason: error.to_string(),
                };
            }
            Ok(seen) => {
                let is_found = final_value(steps, &file.path) == Some(seen.as_str());
                as_found &= is_found;
                if !is_found && !file.values.contains(&seen) {
                    return Outcome::Foreign {
                        what,
                        path: file.path.clone(),
                        seen,
                        ours: file.values.clone(),
                    };
                }
            }
        }
    }
    if as_found {
        return Outcome::Unchanged { what };
    }
    for step in steps {
        match file::write(&step.path, &step.value) {
            Err(error) if error.is_gone() => return Outcome::Gone { what },
            Err(error) => {
                return Outcome::Failed {
                    what,
                    reason: error.to_string(),
                };
            }
            Ok(()) => {}
        }
    }
    for file in ours {
        let found = final_value(steps, &file.path);
        match file::read(&file.path) {
            Ok(seen) if found == Some(seen.as_str()) || found.is_none() => {}
            Ok(seen) => {
                let reason = format!(
                    "{} reads \"{seen}\" after \"{}\" was written",
                    file.path.display(),
                    found.unwrap_or_default()
                );
                return Outcome::Failed { what, reason };
            }
            Err(error) if error.is_gone() => return Outcome::Gone { what },
            Err(error) => {
                return Outcome::Failed {
                    what,
                    reason: error.to_string(),
                };
            }
        }
    }
    Outcome::Restored { what }
}

/// How often a removal is tried again while processes in the group are still ending.
const REMOVAL_TRIES: u32 = 100;
const REMOVAL_PAUSE: Duration = Duration::from_millis(10);

fn remove_groups(what: &str, dirs: &[PathBuf], disable: &[FileValue]) -> Outcome {
    let what = what.to_string();
    let mut removed = false;
    for dir in dirs.iter().rev() {
        match remove_group(dir) {
            Ok(did) => removed |= did,
            Err(reason) => return Outcome::Failed { what, reason },
        }
    }
    let mut kept = None;
    for control in disable {
        let parent = control.path.parent().unwrap_or(Path::new("/"));
        if has_children(parent) {
            let reason = "other groups are there, which may rely on it by now";
            kept = Some(format!(
                "{} in {} was not written: {reason}",
                control.value,
                control.path.display()
            ));
            continue;
        }
        match file::write(&control.path, &control.value) {
            Ok(()) => removed = true,
            Err(error) if error.is_gone() => {}
            Err(error) => {
                return Outcome::Failed {
                    what,
                    reason: error.to_string(),
                };
            }
        }
    }
    if let Some(reason) = kept {
        return Outcome::Kept { what, reason };
    }
    if removed {
        Outcome::Restored { what }
    } else {
        Outcome::Gone { what }
    }
}

fn has_children(dir: &Path) -> bool {
    fs::read_dir(dir).is_ok_and(|mut entries| {
        entries.any(|entry| entry.is_ok_and(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())))
    })
}

/// Moves the processes of a group to its parent and removes it. False where it did not exist.
fn remove_group(dir: &Path) -> Result<bool, String> {
    let Some(parent) = dir.parent() else {
        return Err(format!("{} has no parent", dir.display()));
    };
    let into = parent.join("cgroup.procs");
    let mut last = String::new();
    for _ in 0..REMOVAL_TRIES {
        match file::read(&dir.join("cgroup.procs")) {
            Ok(pids) => {
                for pid in pids.lines() {
                    // A process that ended meanwhile answers ESRCH: it needs no moving.
                    if let Err(error) = file::write(&into, pid)
                        && error.cause.raw_os_error() != Some(rustix::io::Errno::SRCH.raw_os_error())
                    {
                        last = error.to_string();
                    }
                }
            }
            Err(error) if error.is_gone() => {}
            Err(error) => last = error.to_string(),
        }
        match fs::remove_dir(dir) {
            Ok(()) => return Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(error) if last.is_empty() => last = format!("cannot remove {}: {error}", dir.display()),
            Err(_) => {}
        }
        std::thread::sleep(REMOVAL_PAUSE);
    }
    Err(format!("{last}; remove it by hand: rmdir {}", dir.display()))
}
