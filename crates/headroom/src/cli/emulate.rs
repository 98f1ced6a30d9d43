//! The arguments of `headroom emulate`.

use clap::Args;
use std::path::PathBuf;

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
