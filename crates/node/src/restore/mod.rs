//! Every write to the machine is undone.
//!
//! An actuator registers what it found before its first write and holds a [`Handle`]. Dropping the handle puts the
//! values back; so does [`Registry::restore_all`], which the panic hook ([`install`]) and the binary's signal
//! thread call ([`restore_all`] for the global registry). A [`Ledger`] attached to the registry keeps the same
//! records in a file, so that the next start puts back what a process killed with SIGKILL left behind.
//!
//! What somebody else wrote meanwhile is theirs: it is reported and left alone until an operator says
//! [`Registry::resume`]. [`Registry::pause`] puts everything back and lets nothing be written until then.
//!
//! While the ledger cannot be saved (a full or read-only disk), nothing is written but what was found: that is in the
//! ledger already, so whatever ends this process finds nothing in force that it would not recognise.

mod found;
mod ledger;
mod lever;
mod lift;
mod operator;
mod undo;
mod watch;

pub use found::{Left, is_recorded, is_unfinished, left, usable};
pub use ledger::{Ledger, LedgerError, RunDir, recover};
pub use lift::lift;
pub use operator::Standing;
pub use undo::{FileValue, FileValues, Outcome, Undo};
pub(crate) use undo::{Stop, identity, same};
pub use watch::{Beat, MAX_PULSES, Pulse, Watch};

use crate::panel::ForeignWrite;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Once, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// The most undo records that one registry holds.
pub const MAX_RECORDS: usize = 4096;

/// How long the panic hook waits for a write that another thread is in the middle of.
const PATIENCE: Duration = Duration::from_secs(1);

/// A write that may not happen, because it could not be undone.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// Everything was put back already (a signal, a panic): nothing is written any more.
    #[error("{what} was put back to what was found and is not written any more: this process is ending")]
    Released {
        /// What would have been written.
        what: String,
    },
    /// An operator has paused this process.
    #[error("{what} is not written: an operator has paused this process (`headroom resume` lets it go on)")]
    Paused {
        /// What would have been written.
        what: String,
    },
    /// Another program has the lever.
    #[error(
        "{lever} is limited by a running headroom ({owner}): a lever has one owner on a host; stop that one, or let one \
         `headroom up` or agent serve several services: give it several --config files", lever = lever.display()
    )]
    InUse {
        /// The file that sets it.
        lever: std::path::PathBuf,
        /// Whose it is, as far as is known.
        owner: String,
    },
    /// The ledger could not be written.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// More records than a registry holds.
    #[error(
        "{what} cannot be changed: {MAX_RECORDS} things are changed already, and more are not kept track of"
    )]
    Full {
        /// What would have been written.
        what: String,
    },
}

/// What was put back, and what was not.
#[derive(Debug, Default)]
pub struct RestoreReport {
    /// In the order in which it was done: the last write first.
    pub outcomes: Vec<Outcome>,
}

impl RestoreReport {
    /// Nothing failed and nobody interfered.
    pub fn is_clean(&self) -> bool {
        self.outcomes.iter().all(Outcome::is_clean)
    }

    /// How many things were put back to what had been found.
    pub fn restored(&self) -> usize {
        self.outcomes
            .iter()
            .filter(|outcome| matches!(outcome, Outcome::Restored { .. }))
            .count()
    }

    /// What could not be put back.
    pub fn failed(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes
            .iter()
            .filter(|outcome| matches!(outcome, Outcome::Failed { .. }))
    }

    /// What somebody else had changed, and was left to them.
    pub fn foreign(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes
            .iter()
            .filter(|outcome| matches!(outcome, Outcome::Foreign { .. }))
    }
}

impl fmt::Display for RestoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, outcome) in self.outcomes.iter().enumerate() {
            let end = if at + 1 < self.outcomes.len() { "\n" } else { "" };
            write!(f, "{outcome}{end}")?;
        }
        Ok(())
    }
}

struct Record {
    id: u64,
    /// Which part of the process wrote it, see [`Registry::part`]; 0 is what its parts share.
    part: u64,
    undo: Undo,
    /// Something was written: until then there is nothing to put back.
    written: bool,
}

#[derive(Default)]
struct Inner {
    next_id: u64,
    records: Vec<Record>,
    /// What could not be put back: it stays in the ledger for the next start.
    failed: Vec<Undo>,
    ledger: Option<Ledger>,
    /// What nobody else on this host may limit.
    levers: Vec<lever::Lever>,
    /// Levers are not claimed, only asked for: for a start with this run directory.
    asks_for: Option<std::path::PathBuf>,
    /// What such a start would be refused.
    refused: Vec<RestoreError>,
    /// The ledger may say something else than the records: nothing is written before it was saved again.
    dirty: bool,
    /// An operator has paused this process.
    paused: bool,
    /// Counts the beginnings and the ends of pauses: what was found before the last may have changed.
    pauses: u64,
    /// What somebody else wrote and is left alone, by the name of the setting.
    holds: BTreeMap<String, ForeignWrite>,
    /// Writes of somebody else so far.
    foreign_writes: u64,
}

impl Inner {
    fn save(&mut self) -> Result<(), LedgerError> {
        self.dirty = true;
        let Some(ledger) = &self.ledger else {
            self.dirty = false;
            return Ok(());
        };
        let written = self
            .records
            .iter()
            .filter(|record| record.written)
            .map(|record| &record.undo);
        ledger.save(self.failed.iter().chain(written))?;
        self.dirty = false;
        Ok(())
    }

    /// Takes a record out and carries it out.
    fn restore_at(&mut self, at: usize) -> Option<Outcome> {
        let record = self.records.remove(at);
        if !record.written {
            return None;
        }
        let outcome = record.undo.carry_out();
        if matches!(outcome, Outcome::Failed { .. }) && self.failed.len() < MAX_RECORDS {
            self.failed.push(record.undo);
        }
        Some(outcome)
    }
}

/// The undo records of a process. A clone is the same registry.
#[derive(Clone, Default)]
pub struct Registry(Arc<Mutex<Inner>>, Watch, u64);

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registry({} records)", self.lock().records.len())
    }
}

impl Registry {
    /// An empty registry of its own, for a test or an embedding; a program uses [`global`].
    pub fn new() -> Self {
        Self::default()
    }

    /// The same registry for one part of this process, such as one of its services: what is recorded through it is put
    /// back by itself when this part says so, and with everything else when the whole does.
    pub fn part(&self) -> Self {
        let mut inner = self.lock();
        inner.next_id += 1;
        let part = inner.next_id;
        drop(inner);
        Self(Arc::clone(&self.0), self.1.clone(), part)
    }

    /// The same registry for what the parts of this process share.
    pub(crate) fn shared(&self) -> Self {
        Self(Arc::clone(&self.0), self.1.clone(), 0)
    }

    /// The same for every clone, and for no other registry that exists.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Whether what is recorded here is watched over by a guard.
    pub fn watch(&self) -> &Watch {
        &self.1
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A poisoned registry still holds what must be put back.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the records in a file from now on.
    ///
    /// # Errors
    /// [`LedgerError`] where what is already recorded cannot be written to it.
    pub fn attach(&self, ledger: Ledger) -> Result<(), LedgerError> {
        let mut inner = self.lock();
        ledger.check_writable()?;
        inner.ledger = Some(ledger);
        inner.save()
    }

    /// Enters what must be put back; nothing is, until the first write through the handle.
    ///
    /// # Errors
    /// [`RestoreError::Full`].
    pub fn register(&self, undo: Undo) -> Result<Handle, RestoreError> {
        let mut inner = self.lock();
        if inner.records.len() >= MAX_RECORDS {
            return Err(RestoreError::Full {
                what: undo.what().into(),
            });
        }
        inner.next_id += 1;
        let id = inner.next_id;
        let what = undo.what().to_string();
        inner.records.push(Record {
            id,
            part: self.2,
            undo,
            written: false,
        });
        Ok(Handle {
            registry: self.clone(),
            id,
            what,
        })
    }

    /// Puts everything back, the last registered first, and allows no further write through the handles; of a
    /// [`Registry::part`], what is recorded through that. What could not be put back earlier, by whichever part, is tried
    /// again after that, and is reported again where it still cannot. Not async-signal-safe: call it from a thread that
    /// waits for signals, not from a handler.
    pub fn restore_all(&self) -> RestoreReport {
        Self::drain(self.lock(), self.2)
    }

    /// As [`Registry::restore_all`], but gives up after a second where another thread holds the registry.
    fn restore_all_patiently(&self) -> Option<RestoreReport> {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.0.try_lock() {
                Ok(inner) => return Some(Self::drain(inner, self.2)),
                Err(TryLockError::Poisoned(poisoned)) => {
                    return Some(Self::drain(poisoned.into_inner(), self.2));
                }
                Err(TryLockError::WouldBlock) if Instant::now() >= until => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    fn drain(mut inner: MutexGuard<'_, Inner>, part: u64) -> RestoreReport {
        let mut outcomes = Vec::new();
        let earlier = std::mem::take(&mut inner.failed);
        while let Some(last) = inner
            .records
            .iter()
            .rposition(|record| part == 0 || record.part == part)
        {
            outcomes.extend(inner.restore_at(last));
        }
        // Older than all that: what they found is what was there first.
        let mut still = Vec::new();
        for undo in earlier.into_iter().rev() {
            let outcome = undo.carry_out();
            if matches!(outcome, Outcome::Failed { .. }) {
                still.insert(0, undo);
            }
            outcomes.push(outcome);
        }
        still.append(&mut inner.failed);
        still.truncate(MAX_RECORDS);
        inner.failed = still;
        if let Err(error) = inner.save() {
            outcomes.push(Outcome::Failed {
                what: "the state file".into(),
                reason: error.to_string(),
            });
        }
        RestoreReport { outcomes }
    }
}

/// The registry of this process.
pub fn global() -> &'static Registry {
    static GLOBAL: LazyLock<Registry> = LazyLock::new(Registry::new);
    &GLOBAL
}

/// Puts back everything in the [`global`] registry. See [`Registry::restore_all`].
pub fn restore_all() -> RestoreReport {
    global().restore_all()
}

/// Makes every panic of this process put back everything in the [`global`] registry, after the hook that was there
/// before has reported the panic. What could not be put back, and why, goes to standard error. A program that
/// survives the panic of a thread no longer controls anything afterwards: its writes fail with
/// [`RestoreError::Released`]. Calling it again does nothing.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            before(panic);
            match global().restore_all_patiently() {
                Some(report) if report.outcomes.is_empty() => {}
                Some(report) => eprintln!("{report}"),
                None => eprintln!(
                    "what was changed on this machine could not be put back from the panic: another write hangs; \
                     the next start with the same run directory puts it back"
                ),
            }
        }));
    });
}

/// Something that is put back when this is dropped.
#[derive(Debug)]
pub struct Handle {
    registry: Registry,
    id: u64,
    what: String,
}

impl Handle {
    /// Carries out a write after its undo record is up to date, in memory and in the ledger. No restoration can come
    /// between the two. Where the ledger cannot be saved nothing is written, and the record is as it was, as the ledger
    /// still has it.
    pub(crate) fn write<T, E: From<RestoreError>>(
        &self,
        prepare: impl FnOnce(&mut Undo) -> Result<(), E>,
        carry_out: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let (mut inner, at) = self.record()?;
        let record = &mut inner.records[at];
        let before = record.undo.clone();
        prepare(&mut record.undo)?;
        let was_written = std::mem::replace(&mut record.written, true);
        let changed = !was_written || record.undo != before;
        if (changed || inner.dirty)
            && let Err(error) = inner.save()
        {
            let record = &mut inner.records[at];
            (record.undo, record.written) = (before, was_written);
            return Err(E::from(RestoreError::Ledger(error)));
        }
        carry_out()
    }

    /// Carries out a write of what was found, and of nothing else, also while the ledger cannot be saved: whoever reads
    /// it later takes what was found for ours in any case.
    pub(crate) fn give_back<T, E: From<RestoreError>>(
        &self,
        carry_out: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let (inner, _) = self.record()?;
        let done = carry_out();
        drop(inner);
        done
    }

    /// Changes the record after something has come of a write. It is kept in memory also where the ledger cannot be
    /// saved.
    pub(crate) fn note(&self, change: impl FnOnce(&mut Undo)) -> Result<(), RestoreError> {
        let (mut inner, at) = self.record()?;
        let record = &mut inner.records[at];
        let before = record.undo.clone();
        change(&mut record.undo);
        let changed = record.undo != before && record.written;
        if changed {
            inner.save()?;
        }
        Ok(())
    }

    /// The record, while writing is allowed.
    fn record(&self) -> Result<(MutexGuard<'_, Inner>, usize), RestoreError> {
        let inner = self.registry.lock();
        let what = || self.what.clone();
        let Some(at) = inner.records.iter().position(|record| record.id == self.id) else {
            return Err(RestoreError::Released { what: what() });
        };
        match inner.paused {
            true => Err(RestoreError::Paused { what: what() }),
            false => Ok((inner, at)),
        }
    }

    /// Puts it back now. Nothing where it was put back before, or never written.
    pub fn restore(&mut self) -> Option<Outcome> {
        let mut inner = self.registry.lock();
        let at = inner.records.iter().position(|record| record.id == self.id)?;
        let written = inner.records[at].written;
        let outcome = inner.restore_at(at);
        if written && let Err(error) = inner.save() {
            tracing::warn!(%error, "the state file still names what was put back");
        }
        outcome
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        match self.restore() {
            Some(outcome) if !outcome.is_clean() => tracing::warn!("{outcome}"),
            Some(outcome) => tracing::debug!("{outcome}"),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests;
