//! Single slow periods: the laws that seek the least mean keep the SLO's percentile through them.

use super::super::*;
use super::least::observation;
use super::{Noise, with_interval};
use crate::common::slo;
use crate::law::Law;

/// When periods are slow.
#[derive(Clone, Copy, Debug)]
enum Slow {
    Every(u64),
    /// One of so many, by chance.
    OneOf(f64),
    /// The same, while there are batches.
    OneOfThoseHeld(f64),
}

/// A service whose mean is least at some interval, and whose percentile grows by nearly all of it.
#[derive(Clone, Copy, Debug)]
struct Service {
    target: f64,
    slow: Slow,
    /// The percentile of slow periods and of others without batches, and the mean.
    at_slo: (f64, f64),
    mean: f64,
    /// The interval of the least mean, and the share of the mean that it saves.
    best: f64,
    saves: f64,
    /// The share of the percentile of periods that are not slow that batches take off.
    eases: f64,
    seed: u64,
}

/// What came of a run.
#[derive(Clone, Copy, Debug)]
struct Ran {
    /// Periods that missed the target.
    missed: u64,
    /// The same without batches.
    without: u64,
    /// Mean response time, as a share of that without batches.
    mean: f64,
}

impl Service {
    fn run(self, law: &mut dyn Law, periods: u64) -> Ran {
        let (mut random, mut chance) = (Noise::new(self.seed), Noise::new(self.seed + 1_000));
        let mut interval = 0.0;
        let mut ran = Ran {
            missed: 0,
            without: 0,
            mean: 0.0,
        };
        for number in 0..periods {
            let is_slow = match self.slow {
                Slow::Every(periods) => number % periods == 7 % periods,
                Slow::OneOf(periods) => chance.uniform() * periods < 1.0,
                Slow::OneOfThoseHeld(periods) => chance.uniform() * periods < 1.0 && interval > 0.0,
            };
            let saved = self.saves * (1.0 - (interval / self.best - 1.0f64).powi(2));
            let mean = self.mean * (1.0 - saved);
            let without = if is_slow { self.at_slo.0 } else { self.at_slo.1 };
            let eases = if is_slow {
                0.0
            } else {
                self.eases * (interval / self.best).min(1.0)
            };
            let noise = 1.0 + 0.01 * random.normal();
            let at_slo = (without * (1.0 - eases) + 0.95 * interval) * noise;
            let decision = law.decide(&observation(number, interval, mean * noise, at_slo));
            ran.missed += u64::from(at_slo > self.target);
            let is_caused = matches!(self.slow, Slow::OneOfThoseHeld(_));
            ran.without += u64::from(!is_caused && without * noise > self.target);
            ran.mean += mean / self.mean / periods as f64;
            interval = decision.setting.batch_interval().unwrap().get();
        }
        ran
    }
}

/// With a target of 800 ms, to which slow periods leave 30 ms, and batches that save up to 40 %.
fn tempting(slow: Slow, seed: u64) -> Service {
    Service {
        target: 0.8,
        slow,
        at_slo: (0.77, 0.4),
        mean: 0.2,
        best: 0.15,
        saves: 0.4,
        eases: 0.0,
        seed,
    }
}

fn laws(target_ms: f64) -> Vec<Box<dyn Law>> {
    let (slo, plant) = (|| slo(target_ms), with_interval);
    let steers = BatchingTuning {
        sla_ms: Some(target_ms * 0.5),
        ..BatchingTuning::default()
    };
    vec![
        Box::new(Seek::new(slo(), plant(), SeekTuning::default()).unwrap()),
        Box::new(Batching::new(slo(), plant(), BatchingTuning::default()).unwrap()),
        Box::new(Batching::new(slo(), plant(), steers).unwrap()),
    ]
}

#[test]
fn the_percentile_of_slow_seconds_is_kept_however_rare_they_are() {
    for (slow, most) in [
        (Slow::Every(6), 0),
        (Slow::Every(12), 0),
        (Slow::Every(30), 0),
        // Of 48 and of 12 an hour: met a few times before they are remembered.
        (Slow::Every(75), 4),
        (Slow::Every(300), 4),
        // Of 180 and of 72, of which some are further apart than what is remembered at first.
        (Slow::OneOf(20.0), 6),
        (Slow::OneOf(50.0), 6),
    ] {
        for seed in 1..6 {
            for mut law in laws(800.0) {
                let ran = tempting(slow, seed).run(&mut *law, 3_600);
                assert_eq!(ran.without, 0);
                // That batches do not make them better is seen by trying: one in ten minutes at most.
                let most = if law.name() == "seek" { most.max(4) } else { most };
                assert!(ran.missed <= most, "{slow:?} {seed} {}: {ran:?}", law.name());
            }
        }
    }
}

#[test]
fn slow_seconds_that_leave_time_or_are_missed_anyhow_are_no_reason_to_have_none() {
    for at_slow in [0.1, 0.3] {
        let service = Service {
            target: 0.12,
            slow: Slow::Every(12),
            at_slo: (at_slow, 0.04),
            mean: 0.097,
            best: 0.06,
            saves: 0.75,
            eases: 0.0,
            seed: 3,
        };
        for mut law in laws(120.0) {
            let ran = service.run(&mut *law, 2_400);
            assert!(ran.missed <= ran.without + 1, "{at_slow} {}: {ran:?}", law.name());
            // A slow second that is not missed leaves 14 ms.
            let most = if at_slow < 0.12 { 0.8 } else { 0.7 };
            assert!(ran.mean < most, "{at_slow} {}: {ran:?}", law.name());
        }
    }
}

#[test]
fn an_interval_that_the_slo_bounds_keeps_it() {
    for seed in 1..6 {
        // 50 ms are left without batches, and they save most at 150 ms.
        let service = Service {
            target: 0.45,
            at_slo: (0.4, 0.4),
            ..tempting(Slow::Every(6), seed)
        };
        for mut law in laws(450.0).into_iter().take(2) {
            let ran = service.run(&mut *law, 7_200);
            assert!(ran.missed <= 7, "{seed} {}: {ran:?}", law.name());
            assert!(ran.mean < 0.96, "{seed} {}: {ran:?}", law.name());
        }
    }
}

#[test]
fn what_batches_alone_make_slow_is_not_put_up_with() {
    // What is slow then misses the target by its wait, or by more; and the other periods may be faster with batches, so that it is believed
    // that these make the percentile shorter.
    for (at_slow, eases) in [(0.77, 0.0), (0.77, 0.4), (1.0, 0.0), (1.0, 0.4)] {
        for one_of in [100.0, 20.0, 5.0] {
            for seed in 1..3 {
                let service = Service {
                    at_slo: (at_slow, 0.4),
                    eases,
                    ..tempting(Slow::OneOfThoseHeld(one_of), seed)
                };
                for mut law in laws(800.0).into_iter().take(2) {
                    let ran = service.run(&mut *law, 14_400);
                    // One in ten minutes, and what it takes to see it.
                    assert!(
                        ran.missed <= 28,
                        "{at_slow} {eases} {one_of} {seed} {}: {ran:?}",
                        law.name()
                    );
                }
            }
        }
    }
}
