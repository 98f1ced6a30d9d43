//! The frequency as a lever: an upper limit on every policy (`scaling_max_freq`), or a fixed frequency
//! (`scaling_setspeed` under governor `userspace`), whatever the driver: intel_pstate (active and passive),
//! acpi-cpufreq, amd-pstate.
//!
//! A limit leaves the choice below it to the governor, so it is the default. Where the governor that was found is `userspace` there is no
//! such choice, and a limit could only lower the speed that was set: then the speed itself is set, and put back. The lower limit gives way where it is above
//! what is asked for, and is written first. acpi-cpufreq knows discrete frequencies: the highest that is not above what
//! is asked for is taken; its entry one MHz above the base frequency stands for all of turbo. `bios_limit`, thermal and
//! global limits (`max_perf_pct`, `no_turbo`) hold besides, and are left alone. A policy whose CPUs are offline answers
//! EBUSY: it is passed over, said, and taken up when it is back.

use super::khz;
use crate::Roots;
use crate::file::{self, FileError};
use crate::panel::{Change, Definition, ForeignWrite, NotInForce, Panel, PanelError, first_number, in_order};
use crate::restore::{FileValue, Outcome, Registry, RestoreError};
use headroom_units::Hertz;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// The most policies: one a CPU on the largest machines.
const MAX_POLICIES: usize = 8192;
/// Where a driver takes any number: processors run at multiples of a bus clock of 100 MHz.
const USUAL_STEP_KHZ: u64 = 100_000;
/// acpi-cpufreq's top entry is so much above the base frequency where there is turbo, kHz.
const TURBO_MARK_KHZ: u64 = 1_000;
/// The governor of fixed speeds.
const USERSPACE: &str = "userspace";

/// How the frequency is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FrequencyMode {
    /// An upper limit; the governor chooses below it.
    #[default]
    Max,
    /// Exactly this one: governor `userspace`, which drivers in active mode do not have.
    Setspeed,
}

impl FrequencyMode {
    /// How the frequency of this machine is set: by its speed where every policy that is active has the governor `userspace`, else by an
    /// upper limit.
    pub fn of_machine(roots: &Roots) -> Self {
        let mut governors = policies(roots)
            .into_iter()
            .filter_map(|dir| file::read(&dir.join("scaling_governor")).ok())
            .peekable();
        match governors.peek().is_some() && governors.all(|governor| governor == USERSPACE) {
            true => Self::Setspeed,
            false => Self::Max,
        }
    }
}

/// Whether the frequency is a lever at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FrequencyUse {
    /// Where the machine has it.
    #[default]
    Auto,
    /// It is left alone.
    Off,
}

/// A frequency that cannot be set.
#[derive(Debug, thiserror::Error)]
pub enum FrequencyError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// It could not be undone, so it was not done.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// There is no policy to set.
    #[error("no frequency policy below {dir} ({why}): use the power cap instead", dir = dir.display())]
    NoPolicies {
        /// Where they were looked for.
        dir: PathBuf,
        /// What was seen.
        why: String,
    },
    /// The driver has no governor that keeps to a given frequency.
    #[error(
        "{path} has the governors \"{governors}\" and no userspace, as drivers in active mode: set an upper limit \
         instead, or switch the driver to passive mode", path = path.display()
    )]
    NoUserspace {
        /// The policy's file.
        path: PathBuf,
        /// Those it has.
        governors: String,
    },
    /// The kernel accepted a value but shows another.
    #[error(transparent)]
    NotInForce(#[from] NotInForce),
    /// A frequency that is none.
    #[error("a frequency of {asked} cannot be set: give a number of hertz above zero")]
    NotAFrequency {
        /// What was asked for.
        asked: Hertz,
    },
}

impl From<PanelError> for FrequencyError {
    fn from(error: PanelError) -> Self {
        match error {
            PanelError::File(error) => Self::File(error),
            PanelError::Restore(error) => Self::Restore(error),
            PanelError::NotInForce(error) => Self::NotInForce(error),
        }
    }
}

/// Between which frequencies the policies can be set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FrequencyBounds {
    /// The lowest of any policy.
    pub lowest: Hertz,
    /// The highest of any policy: what was found as limit, as that is somebody's decision.
    pub highest: Hertz,
    /// The smallest gap between two frequencies that can be distinguished: between two of a driver's own, turbo's mark not
    /// counted, and 100 MHz where a driver takes any number.
    pub step: Hertz,
    /// Where the highest stands for turbo (acpi-cpufreq), the highest without it.
    pub below_turbo: Option<Hertz>,
    /// The lowest efficient one, where the driver says it (amd-pstate): under it, energy per unit of work rises.
    pub efficient_floor: Option<Hertz>,
}

/// What is in force after a frequency was set.
#[derive(Clone, Debug, PartialEq)]
pub struct FrequencyInForce {
    /// Of the fastest policy, as read back.
    pub limit: Hertz,
    /// Policies that were set.
    pub policies: usize,
    /// Policies that were passed over, with the reason: their CPUs are offline, or they are gone.
    pub passed_over: Vec<String>,
    /// Where what was asked for was beyond a bound, the bounds.
    pub bounded: Option<FrequencyBounds>,
    /// What somebody else had written since our last write.
    pub foreign: Vec<ForeignWrite>,
}

/// Sets the frequency of all policies, and puts back what it found.
#[derive(Debug)]
pub struct FrequencyActuator {
    roots: Roots,
    registry: Registry,
    mode: FrequencyMode,
    /// Policies that came up at one time share a record; there are as many as times at which some came up.
    groups: Vec<(Panel, Vec<Policy>)>,
    /// What was asked for last.
    asked: Option<Hertz>,
}

#[derive(Clone, Debug, PartialEq)]
struct Policy {
    dir: PathBuf,
    lowest_khz: u64,
    /// The limit that was found.
    highest_khz: u64,
    /// What the hardware can do.
    hardware_khz: u64,
    /// Ascending; empty where any frequency between the bounds can be set.
    steps_khz: Vec<u64>,
    efficient_khz: Option<u64>,
}

impl Policy {
    fn read(dir: &Path) -> Result<Self, FileError> {
        let number = |name: &str| file::read_u64(&dir.join(name));
        let highest = number("cpuinfo_max_freq")?;
        let mut steps_khz: Vec<u64> = file::read_if_there(&dir.join("scaling_available_frequencies"))?
            .unwrap_or_default()
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        steps_khz.sort_unstable();
        Ok(Self {
            dir: dir.into(),
            lowest_khz: number("cpuinfo_min_freq")?,
            highest_khz: number("scaling_max_freq")?.min(highest),
            hardware_khz: highest,
            steps_khz,
            efficient_khz: number("amd_pstate_lowest_nonlinear_freq").ok(),
        })
    }

    /// What is set for a frequency: bounded, and never above it where the frequencies are discrete.
    fn plan(&self, asked_khz: u64) -> u64 {
        let bounded = asked_khz.clamp(self.lowest_khz.min(self.highest_khz), self.highest_khz);
        self.steps_khz
            .iter()
            .rev()
            .find(|step| **step <= bounded)
            .copied()
            .unwrap_or(bounded)
    }

    /// The smallest gap between two frequencies.
    fn step(&self) -> Option<u64> {
        match self.steps_khz[..] {
            [] => Some(USUAL_STEP_KHZ),
            _ => {
                let gaps = self.steps_khz.windows(2).map(|pair| pair[1] - pair[0]);
                gaps.filter(|gap| *gap > TURBO_MARK_KHZ).min()
            }
        }
    }

    /// The highest frequency without turbo, where the top entry is the mark of turbo.
    fn below_turbo(&self) -> Option<u64> {
        match self.steps_khz[..] {
            [.., base, top] if top == base + TURBO_MARK_KHZ => Some(base),
            _ => None,
        }
    }
}

/// The policies of a machine, by their numbers.
pub(crate) fn policies(roots: &Roots) -> Vec<PathBuf> {
    let mut all: Vec<(u32, PathBuf)> = fs::read_dir(roots.sys("devices/system/cpu/cpufreq"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_prefix("policy")?.parse().ok()?;
            Some((number, entry.path()))
        })
        .take(MAX_POLICIES)
        .collect();
    all.sort();
    all.into_iter().map(|(_, dir)| dir).collect()
}

/// A policy whose CPUs are all offline answers EBUSY to everything.
pub(crate) fn is_inactive(error: &FileError) -> bool {
    error.cause.raw_os_error() == Some(Errno::BUSY.raw_os_error())
}

impl FrequencyActuator {
    /// Reads what is in force and checks that it may be changed. Writes nothing.
    ///
    /// # Errors
    /// [`FrequencyError`]: there is no active policy, the driver has no governor `userspace` where that is asked for, or
    /// the files may not be written.
    pub fn open(roots: &Roots, mode: FrequencyMode, registry: &Registry) -> Result<Self, FrequencyError> {
        let mut this = Self {
            roots: roots.clone(),
            registry: registry.clone(),
            mode,
            groups: Vec::new(),
            asked: None,
        };
        let passed_over = this.take_up()?;
        if this.groups.is_empty() {
            let dir = roots.sys("devices/system/cpu/cpufreq");
            let why = match (passed_over.is_empty(), dir.is_dir()) {
                (false, _) => passed_over.join("; "),
                (true, true) => {
                    "it is empty, as in a virtual machine: the frequency belongs to the host".into()
                }
                (true, false) => "the directory does not exist: no frequency driver is loaded".into(),
            };
            return Err(FrequencyError::NoPolicies { dir, why });
        }
        Ok(this)
    }

    /// Takes up the policies that are not yet known; why some cannot be now.
    fn take_up(&mut self) -> Result<Vec<String>, FrequencyError> {
        let mut passed_over = Vec::new();
        let mut fresh = Vec::new();
        for dir in policies(&self.roots) {
            let known = self
                .groups
                .iter()
                .any(|(_, all)| all.iter().any(|policy| policy.dir == dir));
            if known {
                continue;
            }
            match Policy::read(&dir) {
                Ok(policy) => fresh.push(policy),
                Err(error) if is_inactive(&error) => passed_over.push(inactive(&dir)),
                Err(error) if error.is_gone() => passed_over.push(format!("{}: {error}", dir.display())),
                Err(error) => return Err(error.into()),
            }
        }
        if fresh.is_empty() {
            return Ok(passed_over);
        }
        let mut definitions = Vec::with_capacity(fresh.len());
        for policy in &fresh {
            definitions.push(self.definition(policy)?);
        }
        let what = format!("the frequency of {} policies", fresh.len());
        let panel = Panel::open(&self.registry, what, definitions)?;
        self.groups.push((panel, fresh));
        Ok(passed_over)
    }

    fn definition(&self, policy: &Policy) -> Result<Definition, FrequencyError> {
        let file = |name: &str| policy.dir.join(name);
        let (paths, sequence): (Vec<PathBuf>, crate::panel::Sequence) = match self.mode {
            FrequencyMode::Max =>
            // The upper limit before the lower one, so that going back up never crosses.
            {
                (vec![file("scaling_max_freq"), file("scaling_min_freq")], in_order)
            }
            FrequencyMode::Setspeed => {
                let path = file("scaling_available_governors");
                let governors = file::read(&path)?;
                if !governors.split_whitespace().any(|governor| governor == USERSPACE) {
                    return Err(FrequencyError::NoUserspace { path, governors });
                }
                let governor = file("scaling_governor");
                // What setspeed reads is the frequency of the moment. Under another governor that is no value to watch or to put back;
                // under this one it is what somebody set.
                let paths = match file::read(&governor)? == USERSPACE {
                    true => vec![governor, file("scaling_setspeed")],
                    false => vec![governor],
                };
                (paths, in_order)
            }
        };
        Ok(Definition {
            what: format!("the frequency of {}", policy.dir.display()),
            paths,
            sequence,
            // A limit reads as it was written; a speed is what the hardware made of it.
            tolerance: match self.mode {
                FrequencyMode::Max => 0,
                FrequencyMode::Setspeed => USUAL_STEP_KHZ / 2,
            },
            joint: false,
            room: first_number,
        })
    }

    /// Between which frequencies the policies can be set.
    pub fn bounds(&self) -> FrequencyBounds {
        let all = || self.groups.iter().flat_map(|(_, policies)| policies);
        FrequencyBounds {
            lowest: khz(all().map(|policy| policy.lowest_khz).min().unwrap_or(0)),
            highest: khz(all().map(|policy| policy.highest_khz).max().unwrap_or(0)),
            step: khz(all().filter_map(Policy::step).min().unwrap_or(USUAL_STEP_KHZ)),
            below_turbo: all().filter_map(Policy::below_turbo).max().map(khz),
            efficient_floor: all().filter_map(|policy| policy.efficient_khz).max().map(khz),
        }
    }

    /// Sets all policies to a frequency from now on; nothing lifts it to what was found. Bounded first, read back after.
    ///
    /// # Errors
    /// [`FrequencyError`]: not a frequency; a policy refuses. Those that did not refuse are set.
    pub fn set(&mut self, asked: Option<Hertz>) -> Result<FrequencyInForce, FrequencyError> {
        if let Some(asked) = asked.filter(|asked| !(asked.is_finite() && asked.get() > 0.0)) {
            return Err(FrequencyError::NotAFrequency { asked });
        }
        let mut passed_over = self.take_up()?;
        let mut foreign = Vec::new();
        let (mut limit_khz, mut policies) = (0, 0);
        let mut failed = None;
        for (panel, all) in &mut self.groups {
            let mut changes = Vec::new();
            for (at, policy) in all.iter_mut().enumerate() {
                match panel.foreign_writes(at) {
                    Ok(other) => foreign.extend(other),
                    Err(PanelError::File(error)) if is_inactive(&error) => {
                        passed_over.push(inactive(&policy.dir));
                        continue;
                    }
                    Err(PanelError::File(error)) if error.is_gone() => {
                        passed_over.push(format!("{}: {error}", policy.dir.display()));
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                }
                policies += 1;
                let is_limit = self.mode == FrequencyMode::Max;
                if let Some(found) = number(&panel.found(at)[0]).filter(|_| is_limit) {
                    // What was found is somebody's decision, and after a pause it may be another.
                    policy.highest_khz = found.min(policy.hardware_khz);
                }
                if panel.is_held(at) {
                    let theirs = number(&panel.last(at)[0]).filter(|_| is_limit);
                    limit_khz = limit_khz.max(theirs.unwrap_or(policy.hardware_khz));
                    continue;
                }
                let target = asked.map(|asked| policy.plan((asked.get() / 1e3).round() as u64));
                let found_speed = panel.found(at).get(1).and_then(|speed| number(speed));
                let as_found = found_speed.filter(|_| !is_limit).unwrap_or(policy.highest_khz);
                limit_khz = limit_khz.max(target.unwrap_or(as_found));
                changes.extend(match self.mode {
                    FrequencyMode::Max => change_limits(panel, at, target),
                    FrequencyMode::Setspeed => change_speed(panel, at, policy, target),
                });
            }
            for answer in panel.write(&changes)? {
                failed = failed.or(answer.err());
            }
        }
        self.asked = asked;
        if let Some(error) = failed {
            return Err(error.into());
        }
        let bounds = self.bounds();
        let beyond = asked.filter(|asked| *asked < bounds.lowest || *asked > bounds.highest);
        Ok(FrequencyInForce {
            limit: khz(limit_khz),
            policies,
            passed_over,
            bounded: beyond.map(|_| bounds),
            foreign,
        })
    }

    /// The highest frequency of the hardware, whatever limit was found: what relative frequencies relate to.
    pub fn hardware_highest(&self) -> Hertz {
        let all = self.groups.iter().flat_map(|(_, policies)| policies);
        khz(all.map(|policy| policy.hardware_khz).max().unwrap_or(0))
    }

    /// What was asked for last.
    pub fn asked(&self) -> Option<Hertz> {
        self.asked
    }

    /// Puts back what was found, now; later writes fail.
    pub fn restore(&mut self) -> Vec<Outcome> {
        self.groups
            .iter_mut()
            .rev()
            .filter_map(|(panel, _)| panel.restore())
            .collect()
    }
}

fn inactive(dir: &Path) -> String {
    format!(
        "{}: its CPUs are offline (EBUSY); it is set when they are back",
        dir.display()
    )
}

fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}

/// Upper and lower limit; nothing where they are so already.
fn change_limits(panel: &Panel, at: usize, target_khz: Option<u64>) -> Option<Change> {
    let found = panel.found(at);
    let values = match target_khz {
        None => found.to_vec(),
        Some(target) => {
            let lower: u64 = found[1].parse().unwrap_or(0);
            vec![target.to_string(), lower.min(target).to_string()]
        }
    };
    if values == panel.last(at) {
        return None;
    }
    let mut change = panel.change(at, values);
    // The upper limit may not come under the lower one on the way: the lower one goes down first, and up last.
    if number(&change.values[0]) < number(&panel.last(at)[1]) {
        change.writes.reverse();
    }
    Some(change)
}

/// The governor, then the speed.
fn change_speed(panel: &Panel, at: usize, policy: &Policy, target_khz: Option<u64>) -> Option<Change> {
    match target_khz {
        None if panel.found(at) == panel.last(at) => None,
        None => Some(panel.change(at, panel.found(at).to_vec())),
        Some(target) if panel.paths(at).len() > 1 => {
            Some(panel.change(at, vec![USERSPACE.into(), target.to_string()]))
        }
        Some(target) => {
            let mut change = panel.change(at, vec![USERSPACE.into()]);
            change.writes.push(FileValue {
                path: policy.dir.join("scaling_setspeed"),
                value: target.to_string(),
            });
            Some(change)
        }
    }
}

#[cfg(test)]
mod tests;
