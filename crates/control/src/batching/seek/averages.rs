//! Running averages of what periods are like: for the bound by the SLO, and to notice that the load is another.

use super::block::Period;

/// An exponentially weighted mean, and the mean distance from it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Average {
    mean: f64,
    off: f64,
    periods: u32,
}

/// The weight of a new period, and the periods from which on an average says something.
const WEIGHT: f64 = 0.15;
const SETTLED: u32 = 6;

impl Average {
    pub(super) fn push(&mut self, value: f64) {
        self.push_over(0.0, value);
    }

    /// Takes a value into a mean over at least so many periods.
    pub(super) fn push_over(&mut self, periods: f64, value: f64) {
        self.periods = self.periods.saturating_add(1);
        // The first periods count alike.
        let weight = WEIGHT.min(1.0 / periods).max(1.0 / f64::from(self.periods));
        self.off += weight * ((value - self.mean).abs() - self.off);
        if self.periods == 1 {
            self.off = 0.0;
        }
        self.mean += weight * (value - self.mean);
    }

    /// The mean, once it says something.
    pub(super) fn mean(&self) -> Option<f64> {
        (self.periods >= SETTLED).then_some(self.mean)
    }

    /// What few periods exceed, once that is known.
    pub(super) fn high(&self) -> Option<f64> {
        self.mean().map(|mean| mean + 2.0 * self.off)
    }
}

/// The load that was there when the law settled, against that of now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    rate: Average,
    response: Average,
    /// Seconds without an answer since the last.
    idle: f64,
    settled: Option<(f64, f64)>,
}

impl Load {
    /// Takes a period into means over at least so many.
    pub(super) fn push(&mut self, period: &Period, periods: f64) {
        self.idle += period.length;
        if period.answers > 0.0 {
            // Batches may be answered at once, with nothing for many periods between them.
            self.rate.push_over(periods, period.answers / self.idle);
            self.response.push_over(periods, period.response);
            self.idle = 0.0;
        }
    }

    /// The mean response time, once it is known.
    pub(super) fn response(&self) -> Option<f64> {
        self.response.mean()
    }

    /// Requests answered in a second, once that is known.
    pub(super) fn rate(&self) -> Option<f64> {
        self.rate.mean()
    }

    /// What is now is what the law settled at.
    pub(super) fn settle(&mut self) {
        self.settled = self.rate.mean().zip(self.response.mean());
    }

    /// Whether it is another than that, by a rate or a mean response time that differs by this factor.
    pub(super) fn is_another_by(&self, factor: f64) -> bool {
        let now = self.rate.mean().zip(self.response.mean());
        self.settled.zip(now).is_some_and(|(then, now)| {
            let differs = |one: f64, two: f64| one.max(two) > factor * one.min(two);
            differs(then.0, now.0) || differs(then.1, now.1)
        })
    }

    /// The response time with another interval is to be learned; the load stays.
    pub(super) fn forget_response(&mut self) {
        self.response = Average::default();
        self.settled = None;
    }
}
