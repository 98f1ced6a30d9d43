//! The arguments of `headroom release`.

use super::Trees;
use clap::Args;
use std::path::PathBuf;

/// `headroom release`.
#[derive(Debug, Args)]
pub struct ReleaseArgs {
    /// The run folder of the program that was killed. By default /run/headroom for root, and
    /// $XDG_RUNTIME_DIR/headroom for others.
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// Where the kernel's files are.
    #[command(flatten)]
    pub trees: Trees,
}
