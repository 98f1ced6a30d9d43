//! The law that seeks the interval, where a response outlasts periods and blocks: what is held is answered, and its cost seen, later.

use super::seek::{World, seek, valley};
use std::cell::RefCell;

/// A response takes a second and so many periods. What a period answers is what `answer` says of the intervals that were in force when it
/// came: a response time ago, or half of one, one and one and three quarters where `spreads`.
fn late(
    answer: impl Fn(f64) -> f64,
    groups: f64,
    lag: f64,
    spreads: bool,
    noise: f64,
    seed: u64,
) -> World<impl Fn(u64, f64) -> (f64, f64, f64)> {
    let held = RefCell::new(Vec::new());
    let ages: &[f64] = if spreads { &[0.5, 1.0, 1.75] } else { &[1.0] };
    World {
        answer: move |number, interval| {
            let mut held = held.borrow_mut();
            // A run may be followed by another.
            held.truncate(number as usize);
            held.push(interval);
            let seen = |age: &f64| {
                let back = (age * lag).round() as usize;
                answer(held[held.len().saturating_sub(back + 1)])
            };
            let mean = ages.iter().map(seen).sum::<f64>() / ages.len() as f64;
            (mean, groups, 0.0)
        },
        noise,
        tail: 2.0,
        hold: 0.0,
        length: 1.0 / lag,
        seed,
    }
}

#[test]
fn where_batches_only_hurt_less_than_two_percent_is_lost_however_late_that_is_seen() {
    for lag in [0.1, 0.5, 1.0, 3.0, 10.0, 30.0, 150.0] {
        for (groups, noise, spreads) in [(1.0, 0.05, false), (1.4, 0.05, true), (1.4, 0.2, false)] {
            // Requests wait for half of the interval, or for four times as much as that.
            for cost in [0.5, 2.0] {
                // With much noise a short run has too little to tell what an attempt costs.
                let short = (noise < 0.1).then_some((100.0 * lag) as u64 + 100);
                for periods in short.into_iter().chain([(500.0 * lag) as u64 + 2_000]) {
                    for seed in 1..5 {
                        let world = late(|held| 1.0 + cost * held, groups, lag, spreads, noise, seed);
                        let lost = world.run(seek(4_000.0), periods).mean - 1.0;
                        assert!(
                            lost < 0.02,
                            "{lag} {groups} {noise} {cost} {periods} {seed}: {lost}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn an_attempt_is_not_repeated_before_its_cost_is_seen() {
    for lag in [10.0, 30.0] {
        for groups in [1.0, 1.4] {
            let world = late(|held| 1.0 + held, groups, lag, true, 0.05, 1);
            let held = world.run(seek(4_000.0), 3_000 * lag as u64).intervals;
            let ends: Vec<usize> = (1..held.len())
                .filter(|at| held[*at] == 0.0 && held[at - 1] > 0.0)
                .collect();
            assert!(ends.len() > 2, "{ends:?}");
            for end in ends {
                let next = held[end..].iter().position(|one| *one > 0.0);
                assert!(
                    next.is_none_or(|periods| periods as f64 >= 2.0 * lag),
                    "{lag}: {end}"
                );
            }
        }
    }
}

#[test]
fn where_batches_help_their_gain_is_taken_however_late_it_is_seen() {
    for lag in [0.1, 1.0, 3.0, 10.0, 30.0, 60.0] {
        for spreads in [false, true] {
            for seed in 1..5 {
                let world = late(|held| valley(held, 0.3, 0.18), 1.5, lag, spreads, 0.05, seed);
                let periods = (3_600.0 * lag) as u64 + 4_000;
                // Now and then a period is lost, as it may be.
                let run = world.run_losing(seek(4_000.0), periods, |number| lag > 20.0 && number % 50 == 3);
                let least = valley(0.3, 0.3, 0.18);
                // There may be a long look in it.
                assert!(run.last < least * 1.05, "{lag} {seed}: {}", run.last);
                assert!(run.mean < 1.0 - 0.7 * 0.18, "{lag} {seed}: {}", run.mean);
            }
        }
    }
}

#[test]
fn where_a_comparison_would_take_hours_none_is_made_and_that_is_said() {
    let world = late(|held| valley(held, 0.3, 0.18), 1.5, 400.0, false, 0.05, 1);
    let run = world.run(seek(4_000.0), 6_000);
    assert!(run.intervals.iter().all(|held| *held == 0.0));
    let said = run.texts.last().unwrap();
    assert!(said.starts_with("batching is off: a response takes "), "{said}");
    assert!(said.contains("over 10000 none is made"), "{said}");
}
