//! When everybody goes at once.

use super::*;

/// A period with so many queries, the latency of one, and the longest wait for a slot.
fn period(number: u64, in_force: Setting, (queries, took_ms, waited_ms): (u64, f64, f64)) -> Observation {
    let latency = Latency {
        at_slo: Seconds::from_millis(took_ms),
        missed: false,
        distribution: None,
    };
    Observation {
        period: number,
        length: Seconds::new(0.25),
        at: Seconds::new(0.25 * (number + 1) as f64),
        in_force,
        power: Some(Reading::new(Watts::new(30.0), Source::Estimated)),
        traffic: Some(Traffic {
            latency: (queries > 0).then_some(latency),
            ..Traffic::default()
        }),
        oncall: Some(OncallObservation {
            queries,
            connections: 60,
            waiting_least: Some(u64::from(waited_ms > 0.0) * 40),
            oldest_waiting: (waited_ms > 0.0).then(|| Seconds::from_millis(waited_ms)),
            cores: Some(2),
            long_idle: Some(Ratio::new(0.2)),
            ..OncallObservation::default()
        }),
        ..Observation::default()
    }
}

/// How many periods the server was not on call for each time, and the decisions.
fn run(
    law: &mut OnCall,
    periods: std::ops::Range<u64>,
    of: impl Fn(bool) -> (u64, f64, f64),
) -> (Vec<u32>, Vec<Decision>) {
    let (mut in_force, mut spells, mut decisions) = (Setting::default(), Vec::new(), Vec::new());
    let mut was_on_call = true;
    for number in periods {
        let decision = law.decide(&period(number, in_force, of(workers(&in_force).is_some())));
        in_force = decision.setting;
        let is_on_call = workers(&in_force).is_some();
        match (is_on_call, was_on_call) {
            (false, true) => spells.push(1),
            (false, false) => *spells.last_mut().unwrap() += 1,
            _ => {}
        }
        was_on_call = is_on_call;
        decisions.push(decision);
    }
    (spells, decisions)
}

/// 60 clients, most with queries that sleep for 0.1 s and some with dear ones: on call some few queries a period are answered and others wait
/// for a second, not on call all are within 84 ms.
#[test]
fn a_load_that_the_law_holds_up_is_no_quiet_one() {
    let held_up = |is_on_call: bool| match is_on_call {
        true => (4, 300.0, 1_200.0),
        false => (150, 84.0, 0.0),
    };
    let mut law = ours(20.0, GoalName::Slo);
    let (spells, decisions) = run(&mut law, 0..2_000, held_up);
    // The first ends where many come; who holds them up again is let go for the whole of the next ones.
    assert_eq!(spells[..5], [8, 80, 160, 320, 320]);
    let on_call = decisions
        .iter()
        .filter(|one| workers(&one.setting).is_some())
        .count();
    assert!(on_call <= 10, "{on_call}");
    let reason = &decisions[20].reasons[0];
    assert!(
        reason.rule == "oncall-held-up"
            && reason
                .text
                .contains("1200.0 ms where 4 were answered in a period"),
        "{reason:?}"
    );
}

/// One slow query of a quiet server has everybody go for a while; as few queries come then, it was not the law that held them up, and the
/// delay that was found is in force again.
#[test]
fn a_slow_query_of_a_quiet_server_costs_a_while_and_not_what_was_found() {
    let mut server = partly_loaded();
    let mut law = ours(20.0, GoalName::Slo);
    let found = server.run(&mut law, 2_000);
    assert!(found.get(Lever::RoundDelay) > Some(0.0), "{found}");
    let (mut in_force, mut gone) = (found, 0);
    for number in 2_000..2_130 {
        let took_ms = if number == 2_040 { 300.0 } else { 3.0 };
        in_force = law.decide(&period(number, in_force, (4, took_ms, 0.0))).setting;
        gone += u32::from(workers(&in_force).is_none());
    }
    assert_eq!((gone, in_force), (40, found));
    // A server that is quiet by itself is on call.
    let (spells, _) = run(&mut ours(20.0, GoalName::Slo), 0..300, |_| (4, 5.0, 3.0));
    assert_eq!(spells, Vec::<u32>::new());
}

/// Of a load that shows itself once nobody is on call nothing is believed that was found while it was held up: by how many come, or where they are
/// as many as before, as soon as it is held up again.
#[test]
fn what_was_found_of_a_load_that_was_held_up_is_compared_anew() {
    let mut server = partly_loaded();
    let mut law = ours(20.0, GoalName::Slo);
    let found = server.run(&mut law, 2_000);
    let mut in_force = found;
    let mut rules = Vec::new();
    for number in 2_000..2_120 {
        let held = (4, 300.0, 300.0);
        let of = match workers(&in_force) {
            Some(_) if number < 2_020 => held,
            _ => (400, 5.0, 0.0),
        };
        let decision = law.decide(&period(number, in_force, of));
        rules.push(decision.reasons[0].rule.to_string());
        in_force = decision.setting;
    }
    assert_eq!(rules.iter().position(|rule| rule == "oncall-held-up"), Some(3));
    assert!(rules.iter().any(|rule| rule == "oncall-compare"), "{rules:?}");
}

#[test]
fn who_is_stuck_again_at_once_is_let_go_for_longer_and_the_wait_is_told() {
    let stuck = |is_on_call: bool| (1_000, 2.0, if is_on_call { 3_000.0 } else { 0.0 });
    let mut law = ours(20.0, GoalName::Slo);
    let (spells, decisions) = run(&mut law, 0..1_000, stuck);
    assert_eq!(spells[..5], [40, 80, 160, 320, 320]);
    let released = decisions.iter().filter(|one| workers(&one.setting).is_none());
    for decision in released {
        let reason = &decision.reasons[0];
        assert!(
            reason.text.contains("a query waited 3.0 s for a slot"),
            "{reason:?}"
        );
    }
    // After a calm as long as the last time it is as the first time.
    run(&mut law, 1_000..1_800, |_| (1_000, 2.0, 0.0));
    assert_eq!(run(&mut law, 1_800..1_850, stuck).0[0], 40);
}

/// 512 clients on two cores: on call the SLO is missed by twice its target, and with nobody on call a query waits for seconds for a processor.
#[test]
fn what_waits_while_nobody_is_on_call_is_no_reason_to_leave_it_so() {
    let server = |is_on_call: bool| match is_on_call {
        true => (1_000, 200.0, 150.0),
        false => (600, 1_200.0, 2_300.0),
    };
    let (_, decisions) = run(&mut ours(100.0, GoalName::Slo), 0..2_000, server);
    let off = decisions
        .iter()
        .filter(|one| workers(&one.setting).is_none())
        .count();
    assert!(off < 100, "{off}");
    assert!(decisions.iter().any(|one| !one.comparisons.is_empty()));
}

/// A table that is locked, a checkpoint, a machine that stands still for a moment: nobody is let go, and what was found stays. Where it lasts for
/// longer they are, and what was found is in force again.
#[test]
fn a_pause_of_a_busy_server_costs_nothing_that_was_found() {
    for (length, gone) in [(2, 0), (3, 0), (6, 8)] {
        let mut server = partly_loaded();
        let mut law = ours(20.0, GoalName::Slo);
        let found = server.run(&mut law, 2_000);
        // As many as before, and pauses a minute apart.
        let (mut in_force, mut off, mut rules) = (found, 0, Vec::new());
        for number in 2_000..3_000 {
            let of = match number % 240 < length {
                true => (2, 240.0, 0.0),
                false => (500, 5.0, 0.0),
            };
            let decision = law.decide(&period(number, in_force, of));
            rules.push(decision.reasons[0].rule.to_string());
            in_force = decision.setting;
            off += u32::from(workers(&in_force).is_none());
        }
        let pauses = 5;
        assert_eq!(off, gone * pauses, "{length}");
        assert_eq!(
            in_force.with(Lever::RoundDelay, None),
            found.with(Lever::RoundDelay, None)
        );
        // What was forgotten would be compared anew.
        let (_, since) = rules.split_at(160);
        assert!(
            !since.iter().any(|rule| rule == "oncall-compare"),
            "{length}: {since:?}"
        );
    }
}

#[test]
fn a_comparison_ends_where_the_load_becomes_quiet() {
    let mut law = ours(20.0, GoalName::Slo);
    run(&mut law, 0..20, |_| (1_000, 2.0, 0.0));
    assert!(law.is_comparing());
    // A few quiet periods are none.
    run(&mut law, 20..27, |_| (3, 2.0, 0.0));
    run(&mut law, 27..28, |_| (1_000, 2.0, 0.0));
    run(&mut law, 28..35, |_| (3, 2.0, 0.0));
    assert!(law.is_comparing());
    let (_, decisions) = run(&mut law, 35..36, |_| (3, 2.0, 0.0));
    let told = &decisions[0].comparisons[0];
    assert!(
        told.about.contains("too few queries") && !law.is_comparing(),
        "{told:?}"
    );
    assert!(told.compared.iter().all(|one| one.verdict == Verdict::Open));
}
