//! What REEF reports and the probe on a real server measured, as orders.

use super::*;
use headroom_control::Decision;
use headroom_control::oncall::policy::Grant;
use headroom_units::{Lever, Setting};

fn short(mut scenario: ThreadsScenario) -> ThreadsScenario {
    (scenario.duration_s, scenario.warm_up_s) = (12.0, 2.0);
    scenario
}

/// 512 threads on a processor that they saturate: the gate keeps the tail and the instructions down.
#[test]
fn at_512_connections_the_gate_has_the_lower_tail() {
    let scenario = short(ThreadsScenario::mysql(512));
    let without = alone(&scenario);
    let gated = alone(&ThreadsScenario {
        gate: Some(GateFigures {
            tokens: 1,
            ..GateFigures::default()
        }),
        ..scenario
    });
    assert!(
        without.ipq > 4.0 && gated.ipq < 1.2,
        "{} {}",
        without.ipq,
        gated.ipq
    );
    assert!(gated.percentiles()[2] < without.percentiles()[2]);
    assert!(gated.ee_tail(0.999) > without.ee_tail(0.999));
}

/// A delay of 1.5 ms and more at half load makes idle periods long.
#[test]
fn a_delay_gives_more_c6_opportunity() {
    let mut scenario = short(ThreadsScenario::default());
    scenario.disk.probability = 0.0;
    scenario.machine = headroom_physics::MachineFigures::broadwell(4);
    // Four cores serve 16,800 queries of 0.24 ms per second.
    scenario.arrivals = QueryArrivals::Open { rate_per_s: 8400.0 };
    let with = |delay_s: f64| {
        alone(&ThreadsScenario {
            gate: Some(GateFigures {
                concurrency: 8,
                delay_s,
                ..GateFigures::default()
            }),
            ..scenario.clone()
        })
    };
    let (none, short, long) = (with(0.0), with(0.0015), with(0.003));
    for delayed in [&short, &long] {
        assert!(delayed.c6_opportunity() > 2.0 * none.c6_opportunity());
        assert!(delayed.long_idle_share() > 2.0 * none.long_idle_share());
        // It costs latency, and no throughput.
        assert!(delayed.mean() > none.mean());
        near(delayed.throughput(), none.throughput(), 0.02);
    }
    assert!(long.c6_residency() > none.c6_residency());
    assert!(long.energy.total() < none.energy.total());
}

/// Batches with lingering workers switch less and lose nothing.
#[test]
fn eight_tokens_with_linger_serve_as_much_as_one() {
    let scenario = short(ThreadsScenario::mysql(256));
    let with = |tokens| {
        alone(&ThreadsScenario {
            gate: Some(GateFigures {
                concurrency: 36,
                tokens,
                ..GateFigures::default()
            }),
            ..scenario.clone()
        })
    };
    let (one, eight) = (with(1), with(8));
    assert!(eight.throughput() >= one.throughput());
    assert!(eight.switches_per_query() < one.switches_per_query());
}

/// Transactions of four queries on one of few hot rows, one query per turn: a holder is parked between its queries. Workers that
/// keep their slots while they wait for its lock stop the server; workers that give them back do not.
#[test]
fn slots_kept_in_lock_waits_deadlock_the_server() {
    let mut scenario = short(ThreadsScenario::default());
    scenario.locks = LockFigures {
        probability: 1.0,
        rows: 5,
        queries: 4,
        ..scenario.locks
    };
    let with = |lock_gives_back| {
        alone(&ThreadsScenario {
            gate: Some(GateFigures {
                tokens: 1,
                lock_gives_back,
                ..GateFigures::default()
            }),
            ..scenario.clone()
        })
    };
    let (kept, given) = (with(false), with(true));
    assert_eq!(kept.queries, 0);
    assert!(
        given.throughput() > 1000.0 && given.lock_waits > 0,
        "{}",
        given.throughput()
    );
}

/// C and N, and what each connection may do.
fn decided(concurrency: f64, tokens: f64, grants: Vec<Grant>) -> Decision {
    let setting = Setting::default()
        .with(Lever::Concurrency, Some(concurrency))
        .with(Lever::QueryBatch, Some(tokens));
    Decision {
        grants,
        ..Decision::of(setting)
    }
}

/// A law is given what happened, and what it decides is in force from then on.
#[test]
fn a_law_changes_the_gate_while_it_works() {
    let mut scenario = short(ThreadsScenario::mysql(64));
    scenario.warm_up_s = 0.0;
    scenario.gate = Some(free(1, 1));
    let (mut first, mut last, mut queries, mut energy_j) = (0.0, 0.0, 0, 0.0);
    let totals = run(
        &scenario,
        &mut |period| {
            let oncall = period.oncall.as_ref().unwrap();
            let throughput = oncall.queries as f64 / period.length.get();
            if period.at.get() < 1.0 {
                first = throughput;
            }
            last = throughput;
            queries += oncall.each.iter().map(|each| each.queries).sum::<u64>();
            energy_j += period.power.unwrap().value.get() * period.length.get();
            if period.at.get() > 1.5 {
                assert_eq!(period.in_force.get(Lever::Concurrency), Some(24.0));
                assert_eq!((oncall.each[0].tokens, oncall.each[1].tokens), (0, 1));
                assert!(oncall.waiting_least > Some(0) && oncall.running <= 24 + 64);
            }
            // The first connection has no turn any more.
            let none = Grant {
                id: 0,
                tokens: 0,
                share: 1.0,
                again: true,
                yields: false,
                retry: headroom_units::Seconds::ZERO,
            };
            (period.at.get() >= 1.0).then(|| decided(24.0, 1.0, vec![none]))
        },
        1,
    )
    .unwrap();
    assert!(last > 10.0 * first && first > 0.0, "{first} {last}");
    assert!(
        totals.queries - queries < 2000,
        "all but those after the last period"
    );
    near(energy_j, totals.power().get() * totals.length_s, 0.02);
    for (decision, said) in [
        (decided(0.0, 1.0, Vec::new()), "decision.concurrency: is 0"),
        (
            Decision::of(Setting::default().with(Lever::Frequency, Some(1.0))),
            "decision.frequency: is 1",
        ),
    ] {
        let wrong = run(&scenario, &mut |_| Some(decision.clone()), 1).unwrap_err();
        assert!(wrong.to_string().starts_with(said), "{wrong}");
    }
    // Without C everybody runs: no gate is in the way.
    let off = run(&scenario, &mut |_| Some(Decision::default()), 1).unwrap();
    let none = alone(&ThreadsScenario {
        gate: None,
        ..scenario.clone()
    });
    near(off.throughput(), none.throughput(), 0.02);
    // A law that decides, where there is no gate.
    let ungated = ThreadsScenario {
        gate: None,
        ..scenario
    };
    let wrong = run(&ungated, &mut |_| Some(decided(1.0, 1.0, Vec::new())), 1).unwrap_err();
    assert!(
        wrong.to_string().starts_with("decision.concurrency: is decided"),
        "{wrong}"
    );
}

/// Half the frequency takes twice the time for CPU work, and less power.
#[test]
fn a_lower_frequency_takes_longer_and_draws_less() {
    let mut scenario = plain(2, 10);
    (scenario.duration_s, scenario.warm_up_s) = (20.0, 2.0);
    let with = |ghz: f64| {
        let setting = Setting::default().with(Lever::Frequency, Some(ghz * 1e9));
        run(&scenario, &mut |_| Some(Decision::of(setting)), 1).unwrap()
    };
    let (low, high) = (with(1.05), with(2.1));
    near(low.throughput() * 2.0, high.throughput(), 0.02);
    near(low.energy.work.get() / low.busy.get(), 1.33, 0.05);
    assert!(low.power() < high.power());
}

/// REEF's figures of the gate: threads sleep instead of crowding the processor (Figure 4a).
#[test]
fn the_gate_turns_runnable_threads_into_sleeping_ones() {
    let scenario = short(ThreadsScenario::mysql(256));
    let without = alone(&scenario);
    let gated = alone(&ThreadsScenario {
        gate: Some(GateFigures::default()),
        ..scenario
    });
    assert!(without.threads.runnable > 0.5 && gated.threads.runnable < 0.1);
    for totals in [&without, &gated] {
        let shares = totals.threads;
        near(shares.runnable + shares.sleeping + shares.disk, 1.0, 1e-9);
    }
}

/// A table of runs for a reader: `cargo test -p headroom-sim --lib threads::tests::orders::figures -- --ignored --nocapture`.
#[test]
#[ignore = "prints figures"]
fn figures() {
    for mysql in [true, false] {
        for connections in [64, 256, 512] {
            let scenario = match mysql {
                true => ThreadsScenario::mysql(connections),
                false => ThreadsScenario {
                    connections,
                    ..ThreadsScenario::default()
                },
            };
            let gate = |tokens, disk_gives_back| {
                Some(GateFigures {
                    concurrency: 36,
                    tokens,
                    disk_gives_back,
                    ..GateFigures::default()
                })
            };
            for (name, gate) in [
                ("none", None),
                ("C36 N1", gate(1, true)),
                ("C36 N8", gate(8, true)),
                ("C36 N8 keeps in disk waits", gate(8, false)),
            ] {
                let totals = alone(&ThreadsScenario {
                    gate,
                    ..scenario.clone()
                });
                let [p50, p99, p999] = totals.percentiles().map(|value| value.as_millis());
                println!(
                    "mysql {mysql} {connections} {name}: {:.0}/s mean {:.2} p50 {p50:.2} p99 {p99:.2} p99.9 {p999:.2} ms, cpu {:.3} ms, \
                     ipq {:.2}, switches {:.2}, R/S/D {:.3}/{:.3}/{:.3}, {:.1} W, C6 {:.3}, opportunity {:.3}, EE {:.1} {:.1} {:.1}",
                    totals.throughput(),
                    totals.mean().as_millis(),
                    totals.cpu_per_query().as_millis(),
                    totals.ipq,
                    totals.switches_per_query(),
                    totals.threads.runnable,
                    totals.threads.sleeping,
                    totals.threads.disk,
                    totals.power().get(),
                    totals.c6_residency(),
                    totals.c6_opportunity(),
                    totals.ee_tpp(),
                    totals.ee_tail(0.99),
                    totals.ee_tail(0.999),
                );
            }
        }
    }
}

/// The cost and the gain of D: run as above with `delays`.
#[test]
#[ignore = "prints figures"]
fn delays() {
    for (name, arrivals) in [
        ("half load", QueryArrivals::Open { rate_per_s: 12500.0 }),
        ("full load", QueryArrivals::default()),
    ] {
        for delay_s in [0.0, 0.001, 0.0015, 0.002, 0.003] {
            let totals = alone(&ThreadsScenario {
                arrivals: arrivals.clone(),
                gate: Some(GateFigures {
                    concurrency: 36,
                    delay_s,
                    ..GateFigures::default()
                }),
                ..ThreadsScenario::default()
            });
            let [p50, p99, p999] = totals.percentiles().map(|value| value.as_millis());
            println!(
                "{name} D {delay_s}: {:.0}/s p50 {p50:.2} p99 {p99:.2} p99.9 {p999:.2} ms, {:.1} W, C6 {:.3}, opportunity {:.3}, \
                 long idle {:.3}, EE {:.1} {:.1} {:.1}",
                totals.throughput(),
                totals.power().get(),
                totals.c6_residency(),
                totals.c6_opportunity(),
                totals.long_idle_share(),
                totals.ee_tpp(),
                totals.ee_tail(0.99),
                totals.ee_tail(0.999),
            );
        }
    }
}
