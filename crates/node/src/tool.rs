//! Programs that set and show what no file does.
//!
//! What may be run is a closed list ([`TOOLS`]): a record of what is to be put back names an entry of it and a device, never a
//! program, because whoever carries it out may be a guard outside of its owner's container.

use crate::Roots;
use crate::process::{installed, output};
use crate::program::nic;
use crate::restore::{Outcome, Stop, same};
use headroom_units::{Lever, Source};
use headroom_wire::message::NoLever;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the list has.
pub(crate) static TOOLS: &[&Tool] = &[
    &nic::COALESCING,
    #[cfg(test)]
    &crate::program::tests::CARD,
];

/// What a program shows of a value that the device does not have.
pub(crate) const NOT_THERE: &str = "n/a";
/// A lever that a program sets, on a device.
#[derive(Debug)]
pub(crate) struct Tool {
    /// What it sets, as `headroom doctor` has it, and in records.
    pub(crate) name: &'static str,
    /// The lever.
    pub(crate) lever: Lever,
    /// The program.
    pub(crate) program: &'static str,
    /// The Debian package that has it.
    pub(crate) package: &'static str,
    /// The directory of the devices below `/sys`.
    pub(crate) devices: &'static str,
    /// The same of emulated hardware, where each device has a program of its own beside its file.
    pub(crate) emulated: &'static str,
    /// A file of each device: its lock makes the lever one owner's.
    pub(crate) file: &'static str,
    /// What shows the values of a device, and what sets them.
    pub(crate) show: &'static str,
    /// Followed by the device, and words and values by turns.
    pub(crate) set: &'static str,
    /// The values; the last is the lever's.
    pub(crate) values: &'static [Value],
}

/// One of the values of a tool.
#[derive(Debug)]
pub(crate) struct Value {
    /// What stands before it at the beginning of a line that is shown.
    pub(crate) label: &'static str,
    /// What stands before it where it is set.
    pub(crate) word: &'static str,
    /// What it is while the lever has a value; nothing for the lever's own.
    pub(crate) meanwhile: Option<&'static str>,
    /// By how much drivers round it.
    pub(crate) tolerance: u64,
}

impl Tool {
    /// The tool of this name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        TOOLS.iter().copied().find(|tool| tool.name == name)
    }

    pub(crate) fn dir(&self, roots: &Roots) -> PathBuf {
        match roots.source() {
            Source::Emulated => roots.sys(self.emulated),
            _ => roots.sys(self.devices),
        }
    }

    /// The files of all devices that are hardware.
    pub(crate) fn devices(&self, roots: &Roots) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.dir(roots)).into_iter().flatten().flatten();
        let hardware = |dir: &PathBuf| dir.join("device").exists() || dir.join(self.program).exists();
        let mut files: Vec<PathBuf> = entries
            .map(|entry| entry.path())
            .filter(hardware)
            .map(|dir| dir.join(self.file))
            .collect();
        files.sort_unstable();
        files
    }

    /// The program and the device that a file is of.
    fn of<'a>(&self, file: &'a Path) -> Result<(Command, &'a str), NoLever> {
        let none = |reason: String, remedy: &str| NoLever {
            reason,
            remedy: remedy.to_owned(),
        };
        let dir = file.parent().unwrap_or(file);
        let device = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // A name that begins with a dash would be an option.
        let plain = |c: char| c.is_ascii_alphanumeric() || ['.', '_', '-'].contains(&c);
        if device.starts_with('-') || !device.chars().all(plain) || !file.exists() {
            let reason = format!("there is no device {device:?} ({})", dir.display());
            return Err(none(reason, "name one that is there"));
        }
        // Emulated hardware is mounted such that nothing there can be executed.
        let own = Some(dir.join(self.program)).filter(|program| program.is_file());
        if let Some(script) = own {
            let mut command = Command::new("/bin/sh");
            command.arg(script);
            return Ok((command, device));
        }
        match installed(self.program) {
            Some(program) => Ok((Command::new(program), device)),
            None => {
                let remedy = format!("apt install {}", self.package);
                Err(none(format!("{} is not installed", self.program), &remedy))
            }
        }
    }

    fn run(&self, file: &Path, what: &str, arguments: &[&str]) -> Result<String, String> {
        let (mut program, device) = self.of(file).map_err(|none| none.reason)?;
        output(program.args([what, device]).args(arguments))
            .map_err(|why| format!("`{} {what} {device} {}` {why}", self.program, arguments.join(" ")))
    }

    /// What is in force, in the order of the values.
    pub(crate) fn read(&self, file: &Path) -> Result<Vec<String>, String> {
        let text = self.run(file, self.show, &[])?;
        let value = |value: &Value| {
            let mut lines = text.lines();
            let shown = lines.find_map(|line| {
                line.trim_start()
                    .strip_prefix(value.label)?
                    .split_whitespace()
                    .next()
            });
            shown
                .map(str::to_owned)
                .ok_or_else(|| format!("`{} {}` shows no \"{}\"", self.program, self.show, value.label))
        };
        self.values.iter().map(value).collect()
    }

    pub(crate) fn write(&self, file: &Path, values: &[String]) -> Result<(), String> {
        let mut arguments = Vec::new();
        for (value, wanted) in self
            .values
            .iter()
            .zip(values)
            .filter(|(_, wanted)| *wanted != NOT_THERE)
        {
            arguments.extend([value.word, wanted.as_str()]);
        }
        self.run(file, self.set, &arguments).map(drop)
    }

    /// The first value that is not the expected one.
    pub(crate) fn differing(&self, expected: &[String], now: &[String]) -> Option<usize> {
        (0..self.values.len()).find(|&at| !same(&expected[at], &now[at], self.values[at].tolerance))
    }

    /// The lever's value on a device, as shown.
    ///
    /// # Errors
    /// Why the device lacks it.
    pub(crate) fn shown(&self, file: &Path) -> Result<String, NoLever> {
        self.of(file)?;
        let none = |reason| NoLever {
            reason,
            remedy: String::new(),
        };
        match self.read(file).map_err(none)?.pop() {
            Some(value) if value != NOT_THERE => Ok(value),
            _ => Err(none(format!("the device's driver has no {}", self.name))),
        }
    }

    /// Puts back what was found where nobody else has set it since.
    pub(crate) fn put_back(
        &self,
        what: String,
        file: &Path,
        found: &[String],
        ours: &[Vec<String>],
    ) -> Result<Outcome, Stop> {
        if !file.exists() {
            return Err(Stop::Gone);
        }
        let now = self.read(file)?;
        if ours.iter().any(|one| one.len() != now.len()) || found.len() != now.len() {
            let why = "the record names other values than this version knows";
            return Err(why.to_owned().into());
        }
        if now == found {
            return Ok(Outcome::Unchanged { what });
        }
        // Killed in the middle of a change, the device may have one value of before and one of after.
        let of_ours = |at: usize| {
            let known = |one: &[String]| same(&one[at], &now[at], self.values[at].tolerance);
            known(found) || ours.iter().any(|one| known(one))
        };
        if let Some(at) = (0..now.len()).find(|&at| !of_ours(at)) {
            return Ok(Outcome::Foreign {
                what,
                path: file.to_path_buf(),
                seen: format!("{} {}", self.values[at].label, now[at]),
                ours: ours.iter().map(|one| one[at].clone()).collect(),
            });
        }
        self.write(file, found)?;
        let now = self.read(file)?;
        match self.differing(found, &now) {
            None => Ok(Outcome::Restored { what }),
            Some(_) => Err(format!("{} after {} was set", now.join(", "), found.join(", ")).into()),
        }
    }
}

/// Whether a file's name is that of a device of the list.
pub(crate) fn is_device_file(name: &str) -> bool {
    TOOLS.iter().any(|tool| tool.file == name)
}
