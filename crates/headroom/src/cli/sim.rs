//! The arguments of what happens in the simulator: `sim`, `compare`, `reproduce`, `tune`.

use super::shared::seconds;
use super::{LawName, Spacing};
use clap::{Args, Subcommand};
use headroom_workload::families::Family;
use std::path::PathBuf;

/// The world of a simulation.
#[derive(Clone, Debug, Args)]
pub struct WorldArgs {
    /// The scenario; by default the three servers of the SLO-Power paper. `headroom sim --example` prints one that
    /// explains every key.
    #[arg(long, value_name = "FILE")]
    pub scenario: Option<PathBuf>,
    /// How long each value of a trace is held, in seconds.
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS", value_parser = seconds)]
    pub step: f64,
    /// How the requests of a trace are spaced.
    #[arg(long, value_enum, default_value_t = Spacing::Poisson)]
    pub arrivals: Spacing,
    /// Stop after this many simulated seconds, whatever is left of the trace.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub duration: Option<f64>,
}

/// `headroom sim`.
#[derive(Debug, Args)]
pub struct SimArgs {
    /// The world.
    #[command(flatten)]
    pub world: WorldArgs,
    /// The law; by default the scenario's, which is slo-power where it names none. Its parameters are the scenario's.
    #[arg(long, value_enum, value_name = "LAW")]
    pub law: Option<LawName>,
    /// The trace: `wikipedia` or `azure` (900 or 1440 values from the seed), or a file with one rate (requests/s) a
    /// line. By default the scenario's arrivals, and `wikipedia` where it has none.
    #[arg(long, value_name = "NAME|FILE")]
    pub trace: Option<String>,
    /// Seed of everything random. The same scenario, law, trace and seed give the same run to the bit.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print a scenario that explains every key, and stop.
    #[arg(long)]
    pub example: bool,
    /// The flight recorder's database, for `headroom report` and `headroom runs`.
    #[arg(long, default_value = "out/headroom.db", value_name = "FILE")]
    pub db: PathBuf,
    /// The report to write.
    #[arg(long, default_value = "out/sim.html", value_name = "FILE")]
    pub out: PathBuf,
    /// Write neither record nor report.
    #[arg(long)]
    pub no_record: bool,
    /// The name of the run in the record.
    #[arg(long, default_value = "sim", value_name = "NAME")]
    pub name: String,
    /// Print the run summary as JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// `headroom compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The world.
    #[command(flatten)]
    pub world: WorldArgs,
    /// The laws; the first is what the others' differences are from. By default fixed, headroom, slo-power,
    /// pegasus-as-run and k8s-as-run, and with --unseen all laws.
    #[arg(long, value_delimiter = ',', value_name = "LAW,...")]
    pub laws: Vec<LawName>,
    /// The traces: `wikipedia`, `azure`, or files. A generated trace is another one with each seed.
    #[arg(long, value_delimiter = ',', default_values_t = ["wikipedia".to_owned(), "azure".to_owned()], value_name = "NAME|FILE,...")]
    pub traces: Vec<String>,
    /// Instead of --traces: families of generated traces that no law was looked at on. Other lengths, a tenth and ten times
    /// the load, weeks, another rhythm, flash crowds of ten times the load within a second, ramps, steps, walks, bursts, next
    /// to nothing, next to everything, silence. Prints for each whether headroom needs the least energy of all laws that
    /// keep the promise, and is late no more often than slo-power.
    #[arg(long, conflicts_with_all = ["traces", "step"])]
    pub unseen: bool,
    /// Only these families of --unseen.
    #[arg(long, value_delimiter = ',', value_name = "FAMILY,...", conflicts_with_all = ["traces", "step"])]
    pub families: Vec<Family>,
    /// How many seeds; every law meets the same arrivals and sizes under the same seed. By default 20, and with --unseen 5.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=10_000))]
    pub seeds: Option<u64>,
    /// The first seed.
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    pub first_seed: u64,
    /// Runs at once; by default as many as there are processors.
    #[arg(long, value_name = "N", value_parser = jobs)]
    pub jobs: Option<usize>,
    /// Also find a schedule that knows every arrival beforehand, and run it as one more law. Takes some hundred times as
    /// long as a law; without it each law is held against the bound that no schedule can go under.
    #[arg(long)]
    pub clairvoyant: bool,
    /// The report to write.
    #[arg(long, default_value = "out/compare.html", value_name = "FILE")]
    pub out: PathBuf,
    /// Print the comparison as JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// `headroom reproduce`.
#[derive(Debug, Args)]
pub struct ReproduceArgs {
    /// Which evaluation.
    #[command(subcommand)]
    pub paper: Paper,
}

/// What can be reproduced.
#[derive(Debug, Subcommand)]
pub enum Paper {
    /// The evaluation of the SLO-Power paper (its Section V): Figures 1 and 5 to 8, its numbers beside ours.
    SloPower(SloPowerArgs),
    /// The evaluation of the capacity paper (its Section 7): Figures 9 to 12 and the energy that clusters save which follow
    /// their load, its numbers beside ours.
    Capacity(CapacityPaperArgs),
}

/// `headroom reproduce capacity`.
#[derive(Debug, Args)]
pub struct CapacityPaperArgs {
    /// How many seeds each figure is the mean of. A seed takes two or three minutes of a processor.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=1_000))]
    pub seeds: u64,
    /// Runs at once; by default as many as there are processors.
    #[arg(long, value_name = "N", value_parser = jobs)]
    pub jobs: Option<usize>,
    /// Simulate servers of this share of the paper's capacity under as much less load: a look, not a reproduction.
    #[arg(long, default_value_t = 1.0, value_name = "SHARE", value_parser = share)]
    pub scale: f64,
    /// Make the day this share as long: a look, not a reproduction.
    #[arg(long, default_value_t = 1.0, value_name = "SHARE", value_parser = share)]
    pub day: f64,
    /// The report to write.
    #[arg(long, default_value = "out/capacity-paper.html", value_name = "FILE")]
    pub out: PathBuf,
    /// Print the tables as JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// `headroom reproduce slo-power`.
#[derive(Debug, Args)]
pub struct SloPowerArgs {
    /// Folder with the traces that the authors published (wikipedia-cluster.txt, azure-cluster.txt, and the two of one
    /// node, *-node.txt). By default traces like them are generated.
    #[arg(long, value_name = "DIR", env = "HEADROOM_PUBLISHED_TRACES")]
    pub traces: Option<PathBuf>,
    /// How many seeds each figure is the mean of.
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=1_000))]
    pub seeds: u64,
    /// Runs at once; by default as many as there are processors.
    #[arg(long, value_name = "N", value_parser = jobs)]
    pub jobs: Option<usize>,
    /// Stop each run after this many simulated seconds: a look, not a reproduction.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub duration: Option<f64>,
    /// The report to write.
    #[arg(long, default_value = "out/slo-power.html", value_name = "FILE")]
    pub out: PathBuf,
    /// The flight recorder's database: the four runs that the report plots are kept there.
    #[arg(long, default_value = "out/headroom.db", value_name = "FILE")]
    pub db: PathBuf,
    /// Print the tables as JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// `headroom tune`.
#[derive(Debug, Args)]
pub struct TuneArgs {
    /// The world.
    #[command(flatten)]
    pub world: WorldArgs,
    /// The law whose parameters are searched.
    #[arg(long, value_enum, value_name = "LAW", default_value_t = LawName::SloPower)]
    pub law: LawName,
    /// The trace, as for `headroom sim`.
    #[arg(long, value_name = "NAME|FILE")]
    pub trace: Option<String>,
    /// How many sets of parameters are tried.
    #[arg(long, default_value_t = 60, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub budget: u64,
    /// How many seeds each set is tried on; as many others, never seen by the search, judge the winner.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=1_000))]
    pub seeds: u64,
    /// Seed of the search.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The share of periods that may be over the target, percent; by default what the defaults reach, and at least 1.
    #[arg(long, value_name = "PERCENT")]
    pub max_over: Option<f64>,
    /// Runs at once; by default as many as there are processors.
    #[arg(long, value_name = "N", value_parser = jobs)]
    pub jobs: Option<usize>,
    /// Print the result as JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

fn jobs(text: &str) -> Result<usize, String> {
    let jobs = text.parse().ok().filter(|jobs| (1..=1024).contains(jobs));
    jobs.ok_or_else(|| "give a number of runs at once, 1 to 1024".to_owned())
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.01..=1.0).contains(share));
    share.ok_or_else(|| "give a share between 0.01 and 1".to_owned())
}
