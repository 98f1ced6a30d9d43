//! What holds of every law whatever it is given.

use crate::common::{frequencies, slo};
use headroom_control::*;
use headroom_units::*;
use proptest::prelude::*;
use std::borrow::Cow;

fn plant() -> Plant {
    crate::common::plant([0.2, 4.0, 0.1], [6.0, 2.86, 6.2]).with_frequency(frequencies(0.8, 2.1))
}

prop_compose! {
    fn any_period()(
        arrivals in 0u64..5_000, p95_ms in proptest::option::of(0.0..5_000.0f64),
        utilisation in proptest::option::of(0.0..1.2f64), watts in proptest::option::of(0.0..30.0f64),
        in_flight in 0u64..500, lost in prop::bool::weighted(0.1),
    ) -> Observation {
        let traffic = Traffic {
            arrivals,
            completions: arrivals,
            failures: 0,
            failed_by_client: 0,
            in_flight: Some(in_flight),
            oldest_in_flight: (in_flight > 0).then(|| Seconds::new(0.3)),
            latency: p95_ms.map(|ms| {
                let at = Seconds::from_millis(ms);
                Latency { at_slo: at, missed: false, distribution: None }
            }),
        };
        Observation {
            length: Seconds::new(1.0),
            in_force: plant().full(),
            traffic: (!lost).then_some(traffic),
            utilisation: utilisation.map(Ratio::new),
            power: watts.map(|w| Estimated(Watts::new(w)).into()),
            ..Observation::default()
        }
    }
}

fn laws() -> Vec<Box<dyn Law>> {
    let mu = PerSecond::new(250.0);
    let mut laws = laws_that_know_the_slo();
    laws.push(Box::new(Hpa::new(plant(), mu, HpaTuning::default()).unwrap()));
    laws.push(Box::new(
        K8sAsRun::new(plant(), K8sAsRunTuning::default()).unwrap(),
    ));
    for variant in [PegasusVariant::Published, PegasusVariant::AsRun] {
        laws.push(Box::new(
            Pegasus::new(slo(250.0), plant(), variant, PegasusTuning::default()).unwrap(),
        ));
    }
    let tuning = PowerManagerTuning::default();
    laws.push(Box::new(PowerManager::new(slo(250.0), plant(), &tuning).unwrap()));
    laws.push(Box::new(Powersave::new(plant()).unwrap()));
    laws
}

fn laws_that_know_the_slo() -> Vec<Box<dyn Law>> {
    let mu = PerSecond::new(250.0);
    let alone =
        |mode| Box::new(SloPower::with_mode(slo(250.0), plant(), mu, Tuning::default(), mode).unwrap());
    // With the guard that the others have.
    let careful = HeadroomTuning {
        guard: 0.8,
        ..HeadroomTuning::default()
    };
    vec![
        Box::new(Headroom::new(slo(250.0), plant(), mu, careful).unwrap()),
        alone(Mode::PowerOnly),
        alone(Mode::ElasticOnly),
        Box::new(Fixed::new(plant())),
        Box::new(SloPower::new(slo(250.0), plant(), mu, Tuning::default()).unwrap()),
        Box::new(SloPower::new(slo(250.0), plant(), mu, Tuning::paper_only()).unwrap()),
    ]
}

proptest! {
    #[test]
    fn every_decision_is_possible_and_has_a_reason_of_a_fixed_rule(
        periods in prop::collection::vec(any_period(), 1..60),
    ) {
        let plant = plant();
        for law in laws() {
            let mut guardian = Guardian::new(law, plant, 5);
            let mut in_force = plant.full();
            for period in &periods {
                let decision = guardian.decide(&Observation { in_force, ..period.clone() });
                let Allocation { cores, cap, frequency } = plant.allocation(&decision.setting);
                let range = plant.frequency().unwrap();
                prop_assert!(frequency.is_none_or(|f| f >= range.min() && f <= range.max()));
                prop_assert!(cores >= plant.cores().min() && cores <= plant.cores().max());
                prop_assert!(cap >= plant.power().lowest_cap);
                prop_assert!(cap <= plant.power().limit(plant.cores().max()));
                prop_assert!(!decision.reasons.is_empty());
                for reason in &decision.reasons {
                    // A text of the code's and none that is made: so that metrics have few labels.
                    prop_assert!(matches!(reason.rule, Cow::Borrowed(_)), "made-up rule {}", reason.rule);
                    prop_assert!(reason.numbers.iter().all(|(_, v)| v.is_finite()));
                }
                in_force = decision.setting;
            }
        }
    }

    #[test]
    fn a_late_period_never_takes_anything_away(
        periods in prop::collection::vec(any_period(), 0..20), late_ms in 201.0..5_000.0f64,
        cores in 0.2..4.0f64, cap in 6.2..17.0f64,
    ) {
        for mut law in laws_that_know_the_slo() {
            for period in &periods {
                law.decide(period);
            }
            let cores = plant().cores().round_up(Cores::new(cores));
            let in_force = Setting::from(Allocation::new(cores, plant().bound_cap(Watts::new(cap), cores)));
            let at = Seconds::from_millis(late_ms);
            let latency = Latency { at_slo: at, missed: false, distribution: None };
            let traffic =
                Traffic { arrivals: 50, completions: 50, latency: Some(latency), ..Traffic::default() };
            let seen = Observation {
                length: Seconds::new(1.0),
                in_force,
                traffic: Some(traffic),
                utilisation: Some(Ratio::new(0.5)),
                power: Some(Estimated(Watts::new(8.0)).into()),
                ..Observation::default()
            };
            let decided = law.decide(&seen).setting;
            prop_assert!(decided.cores() >= in_force.cores() && decided.cap() >= in_force.cap());
        }
    }

    #[test]
    fn the_same_periods_give_the_same_decisions(periods in prop::collection::vec(any_period(), 1..40)) {
        for (mut one, mut other) in laws().into_iter().zip(laws()) {
            for period in &periods {
                prop_assert_eq!(one.decide(period), other.decide(period));
            }
        }
    }

    /// Whatever a law has seen: once its telemetry was lost for long enough, everything goes to full, and it goes on from
    /// there as if it had just been started; Headroom's own, which keeps what it learned, looks as long before it takes.
    #[test]
    fn after_lost_telemetry_every_law_starts_again_from_full(
        before in prop::collection::vec(any_period(), 0..60), after in prop::collection::vec(any_period(), 1..60),
    ) {
        let plant = plant();
        for (law, mut fresh) in laws().into_iter().zip(laws()) {
            let mut guardian = Guardian::new(law, plant, 5);
            for period in &before {
                guardian.decide(period);
            }
            for period in before.iter().chain(&after).cycle().take(5) {
                let decision = guardian.decide(&Observation { traffic: None, ..period.clone() });
                if decision.reasons[0].rule == "telemetry-lost-full" {
                    prop_assert_eq!(decision.setting, plant.full());
                }
            }
            let mut in_force = plant.full();
            for period in after.iter().filter(|period| period.traffic.is_some()) {
                let seen = Observation { in_force, ..period.clone() };
                let (decision, expected) = (guardian.decide(&seen), fresh.decide(&seen));
                if fresh.name() != "headroom" {
                    prop_assert_eq!(&decision, &expected, "{}", fresh.name());
                } else if expected.reasons[0].rule == "warm-up" {
                    prop_assert_eq!(decision.reasons[0].rule.as_ref(), "warm-up");
                    prop_assert_eq!(decision.setting, plant.full());
                }
                in_force = decision.setting;
            }
        }
    }
}
