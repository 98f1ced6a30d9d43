//! `headroom release`: puts back by hand what a killed run left.

use crate::cli::ReleaseArgs;
use crate::failure::Failure;
use crate::live::undo;
use crate::say;
use anyhow::anyhow;
use headroom_node::{Roots, agent};

/// Puts back what is recorded, and says what it was.
///
/// # Errors
/// A run folder that belongs to a running program (which puts back everything itself when it is stopped) or that cannot
/// be used; something that could not be put back, which stays recorded.
pub fn run(args: &ReleaseArgs) -> Result<(), Failure> {
    let run_dir = args.run_dir.clone().unwrap_or_else(undo::default_run_dir);
    if !run_dir.exists() {
        return say::result(format_args!(
            "nothing was left: there is no {}",
            run_dir.display()
        ));
    }
    let report = agent::release(&run_dir, &Roots::at(&args.sys, &args.proc)).map_err(Failure::usage)?;
    for outcome in &report.outcomes {
        say::result(outcome)?;
    }
    if report.outcomes.is_empty() {
        say::result(format_args!("nothing was left in {}", run_dir.display()))?;
    }
    match report.failed().count() {
        0 => Ok(()),
        failed => Err(Failure::Run(anyhow!(
            "{failed} of {} could not be put back and stay recorded in {}",
            report.outcomes.len(),
            run_dir.display()
        ))),
    }
}
