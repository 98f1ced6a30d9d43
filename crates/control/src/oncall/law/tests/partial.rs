//! While the server serves what comes.

use super::*;

#[test]
fn a_comparison_that_the_load_ends_is_told_without_a_verdict() {
    // At partial load delays are compared, until queries always wait: from the first setting's turn on, or from that of a delay, which may
    // have left what is served first.
    for (from, said) in [(6, "the load changed"), (12, "not served without a delay")] {
        let (mut server, mut law) = (oversubscribed(), ours(1_000.0, GoalName::Slo));
        server.watts = Some(|delay| 30.0 - delay);
        server.demand = 2_000.0;
        let mut in_force = server.run(&mut law, from);
        server.demand = f64::INFINITY;
        let mut told = Vec::new();
        for period in from..from + 600 {
            let decision = law.decide(&server.observation(period, in_force));
            in_force = decision.setting;
            told.extend(decision.comparisons);
        }
        let ended = told.iter().find(|told| told.about.contains(said));
        let ended = ended.unwrap_or_else(|| panic!("{told:?}"));
        assert!(ended.compared.iter().all(|one| one.verdict == Verdict::Open));
    }
}

/// What was measured while the machine's levers moved counts for nobody: the round begins anew, until they rest or three times.
#[test]
fn a_round_in_which_the_machine_changed_begins_anew() {
    let compare = |moves: fn(u64) -> f64| {
        let mut server = partly_loaded();
        let mut law = ours(20.0, GoalName::Slo);
        let mut in_force = Setting::default();
        for period in 0..2_000 {
            let machine = in_force.with(Lever::Cores, Some(moves(period)));
            let decision = law.decide(&server.observation(period, machine));
            in_force = decision.setting;
            if !decision.comparisons.is_empty() {
                return (period, decision.comparisons[0].compared.clone());
            }
        }
        panic!("never found");
    };
    let (rests, _) = compare(|_| 4.0);
    let (once, compared) = compare(|period| if period < 20 { 4.0 } else { 3.0 });
    let (always, _) = compare(|period| (period % 2) as f64);
    // 20 periods of it were in vain.
    assert!(once >= rests + 15 && once < rests + 25, "{rests} {once}");
    assert!(
        compared
            .iter()
            .any(|one| one.verdict == Verdict::Found && one.setting.get(Lever::RoundDelay) > Some(0.0)),
        "{compared:?}"
    );
    assert!(always > rests && always < 2 * rests, "{rests} {always}");
}

#[test]
fn a_delay_comes_where_watts_show_that_it_saves_and_ends_where_the_slo_is_missed() {
    let partial = |watts: Option<fn(f64) -> f64>| Server {
        demand: 2_000.0,
        tail: |_, _, delay| 1.0 + 1.3 * delay,
        watts,
        ..oversubscribed()
    };
    let delay = |server: &mut Server, target: f64| {
        let found = server.run(&mut ours(target, GoalName::Slo), 600);
        found.get(Lever::RoundDelay).unwrap() * 1e3
    };
    let saves: fn(f64) -> f64 = |delay| if delay >= 2.0 { 60.0 } else { 80.0 };
    assert!((2.0..=10.0).contains(&delay(&mut partial(Some(saves)), 20.0)));
    // The least that saves as much is enough.
    assert_eq!(delay(&mut partial(Some(saves)), 200.0), 2.0);
    // Nothing saved, no meter, or an SLO that leaves nothing: no delay.
    assert_eq!(delay(&mut partial(Some(|_| 80.0)), 20.0), 0.0);
    assert_eq!(delay(&mut partial(None), 20.0), 0.0);
    assert_eq!(delay(&mut partial(Some(saves)), 1.5), 0.0);
    let mut server = partial(Some(saves));
    let mut law = ours(20.0, GoalName::Slo);
    server.run(&mut law, 600);
    server.tail = |_, _, delay| 1.0 + 30.0 * delay;
    let found = server.run(&mut law, 6);
    assert_eq!(found.get(Lever::RoundDelay), Some(0.0));
}

/// Fewer queries draw less: watts alone would call the longest delay the best.
#[test]
fn clients_that_wait_for_their_answers_are_not_delayed() {
    let watts: fn(f64) -> f64 = |delay| if delay > 0.0 { 26.9 } else { 28.0 };
    let closed = || Server {
        most: |_, _| 16_000.0,
        tail: |_, _, delay| 0.2 + delay,
        watts: Some(watts),
        closed: true,
        ..oversubscribed()
    };
    let mut laws: [Box<dyn Law>; 4] = [
        Box::new(ours(100.0, GoalName::Slo)),
        Box::new(ours(100.0, GoalName::Throughput)),
        Box::new(ours(100.0, GoalName::P99)),
        Box::new(
            Reef::new(
                slo(100.0),
                plant(),
                Some(&MachineFigures::broadwell(12)),
                &ReefTuning::default(),
            )
            .unwrap(),
        ),
    ];
    for law in &mut laws {
        let mut server = closed();
        let (mut in_force, mut delayed) = (Setting::default(), 0);
        for period in 0..2_000 {
            in_force = law.decide(&server.observation(period, in_force)).setting;
            delayed += u32::from(in_force.get(Lever::RoundDelay).is_some_and(|delay| delay > 0.0));
        }
        assert!(delayed < 100, "{}: {delayed} of 2000 periods", law.name());
    }
}

/// As measured live: 400 connections of which one asks, and waits for its answers. A delay would leave it an eighth of what it has.
#[test]
fn connections_that_do_not_ask_hide_no_client_that_waits() {
    let delayed = |asking: Option<f64>| {
        let mut server = Server {
            most: |_, _| 11_559.0,
            tail: |_, _, delay| 0.2 + delay,
            watts: Some(|delay| if delay > 0.0 { 26.9 } else { 28.0 }),
            closed: true,
            ..oversubscribed()
        };
        let mut law = ours(100.0, GoalName::Slo);
        let (mut in_force, mut delayed) = (Setting::default(), 0);
        for period in 0..400 {
            let mut observation = server.observation(period, in_force);
            let oncall = observation.oncall.as_mut().unwrap();
            (oncall.connections, oncall.asking) = (400, asking);
            in_force = law.decide(&observation).setting;
            delayed += u32::from(in_force.get(Lever::RoundDelay).is_some_and(|delay| delay > 0.0));
        }
        delayed
    };
    assert_eq!(delayed(Some(1.0)), 0);
    assert!(delayed(None) > 0);
}

/// Under a delay the mean grows by more than the tail: held against that, the tail would look the better the longer all wait.
#[test]
fn a_goal_of_tails_takes_no_delay_that_makes_them_longer_and_draws_more() {
    for goal in [GoalName::Slo, GoalName::Throughput, GoalName::P99, GoalName::P999] {
        let mut server = Server {
            tail: |_, _, delay| 1.0 + delay,
            watts: Some(|delay| 80.0 + 0.5 * delay),
            ..partly_loaded()
        };
        let mut law = ours(100.0, goal);
        let mut in_force = Setting::default();
        for period in 0..1_000 {
            let mut observation = server.observation(period, in_force);
            let delay_ms = in_force.get(Lever::RoundDelay).unwrap_or(0.0) * 1e3;
            let traffic = observation.traffic.as_mut().unwrap();
            let latency = traffic
                .latency
                .as_mut()
                .and_then(|latency| latency.distribution.as_mut());
            latency.unwrap().mean = Seconds::from_millis(0.2 + delay_ms / 2.0);
            in_force = law.decide(&observation).setting;
        }
        assert_eq!(in_force.get(Lever::RoundDelay), Some(0.0), "{goal:?}");
    }
}

/// A core that others keep busy draws as much whatever this server leaves of it, and a model that knows this server alone does not say so.
#[test]
fn what_a_model_says_a_delay_saves_counts_where_the_cores_were_idle_for_longer() {
    let delay = |long_idle: fn(f64) -> Option<f64>, source: Source| {
        let mut server = partly_loaded();
        let mut law = ours(20.0, GoalName::Slo);
        let (mut in_force, mut whys) = (Setting::default(), Vec::new());
        for period in 0..800 {
            let mut observation = server.observation(period, in_force);
            let delay_ms = in_force.get(Lever::RoundDelay).unwrap_or(0.0) * 1e3;
            observation.oncall.as_mut().unwrap().long_idle = long_idle(delay_ms).map(Ratio::new);
            let watts = observation.power.unwrap().value;
            observation.power = Some(Reading::new(watts, source));
            let decision = law.decide(&observation);
            in_force = decision.setting;
            whys.extend(decision.reasons.into_iter().map(|reason| reason.text.to_string()));
            let compared = decision.comparisons.into_iter().flat_map(|one| one.compared);
            whys.extend(compared.filter_map(|one| one.why));
        }
        (in_force.get(Lever::RoundDelay).unwrap() * 1e3, whys.join("\n"))
    };
    assert!(delay(|delay| Some(0.3 + 0.01 * delay), Source::Estimated).0 >= 2.0);
    for busy in [0.0, 0.3] {
        let same: fn(f64) -> Option<f64> = match busy > 0.0 {
            true => |_| Some(0.3),
            false => |_| Some(0.0),
        };
        let (none, why) = delay(same, Source::Estimated);
        assert_eq!(none, 0.0);
        assert!(why.contains("has no cause"), "{why}");
        // A sensor's watts need no other witness.
        assert!(delay(same, Source::Measured).0 >= 2.0);
    }
    let (none, why) = delay(|_| None, Source::Estimated);
    assert_eq!(none, 0.0);
    assert!(
        why.contains("the lengths of idle periods") && !why.contains("settings are compared"),
        "{why}"
    );
}

/// About as many queries fail as the SLO lets be late: by chance a third of the periods miss it, with a delay or without, and no latency does.
#[test]
fn failures_are_no_latency_by_which_a_delay_is_dropped() {
    let mut server = partly_loaded();
    let mut law = ours(20.0, GoalName::Slo);
    let (mut in_force, mut told) = (Setting::default(), Vec::new());
    for period in 0..2_000 {
        let mut observation = server.observation(period, in_force);
        if period % 3 == 0 {
            let latency = observation
                .traffic
                .as_mut()
                .and_then(|traffic| traffic.latency.as_mut());
            let latency = latency.unwrap();
            (latency.missed, latency.at_slo) = (true, Seconds::from_millis(40.0));
            observation.oncall.as_mut().unwrap().failed = 6;
        }
        let decision = law.decide(&observation);
        in_force = decision.setting;
        told.extend(decision.comparisons);
    }
    assert_eq!(in_force.get(Lever::RoundDelay), Some(0.002), "{in_force}");
    let at_slo = told
        .iter()
        .flat_map(|one| &one.compared)
        .filter_map(|one| one.latency_at_slo);
    assert!(at_slo.clone().count() > 0);
    assert!(
        at_slo.clone().all(|at_slo| at_slo < Seconds::from_millis(20.0)),
        "{told:?}"
    );
}
