//! Counts by the kernel's events.

use super::{CountSource, Counts, PerfError};
use headroom_units::{Ratio, Seconds};
use perf_event::events::{Event, Hardware, Software};
use perf_event::{Builder, CountAndTime, Counter};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::thread;

/// An event that is not counted, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The event, as `perf list` names it.
    pub event: String,
    /// Why, and what to do about it.
    pub why: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Their names are plurals but for the one that is a clock.
        let are = if self.event.ends_with('s') { "are" } else { "is" };
        write!(f, "{} {are} not counted: {}", self.event, self.why)
    }
}

/// Which part of what happens is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Also what the kernel does on the program's behalf.
    All,
    User,
}

/// An event that is open and counts nothing. While the kernel has none of a thread, opening the first one waits until all processors have seen
/// that there is one: some 10 ms. Whoever holds this has waited already, beside something else.
#[derive(Debug)]
pub struct Ahead {
    _event: Option<Counter>,
}

impl Ahead {
    /// Opens it. Where it may not be had, nothing is gained, and [`Counters`] says why.
    pub fn open() -> Self {
        let event = Builder::new(Software::DUMMY).build();
        Self { _event: event.ok() }
    }
}

/// Counts of the next program that is executed, and of all that it starts.
#[derive(Debug)]
pub struct Counters {
    instructions: Option<Counter>,
    user_only: bool,
    context_switches: Option<Counter>,
    cpu_time: Option<Counter>,
    migrations: Option<Counter>,
    missing: Vec<Missing>,
}

impl Counters {
    /// Opens the events for the next program that this thread spawns: spawn it from this thread, right away.
    ///
    /// Each further program that this thread spawns while these counters live is counted too; [`Self::around`] has no such
    /// condition.
    ///
    /// # Errors
    /// [`PerfError::Refused`]: not one of them may be counted. What of them may not is in [`Self::missing`].
    pub fn for_next_exec() -> Result<Self, PerfError> {
        let mut refused: Option<io::Error> = None;
        let mut missing = Vec::new();
        let mut open = |name: &str, builder: Result<(Counter, Scope), io::Error>| match builder {
            Ok((counter, scope)) => Some((counter, scope)),
            Err(error) => {
                missing.push(Missing {
                    event: name.into(),
                    why: format!("{error}; {}", remedy(&error)),
                });
                refused.get_or_insert(error);
                None
            }
        };
        let instructions = open("instructions", open_widest(Hardware::INSTRUCTIONS));
        // The kernel counts these in itself: without leave for that they would be zero.
        let context_switches = open(
            "context-switches",
            open_event(Software::CONTEXT_SWITCHES, Scope::All),
        );
        let migrations = open("cpu-migrations", open_event(Software::CPU_MIGRATIONS, Scope::All));
        let cpu_time = open("task-clock", open_widest(Software::TASK_CLOCK));
        if let (None, None, None, None, Some(cause)) =
            (&instructions, &context_switches, &migrations, &cpu_time, refused)
        {
            let remedy = remedy(&cause).to_owned();
            return Err(PerfError::Refused { cause, remedy });
        }
        Ok(Self {
            user_only: matches!(instructions, Some((_, Scope::User))),
            instructions: instructions.map(|(counter, _)| counter),
            context_switches: context_switches.map(|(counter, _)| counter),
            cpu_time: cpu_time.map(|(counter, _)| counter),
            migrations: migrations.map(|(counter, _)| counter),
            missing,
        })
    }

    /// Opens the events on a thread of its own, spawns the program there, and ends the thread: what the caller spawns later
    /// is not counted. A program that asks to be killed with its parent (`PR_SET_PDEATHSIG`) would be with that thread: for
    /// one, take [`Self::for_next_exec`].
    ///
    /// # Errors
    /// [`PerfError::Refused`], without a call of `spawn`; [`PerfError::Panicked`] where it panicked.
    pub fn around<T: Send>(spawn: impl FnOnce() -> T + Send) -> Result<(Self, T), PerfError> {
        thread::scope(|scope| {
            let spawner = scope.spawn(|| {
                let counters = Self::for_next_exec()?;
                match panic::catch_unwind(AssertUnwindSafe(spawn)) {
                    Ok(spawned) => Ok((counters, spawned)),
                    Err(cause) => Err(PerfError::Panicked { what: words(&cause) }),
                }
            });
            spawner
                .join()
                .unwrap_or_else(|cause| Err(PerfError::Panicked { what: words(&cause) }))
        })
    }

    /// What of [`Counts`] is not counted, and why.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// What has been counted since the program's start, of all its processes and threads, whether they have ended or not.
    ///
    /// # Errors
    /// [`PerfError::Read`].
    pub fn read(&mut self) -> Result<Counts, PerfError> {
        let instructions = read("instructions", self.instructions.as_mut())?;
        let cpu_time = read("task-clock", self.cpu_time.as_mut())?;
        Ok(Counts {
            source: CountSource::Perf,
            instructions: instructions.and_then(scaled),
            user_only: self.user_only,
            counted_share: instructions.and_then(share),
            context_switches: read("context-switches", self.context_switches.as_mut())?
                .map(|read| read.count),
            // Nanoseconds.
            cpu_time: cpu_time.map(|read| Seconds::new(read.count as f64 / 1e9)),
            migrations: read("cpu-migrations", self.migrations.as_mut())?.map(|read| read.count),
        })
    }
}

fn words(cause: &Box<dyn std::any::Any + Send>) -> String {
    let text = cause.downcast_ref::<&str>().copied();
    let text = text.or_else(|| cause.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it left no message").to_owned()
}

fn open_event(event: impl Event, scope: Scope) -> Result<(Counter, Scope), io::Error> {
    let mut builder = Builder::new(event);
    builder.inherit(true).enable_on_exec(true);
    if scope == Scope::All {
        builder.include_kernel().include_hv();
    }
    builder.build().map(|counter| (counter, scope))
}

/// With what the kernel does, where that is allowed.
fn open_widest(event: impl Event + Clone) -> Result<(Counter, Scope), io::Error> {
    match open_event(event.clone(), Scope::All) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => open_event(event, Scope::User),
        other => other,
    }
}

fn read(event: &'static str, counter: Option<&mut Counter>) -> Result<Option<CountAndTime>, PerfError> {
    counter
        .map(|counter| counter.read_count_and_time())
        .transpose()
        .map_err(|cause| PerfError::Read { event, cause })
}

/// What was counted, for all of the time. Nothing where it was never the event's turn on the processor's counters.
fn scaled(read: CountAndTime) -> Option<u64> {
    match (read.time_running, read.time_enabled) {
        (0, 0) => Some(read.count),
        (0, _) => None,
        (running, enabled) if running >= enabled => Some(read.count),
        (running, enabled) => {
            let scaled = u128::from(read.count) * u128::from(enabled) / u128::from(running);
            Some(u64::try_from(scaled).unwrap_or(u64::MAX))
        }
    }
}

/// The share of the time for which it was counted; nothing before the program has run.
fn share(read: CountAndTime) -> Option<Ratio> {
    (read.time_enabled > 0)
        .then(|| Ratio::new((read.time_running as f64 / read.time_enabled as f64).min(1.0)))
}

/// What helps where an event is refused.
fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ACCESS | Errno::PERM) => {
            "run as root or with CAP_PERFMON, or: sysctl kernel.perf_event_paranoid=1; in a container, its seccomp profile must \
             allow perf_event_open(2)"
        }
        Some(Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP) => {
            "this processor or virtual machine has no such counter: have the host pass its performance counters (vPMU) through"
        }
        Some(Errno::NOSYS) => {
            "use a kernel with CONFIG_PERF_EVENTS; in a container, its seccomp profile must allow it"
        }
        Some(Errno::MFILE | Errno::NFILE) => "raise the limit of open files (ulimit -n)",
        _ => "see perf_event_open(2)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::says;

    fn of(count: u64, time_enabled: u64, time_running: u64) -> CountAndTime {
        CountAndTime {
            count,
            time_enabled,
            time_running,
        }
    }

    #[test]
    fn a_shared_counter_is_scaled_and_one_that_never_had_its_turn_counts_nothing() {
        assert_eq!(scaled(of(100, 1000, 1000)), Some(100));
        assert_eq!(scaled(of(100, 1000, 250)), Some(400));
        assert_eq!(scaled(of(u64::MAX, 1000, 1)), Some(u64::MAX));
        assert_eq!(scaled(of(0, 1000, 0)), None);
        assert_eq!((scaled(of(0, 0, 0)), share(of(0, 0, 0))), (Some(0), None));
        assert_eq!(share(of(100, 1000, 250)), Some(Ratio::new(0.25)));
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let words = |errno: Errno| remedy(&errno.into());
        says(words(Errno::ACCESS), &["perf_event_paranoid", "seccomp"]);
        says(words(Errno::NOENT), &["virtual machine", "vPMU"]);
        says(words(Errno::NOSYS), &["CONFIG_PERF_EVENTS"]);
    }

    #[test]
    fn a_spawner_that_panics_is_an_error() {
        match Counters::around(|| panic!("no such server")) {
            Err(PerfError::Panicked { what }) => assert_eq!(what, "no such server"),
            Err(error @ PerfError::Refused { .. }) => println!("skipped: {error}"),
            other => panic!("{other:?}"),
        }
    }
}
