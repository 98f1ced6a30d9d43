//! The promise that everything is put back: on exit, on panic, on a signal, and after kill -9, then by a process that
//! does nothing but wait for that; where it was killed too, by the next start or by `headroom release`.

use crate::emulator::take_and_sweep;
use crate::failure::Failure;
use headroom_node::Roots;
use headroom_node::restore::{self, Left, RunDir};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;

/// Where this user's runs keep the record of what is to be put back.
pub fn default_run_dir() -> PathBuf {
    if is_root() {
        return PathBuf::from("/run/headroom");
    }
    std::env::var_os("XDG_RUNTIME_DIR")
        .map_or_else(std::env::temp_dir, PathBuf::from)
        .join("headroom")
}

fn is_root() -> bool {
    // The owner of this process's directory in /proc is its effective user.
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}

/// Takes a run folder for this process, and takes away what dead demos left in it: what those changed on their emulated
/// servers is gone then, and need not be put back.
///
/// # Errors
/// A run folder that is in use or cannot be used.
pub fn take(run_dir: &Path) -> Result<RunDir, Failure> {
    let (taken, swept) = take_and_sweep(run_dir).map_err(Failure::usage)?;
    for line in &swept.done {
        tracing::warn!("left by a demo that was killed: {line}");
    }
    for error in &swept.failed {
        tracing::warn!("left by a demo that was killed, and NOT taken away: {error:#}");
    }
    Ok(taken)
}

/// Puts back what a killed run left, and from now on keeps record of what this one changes.
///
/// # Errors
/// A run folder whose record cannot be used.
pub fn promise(run_dir: RunDir, roots: &Roots) -> Result<(), Failure> {
    restore::install();
    let path = run_dir.path().to_path_buf();
    let (ledger, left) = run_dir.ledger(roots).map_err(Failure::usage)?;
    for outcome in &left.outcomes {
        tracing::warn!("left by a run that was killed: {outcome}");
    }
    restore::global().attach(ledger).map_err(Failure::usage)?;
    watch_over(&path, roots);
    Ok(())
}

/// What a `--check`, which puts nothing back, says of limits that are in force now.
pub fn note_of_left(run_dir: &Path) -> Option<String> {
    match restore::left(run_dir) {
        Left::Nothing => None,
        Left::OfRunning(pid) => Some(format!(
            "{} belongs to a running headroom (pid {pid}): the limits found here may be its own",
            run_dir.display()
        )),
        Left::OfKilled => Some(format!(
            "a run that was killed left limits in force, and they are what was found here; the next start puts them back, \
             and so does `headroom release --run-dir {0}` ({0} has the record)",
            run_dir.display()
        )),
    }
}

/// Its other end is the guard's standard input: the kernel closes it when this process ends, however it ends.
static GUARD: OnceLock<ChildStdin> = OnceLock::new();

/// Starts the guard, which puts back at once what this process leaves if it is killed.
fn watch_over(run_dir: &Path, roots: &Roots) {
    let start = || -> std::io::Result<Option<ChildStdin>> {
        let mut guard = Command::new(std::env::current_exe()?)
            .args(["release", "--when-input-closes", "--run-dir"])
            .arg(run_dir)
            .arg("--sys")
            .arg(&roots.sys)
            .arg("--proc")
            .arg(&roots.proc_)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // What ends this process from the terminal must not end the guard with it.
            .process_group(0)
            .spawn()?;
        Ok(guard.stdin.take())
    };
    match start() {
        // Set once: a process makes one promise.
        Ok(Some(input)) => drop(GUARD.set(input)),
        Ok(None) => {}
        Err(error) => tracing::warn!(
            "nothing watches over this process ({error}): if it is killed, the next start or `headroom release` puts back \
             what it changed"
        ),
    }
}

/// Puts everything back now, and says what could not be.
pub fn keep() {
    for outcome in restore::restore_all().outcomes {
        if outcome.is_clean() {
            tracing::info!("{outcome}");
        } else {
            tracing::warn!("{outcome}");
        }
    }
    restore::global().disown();
}
