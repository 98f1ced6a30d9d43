//! The SLO's percentile: what it leaves for an interval, by what periods usually are and by single slow ones.

use super::averages::Average;
use super::block::{Period, is_in_force};
use super::explain::{OBSERVES, reason};
use super::{Phase, Seek};
use crate::batching::keep;
use crate::decision::Reason;
use headroom_units::Seconds;

/// A percentile beyond so many times the usual is of a period that is slow for a reason of its own.
const SLOW: f64 = 1.25;
/// More of them in a row are no single ones.
const SINGLE: u32 = 3;

impl Seek {
    /// The longest interval that keeps the SLO; `None` before that is known.
    pub(super) fn limit(&self) -> Option<f64> {
        let most = self.bounds.most.get();
        if self.is_off() && self.keep.looks() {
            return None;
        }
        if self.keep.is_free() {
            return Some(most);
        }
        let left = keep::KEPT * self.target - self.late.high()?;
        let usual = match self.is_off() && self.keep.tries() {
            true => most,
            false => (self.interval + left).clamp(self.none(), most),
        };
        let usual = if self.is_eased() {
            usual.max(self.interval)
        } else {
            usual
        };
        Some(usual.min(self.slow_limit()))
    }

    /// The longest interval with which single slow periods keep the SLO.
    pub(super) fn slow_limit(&self) -> f64 {
        self.keep.slow_limit().get().min(self.bounds.most.get())
    }

    /// Whether it is believed that the percentile would be longer without batches.
    fn is_eased(&self) -> bool {
        !self.is_off() && self.later < 0.0
    }

    /// Whether a period is so slow, beside others with the interval in force, that it says what a longer one may take.
    fn is_slow(&self, period: &Period) -> bool {
        let usual = self.late.mean().or(self.late_without.mean());
        let waits = period
            .interval
            .map_or(0.0, |held| (held - self.interval).max(0.0));
        usual.is_some_and(|usual| period.at_slo - waits > SLOW * usual)
    }

    pub(super) fn observe_slow(&mut self, period: &Period, is_settled: bool) {
        let Some(interval) = period.interval.filter(|_| period.answers > 0.0) else {
            return;
        };
        let is_slow = is_settled && self.is_slow(period);
        self.slow_run = if is_slow {
            self.slow_run.saturating_add(1)
        } else {
            0
        };
        self.keep.ease(self.is_eased());
        self.keep.observe(keep::Seen {
            length: Seconds::new(period.length),
            interval: Seconds::new(interval),
            mean: Seconds::new(period.response),
            at_slo: Seconds::new(period.at_slo),
            bounds: is_slow,
        });
    }

    /// Learns the SLO's percentile of a settled period.
    pub(super) fn learn_late(&mut self, period: &Period) {
        if period.answers <= 0.0 {
            return;
        }
        let most = keep::WORST * self.target;
        // That of failures is no latency to be usual.
        if period.at_slo >= most {
            return;
        }
        // A slow period is remembered as such, and is not the usual; several in a row are.
        let is_usual = self.slow_run >= SINGLE;
        let clipped = |late: &Average| {
            let usual = late
                .mean()
                .filter(|_| !is_usual)
                .map_or(most, |usual| SLOW * usual);
            period.at_slo.min(usual.min(most))
        };
        if is_in_force(period.interval, self.none()) {
            self.late_without.push(clipped(&self.late_without));
        }
        if is_in_force(period.interval, self.interval) {
            self.late.push(clipped(&self.late));
        }
    }

    /// Shortens an interval with which the SLO is missed or nearly so.
    pub(super) fn keep_slo(&mut self, period: &Period) -> Option<Reason> {
        if self.is_off() {
            return None;
        }
        let before = self.interval;
        let slow = self.slow_limit();
        let limit = self.limit().unwrap_or(slow);
        if before <= limit {
            return None;
        }
        let (ms, target_ms) = (1e3, self.target * 1e3);
        let shorter = self.bounds.fit(Seconds::new(limit)).get();
        let least = self.shortest(self.load.response().unwrap_or(period.response));
        let (text, number) = match self.late.high().filter(|_| limit < slow) {
            Some(high) => {
                let text = format!("the percentile reaches {:.0} ms of {target_ms:.0} ms", high * ms);
                (text, ("percentile_ms", high * ms))
            }
            None => {
                let text = format!("slow periods leave {:.0} ms of {target_ms:.0} ms", limit * ms);
                (text, ("left_ms", limit * ms))
            }
        };
        if let Phase::Compare(_) = self.phase {
            self.give_up();
        }
        self.take(if shorter < least { self.none() } else { shorter });
        (self.gain, self.is_undoubted, self.later) = (0.0, false, 0.0);
        self.phase = Phase::Wait(0, OBSERVES);
        self.tried.clear();
        if self.is_off() {
            // What made the target missed is not what is tried first: a gain may be seen at once and its cost later.
            self.remembered = None;
        }
        let now = self.interval * ms;
        let text = format!("from {:.0} to {now:.0} ms: {text}", before * ms);
        Some(reason("seek-slo", text, &[("interval_ms", now), number]))
    }
}
