//! Batches that save at once and cost more by and by, as where a cache grows stale or a backlog behind the service, and the other way round.

use super::super::*;
use super::least::observation;
use super::{Noise, with_interval};
use crate::common::slo;
use crate::decision::Reason;
use crate::law::Law;

/// A service of half a second.
#[derive(Clone, Copy, Debug)]
struct Service {
    /// What the best interval saves at once, and what it adds in the long run, as shares; the seconds after which 63 % of that are there.
    saves: f64,
    adds: f64,
    seconds: f64,
    /// The best interval.
    best: f64,
    noise: f64,
    /// One period in so many misses the target, whatever is in force; none where 0.
    misses: u64,
    seed: u64,
}

impl Service {
    /// By how much more a response takes under the law than without batches, as a share; for each of so many periods.
    fn run(self, law: &mut dyn Law, periods: u64) -> Vec<f64> {
        self.run_saying(law, periods, |_, _| {})
    }

    /// The same, which hands on what the law says of each period, and the interval that it then asks for.
    fn run_saying(self, law: &mut dyn Law, periods: u64, mut says: impl FnMut(&Reason, f64)) -> Vec<f64> {
        let mut random = Noise::new(self.seed);
        let (mut interval, mut lasting) = (0.0f64, 0.0);
        (0..periods)
            .map(|number| {
                let on = 1.0 - (interval / self.best - 1.0f64).powi(2).min(1.0);
                lasting += (on - lasting) * (1.0 - (-1.0 / self.seconds).exp());
                let more = self.adds * lasting - self.saves * on;
                let mean = 0.5 * (1.0 + more) * (1.0 + self.noise * random.normal());
                let is_missed = self.misses > 0 && number % self.misses == 0;
                let at_slo = if is_missed { 9.0 } else { mean * 2.0 };
                let decision = law.decide(&observation(number, interval, mean, at_slo));
                interval = decision.setting.batch_interval().unwrap().get();
                says(&decision.reasons[0], interval);
                more
            })
            .collect()
    }
}

fn laws() -> Vec<Box<dyn Law>> {
    let (slo, plant) = (|| slo(8_000.0), with_interval);
    vec![
        Box::new(Seek::new(slo(), plant(), SeekTuning::default()).unwrap()),
        Box::new(Batching::new(slo(), plant(), BatchingTuning::default()).unwrap()),
    ]
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len() as f64
}

/// The worst of five seeds, in percent more than without batches, over so many hours.
fn worst(law: usize, hours: u64, of: impl Fn(u64) -> Service) -> f64 {
    let run = |seed| mean(&of(seed).run(&mut *laws().remove(law), 3_600 * hours)) * 100.0;
    (1..6).map(run).fold(f64::NEG_INFINITY, f64::max)
}

#[test]
fn what_is_saved_at_once_and_costs_more_later_is_found_out() {
    for (saves, adds) in [(0.1, 0.2), (0.1, 0.4), (0.2, 0.5), (0.4, 0.7)] {
        for seconds in [3.0, 10.0, 30.0, 100.0] {
            // In the long run a tenth more, or three.
            let lasting = 100.0 * (adds - saves);
            let service = |seed| Service {
                saves,
                adds,
                seconds,
                best: 0.2,
                noise: 0.05,
                misses: 0,
                seed,
            };
            for law in 0..2 {
                let more = worst(law, 4, service);
                let most = if lasting > 20.0 { 0.3 } else { 0.9 };
                assert!(more < most * lasting, "{law} {saves} {adds} {seconds}: {more}");
            }
        }
    }
}

#[test]
fn looking_whether_a_gain_lasts_costs_a_small_part_of_it() {
    for saves in [0.1, 0.2, 0.4] {
        let service = |seed| Service {
            saves,
            adds: 0.0,
            seconds: 3.0,
            best: 0.2,
            noise: 0.05,
            misses: 0,
            seed,
        };
        for law in 0..2 {
            let more = worst(law, 4, service);
            assert!(more < -65.0 * saves, "{law} {saves}: {more}");
        }
    }
}

#[test]
fn what_costs_at_once_and_saves_more_later_is_found() {
    for seconds in [3.0, 4.0, 5.0] {
        // About what users who never pause make of it: those that are held are late at once, and what they save the service shows later.
        let service = |seed| Service {
            saves: -0.4,
            adds: -0.48,
            seconds,
            best: 0.2,
            noise: 0.02,
            misses: 0,
            seed,
        };
        let more = worst(0, 4, service);
        assert!(more < -4.5, "{seconds}: {more}");
    }
}

#[test]
fn what_was_found_not_to_last_is_owed_and_not_tried_first() {
    let service = Service {
        saves: 0.2,
        adds: 0.5,
        seconds: 10.0,
        best: 0.2,
        noise: 0.05,
        misses: 0,
        seed: 1,
    };
    let spent = |reason: &Reason| {
        let of = |(name, _): &&(_, f64)| *name == "spent_share";
        reason.numbers.iter().find(of).map(|(_, share)| *share)
    };
    // What was spent before it was found out, and after; the longest interval with batches before, and the first after.
    let (mut before, mut after) = (0.0, None);
    let (mut held, mut first, mut is_out) = (0.0f64, None, false);
    service.run_saying(&mut *laws().remove(0), 7_200, |reason, interval| {
        is_out |= reason.text.contains("in the long run");
        match is_out {
            false => (before, held) = (spent(reason).unwrap_or(before), held.max(interval)),
            true if reason.rule != "seek-look" => {
                after = after.or(spent(reason));
                first = first.or(Some(interval).filter(|interval| *interval > 0.0));
            }
            true => {}
        }
    });
    assert!(is_out && held > 0.1, "{held}");
    assert!(after > Some(before + 0.005), "{before} {after:?}");
    assert!(first.is_some_and(|first| first < 0.7 * held), "{first:?} {held}");
}

#[test]
fn single_periods_that_miss_the_target_anyhow_do_not_hide_what_comes_later() {
    for misses in [8, 12, 30] {
        let service = |seed| Service {
            saves: 0.2,
            adds: 0.5,
            seconds: 100.0,
            best: 0.2,
            noise: 0.05,
            misses,
            seed,
        };
        for law in 0..2 {
            let more = worst(law, 4, service);
            assert!(more < 0.3 * 30.0, "{law} {misses}: {more}");
        }
    }
}
