//! The promise that everything is put back: on exit, on panic, on a signal, and after kill -9, then by the
//! guard ([`guard`]); where it was killed too, by the next start or by `headroom release`.

use crate::demos::take_and_sweep;
use crate::live::guard::{self, namespace::Place};
use headroom_console::Failure;
use headroom_node::Roots;
use headroom_node::restore::{self, Left, RunDir};
use std::path::Path;

/// Takes a run folder for this process, and takes away what dead demos left in it: what those changed on their emulated
/// servers is gone then, and need not be put back.
///
/// # Errors
/// A run folder that is in use or cannot be used.
pub fn take(run_dir: &Path) -> Result<RunDir, Failure> {
    let (taken, swept) = take_and_sweep(run_dir).map_err(Failure::usage)?;
    for line in &swept.done {
        tracing::warn!("left by a demo that was killed: {line}");
    }
    for error in &swept.failed {
        tracing::warn!("left by a demo that was killed, and NOT taken away: {error:#}");
    }
    Ok(taken)
}

/// Puts back what a killed run left, and from now on keeps record of what this one changes, watched over by a guard.
///
/// # Errors
/// A run folder whose record cannot be used; no guard that would outlive this process.
pub fn promise(run_dir: RunDir, roots: &Roots, place: Place) -> Result<(), Failure> {
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
