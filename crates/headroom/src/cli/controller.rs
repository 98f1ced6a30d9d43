//! The arguments of `headroom controller`.

use super::RunArgs;
use clap::Args;
use std::path::PathBuf;

/// `headroom controller`.
#[derive(Debug, Args)]
pub struct ControllerArgs {
    /// The configuration file.
    #[arg(long, short, value_name = "FILE", required_unless_present = "example")]
    pub config: Option<PathBuf>,
    /// Check the configuration, ask every node and gateway, change nothing, and stop. With --json what was found is one JSON
    /// object, errors too.
    #[arg(long)]
    pub check: bool,
    /// Print an example configuration that explains every key, and stop.
    #[arg(long)]
    pub example: bool,
    /// The run.
    #[command(flatten)]
    pub run: RunArgs,
}
