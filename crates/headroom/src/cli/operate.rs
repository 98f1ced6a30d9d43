//! The arguments of `headroom pause` and `headroom resume`.

use clap::Args;
use std::path::PathBuf;

/// `headroom pause`, `headroom resume`.
#[derive(Debug, Args)]
pub struct OperateArgs {
    /// The run folder of the running program. By default /run/headroom for root, and $XDG_RUNTIME_DIR/headroom for
    /// others.
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
}
