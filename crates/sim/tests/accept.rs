//! The cluster with accept queues against the theory, against the paper, and against its own accounts.

use headroom_control::capacity::{Capacity, QueueKind, QueueTuning};
use headroom_control::resize::{
    AlwaysOn, BALANCER_LOST, PowerState, ResizeTuning, Schedule, Scheduled, Stepwise,
};
use headroom_control::{Plant, Stack};
use headroom_sim::accept::{AcceptFault, AcceptScenario, AcceptTotals, SynRetries, run};
use headroom_sim::{Bare, RunError};
use headroom_units::{PerSecond, Ratio, Seconds};
use headroom_workload::{ArrivalProcess, Shape};

/// A server whose workers never share a CPU: M/M/c with a limited queue.
fn loss_system(workers: u32, backlog: u32, rate_per_s: f64) -> AcceptScenario {
    AcceptScenario {
        arrivals: ArrivalProcess::Poisson { rate_per_s },
        duration_s: 100_000.0,
        servers: 1,
        backlog,
        workers,
        cores: f64::from(workers),
        cpu_s: 1.0,
        retries: SynRetries::Never,
        ..AcceptScenario::default()
    }
}

fn run_alone(scenario: &AcceptScenario, seed: u64) -> AcceptTotals {
    run(scenario, &mut Bare(&mut AlwaysOn), seed, &mut |_| {}).unwrap()
}

/// The state probabilities of M/M/c/c+K at offered load a.
fn states(workers: u32, backlog: u32, load: f64) -> Vec<f64> {
    let mut weights = vec![1.0];
    for n in 1..=workers + backlog {
        let last = weights[weights.len() - 1];
        weights.push(last * load / f64::from(n.min(workers)));
    }
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

#[test]
fn drops_queue_and_latency_are_those_of_the_loss_formulas() {
    for (workers, backlog, load) in [(1, 4, 0.9), (2, 3, 2.0), (4, 8, 3.6), (8, 16, 9.0)] {
        let totals = run_alone(&loss_system(workers, backlog, load), 1);
        let states = states(workers, backlog, load);
        let lost = states[states.len() - 1];
        let drop_ratio = totals.drops as f64 / totals.attempts as f64;
        assert!(
            (drop_ratio - lost).abs() < 0.03 * lost + 0.002,
            "{workers}+{backlog}: {drop_ratio} against {lost}"
        );
        // Little's law over those that are not dropped.
        let inside: f64 = states.iter().enumerate().map(|(n, share)| n as f64 * share).sum();
        let mean_s = inside / (load * (1.0 - lost));
        let latency_s = totals.latency.mean().unwrap().get();
        assert!(
            (latency_s / mean_s - 1.0).abs() < 0.03,
            "{workers}+{backlog}: {latency_s} s against {mean_s} s"
        );
    }
}

/// Erlang's loss formula does not care how service times are distributed, nor whether they are work or waiting.
#[test]
fn a_loss_system_without_queue_is_insensitive() {
    // A queue of one place behind many workers comes near to none: compare shapes with each other.
    let ratio = |cpu: Shape, wait_s: f64| {
        let scenario = AcceptScenario {
            cpu,
            cpu_s: 1.0 - wait_s,
            wait_s,
            wait: Shape::Lognormal { scv: 2.0 },
            ..loss_system(16, 1, 14.0)
        };
        let totals = run_alone(&scenario, 2);
        totals.drops as f64 / totals.attempts as f64
    };
    let reference = ratio(Shape::Exponential {}, 0.0);
    for other in [
        ratio(Shape::Deterministic {}, 0.0),
        ratio(Shape::Exponential {}, 0.7),
    ] {
        assert!(
            (other / reference - 1.0).abs() < 0.12,
            "{other} against {reference}"
        );
    }
}

/// METHODS: with a queue that never fills and workers without number it is the processor-sharing queue.
#[test]
fn enough_workers_make_it_processor_sharing() {
    let scenario = AcceptScenario {
        workers: 10_000,
        cores: 4.0,
        ..loss_system(4, 1, 3.2)
    };
    let latency_s = run_alone(&scenario, 3).latency.mean().unwrap().get();
    // M/G/4-PS at 0.8: 1.74 service times.
    assert!((latency_s / 1.746 - 1.0).abs() < 0.03, "{latency_s}");
}

#[test]
fn a_dropped_attempt_comes_again_when_its_kernel_says_so() {
    for (retries, waits) in [
        (SynRetries::Linux2007, [3.0, 9.0, 21.0, 45.0]),
        (SynRetries::Linux31, [1.0, 3.0, 7.0, 15.0]),
        (SynRetries::Linux65, [1.0, 2.0, 3.0, 4.0]),
    ] {
        let scenario = AcceptScenario {
            arrivals: ArrivalProcess::Series {
                // Three at once: one is served, one waits, one is dropped and comes again while both are there.
                rates_per_s: [vec![3.0], vec![0.0; 300]].concat(),
                hold_s: 1.0,
                spacing: headroom_workload::Spacing::Even,
            },
            duration_s: 300.0,
            cpu: Shape::Deterministic {},
            cpu_s: 5.0,
            ..loss_system(1, 1, 1.0)
        };
        let scenario = AcceptScenario { retries, ..scenario };
        let totals = run_alone(&scenario, 1);
        assert_eq!((totals.requests, totals.completed, totals.in_flight), (3, 3, 0));
        // The third, at 0.833 s, finds a place once the first is done, at 5.167 s.
        let tries = waits.iter().take_while(|wait| 0.833 + **wait < 5.167).count() + 1;
        assert_eq!(totals.drops as usize, tries, "{retries:?}");
    }
}

/// Of one server in the tests of clusters: fewer requests to simulate than the paper's 595.
const CAPACITY_PER_S: f64 = 150.0;

fn sinusoid(servers: f64, seconds: usize) -> ArrivalProcess {
    let rate = |at: usize| {
        let phase = at as f64 / seconds as f64 * std::f64::consts::TAU;
        CAPACITY_PER_S * servers * (0.55 - 0.43 * phase.cos())
    };
    ArrivalProcess::Series {
        rates_per_s: (0..seconds).map(rate).collect(),
        hold_s: 1.0,
        spacing: headroom_workload::Spacing::Poisson,
    }
}

/// Section 7.4 on the simulated server: I/O-bound, CPU and queue disagree, and the queue is right.
#[test]
fn an_io_bound_server_is_measured_by_its_queue_alone() {
    let scenario = AcceptScenario {
        arrivals: ArrivalProcess::Series {
            rates_per_s: (0..400).map(|at| 60.0 + f64::from(at) * 0.25).collect(),
            hold_s: 1.0,
            spacing: headroom_workload::Spacing::Poisson,
        },
        duration_s: 400.0,
        servers: 1,
        workers: 64,
        wait_s: 0.5,
        ..AcceptScenario::default()
    };
    // 64 workers, each occupied for a little more than half a second.
    let truth = 64.0 / (0.5 + 1.0 / 595.0);
    let (mut by_queue, mut by_cpu) = (Capacity::Unknown, 0.0);
    run(&scenario, &mut Bare(&mut AlwaysOn), 1, &mut |step| {
        let server = &step.servers[0];
        by_queue = server.capacity;
        by_cpu = server.queue.service_rate().get() / server.utilisation.get();
    })
    .unwrap();
    let Capacity::Exact(by_queue) = by_queue else {
        panic!("{by_queue:?}")
    };
    assert!(
        (by_queue.get() / truth - 1.0).abs() < 0.10,
        "{by_queue:?} against {truth}"
    );
    assert!(by_cpu > 3.0 * truth, "{by_cpu} against {truth}");
}

/// Section 7.5: all controllers on one compressed day. A schedule made of the very curve that comes, of a capacity known
/// exactly, is the best that a schedule can be; days are not so alike.
#[test]
fn every_controller_saves_energy_and_finer_schedules_save_more() {
    let day_s = 7_200;
    let scenario = AcceptScenario {
        arrivals: sinusoid(4.0, day_s),
        duration_s: day_s as f64,
        cpu_s: 1.0 / CAPACITY_PER_S,
        boot_s: 30.0,
        shutdown_s: 30.0,
        ..AcceptScenario::default()
    };
    let curve: Vec<PerSecond> = match &scenario.arrivals {
        ArrivalProcess::Series { rates_per_s, .. } => {
            rates_per_s.iter().copied().map(PerSecond::new).collect()
        }
        _ => unreachable!("a series, above"),
    };
    let always = run(&scenario, &mut Bare(&mut AlwaysOn), 1, &mut |_| {}).unwrap();
    let saved = |totals: &AcceptTotals| 1.0 - totals.energy.get() / always.energy.get();
    let capacity = PerSecond::new(CAPACITY_PER_S);
    let mut fixed = Stepwise::fixed(capacity, ResizeTuning::default()).unwrap();
    let mut dynamic = Stepwise::online(ResizeTuning::default()).unwrap();
    // The day is a twelfth as long, and so are its slots.
    let scheduled = |slot_s: f64| {
        let schedule =
            Schedule::of_curve(&curve, Seconds::new(1.0), Seconds::new(slot_s / 12.0), capacity).unwrap();
        Scheduled::new(schedule, Seconds::new(30.0)).unwrap()
    };
    let by_fixed = run(&scenario, &mut Bare(&mut fixed), 1, &mut |_| {}).unwrap();
    let by_dynamic = run(&scenario, &mut Bare(&mut dynamic), 1, &mut |_| {}).unwrap();
    let by_half_hours = run(&scenario, &mut Bare(&mut scheduled(1_800.0)), 1, &mut |_| {}).unwrap();
    let by_two_hours = run(&scenario, &mut Bare(&mut scheduled(7_200.0)), 1, &mut |_| {}).unwrap();
    for (name, totals) in [
        ("always on", &always),
        ("static", &by_fixed),
        ("dynamic", &by_dynamic),
        ("30 min", &by_half_hours),
        ("2 h", &by_two_hours),
    ] {
        println!(
            "{name}: {:.1} % saved, {:.4} % dropped, p99 {:.3} s, {} lost",
            saved(totals) * 100.0,
            totals.drops as f64 / totals.attempts as f64 * 100.0,
            totals.latency.percentile(Ratio::new(0.99)).unwrap().get(),
            totals.lost
        );
        assert_eq!(totals.lost, 0, "{name} stopped a server that had requests");
        let by_model = totals.modelled.consumed / totals.energy;
        assert!(
            (by_model - 1.0).abs() < 0.02,
            "{name}: {by_model} of what was drawn by model"
        );
    }
    for (name, totals) in [("static", &by_fixed), ("dynamic", &by_dynamic)] {
        assert!((0.2..0.6).contains(&saved(totals)), "{name}");
        assert!((totals.drops as f64) < 0.05 * totals.attempts as f64, "{name}");
        assert!(totals.abandoned == 0, "{name}: a client gave up");
    }
    assert!(saved(&by_half_hours) > saved(&by_two_hours) && saved(&by_two_hours) > 0.05);
}

/// Figure 12: slow starts cost energy or service, and states are what they should be.
#[test]
fn a_server_passes_through_its_states_and_draws_power_in_each() {
    let scenario = AcceptScenario {
        arrivals: ArrivalProcess::Series {
            rates_per_s: vec![100.0, 900.0, 900.0, 900.0, 100.0, 100.0, 100.0],
            hold_s: 100.0,
            spacing: headroom_workload::Spacing::Poisson,
        },
        duration_s: 700.0,
        servers: 2,
        ..AcceptScenario::default()
    };
    let mut resizer = Stepwise::fixed(PerSecond::new(595.0), ResizeTuning::default()).unwrap();
    let mut passed: Vec<(f64, PowerState)> = Vec::new();
    let mut energy_j = 0.0;
    let totals = run(&scenario, &mut Bare(&mut resizer), 1, &mut |step| {
        let server = &step.servers[1];
        energy_j += step.servers.iter().map(|one| one.energy.get()).sum::<f64>();
        if passed.last().is_none_or(|(_, state)| *state != server.state) {
            passed.push((step.at.get(), server.state));
        }
        let watts = server.energy.get();
        match server.state {
            PowerState::Off => assert_eq!(watts, 0.0),
            PowerState::Warming | PowerState::Serving => assert!((60.0..=65.0).contains(&watts)),
            _ => assert!(watts > 0.0),
        }
    })
    .unwrap();
    let states: Vec<&str> = passed.iter().map(|(_, state)| state.name()).collect();
    let expected = [
        "off", "booting", "warming", "serving", "draining", "stopping", "off",
    ];
    assert_eq!(states, expected, "{passed:?}");
    // A boot takes a minute, a warm-up ten seconds.
    assert!((passed[2].0 - passed[1].0 - 60.0).abs() < 1.5, "{passed:?}");
    assert!((passed[3].0 - passed[2].0 - 10.0).abs() < 1.5, "{passed:?}");
    assert!((totals.energy.get() - energy_j).abs() < 1e-6 * energy_j);
}

/// What the loop lacks costs servers, never service: the laws run in their stack, and what they decide is held as live.
#[test]
fn a_lost_balancer_keeps_servers_and_an_unread_queue_has_what_the_others_have() {
    let falls = |faults: Vec<AcceptFault>| AcceptScenario {
        arrivals: ArrivalProcess::Series {
            rates_per_s: vec![1_000.0, 1_000.0, 200.0, 200.0, 200.0, 200.0],
            hold_s: 100.0,
            spacing: headroom_workload::Spacing::Poisson,
        },
        duration_s: 600.0,
        servers: 3,
        serving: 3,
        faults,
        ..AcceptScenario::default()
    };
    let plant = Plant::of_servers(3);
    let observe = |faults: Vec<AcceptFault>| {
        let law = Stepwise::fixed(PerSecond::new(595.0), ResizeTuning::default()).unwrap();
        let mut stack = Stack::of(Box::new(law), plant, 5).unwrap();
        // Of each step: when, servers that take requests, the rule, the arrivals.
        let mut steps = Vec::new();
        let totals = run(&falls(faults), &mut stack, 1, &mut |step| {
            let taking = step.servers.iter().filter(|one| one.state.takes_requests());
            let rule = step.decision.reasons[0].rule.clone();
            steps.push((step.at.get(), taking.count(), rule));
        });
        (totals.unwrap(), steps)
    };
    let fewest = |steps: &[(f64, usize, _)], from_s: f64, until_s: f64| {
        let within = steps.iter().filter(|one| (from_s..until_s).contains(&one.0));
        within.map(|one| one.1).min().unwrap()
    };
    let (_, usual) = observe(Vec::new());
    assert_eq!((fewest(&usual, 0.0, 200.0), fewest(&usual, 300.0, 400.0)), (2, 1));
    let lost = AcceptFault::BalancerLost {
        at_s: 150.0,
        until_s: 400.0,
    };
    let (_, held) = observe(vec![lost]);
    assert_eq!((fewest(&held, 200.0, 400.0), fewest(&held, 500.0, 600.0)), (2, 1));
    assert!(held.iter().any(|one| one.2 == BALANCER_LOST));
    // By half of the attempts one server would do: the other half is taken for as much.
    let unread = |server| AcceptFault::QueueUnread {
        server,
        at_s: 100.0,
        until_s: 600.0,
    };
    let (totals, guessed) = observe(vec![unread(1)]);
    assert_eq!(
        (fewest(&guessed, 100.0, 200.0), fewest(&guessed, 300.0, 600.0)),
        (2, 1)
    );
    assert_eq!(totals.drops, 0);
    // The one that is left is the one that cannot be read: nothing is known, all come on, and two go again. A cycle takes
    // a boot and a shutdown, and never does a server come and go by the period.
    let (totals, blind) = observe(vec![unread(0)]);
    assert_eq!(blind.iter().map(|one| one.1).skip(200).max(), Some(3));
    let joined = blind.windows(2).filter(|two| two[1].1 > two[0].1).count();
    assert!(joined <= 2 * 3, "{joined} times a server joined in {blind:?}");
    assert_eq!(totals.drops, 0);
}

#[test]
fn a_run_is_its_seed_s() {
    let scenario = AcceptScenario {
        arrivals: sinusoid(1.5, 300),
        duration_s: 300.0,
        cpu_s: 1.0 / CAPACITY_PER_S,
        ..AcceptScenario::default()
    };
    let energy = |seed| {
        let mut resizer = Stepwise::online(ResizeTuning::default()).unwrap();
        let totals = run(&scenario, &mut Bare(&mut resizer), seed, &mut |_| {}).unwrap();
        (totals.energy, totals.attempts, totals.latency.sum_s())
    };
    assert_eq!(energy(5), energy(5));
    assert_ne!(energy(5), energy(6));
}

#[test]
fn a_run_that_would_not_end_is_ended() {
    let mut scenario = AcceptScenario::default();
    scenario.limits.events = 1_000;
    let error = run(&scenario, &mut Bare(&mut AlwaysOn), 1, &mut |_| {}).unwrap_err();
    assert!(matches!(error, RunError::TooManyEvents { .. }), "{error}");
    scenario.limits.events = 1_000_000;
    scenario.limits.in_flight = 100;
    scenario.arrivals = ArrivalProcess::Poisson { rate_per_s: 20_000.0 };
    let error = run(&scenario, &mut Bare(&mut AlwaysOn), 1, &mut |_| {}).unwrap_err();
    assert!(matches!(error, RunError::TooManyInFlight { .. }), "{error}");
}

/// What either kind of queue monitoring says of a server at the end, and the mean of what it said while it was exact.
fn estimates(kind: QueueKind, scenario: &AcceptScenario, rates_per_s: Vec<f64>) -> (Capacity, f64) {
    let scenario = AcceptScenario {
        duration_s: rates_per_s.len() as f64 / 10.0,
        arrivals: ArrivalProcess::Series {
            rates_per_s,
            hold_s: 0.1,
            spacing: headroom_workload::Spacing::Poisson,
        },
        servers: 1,
        queue: QueueTuning {
            kind,
            ..QueueTuning::default()
        },
        ..scenario.clone()
    };
    let (mut last, mut sum, mut count) = (Capacity::Unknown, 0.0, 0.0);
    run(&scenario, &mut Bare(&mut AlwaysOn), 1, &mut |step| {
        last = step.servers[0].capacity;
        if let Capacity::Exact(capacity) = last {
            sum += capacity.get();
            count += 1.0;
        }
    })
    .unwrap();
    (last, sum / count)
}

/// A ramp, a wave, bursts, and requests that wait: ours finds the capacity that is known here each time; the published
/// one not under bursts that are over within a step.
#[test]
fn our_monitoring_finds_a_known_capacity_under_every_load() {
    let cpu_bound = AcceptScenario {
        workers: 8,
        backlog: 64,
        cpu_s: 1.0 / 600.0,
        ..AcceptScenario::default()
    };
    let io_bound = AcceptScenario {
        workers: 64,
        wait_s: 0.5,
        ..AcceptScenario::default()
    };
    let io_capacity = 64.0 / (0.5 + 1.0 / 595.0);
    for (name, scenario, truth) in [
        ("CPU-bound", &cpu_bound, 600.0),
        ("I/O-bound", &io_bound, io_capacity),
    ] {
        let at = |share: &dyn Fn(f64) -> f64, seconds: u32| {
            (0..seconds * 10)
                .map(|tenth| truth * share(f64::from(tenth) / 10.0))
                .collect::<Vec<f64>>()
        };
        let loads = [
            ("ramp", at(&|at_s| 0.5 + at_s / 300.0, 200)),
            (
                "wave",
                at(
                    &|at_s| 0.65 - 0.5 * (at_s / 300.0 * std::f64::consts::TAU).cos(),
                    600,
                ),
            ),
            (
                "bursts",
                at(&|at_s| if at_s % 10.0 < 0.3 { 12.0 } else { 0.1 }, 300),
            ),
        ];
        for (load, rates) in loads {
            let (published, _) = estimates(QueueKind::Published, scenario, rates.clone());
            let (ours, mean) = estimates(QueueKind::BusyTime, scenario, rates);
            println!(
                "{name}, {load}: published {published:?}, ours {ours:?} and {mean:.1} on average, truth {truth:.1}"
            );
            let off = |capacity: Capacity| capacity.value().unwrap().get() / truth - 1.0;
            assert!(ours.met().is_some(), "{ours:?}");
            assert!(off(ours).abs() < 0.08, "{name}, {load}: {ours:?} against {truth}");
            assert!(
                (mean / truth - 1.0).abs() < 0.08,
                "{name}, {load}: {mean} against {truth}"
            );
            if (name, load) == ("CPU-bound", "bursts") {
                assert!(off(published) < -0.2, "{name}: {published:?} beside {ours:?}");
            }
        }
    }
}
