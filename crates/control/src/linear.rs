//! The little dense linear algebra that fits need: least squares of some tens of parameters through their normal
//! equations. A factorisation by Cholesky is some thirty lines, and a library for it would bring ten crates.

/// The lower triangle L of a symmetric positive definite matrix L L', row by row.
#[derive(Clone, Debug)]
pub(crate) struct Cholesky {
    n: usize,
    lower: Vec<f64>,
}

impl Cholesky {
    /// Factorises a matrix of `n` rows, given row by row; `None` where it is not positive definite.
    pub(crate) fn of(matrix: &[f64], n: usize) -> Option<Self> {
        let mut lower = vec![0.0; n * n];
        for row in 0..n {
            for column in 0..=row {
                let (one, two) = (&lower[row * n..row * n + column], &lower[column * n..][..column]);
                let rest = matrix[row * n + column] - dot(one, two);
                lower[row * n + column] = if row == column {
                    if !(rest > 0.0 && rest.is_finite()) {
                        return None;
                    }
                    rest.sqrt()
                } else {
                    rest / lower[column * n + column]
                };
            }
        }
        Some(Self { n, lower })
    }

    /// The least of the squared pivots: of a matrix whose diagonal is ones, near 0 where one column nearly is what others make.
    pub(crate) fn least_pivot(&self) -> f64 {
        let pivots = (0..self.n).map(|at| self.lower[at * self.n + at].powi(2));
        pivots.fold(f64::INFINITY, f64::min)
    }

    /// The x of L L' x = `right`.
    pub(crate) fn solve(&self, right: &[f64]) -> Vec<f64> {
        let (n, lower) = (self.n, &self.lower);
        let mut x = right.to_vec();
        for row in 0..n {
            let before = dot(&lower[row * n..row * n + row], &x[..row]);
            x[row] = (x[row] - before) / lower[row * n + row];
        }
        for row in (0..n).rev() {
            let after: f64 = (row + 1..n).map(|below| lower[below * n + row] * x[below]).sum();
            x[row] = (x[row] - after) / lower[row * n + row];
        }
        x
    }

    /// The inverse, row by row.
    pub(crate) fn inverse(&self) -> Vec<f64> {
        let n = self.n;
        let mut inverse = Vec::with_capacity(n * n);
        for row in 0..n {
            let mut unit = vec![0.0; n];
            unit[row] = 1.0;
            inverse.extend(self.solve(&unit));
        }
        // Symmetric to the last digit, so that a half of it says all.
        for row in 0..n {
            for column in 0..row {
                inverse[column * n + row] = inverse[row * n + column];
            }
        }
        inverse
    }
}

/// The product of two vectors.
pub(crate) fn dot(one: &[f64], two: &[f64]) -> f64 {
    one.iter().zip(two).map(|(one, two)| one * two).sum()
}

/// How much of the mean square of a regressor is added to the diagonal of X'X: what the data say nothing of stays near 0, and what
/// they do say is changed by a millionth.
const RIDGE: f64 = 1e-6;

/// A least-squares fit in the making: X'X and X'y.
#[derive(Clone, Debug)]
pub(crate) struct LeastSquares {
    n: usize,
    gram: Vec<f64>,
    moment: Vec<f64>,
}

/// What was fitted.
#[derive(Clone, Debug)]
pub(crate) struct Fit {
    /// The parameters.
    pub(crate) parameters: Vec<f64>,
    /// (X'X)^-1, row by row.
    pub(crate) covariance: Vec<f64>,
}

impl LeastSquares {
    /// Of `n` parameters.
    pub(crate) fn new(n: usize) -> Self {
        Self {
            n,
            gram: vec![0.0; n * n],
            moment: vec![0.0; n],
        }
    }

    /// Takes a row of X and its y.
    pub(crate) fn add(&mut self, row: &[f64], y: f64) {
        for (at, one) in row.iter().enumerate() {
            self.moment[at] += one * y;
            for (entry, two) in self.gram[at * self.n..][..self.n].iter_mut().zip(row) {
                *entry += one * two;
            }
        }
    }

    /// The parameters of the least sum of squares; `None` where the rows hold what is no number, or there are none.
    pub(crate) fn solve(mut self) -> Option<Fit> {
        let n = self.n;
        let trace: f64 = (0..n).map(|at| self.gram[at * n + at]).sum();
        for at in 0..n {
            self.gram[at * n + at] += RIDGE * trace / n as f64;
        }
        let cholesky = Cholesky::of(&self.gram, n)?;
        let parameters = cholesky.solve(&self.moment);
        let all_finite = parameters.iter().all(|one| one.is_finite());
        all_finite.then(|| Fit {
            covariance: cholesky.inverse(),
            parameters,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_not_positive_definite_is_refused() {
        assert!(Cholesky::of(&[1.0, 2.0, 2.0, 1.0], 2).is_none());
        assert!(Cholesky::of(&[f64::NAN], 1).is_none());
        // The second column is nearly the first.
        let nearly = Cholesky::of(&[1.0, 0.9999, 0.9999, 1.0], 2).unwrap();
        assert!(
            (nearly.least_pivot() - 2e-4).abs() < 1e-6,
            "{}",
            nearly.least_pivot()
        );
        assert!(LeastSquares::new(2).solve().is_none());
    }

    #[test]
    fn a_line_through_exact_points_is_found() {
        let mut fit = LeastSquares::new(2);
        for x in [0.0, 0.25, 0.5, 1.0] {
            fit.add(&[1.0, x], 3.0 - 2.0 * x);
        }
        let fit = fit.solve().unwrap();
        assert!((fit.parameters[0] - 3.0).abs() < 1e-4 && (fit.parameters[1] + 2.0).abs() < 1e-4);
    }

    proptest! {
        #[test]
        fn the_inverse_times_the_matrix_is_one(entries in prop::collection::vec(-2.0..2.0f64, 16)) {
            // A A' + 1 is positive definite whatever A is.
            let at = |row: usize, column: usize| {
                let unit = if row == column { 1.0 } else { 0.0 };
                unit + dot(&entries[row * 4..][..4], &entries[column * 4..][..4])
            };
            let matrix: Vec<f64> = (0..16).map(|entry| at(entry / 4, entry % 4)).collect();
            let inverse = Cholesky::of(&matrix, 4).unwrap().inverse();
            for row in 0..4 {
                for column in 0..4 {
                    let product: f64 = (0..4).map(|k| inverse[row * 4 + k] * matrix[k * 4 + column]).sum();
                    let unit = if row == column { 1.0 } else { 0.0 };
                    prop_assert!((product - unit).abs() < 1e-6);
                }
            }
        }
    }
}
