//! When requests arrived in a run, as far as that tells one load from another.

use crate::archive::Archive;
use crate::error::Error;
use crate::model::RunId;

/// Parts of equal length that a run is cut into.
const PARTS: usize = 10;
/// The share of the requests that may arrive in other parts of the run under the same load: a generator is not started at the same
/// instant of each run, and users who wait for answers come later where the answers do.
const MAX_APART: f64 = 0.10;
/// How many times the mean difference that chance alone makes is added to that.
const OF_CHANCE: f64 = 3.0;

impl Archive {
    /// Requests that arrived in each tenth of a run; those of a period that lies in two tenths are divided by time. Empty where that
    /// is not known: of a run without periods, or whose first ones were removed. Periods without telemetry count none.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn arrivals_in_tenths(&self, id: RunId) -> Result<Vec<f64>, Error> {
        if self.run(id)?.pruned > 0 {
            return Ok(Vec::new());
        }
        let mut periods = Vec::new();
        self.arrivals(id, |at_s, duration_s, arrivals| {
            periods.push((at_s, duration_s, arrivals))
        })?;
        Ok(tenths(&periods))
    }
}

/// Of periods by begin, length (s) and arrivals, the arrivals in each tenth from the first's begin to the last's end.
fn tenths(periods: &[(f64, f64, f64)]) -> Vec<f64> {
    let (Some(first), Some(last)) = (periods.first(), periods.last()) else {
        return Vec::new();
    };
    let (begin, end) = (first.0, last.0 + last.1);
    if end <= begin {
        return Vec::new();
    }
    let each = (end - begin) / PARTS as f64;
    let mut parts = vec![0.0; PARTS];
    for &(at, length, arrivals) in periods {
        for (number, part) in parts.iter_mut().enumerate() {
            let from = begin + number as f64 * each;
            let within = (at + length).min(from + each) - at.max(from);
            if within > 0.0 {
                *part += arrivals * within / length;
            }
        }
    }
    parts
}

/// The share of the requests that arrived in other parts of the one run than of the other, where that is more than chance and
/// [`MAX_APART`] explain; `None` also where it is not known of either.
pub(crate) fn apart(one: &[f64], other: &[f64]) -> Option<f64> {
    let parts = || one.iter().zip(other);
    let most: f64 = parts().map(|(one, other)| one.max(*other)).sum();
    if most <= 0.0 {
        return None;
    }
    let apart = parts().map(|(one, other)| (one - other).abs()).sum::<f64>() / most;
    // Of Poisson counts a and b of one mean, |a - b| has the mean sqrt(2 (a + b) / pi).
    let chance = |(one, other): (&f64, &f64)| (std::f64::consts::FRAC_2_PI * (one + other)).sqrt();
    let by_chance = parts().map(chance).sum::<f64>() / most;
    (apart > MAX_APART + OF_CHANCE * by_chance).then_some(apart)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_divided_over_the_tenths_that_a_period_lies_in() {
        let periods: Vec<(f64, f64, f64)> = (0..4).map(|n| (f64::from(n) * 2.5, 2.5, 100.0)).collect();
        let parts = tenths(&periods);
        assert!(parts.iter().all(|part| (part - 40.0).abs() < 1e-9), "{parts:?}");
        assert!(tenths(&[]).is_empty());
    }

    #[test]
    fn another_course_of_the_same_number_of_requests_is_another_load_and_chance_is_none() {
        let steady = [100.0; PARTS];
        let ramp: Vec<f64> = (0..10).map(|n| 10.0 + 20.0 * f64::from(n)).collect();
        assert_eq!(ramp.iter().sum::<f64>(), steady.iter().sum::<f64>());
        assert!(apart(&steady, &ramp).is_some_and(|apart| apart > 0.3));
        let noisy: Vec<f64> = (0..10).map(|n| if n % 2 == 0 { 110.0 } else { 90.0 }).collect();
        assert_eq!(apart(&steady, &noisy), None);
        assert_eq!(apart(&[], &ramp), None);
    }
}
