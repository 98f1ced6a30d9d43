//! The arguments of `headroom resize`.

use clap::Args;
use headroom_console::args::seconds;
use std::path::PathBuf;

/// `headroom resize`.
#[derive(Debug, Args)]
pub struct ResizeArgs {
    /// The configuration file.
    #[arg(long, short, value_name = "FILE", required_unless_present_any = ["example", "report"])]
    pub config: Option<PathBuf>,
    /// Check the configuration, ask every server, switch and balancer how it is, change nothing, and stop. With --json what
    /// was found is one JSON object, errors too.
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
    /// Write a report with plots to this file at the end.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["check", "example"])]
    pub html: Option<PathBuf>,
    /// Instead of a run, read the last one of this record (the file that [record] names, and FILE.1 before it): print its
    /// summary, and with --html write its report.
    #[arg(long, value_name = "RECORD", conflicts_with_all = ["config", "check", "dry_run", "example", "duration", "no_view"])]
    pub report: Option<PathBuf>,
    /// Print a line now and then instead of the live view (the default where standard error is no terminal).
    #[arg(long)]
    pub no_view: bool,
    /// Wait until standard input closes; unless "done" came before, do at the end what the controller could not: start every
    /// server and give it requests. This is how a controller is watched over.
    #[arg(long, hide = true, conflicts_with_all = ["check", "dry_run", "example", "duration", "html", "report", "no_view"])]
    pub when_input_closes: bool,
    /// Print the run summary as JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}
