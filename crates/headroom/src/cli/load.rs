//! The arguments of `headroom load`.

use super::shared::seconds;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `headroom load`.
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// The trace: `wikipedia`, `azure` (generated from --seed), or a file with one rate (requests/s) a line.
    #[arg(long, value_name = "NAME|FILE")]
    pub trace: String,
    /// Where to send the requests.
    #[arg(long, value_name = "URL")]
    pub url: String,
    /// Paths to ask for, one a line, chosen at random; by default the URL's own.
    #[arg(long, value_name = "FILE")]
    pub paths: Option<PathBuf>,
    /// How long each value of the trace is held, in seconds.
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    pub step: f64,
    /// Squeeze (or stretch) the whole trace into this many seconds.
    #[arg(long, value_name = "SECONDS", conflicts_with = "step")]
    pub compress: Option<f64>,
    /// Multiply every rate by this.
    #[arg(long, value_name = "FACTOR", conflicts_with_all = ["peak", "mean"])]
    pub scale: Option<f64>,
    /// Scale the trace so that its highest rate is this, in requests/s.
    #[arg(long, value_name = "RATE", conflicts_with = "mean")]
    pub peak: Option<f64>,
    /// Scale the trace so that its mean rate is this, in requests/s.
    #[arg(long, value_name = "RATE")]
    pub mean: Option<f64>,
    /// Stop after this many seconds, whatever is left of the trace.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub duration: Option<f64>,
    /// How requests are spaced.
    #[arg(long, value_enum, default_value_t = Spacing::Poisson)]
    pub arrivals: Spacing,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Connections at most.
    #[arg(long, default_value_t = 1024, value_name = "N")]
    pub connections: usize,
    /// Open a new connection for every request, so that the server's accept queue sees each one. The result says how
    /// long connecting took and how many connects needed TCP's retry (1 s and more): a full accept queue shows there.
    #[arg(long)]
    pub new_connections: bool,
    /// Time that a request may take, in milliseconds.
    #[arg(long, default_value_t = 10_000.0, value_name = "MS")]
    pub timeout_ms: f64,
    /// Print the result as JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

/// How requests are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Spacing {
    /// A Poisson process of the trace's rate.
    Poisson,
    /// Even gaps.
    Even,
}
