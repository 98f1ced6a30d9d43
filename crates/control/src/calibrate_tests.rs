//! Calibration on periods of literals.

use super::*;
use crate::{Allocation, Fixed, FrequencyRange, Traffic};
use headroom_units::{Cores, Lever, Measured, Watts};
use proptest::prelude::*;

fn plant() -> Plant {
    crate::common::plant([0.2, 4.0, 0.1], [6.0, 2.86, 6.2])
}

/// Holds one core, so that it can be told from everything on.
struct OneCore;

impl Law for OneCore {
    fn levers(&self) -> &'static [Lever] {
        &[Lever::Cores, Lever::Cap]
    }
    fn name(&self) -> &'static str {
        "one-core"
    }
    fn decide(&mut self, _: &Observation) -> Decision {
        Decision {
            setting: Allocation::new(Cores::new(1.0), Watts::new(8.0)).into(),
            expected_rate: None,
            reflex: None,
            reasons: vec![Reason::new("one", "one core".to_owned(), &[])],
            ..Decision::default()
        }
    }
    fn forget(&mut self) {}
}

type Build = Box<dyn FnMut(PerSecond) -> Result<Box<dyn Law>, String> + Send>;

fn one_core() -> Calibrating<Build> {
    Calibrating::new(
        Box::new(OneCore),
        plant(),
        Seconds::new(3.0),
        Box::new(|_| Ok(Box::new(OneCore))),
    )
}

/// A second in which so many requests were answered for so much CPU time.
fn second(completions: u64, cpu_s: f64) -> Observation {
    Observation {
        length: Seconds::new(1.0),
        in_force: plant().full(),
        traffic: Some(Traffic {
            arrivals: completions,
            completions,
            ..Traffic::default()
        }),
        cpu_time: Some(Seconds::new(cpu_s)),
        ..Observation::default()
    }
}

fn rule(decision: &Decision) -> &str {
    &decision.reasons[0].rule
}

fn number(decision: &Decision, name: &str) -> f64 {
    let numbers = &decision.reasons[0].numbers;
    numbers.iter().find(|(known, _)| known == name).unwrap().1
}

#[test]
fn everything_is_on_until_enough_was_observed_and_then_the_law_decides() {
    let mut law = one_core();
    for collected in [100.0, 200.0] {
        let decision = law.decide(&second(100, 0.4));
        assert_eq!(rule(&decision), "calibrating");
        assert_eq!(decision.setting, plant().full());
        assert_eq!(number(&decision, "requests"), collected);
    }
    assert_eq!(law.service_rate(), None);
    // 300 requests in 1.2 s of CPU time, over the 3 s that were asked for.
    let decision = law.decide(&second(100, 0.4));
    assert_eq!(rule(&decision), "calibrated");
    assert_eq!(decision.reasons[1].rule, "one");
    assert_eq!(decision.setting.cores().unwrap(), Cores::new(1.0));
    let rate = law.service_rate().unwrap().get();
    assert!((rate - 250.0).abs() < 1e-9, "{rate}");
    assert_eq!(rule(&law.decide(&second(100, 0.4))), "one");
}

#[test]
fn a_service_without_traffic_is_waited_for_as_long_as_it_takes() {
    let mut law = one_core();
    for _ in 0..100_000 {
        assert_eq!(law.decide(&second(0, 0.01)).setting, plant().full());
    }
    // Idle CPU time of those periods is not counted to the requests that come then.
    for _ in 0..3 {
        law.decide(&second(100, 0.4));
    }
    assert!((law.service_rate().unwrap().get() - 250.0).abs() < 1e-9);
}

#[test]
fn periods_that_cannot_tell_are_left_out() {
    let failing = |observation: &mut Observation| observation.traffic.as_mut().unwrap().failures = 6;
    let behind = |observation: &mut Observation| observation.traffic.as_mut().unwrap().in_flight = Some(101);
    let slowed = |observation: &mut Observation| {
        observation.in_force = observation.in_force.with(Lever::Frequency, Some(1e9))
    };
    let blind = |observation: &mut Observation| observation.traffic = None;
    let unread = |observation: &mut Observation| observation.cpu_time = None;
    let spoils: [&dyn Fn(&mut Observation); 5] = [&failing, &behind, &slowed, &blind, &unread];
    for (number, spoil) in spoils.iter().enumerate() {
        let mut law = one_core();
        let mut observation = second(100, 0.4);
        spoil(&mut observation);
        for _ in 0..10 {
            assert_eq!(rule(&law.decide(&observation)), "calibrating", "{number}");
        }
    }
}

#[test]
fn a_law_that_cannot_be_built_leaves_everything_on_and_is_tried_again() {
    let build: Build = Box::new(|rate| match rate.get() > 200.0 {
        true => Ok(Box::new(OneCore)),
        false => Err("the target is out of reach".to_owned()),
    });
    let mut law = Calibrating::new(Box::new(OneCore), plant(), Seconds::new(1.0), build);
    let decision = law.decide(&second(200, 2.0));
    assert_eq!(rule(&decision), "calibration-refused");
    assert!(decision.reasons[0].text.contains("out of reach"), "{decision:?}");
    assert_eq!(decision.setting, plant().full());
    assert_eq!(rule(&law.decide(&second(20, 0.1))), "calibrating");
    assert_eq!(rule(&law.decide(&second(600, 0.9))), "calibrated");
}

fn calibrated() -> Calibrating<Build> {
    let mut law = one_core();
    for _ in 0..3 {
        law.decide(&second(100, 0.4));
    }
    law
}

#[test]
fn a_rate_that_drifted_for_long_enough_builds_the_law_anew() {
    let mut law = calibrated();
    // 250 became 125: three windows of three seconds each.
    for period in 0..8 {
        assert_eq!(rule(&law.decide(&second(100, 0.8))), "one", "{period}");
    }
    let decision = law.decide(&second(100, 0.8));
    assert_eq!(rule(&decision), "recalibrated");
    assert!((number(&decision, "requests_per_core_s") - 125.0).abs() < 1e-9);
    assert!((number(&decision, "requests_per_core_s_before") - 250.0).abs() < 1e-9);
    assert_eq!(
        rule(&law.decide(&second(100, 0.8))),
        "one",
        "it is the one in use"
    );
}

#[test]
fn what_is_within_the_bound_or_short_changes_nothing() {
    let mut law = calibrated();
    // 210 and 305: within a quarter.
    for cpu in [0.476, 0.328].repeat(30) {
        assert_eq!(rule(&law.decide(&second(100, cpu))), "one");
    }
    // Two windows apart, then one that is not; and apart to one side, then to the other.
    for cpu in [0.8, 0.8, 0.4, 0.8, 0.8, 0.2, 0.2, 0.8, 0.8, 0.4] {
        for _ in 0..3 {
            // Enough requests that a window holds 0.5 s of CPU time in each case.
            assert_eq!(rule(&law.decide(&second(200, 2.0 * cpu))), "one");
        }
    }
    assert!((law.service_rate().unwrap().get() - 250.0).abs() < 1e-9);
}

const NONE: [usize; 0] = [];

/// Plays so many periods; in which μ was taken anew.
fn recalibrations(law: &mut Calibrating<Build>, periods: usize, observation: &Observation) -> Vec<usize> {
    (0..periods)
        .filter(|_| rule(&law.decide(observation)) == "recalibrated")
        .collect()
}

fn rate(law: &Calibrating<Build>) -> f64 {
    law.service_rate().unwrap().get()
}

/// 450 cheap requests per second and 6 of 30 ms: 623 per core.
fn mixed() -> Calibrating<Build> {
    let mut law = one_core();
    for _ in 0..3 {
        law.decide(&second(456, 0.732));
    }
    assert!((rate(&law) - 623.0).abs() < 1.0);
    law
}

#[test]
fn a_rate_far_too_high_is_corrected_however_little_busy_the_service_is() {
    // From then on the dear ones only, at every point of a window: three windows of 34 periods, and the one begun.
    for before in 0..4 {
        let mut law = mixed();
        assert_eq!(recalibrations(&mut law, before, &second(456, 0.732)), NONE);
        let anew = recalibrations(&mut law, 105, &second(6, 0.18));
        assert_eq!(anew.len(), 1, "{before}: {anew:?}");
        assert!((rate(&law) * 0.03 - 1.0).abs() < 0.01, "{before}: {}", rate(&law));
    }
}

#[test]
fn too_few_cores_are_evidence_of_a_lower_rate_and_never_of_a_higher_one() {
    // A tenth of a core: half are answered and the others pile up, or run out of time.
    let behind = |observation: &mut Traffic| observation.in_flight = Some(40);
    let failing = |observation: &mut Traffic| (observation.in_flight, observation.failures) = (Some(40), 1);
    let spoils: [&dyn Fn(&mut Traffic); 2] = [&behind, &failing];
    for (spoil, expected) in spoils.iter().zip([30.0, 40.0]) {
        let mut law = mixed();
        let mut observation = second(3, 0.1);
        spoil(observation.traffic.as_mut().unwrap());
        assert_eq!(recalibrations(&mut law, 210, &observation).len(), 1);
        assert!((rate(&law) / expected - 1.0).abs() < 0.01, "{}", rate(&law));
        let mut law = calibrated();
        let mut observation = second(800, 0.8);
        let traffic = observation.traffic.as_mut().unwrap();
        (traffic.in_flight, traffic.failures) = (Some(900), 100);
        assert_eq!(recalibrations(&mut law, 210, &observation), NONE);
    }
}

#[test]
fn a_rate_of_two_loads_is_corrected_again() {
    let mut law = calibrated();
    // 250 becomes 150, and 50 at the end of the last window.
    assert_eq!(recalibrations(&mut law, 8, &second(150, 1.0)), NONE);
    assert_eq!(recalibrations(&mut law, 1, &second(50, 1.0)).len(), 1);
    assert!(rate(&law) > 100.0);
    assert_eq!(recalibrations(&mut law, 12, &second(50, 1.0)).len(), 1);
    assert!((rate(&law) - 50.0).abs() < 1e-9, "{}", rate(&law));
}

#[test]
fn a_frequency_limit_hides_no_rate_that_is_lower_still() {
    let range = FrequencyRange::new(Hertz::new(1e9), Hertz::new(2e9), Hertz::new(1e8)).unwrap();
    let plant = plant().with_frequency(range);
    let build: Build = Box::new(|_| Ok(Box::new(OneCore)));
    let mut law = Calibrating::new(Box::new(OneCore), plant, Seconds::new(3.0), build);
    for _ in 0..3 {
        law.decide(&second(100, 0.4));
    }
    let limited = |cpu_s| {
        let mut observation = second(100, cpu_s);
        observation.in_force = observation.in_force.with(Lever::Frequency, Some(1e9));
        observation
    };
    assert_eq!(
        recalibrations(&mut law, 30, &limited(0.8)),
        NONE,
        "it is half as fast"
    );
    assert_eq!(recalibrations(&mut law, 9, &limited(1.6)), [8]);
    assert!((rate(&law) - 125.0).abs() < 1e-9);
}

#[test]
fn a_quiet_night_lowers_the_rate_once_and_the_day_brings_it_back() {
    let mut law = calibrated();
    // A fifth of the requests at three times the cost each: most of it is what the service does when idle.
    assert_eq!(recalibrations(&mut law, 600, &second(15, 0.19)).len(), 1);
    assert_eq!(recalibrations(&mut law, 600, &second(100, 0.4)).len(), 1);
    assert!((rate(&law) - 250.0).abs() < 1e-9);
    // One that shows a higher rate is none of a service that is less busy.
    assert_eq!(recalibrations(&mut law, 600, &second(100, 0.1)), NONE);
}

#[test]
fn slow_processors_are_no_drift() {
    let at = |ghz: f64, observation: Observation| Observation {
        frequency: Some(Measured(Hertz::new(ghz * 1e9)).into()),
        ..observation
    };
    let mut law = one_core();
    for _ in 0..3 {
        law.decide(&at(2.0, second(100, 0.4)));
    }
    for _ in 0..30 {
        assert_eq!(rule(&law.decide(&at(1.0, second(100, 0.8)))), "one");
    }
    for _ in 0..8 {
        law.decide(&at(2.0, second(100, 0.8)));
    }
    assert_eq!(rule(&law.decide(&at(2.0, second(100, 0.8)))), "recalibrated");
}

#[test]
fn it_is_named_after_its_law_from_the_start() {
    let prototype = Box::new(Fixed::new(plant()));
    let law = Calibrating::new(prototype, plant(), Seconds::new(1.0), |_: PerSecond| {
        Ok(Box::new(Fixed::new(plant())) as Box<dyn Law>)
    });
    assert_eq!(law.name(), "fixed");
}

prop_compose! {
    fn any_second()(
        arrivals in 0u64..3_000, lost in 0u64..200, failures in 0u64..100, in_flight in 0u64..400,
        cpu_s in proptest::option::of(-0.1..4.0f64), blind in prop::bool::weighted(0.1),
    ) -> Observation {
        let completions = arrivals.saturating_sub(lost);
        let traffic = Traffic { arrivals, completions, failures, in_flight: Some(in_flight), ..Traffic::default() };
        Observation {
            traffic: (!blind).then_some(traffic),
            cpu_time: cpu_s.map(Seconds::new),
            ..second(0, 0.0)
        }
    }
}

proptest! {
    #[test]
    fn it_decides_by_a_known_rule_and_takes_nothing_before_it_knows(
        periods in proptest::collection::vec(any_second(), 1..200)
    ) {
        let mut law = one_core();
        for observation in &periods {
            let decision = law.decide(observation);
            prop_assert!(!decision.reasons.is_empty());
            match law.service_rate() {
                None => prop_assert_eq!(decision.setting, plant().full()),
                Some(rate) => prop_assert!(rate.get().is_finite() && rate.get() > 0.0),
            }
        }
    }

    #[test]
    fn a_steady_service_is_calibrated_once_to_its_rate(
        rate in 20.0..5_000.0f64, busy in proptest::collection::vec(0.3..3.9f64, 60..200)
    ) {
        let mut law = one_core();
        for cores in busy {
            let decision = law.decide(&second((rate * cores).round() as u64, cores));
            prop_assert_ne!(rule(&decision), "recalibrated");
            if let Some(known) = law.service_rate() {
                prop_assert!((known.get() / rate - 1.0).abs() < 0.1, "{} is not {rate}", known.get());
            }
        }
        prop_assert!(law.service_rate().is_some() || rate < 100.0);
    }
}

/// The requests of a period that was lost come with the next one, and those of a node that is missing with everybody's: neither says that a core
/// serves more.
#[test]
fn what_a_lost_period_or_node_left_out_is_no_evidence_for_a_higher_rate() {
    let mut law = one_core();
    let at = |period: u64, requests: u64, nodes_missing: u64| Observation {
        period,
        nodes_missing,
        ..second(requests, 0.4)
    };
    law.decide(&at(0, 100, 0));
    // Lost: the requests, and then the CPU time.
    law.decide(&Observation {
        traffic: None,
        ..at(1, 0, 0)
    });
    law.decide(&at(2, 200, 0));
    law.decide(&Observation {
        cpu_time: None,
        ..at(3, 100, 0)
    });
    law.decide(&at(4, 300, 0));
    // A period that the law was not asked in.
    law.decide(&at(6, 200, 0));
    let decision = law.decide(&at(7, 900, 2));
    assert_eq!(law.service_rate(), None);
    assert!(
        decision.reasons[0]
            .text
            .contains("of 2 nodes that cannot be reached"),
        "{decision:?}"
    );
    // What it left out may come with the next.
    law.decide(&at(8, 900, 0));
    law.decide(&at(9, 100, 0));
    law.decide(&at(10, 100, 0));
    assert!((law.service_rate().unwrap().get() - 250.0).abs() < 1e-6);
    // Nor once the law is built, in as many windows as it takes.
    (11..40).for_each(|period| drop(law.decide(&at(period, 400, 1))));
    assert!((law.service_rate().unwrap().get() - 250.0).abs() < 1e-6);
}
