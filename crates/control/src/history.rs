//! What came in before a law began, as it was recorded.

use headroom_units::{PerSecond, Seconds};
use std::collections::VecDeque;

/// Arrival rates of the past, period by period: what a law recalls that began anew, so that it need not see a day again to know
/// how the day goes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadHistory {
    period: Seconds,
    /// The newest last.
    rates: VecDeque<Option<PerSecond>>,
}

impl LoadHistory {
    /// The most periods that are kept: three days of seconds.
    pub const MAX_PERIODS: usize = 1 << 18;

    /// Nothing yet, of periods of this length.
    pub const fn new(period: Seconds) -> Self {
        Self {
            period,
            rates: VecDeque::new(),
        }
    }

    /// Takes the period that follows; `None` where nothing was recorded of it. The oldest beyond
    /// [`MAX_PERIODS`](Self::MAX_PERIODS) go.
    pub fn push(&mut self, rate: Option<PerSecond>) {
        if self.rates.len() == Self::MAX_PERIODS {
            self.rates.pop_front();
        }
        self.rates.push_back(rate);
    }

    /// The length of a period.
    pub const fn period(&self) -> Seconds {
        self.period
    }

    /// The rates, the oldest first. The law's own first period follows the last of them.
    pub fn rates(&self) -> impl ExactSizeIterator<Item = Option<PerSecond>> + '_ {
        self.rates.iter().copied()
    }

    /// The time of which something was recorded.
    pub fn known(&self) -> Seconds {
        self.period * self.rates.iter().flatten().count() as f64
    }

    /// The same with periods that are so many times as long: what is left over at the beginning goes, and a longer period is
    /// known where all of it is.
    #[must_use]
    pub fn of_every(&self, periods: usize) -> Self {
        let each = periods.max(1);
        let rates: Vec<Option<PerSecond>> = self.rates().collect();
        let long = rates.rchunks_exact(each).rev().map(|chunk| {
            let sum: Option<PerSecond> = chunk.iter().copied().sum();
            sum.map(|sum| sum / each as f64)
        });
        Self {
            period: self.period * each as f64,
            rates: long.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(rates: &[Option<f64>]) -> LoadHistory {
        let mut history = LoadHistory::new(Seconds::new(2.0));
        rates
            .iter()
            .for_each(|rate| history.push(rate.map(PerSecond::new)));
        history
    }

    #[test]
    fn longer_periods_are_means_of_those_that_are_known() {
        let long = history(&[Some(9.0), Some(1.0), Some(3.0), None, Some(5.0)]).of_every(2);
        assert_eq!(long, {
            let mut expected = LoadHistory::new(Seconds::new(4.0));
            expected.push(Some(PerSecond::new(2.0)));
            expected.push(None);
            expected
        });
        assert_eq!(history(&[Some(1.0), None]).known(), Seconds::new(2.0));
    }

    #[test]
    fn the_oldest_go() {
        let mut history = history(&[]);
        (0..LoadHistory::MAX_PERIODS + 2).for_each(|at| history.push(Some(PerSecond::new(at as f64))));
        assert_eq!(history.rates().len(), LoadHistory::MAX_PERIODS);
        assert_eq!(history.rates().next(), Some(Some(PerSecond::new(2.0))));
    }
}
