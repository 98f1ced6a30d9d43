//! What bounds the interval beside the lever and the SLA: the SLO's percentile, and what has been tried.
//!
//! The SLA of the paper is one on the mean response time. An SLO on a percentile is missed long before the mean reaches it, so that a law
//! that steers the mean to its target breaks it. While the percentile is kept without batches, an interval may take what is left to the
//! target and no more. Where it is missed without them, no interval causes that, and the law is free; so that it learns that the
//! percentile is kept again, it then looks now and then what it is without batches.
//!
//! A law that is after the least mean is bounded by the response time too. Requests wait for half an interval in the mean, and no batch
//! saves more than a whole response: no interval is worth more than twice the response without batches. That is known only while there are
//! none; what a response takes beside the wait stands for it, which is less where batches help much: there the bound is a little too short.

use headroom_units::Seconds;
use std::collections::VecDeque;

/// The share of the target that the percentile is to reach at most: periods differ.
const KEPT: f64 = 0.95;
/// Periods of which the worst counts.
const REMEMBERED: usize = 6;
/// A percentile beyond so many targets is as bad as this: that of failed requests is no number to reckon with.
const WORST: f64 = 10.0;
/// The weight of another period in what is known of the percentile without batches, and the periods from which on that is known.
const WEIGHT: f64 = 0.3;
const ENOUGH: u32 = 3;
/// Periods after which it is looked at again, where the law is free.
const LOOKS_AGAIN: u32 = 120;
/// The factor by which an interval may exceed the longest that was in force.
const BEYOND: f64 = 1.25;
/// The least that it may exceed it by, as a share of the range.
const LEAST_BEYOND: f64 = 1.0 / 32.0;

/// What bounds an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Nothing but the range.
    Range,
    /// More than what was tried.
    Untried,
    /// The percentile would be missed.
    Slo,
    /// A response takes no longer than the wait would.
    Response,
    /// The percentile without batches is not known, or not any more.
    Looks,
}

/// What the bounds are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounded {
    /// The SLO's percentile is to be kept.
    pub(super) by_slo: bool,
    /// The mean is to be least.
    pub(super) by_response: bool,
}

/// The bounds that are learned.
#[derive(Clone, Debug)]
pub(super) struct Keep {
    target: f64,
    none: f64,
    most: f64,
    /// What the interval may be by each of the last periods.
    limits: VecDeque<f64>,
    /// The percentile without batches, the periods that it is from, and those since.
    without: (f64, u32, u32),
    /// The longest interval in force up to now.
    tried: f64,
    /// The mean response time beside half an interval.
    response: Option<f64>,
    bounded: Bounded,
}

impl Keep {
    /// For an SLO on a percentile and intervals in this range, of which those up to `tried` may be asked for at once.
    pub(super) fn new(target: Seconds, range: (Seconds, Seconds), tried: Seconds, bounded: Bounded) -> Self {
        Self {
            target: target.get(),
            none: range.0.get(),
            most: range.1.get(),
            limits: VecDeque::new(),
            without: (0.0, 0, 0),
            tried: tried.get(),
            response: None,
            bounded,
        }
    }

    /// Learns from a period: the interval that was in force, the mean response time, and the SLO's percentile.
    pub(super) fn observe(&mut self, interval: Seconds, mean: Seconds, at_slo: Seconds) {
        let (interval, at_slo) = (interval.get(), at_slo.get().min(WORST * self.target));
        let beside = (mean.get() - 0.5 * interval).max(0.0);
        self.response = Some(
            self.response
                .map_or(beside, |known| known + WEIGHT * (beside - known)),
        );
        if self.limits.len() == REMEMBERED {
            self.limits.pop_front();
        }
        self.limits.push_back(interval + KEPT * self.target - at_slo);
        self.tried = self.tried.max(interval.min(self.most));
        let (mean, periods, _) = self.without;
        self.without = match interval <= self.none + 1e-4 {
            // Looking again, it begins anew.
            true if periods >= ENOUGH && self.without.2 > 0 => (at_slo, 1, 0),
            true if periods == 0 => (at_slo, 1, 0),
            true => (mean + WEIGHT * (at_slo - mean), periods.saturating_add(1), 0),
            false => (mean, periods, self.without.2.saturating_add(1)),
        };
    }

    /// The longest interval that may be asked for, and what bounds it.
    pub(super) fn limit(&self) -> (Seconds, Why) {
        let least = LEAST_BEYOND * (self.most - self.none);
        let beyond = (self.tried * BEYOND).max(self.tried + least);
        let (mut limit, mut why) = match beyond < self.most {
            true => (beyond, Why::Untried),
            false => (self.most, Why::Range),
        };
        if self.bounded.by_response {
            // Before anything is known, none.
            let worth = self.none + 2.0 * self.response.unwrap_or(0.0);
            if worth < limit {
                (limit, why) = (worth, Why::Response);
            }
        }
        if self.bounded.by_slo {
            let (without, periods, since) = self.without;
            let is_kept = without <= self.target;
            if periods < ENOUGH || (!is_kept && since >= LOOKS_AGAIN) {
                (limit, why) = (self.none, Why::Looks);
            } else if is_kept {
                let kept = self.limits.iter().copied().fold(f64::INFINITY, f64::min);
                if kept < limit {
                    (limit, why) = (kept.max(self.none), Why::Slo);
                }
            }
        }
        (Seconds::new(limit), why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BY_SLO: Bounded = Bounded {
        by_slo: true,
        by_response: false,
    };

    fn keep() -> Keep {
        let range = (Seconds::ZERO, Seconds::from_millis(400.0));
        Keep::new(
            Seconds::from_millis(800.0),
            range,
            Seconds::from_millis(200.0),
            BY_SLO,
        )
    }

    fn after(keep: &mut Keep, periods: usize, interval_ms: f64, at_slo_ms: f64) -> (f64, Why) {
        for _ in 0..periods {
            keep.observe(
                Seconds::from_millis(interval_ms),
                Seconds::ZERO,
                Seconds::from_millis(at_slo_ms),
            );
        }
        let (limit, why) = keep.limit();
        (limit.as_millis().round(), why)
    }

    #[test]
    fn an_interval_takes_what_is_left_to_the_target_and_no_more() {
        let mut keep = keep();
        assert_eq!(keep.limit(), (Seconds::ZERO, Why::Looks));
        assert_eq!(after(&mut keep, 2, 0.0, 600.0), (0.0, Why::Looks));
        // 760 ms may be reached.
        assert_eq!(after(&mut keep, 1, 0.0, 600.0), (160.0, Why::Slo));
        assert_eq!(after(&mut keep, 1, 150.0, 700.0), (160.0, Why::Slo));
        assert_eq!(after(&mut keep, 1, 150.0, 800.0), (110.0, Why::Slo));
        // The worst of the last six.
        assert_eq!(after(&mut keep, 5, 100.0, 400.0), (110.0, Why::Slo));
        assert_eq!(after(&mut keep, 1, 100.0, 400.0), (250.0, Why::Untried));
        // Failures are no latency.
        assert_eq!(after(&mut keep, 1, 100.0, f64::INFINITY), (0.0, Why::Slo));
    }

    #[test]
    fn what_is_missed_without_batches_is_no_reason_to_have_none() {
        let mut keep = keep();
        assert_eq!(after(&mut keep, 3, 0.0, 1_200.0), (250.0, Why::Untried));
        assert_eq!(after(&mut keep, 119, 240.0, 1_000.0), (300.0, Why::Untried));
        // It looks again.
        assert_eq!(after(&mut keep, 1, 240.0, 1_000.0), (0.0, Why::Looks));
        assert_eq!(after(&mut keep, 2, 0.0, 500.0), (0.0, Why::Looks));
        assert_eq!(after(&mut keep, 4, 0.0, 500.0), (260.0, Why::Slo));
    }

    #[test]
    fn a_period_of_failures_is_forgotten_and_does_not_free_the_law_for_good() {
        let mut keep = keep();
        after(&mut keep, 4, 0.0, 600.0);
        assert_eq!(
            after(&mut keep, 1, 0.0, f64::INFINITY).1,
            Why::Untried,
            "it is missed without batches"
        );
        assert_eq!(after(&mut keep, 20, 0.0, 600.0), (160.0, Why::Slo));
    }

    #[test]
    fn what_was_not_tried_is_come_to_by_and_by() {
        let range = (Seconds::ZERO, Seconds::from_millis(1_000.0));
        let by_nothing = Bounded {
            by_slo: false,
            by_response: false,
        };
        let mut keep = Keep::new(Seconds::ZERO, range, Seconds::ZERO, by_nothing);
        let mut limits = Vec::new();
        for _ in 0..30 {
            let (limit, _) = keep.limit();
            limits.push(limit.as_millis());
            keep.observe(limit, Seconds::ZERO, Seconds::ZERO);
        }
        assert!(
            limits
                .windows(2)
                .all(|two| two[1] <= (1.25 * two[0]).max(two[0] + 31.26))
        );
        assert_eq!(limits.last(), Some(&1_000.0));
    }

    #[test]
    fn a_wait_is_worth_no_more_than_a_response() {
        let range = (Seconds::ZERO, Seconds::from_millis(1_000.0));
        let by_response = Bounded {
            by_slo: false,
            by_response: true,
        };
        let mut keep = Keep::new(Seconds::ZERO, range, Seconds::from_millis(500.0), by_response);
        assert_eq!(keep.limit(), (Seconds::ZERO, Why::Response));
        // 3 ms without batches, and beside half of 5 ms.
        for (interval_ms, mean_ms) in [(0.0, 3.0), (5.0, 5.5)] {
            keep.observe(
                Seconds::from_millis(interval_ms),
                Seconds::from_millis(mean_ms),
                Seconds::ZERO,
            );
            let (limit, why) = keep.limit();
            assert!(
                (limit.as_millis() - 6.0).abs() < 1e-9 && why == Why::Response,
                "{limit:?}"
            );
        }
        // More load.
        for _ in 0..20 {
            keep.observe(
                Seconds::from_millis(6.0),
                Seconds::from_millis(403.0),
                Seconds::ZERO,
            );
        }
        assert_eq!(keep.limit().1, Why::Untried);
    }
}
