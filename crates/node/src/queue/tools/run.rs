//! Tools run as processes, bounded in time and in what they may say.

use super::super::QueueError;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// A tool has this long.
const PATIENCE: Duration = Duration::from_secs(2);
/// What a tool may say: a hundred times what these say on a busy machine.
const MAX_BYTES: u64 = 1 << 20;

/// The tools, and the Debian package of each.
pub(crate) const TOOLS: [(&str, &str); 3] =
    [("vmstat", "procps"), ("ss", "iproute2"), ("netstat", "net-tools")];

/// Where a tool is, on PATH or where administrators' tools are.
pub(crate) fn installed(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|dir| dir.join(tool))
        .find(|file| file.is_file())
}

/// A tool's command, in the language of programs.
pub(super) fn command(tool: &'static str) -> Result<Command, QueueError> {
    let package = TOOLS
        .iter()
        .find(|(name, _)| *name == tool)
        .map_or(tool, |(_, package)| package);
    let path = installed(tool).ok_or_else(|| QueueError::Tool {
        tool,
        what: "is not installed".into(),
        remedy: format!("apt install {package}"),
    })?;
    let mut command = Command::new(path);
    command
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    Ok(command)
}

/// What a tool says until it ends.
pub(super) fn output(tool: &'static str, arguments: &[&str]) -> Result<String, QueueError> {
    let fail = |what: String| QueueError::Tool {
        tool,
        what,
        remedy: format!("see what `{tool} {}` says", arguments.join(" ")),
    };
    let mut child = command(tool)?
        .args(arguments)
        .spawn()
        .map_err(|error| fail(format!("cannot be run: {error}")))?;
    let Some(pipe) = child.stdout.take() else {
        return Err(fail("has no output".into()));
    };
    let (sender, receiver) = mpsc::sync_channel(1);
    // Ends with the tool, which is killed where it takes too long.
    thread::spawn(move || {
        let mut text = Vec::new();
        let read = pipe.take(MAX_BYTES).read_to_end(&mut text).map(|_| text);
        // Nobody waits any more where the time was up.
        let _ = sender.send(read);
    });
    let said = receiver.recv_timeout(PATIENCE);
    if said.is_err() {
        // It has ended meanwhile, or is ended.
        let _ = child.kill();
    }
    let status = child
        .wait()
        .map_err(|error| fail(format!("cannot be waited for: {error}")))?;
    match said {
        Err(_) => Err(fail(format!("did not end within {} s", PATIENCE.as_secs()))),
        Ok(Err(error)) => Err(fail(format!("cannot be read: {error}"))),
        Ok(Ok(_)) if !status.success() => Err(fail(format!("failed ({status})"))),
        Ok(Ok(text)) => Ok(String::from_utf8_lossy(&text).into_owned()),
    }
}
