//! Comparisons of scores that are given.

use super::*;
use headroom_units::{Compared, Joules, PerSecond, Reading, Setting, Verdict};
use proptest::prelude::*;

const PACE: Pace = Pace {
    settle: 1,
    block: 4,
    rounds: 6,
    significance: 3.0,
    least_gain: 0.01,
    keeps_load: false,
    target: Seconds::ZERO,
};

/// Runs a trial of settings 0.. with these scores, a drift that is common to all and noise; which was found, in how many periods.
fn found(scores: &[f64], drift: f64, noise: f64, seed: u64) -> (usize, u32) {
    let mut trial = Trial::new(PACE, (0..scores.len()).collect());
    let mut state = seed.max(1);
    let mut random = move || {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64 - 0.5
    };
    let mut periods = 0;
    while !trial.is_done() {
        let score = scores[*trial.setting()] + drift * f64::from(periods) + noise * random();
        trial.observe(Some(score), &Sample::default(), &|_| None);
        periods += 1;
        assert!(periods < 10_000);
    }
    (*trial.setting(), periods)
}

#[test]
fn the_best_is_found_and_of_equals_the_first() {
    assert_eq!(found(&[0.0, 0.2, 0.1], 0.0, 0.0, 1).0, 1);
    assert_eq!(found(&[0.0, 0.005, 0.0], 0.0, 0.0, 1).0, 0);
    // What is half as good has two turns: one may be that of a pause.
    let (best, few) = found(&[0.0, -2.0, -2.0, -2.0], 0.0, 0.05, 7);
    assert_eq!((best, few), (0, 40));
}

/// Turns with these queries per second and scores, in the order in which they come; what was found.
fn with_load(pace: Pace, turns: &[(f64, f64, f64)], bad_first: bool) -> (usize, Vec<u64>) {
    let mut trial = Trial::new(pace, (0..turns.len()).collect());
    let mut is_first = bad_first;
    while !trial.is_done() {
        let (rate, score, at_slo_ms) = turns[*trial.setting()];
        let sample = Sample {
            queries: (rate / 4.0) as u64,
            length: Seconds::new(0.25),
            at_slo: Some(Seconds::from_millis(at_slo_ms)),
            ..Sample::default()
        };
        let penalty = if is_first && *trial.setting() == 0 {
            5.0
        } else {
            0.0
        };
        trial.observe(Some(score - penalty), &sample, &|_| None);
        is_first &= trial.rounds() == 0 && *trial.setting() == 0;
    }
    let all = trial.compared(|_| Setting::default());
    (*trial.setting(), all.iter().map(|one| one.turns).collect())
}

#[test]
fn what_has_far_fewer_queries_than_the_first_is_dropped_with_all_that_is_slower() {
    let pace = Pace {
        keeps_load: true,
        target: Seconds::from_millis(20.0),
        ..PACE
    };
    // Clients that wait for their answers: each delay draws less, and has fewer queries.
    let closed = [
        (16_000.0, 0.0, 0.1),
        (900.0, 0.03, 2.0),
        (500.0, 0.05, 4.0),
        (90.0, 0.05, 19.0),
    ];
    // It has its turn twice, a period each.
    assert_eq!(with_load(pace, &closed, false), (0, vec![1, 0, 0, 0]));
    // A load of their own, in which the second saves 3 %, and the third as much but misses the SLO.
    let open = [(3_000.0, 0.0, 0.1), (2_980.0, 0.03, 3.0), (3_010.0, 0.06, 25.0)];
    assert_eq!(with_load(pace, &open, false).0, 1);
    // The first turn of the first setting is that of a pause.
    assert_eq!(with_load(pace, &[open[0], (3_000.0, -0.05, 3.0)], true).0, 0);
    // Few queries say nothing of the load.
    let few = [(40.0, 0.0, 0.1), (36.0, 0.1, 3.0)];
    assert_eq!(with_load(pace, &few, false).0, 1);
}

/// At most 20 ms, of a load that all settings are to serve.
const GENTLE: Pace = Pace {
    keeps_load: true,
    target: Seconds::new(0.02),
    ..PACE
};

/// A period of 64 connections with this P99 and share of them that wait.
fn period(at_slo_ms: f64, waiting_share: f64) -> Sample {
    Sample {
        queries: 500,
        length: Seconds::new(0.25),
        at_slo: Some(Seconds::from_millis(at_slo_ms)),
        waiting_share: Some(waiting_share),
        connections: 64,
        ..Sample::default()
    }
}

/// Observes so many periods of what is in force, all of the same score and as `of` says of each setting; what was in force in each.
fn observe(trial: &mut Trial<usize>, periods: usize, of: impl Fn(usize, usize) -> Sample) -> Vec<usize> {
    let mut in_force = Vec::new();
    for number in 0..periods {
        if trial.is_done() {
            break;
        }
        let setting = *trial.setting();
        in_force.push(setting);
        trial.observe(Some(setting as f64 * 0.1), &of(number, setting), &|_| None);
    }
    in_force
}

#[test]
fn what_queries_pile_up_under_is_dropped_in_that_period_and_the_first_serves_what_it_left() {
    let mut trial = Trial::new(GENTLE, vec![0, 1, 2, 3]);
    // The second period of setting 2 finds all connections taken; three periods later nobody waits any more.
    let in_force = observe(&mut trial, 200, |number, setting| match (number, setting) {
        (_, 2 | 3) if number >= 11 => period(5.0, 0.9),
        (12..15, 0) => period(12.0, 0.4),
        _ => period(2.0, 0.0),
    });
    assert_eq!(in_force[..16], [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 0, 0, 0, 0]);
    assert!(!in_force[16..].contains(&2) && !in_force.contains(&3));
    assert_eq!(*trial.setting(), 1);
    let all = trial.compared(|_| Setting::default());
    assert!(all[2].why.as_ref().unwrap().contains("pile up") && all[3].why.is_some());
    assert_eq!((all[2].verdict, all[3].verdict), (Verdict::Open, Verdict::Open));
    // What was drained counts for nobody, nor what settles: the second period of setting 2 was its first that would.
    assert!(
        all[0].latency_at_slo.unwrap() < Seconds::from_millis(2.1),
        "{all:?}"
    );
    assert_eq!((all[1].why.as_ref(), all[2].periods, all[3].turns), (None, 0, 0));
}

#[test]
fn what_is_late_has_its_turn_again_once() {
    // A pause of the machine, whatever is in force.
    let mut trial = Trial::new(GENTLE, vec![0, 1]);
    observe(&mut trial, 200, |number, _| {
        period(if number == 7 { 90.0 } else { 2.0 }, 0.0)
    });
    assert_eq!(*trial.setting(), 1);
    // A setting that is late whenever it is in force.
    let mut trial = Trial::new(GENTLE, vec![0, 1]);
    let in_force = observe(&mut trial, 200, |_, setting| period([2.0, 30.0][setting], 0.0));
    assert_eq!(*trial.setting(), 0);
    assert_eq!(in_force.iter().filter(|setting| **setting == 1).count(), 2);
    // What is not served without a delay either ends the comparison.
    let mut trial = Trial::new(GENTLE, vec![0, 1]);
    observe(&mut trial, 200, |number, _| {
        period(2.0, if number > 6 { 1.0 } else { 0.0 })
    });
    assert!(trial.is_done() && trial.given_up().is_some_and(|why| why.contains("not served")));
}

/// The trial of two settings with this many queries a period, by the number of the period and the setting.
fn of_loads(queries: impl Fn(usize, usize) -> u64) -> (usize, usize, Compared) {
    let mut trial = Trial::new(GENTLE, vec![0, 1]);
    let in_force = observe(&mut trial, 200, |number, setting| Sample {
        queries: queries(number, setting),
        ..period(2.0, 0.0)
    });
    let compared = trial.compared(|_| Setting::default()).remove(1);
    (*trial.setting(), in_force.len(), compared)
}

#[test]
fn load_is_lost_where_rounds_say_so_and_not_one_burst() {
    // 12 % less: after two rounds, of four turns of five periods.
    let (found, periods, slower) = of_loads(|_, setting| [4_000, 3_500][setting]);
    assert_eq!((found, periods, slower.verdict), (0, 20, Verdict::Worse));
    assert!(
        slower.why.as_ref().unwrap().contains("88 % of the queries"),
        "{slower:?}"
    );
    // 5 % less: after three.
    let (found, periods, slower) = of_loads(|_, setting| [4_000, 3_800][setting]);
    assert_eq!((found, periods, slower.verdict), (0, 30, Verdict::Worse));
    // A burst in the first's first turn, or in every other round's: the rounds have more spread than they lose in the mean.
    for every in [6, 4] {
        let (found, _, slower) = of_loads(|number, setting| match (number / 5 % every, setting) {
            (0, 0) => 4_600,
            _ => 4_000,
        });
        assert_eq!((found, slower.verdict), (1, Verdict::Found), "{every}");
    }
    // Of a hundred queries a period 4 % less are within what chance has.
    assert_eq!(of_loads(|_, setting| [100, 96][setting]).0, 1);
}

#[test]
fn a_period_that_loses_load_cuts_its_turn_and_a_second_one_ends_it() {
    let lose = |lost: &'static [usize]| {
        of_loads(move |number, setting| {
            if setting == 1 && lost.contains(&number) {
                2_000
            } else {
                4_000
            }
        })
    };
    let (found, _, slower) = lose(&[7]);
    assert_eq!((found, slower.verdict), (1, Verdict::Found));
    assert!(
        slower
            .why
            .unwrap()
            .contains("50 % of the queries per second of the first setting's last turn")
    );
    // It had whole turns, and what ended it was not their score.
    let (found, periods, slower) = lose(&[11, 12, 17, 18]);
    assert_eq!((found, slower.verdict, slower.turns), (0, Verdict::Open, 1));
    assert!(periods < 30, "{periods}");
    // Half of a few queries is chance: no turn is cut.
    let (found, _, slower) =
        of_loads(|number, setting| if setting == 1 && number % 5 == 2 { 10 } else { 20 });
    assert_eq!((found, slower.why), (1, None));
}

#[test]
fn one_long_wait_is_a_pauses_and_two_are_the_settings() {
    let waits = |ms: &'static [usize]| {
        let mut trial = Trial::new(GENTLE, vec![0, 1]);
        observe(&mut trial, 200, |number, _| Sample {
            oldest_waiting: ms.contains(&number).then_some(Seconds::from_millis(35.0)),
            ..period(2.0, 0.0)
        });
        (*trial.setting(), trial.compared(|_| Setting::default()).remove(1))
    };
    let (found, slower) = waits(&[8]);
    assert_eq!((found, slower.verdict), (1, Verdict::Found));
    // What the turn had before it was cut is in no sum.
    assert_eq!(slower.periods, 4 * slower.turns);
    assert_eq!(waits(&[8, 11]).0, 0);
}

#[test]
fn what_had_a_whole_turn_and_is_cut_for_good_has_no_verdict() {
    let mut trial = Trial::new(GENTLE, vec![0, 1]);
    observe(&mut trial, 200, |number, setting| {
        period(2.0, if setting == 1 && number > 15 { 0.9 } else { 0.0 })
    });
    let all = trial.compared(|_| Setting::default());
    assert_eq!((*trial.setting(), all[1].verdict), (0, Verdict::Open));
    assert!(all[1].turns > 0 && all[1].why.as_ref().unwrap().contains("pile up"));
}

#[test]
fn latencies_are_foretold_by_the_median_of_the_periods() {
    let mut sums = Sums::default();
    assert_eq!(sums.median_at_slo(), None);
    for at_slo in [3.0, 2.0, 400.0, 2.5, 1.0] {
        sums.add(&period(at_slo, 0.0));
    }
    assert_eq!(sums.median_at_slo(), Some(Seconds::from_millis(2.5)));
    let mut both = Sums::default();
    both.add_turn(sums.clone());
    both.add_turn(sums);
    assert_eq!((both.periods, both.queries), (10, 5_000));
    assert_eq!(both.median_at_slo(), Some(Seconds::from_millis(2.5)));
    assert!((both.mean_at_slo().unwrap().as_millis() - 81.7).abs() < 1e-9);
    assert_eq!(both.longest, Some(Seconds::from_millis(400.0)));
}

#[test]
fn a_turn_begins_where_nothing_is_foretold_against_it() {
    let mut trial = Trial::new(GENTLE, vec![0, 1, 2, 3]);
    let mut asked = Vec::new();
    let mut in_force = Vec::new();
    while !trial.is_done() {
        let setting = *trial.setting();
        in_force.push(setting);
        let seen = std::cell::RefCell::new(Vec::new());
        trial.observe(
            Some(setting as f64 * 0.1),
            &period(2.0 + setting as f64, 0.0),
            &|next| {
                let known: Vec<usize> = next.measured.iter().map(|(setting, _)| **setting).collect();
                seen.borrow_mut().push((*next.setting, known, next.lately.rate()));
                (*next.setting == 3).then(|| "too long".to_owned())
            },
        );
        asked.extend(seen.into_inner());
    }
    assert_eq!(
        asked[..3],
        [1, 2, 3].map(|next| (next, (0..next).collect(), Some(2_000.0)))
    );
    assert!(!in_force.contains(&3));
    assert_eq!(*trial.setting(), 2);
    assert_eq!(
        trial.compared(|_| Setting::default())[3].why.as_deref(),
        Some("too long")
    );
}

#[test]
fn the_load_is_told_by_the_connections_that_ask() {
    let asking = |asking: [Option<f64>; 2]| {
        let mut lately = Lately::default();
        for asking in asking {
            lately.add(&Sample {
                asking,
                ..period(2.0, 0.0)
            });
        }
        lately.asking()
    };
    assert_eq!(
        (asking([None, None]), asking([Some(1.0), Some(3.0)])),
        (64.0, 2.0)
    );
    assert_eq!(
        (asking([None, Some(3.0)]), asking([Some(0.0), Some(0.0)])),
        (3.0, 1.0)
    );
}

#[test]
fn at_saturation_a_turn_far_worse_than_the_first_is_cut_short_and_counts() {
    let pace = Pace {
        target: Seconds::new(0.02),
        ..PACE
    };
    let tail = |setting: usize| [40.0, 60.0, 4_000.0][setting];
    let run = |pace: Pace| {
        let mut trial = Trial::new(pace, vec![0, 1, 2]);
        let mut in_force = Vec::new();
        while !trial.is_done() {
            let setting = *trial.setting();
            in_force.push(setting);
            // Everybody waits.
            let sample = period(tail(setting), 0.9);
            trial.observe(Some([0.0, 0.3, -2.0][setting]), &sample, &|_| None);
        }
        (
            *trial.setting(),
            in_force.iter().filter(|setting| **setting == 2).count(),
            trial,
        )
    };
    let (found, periods, trial) = run(pace);
    // Two turns of one period each, where two whole ones are ten.
    assert_eq!((found, periods), (1, 2));
    let all = trial.compared(|_| Setting::default());
    assert_eq!((all[2].turns, all[2].verdict), (2, Verdict::Worse));
    assert!(all[2].why.as_ref().unwrap().contains("cut short") && all[1].why.is_none());
    // Where such waits are within the target nothing is cut.
    assert_eq!(
        run(Pace {
            target: Seconds::new(5.0),
            ..pace
        })
        .1,
        10
    );
}

#[test]
fn what_a_round_had_before_it_begins_anew_is_in_no_sum() {
    let mut trial = Trial::new(PACE, vec![0, 1]);
    let observe = |trial: &mut Trial<usize>, periods: usize, queries: u64| {
        for _ in 0..periods {
            let sample = Sample {
                queries,
                length: Seconds::new(0.25),
                at_slo: Some(Seconds::from_millis(queries as f64)),
                ..Sample::default()
            };
            trial.observe(Some(0.0), &sample, &|_| None);
        }
    };
    let periods = |trial: &Trial<usize>| {
        let all = trial.compared(|_| Setting::default());
        all.iter().map(|one| (one.periods, one.turns)).collect::<Vec<_>>()
    };
    // A whole round, of turns of four periods that count after one that does not.
    observe(&mut trial, 10, 100);
    assert_eq!((trial.rounds(), periods(&trial)), (1, vec![(4, 1), (4, 1)]));
    // One turn and a half of the next, on a machine that is changed then.
    observe(&mut trial, 8, 7);
    assert_eq!(periods(&trial), [(4, 1), (8, 2)]);
    assert!(trial.begins_anew());
    assert_eq!(periods(&trial), [(4, 1), (4, 1)]);
    let all = trial.compared(|_| Setting::default());
    assert!(
        all.iter().all(|one| one.rate == Some(PerSecond::new(400.0))),
        "{all:?}"
    );
    observe(&mut trial, 10, 100);
    assert_eq!((trial.rounds(), periods(&trial)), (2, vec![(8, 2), (8, 2)]));
}

#[test]
fn a_load_that_grows_makes_no_setting_better() {
    for seed in 1..20 {
        assert_eq!(found(&[0.0, -0.1], 0.0005, 0.05, seed).0, 0, "seed {seed}");
    }
}

#[test]
fn one_setting_needs_no_trial_and_without_scores_it_is_given_up() {
    assert!(Trial::new(PACE, vec![3]).is_done());
    let mut trial = Trial::new(PACE, vec![0, 1]);
    for _ in 0..9 {
        trial.observe(Some(1.0), &Sample::default(), &|_| None);
    }
    // A pause of two turns changes nothing.
    for _ in 0..18 {
        trial.observe(None, &Sample::default(), &|_| None);
    }
    assert!(!trial.is_done());
    for _ in 0..100 {
        trial.observe(None, &Sample::default(), &|_| None);
    }
    assert!(trial.is_done() && trial.given_up().is_some());
}

#[test]
fn what_each_setting_did_is_kept_with_its_verdict() {
    use headroom_units::{Lever, Source};
    let mut trial = Trial::new(PACE, vec![1, 2, 3]);
    let setting = |workers: &i32| Setting::from([(Lever::Concurrency, f64::from(*workers))]);
    let open = trial.compared(setting);
    assert!(
        open.iter()
            .all(|one| one.verdict == Verdict::Open && one.rate.is_none() && one.gain.is_none())
    );
    let mut periods = 0;
    while !trial.is_done() {
        let at = *trial.setting();
        // The second is the best, the third hopeless and of no meter.
        let (rate, watts) = [(1000, Some(30.0)), (1200, Some(30.0)), (100, None)][at as usize - 1];
        let sample = Sample {
            queries: rate / 4,
            length: Seconds::new(0.25),
            energy: watts.map(|watts: f64| Reading::new(Joules::new(watts / 4.0), Source::Estimated)),
            at_slo: Some(Seconds::from_millis(f64::from(at))),
            p99: None,
            ..Sample::default()
        };
        trial.observe(Some((rate as f64).ln()), &sample, &|_| None);
        periods += 1;
    }
    let all = trial.compared(setting);
    let verdicts: Vec<Verdict> = all.iter().map(|one| one.verdict).collect();
    assert_eq!(verdicts, [Verdict::Worse, Verdict::Found, Verdict::Worse]);
    assert_eq!(all[1].rate, Some(PerSecond::new(1200.0)));
    assert_eq!(
        all[1].energy_per_query.unwrap(),
        Reading::new(Joules::new(30.0 / 1200.0), Source::Estimated)
    );
    assert_eq!((all[2].energy_per_query, all[2].turns), (None, 2));
    let at_slo = all[0].latency_at_slo.unwrap();
    assert!((at_slo.as_millis() - 1.0).abs() < 1e-9, "{at_slo:?}");
    assert_eq!(all[0].setting.get(Lever::Concurrency), Some(1.0));
    let gain = |at: usize| all[at].gain.unwrap().get();
    assert!(
        (gain(1) - 0.2).abs() < 1e-9 && (gain(0) + 1.0 / 6.0).abs() < 1e-9,
        "{all:?}"
    );
    // What settles is not counted.
    assert_eq!(all.iter().map(|one| one.periods).sum::<u64>() * 5, periods * 4);
}

proptest! {
    /// It ends, after no more than its rounds have turns, and never in a setting that is clearly worse.
    #[test]
    fn it_ends_with_no_bad_setting(
        scores in proptest::collection::vec(-0.5..0.5f64, 2..7), noise in 0.0..0.05f64, seed in any::<u64>(),
    ) {
        let (at, periods) = found(&scores, 0.0, noise, seed);
        let best = scores.iter().copied().fold(f64::MIN, f64::max);
        prop_assert!(scores[at] >= best - 0.12, "{at} of {scores:?}");
        prop_assert!(periods <= 6 * scores.len() as u32 * 5, "{periods}");
    }
}
