//! The state file: what was found, kept where kill -9 cannot take it.

use crate::Roots;
use crate::restore::{Ledger, LedgerError, Registry, RestoreReport, recover};
use std::path::Path;

/// Puts back what an agent that was killed left behind, and from now on keeps what a registry records in the state file of
/// the run directory. To be called before the machine is opened: what it finds must be what was there before the dead
/// agent.
///
/// # Errors
/// [`LedgerError`]: the directory belongs to a running agent, is not ours, or its state file is not understood.
pub fn keep_state(run_dir: &Path, roots: &Roots, registry: &Registry) -> Result<RestoreReport, LedgerError> {
    let (ledger, report) = Ledger::open(run_dir, roots)?;
    registry.attach(ledger)?;
    Ok(report)
}

/// `headroom release`: puts back by hand what an agent that is no longer running left behind. A running one is not
/// touched: stop it, and it puts everything back itself.
///
/// # Errors
/// [`LedgerError`], as for [`keep_state`].
pub fn release(run_dir: &Path, roots: &Roots) -> Result<RestoreReport, LedgerError> {
    recover(run_dir, roots)
}
