//! Whatever the load is.

use super::*;

#[test]
fn without_an_observation_what_is_in_force_stays() {
    let in_force = Point::new(3, 8).setting();
    let observation = Observation {
        in_force,
        ..Observation::default()
    };
    let mut law = ours(10.0, GoalName::Slo);
    assert!(!law.is_informed(&observation));
    assert_eq!(law.decide(&observation).setting, in_force);
    assert!(
        Point::OFF.is(&Setting::default()) && !Point::OFF.is(&in_force) && Point::new(3, 8).is(&in_force)
    );
}

#[test]
fn a_pause_decides_nothing() {
    let mut server = oversubscribed();
    let mut law = ours(1_000.0, GoalName::Throughput);
    server.run(&mut law, 20);
    let mut in_force = law.decide(&server.observation(20, Setting::default())).setting;
    for period in 0..200 {
        let mut nothing = server.observation(period, in_force);
        nothing.traffic.as_mut().unwrap().latency = None;
        nothing.oncall.as_mut().unwrap().queries = 0;
        in_force = law.decide(&nothing).setting;
    }
    for period in 0..2_000 {
        in_force = law.decide(&server.observation(period, in_force)).setting;
    }
    assert!(
        in_force.get(Lever::QueryBatch).is_some_and(|batch| batch >= 4.0),
        "{in_force}"
    );
}

#[test]
fn where_somebody_is_stuck_everybody_goes_for_a_while() {
    let mut server = oversubscribed();
    let mut law = ours(100.0, GoalName::Slo);
    let mut in_force = server.run(&mut law, 500);
    for period in 0..3 {
        let mut stuck = server.observation(period, in_force);
        let oncall = stuck.oncall.as_mut().unwrap();
        (oncall.queries, oncall.oldest_waiting) = (0, Some(Seconds::new(5.0)));
        stuck.traffic.as_mut().unwrap().latency = None;
        in_force = law.decide(&stuck).setting;
        assert_eq!(workers(&in_force), None);
    }
    for period in 0..60 {
        in_force = law.decide(&server.observation(period, in_force)).setting;
    }
    assert!(workers(&in_force).is_some(), "{in_force}");
}

/// Under the policy paced those without an SLO have the law's N, and those with one a query at a time, before all others.
#[test]
fn paced_connections_go_first_and_the_others_by_rounds_of_n() {
    let mut turns = Turns::new(&OncallTuning {
        policy: PolicyName::Paced,
        ..OncallTuning::default()
    });
    let one = |id, slos| Connection {
        id,
        class: "any".to_owned(),
        weight: 1.0,
        queries: 0,
        mean: None,
        cv: None,
        slos,
        tokens: 1,
    };
    // It had no answer yet.
    let slo = crate::oncall::policy::Kept::Percentile {
        percentile: Ratio::new(0.99),
        violations: Ratio::ZERO,
        budget: None,
    };
    let oncall = OncallObservation {
        each: vec![one(1, vec![slo]), one(2, Vec::new())],
        ..OncallObservation::default()
    };
    let (grants, reasons) = turns.decide(&oversubscribed().observation(0, Setting::default()), &oncall, 3);
    let of = |at: usize| (grants[at].tokens, grants[at].yields, grants[at].again);
    assert_eq!((of(0), of(1)), ((1, false, true), (3, true, false)));
    assert_eq!(reasons[0].rule, "policy-paced");
}

/// An SLO that is missed though all others give way is given up for a while, unless that is not wanted.
#[test]
fn what_nobody_can_keep_is_given_up_where_that_is_not_ruled_out() {
    let missed = crate::oncall::policy::Kept::Percentile {
        percentile: Ratio::new(0.99),
        violations: Ratio::new(1.0),
        budget: Some(Seconds::from_millis(1.0)),
    };
    let one = |id, slos| Connection {
        id,
        class: "any".to_owned(),
        weight: 1.0,
        queries: 9,
        mean: Some(Seconds::from_millis(5.0)),
        cv: None,
        slos,
        tokens: 1,
    };
    let oncall = OncallObservation {
        each: vec![one(1, vec![missed]), one(2, Vec::new())],
        ..OncallObservation::default()
    };
    for (policy, gives_up, wanted) in [
        (PolicyName::Paced, true, true),
        (PolicyName::Pslo, true, true),
        (PolicyName::Paced, false, false),
    ] {
        let mut turns = Turns::new(&OncallTuning {
            policy,
            gives_up,
            ..OncallTuning::default()
        });
        let mut decide = |in_force: Setting| {
            let observation = oversubscribed().observation(0, in_force);
            turns.decide(&observation, &oncall, 1)
        };
        // While nobody is on call nothing is done for it.
        for _ in 0..200 {
            assert_ne!(decide(Setting::default()).1[0].rule, "policy-in-vain");
        }
        let on_call = Setting::from([(Lever::Concurrency, 2.0)]);
        let given_up = (0..200).map(|_| decide(on_call)).find(|(grants, reasons)| {
            reasons[0].rule == "policy-in-vain" && grants.iter().all(|grant| !grant.yields)
        });
        assert_eq!(given_up.is_some(), wanted, "{policy}, {gives_up}");
    }
}
