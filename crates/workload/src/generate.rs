//! Seeded traces that ship with the product, so that nothing need be downloaded: a diurnal day like Wikipedia's,
//! a flat line with rare spikes like Azure's, and two weeks like ClarkNet's.
//!
//! The first two are shaped after the traces that the SLO-Power authors published (`wikipedia-cluster` and
//! `azure-cluster`; the values here are drawn, not copied): the shape of the day is a Fourier series fitted to
//! the published day, the rest are distributions whose parameters were chosen to match the statistics below.
//!
//! | 900 hourly values | mean | sd | min | max | lag 1 | lag 12 | lag 24 | mean step |
//! |---|---|---|---|---|---|---|---|---|
//! | published `wikipedia-cluster` | 139.5 | 49.1 | 60 | 240 | 0.94 | -0.70 | 0.92 | 12.1 |
//! | [`diurnal`], medians of 100 seeds | 139.2 | 48.7 | 63 | 226 | 0.95 | -0.72 | 0.92 | 12.0 |
//!
//! | 1,440 values | mean | sd | min | max | median | over 110 | over 130 | over 180 | lag 1 | lag 6 |
//! |---|---|---|---|---|---|---|---|---|---|---|
//! | published `azure-cluster` | 104.7 | 8.9 | 100 | 240 | 103 | 7.4 % | 2.2 % | 0.28 % | 0.39 | 0.18 |
//! | [`flat_with_spikes`], medians of 100 seeds | 104.5 | 8.7 | 100 | 240 | 102.9 | 7.0 % | 1.9 % | 0.28 % | 0.40 | 0.16 |
//!
//! (Lag: autocorrelation. The rows of this module are printed by its test `statistics_of_many_seeds`.)
//! The published Azure trace also has a weak rhythm of 12 values (0.31 at lag 12), which this one leaves out.
//!
//! ```
//! use headroom_workload::generate::{Diurnal, diurnal};
//!
//! let week = diurnal(&Diurnal { days: 7, seed: 3, ..Diurnal::default() })?;
//! assert_eq!(week.rates().len(), 7 * 24);
//! # Ok::<(), headroom_workload::TraceError>(())
//! ```

mod clarknet;

pub use clarknet::{ClarknetLike, clarknet_like};

use crate::random::Draw;
use crate::trace::{MAX_VALUES, Trace, TraceError};
use headroom_units::{PerSecond, Seconds};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// How long each value of the published traces is held.
pub const PUBLISHED_STEP: Seconds = Seconds::new(10.0);

/// The shape of the day over the hour: fitted to the published trace's mean day, from which the night's level was
/// taken away and whose mean was made 1. Pairs of cosine and sine, the first for one cycle a day.
const DAY_HARMONICS: [(f64, f64); 4] = [
    (-0.416, -0.716),
    (0.113, -0.231),
    (-0.045, -0.020),
    (-0.091, -0.034),
];

/// The hour of least load, at which one day passes into the next.
const TROUGH_HOUR: f64 = 5.0;

/// Night's level, as a share of the long-run mean: the published minimum moves between 60 and 69 of 139.5.
const NIGHT: f64 = 64.0 / 139.5;

/// What each weekday adds on top of the night, as a share of the long-run mean over it; Monday first. In the
/// published trace the third and fourth days of each week are lower.
const WEEKDAYS: [f64; 7] = [1.00, 1.09, 1.09, 1.08, 1.03, 0.78, 0.93];

/// Standard deviation of a day's own factor.
const DAY_DEVIATION: f64 = 0.05;

/// Standard deviation and hourly autocorrelation of the noise within a day, relative to the day's level.
const NOISE: (f64, f64) = (0.075, 0.79);

/// The published range over the published mean; values are held inside it.
const DIURNAL_RANGE: (f64, f64) = (60.0 / 139.5, 240.0 / 139.5);

/// What [`diurnal`] makes. Start from `Diurnal::default()`: a week of hourly values at the published level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Diurnal {
    /// How many days.
    pub days: usize,
    /// Values a day; the published trace has 24.
    pub points_per_day: usize,
    /// The mean over a long time; the values lie between 0.43 and 1.72 of it. A few days may differ from it:
    /// [`Trace::scaled_to_mean`] makes it exact.
    pub mean: PerSecond,
    /// How long each value is held.
    pub step: Seconds,
    /// The same seed gives the same values.
    pub seed: u64,
}

impl Default for Diurnal {
    fn default() -> Self {
        Self {
            days: 7,
            points_per_day: 24,
            mean: PerSecond::new(139.5),
            step: PUBLISHED_STEP,
            seed: 1,
        }
    }
}

/// What [`flat_with_spikes`] makes. Start from `FlatWithSpikes::default()`: 1,440 values at the published level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlatWithSpikes {
    /// How many values.
    pub values: usize,
    /// The mean over a long time; the values lie between 0.96 and 2.29 of it.
    pub mean: PerSecond,
    /// How long each value is held.
    pub step: Seconds,
    /// The same seed gives the same values.
    pub seed: u64,
}

impl Default for FlatWithSpikes {
    fn default() -> Self {
        Self {
            values: 1440,
            mean: PerSecond::new(104.7),
            step: PUBLISHED_STEP,
            seed: 1,
        }
    }
}

/// Diurnal days like the Wikipedia trace's, each from midnight: little load at five in the morning, a long
/// working day, a peak in the evening, weaker weekends, days that differ, and gentle noise.
///
/// # Errors
/// [`TraceError`] where there would be no value or more than [`MAX_VALUES`], or the mean or step is not positive.
pub fn diurnal(config: &Diurnal) -> Result<Trace, TraceError> {
    let count = checked_count("diurnal", config.days.saturating_mul(config.points_per_day))?;
    let mut rng = ChaCha8Rng::seed_from_u64(config.seed);
    let hours_per_point = 24.0 / config.points_per_day as f64;
    let persistence = NOISE.1.powf(hours_per_point);
    let innovation = NOISE.0 * (1.0 - persistence * persistence).sqrt();
    let mut noise = NOISE.0 * rng.normal();
    let mut day = None;
    let mut day_factor = 1.0;
    let mut rates = Vec::with_capacity(count);
    for point in 0..count {
        let hours = point as f64 * hours_per_point;
        let today = ((hours - TROUGH_HOUR) / 24.0).floor() as i64;
        if day != Some(today) {
            day = Some(today);
            day_factor = WEEKDAYS[today.rem_euclid(7) as usize] * (1.0 + DAY_DEVIATION * rng.normal());
        }
        let swing = (1.0 - NIGHT) * day_factor * day_shape(hours % 24.0) * (1.0 + noise);
        let night = NIGHT * (1.0 + 0.2 * noise);
        rates.push(config.mean * (night + swing).clamp(DIURNAL_RANGE.0, DIURNAL_RANGE.1));
        noise = persistence * noise + innovation * rng.normal();
    }
    Trace::new("diurnal", config.step, rates)
}

/// The load above the night's at an hour of the day; its mean over the day is 1.
fn day_shape(hour: f64) -> f64 {
    let cycle = std::f64::consts::TAU * hour / 24.0;
    DAY_HARMONICS
        .iter()
        .zip(1..)
        .fold(1.0, |sum, ((cosine, sine), k)| {
            let angle = cycle * f64::from(k);
            sum + cosine * angle.cos() + sine * angle.sin()
        })
}

/// The flat line of the published Azure trace, its slow drift (standard deviation, autocorrelation) and its
/// value-to-value noise, requests per second at a mean of 104.7.
const LINE: f64 = 102.75;
const DRIFT: (f64, f64) = (0.7, 0.95);
const LINE_NOISE: f64 = 0.6;

/// The chance that a calm spell ends at a value, and that a busy one does; a spike's chance in each.
const CALM_ENDS: f64 = 1.0 / 500.0;
const BUSY_ENDS: f64 = 1.0 / 90.0;
const SPIKES_CALM: f64 = 0.02;
const SPIKES_BUSY: f64 = 0.7;

/// A spike's height is Lomax (Pareto from zero) distributed: scale in requests per second, shape.
const HEIGHT: (f64, f64) = (50.0, 4.0);

/// The chance that a spike lasts another value, at 0.5 to 1.2 of its height.
const SPIKE_LASTS: f64 = 0.35;

/// The published range; values are held inside it.
const SPIKY_RANGE: (f64, f64) = (100.0, 240.0);

/// A flat line with rare spikes, like the Azure trace: nearly constant, now and then a value 10 to 130 % higher,
/// and spells in which that happens often.
///
/// # Errors
/// [`TraceError`] where there would be no value or more than [`MAX_VALUES`], or the mean or step is not positive.
pub fn flat_with_spikes(config: &FlatWithSpikes) -> Result<Trace, TraceError> {
    let count = checked_count("flat-with-spikes", config.values)?;
    let mut rng = ChaCha8Rng::seed_from_u64(config.seed);
    let unit = config.mean / FlatWithSpikes::default().mean.get();
    let mut busy = false;
    let mut drift = DRIFT.0 * rng.normal();
    let mut spike = 0.0;
    let mut rates = Vec::with_capacity(count);
    for _ in 0..count {
        let turns = rng.random::<f64>() < if busy { BUSY_ENDS } else { CALM_ENDS };
        busy ^= turns;
        drift = DRIFT.1 * drift + DRIFT.0 * (1.0 - DRIFT.1 * DRIFT.1).sqrt() * rng.normal();
        let chance = if busy { SPIKES_BUSY } else { SPIKES_CALM };
        spike = if spike > 0.0 && rng.random::<f64>() < SPIKE_LASTS {
            spike * rng.random_range(0.5..1.2)
        } else if rng.random::<f64>() < chance {
            HEIGHT.0 * ((rng.exponential() / HEIGHT.1).exp() - 1.0)
        } else {
            0.0
        };
        let value = LINE + drift + LINE_NOISE * rng.normal() + spike;
        rates.push(unit * value.clamp(SPIKY_RANGE.0, SPIKY_RANGE.1));
    }
    Trace::new("flat-with-spikes", config.step, rates)
}

/// Refuses a count before anything of its size is allocated.
fn checked_count(name: &str, count: usize) -> Result<usize, TraceError> {
    if count > MAX_VALUES {
        return Err(TraceError::TooManyValues {
            name: name.into(),
            count,
        });
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(trace: &Trace) -> Vec<f64> {
        trace.rates().iter().map(|rate| rate.get()).collect()
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    fn deviation(values: &[f64]) -> f64 {
        let mean = mean(values);
        (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
    }

    fn autocorrelation(values: &[f64], lag: usize) -> f64 {
        let mean = mean(values);
        let total: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        values
            .windows(lag + 1)
            .map(|w| (w[0] - mean) * (w[lag] - mean))
            .sum::<f64>()
            / total
    }

    fn share_over(values: &[f64], level: f64) -> f64 {
        values.iter().filter(|&&v| v > level).count() as f64 / values.len() as f64
    }

    fn extremes(values: &[f64]) -> (f64, f64) {
        values
            .iter()
            .fold((f64::INFINITY, 0.0), |(low, high), &v| (v.min(low), v.max(high)))
    }

    fn diurnal_row(v: &[f64]) -> Vec<f64> {
        let step = mean(&v.windows(2).map(|w| (w[1] - w[0]).abs()).collect::<Vec<_>>());
        let (low, high) = extremes(v);
        let lag = |n| autocorrelation(v, n);
        vec![mean(v), deviation(v), low, high, lag(1), lag(12), lag(24), step]
    }

    fn spiky_row(v: &[f64]) -> Vec<f64> {
        let (low, high) = extremes(v);
        let mut sorted = v.to_vec();
        sorted.sort_by(f64::total_cmp);
        let over = |level| 100.0 * share_over(v, level);
        let lag = |n| autocorrelation(v, n);
        let median = sorted[v.len() / 2];
        vec![
            mean(v),
            deviation(v),
            low,
            high,
            median,
            over(110.0),
            over(130.0),
            over(180.0),
            lag(1),
            lag(6),
        ]
    }

    fn medians(rows: impl Iterator<Item = Vec<f64>>) -> Vec<f64> {
        let rows: Vec<_> = rows.collect();
        (0..rows[0].len())
            .map(|column| {
                let mut values: Vec<f64> = rows.iter().map(|row| row[column]).collect();
                values.sort_by(f64::total_cmp);
                values[values.len() / 2]
            })
            .collect()
    }

    fn assert_near(row: &[f64], published: &[f64], tolerances: &[f64]) {
        for (column, ((got, wanted), tolerance)) in row.iter().zip(published).zip(tolerances).enumerate() {
            assert!(
                (got - wanted).abs() <= *tolerance,
                "column {column}: {got} against {wanted} (+-{tolerance})"
            );
        }
    }

    #[test]
    fn statistics_of_many_seeds() {
        let week = |seed| {
            values(
                &diurnal(&Diurnal {
                    days: 38,
                    seed,
                    ..Diurnal::default()
                })
                .unwrap(),
            )[..900]
                .to_vec()
        };
        let row = medians((0..100).map(|seed| diurnal_row(&week(seed))));
        println!("diurnal: {row:.2?}");
        let published = [139.5, 49.1, 60.0, 240.0, 0.94, -0.70, 0.92, 12.1];
        assert_near(&row, &published, &[2.0, 3.0, 4.0, 15.0, 0.03, 0.06, 0.05, 2.0]);

        let line = |seed| {
            values(
                &flat_with_spikes(&FlatWithSpikes {
                    seed,
                    ..FlatWithSpikes::default()
                })
                .unwrap(),
            )
        };
        let row = medians((0..100).map(|seed| spiky_row(&line(seed))));
        println!("flat with spikes: {row:.2?}");
        let published = [104.7, 8.9, 100.0, 240.0, 103.0, 7.4, 2.2, 0.28, 0.39, 0.18];
        assert_near(
            &row,
            &published,
            &[0.8, 1.5, 1.0, 40.0, 0.5, 2.0, 0.8, 0.2, 0.1, 0.1],
        );
    }

    #[test]
    fn the_published_traces_have_the_statistics_stated_above() {
        let directory = std::env::var("HEADROOM_PUBLISHED_TRACES").unwrap_or_default();
        let read = |name: &str| Trace::from_file(format!("{directory}/{name}.txt"), PUBLISHED_STEP);
        let (Ok(wikipedia), Ok(azure)) = (read("wikipedia-cluster"), read("azure-cluster")) else {
            println!(
                "skipped: set HEADROOM_PUBLISHED_TRACES to a directory with the SLO-Power authors' traces"
            );
            return;
        };
        let published = [139.5, 49.1, 60.0, 240.0, 0.94, -0.70, 0.92, 12.1];
        assert_near(&diurnal_row(&values(&wikipedia)), &published, &[0.1; 8]);
        let published = [104.7, 8.9, 100.0, 240.0, 103.0, 7.4, 2.2, 0.28, 0.39, 0.18];
        assert_near(&spiky_row(&values(&azure)), &published, &[0.1; 10]);
    }

    #[test]
    fn the_same_seed_gives_the_same_values_and_another_seed_others() {
        let day = |seed| {
            diurnal(&Diurnal {
                seed,
                ..Diurnal::default()
            })
            .unwrap()
        };
        assert_eq!(day(3), day(3));
        assert_ne!(day(3), day(4));
        let line = |seed| {
            flat_with_spikes(&FlatWithSpikes {
                seed,
                ..FlatWithSpikes::default()
            })
            .unwrap()
        };
        assert_eq!(line(3), line(3));
        assert_ne!(line(3), line(4));
    }

    #[test]
    fn a_day_has_its_trough_in_the_morning_and_its_peak_by_day_or_evening() {
        let weeks = values(
            &diurnal(&Diurnal {
                days: 70,
                ..Diurnal::default()
            })
            .unwrap(),
        );
        let hour_mean = |hour: usize| mean(&weeks.iter().skip(hour).step_by(24).copied().collect::<Vec<_>>());
        let (trough, evening, noon) = (hour_mean(5), hour_mean(20), hour_mean(12));
        assert!(trough < 0.5 * noon && evening > noon, "{trough} {noon} {evening}");
    }

    #[test]
    fn weekends_are_weaker() {
        let weeks = values(
            &diurnal(&Diurnal {
                days: 70,
                ..Diurnal::default()
            })
            .unwrap(),
        );
        let day_mean = |day: usize| {
            mean(
                &weeks
                    .chunks(24)
                    .skip(day)
                    .step_by(7)
                    .map(mean)
                    .collect::<Vec<_>>(),
            )
        };
        assert!(
            day_mean(5) < 0.92 * day_mean(2),
            "{} {}",
            day_mean(5),
            day_mean(2)
        );
    }

    #[test]
    fn finer_points_keep_level_and_smoothness() {
        let fine = diurnal(&Diurnal {
            days: 35,
            points_per_day: 288,
            ..Diurnal::default()
        })
        .unwrap();
        let fine = values(&fine);
        assert_near(&diurnal_row(&fine)[..2], &[139.5, 49.1], &[3.0, 3.0]);
        assert!(autocorrelation(&fine, 1) > 0.99);
    }

    #[test]
    fn levels_scale_with_the_mean() {
        let low = diurnal(&Diurnal {
            mean: PerSecond::new(13.95),
            ..Diurnal::default()
        })
        .unwrap();
        let high = diurnal(&Diurnal::default()).unwrap();
        for (low, high) in low.rates().iter().zip(high.rates()) {
            assert!((high.get() / low.get() - 10.0).abs() < 1e-9);
        }
        let (low, high) = extremes(&values(&high));
        assert!(low >= 60.0 - 1e-9 && high <= 240.0 + 1e-9, "{low} {high}");
    }

    #[test]
    fn nothing_and_too_much_are_refused() {
        assert!(matches!(
            diurnal(&Diurnal {
                days: 0,
                ..Diurnal::default()
            }),
            Err(TraceError::Empty { .. })
        ));
        let huge = FlatWithSpikes {
            values: usize::MAX,
            ..FlatWithSpikes::default()
        };
        assert!(matches!(
            flat_with_spikes(&huge),
            Err(TraceError::TooManyValues { .. })
        ));
        let negative = Diurnal {
            mean: PerSecond::new(-1.0),
            ..Diurnal::default()
        };
        assert!(matches!(diurnal(&negative), Err(TraceError::BadRate { .. })));
    }
}
