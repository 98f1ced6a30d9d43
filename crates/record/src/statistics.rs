//! What can be said of a figure from several runs: its mean and how far the truth may lie from it.

use headroom_units::{PerSecond, Ratio};
use serde::{Deserialize, Serialize};

/// Two-sided 95 % quantiles of Student's t distribution for 1 to 30 degrees of freedom.
const T_95: [f64; 30] = [
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604,
    2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555,
    2.0518, 2.0484, 2.0452, 2.0423,
];
/// That of the normal distribution, the limit of many degrees of freedom.
const Z_95: f64 = 1.959_964;
/// An autocorrelation above it is not told from one that never ends.
const MOST_CORRELATED: f64 = 0.9;
/// The fewest degrees of freedom that a few correlated values count for. Their correlation is itself hardly known; with fewer, intervals of
/// values that are independent become ten times as wide by chance, and cover no more.
const LEAST_DEGREES: f64 = 3.0;

/// A mean with its 95 % confidence interval, mean ± half width (Student's t: independent, roughly normal values).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Half the width of the interval; `None` of one value, which says nothing about its spread.
    pub half_width: Option<f64>,
    /// How many values.
    pub count: usize,
}

impl Estimate {
    /// Of these values; `None` of none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        if count == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        let half_width = (count > 1).then(|| {
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            t_95(count - 1) * (squares / (count - 1) as f64 / count as f64).sqrt()
        });
        Some(Self {
            mean,
            half_width,
            count,
        })
    }

    /// Of values that were measured one after the other, and may be correlated: what disturbs one disturbs the next, so that so many say
    /// less than as many independent ones.
    ///
    /// As of `n (1 - r) / (1 + r)` independent values, where `r` is the autocorrelation at lag 1: a series whose correlation falls by `r`
    /// with each step, AR(1). Its estimate from independent values is `-1/n` in the mean, which is taken off. It never makes the interval
    /// narrower, and fewer than [`Self::CORRELATED`] values are taken as independent, for they say nothing of it.
    pub fn of_series(values: &[f64]) -> Option<Self> {
        let plain = Self::of(values)?;
        let n = plain.count as f64;
        let squares: f64 = values.iter().map(|value| (value - plain.mean).powi(2)).sum();
        if plain.count < Self::CORRELATED || squares <= 0.0 {
            return Some(plain);
        }
        let pairs = values.iter().zip(&values[1..]);
        let products: f64 = pairs
            .map(|(one, next)| (one - plain.mean) * (next - plain.mean))
            .sum();
        let correlation = (products / squares + 1.0 / n).clamp(0.0, MOST_CORRELATED);
        let longer = (1.0 + correlation) / (1.0 - correlation);
        // Correlated values also lie nearer to their own mean than their spread is.
        let variance = squares / (n - longer).max(1.0);
        let half = t_95_between((n / longer - 1.0).max(LEAST_DEGREES)) * (variance * longer / n).sqrt();
        Some(Self {
            half_width: plain.half_width.map(|plain| plain.max(half)),
            ..plain
        })
    }

    /// From so many values on a series says something of how they are correlated.
    pub const CORRELATED: usize = 4;

    /// Of the differences of pairs: runs under common random numbers differ by what is compared and little else, so the
    /// interval is narrower than that of two independent means.
    pub fn of_differences(values: &[f64], from: &[f64]) -> Option<Self> {
        let differences: Vec<f64> = values
            .iter()
            .zip(from)
            .map(|(value, from)| value - from)
            .collect();
        Self::of(&differences)
    }

    /// What tables of [`Self::written`] over so many seeds say of themselves.
    pub fn explained(seeds: u64) -> String {
        match seeds {
            2 => {
                "The least and the most of 2 seeds: too few for a confidence interval, which 3 and more have."
                    .to_owned()
            }
            _ => format!("Means over {seeds} seeds with 95 % confidence intervals."),
        }
    }

    /// Whether zero lies outside the interval.
    pub fn is_not_zero(&self) -> bool {
        self.half_width.is_some_and(|half| self.mean.abs() > half)
    }

    /// `12.3 ± 0.4`, with so many decimals; of two values both, as `12.1 to 12.5`: an interval of two is some thirteen times as wide as
    /// they lie apart, and says nothing but that two are too few.
    pub fn written(&self, decimals: usize) -> String {
        match self.half_width {
            Some(half) if self.count == 2 => {
                let apart = half / t_95(1);
                let (least, most) = (self.mean - apart, self.mean + apart);
                let (least, most) = (format!("{least:.decimals$}"), format!("{most:.decimals$}"));
                match least == most {
                    true => least,
                    false => format!("{least} to {most}"),
                }
            }
            Some(half) => format!("{:.decimals$} ± {half:.decimals$}", self.mean),
            None => format!("{:.decimals$}", self.mean),
        }
    }
}

fn t_95(degrees: usize) -> f64 {
    if let Some(value) = degrees.checked_sub(1).and_then(|at| T_95.get(at)) {
        return *value;
    }
    // Cornish and Fisher's expansion (1938), whose next term is below 1e-4 here.
    let (z, n) = (Z_95, degrees as f64);
    z + (z.powi(3) + z) / (4.0 * n) + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n)
}

/// The same for degrees of freedom that are no whole number, on the line between its neighbours.
fn t_95_between(degrees: f64) -> f64 {
    let below = degrees.floor();
    let (low, high) = (t_95(below as usize), t_95(below as usize + 1));
    low + (degrees - below) * (high - low)
}

/// A mean of values given one by one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mean {
    sum: f64,
    count: u64,
}

impl Mean {
    /// Takes a value.
    pub const fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    /// The mean; `None` of nothing.
    pub fn value(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// How far forecasts of the arrival rate were from what came: the root mean square error (RMSE), normalised.
#[derive(Clone, Copy, Debug, Default)]
pub struct ForecastError {
    expected: Option<f64>,
    squares: Mean,
    rates: Mean,
    range: Option<(f64, f64)>,
}

impl ForecastError {
    /// Takes a period's rate, which the last forecast is held against, and the forecast for the next.
    pub fn add(&mut self, rate: PerSecond, expected: Option<PerSecond>) {
        let rate = rate.get();
        if let Some(expected) = self.expected {
            self.squares.add((expected - rate).powi(2));
            self.rates.add(rate);
            let (low, high) = self.range.unwrap_or((rate, rate));
            self.range = Some((low.min(rate), high.max(rate)));
        }
        self.expected = expected.map(PerSecond::get);
    }

    fn over(&self, scale: f64) -> Option<Ratio> {
        let error = self.squares.value()?.sqrt();
        (scale > 0.0).then(|| Ratio::new(error / scale))
    }

    /// RMSE over the mean rate; `None` where nothing was forecast.
    pub fn over_mean(&self) -> Option<Ratio> {
        self.over(self.rates.value()?)
    }

    /// RMSE over the range of the rates; `None` where nothing was forecast.
    pub fn over_range(&self) -> Option<Ratio> {
        let (low, high) = self.range?;
        self.over(high - low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn an_interval_is_that_of_the_textbook() {
        // W. S. Gosset, "The probable error of a mean" (1908): additional hours of sleep of ten patients.
        let sleep = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4];
        let estimate = Estimate::of(&sleep).unwrap();
        assert!((estimate.mean - 1.58).abs() < 1e-9);
        assert!((estimate.half_width.unwrap() - 0.88).abs() < 0.005);
        assert!(estimate.is_not_zero());
        assert_eq!(estimate.written(1), "1.6 ± 0.9");
        assert_eq!(Estimate::of(&[]), None);
        let one = Estimate::of(&[3.0]).unwrap();
        assert!(one.half_width.is_none() && !one.is_not_zero() && one.written(0) == "3");
    }

    #[test]
    fn two_values_are_both_written_and_no_interval_of_them() {
        let two = Estimate::of(&[18.6, 1.4]).unwrap();
        assert_eq!(
            (two.written(0), two.written(1)),
            ("1 to 19".to_owned(), "1.4 to 18.6".to_owned())
        );
        assert!(two.half_width.unwrap() > 100.0);
        assert_eq!(Estimate::of(&[984.0, 984.0]).unwrap().written(0), "984");
        assert!(
            Estimate::explained(2).contains("too few")
                && Estimate::explained(3).contains("3 seeds with 95 %")
        );
    }

    #[test]
    fn the_quantile_goes_on_where_the_table_ends() {
        assert!(t_95(30) > t_95(31) && (t_95(31) - 2.0395).abs() < 2e-4);
        assert!((t_95(100) - 1.9840).abs() < 1e-4 && t_95(1_000_000) >= Z_95);
    }

    /// A stationary AR(1) series of mean 0 and spread 1.
    fn series(random: &mut ChaCha8Rng, correlation: f64, length: usize) -> Vec<f64> {
        let mut normal = || -> f64 {
            // Box and Muller.
            let (one, two): (f64, f64) = (random.random(), random.random());
            (-2.0 * (1.0 - one).ln()).sqrt() * (std::f64::consts::TAU * two).cos()
        };
        let mut value = normal();
        let next = |_| {
            let this = value;
            value = correlation * value + (1.0 - correlation * correlation).sqrt() * normal();
            this
        };
        (0..length).map(next).collect()
    }

    #[test]
    fn an_interval_of_correlated_values_has_the_truth_as_often_as_it_says() {
        let mut random = ChaCha8Rng::seed_from_u64(5);
        for correlation in [0.0, 0.2, 0.4, 0.5] {
            for length in [5, 8, 16, 30, 60] {
                let (mut plain, mut widened, mut wide) = (0, 0, 0);
                for _ in 0..2_000 {
                    let values = series(&mut random, correlation, length);
                    let half = |estimate: Option<Estimate>| estimate.unwrap().half_width.unwrap();
                    let factor = half(Estimate::of_series(&values)) / half(Estimate::of(&values));
                    wide += i32::from(factor > 4.0);
                    let covers = |estimate: Estimate| {
                        i32::from(estimate.mean.abs() <= estimate.half_width.unwrap_or(0.0))
                    };
                    plain += covers(Estimate::of(&values).unwrap());
                    widened += covers(Estimate::of_series(&values).unwrap());
                }
                let (plain, widened) = (f64::from(plain) / 2e3, f64::from(widened) / 2e3);
                let case = format!("{correlation} over {length}: {widened}, {plain} as independent");
                let least = if length < 16 { 0.86 } else { 0.90 };
                assert!((least..=0.99).contains(&widened), "{case}");
                assert!(correlation < 0.4 || plain < 0.87, "{case}");
                // Values that are independent have no interval that is many times as wide by chance.
                assert!(correlation > 0.0 || wide < 60, "{wide} of 2000: {case}");
            }
        }
    }

    #[test]
    fn an_interval_that_may_stop_when_it_is_narrow_has_the_truth_less_often() {
        // As `headroom profile` stops: five windows at least, within 3 % of the mean; what the guide says of it.
        let mut random = ChaCha8Rng::seed_from_u64(6);
        for (spread, correlation, least) in [
            (0.01, 0.0, 0.93),
            (0.03, 0.0, 0.93),
            (0.05, 0.0, 0.91),
            (0.03, 0.5, 0.79),
            (0.05, 0.5, 0.77),
        ] {
            let runs = 1_000;
            let covered = (0..runs).filter(|_| {
                let values: Vec<f64> = series(&mut random, correlation, 80)
                    .iter()
                    .map(|value| 1.0 + spread * value)
                    .collect();
                let stopped = (5..=values.len()).map(|count| Estimate::of_series(&values[..count]).unwrap());
                let narrow = |one: &Estimate| one.half_width.is_some_and(|half| half <= 0.03 * one.mean);
                let last = Estimate::of_series(&values).unwrap();
                let one = stopped.into_iter().find(narrow).unwrap_or(last);
                (one.mean - 1.0).abs() <= one.half_width.unwrap()
            });
            let share = covered.count() as f64 / f64::from(runs);
            assert!(
                (least..=0.99).contains(&share),
                "{spread}, {correlation}: {share}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_series_is_never_known_better_than_independent_values(
            values in prop::collection::vec(-1e3..1e3_f64, 1..40),
            factor in 0.1..10.0_f64,
        ) {
            let (plain, one) = (Estimate::of(&values).unwrap(), Estimate::of_series(&values).unwrap());
            prop_assert_eq!((one.mean, one.count), (plain.mean, plain.count));
            prop_assert_eq!(one.half_width.is_some(), values.len() > 1);
            prop_assert!(one.half_width >= plain.half_width);
            let scaled: Vec<f64> = values.iter().map(|value| value * factor).collect();
            let scaled = Estimate::of_series(&scaled).unwrap().half_width.unwrap_or(0.0);
            let expected = one.half_width.unwrap_or(0.0) * factor;
            prop_assert!((scaled - expected).abs() <= 1e-6 * expected.max(1.0), "{} {}", scaled, expected);
        }
    }

    #[test]
    fn pairs_say_more_than_means() {
        let (these, those) = ([10.0, 20.0, 30.0], [9.0, 19.1, 28.9]);
        assert!(Estimate::of_differences(&these, &those).unwrap().is_not_zero());
        assert!(Estimate::of(&these).unwrap().half_width.unwrap() > 10.0);
    }

    #[test]
    fn a_forecast_is_held_against_the_period_it_was_made_for() {
        let mut error = ForecastError::default();
        let rate = PerSecond::new;
        error.add(rate(999.0), Some(rate(10.0)));
        error.add(rate(13.0), Some(rate(20.0)));
        error.add(rate(16.0), None);
        error.add(rate(999.0), None);
        // Errors 3 and 4: RMSE 3.5355; the mean of 13 and 16 is 14.5, their range 3.
        assert!((error.over_mean().unwrap().get() - 12.5_f64.sqrt() / 14.5).abs() < 1e-12);
        assert!((error.over_range().unwrap().get() - 12.5_f64.sqrt() / 3.0).abs() < 1e-12);
        assert!(ForecastError::default().over_mean().is_none());
    }
}
