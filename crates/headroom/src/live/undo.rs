//! The promise that everything is put back: on exit, on panic, on a signal, and after kill -9 by the next start.

use crate::failure::Failure;
use headroom_node::Roots;
use headroom_node::restore::{self, Ledger};
use std::path::{Path, PathBuf};

/// Where this user's runs keep the record of what is to be put back.
pub fn default_run_dir() -> PathBuf {
    if is_root() {
        return PathBuf::from("/run/headroom");
    }
    std::env::var_os("XDG_RUNTIME_DIR")
        .map_or_else(std::env::temp_dir, PathBuf::from)
        .join("headroom")
}

fn is_root() -> bool {
    // The owner of this process's directory in /proc is its effective user.
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}

/// Puts back what a killed run left, and from now on keeps record of what this one changes.
///
/// # Errors
/// A run folder that is in use or cannot be used.
pub fn promise(run_dir: &Path, roots: &Roots) -> Result<(), Failure> {
    restore::install();
    let (ledger, left) = Ledger::open(run_dir, roots).map_err(Failure::usage)?;
    for outcome in &left.outcomes {
        tracing::warn!("left by a run that was killed: {outcome}");
    }
    restore::global().attach(ledger).map_err(Failure::usage)?;
    Ok(())
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
}
