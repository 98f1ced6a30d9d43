//! How much all the CPUs worked, from `/proc/stat`: the witness against a counter that stands still.

use crate::work::{CpuTicks, USER_HZ};
use crate::{Roots, file};
use std::path::PathBuf;

/// Reads the busy time of all CPUs together.
#[derive(Debug)]
pub(crate) struct CpuWork {
    path: PathBuf,
    before: Option<u64>,
}

impl CpuWork {
    /// Takes the first reading.
    pub(crate) fn open(roots: &Roots) -> Self {
        let mut work = Self {
            path: roots.proc_("stat"),
            before: None,
        };
        work.since();
        work
    }

    /// Core-seconds worked since the last call; nothing where it is not known.
    pub(crate) fn since(&mut self) -> Option<f64> {
        let now = file::read(&self.path).ok().and_then(|text| busy_ticks(&text));
        let before = std::mem::replace(&mut self.before, now);
        Some(now?.saturating_sub(before?) as f64 / USER_HZ)
    }
}

/// Of all CPUs; waiting for disks and what the hypervisor took are no work.
fn busy_ticks(text: &str) -> Option<u64> {
    Some(CpuTicks::of(text)?.busy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_waiting_and_stolen_time_is_no_work() {
        let text = "cpu  100 20 30 99999 55 4 6 77 0 0\ncpu0 1 2 3\n";
        assert_eq!(busy_ticks(text), Some(160));
        assert_eq!(busy_ticks("intr 5"), None);
        assert_eq!(busy_ticks("cpu  1 2"), None);
    }

    #[test]
    fn this_machine_works_while_a_thread_spins() {
        let mut work = CpuWork::open(&Roots::default());
        let until = std::time::Instant::now() + std::time::Duration::from_millis(200);
        while std::time::Instant::now() < until {
            std::hint::spin_loop();
        }
        assert!(work.since().unwrap() > 0.0);
    }

    #[test]
    fn without_the_file_nothing_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let mut work = CpuWork::open(&Roots::at(dir.path(), dir.path()));
        assert_eq!(work.since(), None);
    }
}
