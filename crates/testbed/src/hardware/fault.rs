//! Faults, each to be switched on and off while the emulator runs, through [`super::Control`] or by writing the same
//! words to the control file.
//!
//! A *pattern* names files by the last parts of their path: `intel-rapl:0/energy_uj`, `policy*/scaling_max_freq`,
//! `web/cpu.max`. A `*` stands for any letters within one part. Paths through `class/powercap/ZONE` mean the zone.

use rustix::io::Errno;
use std::fmt;
use std::str::FromStr;

/// The most faults at a time.
pub const MAX_FAULTS: usize = 64;
/// The longest text that a file can be made to read.
const MAX_TEXT: usize = 4096;

/// Errors that can be asked for by name.
const ERRNOS: [(&str, Errno); 22] = [
    ("EPERM", Errno::PERM),
    ("ENOENT", Errno::NOENT),
    ("ESRCH", Errno::SRCH),
    ("EIO", Errno::IO),
    ("ENXIO", Errno::NXIO),
    ("EAGAIN", Errno::AGAIN),
    ("EACCES", Errno::ACCESS),
    ("EBUSY", Errno::BUSY),
    ("EEXIST", Errno::EXIST),
    ("ENODEV", Errno::NODEV),
    ("EINVAL", Errno::INVAL),
    ("ENOSPC", Errno::NOSPC),
    ("EROFS", Errno::ROFS),
    ("ERANGE", Errno::RANGE),
    ("ENOSYS", Errno::NOSYS),
    ("ENODATA", Errno::NODATA),
    ("ETIMEDOUT", Errno::TIMEDOUT),
    ("EOPNOTSUPP", Errno::OPNOTSUPP),
    ("ENOMSG", Errno::NOMSG),
    ("EREMOTEIO", Errno::REMOTEIO),
    ("ENOTCONN", Errno::NOTCONN),
    ("EOVERFLOW", Errno::OVERFLOW),
];

/// Text that is no fault and no command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    /// Not understood.
    #[error("\"{given}\" is no {what}: {expected}")]
    NotUnderstood {
        /// The text.
        given: String,
        /// What it should be.
        what: &'static str,
        /// What it may be.
        expected: &'static str,
    },
    /// Too many at a time.
    #[error("{MAX_FAULTS} faults are active already: clear some first")]
    TooMany,
}

/// What is being done to a file when an error strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Opening it.
    Open,
    /// Reading it.
    Read,
    /// Writing it.
    Write,
}

/// Files, by the last parts of their path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// A pattern.
    ///
    /// # Errors
    /// [`FaultError`] for empty text, or one with blank space.
    pub fn new(text: &str) -> Result<Self, FaultError> {
        let text = text.trim_matches('/');
        let zone = text
            .strip_prefix("class/powercap/")
            .filter(|zone| !zone.is_empty());
        let text = zone.unwrap_or(text);
        if text.is_empty() || text.contains(char::is_whitespace) || text.len() > 512 {
            return Err(not_understood(
                text,
                "pattern",
                "the last parts of a path, such as intel-rapl:0/energy_uj",
            ));
        }
        Ok(Self(text.into()))
    }

    /// Whether it names exactly this path, given in parts.
    pub fn matches(&self, path: &[&str]) -> bool {
        let parts: Vec<&str> = self.0.split('/').collect();
        path.len() >= parts.len()
            && parts
                .iter()
                .zip(&path[path.len() - parts.len()..])
                .all(|(pattern, part)| fits(pattern, part))
    }

    /// Whether it names this path or a directory above it.
    pub fn covers(&self, path: &[&str]) -> bool {
        (1..=path.len()).any(|length| self.matches(&path[..length]))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a name fits a pattern with stars.
fn fits(pattern: &str, name: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let mut last = None;
    for piece in pieces {
        if let Some(piece) = last.replace(piece) {
            match rest.find(piece) {
                Some(at) => rest = &rest[at + piece.len()..],
                None => return false,
            }
        }
    }
    match last {
        None => rest.is_empty(),
        Some(last) => rest.ends_with(last),
    }
}

/// Something that real machines do to those who read and write them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An operation on some files fails with an error.
    Error {
        /// The operation that fails.
        on: Operation,
        /// With what.
        errno: Errno,
        /// Which files.
        files: Pattern,
    },
    /// Some files read as this text, whatever the truth: a lying sensor, a sentinel, a limit's maximum of 0.
    Reads {
        /// Which files.
        files: Pattern,
        /// The text.
        text: String,
    },
    /// A file or directory, with all below it, is not there.
    Vanished(Pattern),
    /// A directory is there and empty, as where a container masks it.
    Emptied(Pattern),
    /// All is mounted read-only (EROFS on opening for writing), but for the control file.
    ReadOnly,
    /// The energy counter of a zone stands still.
    Frozen(String),
    /// The firmware locked the limits of a zone: ENODATA on writing them, `enabled` reads 0, ENOSYS on enabling.
    Locked(String),
    /// The limits of a package (its zone) are accepted, read back, and do nothing.
    Inert(String),
    /// The CPUs of a policy (its directory's name) are offline for cpufreq: EBUSY on everything.
    Inactive(String),
}

impl Fault {
    /// An operation fails.
    ///
    /// # Errors
    /// [`FaultError`] where the pattern is none.
    pub fn error(on: Operation, errno: Errno, files: &str) -> Result<Self, FaultError> {
        Ok(Self::Error {
            on,
            errno,
            files: Pattern::new(files)?,
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error { on, errno, files } => {
                let on = match on {
                    Operation::Open => "open",
                    Operation::Read => "read",
                    Operation::Write => "write",
                };
                let name = ERRNOS
                    .iter()
                    .find(|(_, known)| known == errno)
                    .map(|(name, _)| *name);
                match name {
                    Some(name) => write!(f, "error {on} {name} {files}"),
                    None => write!(f, "error {on} {} {files}", errno.raw_os_error()),
                }
            }
            Self::Reads { files, text } => write!(f, "reads {files} {text}"),
            Self::Vanished(files) => write!(f, "vanished {files}"),
            Self::Emptied(files) => write!(f, "emptied {files}"),
            Self::ReadOnly => f.write_str("read-only"),
            Self::Frozen(zone) => write!(f, "frozen {zone}"),
            Self::Locked(zone) => write!(f, "locked {zone}"),
            Self::Inert(zone) => write!(f, "inert {zone}"),
            Self::Inactive(policy) => write!(f, "inactive {policy}"),
        }
    }
}

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(given: &str) -> Result<Self, FaultError> {
        const EXPECTED: &str = "error open|read|write ERRNO PATTERN, reads PATTERN TEXT, vanished PATTERN, \
            emptied PATTERN, read-only, frozen ZONE, locked ZONE, inert ZONE, inactive POLICY";
        let bad = || not_understood(given, "fault", EXPECTED);
        let text = given.trim();
        let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
        let one = || match rest.is_empty() || rest.contains(char::is_whitespace) {
            true => Err(bad()),
            false => Ok(rest.to_string()),
        };
        Ok(match kind {
            "error" => {
                let words: Vec<&str> = rest.split_whitespace().collect();
                let [on, name, files] = words[..] else {
                    return Err(bad());
                };
                let on = match on {
                    "open" => Operation::Open,
                    "read" => Operation::Read,
                    "write" => Operation::Write,
                    _ => return Err(bad()),
                };
                let errno = ERRNOS.iter().find(|(known, _)| *known == name).ok_or_else(bad)?.1;
                Self::Error {
                    on,
                    errno,
                    files: Pattern::new(files)?,
                }
            }
            "reads" => {
                let (files, text) = rest.split_once(' ').unwrap_or((rest, ""));
                if text.len() > MAX_TEXT {
                    return Err(bad());
                }
                Self::Reads {
                    files: Pattern::new(files)?,
                    text: text.into(),
                }
            }
            "vanished" => Self::Vanished(Pattern::new(&one()?)?),
            "emptied" => Self::Emptied(Pattern::new(&one()?)?),
            "read-only" if rest.is_empty() => Self::ReadOnly,
            "frozen" => Self::Frozen(one()?),
            "locked" => Self::Locked(one()?),
            "inert" => Self::Inert(one()?),
            "inactive" => Self::Inactive(one()?),
            _ => return Err(bad()),
        })
    }
}

/// A line of the control file.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// `set FAULT`.
    Set(Fault),
    /// `clear FAULT`.
    Clear(Fault),
    /// `clear`: all of them.
    ClearAll,
    /// `suspend SECONDS` or `suspend SECONDS restart`, where the counters start anew.
    Suspend {
        /// How long.
        seconds: f64,
        /// Whether the energy counters start at zero after it.
        restart: bool,
    },
    /// `counter ZONE MICROJOULES`: puts an energy counter somewhere, such as shortly before its range.
    Counter {
        /// The zone.
        zone: String,
        /// The value.
        microjoules: u64,
    },
    /// `jump ZONE MICROJOULES`: adds to an energy counter what nobody drew.
    Jump {
        /// The zone.
        zone: String,
        /// How much.
        microjoules: u64,
    },
    /// `load GROUP CORES`: the group is busy on so many emulated cores, as far as it may, without any real process.
    Load {
        /// The control group.
        group: String,
        /// How many.
        cores: f64,
    },
}

impl FromStr for Command {
    type Err = FaultError;

    fn from_str(given: &str) -> Result<Self, FaultError> {
        const EXPECTED: &str = "set FAULT, clear FAULT, clear, suspend SECONDS [restart], counter ZONE MICROJOULES, \
            jump ZONE MICROJOULES, load GROUP CORES";
        let bad = || not_understood(given, "command", EXPECTED);
        let line = given.trim();
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words: Vec<&str> = rest.split_whitespace().collect();
        let number = |text: &str| {
            text.parse::<f64>()
                .ok()
                .filter(|n| n.is_finite() && *n >= 0.0)
                .ok_or_else(bad)
        };
        let whole = |text: &str| text.parse::<u64>().map_err(|_| bad());
        Ok(match (verb, &words[..]) {
            ("set", [_, ..]) => Self::Set(rest.parse()?),
            ("clear", []) => Self::ClearAll,
            ("clear", [_, ..]) => Self::Clear(rest.parse()?),
            ("suspend", [seconds]) => Self::Suspend {
                seconds: number(seconds)?,
                restart: false,
            },
            ("suspend", [seconds, "restart"]) => Self::Suspend {
                seconds: number(seconds)?,
                restart: true,
            },
            ("counter", [zone, value]) => Self::Counter {
                zone: (*zone).into(),
                microjoules: whole(value)?,
            },
            ("jump", [zone, value]) => Self::Jump {
                zone: (*zone).into(),
                microjoules: whole(value)?,
            },
            ("load", [group, cores]) => Self::Load {
                group: (*group).into(),
                cores: number(cores)?,
            },
            _ => return Err(bad()),
        })
    }
}

fn not_understood(given: &str, what: &'static str, expected: &'static str) -> FaultError {
    FaultError::NotUnderstood {
        given: given.chars().take(80).collect(),
        what,
        expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_written_as_they_are_read() {
        for text in [
            "error write EINVAL intel-rapl:*/constraint_0_power_limit_uw",
            "error read EIO energy_uj",
            "error open EACCES policy3/scaling_max_freq",
            "reads intel-rapl:0/energy_uj 4294967295000",
            "reads intel-rapl:0/constraint_0_max_power_uw 0",
            "vanished intel-rapl:1",
            "emptied class/powercap",
            "read-only",
            "frozen intel-rapl:0",
            "locked intel-rapl:0",
            "inert intel-rapl:1",
            "inactive policy2",
        ] {
            assert_eq!(text.parse::<Fault>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "error",
            "error read EWRONG x",
            "error maybe EIO x",
            "frozen",
            "frozen a b",
            "melted x",
            "vanished /",
        ] {
            let error = text.parse::<Fault>().unwrap_err();
            assert!(error.to_string().contains("is no"), "{text}");
        }
    }

    #[test]
    fn commands() {
        assert_eq!("clear".parse(), Ok(Command::ClearAll));
        assert_eq!("set read-only\n".parse(), Ok(Command::Set(Fault::ReadOnly)));
        assert_eq!(
            "suspend 3 restart".parse(),
            Ok(Command::Suspend {
                seconds: 3.0,
                restart: true
            })
        );
        assert_eq!(
            "jump intel-rapl:0 7".parse(),
            Ok(Command::Jump {
                zone: "intel-rapl:0".into(),
                microjoules: 7
            })
        );
        assert_eq!(
            "load web 2.5".parse(),
            Ok(Command::Load {
                group: "web".into(),
                cores: 2.5
            })
        );
        for text in [
            "set",
            "suspend -1",
            "suspend NaN",
            "counter intel-rapl:0",
            "counter z 1.5",
            "explode",
        ] {
            assert!(text.parse::<Command>().is_err(), "{text}");
        }
    }

    #[test]
    fn patterns_name_files_by_their_last_parts() {
        let path = [
            "devices",
            "virtual",
            "powercap",
            "intel-rapl",
            "intel-rapl:0",
            "energy_uj",
        ];
        for (pattern, expected) in [
            ("energy_uj", true),
            ("intel-rapl:0/energy_uj", true),
            ("class/powercap/intel-rapl:0/energy_uj", true),
            ("intel-rapl:*/energy_*", true),
            ("*", true),
            ("intel-rapl:1/energy_uj", false),
            ("rapl:0/energy_uj", false),
            ("intel-rapl:0", false),
            ("max_*_uj", false),
            ("e*y*uj", true),
            ("e*x*uj", false),
        ] {
            assert_eq!(
                Pattern::new(pattern).unwrap().matches(&path),
                expected,
                "{pattern}"
            );
        }
        assert!(Pattern::new("intel-rapl:0").unwrap().covers(&path));
        assert!(!Pattern::new("intel-rapl:1").unwrap().covers(&path));
        assert!(fits("a*a", "aa") && !fits("a*a", "a") && fits("**", ""));
    }
}
