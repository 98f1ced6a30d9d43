//! Telemetry that is lost, late, noisy or read off something else.

use super::*;
use headroom_sim::Fault;
use headroom_sim::scenario::ArrivalMeter;
use headroom_workload::{ArrivalProcess, Shape};

#[test]
fn lost_telemetry_holds_and_then_gives_everything() {
    let mut scenario = default_day();
    scenario.faults = vec![Fault::TelemetryLost {
        at_s: 60.2,
        until_s: 80.2,
    }];
    let mut cores = Vec::new();
    let totals = run(&scenario, &mut slo_power(&scenario), 1, &mut |period| {
        cores.push(period.decision.setting.cores().unwrap().get());
    })
    .unwrap();
    assert_eq!(totals.telemetry_lost_periods, 20);
    assert!(cores[59] < 48.0, "{}", cores[59]);
    assert_eq!((cores[60], cores[70]), (cores[59], 48.0));
    scenario.faults.clear();
    scenario.telemetry.loss = 0.25;
    let lossy = told(&scenario, 1).0.telemetry_lost_periods;
    assert!((15..45).contains(&lossy), "{lossy} of 120");
}

#[test]
fn telemetry_may_be_late_and_noisy() {
    let mut scenario = default_day();
    scenario.telemetry.delay_s = 2.5;
    let late = told(&scenario, 1).0;
    assert_eq!(late.periods, 120);
    scenario.telemetry.delay_s = 0.0;
    let prompt = told(&scenario, 1).0;
    assert!(late.energy != prompt.energy && late.offered == prompt.offered);
    scenario.telemetry.power_noise = 0.1;
    scenario.telemetry.latency_noise = 0.1;
    let mut off = 0.0f64;
    run(&scenario, &mut slo_power(&scenario), 1, &mut |period| {
        off = off.max((period.observation.power.unwrap().value / period.power.value - 1.0).abs());
    })
    .unwrap();
    assert!((0.1..1.0).contains(&off), "{off}");
}

/// With telemetry 2.5 s late the first decision is taken at 3.5 s: three periods have ended by then under the full cap.
#[test]
fn a_cap_counts_from_when_it_is_in_force_however_late_telemetry_is() {
    let mut scenario = Scenario {
        duration_s: Some(20.0),
        ..Scenario::paper()
    };
    scenario.telemetry.delay_s = 2.5;
    let full = scenario.plant().unwrap().full_allocation().cap.get();
    let mean = constant(&scenario, 48.0, 205.0, None).cap_mean.get();
    assert!((mean - (3.0 * full + 17.0 * 205.0) / 20.0).abs() < 1e-9, "{mean}");
}

/// A rate read off the number of users is the process's own, while what comes varies about it.
#[test]
fn users_are_no_count_of_requests() {
    let mut scenario = default_day();
    scenario.telemetry.arrivals = ArrivalMeter::Users;
    let plant = scenario.plant().unwrap();
    let mut law = Guardian::new(Box::new(Fixed::new(plant)), plant, 5);
    let (mut apart, mut told) = (0, Vec::new());
    run(&scenario, &mut law, 3, &mut |period| {
        let arrivals = period.observation.traffic.as_ref().unwrap().arrivals;
        apart += u64::from(arrivals != period.traffic.arrivals);
        told.push(arrivals as f64);
    })
    .unwrap();
    for (second, told) in told.iter().enumerate() {
        assert!(
            (told - day()[second / 10]).abs() <= 0.5,
            "second {second}: {told}"
        );
    }
    assert!(apart > 100, "{apart} of 120 periods differ");
    scenario.arrivals = ArrivalProcess::Sessions {
        users: 10,
        think_s: 1.0,
        think: Shape::Exponential {},
    };
    let error = scenario.check().unwrap_err().to_string();
    assert!(
        error.starts_with("telemetry.arrivals: is \"users\" with sessions"),
        "{error}"
    );
}
