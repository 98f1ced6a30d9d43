//! Settings of the kernel, each a few files that belong together, under one record of what was found: remembered before
//! the first write, watched for other writers, read back after each write.

use crate::file::{self, FileError};
use crate::restore::{FileValue, FileValues, Handle, Outcome, Registry, RestoreError, Undo, same};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

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
            "somebody else wrote \"{}\" to {}, where we had \"{}\"; it is what will be put back in the end",
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
    #[error("{path} reads \"{seen}\" after \"{written}\" was written", path = path.display())]
    NotInForce {
        path: PathBuf,
        written: String,
        seen: String,
    },
}

/// The order in which a setting's files are written to reach the given values from any others.
pub(crate) type Sequence = fn(paths: &[PathBuf], values: &[String]) -> Vec<FileValue>;

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
}

#[derive(Debug)]
struct Setting {
    definition: Definition,
    /// What is put back in the end: what was found, or what somebody else wrote since.
    found: Vec<String>,
    /// What we believe is in each file.
    last: Vec<String>,
}

impl Setting {
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
            let found = read_all(&definition.paths)?;
            for path in &definition.paths {
                file::check_writable(path)?;
            }
            settings.push(Setting {
                last: found.clone(),
                found,
                definition,
            });
        }
        let handle = registry.register(undo_of(&what, &settings))?;
        Ok(Self { settings, handle })
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

    /// Whether somebody else has written a setting since. What they wrote becomes what is put back in the end, because
    /// it is what the machine would hold without us.
    pub(crate) fn look(&mut self, at: usize) -> Result<Option<ForeignWrite>, PanelError> {
        let setting = &mut self.settings[at];
        let seen = read_all(&setting.definition.paths)?;
        let foreign: Vec<usize> = (0..seen.len())
            .filter(|&file| seen[file] != setting.last[file])
            .collect();
        let Some(&file) = foreign.first() else {
            return Ok(None);
        };
        if setting.definition.joint {
            setting.found.clone_from(&seen);
        } else {
            // What is in the other files is ours, and not what was found.
            for file in foreign {
                setting.found[file].clone_from(&seen[file]);
            }
        }
        let foreign = ForeignWrite {
            path: setting.definition.paths[file].clone(),
            expected: setting.last[file].clone(),
            seen: seen[file].clone(),
        };
        setting.last = seen;
        let fresh = setting.undo();
        self.handle.write(
            |undo| {
                if let Some(part) = part_of(undo, at) {
                    *part = fresh;
                }
                Ok::<(), PanelError>(())
            },
            || Ok(()),
        )?;
        Ok(Some(foreign))
    }

    /// Carries changes out, all of them under one writing of the record, and reads them back. The answers are in the
    /// order of the changes; one that fails does not keep the others from being made.
    pub(crate) fn write(&mut self, changes: &[Change]) -> Result<Vec<Result<(), PanelError>>, PanelError> {
        let settings = &self.settings;
        let seen = self.handle.write(
            |undo| {
                for change in changes {
                    if let Some(Undo::Files { ours, .. }) = part_of(undo, change.at) {
                        remember(ours, &settings[change.at], &change.writes);
                    }
                }
                Ok::<(), PanelError>(())
            },
            || {
                Ok(changes
                    .iter()
                    .map(|change| {
                        for write in &change.writes {
                            file::write(&write.path, &write.value)?;
                        }
                        Ok(())
                    })
                    .collect::<Vec<Result<(), FileError>>>())
            },
        )?;
        let mut answers = Vec::with_capacity(changes.len());
        let mut strange = Vec::new();
        for (change, written) in changes.iter().zip(seen) {
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
                            Some(file) => Err(PanelError::NotInForce {
                                path: setting.definition.paths[file].clone(),
                                written: change.values[file].clone(),
                                seen: setting.last[file].clone(),
                            }),
                        }
                    }),
            );
        }
        self.own(&strange)?;
        Ok(answers)
    }

    /// What is in the files after our write came of it, also where it is not what was written: it must not keep what was
    /// found from being put back.
    fn own(&mut self, seen: &[(usize, Vec<String>)]) -> Result<(), PanelError> {
        self.handle.write(
            |undo| {
                for (at, values) in seen {
                    let Some(Undo::Files { ours, .. }) = part_of(undo, *at) else {
                        continue;
                    };
                    for (file, value) in ours.iter_mut().zip(values) {
                        if !file.holds(value) {
                            file.values.push(value.clone());
                        }
                    }
                }
                Ok(())
            },
            || Ok(()),
        )
    }

    /// Puts back what was found, now; later writes fail.
    pub(crate) fn restore(&mut self) -> Option<Outcome> {
        self.handle.restore()
    }
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
