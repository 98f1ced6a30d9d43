//! What a server says on the terminal while the live view has it: written to a file of its own in the run folder.

use super::folder::{SAME_NUMBER, is_left};
use super::server::StartError;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A longer log is moved aside, and that which was moved before is lost: two such files hold the last that a server said.
const MAX_BYTES: u64 = 16 << 20;
/// As much of the end is looked at for the last lines.
const END_BYTES: u64 = 16 << 10;

/// How the name of the one that was moved aside ends.
const OLD: &str = "log.old";

/// The log of a server beside a view. It stays when this program ends, for it may say why the server did; the next `wrap` with a view
/// and the same run folder takes it away.
#[derive(Debug)]
pub struct ServerLog {
    path: PathBuf,
    file: File,
}

impl ServerLog {
    /// Makes the log of this program's server in a run folder, and takes away those of programs that have ended.
    ///
    /// # Errors
    /// [`StartError::Log`].
    pub fn make(run_dir: &Path) -> Result<Self, StartError> {
        take_dead_away(run_dir);
        let pid = std::process::id();
        let path = run_dir.join(format!("server-{pid}.log"));
        let make = |path: &Path| -> io::Result<File> {
            fs::create_dir_all(run_dir)?;
            // The server appends, so that what is cut off in front of it leaves no hole.
            let mut options = OpenOptions::new();
            options.create(true).append(true).read(true).mode(0o600);
            let file = options.open(path)?;
            // With the server, which inherits it.
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            Ok(file)
        };
        let mut made = make(&path).map(|file| (path.clone(), file));
        // One of the same number in another PID namespace has that.
        for number in 1..SAME_NUMBER {
            if !matches!(&made, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
                break;
            }
            let path = run_dir.join(format!("server-{pid}-{number}.log"));
            made = make(&path).map(|file| (path, file));
        }
        let (path, file) = made.map_err(|source: io::Error| StartError::Log { path, source })?;
        Ok(Self { path, file })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// It as a program's standard output, and again as its standard error. A file and no pipe: the server goes on where this program is
    /// killed.
    pub(super) fn outputs(&self) -> io::Result<[Stdio; 2]> {
        Ok([self.file.try_clone()?.into(), self.file.try_clone()?.into()])
    }

    /// Moves it aside where it has become too long.
    pub(super) fn keep_short(&self) {
        let is_long = self
            .file
            .metadata()
            .is_ok_and(|metadata| metadata.len() > MAX_BYTES);
        if is_long {
            // The server has the file itself open: its contents are moved. What it writes in between is lost.
            let copied = fs::copy(&self.path, self.path.with_extension(OLD));
            if let Err(error) = copied.and_then(|_| self.file.set_len(0)) {
                tracing::warn!("{}: the server's log grows: {error}", self.path.display());
            }
        }
    }

    /// The last lines, at most so many.
    pub fn last_lines(&self, most: usize) -> Vec<String> {
        let mut end = Vec::new();
        let mut file = &self.file;
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let read = file
            .seek(SeekFrom::Start(length.saturating_sub(END_BYTES)))
            .and_then(|_| file.take(END_BYTES).read_to_end(&mut end));
        if let Err(error) = read {
            return vec![format!("{}: it cannot be read: {error}", self.path.display())];
        }
        let text = String::from_utf8_lossy(&end);
        let lines: Vec<&str> = text.lines().collect();
        let first = lines.len().saturating_sub(most);
        lines[first..].iter().map(|line| (*line).to_owned()).collect()
    }
}

/// Takes away the logs of those that have ended: nobody has them locked, neither who made one nor the server that writes to it.
fn take_dead_away(run_dir: &Path) {
    for entry in fs::read_dir(run_dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        let is_log = name
            .to_str()
            .is_some_and(|name| name.starts_with("server-") && name.ends_with(".log"));
        if is_log && is_left(&path) == Some(true) {
            let _ = fs::remove_file(path.with_extension(OLD));
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::Command;

    #[test]
    fn a_program_writes_both_outputs_to_it_and_goes_on_when_it_was_moved_aside() {
        let folder = tempfile::tempdir().unwrap();
        let dead = folder.path().join("server-4294967.log");
        let others = folder.path().join("server.log");
        fs::write(&dead, "old").unwrap();
        fs::write(&others, "of somebody else").unwrap();
        let log = ServerLog::make(folder.path()).unwrap();
        assert!(!dead.exists() && others.exists());
        let [out, err] = log.outputs().unwrap();
        let mut program = Command::new("sh")
            .args(["-c", "echo out; echo err >&2; read go; echo after"])
            .stdin(Stdio::piped())
            .stdout(out)
            .stderr(err)
            .spawn()
            .unwrap();
        while log.last_lines(9).len() < 2 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(log.last_lines(9), ["out", "err"]);
        assert_eq!(log.last_lines(1), ["err"]);
        log.keep_short();
        assert_eq!(log.last_lines(9).len(), 2, "it is short");
        log.file.set_len(MAX_BYTES + 1).unwrap();
        log.keep_short();
        assert!(log.last_lines(9).is_empty());
        let old = log.path().with_extension("log.old");
        assert_eq!(fs::metadata(&old).unwrap().len(), MAX_BYTES + 1);
        program.stdin.take().unwrap().write_all(b"go\n").unwrap();
        program.wait().unwrap();
        assert_eq!(
            fs::read_to_string(log.path()).unwrap(),
            "after\n",
            "without a hole"
        );
    }

    #[test]
    fn where_it_cannot_be_made_the_folder_is_named() {
        let error = ServerLog::make(Path::new("/proc/none")).unwrap_err().to_string();
        assert!(
            error.contains("/proc/none") && error.contains("--run-dir"),
            "{error}"
        );
    }
}
