//! Counts of programs from their start, by the running kernel.

use headroom_node::Roots;
use headroom_node::perf::{Counters, Counts, PerfError, TreeCounters};
use headroom_units::Seconds;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Set where this program is to be the threaded child.
const CHILD: &str = "HEADROOM_TEST_BUSY_THREADS";

/// Not a test by itself: two busy threads and one that sleeps, until killed or for ten seconds at most.
#[test]
fn busy_threads() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    println!("started");
    let until = Instant::now() + Duration::from_secs(10);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
            });
        }
    });
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn threaded_child() -> Killed {
    let this = std::env::current_exe().unwrap();
    let mut child = Command::new(this)
        .args(["--exact", "busy_threads", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("started")));
    Killed(child)
}

/// Nothing, with the reason, where the kernel does not count for us.
fn around<T: Send>(spawn: impl FnOnce() -> T + Send) -> Option<(Counters, T)> {
    match Counters::around(spawn) {
        Ok(counted) => Some(counted),
        Err(error @ PerfError::Refused { .. }) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]);
    command
}

fn counting(loops: u32) -> String {
    format!("i=0; while [ $i -lt {loops} ]; do i=$((i+1)); done")
}

fn counts_of(script: &str) -> Option<Counts> {
    let (mut counters, status) = around(|| shell(script).status().unwrap())?;
    assert!(status.success());
    for missing in counters.missing() {
        println!("{missing}");
    }
    Some(counters.read().unwrap())
}

fn burn(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

#[test]
fn nothing_of_the_spawner_is_counted() {
    let spawner = || {
        let mut counters = Counters::for_next_exec()?;
        burn(Duration::from_millis(200));
        let before = counters.read()?;
        shell("true").status().unwrap();
        burn(Duration::from_millis(200));
        Ok((before, counters.read()?))
    };
    let (before, after) = match spawner() {
        Ok(counts) => counts,
        Err(error @ PerfError::Refused { .. }) => return println!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    };
    if before.cpu_time.is_some() {
        assert_eq!(before.cpu_time, Some(Seconds::ZERO));
    }
    assert!(before.instructions.is_none_or(|count| count == 0), "{before:?}");
    assert!(
        before.context_switches.is_none_or(|count| count == 0),
        "{before:?}"
    );
    // A shell that does nothing takes less than the half of what the spawner burned.
    assert!(
        after
            .cpu_time
            .is_none_or(|time| time > Seconds::ZERO && time < Seconds::new(0.2)),
        "{after:?}"
    );
}

/// How much work counts say that there was, in instructions, and where the machine counts none in seconds on CPUs, of which a
/// busy machine takes more or less for the same.
fn work(counts: &Counts) -> Option<(f64, bool)> {
    let instructions = counts.instructions.map(|count| (count as f64, true));
    instructions.or_else(|| counts.cpu_time.map(|time| (time.get(), false)))
}

/// The ratio of the work is in the first range, or in the second where there are only times.
fn assert_ratio(one: &Counts, other: &Counts, exact: std::ops::Range<f64>, rough: std::ops::Range<f64>) {
    let (Some((one, is_exact)), Some((other, _))) = (work(one), work(other)) else {
        return println!("skipped: neither instructions nor CPU time are counted here");
    };
    let range = if is_exact { exact } else { rough };
    let ratio = other / one;
    assert!(
        range.contains(&ratio),
        "{one} and {other}: {ratio} is not in {range:?}"
    );
}

#[test]
fn four_times_the_work_has_four_times_the_instructions() {
    let (Some(once), Some(four)) = (counts_of(&counting(100_000)), counts_of(&counting(400_000))) else {
        return;
    };
    assert_ratio(&once, &four, 3.6..4.4, 1.5..12.0);
}

#[test]
fn processes_that_the_program_starts_later_are_counted_and_those_that_the_caller_does_are_not() {
    let Some(alone) = counts_of(&counting(100_000)) else {
        return;
    };
    let each = counting(100_000);
    let script = format!("sleep 0.05; (({each}) & ({each}) & wait)");
    let Some((mut counters, mut child)) = around(|| shell(&script).spawn().unwrap()) else {
        return;
    };
    // Of the caller, after the counters' thread has ended: ten times as much.
    assert!(shell(&counting(1_000_000)).status().unwrap().success());
    assert!(child.wait().unwrap().success());
    assert_ratio(&alone, &counters.read().unwrap(), 1.7..2.5, 0.7..6.0);
}

#[test]
fn threads_are_counted_while_they_run() {
    let Some((mut counters, child)) = around(threaded_child) else {
        return;
    };
    let mut tree = TreeCounters::open(&Roots::default(), child.0.id()).unwrap();
    let first = counters.read().unwrap();
    let deadline = Instant::now() + Duration::from_secs(8);
    let mut last = first;
    // Half a second on a CPU, however busy the machine is: neither thread has ended by then.
    while last
        .cpu_time
        .is_some_and(|time| time - first.cpu_time.unwrap() < Seconds::new(0.5))
    {
        assert!(Instant::now() < deadline, "{first:?} {last:?}");
        thread::sleep(Duration::from_millis(20));
        last = counters.read().unwrap();
    }
    let by_files = tree.read().unwrap();
    if let (Some(before), Some(after)) = (first.instructions, last.instructions) {
        assert!(after > before, "{first:?} {last:?}");
    }
    if let (Some(perf), Some(files)) = (last.cpu_time, by_files.cpu_time) {
        // The files have all since the fork, in ticks of 10 ms, and were read later.
        assert!((0.8..1.5).contains(&(files / perf)), "{last:?} {by_files:?}");
    }
    assert!(by_files.context_switches.is_some_and(|count| count > 0));
    assert_eq!(by_files.instructions, None);
    drop(child);
    // What was counted stays when they have ended.
    let ended = counters.read().unwrap();
    assert!(ended.cpu_time >= last.cpu_time, "{last:?} {ended:?}");
}

#[test]
fn a_program_that_sleeps_switches_and_one_that_does_not_hardly_does() {
    let sleeping = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 0.001; done";
    let (Some(sleeping), Some(quick)) = (counts_of(sleeping), counts_of("true")) else {
        return;
    };
    let (Some(many), Some(few)) = (sleeping.context_switches, quick.context_switches) else {
        return println!("skipped: context switches are not counted here");
    };
    assert!(many >= 20 && many > few, "{many} and {few}");
    assert!(sleeping.migrations.is_some());
}
