//! Nodes that are lost, switched off or slow.

use super::*;
use headroom_sim::power::{Machine, PowerFigures};
use headroom_sim::{Fault, NodeState};
use headroom_workload::ArrivalProcess;

fn booting_in(boot_s: f64) -> Machine {
    Machine::Line(PowerFigures {
        boot_s,
        ..PowerFigures::default()
    })
}

#[test]
fn a_lost_node_fails_its_requests_draws_nothing_and_comes_back_full() {
    let mut scenario = Scenario {
        arrivals: ArrivalProcess::Poisson { rate_per_s: 300.0 },
        duration_s: Some(120.0),
        ..Scenario::paper()
    };
    scenario.faults = vec![Fault::NodeLoss {
        node: 2,
        at_s: 20.5,
        until_s: Some(30.0),
    }];
    scenario.nodes[0].machine = booting_in(20.0);
    let mut states = Vec::new();
    let mut powers = Vec::new();
    let mut failures = Vec::new();
    let totals = run(&scenario, &mut fixed(&scenario), 1, &mut |period| {
        states.push(period.nodes[1].state);
        powers.push(period.nodes[1].power.get());
        failures.push(period.traffic.failures);
        let nodes_on = period
            .nodes
            .iter()
            .filter(|node| node.state == NodeState::On)
            .count();
        if period.at.get() != 51.0 {
            assert_eq!(
                period.observation.in_force.cores().unwrap().get(),
                16.0 * nodes_on as f64,
                "at {}",
                period.at
            );
        }
    })
    .unwrap();
    assert_eq!(
        (states[19], states[21], states[35], states[60]),
        (NodeState::On, NodeState::Lost, NodeState::Booting, NodeState::On)
    );
    assert_eq!((powers[25], powers[35]), (0.0, 70.0));
    // Until the balancer notices, after 2 s, every third request fails; then none.
    assert!((150..250).contains(&totals.failed), "{}", totals.failed);
    assert_eq!(failures[23..].iter().sum::<u64>(), 0);
}

#[test]
fn a_node_that_is_switched_off_finishes_first_and_fails_nothing() {
    let mut scenario = Scenario {
        arrivals: ArrivalProcess::Poisson { rate_per_s: 200.0 },
        duration_s: Some(120.0),
        ..Scenario::paper()
    };
    scenario.faults = vec![Fault::Shutdown {
        node: 3,
        at_s: 10.2,
        until_s: Some(40.0),
    }];
    scenario.nodes[0].machine = booting_in(10.0);
    let mut states = Vec::new();
    let mut powers = Vec::new();
    let totals = run(&scenario, &mut slo_power(&scenario), 1, &mut |period| {
        states.push(period.nodes[2].state);
        powers.push(period.nodes[2].power.get());
    })
    .unwrap();
    assert_eq!(totals.failed, 0);
    assert_eq!(
        (states[14], states[30], states[45], states[70]),
        (
            NodeState::ShuttingDown,
            NodeState::Off,
            NodeState::Booting,
            NodeState::On
        )
    );
    assert_eq!((powers[14], powers[30], powers[45]), (55.0, 3.0, 70.0));
}

#[test]
fn with_no_node_left_everything_fails_and_the_run_goes_on() {
    let mut scenario = Scenario {
        duration_s: Some(90.0),
        ..Scenario::paper()
    };
    let lose = |node| Fault::NodeLoss {
        node,
        at_s: 20.0,
        until_s: Some(30.0),
    };
    scenario.faults = vec![lose(1), lose(2), lose(3)];
    scenario.nodes[0].machine = booting_in(10.0);
    let mut answered = Vec::new();
    let totals = run(&scenario, &mut slo_power(&scenario), 1, &mut |period| {
        answered.push(period.traffic.completions);
        if (21..30).contains(&period.observation.period) {
            assert_eq!(
                (
                    period.observation.in_force.cores().unwrap(),
                    period.observation.utilisation
                ),
                (Cores::ZERO, None)
            );
            assert_eq!(period.power.value, Watts::ZERO);
        }
    })
    .unwrap();
    assert_eq!(answered[21..39].iter().sum::<u64>(), 0);
    assert!(answered[45] > 100);
    assert!(totals.periods_over >= 19, "{}", totals.periods_over);
}

#[test]
fn a_slow_node_is_slow() {
    let mut scenario = Scenario {
        arrivals: ArrivalProcess::Poisson { rate_per_s: 30.0 },
        duration_s: Some(200.0),
        ..Scenario::paper()
    };
    let before = constant(&scenario, 48.0, 276.0, None);
    scenario.faults = vec![Fault::SlowNode {
        node: 1,
        factor: 0.5,
        at_s: 0.0,
        until_s: 1e6,
    }];
    let after = constant(&scenario, 48.0, 276.0, None);
    // A third of the requests takes twice as long.
    let ratio = after.latency.unwrap().mean / before.latency.unwrap().mean;
    assert!((ratio - 4.0 / 3.0).abs() < 0.05, "{ratio}");
}

#[test]
fn faults_that_meet_do_not_undo_each_other_whichever_is_listed_first() {
    let slow = |at_s, until_s| Fault::SlowNode {
        node: 1,
        factor: 0.25,
        at_s,
        until_s,
    };
    let with = |faults: Vec<Fault>| {
        let scenario = Scenario {
            arrivals: ArrivalProcess::Poisson { rate_per_s: 30.0 },
            duration_s: Some(100.0),
            faults,
            ..Scenario::paper()
        };
        constant(&scenario, 48.0, 276.0, None).latency
    };
    let whole = with(vec![slow(0.0, 100.0)]);
    assert_eq!(with(vec![slow(0.0, 50.0), slow(50.0, 100.0)]), whole);
    assert_eq!(with(vec![slow(50.0, 100.0), slow(0.0, 50.0)]), whole);
    assert_ne!(with(vec![slow(50.0, 100.0)]), whole);
}
