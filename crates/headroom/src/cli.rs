//! The command line: what can be asked for, and the help that teaches it.

mod law;
mod sim;

pub use law::LawName;
pub use sim::{CompareArgs, Paper, ReproduceArgs, SimArgs, SloPowerArgs, TuneArgs, WorldArgs};

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Keeps a web service inside its latency promise on the fewest watts.
///
/// Headroom measures every second how far a service's tail latency is from the latency it promised, and turns that
/// gap into saved energy: fewer CPU cores, a lower power cap. When latency nears the promise it gives back at once.
///
/// Start with `headroom demo` (nothing needed but root for cgroups) and `headroom doctor` (what this machine can do).
#[derive(Debug, Parser)]
#[command(name = "headroom", version, max_term_width = 110, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// Say more on standard error: -v for information, -vv for debugging.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what Headroom does: a built-in service under a compressed day, with everything on and under control.
    Demo(DemoArgs),
    /// Keep a service inside its promise: gateway, meters, actuators, law and recorder in one process.
    Up(UpArgs),
    /// Serve this node to a controller: meters, limits under a lease, everything put back when the lease runs out.
    Agent(AgentArgs),
    /// Keep a service on many nodes inside its promise: drives agents and gateways with one law.
    Controller(ControllerArgs),
    /// Make the certificates that agents, gateways and the controller show each other, and say what each is for.
    Certs(CertsArgs),
    /// Put back by hand what an agent, `up` or `demo` that was killed left limited.
    Release(ReleaseArgs),
    /// Emulate a two-package server with RAPL, cpufreq and idle states, on which everything else can be tried.
    Emulate(EmulateArgs),
    /// Say which levers and meters this machine has, and for each one it lacks, why and what would help.
    Doctor(DoctorArgs),
    /// Run the data plane alone: an HTTP reverse proxy with health checks, balancing and latency histograms.
    Gateway(GatewayArgs),
    /// Send a trace's load to a URL, open loop, with latency measured from the intended send time.
    Load(LoadArgs),
    /// Write a trace like the Wikipedia or the Azure one, from a seed.
    Trace(TraceArgs),
    /// Run a built-in service to control.
    Service(ServiceArgs),
    /// Write the report of one recorded run, or compare several.
    Report(ReportArgs),
    /// List the recorded runs.
    Runs(RunsArgs),
    /// Run a law in a simulated world: a trace, a scenario, a seed.
    Sim(SimArgs),
    /// Compare laws in the simulated world, over traces and seeds, with confidence intervals.
    Compare(CompareArgs),
    /// Reproduce a paper's evaluation in the simulated world, its numbers beside ours.
    Reproduce(ReproduceArgs),
    /// Search a law's parameters in the simulated world for a service and a trace of your own.
    Tune(TuneArgs),
}

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
    #[arg(long, value_delimiter = ',', default_values_t = [LawName::Fixed, LawName::SloPower, LawName::Headroom])]
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

/// `headroom up`.
#[derive(Debug, Args)]
pub struct UpArgs {
    /// The configuration file.
    #[arg(long, short, value_name = "FILE", required_unless_present = "example")]
    pub config: Option<PathBuf>,
    /// Check the configuration and what it needs of this machine, change nothing, and stop.
    #[arg(long)]
    pub check: bool,
    /// Print an example configuration that explains every key, and stop.
    #[arg(long)]
    pub example: bool,
    /// Run this law instead of the configuration's; its parameters are still the configuration's.
    #[arg(long, value_enum, value_name = "LAW")]
    pub law: Option<LawName>,
    /// Stop after this many seconds; by default at SIGINT or SIGTERM.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub duration: Option<f64>,
    /// The name of the run in the record, in the report and in `headroom runs`.
    #[arg(long, value_name = "NAME", default_value = "up")]
    pub name: String,
    /// Folder for the record of what is to be put back if this program is killed. By default /run/headroom for root,
    /// and $XDG_RUNTIME_DIR/headroom for others.
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// Print the run summary as JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
    /// Log one line a period instead of the live view (the default where standard error is no terminal).
    #[arg(long)]
    pub no_view: bool,
    /// Use this tree instead of /sys, such as the one of `headroom emulate`.
    #[arg(long, default_value = "/sys", value_name = "DIR")]
    pub sys: PathBuf,
    /// Use this tree instead of /proc.
    #[arg(long, default_value = "/proc", value_name = "DIR")]
    pub proc: PathBuf,
}

/// `headroom agent`.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// The configuration file.
    #[arg(long, short, value_name = "FILE", required_unless_present_any = ["example", "cgroup"])]
    pub config: Option<PathBuf>,
    /// Instead of a file: the service's control group.
    #[arg(long, value_name = "DIR", conflicts_with = "config", requires = "listen")]
    pub cgroup: Option<PathBuf>,
    /// Instead of a file: a Unix socket to listen on, as unix:/path (TCP needs certificates, and a file that names
    /// them). May be given more than once.
    #[arg(long, value_name = "ADDR", requires = "cgroup")]
    pub listen: Vec<String>,
    /// Check the configuration and what it needs of this machine, change nothing, and stop.
    #[arg(long)]
    pub check: bool,
    /// Print an example configuration that explains every key, and stop.
    #[arg(long)]
    pub example: bool,
    /// Folder for the record of what is to be put back if this program is killed. By default /run/headroom for root,
    /// and $XDG_RUNTIME_DIR/headroom for others.
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// Use this tree instead of /sys.
    #[arg(long, default_value = "/sys", value_name = "DIR")]
    pub sys: PathBuf,
    /// Use this tree instead of /proc.
    #[arg(long, default_value = "/proc", value_name = "DIR")]
    pub proc: PathBuf,
}

/// `headroom controller`.
#[derive(Debug, Args)]
pub struct ControllerArgs {
    /// The configuration file.
    #[arg(long, short, value_name = "FILE", required_unless_present = "example")]
    pub config: Option<PathBuf>,
    /// Check the configuration, ask every node and gateway, change nothing, and stop.
    #[arg(long)]
    pub check: bool,
    /// Print an example configuration that explains every key, and stop.
    #[arg(long)]
    pub example: bool,
    /// Run this law instead of the configuration's; its parameters are still the configuration's.
    #[arg(long, value_enum, value_name = "LAW")]
    pub law: Option<LawName>,
    /// Stop after this many seconds; by default at SIGINT or SIGTERM.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub duration: Option<f64>,
    /// The name of the run in the record, in the report and in `headroom runs`.
    #[arg(long, value_name = "NAME", default_value = "controller")]
    pub name: String,
    /// Print the run summary as JSON on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
    /// Log one line a period instead of the live view (the default where standard error is no terminal).
    #[arg(long)]
    pub no_view: bool,
}

/// `headroom certs`.
#[derive(Debug, Args)]
pub struct CertsArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: CertsCommand,
}

/// Where certificates are.
#[derive(Debug, Args)]
pub struct CertsDir {
    /// Folder of the authority and of what it signed.
    #[arg(long, default_value = "certs", value_name = "DIR")]
    pub dir: PathBuf,
}

/// What can be done with certificates. None of it overwrites a file, save `renew`.
#[derive(Debug, Subcommand)]
pub enum CertsCommand {
    /// Make an authority: ca.crt and ca.key.
    Create {
        /// Where.
        #[command(flatten)]
        dir: CertsDir,
        /// How long it is valid.
        #[arg(long, default_value_t = headroom_wire::certs::AUTHORITY_DAYS, value_name = "DAYS")]
        days: u32,
    },
    /// Make the certificate of one node's agent, or of one gateway's control port.
    IssueNode {
        /// Where.
        #[command(flatten)]
        dir: CertsDir,
        /// The node's name, as the controller reaches it.
        #[arg(value_name = "NAME")]
        name: String,
        /// Other DNS names and IP addresses under which the controller reaches it. May be given more than once.
        #[arg(long, value_name = "NAME|IP", value_delimiter = ',')]
        also: Vec<String>,
        /// How long it is valid.
        #[arg(long, default_value_t = headroom_wire::certs::CERTIFICATE_DAYS, value_name = "DAYS")]
        days: u32,
    },
    /// Make the controller's certificate.
    IssueController {
        /// Where.
        #[command(flatten)]
        dir: CertsDir,
        /// How long it is valid.
        #[arg(long, default_value_t = headroom_wire::certs::CERTIFICATE_DAYS, value_name = "DAYS")]
        days: u32,
    },
    /// Replace a node's or the controller's certificate by a new one of the same names, with a new key.
    Renew {
        /// The certificate, in the authority's folder.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// How long the new one is valid.
        #[arg(long, default_value_t = headroom_wire::certs::CERTIFICATE_DAYS, value_name = "DAYS")]
        days: u32,
    },
    /// Say whose each certificate is and for how many more days it is valid.
    Show {
        /// Where.
        #[command(flatten)]
        dir: CertsDir,
        /// These files instead of the folder's.
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Say that it ends soon where fewer days than this are left.
        #[arg(long, default_value_t = 30, value_name = "DAYS")]
        soon: u32,
    },
}

/// `headroom release`.
#[derive(Debug, Args)]
pub struct ReleaseArgs {
    /// The run folder of the program that was killed. By default /run/headroom for root, and
    /// $XDG_RUNTIME_DIR/headroom for others.
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// Use this tree instead of /sys.
    #[arg(long, default_value = "/sys", value_name = "DIR")]
    pub sys: PathBuf,
    /// Use this tree instead of /proc.
    #[arg(long, default_value = "/proc", value_name = "DIR")]
    pub proc: PathBuf,
    /// Wait until standard input closes, and put back then: how an agent, `up` and `demo` are watched over by a process
    /// of their own, so that nothing stays limited when they are killed.
    #[arg(long, hide = true)]
    pub when_input_closes: bool,
}

/// `headroom emulate`.
///
/// Mounts a FUSE tree that looks like the /sys of a server and behaves like it: energy counts and wraps, a power limit
/// or a lower frequency really slows the processes in its control groups. Everything it yields is labelled emulated.
/// It runs until a signal comes; then everything is taken away.
///
///   headroom emulate --group web &
///   echo PID > /run/headroom/emulated/fs/cgroup/web/cgroup.procs
///   headroom up --sys /run/headroom/emulated --proc /run/headroom/emulated/headroom-testbed/proc --config ...
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct EmulateArgs {
    /// Where to mount it. By default /run/headroom/emulated for root, and $XDG_RUNTIME_DIR/headroom/emulated for others.
    #[arg(long, value_name = "DIR")]
    pub at: Option<PathBuf>,
    /// A TOML file that describes the machine; by default the servers of the SLO-Power testbed.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print an example of that file, with every key and its default, and stop.
    #[arg(long)]
    pub example: bool,
    /// Real cores that stand for all the emulated ones. By default 0.6 of this machine's.
    #[arg(long, value_name = "CORES")]
    pub real_cores: Option<f64>,
    /// A control group to make on the emulated machine. May be given more than once; `mkdir` in its fs/cgroup does as
    /// much.
    #[arg(long, value_name = "NAME")]
    pub group: Vec<String>,
    /// The real control group that holds the emulated ones.
    #[arg(long, value_name = "NAME", default_value = "headroom-emulated")]
    pub name: String,
    /// The real control group in which that one is made.
    #[arg(long, value_name = "GROUP", default_value = "/")]
    pub parent: String,
    /// Emulate figures only: no real control group is made, and nothing is slowed.
    #[arg(long)]
    pub figures_only: bool,
    /// Take away what an emulator left at this place that was killed together with the program that watched it, and
    /// stop.
    #[arg(long)]
    pub clean: bool,
    /// Be the process behind the tree (for `headroom emulate` itself).
    #[arg(long, hide = true, requires = "hardware_json")]
    pub worker: bool,
    /// The machine, for a worker.
    #[arg(long, hide = true, value_name = "JSON")]
    pub hardware_json: Option<String>,
}

/// `headroom doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print the findings as JSON.
    #[arg(long)]
    pub json: bool,
    /// Look at this tree instead of /sys.
    #[arg(long, default_value = "/sys", value_name = "DIR")]
    pub sys: PathBuf,
    /// Look at this tree instead of /proc.
    #[arg(long, default_value = "/proc", value_name = "DIR")]
    pub proc: PathBuf,
}

/// `headroom gateway`.
#[derive(Debug, Args)]
pub struct GatewayArgs {
    /// Address to serve HTTP/1.1 and cleartext HTTP/2 on. May be given more than once.
    #[arg(long, value_name = "ADDR", required = true)]
    pub listen: Vec<SocketAddr>,
    /// A backend, as http://HOST:PORT. May be given more than once.
    #[arg(long, value_name = "URL", required = true)]
    pub backend: Vec<String>,
    /// Threads, each with its own runtime, listener and connection pools.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub threads: usize,
    /// Listen although another gateway still listens on the address, to take over from it without a refused
    /// connection: start this one, then stop the other.
    #[arg(long)]
    pub takeover: bool,
    /// How a backend is chosen.
    #[arg(long, value_enum, default_value_t = Balance::LeastConnections)]
    pub balance: Balance,
    /// Address to serve HTTPS on (HTTP/1.1 and HTTP/2 by ALPN); needs --tls-cert and --tls-key.
    #[arg(long, value_name = "ADDR", requires_all = ["tls_cert", "tls_key"])]
    pub tls_listen: Option<SocketAddr>,
    /// Certificate chain, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_listen")]
    pub tls_cert: Option<PathBuf>,
    /// Private key, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_listen")]
    pub tls_key: Option<PathBuf>,
    /// Path to ask each backend for every second; a backend that does not answer it is left out.
    #[arg(long, value_name = "PATH")]
    pub health: Option<String>,
    /// Let a controller observe and command this gateway here: unix:/path, or an IP address and a port with
    /// certificates. May be given more than once.
    #[arg(long, value_name = "ADDR")]
    pub control: Vec<String>,
    /// For --control over TCP: the authority's certificate, as `headroom certs` makes it.
    #[arg(long, value_name = "FILE", requires_all = ["control_cert", "control_key"])]
    pub control_ca: Option<PathBuf>,
    /// For --control over TCP: this gateway's certificate (`headroom certs issue-node`).
    #[arg(long, value_name = "FILE", requires = "control_ca")]
    pub control_cert: Option<PathBuf>,
    /// For --control over TCP: the key to it.
    #[arg(long, value_name = "FILE", requires = "control_ca")]
    pub control_key: Option<PathBuf>,
    /// How long to wait for requests being served when told to stop, in seconds.
    #[arg(long, default_value_t = 30.0, value_name = "SECONDS", value_parser = seconds_or_none)]
    pub drain: f64,
}

/// How a backend is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Balance {
    /// In turn, by weight.
    RoundRobin,
    /// The one with the fewest requests in flight, by weight.
    LeastConnections,
}

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

/// `headroom service`.
#[derive(Debug, Args)]
pub struct ServiceArgs {
    /// Which.
    #[command(subcommand)]
    pub service: ServiceCommand,
}

/// The built-in services.
#[derive(Debug, Subcommand)]
pub enum ServiceCommand {
    /// A small wiki: renders Markdown pages, CPU-bound, page cost spread over an order of magnitude.
    Wiki {
        /// Address to serve on; port 0 takes a free one, which is printed.
        #[arg(long, default_value = "127.0.0.1:8081", value_name = "ADDR")]
        listen: SocketAddr,
        /// Threads that render.
        #[arg(long, default_value_t = 16, value_name = "N")]
        workers: usize,
        /// Mean CPU time of a page, in milliseconds.
        #[arg(long, default_value_t = 4.0, value_name = "MS")]
        page_cpu_ms: f64,
        /// Stop when standard input is closed: so a service never outlives the program that started it.
        #[arg(long)]
        until_input_closes: bool,
    },
}

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

/// A length of time: more than nothing, and at most a hundred years.
fn seconds(text: &str) -> Result<f64, String> {
    match seconds_or_none(text)? {
        0.0 => Err("give more than 0 seconds".to_owned()),
        seconds => Ok(seconds),
    }
}

/// A length of time that may be nothing.
fn seconds_or_none(text: &str) -> Result<f64, String> {
    let most = 36_525.0 * 86_400.0;
    let seconds = text.parse().ok().filter(|seconds| (0.0..=most).contains(seconds));
    seconds.ok_or_else(|| format!("give a number of seconds, at most {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
