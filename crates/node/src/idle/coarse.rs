//! What is known of idle periods where no program may be in the kernel: idle time, and where cpuidle counts entries their
//! mean length.

use super::sample::{PeriodSample, PeriodSource};
use super::{IdleMeter, PeriodError};
use crate::clock::{Clock, Moment};
use crate::cpu::CpuList;
use crate::{Roots, file};
use headroom_units::Seconds;
use std::collections::BTreeMap;

/// USER_HZ: 100 on every architecture.
const USER_HZ: f64 = 100.0;

/// By the kernel's counters of idle states. A CPU's time in a state is counted when it leaves it.
#[derive(Debug)]
pub(super) struct StateCounters(IdleMeter);

impl StateCounters {
    pub(super) fn open(roots: &Roots, cpus: &CpuList, clock: Box<dyn Clock>) -> Result<Self, PeriodError> {
        IdleMeter::open_with(roots, Some(cpus), clock)
            .map(Self)
            .ok_or_else(|| PeriodError::Refused {
                doing: "read the kernel's counters of idle states".into(),
                cause: "there are none: this kernel has no cpuidle driver".into(),
                remedy: "virtual machines mostly have none; on hardware, see the driver under devices/system/cpu/cpuidle"
                    .into(),
            })
    }

    pub(super) fn sample(&mut self) -> Result<PeriodSample, PeriodError> {
        let sample = self.0.sample().ok_or_else(|| PeriodError::NothingRead {
            what: "counters of idle states".into(),
        })?;
        let observed = sample.elapsed * sample.cpus as f64;
        let idle: Seconds = sample
            .states
            .iter()
            .map(|state| observed * state.residency.get())
            .sum();
        let entries: f64 = sample.states.iter().map(|state| state.entries.get()).sum();
        Ok(PeriodSample {
            source: PeriodSource::StateCounters,
            elapsed: sample.elapsed,
            cpus: sample.cpus,
            observed,
            idle: idle.min(observed),
            periods: Some((entries * sample.elapsed.get()).round() as u64),
            lengths: Vec::new(),
            long: Vec::new(),
        })
    }
}

/// By `/proc/stat`.
#[derive(Debug)]
pub(super) struct ProcStat {
    roots: Roots,
    cpus: CpuList,
    before: BTreeMap<u32, Seconds>,
    clock: Box<dyn Clock>,
    last: Moment,
}

impl ProcStat {
    pub(super) fn open(roots: &Roots, cpus: &CpuList, clock: Box<dyn Clock>) -> Result<Self, PeriodError> {
        Ok(Self {
            before: idle_of(roots, cpus)?,
            roots: roots.clone(),
            cpus: cpus.clone(),
            last: clock.now(),
            clock,
        })
    }

    pub(super) fn sample(&mut self) -> Result<PeriodSample, PeriodError> {
        let read = idle_of(&self.roots, &self.cpus)?;
        let now = self.clock.now();
        let elapsed = now.since(self.last).awake;
        self.last = now;
        let before = std::mem::replace(&mut self.before, read);
        // The kernel's account of a CPU's idle time may step back; nothing is concluded from that.
        let each: Vec<Seconds> = self
            .before
            .iter()
            .filter_map(|(cpu, idle)| Some(*idle - *before.get(cpu)?))
            .filter(|idle| *idle >= Seconds::ZERO)
            .map(|idle| idle.min(elapsed))
            .collect();
        if each.is_empty() || elapsed <= Seconds::ZERO {
            return Err(PeriodError::NothingRead {
                what: self.roots.proc_("stat").display().to_string(),
            });
        }
        Ok(PeriodSample {
            source: PeriodSource::ProcStat,
            elapsed,
            cpus: each.len(),
            observed: elapsed * each.len() as f64,
            idle: each.into_iter().sum(),
            periods: None,
            lengths: Vec::new(),
            long: Vec::new(),
        })
    }
}

/// For how long each of these CPUs has been idle, waiting for disks included, which sleeps no less (proc_stat(5)).
pub(super) fn idle_of(roots: &Roots, cpus: &CpuList) -> Result<BTreeMap<u32, Seconds>, PeriodError> {
    let path = roots.proc_("stat");
    let all = parse(&file::read(&path)?);
    let of_these: BTreeMap<u32, Seconds> = all.into_iter().filter(|(cpu, _)| cpus.contains(*cpu)).collect();
    match of_these.is_empty() {
        true => Err(PeriodError::NothingRead {
            what: path.display().to_string(),
        }),
        false => Ok(of_these),
    }
}

/// The lines `cpuN user nice system idle iowait ...`.
fn parse(text: &str) -> BTreeMap<u32, Seconds> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.strip_prefix("cpu")?.split_whitespace();
            let cpu = words.next()?.parse().ok()?;
            let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
            let idle = ticks.get(3)?.checked_add(*ticks.get(4)?)?;
            Some((cpu, Seconds::new(idle as f64 / USER_HZ)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::fake::FakeClock;
    use crate::testing::{Tree, says};
    use headroom_units::Ratio;
    use std::time::Duration;

    fn stat(tree: &Tree, ticks: [(u64, u64); 2]) {
        let lines: Vec<String> = ticks
            .iter()
            .enumerate()
            .map(|(cpu, (idle, iowait))| format!("cpu{cpu} 10 0 10 {idle} {iowait} 0 0 0 0 0"))
            .collect();
        let text = format!("cpu 20 0 20 9 9 0 0 0 0 0\n{}\nctxt 100", lines.join("\n"));
        std::fs::create_dir_all(tree.path("proc")).unwrap();
        std::fs::write(tree.path("proc/stat"), text).unwrap();
    }

    #[test]
    fn the_idle_share_is_of_the_cpus_asked_for() {
        let tree = Tree::new();
        stat(&tree, [(1000, 50), (2000, 0)]);
        let clock = FakeClock::default();
        let open = |cpus: &str| {
            ProcStat::open(&tree.roots(), &cpus.parse().unwrap(), Box::new(clock.clone())).unwrap()
        };
        let (mut both, mut second) = (open("0-1"), open("1"));
        clock.pass(Duration::from_secs(2), Duration::ZERO);
        stat(&tree, [(1050, 100), (2200, 0)]);
        let of_both = both.sample().unwrap();
        assert_eq!((of_both.cpus, of_both.idle), (2, Seconds::new(3.0)));
        assert_eq!(of_both.idle_share(), Some(Ratio::new(0.75)));
        assert_eq!((of_both.periods, of_both.long.len()), (None, 0));
        assert_eq!(second.sample().unwrap().idle_share(), Some(Ratio::new(1.0)));
        // No time has passed.
        says(second.sample().unwrap_err(), &["proc/stat", "nothing"]);
    }

    #[test]
    fn a_machine_without_counters_or_without_the_cpus_is_refused_in_words() {
        let tree = Tree::new();
        stat(&tree, [(1, 1), (1, 1)]);
        let cpus = "8-9".parse().unwrap();
        let clock = || Box::new(FakeClock::default());
        says(
            ProcStat::open(&tree.roots(), &cpus, clock()).unwrap_err(),
            &["stat"],
        );
        says(
            StateCounters::open(&tree.roots(), &cpus, clock()).unwrap_err(),
            &["idle states", "cpuidle"],
        );
    }
}
