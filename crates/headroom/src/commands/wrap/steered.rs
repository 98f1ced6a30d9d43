//! `headroom wrap --steered`: a server whose levers are another run's, and the list of such servers.

use super::{WrapArgs, not_started, say_totals};
use anyhow::anyhow;
use headroom_console::{Failure, Stop, say};
use headroom_oncall::{Inherited, Steering};
use headroom_runtime::live::undo;
use headroom_runtime::oncall::wrapped::{self, Wrapped, WrappedAt, WrappedError};
use headroom_runtime::oncall::{Ended, Folder, PassedOn, Server};
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often places of forked workers that ended are looked for, whoever commands.
const TEND_EVERY: Duration = Duration::from_secs(1);

/// Runs the server until it ends, for another run to command.
///
/// # Errors
/// A name that is none or is taken, a server that cannot be started.
pub(super) fn run(
    args: &WrapArgs,
    file: &Path,
    arguments: &[OsString],
    signals: PassedOn,
) -> Result<Ended, Failure> {
    let run_dir = undo::run_dir(args.run_dir.as_deref())?;
    let of_file = || {
        file.file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    let name = args.name.clone().unwrap_or_else(of_file);
    let at = WrappedAt::named(&run_dir, &name).map_err(Failure::usage)?;
    let folder = Folder::make(&run_dir).map_err(Failure::usage)?;
    let mut offer = at.take().map_err(Failure::usage)?;
    let steering = Steering::create_for_others(&folder.region()).map_err(Failure::usage)?;
    let steering = Arc::new(steering.distrusting(rustix::process::geteuid().is_root()));
    let inherited = Inherited::open(steering.path()).map_err(|error| Failure::Run(error.into()))?;
    let stop = Stop::default();
    // What it costs is counted by whoever commands it.
    let shared = (Arc::clone(&steering), &inherited);
    let (mut server, _, _) =
        Server::start(file, arguments, &folder, shared, None, (signals, &stop)).map_err(not_started)?;
    let described = Wrapped {
        name,
        program: file.to_owned(),
        server: server.pid(),
        wrap: std::process::id(),
        region: folder.region(),
    };
    offer
        .publish(&described)
        .map_err(|error| Failure::Run(error.into()))?;
    say::note!(
        "{} (pid {}) can be put on call by another run: server = \"{}\" in [oncall] of `headroom up --run-dir {}`, or server = \"{}\" with \
         any. Until then it serves as without us",
        file.display(),
        described.server,
        described.name,
        run_dir.display(),
        at.path().display()
    );
    let tend = || {
        while !stop.wait_until(Instant::now() + TEND_EVERY) {
            steering.tend();
        }
        // Whoever commands it lets it go now: it shuts down.
        drop(offer);
    };
    let (ended, _) = server.watch_while(&stop, tend, |error| {
        say::note!("error: {error}: the server serves on as without us, and nobody can command it");
    });
    let ended = ended?;
    say_totals(&steering);
    Ok(ended)
}

/// Prints the servers that can be attached to.
///
/// # Errors
/// A run directory that is not there or cannot be read, servers of other users; standard output that cannot be written.
pub(super) fn list(args: &WrapArgs) -> Result<(), Failure> {
    let run_dir = undo::run_dir(args.run_dir.as_deref())?;
    let all = wrapped::all(&run_dir).map_err(|error| Failure::Run(error.into()))?;
    if all.is_empty() {
        let run_dir = run_dir.display();
        say::note!("no server runs with `headroom wrap --steered --run-dir {run_dir}`");
    }
    let mut hidden = 0;
    for (name, found) in all {
        match found {
            Ok(server) => say::result(line(&server))?,
            Err(error @ WrappedError::Nobody { .. }) => say::note!("{name}: being started: {error}"),
            Err(error) => {
                hidden += usize::from(matches!(
                    error,
                    WrappedError::Owner { .. } | WrappedError::Io { .. }
                ));
                say::note!("{name}: {error}");
            }
        }
    }
    match hidden {
        0 => Ok(()),
        hidden => Err(Failure::Run(anyhow!(
            "{hidden} of these files cannot be read, or are another user's: run `headroom wrap --list` as its owner"
        ))),
    }
}

fn line(server: &Wrapped) -> String {
    let commander = match Steering::commander_of(&server.region) {
        Ok(Some(pid)) => format!("commanded by pid {pid}"),
        Ok(None) => "commanded by nobody, and serves as without us".to_owned(),
        Err(error) => error.to_string(),
    };
    format!(
        "{}\tpid {}\t{}\t{commander}",
        server.name,
        server.server,
        server.program.display()
    )
}
