//! What stays the same from run to run, and what a law, users and an overload make of it.

use super::*;
use headroom_sim::{RunError, run_many};
use headroom_workload::{ArrivalProcess, Shape};

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_does_not() {
    let scenario = default_day();
    assert_eq!(told(&scenario, 1), told(&scenario, 1));
    assert_ne!(told(&scenario, 1).1, told(&scenario, 2).1);
}

#[test]
fn many_runs_come_in_the_order_of_their_jobs() {
    let scenario = default_day();
    let seeds: Vec<u64> = (0..6).collect();
    let alone: Vec<Totals> = seeds.iter().map(|seed| told(&scenario, *seed).0).collect();
    assert_eq!(run_many(&seeds, 3, |_, seed| told(&scenario, *seed).0), alone);
    assert_eq!(
        run_many(&seeds, 1, |index, seed| (index as u64, *seed)),
        seeds.iter().map(|s| (*s, *s)).collect::<Vec<_>>()
    );
}

#[test]
fn another_law_meets_the_same_requests() {
    let scenario = default_day();
    let mut controlled = Vec::new();
    run(&scenario, &mut slo_power(&scenario), 7, &mut |period| {
        controlled.push(period.traffic.arrivals)
    })
    .unwrap();
    let mut free = Vec::new();
    let all = run(&scenario, &mut fixed(&scenario), 7, &mut |period| {
        free.push(period.traffic.arrivals)
    })
    .unwrap();
    assert_eq!(controlled, free);
    assert_eq!(all.offered, free.iter().sum::<u64>());
    // The sizes are the same too: on ample cores nothing waits, so the latencies are the sizes.
    let (all, fewer) = (
        constant(&scenario, 48.0, 276.0, None),
        constant(&scenario, 45.0, 276.0, None),
    );
    let latency = |totals: &Totals| totals.latency.unwrap();
    assert!((latency(&fewer).mean / latency(&all).mean - 1.0).abs() < 1e-6);
    assert_eq!(latency(&fewer).p50, latency(&all).p50);
}

#[test]
fn users_who_think_meet_the_same_sizes_under_another_law() {
    let think = Shape::Exponential {};
    let arrivals = ArrivalProcess::Sessions {
        users: 100,
        think_s: 1.0,
        think,
    };
    let scenario = Scenario {
        arrivals,
        duration_s: Some(200.0),
        ..Scenario::paper()
    };
    let free = constant(&scenario, 48.0, 276.0, None);
    let tight = constant(&scenario, 6.0, 276.0, None);
    // The response time law: λ = users / (R + Z).
    for totals in [&free, &tight] {
        let expected = 100.0 / (1.0 + totals.latency.unwrap().mean.get());
        assert!(
            (totals.arrival_rate.get() / expected - 1.0).abs() < 0.02,
            "{}",
            totals.arrival_rate
        );
    }
    assert!(tight.arrival_rate < free.arrival_rate);
    assert!(tight.in_system_mean <= 100.0);
}

#[test]
fn slo_power_saves_and_keeps_the_slo() {
    let scenario = default_day();
    let free = run(&scenario, &mut fixed(&scenario), 1, &mut |_| {}).unwrap();
    let saved = told(&scenario, 1).0;
    assert!(
        saved.energy.get() < 0.97 * free.energy.get(),
        "{} of {}",
        saved.energy,
        free.energy
    );
    assert!(
        saved.share_over().unwrap().get() < 0.15,
        "{:?}",
        saved.share_over()
    );
    assert!(saved.decisions.values().sum::<u64>() >= saved.periods);
    assert_eq!((free.periods_over, free.failed, saved.failed), (0, 0, 0));
}

#[test]
fn a_run_that_would_not_end_is_ended_and_says_so() {
    let mut scenario = Scenario {
        arrivals: ArrivalProcess::Poisson { rate_per_s: 2000.0 },
        ..Scenario::paper()
    };
    let refused = run(&scenario, &mut fixed(&scenario), 1, &mut |_| {})
        .unwrap_err()
        .to_string();
    assert!(
        refused.starts_with("arrivals: brings 2000 requests per second on average, and all 3 nodes"),
        "{refused}"
    );
    assert!(refused.contains("can serve 1152"), "{refused}");
    scenario.allow_overload = true;
    scenario.limits.in_flight = 10_000;
    let error = run(&scenario, &mut fixed(&scenario), 1, &mut |_| {}).unwrap_err();
    assert!(
        matches!(error, RunError::TooManyInFlight { limit: 10_000, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("48 cores"), "{error}");
    scenario.limits.events = 1_000;
    let error = run(&scenario, &mut fixed(&scenario), 1, &mut |_| {})
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("limits.events: the run was stopped after 1000 events"),
        "{error}"
    );
}
