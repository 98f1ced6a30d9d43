use crate::capacity::Capacity;
use crate::elastic::ElasticTuning;
use crate::elastic::tests::{World, exact, node, wide};
use crate::resize::PowerState;
use headroom_units::PerSecond;
use proptest::prelude::*;

#[test]
fn one_that_is_taken_out_is_replaced_first_and_no_capacity_meanwhile() {
    let reserve = ElasticTuning {
        reserve: 1,
        exceeded: 0.5,
        ..wide()
    };
    // 150/s on servers of 100, one of which may be lost: three, and a fourth that is off.
    let mut world = World::new(reserve, 3, 4, exact(100.0));
    world.run(400, 150.0);
    world.nodes[0].state = PowerState::Leaving;
    assert_eq!((world.run(1, 150.0), world.rule.as_str()), (3, "grow"));
    world.run(59, 150.0);
    assert_eq!(
        world.nodes[0].state,
        PowerState::Leaving,
        "not before it is there"
    );
    world.run(3, 150.0);
    assert_eq!(world.nodes[0].state, PowerState::Maintenance);
    // N+1 holds without it, and what is out is not lost: nothing is started in its place.
    assert_eq!((world.run(600, 150.0), world.taking()), (3, 3));
    // Another, and nobody is there in its place: it serves on, until less comes.
    world.nodes[1].state = PowerState::Leaving;
    world.run(100, 150.0);
    assert_eq!(
        (world.nodes[1].state, world.rule.as_str()),
        (PowerState::Leaving, "maintenance-waits")
    );
    world.run(300, 80.0);
    assert_eq!(
        (world.nodes[1].state, world.taking()),
        (PowerState::Maintenance, 2)
    );
}

#[test]
fn the_only_one_that_serves_is_taken_out_after_another_has_booted() {
    for capacity in [exact(100.0), Capacity::LowerBound(PerSecond::new(60.0))] {
        let mut world = World::new(wide(), 1, 2, capacity);
        world.run(400, 50.0);
        world.nodes[0].state = PowerState::Leaving;
        assert_eq!(world.run(58, 50.0), 1, "{}", world.rule);
        assert_eq!(world.nodes[0].state, PowerState::Leaving);
        world.run(10, 50.0);
        assert_eq!(
            (world.nodes[0].state, world.nodes[1].state),
            (PowerState::Maintenance, PowerState::Serving)
        );
        // Its load was no surge, and its going no outage.
        assert_eq!(world.run(300, 50.0), 1, "{}", world.rule);
    }
}

#[test]
fn where_no_limit_is_known_none_is_taken_out_whose_load_the_others_never_took() {
    let bound = |per_s| Capacity::LowerBound(PerSecond::new(per_s));
    let mut world = World::new(wide(), 3, 3, bound(20.0));
    world.run(200, 60.0);
    world.nodes[2].state = PowerState::Leaving;
    world.run(600, 60.0);
    assert_eq!(
        (world.nodes[2].state, world.rule.as_str()),
        (PowerState::Leaving, "maintenance-waits")
    );
    // They took as much each at another time of the day.
    for node in &mut world.nodes[..2] {
        node.capacity = bound(35.0);
    }
    world.run(2, 60.0);
    assert_eq!(world.nodes[2].state, PowerState::Maintenance, "{}", world.rule);
}

/// One of 100/s alone, and three of 50/s that come back while it is to be taken out: nothing shows yet what they take.
#[test]
fn nobody_goes_because_of_what_others_are_only_presumed_to_take() {
    let seen = Capacity::LowerBound(PerSecond::new(15.0));
    let mut world = World::new(ElasticTuning::default(), 1, 4, exact(100.0));
    world.run(60, 70.0);
    for node in &mut world.nodes[1..] {
        *node = self::node(PowerState::Serving, seen);
    }
    world.nodes[0].state = PowerState::Leaving;
    world.run(50, 70.0);
    assert_eq!(
        (world.nodes[0].state, world.taking(), world.rule.as_str()),
        (PowerState::Leaving, 3, "maintenance-waits")
    );
    // They have served for a while without difficulty. One more is let go on trial alone, which the others do not stand.
    world.run(20, 70.0);
    assert_eq!(
        (world.nodes[0].state, world.taking()),
        (PowerState::Maintenance, 3)
    );
    let goes_after = (1..400).find(|_| world.second(Some(70.0)) < 3).unwrap();
    assert!(
        goes_after > 60 && world.rule == "probe",
        "{goes_after} {}",
        world.rule
    );
    for node in &mut world.nodes {
        if node.state.is_capacity() {
            node.capacity = exact(33.0);
        }
    }
    assert_eq!(
        (world.second(Some(70.0)), world.rule.as_str()),
        (3, "probe-failed")
    );
}

/// Three that take 40/s together without any difficulty, of which some are to be taken out.
fn of_three(out: &[usize]) -> World {
    let mut world = World::new(wide(), 3, 3, Capacity::LowerBound(PerSecond::new(13.0)));
    for _ in 0..150 {
        world.busy(40, 4);
    }
    if world.law.probe.is_running() {
        panic!("{}", world.rule);
    }
    for at in out {
        world.nodes[*at].state = PowerState::Leaving;
    }
    world
}

fn states(world: &World) -> Vec<&'static str> {
    world.nodes.iter().map(|node| node.state.name()).collect()
}

/// Seconds until this rule, in which so many are in flight.
fn until(world: &mut World, rule: &str, in_flight: u64) -> u64 {
    (1..2_000)
        .find(|_| {
            world.busy(40, in_flight);
            world.rule == rule
        })
        .unwrap_or_else(|| panic!("no {rule}: {} {}", world.rule, world.text))
}

#[test]
fn where_no_limit_is_known_the_one_that_is_taken_out_is_the_trial_and_the_next_waits() {
    let mut world = of_three(&[0, 1]);
    until(&mut world, "probe", 4);
    assert_eq!(states(&world), ["maintenance", "leaving", "serving"]);
    let passed_s = until(&mut world, "probe-passed", 5);
    assert!((20..=35).contains(&passed_s), "{passed_s}");
    assert_eq!(states(&world), ["maintenance", "leaving", "serving"]);
    // No other is drained, by whomever, before those that stay have served without difficulty for a minute more.
    let next_s = until(&mut world, "probe", 5);
    assert!(next_s >= 60, "{next_s}");
    assert_eq!(states(&world), ["maintenance", "maintenance", "serving"]);
    // That is too much for the last: it comes back, and the first stays out, for the operator may be at work on it.
    let back_s = until(&mut world, "probe-failed", 60);
    assert!(back_s <= 15, "{back_s}");
    assert_eq!(states(&world), ["maintenance", "leaving", "serving"]);
    for _ in 0..590 {
        world.busy(40, 5);
        assert_eq!(
            states(&world),
            ["maintenance", "leaving", "serving"],
            "{}",
            world.text
        );
    }
    assert_eq!(world.rule, "maintenance-waits");
    assert!(world.text.contains("are tried again in"), "{}", world.text);
}

#[test]
fn a_minute_without_difficulty_is_none_in_which_requests_fail() {
    let mut world = of_three(&[0]);
    for second in 0..200 {
        let failures = u64::from(second % 40 == 0) * 4;
        world.failing(40, 4, failures);
        assert_eq!(
            (states(&world)[0], world.rule.as_str()),
            ("leaving", "maintenance-waits")
        );
        assert!(
            !world.text.contains("take it without any difficulty"),
            "{}",
            world.text
        );
        assert!(world.text.contains("without difficulty, "), "{}", world.text);
    }
    until(&mut world, "probe", 4);
    // Those that fail end the trial too.
    world.busy(40, 4);
    world.failing(36, 4, 4);
    assert_eq!(
        (states(&world)[0], world.rule.as_str()),
        ("leaving", "probe-failed")
    );
}

#[test]
fn while_one_is_to_be_taken_out_no_other_is_on_trial() {
    let mut world = World::new(wide(), 4, 4, Capacity::LowerBound(PerSecond::new(10.0)));
    until(&mut world, "probe", 4);
    world.nodes[3].state = PowerState::Draining;
    world.busy(40, 4);
    assert_eq!(world.rule, "probing");
    world.nodes[0].state = PowerState::Leaving;
    assert_eq!((world.busy(40, 4), world.rule.as_str()), (3, "maintenance-waits"));
    world.nodes[3].state = PowerState::Serving;
    // One that is given back before its trial ends is on none.
    until(&mut world, "probe", 4);
    assert_eq!(states(&world)[0], "maintenance");
    world.nodes[0].state = PowerState::Serving;
    world.busy(40, 4);
    assert!(!world.law.probe.is_running());
}

#[test]
fn telemetry_that_is_lost_ends_the_trial() {
    let mut world = of_three(&[2]);
    until(&mut world, "probe", 4);
    assert_eq!(states(&world)[2], "maintenance");
    world.second(None);
    assert_eq!(states(&world)[2], "leaving", "{}", world.text);
}

#[test]
fn who_is_in_difficulty_is_told_of_those_that_an_operator_has() {
    let mut world = World::new(wide(), 3, 3, exact(50.0));
    world.run(200, 60.0);
    world.nodes[2].state = PowerState::Leaving;
    world.run(10, 60.0);
    assert_eq!(states(&world)[2], "maintenance", "{}", world.text);
    world.run(30, 140.0);
    assert_eq!(world.rule, "all-on");
    assert!(
        world.text.ends_with("and 1 in maintenance could serve"),
        "{}",
        world.text
    );
}

proptest! {
    /// Whatever comes and whenever somebody is taken out: never are two drained on trial, and of three one serves on.
    #[test]
    fn never_are_two_on_trial(
        asked in proptest::collection::vec((0..3usize, any::<bool>(), 1..90u64, 1..80u64), 1..12),
    ) {
        let mut world = of_three(&[]);
        for (at, out, seconds, in_flight) in asked {
            match (world.nodes[at].state, out) {
                (PowerState::Serving, true) => world.nodes[at].state = PowerState::Leaving,
                (PowerState::Leaving | PowerState::Maintenance, false) => world.nodes[at].state = PowerState::Serving,
                _ => {}
            }
            for _ in 0..seconds {
                let before = states(&world);
                world.busy(40, in_flight);
                let after = states(&world);
                let went = before.iter().zip(&after).filter(|(before, after)| before != after && **after == "maintenance");
                prop_assert!(went.count() <= 1, "{before:?} {after:?} {}", world.text);
                prop_assert!(after.iter().any(|state| *state != "maintenance"), "{}", world.text);
            }
        }
    }
}
