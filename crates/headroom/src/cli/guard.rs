//! The arguments of `headroom guard`.

use super::Trees;
use clap::Args;
use std::path::PathBuf;

/// `headroom guard`.
#[derive(Debug, Args)]
pub struct GuardArgs {
    /// The run folder of the program that is watched over. By default /run/headroom for root, and
    /// $XDG_RUNTIME_DIR/headroom for others.
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// Watch over every run of the run folder, as a service: in the host's PID namespace, where the end of a container or
    /// of a unit does not kill it. Without it the run is connected to standard input, as `up`, `agent` and `demo` start
    /// it.
    #[arg(long)]
    pub serve: bool,
    /// Where the kernel's files are.
    #[command(flatten)]
    pub trees: Trees,
}
