//! How much slower a backend is than its figures say, from what its requests took.
//!
//! At each period the factor on the processor time is sought at which the model predicts the mean latency that was observed there, over all
//! its classes. It is M/G/k processor sharing with that factor on both the work of a request and the load, so a backend at half its speed
//! and one with figures that are wrong are alike found as 2. What the network and the gateway take is subtracted first.

use crate::placement::advisor::present;
use headroom_physics::serving::{RequestCost, ServingMachine};
use headroom_units::{PerSecond, Seconds};

/// A backend counts as at most so much slower and quicker than its figures say. What is quicker is believed less: it would be sent more.
pub const FACTORS: [f64; 2] = [0.7, 8.0];
/// Requests of a period that say something of a mean.
const MIN_REQUESTS: f64 = 20.0;
/// What is busier than this is not told apart: a queue that only grows has no mean.
const MAX_BUSY: f64 = 0.999;
/// Halvings in which a factor is sought.
const HALVINGS: usize = 20;
/// The share of what a period says that counts, where it says slower, and where it says quicker.
const LEARNS: [f64; 2] = [0.3, 0.1];

/// What one class was observed to do at a backend.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// What a request takes by the figures.
    pub(super) cost: RequestCost,
    /// Arrivals.
    pub(super) rate: PerSecond,
    /// Requests answered.
    pub(super) completions: u64,
    /// Their mean latency.
    pub(super) mean: Option<Seconds>,
}

/// The mean stretch of a request at a station as busy as this, at most as at [`MAX_BUSY`].
fn stretch(cores: usize, busy: f64) -> f64 {
    let busy = busy.clamp(1e-9, MAX_BUSY);
    present(cores, busy) / (cores as f64 * busy)
}

/// The factor after this period, from the one before it.
pub(super) fn learned(before: f64, machine: &ServingMachine, seen: &[Seen], path: Seconds) -> f64 {
    let told: Vec<&Seen> = seen
        .iter()
        .filter(|seen| seen.completions > 0 && seen.mean.is_some())
        .collect();
    let requests: f64 = told.iter().map(|seen| seen.completions as f64).sum();
    if requests < MIN_REQUESTS {
        return before;
    }
    let mean = |seen: &Seen| seen.mean.unwrap_or(Seconds::ZERO).get();
    let observed: f64 = told
        .iter()
        .map(|seen| mean(seen) * seen.completions as f64)
        .sum::<f64>()
        / requests;
    let path = path.get();
    let load = machine.load(seen.iter().map(|seen| (seen.cost, seen.rate)));
    let at_link = stretch(1, load.link.get());
    let predicted = |factor: f64| {
        let at_cores = stretch(machine.cores, load.cpu.get() * factor);
        let one = |seen: &&Seen| {
            let link = seen.cost.bytes / machine.link_bytes_per_s * at_link;
            (seen.cost.cpu.get() * factor * at_cores + link) * seen.completions as f64
        };
        told.iter().map(one).sum::<f64>() / requests
    };
    let [least, most] = FACTORS;
    // Where the path takes most of it, a latency says nothing of a machine that is quicker than its figures.
    let sought = match observed - path {
        left if left < path && predicted(before) > left => return before,
        left => left,
    };
    let (mut low, mut high) = (least, most);
    for _ in 0..HALVINGS {
        let middle = (low * high).sqrt();
        if predicted(middle) < sought {
            low = middle
        } else {
            high = middle
        }
    }
    let share = if low > before { LEARNS[0] } else { LEARNS[1] };
    (before.ln() * (1.0 - share) + low.ln() * share)
        .exp()
        .clamp(least, most)
}

/// A request on a machine that is slower by this factor.
pub(super) fn slower(cost: RequestCost, factor: f64) -> RequestCost {
    RequestCost {
        cpu: cost.cpu * factor,
        ..cost
    }
}

/// The factor on a coarse scale, so that machines that are nearly alike are one kind: to the next of steps of 5 %, upwards.
pub(super) fn step(factor: f64) -> i32 {
    (factor.ln() / 1.05f64.ln() - 0.2).ceil() as i32
}

/// The factor of a step.
pub(super) fn of_step(step: i32) -> f64 {
    1.05f64.powi(step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_physics::ServerFigures;
    use headroom_units::Watts;

    fn machine() -> ServingMachine {
        ServingMachine {
            name: "m".to_owned(),
            cores: 2,
            link_bytes_per_s: 125e6,
            idle: Watts::new(10.0),
            busy: Watts::new(10.0),
            link: Watts::ZERO,
            server: ServerFigures::default(),
        }
    }

    fn seen(mean_ms: f64, completions: u64) -> Seen {
        Seen {
            cost: RequestCost {
                cpu: Seconds::from_millis(10.0),
                bytes: 1e3,
            },
            rate: PerSecond::new(50.0),
            completions,
            mean: Some(Seconds::from_millis(mean_ms)),
        }
    }

    #[test]
    fn a_backend_at_half_its_speed_is_found_as_two() {
        // At half the speed 20 ms at a utilisation of 0.5 of two cores: 1/(1 - 0.25) times that.
        let observed = seen(20.0 / 0.75 + 0.008, 50);
        let factor = (0..20).fold(1.0, |before, _| {
            learned(before, &machine(), &[observed], Seconds::ZERO)
        });
        assert!((factor - 2.0).abs() < 0.02, "{factor}");
    }

    #[test]
    fn few_requests_and_a_path_that_takes_all_say_nothing() {
        assert_eq!(learned(1.0, &machine(), &[seen(500.0, 5)], Seconds::ZERO), 1.0);
        assert_eq!(
            learned(1.0, &machine(), &[seen(6.0, 500)], Seconds::from_millis(5.0)),
            1.0
        );
    }

    #[test]
    fn it_is_bounded_both_ways() {
        let after = |mean_ms| {
            (0..100).fold(1.0, |before, _| {
                learned(before, &machine(), &[seen(mean_ms, 50)], Seconds::ZERO)
            })
        };
        assert!(after(1e5) > 1.9 && after(1e5) <= FACTORS[1]);
        assert!((after(0.1) - FACTORS[0]).abs() < 0.01);
    }
}
