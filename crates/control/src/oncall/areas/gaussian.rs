//! Gaussian-process regression with a Matern 5/2 kernel, and expected improvement: what Bayesian optimisation needs.
//!
//! Source: Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), Algorithm 2.1 and Equation 4.17; Jones, Schonlau and
//! Welch, "Efficient global optimization" (1998), Equation 15. Values are normalised; length scale and noise are the pair of a small grid
//! with the largest marginal likelihood.

use std::f64::consts::{PI, SQRT_2};

/// Length scales that are tried, in units of the points.
const LENGTHS: [f64; 4] = [0.05, 0.1, 0.25, 0.6];
/// Noise variances that are tried, over that of the values.
const NOISES: [f64; 3] = [0.01, 0.1, 0.5];

/// A regression of values at points.
#[derive(Clone, Debug)]
pub(super) struct Gaussian {
    points: Vec<Vec<f64>>,
    length: f64,
    mean: f64,
    deviation: f64,
    /// The lower triangle of the covariance's root, row by row.
    root: Vec<Vec<f64>>,
    /// The covariance's inverse times the values.
    alpha: Vec<f64>,
}

impl Gaussian {
    /// `None` of no points, or where no covariance can be factored.
    pub(super) fn fit(points: &[Vec<f64>], values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        if values.is_empty() || points.len() != values.len() {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        let deviation = if variance > 1e-18 { variance.sqrt() } else { 1.0 };
        let normal: Vec<f64> = values.iter().map(|value| (value - mean) / deviation).collect();
        let mut best: Option<(f64, Self)> = None;
        for length in LENGTHS {
            for noise in NOISES {
                let Some(root) = factor(points, length, noise) else {
                    continue;
                };
                let alpha = solve_transposed(&root, solve(&root, &normal));
                let fit: f64 = normal
                    .iter()
                    .zip(&alpha)
                    .map(|(value, alpha)| value * alpha)
                    .sum();
                let determinant: f64 = root.iter().enumerate().map(|(at, row)| row[at].ln()).sum();
                let likelihood = -0.5 * fit - determinant;
                if best.as_ref().is_none_or(|(most, _)| likelihood > *most) {
                    let of = Self {
                        points: points.to_vec(),
                        length,
                        mean,
                        deviation,
                        root,
                        alpha,
                    };
                    best = Some((likelihood, of));
                }
            }
        }
        best.map(|(_, of)| of)
    }

    /// Mean and standard deviation of the function at a point.
    pub(super) fn at(&self, point: &[f64]) -> (f64, f64) {
        let covariance: Vec<f64> = self
            .points
            .iter()
            .map(|known| matern(known, point, self.length))
            .collect();
        let mean: f64 = covariance
            .iter()
            .zip(&self.alpha)
            .map(|(one, other)| one * other)
            .sum();
        let explained: f64 = solve(&self.root, &covariance)
            .iter()
            .map(|value| value * value)
            .sum();
        let deviation = (1.0 - explained).max(0.0).sqrt();
        (self.mean + self.deviation * mean, self.deviation * deviation)
    }

    /// The expected improvement at a point over a value.
    pub(super) fn improvement(&self, point: &[f64], best: f64) -> f64 {
        let (mean, deviation) = self.at(point);
        let gain = mean - best;
        if deviation <= 0.0 {
            return gain.max(0.0);
        }
        let z = gain / deviation;
        gain * normal_below(z) + deviation * (-0.5 * z * z).exp() / (2.0 * PI).sqrt()
    }
}

/// Matern 5/2.
fn matern(one: &[f64], other: &[f64], length: f64) -> f64 {
    let squares: f64 = one.iter().zip(other).map(|(a, b)| (a - b).powi(2)).sum();
    let r = 5f64.sqrt() * squares.sqrt() / length;
    (1.0 + r + r * r / 3.0) * (-r).exp()
}

/// Cholesky's root of the covariance with noise; `None` where it has none.
fn factor(points: &[Vec<f64>], length: f64, noise: f64) -> Option<Vec<Vec<f64>>> {
    let mut root: Vec<Vec<f64>> = Vec::with_capacity(points.len());
    for (row, point) in points.iter().enumerate() {
        let mut values = Vec::with_capacity(row + 1);
        for (column, other) in points[..=row].iter().enumerate() {
            let own = if row == column { noise } else { 0.0 };
            let above: &[f64] = if row == column { &values } else { &root[column] };
            let sum: f64 = values.iter().zip(above).map(|(a, b): (&f64, &f64)| a * b).sum();
            let rest = matern(point, other, length) + own - sum;
            values.push(match row == column {
                true if rest <= 0.0 => return None,
                true => rest.sqrt(),
                false => rest / root[column][column],
            });
        }
        root.push(values);
    }
    Some(root)
}

/// L x = b.
fn solve(root: &[Vec<f64>], of: &[f64]) -> Vec<f64> {
    let mut solved: Vec<f64> = Vec::with_capacity(of.len());
    for (row, value) in root.iter().zip(of) {
        let sum: f64 = row.iter().zip(&solved).map(|(a, b)| a * b).sum();
        let own = row[solved.len()];
        solved.push((value - sum) / own);
    }
    solved
}

/// Lᵀ x = b.
fn solve_transposed(root: &[Vec<f64>], mut of: Vec<f64>) -> Vec<f64> {
    for at in (0..of.len()).rev() {
        let sum: f64 = (at + 1..of.len()).map(|below| root[below][at] * of[below]).sum();
        of[at] = (of[at] - sum) / root[at][at];
    }
    of
}

/// The standard normal distribution function, to within 1.5e-7 (Abramowitz and Stegun, 7.1.26).
fn normal_below(z: f64) -> f64 {
    let x = z.abs() / SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let terms = [
        0.254_829_592,
        -0.284_496_736,
        1.421_413_741,
        -1.453_152_027,
        1.061_405_429,
    ];
    let sum = terms.iter().rev().fold(0.0, |sum, term| (sum + term) * t);
    let error = 1.0 - sum * (-x * x).exp();
    0.5 * (1.0 + error.copysign(z))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_normal_distribution_is_that_of_tables() {
        for (z, below) in [
            (0.0, 0.5),
            (1.0, 0.841_344_7),
            (-1.959_964, 0.025),
            (3.0, 0.998_650_1),
        ] {
            assert!((normal_below(z) - below).abs() < 2e-7, "{z}");
        }
    }

    #[test]
    fn it_goes_through_what_it_knows_and_doubts_the_rest() {
        let points: Vec<Vec<f64>> = (0..=10).map(|at| vec![f64::from(at) / 10.0]).collect();
        let values: Vec<f64> = points
            .iter()
            .map(|point| (3.0 * point[0]).sin() * 10.0 + 50.0)
            .collect();
        let of = Gaussian::fit(&points, &values).unwrap();
        let (mean, near) = of.at(&[0.55]);
        assert!((mean - ((1.65f64).sin() * 10.0 + 50.0)).abs() < 0.5, "{mean}");
        let (_, far) = of.at(&[3.0]);
        assert!(far > 3.0 * near, "{far} {near}");
        // Nothing improves on far more than was ever seen.
        assert!(of.improvement(&[0.55], 1e3) < 1e-9);
        assert!(of.improvement(&[3.0], 50.0) > 0.1);
    }

    #[test]
    fn what_never_differs_is_known_as_such() {
        let points = vec![vec![0.1], vec![0.1], vec![0.9]];
        let of = Gaussian::fit(&points, &[2.0, 2.0, 2.0]).unwrap();
        assert!((of.at(&[0.5]).0 - 2.0).abs() < 1e-9);
        assert!(Gaussian::fit(&[], &[]).is_none());
    }
}
