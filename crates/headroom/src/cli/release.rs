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
    /// Wait until standard input closes, and put back then: how an agent, `up` and `demo` are watched over by a process
    /// of their own, so that nothing stays limited when they are killed.
    #[arg(long, hide = true)]
    pub when_input_closes: bool,
}
