//! Which levers and meters this machine has, and why the others cannot be used: what `headroom doctor` prints.
//!
//! Nothing is changed: files are read, a meter that can be read is tried under some tenths of a second of work, and permission to write is asked of the kernel (access(2)), not tried. What
//! only a write can tell, such as a limit that the BIOS has locked without saying so, shows when it is first used.

mod cpu;
mod power;
mod queue;
mod tools;

pub use queue::{QUEUE_BY_EBPF, QUEUE_BY_KERNEL};

use crate::Roots;
use crate::cgroup::Hierarchies;
use crate::file;
use crate::power::{Meter, MeterError, trial};
use crate::tool::{TOOLS, Tool};
use rustix::fs::Access as Mode;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// What counts a service's CPU time: in use beside every meter of watts, and none itself.
pub const CPU_TIME: &str = "CPU time of a service";
/// What the finding about limits on the frequency is called.
pub(crate) const FREQUENCY_LIMIT: &str = "CPU frequency limit";

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Something that can be set.
    Lever,
    /// Something that can be read.
    Meter,
    /// Something that a part of Headroom needs to run.
    Tool,
}

/// Whether it can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It works.
    Usable,
    /// It is there, but not all of it can be used.
    Limited,
    /// It cannot be used.
    Unusable,
}

/// One lever, meter or tool of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Its name, the same on every machine.
    pub what: String,
    /// Lever, meter or tool.
    pub kind: Kind,
    /// Whether it can be used.
    pub state: State,
    /// Why, in words that need no knowledge of the interface.
    pub why: String,
    /// What would make it usable; nothing where nothing needs to or can be done.
    pub remedy: Option<String>,
    /// The file or directory that shows it.
    pub evidence: PathBuf,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Usable => "usable",
            State::Limited => "limited",
            State::Unusable => "not usable",
        };
        write!(
            f,
            "{}: {state}: {} [{}]",
            self.what,
            self.why,
            self.evidence.display()
        )?;
        match &self.remedy {
            Some(remedy) => write!(f, "; remedy: {remedy}"),
            None => Ok(()),
        }
    }
}

/// Whether files may be read and written: the kernel's answer for this process, or another's in a test.
pub trait Permissions {
    /// Whether it exists and may be read.
    ///
    /// # Errors
    /// The kernel's answer where not.
    fn read(&self, path: &Path) -> Result<(), Errno>;

    /// Whether it exists and may be written.
    ///
    /// # Errors
    /// The kernel's answer where not.
    fn write(&self, path: &Path) -> Result<(), Errno>;

    /// Whether a meter moves while a processor works, for at most some tenths of a second.
    ///
    /// # Errors
    /// [`MeterError::DoesNotMove`], or what reading it answers.
    fn moves(&self, meter: &mut dyn Meter) -> Result<(), MeterError> {
        trial::moves(meter)
    }
}

/// The permissions of this process, by access(2).
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnPermissions;

impl Permissions for OwnPermissions {
    fn read(&self, path: &Path) -> Result<(), Errno> {
        rustix::fs::access(path, Mode::READ_OK)
    }

    fn write(&self, path: &Path) -> Result<(), Errno> {
        rustix::fs::access(path, Mode::WRITE_OK)
    }
}

/// Looks at everything, with the permissions of this process. Levers first, then meters, then tools. Tools are of the
/// kernel that this process runs on, whatever tree the levers and meters are looked for in.
pub fn probe(roots: &Roots) -> Vec<Finding> {
    probe_with(roots, &Roots::default(), &OwnPermissions)
}

/// As [`probe`], with other permissions, and another place for what the running kernel says of this process and of
/// tools.
pub fn probe_with(roots: &Roots, own: &Roots, permissions: &dyn Permissions) -> Vec<Finding> {
    let machine = Machine::examine(roots, own, permissions);
    let mut findings = Vec::new();
    findings.extend(cpu::findings(&machine));
    findings.extend(power::findings(&machine));
    findings.extend(TOOLS.iter().map(|tool| set_by_program(roots, tool)));
    findings.extend(queue::findings(&machine));
    findings.extend(tools::findings(&machine));
    findings.sort_by_key(|finding| match finding.kind {
        Kind::Lever => 0,
        Kind::Meter => 1,
        Kind::Tool => 2,
    });
    findings
}

/// A lever that a program sets, on whichever devices have it.
fn set_by_program(roots: &Roots, tool: &Tool) -> Finding {
    let (mut has, mut lacks, mut remedy) = (Vec::new(), Vec::new(), String::new());
    for file in tool.devices(roots) {
        let dir = file.parent().unwrap_or(&file);
        let device = dir.file_name().unwrap_or_default().to_string_lossy();
        match tool.shown(&file) {
            Ok(value) => has.push(format!("{device}: {value}")),
            Err(none) => {
                lacks.push(format!("{device}: {}", none.reason));
                remedy = none.remedy;
            }
        }
    }
    let (dir, kind) = (tool.dir(roots), Kind::Lever);
    if !has.is_empty() {
        return finding(tool.name, kind, State::Usable, dir, has.join(", "));
    }
    if lacks.is_empty() {
        let why = "this machine has no device for it that is hardware";
        return finding(tool.name, kind, State::Unusable, dir, why);
    }
    let found = finding(tool.name, kind, State::Unusable, dir, lacks.join(", "));
    match remedy.is_empty() {
        true => found,
        false => found.remedy(remedy),
    }
}

/// What several probes need to know.
struct Machine<'a> {
    roots: &'a Roots,
    /// Of the kernel that this process runs on.
    own: &'a Roots,
    permissions: &'a dyn Permissions,
    hierarchies: Result<Hierarchies, String>,
    /// The processor says that it runs under a hypervisor.
    virtual_machine: bool,
    /// Effective capabilities, a bit each (capabilities(7)).
    capabilities: u64,
}

impl<'a> Machine<'a> {
    fn examine(roots: &'a Roots, own: &'a Roots, permissions: &'a dyn Permissions) -> Self {
        let cpuinfo = file::read(&roots.proc_("cpuinfo")).unwrap_or_default();
        let flags = cpuinfo
            .lines()
            .find(|line| line.starts_with("flags"))
            .unwrap_or_default();
        let status = file::read(&own.proc_("self/status")).unwrap_or_default();
        let capabilities = status
            .lines()
            .find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok())
            .unwrap_or(0);
        Self {
            roots,
            own,
            permissions,
            hierarchies: Hierarchies::read(roots).map_err(|error| error.to_string()),
            virtual_machine: flags.split_whitespace().any(|flag| flag == "hypervisor"),
            capabilities,
        }
    }

    fn has_capability(&self, number: u32) -> bool {
        self.capabilities & (1 << number) != 0
    }
}

/// In words, why a file cannot be used.
fn in_words(errno: Errno) -> &'static str {
    match errno {
        Errno::ACCESS | Errno::PERM => "this user may not",
        Errno::ROFS => "the file system is mounted read-only",
        Errno::NOENT | Errno::NOTDIR => "it does not exist",
        Errno::IO => "the hardware did not answer",
        _ => "the kernel refuses",
    }
}

/// What to do about it.
fn remedy_for(errno: Errno) -> &'static str {
    match errno {
        Errno::ACCESS | Errno::PERM => {
            "run as root, or give this user access to the file (a udev rule keeps it)"
        }
        Errno::ROFS => "in a container, mount it read-write (privileged, or a bind mount of the host's /sys)",
        Errno::NOENT | Errno::NOTDIR => "load the driver that provides it",
        _ => "see the kernel's log (dmesg)",
    }
}

/// The findings are put together by these.
fn finding(
    what: &str,
    kind: Kind,
    state: State,
    evidence: impl Into<PathBuf>,
    why: impl Into<String>,
) -> Finding {
    Finding {
        what: what.into(),
        kind,
        state,
        why: why.into(),
        remedy: None,
        evidence: evidence.into(),
    }
}

impl Finding {
    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

#[cfg(test)]
mod tests;
