//! How the instructions of a query grow with the number of active threads.

use crate::error::{ScenarioError, within};
use serde::{Deserialize, Serialize};

/// The most points of a curve.
const MAX_POINTS: usize = 1_000;

/// One point of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IpqPoint {
    /// Threads that are runnable or wait for the disk.
    pub threads: f64,
    /// Instructions per query over those with one thread.
    pub factor: f64,
}

/// IPQ inflation: straight between points, from (1, 1) to the first, flat after the last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IpqCurve {
    /// The points, threads ascending.
    pub points: Vec<IpqPoint>,
}

impl IpqCurve {
    /// No inflation.
    pub fn none() -> Self {
        Self::default()
    }

    /// MongoDB under YCSB (REEF, Figure 3): 1.05 at 64 threads, 1.27 from 128 on.
    pub fn mongodb() -> Self {
        Self::of(&[(64.0, 1.05), (128.0, 1.27)])
    }

    /// MySQL under sysbench OLTP (REEF, Figure 3): from 1.11 at 64 threads to 6.14 at 512; what lies between is not printed, and
    /// is a straight line here.
    pub fn mysql() -> Self {
        Self::of(&[(64.0, 1.11), (512.0, 6.14)])
    }

    fn of(points: &[(f64, f64)]) -> Self {
        let point = |&(threads, factor)| IpqPoint { threads, factor };
        Self {
            points: points.iter().map(point).collect(),
        }
    }

    /// The factor with so many active threads.
    pub fn at(&self, threads: u32) -> f64 {
        let threads = f64::from(threads);
        let mut before = IpqPoint {
            threads: 1.0,
            factor: 1.0,
        };
        for point in &self.points {
            if threads <= point.threads {
                let share = ((threads - before.threads) / (point.threads - before.threads)).max(0.0);
                return before.factor + share * (point.factor - before.factor);
            }
            before = *point;
        }
        before.factor
    }

    pub(super) fn check(&self, key: &str) -> Result<(), ScenarioError> {
        within(key, self.points.len() as f64, 0.0, MAX_POINTS as f64, " points")?;
        let mut before = 1.0;
        for (at, point) in self.points.iter().enumerate() {
            within(&format!("{key}.{at}.factor"), point.factor, 0.01, 1e4, "")?;
            if !(point.threads > before && point.threads <= 1e9) {
                let why = format!("is {}: it must be above {before} and at most 1e9", point.threads);
                return Err(ScenarioError::new(format!("{key}.{at}.threads"), why));
            }
            before = point.threads;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_presets_are_the_papers_points() {
        let at = |curve: &IpqCurve, threads: [u32; 5]| threads.map(|count| curve.at(count));
        let mongodb = at(&IpqCurve::mongodb(), [0, 1, 64, 128, 512]);
        assert_eq!(mongodb, [1.0, 1.0, 1.05, 1.27, 1.27]);
        let mysql = at(&IpqCurve::mysql(), [1, 64, 288, 512, 1000]);
        assert!((mysql[2] - 3.625).abs() < 1e-12);
        assert_eq!((mysql[1], mysql[3], mysql[4]), (1.11, 6.14, 6.14));
        assert_eq!(IpqCurve::none().at(512), 1.0);
    }

    #[test]
    fn a_curve_that_goes_back_is_refused() {
        let curve = IpqCurve::of(&[(64.0, 1.1), (64.0, 1.2)]);
        let error = curve.check("query.inflation").unwrap_err().to_string();
        assert_eq!(
            error,
            "query.inflation.1.threads: is 64: it must be above 64 and at most 1e9"
        );
    }
}
