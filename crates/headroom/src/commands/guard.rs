//! `headroom guard`: lifts the limits of another process when that is killed or hangs.

use crate::args::Trees;
use crate::demos;
use anyhow::Context;
use clap::Args;
use headroom_console::Failure;
use headroom_console::Stop;
use headroom_node::Roots;
use headroom_runtime::live::guard::apart::Apart;
use headroom_runtime::live::guard::post::Post;
use headroom_runtime::live::{service_manager, undo};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// `headroom guard`.
#[derive(Debug, Args)]
pub struct GuardArgs {
    /// The run folder of the program that is watched over. By default /run/headroom for root, and
    /// $XDG_RUNTIME_DIR/headroom, or where that is not set /tmp/headroom-UID, for others.
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// Watch over every run of the run folder, as a service: in the host's PID namespace, where the end of a container or
    /// of a unit does not kill it. Without it the run is connected to standard input, as `up`, `agent` and `demo` start
    /// it.
    #[arg(long)]
    pub serve: bool,
    /// Where the kernel's files are.
    #[command(flatten)]
    pub trees: Trees,
}

/// Watches until the run has ended (or, as a service, until a signal comes), and puts back what it left.
///
/// # Errors
/// A run directory that cannot be used, a standard input that is no socket, something that cannot be put back.
pub fn run(args: &GuardArgs) -> Result<(), Failure> {
    let run_dir = undo::run_dir(args.run_dir.as_deref())?;
    let absolute = |path| std::path::absolute(path).map_err(Failure::usage);
    let post = Post {
        run_dir: absolute(run_dir)?,
        roots: Roots::at(
            absolute(args.trees.sys.clone())?,
            absolute(args.trees.proc.clone())?,
        ),
        remains: demos::REMAINS,
    };
    // The last to be killed where memory runs out; an ordinary user may not ask for that.
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", "-1000") {
        tracing::debug!(%error, "the guard may be killed where memory runs out");
    }
    if args.serve {
        let stop = Stop::at_signals()?;
        let served = post.serve(|| stop.is_raised());
        service_manager::stopping();
        return served.map_err(Failure::usage);
    }
    watch(&post)
}

fn watch(post: &Post) -> Result<(), Failure> {
    use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};
    // Whatever stops the run (a service manager stops all of its processes) must leave this one until the run has ended.
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    // Without a terminal nothing that is typed there ends or stops this process.
    if let Err(error) = rustix::process::setsid() {
        tracing::debug!(%error, "the guard stays in its session");
    }
    let stream = std::io::stdin().as_fd().try_clone_to_owned()?;
    let stream = UnixStream::from(stream);
    stream
        .local_addr()
        .context("standard input is no socket: by hand, use `headroom guard --serve`")
        .map_err(Failure::usage)?;
    let (apart, note) = Apart::live();
    let watched = post.watch(stream, note);
    apart.end();
    Ok(watched?)
}
