//! Machines that answer by size, against theory and against their own accounts. Every run is of a fixed seed, so that what passes once
//! passes always.

use headroom_physics::{RequestCost, ServerFigures, ServingKind, ServingMachine, StudiedService};
use headroom_sim::RunError;
use headroom_sim::scenario::Limits;
use headroom_sim::sizes::{Pausing, ProfileScenario, ProfileTotals, profile};
use headroom_units::{Ratio, Seconds, Watts};
use headroom_workload::Shape;

fn machine(cores: usize) -> ServingMachine {
    ServingMachine {
        name: "test".to_owned(),
        cores,
        link_bytes_per_s: 1e6,
        idle: Watts::new(20.0),
        busy: Watts::new(10.0),
        link: Watts::new(2.0),
        server: ServerFigures::default(),
    }
}

fn cost(cpu_s: f64, bytes: f64) -> RequestCost {
    RequestCost {
        cpu: Seconds::new(cpu_s),
        bytes,
    }
}

fn close(what: &str, got: f64, expected: f64, tolerance: f64) {
    let off = got / expected - 1.0;
    assert!(
        off.abs() <= tolerance,
        "{what}: {got} is {:.2} % off {expected}",
        off * 100.0
    );
}

fn run(scenario: &ProfileScenario) -> ProfileTotals {
    profile(scenario, 1).unwrap()
}

/// The throughput of a closed network of k cores and one link, each processor sharing: its product form (Baskett, Chandy, Muntz and
/// Palacios, J. ACM 1975) depends on the mean of each demand alone.
fn product_form(clients: u32, cores: usize, cpu_s: f64, link_s: f64) -> f64 {
    let (mut weights, mut at_cpu) = (Vec::new(), 1.0);
    for n in 0..=clients {
        if n > 0 {
            at_cpu *= cpu_s / f64::from(n).min(cores as f64);
        }
        weights.push(at_cpu * link_s.powi((clients - n) as i32));
    }
    let sum: f64 = weights.iter().sum();
    // The link is busy unless everybody is at the cores.
    (1.0 - weights[clients as usize] / sum) / link_s
}

#[test]
fn a_closed_loop_serves_what_the_product_form_says() {
    for (cores, clients, cpu_s, bytes) in [
        (1, 1, 0.010, 5_000.0),
        (1, 4, 0.010, 10_000.0),
        (4, 6, 0.040, 8_000.0),
        (2, 20, 0.030, 10_000.0),
    ] {
        for shape in [Shape::Exponential {}, Shape::Lognormal { scv: 2.0 }] {
            let scenario = ProfileScenario {
                cpu: shape,
                clients,
                windows: 400,
                ..ProfileScenario::of(machine(cores), cost(cpu_s, bytes), Ratio::new(1.0))
            };
            let got = run(&scenario).throughput.get();
            let expected = product_form(clients, cores, cpu_s, bytes / 1e6);
            close(&format!("{cores} cores, {clients} clients"), got, expected, 0.01);
        }
    }
}

/// The asymptotic bounds of operational analysis: X <= min(1/D_max, N/D), and from Little's law R >= N D_max.
#[test]
fn no_cell_of_the_paper_beats_the_asymptotic_bounds() {
    for kind in ServingKind::ALL {
        for service in StudiedService::ALL {
            for kb in service.sizes_kb() {
                let (machine, cost) = (kind.machine(), kind.cost(service).of(f64::from(kb) * 1024.0));
                let capacity = machine.capacity(cost).get();
                let scenario = ProfileScenario {
                    windows: 2,
                    window: Seconds::new(if kb == 999 { 20.0 } else { 1.0 }),
                    ..ProfileScenario::of(machine, cost, Ratio::new(1.0))
                };
                let cell = run(&scenario);
                let got = cell.throughput.get() / capacity;
                // A hundred clients fill the busiest resource; at the edges of what is measured one answer of each is in flight.
                assert!((0.93..1.03).contains(&got), "{kind:?} {service:?} {kb}: {got}");
                let (_, mean) = (cell.completed, cell.latency.mean().unwrap().get());
                close("Little's law", cell.throughput.get() * mean, 100.0, 0.05);
                assert!(cell.load.most() <= Ratio::new(1.0 + 1e-9));
            }
        }
    }
}

/// A hundred answers of 999 KB take the Arm longer than the whole quarter of a window: each client's first is outstanding at its end and
/// is waited for, so that the machine works for a larger share than the density says. A part of what the tables have at 999 KB and 25 %.
#[test]
fn large_answers_outstanding_keep_the_machine_busy_after_the_window() {
    let (arm, service) = (ServingKind::Arm, StudiedService::Memcached);
    let (machine, cost) = (arm.machine(), arm.cost(service).of(999.0 * 1024.0));
    let drain_s = 100.0 / machine.capacity(cost).get();
    let cell = run(&ProfileScenario::of(machine.clone(), cost, Ratio::new(0.25)));
    assert!(drain_s > 2.0 * 1.25, "{drain_s}");
    close("the cycle", cell.cycle.get(), drain_s + 3.75, 0.02);
    let busy = drain_s / (drain_s + 3.75);
    close("the link", cell.load.link.get(), busy, 0.02);
    // Clients that fall out of step are no longer a density of the machine: some of them always send.
    let alone = ProfileScenario {
        pausing: Pausing::Alone,
        windows: 40,
        ..ProfileScenario::of(machine.clone(), cost, Ratio::new(0.25))
    };
    let link = run(&alone).load.link.get();
    assert!(link > 0.8, "{link} {busy}");
    // A small answer leaves nothing to wait for.
    let small = arm.cost(service).of(1024.0);
    let cell = run(&ProfileScenario::of(machine, small, Ratio::new(0.25)));
    close("the cycle", cell.cycle.get(), 5.0, 0.01);
    close("the link", cell.load.link.get(), 0.25, 0.02);
}

/// One client that asks for answers of 0.4 s in half of each window of 2 s: two are served, and the third is dropped after 0.2 s. What it took
/// is lost, and the next window begins as if it had not been.
#[test]
fn answers_that_are_not_waited_for_are_dropped_with_what_they_took() {
    let scenario = ProfileScenario {
        cpu: Shape::Deterministic {},
        clients: 1,
        window: Seconds::new(2.0),
        pausing: Pausing::AtOnce,
        windows: 3,
        ..ProfileScenario::of(machine(1), cost(0.4, 1e-3), Ratio::new(0.5))
    };
    let cell = run(&scenario);
    assert_eq!((cell.completed, cell.dropped), (6, 4));
    close("the cycle", cell.cycle.get(), 2.0, 1e-9);
    close("the cores", cell.load.cpu.get(), 0.5, 1e-6);
    // Where nobody pauses nothing is dropped.
    let density = Ratio::new(1.0);
    assert_eq!(run(&ProfileScenario { density, ..scenario }).dropped, 0);
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_another() {
    let scenario = ProfileScenario::of(machine(2), cost(0.01, 1_000.0), Ratio::new(0.5));
    let figures = |seed| {
        let cell = profile(&scenario, seed).unwrap();
        (cell.completed, cell.energy, cell.latency)
    };
    assert_eq!(figures(1), figures(1));
    assert_ne!(figures(1), figures(2));
}

#[test]
fn what_is_no_cell_and_what_does_not_end_is_refused() {
    let good = ProfileScenario::of(machine(2), cost(0.01, 1_000.0), Ratio::new(0.5));
    let refused = |change: fn(&mut ProfileScenario)| {
        let mut bad = good.clone();
        change(&mut bad);
        profile(&bad, 1).unwrap_err().to_string()
    };
    for (change, said) in [
        (
            (|one| one.density = Ratio::ZERO) as fn(&mut ProfileScenario),
            "density: is 0",
        ),
        (|one| one.density = Ratio::new(1.5), "density: is 1.5"),
        (|one| one.clients = 0, "clients: is 0"),
        (|one| one.cost.bytes = f64::NAN, "cost.bytes: is NaN"),
        (|one| one.machine.cores = 0, "machine: cores"),
        (|one| one.windows = 0, "windows: is 0"),
    ] {
        let error = refused(change);
        assert!(error.starts_with(said), "{error}");
    }
    let limits = Limits {
        events: 100,
        ..Limits::default()
    };
    let endless = ProfileScenario { limits, ..good };
    assert!(matches!(
        profile(&endless, 1),
        Err(RunError::TooManyEvents { .. })
    ));
}
