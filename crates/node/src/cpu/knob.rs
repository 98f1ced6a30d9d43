//! One setting of a service's cores: a [`Panel`] of one.

use super::CpuError;
pub use crate::panel::ForeignWrite;
use crate::panel::{Change, Definition, Panel, PanelError};
pub(super) use crate::panel::{Room, Sequence};
use crate::restore::{FileValue, Outcome, Registry};
use std::path::PathBuf;

impl From<PanelError> for CpuError {
    fn from(error: PanelError) -> Self {
        match error {
            PanelError::File(error) => Self::File(error),
            PanelError::Restore(error) => Self::Restore(error),
            PanelError::NotInForce(error) => Self::NotInForce(error),
        }
    }
}

#[derive(Debug)]
pub(super) struct Knob(Panel);

impl Knob {
    /// Reads what is there, and checks that it may be written, without writing.
    pub(super) fn open(
        registry: &Registry,
        what: String,
        paths: Vec<PathBuf>,
        sequence: Sequence,
        room: Room,
    ) -> Result<Self, CpuError> {
        let definition = Definition {
            what: what.clone(),
            paths,
            sequence,
            tolerance: 0,
            joint: true,
            room,
        };
        Ok(Self(Panel::open(registry, what, vec![definition])?))
    }

    /// The files.
    pub(super) fn paths(&self) -> &[PathBuf] {
        self.0.paths(0)
    }

    /// What we believe is in the files: found, or written last.
    pub(super) fn last(&self) -> &[String] {
        self.0.last(0)
    }

    /// What is put back in the end.
    pub(super) fn found(&self) -> &[String] {
        self.0.found(0)
    }

    /// Whether it is left alone because somebody else wrote it.
    pub(super) fn is_held(&self) -> bool {
        self.0.is_held(0)
    }

    /// Whether somebody else has written since; it is left alone then.
    pub(super) fn look(&mut self) -> Result<Option<ForeignWrite>, CpuError> {
        Ok(self.0.look(0)?)
    }

    /// Writes by the given sequence, which must end with `values` in the files, and reads back.
    pub(super) fn write(&mut self, writes: &[FileValue], values: Vec<String>) -> Result<(), CpuError> {
        let change = Change {
            at: 0,
            writes: writes.to_vec(),
            values,
        };
        for answer in self.0.write(&[change])? {
            answer?;
        }
        Ok(())
    }

    /// Puts back what was found, now.
    pub(super) fn restore(&mut self) -> Option<Outcome> {
        self.0.restore()
    }
}
