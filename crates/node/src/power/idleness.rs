//! How the cores of a machine idle, for a meter that computes what they draw: by the kernel's counters of idle states where it
//! has them, else by how often they are woken.

use crate::clock::{Clock, KernelClock, Moment};
use crate::idle::{IdleMeter, IdleSample, PeriodMeter};
use crate::{Roots, file};
use headroom_physics::expected::{IdlePower, InState, Load, idle_power_at, idle_power_in};
use headroom_physics::idle::deepest_within;
use headroom_physics::{IdleState, MachineFigures};
use headroom_units::{Cores, PerSecond, Watts};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The counters are some dozens of files for each CPU, and are not read more often.
const COUNTED_EVERY: Duration = Duration::from_secs(1);
/// `/proc/stat` has ticks of 10 ms.
const WOKEN_EVERY: Duration = Duration::from_millis(200);
/// With this time constant what was observed is forgotten, seconds: the choice of an idle state is a threshold, and a burst of
/// wake-ups does not keep all cores from sleeping for ever.
const MEMORY_S: f64 = 2.0;
/// Idle periods are read no more often.
const PERIODS_EVERY: Duration = Duration::from_millis(50);
/// A CPU that is busy for a smaller share of the time is parked.
const MIN_BUSY_SHARE: f64 = 0.005;
/// USER_HZ: 100 on every architecture.
const USER_HZ: f64 = 100.0;

/// Where the idleness is read.
#[derive(Debug)]
enum By {
    States {
        meter: Box<IdleMeter>,
        /// For each of the kernel's states the index of the figures' one.
        of: Vec<usize>,
        /// In the figures' states, and the entries of each a second.
        found: Option<Vec<InState>>,
    },
    /// By the lengths of idle periods: what changes them, and nothing else of before, is in the next sample.
    Periods {
        meter: Box<PeriodMeter>,
        /// At the highest voltage.
        found: Option<IdlePower>,
    },
    Wakeups {
        path: PathBuf,
        before: Option<Stat>,
        found: Option<Load>,
    },
}

/// Reads how the cores idle.
#[derive(Debug)]
pub(super) struct Idleness {
    by: By,
    clock: Box<dyn Clock>,
    at: Moment,
}

impl Idleness {
    pub(super) fn open(roots: &Roots, machine: &MachineFigures) -> Self {
        Self::open_with(roots, machine, &|| Box::new(KernelClock))
    }

    fn open_with(roots: &Roots, machine: &MachineFigures, clock: &dyn Fn() -> Box<dyn Clock>) -> Self {
        let by = match IdleMeter::open_with(roots, None, clock()) {
            Some(meter) => By::States {
                of: meter
                    .states()
                    .map(|(name, residency)| matching(&machine.processor.idle_states, name, residency.get()))
                    .collect(),
                meter: Box::new(meter),
                found: None,
            },
            None => {
                let path = roots.proc_("stat");
                By::Wakeups {
                    before: read(&path),
                    path,
                    found: None,
                }
            }
        };
        let clock = clock();
        Self {
            by,
            at: clock.now(),
            clock,
        }
    }

    /// By a meter of idle periods.
    pub(super) fn of_periods(meter: PeriodMeter) -> Self {
        let clock = Box::new(KernelClock);
        Self {
            by: By::Periods {
                meter: Box::new(meter),
                found: None,
            },
            at: clock.now(),
            clock,
        }
    }

    /// What it goes by, in words.
    pub(super) const fn words(&self) -> &'static str {
        match self.by {
            By::States { .. } => "idle cores by the kernel's counters of idle states",
            By::Periods { .. } => "idle cores by the lengths of their idle periods",
            By::Wakeups { .. } => {
                "idle cores by their wake-ups, for the kernel has no counters of idle states here"
            }
        }
    }

    /// What the cores beside so many busy ones draw, and the packages, at a voltage over that at the highest frequency. Until
    /// something was observed every core is taken to be in its shallowest state.
    pub(super) fn power(&mut self, machine: &MachineFigures, busy: Cores, voltage: f64) -> IdlePower {
        self.read(machine);
        let cores = Cores::new(machine.processor.cores as f64);
        let idle = (cores - busy).max(Cores::ZERO);
        match &self.by {
            By::States {
                found: Some(found), ..
            } => {
                let all: Cores = found.iter().map(|state| state.cores).sum();
                // What others of the machine kept busy idles in this account, as the rest does.
                let factor = match all > Cores::ZERO {
                    true => idle / all,
                    false => 0.0,
                };
                let mut scaled: Vec<InState> = found
                    .iter()
                    .map(|state| InState {
                        cores: state.cores * factor,
                        ..*state
                    })
                    .collect();
                if factor == 0.0 {
                    scaled[0].cores = idle;
                }
                idle_power_in(machine, &scaled, voltage)
            }
            By::Wakeups {
                found: Some(load), ..
            } => {
                let load = Load {
                    busy: load.busy.max(busy),
                    ..*load
                };
                let power = idle_power_at(machine, load, voltage);
                let others = cores - load.busy.min(cores);
                IdlePower {
                    cores: match others > Cores::new(0.01) {
                        true => power.cores * (idle / others),
                        false => shallowest(machine, idle, voltage),
                    },
                    ..power
                }
            }
            By::Periods {
                found: Some(found), ..
            } => IdlePower {
                cores: found.cores * (voltage * voltage),
                ..*found
            },
            By::States { found: None, .. }
            | By::Periods { found: None, .. }
            | By::Wakeups { found: None, .. } => IdlePower {
                cores: shallowest(machine, idle, voltage),
                uncore: machine.processor.uncore * machine.processor.packages as f64,
                deep: 0.0,
            },
        }
    }

    fn read(&mut self, machine: &MachineFigures) {
        let now = self.clock.now();
        let elapsed = now.since(self.at).awake;
        let every = match self.by {
            By::States { .. } => COUNTED_EVERY,
            By::Wakeups { .. } => WOKEN_EVERY,
            By::Periods { .. } => PERIODS_EVERY,
        };
        let seconds = elapsed.get();
        if seconds < every.as_secs_f64() {
            return;
        }
        self.at = now;
        let newer = 1.0 - (-seconds / MEMORY_S).exp();
        match &mut self.by {
            By::States { meter, of, found } => {
                let Some(sample) = meter.sample() else { return };
                let now = in_states(&sample, of, machine.processor.idle_states.len());
                *found = Some(match found.take() {
                    None => now,
                    Some(before) => before
                        .into_iter()
                        .zip(now)
                        .map(|(before, now)| InState {
                            cores: before.cores + (now.cores - before.cores) * newer,
                            entries: before.entries + (now.entries - before.entries) * newer,
                        })
                        .collect(),
                });
            }
            By::Periods { meter, found } => {
                let sample = meter.sample().ok();
                if let Some(power) = sample.and_then(|sample| sample.modelled_power(machine)) {
                    *found = Some(power.value);
                }
            }
            By::Wakeups { path, before, found } => {
                let stat = read(path);
                let then = std::mem::replace(before, stat.clone());
                let Some(now) = stat
                    .zip(then)
                    .map(|(stat, then)| stat.since(&then, seconds, machine.processor.cores))
                else {
                    return;
                };
                *found = Some(match found.take() {
                    None => now,
                    Some(before) => Load {
                        busy: before.busy + (now.busy - before.busy) * newer,
                        wakeups: before.wakeups + (now.wakeups - before.wakeups) * newer,
                        on: now.on,
                    },
                });
            }
        }
    }
}

fn shallowest(machine: &MachineFigures, idle: Cores, voltage: f64) -> Watts {
    machine.processor.idle_states[0].power * (voltage * voltage * idle.get())
}

/// The figures' state of one of the kernel's: of the same name, else the deepest that pays as soon.
fn matching(states: &[IdleState], name: &str, residency_s: f64) -> usize {
    // ACPI's tables have the same states under longer names: C1_ACPI.
    let name = name.trim().trim_end_matches("_ACPI");
    let named = states
        .iter()
        .position(|state| state.name.eq_ignore_ascii_case(name));
    named.unwrap_or_else(|| deepest_within(states, residency_s))
}

/// A sample in the figures' states.
fn in_states(sample: &IdleSample, of: &[usize], states: usize) -> Vec<InState> {
    let mut all = vec![InState::default(); states];
    for (state, at) in sample.states.iter().zip(of) {
        all[*at].cores += Cores::new(state.residency.get() * sample.cpus as f64);
        all[*at].entries += state.entries;
    }
    all
}

/// What `/proc/stat` has of wake-ups.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stat {
    /// Busy ticks of each CPU.
    busy: Vec<u64>,
    /// Context switches.
    switches: u64,
}

fn read(path: &Path) -> Option<Stat> {
    parse(&file::read(path).ok()?)
}

/// The lines `cpuN` (user, nice, system, idle, iowait, irq, softirq; proc_stat(5)) and `ctxt`.
fn parse(text: &str) -> Option<Stat> {
    let mut stat = Stat {
        busy: Vec::new(),
        switches: 0,
    };
    let mut switches = None;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(word) = words.next() else { continue };
        if word == "ctxt" {
            switches = Some(words.next()?.parse().ok()?);
        } else if word.strip_prefix("cpu").is_some_and(|cpu| !cpu.is_empty()) {
            let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
            let fields: Option<u64> = [0, 1, 2, 5, 6].iter().map(|at| ticks.get(*at).copied()).sum();
            stat.busy.push(fields?);
        }
    }
    stat.switches = switches?;
    (!stat.busy.is_empty()).then_some(stat)
}

impl Stat {
    /// The load of the time since. An idle core that is woken switches twice, to the work and back: more wake-ups than half of
    /// the switches there cannot be.
    fn since(&self, before: &Self, seconds: f64, cores: usize) -> Load {
        let each = self.busy.iter().zip(&before.busy);
        let shares: Vec<f64> = each
            .map(|(now, then)| now.saturating_sub(*then) as f64 / USER_HZ / seconds)
            .map(|share| share.clamp(0.0, 1.0))
            .collect();
        let switches = self.switches.saturating_sub(before.switches) as f64 / seconds;
        let on = shares.iter().filter(|share| **share >= MIN_BUSY_SHARE).count();
        Load {
            busy: Cores::new(shares.iter().sum()),
            wakeups: PerSecond::new(switches / 2.0),
            on: on.clamp(1, cores),
        }
    }
}

#[cfg(test)]
#[path = "idleness_tests.rs"]
mod tests;
