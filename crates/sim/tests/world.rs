//! The world under control: what stays the same, what a cap, a fault and a lost period do.

use headroom_control::{Allocation, Decision, Fixed, Guardian, Law, Plant, Reason, Seen, SloPower, Tuning};
use headroom_sim::quota::Quota;
use headroom_sim::scenario::{ArrivalMeter, NodeGroup, Service};
use headroom_sim::{
    ArrivalProcess, Bare, Fault, NodeState, RunError, Scenario, Shape, Spacing, Totals, run, run_many,
};
use headroom_units::{Cores, Hertz, Seconds, Watts};

/// A law that asks for the same in each period, from a given one on; everything before.
struct Constant {
    plant: Plant,
    allocation: Allocation,
    from: u64,
}

impl Law for Constant {
    fn name(&self) -> &'static str {
        "constant"
    }
    fn rules(&self) -> &'static [&'static str] {
        &["constant"]
    }
    fn decide(&mut self, seen: &Seen) -> Decision {
        Decision {
            allocation: if seen.period >= self.from {
                self.allocation
            } else {
                self.plant.full()
            },
            expected_rate: None,
            reasons: vec![Reason::new("constant", "as told".to_owned(), &[])],
        }
    }
    fn forget(&mut self) {}
}

fn day() -> Vec<f64> {
    (0..12).map(|hour| 140.0 + 90.0 * f64::from(hour).sin()).collect()
}

fn default_day() -> Scenario {
    Scenario::default().with_trace(day(), Seconds::new(10.0), Spacing::Poisson)
}

fn slo_power(scenario: &Scenario) -> Guardian<SloPower> {
    let plant = scenario.plant().unwrap();
    let tuning = Tuning::default();
    let law = SloPower::new(scenario.slo().unwrap(), plant, scenario.service_rate(), tuning).unwrap();
    Guardian::new(law, plant, 5)
}

fn fixed(scenario: &Scenario) -> Guardian<Fixed> {
    let plant = scenario.plant().unwrap();
    Guardian::new(Fixed::new(plant), plant, 5)
}

/// Everything that a run tells, as text: to be the same, it must be the same to the bit.
fn told(scenario: &Scenario, seed: u64) -> (Totals, String) {
    let mut all = String::new();
    let totals = run(scenario, &mut slo_power(scenario), seed, &mut |period| {
        all += &serde_json::to_string(&(period.seen, period.decision, period.traffic, period.nodes)).unwrap();
        all += &format!("{:?}\n", (period.energy, period.power, period.throttled));
    })
    .unwrap();
    (totals, all)
}

fn constant(scenario: &Scenario, cores: f64, cap_w: f64, ghz: Option<f64>) -> Totals {
    let plant = scenario.plant().unwrap();
    let allocation = Allocation {
        frequency: ghz.map(|ghz| Hertz::new(ghz * 1e9)),
        ..Allocation::new(Cores::new(cores), Watts::new(cap_w))
    };
    let mut law = Constant {
        plant,
        allocation,
        from: 0,
    };
    run(scenario, &mut Bare(&mut law), 3, &mut |_| {}).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_does_not() {
    let scenario = default_day();
    assert_eq!(told(&scenario, 1), told(&scenario, 1));
    assert_ne!(told(&scenario, 1).1, told(&scenario, 2).1);
}

#[test]
fn many_runs_come_in_the_order_of_their_jobs() {
    let scenario = default_day();
    let seeds: Vec<u64> = (0..6).collect();
    let alone: Vec<Totals> = seeds.iter().map(|seed| told(&scenario, *seed).0).collect();
    assert_eq!(run_many(&seeds, 3, |_, seed| told(&scenario, *seed).0), alone);
    assert_eq!(
        run_many(&seeds, 1, |index, seed| (index as u64, *seed)),
        seeds.iter().map(|s| (*s, *s)).collect::<Vec<_>>()
    );
}

#[test]
fn another_law_meets_the_same_requests() {
    let scenario = default_day();
    let mut controlled = Vec::new();
    run(&scenario, &mut slo_power(&scenario), 7, &mut |period| {
        controlled.push(period.traffic.arrivals)
    })
    .unwrap();
    let mut free = Vec::new();
    let all = run(&scenario, &mut fixed(&scenario), 7, &mut |period| {
        free.push(period.traffic.arrivals)
    })
    .unwrap();
    assert_eq!(controlled, free);
    assert_eq!(all.offered, free.iter().sum::<u64>());
    // The sizes are the same too: on ample cores nothing waits, so the latencies are the sizes.
    let (all, fewer) = (
        constant(&scenario, 48.0, 276.0, None),
        constant(&scenario, 45.0, 276.0, None),
    );
    let latency = |totals: &Totals| totals.latency.unwrap();
    assert!((latency(&fewer).mean / latency(&all).mean - 1.0).abs() < 1e-6);
    assert_eq!(latency(&fewer).p50, latency(&all).p50);
}

#[test]
fn users_who_think_meet_the_same_sizes_under_another_law() {
    let think = Shape::Exponential {};
    let arrivals = ArrivalProcess::Sessions {
        users: 100,
        think_s: 1.0,
        think,
    };
    let scenario = Scenario {
        arrivals,
        duration_s: Some(200.0),
        ..Scenario::default()
    };
    let free = constant(&scenario, 48.0, 276.0, None);
    let tight = constant(&scenario, 6.0, 276.0, None);
    // The response time law: λ = users / (R + Z).
    for totals in [&free, &tight] {
        let expected = 100.0 / (1.0 + totals.latency.unwrap().mean.get());
        assert!(
            (totals.arrival_rate.get() / expected - 1.0).abs() < 0.02,
            "{}",
            totals.arrival_rate
        );
    }
    assert!(tight.arrival_rate < free.arrival_rate);
    assert!(tight.in_system_mean <= 100.0);
}

#[test]
fn slo_power_saves_and_keeps_the_promise() {
    let scenario = default_day();
    let free = run(&scenario, &mut fixed(&scenario), 1, &mut |_| {}).unwrap();
    let saved = told(&scenario, 1).0;
    assert!(
        saved.energy.get() < 0.97 * free.energy.get(),
        "{} of {}",
        saved.energy,
        free.energy
    );
    assert!(
        saved.share_over().unwrap().get() < 0.15,
        "{:?}",
        saved.share_over()
    );
    assert!(saved.decisions.values().sum::<u64>() >= saved.periods);
    assert_eq!((free.periods_over, free.failed, saved.failed), (0, 0, 0));
}

#[test]
fn a_node_at_rest_draws_what_the_model_says() {
    let arrivals = ArrivalProcess::Poisson { rate_per_s: 1e-6 };
    let scenario = Scenario {
        arrivals,
        duration_s: Some(100.0),
        ..Scenario::default()
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
        ..Scenario::default()
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
        ..Scenario::default()
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
            ..Scenario::default()
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
            if period.seen.period >= 30 {
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
        ..Scenario::default()
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
        ..Scenario::default()
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

#[test]
fn a_lost_node_fails_its_requests_draws_nothing_and_comes_back_full() {
    let mut scenario = Scenario {
        arrivals: ArrivalProcess::Poisson { rate_per_s: 300.0 },
        duration_s: Some(120.0),
        ..Scenario::default()
    };
    scenario.faults = vec![Fault::NodeLoss {
        node: 2,
        at_s: 20.5,
        until_s: Some(30.0),
    }];
    scenario.nodes[0].boot_s = 20.0;
    let mut states = Vec::new();
    let mut powers = Vec::new();
    let mut failures = Vec::new();
    let totals = run(&scenario, &mut fixed(&scenario), 1, &mut |period| {
        states.push(period.nodes[1].state);
        powers.push(period.nodes[1].power.get());
        failures.push(period.traffic.failures);
        let nodes_on = period
            .nodes
            .iter()
            .filter(|node| node.state == NodeState::On)
            .count();
        if period.at.get() != 51.0 {
            assert_eq!(
                period.seen.allocated.cores.get(),
                16.0 * nodes_on as f64,
                "at {}",
                period.at
            );
        }
    })
    .unwrap();
    assert_eq!(
        (states[19], states[21], states[35], states[60]),
        (NodeState::On, NodeState::Lost, NodeState::Booting, NodeState::On)
    );
    assert_eq!((powers[25], powers[35]), (0.0, 70.0));
    // Until the balancer notices, after 2 s, every third request fails; then none.
    assert!((150..250).contains(&totals.failed), "{}", totals.failed);
    assert_eq!(failures[23..].iter().sum::<u64>(), 0);
}

#[test]
fn a_node_that_is_switched_off_finishes_first_and_fails_nothing() {
    let mut scenario = Scenario {
        arrivals: ArrivalProcess::Poisson { rate_per_s: 200.0 },
        duration_s: Some(120.0),
        ..Scenario::default()
    };
    scenario.faults = vec![Fault::Shutdown {
        node: 3,
        at_s: 10.2,
        until_s: Some(40.0),
    }];
    scenario.nodes[0].boot_s = 10.0;
    let mut states = Vec::new();
    let mut powers = Vec::new();
    let totals = run(&scenario, &mut slo_power(&scenario), 1, &mut |period| {
        states.push(period.nodes[2].state);
        powers.push(period.nodes[2].power.get());
    })
    .unwrap();
    assert_eq!(totals.failed, 0);
    assert_eq!(
        (states[14], states[30], states[45], states[70]),
        (
            NodeState::ShuttingDown,
            NodeState::Off,
            NodeState::Booting,
            NodeState::On
        )
    );
    assert_eq!((powers[14], powers[30], powers[45]), (55.0, 3.0, 70.0));
}

#[test]
fn with_no_node_left_everything_fails_and_the_run_goes_on() {
    let mut scenario = Scenario {
        duration_s: Some(90.0),
        ..Scenario::default()
    };
    let lose = |node| Fault::NodeLoss {
        node,
        at_s: 20.0,
        until_s: Some(30.0),
    };
    scenario.faults = vec![lose(1), lose(2), lose(3)];
    scenario.nodes[0].boot_s = 10.0;
    let mut answered = Vec::new();
    let totals = run(&scenario, &mut slo_power(&scenario), 1, &mut |period| {
        answered.push(period.traffic.completions);
        if (21..30).contains(&period.seen.period) {
            assert_eq!(
                (period.seen.allocated.cores, period.seen.utilisation),
                (Cores::ZERO, None)
            );
            assert_eq!(period.power.value, Watts::ZERO);
        }
    })
    .unwrap();
    assert_eq!(answered[21..39].iter().sum::<u64>(), 0);
    assert!(answered[45] > 100);
    assert!(totals.periods_over >= 19, "{}", totals.periods_over);
}

#[test]
fn a_slow_node_is_slow() {
    let mut scenario = Scenario {
        arrivals: ArrivalProcess::Poisson { rate_per_s: 30.0 },
        duration_s: Some(200.0),
        ..Scenario::default()
    };
    let before = constant(&scenario, 48.0, 276.0, None);
    scenario.faults = vec![Fault::SlowNode {
        node: 1,
        factor: 0.5,
        at_s: 0.0,
        until_s: 1e6,
    }];
    let after = constant(&scenario, 48.0, 276.0, None);
    // A third of the requests takes twice as long.
    let ratio = after.latency.unwrap().mean / before.latency.unwrap().mean;
    assert!((ratio - 4.0 / 3.0).abs() < 0.05, "{ratio}");
}

#[test]
fn faults_that_meet_do_not_undo_each_other_whichever_is_listed_first() {
    let slow = |at_s, until_s| Fault::SlowNode {
        node: 1,
        factor: 0.25,
        at_s,
        until_s,
    };
    let with = |faults: Vec<Fault>| {
        let scenario = Scenario {
            arrivals: ArrivalProcess::Poisson { rate_per_s: 30.0 },
            duration_s: Some(100.0),
            faults,
            ..Scenario::default()
        };
        constant(&scenario, 48.0, 276.0, None).latency
    };
    let whole = with(vec![slow(0.0, 100.0)]);
    assert_eq!(with(vec![slow(0.0, 50.0), slow(50.0, 100.0)]), whole);
    assert_eq!(with(vec![slow(50.0, 100.0), slow(0.0, 50.0)]), whole);
    assert_ne!(with(vec![slow(50.0, 100.0)]), whole);
}

#[test]
fn lost_telemetry_holds_and_then_gives_everything() {
    let mut scenario = default_day();
    scenario.faults = vec![Fault::TelemetryLost {
        at_s: 60.2,
        until_s: 80.2,
    }];
    let mut cores = Vec::new();
    let totals = run(&scenario, &mut slo_power(&scenario), 1, &mut |period| {
        cores.push(period.decision.allocation.cores.get());
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
        off = off.max((period.seen.power.unwrap().value / period.power.value - 1.0).abs());
    })
    .unwrap();
    assert!((0.1..1.0).contains(&off), "{off}");
}

/// With telemetry 2.5 s late the first decision is taken at 3.5 s: three periods have ended by then under the full cap.
#[test]
fn a_cap_counts_from_when_it_is_in_force_however_late_telemetry_is() {
    let mut scenario = Scenario {
        duration_s: Some(20.0),
        ..Scenario::default()
    };
    scenario.telemetry.delay_s = 2.5;
    let full = scenario.plant().unwrap().full().cap.get();
    let mean = constant(&scenario, 48.0, 205.0, None).cap_mean.get();
    assert!((mean - (3.0 * full + 17.0 * 205.0) / 20.0).abs() < 1e-9, "{mean}");
}

#[test]
fn a_run_that_would_not_end_is_ended_and_says_so() {
    let mut scenario = Scenario {
        arrivals: ArrivalProcess::Poisson { rate_per_s: 2000.0 },
        ..Scenario::default()
    };
    let refused = run(&scenario, &mut fixed(&scenario), 1, &mut |_| {})
        .unwrap_err()
        .to_string();
    assert!(
        refused.starts_with("arrivals: brings 2000 requests per second on average, and all 3 nodes"),
        "{refused}"
    );
    assert!(refused.contains("can serve 1152"), "{refused}");
    scenario.allow_overload = true;
    scenario.limits.in_flight = 10_000;
    let error = run(&scenario, &mut fixed(&scenario), 1, &mut |_| {}).unwrap_err();
    assert!(
        matches!(error, RunError::TooManyInFlight { limit: 10_000, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("48 cores"), "{error}");
    scenario.limits.events = 1_000;
    let error = run(&scenario, &mut fixed(&scenario), 1, &mut |_| {})
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("limits.events: the run was stopped after 1000 events"),
        "{error}"
    );
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
            ..NodeGroup::default()
        }],
        arrivals: ArrivalProcess::Poisson { rate_per_s },
        ..Scenario::default()
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

/// A rate read off the number of users is the process's own, while what comes varies about it.
#[test]
fn users_are_no_count_of_requests() {
    let mut scenario = default_day();
    scenario.telemetry.arrivals = ArrivalMeter::Users;
    let plant = scenario.plant().unwrap();
    let mut law = Guardian::new(Fixed::new(plant), plant, 5);
    let (mut apart, mut told) = (0, Vec::new());
    run(&scenario, &mut law, 3, &mut |period| {
        let arrivals = period.seen.traffic.as_ref().unwrap().arrivals;
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
