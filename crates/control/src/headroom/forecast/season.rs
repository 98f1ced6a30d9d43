//! The season: a bounded history at several resolutions, the search for what recurs in it, and the shape of a cycle.

use std::collections::VecDeque;

/// Values kept at each resolution.
pub(super) const HISTORY: usize = 4_096;
/// Periods a value stands for at each resolution: with one-second periods the last keeps 24 days.
pub(super) const RESOLUTIONS: [usize; 4] = [1, 8, 64, 512];
/// Fewer values than this are not searched.
const ENOUGH: usize = 48;
/// The search looks at no more points than this at first, each the mean of several values.
const POINTS: usize = 512;
/// A season correlates with itself one cycle later by at least this.
const CORRELATION: f64 = 0.4;
/// Between two peaks of the correlation there is a valley at least so deep.
const VALLEY: f64 = 0.15;
/// A shorter season is preferred to the strongest where its correlation is at least this share of it.
const NEARLY: f64 = 0.85;
/// Cycles that a shape is averaged over.
const CYCLES: usize = 6;
/// What the weight of a cycle is to that of the next younger one.
const OLDER: f64 = 0.75;

/// One resolution's history.
#[derive(Clone, Debug)]
pub(super) struct History {
    /// Periods that a value stands for.
    each: usize,
    /// The newest last.
    values: VecDeque<f64>,
    sum: f64,
    count: usize,
    since_search: usize,
}

impl History {
    pub(super) const fn new(each: usize) -> Self {
        Self {
            each,
            values: VecDeque::new(),
            sum: 0.0,
            count: 0,
            since_search: 0,
        }
    }

    pub(super) fn push(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
        if self.count == self.each {
            if self.values.len() == HISTORY {
                self.values.pop_front();
            }
            self.values.push_back(self.sum / self.each as f64);
            self.sum = 0.0;
            self.count = 0;
            self.since_search += 1;
        }
    }

    /// The value `age` periods before the newest period (0), interpolated between the middles of what was kept.
    fn at(&self, age: f64) -> Option<f64> {
        let each = self.each as f64;
        // The newest complete value's middle lies this many periods back.
        let newest = self.count as f64 + (each - 1.0) / 2.0;
        let place = (age - newest) / each;
        if place < 0.0 {
            // Younger than the middle of the newest complete value, if by less than one of them.
            return if place > -1.0 {
                self.values.back().copied()
            } else {
                None
            };
        }
        let older = place.ceil() as usize;
        let share = place.ceil() - place;
        let back = |steps: usize| {
            let index = self.values.len().checked_sub(steps + 1)?;
            self.values.get(index).copied()
        };
        let (old, young) = (back(older)?, back(place.floor() as usize)?);
        Some(old + (young - old) * share)
    }

    /// What the cycles so far say of the moment `age` periods before the newest (−1: the next period): their mean, the
    /// younger ones weighing more. `None` where not even one is known.
    pub(super) fn shape(&self, season: f64, age: f64) -> Option<f64> {
        let (mut sum, mut weights, mut weight) = (0.0, 0.0, 1.0);
        for cycle in 1..=CYCLES {
            let Some(value) = self.at(age + cycle as f64 * season) else {
                break;
            };
            sum += weight * value;
            weights += weight;
            weight *= OLDER;
        }
        (weights > 0.0).then(|| sum / weights)
    }

    /// Searches where enough is new since the last time: the shortest season and the strongest, in periods; they may
    /// be the same, and are `None` where nothing recurs. `None` outside where it was not searched.
    pub(super) fn search(&mut self) -> Option<[Option<f64>; 2]> {
        let known = self.values.len();
        if known < ENOUGH || self.since_search < (known / 16).max(ENOUGH / 3) {
            return None;
        }
        self.since_search = 0;
        let values: Vec<f64> = self.values.iter().copied().collect();
        let every = known.div_ceil(POINTS);
        let coarse: Vec<f64> = values
            .rchunks_exact(every)
            .rev()
            .map(|chunk| chunk.iter().sum::<f64>() / every as f64)
            .collect();
        let coarse = detrended(&coarse);
        let most = coarse.len() / 2;
        let correlations: Vec<f64> = (0..=most).map(|lag| correlation(&coarse, lag)).collect();
        let mut peaks: Vec<(usize, f64)> = Vec::new();
        let mut valley = f64::INFINITY;
        for lag in 1..most {
            let here = correlations[lag];
            valley = valley.min(here);
            let reach = (lag / 8).max(1);
            let around = &correlations[lag.saturating_sub(reach)..=(lag + reach).min(most)];
            let top = around.iter().all(|other| *other <= here);
            if top && lag >= 4 && here >= CORRELATION && here - valley >= VALLEY {
                peaks.push((lag, here));
            }
        }
        let Some(strongest) = peaks
            .iter()
            .copied()
            .reduce(|best, peak| if peak.1 > best.1 { peak } else { best })
        else {
            return Some([None, None]);
        };
        let shortest = peaks
            .iter()
            .copied()
            .find(|peak| peak.1 >= NEARLY * strongest.1)
            .unwrap_or(strongest);
        let fine = detrended(&values);
        let refined = |peak: (usize, f64)| {
            let middle = peak.0 * every;
            let reach = every + every / 2;
            let lags = middle.saturating_sub(reach).max(2)..=(middle + reach).min(known - 2);
            let best = lags
                .map(|lag| (lag, correlation(&fine, lag)))
                .reduce(|best, next| if next.1 > best.1 { next } else { best });
            best.map(|(lag, _)| (lag * self.each) as f64)
        };
        Some([refined(shortest), refined(strongest)])
    }
}

/// The values off their least-squares line.
fn detrended(values: &[f64]) -> Vec<f64> {
    let n = values.len() as f64;
    let middle = (n - 1.0) / 2.0;
    let mean = values.iter().sum::<f64>() / n;
    let (mut with, mut spread) = (0.0, 0.0);
    for (i, value) in values.iter().enumerate() {
        let x = i as f64 - middle;
        with += x * (value - mean);
        spread += x * x;
    }
    let slope = if spread > 0.0 { with / spread } else { 0.0 };
    values
        .iter()
        .enumerate()
        .map(|(i, value)| value - mean - slope * (i as f64 - middle))
        .collect()
}

/// Pearson's correlation of the values with themselves `lag` later.
fn correlation(values: &[f64], lag: usize) -> f64 {
    let (early, late) = (&values[..values.len() - lag], &values[lag..]);
    let (mut product, mut left, mut right) = (0.0, 0.0, 0.0);
    for (a, b) in early.iter().zip(late) {
        product += a * b;
        left += a * a;
        right += b * b;
    }
    if left > 0.0 && right > 0.0 {
        product / (left * right).sqrt()
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(period: f64, count: usize, each: usize) -> History {
        let mut history = History::new(each);
        for i in 0..count {
            history.push(100.0 + 50.0 * (i as f64 / period * std::f64::consts::TAU).sin());
        }
        history
    }

    #[test]
    fn a_wave_is_found_at_every_resolution() {
        for (period, count, each, tolerance) in [
            (240.0, 700, 1, 2.0),
            (37.0, 200, 1, 1.0),
            (2_000.0, 6_000, 8, 16.0),
        ] {
            let [short, strong] = wave(period, count, each).search().unwrap();
            for found in [short.unwrap(), strong.unwrap()] {
                let cycles = (found / period).round();
                assert!(
                    (found - cycles * period).abs() <= tolerance * cycles,
                    "{found} for {period}"
                );
            }
            assert!(
                (short.unwrap() - period).abs() <= tolerance,
                "{short:?} for {period}"
            );
        }
    }

    #[test]
    fn noise_and_a_slope_have_no_season() {
        let mut state = 1u64;
        let mut history = History::new(1);
        for i in 0..2_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            history.push(f64::from(i) + (state >> 40) as f64 / 1e5);
        }
        assert_eq!(history.search(), Some([None, None]));
    }

    #[test]
    fn the_shape_is_what_came_a_cycle_ago() {
        let history = wave(100.0, 450, 1);
        let expected = 100.0 + 50.0 * (4.5f64 * std::f64::consts::TAU).sin();
        assert!((history.shape(100.0, -1.0).unwrap() - expected).abs() < 1e-6);
        assert_eq!(history.shape(1_000.0, -1.0), None);
    }

    #[test]
    fn history_is_bounded() {
        let history = wave(50.0, 3 * HISTORY, 1);
        assert_eq!(history.values.len(), HISTORY);
    }
}
