//! `headroom release`: puts back what a killed run left, by hand or as the process that watches over a run.

use crate::cli::ReleaseArgs;
use crate::commands::operate;
use crate::emulator::{has_demos, take_and_sweep};
use crate::failure::Failure;
use crate::live::control::{self, Request};
use crate::live::undo;
use crate::say;
use anyhow::anyhow;
use headroom_node::restore::{self, LedgerError};
use headroom_node::{Roots, agent};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Puts back what is recorded, and says what it was. A running `up` or agent is paused.
///
/// # Errors
/// A run folder that belongs to a running program without operators (a demo) or that cannot be used; something that could not be put back, which stays recorded.
pub fn run(args: &ReleaseArgs) -> Result<(), Failure> {
    let run_dir = args.run_dir.clone().unwrap_or_else(undo::default_run_dir);
    let roots = args.trees.roots();
    if args.when_input_closes {
        return guard(&run_dir, &roots);
    }
    if !run_dir.exists() {
        return say::result(format_args!(
            "nothing was left: there is no {}",
            run_dir.display()
        ));
    }
    // Demos first: what one changed on an emulated server that is gone is then gone too, and not something that failed.
    let (run_dir, swept) = match take_and_sweep(&run_dir) {
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
    if report.outcomes.is_empty() && swept.done.is_empty() && swept.failed.is_empty() {
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

/// Waits until the process that holds the other end of standard input has ended, and puts back what it left: nothing,
/// unless it was killed.
fn guard(run_dir: &Path, roots: &Roots) -> Result<(), Failure> {
    use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};
    // Whatever stops the run (a service manager stops all of its processes) must leave this one until the run has ended.
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    let mut ignored = [0; 64];
    loop {
        match std::io::stdin().read(&mut ignored) {
            Ok(0) => break,
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => break,
            _ => {}
        }
    }
    match put_back(run_dir, roots) {
        // The next start was faster, and puts everything back itself.
        Ok(()) | Err(LedgerError::InUse { .. }) => Ok(()),
        Err(error) => Err(Failure::Run(error.into())),
    }
}

/// Limits at once, for a service must not stay slow; but where they may be an emulated server's that is gone, that is taken
/// away first, for the same reason as above.
fn put_back(run_dir: &Path, roots: &Roots) -> Result<(), LedgerError> {
    let is_real = roots.sys == Roots::default().sys;
    if !is_real {
        take_away_demos(run_dir)?;
    }
    if restore::is_recorded(run_dir) {
        for outcome in &agent::release(run_dir, roots)?.outcomes {
            say::note!("left by a run that was killed: {outcome}");
        }
    }
    if is_real {
        take_away_demos(run_dir)?;
    }
    Ok(())
}

fn take_away_demos(run_dir: &Path) -> Result<(), LedgerError> {
    // The folder of a run that ended well is not taken: the next may be starting.
    if !has_demos(run_dir) {
        return Ok(());
    }
    let (_, swept) = take_and_sweep(run_dir)?;
    for line in &swept.done {
        say::note!("left by a demo that was killed: {line}");
    }
    for error in &swept.failed {
        say::note!("left by a demo that was killed, and NOT taken away: {error:#}");
    }
    Ok(())
}
