//! What is known of the idle periods of some CPUs over some time, and what follows from it.

use headroom_physics::efficiency::{self, CoreTime};
use headroom_physics::expected::{IdlePower, InState};
use headroom_physics::lengths::{Periods, idle_power_of, states_of};
use headroom_physics::{IdleState, MachineFigures};
use headroom_units::{Cores, Ratio, Reading, Seconds, Source};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What idle periods are measured by, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PeriodSource {
    /// An eBPF program on the tracepoint `power:cpu_idle`: each stay in an idle state, as interrupts cut them.
    CpuIdle,
    /// An eBPF program on the tracepoint `sched:sched_switch`: from one task of a CPU to its next. Interrupts that wake no
    /// task are not seen, so periods are longer than the hardware's.
    SchedSwitch,
    /// The kernel's counters of idle states (cpuidle): idle time and the mean length of periods, nothing of how they vary.
    StateCounters,
    /// `/proc/stat`: idle time alone.
    ProcStat,
}

impl PeriodSource {
    /// Its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CpuIdle => "cpu-idle",
            Self::SchedSwitch => "sched-switch",
            Self::StateCounters => "state-counters",
            Self::ProcStat => "proc-stat",
        }
    }

    /// What it is and what it does not show, in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::CpuIdle => "each stay in an idle state, by eBPF on the tracepoint power:cpu_idle",
            Self::SchedSwitch => {
                "each stay in the idle task, by eBPF on the tracepoint sched:sched_switch; interrupts that wake no task \
                 are not seen"
            }
            Self::StateCounters => {
                "idle time and the mean length of idle periods, by the kernel's counters of idle states; not how long \
                 each was"
            }
            Self::ProcStat => "idle time alone, by /proc/stat; not how long idle periods were",
        }
    }
}

impl fmt::Display for PeriodSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Idle periods of about one length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LengthClass {
    /// The shortest that are in it.
    pub from: Seconds,
    /// The shortest that are longer than those in it; nothing for the last class.
    pub to: Option<Seconds>,
    /// Periods that ended in the sample's time, and those that were still running at its end.
    pub periods: u64,
    /// Core-seconds of the sample's time in them: of one that began before only what falls into it.
    pub time: Seconds,
}

/// The time in idle periods longer than a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LongIdle {
    /// The threshold T.
    pub over: Seconds,
    /// Core-seconds of the sample's time in periods longer than it, as far as they were known to be at its end.
    pub time: Seconds,
}

/// The idle periods of some CPUs since the sample before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeriodSample {
    /// What it was measured by: says what can be in it.
    pub source: PeriodSource,
    /// Since the sample before, or since the meter was opened.
    pub elapsed: Seconds,
    /// CPUs of which something is known.
    pub cpus: usize,
    /// Core-seconds of which it is known whether the core was idle.
    pub observed: Seconds,
    /// Core-seconds of those idle.
    pub idle: Seconds,
    /// Idle periods that ended or were still running; nothing where the source does not count them.
    pub periods: Option<u64>,
    /// By length, ascending; empty where the source does not know lengths. Classes without periods are left out.
    pub lengths: Vec<LengthClass>,
    /// For each threshold that was asked for; empty where the source does not know lengths.
    pub long: Vec<LongIdle>,
}

impl PeriodSample {
    /// The share of the CPUs' time that was idle; nothing of no time.
    pub fn idle_share(&self) -> Option<Ratio> {
        (self.observed > Seconds::ZERO).then(|| Ratio::new(self.idle / self.observed))
    }

    /// The mean length of idle periods, where they were counted and there were some.
    pub fn mean_length(&self) -> Option<Seconds> {
        let periods = self.periods.filter(|periods| *periods > 0)?;
        Some(self.idle / periods as f64)
    }

    /// Core-seconds in idle periods longer than a threshold that was asked for, of all idle ones and all others.
    fn core_time(&self, over: Seconds) -> Option<CoreTime> {
        let long = self.long.iter().find(|long| long.over == over)?;
        Some(CoreTime {
            long_idle: long.time,
            idle: self.idle,
            busy: (self.observed - self.idle).max(Seconds::ZERO),
        })
    }

    /// The share of the CPUs' time in idle periods longer than a threshold that the meter was opened with. Nothing for
    /// another threshold, and where the source does not know lengths.
    pub fn long_idle_share(&self, over: Seconds) -> Option<Ratio> {
        efficiency::long_idle_share(self.core_time(over)?)
    }

    /// C6 opportunity (REEF, Equation 2), with the time that the CPUs were not idle as T_proc. Nothing where
    /// [`Self::long_idle_share`] is nothing.
    pub fn c6_opportunity(&self, over: Seconds) -> Option<Ratio> {
        efficiency::c6_opportunity(self.core_time(over)?, Cores::new(self.cpus as f64))
    }

    /// The length below which this share of all periods are, `share` from 0 to 1: the upper end of the class that it falls
    /// into, its lower end in the last class. Nothing where the source does not know lengths.
    pub fn quantile(&self, share: f64) -> Option<Seconds> {
        let all: u64 = self.lengths.iter().map(|class| class.periods).sum();
        let wanted = (share.clamp(0.0, 1.0) * all as f64).ceil().max(1.0);
        let mut sum = 0.0;
        self.lengths
            .iter()
            .find(|class| {
                sum += class.periods as f64;
                sum >= wanted
            })
            .map(|class| class.to.unwrap_or(class.from))
    }

    /// The periods as a model takes them: each as long as its class's are in the mean.
    fn periods(&self) -> impl Iterator<Item = Periods> + '_ {
        let counted = self.lengths.iter().filter(|class| class.periods > 0);
        counted.map(|class| {
            // What of a period falls into this sample says nothing about how long it is.
            let mean = class.time / class.periods as f64;
            let to = class.to.unwrap_or(Seconds::new(f64::INFINITY));
            Periods {
                count: class.periods as f64,
                time: class.time,
                length: mean.clamp(class.from, to),
            }
        })
    }

    /// For each of these idle states how many CPUs would have been in it and how often it would have been entered, had each
    /// period been in the deepest state that it is long enough for ([`states_of`]). Estimated; nothing where the source does
    /// not know lengths.
    pub fn modelled_states(&self, states: &[IdleState]) -> Option<Reading<Vec<InState>>> {
        let lengths = !self.lengths.is_empty() && self.elapsed > Seconds::ZERO;
        lengths.then(|| Reading::new(states_of(states, self.periods(), self.elapsed), Source::Estimated))
    }

    /// What the idle cores and the packages of a machine with these figures would have drawn, as
    /// [`Self::modelled_states`] says, at the highest voltage, the energy of entering and leaving states included.
    pub fn modelled_power(&self, machine: &MachineFigures) -> Option<Reading<IdlePower>> {
        let lengths = !self.lengths.is_empty() && self.elapsed > Seconds::ZERO;
        lengths.then(|| {
            let power = idle_power_of(machine, self.periods(), self.elapsed, 1.0);
            Reading::new(power, Source::Estimated)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(from_us: f64, to_us: f64, periods: u64, time_s: f64) -> LengthClass {
        LengthClass {
            from: Seconds::from_micros(from_us),
            to: Some(Seconds::from_micros(to_us)),
            periods,
            time: Seconds::new(time_s),
        }
    }

    /// Two cores, one second.
    fn sample() -> PeriodSample {
        PeriodSample {
            source: PeriodSource::CpuIdle,
            elapsed: Seconds::new(1.0),
            cpus: 2,
            observed: Seconds::new(2.0),
            idle: Seconds::new(1.0),
            periods: Some(10_100),
            lengths: vec![class(40.0, 50.0, 10_000, 0.45), class(5000.0, 6000.0, 100, 0.55)],
            long: vec![LongIdle {
                over: Seconds::from_millis(1.0),
                time: Seconds::new(0.55),
            }],
        }
    }

    #[test]
    fn measures_are_of_the_threshold_asked_for_and_of_no_other() {
        let (sample, over) = (sample(), Seconds::from_millis(1.0));
        assert_eq!(sample.idle_share(), Some(Ratio::new(0.5)));
        assert_eq!(sample.long_idle_share(over), Some(Ratio::new(0.275)));
        // 0.55 / (1 + 1 / 2).
        let opportunity = sample.c6_opportunity(over).unwrap().get();
        assert!((opportunity - 0.55 / 1.5).abs() < 1e-12);
        assert_eq!(sample.long_idle_share(Seconds::from_millis(2.0)), None);
        assert_eq!(sample.quantile(0.5), Some(Seconds::from_micros(50.0)));
        assert_eq!(sample.quantile(1.0), Some(Seconds::from_micros(6000.0)));
    }

    #[test]
    fn periods_are_in_the_states_that_they_are_long_enough_for() {
        let machine = MachineFigures::broadwell(2);
        let states = sample().modelled_states(&machine.processor.idle_states).unwrap();
        assert_eq!(states.source, Source::Estimated);
        let cores: Vec<f64> = states.value.iter().map(|state| state.cores.get()).collect();
        assert_eq!(cores, [0.0, 0.45, 0.0, 0.55]);
        assert_eq!(states.value[3].entries.get(), 100.0);
        let power = sample().modelled_power(&machine).unwrap();
        assert!(power.value.cores.get() > 0.0);
    }

    #[test]
    fn a_period_that_mostly_fell_into_samples_before_is_as_long_as_its_class_says() {
        let mut sample = sample();
        sample.lengths = vec![class(5000.0, 6000.0, 1, 0.0001)];
        let states = MachineFigures::broadwell(2).processor.idle_states;
        let found = sample.modelled_states(&states).unwrap().value;
        assert_eq!(found[3].entries.get(), 1.0);
    }

    #[test]
    fn a_source_without_lengths_says_nothing_of_them() {
        let sample = PeriodSample {
            source: PeriodSource::ProcStat,
            periods: None,
            lengths: Vec::new(),
            long: Vec::new(),
            ..sample()
        };
        let machine = MachineFigures::broadwell(2);
        assert!(sample.modelled_states(&machine.processor.idle_states).is_none());
        assert!(sample.modelled_power(&machine).is_none());
        assert_eq!(sample.long_idle_share(Seconds::from_millis(1.0)), None);
        assert_eq!(sample.c6_opportunity(Seconds::from_millis(1.0)), None);
        assert_eq!((sample.mean_length(), sample.quantile(0.5)), (None, None));
        assert_eq!(sample.idle_share(), Some(Ratio::new(0.5)));
    }
}
