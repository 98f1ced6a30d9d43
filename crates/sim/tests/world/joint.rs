//! What the joint law saves where one lever is all that it has, and by which cause.

use crate::fixed;
use headroom_control::{Guardian, Joint, JointTuning, Plant};
use headroom_sim::scenario::{NodeGroup, Service};
use headroom_sim::{Scenario, Totals, run};
use headroom_units::Lever;
use headroom_workload::{ArrivalProcess, Shape};

/// One machine of eight cores whose frequency has no lever.
fn machine(load: f64, mean_s: f64, target_ms: f64, duration_s: f64) -> Scenario {
    let rate = 1.0 / mean_s;
    Scenario {
        duration_s: Some(duration_s),
        frequency_lever: false,
        nodes: vec![NodeGroup {
            count: 1,
            cores: 8.0,
            fewest_cores: 1.0,
            ..NodeGroup::default()
        }],
        service: Service {
            rate_per_core_s: rate,
            size: Shape::Exponential {},
            target_ms,
            ..Service::default()
        },
        arrivals: ArrivalProcess::Poisson {
            rate_per_s: load * 8.0 * rate,
        },
        ..Scenario::default()
    }
}

/// The totals of fixed and joint on a plant, and the shares of the periods in which joint asked for a cap or fewer cores.
fn both(scenario: &Scenario, plant: Plant) -> (Totals, Totals, f64, f64) {
    let slo = scenario.slo().unwrap();
    let joint = Joint::new(
        slo,
        plant,
        &scenario.machines(),
        scenario.service_rate(),
        JointTuning::default(),
    );
    let mut law = Guardian::new(Box::new(joint.unwrap()), plant, 5);
    let (mut capped, mut parked, mut periods) = (0.0, 0.0, 0.0);
    let full = plant.full_allocation();
    let totals = run(scenario, &mut law, 3, &mut |period| {
        let asked = plant.allocation(&period.decision.setting);
        periods += 1.0;
        capped += f64::from(u8::from(asked.cap < full.cap));
        parked += f64::from(u8::from(asked.cores < full.cores));
    });
    let everything_on = run(scenario, &mut fixed(scenario), 3, &mut |_| {}).unwrap();
    (everything_on, totals.unwrap(), capped / periods, parked / periods)
}

#[test]
fn where_the_frequency_has_no_lever_a_cap_lowers_it_and_the_work_takes_fewer_joules() {
    let scenario = machine(0.35, 0.02, 250.0, 900.0);
    assert!(scenario.plant().unwrap().bounds(Lever::Frequency).is_none());
    let (everything_on, joint, capped, _) = both(&scenario, scenario.plant().unwrap());
    assert!(capped > 0.5, "{capped}");
    assert!(joint.energy.get() < 0.99 * everything_on.energy.get());
    assert!(joint.share_over().unwrap().get() <= 0.005);
}

#[test]
fn cores_are_parked_where_requests_are_too_short_for_deep_sleep() {
    let of_cores = |scenario: &Scenario| {
        let plant = scenario.plant().unwrap();
        Plant::new(plant.cores(), plant.power()).unwrap().with_parking()
    };
    let scenario = machine(0.5, 200e-6, 10.0, 120.0);
    let (everything_on, joint, _, parked) = both(&scenario, of_cores(&scenario));
    assert!(parked > 0.5, "{parked}");
    assert!(joint.energy.get() < 0.99 * everything_on.energy.get());
    assert!(joint.share_over().unwrap().get() <= 0.01);
    // A request that lets a core sleep deep before the next wants no core parked.
    let long = machine(0.35, 0.02, 250.0, 300.0);
    let (_, _, _, parked) = both(&long, of_cores(&long));
    assert_eq!(parked, 0.0);
}
