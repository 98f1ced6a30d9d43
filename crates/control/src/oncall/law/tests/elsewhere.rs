//! Whether to be on call at all, when the load is of another kind than the one that said so.

use super::*;
use crate::oncall::law::{PolicyName, TableRow};

/// A server that is better alone while queries always wait, by as much as it takes to be sure.
fn better_alone() -> Server {
    Server {
        most: |workers, _| if workers.is_none() { 30_000.0 } else { 20_000.0 },
        tail: |workers, _, delay| if workers.is_none() { 20.0 } else { 30.0 + delay },
        watts: Some(|delay| if delay >= 2.0 { 60.0 } else { 80.0 }),
        ..oversubscribed()
    }
}

/// Runs a law, and says in how many of the periods nobody was on call, and in how many there was a delay.
fn count(server: &mut Server, law: &mut OnCall, periods: u64, in_force: &mut Setting) -> (u64, u64) {
    let (mut off, mut delayed) = (0, 0);
    for period in 0..periods {
        *in_force = law.decide(&server.observation(period, *in_force)).setting;
        off += u64::from(workers(in_force).is_none());
        delayed += u64::from(in_force.get(Lever::RoundDelay).is_some_and(|delay| delay > 0.0));
    }
    (off, delayed)
}

#[test]
fn not_on_call_is_what_was_found_at_saturation_and_at_no_other_load() {
    let mut law = ours(100.0, GoalName::Slo);
    let mut in_force = Setting::default();
    let mut server = better_alone();
    count(&mut server, &mut law, 600, &mut in_force);
    assert_eq!(workers(&in_force), None, "{in_force}");
    // A night with a tenth of it: the next comparison sees that, and the one of delays follows.
    server.demand = 2_000.0;
    count(&mut server, &mut law, 12_000, &mut in_force);
    let (off, delayed) = count(&mut server, &mut law, 4_000, &mut in_force);
    assert!(off == 0 && delayed > 3_000, "{off} {delayed}");
    // In the morning the load is saturated again, and now it is another server, nine times over its target alone.
    let mut server = oversubscribed();
    server.watts = Some(|_| 80.0);
    count(&mut server, &mut law, 2_000, &mut in_force);
    let (off, _) = count(&mut server, &mut law, 4_000, &mut in_force);
    assert!(off < 400, "{off} of 4000 periods");
}

/// Where workers wait for rows and give their slots back meanwhile, nobody waits for a slot, however late queries are.
#[test]
fn queries_that_are_late_though_none_waits_for_a_slot_are_compared_with_nobody_on_call() {
    // Queries of a period and their P99 in ms, on call and not.
    let run = |on_call: (u64, f64), alone: (u64, f64), policy: PolicyName| {
        let mut server = oversubscribed();
        server.watts = Some(|_| 80.0);
        let tuning = OncallTuning {
            policy,
            ..OncallTuning::default()
        };
        let mut law = OnCall::new(slo(100.0), plant(), Some(&MachineFigures::broadwell(12)), tuning).unwrap();
        let (mut in_force, mut off, mut compared) = (Setting::default(), 0, Vec::new());
        for period in 0..4_000 {
            let mut observation = server.observation(period, in_force);
            let is_on_call = workers(&in_force).is_some();
            let (queries, p99_ms) = if is_on_call { on_call } else { alone };
            let oncall = observation.oncall.as_mut().unwrap();
            (oncall.waiting_least, oncall.waiting_share) = (Some(0), Some(Ratio::ZERO));
            oncall.queries = queries;
            let latency = observation
                .traffic
                .as_mut()
                .and_then(|traffic| traffic.latency.as_mut());
            latency.unwrap().at_slo = Seconds::from_millis(p99_ms);
            let decision = law.decide(&observation);
            in_force = decision.setting;
            off += u32::from(workers(&in_force).is_none());
            compared.extend(decision.comparisons.into_iter().map(|one| one.about));
        }
        (off, compared)
    };
    let (off, compared) = run((1_000, 150.0), (1_250, 60.0), PolicyName::Fair);
    assert!(off > 3_600, "{off} of 4000 periods: {compared:?}");
    assert!(
        compared.iter().any(|about| about.contains("on call or not")),
        "{compared:?}"
    );
    // No better alone, and late either way: on call, and ever more rarely asked again.
    let (off, compared) = run((1_000, 150.0), (1_000, 150.0), PolicyName::Fair);
    assert!(off < 800, "{off} of 4000 periods: {compared:?}");
    // Within the SLO nothing is asked.
    assert_eq!(run((1_000, 50.0), (1_250, 20.0), PolicyName::Fair).0, 0);
    // Who is to go first does so on call alone.
    assert_eq!(run((1_000, 150.0), (1_250, 60.0), PolicyName::Paced).0, 0);
}

/// Near saturation on call costs: one in so many periods is late, none in a row, and with nobody on call fewer or as many.
#[test]
fn periods_that_are_late_now_and_then_are_reason_enough_to_ask() {
    let run = |every: u64, alone_every: u64| {
        let mut server = partly_loaded();
        // Without a delay.
        server.watts = None;
        let mut law = ours(20.0, GoalName::Slo);
        let (mut in_force, mut off) = (Setting::default(), 0);
        for period in 0..8_000 {
            let mut observation = server.observation(period, in_force);
            let every = if workers(&in_force).is_some() {
                every
            } else {
                alone_every
            };
            let latency = observation
                .traffic
                .as_mut()
                .and_then(|traffic| traffic.latency.as_mut());
            let ms = if period % every == 0 { 60.0 } else { 14.0 };
            latency.unwrap().at_slo = Seconds::from_millis(ms);
            in_force = law.decide(&observation).setting;
            off += u32::from(workers(&in_force).is_none());
        }
        off
    };
    let (often, seldom) = (run(7, 1_000), run(20, 1_000));
    assert!(often > 6_000, "{often}");
    assert_eq!(seldom, 0);
    // As many are late alone: it is asked ever more rarely.
    let same = run(7, 7);
    assert!(same < 1_600, "{same}");
}

#[test]
fn a_policy_that_has_some_go_first_is_never_compared_with_nobody_on_call() {
    for policy in [
        PolicyName::Pslo,
        PolicyName::Utslo,
        PolicyName::Paced,
        PolicyName::Table,
    ] {
        let row = TableRow {
            tokens: 2,
            share: 1.0,
        };
        let tuning = OncallTuning {
            policy,
            table: [("rest".to_owned(), row)].into(),
            ..OncallTuning::default()
        };
        let mut law = OnCall::new(slo(100.0), plant(), Some(&MachineFigures::broadwell(12)), tuning).unwrap();
        let mut in_force = Setting::default();
        let (off, _) = count(&mut better_alone(), &mut law, 2_000, &mut in_force);
        assert_eq!(off, 0, "{policy}");
    }
}

/// What was found in one spell is no answer to the next, and nothing says when a spell is over while nobody is on call.
#[test]
fn a_spell_of_late_queries_is_over_when_it_is_and_the_next_is_compared_anew() {
    let mut server = partly_loaded();
    let mut law = ours(100.0, GoalName::Slo);
    let (mut in_force, mut off, mut compared) = (Setting::default(), Vec::new(), 0);
    for period in 0..6_000_u64 {
        let mut observation = server.observation(period, in_force);
        let is_late = matches!(period, 1_000..1_200 | 4_000..4_200) && workers(&in_force).is_some();
        if is_late {
            let latency = observation
                .traffic
                .as_mut()
                .and_then(|traffic| traffic.latency.as_mut());
            latency.unwrap().at_slo = Seconds::from_millis(300.0);
        }
        let decision = law.decide(&observation);
        in_force = decision.setting;
        if workers(&in_force).is_none() {
            off.push(period);
        }
        let abouts = decision.comparisons.iter();
        compared += abouts.filter(|one| one.about.contains("on call or not")).count();
    }
    let spells = [1_000..1_600_u64, 4_000..4_600];
    for spell in &spells {
        assert!(
            off.iter().any(|period| spell.contains(period)),
            "{spell:?}: {off:?}"
        );
    }
    let longer = off
        .iter()
        .filter(|period| !spells.iter().any(|spell| spell.contains(period)));
    assert_eq!(longer.count(), 0, "{off:?}");
    assert!(compared >= 2, "{compared}");
}

/// What a server fails at once is late for nobody, and no law holds it up.
#[test]
fn a_server_that_fails_is_not_let_go_for_it() {
    let mut server = partly_loaded();
    server.demand = 200.0;
    let mut law = ours(100.0, GoalName::Slo);
    let (mut in_force, mut rules) = (Setting::default(), Vec::new());
    for period in 0..1_000 {
        let mut observation = server.observation(period, in_force);
        if (400..800).contains(&period) {
            let oncall = observation.oncall.as_mut().unwrap();
            oncall.failed = oncall.queries;
            let latency = observation
                .traffic
                .as_mut()
                .and_then(|traffic| traffic.latency.as_mut());
            let latency = latency.unwrap();
            (latency.missed, latency.at_slo) = (true, Seconds::from_millis(200.0));
        }
        let decision = law.decide(&observation);
        in_force = decision.setting;
        assert!(
            workers(&in_force).is_some(),
            "period {period}: {:?}",
            decision.reasons
        );
        rules.push(decision.reasons[0].rule.to_string());
    }
    assert!(!rules.iter().any(|rule| rule == "oncall-late"), "{rules:?}");
}
