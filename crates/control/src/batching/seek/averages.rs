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
        self.periods = self.periods.saturating_add(1);
        // The first periods count alike.
        let weight = WEIGHT.max(1.0 / f64::from(self.periods));
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
    requests: Average,
    response: Average,
    settled: Option<(f64, f64)>,
}

impl Load {
    pub(super) fn push(&mut self, period: &Period) {
        self.rate.push(period.rate);
        self.requests.push(period.answers);
        self.response.push(period.response);
    }

    /// The mean response time, once it is known.
    pub(super) fn response(&self) -> Option<f64> {
        self.response.mean()
    }

    /// Requests answered in a period, once that is known.
    pub(super) fn requests(&self) -> Option<f64> {
        self.requests.mean()
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
