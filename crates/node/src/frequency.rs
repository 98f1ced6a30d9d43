//! The current frequency relative to the highest, from cpufreq (Documentation/admin-guide/pm/cpufreq.rst); [`limit`] sets
//! it.

pub mod limit;
mod shared;

pub use limit::{
    FrequencyActuator, FrequencyBounds, FrequencyError, FrequencyInForce, FrequencyMode, FrequencyUse,
};
pub(crate) use shared::SharedFrequency;

use crate::{Roots, file};
use headroom_units::{Hertz, Ratio};
use std::fs;
use std::path::PathBuf;

/// The most policies that are read: one a CPU on the largest machines.
const MAX_POLICIES: usize = 8192;

/// The frequency policies of a machine.
#[derive(Clone, Debug)]
pub struct FrequencyReader {
    policies: Vec<Policy>,
}

#[derive(Clone, Debug)]
struct Policy {
    current: PathBuf,
    highest: Hertz,
    cpus: usize,
}

impl FrequencyReader {
    /// The policies that say both their current and their highest frequency; nothing where there are none, as in most
    /// virtual machines.
    pub fn open(roots: &Roots) -> Option<Self> {
        let dir = roots.sys("devices/system/cpu/cpufreq");
        let policies: Vec<Policy> = fs::read_dir(dir)
            .ok()?
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("policy"))
            .take(MAX_POLICIES)
            .filter_map(|entry| {
                let dir = entry.path();
                let highest = file::read_u64(&dir.join("cpuinfo_max_freq"))
                    .ok()
                    .filter(|khz| *khz > 0)?;
                let current = dir.join("scaling_cur_freq");
                file::read_u64(&current).ok()?;
                let cpus = file::read(&dir.join("affected_cpus")).unwrap_or_default();
                let cpus = cpus.split_whitespace().count().max(1);
                Some(Policy {
                    current,
                    highest: khz(highest),
                    cpus,
                })
            })
            .collect();
        (!policies.is_empty()).then_some(Self { policies })
    }

    /// The mean over CPUs of the current frequency; nothing where no policy can be read now.
    pub fn mean(&self) -> Option<Hertz> {
        let mut sum = Hertz::ZERO;
        let mut cpus = 0;
        for policy in &self.policies {
            if let Ok(now) = file::read_u64(&policy.current) {
                sum += khz(now) * policy.cpus as f64;
                cpus += policy.cpus;
            }
        }
        (cpus > 0).then(|| sum / cpus as f64)
    }

    /// The mean over CPUs of current over highest frequency, at most 1; nothing where no policy can be read now (its
    /// CPUs may be offline).
    pub fn ratio(&self) -> Option<Ratio> {
        let mut sum = 0.0;
        let mut cpus = 0;
        for policy in &self.policies {
            let Ok(now) = file::read_u64(&policy.current) else {
                continue;
            };
            sum += (khz(now) / policy.highest).min(1.0) * policy.cpus as f64;
            cpus += policy.cpus;
        }
        (cpus > 0).then(|| Ratio::new(sum / cpus as f64))
    }
}

/// cpufreq counts in kilohertz.
fn khz(value: u64) -> Hertz {
    Hertz::new(value as f64 * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_weighted_by_cpus_and_a_dead_policy_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::at(dir.path(), dir.path());
        assert!(FrequencyReader::open(&roots).is_none());
        for (policy, current, cpus) in [("policy0", "1000000", "0 1 2"), ("policy3", "2000000", "3")] {
            let path = dir.path().join("devices/system/cpu/cpufreq").join(policy);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("cpuinfo_max_freq"), "2000000\n").unwrap();
            fs::write(path.join("scaling_cur_freq"), current).unwrap();
            fs::write(path.join("affected_cpus"), cpus).unwrap();
        }
        let reader = FrequencyReader::open(&roots).unwrap();
        assert_eq!(reader.ratio(), Some(Ratio::new((0.5 * 3.0 + 1.0) / 4.0)));
        assert_eq!(reader.mean(), Some(Hertz::new(1.25e9)));
        fs::remove_file(
            dir.path()
                .join("devices/system/cpu/cpufreq/policy3/scaling_cur_freq"),
        )
        .unwrap();
        assert_eq!(reader.ratio(), Some(Ratio::new(0.5)));
    }
}
