//! Whoever is to know at once that more requests are in flight than expected.
//!
//! Each core keeps the number of its requests on a cache line of its own, which nobody else writes. The bound is shared as a
//! number that seldom changes: its part for each core. More than the bound are in flight in all only if a core has more than
//! its part, so a request that arrives loads one number. Once a core has passed its part, each arrival adds up all cores' until
//! the next bound.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// No core ever has more.
const NEVER: u64 = u64::MAX;

/// With a neighbour, for processors fetch cache lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicU64);

#[derive(Debug)]
struct Armed {
    bound: u64,
    passed: oneshot::Sender<u64>,
}

/// The requests in flight of all cores, and the bound that is watched.
#[derive(Debug)]
pub(crate) struct Alarm {
    cores: Box<[Line]>,
    /// The bound's part for a core; 0 once a core has passed it; [`NEVER`] while nothing is watched.
    part: AtomicU64,
    /// The bound; [`NEVER`] while nothing is watched.
    bound: AtomicU64,
    armed: Mutex<Option<Armed>>,
}

impl Alarm {
    pub(crate) fn new(cores: usize) -> Self {
        Self {
            cores: (0..cores).map(|_| Line::default()).collect(),
            part: AtomicU64::new(NEVER),
            bound: AtomicU64::new(NEVER),
            armed: Mutex::new(None),
        }
    }

    fn armed(&self) -> MutexGuard<'_, Option<Armed>> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn in_flight(&self) -> u64 {
        self.cores.iter().map(|core| core.0.load(Relaxed)).sum()
    }

    /// A request of this core has arrived, and the core has so many now.
    #[inline]
    pub(crate) fn arrived(&self, core: usize, in_flight: u64) {
        self.cores[core].0.store(in_flight, Relaxed);
        if in_flight > self.part.load(Relaxed) {
            self.check();
        }
    }

    /// A request of this core has ended, and the core has so many now.
    #[inline]
    pub(crate) fn ended(&self, core: usize, in_flight: u64) {
        self.cores[core].0.store(in_flight, Relaxed);
    }

    /// The sum is over the bound only once for each watch: the lock is taken no more often than that, and when the bound
    /// changes.
    #[cold]
    fn check(&self) {
        let in_flight = self.in_flight();
        if in_flight <= self.bound.load(Relaxed) {
            // The request that passes the bound may come to a core that has less than its part.
            self.part.store(0, Relaxed);
            return;
        }
        let mut armed = self.armed();
        if let Some(passed) = armed.take_if(|armed| in_flight > armed.bound) {
            self.bound.store(NEVER, Relaxed);
            self.part.store(NEVER, Relaxed);
            // Whoever asked may have gone.
            let _ = passed.passed.send(in_flight);
        }
    }

    /// Watches this bound in the place of the one before, whose receiver then gets nothing.
    pub(crate) fn watch(&self, bound: u64) -> oneshot::Receiver<u64> {
        let (passed, receiver) = oneshot::channel();
        *self.armed() = Some(Armed { bound, passed });
        self.bound.store(bound, Relaxed);
        let part = bound / self.cores.len().max(1) as u64;
        self.part.store(part, Relaxed);
        // It may be passed already, or a core be over its part.
        if self.cores.iter().any(|core| core.0.load(Relaxed) > part) {
            self.check();
        }
        receiver
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rings_once_when_all_cores_together_have_more() {
        let alarm = Alarm::new(2);
        let mut passed = alarm.watch(5);
        alarm.arrived(0, 3);
        alarm.arrived(1, 2);
        assert!(passed.try_recv().is_err());
        alarm.arrived(0, 4);
        assert_eq!(passed.try_recv(), Ok(6));
        // Nothing is watched until the next bound.
        alarm.arrived(0, 40);
        let mut high = alarm.watch(100);
        assert!(high.try_recv().is_err());
        assert_eq!(alarm.watch(7).try_recv(), Ok(42));
        assert!(high.try_recv().is_err());
    }

    #[test]
    fn the_request_that_passes_the_bound_may_come_to_the_calmer_core() {
        let alarm = Alarm::new(2);
        let mut passed = alarm.watch(8);
        (1..=5).for_each(|count| alarm.arrived(0, count));
        (1..=3).for_each(|count| alarm.arrived(1, count));
        assert!(passed.try_recv().is_err());
        alarm.arrived(1, 4);
        assert_eq!(passed.try_recv(), Ok(9));
    }

    #[test]
    fn one_busy_core_is_no_alarm() {
        let alarm = Alarm::new(4);
        let mut passed = alarm.watch(10);
        alarm.arrived(2, 10);
        assert!(passed.try_recv().is_err());
        alarm.ended(2, 9);
        alarm.arrived(0, 1);
        alarm.arrived(2, 10);
        assert_eq!(passed.try_recv(), Ok(11));
    }
}
