//! The law in a small world of its own.

mod world;

use super::*;
use crate::common::plant;
use crate::observation::Latency;
use headroom_units::{LeverRange, Ratio};
use world::{MACHINES, TARGET_MS, World, law, tuning, url};

const DAY: [(f64, f64); 2] = [(1024.0, 400.0), (102_400.0, 200.0)];

/// What the work takes by least connections, J, over so many periods.
fn by_least_connections(mut world: World, periods: usize) -> f64 {
    (0..20).for_each(|_| drop(world.run()));
    let before = world.work_j();
    (0..periods).for_each(|_| drop(world.run()));
    world.work_j() - before
}

#[test]
fn it_saves_the_energy_of_work_within_the_slo_and_says_how_much() {
    let mut world = World::new(&DAY);
    let mut law = law(tuning());
    world.under(&mut law, 20);
    let _ = world.p95_ms();
    let before = world.work_j();
    let decisions = world.under(&mut law, 60);
    let (work_j, p95_ms) = (world.work_j() - before, world.p95_ms());
    let least_j = by_least_connections(World::new(&DAY), 60);
    assert!(
        work_j < 0.9 * least_j,
        "{work_j} J, by least connections {least_j} J"
    );
    assert!(p95_ms < TARGET_MS, "{p95_ms} ms");
    let changes = decisions
        .iter()
        .filter(|decision| decision.reasons[0].rule == "placed")
        .count();
    assert!(
        changes <= 6,
        "{changes} changes of routes in 60 periods of steady load"
    );
    let reason = &decisions.last().unwrap().reasons[0];
    let number = |name: &str| reason.numbers.iter().find(|(of, _)| of == name).unwrap().1;
    assert!(
        (number("work_w") - work_j / 60.0).abs() < 0.15 * work_j / 60.0,
        "{reason:?}, really {} W",
        work_j / 60.0
    );
    assert!(
        number("saved_w") > 0.0 && number("could_be_off") >= 1.0,
        "{reason:?}"
    );
}

#[test]
fn a_way_of_some_milliseconds_is_no_slowness_of_machines_and_costs_no_energy() {
    for (rates, path_s) in [
        (&DAY[..], 0.003),
        (&DAY[..1], 0.003),
        (&[(1024.0, 100.0)], 0.002),
        (&[(1024.0, 100.0), (102_400.0, 20.0)], 0.005),
    ] {
        let mut world = World::new(rates);
        world.path_s = path_s;
        let mut law = law(tuning());
        world.under(&mut law, 60);
        let before = world.work_j();
        world.under(&mut law, 60);
        let work_j = world.work_j() - before;
        let slowest = law
            .state
            .backends
            .iter()
            .map(|one| one.slow.cpu.max(one.slow.link));
        let slowest = slowest.fold(0.0, f64::max);
        assert!(slowest < 1.5, "{path_s} s: {slowest}");
        let least_j = by_least_connections(World::new(rates), 60);
        assert!(
            work_j < least_j,
            "{path_s} s: {work_j} J, by least connections {least_j} J"
        );
    }
}

#[test]
fn a_backend_at_half_its_speed_is_sent_less_and_the_slo_kept() {
    let mut world = World::new(&[(1024.0, 400.0), (102_400.0, 260.0)]);
    world.backends[2].slow = 2.0;
    let mut law = law(tuning());
    world.under(&mut law, 40);
    let _ = world.p95_ms();
    let last = world.under(&mut law, 40).pop().unwrap();
    let p95_ms = world.p95_ms();
    assert!(p95_ms < TARGET_MS, "{p95_ms} ms");
    let routes = last.routes.expect("it places");
    let (slow, other) = (routes.share(1, 2).unwrap(), routes.share(1, 3).unwrap());
    assert!(slow < 0.75 * other, "{slow} of the slow one, {other}");
    assert!(
        law.state.backends[2].slow.cpu > 1.5,
        "{}",
        law.state.backends[2].slow.cpu
    );
}

#[test]
fn figures_that_are_wrong_by_a_third_keep_the_slo() {
    for (large, small) in [(1.3, 0.7), (0.7, 1.3), (1.3, 1.3)] {
        let mut world = World::new(&[(1024.0, 600.0), (102_400.0, 220.0)]);
        for (backend, kind) in world.backends.iter_mut().zip(MACHINES) {
            backend.slow = if kind == "large" { large } else { small };
        }
        let mut law = law(tuning());
        world.under(&mut law, 30);
        let _ = world.p95_ms();
        world.under(&mut law, 40);
        let p95_ms = world.p95_ms();
        assert!(p95_ms < TARGET_MS, "{p95_ms} ms with {large} and {small}");
    }
}

#[test]
fn a_lost_backend_gets_nothing_and_one_that_returns_does() {
    let mut world = World::new(&DAY);
    let mut law = law(tuning());
    world.under(&mut law, 20);
    world.backends[2].up = false;
    world.backends[2].jobs.clear();
    world.under(&mut law, 2);
    let _ = world.p95_ms();
    for decision in world.under(&mut law, 30) {
        let routes = decision.routes.expect("it places");
        assert!((0..2).all(|class| routes.weights[class][2] == 0));
    }
    assert!(world.p95_ms() < TARGET_MS);
    world.backends[2].up = true;
    let last = world.under(&mut law, 30).pop().unwrap();
    assert!(last.routes.is_some());
    for backend in &mut world.backends {
        backend.up = false;
    }
    let none = world.under(&mut law, 1).pop().unwrap();
    assert_eq!(
        (none.routes, none.reasons[0].rule.as_ref()),
        (None, "placement-nothing")
    );
}

#[test]
fn a_backend_that_hangs_has_few_requests_and_is_relied_on_again_when_it_answers() {
    // The one that most small answers go to, and one of those for large ones.
    for backend in [0, 3] {
        let mut world = World::new(&DAY);
        let mut law = law(tuning());
        world.under(&mut law, 20);
        let _ = world.p95_ms();
        world.backends[backend].hung = true;
        let decisions = world.under(&mut law, 30);
        // Of some 18 000 requests.
        let stuck = world.backends[backend].jobs.len();
        assert!(stuck <= 40, "{stuck} at {backend}");
        assert!(world.p95_ms() < TARGET_MS, "{backend}");
        assert!(decisions.iter().all(|decision| decision.routes.is_some()));
        let last = &decisions[29];
        assert!(last.reasons[0].text.contains(&url(backend)), "{:?}", last.reasons);
        let routes = last.routes.as_ref().unwrap();
        for class in 0..2 {
            assert!(routes.share(class, backend).unwrap() < 0.03);
            assert_eq!(routes.most_in_flight[class][backend], 1);
        }
        // Its clients gave up: single ones are sent on trial, and none is answered.
        world.backends[backend].jobs.clear();
        world.under(&mut law, 10);
        assert!(world.backends[backend].jobs.len() <= 1);
        world.backends[backend].hung = false;
        let _ = world.p95_ms();
        let last = world.under(&mut law, 20).pop().unwrap();
        // Routes that serve as well stay; it is there for a rush, and for other routes.
        assert!(!law.state.backends[backend].silent);
        assert!(last.routes.unwrap().most_in_flight[1][backend] > 1);
        assert!(world.p95_ms() < TARGET_MS, "{backend}");
    }
}

#[test]
fn where_none_answers_none_is_less_relied_on() {
    let mut world = World::new(&DAY);
    let mut law = law(tuning());
    world.under(&mut law, 20);
    let silent = |law: &Placement| law.state.backends.iter().filter(|one| one.silent).count();
    world.backends[1..].iter_mut().for_each(|one| one.hung = true);
    world.under(&mut law, 4);
    assert!(silent(&law) > 0);
    world.backends[0].hung = true;
    world.under(&mut law, 3);
    assert_eq!(silent(&law), 0);
}

#[test]
fn a_rush_goes_where_there_is_room_before_the_law_has_seen_it() {
    let mut world = World::new(&[(1024.0, 400.0), (102_400.0, 120.0)]);
    let mut law = law(tuning());
    world.under(&mut law, 30);
    let _ = world.p95_ms();
    // Large answers come in twice as often from one period to the next; the law's routes are those for the half of it.
    world.classes[1].1 = 240.0;
    (0..5).for_each(|_| drop(world.run()));
    let bounded = world.p95_ms();
    let routes = world.routes.clone().unwrap();
    let mut unbounded = World::new(&[(1024.0, 400.0), (102_400.0, 240.0)]);
    unbounded.routes = Some(Routes {
        most_in_flight: Vec::new(),
        ..routes
    });
    (0..5).for_each(|_| drop(unbounded.run()));
    let without = unbounded.p95_ms();
    assert!(
        bounded < TARGET_MS && bounded < without,
        "{bounded} ms, without bounds {without} ms"
    );
}

#[test]
fn a_rush_that_nothing_can_serve_is_no_slowness_of_machines() {
    let mut world = World::new(&DAY);
    let mut law = law(tuning());
    world.under(&mut law, 30);
    let calm = world.classes.clone();
    let mut slowest: f64 = 0.0;
    for period in 0..100 {
        world.classes.clone_from(&calm);
        if period < 10 {
            world.classes.iter_mut().for_each(|class| class.1 *= 4.0);
        }
        world.under(&mut law, 1);
        let factors = law.state.backends.iter().map(|one| one.slow.cpu);
        slowest = factors.fold(slowest, f64::max);
    }
    assert!(slowest < 1.2, "{slowest}");
    let _ = world.p95_ms();
    world.under(&mut law, 20);
    assert!(world.p95_ms() < TARGET_MS);
}

#[test]
fn sizes_that_drift_are_followed() {
    let mut world = World::new(&[(1024.0, 400.0), (25_600.0, 150.0)]);
    let mut law = law(tuning());
    world.under(&mut law, 20);
    let _ = world.p95_ms();
    for _ in 0..60 {
        world.classes[1].0 *= 1.04;
        world.under(&mut law, 1);
    }
    let p95_ms = world.p95_ms();
    assert!(
        p95_ms < TARGET_MS,
        "{p95_ms} ms, {} bytes at last",
        world.classes[1].0
    );
}

#[test]
fn telemetry_that_comes_late_does_no_harm() {
    let mut world = World::new(&DAY);
    let mut law = law(tuning());
    let mut waiting = std::collections::VecDeque::new();
    for period in 0..100 {
        if period == 20 {
            let _ = world.p95_ms();
        }
        // The load doubles at large answers for a while.
        world.classes[1].1 = if (40..70).contains(&period) { 300.0 } else { 150.0 };
        waiting.push_back(world.run());
        if waiting.len() > 3 {
            let decision = law.decide(&waiting.pop_front().unwrap());
            world.routes = decision.routes;
        }
    }
    let p95_ms = world.p95_ms();
    assert!(p95_ms < TARGET_MS, "{p95_ms} ms");
}

#[test]
fn what_it_does_not_know_goes_where_the_fewest_are() {
    let mut world = World::new(&DAY);
    let mut law = law(tuning());
    let rule = |decision: &Decision| decision.reasons[0].rule.to_string();
    let first = world.under(&mut law, 3);
    assert!(first.iter().all(|decision| rule(decision) == "placement-warm-up"));
    assert_eq!(rule(&world.under(&mut law, 1)[0]), "placed");
    let observed = world.run();
    let without = Observation {
        sizes: None,
        ..observed.clone()
    };
    let decision = law.decide(&without);
    assert_eq!(
        (rule(&decision).as_str(), decision.routes.is_none()),
        ("placement-no-sizes", true)
    );
    assert!(!law.is_informed(&without));
    let mut other = observed;
    other.sizes.as_mut().unwrap().backends[0].url = "http://elsewhere:1".to_owned();
    let decision = law.decide(&other);
    assert_eq!(rule(&decision), "placement-unknown-backend");
    assert!(decision.reasons[0].text.contains("http://elsewhere:1"));
    // More than all machines can serve.
    let mut flood = World::new(&[(1024.0, 400.0), (102_400.0, 900.0)]);
    let mut another = self::law(tuning());
    assert_eq!(rule(&flood.under(&mut another, 6)[5]), "placement-overloaded");
}

#[test]
fn an_slo_that_is_missed_without_a_cause_it_knows_has_it_let_go_for_longer_each_time() {
    let mut world = World::new(&DAY);
    let short = PlacementTuning {
        let_go_periods: 4,
        ..tuning()
    };
    let mut law = law(short);
    world.under(&mut law, 10);
    // Somebody else's work makes every answer late, which no factor of the machines explains.
    let mut let_go = Vec::new();
    for _ in 0..60 {
        let mut observed = world.run();
        observed.traffic.as_mut().unwrap().latency = Some(Latency {
            at_slo: Seconds::new(1.0),
            missed: false,
            distribution: None,
        });
        let decision = law.decide(&observed);
        let_go.push(decision.reasons[0].rule == "placement-late");
        world.routes = decision.routes;
    }
    let lengths: Vec<usize> = let_go
        .chunk_by(|one, two| one == two)
        .filter(|run| run[0])
        .map(<[bool]>::len)
        .collect();
    assert!(
        lengths.len() >= 2 && lengths[0] == 5 && lengths[1] == 9,
        "{lengths:?}"
    );
}

#[test]
fn a_configuration_that_names_no_machine_or_an_unknown_kind_is_refused() {
    let slo = Slo::new(Ratio::new(0.95), Seconds::from_millis(TARGET_MS)).unwrap();
    let plant = plant([0.2, 2.0, 0.1], [6.0, 2.86, 6.2]);
    let refused = |plant: &Plant, tuning| Placement::new(slo, plant, tuning).unwrap_err();
    let with = plant
        .with_range(Lever::Placement, LeverRange::between(0.0, 1.0))
        .unwrap();
    assert_eq!(
        refused(&with, PlacementTuning::default()).key,
        "law.placement.machines"
    );
    let mut unknown = tuning();
    unknown.kinds.remove("small");
    assert!(
        refused(&with, unknown)
            .why
            .contains("[law.placement.kinds.small]")
    );
    assert_eq!(refused(&plant, tuning()).key, "law.name");
}
