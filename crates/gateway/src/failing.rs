//! Passive ejection of a backend that takes requests and fails them while others do not.
//!
//! A backend that answers 500 at once looks like the best one to whoever counts requests in flight. What tells is how often it fails
//! beside the others: where all fail it is the service that fails, and nothing is gained by passing one over. Each core counts what
//! became of its own exchanges, over 5 to 10 seconds, and looks at the counts when one fails; the state is the backend's, and all
//! cores'. Once it was passed over for a while, one request at a time shows whether it is back.
//!
//! Others eject after consecutive failures (Envoy's `consecutive_5xx` 5, HAProxy's `observe layer7` with `error-limit` 10), which a
//! backend that fails each second request never reaches; Envoy's `success_rate` compares as this does, of five hosts and more.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::backend::Backend;
use crate::config::{HealthConfig, ms};
use crate::ejection::Census;

/// Half of the window over which outcomes are counted.
const HALF: Duration = Duration::from_secs(5);

/// Outcomes of the others without which nothing is known of them.
const MIN_OTHERS: u64 = 5;

/// By how many standard errors of the difference a backend's share of failures must be above the others'.
const ERRORS_APART: f64 = 3.0;

/// An ejection is as long as the first one again after the backend was in service for so many times the last one.
const FORGOTTEN_AFTER: u64 = 10;

/// What became of exchanges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Outcomes {
    all: u64,
    failed: u64,
}

impl Outcomes {
    fn and(self, other: Self) -> Self {
        Self {
            all: self.all + other.all,
            failed: self.failed + other.failed,
        }
    }

    fn share(self) -> f64 {
        self.failed as f64 / self.all.max(1) as f64
    }

    /// Whether it fails clearly more often than the others: at least twice as often, and by so much that chance hardly makes it (two
    /// proportions, with the pooled standard error).
    fn stands_out(self, others: Self, config: &HealthConfig) -> bool {
        let least = f64::from(config.eject_failure_percent) / 100.0;
        let (own, theirs) = (self.share(), others.share());
        if self.failed < u64::from(config.eject_after_failures)
            || others.all < MIN_OTHERS
            || own < least
            || own < 2.0 * theirs
        {
            return false;
        }
        let pooled = self.and(others).share();
        let per_one = 1.0 / self.all as f64 + 1.0 / others.all as f64;
        own - theirs > ERRORS_APART * (pooled * (1.0 - pooled) * per_one).sqrt()
    }
}

/// What one core saw of all backends. An exchange costs it an addition; the clock is read when one failed.
#[derive(Debug)]
pub(crate) struct Observed {
    before: Box<[Cell<Outcomes>]>,
    now: Box<[Cell<Outcomes>]>,
    since: Cell<Instant>,
}

impl Observed {
    pub(crate) fn new(backends: usize) -> Self {
        let none = || (0..backends).map(|_| Cell::default()).collect();
        Self {
            before: none(),
            now: none(),
            since: Cell::new(Instant::now()),
        }
    }

    /// An exchange with this backend has ended.
    pub(crate) fn ended(&self, backend: usize, failed: bool) {
        let mut now = self.now[backend].get();
        now.all += 1;
        now.failed += u64::from(failed);
        self.now[backend].set(now);
    }

    /// Whether a backend whose exchange failed just now stands out among those in service.
    pub(crate) fn stands_out(
        &self,
        backend: usize,
        backends: &[Arc<Backend>],
        config: &HealthConfig,
        at: Instant,
    ) -> bool {
        if config.eject_after_failures == 0 {
            return false;
        }
        self.turn(at);
        let of = |index: usize| self.before[index].get().and(self.now[index].get());
        let others =
            (0..backends.len()).filter(|index| *index != backend && backends[*index].is_in_service());
        let others = others.map(of).fold(Outcomes::default(), Outcomes::and);
        of(backend).stands_out(others, config)
    }

    /// What was counted of a backend counts no more: it is passed over for it now.
    pub(crate) fn forget(&self, backend: usize) {
        self.before[backend].take();
        self.now[backend].take();
    }

    fn turn(&self, at: Instant) {
        let halves = at.saturating_duration_since(self.since.get()).as_secs() / HALF.as_secs();
        if halves == 0 {
            return;
        }
        for (before, now) in self.before.iter().zip(&self.now) {
            let last = now.take();
            // No failure made anybody look at the clock meanwhile: so many came in half a window on average.
            before.set(Outcomes {
                all: last.all / halves,
                failed: last.failed / halves,
            });
        }
        self.since.set(at);
    }
}

/// Whether one backend is passed over because it fails, shared by the cores through atomics alone.
#[derive(Debug)]
pub(crate) struct Failing {
    epoch: Instant,
    /// Milliseconds after `epoch` until which the backend is passed over; 0 while nothing is held against it.
    until_ms: AtomicU64,
    /// When it was last let back, as `until_ms`.
    back_ms: AtomicU64,
    /// How long it was last passed over.
    length_ms: AtomicU64,
    in_a_row: AtomicU32,
}

impl Failing {
    pub(crate) fn new() -> Self {
        Self {
            epoch: Instant::now(),
            until_ms: AtomicU64::new(0),
            back_ms: AtomicU64::new(0),
            length_ms: AtomicU64::new(0),
            in_a_row: AtomicU32::new(0),
        }
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether the backend is passed over now.
    pub(crate) fn is_ejected(&self) -> bool {
        let until_ms = self.until_ms.load(Relaxed);
        until_ms != 0 && self.elapsed_ms() < until_ms
    }

    /// What is left of it.
    pub(crate) fn left(&self) -> Option<Duration> {
        let left_ms = self.until_ms.load(Relaxed).saturating_sub(self.elapsed_ms());
        (left_ms > 0).then(|| ms(left_ms))
    }

    /// A request goes to the backend. Where an ejection has just run out it is the probe, and this is `true`: until its outcome is
    /// known, and for at most `patience`, others go on passing the backend over.
    pub(crate) fn begin(&self, patience: Duration) -> bool {
        let seen_ms = self.until_ms.load(Relaxed);
        if seen_ms == 0 {
            return false;
        }
        let now_ms = self.elapsed_ms();
        let patience_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        let until_ms = now_ms.saturating_add(patience_ms);
        now_ms >= seen_ms
            && self
                .until_ms
                .compare_exchange(seen_ms, until_ms, Relaxed, Relaxed)
                .is_ok()
    }

    /// The probe was answered well, or the control side lets the backend take requests again.
    pub(crate) fn lift(&self) {
        if self.until_ms.swap(0, Relaxed) != 0 {
            self.back_ms.store(self.elapsed_ms(), Relaxed);
        }
    }

    /// Passes the backend over for a while, longer each time that it was not in service for long since the last one; `false` where it
    /// is passed over already.
    pub(crate) fn eject(&self, config: &HealthConfig, probe: bool) -> bool {
        if config.ejection_ms == 0 || (!probe && self.is_ejected()) {
            return false;
        }
        let now_ms = self.elapsed_ms();
        let last_ms = self.length_ms.load(Relaxed);
        let since_ms = now_ms.saturating_sub(self.back_ms.load(Relaxed));
        if !probe && since_ms > last_ms.saturating_mul(FORGOTTEN_AFTER) {
            self.in_a_row.store(0, Relaxed);
        }
        let doublings = self.in_a_row.fetch_add(1, Relaxed).min(20);
        let length_ms = config
            .ejection_ms
            .saturating_mul(1 << doublings)
            .min(config.ejection_max_ms);
        self.length_ms.store(length_ms, Relaxed);
        self.until_ms
            .store(now_ms.saturating_add(length_ms).max(1), Relaxed);
        true
    }
}

/// Whether one more backend may be passed over because it fails.
pub(crate) fn may_eject(backend: usize, backends: &[Arc<Backend>], config: &HealthConfig) -> bool {
    Census::without(backend, backends).allows_one_more(config.max_ejection_percent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BackendConfig;

    fn outcomes(all: u64, failed: u64) -> Outcomes {
        Outcomes { all, failed }
    }

    #[test]
    fn what_fails_stands_out_only_beside_others_that_do_not() {
        let config = HealthConfig::default();
        for (own, others, stands_out) in [
            (outcomes(5, 5), outcomes(5, 0), true),
            (outcomes(4, 4), outcomes(100, 0), false),
            (outcomes(5, 5), outcomes(4, 0), false),
            (outcomes(50, 50), outcomes(50, 50), false),
            (outcomes(100, 40), outcomes(100, 30), false),
            (outcomes(200, 20), outcomes(200, 0), true),
            (outcomes(100, 20), outcomes(100, 12), false),
            // One in a hundred: to do without it costs more.
            (outcomes(10_000, 100), outcomes(10_000, 0), false),
        ] {
            assert_eq!(own.stands_out(others, &config), stands_out, "{own:?} {others:?}");
        }
    }

    #[test]
    fn only_what_was_seen_lately_counts() {
        let config = HealthConfig::default();
        let backends: Vec<_> = (1..=2)
            .map(|port| Arc::new(Backend::new(&BackendConfig::new(format!("http://h:{port}"))).unwrap()))
            .collect();
        let observed = Observed::new(2);
        let start = observed.since.get();
        for _ in 0..5_000 {
            observed.ended(0, false);
            observed.ended(1, false);
        }
        let later = start + 1_000 * HALF;
        assert!(!observed.stands_out(0, &backends, &config, later));
        (0..9).for_each(|_| observed.ended(0, true));
        assert!(
            !observed.stands_out(0, &backends, &config, later),
            "five others are needed"
        );
        (0..9).for_each(|_| observed.ended(1, false));
        assert!(observed.stands_out(0, &backends, &config, later));
        observed.forget(0);
        assert!(!observed.stands_out(0, &backends, &config, later));
    }

    #[test]
    fn one_request_shows_whether_it_is_back_and_each_failure_makes_it_longer() {
        let config = HealthConfig {
            ejection_ms: 1,
            ejection_max_ms: 40_000,
            ..HealthConfig::default()
        };
        let failing = Failing::new();
        assert!(
            !failing.begin(Duration::from_secs(60)),
            "nothing is held against it"
        );
        assert!(failing.eject(&config, false));
        while failing.is_ejected() {
            std::thread::yield_now();
        }
        assert!(failing.begin(Duration::from_secs(60)));
        assert!(
            failing.is_ejected() && !failing.begin(Duration::from_secs(60)),
            "one probe"
        );
        assert!(failing.eject(&config, true));
        assert_eq!(failing.length_ms.load(Relaxed), 2);
        for doubled in [4, 8] {
            assert!(failing.eject(&config, true));
            assert_eq!(failing.length_ms.load(Relaxed), doubled);
        }
        failing.lift();
        assert!(!failing.is_ejected());
        assert!(failing.eject(&config, false), "at once again: longer still");
        assert_eq!(failing.length_ms.load(Relaxed), 16);
        assert!(!failing.eject(&config, false), "it is away already");
    }
}
