//! While queries always wait.

use super::*;

#[test]
fn the_batch_that_serves_most_is_found_and_the_slo_bounds_it() {
    let found = oversubscribed().run(&mut ours(1_000.0, GoalName::Throughput), 2_000);
    assert!(
        workers(&found).is_some_and(|workers| (3.0..=6.0).contains(&workers)),
        "{found}"
    );
    assert!(
        found.get(Lever::QueryBatch).is_some_and(|batch| batch >= 4.0),
        "{found}"
    );
    // N = 8 has a P99 of 150 ms.
    let found = oversubscribed().run(&mut ours(50.0, GoalName::Slo), 2_000);
    assert!(
        found.get(Lever::QueryBatch).is_some_and(|batch| batch <= 2.0),
        "{found}"
    );
}

#[test]
fn what_was_compared_is_told_with_its_figures_once() {
    let (mut server, mut law) = (oversubscribed(), ours(1_000.0, GoalName::Throughput));
    server.watts = Some(|_| 30.0);
    let (mut in_force, mut told) = (Setting::default(), Vec::new());
    let mut compared = 0;
    for period in 0..1_500 {
        let decision = law.decide(&server.observation(period, in_force));
        in_force = decision.setting;
        compared += u32::from(decision.reasons[0].rule == "oncall-found");
        for one in &decision.comparisons {
            assert_eq!(one.ended, Seconds::new(0.25 * (period + 1) as f64));
            assert!(one.began < one.ended);
            // What was found is in force from then on.
            let found: Vec<_> = one
                .compared
                .iter()
                .filter(|one| one.verdict == Verdict::Found)
                .collect();
            assert_eq!(found.len(), 1, "{one:?}");
            assert_eq!(found[0].setting, in_force);
        }
        told.extend(decision.comparisons);
    }
    assert!(
        compared >= 2 && told.len() == compared as usize,
        "{compared} {}",
        told.len()
    );
    let first = &told[0];
    assert!(first.about.contains("queries always wait"), "{}", first.about);
    let off = first.compared.iter().find(|one| one.setting.is_empty()).unwrap();
    assert!(
        off.rate
            .is_some_and(|rate| (rate.get() / 22_000.0 - 1.0).abs() < 0.05),
        "{off:?}"
    );
    assert!(
        off.latency_at_slo
            .is_some_and(|at_slo| (at_slo.as_millis() - 900.0).abs() < 1e-6),
        "{off:?}"
    );
    let energy = off.energy_per_query.unwrap();
    assert!(
        (energy.value.get() * 22_000.0 / 30.0 - 1.0).abs() < 0.05,
        "{off:?}"
    );
    assert_eq!(energy.source, Source::Estimated);
}

/// As measured at 512 clients that ask for points on one core: two queries a round of a few workers serve as much as the server alone, with
/// the shortest tail.
#[test]
fn on_one_core_two_queries_a_round_are_found_for_tails() {
    let one_core = || Server {
        most: |workers, batch| match workers {
            None => 31_900.0,
            Some(workers) if workers < 3.0 => 29_300.0,
            Some(workers) if workers <= 5.0 && batch <= 2.0 => 31_900.0,
            Some(_) => 33_000.0,
        },
        tail: |workers, batch, _| match workers {
            None => 150.0,
            Some(_) if batch <= 1.0 => 55.0,
            Some(workers) if batch <= 2.0 && workers <= 5.0 => 40.0 - 4.0 * (workers - 3.0).min(1.0),
            Some(_) => 130.0,
        },
        cores: 1,
        clients: Some(512.0),
        ..oversubscribed()
    };
    for goal in [GoalName::P99, GoalName::P999, GoalName::Slo] {
        // The SLO is one that N = 8 misses.
        let mut law = ours(50.0, goal);
        let mut server = one_core();
        let (mut in_force, mut first) = (Setting::default(), None);
        for period in 0..2_000 {
            let decision = law.decide(&server.observation(period, in_force));
            in_force = decision.setting;
            first = first.or_else(|| decision.comparisons.into_iter().next());
        }
        let compared = first.unwrap().compared;
        let is_compared = |batch: f64| {
            compared.iter().any(|one| {
                one.setting.get(Lever::Concurrency) == Some(4.0)
                    && one.setting.get(Lever::QueryBatch) == Some(batch)
            })
        };
        assert!(is_compared(2.0) && is_compared(3.0), "{compared:?}");
        assert_eq!(in_force.get(Lever::QueryBatch), Some(2.0), "{goal:?}");
        assert!(
            workers(&in_force).is_some_and(|workers| (3.0..=5.0).contains(&workers)),
            "{in_force}"
        );
    }
}

/// As measured there when the machine was slower: three queries a round serve as much as the server alone, two a twelfth less, and eight make
/// the tail twice as long.
#[test]
fn on_one_core_three_queries_a_round_are_found_within_an_slo() {
    let mut server = Server {
        most: |workers, batch| match workers {
            None => 8_300.0,
            Some(workers) if workers < 3.0 || batch <= 1.0 => 7_200.0,
            Some(_) if batch <= 2.0 => 7_800.0,
            Some(_) if batch <= 3.0 => 8_900.0,
            Some(_) => 9_100.0,
        },
        tail: |workers, batch, _| match workers {
            None => 1_360.0,
            Some(_) if batch <= 1.0 => 118.0,
            Some(_) => 40.0 + 52.0 * batch,
        },
        cores: 1,
        clients: Some(512.0),
        ..oversubscribed()
    };
    let found = server.run(&mut ours(200.0, GoalName::Slo), 2_000);
    assert_eq!(found.get(Lever::QueryBatch), Some(3.0), "{found}");
    assert!(workers(&found).is_some_and(|workers| workers >= 3.0), "{found}");
}

#[test]
fn a_server_that_it_does_not_help_is_not_on_call() {
    let mut server = Server {
        most: |workers, _| match workers {
            None => 30_000.0,
            Some(_) => 25_000.0,
        },
        tail: |_, _, _| 5.0,
        ..oversubscribed()
    };
    let mut law = ours(1_000.0, GoalName::Slo);
    assert_eq!(workers(&server.run(&mut law, 1_000)), None);
    // Where the tail is what counts, it is again, for a tail ten times as long as without.
    server.tail = |workers, _, _| if workers.is_none() { 5_000.0 } else { 20.0 };
    let found = server.run(&mut ours(100.0, GoalName::Slo), 1_000);
    assert!(workers(&found).is_some(), "{found}");
}

/// A start with a backlog looks as saturation does; what is compared then serves all that comes, whatever it is.
#[test]
fn a_backlog_at_the_beginning_is_no_saturation_for_long() {
    let mut server = oversubscribed();
    let mut law = ours(1_000.0, GoalName::Slo);
    server.run(&mut law, 12);
    server.demand = 12_000.0;
    let mut in_force = Setting::default();
    let mut last = 0;
    for period in 12..400 {
        let decision = law.decide(&server.observation(period, in_force));
        in_force = decision.setting;
        let compares = |reason: &Reason| reason.rule == "oncall-compare";
        if decision.reasons.iter().any(compares) {
            last = period;
        }
    }
    // Until the fewest workers have their turn again, and not the six rounds of a whole comparison.
    assert!(last < 12 + 2 * 6 * 6, "{last}");
}

#[test]
fn what_stays_is_compared_ever_more_rarely() {
    let mut server = oversubscribed();
    let mut law = ours(1_000.0, GoalName::Throughput);
    server.run(&mut law, 6_000);
    let mut compared = 0;
    let mut in_force = Setting::default();
    for period in 0..6_000 {
        let decision = law.decide(&server.observation(period, in_force));
        compared += u32::from(decision.reasons[0].rule == "oncall-compare");
        in_force = decision.setting;
    }
    assert!(compared < 600, "{compared} of 6000 periods");
}

#[test]
fn as_published_c_is_the_least_that_saturates_and_n_follows_the_goal() {
    let reef = |goal| {
        let tuning = ReefTuning {
            goal,
            ..ReefTuning::default()
        };
        Reef::new(
            slo(1_000.0),
            plant(),
            Some(&MachineFigures::broadwell(12)),
            &tuning,
        )
        .unwrap()
    };
    let mut server = Server {
        most: |workers, _| 5_000.0 * workers.unwrap_or(64.0).min(5.0),
        cores: 16,
        ..oversubscribed()
    };
    let found = server.run(&mut reef(GoalName::Throughput), 3_000);
    assert_eq!(
        (workers(&found), found.get(Lever::QueryBatch)),
        (Some(5.0), Some(8.0))
    );
    let found = server.run(&mut reef(GoalName::P99), 100);
    assert_eq!(found.get(Lever::QueryBatch), Some(2.0));
}

#[test]
fn a_load_between_what_two_settings_serve_is_served_by_the_better_one() {
    let mut server = Server {
        demand: 22_500.0,
        ..oversubscribed()
    };
    let mut law = ours(1_000.0, GoalName::Slo);
    let found = server.run(&mut law, 2_000);
    assert!(
        found.get(Lever::QueryBatch).is_some_and(|batch| batch >= 4.0),
        "{found}"
    );
}

#[test]
fn as_published_c_is_not_searched_where_it_is_given() {
    let tuning = ReefTuning {
        concurrency: Some(512),
        ..ReefTuning::default()
    };
    let mut law = Reef::new(slo(1_000.0), plant(), None, &tuning).unwrap();
    let mut server = oversubscribed();
    let mut in_force = Setting::default();
    for period in 0..400 {
        let decision = law.decide(&server.observation(period, in_force));
        assert_eq!(decision.reasons[0].rule, "climb-given");
        assert_eq!(workers(&decision.setting), Some(512.0));
        in_force = decision.setting;
    }
    // N is found beside it.
    assert_eq!(in_force.get(Lever::QueryBatch), Some(8.0));
}
