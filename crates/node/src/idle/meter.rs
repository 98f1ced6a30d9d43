//! The best source of idle periods that this machine has.

use super::coarse::{ProcStat, StateCounters};
use super::kernel::KernelPeriods;
use super::sample::{PeriodSample, PeriodSource};
use crate::clock::KernelClock;
use crate::cpu::CpuList;
use crate::file::{FileError, read};
use crate::order::PassedOver;
use crate::{Roots, file};
use headroom_queue_bpf::idle::MAX_THRESHOLDS;
use headroom_units::Seconds;
use std::fmt;

/// Idle periods cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum PeriodError {
    /// The kernel refused, or this build lacks the program.
    #[error("cannot {doing}: {cause}; {remedy}")]
    Refused {
        /// What was tried.
        doing: String,
        /// Why not.
        cause: String,
        /// What to do.
        remedy: String,
    },
    /// A file of the kernel.
    #[error(transparent)]
    File(#[from] FileError),
    /// The list names no CPU of this machine.
    #[error(
        "this machine has none of the CPUs \"{asked}\": see which are online in /sys/devices/system/cpu/online"
    )]
    NoCpus {
        /// The list.
        asked: String,
    },
    /// More thresholds than are measured at once, or one that is no length of time.
    #[error("give at most {MAX_THRESHOLDS} thresholds, each above zero and below an hour")]
    Thresholds,
    /// The kernel showed nothing of these CPUs since the sample before.
    #[error(
        "{what} had nothing of these CPUs since the sample before: they are offline, or no time has passed"
    )]
    NothingRead {
        /// What was read.
        what: String,
    },
}

/// Measures the idle periods of some CPUs.
///
/// A sample covers the time since the sample before (or since the meter was opened). A period that is still running counts
/// up to now, so that a core that sleeps for long is in every sample meanwhile.
pub struct PeriodMeter {
    by: By,
    passed_over: Vec<PassedOver<PeriodSource>>,
}

enum By {
    Kernel(Box<KernelPeriods>),
    States(Box<StateCounters>),
    Stat(Box<ProcStat>),
}

impl fmt::Debug for PeriodMeter {
    /// Without the maps, which have no form of their own to show.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeriodMeter")
            .field("passed_over", &self.passed_over)
            .finish_non_exhaustive()
    }
}

impl PeriodMeter {
    /// By the best source that this machine has, with the reasons against better ones in [`Self::passed_over`].
    ///
    /// `cpus` are those that are measured, all that are online where it is nothing; `thresholds` are the lengths over which
    /// idle time is added up exactly, at most four.
    ///
    /// # Errors
    /// [`PeriodError`]: none of these CPUs exists, the thresholds cannot be, or not even `/proc/stat` can be read.
    pub fn open(roots: &Roots, cpus: Option<&CpuList>, thresholds: &[Seconds]) -> Result<Self, PeriodError> {
        let mut passed_over = Vec::new();
        for source in [
            PeriodSource::CpuIdle,
            PeriodSource::SchedSwitch,
            PeriodSource::StateCounters,
        ] {
            match Self::open_by(source, roots, cpus, thresholds) {
                Ok(meter) => {
                    return Ok(Self { passed_over, ..meter });
                }
                Err(error @ (PeriodError::NoCpus { .. } | PeriodError::Thresholds)) => return Err(error),
                Err(error) => passed_over.push(PassedOver {
                    what: source,
                    reason: error.to_string(),
                }),
            }
        }
        let meter = Self::open_by(PeriodSource::ProcStat, roots, cpus, thresholds)?;
        Ok(Self { passed_over, ..meter })
    }

    /// By this source. The programs need root or CAP_BPF and CAP_PERFMON, and clang when Headroom was built.
    ///
    /// # Errors
    /// [`PeriodError`], with what to do about it.
    pub fn open_by(
        source: PeriodSource,
        roots: &Roots,
        cpus: Option<&CpuList>,
        thresholds: &[Seconds],
    ) -> Result<Self, PeriodError> {
        let sensible = |threshold: &Seconds| (1e-9..3600.0).contains(&threshold.get());
        if thresholds.len() > MAX_THRESHOLDS || !thresholds.iter().all(sensible) {
            return Err(PeriodError::Thresholds);
        }
        let cpus = present(roots, cpus)?;
        let clock = || Box::new(KernelClock);
        let by = match source {
            PeriodSource::CpuIdle | PeriodSource::SchedSwitch => {
                By::Kernel(Box::new(KernelPeriods::open(roots, source, &cpus, thresholds)?))
            }
            PeriodSource::StateCounters => By::States(Box::new(StateCounters::open(roots, &cpus, clock())?)),
            PeriodSource::ProcStat => By::Stat(Box::new(ProcStat::open(roots, &cpus, clock())?)),
        };
        Ok(Self {
            by,
            passed_over: Vec::new(),
        })
    }

    /// Why better sources are not in use: to be said at the start of a run and in its report.
    pub fn passed_over(&self) -> &[PassedOver<PeriodSource>] {
        &self.passed_over
    }

    /// The idle periods since the sample before.
    ///
    /// # Errors
    /// [`PeriodError`]: the source cannot be read any more, or shows nothing of these CPUs.
    pub fn sample(&mut self) -> Result<PeriodSample, PeriodError> {
        match &mut self.by {
            By::Kernel(periods) => periods.sample(),
            By::States(counters) => counters.sample(),
            By::Stat(stat) => stat.sample(),
        }
    }
}

/// Those of the CPUs that are online.
fn present(roots: &Roots, asked: Option<&CpuList>) -> Result<CpuList, PeriodError> {
    let text = read(&roots.sys("devices/system/cpu/online"))?;
    let no_cpus = |asked: String| PeriodError::NoCpus { asked };
    let online: CpuList = text.parse().map_err(|_| no_cpus(file::shorten(&text)))?;
    let cpus = asked.map_or_else(|| online.clone(), |asked| online.intersection(asked));
    match (cpus.is_empty(), asked) {
        (false, _) => Ok(cpus),
        (true, asked) => Err(no_cpus(asked.map(ToString::to_string).unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Tree, says};

    fn tree() -> Tree {
        let tree = Tree::new();
        for dir in ["proc", "sys/devices/system/cpu"] {
            std::fs::create_dir_all(tree.path(dir)).unwrap();
        }
        std::fs::write(tree.path("sys/devices/system/cpu/online"), "0-1\n").unwrap();
        std::fs::write(
            tree.path("proc/stat"),
            "cpu0 1 1 1 1 1 1 1\ncpu1 1 1 1 1 1 1 1\nctxt 5\n",
        )
        .unwrap();
        tree
    }

    #[test]
    fn where_only_proc_stat_is_left_the_reasons_against_the_rest_are_said() {
        let tree = tree();
        let meter = PeriodMeter::open(&tree.roots(), None, &[Seconds::from_millis(1.0)]).unwrap();
        assert!(matches!(meter.by, By::Stat(_)));
        let reasons: Vec<String> = meter.passed_over().iter().map(ToString::to_string).collect();
        says(&reasons[0], &["cpu-idle", "not the running kernel's"]);
        says(&reasons[1], &["sched-switch"]);
        says(&reasons[2], &["state-counters", "cpuidle"]);
    }

    #[test]
    fn cpus_that_are_not_there_and_thresholds_that_cannot_be_are_refused() {
        let roots = tree().roots();
        let tree = tree();
        let open = |cpus: &str, thresholds: &[Seconds]| {
            let cpus = cpus.parse().unwrap();
            PeriodMeter::open(&tree.roots(), Some(&cpus), thresholds).unwrap_err()
        };
        says(open("7-9", &[]), &["7-9", "online"]);
        says(open("0", &[Seconds::new(1.0); 5]), &["at most 4"]);
        says(open("0", &[Seconds::ZERO]), &["above zero"]);
        says(open("0", &[Seconds::new(f64::NAN)]), &["above zero"]);
        // The tree is gone.
        assert!(matches!(
            PeriodMeter::open(&roots, None, &[]).unwrap_err(),
            PeriodError::File(_)
        ));
    }
}
