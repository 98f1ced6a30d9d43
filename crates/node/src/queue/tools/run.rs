//! Tools run as processes.

use super::super::QueueError;
use crate::process::{self, installed};
use std::process::{Command, Stdio};

/// The tools, and the Debian package of each.
pub(crate) const TOOLS: [(&str, &str); 3] =
    [("vmstat", "procps"), ("ss", "iproute2"), ("netstat", "net-tools")];

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
    process::output(command(tool)?.args(arguments)).map_err(fail)
}
