//! A few files of the kernel that are one setting: remembered before the first write, watched for other writers,
//! read back after each write.

use super::CpuError;
use crate::file;
use crate::restore::{FileValue, FileValues, Handle, Outcome, Registry, Undo};
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

/// The order in which a setting's files are written to reach the given values from any others.
pub(super) type Sequence = fn(paths: &[PathBuf], values: &[String]) -> Vec<FileValue>;

#[derive(Debug)]
pub(super) struct Knob {
    paths: Vec<PathBuf>,
    /// What we believe is in each file.
    last: Vec<String>,
    sequence: Sequence,
    handle: Handle,
}

impl Knob {
    /// Reads what is there, and checks that it may be written, without writing.
    pub(super) fn open(
        registry: &Registry,
        what: String,
        paths: Vec<PathBuf>,
        sequence: Sequence,
    ) -> Result<Self, CpuError> {
        let last = read_all(&paths)?;
        for path in &paths {
            file::check_writable(path)?;
        }
        let ours = paths
            .iter()
            .zip(&last)
            .map(|(path, value)| FileValues {
                path: path.clone(),
                values: vec![value.clone()],
            })
            .collect();
        let handle = registry.register(Undo::Files {
            what,
            ours,
            steps: sequence(&paths, &last),
        })?;
        Ok(Self {
            paths,
            last,
            sequence,
            handle,
        })
    }

    /// The files.
    pub(super) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// What we believe is in the files: found, or written last.
    pub(super) fn last(&self) -> &[String] {
        &self.last
    }

    /// Whether somebody else has written since. What they wrote becomes what is put back in the end, because it is
    /// what the machine would hold without us.
    pub(super) fn look(&mut self) -> Result<Option<ForeignWrite>, CpuError> {
        let seen = read_all(&self.paths)?;
        let Some(at) = (0..seen.len()).find(|&at| seen[at] != self.last[at]) else {
            return Ok(None);
        };
        let foreign = ForeignWrite {
            path: self.paths[at].clone(),
            expected: std::mem::replace(&mut self.last, seen.clone())[at].clone(),
            seen: seen[at].clone(),
        };
        let steps_back = (self.sequence)(&self.paths, &seen);
        let paths = &self.paths;
        self.handle.write(
            |undo| {
                if let Undo::Files { ours, steps, .. } = undo {
                    *steps = steps_back;
                    *ours = paths
                        .iter()
                        .zip(&seen)
                        .map(|(path, value)| FileValues {
                            path: path.clone(),
                            values: vec![value.clone()],
                        })
                        .collect();
                }
                Ok::<(), CpuError>(())
            },
            || Ok(()),
        )?;
        tracing::warn!("{foreign}");
        Ok(Some(foreign))
    }

    /// Writes by the given sequence, which must end with `values` in the files, and reads back.
    pub(super) fn write(&mut self, writes: &[FileValue], values: Vec<String>) -> Result<(), CpuError> {
        let (paths, last) = (&self.paths, &self.last);
        let written = self.handle.write(
            |undo| {
                if let Undo::Files { ours, .. } = undo {
                    for file in ours {
                        // Wherever the process is killed in the sequence, what is in the file is one of these.
                        let at = paths.iter().position(|path| *path == file.path);
                        let mut values: Vec<String> = at.map(|at| last[at].clone()).into_iter().collect();
                        let coming = writes.iter().filter(|write| write.path == file.path);
                        values.extend(coming.map(|write| write.value.clone()));
                        values.dedup();
                        file.values = values;
                    }
                }
                Ok(())
            },
            || {
                for write in writes {
                    file::write(&write.path, &write.value)?;
                }
                read_all(paths)
            },
        );
        let seen = match written {
            Ok(seen) => seen,
            Err(error) => {
                // Part of the sequence may be in force: what we know of the files must follow.
                if let Ok(seen) = read_all(&self.paths) {
                    self.last = seen;
                }
                return Err(error);
            }
        };
        let wrong = (0..seen.len()).find(|&at| seen[at] != values[at]);
        self.last = seen;
        let Some(at) = wrong else { return Ok(()) };
        let (path, seen) = (self.paths[at].clone(), self.last[at].clone());
        // It came of our write: it must not keep what was found from being put back.
        self.handle.write(
            |undo| {
                if let Undo::Files { ours, .. } = undo {
                    ours.iter_mut()
                        .filter(|o| o.path == path)
                        .for_each(|o| o.values.push(seen.clone()));
                }
                Ok::<(), CpuError>(())
            },
            || Ok(()),
        )?;
        Err(CpuError::NotInForce {
            path,
            written: values[at].clone(),
            seen,
        })
    }

    /// Puts back what was found, now.
    pub(super) fn restore(&mut self) -> Option<Outcome> {
        self.handle.restore()
    }
}

fn read_all(paths: &[PathBuf]) -> Result<Vec<String>, CpuError> {
    Ok(paths
        .iter()
        .map(|path| file::read(path))
        .collect::<Result<_, _>>()?)
}
