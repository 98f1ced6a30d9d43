//! What an operator may ask of a running process: to put everything back and wait, and to go on; and what somebody else
//! wrote, which is left alone until then.

use super::undo::{Outcome, Undo};
use super::{Handle, Inner, Ledger, Registry, RestoreError, RestoreReport};
use crate::panel::ForeignWrite;
use std::sync::MutexGuard;

/// What an operator, or somebody else's write, keeps from being written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Everything is as it was found, and nothing is written.
    pub paused: bool,
    /// What somebody else wrote and is left alone.
    pub held: Vec<ForeignWrite>,
    /// Writes of somebody else since the start.
    pub foreign_writes: u64,
}

impl Registry {
    /// Puts everything back to what was found, and lets nothing be written until [`Registry::resume`]. Control groups of
    /// ours stay, as something runs in them. What could not be put back is tried again with the next call, and stays
    /// recorded.
    pub fn pause(&self) -> RestoreReport {
        let mut inner = self.lock();
        inner.paused = true;
        Self::put_back_for_now(inner)
    }

    /// Sees to it that what is in force is recorded where whoever ends or replaces this process looks for it: it is recorded
    /// again where somebody removed the record, and everything is put back where that cannot be. What was put back.
    pub fn tend(&self) -> Option<RestoreReport> {
        let mut inner = self.lock();
        let in_force = inner.records.iter().any(|record| record.written) || !inner.failed.is_empty();
        if !in_force || inner.ledger.as_ref().is_none_or(Ledger::is_there) {
            return None;
        }
        let error = inner.save().err()?;
        tracing::error!("everything is put back, as it cannot be recorded: {error}");
        Some(Self::put_back_for_now(inner))
    }

    fn put_back_for_now(mut inner: MutexGuard<'_, Inner>) -> RestoreReport {
        inner.pauses += 1;
        let mut outcomes = Vec::new();
        for record in inner.records.iter_mut().rev() {
            if !record.written || matches!(record.undo, Undo::Groups { .. }) {
                continue;
            }
            let outcome = record.undo.carry_out();
            record.written = matches!(outcome, Outcome::Failed { .. });
            outcomes.push(outcome);
        }
        let earlier = std::mem::take(&mut inner.failed);
        for undo in earlier.into_iter().rev() {
            let outcome = undo.carry_out();
            if matches!(outcome, Outcome::Failed { .. }) {
                inner.failed.insert(0, undo);
            }
            outcomes.push(outcome);
        }
        if let Err(error) = inner.save() {
            outcomes.push(Outcome::Failed {
                what: "the state file".into(),
                reason: error.to_string(),
            });
        }
        RestoreReport { outcomes }
    }

    /// Lets everything be written again, also what somebody else had written: what is there now is what was found. What
    /// was left alone until now.
    pub fn resume(&self) -> Vec<ForeignWrite> {
        let mut inner = self.lock();
        // What is found during a pause may change until its end.
        inner.pauses += u64::from(inner.paused);
        inner.paused = false;
        std::mem::take(&mut inner.holds).into_values().collect()
    }

    /// Whether an operator has paused this process.
    pub fn is_paused(&self) -> bool {
        self.lock().paused
    }

    /// Whether nothing that limits can be written now: paused, or the ledger cannot be saved.
    pub(crate) fn is_blocked(&self) -> bool {
        let inner = self.lock();
        inner.paused || inner.dirty
    }

    /// What keeps something from being written now.
    pub fn standing(&self) -> Standing {
        let inner = self.lock();
        Standing {
            paused: inner.paused,
            held: inner.holds.values().cloned().collect(),
            foreign_writes: inner.foreign_writes,
        }
    }
}

/// How something that is written stands with the operator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operated {
    /// Nothing is written now.
    pub(crate) paused: bool,
    /// Counts the beginnings and the ends of pauses: what was found before the last may have changed.
    pub(crate) pauses: u64,
    /// There is something of ours to be put back.
    pub(crate) written: bool,
}

impl Handle {
    /// Leaves a setting alone from now on, because somebody else wrote it.
    pub(crate) fn hold(&self, setting: &str, foreign: &ForeignWrite) {
        let mut inner = self.registry.lock();
        inner.foreign_writes += 1;
        inner.holds.insert(setting.into(), foreign.clone());
    }

    /// Whether a setting is left alone.
    pub(crate) fn is_held(&self, setting: &str) -> bool {
        self.registry.lock().holds.contains_key(setting)
    }

    /// Where it stands with the operator.
    ///
    /// # Errors
    /// [`RestoreError::Released`]: it was put back, and is not written any more.
    pub(crate) fn operated(&self) -> Result<Operated, RestoreError> {
        let inner = self.registry.lock();
        let record = inner.records.iter().find(|record| record.id == self.id);
        let record = record.ok_or_else(|| RestoreError::Released {
            what: self.what.clone(),
        })?;
        Ok(Operated {
            paused: inner.paused,
            pauses: inner.pauses,
            written: record.written,
        })
    }

    /// The ledger may not say any more what it did: somebody who reads it has put things back.
    pub(crate) fn distrust(&self) {
        self.registry.lock().dirty = true;
    }

    /// Changes the record without saving it: the next write does. For what is not in force, or somebody else's.
    pub(crate) fn correct(&self, change: impl FnOnce(&mut Undo)) {
        let mut inner = self.registry.lock();
        if let Some(record) = inner.records.iter_mut().find(|record| record.id == self.id) {
            change(&mut record.undo);
            inner.dirty = true;
        }
    }
}
