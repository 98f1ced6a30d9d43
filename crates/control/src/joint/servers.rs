//! How many servers: as many as the forecast may ask for until another could serve, and no more for longer than a boot is
//! worth.

use std::collections::VecDeque;

/// The most periods that a boot may last: over a longer time nothing is known of how the load grows.
pub const MAX_HORIZON_PERIODS: usize = MEMORY;
/// Rates kept, to learn how much the load grows while a server boots.
const MEMORY: usize = 4096;
/// As many periods of the prior stand in for what has not been observed yet.
const PRIOR_PERIODS: f64 = 200.0;
/// What the load may grow to within a boot, as a factor, until that is known.
pub(super) const PRIOR_GROWTH: f64 = 1.5;

/// Periods over which a rate is averaged, so that the noise of its counts is not taken for growth.
const SMOOTHED: usize = 10;

/// How much the load grows within a horizon: the ratio of its highest rate there to that before.
#[derive(Clone, Debug)]
pub(super) struct Growth {
    horizon: usize,
    newest: VecDeque<f64>,
    rates: VecDeque<f64>,
    /// Ratios, ascending, and in the order of their times.
    sorted: Vec<f64>,
    ratios: VecDeque<f64>,
}

impl Growth {
    /// Within so many periods.
    pub(super) fn new(horizon: usize) -> Self {
        Self {
            horizon: horizon.max(1),
            newest: VecDeque::new(),
            rates: VecDeque::new(),
            sorted: Vec::new(),
            ratios: VecDeque::new(),
        }
    }

    /// Takes a period's rate.
    pub(super) fn observe(&mut self, rate: f64) {
        self.newest.push_back(rate.max(1e-9));
        if self.newest.len() > SMOOTHED {
            self.newest.pop_front();
        }
        self.rates
            .push_back(self.newest.iter().sum::<f64>() / self.newest.len() as f64);
        if self.rates.len() <= self.horizon {
            return;
        }
        let Some(before) = self.rates.pop_front() else {
            return;
        };
        let most = self.rates.iter().copied().fold(0.0, f64::max);
        let ratio = (most / before).clamp(1.0, 1e6);
        let place = |sorted: &[f64], value: f64| sorted.partition_point(|other| *other < value);
        if self.ratios.len() == MEMORY
            && let Some(oldest) = self.ratios.pop_front()
        {
            self.sorted.remove(place(&self.sorted, oldest));
        }
        self.sorted.insert(place(&self.sorted, ratio), ratio);
        self.ratios.push_back(ratio);
    }

    /// The growth that is exceeded with this probability at most.
    pub(super) fn exceeded_by(&self, probability: f64) -> f64 {
        let known = self.sorted.len() as f64;
        if known < 1.0 {
            return PRIOR_GROWTH;
        }
        let index = ((1.0 - probability) * known).ceil() as usize;
        let observed = self.sorted[index.clamp(1, self.sorted.len()) - 1];
        // Few periods cannot show what is rare.
        let prior = PRIOR_PERIODS / (known + PRIOR_PERIODS);
        observed + prior * (PRIOR_GROWTH - observed).max(0.0)
    }

    /// Telemetry was lost: what is between is not growth.
    pub(super) fn lose(&mut self) {
        self.rates.clear();
        self.newest.clear();
    }
}

/// What was needed over the last periods: a server goes only when it was not needed for as long as its absence must last to
/// be worth a boot (the ski-rental rule, at most twice the least energy whatever comes; Gandhi et al., "AutoScale", 2012).
#[derive(Clone, Debug, Default)]
pub(super) struct Needed {
    /// Period and number, falling from the oldest.
    most: VecDeque<(u64, usize)>,
}

impl Needed {
    /// Takes what a period needs; the most that was needed within so many periods.
    pub(super) fn observe(&mut self, period: u64, needed: usize, within: u64) -> usize {
        while self.most.back().is_some_and(|(_, last)| *last <= needed) {
            self.most.pop_back();
        }
        self.most.push_back((period, needed));
        while self
            .most
            .front()
            .is_some_and(|(at, _)| at.saturating_add(within) < period)
        {
            self.most.pop_front();
        }
        self.most.front().map_or(needed, |(_, most)| *most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_that_of_the_past_and_cautious_at_first() {
        let mut growth = Growth::new(10);
        assert_eq!(growth.exceeded_by(0.01), PRIOR_GROWTH);
        for period in 0..3000 {
            growth.observe(if period % 300 < 150 { 100.0 } else { 180.0 });
        }
        assert!((growth.exceeded_by(0.001) - 1.8).abs() < 0.05);
        // Ten of three hundred periods see the step.
        assert!((growth.exceeded_by(0.2) - 1.0).abs() < 0.05);
    }

    #[test]
    fn a_server_goes_only_after_it_was_not_needed_for_a_while() {
        let mut needed = Needed::default();
        assert_eq!(needed.observe(0, 4, 3), 4);
        assert_eq!(needed.observe(1, 2, 3), 4);
        assert_eq!(needed.observe(3, 1, 3), 4);
        assert_eq!(needed.observe(4, 1, 3), 2);
        assert_eq!(needed.observe(5, 1, 3), 1);
        assert_eq!(needed.observe(6, 5, 3), 5);
    }
}
