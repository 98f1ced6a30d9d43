//! `headroom release`: puts back by hand what a killed run left.

use crate::args::Trees;
use crate::commands::controller::finish_all;
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
use std::path::{Path, PathBuf};

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

/// Puts back what is recorded, and says what it was: limits, and servers that a controller switched, which are started and given
/// requests. A running `up` or agent is paused, the servers of a running controller are left alone.
///
/// # Errors
/// A run folder that belongs to a running program without operators (a demo) or that cannot be
/// used; something that could not be put back, which stays recorded.
pub fn run(args: &ReleaseArgs) -> Result<(), Failure> {
    let run_dir = undo::run_dir(args.run_dir.as_deref())?;
    if !run_dir.exists() {
        return say::result(format_args!(
            "nothing was left: there is no {}",
            run_dir.display()
        ));
    }
    let limits = put_back(&run_dir, &args.trees);
    // After the limits: servers take their time to boot.
    let servers = finish_all(&run_dir);
    servers.lines.iter().try_for_each(say::result)?;
    for error in &servers.failed {
        say::note!("not every server was brought back: {error:#}");
    }
    if limits? == Found::Nothing && servers.lines.is_empty() && servers.failed.is_empty() {
        say::result(format_args!("nothing was left in {}", run_dir.display()))?;
    }
    match servers.failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::Run(anyhow!(
            "not every server that a killed controller switched could be brought back, and that stays recorded: see above"
        ))),
    }
}

/// Whether anything was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    Something,
}

/// Puts back all but servers that are off.
fn put_back(run_dir: &Path, trees: &Trees) -> Result<Found, Failure> {
    // Demos first: what one changed on an emulated server that is gone is then gone too, and not something that failed.
    let (run_dir, swept) = match (demos::REMAINS.take)(run_dir) {
        // A running program puts back itself what it knows best.
        Err(LedgerError::InUse { .. }) if control::is_served(run_dir) => {
            operate::ask(run_dir, Request::Pause)?;
            return Ok(Found::Something);
        }
        taken => taken.map_err(Failure::usage)?,
    };
    swept.done.iter().try_for_each(say::result)?;
    for error in &swept.failed {
        say::note!("not taken away: {error:#}");
    }
    let at = run_dir.path().to_path_buf();
    let (_, report) = run_dir.ledger(&trees.roots()).map_err(Failure::usage)?;
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
    let is_nothing =
        report.outcomes.is_empty() && left.is_empty() && swept.done.is_empty() && swept.failed.is_empty();
    match report.failed().count() {
        0 if is_nothing => Ok(Found::Nothing),
        0 if swept.failed.is_empty() => Ok(Found::Something),
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
