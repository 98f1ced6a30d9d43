//! That everything is put back: on exit, on panic, on a signal, and after kill -9, then by the
//! guard ([`guard`]); where it was killed too, by the next start or by `headroom release`.
//!
//! ```no_run
//! use headroom_node::Roots;
//! use headroom_runtime::live::guard::namespace::Place;
//! use headroom_runtime::live::undo::{self, Remains};
//!
//! # fn main() -> Result<(), headroom_console::Failure> {
//! let run_dir = undo::take(&undo::run_dir(None)?, Remains::NONE)?;
//! undo::protect(run_dir, &Roots::default(), Place::Inside)?;
//! // Machines are opened and limited here.
//! undo::keep();
//! # Ok(())
//! # }
//! ```

use crate::live::guard::{self, namespace::Place};
use anyhow::Context;
use headroom_console::Failure;
use headroom_node::restore::{self, LedgerError, Left, RunDir};
use headroom_node::{Roots, ours};
use std::path::{Path, PathBuf};

/// What this crate does not know how to take away from a run folder: what dead demos left in it.
#[derive(Clone, Copy, Debug)]
pub struct Remains {
    /// Whether there is something of a demo in a run folder, which may be that of a living one.
    pub are_in: fn(&Path) -> bool,
    /// Takes a run folder for this process, and takes away what dead demos left in it.
    pub take: fn(&Path) -> Result<(RunDir, Removed), LedgerError>,
}

impl Remains {
    /// Of a program that has no demo.
    pub const NONE: Self = Self {
        are_in: |_| false,
        take: |run_dir| Ok((RunDir::take(run_dir)?, Removed::default())),
    };
}

/// What was taken away of dead demos.
#[derive(Debug, Default)]
pub struct Removed {
    /// What it was, a line each.
    pub done: Vec<String>,
    /// What could not be: a demo each.
    pub failed: Vec<anyhow::Error>,
}

/// A run folder as it was given, or else this user's ([`ours::folder`]): the same whatever folder a process is in.
///
/// # Errors
/// A relative one, where this process's own folder is gone; an empty one.
pub fn run_dir(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let Some(given) = given else {
        return Ok(ours::folder());
    };
    std::path::absolute(given)
        .with_context(|| format!("--run-dir {}: a folder is wanted", given.display()))
        .map_err(Failure::usage)
}

/// Takes a run folder for this process, and takes away what dead demos left in it: what those changed on their emulated
/// servers is gone then, and need not be put back.
///
/// # Errors
/// A run folder that is in use or cannot be used.
pub fn take(run_dir: &Path, remains: Remains) -> Result<RunDir, Failure> {
    let (taken, removed) = (remains.take)(run_dir).map_err(Failure::usage)?;
    for line in &removed.done {
        tracing::warn!("left by a demo that was killed: {line}");
    }
    for error in &removed.failed {
        tracing::warn!("left by a demo that was killed, and NOT taken away: {error:#}");
    }
    Ok(taken)
}

/// Puts back what a killed run left, and from now on keeps record of what this one changes, watched over by a guard: a service
/// that stands already, else this program started again with `guard --run-dir DIR --sys DIR --proc DIR` and a socket as its
/// standard input, which is to be [`Post::watch`](guard::post::Post::watch).
///
/// # Errors
/// A run folder whose record cannot be used; no guard that would outlive this process.
pub fn protect(run_dir: RunDir, roots: &Roots, place: Place) -> Result<(), Failure> {
    restore::install();
    let path = run_dir.path().to_path_buf();
    let (ledger, left) = run_dir.ledger(roots).map_err(Failure::usage)?;
    for outcome in &left.outcomes {
        tracing::warn!("left by a run that was killed: {outcome}");
    }
    restore::global().attach(ledger).map_err(Failure::usage)?;
    let path = std::path::absolute(path).map_err(Failure::usage)?;
    let absolute = Roots::at(
        std::path::absolute(&roots.sys).map_err(Failure::usage)?,
        std::path::absolute(&roots.proc_).map_err(Failure::usage)?,
    );
    guard::supervisor::start(path, &absolute, place).map_err(Failure::usage)
}

/// What a `--check`, which puts nothing back, says of limits that are in force now.
pub fn note_of_left(run_dir: &Path) -> Option<String> {
    match restore::left(run_dir) {
        Left::Nothing => None,
        Left::OfRunning(pid) => Some(format!(
            "{} belongs to a running headroom (pid {pid}): the limits found here may be its own",
            run_dir.display()
        )),
        Left::OfKilled => Some(format!(
            "a run that was killed left limits in force, and they are what was found here; the next start puts them back, \
             and so does `headroom release --run-dir {0}` ({0} has the record)",
            run_dir.display()
        )),
    }
}

/// Puts everything back now, and says what could not be.
pub fn keep() {
    for outcome in restore::restore_all().outcomes {
        if outcome.is_clean() {
            tracing::info!("{outcome}");
        } else {
            tracing::warn!("{outcome}");
        }
    }
    restore::global().disown();
    guard::supervisor::end();
}
