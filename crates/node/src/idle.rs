//! How CPUs idle. Read only.
//!
//! [`IdleMeter`] reads the kernel's counters of idle states: how long the CPUs were in which, and how often they went there
//! (Documentation/admin-guide/pm/cpuidle.rst). `time` is what the kernel asked the processor for, not what it did: a state
//! that is asked for may be left out by the hardware. Virtual machines have no states, or those of the driver haltpoll, which
//! say nothing of the processor below.
//!
//! [`PeriodMeter`] measures how long the idle periods are, by an eBPF program where it may; [`PeriodSample`] has what
//! follows: the share of time in long periods, C6 opportunity, and the states and power that a processor with such periods
//! would have (estimated). [`break_even()`] says what a long period is here.

mod account;
mod break_even;
mod coarse;
mod kernel;
mod meter;
mod sample;

pub use break_even::{BreakEven, BreakEvenFrom, break_even};
pub use meter::{PeriodError, PeriodMeter};
pub use sample::{LengthClass, LongIdle, PeriodSample, PeriodSource};

use crate::clock::{Clock, KernelClock, Moment};
use crate::cpu::CpuList;
use crate::{Roots, file};
use headroom_units::{PerSecond, Ratio, Seconds};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

/// More CPUs than any machine has.
const MAX_CPUS: usize = 8192;
/// CPUIDLE_STATE_MAX is 10; more are not looked at.
const MAX_STATES: usize = 16;

/// One state over all CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IdleState {
    /// `POLL`, `C1`, `C6`; processors and drivers have their own names.
    pub name: String,
    /// How long it takes to leave it.
    pub exit_latency: Seconds,
    /// How long a CPU should stay for it to pay.
    pub target_residency: Seconds,
    /// The share of all the CPUs' time since the sample before that was asked for in it.
    pub residency: Ratio,
    /// How often it was entered, of all CPUs together.
    pub entries: PerSecond,
    /// How often it was deeper than the idle period was long, of all CPUs together.
    pub too_deep: PerSecond,
    /// How often it was shallower than it could have been, of all CPUs together.
    pub too_shallow: PerSecond,
}

/// What the CPUs did while they had nothing to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IdleSample {
    /// Since the sample before (or since the meter was opened).
    pub elapsed: Seconds,
    /// CPUs that were read both times.
    pub cpus: usize,
    /// The states, shallowest first.
    pub states: Vec<IdleState>,
    /// Counters that went backwards since the meter was opened, and were left out of their interval.
    pub rebases: u64,
}

/// Reads the idle states of all CPUs, or of some.
#[derive(Debug)]
pub struct IdleMeter {
    roots: Roots,
    /// The CPUs that are read, all where it is nothing.
    only: Option<CpuList>,
    states: Vec<About>,
    before: HashMap<u32, Vec<Counters>>,
    clock: Box<dyn Clock>,
    last: Moment,
    rebases: u64,
}

#[derive(Clone, Debug)]
struct About {
    name: String,
    exit_latency: Seconds,
    target_residency: Seconds,
}

/// Microseconds and numbers of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    time_us: u64,
    entries: u64,
    too_deep: u64,
    too_shallow: u64,
}

impl Counters {
    fn since(self, before: Self) -> Option<Self> {
        Some(Self {
            time_us: self.time_us.checked_sub(before.time_us)?,
            entries: self.entries.checked_sub(before.entries)?,
            too_deep: self.too_deep.checked_sub(before.too_deep)?,
            too_shallow: self.too_shallow.checked_sub(before.too_shallow)?,
        })
    }
}

impl IdleMeter {
    /// Takes the first reading; the first sample covers the time since. Nothing where there are no idle states.
    pub fn open(roots: &Roots) -> Option<Self> {
        Self::open_with(roots, None, Box::new(KernelClock))
    }

    /// As [`Self::open`], of these CPUs alone: those that a server is pinned to.
    pub fn open_on(roots: &Roots, cpus: &CpuList) -> Option<Self> {
        Self::open_with(roots, Some(cpus), Box::new(KernelClock))
    }

    pub(crate) fn open_with(roots: &Roots, only: Option<&CpuList>, clock: Box<dyn Clock>) -> Option<Self> {
        let first = cpus(roots)
            .into_iter()
            .filter(|cpu| only.is_none_or(|only| only.contains(*cpu)))
            .find(|cpu| state_dir(roots, *cpu, 0).is_dir())?;
        let states: Vec<About> = (0..MAX_STATES)
            .map(|state| state_dir(roots, first, state))
            .map_while(|dir| {
                let micros = |name: &str| file::read_u64(&dir.join(name)).unwrap_or(0) as f64;
                Some(About {
                    name: file::read(&dir.join("name")).ok()?,
                    exit_latency: Seconds::from_micros(micros("latency")),
                    target_residency: Seconds::from_micros(micros("residency")),
                })
            })
            .collect();
        if states.is_empty() {
            return None;
        }
        let mut meter = Self {
            roots: roots.clone(),
            only: only.cloned(),
            states,
            before: HashMap::new(),
            last: clock.now(),
            clock,
            rebases: 0,
        };
        meter.before = meter.read();
        Some(meter)
    }

    /// The names of the states, shallowest first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.states.iter().map(|state| state.name.as_str())
    }

    /// The names of the states with how long a CPU should stay in each, shallowest first.
    pub(crate) fn states(&self) -> impl Iterator<Item = (&str, Seconds)> {
        let states = self.states.iter();
        states.map(|state| (state.name.as_str(), state.target_residency))
    }

    fn read(&self) -> HashMap<u32, Vec<Counters>> {
        let states = self.states.len();
        cpus(&self.roots)
            .into_iter()
            .filter(|cpu| self.only.as_ref().is_none_or(|only| only.contains(*cpu)))
            .filter_map(|cpu| {
                // A CPU that is offline has no states: it is left out, and starts anew when it is back.
                let counters: Option<Vec<Counters>> = (0..states)
                    .map(|state| {
                        let dir = state_dir(&self.roots, cpu, state);
                        let number = |name: &str| file::read_u64(&dir.join(name)).ok();
                        Some(Counters {
                            time_us: number("time")?,
                            entries: number("usage")?,
                            // Kernels before 5.6 do not count these.
                            too_deep: number("above").unwrap_or(0),
                            too_shallow: number("below").unwrap_or(0),
                        })
                    })
                    .collect();
                Some((cpu, counters?))
            })
            .collect()
    }

    /// What the CPUs did since the sample before. Nothing where no CPU could be read both times.
    pub fn sample(&mut self) -> Option<IdleSample> {
        let now = self.clock.now();
        let elapsed = now.since(self.last).awake;
        let read = self.read();
        self.last = now;
        let before = std::mem::replace(&mut self.before, read);
        let mut sums = vec![Counters::default(); self.states.len()];
        let mut cpus = 0;
        for (cpu, counters) in &self.before {
            let Some(before) = before.get(cpu) else { continue };
            let deltas: Option<Vec<Counters>> = counters
                .iter()
                .zip(before)
                .map(|(now, before)| now.since(*before))
                .collect();
            let Some(deltas) = deltas else {
                self.rebases += 1;
                continue;
            };
            cpus += 1;
            for (sum, delta) in sums.iter_mut().zip(deltas) {
                sum.time_us = sum.time_us.saturating_add(delta.time_us);
                sum.entries = sum.entries.saturating_add(delta.entries);
                sum.too_deep = sum.too_deep.saturating_add(delta.too_deep);
                sum.too_shallow = sum.too_shallow.saturating_add(delta.too_shallow);
            }
        }
        if cpus == 0 || elapsed.get() <= 0.0 {
            return None;
        }
        let all_us = elapsed.get() * 1e6 * cpus as f64;
        let rate = |count: u64| PerSecond::new(count as f64 / elapsed.get());
        let states = self.states.iter().zip(sums).map(|(about, sum)| IdleState {
            name: about.name.clone(),
            exit_latency: about.exit_latency,
            target_residency: about.target_residency,
            // Time in a state is counted when it is left: a long one may fall into a short interval.
            residency: Ratio::new((sum.time_us as f64 / all_us).min(1.0)),
            entries: rate(sum.entries),
            too_deep: rate(sum.too_deep),
            too_shallow: rate(sum.too_shallow),
        });
        Some(IdleSample {
            elapsed,
            cpus,
            states: states.collect(),
            rebases: self.rebases,
        })
    }
}

fn state_dir(roots: &Roots, cpu: u32, state: usize) -> PathBuf {
    roots.sys(format!("devices/system/cpu/cpu{cpu}/cpuidle/state{state}"))
}

fn cpus(roots: &Roots) -> Vec<u32> {
    fs::read_dir(roots.sys("devices/system/cpu"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix("cpu")?.parse().ok())
        .take(MAX_CPUS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::fake::FakeClock;
    use std::time::Duration;

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn put(&self, cpu: u32, state: usize, files: &[(&str, u64)]) {
            let dir = state_dir(&self.roots(), cpu, state);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("name"), ["POLL\n", "C6\n"][state]).unwrap();
            for (name, value) in files {
                fs::write(dir.join(name), format!("{value}\n")).unwrap();
            }
        }

        fn cpu(&self, cpu: u32, time: u64, usage: u64) {
            self.put(
                cpu,
                0,
                &[("latency", 0), ("residency", 0), ("time", 0), ("usage", 0)],
            );
            let deep = [
                ("latency", 133),
                ("residency", 400),
                ("time", time),
                ("usage", usage),
            ];
            self.put(cpu, 1, &deep);
            self.put(cpu, 1, &[("above", usage / 10), ("below", 0)]);
        }

        fn roots(&self) -> Roots {
            Roots::at(self.0.path(), self.0.path())
        }
    }

    #[test]
    fn residency_is_a_share_of_all_cpus_and_entries_are_a_rate() {
        let tree = Tree(tempfile::tempdir().unwrap());
        (0..2).for_each(|cpu| tree.cpu(cpu, 1_000, 100));
        let clock = FakeClock::default();
        let mut meter = IdleMeter::open_with(&tree.roots(), None, Box::new(clock.clone())).unwrap();
        clock.pass(Duration::from_secs(2), Duration::ZERO);
        tree.cpu(0, 1_001_000, 300);
        tree.cpu(1, 2_001_000, 500);
        let sample = meter.sample().unwrap();
        assert_eq!((sample.cpus, sample.rebases), (2, 0));
        let deep = &sample.states[1];
        assert_eq!((deep.name.as_str(), deep.residency), ("C6", Ratio::new(0.75)));
        assert_eq!(
            (deep.entries, deep.too_deep),
            (PerSecond::new(300.0), PerSecond::new(30.0))
        );
        assert!((deep.exit_latency.get() - 133e-6).abs() < 1e-12);
        assert_eq!(sample.states[0].residency, Ratio::ZERO);
    }

    #[test]
    fn a_cpu_that_went_offline_and_one_that_starts_anew_are_left_out() {
        let tree = Tree(tempfile::tempdir().unwrap());
        (0..3).for_each(|cpu| tree.cpu(cpu, 5_000_000, 100));
        let clock = FakeClock::default();
        let mut meter = IdleMeter::open_with(&tree.roots(), None, Box::new(clock.clone())).unwrap();
        clock.pass(Duration::from_secs(1), Duration::ZERO);
        fs::remove_dir_all(tree.0.path().join("devices/system/cpu/cpu2/cpuidle")).unwrap();
        tree.cpu(1, 7, 1);
        tree.cpu(0, 5_500_000, 110);
        let sample = meter.sample().unwrap();
        assert_eq!((sample.cpus, sample.rebases), (1, 1));
        assert_eq!(sample.states[1].residency, Ratio::new(0.5));
        assert_eq!(meter.sample(), None, "no time has passed");
    }

    #[test]
    fn a_machine_without_states_has_no_meter() {
        let dir = tempfile::tempdir().unwrap();
        assert!(IdleMeter::open(&Roots::at(dir.path(), dir.path())).is_none());
    }
}
