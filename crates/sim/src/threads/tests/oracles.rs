//! Queueing theory: unit mean service is 1 ms here.

use super::*;

fn open(cores: usize, connections: u32, rate_per_s: f64) -> ThreadsScenario {
    ThreadsScenario {
        arrivals: QueryArrivals::Open { rate_per_s },
        ..plain(cores, connections)
    }
}

fn mean_ms(totals: &ThreadsTotals) -> f64 {
    totals.mean().as_millis()
}

/// One core and slices of 10 us: M/G/1 processor sharing, E[R] = E[S]/(1 - rho) whatever the distribution. There are so many
/// connections that hardly any has two queries at once.
#[test]
fn short_slices_on_one_core_are_processor_sharing() {
    let mut scenario = open(1, 5000, 800.0);
    scenario.kernel.slice_s = Some(1e-5);
    for (shape, tolerance) in [
        (Shape::Exponential {}, 0.05),
        (Shape::Deterministic {}, 0.05),
        (Shape::Hyperexponential { scv: 4.0 }, 0.1),
    ] {
        scenario.query.shape = shape;
        near(mean_ms(&alone(&scenario)), 5.0, tolerance);
    }
}

/// Slices longer than any query: M/M/1 first come, first served, mean 1/(mu - lambda), P99 of an exponential. The deterministic
/// one is Pollaczek-Khinchine's: 1 + rho / 2 (1 - rho).
#[test]
fn long_slices_on_one_core_are_a_queue() {
    let mut scenario = open(1, 5000, 800.0);
    scenario.kernel.slice_s = Some(10.0);
    let totals = alone(&scenario);
    near(mean_ms(&totals), 5.0, 0.05);
    near(totals.percentiles()[1].as_millis(), 5.0 * 100f64.ln(), 0.07);
    scenario.query.shape = Shape::Deterministic {};
    near(mean_ms(&alone(&scenario)), 3.0, 0.05);
}

/// Who wakes preempts, and who is preempted is next: last come, first served with preemption, whose mean is E[S]/(1 - rho) for
/// every distribution too.
#[test]
fn preemption_at_each_wake_up_is_a_stack() {
    let mut scenario = open(1, 5000, 800.0);
    scenario.kernel.slice_s = Some(10.0);
    scenario.kernel.preempt_after_s = Some(0.0);
    for shape in [Shape::Exponential {}, Shape::Deterministic {}] {
        scenario.query.shape = shape;
        near(mean_ms(&alone(&scenario)), 5.0, 0.05);
    }
}

/// M/M/4 at rho 0.8: 1 + C(4, 3.2) / (4 - 3.2) with Erlang C = 0.5964.
#[test]
fn four_cores_are_four_servers() {
    for policy in [
        KernelPolicy::FairPerCore,
        KernelPolicy::FairGlobal,
        KernelPolicy::Sol,
    ] {
        let mut scenario = open(4, 5000, 3200.0);
        scenario.duration_s = 120.0;
        scenario.kernel.policy = policy;
        near(mean_ms(&alone(&scenario)), 1.7455, 0.05);
    }
}

/// Three queries of 10 ms at one moment on one core, slices of 1 ms: in turns they end after 28, 29 and 30 ms; with SOL, who is
/// preempted is next, so that two share the core and the third waits: 19, 20 and 30 ms.
#[test]
fn a_slice_ends_in_the_order_of_its_policy() {
    for (policy, ends_ms) in [
        (KernelPolicy::FairPerCore, [28.0, 29.0, 30.0]),
        (KernelPolicy::FairGlobal, [28.0, 29.0, 30.0]),
        (KernelPolicy::Sol, [19.0, 20.0, 30.0]),
    ] {
        let mut scenario = plain(1, 3);
        (scenario.duration_s, scenario.warm_up_s) = (1.5, 0.0);
        scenario.arrivals = QueryArrivals::Closed {
            think_s: 1.0,
            think: Shape::Deterministic {},
        };
        scenario.query.instructions = 1e7;
        scenario.query.shape = Shape::Deterministic {};
        (scenario.kernel.policy, scenario.kernel.slice_s) = (policy, Some(0.001));
        let totals = alone(&scenario);
        let ended: Vec<f64> = totals
            .latency
            .buckets()
            .map(|(micros, count)| {
                assert_eq!(count, 1);
                (micros as f64 / 100.0).round() / 10.0
            })
            .collect();
        assert_eq!(ended, ends_ms, "{policy:?}");
    }
}

/// One slot: one query at a time. The mean is that of first come, first served, as no order knows the sizes.
#[test]
fn a_gate_with_one_slot_makes_four_cores_one_server() {
    let mut scenario = open(4, 5000, 800.0);
    scenario.gate = Some(free(1, 1));
    near(mean_ms(&alone(&scenario)), 5.0, 0.05);
}

/// The machine repairman: n clients who think for Z, one server. Throughput by exact mean value analysis.
#[test]
fn one_slot_in_a_closed_loop_is_the_machine_repairman() {
    let (clients, think_s) = (10, 0.008);
    let mut scenario = plain(4, clients);
    scenario.arrivals = QueryArrivals::Closed {
        think_s,
        think: Shape::Exponential {},
    };
    scenario.gate = Some(free(1, 1));
    let (mut queue, mut throughput, mut response_s) = (0.0, 0.0, 0.0);
    for count in 1..=clients {
        response_s = 0.001 * (1.0 + queue);
        throughput = f64::from(count) / (think_s + response_s);
        queue = throughput * response_s;
    }
    let totals = alone(&scenario);
    near(totals.throughput(), throughput, 0.02);
    near(totals.mean().get(), response_s, 0.03);
    // Little's law over the measured part; the run itself checks the identity of its sums.
    near(
        totals.mean_in_system,
        totals.throughput() * totals.mean().get(),
        1e-3,
    );
}

/// The disk alone, with cores to spare: M/M/2 at rho 0.75, mean 1/(1 - rho^2), for half of the queries.
#[test]
fn the_disk_is_a_queue_with_parallel_servers() {
    let mut scenario = open(8, 5000, 3000.0);
    scenario.duration_s = 120.0;
    scenario.query.instructions = 1e3;
    scenario.query.shape = Shape::Deterministic {};
    scenario.disk = DiskFigures {
        probability: 0.5,
        accesses: 1,
        parallel: 2,
        service_s: 0.001,
        ..scenario.disk
    };
    let totals = alone(&scenario);
    near(totals.disk_utilisation, 0.75, 0.02);
    near(mean_ms(&totals) - 0.001, 0.5 / (1.0 - 0.75 * 0.75), 0.05);
    near(totals.threads.disk * 5000.0, 1.5 / (1.0 - 0.75 * 0.75), 0.05);
}

/// One row, held from the first instruction to the last: a lock on many cores is one server.
#[test]
fn one_hot_row_is_one_server() {
    let mut scenario = open(8, 5000, 800.0);
    scenario.locks = LockFigures {
        probability: 1.0,
        rows: 1,
        queries: 1,
        from: 0.0,
        until: 1.0,
    };
    near(mean_ms(&alone(&scenario)), 5.0, 0.05);
}

/// Work is conserved: CPU time per query is its instructions by the rate, and with switches what they cost on top.
#[test]
fn cpu_time_is_work_and_switches() {
    let mut scenario = open(2, 500, 1000.0);
    let totals = alone(&scenario);
    near(totals.cpu_per_query().as_millis(), 1.0, 0.02);
    assert_eq!(totals.ipq, 1.0);
    scenario.kernel.switch_s = 1e-4;
    let totals = alone(&scenario);
    near(
        totals.cpu_per_query().as_millis(),
        1.0 + 0.1 * totals.switches_per_query(),
        0.02,
    );
    let energy = totals.energy;
    near(energy.work.get(), 4.0 * totals.busy.get(), 1e-9);
}

/// The same seed gives the same run, and another gate the same queries.
#[test]
fn a_seed_is_a_run() {
    let mut scenario = ThreadsScenario::mysql(100);
    (scenario.duration_s, scenario.warm_up_s) = (2.0, 0.2);
    scenario.locks.probability = 0.3;
    scenario.locks.queries = 3;
    scenario.gate = Some(GateFigures::default());
    let seeded = |seed| format!("{:?}", run(&scenario, &mut |_| None, seed).unwrap());
    assert!(seeded(7) == seeded(7) && seeded(7) != seeded(8));
}

/// A server that cannot keep up ends with an error, not with all memory.
#[test]
fn an_endless_backlog_is_refused() {
    let mut scenario = open(1, 10, 2000.0);
    scenario.limits.in_flight = 1000;
    let error = run(&scenario, &mut |_| None, 1).unwrap_err().to_string();
    assert!(error.starts_with("limits.in_flight: 1000 requests"), "{error}");
}
