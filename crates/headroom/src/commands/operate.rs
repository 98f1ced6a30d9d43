//! `headroom pause` and `headroom resume`: what an operator asks of a running `up` or agent.

use anyhow::anyhow;
use clap::Args;
use headroom_console::Failure;
use headroom_console::say;
use headroom_runtime::live::control::{self, Request};
use headroom_runtime::live::undo;
use std::path::{Path, PathBuf};

/// `headroom pause`, `headroom resume`.
#[derive(Debug, Args)]
pub struct OperateArgs {
    /// The run folder of the running program. By default /run/headroom for root, and
    /// $XDG_RUNTIME_DIR/headroom, or where that is not set /tmp/headroom-UID, for others.
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
}

/// Makes it put everything back and write nothing.
///
/// # Errors
/// As [`ask`].
pub fn pause(args: &OperateArgs) -> Result<(), Failure> {
    ask(&undo::run_dir(args.run_dir.as_deref())?, Request::Pause)
}

/// Makes it go on, also with what somebody else had written.
///
/// # Errors
/// As [`ask`].
pub fn resume(args: &OperateArgs) -> Result<(), Failure> {
    ask(&undo::run_dir(args.run_dir.as_deref())?, Request::Resume)
}

/// Asks whoever has a run folder, and prints what was done.
///
/// # Errors
/// Nobody runs there; something that could not be done.
pub fn ask(run_dir: &Path, request: Request) -> Result<(), Failure> {
    let answer = control::ask(run_dir, request).map_err(Failure::usage)?;
    for line in &answer.done {
        say::result(format_args!("pid {}: {line}", answer.pid))?;
    }
    match answer.failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::Run(anyhow!("{}", answer.failed.join("\n")))),
    }
}
