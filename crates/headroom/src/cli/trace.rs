//! The arguments of `headroom trace`.

use super::shared::time;
use clap::Args;
use std::path::PathBuf;

/// What the help of `headroom trace` teaches by example.
const TRACE_EXAMPLES: &str = "\
Examples:
  headroom trace wikipedia --length 7 > week.txt
  headroom trace clarknet-like > two-weeks.txt
  headroom trace sinusoid:mean=100,amplitude=80,period=10m --duration 30m > wave.txt
  headroom trace ramp:from=10,to=300,over=5m --bin 1s > ramp.txt
  headroom trace --from-log access.log --bin 60s > measured.txt";

/// `headroom trace`.
#[derive(Debug, Args)]
#[command(after_long_help = TRACE_EXAMPLES)]
pub struct TraceArgs {
    /// What the trace is like: `wikipedia` (days with an evening peak), `azure` (flat with rare spikes), `clarknet-like`
    /// (a web site's days, with noon and evening peaks and weekends), or a curve as `headroom load --users` takes it,
    /// in requests per second.
    #[arg(value_name = "LIKE", required_unless_present = "from_log")]
    pub like: Option<String>,
    /// Count the requests of this access log (common or combined log format) instead.
    #[arg(long, value_name = "FILE", conflicts_with = "like")]
    pub from_log: Option<PathBuf>,
    /// Days of 24 values (wikipedia, by default 1), hours of 60 values (azure, 1), or days of 144 values (clarknet-like,
    /// 14).
    #[arg(long, value_name = "N", conflicts_with_all = ["from_log", "duration"])]
    pub length: Option<usize>,
    /// The time that each value of a curve or of a log stands for.
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = time)]
    pub bin: f64,
    /// How much of a curve; needed where it has no end.
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "from_log")]
    pub duration: Option<f64>,
    /// Seed.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}
