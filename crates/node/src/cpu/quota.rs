//! The CPU quota of a group: version 2 `cpu.max`, version 1 `cpu.cfs_quota_us` and `cpu.cfs_period_us`
//! (Documentation/scheduler/sched-bwc.rst, Documentation/admin-guide/cgroup-v2.rst).
//!
//! The kernel refuses (EINVAL) a quota under 1 ms, a period outside 1 ms to 1 s, a quota under the group's burst and,
//! on version 1, a share above that of a group above. So everything is rounded and bounded before it is written, and
//! what is reported is what was read back.

use super::{CpuError, effective};
use crate::cgroup::{Target, Version};
use crate::panel::{Change, ForeignWrite, Panel, Room, Sequence};
use crate::restore::{FileValue, Outcome, Registry};
use crate::{Roots, file};
use headroom_units::{Cores, Seconds};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The smallest quota that the kernel takes (`min_cfs_quota_period`), microseconds.
pub const MIN_QUOTA_US: u64 = 1_000;
/// The shortest period, microseconds.
pub const MIN_PERIOD_US: u64 = 1_000;
/// The longest period (`max_cfs_quota_period`), microseconds.
pub const MAX_PERIOD_US: u64 = 1_000_000;

/// How the quota is set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QuotaOptions {
    /// The period over which the quota is given out. The default, 10 ms, bounds how long a throttled request waits;
    /// the smallest share is then 0.1 cores.
    pub period: Seconds,
    /// Whether a limit that was found, somebody's decision, may be exceeded. It is not by default.
    pub exceed_found: bool,
}

impl Default for QuotaOptions {
    fn default() -> Self {
        Self {
            period: Seconds::from_millis(10.0),
            exceed_found: false,
        }
    }
}

/// What bounds a quota from above.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ceiling {
    /// The CPUs that the group may run on.
    Cpus,
    /// The limit that was found there.
    Found,
    /// The limit of a group above it.
    Ancestor(PathBuf),
}

/// Between which shares the quota can be set now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuotaBounds {
    /// 1 ms (or the group's burst) in each period.
    pub smallest: Cores,
    /// The most.
    pub largest: Cores,
    /// What makes it the most.
    pub ceiling: Ceiling,
}

/// What is in force after a write, as read back.
#[derive(Clone, Debug, PartialEq)]
pub struct InForce {
    /// The share; where nothing is limited, the CPUs that the group may run on.
    pub cores: Cores,
    /// Whether a limit is set at all.
    pub limited: bool,
    /// Where the request was beyond a bound, the bounds.
    pub bounded: Option<QuotaBounds>,
    /// Somebody else had changed the quota since our last write.
    pub foreign: Option<ForeignWrite>,
    /// It is left alone, because somebody else wrote it: `cores` is theirs.
    pub held: bool,
}

/// A quota as the kernel has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Quota {
    /// Nothing means no limit.
    quota_us: Option<u64>,
    period_us: u64,
}

impl Quota {
    fn cores(self) -> Option<Cores> {
        self.quota_us
            .map(|quota| Cores::new(quota as f64 / self.period_us.max(1) as f64))
    }
}

/// Sets the CPU quota of one group, and puts back what it found.
#[derive(Debug)]
pub struct QuotaActuator {
    roots: Roots,
    target: Target,
    panel: Panel,
    period_us: u64,
    exceed_found: bool,
    found: Quota,
}

impl QuotaActuator {
    /// Reads what is in force and checks that it may be changed. Writes nothing.
    ///
    /// # Errors
    /// [`CpuError`]: the files are missing, not understood or may not be written, or the period is not one.
    pub fn open(
        roots: &Roots,
        target: &Target,
        options: QuotaOptions,
        registry: &Registry,
    ) -> Result<Self, CpuError> {
        let period_us = period_us(options.period)?;
        let (paths, sequence, room): (Vec<PathBuf>, Sequence, Room) = match target.version {
            Version::V1 => {
                let file = |name| target.cpu_dir.join(name);
                (
                    vec![file("cpu.cfs_quota_us"), file("cpu.cfs_period_us")],
                    v1_sequence,
                    |values| room(Version::V1, values),
                )
            }
            Version::V2 => (vec![target.cpu_dir.join("cpu.max")], v2_sequence, |values| {
                room(Version::V2, values)
            }),
        };
        let what = format!("the CPU quota of {} ({})", target.name, target.cpu_dir.display());
        let panel = Panel::of_one(registry, what, paths, sequence, room)?;
        let found = parse(target, panel.found(0))?;
        Ok(Self {
            roots: roots.clone(),
            target: target.clone(),
            panel,
            period_us,
            exceed_found: options.exceed_found,
            found,
        })
    }

    /// The limit that was found, nothing where there was none.
    pub fn found(&self) -> Option<Cores> {
        self.found.cores()
    }

    /// The bounds now: CPUs, groups above and the burst may change while we run.
    ///
    /// # Errors
    /// [`CpuError`]: a file cannot be read, or a group above leaves no room for the smallest quota.
    pub fn bounds(&self) -> Result<QuotaBounds, CpuError> {
        self.plan_bounds().map(|(_, bounds)| bounds)
    }

    /// The smallest quota in microseconds, and the bounds.
    fn plan_bounds(&self) -> Result<(u64, QuotaBounds), CpuError> {
        let cpus = effective(&self.roots, &self.target)?.len();
        let mut largest = Cores::new(cpus as f64);
        let mut ceiling = Ceiling::Cpus;
        if let Some(found) = self
            .found
            .cores()
            .filter(|found| !self.exceed_found && *found < largest)
        {
            (largest, ceiling) = (found, Ceiling::Found);
        }
        let above = self.target.cpu_dir.ancestors().skip(1);
        for dir in
            above.take_while(|dir| dir.starts_with(&self.target.cpu_root) && *dir != self.target.cpu_root)
        {
            if let Some(limit) = limit_of(self.target.version, dir)?.filter(|limit| *limit < largest) {
                (largest, ceiling) = (limit, Ceiling::Ancestor(dir.to_path_buf()));
            }
        }
        let burst_file = self.target.cpu_dir.join(match self.target.version {
            Version::V1 => "cpu.cfs_burst_us",
            Version::V2 => "cpu.max.burst",
        });
        let burst_us = file::read_if_there(&burst_file)?
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        let smallest_us = MIN_QUOTA_US.max(burst_us);
        let smallest = Cores::new(smallest_us as f64 / self.period_us as f64);
        if smallest > largest {
            let dir = match ceiling {
                Ceiling::Ancestor(dir) => dir,
                // The found limit or the number of CPUs is under the smallest share: the smallest is taken, which
                // the kernel accepts here.
                Ceiling::Found | Ceiling::Cpus => {
                    return Ok((
                        smallest_us,
                        QuotaBounds {
                            smallest,
                            largest: smallest,
                            ceiling,
                        },
                    ));
                }
            };
            return Err(CpuError::NoRoom {
                dir,
                limit: largest,
                smallest,
            });
        }
        Ok((
            smallest_us,
            QuotaBounds {
                smallest,
                largest,
                ceiling,
            },
        ))
    }

    /// Gives the group so many cores: rounded to whole microseconds a period and bounded first, then written, then
    /// read back. All the CPUs it may run on, with nothing else in the way, is no limit at all.
    ///
    /// # Errors
    /// [`CpuError`]: not a positive number; the group is gone; the kernel shows another value than was written.
    pub fn set(&mut self, cores: Cores) -> Result<InForce, CpuError> {
        if cores.get().is_nan() || cores <= Cores::ZERO {
            return Err(CpuError::NotCores { asked: cores });
        }
        let foreign = self.panel.foreign_writes(0)?;
        // After a pause it is read anew.
        self.found = parse(&self.target, self.panel.found(0))?;
        let (smallest_us, bounds) = self.plan_bounds()?;
        let quota = plan(cores, self.period_us, smallest_us, &bounds);
        let values = render(self.target.version, quota);
        if values != self.panel.last(0) && !self.panel.is_held(0) {
            let writes = self.writes(&values);
            self.panel.write_all(&[Change {
                at: 0,
                writes,
                values,
            }])?;
        }
        let in_force = parse(&self.target, self.panel.last(0))?;
        let beyond = cores < bounds.smallest || cores > bounds.largest;
        Ok(InForce {
            cores: in_force.cores().unwrap_or(bounds.largest),
            limited: in_force.quota_us.is_some(),
            bounded: (beyond && !self.panel.is_held(0)).then_some(bounds),
            foreign,
            held: self.panel.is_held(0),
        })
    }

    fn writes(&self, values: &[String]) -> Vec<FileValue> {
        let paths = self.panel.paths(0);
        match self.target.version {
            // The same period: the quota alone, so that there is no moment without a limit.
            Version::V1 if values[1] == self.panel.last(0)[1] => {
                vec![FileValue {
                    path: paths[0].clone(),
                    value: values[0].clone(),
                }]
            }
            Version::V1 => v1_sequence(paths, values),
            Version::V2 => v2_sequence(paths, values),
        }
    }

    /// The share in force now, as the kernel has it; nothing where there is no limit.
    ///
    /// # Errors
    /// [`CpuError`] where it cannot be read.
    pub fn read(&self) -> Result<Option<Cores>, CpuError> {
        limit_of(self.target.version, &self.target.cpu_dir)
    }

    /// Puts back what was found, now; later writes fail.
    pub fn restore(&mut self) -> Option<Outcome> {
        self.panel.restore()
    }
}

fn period_us(period: Seconds) -> Result<u64, CpuError> {
    let us = (period.get() * 1e6).round();
    if us >= MIN_PERIOD_US as f64 && us <= MAX_PERIOD_US as f64 {
        Ok(us as u64)
    } else {
        Err(CpuError::Period { asked: period })
    }
}

/// The quota to write for a share: whole microseconds, within the bounds, never above the largest by rounding.
fn plan(cores: Cores, period_us: u64, smallest_us: u64, bounds: &QuotaBounds) -> Quota {
    if cores >= bounds.largest && bounds.ceiling == Ceiling::Cpus {
        return Quota {
            quota_us: None,
            period_us,
        };
    }
    let period = period_us as f64;
    // A nudge, because 0.3 cores found as 3000 in 10000 must not come back as 2999.
    let most = (bounds.largest.get() * period + 1e-6).floor();
    let quota = (cores.get() * period).round().min(most) as u64;
    Quota {
        quota_us: Some(quota.max(smallest_us)),
        period_us,
    }
}

fn render(version: Version, quota: Quota) -> Vec<String> {
    let Quota { quota_us, period_us } = quota;
    match (version, quota_us) {
        (Version::V1, None) => vec!["-1".into(), period_us.to_string()],
        (Version::V1, Some(quota)) => vec![quota.to_string(), period_us.to_string()],
        (Version::V2, None) => vec![format!("max {period_us}")],
        (Version::V2, Some(quota)) => vec![format!("{quota} {period_us}")],
    }
}

/// Version 1 checks each of the two writes alone against the groups above. Without a limit any period is accepted,
/// and for that moment the service gets too much rather than too little.
fn v1_sequence(paths: &[PathBuf], values: &[String]) -> Vec<FileValue> {
    let write = |at: usize, value: &str| FileValue {
        path: paths[at].clone(),
        value: value.into(),
    };
    let mut writes = vec![write(0, "-1"), write(1, &values[1])];
    if values[0] != "-1" {
        writes.push(write(0, &values[0]));
    }
    writes
}

fn v2_sequence(paths: &[PathBuf], values: &[String]) -> Vec<FileValue> {
    vec![FileValue {
        path: paths[0].clone(),
        value: values[0].clone(),
    }]
}

/// The cores that a quota leaves.
fn room(version: Version, values: &[String]) -> f64 {
    match parse_values(version, values) {
        Some(quota) => quota.cores().map_or(f64::INFINITY, Cores::get),
        None => f64::NAN,
    }
}

fn parse(target: &Target, values: &[String]) -> Result<Quota, CpuError> {
    parse_values(target.version, values).ok_or_else(|| format_error(target.version, &target.cpu_dir, values))
}

fn format_error(version: Version, dir: &Path, values: &[String]) -> CpuError {
    let (name, expected) = match version {
        Version::V1 => (
            "cpu.cfs_quota_us",
            "a quota (and a period in cpu.cfs_period_us) in microseconds",
        ),
        Version::V2 => ("cpu.max", "\"QUOTA PERIOD\" or \"max PERIOD\" in microseconds"),
    };
    CpuError::Format {
        path: dir.join(name),
        text: file::shorten(&values.join(" ")),
        expected,
    }
}

fn parse_values(version: Version, values: &[String]) -> Option<Quota> {
    let (quota, period) = match version {
        Version::V1 => (values.first()?.as_str(), values.get(1)?.as_str()),
        Version::V2 => values.first()?.split_once(' ')?,
    };
    let period_us = period.parse().ok().filter(|period| *period > 0)?;
    let quota_us = match quota {
        "max" => None,
        negative if negative.starts_with('-') => None,
        number => Some(number.parse().ok()?),
    };
    Some(Quota { quota_us, period_us })
}

/// The cores that a group's processes can use at most now: the least of the CPUs that they may run on and of the quotas
/// of the group and of those above it. Reads only.
///
/// # Errors
/// [`CpuError`] where a file cannot be read or understood.
pub fn allowance(roots: &Roots, target: &Target) -> Result<Cores, CpuError> {
    let mut least = Cores::new(effective(roots, target)?.len() as f64);
    let groups = target.cpu_dir.ancestors();
    for dir in groups.take_while(|dir| dir.starts_with(&target.cpu_root) && *dir != target.cpu_root) {
        if let Some(limit) = limit_of(target.version, dir)? {
            least = least.min(limit);
        }
    }
    Ok(least)
}

/// The limit of any group, nothing where it has none or no such file (the root of version 2).
fn limit_of(version: Version, dir: &Path) -> Result<Option<Cores>, CpuError> {
    let names: &[&str] = match version {
        Version::V1 => &["cpu.cfs_quota_us", "cpu.cfs_period_us"],
        Version::V2 => &["cpu.max"],
    };
    let mut values = Vec::with_capacity(names.len());
    for name in names {
        match file::read_if_there(&dir.join(name))? {
            Some(text) => values.push(text),
            None => return Ok(None),
        }
    }
    let quota = parse_values(version, &values).ok_or_else(|| format_error(version, dir, &values))?;
    Ok(quota.cores())
}
