//! A target that is missed without batches too, for a time or by half of the periods: what they may miss meanwhile, and after it.

use super::super::*;
use super::least::observation;
use super::{Noise, with_interval};
use crate::common::slo;
use crate::law::Law;

fn laws() -> Vec<Box<dyn Law>> {
    let (slo, plant) = (|| slo(1_000.0), with_interval);
    vec![
        Box::new(Seek::new(slo(), plant(), SeekTuning::default()).unwrap()),
        Box::new(Batching::new(slo(), plant(), BatchingTuning::default()).unwrap()),
    ]
}

/// A service of 300 ms, of which batches save up to 40 % in the mean; its percentile, in seconds, is of the period and grows by what is held.
/// Which periods miss a target of a second, under the law and without batches.
fn run(
    law: &mut dyn Law,
    periods: u64,
    noise: f64,
    seed: u64,
    at_slo: impl Fn(u64) -> f64,
) -> Vec<(bool, bool)> {
    let mut random = Noise::new(seed.wrapping_mul(1_000_003));
    let mut interval = 0.0;
    (0..periods)
        .map(|number| {
            let saved = 0.4 * (1.0 - (interval / 0.1 - 1.0f64).powi(2)).max(0.0);
            let mean = 0.3 * (1.0 - saved) * (1.0 + 0.02 * random.normal());
            let without = at_slo(number) * (1.0 + noise * random.normal());
            let decision = law.decide(&observation(number, interval, mean, without + interval));
            let missed = (without + interval > 1.0, without > 1.0);
            interval = decision.setting.batch_interval().unwrap().get();
            missed
        })
        .collect()
}

#[test]
fn what_an_incident_allowed_ends_soon_after_it() {
    for (start, length, level) in [
        (0, 300, 0.95),
        (0, 1_200, 0.9),
        (300, 1_800, 0.9),
        (3_600, 1_800, 0.9),
    ] {
        for seed in 1..4 {
            for mut law in laws() {
                let end = start + length;
                let at_slo = |number| {
                    if (start..end).contains(&number) {
                        1.5
                    } else {
                        level
                    }
                };
                let missed = run(&mut *law, end + 7_200, 0.01, seed, at_slo);
                let after = missed[end as usize..].iter().filter(|(with, _)| *with).count();
                // It is looked at after two minutes; and a second in ten minutes is put up with.
                assert!(after < 220, "{start} {length} {seed} {}: {after}", law.name());
            }
        }
    }
}

#[test]
fn where_nearly_half_is_missed_anyhow_the_odds_of_it_do_not_more_than_double() {
    for (level, without) in [(0.985, 0.385), (0.995, 0.461)] {
        for seed in 1..4 {
            for mut law in laws() {
                let missed = run(&mut *law, 7_200, 0.05, seed, |_| level);
                let share = |which: fn(&(bool, bool)) -> bool| {
                    missed.iter().filter(|period| which(period)).count() as f64 / 7_200.0
                };
                let (with, found) = (share(|one| one.0), share(|one| one.1));
                assert!((found - without).abs() < 0.02, "{found}");
                let most = 2.0 * without / (1.0 + without);
                assert!(
                    with < most + 0.02,
                    "{level} {seed} {}: {with} of {found}",
                    law.name()
                );
            }
        }
    }
}

#[test]
fn none_is_asked_for_where_it_is_not_observed_what_is_in_force() {
    for mut law in laws() {
        let mut interval = 0.0;
        let mut held = 0;
        for number in 0..3_600 {
            let mut seen = observation(number, interval, 0.3 + 0.5 * interval, 0.5 + interval);
            if interval > 0.0 {
                seen.in_force = headroom_units::Setting::default();
            }
            held += u32::from(interval > 0.0);
            interval = law.decide(&seen).setting.batch_interval().unwrap().get();
        }
        assert!(held < 400, "{}: {held}", law.name());
    }
}
