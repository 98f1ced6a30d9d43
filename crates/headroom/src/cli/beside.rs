//! The arguments of `headroom beside`.

use super::record::RecordArgs;
use super::shared::{law_names, seconds};
use clap::Args;
use headroom_control::LawName;
use std::path::PathBuf;

/// `headroom beside`.
///
/// Runs a service live on emulated hardware and then the same in the simulator: the same trace, law, machine, and the
/// service times that were measured meanwhile. Prints live and simulated side by side, and writes a page with both in
/// each plot. Given recorded runs, it simulates those instead.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct BesideArgs {
    /// Recorded live runs to simulate: an id, a name (or the beginning of one) or `latest`. Without any, runs are made now.
    #[arg(value_name = "RUN")]
    pub runs: Vec<String>,
    /// The world of the recorded runs, where their record does not say it; runs of `beside` and `demo` on the emulated
    /// server say theirs. `headroom sim --example` prints one that explains every key.
    #[arg(long, value_name = "FILE", requires = "runs")]
    pub scenario: Option<PathBuf>,
    /// Length of the compressed day, in seconds, for each law.
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS", value_parser = seconds, conflicts_with = "runs")]
    pub duration: f64,
    /// The latency target T, in milliseconds.
    #[arg(long, default_value_t = 250.0, value_name = "MS", conflicts_with = "runs")]
    pub target_ms: f64,
    /// The percentile that the target is for.
    #[arg(long, default_value_t = 95.0, value_name = "PERCENT", conflicts_with = "runs")]
    pub percentile: f64,
    /// The trace to replay: `wikipedia`, `azure`, or a file with one rate a line.
    #[arg(
        long,
        default_value = "wikipedia",
        value_name = "NAME|FILE",
        conflicts_with = "runs"
    )]
    pub trace: String,
    /// Seed of the trace and of the arrivals.
    #[arg(long, default_value_t = 1, conflicts_with = "runs")]
    pub seed: u64,
    /// The laws.
    #[arg(long, value_parser = law_names(), value_delimiter = ',', default_values_t = [LawName::FIXED, LawName::SLO_POWER, LawName::HEADROOM],
          conflicts_with = "runs")]
    pub laws: Vec<LawName>,
    /// Cores of this machine that stand for all cores of the emulated server. By default 0.6 of this machine's.
    #[arg(long, value_name = "CORES", conflicts_with = "runs")]
    pub cores: Option<f64>,
    /// Folder for the record of what is to be put back if this program is killed. By default /run/headroom for root,
    /// and $XDG_RUNTIME_DIR/headroom for others.
    #[arg(long, value_name = "DIR", conflicts_with = "runs")]
    pub run_dir: Option<PathBuf>,
    /// Print a line now and then instead of the live view.
    #[arg(long)]
    pub no_view: bool,
    /// Where the record is; both runs of each pair are kept there.
    #[command(flatten)]
    pub record: RecordArgs,
    /// The page to write.
    #[arg(long, default_value = "out/beside.html", value_name = "FILE")]
    pub out: PathBuf,
    /// Print the pairs as a JSON array on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}
