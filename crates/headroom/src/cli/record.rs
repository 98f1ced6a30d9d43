//! The arguments of `headroom report` and `headroom runs`.

use clap::Args;
use std::path::PathBuf;

/// Where the record is.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// The flight recorder's database.
    #[arg(long, default_value = "out/headroom.db", value_name = "FILE")]
    pub db: PathBuf,
}

/// `headroom report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The runs: an id, a name (or the beginning of one) or `latest`. Several are compared, the first being what
    /// savings are measured against.
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<String>,
    /// Where the record is.
    #[command(flatten)]
    pub record: RecordArgs,
    /// The HTML file to write.
    #[arg(long, default_value = "out/report.html", value_name = "FILE")]
    pub out: PathBuf,
    /// Write the periods of one run as CSV to this file too.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write them as JSON lines to this file too: observation, decision and reasons as objects, not as text in a field.
    #[arg(long, value_name = "FILE")]
    pub jsonl: Option<PathBuf>,
    /// Print the run summary as JSON on standard output (an array where there are several), and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// `headroom runs`.
#[derive(Debug, Args)]
pub struct RunsArgs {
    /// Where the record is.
    #[command(flatten)]
    pub record: RecordArgs,
    /// Print the list as JSON.
    #[arg(long)]
    pub json: bool,
}
