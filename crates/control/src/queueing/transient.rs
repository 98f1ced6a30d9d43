//! A queue that has not been loaded for long: how much waits after a period, and at which load as much waits for good.
//!
//! Stationary formulas say what a load does that has always been there, and close to full load they are the wrong
//! answer to a short period: no half second at 105 % makes anybody wait for a quarter of one.

use super::percentile::normal_exceeds;

/// So many relaxation times after its start a queue is stationary to within less than a thousandth.
const STATIONARY: f64 = 40.0;

/// The load below 1 at which a station has as much work waiting, in the mean, as one that was empty has after `length`
/// at `load`, which may be above 1. Never more than `load`.
///
/// `variance` is that of the work that arrives, per unit of time, in the time that the station needs for it: for Poisson
/// arrivals ρ E\[S\] (1 + C²) / c. Work is taken for a regulated Brownian motion, whose mean a time t after it was empty
/// is, with the drift m = ρ − 1 and a = m √t / σ,
///
/// ```text
/// E[W(t)] = m t Φ(a) + σ √t φ(a) + (σ² / 2 m) (2 Φ(a) − 1)
/// ```
///
/// (Abate and Whitt, Transient behavior of regulated Brownian motion I: starting at the origin, Adv. Appl. Prob. 19,
/// 1987, for the canonical case), and σ² / 2 (1 − ρ) for good.
pub(crate) fn load_after(load: f64, variance: f64, length: f64) -> f64 {
    let drift = load - 1.0;
    if !(load > 0.0 && variance > 0.0 && length > 0.0)
        || (drift < 0.0 && drift * drift * length > STATIONARY * variance)
    {
        return load;
    }
    let spread = (variance * length).sqrt();
    let a = drift * length / spread;
    let below = normal_exceeds(-a);
    let density = (-a * a / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    // The last term goes to σ √t φ(0) as the drift goes to 0.
    let last = if a.abs() < 1e-3 {
        spread * density
    } else {
        variance / (2.0 * drift) * (2.0 * below - 1.0)
    };
    let waiting = drift * length * below + spread * density + last;
    (1.0 - variance / (2.0 * waiting)).clamp(0.0, load)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn long_periods_are_stationary() {
        assert!((load_after(0.8, 0.01, 1e3) - 0.8).abs() < 1e-6);
        assert!((load_after(0.95, 0.01, 100.0) - 0.95).abs() < 0.002);
    }

    #[test]
    fn at_full_load_what_waits_grows_as_the_root_of_time() {
        // E[W(t)] = σ √(2 t / π): 0.0798 s after 1 s at σ² = 0.01/s, which 93.7 % load has for good.
        let found = load_after(1.0, 0.01, 1.0);
        assert!((found - (1.0 - 0.01 / (2.0 * 0.079_788))).abs() < 1e-4, "{found}");
    }

    #[test]
    fn what_is_too_much_piles_up() {
        // 20 % too much for 10 s leave 2 s of work and little else.
        let found = load_after(1.2, 0.001, 10.0);
        assert!((found - (1.0 - 0.001 / (2.0 * 2.0))).abs() < 1e-4, "{found}");
    }

    #[test]
    fn a_walk_that_is_drawn_step_by_step_waits_as_long() {
        // Work arrives in 1 000 small steps of either sign, from a small generator of its own.
        let mut state = 9u64;
        let mut up = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state >> 63 == 1
        };
        let (variance, length, steps, runs) = (0.02f64, 2.0f64, 1_000, 2_000);
        let step = length / f64::from(steps);
        let jump = (variance * step).sqrt();
        for load in [0.8, 1.0, 1.1] {
            let mut sum = 0.0;
            for _ in 0..runs {
                let mut waiting = 0.0f64;
                for _ in 0..steps {
                    let noise = if up() { jump } else { -jump };
                    waiting = (waiting + (load - 1.0) * step + noise).max(0.0);
                }
                sum += waiting;
            }
            let mean = sum / f64::from(runs);
            let formula = variance / (2.0 * (1.0 - load_after(load, variance, length)));
            assert!(
                (mean / formula - 1.0).abs() < 0.1,
                "{load}: {mean} drawn, {formula} by the formula"
            );
        }
    }

    proptest! {
        #[test]
        fn it_rises_with_load_and_length_and_stays_below_both(
            load in 0.0..3.0f64, more in 0.0..0.5f64, variance in 1e-6..1.0f64, length in 1e-3..1e4f64, longer in 1.0..10.0f64,
        ) {
            let found = load_after(load, variance, length);
            prop_assert!((0.0..1.0).contains(&found) && found <= load, "{found}");
            prop_assert!(load_after(load + more, variance, length) >= found - 1e-6);
            prop_assert!(load_after(load, variance, length * longer) >= found - 1e-6);
        }
    }
}
