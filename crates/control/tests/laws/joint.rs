//! The joint law on the plants that it is for: with a lever for the frequency, with a cap in its place, with cores that it can
//! park, with servers.

use crate::common::{frequencies, plant, slo};
use headroom_control::placement::{
    BackendObservation, ClassOnBackend, KindFigures, PlacementTuning, SizeClass, SizesObservation,
};
use headroom_control::*;
use headroom_physics::MachineFigures;
use headroom_units::*;
use proptest::prelude::*;

const CORES: [f64; 3] = [1.0, 8.0, 1.0];
const POWER: [f64; 3] = [40.0, 6.0, 42.0];

/// Each kind of plant, of this many machines of eight cores.
fn plants() -> Vec<(Plant, usize)> {
    let one = || plant(CORES, POWER);
    let four = plant([4.0, 32.0, 1.0], [160.0, 6.0, 168.0]);
    vec![
        (one().with_frequency(frequencies(0.8, 2.2)), 1),
        (one(), 1),
        (one().with_hardware_cap(), 1),
        (one().with_parking(), 1),
        (one().with_frequency(frequencies(0.8, 2.2)).with_parking(), 1),
        (
            four.with_frequency(frequencies(0.8, 2.2))
                .with_parking()
                .with_servers(4),
            4,
        ),
        (four.with_parking().with_hardware_cap().with_servers(4), 4),
    ]
}

fn joint(plant: Plant, servers: usize) -> Joint {
    let machines = vec![MachineFigures::skylake(8); servers];
    let tuning = JointTuning {
        learn_s: 0.0,
        warm_s: 1.0,
        ..JointTuning::default()
    };
    Joint::new(slo(250.0), plant, &machines, PerSecond::new(250.0), tuning).unwrap()
}

prop_compose! {
    fn any_period()(
        arrivals in 0u64..8_000, p95_ms in proptest::option::of(0.0..2_000.0f64),
        utilisation in proptest::option::of(0.0..1.2f64), watts in proptest::option::of(0.0..400.0f64),
        gigahertz in proptest::option::of(0.0..4.0f64), in_flight in 0u64..500, lost in prop::bool::weighted(0.1),
    ) -> Observation {
        let latency = |ms: f64| Latency { at_slo: Seconds::from_millis(ms), missed: false, distribution: None };
        let traffic = Traffic { arrivals, completions: arrivals, in_flight: Some(in_flight), latency: p95_ms.map(latency), ..Traffic::default() };
        Observation {
            length: Seconds::new(1.0),
            traffic: (!lost).then_some(traffic),
            utilisation: utilisation.map(Ratio::new),
            power: watts.map(|w| Estimated(Watts::new(w)).into()),
            frequency: gigahertz.map(|ghz| Estimated(Hertz::new(ghz * 1e9)).into()),
            ..Observation::default()
        }
    }
}

proptest! {
    // Each case is six plants with some thousand points weighed.
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever it is given, each value is one that the plant can have, and no lever moves that the plant has not.
    #[test]
    fn every_setting_is_one_of_its_plant(periods in prop::collection::vec(any_period(), 1..80)) {
        for (plant, servers) in plants() {
            let mut law = joint(plant, servers);
            let mut in_force = plant.full();
            for (number, period) in periods.iter().enumerate() {
                let observation = Observation { period: number as u64, in_force, ..period.clone() };
                let decision = law.decide(&observation);
                for (lever, value) in decision.setting.iter() {
                    let bounds = plant.bounds(lever);
                    prop_assert!(bounds.is_some_and(|(least, most)| (least - 1e-9..=most + 1e-9).contains(&value)), "{lever:?} {value} {bounds:?}");
                }
                prop_assert!(decision.reasons.iter().all(|reason| reason.numbers.iter().all(|(_, number)| number.is_finite())));
                in_force = decision.setting;
            }
        }
    }

    /// A late period is answered with everything that acts at once.
    #[test]
    fn after_a_late_period_nothing_that_acts_at_once_is_limited(
        periods in prop::collection::vec(any_period(), 5..40), late_ms in 251.0..5_000.0f64,
    ) {
        for (plant, servers) in plants() {
            let mut law = joint(plant, servers);
            for (number, period) in periods.iter().enumerate() {
                law.decide(&Observation { period: number as u64, in_force: plant.full(), ..period.clone() });
            }
            let latency = Latency { at_slo: Seconds::from_millis(late_ms), missed: false, distribution: None };
            let traffic = Traffic { arrivals: 50, completions: 50, latency: Some(latency), ..Traffic::default() };
            let observation = Observation {
                period: periods.len() as u64,
                length: Seconds::new(1.0),
                in_force: plant.full(),
                traffic: Some(traffic),
                ..Observation::default()
            };
            let decided = law.decide(&observation).setting;
            prop_assert_eq!(plant.allocation(&decided), plant.full_allocation());
        }
    }
}

/// A server begins to serve before its agent is heard: then what is in force, and the busy share, are of the others alone.
#[test]
fn servers_whose_agents_are_not_heard_make_no_request_seem_cheaper() {
    let plant = plant([4.0, 32.0, 1.0], [160.0, 6.0, 168.0])
        .with_frequency(frequencies(0.8, 2.2))
        .with_servers(4);
    let decisions = |heard: f64| {
        let mut law = joint(plant, 4);
        let node = |server: usize| NodeObservation {
            state: match server < 2 {
                true => resize::PowerState::Serving,
                false => resize::PowerState::Off,
            },
            capacity: Capacity::Unknown,
            answered: None,
        };
        let period = |number: u64| {
            let traffic = Traffic {
                arrivals: 2_000,
                completions: 2_000,
                in_flight: Some(10),
                latency: Some(Latency {
                    at_slo: Seconds::from_millis(40.0),
                    missed: false,
                    distribution: None,
                }),
                ..Traffic::default()
            };
            Observation {
                period: number,
                length: Seconds::new(1.0),
                in_force: plant.full().with(Lever::Cores, Some(heard)),
                traffic: Some(traffic),
                utilisation: Some(Ratio::new(0.5)),
                nodes: (0..4).map(node).collect(),
                ..Observation::default()
            }
        };
        (0..40)
            .map(|number| law.decide(&period(number)))
            .collect::<Vec<_>>()
    };
    assert_eq!(decisions(8.0), decisions(16.0));
}

/// A service whose requests come to wait for memory, so that a higher frequency helps them less: seen at a low frequency alone, they
/// seem to cost less at full speed than they do. A period there now and then tells.
#[test]
fn what_requests_cost_at_full_speed_stays_known_at_a_low_frequency() {
    let plant = plant(CORES, POWER).with_frequency(frequencies(0.8, 2.2));
    let mut law = joint(plant, 1);
    let mut in_force = plant.full();
    let (mut at_full, mut reasons) = (0, 0);
    for number in 0..3_000 {
        let pace = in_force.frequency().map_or(1.0, |limit| limit.get() / 2.2e9);
        let fixed = if number < 1_000 { 0.0 } else { 0.5 };
        // Core seconds that five hundred requests of 4 ms cost.
        let busy = 2.0 * (fixed + (1.0 - fixed) / pace);
        let latency = Latency {
            at_slo: Seconds::from_millis(12.0 * (fixed + (1.0 - fixed) / pace)),
            missed: false,
            distribution: None,
        };
        let traffic = Traffic {
            arrivals: 500,
            completions: 500,
            latency: Some(latency),
            ..Traffic::default()
        };
        let decision = law.decide(&Observation {
            period: number,
            length: Seconds::new(1.0),
            in_force,
            traffic: Some(traffic),
            utilisation: Some(Ratio::new(busy / 8.0)),
            ..Observation::default()
        });
        in_force = decision.setting;
        if number > 1_500 {
            at_full += u32::from(in_force.frequency().is_none());
            let learns = |reason: &&Reason| reason.rule == "full-speed-to-learn";
            reasons += decision.reasons.iter().filter(learns).count() as u32;
        }
    }
    assert!(reasons > 0 && at_full == reasons, "{at_full} {reasons}");
    assert!(at_full < 1_500 / 20, "{at_full}");
}

#[test]
fn nothing_is_learned_from_a_fragment_of_a_period_nor_from_one_that_is_none() {
    let after = |length: Option<f64>| {
        let mut law = four_servers(0.05);
        steadily(&mut law, 0..300, false, |_| false);
        if let Some(length) = length {
            law.decide(&Observation {
                period: 300,
                length: Seconds::new(length),
                traffic: Some(Traffic {
                    arrivals: 2_000,
                    completions: 2_000,
                    ..Traffic::default()
                }),
                ..Observation::default()
            });
        }
        steadily(&mut law, 301..340, false, |_| false)
            .iter()
            .map(servers)
            .sum::<f64>()
    };
    let usual = after(None);
    for length in [0.0025, f64::INFINITY, f64::NAN] {
        let with = after(Some(length));
        assert!(
            with <= 1.1 * usual,
            "{length} s: {with} server periods, {usual} without"
        );
    }
    assert!(usual < 39.0 * 3.0, "some are off: {usual}");
}

/// Four servers of eight cores that serve a steady load, of which so many periods are late.
fn steadily(
    law: &mut Joint,
    periods: std::ops::Range<u64>,
    lost: bool,
    late: impl Fn(u64) -> bool,
) -> Vec<Decision> {
    let plant = plant([4.0, 32.0, 1.0], [160.0, 6.0, 168.0])
        .with_frequency(frequencies(0.8, 2.2))
        .with_servers(4);
    let mut serving = 4;
    let decide = |number: u64| {
        let node = |server: usize| NodeObservation {
            state: match server < serving {
                _ if lost && server == 3 => resize::PowerState::Failed(resize::Cause::Lost),
                true => resize::PowerState::Serving,
                false => resize::PowerState::Off,
            },
            capacity: Capacity::Unknown,
            answered: None,
        };
        let nodes: Vec<_> = (0..4).map(node).collect();
        let on = nodes.iter().filter(|node| node.state.takes_requests()).count() as f64;
        let at_slo = Seconds::from_millis(if late(number) { 400.0 } else { 15.0 });
        let latency = Latency {
            at_slo,
            missed: false,
            distribution: None,
        };
        let traffic = Traffic {
            arrivals: 2_000,
            completions: 2_000,
            in_flight: Some(8),
            latency: Some(latency),
            ..Traffic::default()
        };
        let decision = law.decide(&Observation {
            period: number,
            length: Seconds::new(1.0),
            in_force: plant.full().with(Lever::Cores, Some(8.0 * on)),
            traffic: Some(traffic),
            utilisation: Some(Ratio::new(1.0 / on)),
            nodes,
            ..Observation::default()
        });
        serving = decision.setting.get(Lever::Servers).unwrap() as usize;
        decision
    };
    periods.map(decide).collect()
}

fn four_servers(late: f64) -> Joint {
    let plant = plant([4.0, 32.0, 1.0], [160.0, 6.0, 168.0])
        .with_frequency(frequencies(0.8, 2.2))
        .with_servers(4);
    let tuning = JointTuning {
        learn_s: 100.0,
        late,
        ..JointTuning::default()
    };
    let machines = vec![MachineFigures::skylake(8); 4];
    Joint::new(slo(250.0), plant, &machines, PerSecond::new(250.0), tuning).unwrap()
}

fn servers(decision: &Decision) -> f64 {
    decision.setting.get(Lever::Servers).unwrap()
}

/// The load is that of one server: 2,000 requests of 4 ms a second on 8 cores each would keep busy all of one's.
#[test]
fn servers_that_are_not_needed_go_and_the_reason_is_that_of_the_servers() {
    let mut law = four_servers(0.005);
    let decisions = steadily(&mut law, 0..1_000, false, |_| false);
    assert!(decisions[..100].iter().all(|decision| servers(decision) == 4.0));
    let last = decisions.last().unwrap();
    assert!((2.0..4.0).contains(&servers(last)), "{last:?}");
    let reason = last.reason_of(Lever::Servers).unwrap();
    assert_eq!(reason.rule, "servers-for-the-horizon");
    let number = |name: &str| reason.numbers.iter().find(|(key, _)| key == name).unwrap().1;
    assert_eq!(number("servers"), servers(last));
    assert_eq!(number("allowed"), 0.005);
    assert!(
        number("one_less_late_probability") > 0.005,
        "what is risked with one less is more than is allowed: {reason:?}"
    );
    assert_eq!(last.reason_of(Lever::Frequency).unwrap().rule, "cheapest-point");
}

#[test]
fn after_a_server_was_lost_one_more_stays_on() {
    let steady = steadily(&mut four_servers(0.005), 0..1_000, false, |_| false);
    let mut law = four_servers(0.005);
    steadily(&mut law, 0..900, false, |_| false);
    steadily(&mut law, 900..905, true, |_| false);
    let after = steadily(&mut law, 905..1_400, false, |_| false);
    assert_eq!(
        servers(after.last().unwrap()),
        servers(steady.last().unwrap()) + 1.0
    );
}

#[test]
fn a_law_that_retreated_keeps_more_servers_than_it_had_for_two_hours() {
    let mut law = four_servers(0.005);
    let before = servers(steadily(&mut law, 0..1_000, false, |_| false).last().unwrap());
    // Late with fewer servers, and not with all.
    let retreats = steadily(&mut law, 1_000..1_030, false, |period| period < 1_006);
    let rule = |decision: &&Decision| decision.reasons[0].rule == "retreat";
    assert!(retreats.iter().filter(rule).count() > 10, "{retreats:?}");
    let after = steadily(&mut law, 1_030..3_000, false, |_| false);
    assert!(servers(after.last().unwrap()) > before);
}

/// Where everything on is late more often than asked, being later still is no saving: everything stays on, and the law says so.
#[test]
fn nothing_is_saved_where_everything_on_is_late_too_often() {
    let often = |period: u64| period.is_multiple_of(25);
    let decisions = steadily(&mut four_servers(0.005), 0..3_000, false, often);
    assert!(decisions.iter().all(|decision| servers(decision) == 4.0));
    let last = decisions.last().unwrap();
    assert_eq!(last.reasons[0].rule, "late-with-everything-on");
    assert!(last.setting.frequency().is_none());
    // As often as asked is no reason.
    let decisions = steadily(&mut four_servers(0.1), 0..3_000, false, often);
    assert!(servers(decisions.last().unwrap()) < 4.0);
}

proptest! {
    /// Where there is a batch interval the joint law moves it within its range, and all else as without it.
    #[test]
    fn the_batch_interval_changes_nothing_of_the_other_levers(
        periods in prop::collection::vec((any_period(), 0.001..0.4f64), 1..80),
    ) {
        for (plant, servers) in plants() {
            let lever = Lever::BatchInterval;
            let range = LeverRange::between(0.0, 0.2);
            let more = plant.with_range(lever, range).unwrap();
            let mut without = joint(plant, servers);
            let mut with = joint(more, servers).with_interval(SeekTuning::default()).unwrap();
            prop_assert!(with.levers().contains(&lever) && !without.levers().contains(&lever));
            let mut interval = 0.0;
            for (period, mean) in &periods {
                let mut period = period.clone();
                if let Some(latency) = period.traffic.as_mut().and_then(|traffic| traffic.latency.as_mut()) {
                    let mean = Seconds::new(*mean);
                    latency.distribution = Some(Distribution { mean, p50: mean, p95: mean, p99: mean, p999: mean });
                }
                let expected = without.decide(&period);
                period.in_force = period.in_force.with(lever, Some(interval));
                let decision = with.decide(&period);
                prop_assert_eq!(decision.setting.with(lever, None), expected.setting);
                interval = decision.setting.get(lever).unwrap();
                prop_assert!((0.0..=0.2).contains(&interval));
                let why = decision.reason_of(lever).unwrap();
                prop_assert!(why.rule.starts_with("seek-"), "{}", why.rule);
            }
        }
    }
}

/// Two backends, of which one takes less for large answers.
fn placement() -> PlacementTuning {
    let kind = |request_us, kilobyte_us| KindFigures {
        cores: 4,
        link_bytes_per_s: 125e6,
        idle_w: 10.0,
        busy_w: 40.0,
        link_w: 1.0,
        request_us,
        kilobyte_us,
        head_bytes: 300.0,
        bytes_per_byte: 1.04,
    };
    PlacementTuning {
        machines: [("http://a:80", "quick"), ("http://b:80", "broad")]
            .map(|(url, kind)| (url.to_owned(), kind.to_owned()))
            .into(),
        kinds: [("quick", kind(500.0, 50.0)), ("broad", kind(3_000.0, 5.0))]
            .map(|(name, kind)| (name.to_owned(), kind))
            .into(),
        ..PlacementTuning::default()
    }
}

fn sizes(arrivals: [u64; 2]) -> SizesObservation {
    let bytes = [1_024, 102_400];
    let class = |at: usize| SizeClass {
        up_to: (at == 0).then_some(4_096),
        known: true,
        arrivals: arrivals[at],
        completions: arrivals[at],
        bytes: arrivals[at] * bytes[at],
        backends: vec![ClassOnBackend::default(); 2],
        ..SizeClass::default()
    };
    let backend = |url: &str| BackendObservation {
        url: url.to_owned(),
        in_service: true,
        in_flight: 0,
    };
    SizesObservation {
        backends: vec![backend("http://a:80"), backend("http://b:80")],
        classes: vec![class(0), class(1), SizeClass::default()],
    }
}

proptest! {
    #[test]
    fn placing_by_size_changes_nothing_of_the_other_levers(
        periods in prop::collection::vec((any_period(), 1..200u64, 1..200u64), 1..60),
    ) {
        for (plant, servers) in plants() {
            let lever = Lever::Placement;
            let more = plant.with_range(lever, LeverRange::between(0.0, 1.0)).unwrap();
            let mut without = joint(more, servers);
            let mut with = joint(more, servers).with_placement(placement()).unwrap();
            prop_assert!(with.levers().contains(&lever) && !without.levers().contains(&lever));
            for (period, small, large) in &periods {
                let period = Observation { sizes: Some(sizes([*small, *large])), ..period.clone() };
                let (expected, decision) = (without.decide(&period), with.decide(&period));
                prop_assert_eq!(decision.setting.with(lever, None), expected.setting);
                let placed = decision.setting.get(lever) == Some(1.0);
                prop_assert_eq!(decision.routes.is_some(), placed);
                let why = decision.reason_of(lever).unwrap();
                prop_assert!(why.rule.starts_with("placement-") || why.rule == "placed", "{}", why.rule);
            }
        }
    }
}

#[test]
fn without_machines_named_the_joint_law_leaves_placement_to_others() {
    let plant = plant(CORES, POWER)
        .with_range(Lever::Placement, LeverRange::between(0.0, 1.0))
        .unwrap();
    let law = joint(plant, 1)
        .with_placement(PlacementTuning::default())
        .unwrap();
    assert!(!law.levers().contains(&Lever::Placement));
}

#[test]
fn the_joint_law_sends_each_size_where_it_takes_less() {
    let plant = plant(CORES, POWER)
        .with_range(Lever::Placement, LeverRange::between(0.0, 1.0))
        .unwrap();
    let mut law = joint(plant, 1).with_placement(placement()).unwrap();
    let mut routes = None;
    for number in 0..20 {
        let traffic = Traffic {
            arrivals: 200,
            completions: 200,
            ..Traffic::default()
        };
        let observation = Observation {
            period: number,
            length: Seconds::new(1.0),
            in_force: plant.full(),
            traffic: Some(traffic),
            utilisation: Some(Ratio::new(0.3)),
            sizes: Some(sizes([150, 50])),
            ..Observation::default()
        };
        routes = law.decide(&observation).routes;
    }
    let routes = routes.unwrap();
    assert!(
        routes.share(0, 0) > Some(0.9),
        "small ones to the quick: {routes:?}"
    );
    assert!(
        routes.share(1, 1) > Some(0.9),
        "large ones to the broad: {routes:?}"
    );
}

#[test]
fn the_cache_s_size_is_left_to_others() {
    let size = LeverRange::between(1e6, 2e7);
    let plant = plant(CORES, POWER).with_range(Lever::CacheSize, size).unwrap();
    assert!(plant.levers().contains(&Lever::CacheSize));
    assert!(!joint(plant, 1).levers().contains(&Lever::CacheSize));
}

#[test]
fn the_joint_law_finds_the_interval_of_the_least_mean() {
    let plant = plant(CORES, POWER)
        .with_frequency(frequencies(0.8, 2.2))
        .with_range(Lever::BatchInterval, LeverRange::between(0.0, 0.25))
        .unwrap();
    let mut law = joint(plant, 1).with_interval(SeekTuning::default()).unwrap();
    let mut in_force = plant.full().with(Lever::BatchInterval, Some(0.0));
    let mut last = 0.0;
    for number in 0..1_200u64 {
        let interval = in_force.batch_interval().unwrap().get();
        let off = interval / 0.04 - 1.0;
        // A noise that repeats, some 3 %.
        let noise = 1.0 + ((number * 7_919) % 101) as f64 / 1_000.0 - 0.05;
        let mean = Seconds::new(0.06 * (1.0 - 0.2 * (1.0 - off * off)) * noise);
        let latency = Latency {
            at_slo: mean * 2.0,
            missed: false,
            distribution: Some(Distribution {
                mean,
                p50: mean,
                p95: mean * 2.0,
                p99: mean * 3.0,
                p999: mean * 4.0,
            }),
        };
        let traffic = Traffic {
            arrivals: 400,
            completions: 400,
            latency: Some(latency),
            ..Traffic::default()
        };
        let observation = Observation {
            period: number,
            length: Seconds::new(1.0),
            in_force,
            traffic: Some(traffic),
            utilisation: Some(Ratio::new(0.3)),
            ..Observation::default()
        };
        let decision = law.decide(&observation);
        in_force = decision.setting;
        if number >= 900 {
            last += interval / 300.0;
        }
    }
    assert!((0.025..0.06).contains(&last), "{last}");
}

/// Of what a gateway holds no server has anything to do: with it or without, the servers and their speed are the same.
#[test]
fn what_a_batcher_holds_is_no_work_that_was_left_over() {
    let decided = |held: fn(u64) -> u64| {
        let plant = plant(CORES, POWER).with_frequency(frequencies(0.8, 2.2));
        let mut law = joint(plant, 1);
        let mut in_force = plant.full();
        let decide = |number: u64| {
            let held = held(number);
            let decision = law.decide(&Observation {
                period: number,
                length: Seconds::new(1.0),
                in_force,
                traffic: Some(Traffic {
                    arrivals: 2_000,
                    completions: 2_000,
                    in_flight: Some(8 + held),
                    latency: Some(Latency {
                        at_slo: Seconds::from_millis(15.0),
                        missed: false,
                        distribution: None,
                    }),
                    ..Traffic::default()
                }),
                utilisation: Some(Ratio::new(0.5)),
                batching: Some(BatchObservation {
                    held,
                    ..BatchObservation::default()
                }),
                ..Observation::default()
            });
            in_force = decision.setting;
            in_force
        };
        (0..200).map(decide).collect::<Vec<Setting>>()
    };
    let none = decided(|_| 0);
    assert!(none.last() != none.first(), "{:?}", none.last());
    for held in [(|_| 900) as fn(u64) -> u64, |number| 900 * (number % 2)] {
        assert_eq!(decided(held), none);
    }
}
