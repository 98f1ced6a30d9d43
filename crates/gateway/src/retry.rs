//! How many requests may be sent again: a share of those that came, so that a service that fails is not sent its load twice.
//!
//! The rule is that of Finagle and Linkerd (`RetryBudget`): over a sliding window, a share of the requests, and a few a second so that
//! a service with little load can try again at all.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::config::RetryConfig;

/// Half of the window over which requests and retries are counted.
const HALF: Duration = Duration::from_secs(5);

/// What a half of the window held.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    requests: u64,
    retries: u64,
}

/// One core's budget. A request costs one addition; the clock is read when one is to be sent again.
#[derive(Debug)]
pub(crate) struct Budget {
    percent: u64,
    /// In a whole window, whatever comes.
    least: u64,
    before: Cell<Counts>,
    now: Cell<Counts>,
    since: Cell<Instant>,
}

impl Budget {
    /// This core's part of what all `cores` may.
    pub(crate) fn new(config: &RetryConfig, cores: usize) -> Self {
        let least = u64::from(config.budget_min_per_s) * (2 * HALF).as_secs();
        Self {
            percent: config.budget_percent.into(),
            least: least.div_ceil(cores.max(1) as u64),
            before: Cell::default(),
            now: Cell::default(),
            since: Cell::new(Instant::now()),
        }
    }

    /// A request came.
    pub(crate) fn request(&self) {
        let mut now = self.now.get();
        now.requests += 1;
        self.now.set(now);
    }

    /// Whether one may be sent again now; it is counted as sent.
    pub(crate) fn take(&self, at: Instant) -> bool {
        let halves = at.saturating_duration_since(self.since.get()).as_secs() / HALF.as_secs();
        // Nobody looked at the clock since: so many came in a half of a window on average.
        if let Some(requests) = self.now.get().requests.checked_div(halves) {
            let last = self.now.take();
            self.before.set(Counts {
                requests,
                retries: if halves == 1 { last.retries } else { 0 },
            });
            self.since.set(at);
        }
        let (before, mut now) = (self.before.get(), self.now.get());
        let allowed = self.least + (before.requests + now.requests) * self.percent / 100;
        let may = before.retries + now.retries < allowed;
        if may {
            now.retries += 1;
            self.now.set(now);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(percent: u32, min_per_s: u32) -> Budget {
        let config = RetryConfig {
            budget_percent: percent,
            budget_min_per_s: min_per_s,
            ..RetryConfig::default()
        };
        Budget::new(&config, 2)
    }

    fn taken(budget: &Budget, at: Instant) -> usize {
        (0..1_000).take_while(|_| budget.take(at)).count()
    }

    #[test]
    fn a_share_of_the_requests_and_a_few_a_second_may_be_sent_again() {
        let budget = budget(20, 10);
        let start = budget.since.get();
        assert_eq!(taken(&budget, start), 50, "half of ten a second for ten seconds");
        (0..500).for_each(|_| budget.request());
        assert_eq!(taken(&budget, start), 100);
        assert_eq!(taken(&budget, start + HALF), 0, "the half before still counts");
        assert_eq!(taken(&budget, start + 2 * HALF), 50);
    }

    #[test]
    fn of_a_long_time_the_average_counts() {
        let budget = budget(20, 0);
        let start = budget.since.get();
        (0..1_000).for_each(|_| budget.request());
        assert_eq!(taken(&budget, start + 20 * HALF), 10, "a fifth of fifty");
        (0..10).for_each(|_| budget.request());
        assert_eq!(taken(&budget, start + 20 * HALF), 2);
        assert_eq!(taken(&budget, start + 40 * HALF), 0);
    }
}
