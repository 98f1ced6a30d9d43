//! What bounds the interval beside the lever and the SLA: the SLO's percentile, and what has been tried.
//!
//! The SLA of the paper is one on the mean response time. An SLO on a percentile is missed long before the mean reaches it, so that a law
//! that steers the mean to its target breaks it. While the percentile is kept without batches, an interval may take what is left to the
//! target and no more. Where it is missed without them, no interval causes that, and the law is free; so that it learns that the
//! percentile is kept again, it then looks now and then what it is without batches, as long as it is missed with them.
//!
//! Periods differ: a service may be slow for one second in twelve. So batches begin only once [`ENOUGH`] was seen without them, and then
//! the worst of the last [`REMEMBERED`] seconds counts, or periods where these are longer: of periods of which one in twelve is slow that
//! holds none with a probability of (11/12)^60, half a percent. For as long as that a bad period shortens the interval, and no longer;
//! but where the target is missed by a wait again after that was forgotten, twice the time between the two is remembered from then on, up
//! to [`REMEMBERED_MOST`] seconds, and half as much after each hour in which that was not so. A slow period that was over the target
//! without batches says nothing of what an interval may take; with batches they are put up with at twice the odds of those without, and one
//! in ten minutes.
//!
//! Batches may make slow periods better, which only trying them shows. A law that compares intervals by itself may try them where those without
//! leave no time, at the price of one second over the target that the wait alone makes so, and of one more in ten minutes or in what is
//! remembered where that is longer ([`Memory`]). While that is not spent, what was slow without batches bounds nothing. Where the law then
//! believes that it is batches that make the percentile shorter ([`Keep::ease`]), periods with them that miss the target are put up with as
//! far as that belief reaches: at twice the odds of those without, and one in ten minutes.

mod memory;
mod without;

use headroom_units::Seconds;
use memory::Memory;
use std::collections::VecDeque;
use without::Without;

/// The share of the target that the percentile is to reach at most: periods differ.
pub(super) const KEPT: f64 = 0.95;
/// Seconds, or periods where these are longer, of which the worst counts.
const REMEMBERED: f64 = 60.0;
/// The most that it may come to.
const REMEMBERED_MOST: f64 = 3_600.0;
/// The same without batches before there are any: one period in twelve is among them with 96 %. And when it is looked at again.
const ENOUGH: f64 = 36.0;
const ENOUGH_AGAIN: f64 = 12.0;
/// Seconds, or periods where these are longer, of which one may be missed by more than the wait, whatever is without batches.
const ONE_IN: f64 = 600.0;
/// Seconds, or periods where these are longer, that may be over the target by the wait alone, where none are without batches.
const BY_WAIT: f64 = 0.5;
/// By so many intervals the percentile of a live gateway grew at most.
const GROWTH: f64 = 4.0;
/// A percentile beyond so many targets is as bad as this: that of failed requests is no number to reckon with.
pub(super) const WORST: f64 = 10.0;
/// Seconds, or periods where these are longer, after which it is looked at again, where the law is free and the percentile is missed.
const LOOKS_AGAIN: f64 = 120.0;
/// The factor by which an interval may exceed the longest that was in force.
const BEYOND: f64 = 1.25;
/// The least that it may exceed it by, as a share of the range.
const LEAST_BEYOND: f64 = 1.0 / 32.0;
/// Intervals that differ by less, in seconds, are the same.
const SAME_S: f64 = 1e-4;

/// What bounds an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Nothing but the range.
    Range,
    /// More than what was tried.
    Untried,
    /// The percentile would be missed.
    Slo,
    /// The percentile without batches is not known, or not any more.
    Looks,
}

impl Why {
    /// In words, after what is asked for.
    pub(super) fn words(self, limit: Seconds) -> String {
        match self {
            Self::Range => String::new(),
            Self::Untried => format!("; no more than {:.0} ms before more was tried", limit.as_millis()),
            Self::Slo => format!("; no more than {:.0} ms, to keep the SLO", limit.as_millis()),
            Self::Looks => "; none, to see whether the SLO is kept without batches".to_owned(),
        }
    }
}

/// What of a period bounds an interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Its length.
    pub(super) length: Seconds,
    /// The interval in force.
    pub(super) interval: Seconds,
    /// The mean response time.
    pub(super) mean: Seconds,
    /// The SLO's percentile.
    pub(super) at_slo: Seconds,
    /// Whether what it leaves to the target bounds the interval.
    pub(super) bounds: bool,
}

/// What some periods, a second together or one that is longer, allow.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    weight: f64,
    /// The longest interval by those that are missed by nothing but the wait.
    limit: f64,
    /// The same by those with batches alone; not shorter than theirs where they kept the target.
    with: f64,
}

impl Bucket {
    const EMPTY: Self = Self {
        weight: 0.0,
        limit: f64::INFINITY,
        with: f64::INFINITY,
    };
}

/// The bounds that are learned.
#[derive(Clone, Debug)]
pub(super) struct Keep {
    target: f64,
    none: f64,
    most: f64,
    is_bound: bool,
    /// Whether batches may be tried that periods without them leave no time for.
    tries: bool,
    buckets: VecDeque<Bucket>,
    memory: Memory,
    without: Without,
    /// Whether it is believed that slow periods would be slower still without batches.
    is_eased: bool,
    /// The longest interval in force up to now.
    tried: f64,
    /// The interval in force, that before it, and seconds since it changed.
    in_force: (f64, f64, f64),
    /// The mean response time of the last period; while a change settles, the longest since.
    response: f64,
}

impl Keep {
    /// For an SLO on a percentile and intervals in this range, of which those up to `tried` may be asked for at once. Where the SLO does
    /// not bind, what has been tried alone bounds the interval.
    pub(super) fn new(target: Seconds, range: (Seconds, Seconds), tried: Seconds, is_bound: bool) -> Self {
        let none = range.0.get();
        Self {
            target: target.get(),
            none,
            most: range.1.get(),
            is_bound,
            tries: false,
            buckets: VecDeque::from([Bucket::EMPTY]),
            memory: Memory::default(),
            without: Without::default(),
            is_eased: false,
            tried: tried.get(),
            in_force: (none, none, f64::INFINITY),
            response: 0.0,
        }
    }

    /// For a law that goes from one interval to another by itself and tries what periods without batches leave no time for: what bounds is said
    /// period by period, and nothing else does.
    pub(super) fn of_slow_periods(target: Seconds, range: (Seconds, Seconds)) -> Self {
        Self {
            tries: true,
            ..Self::new(target, range, range.1, true)
        }
    }

    /// Learns from a period.
    pub(super) fn observe(&mut self, seen: Seen) {
        let (interval, length) = (seen.interval.get(), seen.length.get());
        if !(interval.is_finite() && length > 0.0 && length.is_finite()) {
            return;
        }
        self.tried = self.tried.max(interval.min(self.most));
        let (now, before, since) = self.in_force;
        self.in_force = match (interval - now).abs() <= SAME_S {
            true => (now, before, since + length),
            // Of several changes that are not settled the shortest counts.
            false if since < 2.0 * self.response => (interval, now.min(before), 0.0),
            false => (interval, now, 0.0),
        };
        // What was held before a change is answered until two responses later.
        let slowest = self.response.max(seen.mean.get());
        let is_settled = self.in_force.2 >= 2.0 * slowest;
        self.response = if is_settled { seen.mean.get() } else { slowest };
        let held = match is_settled {
            true => interval,
            false => interval.min(self.in_force.1),
        };
        self.push(held, is_settled, &seen);
    }

    fn push(&mut self, held: f64, is_settled: bool, seen: &Seen) {
        let weight = seen.length.get().min(1.0);
        let at_slo = seen.at_slo.get().min(WORST * self.target);
        if self.buckets.back().is_none_or(|last| last.weight > 1.0 - 1e-6) {
            let longest = self.memory.length() as usize;
            while self.buckets.len() >= longest {
                self.buckets.pop_front();
            }
            self.buckets.push_back(Bucket::EMPTY);
        }
        let may_try = self.tries();
        let Some(bucket) = self.buckets.back_mut() else {
            return;
        };
        bucket.weight += weight;
        let (is_missed, limit) = (at_slo > self.target, held + KEPT * self.target - at_slo);
        let is_without = is_settled && held <= self.none + SAME_S;
        let is_eased = self.is_eased && seen.interval.get() > self.none + SAME_S;
        let is_failure = at_slo >= WORST * self.target;
        if is_without {
            self.without.observe(weight, is_missed);
        } else {
            self.without.pass(weight, is_missed);
        }
        let is_by_wait = at_slo - held <= self.target;
        // What was not held yet is not late by that; but some of it was, and for longer than an interval where it was overtaken.
        let waits = seen.interval.get() - self.none;
        let begins = !is_settled && waits > SAME_S && held <= self.none + SAME_S;
        let is_early = begins && at_slo - GROWTH * waits > self.target;
        // Whether that is more than without is what is being looked at.
        let begins_look = waits <= SAME_S && !self.without.is_known();
        let caused = match () {
            () if is_missed && (is_without || is_early || begins_look) || !(seen.bounds || is_missed) => None,
            () if is_failure || is_by_wait && seen.bounds && !is_eased && !(is_missed && may_try) => {
                bucket.limit = bucket.limit.min(limit);
                if is_missed || is_settled && !is_without {
                    // One that is near the target is no reason for a shorter one than was in force.
                    let with = if is_missed { limit } else { limit.max(held) };
                    bucket.with = bucket.with.min(with);
                }
                is_missed.then_some(weight)
            }
            // What is over the target for another reason than a wait is put up with as often as without batches; more of it they cause. And so is
            // what is near it and is over it by the wait, or is still under way when there is none any more.
            () if is_missed => {
                let is_after = waits <= SAME_S;
                let allowed = if (is_by_wait || is_after) && !is_eased {
                    BY_WAIT
                } else {
                    1.0
                };
                let caused = self.without.exceeds(weight, allowed);
                if caused.is_some() {
                    (bucket.limit, bucket.with) = (bucket.limit.min(limit), bucket.with.min(limit));
                }
                caused
            }
            () => None,
        };
        self.memory.observe(weight, caused);
        if self.without.is_old(LOOKS_AGAIN.max(8.0 * self.response)) {
            self.without.look_again();
        }
    }

    /// Whether the target is mostly missed without batches.
    pub(super) fn is_free(&self) -> bool {
        self.without.is_free()
    }

    /// The load is another than that at which it was seen what is missed without batches, and so what batches are not the cause of.
    pub(super) fn forget_without(&mut self) {
        self.without.forget();
    }

    /// Whether it is believed that slow periods would be slower still without batches: then what they leave to the target bounds nothing, but
    /// for what is put up with.
    pub(super) fn ease(&mut self, is_eased: bool) {
        if is_eased && !self.is_eased {
            for bucket in &mut self.buckets {
                bucket.with = Bucket::EMPTY.with;
            }
        }
        self.is_eased = is_eased;
    }

    /// Whether batches may be tried that periods without them leave no time for.
    pub(super) fn tries(&self) -> bool {
        self.tries && self.memory.tries_in() <= 0.0
    }

    /// Seconds, or periods where these are longer, until they may be.
    pub(super) fn tries_in(&self) -> Seconds {
        Seconds::new(self.memory.tries_in())
    }

    /// What the SLO leaves by the worst that is remembered.
    fn kept(&self) -> f64 {
        let least = |of: fn(&Bucket) -> f64| self.buckets.iter().map(of).fold(f64::INFINITY, f64::min);
        match self.is_eased || self.tries() {
            true => least(|one| one.with),
            false => least(|one| one.limit),
        }
    }

    /// The longest interval with which what was seen keeps the SLO, whatever else is to be seen; the longest of all where nothing bounds it.
    pub(super) fn slow_limit(&self) -> Seconds {
        Seconds::new(match self.is_bound && !self.is_free() {
            true => self.kept().clamp(self.none, self.most),
            false => self.most,
        })
    }

    /// Whether nothing is asked for but to see what is without batches.
    pub(super) fn looks(&self) -> bool {
        self.is_bound && !self.without.is_known()
    }

    /// The same, once more while there are batches.
    pub(super) fn looks_again(&self) -> bool {
        self.is_bound && self.without.looks_again()
    }

    /// The longest interval that may be asked for, and what bounds it.
    pub(super) fn limit(&self) -> (Seconds, Why) {
        let least = LEAST_BEYOND * (self.most - self.none);
        let beyond = (self.tried * BEYOND).max(self.tried + least);
        let (mut limit, mut why) = match beyond < self.most {
            true => (beyond, Why::Untried),
            false => (self.most, Why::Range),
        };
        if self.looks() {
            (limit, why) = (self.none, Why::Looks);
        } else if self.slow_limit().get() < limit {
            (limit, why) = (self.slow_limit().get(), Why::Slo);
        }
        (Seconds::new(limit), why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Seen = Seen {
        length: Seconds::new(1.0),
        interval: Seconds::ZERO,
        mean: Seconds::ZERO,
        at_slo: Seconds::ZERO,
        bounds: true,
    };

    /// For a target of 800 ms and intervals up to 400 ms, of which 200 may be asked for at once.
    fn keep() -> Keep {
        let range = (Seconds::ZERO, Seconds::from_millis(400.0));
        Keep::new(
            Seconds::from_millis(800.0),
            range,
            Seconds::from_millis(200.0),
            true,
        )
    }

    fn observe(keep: &mut Keep, interval_ms: f64, at_slo_ms: f64) {
        keep.observe(Seen {
            interval: Seconds::from_millis(interval_ms),
            at_slo: Seconds::from_millis(at_slo_ms),
            ..PERIOD
        });
    }

    fn after(keep: &mut Keep, periods: usize, interval_ms: f64, at_slo_ms: f64) -> (f64, Why) {
        (0..periods).for_each(|_| observe(keep, interval_ms, at_slo_ms));
        let (limit, why) = keep.limit();
        (limit.as_millis().round(), why)
    }

    #[test]
    fn an_interval_takes_what_is_left_to_the_target_and_no_more() {
        let mut keep = keep();
        assert_eq!(keep.limit(), (Seconds::ZERO, Why::Looks));
        assert_eq!(after(&mut keep, 35, 0.0, 600.0), (0.0, Why::Looks));
        // 760 ms may be reached.
        assert_eq!(after(&mut keep, 1, 0.0, 600.0), (160.0, Why::Slo));
        assert_eq!(after(&mut keep, 1, 150.0, 700.0), (160.0, Why::Slo));
        assert_eq!(after(&mut keep, 1, 150.0, 800.0), (110.0, Why::Slo));
        // The worst of the last minute.
        assert_eq!(after(&mut keep, 59, 100.0, 400.0), (110.0, Why::Slo));
        assert_eq!(after(&mut keep, 1, 100.0, 400.0), (250.0, Why::Untried));
        // Failures are no latency.
        assert_eq!(after(&mut keep, 1, 100.0, f64::INFINITY), (0.0, Why::Slo));
    }

    #[test]
    fn slow_periods_bound_an_interval_also_while_it_is_to_be_seen_what_is_without() {
        let mut keep = keep();
        after(&mut keep, 36, 0.0, 600.0);
        assert_eq!(after(&mut keep, 1, 150.0, 800.0), (110.0, Why::Slo));
        keep.forget_without();
        assert_eq!(keep.limit(), (Seconds::ZERO, Why::Looks));
        assert_eq!(keep.slow_limit().as_millis().round(), 110.0);
    }

    #[test]
    fn a_slow_period_in_twelve_is_not_forgotten_between_two_and_a_single_one_is() {
        let mut keep = keep();
        after(&mut keep, 36, 0.0, 300.0);
        for period in 0..600 {
            let is_slow = period % 12 == 11;
            let at_slo = if is_slow { 700.0 } else { 300.0 };
            observe(&mut keep, 0.0, at_slo);
            if period >= 11 {
                let (limit, why) = keep.limit();
                assert_eq!((limit.as_millis().round(), why), (60.0, Why::Slo), "{period}");
            }
        }
        assert_eq!(after(&mut keep, 58, 0.0, 300.0).0, 60.0);
        assert_eq!(after(&mut keep, 2, 0.0, 300.0).0, 250.0);
    }

    #[test]
    fn what_was_missed_without_batches_now_and_then_is_put_up_with_as_often_with_them() {
        let slow = |keep: &mut Keep, interval_ms: f64, every: usize| {
            for period in 0..120 {
                let at_slo = if period % every == 0 { 1_500.0 } else { 300.0 };
                observe(keep, interval_ms, at_slo + interval_ms);
            }
            keep.limit()
        };
        let mut keep = keep();
        assert_eq!(slow(&mut keep, 0.0, 12).1, Why::Untried);
        assert_eq!(slow(&mut keep, 200.0, 12).1, Why::Untried);
        // More than twice as often: batches do it.
        assert_eq!(slow(&mut keep, 200.0, 3), (Seconds::ZERO, Why::Slo));
        // A single one that would have been missed without a wait too is no reason to have none.
        let mut keep = self::keep();
        after(&mut keep, 36, 0.0, 300.0);
        assert_eq!(after(&mut keep, 1, 100.0, 1_500.0).1, Why::Untried);
        assert_eq!(after(&mut keep, 1, 100.0, 1_500.0), (0.0, Why::Slo));
    }

    #[test]
    fn shorter_periods_are_remembered_for_as_long() {
        let mut keep = keep();
        let mut after = |seconds: usize, at_slo_ms: f64| {
            for _ in 0..10 * seconds {
                keep.observe(Seen {
                    length: Seconds::new(0.1),
                    at_slo: Seconds::from_millis(at_slo_ms),
                    ..PERIOD
                });
            }
            keep.limit().0.as_millis().round()
        };
        assert_eq!(after(35, 300.0), 0.0);
        assert_eq!(after(2, 700.0), 60.0);
        assert_eq!(after(50, 300.0), 60.0);
        assert_eq!(after(11, 300.0), 250.0);
    }

    #[test]
    fn what_is_missed_without_batches_is_no_reason_to_have_none() {
        let mut keep = keep();
        assert_eq!(after(&mut keep, 36, 0.0, 1_200.0), (250.0, Why::Untried));
        assert_eq!(after(&mut keep, 119, 240.0, 1_000.0), (300.0, Why::Untried));
        // It looks again.
        assert_eq!(after(&mut keep, 1, 240.0, 1_000.0), (0.0, Why::Looks));
        assert_eq!(after(&mut keep, 11, 0.0, 500.0), (0.0, Why::Looks));
        assert_eq!(after(&mut keep, 60, 0.0, 500.0), (260.0, Why::Slo));
        // While batches mend what is missed without them, there is nothing to look for.
        let mut keep = self::keep();
        after(&mut keep, 36, 0.0, 1_200.0);
        assert_eq!(after(&mut keep, 600, 240.0, 500.0).1, Why::Untried);
    }

    #[test]
    fn a_period_of_failures_without_batches_does_not_free_the_law() {
        let mut keep = keep();
        after(&mut keep, 36, 0.0, 600.0);
        assert_eq!(
            after(&mut keep, 1, 0.0, f64::INFINITY),
            (160.0, Why::Slo),
            "batches did not cause it"
        );
        assert_eq!(after(&mut keep, 20, 0.0, 600.0), (160.0, Why::Slo));
    }

    #[test]
    fn a_response_is_judged_by_the_interval_that_held_it() {
        let mut keep = keep();
        let mut observe = |interval_ms: f64, at_slo_ms: f64| {
            keep.observe(Seen {
                interval: Seconds::from_millis(interval_ms),
                mean: Seconds::new(3.0),
                at_slo: Seconds::from_millis(at_slo_ms),
                ..PERIOD
            });
            keep.limit().0.as_millis().round()
        };
        (0..36).for_each(|_| {
            observe(0.0, 600.0);
        });
        // For six periods what is answered was held by none.
        for _ in 0..6 {
            assert_eq!(observe(150.0, 600.0), 160.0);
        }
        assert_eq!(observe(150.0, 900.0), 10.0);
    }

    /// For a law that looks at none by itself, after a minute without batches of which the last second was at 790 ms.
    fn of_slow_periods() -> Keep {
        let range = (Seconds::ZERO, Seconds::from_millis(400.0));
        let mut keep = Keep::of_slow_periods(Seconds::from_millis(800.0), range);
        (0..59).for_each(|_| observe(&mut keep, 0.0, 300.0));
        observe(&mut keep, 0.0, 790.0);
        keep
    }

    fn left_ms(keep: &Keep) -> f64 {
        keep.slow_limit().as_millis().round()
    }

    #[test]
    fn what_slow_periods_leave_no_time_for_is_tried_until_a_second_is_missed_by_it_in_ten_minutes() {
        let mut keep = of_slow_periods();
        assert_eq!(left_ms(&keep), 400.0);
        observe(&mut keep, 100.0, 780.0);
        assert_eq!(
            left_ms(&keep),
            100.0,
            "near the target: no reason for less, and none for more"
        );
        observe(&mut keep, 100.0, 830.0);
        assert_eq!(left_ms(&keep), 0.0);
        // What the slow periods left is forgotten after a minute, and then bounds again.
        (0..60).for_each(|_| observe(&mut keep, 0.0, 300.0));
        assert_eq!(left_ms(&keep), 400.0);
        observe(&mut keep, 0.0, 720.0);
        assert_eq!(left_ms(&keep), 40.0);
        (0..537).for_each(|_| observe(&mut keep, 0.0, 300.0));
        observe(&mut keep, 0.0, 720.0);
        assert_eq!(left_ms(&keep), 40.0);
        observe(&mut keep, 0.0, 300.0);
        assert_eq!(left_ms(&keep), 400.0, "after ten minutes it may be tried again");
    }

    #[test]
    fn where_batches_are_believed_to_ease_it_what_they_miss_is_put_up_with_as_often_as_without() {
        let mut keep = of_slow_periods();
        observe(&mut keep, 100.0, 780.0);
        keep.ease(true);
        assert_eq!(left_ms(&keep), 400.0);
        observe(&mut keep, 100.0, 830.0);
        assert_eq!(left_ms(&keep), 400.0, "one in ten minutes");
        observe(&mut keep, 100.0, 830.0);
        assert_eq!(left_ms(&keep), 30.0);
        // A tenth is missed without: more than a seventh with them is put up with, and not three in ten.
        for (every, most) in [(7, 400.0), (3, 30.0)] {
            let mut keep = of_slow_periods();
            let at_slo = |period, every, late| if period % every == 0 { late } else { 300.0 };
            (0..600).for_each(|period| observe(&mut keep, 0.0, at_slo(period, 10, 900.0)));
            keep.ease(true);
            (0..600).for_each(|period| observe(&mut keep, 100.0, at_slo(period, every, 830.0)));
            assert_eq!(left_ms(&keep), most, "{every}");
        }
    }

    #[test]
    fn what_was_not_tried_is_come_to_by_and_by() {
        let range = (Seconds::ZERO, Seconds::from_millis(1_000.0));
        let mut keep = Keep::new(Seconds::ZERO, range, Seconds::ZERO, false);
        let mut limits = Vec::new();
        for _ in 0..30 {
            let (limit, _) = keep.limit();
            limits.push(limit.as_millis());
            keep.observe(Seen {
                interval: limit,
                ..PERIOD
            });
        }
        assert!(
            limits
                .windows(2)
                .all(|two| two[1] <= (1.25 * two[0]).max(two[0] + 31.26))
        );
        assert_eq!(limits.last(), Some(&1_000.0));
    }
}
