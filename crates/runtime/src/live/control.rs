//! What an operator asks of a running `up` or agent: over a Unix socket in its run directory, a line of JSON each way.
//!
//! It has a thread of its own, so that a control loop that hangs can still be paused. One request is served at a time, of
//! at most `MAX_REQUEST` bytes, within `PATIENCE`; others wait in the kernel's queue.

use anyhow::{Context, bail};
use headroom_node::restore::{Registry, RestoreReport};
use serde::{Deserialize, Serialize};
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

const SOCKET: &str = "control.sock";
/// The longest request, bytes.
const MAX_REQUEST: u64 = 256;
/// The longest answer that is read, bytes.
const MAX_ANSWER: u64 = 1 << 20;
/// How long a side of it waits for the other. Putting back a hundred levers takes far less.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Put everything back, and write nothing until [`Request::Resume`].
    Pause,
    /// Write again, also what somebody else had written.
    Resume,
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Who did it.
    pub pid: u32,
    /// A line each.
    pub done: Vec<String>,
    /// What could not be done, a line each.
    pub failed: Vec<String>,
}

/// The socket, served until the process ends.
#[derive(Debug)]
pub struct Control(PathBuf);

impl Control {
    /// Serves a registry to operators.
    ///
    /// # Errors
    /// The socket cannot be made, or its thread not started.
    pub fn serve(run_dir: &Path, registry: &Registry) -> anyhow::Result<Self> {
        let path = run_dir.join(SOCKET);
        let listen = || {
            // The run directory is ours, so whoever made this one is dead.
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let listener = UnixListener::bind(&path)?;
            fs::set_permissions(&path, Permissions::from_mode(0o600))?;
            Ok(listener)
        };
        let listener = listen().with_context(|| {
            format!(
                "operators cannot be served at {}: give --run-dir another directory",
                path.display()
            )
        })?;
        let registry = registry.clone();
        std::thread::Builder::new()
            .name("operator".to_owned())
            .spawn(move || {
                for stream in listener.incoming() {
                    let served = stream.map_err(Into::into).and_then(|s| answer(s, &registry));
                    if let Err(error) = served {
                        tracing::warn!("an operator's request failed: {error:#}");
                        // Out of file descriptors, mostly: trying again at once would only spin.
                        std::thread::sleep(Duration::from_millis(50));
                    }
                }
            })?;
        Ok(Self(path))
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn answer(mut stream: UnixStream, registry: &Registry) -> anyhow::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // Until the run directory's mode was ours, somebody else may have come in.
    let peer = rustix::net::sockopt::socket_peercred(&stream)?.uid;
    if !peer.is_root() && peer != rustix::process::geteuid() {
        bail!("user {} may not ask for anything", peer.as_raw());
    }
    let mut line = String::new();
    BufReader::new((&stream).take(MAX_REQUEST)).read_line(&mut line)?;
    if line.is_empty() {
        // Somebody only wanted to know whether this is served.
        return Ok(());
    }
    let request: Request = serde_json::from_str(&line).context("it is not understood")?;
    let mut text = serde_json::to_string(&carry_out(request, registry))?;
    text.push('\n');
    Ok(stream.write_all(text.as_bytes())?)
}

fn carry_out(request: Request, registry: &Registry) -> Answer {
    let mut answer = Answer {
        pid: std::process::id(),
        ..Answer::default()
    };
    match request {
        Request::Pause => {
            let report: RestoreReport = registry.pause();
            for outcome in &report.outcomes {
                match outcome.is_clean() {
                    true => answer.done.push(outcome.to_string()),
                    false => answer.failed.push(outcome.to_string()),
                }
            }
            answer
                .done
                .push("paused: everything is on, and nothing is written until `headroom resume`".to_owned());
            tracing::warn!("an operator has paused control: everything is put back until `headroom resume`");
        }
        Request::Resume => {
            for foreign in registry.resume() {
                answer.done.push(format!(
                    "{} is controlled again, from \"{}\"",
                    foreign.path.display(),
                    foreign.seen
                ));
            }
            answer.done.push("resumed".to_owned());
            tracing::warn!("an operator has resumed control: what is there now is what was found");
        }
    }
    answer
}

/// Whether whoever has a run directory serves operators.
pub fn is_served(run_dir: &Path) -> bool {
    UnixStream::connect(run_dir.join(SOCKET)).is_ok()
}

/// Asks whoever has a run directory.
///
/// # Errors
/// Nobody serves it, or whoever does gives no answer.
pub fn ask(run_dir: &Path, request: Request) -> anyhow::Result<Answer> {
    let path = run_dir.join(SOCKET);
    let mut stream = UnixStream::connect(&path).with_context(|| {
        format!(
            "no running `headroom up` or agent is served at {}: give its --run-dir; what a killed one left is put back by \
             `headroom release`",
            path.display()
        )
    })?;
    stream.set_read_timeout(Some(PATIENCE * 2))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut text = serde_json::to_string(&request)?;
    text.push('\n');
    stream.write_all(text.as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream.take(MAX_ANSWER)).read_line(&mut line)?;
    serde_json::from_str(&line).with_context(|| format!("{} gave no answer", path.display()))
}
