//! What the load may grow to until another server could serve.
//!
//! Several predictors say what the highest rate within the horizon is; each keeps the ratios of what it came to over what it
//! said. The load is taken to grow to what the predictor with the narrowest ratios says, times the ratio that is exceeded as
//! rarely as asked.
//!
//! Two things are asked. A server that goes now is missing for the whole horizon: what counts is the highest rate within it. One
//! that is started now is there when the horizon ends, and what comes before then was decided earlier: what counts is the rate
//! at its end.
//!
//! What it came to is averaged over enough requests that the noise of their counts is not taken for growth: that noise is in
//! the forecast of the next period, which the cases of a demand are from.

use crate::headroom::forecast::Forecaster;
use std::collections::VecDeque;

/// The most periods that a boot may last: over a longer time hardly anything is known of how the load grows.
pub const MAX_HORIZON_PERIODS: usize = 4096;
/// Ratios kept of each predictor, and how many are taken from one horizon.
const MEMORY: usize = 16_384;
const PER_HORIZON: usize = 8;
/// What has not been seen yet: a ratio beyond g within a horizon has about the probability g^-TAIL over the number of horizons
/// that were observed. Five: of services that have shown nothing one in 32 doubles within a boot, one in 100,000 grows tenfold.
const TAIL: f64 = 5.0;
/// Requests over which a rate is averaged, so that its noise is a twentieth; over at least as many periods as half a horizon, up
/// to the first of these, and at most the second.
const ENOUGH_REQUESTS: f64 = 400.0;
const MAX_OF_HORIZON: usize = 30;
const MAX_WIDTH: usize = 64;

/// What of the usual load a period takes away.
const FADES: f64 = 1e-5;

/// Who says what the highest rate will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Predictor {
    /// It grows once more as it did within the last horizon.
    Momentum,
    /// It stays what the next period is expected to have.
    Next,
    /// It is what former cycles had.
    Season,
    /// It is what it is at any time: of a load that jumps, what it was a minute ago says nothing.
    Usual,
}

const PREDICTORS: [Predictor; 4] = [
    Predictor::Momentum,
    Predictor::Next,
    Predictor::Season,
    Predictor::Usual,
];

/// Of which rates is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// The highest until a horizon from now.
    Within,
    /// That of a horizon from now.
    AtEnd,
}

/// What the highest rate came to over what was predicted.
#[derive(Clone, Debug, Default)]
struct Ratios {
    /// Ascending, and in the order of their times.
    sorted: Vec<f64>,
    newest: VecDeque<f64>,
    sum_ln: f64,
}

impl Ratios {
    fn push(&mut self, ratio: f64) {
        let place = |sorted: &[f64], value: f64| sorted.partition_point(|other| *other < value);
        if self.newest.len() == MEMORY
            && let Some(oldest) = self.newest.pop_front()
        {
            self.sorted.remove(place(&self.sorted, oldest));
            self.sum_ln -= oldest.ln();
        }
        self.sorted.insert(place(&self.sorted, ratio), ratio);
        self.newest.push_back(ratio);
        self.sum_ln += ratio.ln();
    }

    /// The ratio that was exceeded with this probability at most; one at least is known.
    fn exceeded_by(&self, probability: f64) -> f64 {
        let known = self.sorted.len();
        let index = ((1.0 - probability) * known as f64).ceil() as usize;
        self.sorted[index.clamp(1, known) - 1]
    }

    /// The growth of what has not been seen yet, where each horizon gives so many ratios that overlap, which are one piece of
    /// evidence.
    fn unseen(&self, probability: f64, per_horizon: f64) -> f64 {
        (probability * self.sorted.len() as f64 / per_horizon).powf(-1.0 / TAIL)
    }

    /// How far a predictor that is right on average must be exceeded to be safe.
    fn spread(&self, probability: f64) -> f64 {
        self.exceeded_by(probability) / (self.sum_ln / self.sorted.len() as f64).exp()
    }
}

/// One period.
#[derive(Clone, Copy, Debug)]
struct Moment {
    /// All rates up to it, summed.
    sum: f64,
    predicted: [Option<f64>; PREDICTORS.len()],
}

/// What the load grows to within a horizon.
#[derive(Clone, Debug)]
pub(crate) struct Growth {
    horizon: usize,
    /// The newest last.
    moments: VecDeque<Moment>,
    since: usize,
    /// All rates, fading, and their number.
    all: (f64, f64),
    /// Of the highest rate within a horizon, and of that at its end.
    within: [Ratios; PREDICTORS.len()],
    at_end: [Ratios; PREDICTORS.len()],
    /// Of the newest moment.
    predicted: [Option<f64>; PREDICTORS.len()],
    rate: Option<f64>,
}

impl Growth {
    /// Within so many periods.
    pub(crate) fn new(horizon: usize) -> Self {
        Self {
            horizon: horizon.max(1),
            moments: VecDeque::new(),
            since: 0,
            all: (0.0, 0.0),
            within: Default::default(),
            at_end: Default::default(),
            predicted: Default::default(),
            rate: None,
        }
    }

    /// Periods over which this rate is averaged, an odd number.
    fn width(&self, rate: f64, length: f64) -> usize {
        let least = (self.horizon / 2).clamp(1, MAX_OF_HORIZON);
        let enough = (ENOUGH_REQUESTS / (rate * length).max(1e-9)).ceil();
        let width = (enough.min(MAX_WIDTH as f64) as usize).clamp(least, MAX_WIDTH);
        width | 1
    }

    /// The most moments that anything is asked of.
    fn kept(&self) -> usize {
        self.horizon + 2 * (MAX_WIDTH + 1)
    }

    /// The mean rate of the periods `from..=to`, counted from the oldest that is kept; of those of them that are.
    fn mean(&self, from: usize, to: usize) -> f64 {
        let before = from.checked_sub(1).map_or(0.0, |before| self.moments[before].sum);
        let first = if from == 0 { 1 } else { from };
        let to = to.max(first);
        let before = if from == 0 { self.moments[0].sum } else { before };
        (self.moments[to].sum - before) / (to + 1 - first) as f64
    }

    /// Takes a period's rate, after the forecaster took it.
    pub(crate) fn observe(&mut self, rate: f64, length: f64, forecaster: &Forecaster) {
        let rate = rate.max(1e-9);
        self.all = (
            self.all.0 * (1.0 - FADES) + rate,
            self.all.1 * (1.0 - FADES) + 1.0,
        );
        if self.moments.len() == self.kept() {
            self.moments.pop_front();
        }
        let sum = self.moments.back().map_or(0.0, |last| last.sum) + rate;
        self.moments.push_back(Moment {
            sum,
            predicted: Default::default(),
        });
        let newest = self.moments.len() - 1;
        if newest == 0 {
            return;
        }
        let width = self.width(rate, length);
        let recent = self.mean((newest + 1).saturating_sub(width).max(1), newest);
        let then = newest.saturating_sub(self.horizon + width / 2);
        let before = self.mean((then + 1).saturating_sub(width).max(1), then.max(1));
        let predicted = PREDICTORS.map(|predictor| match predictor {
            Predictor::Momentum => Some(recent * (recent / before).max(1.0)),
            Predictor::Next => forecaster.next().map(|next| next.rate),
            Predictor::Season => forecaster.highest_of_season(self.horizon),
            Predictor::Usual => Some(self.all.0 / self.all.1),
        });
        let predicted = predicted.map(|predicted| predicted.filter(|rate| *rate > 1e-9));
        (self.predicted, self.rate) = (predicted, Some(recent));
        if let Some(moment) = self.moments.back_mut() {
            moment.predicted = predicted;
        }
        self.judge(width);
    }

    /// Holds what was predicted a horizon ago against what came.
    fn judge(&mut self, width: usize) {
        let half = width / 2;
        let newest = self.moments.len() - 1;
        let ends = self.horizon + half;
        let Some(at) = newest.checked_sub(ends) else {
            return;
        };
        self.since += 1;
        if at <= half || self.since < self.horizon.div_ceil(PER_HORIZON) {
            return;
        }
        self.since = 0;
        let centred = |middle: usize| self.mean(middle - half, middle + half);
        let most = (at + 1..=newest - half).map(centred).fold(0.0, f64::max);
        let last = centred(newest - half);
        let predicted = self.moments[at].predicted;
        for (all, came) in [(&mut self.within, most), (&mut self.at_end, last)] {
            for (ratios, predicted) in all.iter_mut().zip(predicted) {
                if let Some(predicted) = predicted {
                    ratios.push((came / predicted).clamp(1e-3, 1e6));
                }
            }
        }
    }

    fn per_horizon(&self) -> f64 {
        PER_HORIZON.min(self.horizon) as f64
    }

    /// The averaged rate of now, which the growth is from; `None` before the first.
    pub(crate) const fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// The rates (requests per second) that are exceeded then with at most each of these probabilities, and never less than that of now, by
    /// the predictor that is the surest at the first; `None` before anything is known.
    pub(crate) fn highest(&self, when: When, probabilities: &[f64]) -> Option<Vec<f64>> {
        let ratios = match when {
            When::Within => &self.within,
            When::AtEnd => &self.at_end,
        };
        let rate = self.rate?;
        let surest = *probabilities.first()?;
        let unseen = |ratios: &Ratios, probability| ratios.unseen(probability, self.per_horizon()).max(1.0);
        let known = ratios
            .iter()
            .zip(self.predicted)
            .filter_map(|(ratios, predicted)| {
                let predicted = predicted.filter(|_| !ratios.sorted.is_empty())?;
                let spread = ratios.spread(surest).max(unseen(ratios, surest));
                Some((spread, predicted, ratios))
            });
        let (_, predicted, ratios) = known.min_by(|(one, ..), (other, ..)| one.total_cmp(other))?;
        let exceeded = |probability: &f64| {
            (predicted * ratios.exceeded_by(*probability)).max(rate * unseen(ratios, *probability))
        };
        Some(probabilities.iter().map(exceeded).collect())
    }

    /// Telemetry was lost: what is between is not growth.
    pub(crate) fn lose(&mut self) {
        self.moments.clear();
        (self.predicted, self.rate) = (Default::default(), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds rates to a forecaster and a growth within ten periods.
    fn after(rates: impl Iterator<Item = f64>) -> Growth {
        let (mut forecaster, mut growth) = (Forecaster::new(), Growth::new(10));
        for (period, rate) in rates.enumerate() {
            forecaster.observe(period as u64, rate, 1.0);
            growth.observe(rate, 1.0, &forecaster);
        }
        growth
    }

    fn factor(growth: &Growth, probability: f64) -> f64 {
        growth.highest(When::Within, &[probability]).unwrap()[0] / growth.rate().unwrap()
    }

    /// A count with the noise of one, from a small generator.
    fn noisy(mean: f64, state: &mut u64) -> f64 {
        let mut roll = || {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (*state >> 11) as f64 / (1u64 << 53) as f64
        };
        let normal = (0..12).map(|_| roll()).sum::<f64>() - 6.0;
        (mean + mean.sqrt() * normal).max(0.0)
    }

    #[test]
    fn growth_is_that_of_the_past_and_cautious_at_first() {
        assert_eq!(after(std::iter::empty()).highest(When::Within, &[0.01]), None);
        assert!(factor(&after((0..40).map(|_| 100.0)), 0.005) > 1.7);
        // Steps that come at any time: before one there is nothing to tell it.
        let mut state = 5u64;
        let mut left = 0;
        let mut rate = 100.0;
        let steps = (0..6000).map(|_| {
            if left == 0 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                left = 40 + (state >> 33) % 400;
                rate = 280.0 - rate;
            }
            left -= 1;
            rate
        });
        let growth = after(
            steps
                .collect::<Vec<_>>()
                .into_iter()
                .chain((0..30).map(|_| 100.0)),
        );
        assert!(factor(&growth, 0.001) >= 1.7, "{growth:?}");
        let steady = after((0..6000).map(|_| 100.0));
        assert_eq!(factor(&steady, 0.2), 1.0);
    }

    #[test]
    fn the_noise_of_counts_is_not_growth() {
        let mut state = 1;
        let growth = after((0..4000).map(|_| noisy(50.0, &mut state)));
        assert!(factor(&growth, 0.05) < 1.2, "{}", factor(&growth, 0.05));
    }

    #[test]
    fn a_day_that_recurs_is_known_beforehand() {
        let day = |period: usize| match period % 400 {
            0..200 => 60.0,
            200..210 => 60.0 + 18.0 * (period % 400 - 199) as f64,
            _ => 240.0,
        };
        let mut state = 1;
        let mut growth = |until: usize| {
            after(
                (0..until)
                    .map(|period| noisy(day(period), &mut state))
                    .collect::<Vec<_>>()
                    .into_iter(),
            )
        };
        // In the quiet hours nothing comes within ten periods.
        let quiet = growth(8 * 400 + 100);
        assert!(
            factor(&quiet, 0.05) < 1.6,
            "{:?} of {:?}",
            quiet.highest(When::Within, &[0.05]),
            quiet.rate()
        );
        // Just before the rise the load of the day is expected.
        let before = growth(8 * 400 + 198);
        assert!(
            before.highest(When::Within, &[0.05]).unwrap()[0] > 200.0,
            "{:?}",
            before.highest(When::Within, &[0.05])
        );
    }
}
