//! How many servers: as many as the forecast may ask for until another could serve, and no more for longer than a boot is
//! worth.

use std::collections::VecDeque;

/// The most periods that a boot may last: over a longer time hardly anything is known of how the load grows.
pub const MAX_HORIZON_PERIODS: usize = 4096;
/// Ratios kept, to learn how much the load grows while a server boots, and how many are taken from one horizon.
const MEMORY: usize = 16_384;
const PER_HORIZON: usize = 8;
/// What has not been seen yet: growth beyond g within a horizon has about the probability g^-TAIL over the number of horizons
/// that were observed. Five: of services that have shown nothing one in 32 doubles within a boot, one in 100,000 grows tenfold.
const TAIL: f64 = 5.0;

/// Periods over which a rate is averaged, so that the noise of its counts is not taken for growth.
const MAX_SMOOTHED: usize = 30;

/// How much the load grows within a horizon: at least as much again as within the last one, and beyond that by the ratio of
/// its highest rate there to what this had led to expect.
#[derive(Clone, Debug)]
pub(super) struct Growth {
    horizon: usize,
    smoothed: usize,
    newest: VecDeque<f64>,
    /// The smoothed rates of the last horizon, with what was expected of the next one at each.
    rates: VecDeque<(f64, f64)>,
    since: usize,
    /// Ratios, ascending, and in the order of their times.
    sorted: Vec<f64>,
    ratios: VecDeque<f64>,
}

impl Growth {
    /// Within so many periods.
    pub(super) fn new(horizon: usize) -> Self {
        let smoothed = (horizon / 2).clamp(1, MAX_SMOOTHED);
        Self {
            // What has grown by the end of a horizon shows in full when it is all that is averaged over.
            horizon: horizon.max(1) + smoothed - 1,
            smoothed,
            newest: VecDeque::new(),
            rates: VecDeque::new(),
            since: 0,
            sorted: Vec::new(),
            ratios: VecDeque::new(),
        }
    }

    /// Takes a period's rate.
    pub(super) fn observe(&mut self, rate: f64) {
        self.newest.push_back(rate.max(1e-9));
        if self.newest.len() > self.smoothed {
            self.newest.pop_front();
        }
        let smoothed = self.newest.iter().sum::<f64>() / self.newest.len() as f64;
        let before = self.rates.front().map_or(smoothed, |(rate, _)| *rate);
        self.rates
            .push_back((smoothed, smoothed * (smoothed / before).max(1.0)));
        if self.rates.len() <= self.horizon {
            return;
        }
        let Some((_, expected)) = self.rates.pop_front() else {
            return;
        };
        self.since += 1;
        if self.since < self.horizon.div_ceil(PER_HORIZON) {
            return;
        }
        self.since = 0;
        let most = self.rates.iter().map(|(rate, _)| *rate).fold(0.0, f64::max);
        let ratio = (most / expected).clamp(1e-3, 1e6);
        let place = |sorted: &[f64], value: f64| sorted.partition_point(|other| *other < value);
        if self.ratios.len() == MEMORY
            && let Some(oldest) = self.ratios.pop_front()
        {
            self.sorted.remove(place(&self.sorted, oldest));
        }
        self.sorted.insert(place(&self.sorted, ratio), ratio);
        self.ratios.push_back(ratio);
    }

    /// The smoothed rate, which the growth is from; `None` before the first.
    pub(super) fn rate(&self) -> Option<f64> {
        self.rates.back().map(|(rate, _)| *rate)
    }

    /// What the load has grown to within the last horizon, as a factor of at least one.
    fn momentum(&self) -> f64 {
        self.rates.back().map_or(1.0, |(rate, expected)| expected / rate)
    }

    /// The growth that is exceeded with this probability at most; infinite before any is known.
    pub(super) fn exceeded_by(&self, probability: f64) -> f64 {
        let known = self.sorted.len() as f64;
        if known < 1.0 {
            return f64::INFINITY;
        }
        let index = ((1.0 - probability) * known).ceil() as usize;
        let observed = self.sorted[index.clamp(1, self.sorted.len()) - 1];
        // Ratios of horizons that overlap are one piece of evidence.
        let horizons = known / PER_HORIZON.min(self.horizon) as f64;
        let unseen = (probability * horizons).powf(-1.0 / TAIL);
        (observed.max(1.0) * self.momentum()).max(unseen)
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
        assert_eq!(growth.exceeded_by(0.01), f64::INFINITY);
        for period in 0..3000 {
            growth.observe(if period % 300 < 150 { 100.0 } else { 180.0 });
        }
        // Before a step there is nothing to tell it: at least the step is expected, at any time.
        assert!(growth.exceeded_by(0.001) >= 1.7, "{}", growth.exceeded_by(0.001));
        for _ in 0..3000 {
            growth.observe(100.0);
        }
        assert_eq!(growth.exceeded_by(0.2), 1.0);
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
