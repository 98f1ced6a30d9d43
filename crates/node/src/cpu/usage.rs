//! What a group used and how it was throttled, as differences between samples on the monotonic clock.

use super::{CpuError, online};
use crate::Roots;
use crate::cgroup::{Target, UsageFile, Version};
use crate::file;
use headroom_units::{Cores, Seconds};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Instant;

/// What a group did since the sample before, and since the meter was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageSample {
    /// The length of the interval.
    pub elapsed: Seconds,
    /// CPU time used in the interval.
    pub used: Seconds,
    /// Cores busy on average in the interval.
    pub busy: Cores,
    /// CPU time used since the meter was opened; never falls.
    pub used_total: Seconds,
    /// Quota periods that passed in the interval (0 while there is no limit).
    pub periods: u64,
    /// Periods of them in which the group was throttled.
    pub throttled_periods: u64,
    /// Time for which its run queues were throttled in the interval, summed over CPUs.
    pub throttled: Seconds,
    /// How often, since the meter was opened, a counter went backwards or jumped beyond what the CPUs could have
    /// done, as when the group was made anew. Such a difference is discarded, not guessed.
    pub rebases: u64,
}

/// The raw counters of one reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Raw {
    used_ns: u64,
    periods: u64,
    throttled_periods: u64,
    throttled_ns: u64,
}

/// CPU time is accounted by ticks and in batches per CPU: up to this much beyond the interval is no nonsense.
const SLACK_NS: u64 = 100_000_000;

/// Reads what one group used.
#[derive(Debug)]
pub struct UsageMeter {
    usage: UsageFile,
    stat: PathBuf,
    stat_version: Version,
    counter: Counter,
    last_at: Instant,
}

impl UsageMeter {
    /// Takes the first reading; the first sample covers the time since.
    ///
    /// # Errors
    /// [`CpuError`]: nothing counts this group's CPU time, or the files cannot be read.
    pub fn open(roots: &Roots, target: &Target) -> Result<Self, CpuError> {
        let usage = target
            .usage
            .clone()
            .ok_or_else(|| CpuError::not_counted(roots, target))?;
        let cpus = online(roots)?.len() as u64;
        let stat = target.cpu_dir.join("cpu.stat");
        let (stat_version, last_at) = (target.version, Instant::now());
        let first = read(&usage, &stat, stat_version)?;
        Ok(Self {
            usage,
            stat,
            stat_version,
            counter: Counter::new(first, cpus),
            last_at,
        })
    }

    /// The difference to the sample before.
    ///
    /// # Errors
    /// [`CpuError`]: the group is gone or a file is not understood. The next sample covers this interval too.
    pub fn sample(&mut self) -> Result<UsageSample, CpuError> {
        let raw = read(&self.usage, &self.stat, self.stat_version)?;
        let now = Instant::now();
        let elapsed_ns = u64::try_from(now.duration_since(self.last_at).as_nanos()).unwrap_or(u64::MAX);
        self.last_at = now;
        Ok(self.counter.advance(raw, elapsed_ns))
    }
}

/// Differences between readings, without a clock of its own.
#[derive(Debug)]
struct Counter {
    last: Raw,
    cpus: u64,
    used_total_ns: u64,
    rebases: u64,
}

impl Counter {
    fn new(first: Raw, cpus: u64) -> Self {
        Self {
            last: first,
            cpus: cpus.max(1),
            used_total_ns: 0,
            rebases: 0,
        }
    }

    fn advance(&mut self, raw: Raw, elapsed_ns: u64) -> UsageSample {
        let last = std::mem::replace(&mut self.last, raw);
        let most_ns = elapsed_ns.saturating_add(SLACK_NS).saturating_mul(self.cpus);
        let used_ns = raw
            .used_ns
            .checked_sub(last.used_ns)
            .filter(|used| *used <= most_ns);
        let differences = (
            used_ns,
            raw.periods.checked_sub(last.periods),
            raw.throttled_periods.checked_sub(last.throttled_periods),
            raw.throttled_ns.checked_sub(last.throttled_ns),
        );
        let seconds = |ns: u64| Seconds::new(ns as f64 / 1e9);
        let elapsed = seconds(elapsed_ns);
        let (used_ns, periods, throttled_periods, throttled_ns) = match differences {
            (Some(used), Some(periods), Some(throttled_periods), Some(throttled)) => {
                (used, periods, throttled_periods, throttled)
            }
            _ => {
                self.rebases += 1;
                (0, 0, 0, 0)
            }
        };
        self.used_total_ns = self.used_total_ns.saturating_add(used_ns);
        let busy = if elapsed_ns == 0 {
            0.0
        } else {
            used_ns as f64 / elapsed_ns as f64
        };
        UsageSample {
            elapsed,
            used: seconds(used_ns),
            busy: Cores::new(busy),
            used_total: seconds(self.used_total_ns),
            periods,
            throttled_periods,
            throttled: seconds(throttled_ns),
            rebases: self.rebases,
        }
    }
}

fn read(usage: &UsageFile, stat: &std::path::Path, stat_version: Version) -> Result<Raw, CpuError> {
    let text = file::read(stat)?;
    let field = |name: &str| flat(&text, name);
    let throttled_ns = match stat_version {
        Version::V1 => field("throttled_time"),
        Version::V2 => field("throttled_usec").map(|us| us.saturating_mul(1_000)),
    };
    let used_ns = match usage {
        UsageFile::V1(path) => file::read_u64(path)?,
        UsageFile::V2(path) => {
            let own;
            let text = if path == stat {
                &text
            } else {
                own = file::read(path)?;
                &own
            };
            let expected = "a table with usage_usec";
            let us = flat(text, "usage_usec").ok_or_else(|| CpuError::Format {
                path: path.clone(),
                text: file::shorten(text),
                expected,
            })?;
            us.saturating_mul(1_000)
        }
    };
    // A kernel without bandwidth control, or a group without the controller, has no such lines: nothing throttles it.
    Ok(Raw {
        used_ns,
        periods: field("nr_periods").unwrap_or(0),
        throttled_periods: field("nr_throttled").unwrap_or(0),
        throttled_ns: throttled_ns.unwrap_or(0),
    })
}

/// A value of a flat-keyed file: one "name value" a line.
fn flat(text: &str, name: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn used(used_ns: u64) -> Raw {
        Raw {
            used_ns,
            ..Raw::default()
        }
    }

    #[test]
    fn differences_over_the_interval() {
        let mut counter = Counter::new(used(5 * SECOND), 2);
        let raw = Raw {
            used_ns: 6 * SECOND,
            periods: 100,
            throttled_periods: 25,
            throttled_ns: SECOND / 2,
        };
        let sample = counter.advance(raw, SECOND);
        assert_eq!(sample.busy, Cores::new(1.0));
        assert_eq!((sample.periods, sample.throttled_periods), (100, 25));
        assert_eq!(sample.throttled, Seconds::new(0.5));
        assert_eq!(sample.rebases, 0);
    }

    #[test]
    fn a_counter_that_goes_backwards_is_rebased_and_counted() {
        let mut counter = Counter::new(used(9 * SECOND), 2);
        let sample = counter.advance(used(SECOND), SECOND);
        assert_eq!((sample.used, sample.rebases), (Seconds::ZERO, 1));
        let sample = counter.advance(used(2 * SECOND), SECOND);
        assert_eq!((sample.used, sample.rebases), (Seconds::new(1.0), 1));
        assert_eq!(sample.used_total, Seconds::new(1.0));
    }

    #[test]
    fn more_time_than_the_cpus_have_is_discarded() {
        let mut counter = Counter::new(used(0), 2);
        assert_eq!(counter.advance(used(60 * SECOND), SECOND).rebases, 1);
        assert_eq!(counter.advance(used(62 * SECOND), SECOND).busy, Cores::new(2.0));
    }

    #[test]
    fn names_that_begin_alike_are_told_apart() {
        let text = "nr_throttled 3\nnr_throttledx 9\nthrottled_usec 12\nusage_usec 7";
        assert_eq!(flat(text, "throttled_usec"), Some(12));
        assert_eq!(flat(text, "nr_throttled"), Some(3));
        assert_eq!(flat(text, "throttled"), None);
    }

    proptest! {
        #[test]
        fn the_total_never_falls_and_never_exceeds_what_the_cpus_could_do(
            readings in proptest::collection::vec((any::<u64>(), 0u64..10 * SECOND), 1..60),
            cpus in 1u64..256,
        ) {
            let mut counter = Counter::new(used(readings[0].0), cpus);
            let (mut total, mut most) = (0.0, 0.0);
            for (raw, elapsed) in readings {
                let sample = counter.advance(used(raw), elapsed);
                most += (elapsed + SLACK_NS) as f64 / 1e9 * cpus as f64;
                prop_assert!(sample.used_total.get() >= total && sample.used_total.get() <= most * 1.000_001);
                total = sample.used_total.get();
            }
        }
    }
}
