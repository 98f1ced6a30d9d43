//! What all looks at accept queues together may cost.

use rustix::time::{ClockId, clock_gettime};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// So much may be used at once before looks come later: loading a program into the kernel takes a tenth of a second.
const BURST: Duration = Duration::from_millis(500);

/// Processor time, which comes back at a rate and is paid for afterwards: a debt makes the next look wait.
#[derive(Debug)]
pub(super) struct Budget {
    /// In a second.
    rate: Duration,
    /// When everything used until now is paid for. What is further ahead than [`BURST`] is a debt.
    paid_at: Mutex<Instant>,
}

impl Budget {
    pub(super) fn new(rate: Duration) -> Self {
        Self {
            rate: rate.max(Duration::from_micros(1)),
            paid_at: Mutex::new(Instant::now()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Instant> {
        self.paid_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the rate takes to bring so much back.
    fn time_of(&self, cost: Duration) -> Duration {
        Duration::from_secs_f64(cost.as_secs_f64() / self.rate.as_secs_f64())
    }

    /// When the next look may begin.
    pub(super) fn free_at(&self) -> Instant {
        let paid_at = *self.lock();
        paid_at.checked_sub(self.time_of(BURST)).unwrap_or(paid_at)
    }

    fn pay(&self, cost: Duration, now: Instant) {
        let mut paid_at = self.lock();
        *paid_at = (*paid_at).max(now) + self.time_of(cost);
    }

    /// Does something and pays for it: the processor time of this thread, or all the time that it took where other
    /// processes do the work.
    pub(super) fn charge<T>(&self, by_others: bool, act: impl FnOnce() -> T) -> T {
        let (began, used) = (Instant::now(), thread_time());
        let done = act();
        let cost = match by_others {
            true => began.elapsed(),
            false => thread_time().saturating_sub(used),
        };
        self.pay(cost, Instant::now());
        done
    }
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever each look costs, in a long time no more than the rate and the burst and one look is used.
        #[test]
        fn the_rate_is_kept(costs in proptest::collection::vec(1..200_000u64, 20..200), rate_ms in 1..500u64) {
            let rate = Duration::from_millis(rate_ms);
            let budget = Budget::new(rate);
            let start = Instant::now();
            let (mut now, mut used) = (start, Duration::ZERO);
            for cost in costs.into_iter().map(Duration::from_micros) {
                now = now.max(budget.free_at());
                budget.pay(cost, now);
                used += cost;
                let allowed = (now - start).as_secs_f64() * rate.as_secs_f64() + (BURST + cost).as_secs_f64();
                prop_assert!(used.as_secs_f64() <= allowed * 1.001 + 0.002, "{:?} of {} s", used, allowed);
            }
        }
    }

    #[test]
    fn what_others_do_is_charged_by_its_length() {
        let budget = Budget::new(Duration::from_millis(50));
        let before = budget.free_at();
        budget.charge(false, || std::thread::sleep(Duration::from_millis(30)));
        let asleep = budget.free_at();
        budget.charge(true, || std::thread::sleep(Duration::from_millis(30)));
        let by_others = budget.free_at();
        assert!(
            by_others - asleep >= Duration::from_millis(600),
            "{:?}",
            by_others - asleep
        );
        assert!(asleep - before < by_others - before);
    }
}
