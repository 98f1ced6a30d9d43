//! Headroom's own law on a plant that answers by theory: processor sharing, without chance.

use crate::common::{frequencies, slo};
use headroom_control::queueing::percentile::{ServiceSizes, sharing_percentile};
use headroom_control::*;
use headroom_units::*;
use proptest::prelude::*;

const COST: f64 = 0.04;
const TARGET_S: f64 = 0.25;

fn plant() -> Plant {
    crate::common::plant([2.0, 32.0, 1.0], [50.0, 3.0, 40.0]).with_frequency(frequencies(0.8, 2.0))
}

fn law() -> Headroom {
    Headroom::new(
        slo(TARGET_S * 1e3),
        plant(),
        PerSecond::new(25.0),
        HeadroomTuning::default(),
    )
    .unwrap()
}

fn pace(in_force: Setting) -> f64 {
    in_force.frequency().map_or(1.0, |limit| limit.get() / 2e9)
}

/// Cores times speed.
fn capacity(in_force: Setting) -> f64 {
    in_force.cores().unwrap().get() * pace(in_force)
}

/// Watts of the plant; the law is told only the envelope.
fn watts(cores: f64, busy: f64, pace: f64) -> f64 {
    50.0 + 0.8 * cores + 2.2 * busy * pace.powi(2)
}

/// A period at this load, as theory has it. Overload answers with a second.
fn period(number: u64, rate: f64, in_force: Setting) -> Observation {
    let (cores, pace) = (in_force.cores().unwrap().get(), pace(in_force));
    let load = rate * COST / pace / cores;
    let at = |percentile: f64| {
        let stretch = sharing_percentile(
            in_force.cores().unwrap(),
            Ratio::new(load),
            &ServiceSizes::lognormal(0.3),
            Ratio::new(percentile),
        );
        Seconds::new((COST / pace * stretch).min(1.0))
    };
    let distribution = Distribution {
        mean: at(0.6),
        p50: at(0.5),
        p95: at(0.95),
        p99: at(0.99),
        p999: at(0.999),
    };
    let answered = rate.min(cores * pace / COST);
    let busy = load.min(1.0) * cores;
    Observation {
        period: number,
        length: Seconds::new(1.0),
        in_force,
        traffic: Some(Traffic {
            arrivals: rate as u64,
            completions: answered as u64,
            failures: 0,
            failed_by_client: 0,
            in_flight: Some((rate - answered) as u64 + busy as u64),
            oldest_in_flight: Some(Seconds::from_millis(50.0)),
            latency: Some(Latency {
                at_slo: at(0.95),
                missed: false,
                distribution: Some(distribution),
            }),
        }),
        utilisation: Some(Ratio::new(load.min(1.0))),
        power: Some(Estimated(Watts::new(watts(cores, busy, pace))).into()),
        ..Observation::default()
    }
}

/// Runs the law for some periods of this load; the last decision.
fn settle(law: &mut Headroom, from: u64, periods: u64, rate: f64, mut in_force: Setting) -> Decision {
    let mut last = None;
    for number in from..from + periods {
        let decision = law.decide(&period(number, rate, in_force));
        in_force = decision.setting;
        last = Some(decision);
    }
    last.unwrap()
}

#[test]
fn a_steady_load_gets_what_it_needs_and_little_more() {
    let mut law = law();
    let decision = settle(&mut law, 0, 200, 200.0, plant().full());
    let in_force = decision.setting;
    // Eight cores at full speed would be busy all the time.
    let seen = period(200, 200.0, in_force);
    let p95 = seen.traffic.unwrap().latency.unwrap().at_slo;
    assert!(p95.get() < TARGET_S, "{p95} with {in_force:?}");
    assert!(in_force.cores().unwrap().get() < 20.0, "{in_force:?}");
    let full = watts(32.0, 8.0, 1.0);
    let now = watts(
        in_force.cores().unwrap().get(),
        8.0 / pace(in_force),
        pace(in_force),
    );
    assert!(now < 0.9 * full, "{now} W of {full} W");
    assert!((decision.expected_rate.unwrap().get() - 200.0).abs() < 1.0);
    assert!((law.service_rate().get() * COST - 1.0).abs() < 0.05);
}

#[test]
fn what_it_chooses_is_within_a_few_percent_of_the_cheapest_that_theory_allows() {
    let mut law = law();
    let in_force = settle(&mut law, 0, 400, 200.0, plant().full()).setting;
    let chosen = watts(
        in_force.cores().unwrap().get(),
        8.0 / pace(in_force),
        pace(in_force),
    );
    let mut cheapest = f64::INFINITY;
    for cores in 2..=32 {
        for step in 8..=20 {
            let frequency = (step < 20).then(|| Hertz::new(f64::from(step) * 1e8));
            let point = Allocation {
                frequency,
                ..Allocation::new(Cores::new(f64::from(cores)), Watts::new(150.0))
            }
            .into();
            let seen = period(0, 200.0, point);
            if seen.traffic.unwrap().latency.unwrap().at_slo.get() < TARGET_S
                && seen.utilisation.unwrap().get() < 1.0
            {
                cheapest = cheapest.min(watts(f64::from(cores), 8.0 / pace(point), pace(point)));
            }
        }
    }
    // What is above it is the price of the confidence.
    assert!(chosen < 1.08 * cheapest, "{chosen} W against {cheapest} W");
}

#[test]
fn ten_times_the_load_within_one_period_is_answered_in_the_next() {
    let mut law = law();
    let before = settle(&mut law, 0, 100, 50.0, plant().full());
    let decision = law.decide(&period(100, 500.0, before.setting));
    let needed = 500.0 * COST;
    assert!(capacity(decision.setting) > needed, "{:?}", decision.setting);
    assert!(
        decision
            .reasons
            .iter()
            .any(|reason| reason.rule == "backlog" || reason.rule == "at-maximum")
    );
}

#[test]
fn a_slower_service_is_learned_within_a_few_periods() {
    let mut law = law();
    let before = settle(&mut law, 0, 100, 100.0, plant().full()).setting;
    // From now on each request costs twice as much: the same as twice the load, but for the count.
    let mut in_force = before;
    for number in 100..130 {
        let mut seen = period(number, 200.0, in_force);
        let traffic = seen.traffic.as_mut().unwrap();
        traffic.arrivals /= 2;
        traffic.completions /= 2;
        if let Some(latency) = &mut traffic.latency {
            latency.at_slo = latency.at_slo * 1.5;
        }
        in_force = law.decide(&seen).setting;
    }
    assert!(
        capacity(in_force) > 1.5 * capacity(before),
        "{before:?} {in_force:?}"
    );
    assert!(
        (law.service_rate().get() * COST * 2.0 - 1.0).abs() < 0.25,
        "{}",
        law.service_rate()
    );
}

#[test]
fn what_was_learned_of_the_service_survives_lost_telemetry() {
    let mut law = law();
    let settled = settle(&mut law, 0, 200, 200.0, plant().full());
    let learned = law.service_rate();
    law.forget();
    assert_eq!(law.service_rate(), learned);
    // It looks again before it takes anything, and comes back to where it was.
    let first = law.decide(&period(300, 200.0, plant().full()));
    assert_eq!(first.setting, plant().full());
    let again = settle(&mut law, 301, 100, 200.0, plant().full());
    let ratio = capacity(again.setting) / capacity(settled.setting);
    assert!((0.9..1.1).contains(&ratio), "{ratio}");
}

#[test]
fn the_cap_slows_nothing_and_is_near_what_can_be_drawn() {
    let mut law = law();
    let in_force = settle(&mut law, 0, 300, 200.0, plant().full()).setting;
    let most = watts(
        in_force.cores().unwrap().get(),
        in_force.cores().unwrap().get(),
        pace(in_force),
    );
    assert!(
        in_force.cap().unwrap().get() >= most,
        "{} below {most}",
        in_force.cap().unwrap()
    );
    assert!(
        in_force.cap().unwrap().get() < 1.15 * most,
        "{} above {most}",
        in_force.cap().unwrap()
    );
}

#[test]
fn without_a_lever_on_frequency_there_is_none_in_the_decision() {
    let fixed = Plant::new(plant().cores(), plant().power()).unwrap();
    let mut law = Headroom::new(
        slo(TARGET_S * 1e3),
        fixed,
        PerSecond::new(25.0),
        HeadroomTuning::default(),
    )
    .unwrap();
    let decision = settle(&mut law, 0, 100, 200.0, fixed.full());
    assert_eq!(decision.setting.frequency(), None);
    assert!(decision.setting.cores().unwrap() < fixed.cores().max());
}

#[test]
fn it_says_why_with_numbers() {
    let mut law = law();
    let decision = settle(&mut law, 0, 50, 200.0, plant().full());
    let reason = &decision.reasons[0];
    assert!(["cheapest-point", "keep-point"].contains(&&*reason.rule));
    assert!(
        reason.text.contains("expected by the") && reason.text.contains("P95"),
        "{}",
        reason.text
    );
    assert!(
        reason
            .numbers
            .iter()
            .any(|(name, value)| name == "late_probability" && (0.0..0.05).contains(value))
    );
}

#[test]
fn a_service_rate_that_is_none_is_refused() {
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(
            Headroom::new(
                slo(TARGET_S * 1e3),
                plant(),
                PerSecond::new(rate),
                HeadroomTuning::default()
            )
            .is_err()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn more_load_never_gets_less_capacity(rate in 20.0..350.0f64, more in 1.15..1.8f64) {
        let few = settle(&mut law(), 0, 60, rate.floor(), plant().full()).setting;
        let many = settle(&mut law(), 0, 60, (rate * more).floor(), plant().full()).setting;
        prop_assert!(capacity(many) >= capacity(few) * 0.999, "{few:?} at {rate}, {many:?} at {}", rate * more);
    }

    #[test]
    fn readings_that_are_no_numbers_harm_nothing(
        broken in prop::collection::vec((0usize..6, prop::num::f64::ANY), 1..12),
    ) {
        let mut law = law();
        let mut in_force = settle(&mut law, 0, 10, 150.0, plant().full()).setting;
        for (i, (which, value)) in broken.into_iter().enumerate() {
            let mut seen = period(10 + i as u64, 150.0, in_force);
            match which {
                0 => seen.utilisation = Some(Ratio::new(value)),
                1 => seen.power = Some(Estimated(Watts::new(value)).into()),
                2 => seen.length = Seconds::new(value),
                3 => seen.in_force = seen.in_force.with(Lever::Cores, Some(value)),
                4 => seen.frequency = Some(Estimated(Hertz::new(value)).into()),
                _ => {
                    let at = Seconds::new(value);
                    seen.traffic.as_mut().unwrap().latency = Some(Latency { at_slo: at, missed: false, distribution: None });
                }
            }
            let decision = law.decide(&seen);
            prop_assert!(decision.reasons.iter().all(|r| r.numbers.iter().all(|(_, v)| !v.is_nan())));
            let valid = seen.in_force.cores().unwrap().is_finite() && seen.in_force.cores().unwrap().get() > 0.0;
            if valid {
                in_force = decision.setting;
            }
            prop_assert!(!valid || (plant().cores().min() <= in_force.cores().unwrap() && in_force.cores().unwrap() <= plant().cores().max()));
            prop_assert!(!valid || in_force.cap().unwrap().is_finite());
        }
        let after = settle(&mut law, 40, 200, 150.0, plant().full()).setting;
        prop_assert!(after.cores().unwrap() < plant().cores().max() || after.frequency().is_some(), "{after:?}");
    }
}

#[test]
fn a_burst_in_a_fragment_of_a_period_is_not_remembered_as_a_load() {
    for fragment in [1e-3, 0.00246, 0.05] {
        let mut law = law();
        let before = settle(&mut law, 0, 60, 150.0, plant().full()).setting;
        let mut seen = period(60, 150.0, before);
        seen.length = Seconds::new(fragment);
        law.decide(&seen);
        let after = settle(&mut law, 61, 30, 150.0, plant().full()).setting;
        assert!(
            capacity(after) <= 1.1 * capacity(before),
            "{fragment} s: {before:?}, {after:?}"
        );
    }
}

#[test]
fn periods_that_became_short_for_good_are_learned_from() {
    let mut law = law();
    let few = settle(&mut law, 0, 60, 50.0, plant().full()).setting;
    // A fiftieth of the length, at four times the load.
    let mut in_force = few;
    for number in 60..360 {
        let mut seen = period(number, 200.0, in_force);
        seen.length = Seconds::new(0.02);
        let traffic = seen.traffic.as_mut().unwrap();
        (traffic.arrivals, traffic.completions, traffic.in_flight) = (4, 4, Some(8));
        in_force = law.decide(&seen).setting;
    }
    assert!(capacity(in_force) > 1.5 * capacity(few), "{few:?}, {in_force:?}");
}

#[test]
fn a_latency_that_no_request_can_have_is_not_learned_from() {
    let mut law = law();
    let before = settle(&mut law, 0, 60, 150.0, plant().full()).setting;
    for (number, latency_s) in [(60, 3.5e-309), (61, 1.7e97)] {
        let mut seen = period(number, 150.0, before);
        seen.traffic.as_mut().unwrap().latency = Some(Latency {
            at_slo: Seconds::new(latency_s),
            missed: false,
            distribution: None,
        });
        law.decide(&seen);
    }
    let after = settle(&mut law, 62, 30, 150.0, plant().full()).setting;
    assert!(capacity(after) <= 1.2 * capacity(before), "{before:?}, {after:?}");
}

#[test]
fn a_reflex_is_decided_above_what_is_usual_and_what_it_did_is_not_learned() {
    let mut law = law();
    let steady = settle(&mut law, 0, 200, 200.0, plant().full());
    let usual = period(200, 200.0, steady.setting).traffic.unwrap();
    let reflex = steady.reflex.expect("less than everything is on");
    assert!(reflex.gives(&steady.setting) && !reflex.gives(&plant().full()));
    let in_flight = usual.in_flight.unwrap();
    assert!(
        reflex.bound > in_flight && reflex.bound < 10 * in_flight,
        "{reflex:?} {usual:?}"
    );
    assert!(reflex.oldest.unwrap().get() > TARGET_S, "{reflex:?}");
    // With everything on for a part of the period, few cores seem to answer quickly.
    let mut with = law.clone();
    let mut fired = period(200, 200.0, plant().full());
    fired.reflexes = 1;
    let fast = with.decide(&fired);
    let rules: Vec<_> = fast.reasons.iter().map(|reason| &*reason.rule).collect();
    assert!(rules.contains(&"reflex-fired"), "{rules:?}");
    assert_eq!(with.service_rate(), law.service_rate());
}

#[test]
fn without_the_key_there_is_no_reflex() {
    let (slo, plant) = (law().slo(), plant());
    let tuning = HeadroomTuning {
        reflex: false,
        ..HeadroomTuning::default()
    };
    let mut law = Headroom::new(slo, plant, PerSecond::new(1.0 / COST), tuning).unwrap();
    assert_eq!(settle(&mut law, 0, 50, 200.0, plant.full()).reflex, None);
}

#[test]
fn what_a_batcher_holds_is_no_work_that_was_left_over() {
    let decided = |held: fn(u64) -> u64| {
        let (mut law, mut in_force) = (law(), plant().full());
        let decide = |number: u64| {
            let mut seen = period(number, 200.0, in_force);
            let held = held(number);
            *seen.traffic.as_mut().unwrap().in_flight.as_mut().unwrap() += held;
            seen.batching = Some(BatchObservation {
                held,
                ..BatchObservation::default()
            });
            in_force = law.decide(&seen).setting;
            in_force
        };
        (0..200).map(decide).collect::<Vec<Setting>>()
    };
    let none = decided(|_| 0);
    assert!(none.last() != none.first(), "{:?}", none.last());
    for held in [(|_| 100) as fn(u64) -> u64, |number| 100 * (number % 2)] {
        assert_eq!(decided(held), none);
    }
}
