//! Programs run as processes, bounded in time and in what they may print.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// A program has this long.
const MAX_TIME: Duration = Duration::from_secs(2);
/// What a program may print: a hundred times what those that are run here print on a busy machine.
const MAX_BYTES: u64 = 1 << 20;
/// What is kept of what it prints where it fails.
const MAX_COMPLAINT_BYTES: u64 = 512;

/// Where a program is, on PATH or where administrators' tools are.
pub(crate) fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

/// What a program prints until it ends, in the language of programs.
///
/// # Errors
/// It cannot be run, takes too long, or fails: what it printed on its standard error.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let mut child = command
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot be run: {error}"))?;
    let (Some(printed), Some(complaint)) = (child.stdout.take(), child.stderr.take()) else {
        return Err("has no output".to_owned());
    };
    let (sender, receiver) = mpsc::sync_channel(1);
    // Ends with the program, which is killed where it takes too long.
    thread::spawn(move || {
        let mut text = Vec::new();
        let read = printed.take(MAX_BYTES).read_to_end(&mut text).map(|_| text);
        // Nobody waits any more where the time was up.
        let _ = sender.send(read);
    });
    let read = receiver.recv_timeout(MAX_TIME);
    if read.is_err() {
        // It has ended meanwhile, or is ended.
        let _ = child.kill();
    }
    let status = child
        .wait()
        .map_err(|error| format!("cannot be waited for: {error}"))?;
    match read {
        Err(_) => Err(format!("did not end within {} s", MAX_TIME.as_secs())),
        Ok(Err(error)) => Err(format!("cannot be read: {error}")),
        Ok(Ok(_)) if !status.success() => {
            let mut text = String::new();
            // What is no text says nothing either.
            let _ = complaint.take(MAX_COMPLAINT_BYTES).read_to_string(&mut text);
            let text = text.trim().replace('\n', "; ");
            Err(format!("failed ({status}): {text}"))
        }
        Ok(Ok(text)) => Ok(String::from_utf8_lossy(&text).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<String, String> {
        output(Command::new("/bin/sh").args(["-c", script]))
    }

    #[test]
    fn what_a_program_prints_is_told_from_how_it_failed() {
        assert_eq!(shell("echo yes; echo no >&2").unwrap(), "yes\n");
        let failed = shell("echo yes; echo no >&2; exit 3").unwrap_err();
        assert_eq!(failed, "failed (exit status: 3): no");
        assert_eq!(shell("sleep 100").unwrap_err(), "did not end within 2 s");
        let missing = output(&mut Command::new("/nowhere/program")).unwrap_err();
        assert!(missing.starts_with("cannot be run: "), "{missing}");
    }
}
