//! Kernel files: one value a file, read whole and written in one call, with errors that say what to do.

use rustix::io::Errno;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The longest file that is read: kernel files of one value are far shorter, and nothing here may grow without
/// bound because a path pointed elsewhere.
const MAX_BYTES: u64 = 1 << 20;

/// What was being done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reading it.
    Read,
    /// Writing it.
    Write,
    /// Making a directory.
    Create,
    /// Removing a directory.
    Remove,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Create => "create",
            Self::Remove => "remove",
        })
    }
}

/// A file of the kernel that could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path}{value}: {cause}; {remedy}", path = path.display(), value = Written(value), remedy = self.remedy())]
pub struct FileError {
    /// What was tried.
    pub action: Action,
    /// The file or directory.
    pub path: PathBuf,
    /// The value that was to be written, if any.
    pub value: Option<String>,
    /// The kernel's answer.
    pub cause: io::Error,
}

struct Written<'a>(&'a Option<String>);

impl fmt::Display for Written<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(value) => write!(f, " (value \"{value}\")"),
            None => Ok(()),
        }
    }
}

impl FileError {
    pub(crate) fn new(action: Action, path: &Path, cause: io::Error) -> Self {
        Self {
            action,
            path: path.to_path_buf(),
            value: None,
            cause,
        }
    }

    /// The thing behind the file is gone: the file does not exist (ENOENT), its cgroup was removed while the file was
    /// open (ENODEV), or the emulated hardware it belongs to died (ENOTCONN, and ECONNABORTED in the midst of a call).
    pub fn is_gone(&self) -> bool {
        is_gone(&self.cause)
    }

    /// What the reader of the message can do about it. The same answer means different things of different files.
    pub fn remedy(&self) -> &'static str {
        let name = self
            .path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        let is_group = self.path.components().any(|part| part.as_os_str() == "cgroup");
        let is_policy = name.starts_with("scaling_") || name.starts_with("cpuinfo_");
        let Some(errno) = self.cause.raw_os_error().map(Errno::from_raw_os_error) else {
            return "see the kernel's log (dmesg) for more";
        };
        match errno {
            Errno::ACCESS | Errno::PERM if name == "energy_uj" => {
                "run as root, or: chgrp headroom and chmod g+r the counter (since CVE-2020-8694 only root may read it)"
            }
            Errno::ACCESS | Errno::PERM => "run as root, or give this user access to it",
            Errno::ROFS => "the file system is mounted read-only: in a container, mount it read-write",
            Errno::NOENT => "check that it exists and has not been removed meanwhile",
            Errno::NODEV if is_group => "the cgroup was removed while in use: start the service again",
            Errno::NODEV | Errno::NXIO => {
                "its driver was unloaded or its CPUs were switched off: bring them back"
            }
            Errno::NOTCONN | Errno::CONNABORTED => {
                "the emulated hardware died: start it again (headroom emulate)"
            }
            Errno::BUSY if is_policy => "the CPUs of this policy are offline: switch one of them on",
            Errno::BUSY => "something else still uses it: see what runs in it, and try again",
            Errno::INVAL if name == "energy_uj" => {
                "the driver could not read the counter from the hardware: see the kernel's log (dmesg)"
            }
            Errno::INVAL if name == "scaling_setspeed" => "a fixed frequency needs the governor userspace",
            Errno::INVAL => "the kernel refuses this value here",
            Errno::NODATA => {
                "the firmware has locked it, or the driver has no value for it: unlock power limits in the BIOS"
            }
            Errno::NOSYS if name == "enabled" => {
                "the firmware has locked the limit that this switches: unlock power limits in the BIOS"
            }
            Errno::TIMEDOUT | Errno::NOMSG | Errno::REMOTEIO => crate::hsmp::remedy(&self.cause),
            Errno::NOSPC => "the cpuset would be left without CPUs or memory nodes",
            Errno::RANGE => "the value names a CPU that does not exist",
            Errno::EXIST => "choose another name, or remove the old one",
            _ => "see the kernel's log (dmesg) for more",
        }
    }
}

pub(crate) fn is_gone(cause: &io::Error) -> bool {
    let errno = cause.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        errno,
        Some(Errno::NOENT | Errno::NODEV | Errno::NOTDIR | Errno::NOTCONN | Errno::CONNABORTED)
    )
}

/// The text of a file without the blank space around it. Longer than a mebibyte is cut off there.
pub(crate) fn read(path: &Path) -> Result<String, FileError> {
    let fail = |cause| FileError::new(Action::Read, path, cause);
    let mut text = String::new();
    fs::File::open(path)
        .map_err(fail)?
        .take(MAX_BYTES)
        .read_to_string(&mut text)
        .map_err(fail)?;
    text.truncate(text.trim_end().len());
    let leading = text.len() - text.trim_start().len();
    text.drain(..leading);
    Ok(text)
}

/// The text of a file, or nothing where the file does not exist.
pub(crate) fn read_if_there(path: &Path) -> Result<Option<String>, FileError> {
    match read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error),
    }
}

/// A whole number in a file.
pub(crate) fn read_u64(path: &Path) -> Result<u64, FileError> {
    let text = read(path)?;
    text.parse().map_err(|_| {
        let what = format!("\"{}\" is not a whole number", shorten(&text));
        FileError::new(
            Action::Read,
            path,
            io::Error::new(io::ErrorKind::InvalidData, what),
        )
    })
}

/// Writes a value in one call, without creating the file. An empty value is written as a bare newline, because a
/// write of no bytes never reaches the kernel's handler.
pub(crate) fn write(path: &Path, value: &str) -> Result<(), FileError> {
    let fail = |cause| FileError {
        value: Some(value.to_string()),
        ..FileError::new(Action::Write, path, cause)
    };
    let mut file = OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(path)
        .map_err(fail)?;
    let text = if value.is_empty() { "\n" } else { value };
    file.write_all(text.as_bytes()).map_err(fail)
}

/// Whether a file may be written, asked of the kernel without writing.
pub(crate) fn check_writable(path: &Path) -> Result<(), FileError> {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK)
        .map_err(|errno| FileError::new(Action::Write, path, errno.into()))
}

/// At most the first 60 characters of a text, for messages.
pub(crate) fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(60).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_named_with_a_remedy_and_never_created() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cpu.max");
        let error = write(&path, "max 10000").unwrap_err();
        assert!(error.is_gone());
        let message = error.to_string();
        assert!(
            message.contains("cpu.max") && message.contains("max 10000") && message.contains("check that")
        );
        assert!(!path.exists());
        assert_eq!(read_if_there(&path).unwrap(), None);
    }

    #[test]
    fn a_word_where_a_number_should_be_is_an_error_that_shows_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("energy_uj");
        fs::write(&path, "none\n").unwrap();
        assert!(read_u64(&path).unwrap_err().to_string().contains("\"none\""));
        fs::write(&path, " 17 \n").unwrap();
        assert_eq!(read_u64(&path).unwrap(), 17);
    }

    #[test]
    fn the_same_answer_means_different_things_of_different_files() {
        let remedy =
            |path: &str, errno: Errno| FileError::new(Action::Write, Path::new(path), errno.into()).remedy();
        for (path, errno, word) in [
            (
                "/sys/class/powercap/intel-rapl:0/energy_uj",
                Errno::INVAL,
                "could not read the counter",
            ),
            (
                "/sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw",
                Errno::INVAL,
                "refuses this value",
            ),
            (
                "/sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw",
                Errno::NODATA,
                "BIOS",
            ),
            ("/sys/class/powercap/intel-rapl:0/enabled", Errno::NOSYS, "BIOS"),
            (
                "/sys/devices/system/cpu/cpufreq/policy3/scaling_max_freq",
                Errno::BUSY,
                "offline",
            ),
            (
                "/sys/devices/system/cpu/cpufreq/policy3/scaling_setspeed",
                Errno::INVAL,
                "userspace",
            ),
            (
                "/sys/class/hwmon/hwmon0/power1_cap",
                Errno::TIMEDOUT,
                "HSMP in the BIOS",
            ),
            (
                "/sys/class/hwmon/hwmon0/power1_cap",
                Errno::NODEV,
                "driver was unloaded",
            ),
            ("/sys/fs/cgroup/web/cpu.max", Errno::NODEV, "cgroup was removed"),
            ("/sys/fs/cgroup/web/cpu.max", Errno::ROFS, "read-only"),
            ("/sys/fs/cgroup/web/cpuset.cpus", Errno::NOSPC, "without CPUs"),
            ("/sys/fs/cgroup/web/cpuset.cpus", Errno::RANGE, "does not exist"),
        ] {
            assert!(
                remedy(path, errno).contains(word),
                "{path} {errno}: {}",
                remedy(path, errno)
            );
        }
    }

    #[test]
    fn writing_replaces_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("v");
        fs::write(&path, "a longer value\n").unwrap();
        write(&path, "7").unwrap();
        assert_eq!(read(&path).unwrap(), "7");
        write(&path, "").unwrap();
        assert_eq!(read(&path).unwrap(), "");
    }
}
