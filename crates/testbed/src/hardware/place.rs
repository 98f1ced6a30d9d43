//! A real control group and its CPU limit, on version 1 or version 2 (Documentation/scheduler/sched-bwc.rst).

use super::error::HardwareError;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Quota periods, shortest first, microseconds: the shortest at which the quota is at least what the kernel takes, so that
/// a service waits as briefly as possible for its next share.
const PERIODS_US: [u64; 7] = [10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000];
/// The smallest quota that the kernel takes, microseconds.
const MIN_QUOTA_US: u64 = 1_000;
/// A CPU limit of a real group; `quota_us` is nothing where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CpuLimit {
    pub(super) quota_us: Option<u64>,
    pub(super) period_us: u64,
}

impl CpuLimit {
    pub(super) const UNLIMITED: Self = Self {
        quota_us: None,
        period_us: 100_000,
    };

    /// The limit for so many real cores, rounded down, at least a thousandth of a core.
    pub(super) fn of(cores: f64) -> Self {
        let quota = |period: u64| (cores.max(0.0) * period as f64) as u64;
        let last = PERIODS_US[PERIODS_US.len() - 1];
        let period_us = PERIODS_US
            .into_iter()
            .find(|period| quota(*period) >= MIN_QUOTA_US)
            .unwrap_or(last);
        Self {
            quota_us: Some(quota(period_us).max(MIN_QUOTA_US)),
            period_us,
        }
    }

    pub(super) fn cores(self) -> f64 {
        self.quota_us
            .map_or(f64::INFINITY, |quota| quota as f64 / self.period_us as f64)
    }
}

/// A real group: its directories in the hierarchies that matter here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    /// Whether it is a group of version 1.
    pub(super) v1: bool,
    /// Where its quota is.
    pub(super) cpu: PathBuf,
    /// Version 1: where its CPU time is counted, if not in the same directory.
    pub(super) cpuacct: Option<PathBuf>,
}

impl Place {
    pub(super) fn below(&self, name: &str) -> Self {
        Self {
            v1: self.v1,
            cpu: self.cpu.join(name),
            cpuacct: self.cpuacct.as_ref().map(|dir| dir.join(name)),
        }
    }

    pub(super) fn dirs(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.cpu).chain(&self.cpuacct)
    }

    /// Sets a limit. Version 1 checks quota and period each alone, so a changed period goes through no limit.
    pub(super) fn set_limit(&self, limit: CpuLimit) -> io::Result<()> {
        if !self.v1 {
            let quota = limit.quota_us.map_or("max".into(), |quota| quota.to_string());
            return fs::write(self.cpu.join("cpu.max"), format!("{quota} {}", limit.period_us));
        }
        let quota = self.cpu.join("cpu.cfs_quota_us");
        let period = self.cpu.join("cpu.cfs_period_us");
        if read(&period)? != limit.period_us.to_string() {
            fs::write(&quota, "-1")?;
            fs::write(&period, limit.period_us.to_string())?;
        }
        fs::write(
            &quota,
            limit.quota_us.map_or("-1".into(), |quota| quota.to_string()),
        )
    }

    /// Has it come before what else runs beside it, ten times as much: an emulated core is as fast as it says only while it gets
    /// its share of the real ones.
    pub(super) fn prefer(&self) -> io::Result<()> {
        match self.v1 {
            true => fs::write(self.cpu.join("cpu.shares"), "10240"),
            false => fs::write(self.cpu.join("cpu.weight"), "1000"),
        }
    }

    pub(super) fn counters(&self) -> io::Result<Counters> {
        let stat = read(&self.cpu.join("cpu.stat"))?;
        let field = |name: &str| -> Option<u64> {
            stat.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
        };
        let (used_s, throttled_s) = if self.v1 {
            let usage: u64 = read(&self.cpuacct.as_ref().unwrap_or(&self.cpu).join("cpuacct.usage"))?
                .parse()
                .map_err(io::Error::other)?;
            (
                usage as f64 / 1e9,
                field("throttled_time").unwrap_or(0) as f64 / 1e9,
            )
        } else {
            let usage = field("usage_usec").ok_or_else(|| io::Error::other("no usage_usec"))?;
            (
                usage as f64 / 1e6,
                field("throttled_usec").unwrap_or(0) as f64 / 1e6,
            )
        };
        Ok(Counters {
            used_s,
            periods: field("nr_periods").unwrap_or(0),
            throttled_periods: field("nr_throttled").unwrap_or(0),
            throttled_s,
        })
    }

    pub(super) fn processes(&self) -> io::Result<Vec<u32>> {
        Ok(read(&self.cpu.join("cgroup.procs"))?
            .lines()
            .filter_map(|line| line.parse().ok())
            .collect())
    }

    pub(super) fn enter(&self, pid: u32) -> io::Result<()> {
        self.dirs()
            .try_for_each(|dir| fs::write(dir.join("cgroup.procs"), pid.to_string()))
    }

    pub(super) fn make(&self) -> io::Result<()> {
        for dir in self.dirs() {
            fs::create_dir(dir)?;
        }
        Ok(())
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        for dir in self.dirs() {
            match fs::remove_dir(dir) {
                Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
                _ => {}
            }
        }
        Ok(())
    }

    /// The groups below this one, a group before its own children, by their names from here.
    pub(super) fn groups_below(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut open = vec![String::new()];
        while let Some(name) = open.pop() {
            let Ok(entries) = fs::read_dir(self.cpu.join(&name)) else {
                continue;
            };
            for entry in entries
                .flatten()
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            {
                let Ok(last) = entry.file_name().into_string() else {
                    continue;
                };
                let below = if name.is_empty() {
                    last
                } else {
                    format!("{name}/{last}")
                };
                names.push(below.clone());
                open.push(below);
            }
        }
        names.sort();
        names
    }
}

/// What a group used and how it was throttled since it was made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) used_s: f64,
    pub(super) periods: u64,
    pub(super) throttled_periods: u64,
    pub(super) throttled_s: f64,
}

/// The text of a kernel's file without the blank space at its end.
pub(super) fn read(path: &Path) -> io::Result<String> {
    let mut text = fs::read_to_string(path)?;
    text.truncate(text.trim_end().len());
    Ok(text)
}

/// The kernel's error number.
pub(super) fn errno(cause: &io::Error) -> Errno {
    Errno::from_io_error(cause).unwrap_or(Errno::IO)
}

/// The root of the hierarchy that has the cpu controller, and for each hierarchy the group that is mounted there.
pub(super) fn hierarchy() -> Result<(Place, String), HardwareError> {
    let mountinfo = PathBuf::from("/proc/self/mountinfo");
    let text = read(&mountinfo).map_err(|cause| HardwareError::Io {
        action: "read",
        path: mountinfo.clone(),
        cause,
        remedy: "mount /proc",
    })?;
    let mut v2 = None;
    let (mut cpu, mut cpuacct) = (None, None);
    for line in text.lines() {
        let Some((before, after)) = line.split_once(" - ") else {
            continue;
        };
        let mut fields = before.split(' ').skip(3);
        let (Some(root), Some(point)) = (fields.next(), fields.next()) else {
            continue;
        };
        let options = after.split(' ').nth(2).unwrap_or_default();
        let place = (PathBuf::from(point), root.to_string());
        if after.starts_with("cgroup2 ") {
            v2.get_or_insert(place);
        } else if after.starts_with("cgroup ") {
            for (controller, slot) in [("cpu", &mut cpu), ("cpuacct", &mut cpuacct)] {
                if options.split(',').any(|option| option == controller) {
                    slot.get_or_insert(place.clone());
                }
            }
        }
    }
    if let (Some((cpu, root)), Some((acct, _))) = (cpu, cpuacct) {
        let cpuacct = (acct != cpu).then_some(acct);
        return Ok((
            Place {
                v1: true,
                cpu,
                cpuacct,
            },
            root,
        ));
    }
    let with_cpu = |(point, _): &(PathBuf, String)| {
        read(&point.join("cgroup.controllers")).is_ok_and(|list| list.split(' ').any(|c| c == "cpu"))
    };
    match v2.filter(with_cpu) {
        Some((point, root)) => Ok((
            Place {
                v1: false,
                cpu: point,
                cpuacct: None,
            },
            root,
        )),
        None => Err(HardwareError::NoCpuController { looked_at: mountinfo }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_period_with_a_quota_that_the_kernel_takes() {
        for (cores, quota, period) in [
            (1.2, 12_000, 10_000),
            (0.1, 1_000, 10_000),
            (0.099, 1_980, 20_000),
            (0.03, 1_500, 50_000),
            (0.0015, 1_500, 1_000_000),
            (0.0001, 1_000, 1_000_000),
            (0.0, 1_000, 1_000_000),
        ] {
            assert_eq!(
                CpuLimit::of(cores),
                CpuLimit {
                    quota_us: Some(quota),
                    period_us: period
                },
                "{cores}"
            );
        }
        assert_eq!(CpuLimit::UNLIMITED.cores(), f64::INFINITY);
    }

    proptest::proptest! {
        /// Version 1 refuses a group more than the group above has, so rounding must keep the order.
        #[test]
        fn rounding_keeps_the_order(less in 0.0..4.0f64, more in 0.0..4.0f64) {
            let (less, more) = (less.min(more), less.max(more));
            proptest::prop_assert!(CpuLimit::of(less).cores() <= CpuLimit::of(more).cores());
            proptest::prop_assert!(CpuLimit::of(more).cores() <= more.max(0.001));
        }
    }
}
