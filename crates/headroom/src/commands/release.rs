//! `headroom release`: puts back by hand what a killed run left.

use crate::args::Trees;
use crate::commands::operate;
use crate::demos;
use anyhow::anyhow;
use clap::Args;
use headroom_console::Failure;
use headroom_console::say;
use headroom_node::restore::LedgerError;
use headroom_runtime::live::control::{self, Request};
use headroom_runtime::live::undo;
use headroom_runtime::oncall::{sweep, wrapped};
use std::path::PathBuf;

/// `headroom release`.
#[derive(Debug, Args)]
pub struct ReleaseArgs {
    /// The run folder of the program that was killed. By default /run/headroom for root, and
    /// $XDG_RUNTIME_DIR/headroom, or where that is not set /tmp/headroom-UID, for others.
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// Where the kernel's files are.
    #[command(flatten)]
    pub trees: Trees,
}

/// Puts back what is recorded, and says what it was. A running `up` or agent is paused.
///
/// # Errors
/// A run folder that belongs to a running program without operators (a demo) or that cannot be
/// used; something that could not be put back, which stays recorded.
pub fn run(args: &ReleaseArgs) -> Result<(), Failure> {
    let run_dir = undo::run_dir(args.run_dir.as_deref())?;
    let roots = args.trees.roots();
    if !run_dir.exists() {
        return say::result(format_args!(
            "nothing was left: there is no {}",
            run_dir.display()
        ));
    }
    // Demos first: what one changed on an emulated server that is gone is then gone too, and not something that failed.
    let (run_dir, swept) = match (demos::REMAINS.take)(&run_dir) {
        // A running program puts back itself what it knows best.
        Err(LedgerError::InUse { .. }) if control::is_served(&run_dir) => {
            return operate::ask(&run_dir, Request::Pause);
        }
        taken => taken.map_err(Failure::usage)?,
    };
    swept.done.iter().try_for_each(say::result)?;
    for error in &swept.failed {
        say::note!("not taken away: {error:#}");
    }
    let at = run_dir.path().to_path_buf();
    let (_, report) = run_dir.ledger(&roots).map_err(Failure::usage)?;
    for outcome in &report.outcomes {
        say::result(outcome)?;
    }
    let left = [sweep(&at), wrapped::sweep(&at)].concat();
    for folder in &left {
        say::result(format_args!(
            "{}: left by a killed `headroom wrap`, and taken away",
            folder.display()
        ))?;
    }
    let is_nothing = report.outcomes.is_empty() && left.is_empty();
    if is_nothing && swept.done.is_empty() && swept.failed.is_empty() {
        say::result(format_args!("nothing was left in {}", at.display()))?;
    }
    match report.failed().count() {
        0 if swept.failed.is_empty() => Ok(()),
        0 => Err(Failure::Run(anyhow!(
            "not everything that dead demos left could be taken away: see above"
        ))),
        failed => Err(Failure::Run(anyhow!(
            "{failed} of {} could not be put back and stay recorded in {}",
            report.outcomes.len(),
            at.display()
        ))),
    }
}
