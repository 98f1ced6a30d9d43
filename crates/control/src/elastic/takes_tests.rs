use super::*;
use crate::elastic::tests::{exact, node, wide};
use crate::elastic::tuning::ServerTraits;
use crate::resize::PowerState;
use headroom_units::Seconds;

/// These servers after so many seconds, over one of them.
fn at(at_s: f64, nodes: &[NodeObservation]) -> Observation {
    Observation {
        at: Seconds::new(at_s),
        length: Seconds::new(1.0),
        nodes: nodes.to_vec(),
        ..Observation::default()
    }
}

/// Servers of these kinds that answer so much, as they are seen for so many seconds.
fn seen(
    takes: &mut Takes,
    tuning: &ElasticTuning,
    seconds: u32,
    answered: &[Option<f64>],
) -> Vec<NodeObservation> {
    let nodes: Vec<NodeObservation> = answered
        .iter()
        .map(|answered| NodeObservation {
            answered: answered.map(PerSecond::new),
            ..node(PowerState::Serving, Capacity::Unknown)
        })
        .collect();
    for second in 0..seconds {
        takes.observe(&at(f64::from(second), &nodes), true, tuning);
    }
    nodes
}

fn of_kinds(kinds: &[usize]) -> ElasticTuning {
    let servers = kinds.iter().map(|kind| ServerTraits {
        kind: *kind,
        ..ServerTraits::default()
    });
    ElasticTuning {
        servers: servers.collect(),
        ..ElasticTuning::default()
    }
}

fn met(takes: &Takes) -> Vec<Option<f64>> {
    let rounded = |met: f64| (met * 1e6).round() / 1e6;
    takes.known.iter().map(|known| known.met.map(rounded)).collect()
}

#[test]
fn unequal_machines_have_the_parts_of_a_limit_that_their_kinds_answered_and_equal_ones_equal_parts() {
    let tuning = of_kinds(&[0, 0, 1]);
    let limits = |answered: [Option<f64>; 3], tuning: &ElasticTuning| {
        let mut takes = Takes::default();
        let nodes = seen(&mut takes, tuning, 10, &answered);
        takes.meet(10.0, &nodes, 210.0, tuning);
        met(&takes)
    };
    // One of the equal ones is given less, or hangs.
    let unequal = [Some(30.0), Some(50.0), Some(20.0)];
    assert_eq!(limits(unequal, &tuning), [Some(84.0), Some(84.0), Some(42.0)]);
    assert_eq!(limits(unequal, &of_kinds(&[0, 0, 0])), [Some(70.0); 3]);
    // Of one that answers nothing, or is not told of, nobody knows what it takes.
    assert_eq!(
        limits([Some(30.0), Some(50.0), Some(0.0)], &tuning),
        [Some(70.0); 3]
    );
    assert_eq!(limits([Some(30.0), None, Some(20.0)], &tuning), [Some(70.0); 3]);
    assert_eq!(limits([Some(0.0); 3], &tuning), [Some(70.0); 3]);
}

#[test]
fn a_limit_that_difficulty_showed_is_lowered_where_it_comes_back_below_it() {
    let tuning = of_kinds(&[0, 0]);
    let mut takes = Takes::default();
    let nodes = seen(&mut takes, &tuning, 10, &[None; 2]);
    assert!(takes.may_meet(10.0, &nodes, 14.0));
    takes.meet(10.0, &nodes, 14.0, &tuning);
    // The same difficulty, which answers less and less; and one far below, as in a pause.
    assert!(!takes.may_meet(12.0, &nodes, 13.0));
    assert!(!takes.may_meet(60.0, &nodes, 6.0));
    assert!(!takes.may_meet(60.0, &nodes, 15.0));
    assert!(takes.may_meet(60.0, &nodes, 12.0));
    takes.meet(60.0, &nodes, 12.0, &tuning);
    assert_eq!(met(&takes), [Some(6.0); 2]);
    // What a server's own queue showed holds.
    let exact = [node(PowerState::Serving, exact(20.0)), nodes[1]];
    takes.observe(&at(61.0, &exact), true, &tuning);
    assert!(!takes.may_meet(100.0, &exact, 15.0));
}

#[test]
fn limits_are_refuted_also_where_an_equal_has_joined_since_and_not_where_another_may_have_answered_it() {
    let refuted = |kinds: [usize; 3], own_limit: bool| {
        let tuning = of_kinds(&kinds);
        let mut takes = Takes::default();
        let two = seen(&mut takes, &tuning, 10, &[None; 2]);
        takes.meet(10.0, &two, 40.0, &tuning);
        // The third joins.
        let mut three = seen(&mut takes, &tuning, 1, &[None; 3]);
        if own_limit {
            three[2].capacity = Capacity::Exact(PerSecond::new(20.0));
            takes.observe(&at(11.0, &three), true, &tuning);
        }
        takes.refute(&three, 59.0, &tuning);
        assert_eq!(met(&takes)[..2], [Some(20.0); 2]);
        takes.refute(&three, 90.0, &tuning);
        met(&takes)
    };
    assert_eq!(refuted([0, 0, 0], false), [None; 3]);
    // Nobody knows what a machine of another kind answered of it, or one whose limit is its own.
    assert_eq!(refuted([0, 0, 1], false), [Some(20.0), Some(20.0), None]);
    assert_eq!(refuted([0, 0, 0], true), [Some(20.0); 3]);
}

#[test]
fn a_server_takes_what_it_took_last_itself_else_what_its_least_equal_takes() {
    let mut takes = Takes::default();
    let tuning = ElasticTuning::default();
    let seen = |per_s| node(PowerState::Serving, Capacity::LowerBound(PerSecond::new(per_s)));
    let serving = |per_s| node(PowerState::Serving, exact(per_s));
    let off = node(PowerState::Off, Capacity::Unknown);
    takes.observe(
        &at(0.0, &[serving(100.0), serving(50.0), serving(80.0), off]),
        true,
        &tuning,
    );
    takes.observe(
        &at(1.0, &[serving(100.0), off, serving(80.0), seen(5.0)]),
        true,
        &tuning,
    );
    takes.observe(
        &at(2.0, &[serving(100.0), seen(4.0), serving(80.0), seen(6.0)]),
        true,
        &tuning,
    );
    let each: Vec<f64> = (0..4).map(|at| takes.of(at).get()).collect();
    assert_eq!(each, [100.0, 50.0, 80.0, 50.0]);
    assert_eq!(takes.presumed(&[0, 1, 2, 3]), 1);
    assert!(takes.have_shown(0.9 * 236.0, &[0, 1, 2, 3], &tuning));
    assert!(!takes.have_shown(0.9 * 237.0, &[0, 1, 2, 3], &tuning));
    // Of those that are alike the one whose limit was met is kept.
    let ranks = ranks(&takes, 4, &tuning);
    assert!(ranks[1] < ranks[3], "{ranks:?}");
}

#[test]
fn what_is_not_sure_confirms_no_bound_that_contradicts_a_limit() {
    let mut takes = Takes::default();
    let tuning = wide();
    let mut observe =
        |at_s: f64, capacity| takes.observe(&at(at_s, &[node(PowerState::Serving, capacity)]), true, &tuning);
    observe(0.0, exact(25.0));
    observe(1.0, Capacity::LowerBound(PerSecond::new(60.0)));
    observe(2.0, Capacity::About(PerSecond::new(69.5)));
    assert!(takes.have_shown(24.0, &[0], &tuning));
    assert!(!takes.have_shown(26.0, &[0], &tuning));
    takes.observe(&at(3.0, &[node(PowerState::Serving, exact(69.5))]), true, &tuning);
    assert!(takes.have_shown(60.0, &[0], &tuning));
}

#[test]
fn a_bound_contradicts_no_limit_that_difficulty_showed_while_it_lasts() {
    let mut takes = Takes::default();
    let tuning = wide();
    let serving = |capacity| [node(PowerState::Serving, capacity)];
    // A server of 0.5/s whose checks are accepted.
    let bound = Capacity::LowerBound(PerSecond::new(1.8));
    takes.observe(&at(0.0, &serving(bound)), true, &tuning);
    takes.meet(1.0, &serving(bound), 0.5, &tuning);
    for second in 2..30 {
        takes.observe(&at(f64::from(second), &serving(bound)), false, &tuning);
        assert_eq!(met(&takes), [Some(0.5)]);
    }
    takes.observe(&at(30.0, &serving(bound)), true, &tuning);
    assert_eq!(met(&takes), [None]);
}
