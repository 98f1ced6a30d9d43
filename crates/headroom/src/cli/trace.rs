//! The arguments of `headroom trace`.

use clap::{Args, ValueEnum};

/// `headroom trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// What the trace is like: a diurnal day, or flat with rare spikes.
    #[arg(value_enum)]
    pub like: TraceLike,
    /// Days of 24 values (wikipedia), or hours of 60 values (azure).
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub length: usize,
    /// Seed.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// The traces that ship with the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TraceLike {
    /// A diurnal day like the Wikipedia trace: a trough, a rise, an evening peak.
    Wikipedia,
    /// Nearly flat with rare spikes, like the Azure Functions trace.
    Azure,
}
