//! The arguments of `headroom load`.

use super::shared::time;
use clap::{ArgGroup, Args, ValueEnum};
use std::path::PathBuf;

/// What the help of `headroom load` teaches by example.
const EXAMPLES: &str = "\
What is sent is one of:
  --trace    Open loop: requests come at the trace's rate, whatever the service does. For latency.
  --users    Closed loop: users who fetch a page, then the objects embedded in it, then think (the
             SURGE model). For capacity: the number of users is what overloads a service. On a
             server that answers at once, two users make about one request a second.
  --replay   Open loop: an access log's GET and HEAD requests, at the log's own times.

Curves of users (times in ms, s, m, h or d):
  100                                         always 100 users
  ramp:from=0,to=300,over=5m                  a straight line: where does the service give in?
  sinusoid:mean=100,amplitude=80,period=10m   overload and recovery (start=2m begins later in it)
  steps:10/1m,200/30s,10/2m                   each number for its time: a flash crowd
  daily:mean=100,day=20m,days=2,seed=1        days like those of the ClarkNet web server
  trace:file=users.txt,step=10s               one number of users a line

Examples:
  headroom load --url http://127.0.0.1:8081/ --trace wikipedia --peak 200 --compress 300
  headroom load --url http://127.0.0.1/ --users ramp:to=800,over=5m --new-connections
  headroom load --write-files /var/www/html/site --files 2000
  headroom load --url http://127.0.0.1/site/ --files 2000 --users 300 --duration 30m
  headroom load --url http://127.0.0.1/ --replay access.log --speed 10 --new-connections

A server whose accept queue is full drops the packets that open connections (SYN); the client's
kernel sends them again after 1 s and more. `connects retried` counts those: the service is beyond
its capacity, even if every request is answered in the end. With --new-connections every request
passes through the accept queue.";

/// `headroom load`.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, group = ArgGroup::new("what").required(true))]
pub struct LoadArgs {
    /// The trace: `wikipedia`, `azure`, `clarknet-like` (generated from --seed), or a file with one rate (requests/s) a
    /// line.
    #[arg(long, value_name = "NAME|FILE", group = "what")]
    pub trace: Option<String>,
    /// Emulate users; their number over time: 100, ramp:to=300,over=5m, sinusoid:mean=100,amplitude=80,period=10m, ...
    /// (`--help` lists them).
    #[arg(long, value_name = "CURVE", group = "what")]
    pub users: Option<String>,
    /// Send the GET and HEAD requests of this access log (common or combined log format) again.
    #[arg(long, value_name = "FILE", group = "what")]
    pub replay: Option<PathBuf>,
    /// Send nothing; write the files of a SURGE site into this folder, to be served and then browsed with --users and the
    /// same --files, --size-scale and --seed.
    #[arg(long, value_name = "DIR", group = "what")]
    pub write_files: Option<PathBuf>,
    /// Where to send the requests.
    #[arg(long, value_name = "URL", required_unless_present = "write_files")]
    pub url: Option<String>,
    /// Paths to ask for, one a line, chosen at random; by default the URL's own.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["replay", "files"])]
    pub paths: Option<PathBuf>,
    /// How long each value of the trace is held, in seconds.
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    pub step: f64,
    /// Squeeze (or stretch) the whole trace into this many seconds.
    #[arg(long, value_name = "SECONDS", conflicts_with = "step", requires = "trace")]
    pub compress: Option<f64>,
    /// Multiply every rate by this.
    #[arg(long, value_name = "FACTOR", conflicts_with_all = ["peak", "mean"], requires = "trace")]
    pub scale: Option<f64>,
    /// Scale the trace so that its highest rate is this, in requests/s.
    #[arg(long, value_name = "RATE", conflicts_with = "mean", requires = "trace")]
    pub peak: Option<f64>,
    /// Scale the trace so that its mean rate is this, in requests/s.
    #[arg(long, value_name = "RATE", requires = "trace")]
    pub mean: Option<f64>,
    /// Stop after this time (90, 90s, 10m, 1h), whatever is left. Users whose number has no end need it.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub duration: Option<f64>,
    /// How requests are spaced: over the trace's time, or within each second of a replayed log.
    #[arg(long, value_enum, default_value_t = Spacing::Poisson)]
    pub arrivals: Spacing,
    /// Replay the log this many times as fast.
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR", requires = "replay")]
    pub speed: f64,
    /// The site that users browse has this many files (2,000 where --write-files writes them): documents as popular and
    /// as large as SURGE says, below the URL. Without it, every object of a page is --paths' or the URL's.
    #[arg(long, value_name = "N")]
    pub files: Option<usize>,
    /// Multiply the sizes of the site's files by this.
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR")]
    pub size_scale: f64,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Connections at most: 1,024 by default, or one for each user.
    #[arg(long, value_name = "N")]
    pub connections: Option<usize>,
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
