//! A search of a function over a box: random first, then around the best. For tuning a law in the simulator, where one
//! evaluation costs a run and nothing is known of the function's shape.
//!
//! The first half of the budget is spread uniformly (random search loses little against more learned methods where few of
//! the parameters matter: J. Bergstra and Y. Bengio, 2012). The second half goes around the best point so far, with steps
//! that shrink from a quarter of the box to a fortieth: each of them moves about half of the parameters.

use headroom_workload::random::{Draw, Purpose, Rng};

/// Points that are drawn before any of them is evaluated: a constant, so that what is tried does not depend on how many
/// are evaluated at once.
pub const BATCH: usize = 8;
/// The most points.
pub const MAX_POINTS: usize = 1_000_000;
/// First and last step of the refinement, as shares of an axis.
const STEPS: (f64, f64) = (0.25, 0.025);

/// One parameter: from `low` to `high`, both included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    /// Its least.
    pub low: f64,
    /// Its most.
    pub high: f64,
    /// Whether it is a whole number.
    pub whole: bool,
}

impl Axis {
    /// The nearest value that can be: within the bounds, of four significant digits at most, so that what is printed is
    /// what was tried.
    fn tidy(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        if self.whole {
            return value.round().clamp(self.low, self.high);
        }
        let grain = 10_f64.powf((self.high - self.low).abs().max(1e-12).log10().floor() - 3.0);
        let rounded = (value / grain).round() * grain;
        // Without the dust that binary fractions leave.
        let rounded = (rounded * 1e9).round() / 1e9;
        rounded.clamp(self.low, self.high)
    }
}

/// What a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The best point: the earliest of equals.
    pub point: Vec<f64>,
    /// Its value.
    pub value: f64,
    /// How many points were evaluated.
    pub tried: usize,
}

/// Seeks the point of least value. The first to be evaluated is `start`; `budget` points in all, at least that one. `evaluate`
/// is given up to [`BATCH`] points and answers with as many values; NaN counts as worse than anything.
pub fn minimise(
    axes: &[Axis],
    start: &[f64],
    budget: usize,
    seed: u64,
    mut evaluate: impl FnMut(&[Vec<f64>]) -> Vec<f64>,
) -> Found {
    let budget = budget.clamp(1, MAX_POINTS);
    let mut rng = Rng::new(seed, Purpose::Search);
    let worth = |value: f64| if value.is_nan() { f64::INFINITY } else { value };
    let first = vec![start.to_vec()];
    let value = evaluate(&first).first().copied().map_or(f64::INFINITY, worth);
    let mut best = Found {
        point: start.to_vec(),
        value,
        tried: 1,
    };
    if axes.is_empty() {
        return best;
    }
    let spread = 1 + (budget - 1) / 2;
    while best.tried < budget {
        let end = if best.tried < spread { spread } else { budget };
        let count = BATCH.min(end - best.tried);
        let along = (best.tried.saturating_sub(spread)) as f64 / (budget - spread).max(1) as f64;
        let step = STEPS.0 * (STEPS.1 / STEPS.0).powf(along);
        let points: Vec<Vec<f64>> = (0..count)
            .map(|_| match best.tried < spread {
                true => anywhere(axes, &mut rng),
                false => near(axes, &best.point, step, &mut rng),
            })
            .collect();
        let values = evaluate(&points);
        for (point, value) in points.into_iter().zip(values) {
            if worth(value) < best.value {
                (best.point, best.value) = (point, value);
            }
        }
        best.tried += count;
    }
    best
}

fn anywhere(axes: &[Axis], rng: &mut Rng) -> Vec<f64> {
    axes.iter()
        .map(|axis| axis.tidy(axis.low + rng.uniform() * (axis.high - axis.low)))
        .collect()
}

fn near(axes: &[Axis], point: &[f64], step: f64, rng: &mut Rng) -> Vec<f64> {
    // One parameter is moved in any case.
    let always = (rng.uniform() * axes.len() as f64) as usize;
    let moved = |(at, (axis, value)): (usize, (&Axis, &f64))| {
        let (chance, normal) = (rng.uniform(), rng.normal());
        if at == always || chance < 0.5 {
            axis.tidy(value + normal * step * (axis.high - axis.low))
        } else {
            *value
        }
    };
    axes.iter().zip(point).enumerate().map(moved).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AXES: [Axis; 3] = [
        Axis {
            low: 0.0,
            high: 1.0,
            whole: false,
        },
        Axis {
            low: -5.0,
            high: 5.0,
            whole: false,
        },
        Axis {
            low: 1.0,
            high: 20.0,
            whole: true,
        },
    ];

    fn bowl(points: &[Vec<f64>]) -> Vec<f64> {
        let value = |p: &Vec<f64>| {
            (p[0] - 0.3).powi(2) + ((p[1] - 2.0) / 10.0).powi(2) + ((p[2] - 7.0) / 20.0).powi(2)
        };
        points.iter().map(value).collect()
    }

    #[test]
    fn the_bottom_of_a_bowl_is_found_and_the_same_seed_finds_the_same() {
        let start = [1.0, -5.0, 20.0];
        let found = minimise(&AXES, &start, 400, 1, bowl);
        assert!(found.value < 0.003, "{found:?}");
        assert_eq!(found.tried, 400);
        assert_eq!(minimise(&AXES, &start, 400, 1, bowl), found);
        assert_ne!(minimise(&AXES, &start, 400, 2, bowl).point, found.point);
        let random = minimise(&AXES, &start, 200, 1, bowl);
        assert!(random.value >= found.value);
    }

    #[test]
    fn every_point_is_one_that_can_be_and_the_start_comes_first() {
        let mut seen = Vec::new();
        let start = [0.5, 0.0, 3.0];
        minimise(&AXES, &start, 50, 3, |points| {
            assert!(points.len() <= BATCH);
            seen.extend(points.to_vec());
            bowl(points)
        });
        assert_eq!(seen.len(), 50);
        assert_eq!(seen[0], start);
        for point in seen {
            for (axis, value) in AXES.iter().zip(point) {
                assert!((axis.low..=axis.high).contains(&value));
                assert!(!axis.whole || value == value.round());
            }
        }
    }

    #[test]
    fn what_cannot_be_evaluated_never_wins() {
        let found = minimise(&AXES, &[0.5, 0.0, 3.0], 30, 1, |points| {
            points
                .iter()
                .map(|point| if point[2] == 3.0 { 1.0 } else { f64::NAN })
                .collect()
        });
        assert_eq!((found.point, found.value), (vec![0.5, 0.0, 3.0], 1.0));
        assert_eq!(minimise(&[], &[], 30, 1, |_| vec![4.0]).tried, 1);
    }
}
