//! The clairvoyant bound: below every run that keeps the promise, and achieved by a schedule that does.

use headroom_control::{Fixed, Guardian, SloPower, Tuning};
use headroom_sim::bound::{clairvoyant, lower_bound};
use headroom_sim::{Fault, Scenario, run};
use headroom_units::Seconds;
use headroom_workload::{ArrivalProcess, Shape, Spacing};

fn scenario() -> Scenario {
    let rates = (0..12).map(|hour| 140.0 + 90.0 * f64::from(hour).sin()).collect();
    Scenario::paper().with_trace(rates, Seconds::new(10.0), Spacing::Poisson)
}

#[test]
fn the_bound_encloses_what_is_possible() {
    let scenario = scenario();
    let plant = scenario.plant().unwrap();
    for seed in [1, 2] {
        let bound = clairvoyant(&scenario, seed, 4).unwrap();
        assert_eq!(bound.least.any, lower_bound(&scenario, seed).unwrap());
        assert_eq!(
            bound.totals.periods_over, 0,
            "the schedule keeps the SLO in every period"
        );
        assert_eq!(bound.schedule.len() as u64, scenario.periods() - 1);
        let gap = bound.gap().get();
        println!(
            "seed {seed}: at least {:.1}, {:.1} achieved, gap {gap:.4}",
            bound.least.prompt, bound.totals.energy
        );
        assert!((0.0..0.05).contains(&gap), "{gap}");
        let mut fixed = Guardian::new(Box::new(Fixed::new(plant)), plant, 5);
        let free = run(&scenario, &mut fixed, seed, &mut |_| {}).unwrap();
        let slo = scenario.slo().unwrap();
        let law = SloPower::new(slo, plant, scenario.service_rate(), Tuning::default()).unwrap();
        let saved = run(
            &scenario,
            &mut Guardian::new(Box::new(law), plant, 5),
            seed,
            &mut |_| {},
        )
        .unwrap();
        println!("fixed {:.1}, slo-power {:.1}", free.energy, saved.energy);
        assert!(bound.totals.energy < saved.energy && bound.totals.energy < free.energy);
    }
}

#[test]
fn a_wider_search_finds_no_worse() {
    let scenario = Scenario {
        duration_s: Some(40.0),
        ..scenario()
    };
    let found = |width| clairvoyant(&scenario, 3, width).unwrap().totals.energy.get();
    let (narrow, wide) = (found(1), found(12));
    println!("{narrow} {wide}");
    assert!(wide <= narrow * 1.001, "{narrow} {wide}");
}

#[test]
fn what_no_bound_is_defined_for_is_refused() {
    let think = Shape::Exponential {};
    let sessions = Scenario {
        arrivals: ArrivalProcess::Sessions {
            users: 3,
            think_s: 1.0,
            think,
        },
        ..Scenario::paper()
    };
    assert_eq!(lower_bound(&sessions, 1).unwrap_err().key, "arrivals.kind");
    let faults = vec![Fault::TelemetryLost {
        at_s: 1.0,
        until_s: 2.0,
    }];
    let faulty = Scenario { faults, ..scenario() };
    assert!(
        clairvoyant(&faulty, 1, 1)
            .unwrap_err()
            .to_string()
            .starts_with("faults: is not empty")
    );
    let mut slow = scenario();
    slow.delays.cores_s = 1.0;
    let refused = clairvoyant(&slow, 1, 1).unwrap_err().to_string();
    assert!(
        refused.starts_with("delays.cores_s: is 1: ") && refused.contains("less than service.period_s, 1"),
        "{refused}"
    );
    // No schedule is sought for the other side, which holds whatever the delays are.
    assert_eq!(lower_bound(&slow, 1), lower_bound(&scenario(), 1));
}
