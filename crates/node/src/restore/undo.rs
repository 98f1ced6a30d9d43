//! One thing to put back, and how that went.

use crate::file::{self, FileError};
use crate::hsmp::{HsmpError, Message, Port};
use crate::tool::Tool;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
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
    /// By how much a number in the file may differ from one of them and still be ours: hardware rounds what is written,
    /// and what it made of it is known only to whoever reads it back.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tolerance: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl FileValues {
    /// Whether a value is one of these.
    pub(crate) fn holds(&self, seen: &str) -> bool {
        self.values.iter().any(|value| same(value, seen, self.tolerance))
    }
}

/// Whether two texts are the same value: equal, or numbers at most the tolerance apart.
pub(crate) fn same(one: &str, other: &str, tolerance: u64) -> bool {
    let near = || Some(one.parse::<u64>().ok()?.abs_diff(other.parse::<u64>().ok()?) <= tolerance);
    one == other || (tolerance > 0 && near().unwrap_or(false))
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
        /// Device and inode of the first file's directory, where another one at its path is another thing: a control group
        /// that was removed and made anew has nothing of ours in it, whatever it holds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        identity: Option<(u64, u64)>,
    },
    /// Settings that are put back each on its own: that one is gone or somebody else's does not keep the others.
    Several {
        /// In words.
        what: String,
        /// The settings.
        parts: Vec<Undo>,
    },
    /// A power limit of a processor socket, set by a message to its management controller.
    Hsmp {
        /// In words.
        what: String,
        /// The device.
        path: PathBuf,
        /// The socket.
        socket: u16,
        /// The limit that was found, milliwatts.
        found_mw: u32,
        /// Put back only while the limit is one of these, milliwatts.
        ours_mw: Vec<u32>,
    },
    /// What a program set.
    Program {
        /// In words.
        what: String,
        /// Which program and values, by the name in the list of those that a record may have run.
        tool: String,
        /// A file of the device; where it is gone, nothing is left to put back.
        path: PathBuf,
        /// The values that were found.
        found: Vec<String>,
        /// Put back only while the values are those or among these.
        ours: Vec<Vec<String>>,
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
        /// The record's name for it, as in "the CPU quota of cgroup /web".
        what: String,
    },
    /// It was as found already.
    Unchanged {
        /// The record's name for it, as in "the CPU quota of cgroup /web".
        what: String,
    },
    /// It no longer exists, so nothing is left to put back.
    Gone {
        /// The record's name for it, as in "the CPU quota of cgroup /web".
        what: String,
    },
    /// It is put back but for something that others may rely on by now, and that does no harm.
    Kept {
        /// The record's name for it, as in "the CPU quota of cgroup /web".
        what: String,
        /// What was left, and why.
        reason: String,
    },
    /// Somebody else has written it since: left to them.
    Foreign {
        /// The record's name for it, as in "the CPU quota of cgroup /web".
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
        /// The record's name for it, as in "the CPU quota of cgroup /web".
        what: String,
        /// The error of the last attempt.
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
            Self::Files { what, .. }
            | Self::Several { what, .. }
            | Self::Hsmp { what, .. }
            | Self::Program { what, .. }
            | Self::Groups { what, .. } => what,
        }
    }

    /// Every file and directory that carrying it out may touch.
    pub(super) fn touches(&self) -> Vec<&Path> {
        match self {
            Self::Several { parts, .. } => parts.iter().flat_map(Self::touches).collect(),
            Self::Hsmp { path, .. } | Self::Program { path, .. } => vec![path],
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
    pub(crate) fn carry_out(&self) -> Outcome {
        let what = self.what().to_owned();
        self.put_back(what.clone()).unwrap_or_else(|stop| match stop {
            Stop::Gone => Outcome::Gone { what },
            Stop::Failed(reason) => Outcome::Failed { what, reason },
        })
    }

    fn put_back(&self, what: String) -> Result<Outcome, Stop> {
        match self {
            Self::Files { ours, identity, .. } if is_another(ours, *identity) => Err(Stop::Gone),
            Self::Files { ours, steps, .. } => put_back_files(what, ours, steps),
            Self::Several { parts, .. } => put_back_each(what, parts),
            Self::Hsmp {
                path,
                socket,
                found_mw,
                ours_mw,
                ..
            } => put_back_limit(what, path, *socket, *found_mw, ours_mw),
            Self::Program {
                tool,
                path,
                found,
                ours,
                ..
            } => match Tool::named(tool) {
                Some(tool) => tool.put_back(what, path, found, ours),
                None => Err(Stop::Failed(format!(
                    "this version of headroom sets no {tool:?}: start the one that did"
                ))),
            },
            Self::Groups { dirs, disable, .. } => remove_groups(what, dirs, disable),
        }
    }
}

/// Why nothing was put back.
pub(crate) enum Stop {
    Gone,
    Failed(String),
}

impl From<FileError> for Stop {
    fn from(error: FileError) -> Self {
        match error.is_gone() {
            true => Self::Gone,
            false => Self::Failed(error.to_string()),
        }
    }
}

impl From<String> for Stop {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
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

/// Device and inode of the directory that a file is in: a control group that is made anew has others.
pub(crate) fn identity(path: &Path) -> Option<(u64, u64)> {
    let about = fs::metadata(path.parent()?).ok()?;
    Some((about.dev(), about.ino()))
}

/// Whether the first file is another one than it was.
fn is_another(ours: &[FileValues], was: Option<(u64, u64)>) -> bool {
    let now = ours.first().and_then(|file| identity(&file.path));
    was.is_some_and(|was| now.is_some_and(|now| now != was))
}

fn put_back_files(what: String, ours: &[FileValues], steps: &[FileValue]) -> Result<Outcome, Stop> {
    let mut as_found = true;
    for file in ours {
        let seen = file::read(&file.path)?;
        as_found &= final_value(steps, &file.path) == Some(seen.as_str());
        // Whoever was killed on the way back was killed at one of its steps.
        let on_the_way = steps
            .iter()
            .any(|step| step.path == file.path && step.value == seen);
        if !on_the_way && !file.holds(&seen) {
            return Ok(Outcome::Foreign {
                what,
                path: file.path.clone(),
                seen,
                ours: file.values.clone(),
            });
        }
    }
    if as_found {
        return Ok(Outcome::Unchanged { what });
    }
    for step in steps {
        file::write(&step.path, &step.value)?;
    }
    for file in ours {
        let seen = file::read(&file.path)?;
        if let Some(found) =
            final_value(steps, &file.path).filter(|found| !same(found, &seen, file.tolerance))
        {
            let path = file.path.display();
            return Err(format!("{path} reads \"{seen}\" after \"{found}\" was written").into());
        }
    }
    Ok(Outcome::Restored { what })
}

/// Puts each part back, the last first; the answer is the worst of theirs.
fn put_back_each(what: String, parts: &[Undo]) -> Result<Outcome, Stop> {
    let outcomes: Vec<Outcome> = parts.iter().rev().map(Undo::carry_out).collect();
    let failed = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, Outcome::Failed { .. }));
    let reasons: Vec<String> = failed.map(Outcome::to_string).collect();
    if !reasons.is_empty() {
        return Err(reasons.join("; ").into());
    }
    if let Some(foreign) = outcomes.iter().find(|outcome| !outcome.is_clean()) {
        return Ok(foreign.clone());
    }
    let any = |kind: fn(&Outcome) -> bool| outcomes.iter().any(kind);
    if any(|outcome| matches!(outcome, Outcome::Restored { .. })) {
        return Ok(Outcome::Restored { what });
    }
    match any(|outcome| matches!(outcome, Outcome::Unchanged { .. })) {
        true => Ok(Outcome::Unchanged { what }),
        false => Err(Stop::Gone),
    }
}

/// Puts a socket's limit back by a message.
fn put_back_limit(
    what: String,
    path: &Path,
    socket: u16,
    found_mw: u32,
    ours_mw: &[u32],
) -> Result<Outcome, Stop> {
    let mut port = Port::open(path, true).map_err(|error| match error.is_gone() {
        true => Stop::Gone,
        false => Stop::Failed(error.to_string()),
    })?;
    match put_back_by(&mut port, socket, found_mw, ours_mw).map_err(|error| error.to_string())? {
        None => Ok(Outcome::Unchanged { what }),
        Some(seen) if seen == found_mw => Ok(Outcome::Restored { what }),
        Some(seen) if !ours_mw.contains(&seen) => Ok(Outcome::Foreign {
            what,
            path: path.into(),
            seen: seen.to_string(),
            ours: ours_mw.iter().map(u32::to_string).collect(),
        }),
        Some(seen) => Err(format!("the limit is {seen} mW after {found_mw} mW was set").into()),
    }
}

/// The limit in the end where it was not as found already: another than found or ours is somebody else's.
pub(super) fn put_back_by(
    port: &mut Port,
    socket: u16,
    found_mw: u32,
    ours_mw: &[u32],
) -> Result<Option<u32>, HsmpError> {
    let seen = port.ask(socket, Message::Limit)?;
    if seen == found_mw {
        return Ok(None);
    }
    if !ours_mw.contains(&seen) {
        return Ok(Some(seen));
    }
    port.set_limit(socket, found_mw)?;
    port.ask(socket, Message::Limit).map(Some)
}

/// How often a removal is tried again while processes in the group are still ending.
const REMOVAL_TRIES: u32 = 100;
const REMOVAL_PAUSE: Duration = Duration::from_millis(10);

fn remove_groups(what: String, dirs: &[PathBuf], disable: &[FileValue]) -> Result<Outcome, Stop> {
    let mut removed = false;
    for dir in dirs.iter().rev() {
        removed |= remove_group(dir)?;
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
            Err(error) if error.is_gone() => {}
            written => {
                written?;
                removed = true;
            }
        }
    }
    match (kept, removed) {
        (Some(reason), _) => Ok(Outcome::Kept { what, reason }),
        (None, true) => Ok(Outcome::Restored { what }),
        (None, false) => Err(Stop::Gone),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hsmp::fake::FakeSockets;

    #[test]
    fn numbers_are_the_same_within_the_tolerance_and_words_never() {
        assert!(same("50000000", "49875000", 1_000_000) && !same("50000000", "48000000", 1_000_000));
        assert!(!same("50000000", "50000001", 0) && same("max 10000", "max 10000", 0));
        assert!(!same("max", "50", 1_000_000));
    }

    #[test]
    fn a_sockets_limit_is_put_back_only_while_it_is_ours() {
        let sockets = FakeSockets::new(2);
        let mut port = Port::of(sockets.clone());
        let mut put_back = |ours: &[u32]| put_back_by(&mut port, 1, 240_000, ours).unwrap();
        sockets.0.lock().unwrap().limit[1] = 90_000;
        assert_eq!(put_back(&[120_000]), Some(90_000), "somebody else's");
        assert_eq!(put_back(&[120_000, 90_000]), Some(240_000));
        assert_eq!(put_back(&[90_000]), None, "already as found");
        assert_eq!(sockets.0.lock().unwrap().limit, [200_000, 240_000]);
    }

    #[test]
    fn a_group_that_was_made_anew_has_nothing_of_ours_in_it_also_where_it_looks_so() {
        let dir = tempfile::tempdir().unwrap();
        let (group, anew) = (dir.path().join("group"), dir.path().join("anew"));
        for group in [&group, &anew] {
            fs::create_dir(group).unwrap();
            fs::write(group.join("quota"), "-1").unwrap();
        }
        let path = group.join("quota");
        let step = |value: &str| FileValue {
            path: path.clone(),
            value: value.into(),
        };
        let undo = Undo::Files {
            what: "a quota".into(),
            ours: vec![FileValues {
                path: path.clone(),
                values: vec!["4000".into()],
                tolerance: 0,
            }],
            // On the way back the quota is lifted first, and that is what a fresh group holds.
            steps: vec![step("-1"), step("90000")],
            identity: identity(&path),
        };
        fs::remove_dir_all(&group).unwrap();
        fs::rename(&anew, &group).unwrap();
        assert!(matches!(undo.carry_out(), Outcome::Gone { .. }));
        assert_eq!(fs::read_to_string(&path).unwrap(), "-1");
        let text = serde_json::to_string(&undo).unwrap();
        assert_eq!(serde_json::from_str::<Undo>(&text).unwrap(), undo);
    }

    #[test]
    fn each_part_is_put_back_on_its_own_and_the_worst_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let part = |name: &str, now: &str| {
            let path = dir.path().join(name);
            fs::write(&path, now).unwrap();
            Undo::Files {
                what: name.into(),
                ours: vec![FileValues {
                    path: path.clone(),
                    values: vec!["7".into()],
                    tolerance: 1,
                }],
                steps: vec![FileValue {
                    path,
                    value: "100".into(),
                }],
                identity: None,
            }
        };
        let several = |parts| {
            Undo::Several {
                what: "all".into(),
                parts,
            }
            .carry_out()
        };
        // The hardware made 8 of our 7.
        assert!(matches!(
            several(vec![part("a", "8"), part("b", "100")]),
            Outcome::Restored { .. }
        ));
        assert!(matches!(
            several(vec![part("a", "100")]),
            Outcome::Unchanged { .. }
        ));
        assert!(matches!(
            several(vec![part("a", "8"), part("b", "55")]),
            Outcome::Foreign { .. }
        ));
        assert_eq!(fs::read_to_string(dir.path().join("a")).unwrap(), "100");
        let gone = part("gone", "7");
        fs::remove_file(dir.path().join("gone")).unwrap();
        assert!(matches!(several(vec![gone.clone()]), Outcome::Gone { .. }));
        assert!(matches!(
            several(vec![gone, part("a", "7")]),
            Outcome::Restored { .. }
        ));
    }
}
