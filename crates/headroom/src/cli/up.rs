//! The arguments of `headroom up`.

use super::{GuardChoice, RunArgs, Trees};
use clap::Args;
use std::path::PathBuf;

/// `headroom up`.
#[derive(Debug, Args)]
pub struct UpArgs {
    /// The configuration file. Given more than once, one process controls several services of this machine, each by its
    /// own file; their power is estimated by the model, and the frequency is the highest that any of them asks for.
    #[arg(long, short, value_name = "FILE", required_unless_present = "example")]
    pub config: Vec<PathBuf>,
    /// Check the configuration and what it needs of this machine, change nothing, and stop. With --json what was found is
    /// one JSON object, errors too.
    #[arg(long)]
    pub check: bool,
    /// Print an example configuration that explains every key, and stop.
    #[arg(long)]
    pub example: bool,
    /// The run.
    #[command(flatten)]
    pub run: RunArgs,
    /// Folder for the record of what is to be put back if this program is killed. By default /run/headroom for root,
    /// and $XDG_RUNTIME_DIR/headroom for others.
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// The guard.
    #[command(flatten)]
    pub guard: GuardChoice,
    /// Where the kernel's files are.
    #[command(flatten)]
    pub trees: Trees,
}
