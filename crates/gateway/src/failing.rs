//! Passive ejection of a backend that takes requests and fails them while others do not.
//!
//! A backend that answers 500 at once looks like the best one to whoever counts requests in flight. What tells is how often it fails
//! beside the others: where all fail it is the service that fails, and nothing is gained by passing one over. Each core counts what
//! became of its own exchanges, over 5 to 10 seconds, and looks at the counts when one fails; the state is the backend's, and all
//! cores'. Once it was passed over for a while, one request at a time shows whether it is back.
//!
//! Others eject after consecutive failures (Envoy's `consecutive_5xx` 5, HAProxy's `observe layer7` with `error-limit` 10), which a
//! backend that fails each second request never reaches; Envoy's `success_rate` compares as this does, of five hosts and more.
//!
//! Whether chance alone makes a backend's share of failures is asked again and again, of each backend, and mostly where it had a run of
//! failures just now: at a level that is right for a single question, ten backends that all fail 5 % would have one of them passed over
//! each minute. So the test is exact (failures are few, and a normal approximation is wrong by orders of magnitude in the tail), and its
//! level is what one wrong ejection in two days leaves for each question (Bonferroni): an outcome is counted for 5 s at least, so the questions
//! of a day are at most as many as the failures that are counted, of all backends, in each 5 s of it.

mod exact;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::backend::Backend;
use crate::config::{HealthConfig, ms};
use crate::ejection::Census;

/// Half of the window over which outcomes are counted.
const HALF: Duration = Duration::from_secs(5);

/// At most so often may a backend be passed over that fails no more than the others, by the level of the test. It is asked just when one
/// has failed, and answers yes the oftener for that: in fact it is once in one to three days, as simulated.
const WRONG_ONE_IN: Duration = Duration::from_secs(2 * 24 * 60 * 60);

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

    fn less(self, other: Self) -> Self {
        Self {
            all: self.all.saturating_sub(other.all),
            failed: self.failed.saturating_sub(other.failed),
        }
    }

    fn share(self) -> f64 {
        self.failed as f64 / self.all.max(1) as f64
    }

    /// Whether it fails clearly more often than the others: at least twice as often, and by so much that chance does not make it.
    fn stands_out(self, others: Self, config: &HealthConfig) -> bool {
        let least = f64::from(config.eject_failure_percent) / 100.0;
        let (own, theirs) = (self.share(), others.share());
        if self.failed < u64::from(config.eject_after_failures) || own < least || own < 2.0 * theirs {
            return false;
        }
        let questions = self.and(others).failed as f64;
        let level = HALF.as_secs_f64() / WRONG_ONE_IN.as_secs_f64() / questions;
        exact::chance_of(self.all, self.failed, others.all, others.failed) < level
    }
}

/// What one core saw of all backends. An exchange costs it an addition; the clock is read when one failed.
#[derive(Debug)]
pub(crate) struct Observed {
    before: Box<[Cell<Outcomes>]>,
    now: Box<[Cell<Outcomes>]>,
    /// What was counted of all others, in this half of a window and the last, before a backend had any exchange in it: they are compared over
    /// the same time.
    missed: Box<[Cell<Missed>]>,
    /// Exchanges with each that have not ended.
    open: Box<[Cell<usize>]>,
    since: Cell<Instant>,
}

/// What the others had done when a backend joined them.
#[derive(Debug, Clone, Copy, Default)]
struct Missed {
    before: Outcomes,
    now: Outcomes,
}

impl Observed {
    pub(crate) fn new(backends: usize) -> Self {
        let none = || (0..backends).map(|_| Cell::default()).collect();
        Self {
            before: none(),
            now: none(),
            missed: (0..backends).map(|_| Cell::default()).collect(),
            open: (0..backends).map(|_| Cell::default()).collect(),
            since: Cell::new(Instant::now()),
        }
    }

    /// A request was given to this backend.
    pub(crate) fn begun(&self, backend: usize) {
        let open = self.open[backend].get();
        if open == 0 && self.now[backend].get().all == 0 && self.before[backend].get().all == 0 {
            self.joins(backend);
        }
        self.open[backend].set(open + 1);
    }

    /// It is no longer busy with one.
    pub(crate) fn over(&self, backend: usize) {
        self.open[backend].set(self.open[backend].get().saturating_sub(1));
    }

    /// An exchange with this backend has ended so.
    pub(crate) fn ended(&self, backend: usize, failed: bool) {
        let mut now = self.now[backend].get();
        now.all += 1;
        now.failed += u64::from(failed);
        self.now[backend].set(now);
    }

    /// The backend has a request, and had none for a while: what the others did meanwhile is no measure of it.
    fn joins(&self, backend: usize) {
        let of_others = |counts: &[Cell<Outcomes>]| {
            let others = counts.iter().enumerate().filter(|(index, _)| *index != backend);
            others
                .map(|(_, outcomes)| outcomes.get())
                .fold(Outcomes::default(), Outcomes::and)
        };
        self.missed[backend].set(Missed {
            before: of_others(&self.before),
            now: of_others(&self.now),
        });
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
        let of_others = |counts: &[Cell<Outcomes>]| {
            let others =
                (0..backends.len()).filter(|index| *index != backend && backends[*index].is_in_service());
            others
                .map(|index| counts[index].get())
                .fold(Outcomes::default(), Outcomes::and)
        };
        let missed = self.missed[backend].get();
        let (before, now) = (self.before[backend].get(), self.now[backend].get());
        let mut others = of_others(&self.now).less(missed.now);
        // Of a half of the window in which it did nothing, what the others did is no measure.
        if before.all > 0 {
            others = others.and(of_others(&self.before).less(missed.before));
        }
        before.and(now).stands_out(others, config)
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
        for missed in &self.missed {
            let now = missed.get().now;
            missed.set(Missed {
                before: Outcomes {
                    all: now.all / halves,
                    failed: now.failed / halves,
                },
                now: Outcomes::default(),
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
            (outcomes(5, 5), outcomes(45, 0), true),
            (outcomes(4, 4), outcomes(400, 0), false),
            // All of its own and none of as many others': of 5 each, one in 252 by chance; of 11 each, one in 705,432.
            (outcomes(5, 5), outcomes(5, 0), false),
            (outcomes(11, 11), outcomes(11, 0), true),
            (outcomes(1_000, 1_000), outcomes(0, 0), false),
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
        (0..20).for_each(|_| observed.ended(0, true));
        assert!(
            !observed.stands_out(0, &backends, &config, later),
            "nothing is known of the other"
        );
        (0..20).for_each(|_| observed.ended(1, false));
        assert!(observed.stands_out(0, &backends, &config, later));
        observed.forget(0);
        assert!(!observed.stands_out(0, &backends, &config, later));
    }

    #[test]
    fn one_that_joins_is_compared_with_what_the_others_did_since() {
        let config = HealthConfig::default();
        let backends: Vec<_> = (1..=3)
            .map(|port| Arc::new(Backend::new(&BackendConfig::new(format!("http://h:{port}"))).unwrap()))
            .collect();
        for turned in [0, 1] {
            let observed = Observed::new(3);
            let start = observed.since.get();
            for _ in 0..1_000 {
                observed.ended(0, false);
                observed.ended(1, false);
            }
            // The third joins, and from then on all fail: it is the service that does.
            for failures in 0..100 {
                let at = start + Duration::from_millis(10 * failures) + turned * HALF;
                for backend in 0..3 {
                    observed.begun(backend);
                    observed.ended(backend, true);
                    observed.over(backend);
                    let stands_out = observed.stands_out(2, &backends, &config, at);
                    assert!(!stands_out, "after {failures} failures");
                }
            }
            // Where the others are well it is passed over as ever, also if all were asked before any had answered.
            let observed = Observed::new(3);
            (0..3).for_each(|backend| observed.begun(backend));
            for _ in 0..40 {
                observed.ended(0, false);
                observed.ended(1, false);
                observed.ended(2, true);
            }
            assert!(observed.stands_out(2, &backends, &config, start));
        }
    }

    /// Requests to backends in turn, at this rate, for so long; after how long, and how many failures of its own, the first of them was
    /// passed over, and how often any was.
    fn simulate(seed: u64, shares: &[f64], per_s: u32, seconds: u32) -> (Option<(f64, u32)>, u32) {
        let config = HealthConfig::default();
        let backends: Vec<_> = (1..=shares.len())
            .map(|port| Arc::new(Backend::new(&BackendConfig::new(format!("http://h:{port}"))).unwrap()))
            .collect();
        let observed = Observed::new(shares.len());
        let start = observed.since.get();
        let (mut ejections, mut first, mut failures) = (0, None, 0);
        // xorshift64 (Marsaglia 2003).
        let mut state = seed;
        for request in 0..per_s * seconds {
            let backend = request as usize % shares.len();
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let failed = ((state >> 11) as f64) < shares[backend] * (1_u64 << 53) as f64;
            observed.ended(backend, failed);
            if !failed {
                continue;
            }
            failures += u32::from(backend == 0);
            let after_s = f64::from(request) / f64::from(per_s);
            let at = start + Duration::from_secs_f64(after_s);
            if observed.stands_out(backend, &backends, &config, at) {
                observed.forget(backend);
                ejections += 1;
                if backend == 0 && first.is_none() {
                    first = Some((after_s, failures));
                }
            }
        }
        (first, ejections)
    }

    #[test]
    fn by_chance_hardly_one_is_passed_over_in_a_day() {
        let day_s = 24 * 60 * 60;
        for (share, per_s) in [(0.05, 500), (0.01, 100), (0.2, 100)] {
            let (_, ejections) = simulate(88_172_645_463_325_252, &[share; 10], per_s, day_s);
            assert!(
                ejections <= 1,
                "{ejections} of ten that fail {share}, at {per_s}/s"
            );
        }
    }

    #[test]
    fn who_fails_among_good_ones_is_soon_passed_over() {
        let mut bad = [0.0; 10];
        bad[0] = 1.0;
        let (first, ejections) = simulate(1, &bad, 100, 60);
        // Again and again, for here it is asked all the same.
        assert!(ejections > 1);
        assert_eq!(first.unwrap().1, 5);
        // Beside a single good one.
        let (first, _) = simulate(1, &bad[..2], 100, 60);
        assert!(first.unwrap().1 <= 12, "{first:?}");
        // One in ten, at 100 requests a second over ten of them: one failure a second.
        bad[0] = 0.1;
        let mut after_s: Vec<f64> = (1..=99)
            .map(|seed| {
                simulate(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed), &bad, 100, 60)
                    .0
                    .unwrap()
                    .0
            })
            .collect();
        after_s.sort_by(f64::total_cmp);
        assert!(after_s[49] < 10.0, "in half of the runs after {} s", after_s[49]);
        assert!(after_s[89] < 15.0, "in nine of ten after {} s", after_s[89]);
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
