//! The arguments of `headroom agent`.

use super::{GuardChoice, Trees};
use clap::Args;
use std::path::PathBuf;

/// `headroom agent`.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// The configuration file. Given more than once, one agent serves several services of this machine, each by its own
    /// file and on its own address; their power is estimated by the model, and the frequency is the highest that any of
    /// them asks for.
    #[arg(long, short, value_name = "FILE", required_unless_present_any = ["example", "cgroup"])]
    pub config: Vec<PathBuf>,
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
    /// With --check: print what was found as one JSON object on standard output, errors too.
    #[arg(long, requires = "check")]
    pub json: bool,
    /// Print an example configuration that explains every key, and stop.
    #[arg(long)]
    pub example: bool,
    /// Folder for the record of what is to be put back if this program is killed. By default /run/headroom for root,
    /// and $XDG_RUNTIME_DIR/headroom for others.
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// The guard.
    #[command(flatten)]
    pub guard: GuardChoice,
    /// Where the kernel's files are.
    #[command(flatten)]
    pub trees: Trees,
}
