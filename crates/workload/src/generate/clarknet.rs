//! A daily curve like that of the ClarkNet web server's log of 1995 (the Internet Traffic Archive), which the capacity
//! paper scales to its testbed: an Internet provider's site, two weeks from a Monday on, about 3.3 million requests.
//!
//! The values are drawn, not copied: the shape of the day, the weekends and the level below are stated here and
//! chosen after published descriptions of the log, not fitted to it. For the log itself, convert it
//! ([`crate::access_log`]).

use super::checked_count;
use crate::random::Draw;
use crate::trace::{Trace, TraceError};
use headroom_units::{PerSecond, Seconds};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// The load of a working day at each full hour over the day's mean: a trough at five, a peak about noon, another in
/// the evening. Between the hours it is interpolated.
const WORKDAY: [f64; 24] = [
    0.882, 0.649, 0.497, 0.385, 0.324, 0.314, 0.375, 0.517, 0.781, 1.044, 1.247, 1.379, 1.44, 1.42, 1.389,
    1.349, 1.298, 1.217, 1.166, 1.207, 1.298, 1.369, 1.328, 1.125,
];

/// The same of a day at the weekend, which begins later and peaks in the evening.
const WEEKEND: [f64; 24] = [
    1.028, 0.812, 0.627, 0.473, 0.391, 0.349, 0.37, 0.452, 0.606, 0.802, 0.997, 1.141, 1.233, 1.275, 1.295,
    1.295, 1.285, 1.254, 1.264, 1.346, 1.47, 1.542, 1.449, 1.244,
];

/// Each day's level over the long-run mean, Monday first; their mean is 1.
const DAYS: [f64; 7] = [1.07, 1.09, 1.09, 1.08, 1.05, 0.80, 0.82];

/// Standard deviation of a day's own factor.
const DAY_DEVIATION: f64 = 0.04;

/// Standard deviation and hourly autocorrelation of the noise within a day, relative to the level.
const NOISE: (f64, f64) = (0.05, 0.7);

/// What [`clarknet_like`] makes. Start from `ClarknetLike::default()`: two weeks of a value every ten minutes at the
/// log's mean rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClarknetLike {
    /// How many days, from a Monday on.
    pub days: usize,
    /// Values for each day.
    pub points_per_day: usize,
    /// The mean over a long time.
    pub mean: PerSecond,
    /// How long each value is held; ten minutes by default, the log's own time. A shorter one compresses the days.
    pub step: Seconds,
    /// The same seed gives the same values.
    pub seed: u64,
}

impl Default for ClarknetLike {
    fn default() -> Self {
        Self {
            days: 14,
            points_per_day: 144,
            mean: PerSecond::new(2.75),
            step: Seconds::new(600.0),
            seed: 1,
        }
    }
}

/// Days like those of the ClarkNet log, each from midnight, the first a Monday.
///
/// # Errors
/// [`TraceError`] where there would be no value or too many, or the mean or step is not positive.
pub fn clarknet_like(config: &ClarknetLike) -> Result<Trace, TraceError> {
    let count = checked_count("clarknet-like", config.days.saturating_mul(config.points_per_day))?;
    let mut rng = ChaCha8Rng::seed_from_u64(config.seed);
    let hours_per_point = 24.0 / config.points_per_day.max(1) as f64;
    let persistence = NOISE.1.powf(hours_per_point);
    let innovation = NOISE.0 * (1.0 - persistence * persistence).sqrt();
    let mut noise = NOISE.0 * rng.normal();
    let mut factor = 1.0;
    let mut rates = Vec::with_capacity(count);
    for point in 0..count {
        let (day, of_day) = (point / config.points_per_day, point % config.points_per_day);
        if of_day == 0 {
            factor = 1.0 + DAY_DEVIATION * rng.normal();
        }
        let level = level(day, of_day as f64 * hours_per_point);
        // Noise of 20 standard deviations would be needed for a negative value.
        rates.push(config.mean * (level * factor * (1.0 + noise)).max(0.0));
        noise = persistence * noise + innovation * rng.normal();
    }
    Trace::new("clarknet-like", config.step, rates)
}

/// The level of an hour of a day, over the long-run mean. Where the shape of the day changes (from Friday to Saturday,
/// from Sunday to Monday) one passes into the other over the first three hours.
fn level(day: usize, hour: f64) -> f64 {
    let of_day = |day: usize| {
        let weekday = day % 7;
        let shape = if weekday < 5 { &WORKDAY } else { &WEEKEND };
        let before = hour.floor();
        let part = hour - before;
        let at = |hour: f64| shape[hour as usize % 24];
        DAYS[weekday] * (at(before) * (1.0 - part) + at(before + 1.0) * part)
    };
    let share = (hour / 3.0).min(1.0);
    // The day before the first Monday was a Sunday.
    of_day(day) * share + of_day(day + 6) * (1.0 - share)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(config: &ClarknetLike) -> Vec<f64> {
        clarknet_like(config)
            .unwrap()
            .rates()
            .iter()
            .map(|rate| rate.get())
            .collect()
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    #[test]
    fn two_weeks_have_the_stated_shape() {
        let all = values(&ClarknetLike {
            days: 140,
            ..ClarknetLike::default()
        });
        let hour = |days: &[usize], hour: usize| {
            let chosen: Vec<f64> = all
                .chunks(144)
                .enumerate()
                .filter(|(day, _)| days.contains(&(day % 7)))
                .map(|(_, day)| mean(&day[hour * 6..hour * 6 + 6]))
                .collect();
            mean(&chosen)
        };
        assert!((mean(&all) / 2.75 - 1.0).abs() < 0.02, "{}", mean(&all));
        let work = [0, 1, 2, 3, 4];
        let (night, noon, afternoon, evening) =
            (hour(&work, 5), hour(&work, 12), hour(&work, 17), hour(&work, 21));
        assert!((3.5..5.0).contains(&(noon / night)), "{noon} {night}");
        assert!(noon > 1.1 * afternoon && evening > 1.05 * afternoon && noon > evening);
        let (weekend_noon, weekend_evening) = (hour(&[5, 6], 12), hour(&[5, 6], 21));
        assert!(weekend_noon < 0.75 * noon && weekend_evening > weekend_noon);
    }

    #[test]
    fn default_is_two_weeks_of_the_log_s_size() {
        let trace = clarknet_like(&ClarknetLike::default()).unwrap();
        assert_eq!(trace.duration(), Seconds::new(14.0 * 86_400.0));
        assert!(
            (trace.requests() / 3.33e6 - 1.0).abs() < 0.05,
            "{}",
            trace.requests()
        );
    }

    #[test]
    fn the_curve_is_smooth_seeded_and_refuses_nothing_and_too_much() {
        let all = values(&ClarknetLike::default());
        let jump = all
            .windows(2)
            .map(|pair| (pair[1] - pair[0]).abs())
            .fold(0.0, f64::max);
        assert!(jump < 0.25 * mean(&all), "{jump}");
        let config = ClarknetLike::default();
        assert_ne!(all, values(&ClarknetLike { seed: 2, ..config }));
        assert_eq!(all, values(&config));
        for (days, points_per_day) in [(0, 144), (1, 0), (usize::MAX, 2)] {
            let config = ClarknetLike {
                days,
                points_per_day,
                ..config
            };
            assert!(clarknet_like(&config).is_err());
        }
    }
}
