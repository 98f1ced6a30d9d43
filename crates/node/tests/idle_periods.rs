//! Idle periods of a CPU of the running kernel. Orders and shares only: what else the machine does is not ours to say.

use headroom_node::Roots;
use headroom_node::cpu::CpuList;
use headroom_node::idle::{IdleMeter, LengthClass, PeriodError, PeriodMeter, PeriodSample, PeriodSource};
use headroom_units::Seconds;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// The tests use the same CPU.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const OVER: Seconds = Seconds::from_millis(1.0);
/// With less than this share of the CPU idle while our program sleeps, others use it.
const MIN_IDLE: f64 = 0.1;

fn cpu() -> u32 {
    let allowed = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU as u32)
        .rev()
        .find(|cpu| allowed.is_set(*cpu as usize))
        .unwrap()
}

/// Nothing, with the reason, where this source is not to be had.
fn open(source: PeriodSource, cpu: u32) -> Option<PeriodMeter> {
    let cpus: CpuList = [cpu].into_iter().collect();
    match PeriodMeter::open_by(source, &Roots::default(), Some(&cpus), &[OVER]) {
        Ok(meter) => Some(meter),
        Err(error @ PeriodError::Refused { .. }) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Sleeps so long, again and again, on one CPU.
fn sleeper(cpu: u32, sleep: Duration, time: Duration) {
    thread::spawn(move || {
        let mut only = CpuSet::new();
        only.set(cpu as usize);
        sched_setaffinity(None, &only).unwrap();
        let until = Instant::now() + time;
        while Instant::now() < until {
            thread::sleep(sleep);
        }
    })
    .join()
    .unwrap();
}

fn while_sleeping(meter: &mut PeriodMeter, cpu: u32, sleep: Duration) -> PeriodSample {
    meter.sample().unwrap();
    sleeper(cpu, sleep, Duration::from_secs(1));
    meter.sample().unwrap()
}

/// The classes, which the kernel side finds by its own arithmetic, and the threshold, to which it compares, tell the same.
fn agree(sample: &PeriodSample) {
    let sum = |of: &dyn Fn(&LengthClass) -> bool| -> f64 {
        sample
            .lengths
            .iter()
            .filter(|class| of(class))
            .map(|class| class.time.get())
            .sum()
    };
    let (least, most) = (
        sum(&|class| class.from >= OVER),
        sum(&|class| class.to.is_none_or(|to| to > OVER)),
    );
    let long = sample.long[0].time.get();
    assert!(least - 1e-6 <= long && long <= most + 1e-6, "{sample:?}");
    for class in sample.lengths.iter().filter(|class| class.periods > 4) {
        // One may have begun before the sample and one last beyond it, of which only a part is in it.
        let mean = class.time.get() / (class.periods - 2) as f64;
        assert!(mean >= class.from.get() * 0.999, "{class:?}");
        let mean = class.time.get() / class.periods as f64;
        assert!(class.to.is_none_or(|to| mean <= to.get()), "{class:?}");
    }
}

fn longer_sleeps_are_longer_periods(source: PeriodSource) {
    let _one = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let cpu = cpu();
    let Some(mut meter) = open(source, cpu) else {
        return;
    };
    let long = while_sleeping(&mut meter, cpu, Duration::from_millis(5));
    let short = while_sleeping(&mut meter, cpu, Duration::from_micros(200));
    for sample in [&long, &short] {
        assert_eq!((sample.source, sample.cpus), (source, 1));
        assert!(sample.idle <= sample.observed, "{sample:?}");
        agree(sample);
        if sample.idle_share().unwrap().get() < MIN_IDLE {
            return println!("skipped: others kept CPU {cpu} busy");
        }
        assert!(sample.c6_opportunity(OVER).is_some());
    }
    let share = |sample: &PeriodSample| sample.long_idle_share(OVER).unwrap();
    assert!(share(&long) > share(&short), "{long:?} {short:?}");
    assert!(long.mean_length() > short.mean_length(), "{long:?} {short:?}");
}

#[test]
fn longer_sleeps_are_longer_periods_by_idle_states() {
    longer_sleeps_are_longer_periods(PeriodSource::CpuIdle);
}

#[test]
fn longer_sleeps_are_longer_periods_by_the_idle_task() {
    longer_sleeps_are_longer_periods(PeriodSource::SchedSwitch);
}

#[test]
fn readings_add_up_to_the_time_however_often_they_are_taken() {
    let _one = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let cpu = cpu();
    let (Some(mut often), Some(mut once)) =
        (open(PeriodSource::CpuIdle, cpu), open(PeriodSource::CpuIdle, cpu))
    else {
        return;
    };
    often.sample().unwrap();
    once.sample().unwrap();
    let (mut idle, mut observed) = (Seconds::ZERO, Seconds::ZERO);
    for _ in 0..200 {
        thread::sleep(Duration::from_millis(5));
        let sample = often.sample().unwrap();
        assert_eq!(sample.observed, sample.elapsed);
        idle += sample.idle;
        observed += sample.observed;
    }
    let whole = once.sample().unwrap();
    // Between the two meters' readings, and in each of the two hundred between the epoch and the time of the reading.
    let slack = Seconds::from_millis(20.0).max(whole.observed * 0.02);
    assert!(
        (observed - whole.observed).get().abs() < slack.get(),
        "{observed} {whole:?}"
    );
    assert!((idle - whole.idle).get().abs() < slack.get(), "{idle} {whole:?}");
}

#[test]
fn the_kernels_counters_of_idle_states_agree() {
    let _one = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let cpu = cpu();
    let cpus: CpuList = [cpu].into_iter().collect();
    let Some(mut counters) = IdleMeter::open_on(&Roots::default(), &cpus) else {
        return println!("skipped: this kernel has no counters of idle states");
    };
    let Some(mut meter) = open(PeriodSource::CpuIdle, cpu) else {
        return;
    };
    meter.sample().unwrap();
    counters.sample();
    sleeper(cpu, Duration::from_millis(1), Duration::from_secs(1));
    let (sample, counted) = (meter.sample().unwrap(), counters.sample().unwrap());
    let by_counters: f64 = counted.states.iter().map(|state| state.residency.get()).sum();
    let by_periods = sample.idle_share().unwrap().get();
    assert!((by_counters - by_periods).abs() < 0.05, "{counted:?} {sample:?}");
    // A core that polls before it halts enters two states in what is one stay for nobody but the kernel.
    let entries: f64 = counted
        .states
        .iter()
        .map(|state| state.entries.get() * counted.elapsed.get())
        .sum();
    let periods = sample.periods.unwrap() as f64;
    assert!(
        (entries - periods).abs() < 10.0 + 0.1 * periods,
        "{counted:?} {sample:?}"
    );
}

#[test]
fn the_best_source_is_taken_and_what_was_passed_over_has_a_reason() {
    let _one = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut meter = PeriodMeter::open(&Roots::default(), None, &[OVER]).unwrap();
    thread::sleep(Duration::from_millis(300));
    let sample = meter.sample().unwrap();
    let better = [
        PeriodSource::CpuIdle,
        PeriodSource::SchedSwitch,
        PeriodSource::StateCounters,
        PeriodSource::ProcStat,
    ]
    .into_iter()
    .take_while(|source| *source != sample.source);
    let passed_over: Vec<PeriodSource> = meter.passed_over().iter().map(|passed| passed.what).collect();
    assert_eq!(passed_over, better.collect::<Vec<_>>());
    assert!(meter.passed_over().iter().all(|passed| !passed.reason.is_empty()));
}
