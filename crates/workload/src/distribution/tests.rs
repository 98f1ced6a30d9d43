use super::*;
use crate::random::{Purpose, Rng};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// Every shape keeps the mean it is scaled to and the SCV it states.
#[test]
fn samples_have_the_stated_mean_and_scv() {
    let shapes = [
        Shape::Exponential {},
        Shape::Deterministic {},
        Shape::Lognormal { scv: 0.5 },
        Shape::Lognormal { scv: 4.0 },
        Shape::Pareto {
            exponent: 1.5,
            range: 1e3,
        },
        Shape::Pareto {
            exponent: 2.0,
            range: 50.0,
        },
        Shape::Pareto {
            exponent: 1.0,
            range: 100.0,
        },
        Shape::Hyperexponential { scv: 4.0 },
        Shape::Weibull { shape: 1.46 },
        Shape::Weibull { shape: 0.8 },
        Shape::Empirical {
            values: vec![1.0, 2.0, 10.0, 0.0],
            weights: vec![5.0, 3.0, 1.0, 0.5],
        },
        Shape::Empirical {
            values: vec![3.0, 1.0],
            weights: vec![],
        },
    ];
    for shape in shapes {
        shape.check("size").unwrap();
        let sampler = shape.scaled(0.25);
        let mut rng = Rng::new(11, Purpose::Sizes);
        let (mut sum, mut squares) = (0.0, 0.0);
        let count = 2_000_000;
        for _ in 0..count {
            let value = sampler.sample(&mut rng);
            assert!(value >= 0.0);
            sum += value;
            squares += value * value;
        }
        let mean = sum / f64::from(count);
        let scv = squares / f64::from(count) / (mean * mean) - 1.0;
        assert!((mean / 0.25 - 1.0).abs() < 0.01, "{shape:?}: mean {mean}");
        let off = (scv - shape.scv()).abs();
        assert!(
            off < 0.05 * shape.scv() + 1e-9,
            "{shape:?}: SCV {scv}, stated {}",
            shape.scv()
        );
    }
}

#[test]
fn a_shape_that_is_none_is_named_with_its_value_and_rule() {
    let cases = [
        (
            Shape::Lognormal { scv: -1.0 },
            "size.scv: is -1: it must be above 0",
        ),
        (
            Shape::Hyperexponential { scv: 1.0 },
            "size.scv: is 1: it must be above 1",
        ),
        (
            Shape::Pareto {
                exponent: 0.0,
                range: 2.0,
            },
            "size.exponent: is 0",
        ),
        (
            Shape::Pareto {
                exponent: 1.0,
                range: 1.0,
            },
            "size.range: is 1",
        ),
        (
            Shape::Empirical {
                values: vec![],
                weights: vec![],
            },
            "size.values: is 0 values",
        ),
        (
            Shape::Empirical {
                values: vec![0.0],
                weights: vec![],
            },
            "size.values: is a mean of 0",
        ),
        (
            Shape::Empirical {
                values: vec![1.0],
                weights: vec![1.0, 2.0],
            },
            "size.weights: is 2 weights for 1",
        ),
    ];
    for (shape, expected) in cases {
        let error = shape.check("size").unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

const DRAWS: usize = 100_000;

fn sorted(distribution: &Distribution) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut values: Vec<f64> = (0..DRAWS).map(|_| distribution.sample(&mut rng)).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The largest distance between the drawn and the stated distribution function. By Kolmogorov it exceeds
/// 1.95 / sqrt(n) once in a thousand seeds.
fn farthest(values: &[f64], cumulative: impl Fn(f64) -> f64) -> f64 {
    let n = values.len() as f64;
    let distances = values.iter().enumerate().map(|(index, value)| {
        let stated = cumulative(*value);
        (stated - index as f64 / n)
            .abs()
            .max((stated - (index + 1) as f64 / n).abs())
    });
    distances.fold(0.0, f64::max)
}

#[test]
fn pareto_and_weibull_have_their_distribution_functions() {
    for (whole, largest) in [
        (Distribution::pareto(1.0, 1.5), 1000.0),
        (Distribution::pareto(133_000.0, 1.1), 5e7),
        (Distribution::weibull(0.382, 1.46), 1.0),
    ] {
        let distribution = whole.at_most(largest);
        let values = sorted(&distribution);
        assert!(values[DRAWS - 1] <= largest);
        let distance = farthest(&values, |x| distribution.cumulative(x).unwrap());
        assert!(
            distance < 1.95 / (DRAWS as f64).sqrt(),
            "{distribution:?}: {distance}"
        );
    }
}

#[test]
fn a_lognormal_has_its_quantiles() {
    let (mu, sigma) = (9.357, 1.318);
    let values = sorted(&Distribution::lognormal(mu, sigma));
    // Standard normal quantiles; the standard error of the median's logarithm is 1.25 sigma / sqrt(n) = 0.005.
    for (share, z) in [(0.1, -1.2816), (0.5, 0.0), (0.9, 1.2816), (0.99, 2.3263)] {
        let logarithm = values[(share * DRAWS as f64) as usize].ln();
        assert!(
            (logarithm - (mu + z * sigma)).abs() < 0.05,
            "{share}: {logarithm}"
        );
    }
}

#[test]
fn a_truncated_lognormal_is_the_whole_one_below_the_bound() {
    // The bound at one standard deviation: P(Z <= 1) = 0.84134, so the median is the whole one's quantile at
    // 0.42067, z = -0.2002.
    let bound = f64::exp(9.357 + 1.318);
    let values = sorted(&Distribution::lognormal(9.357, 1.318).at_most(bound));
    assert!(values[DRAWS - 1] <= bound);
    let logarithm = values[DRAWS / 2].ln();
    assert!((logarithm - (9.357 - 0.2002 * 1.318)).abs() < 0.02, "{logarithm}");
}

#[test]
fn textbook_medians() {
    // k 2^(1/alpha), and scale (ln 2)^(1/shape).
    let pareto = Distribution::pareto(2.0, 1.5);
    assert!((pareto.cumulative(2.0 * 2f64.powf(1.0 / 1.5)).unwrap() - 0.5).abs() < 1e-12);
    let weibull = Distribution::weibull(0.382, 1.46);
    let median = 0.382 * 2f64.ln().powf(1.0 / 1.46);
    assert!((weibull.cumulative(median).unwrap() - 0.5).abs() < 1e-12);
    let lognormal = Distribution::lognormal(0.0, 1.0).at_most(5.0);
    assert_eq!(lognormal.cumulative(1.0), None);
}

#[test]
fn a_bound_that_nothing_lies_below_is_what_is_drawn() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    assert_eq!(Distribution::constant(3.0).at_most(2.0).sample(&mut rng), 2.0);
}
