//! The arguments of `headroom demo`.

use super::shared::law_names;
use clap::{Args, ValueEnum};
use headroom_control::LawName;
use std::path::PathBuf;

/// `headroom demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Length of the compressed day, in seconds, for each law.
    #[arg(long, default_value_t = 120.0, value_name = "SECONDS")]
    pub duration: f64,
    /// The latency target T, in milliseconds.
    #[arg(long, default_value_t = 250.0, value_name = "MS")]
    pub target_ms: f64,
    /// The percentile that the target is for.
    #[arg(long, default_value_t = 95.0, value_name = "PERCENT")]
    pub percentile: f64,
    /// The trace to replay: `wikipedia`, `azure`, or a file with one rate a line.
    #[arg(long, default_value = "wikipedia", value_name = "NAME|FILE")]
    pub trace: String,
    /// Seed of the trace and of the arrivals.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The laws to compare, in this order; the first is what savings are measured against.
    #[arg(long, value_parser = law_names(), value_delimiter = ',', default_values_t = [LawName::FIXED, LawName::SLO_POWER, LawName::HEADROOM])]
    pub laws: Vec<LawName>,
    /// Cores of this machine that the service may have at most; on emulated hardware, those that stand for all cores
    /// of the emulated server. By default 0.6 of this machine's: the rest is for the gateway and the load generator,
    /// which run here too.
    #[arg(long, value_name = "CORES")]
    pub cores: Option<f64>,
    /// Folder for the recorded run and the HTML report.
    #[arg(long, default_value = "out", value_name = "DIR")]
    pub out: PathBuf,
    /// Folder for the record of what is to be put back if this program is killed. By default /run/headroom for root,
    /// and $XDG_RUNTIME_DIR/headroom for others.
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// What the demo runs on.
    #[arg(long, value_enum, default_value_t = Hardware::Auto)]
    pub hardware: Hardware,
    /// Print the run summaries as a JSON array on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
    /// Print a line now and then instead of the live view.
    #[arg(long)]
    pub no_view: bool,
}

/// What a demonstration runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Hardware {
    /// This machine where it has RAPL that can be read and written, else the emulated server, else (without /dev/fuse)
    /// this machine with a modelled meter and a software cap. Which, and why, is said at the start.
    Auto,
    /// This machine with what it has.
    Real,
    /// The emulated server.
    Emulated,
}
