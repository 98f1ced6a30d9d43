//! The least number of concurrent workers that saturates throughput, C_optimal.
//!
//! Source: REEF Section 3.3 \[F\], C = min(C_avail, C_optimal), where C_optimal is the fewest concurrent workers with the most
//! throughput; AppleS (Li et al., EuroSys 2022) \[F\], for the closed-form model. [`Climb`] is our own hill climb \[D\]: AppleS allows
//! one and does not spell it out.
//!
//! The model: λ(P) = P l0 / [P0 + B P0 (e^(-g P0) - e^(-g P)) (P - 1)] for P workers, where l0 is the throughput measured at
//! P0 workers, and B and g are fitted to two more points.

mod climb;

pub use climb::{Climb, ClimbPeriod, ClimbState, ClimbTuning};

use headroom_units::PerSecond;

/// Where Newton's method begins, as published.
const START: f64 = 0.01;
/// Steps of Newton's method at most; each that leaves the bracket is a halving.
const MAX_STEPS: usize = 200;

/// One measured point: workers at once and the throughput in queries per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Workers that ran at once.
    pub workers: u32,
    /// Throughput measured, in queries per second.
    pub throughput: PerSecond,
}

/// Points that no model can be fitted to.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum FitError {
    /// The numbers of workers do not rise from at least 1.
    #[error("the numbers of workers are {0}, {1} and {2}: they must rise, from 1 or more")]
    Workers(u32, u32, u32),
    /// A throughput is not a positive number.
    #[error("the throughput of {workers} workers is {throughput}/s: it must be greater than 0 and finite")]
    Throughput {
        /// The number of workers.
        workers: u32,
        /// What was measured, per second.
        throughput: f64,
    },
}

/// Which form of the contention term was fitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Contention {
    /// The published form with both parameters.
    Exponential {
        /// B of the model.
        b: f64,
        /// g of the model, per worker.
        g: f64,
    },
    /// The limit g → 0 with B g = `slope`: contention grows at least linearly up to the last point, so no positive g fits.
    Linear {
        /// B g, per worker.
        slope: f64,
    },
    /// The limit g → ∞ with B e^(-g P0) = `level`: contention is all there at the middle point, and λ never falls.
    Level {
        /// The contention term at all P > P0.
        level: f64,
    },
    /// Throughput is proportional to the number of workers, or better, up to the middle or the last point.
    Absent,
}

/// The fitted model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    first: Point,
    /// The form of its contention term.
    pub contention: Contention,
}

impl Model {
    /// Fits the model to three points of rising numbers of workers (published: 8, 32 and near the number of connections).
    ///
    /// g solves (1 - e^(-g d1)) / (1 - e^(-g d2)) = y1 / y2, where d is the distance of a point from the first and y its
    /// contention term. The left side falls from d1 / d2 to 1: outside of that there is no root, and the nearer limit of the
    /// model is the fit \[D\].
    ///
    /// # Errors
    /// [`FitError`] for points that cannot be.
    pub fn fit(points: [Point; 3]) -> Result<Self, FitError> {
        let [first, middle, last] = points;
        if first.workers == 0 || first.workers >= middle.workers || middle.workers >= last.workers {
            return Err(FitError::Workers(first.workers, middle.workers, last.workers));
        }
        for point in points {
            let throughput = point.throughput.get();
            if !(throughput > 0.0 && throughput.is_finite()) {
                return Err(FitError::Throughput {
                    workers: point.workers,
                    throughput,
                });
            }
        }
        let term = |point: Point| {
            let linear = f64::from(point.workers) / f64::from(first.workers) * first.throughput.get();
            (linear / point.throughput.get() - 1.0) / (f64::from(point.workers) - 1.0)
        };
        let distance = |point: Point| f64::from(point.workers - first.workers);
        let (near, far) = (term(middle), term(last));
        let (d2, d1) = (distance(middle), distance(last));
        let contention = if far <= 0.0 {
            Contention::Absent
        } else if near <= 0.0 || far / near >= d1 / d2 {
            Contention::Linear { slope: far / d1 }
        } else if far <= near {
            Contention::Level {
                level: 0.5 * (near + far),
            }
        } else {
            let g = root(far / near, d1, d2);
            let span = -(-g * d1).exp_m1() * (-g * f64::from(first.workers)).exp();
            Contention::Exponential { b: far / span, g }
        };
        Ok(Self { first, contention })
    }

    /// λ(P), in queries per second.
    pub fn throughput(&self, workers: u32) -> PerSecond {
        let (p, p0) = (f64::from(workers), f64::from(self.first.workers));
        let term = match self.contention {
            Contention::Exponential { b, g } => b * ((-g * p0).exp() - (-g * p).exp()),
            Contention::Linear { slope } => slope * (p - p0),
            Contention::Level { level } if workers > self.first.workers => level,
            Contention::Level { .. } | Contention::Absent => 0.0,
        };
        // Below the first point the term is negative and could take all of the denominator: linear is the most there.
        let term = term.max(0.0);
        self.first.throughput * (p / (p0 * (1.0 + term * (p - 1.0))))
    }

    /// The number of workers after which λ first falls, up to `max`; `max` where it never falls.
    pub fn peak(&self, max: u32) -> u32 {
        let falls = |workers: &u32| self.throughput(workers + 1) < self.throughput(*workers);
        (1..max).find(falls).unwrap_or(max.max(1))
    }

    /// The fewest workers, up to `max`, whose λ is within the share `tolerance` of that at the peak \[D\]: the curve is flat
    /// around its peak, and every worker less is contention less.
    pub fn least(&self, max: u32, tolerance: f64) -> u32 {
        let peak = self.peak(max);
        let enough = self.throughput(peak) * (1.0 - tolerance);
        (1..peak)
            .find(|workers| self.throughput(*workers) >= enough)
            .unwrap_or(peak)
    }
}

/// g > 0 with (1 - e^(-g d1)) / (1 - e^(-g d2)) = `ratio`, by Newton's method kept in a bracket; 1 < ratio < d1 / d2.
fn root(ratio: f64, d1: f64, d2: f64) -> f64 {
    let (mut low, mut high) = (1e-12 / d1, 700.0 / d2);
    let mut g = START.clamp(low, high);
    for _ in 0..MAX_STEPS {
        let (top, bottom) = (-(-g * d1).exp_m1(), -(-g * d2).exp_m1());
        let error = top / bottom - ratio;
        match error > 0.0 {
            true => low = g,
            false => high = g,
        }
        let slope = (d1 * (-g * d1).exp() * bottom - top * d2 * (-g * d2).exp()) / (bottom * bottom);
        let newton = g - error / slope;
        let next = match newton > low && newton < high {
            true => newton,
            false => 0.5 * (low + high),
        };
        if (next - g).abs() <= 1e-14 * g {
            return next;
        }
        g = next;
    }
    g
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn points(throughputs: [(u32, f64); 3]) -> [Point; 3] {
        throughputs.map(|(workers, throughput)| Point {
            workers,
            throughput: PerSecond::new(throughput),
        })
    }

    #[test]
    fn each_shape_of_three_points_has_its_form() {
        let fit = |three| Model::fit(points(three)).unwrap();
        let linear = fit([(8, 800.0), (32, 3_200.0), (64, 6_400.0)]);
        assert_eq!(linear.contention, Contention::Absent);
        assert_eq!(linear.peak(48), 48);
        let collapse = fit([(8, 800.0), (32, 3_000.0), (512, 400.0)]);
        assert!(
            matches!(collapse.contention, Contention::Linear { .. }),
            "{collapse:?}"
        );
        assert!(collapse.peak(512) < 512);
        let level = fit([(8, 800.0), (32, 1_600.0), (512, 25_600.0)]);
        assert!(matches!(level.contention, Contention::Level { .. }), "{level:?}");
        let smooth = fit([(8, 800.0), (32, 1_600.0), (512, 1_500.0)]);
        assert!(
            matches!(smooth.contention, Contention::Exponential { .. }),
            "{smooth:?}"
        );
        assert!((9..200).contains(&smooth.peak(512)), "{}", smooth.peak(512));
        assert!(smooth.least(512, 0.02) <= smooth.peak(512));
    }

    #[test]
    fn points_that_cannot_be_are_refused() {
        let order = Model::fit(points([(8, 1.0), (8, 1.0), (9, 1.0)])).unwrap_err();
        assert_eq!(order, FitError::Workers(8, 8, 9));
        let zero = Model::fit(points([(8, 1.0), (9, 0.0), (10, 1.0)]))
            .unwrap_err()
            .to_string();
        assert!(zero.starts_with("the throughput of 9 workers is 0/s"), "{zero}");
    }

    proptest! {
        /// What the model made, the fit finds again; and every fit goes through the first point and stays finite.
        #[test]
        fn the_fit_finds_the_model(b in 0.01..5.0f64, g in 0.002..0.1f64, max in 100..600u32) {
            let first = points([(8, 800.0), (9, 1.0), (10, 1.0)])[0];
            let made = Model { first, contention: Contention::Exponential { b, g } };
            let at = |workers| Point { workers, throughput: made.throughput(workers) };
            let found = Model::fit([at(8), at(32), at(max)]).unwrap();
            for workers in [8, 16, 32, 64, max] {
                let (is, was) = (found.throughput(workers).get(), made.throughput(workers).get());
                prop_assert!((is / was - 1.0).abs() < 1e-4, "{is} is not {was} at {workers}: {found:?}");
            }
        }

        /// No three points make a model that is not a number.
        #[test]
        fn every_fit_is_finite(a in 1.0..1e5f64, b in 1.0..1e5f64, c in 1.0..1e5f64, workers in 1..600u32) {
            let found = Model::fit(points([(8, a), (32, b), (512, c)])).unwrap();
            prop_assert!(found.throughput(workers).get() > 0.0 && found.throughput(workers).is_finite(), "{found:?}");
            prop_assert!((1..=512).contains(&found.least(512, 0.02)));
        }
    }
}
