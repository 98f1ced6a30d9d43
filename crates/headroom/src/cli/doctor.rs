//! The arguments of `headroom doctor`.

use super::Trees;
use clap::Args;

/// `headroom doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print the findings as JSON.
    #[arg(long)]
    pub json: bool,
    /// Where the kernel's files are.
    #[command(flatten)]
    pub trees: Trees,
}
