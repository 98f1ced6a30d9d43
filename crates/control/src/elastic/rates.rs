//! What comes, told from the noise of its counts.

use std::collections::VecDeque;

/// Over so many of the last periods a rate is looked for that is higher than what the noise of counts can make.
const WINDOWS: [usize; 5] = [1, 2, 5, 10, 30];
/// A count of n is taken to be n less so many of its standard deviations, the root of n: one window in some 700 of a Poisson
/// process exceeds its rate by more.
const DEVIATIONS: f64 = 3.0;
/// A mean over so many requests is taken for the rate: it is within a tenth, but once in twenty.
const ENOUGH_REQUESTS: f64 = 400.0;
/// Fewer periods show no trend.
const FEWEST_OF_TREND: usize = 8;
/// A trend is one where so many more pairs of periods rise than fall, in standard deviations of that number without a trend (Mann's test,
/// Econometrica 13, 1945): one window in 30,000 of a load that stays and whose periods do not depend on each other.
const TREND_DEVIATIONS: f64 = 4.0;
/// Where what is beside the trend depends on the period before, the variance of that number is larger (after Hamed and Rao, Journal of
/// Hydrology 204, 1998, by the first autocorrelation alone), by so much at most: what bends, as a growth by factors, does so too.
const MOST_VARIANCE: f64 = 3.0;
/// The longest window.
const MAX_PERIODS: usize = WINDOWS[WINDOWS.len() - 1];

/// The last periods' requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    /// Requests and length in seconds, the newest first.
    periods: VecDeque<(f64, f64)>,
}

impl Rates {
    pub(super) fn observe(&mut self, rate: f64, length_s: f64) {
        self.periods.truncate(MAX_PERIODS - 1);
        self.periods.push_front((rate * length_s, length_s));
    }

    pub(super) fn forget(&mut self) {
        self.periods.clear();
    }

    /// The mean over the last periods that have enough requests, or over all that are kept.
    pub(super) fn mean(&self) -> f64 {
        let (requests, length_s) = self.enough();
        requests / f64::max(length_s, 1e-9)
    }

    /// The seconds that this mean is over.
    pub(super) fn mean_over_s(&self) -> f64 {
        self.enough().1
    }

    /// What the rate is at most, as far as the noise of that mean's count goes.
    pub(super) fn at_most(&self) -> f64 {
        let (requests, length_s) = self.enough();
        (requests + 2.0 * requests.sqrt()) / f64::max(length_s, 1e-9)
    }

    fn enough(&self) -> (f64, f64) {
        let (mut requests, mut length_s) = (0.0, 0.0);
        for (of_period, period_s) in &self.periods {
            requests += of_period;
            length_s += period_s;
            if requests >= ENOUGH_REQUESTS {
                break;
            }
        }
        (requests, length_s)
    }

    /// By how much the rate will have risen in so long, if it goes on as it did, and for no longer than that was seen: by the lower quartile
    /// of the slopes between two periods (after Sen, Journal of the American Statistical Association 63, 1968), which a step, or a period that
    /// is out of line, hardly moves; 0 where it does not rise.
    pub(super) fn rise_within(&self, horizon_s: f64) -> f64 {
        let mut ago_s = 0.0;
        let points: Vec<(f64, f64)> = self
            .periods
            .iter()
            .filter(|(_, period_s)| *period_s > 0.0)
            .map(|(requests, period_s)| {
                let middle_s = ago_s + period_s / 2.0;
                ago_s += period_s;
                (-middle_s, requests / period_s)
            })
            .collect();
        let count = points.len() as f64;
        if points.len() < FEWEST_OF_TREND {
            return 0.0;
        }
        let pairs = points.iter().enumerate().flat_map(|(at, newer)| {
            points[at + 1..]
                .iter()
                .map(move |older| (newer.1 - older.1) / (newer.0 - older.0))
        });
        let mut slopes: Vec<f64> = pairs.collect();
        let rising: f64 = slopes
            .iter()
            .map(|slope| if *slope == 0.0 { 0.0 } else { slope.signum() })
            .sum();
        let variance = count * (count - 1.0) * (2.0 * count + 5.0) / 18.0;
        if rising < TREND_DEVIATIONS * variance.sqrt() {
            return 0.0;
        }
        slopes.sort_unstable_by(f64::total_cmp);
        let (middle, quartile) = (slopes[slopes.len() / 2], slopes[slopes.len() / 4]);
        let more = more_variance(&points, middle);
        if rising < TREND_DEVIATIONS * (variance * more).sqrt() {
            return 0.0;
        }
        quartile.max(0.0) * horizon_s.min(ago_s)
    }

    /// What comes at least: the highest of what each window shows beyond the noise of its count, and the seconds of that window. A surge is
    /// in it after its first period, a slow rise once there is enough of it.
    pub(super) fn sure(&self) -> (f64, f64) {
        let (mut requests, mut length_s, mut most) = (0.0, 0.0, (0.0, 0.0));
        for (at, (of_period, period_s)) in self.periods.iter().enumerate() {
            requests += of_period;
            length_s += period_s;
            if WINDOWS.contains(&(at + 1)) && length_s > 0.0 {
                let sure = (requests - DEVIATIONS * requests.sqrt()) / length_s;
                if sure > most.0 {
                    most = (sure, length_s);
                }
            }
        }
        most
    }
}

/// How many times the variance of Mann's number is what it would be of periods that do not depend on each other: by the first
/// autocorrelation of what is beside a line of this slope.
fn more_variance(points: &[(f64, f64)], slope: f64) -> f64 {
    let beside: Vec<f64> = points.iter().map(|(at, rate)| rate - slope * at).collect();
    let mean = beside.iter().sum::<f64>() / beside.len() as f64;
    let all: f64 = beside.iter().map(|value| (value - mean).powi(2)).sum();
    let next: f64 = beside
        .windows(2)
        .map(|pair| (pair[0] - mean) * (pair[1] - mean))
        .sum();
    // Of a line without noise nothing is beside it.
    let of_next = if all > 1e-12 {
        (next / all).clamp(0.0, 0.9)
    } else {
        0.0
    };
    ((1.0 + of_next) / (1.0 - of_next)).min(MOST_VARIANCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_surge_shows_at_once_and_noise_does_not() {
        let mut rates = Rates::default();
        (0..60).for_each(|_| rates.observe(100.0, 1.0));
        assert!((rates.mean() - 100.0).abs() < 1e-9);
        let (sure, over_s) = rates.sure();
        assert!((94.0..100.0).contains(&sure) && over_s == 30.0, "{sure}");
        // A count of 125 is what noise can make.
        rates.observe(125.0, 1.0);
        assert!(rates.sure().0 < 100.0, "{}", rates.sure().0);
        rates.observe(1_000.0, 1.0);
        let (sure, over_s) = rates.sure();
        assert!(sure > 900.0 && over_s == 1.0, "{sure}");
    }

    #[test]
    fn a_rise_is_carried_on_and_a_step_and_noise_are_not() {
        let rates = |of: &dyn Fn(f64) -> f64| {
            let mut rates = Rates::default();
            (0..60).for_each(|second| rates.observe(of(f64::from(second)), 1.0));
            rates
        };
        let rise = rates(&|second| 40.0 + 2.5 * second);
        assert!(
            (rise.rise_within(8.0) - 20.0).abs() < 1e-9,
            "{}",
            rise.rise_within(8.0)
        );
        // No longer than the half minute that was seen.
        assert!((rise.rise_within(1e4) - 75.0).abs() < 1e-6);
        let wobble = |second: f64| 7.0 * (second * 2.399_963).sin();
        let noisy = rates(&|second| 40.0 + 2.5 * second + wobble(second)).rise_within(8.0);
        assert!((10.0..22.0).contains(&noisy), "{noisy}");
        for at in [31.0, 40.0, 45.0, 50.0, 58.0] {
            let step = rates(&|second| if second < at { 20.0 } else { 200.0 } + wobble(second) / 4.0);
            assert!(step.rise_within(8.0) < 10.0, "{at}: {}", step.rise_within(8.0));
        }
        assert_eq!(rates(&|second| 100.0 + wobble(second)).rise_within(8.0), 0.0);
        assert_eq!(rates(&|second| 190.0 - 2.5 * second).rise_within(8.0), 0.0);
        assert_eq!(Rates::default().rise_within(8.0), 0.0);
    }

    #[test]
    fn nothing_observed_is_nothing_that_comes() {
        let mut rates = Rates::default();
        assert_eq!((rates.mean(), rates.sure()), (0.0, (0.0, 0.0)));
        rates.observe(0.0, 1.0);
        assert_eq!((rates.mean(), rates.sure()), (0.0, (0.0, 0.0)));
    }
}
