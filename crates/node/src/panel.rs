//! Settings of the kernel, each a few files that belong together, under one record of what was found: remembered before
//! the first write, watched for other writers, read back after each write.

use crate::file::{self, FileError};
use crate::restore::{FileValue, FileValues, Handle, Outcome, Registry, RestoreError, Undo, identity, same};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Somebody else wrote a setting that we control.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignWrite {
    /// The file.
    pub path: PathBuf,
    /// What we had last found or written there.
    pub expected: String,
    /// What was in it.
    pub seen: String,
}

impl std::fmt::Display for ForeignWrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "somebody else wrote \"{}\" to {}, where we had \"{}\": it is left alone from now on, until `headroom resume`",
            self.seen,
            self.path.display(),
            self.expected
        )
    }
}

/// A setting that could not be set.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PanelError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error(transparent)]
    NotInForce(#[from] NotInForce),
}

/// The kernel accepted a value but shows another.
#[derive(Debug, thiserror::Error)]
#[error(
    "{path} reads \"{seen}\" after \"{written}\" was written: something else writes it at the same time, the kernel or the \
     hardware does not take the value, or another limit (BIOS, thermal, no_turbo) is stricter", path = path.display()
)]
pub struct NotInForce {
    /// The file.
    pub path: PathBuf,
    /// What was written.
    pub written: String,
    /// What it reads.
    pub seen: String,
}

/// The order in which a setting's files are written to reach the given values from any others.
pub(crate) type Sequence = fn(paths: &[PathBuf], values: &[String]) -> Vec<FileValue>;

/// The files in the order in which they are named.
pub(crate) fn in_order(paths: &[PathBuf], values: &[String]) -> Vec<FileValue> {
    paths
        .iter()
        .zip(values)
        .map(|(path, value)| FileValue {
            path: path.clone(),
            value: value.clone(),
        })
        .collect()
}

/// How much values leave to the service: the larger, the more.
pub(crate) type Room = fn(values: &[String]) -> f64;

/// The number in the first of a setting's files.
pub(crate) fn first_number(values: &[String]) -> f64 {
    values
        .first()
        .and_then(|text| text.parse().ok())
        .unwrap_or(f64::NAN)
}

/// The files of one setting.
#[derive(Clone, Debug)]
pub(crate) struct Definition {
    /// In words.
    pub(crate) what: String,
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) sequence: Sequence,
    /// By how much a number may read otherwise than it was written, because the hardware rounds it.
    pub(crate) tolerance: u64,
    /// The files are one value together: what somebody else writes to one of them was meant with what is in the others.
    pub(crate) joint: bool,
    /// By it a change that relaxes is distinguished from one that tightens; not a number where that cannot be known.
    pub(crate) room: Room,
}

#[derive(Debug)]
struct Setting {
    definition: Definition,
    /// Device and inode of the first file: a group that was removed and made anew has others.
    identity: Option<(u64, u64)>,
    /// Somebody else wrote it, and it is left alone.
    held: bool,
    /// What is put back in the end: what was found, or what somebody else wrote since.
    found: Vec<String>,
    /// What we believe is in each file.
    last: Vec<String>,
}

impl Setting {
    fn open(definition: Definition) -> Result<Self, FileError> {
        let found = read_all(&definition.paths)?;
        Ok(Self {
            identity: identity(&definition.paths[0]),
            held: false,
            last: found.clone(),
            found,
            definition,
        })
    }

    /// What it is called among what is left alone.
    fn name(&self) -> String {
        self.definition.paths[0].display().to_string()
    }

    /// Whether a value is one that we know to be there by our doing or by its way back to what was found, by us or by
    /// whoever put it back for us.
    fn is_known(&self, file: usize, value: &str) -> bool {
        let path = &self.definition.paths[file];
        let back = (self.definition.sequence)(&self.definition.paths, &self.found);
        self.last[file] == value || back.iter().any(|step| step.path == *path && step.value == value)
    }

    fn undo(&self) -> Undo {
        let ours = self.definition.paths.iter().zip(&self.last);
        let ours = ours.map(|(path, value)| FileValues {
            path: path.clone(),
            values: vec![value.clone()],
            tolerance: self.definition.tolerance,
        });
        Undo::Files {
            what: self.definition.what.clone(),
            ours: ours.collect(),
            steps: (self.definition.sequence)(&self.definition.paths, &self.found),
            identity: self.identity.filter(|_| self.definition.joint),
        }
    }
}

/// A change of one setting.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// Which setting.
    pub(crate) at: usize,
    /// What is written, in this order.
    pub(crate) writes: Vec<FileValue>,
    /// What must be in the setting's files afterwards.
    pub(crate) values: Vec<String>,
}

/// Settings under one record.
#[derive(Debug)]
pub(crate) struct Panel {
    settings: Vec<Setting>,
    handle: Handle,
    /// The count of pauses when what was found was read.
    pauses: u64,
}

impl Panel {
    /// Reads what is there, and checks that it may be written, without writing.
    pub(crate) fn open(
        registry: &Registry,
        what: String,
        definitions: Vec<Definition>,
    ) -> Result<Self, PanelError> {
        let mut settings = Vec::with_capacity(definitions.len());
        for definition in definitions {
            for path in &definition.paths {
                file::check_writable(path)?;
            }
            // What a dead owner left in force is not what was found.
            registry.claim(&definition.paths[0])?;
            settings.push(Setting::open(definition)?);
        }
        let handle = registry.register(undo_of(&what, &settings))?;
        for setting in &mut settings {
            setting.held = handle.is_held(&setting.name());
        }
        Ok(Self {
            pauses: handle.operated()?.pauses,
            settings,
            handle,
        })
    }

    /// A panel of one setting whose files are one value together.
    pub(crate) fn of_one(
        registry: &Registry,
        what: String,
        paths: Vec<PathBuf>,
        sequence: Sequence,
        room: Room,
    ) -> Result<Self, PanelError> {
        let definition = Definition {
            what: what.clone(),
            paths,
            sequence,
            tolerance: 0,
            joint: true,
            room,
        };
        Self::open(registry, what, vec![definition])
    }

    /// The files of a setting.
    pub(crate) fn paths(&self, at: usize) -> &[PathBuf] {
        &self.settings[at].definition.paths
    }

    /// What we believe is in the files of a setting: found, or written last.
    pub(crate) fn last(&self, at: usize) -> &[String] {
        &self.settings[at].last
    }

    /// What is put back in the end.
    pub(crate) fn found(&self, at: usize) -> &[String] {
        &self.settings[at].found
    }

    /// The change of a setting to the given values by its own sequence.
    pub(crate) fn change(&self, at: usize, values: Vec<String>) -> Change {
        let definition = &self.settings[at].definition;
        Change {
            at,
            writes: (definition.sequence)(&definition.paths, &values),
            values,
        }
    }

    /// Whether a setting is left alone because somebody else wrote it.
    pub(crate) fn is_held(&self, at: usize) -> bool {
        self.settings[at].held
    }

    /// Whether somebody else has written a setting since. From then on it is left alone: neither written nor put back,
    /// until an operator says so; what is in its files is still read. What was found is nobody else's where it is there
    /// again: the guard or an operator has put it back.
    pub(crate) fn foreign_writes(&mut self, at: usize) -> Result<Option<ForeignWrite>, PanelError> {
        let paused = self.follow_operator()?;
        let setting = &mut self.settings[at];
        let seen = read_all(&setting.definition.paths)?;
        if setting.held || paused {
            setting.last = seen;
            return Ok(None);
        }
        let strange: Vec<usize> = (0..seen.len())
            .filter(|&file| !setting.is_known(file, &seen[file]))
            .collect();
        let identity = identity(&setting.definition.paths[0]);
        let is_another = std::mem::replace(&mut setting.identity, identity) != identity;
        if is_another && setting.definition.joint && setting.last != seen {
            // A group that was made anew: what it holds was found there, also where it looks like a part of our way back.
            self.find_anew(at)?;
            return Ok(None);
        }
        let Some(&file) = strange.first() else {
            if setting.last != seen {
                self.handle.distrust();
            }
            setting.last = seen;
            return Ok(None);
        };
        if is_another {
            // Made anew, and nothing of ours is in it.
            self.find_anew(at)?;
            return Ok(None);
        }
        let foreign = ForeignWrite {
            path: setting.definition.paths[file].clone(),
            expected: setting.last[file].clone(),
            seen: seen[file].clone(),
        };
        setting.held = true;
        setting.last = seen;
        self.handle.hold(&setting.name(), &foreign);
        if !setting.definition.joint {
            self.leave_to(at, &strange);
        }
        Ok(Some(foreign))
    }

    /// Leaves some files of a setting to whoever wrote them: what is ours in the others is lifted, as they would be held
    /// by it, and only the others are put back in the end.
    fn leave_to(&mut self, at: usize, strange: &[usize]) {
        let setting = &mut self.settings[at];
        let theirs: Vec<&Path> = strange
            .iter()
            .map(|&file| setting.definition.paths[file].as_path())
            .collect();
        let is_theirs = |path: &Path| theirs.contains(&path);
        let back = (setting.definition.sequence)(&setting.definition.paths, &setting.found);
        let lifted = self.handle.give_back(|| {
            for step in back.iter().filter(|step| !is_theirs(&step.path)) {
                file::write(&step.path, &step.value)?;
            }
            Ok::<(), PanelError>(())
        });
        if let Err(error) = lifted {
            tracing::warn!("not lifted beside what somebody else wrote: {error}");
        }
        if let Ok(now) = read_all(&setting.definition.paths) {
            setting.last = now;
        }
        self.handle.correct(|undo| {
            if let Some(Undo::Files { ours, steps, .. }) = part_of(undo, at) {
                ours.retain(|file| !is_theirs(&file.path));
                steps.retain(|step| !is_theirs(&step.path));
            }
        });
    }

    /// What is there now is what was found: after a pause, and where an operator gives back what was left alone. Whether
    /// there is a pause now.
    fn follow_operator(&mut self) -> Result<bool, PanelError> {
        let operated = self.handle.operated()?;
        let was_paused = operated.pauses != self.pauses && !operated.written;
        for at in 0..self.settings.len() {
            let setting = &self.settings[at];
            let is_released = setting.held && !self.handle.is_held(&setting.name());
            if is_released || (was_paused && !setting.held) {
                match self.find_anew(at) {
                    Err(PanelError::File(error)) if error.is_gone() => {}
                    other => other?,
                }
            }
        }
        self.pauses = operated.pauses;
        Ok(operated.paused)
    }

    fn find_anew(&mut self, at: usize) -> Result<(), PanelError> {
        let definition = self.settings[at].definition.clone();
        let setting = Setting::open(definition)?;
        let fresh = setting.undo();
        self.settings[at] = setting;
        self.handle.correct(|undo| {
            if let Some(part) = part_of(undo, at) {
                *part = fresh;
            }
        });
        Ok(())
    }

    /// Carries changes out, all of them under one writing of the record, and reads them back; settings that are left
    /// alone are not written. The answers are in the order of the changes; one that fails does not keep the others from
    /// being made. Where the record cannot be written, those that relax are made as far as to what was found, and those
    /// that tighten are not made.
    pub(crate) fn write(&mut self, changes: &[Change]) -> Result<Vec<Result<(), PanelError>>, PanelError> {
        let changes: Vec<Change> = changes
            .iter()
            .filter(|change| !self.settings[change.at].held)
            .cloned()
            .collect();
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let settings = &self.settings;
        let written = self.handle.write(
            |undo| {
                for change in &changes {
                    if let Some(Undo::Files { ours, .. }) = part_of(undo, change.at) {
                        remember(ours, &settings[change.at], &change.writes);
                    }
                }
                Ok::<(), PanelError>(())
            },
            || Ok(carry_out(&changes)),
        );
        match written {
            Ok(written) => self.read_back(&changes, written),
            Err(PanelError::Restore(error @ RestoreError::Ledger(_))) => self.relax(changes, error),
            Err(error) => Err(error),
        }
    }

    /// As [`Panel::write`]; the first of their errors is that of all.
    pub(crate) fn write_all(&mut self, changes: &[Change]) -> Result<(), PanelError> {
        self.write(changes)?.into_iter().collect()
    }

    /// Gives back what was found where a change relaxes; the error stays that of the others.
    fn relax(
        &mut self,
        changes: Vec<Change>,
        error: RestoreError,
    ) -> Result<Vec<Result<(), PanelError>>, PanelError> {
        let count = changes.len();
        let back: Vec<Change> = changes
            .into_iter()
            .filter(|change| self.relaxes(change))
            .map(|change| self.change(change.at, self.found(change.at).to_vec()))
            .collect();
        let written = self.handle.give_back(|| Ok::<_, PanelError>(carry_out(&back)))?;
        let answers = self.read_back(&back, written)?;
        match answers.len() == count {
            true => Ok(answers),
            false => Err(error.into()),
        }
    }

    fn relaxes(&self, change: &Change) -> bool {
        let setting = &self.settings[change.at];
        let room = setting.definition.room;
        let now = room(&setting.last);
        change.values == setting.found || (room(&change.values) > now && room(&setting.found) >= now)
    }

    /// What came of changes.
    fn read_back(
        &mut self,
        changes: &[Change],
        written: Vec<Result<(), FileError>>,
    ) -> Result<Vec<Result<(), PanelError>>, PanelError> {
        let mut answers = Vec::with_capacity(changes.len());
        let mut strange = Vec::new();
        for (change, written) in changes.iter().zip(written) {
            let setting = &mut self.settings[change.at];
            // Where a write failed, part of the sequence may be in force: what we know of the files must follow.
            let now = read_all(&setting.definition.paths);
            if let Ok(now) = &now {
                setting.last.clone_from(now);
                strange.push((change.at, now.clone()));
            }
            answers.push(
                written
                    .and_then(|()| now.map(drop))
                    .map_err(PanelError::File)
                    .and_then(|()| {
                        let wrong = (0..setting.last.len()).find(|&file| {
                            !same(
                                &setting.last[file],
                                &change.values[file],
                                setting.definition.tolerance,
                            )
                        });
                        match wrong {
                            None => Ok(()),
                            Some(file) => Err(PanelError::NotInForce(NotInForce {
                                path: setting.definition.paths[file].clone(),
                                written: change.values[file].clone(),
                                seen: setting.last[file].clone(),
                            })),
                        }
                    }),
            );
        }
        self.own(&strange)?;
        Ok(answers)
    }

    /// What is in the files after our write came of it, also where it is not what was written: it must not keep what was
    /// found from being put back. Where that cannot be recorded, what was found is put back at once.
    fn own(&mut self, seen: &[(usize, Vec<String>)]) -> Result<(), PanelError> {
        let noted = self.handle.note(|undo| {
            for (at, values) in seen {
                let Some(Undo::Files { ours, steps, .. }) = part_of(undo, *at) else {
                    continue;
                };
                for (file, value) in ours.iter_mut().zip(values) {
                    let is_found = steps
                        .iter()
                        .any(|step| step.path == file.path && step.value == *value);
                    if !is_found && !file.holds(value) {
                        file.values.push(value.clone());
                    }
                }
            }
        });
        let Err(error) = noted else { return Ok(()) };
        let back: Vec<Change> = seen
            .iter()
            .map(|(at, _)| self.change(*at, self.found(*at).to_vec()))
            .collect();
        for written in self.handle.give_back(|| Ok::<_, PanelError>(carry_out(&back)))? {
            written?;
        }
        for change in &back {
            let setting = &mut self.settings[change.at];
            setting.last = read_all(&setting.definition.paths)?;
        }
        Err(error.into())
    }

    /// Puts back what was found, now; later writes fail.
    pub(crate) fn restore(&mut self) -> Option<Outcome> {
        self.handle.restore()
    }
}

fn carry_out(changes: &[Change]) -> Vec<Result<(), FileError>> {
    let write = |change: &Change| {
        for write in &change.writes {
            file::write(&write.path, &write.value)?;
        }
        Ok(())
    };
    changes.iter().map(write).collect()
}

/// Wherever the process is killed in the sequence, what is in each file is one of these.
fn remember(ours: &mut [FileValues], setting: &Setting, writes: &[FileValue]) {
    for file in ours {
        let at = setting
            .definition
            .paths
            .iter()
            .position(|path| *path == file.path);
        let mut values: Vec<String> = at.map(|at| setting.last[at].clone()).into_iter().collect();
        let coming = writes.iter().filter(|write| write.path == file.path);
        values.extend(coming.map(|write| write.value.clone()));
        values.dedup();
        file.values = values;
    }
}

/// The record of all settings: of one, its own.
fn undo_of(what: &str, settings: &[Setting]) -> Undo {
    match settings {
        [one] => one.undo(),
        several => Undo::Several {
            what: what.into(),
            parts: several.iter().map(Setting::undo).collect(),
        },
    }
}

fn part_of(undo: &mut Undo, at: usize) -> Option<&mut Undo> {
    match undo {
        Undo::Several { parts, .. } => parts.get_mut(at),
        one => Some(one),
    }
}

fn read_all(paths: &[PathBuf]) -> Result<Vec<String>, FileError> {
    paths.iter().map(|path| file::read(path)).collect()
}
