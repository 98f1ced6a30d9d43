//! How much of the machine other programs used while a run lasted: what shares its processors is in its latencies.

use headroom_units::{Ratio, Seconds};
use std::fs;
use std::time::Instant;

/// From this share of the machine on, latencies are not those of the service alone.
const DISTURBING: Ratio = Ratio::new(0.05);

/// CPU time used by everything, and by some processes, at an instant.
#[derive(Clone, Debug)]
pub struct Used {
    at: Instant,
    all: Seconds,
    ours: Seconds,
}

impl Used {
    /// Until now, by everything and by these processes; `None` where the kernel does not say it of all of them.
    pub fn until_now(pids: &[u32]) -> Option<Self> {
        let tick = Seconds::new(1.0 / rustix::param::clock_ticks_per_second() as f64);
        let all = all_ticks(&fs::read_to_string("/proc/stat").ok()?)?;
        let ours = pids
            .iter()
            .map(|pid| process_ticks(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?))
            .sum::<Option<u64>>()?;
        Some(Self {
            at: Instant::now(),
            all: tick * all as f64,
            ours: tick * ours as f64,
        })
    }

    /// The share of the machine's processors that all but those processes used since `before`.
    pub fn by_others_since(&self, before: &Self, processors: f64) -> Ratio {
        let all = (self.all - before.all).get() - (self.ours - before.ours).get();
        let most = (self.at - before.at).as_secs_f64() * processors;
        Ratio::new((all / most.max(1e-9)).clamp(0.0, 1.0))
    }
}

/// That share in a sentence.
pub fn sentence(others: Ratio) -> String {
    let share = format!(
        "other programs used {:.0} % of this machine's processors meanwhile",
        others.as_percent()
    );
    if others >= DISTURBING {
        format!("{share}: the latencies are not those of the service alone")
    } else {
        share
    }
}

/// The first line of /proc/stat: user, nice and system time, and what the host gave to others (proc_stat(5)). Interrupts are
/// left out: those of our own traffic are among them.
fn all_ticks(text: &str) -> Option<u64> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = line
        .split_whitespace()
        .map(|field| field.parse().ok())
        .collect::<Option<_>>()?;
    Some(fields.get(..3)?.iter().sum::<u64>() + fields.get(7).copied().unwrap_or(0))
}

/// /proc/PID/stat: user and system time are its fields 14 and 15, those of its children that ended 16 and 17; the name, field 2, may hold anything but ends in the last
/// parenthesis (proc_pid_stat(5)).
fn process_ticks(text: &str) -> Option<u64> {
    let (_, after) = text.rsplit_once(')')?;
    let times: Option<Vec<u64>> = after
        .split_whitespace()
        .skip(11)
        .take(4)
        .map(|field| field.parse().ok())
        .collect();
    times
        .filter(|times| times.len() == 4)
        .map(|times| times.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_kernel_s_lines_are_understood() {
        let stat = "cpu  400 20 100 9000 7 0 30 50 0 0\ncpu0 200 10 50 4500 3 0 15 25 0 0\n";
        assert_eq!(all_ticks(stat), Some(570));
        assert_eq!(all_ticks("intr 1 2 3"), None);
        let stat = "17 (a) b (c) S 1 17 17 0 -1 4194560 5 0 0 0 31 11 3 2 20 0 4 0 100 0 0\n";
        assert_eq!(process_ticks(stat), Some(47));
        assert_eq!(process_ticks("17 (a) S 1"), None);
    }

    #[test]
    fn others_are_what_is_left_of_all() {
        let at = Instant::now();
        let used = |after_s: u64, all: f64, ours: f64| Used {
            at: at + Duration::from_secs(after_s),
            all: Seconds::new(all),
            ours: Seconds::new(ours),
        };
        let before = used(0, 100.0, 10.0);
        let share = used(10, 115.0, 19.0).by_others_since(&before, 2.0);
        assert!((share.get() - 0.3).abs() < 1e-9);
        assert!(
            sentence(share).starts_with("other programs used 30 % ") && sentence(share).contains("not those")
        );
        // Ticks are coarse: less than nothing is nothing.
        let none = used(10, 105.0, 16.0).by_others_since(&before, 2.0);
        assert_eq!(
            sentence(none),
            "other programs used 0 % of this machine's processors meanwhile"
        );
    }

    #[test]
    fn this_process_is_part_of_all() {
        let Some(used) = Used::until_now(&[std::process::id()]) else {
            println!("skipped: this machine's /proc does not say who used its processors");
            return;
        };
        assert!(used.ours <= used.all);
        assert!(Used::until_now(&[u32::MAX]).is_none());
    }
}
