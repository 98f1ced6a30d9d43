//! Power, frequency, caps and quotas.

use super::*;
use headroom_sim::quota::Quota;
use headroom_sim::scenario::{NodeGroup, Service};
use headroom_sim::{Fault, run_many};
use headroom_workload::{ArrivalProcess, Shape};

#[test]
fn a_node_at_rest_draws_what_the_model_says() {
    let arrivals = ArrivalProcess::Poisson { rate_per_s: 1e-6 };
    let scenario = Scenario {
        arrivals,
        duration_s: Some(100.0),
        ..Scenario::paper()
    };
    let totals = constant(&scenario, 48.0, 276.0, None);
    assert!(
        (totals.power_mean.get() - 3.0 * (46.52 + 0.86 * 16.0)).abs() < 0.01,
        "{}",
        totals.power_mean
    );
}

#[test]
fn a_frequency_limit_slows_everything_by_as_much() {
    let scenario = Scenario {
        arrivals: ArrivalProcess::Poisson { rate_per_s: 20.0 },
        duration_s: Some(400.0),
        ..Scenario::paper()
    };
    let (fast, slow) = (
        constant(&scenario, 48.0, 276.0, None),
        constant(&scenario, 48.0, 276.0, Some(0.85)),
    );
    let ratio = slow.latency.unwrap().mean / fast.latency.unwrap().mean;
    assert!((ratio / (2.1 / 0.8) - 1.0).abs() < 0.01, "{ratio}");
    assert!(slow.energy < fast.energy);
}

#[test]
fn a_cap_is_held_and_a_lower_one_is_never_faster() {
    let scenario = Scenario {
        arrivals: ArrivalProcess::Poisson { rate_per_s: 500.0 },
        duration_s: Some(120.0),
        ..Scenario::paper()
    };
    let caps = [274.0, 226.0, 215.0, 205.0, 202.0];
    let runs = run_many(&caps, 2, |_, cap| constant(&scenario, 48.0, *cap, None));
    for (cap, totals) in caps.iter().zip(&runs) {
        // The first period is before the first decision.
        assert!(
            totals.power_mean.get() <= cap * 1.01,
            "{cap} W: {}",
            totals.power_mean
        );
    }
    for pair in runs.windows(2) {
        let mean = |totals: &Totals| totals.latency.unwrap().mean;
        assert!(
            mean(&pair[1]) >= mean(&pair[0]) * 0.999,
            "{} {}",
            mean(&pair[0]),
            mean(&pair[1])
        );
        assert!(pair[1].energy <= pair[0].energy * 1.001);
    }
    let slowest = runs[4].latency.unwrap().mean / runs[0].latency.unwrap().mean;
    assert!(slowest > 1.5, "{slowest}");
}

/// Where the emulated hardware settles with the same steady work under the same cap: power, and frequency over the highest.
#[test]
fn a_cap_settles_where_the_emulated_hardware_does() {
    for (cap_w, work, power_w, frequency) in [
        (92.0, 10.0, 80.28, 1.0),
        (80.0, 10.0, 79.37, 0.9524),
        (80.0, 14.0, 79.36, 0.7619),
        (72.0, 6.0, 71.73, 0.9524),
        (72.0, 14.0, 71.76, 0.5714),
        (68.0, 5.0, 67.70, 0.7143),
        (68.0, 10.0, 67.45, 0.4286),
        (64.0, 2.0, 63.92, 0.9048),
        (64.0, 6.0, 63.64, 0.3810),
        (62.0, 2.0, 61.77, 0.3810),
    ] {
        let rate_per_s = 2000.0;
        let mut scenario = Scenario {
            duration_s: Some(60.0),
            arrivals: ArrivalProcess::Even { rate_per_s },
            ..Scenario::paper()
        };
        scenario.nodes[0].count = 1;
        scenario.service.rate_per_core_s = rate_per_s / work;
        scenario.service.size = Shape::Deterministic {};
        let allocation = Allocation::new(Cores::new(16.0), Watts::new(cap_w));
        let mut law = Constant {
            plant: scenario.plant().unwrap(),
            allocation,
            from: 0,
        };
        let (mut energy_j, mut last) = (0.0, 0.0);
        run(&scenario, &mut Bare(&mut law), 1, &mut |period| {
            if period.observation.period >= 30 {
                energy_j += period.energy.value.get();
                last = period.frequency.unwrap().get() / 2.1e9;
            }
        })
        .unwrap();
        let power = energy_j / 30.0;
        assert!(
            (power - power_w).abs() < 0.05,
            "{cap_w} W, work {work}: {power} for {power_w}"
        );
        assert!(
            (last - frequency).abs() < 1e-3,
            "{cap_w} W, work {work}: {last} for {frequency}"
        );
    }
}

#[test]
fn below_the_lowest_frequency_cores_are_stopped() {
    let scenario = Scenario {
        arrivals: ArrivalProcess::Poisson { rate_per_s: 100.0 },
        duration_s: Some(60.0),
        ..Scenario::paper()
    };
    let plant = scenario.plant().unwrap();
    // Two cores a node and the lowest cap: all of them busy at the lowest frequency, and less is asked for.
    let allocation = Allocation::new(Cores::new(12.0), plant.power().lowest_cap);
    let mut law = Constant {
        plant,
        allocation,
        from: 0,
    };
    let mut throttled = 0.0;
    let totals = run(&scenario, &mut Bare(&mut law), 3, &mut |period| {
        throttled += period.throttled.get()
    })
    .unwrap();
    assert!(throttled / totals.periods as f64 > 0.5, "{throttled}");
}

#[test]
fn a_cap_that_is_ignored_binds_nothing() {
    let mut scenario = Scenario {
        arrivals: ArrivalProcess::Poisson { rate_per_s: 500.0 },
        duration_s: Some(60.0),
        ..Scenario::paper()
    };
    let held = constant(&scenario, 48.0, 205.0, None);
    let ignore = |node| Fault::CapIgnored {
        node,
        at_s: 0.0,
        until_s: 60.0,
    };
    scenario.faults = vec![ignore(1), ignore(2), ignore(3)];
    let ignored = constant(&scenario, 48.0, 205.0, None);
    let free = constant(&scenario, 48.0, 276.0, None);
    assert!(ignored.latency.unwrap().mean < held.latency.unwrap().mean);
    assert_eq!(ignored.latency, free.latency);
    assert!(ignored.cap_mean < free.cap_mean && ignored.energy == free.energy);
}

/// On one node of 4 cores: at 1 request at a time and at a load that needs most of them.
#[test]
fn cores_held_by_a_quota_serve_as_much_and_short_requests_sooner() {
    let world = |rate_per_s: f64, quota: Option<Quota>| Scenario {
        duration_s: Some(400.0),
        core_step: 0.1,
        service: Service {
            rate_per_core_s: 100.0,
            size: Shape::Exponential {},
            ..Service::default()
        },
        nodes: vec![NodeGroup {
            count: 1,
            cores: 4.0,
            fewest_cores: 0.1,
            quota,
            ..NodeGroup::paper()
        }],
        arrivals: ArrivalProcess::Poisson { rate_per_s },
        ..Scenario::paper()
    };
    let quota = Some(Quota::default());
    let mean_ms = |totals: &Totals| totals.latency.unwrap().mean.as_millis();
    // Half a core for requests of 10 ms each, at a tenth of what it can do: on half a core of its own one takes 20 ms
    // and more; by the quota of 5 ms it runs for 5 ms, waits for 5, runs for 5, and so on: an exponential of mean 10 ms
    // takes 10 + 5 / (e^0.5 - 1) = 17.7 ms where it begins with a period, and less than that and half a wait else.
    let (own, held) = (
        constant(&world(5.0, None), 0.5, 1e3, None),
        constant(&world(5.0, quota), 0.5, 1e3, None),
    );
    assert!(
        mean_ms(&own) > 20.0 && mean_ms(&held) < 0.93 * mean_ms(&own),
        "{held:?}"
    );
    // Near what it can do, either serves all, on as much power.
    let (own, held) = (
        constant(&world(180.0, None), 2.0, 1e3, None),
        constant(&world(180.0, quota), 2.0, 1e3, None),
    );
    assert!((held.completed as f64 / own.completed as f64 - 1.0).abs() < 1e-3);
    assert!((held.energy / own.energy - 1.0).abs() < 1e-3);
    assert!(
        (mean_ms(&held) / mean_ms(&own) - 1.0).abs() < 0.15,
        "{held:?} {own:?}"
    );
    // A quota of all cores is no quota.
    let (own, held) = (
        constant(&world(300.0, None), 4.0, 1e3, None),
        constant(&world(300.0, quota), 4.0, 1e3, None),
    );
    assert!((mean_ms(&held) / mean_ms(&own) - 1.0).abs() < 1e-6);
}
