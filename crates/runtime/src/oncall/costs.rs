//! What a server that was started here costs: its instructions, switches and CPU time, and how its cores idle.

use super::device::{Cost, Costs};
use anyhow::Context;
use headroom_console::Stop;
use headroom_node::Roots;
use headroom_node::cpu::{CpuError, CpuList, UsageSample};
use headroom_node::idle::PeriodMeter;
use headroom_node::perf::{Counters, Counts, PerfError, TreeCounters};
use headroom_node::power::{
    Choice, Meter, MeterError, MeterPreference, ModelledMeter, PowerModel, Usage, choose_of,
};
use headroom_units::{Cores, Seconds};
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A program that uses less than this share of one processor for so long has started, or waits for a disk; one that does not is waited for no
/// longer than this.
const QUIET_FOR: Duration = Duration::from_millis(50);
const QUIET_SHARE: f64 = 0.2;
const START_AT_MOST: Duration = Duration::from_secs(1);

/// Waits until the CPU time that `used` says stays nearly the same, or has been waited for long enough, or until `stop` is raised; whether it is.
fn wait_for_quiet(mut used: impl FnMut() -> Option<Seconds>, stop: &Stop) -> bool {
    let (until, mut before) = (Instant::now() + START_AT_MOST, used());
    loop {
        let looked = Instant::now();
        if stop.wait_until(looked + QUIET_FOR) {
            return true;
        }
        let now = used();
        // What cannot be read is no reason to wait.
        let more = before
            .zip(now)
            .map_or(Seconds::ZERO, |(before, now)| now - before);
        if more.get() < QUIET_SHARE * looked.elapsed().as_secs_f64() || Instant::now() >= until {
            return false;
        }
        before = now;
    }
}

/// Counts of one program, by the kernel's events where these may be had.
#[derive(Debug)]
enum Counting {
    Events(Counters),
    Tree(TreeCounters),
}

/// Counts of one program, which several ask for.
#[derive(Clone, Debug)]
pub struct ProgramCounts(Arc<Mutex<Counting>>);

impl ProgramCounts {
    /// Spawns a program and counts it from its first instruction on; where the kernel's events may not be had, by /proc, which knows no
    /// instructions: then with the reason.
    ///
    /// # Errors
    /// The program cannot be spawned, or not even /proc shows it.
    pub fn around<T: Send>(
        roots: &Roots,
        spawn: impl Fn() -> std::io::Result<T> + Send + Sync,
        pid: impl Fn(&T) -> u32,
    ) -> anyhow::Result<(Self, T, Vec<String>)> {
        let share = |counting| Self(Arc::new(Mutex::new(counting)));
        match Counters::around(&spawn) {
            Ok((counters, spawned)) => {
                let notes = counters.missing().iter().map(ToString::to_string).collect();
                Ok((share(Counting::Events(counters)), spawned?, notes))
            }
            Err(error @ PerfError::Refused { .. }) => {
                let spawned = spawn()?;
                let tree = TreeCounters::open(roots, pid(&spawned))?;
                let note = format!("instructions are not counted, and the rest is by /proc: {error}");
                Ok((share(Counting::Tree(tree)), spawned, vec![note]))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Counts of a program that runs already, and of its descendants: by /proc, which knows no instructions.
    ///
    /// # Errors
    /// It has ended.
    pub fn of(roots: &Roots, pid: u32) -> Result<Self, PerfError> {
        let tree = TreeCounters::open(roots, pid)?;
        Ok(Self(Arc::new(Mutex::new(Counting::Tree(tree)))))
    }

    /// Waits until the program leaves the processors to others for most of a while, or has been waited for long enough, or until `stop` is
    /// raised; whether it is. So what is read and loaded for the first period costs the program's start nothing.
    pub fn wait_for_quiet(&self, stop: &Stop) -> bool {
        wait_for_quiet(|| self.read().and_then(|counts| counts.cpu_time), stop)
    }

    fn read(&self) -> Option<Counts> {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Counting::Events(counters) => counters.read().ok(),
            Counting::Tree(tree) => tree.read().ok(),
        }
    }
}

/// The processors that a process may use: `self`, or one by its number.
///
/// # Errors
/// It has ended, or `/proc` is not the kernel's.
pub fn processors(roots: &Roots, process: impl Display) -> anyhow::Result<CpuList> {
    let file = roots.proc_(format!("{process}/status"));
    let status = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let allowed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .with_context(|| format!("{} has no Cpus_allowed_list", file.display()))?;
    Ok(allowed.trim().parse()?)
}

/// Use of the processors by a program's counts.
#[derive(Debug)]
struct ProgramUsage {
    counts: ProgramCounts,
    begin: Seconds,
    before: Seconds,
    at: Instant,
}

impl ProgramUsage {
    fn new(counts: ProgramCounts) -> Self {
        let now = counts
            .read()
            .and_then(|counts| counts.cpu_time)
            .unwrap_or(Seconds::ZERO);
        Self {
            counts,
            begin: now,
            before: now,
            at: Instant::now(),
        }
    }
}

impl Usage for ProgramUsage {
    fn sample(&mut self) -> Result<UsageSample, CpuError> {
        // A program that has ended uses nothing more.
        let now = self
            .counts
            .read()
            .and_then(|counts| counts.cpu_time)
            .unwrap_or(self.before);
        let (at, before) = (Instant::now(), std::mem::replace(&mut self.before, now));
        let elapsed = Seconds::from(at - std::mem::replace(&mut self.at, at));
        let used = (now - before).max(Seconds::ZERO);
        Ok(UsageSample {
            elapsed,
            used,
            busy: Cores::new(match elapsed > Seconds::ZERO {
                true => used / elapsed,
                false => 0.0,
            }),
            used_total: now - self.begin,
            ..UsageSample::default()
        })
    }
}

/// The meter of the machine that a program runs on: what measures where there is something, else the model of the program, with the
/// cores that idle by the lengths of their idle periods where these can be had.
///
/// # Errors
/// None of the preference's order can be used.
pub fn meter(
    preference: MeterPreference,
    roots: &Roots,
    counts: &ProgramCounts,
    model: &PowerModel,
) -> Result<(Box<dyn Meter>, Choice), MeterError> {
    let (of, counts, model) = (roots.clone(), counts.clone(), model.clone());
    choose_of(preference, roots, move || {
        let usage = Box::new(ProgramUsage::new(counts.clone()));
        Ok(Box::new(ModelledMeter::by_periods(&of, usage, model.clone())))
    })
}

/// What a server costs.
#[derive(Debug)]
pub struct ServerCosts {
    counts: ProgramCounts,
    idle: Option<PeriodMeter>,
    break_even: Seconds,
}

impl ServerCosts {
    /// By these counts, and by the idle periods of these CPUs over the break-even time; with what cannot be had, in words.
    pub fn open(
        roots: &Roots,
        counts: ProgramCounts,
        cpus: &CpuList,
        break_even: Seconds,
    ) -> (Self, Vec<String>) {
        let mut notes = Vec::new();
        let meter = PeriodMeter::open(roots, Some(cpus), &[break_even]);
        let idle = match meter {
            Ok(meter) => {
                let over: Vec<&str> = meter
                    .passed_over()
                    .iter()
                    .map(|over| over.reason.as_str())
                    .collect();
                if over.len() > 1 {
                    notes.push(format!(
                        "lengths of idle periods are not known: {}",
                        each_once(&over)
                    ));
                }
                Some(meter)
            }
            Err(error) => {
                notes.push(format!("idle periods are not measured: {error}"));
                None
            }
        };
        let costs = Self {
            counts,
            idle,
            break_even,
        };
        (costs, notes)
    }
}

/// Reasons one after the other: what several programs of one kind are refused for is said once.
fn each_once(reasons: &[&str]) -> String {
    let is_first = |(at, reason): &(usize, &&str)| !reasons[..*at].contains(reason);
    let first: Vec<&str> = reasons
        .iter()
        .enumerate()
        .filter(is_first)
        .map(|(_, reason)| *reason)
        .collect();
    first.join("; ")
}

impl Costs for ServerCosts {
    fn read(&mut self) -> Cost {
        let counts = self.counts.read();
        let sample = self.idle.as_mut().and_then(|idle| idle.sample().ok());
        Cost {
            instructions: counts.as_ref().and_then(|counts| counts.instructions),
            context_switches: counts.as_ref().and_then(|counts| counts.context_switches),
            cpu_time: counts.and_then(|counts| counts.cpu_time),
            long_idle: sample.and_then(|sample| sample.long_idle_share(self.break_even)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often the CPU time is asked for of a program that computes for so many looks and then no more, and whether it was stopped.
    fn looks(busy: u32, stop: &Stop) -> (u32, bool) {
        let mut asked = 0;
        let used = || {
            asked += 1;
            // Far more than any time that a look takes on a slow machine.
            Some(Seconds::new(1e3 * f64::from(asked.min(busy + 1))))
        };
        let stopped = wait_for_quiet(used, stop);
        (asked, stopped)
    }

    #[test]
    fn a_reason_of_several_is_said_once() {
        assert_eq!(
            each_once(&["no leave", "no leave", "no states"]),
            "no leave; no states"
        );
    }

    #[test]
    fn a_program_that_computes_is_waited_for_and_not_for_ever() {
        let stop = Stop::default();
        assert_eq!(looks(0, &stop), (2, false));
        let began = Instant::now();
        let (asked, stopped) = looks(u32::MAX - 1, &stop);
        assert!(
            asked > 2 && !stopped && began.elapsed() >= START_AT_MOST,
            "{asked}"
        );
        assert!(
            !wait_for_quiet(|| None, &stop),
            "what cannot be read is not waited for"
        );
        stop.raise();
        assert_eq!(looks(u32::MAX - 1, &stop), (1, true));
    }
}
