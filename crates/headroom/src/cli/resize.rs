//! The arguments of `headroom resize`.

use super::shared::seconds;
use clap::Args;
use std::path::PathBuf;

/// `headroom resize`.
#[derive(Debug, Args)]
pub struct ResizeArgs {
    /// The configuration file.
    #[arg(long, short, value_name = "FILE", required_unless_present = "example")]
    pub config: Option<PathBuf>,
    /// Check the configuration, ask every server, switch and balancer how it is, change nothing, and stop.
    #[arg(long)]
    pub check: bool,
    /// Print an example configuration that explains every key, and stop.
    #[arg(long)]
    pub example: bool,
    /// Say each period what would be done, and do nothing, not at the end either.
    #[arg(long)]
    pub dry_run: bool,
    /// Stop after this many seconds; by default at SIGINT or SIGTERM.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub duration: Option<f64>,
    /// Print the run summary as JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}
