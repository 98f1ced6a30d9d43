//! What a comparison of the law `on-call` does to the clients of a server, and what it finds.

use super::*;
use headroom_control::Slo;
use headroom_control::law::Law;
use headroom_control::oncall::law::{OnCall, OncallTuning};
use headroom_control::plant::Plant;
use headroom_units::{Lever, LeverRange, Ratio, Seconds};

/// The target, and the shortest delay that is compared, milliseconds.
const TARGET_MS: f64 = 20.0;
const SHORTEST_MS: f64 = 0.6;
/// What two cores serve of queries of 0.1 ms, per second.
const MOST_PER_S: f64 = 20_000.0;

/// Two cores that serve queries of 0.1 ms of CPU in the mean, in a minute of periods of 0.25 s.
fn server(connections: u32, arrivals: QueryArrivals) -> ThreadsScenario {
    let default = plain(2, connections);
    ThreadsScenario {
        duration_s: 60.0,
        warm_up_s: 0.0,
        period_s: 0.25,
        arrivals,
        classes: vec![ClassFigures::with_tail("all", connections, 0.99, TARGET_MS)],
        query: QueryFigures {
            instructions: 1e5,
            ..default.query
        },
        gate: Some(GateFigures {
            linger_s: 0.0,
            ..GateFigures::default()
        }),
        break_even_s: SHORTEST_MS * 1e-3,
        machine: headroom_physics::MachineFigures::broadwell(2),
        ..default
    }
}

/// An open loop on 64 connections at this share of what the server can serve.
fn open(load: f64) -> ThreadsScenario {
    let rate_per_s = load * MOST_PER_S;
    server(64, QueryArrivals::Open { rate_per_s })
}

/// Clients that send their next query 0.1 ms after each answer.
fn closed(clients: u32) -> ThreadsScenario {
    server(clients, QueryArrivals::default())
}

fn plant() -> Plant {
    let range = LeverRange::new(1.0, 4096.0, 1.0).unwrap();
    Plant::of_servers(1)
        .with_range(Lever::Concurrency, range)
        .and_then(|plant| plant.with_range(Lever::QueryBatch, range))
        .and_then(|plant| plant.with_range(Lever::RoundDelay, LeverRange::between(0.0, 1.0)))
        .unwrap()
}

/// What the law did in a run.
struct Run {
    totals: ThreadsTotals,
    /// Queries over the target, of all, percent.
    late_percent: f64,
    /// The most of a period's P99s over the target.
    worst: f64,
    /// D at the end, milliseconds.
    delay_ms: f64,
    /// Periods in which settings were compared.
    compared: u32,
    /// The longest delay that was ever in force, milliseconds.
    longest_ms: f64,
}

/// What a law sees of latencies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sees {
    /// From when the client sent its query.
    All,
    /// None over the target, as live where queries wait at their clients for a connection: no server sees these waits.
    NoneLate,
}

fn run_with(scenario: &ThreadsScenario, tuning: OncallTuning, sees: Sees, seed: u64) -> Run {
    let slo = Slo::new(Ratio::new(0.99), Seconds::from_millis(TARGET_MS)).unwrap();
    let mut law = OnCall::new(slo, plant(), None, tuning).unwrap();
    let (mut worst, mut delay_ms, mut compared, mut longest_ms) = (0.0_f64, 0.0, 0, 0.0_f64);
    let totals = run(
        scenario,
        &mut |period| {
            let latency = period.traffic.as_ref().and_then(|traffic| traffic.latency);
            worst = worst.max(latency.map_or(0.0, |latency| latency.at_slo / slo.target()));
            let mut seen = period.clone();
            let latency = seen.traffic.as_mut().and_then(|traffic| traffic.latency.as_mut());
            if let Some(latency) = latency.filter(|_| sees == Sees::NoneLate) {
                latency.at_slo = latency.at_slo.min(slo.target() * 0.5);
            }
            let decision = law.decide(&seen);
            compared += u32::from(decision.reasons[0].rule == "oncall-compare");
            delay_ms = decision.setting.get(Lever::RoundDelay).unwrap_or(0.0) * 1e3;
            longest_ms = longest_ms.max(delay_ms);
            Some(decision)
        },
        seed,
    )
    .unwrap();
    Run {
        // `missed` is over the 1 % that the SLO allows.
        late_percent: totals.classes[0].missed.unwrap(),
        totals,
        worst,
        delay_ms,
        compared,
        longest_ms,
    }
}

fn compared(scenario: &ThreadsScenario, seed: u64) -> Run {
    compared_by(scenario, Sees::All, seed)
}

fn compared_by(scenario: &ThreadsScenario, sees: Sees, seed: u64) -> Run {
    let tuning = OncallTuning {
        break_even_ms: Some(SHORTEST_MS),
        ..OncallTuning::default()
    };
    run_with(scenario, tuning, sees, seed)
}

/// The same without delays.
fn undelayed(scenario: &ThreadsScenario, seed: u64) -> Run {
    let tuning = OncallTuning {
        max_delay_ms: 0.0,
        break_even_ms: Some(SHORTEST_MS),
        ..OncallTuning::default()
    };
    run_with(scenario, tuning, Sees::All, seed)
}

/// The load of a row, with its name.
fn loads() -> Vec<(&'static str, ThreadsScenario)> {
    let mut rows: Vec<(&str, ThreadsScenario)> = [
        ("10 %", 0.1),
        ("30 %", 0.3),
        ("43 %", 0.43),
        ("60 %", 0.6),
        ("80 %", 0.8),
    ]
    .map(|(name, load)| (name, open(load)))
    .into();
    rows.push(("2 clients that wait", closed(2)));
    rows.push(("8 clients that wait", closed(8)));
    rows.push(("10 %, then 70 %", stepped()));
    rows.push(("30 %, with slow disks", slow_disk()));
    rows.push(("30 %, with pauses", paused()));
    rows
}

/// 10 % of the load until 12 s, and 70 % from then on: in the midst of the comparison.
fn stepped() -> ThreadsScenario {
    ThreadsScenario {
        incidents: vec![Incident::Load {
            at_s: 12.0,
            scale: 7.0,
        }],
        ..open(0.1)
    }
}

/// One query in ten waits for a disk that takes 5 ms.
fn slow_disk() -> ThreadsScenario {
    let scenario = open(0.3);
    ThreadsScenario {
        disk: DiskFigures {
            probability: 0.1,
            accesses: 1,
            parallel: 8,
            service_s: 5e-3,
            ..scenario.disk
        },
        ..scenario
    }
}

/// Every seven seconds each connection sends eight queries at once, as a pause of the machine does.
fn paused() -> ThreadsScenario {
    ThreadsScenario {
        incidents: (0..8)
            .map(|number| Incident::Storm {
                at_s: 3.1 + 7.0 * f64::from(number),
                queries: 8,
            })
            .collect(),
        ..open(0.3)
    }
}

/// The table of docs/oncall.md: run as `cargo test -p headroom-sim --lib threads::tests::comparison::figures -- --ignored --nocapture`.
#[test]
#[ignore = "prints figures"]
fn figures() {
    for (name, scenario) in loads() {
        let runs: Vec<(Run, Run)> = (1..4)
            .map(|seed| (undelayed(&scenario, seed), compared(&scenario, seed)))
            .collect();
        let mean = |of: &dyn Fn(&(Run, Run)) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
        let blind = compared_by(&scenario, Sees::NoneLate, 1);
        let found: Vec<f64> = runs.iter().map(|(_, run)| run.delay_ms).collect();
        println!(
            "| {name} | {:.2} | {:.2} | {:.1} | {:.1} | {found:.1?} | {:.0} | {:.1} | {:.3} | {:.2} {:.1} {:.1} |",
            mean(&|(alone, _)| alone.late_percent),
            mean(&|(_, run)| run.late_percent),
            mean(&|(_, run)| run.worst),
            mean(&|(_, run)| run.longest_ms),
            mean(&|(_, run)| f64::from(run.compared)),
            mean(&|(alone, run)| (1.0 - run.totals.power() / alone.totals.power()) * 100.0),
            mean(&|(alone, run)| run.totals.throughput() / alone.totals.throughput()),
            blind.late_percent,
            blind.worst,
            blind.delay_ms,
        );
    }
}

/// While delays are compared hardly any query is over the target, at any load, and what pays is found.
#[test]
fn a_comparison_harms_no_client_and_finds_what_pays() {
    for seed in 1..3 {
        // At a tenth of the load a long delay saves a tenth of the power.
        let (alone, run) = (undelayed(&open(0.1), seed), compared(&open(0.1), seed));
        assert!(
            run.late_percent < 0.05 && run.delay_ms > 2.0,
            "{}",
            run.late_percent
        );
        assert!(run.totals.power() < alone.totals.power() * 0.93);
        near(run.totals.throughput(), alone.totals.throughput(), 0.01);
        for load in [0.3, 0.43, 0.6, 0.8] {
            let run = compared(&open(load), seed);
            assert!(
                run.late_percent < 0.1 && run.worst < 1.0,
                "{load}: {} {}",
                run.late_percent,
                run.worst
            );
        }
    }
}

/// Clients that ask again once they are answered are never made to wait for a delay, not even to see what it does.
#[test]
fn clients_that_wait_are_never_delayed() {
    for clients in [2, 8] {
        let run = compared(&closed(clients), 1);
        assert!(run.compared > 0);
        assert_eq!(run.longest_ms, 0.0, "{clients}");
    }
}

/// A load that steps up under a long delay, of which the server sees nothing but that all connections are taken: the turn ends, and what it
/// left is served within seconds.
#[test]
fn a_load_that_steps_up_ends_a_turn_also_where_latencies_do_not_show_it() {
    for sees in [Sees::All, Sees::NoneLate] {
        let run = compared_by(&stepped(), sees, 1);
        // Seven times the load on the same connections: before turns were cut the worst period's P99 was 36 times the target.
        assert!(run.worst < 15.0, "{sees:?}: {}", run.worst);
        assert!(run.late_percent < 5.0, "{sees:?}: {}", run.late_percent);
        assert_eq!(run.delay_ms, 0.0, "{sees:?}");
        assert!(run.longest_ms > 2.0, "{sees:?}");
    }
}

/// A pause of the machine is no fault of a delay.
#[test]
fn pauses_do_not_keep_a_delay_from_being_found() {
    let found = (1..4).filter(|seed| compared(&paused(), *seed).delay_ms > 0.0);
    assert!(found.count() >= 2);
}

/// From a load that steps up on, its queries come at the new rate, and who waits longest is told.
#[test]
fn a_load_steps_up_where_it_is_to() {
    let (mut before, mut after, mut oldest) = (0, 0, Seconds::ZERO);
    let scenario = ThreadsScenario {
        duration_s: 24.0,
        incidents: vec![Incident::Load {
            at_s: 12.0,
            scale: 12.0,
        }],
        ..open(0.1)
    };
    run(
        &scenario,
        &mut |period| {
            let arrivals = period.traffic.as_ref().map_or(0, |traffic| traffic.arrivals);
            match period.at.get() <= 12.0 {
                true => before += arrivals,
                false => after += arrivals,
            }
            let waits = period.oncall.as_ref().and_then(|oncall| oncall.oldest_waiting);
            oldest = waits.map_or(oldest, |waits| waits.max(oldest));
            None
        },
        1,
    )
    .unwrap();
    // The last periods of both are not told: 24,000 and 288,000.
    near(after as f64 / before as f64, 12.0, 0.06);
    // All 64 wait for a turn of eight queries each; what waits behind these waits at the client.
    assert!(oldest > Seconds::from_millis(15.0), "{oldest:?}");
}
