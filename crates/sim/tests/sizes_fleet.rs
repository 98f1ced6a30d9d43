//! A fleet that answers by size, against theory and against its own accounts. Every run is of a fixed seed, so that what passes once
//! passes always.

use headroom_control::placement::Routes;
use headroom_control::{Decision, Observation, Slo};
use headroom_physics::serving::StudiedCost;
use headroom_physics::{ServerFigures, ServiceCost, ServingKind, ServingMachine, StudiedService};
use headroom_sim::Controller;
use headroom_sim::scenario::Limits;
use headroom_sim::sizes::fleet::{FleetMachine, FleetScenario, FleetTotals, RouteGroup, Routing, run};
use headroom_units::{Joules, Lever, Ratio, Seconds, Setting, Watts};
use headroom_workload::{ArrivalProcess, Shape};

/// A law that decides the same always.
#[derive(Clone, Default)]
struct Always {
    routes: Option<Routes>,
    servers: Option<f64>,
}

impl Controller for Always {
    fn decide(&mut self, _: &Observation) -> Decision {
        Decision {
            routes: self.routes.clone(),
            ..Decision::of(Setting::default().with(Lever::Servers, self.servers))
        }
    }
}

fn machine(cores: usize, cpu_s: f64, link_bytes_per_s: f64) -> FleetMachine {
    FleetMachine {
        machine: ServingMachine {
            name: "test".to_owned(),
            cores,
            link_bytes_per_s,
            idle: Watts::new(20.0),
            busy: Watts::new(10.0),
            link: Watts::new(2.0),
            server: ServerFigures::default(),
        },
        cost: StudiedCost {
            base: ServiceCost {
                per_request: Seconds::new(cpu_s),
                per_byte: Seconds::ZERO,
                head_bytes: 0.0,
                bytes_per_byte: 1.0,
            },
            long: None,
        },
    }
}

fn of_kind(kind: ServingKind, service: StudiedService) -> FleetMachine {
    FleetMachine {
        machine: kind.machine(),
        cost: kind.cost(service),
    }
}

fn group(name: &str, mean_bytes: f64, rate_per_s: f64) -> RouteGroup {
    RouteGroup {
        name: name.to_owned(),
        routes: 20,
        mean_bytes,
        bytes: Shape::Deterministic {},
        grow: 1.0,
        arrivals: ArrivalProcess::Poisson { rate_per_s },
    }
}

fn fleet(machines: Vec<FleetMachine>, groups: Vec<RouteGroup>, duration_s: f64) -> FleetScenario {
    FleetScenario {
        serving: machines.len(),
        machines,
        plan: None,
        lost: Vec::new(),
        groups,
        bounds_bytes: vec![4_096, 65_536],
        routing: Routing::LeastConnections,
        cpu: Shape::Exponential {},
        period_s: 1.0,
        duration_s,
        slo: Slo::new(Ratio::new(0.95), Seconds::new(0.25)).unwrap(),
        power_states: headroom_control::resize::PowerTuning::default(),
        limits: Limits::default(),
    }
}

fn run_with(scenario: &FleetScenario, law: &Always) -> FleetTotals {
    run(scenario, &mut law.clone(), 1, &mut |_| {}).unwrap()
}

fn close(what: &str, got: f64, expected: f64, tolerance: f64) {
    let off = got / expected - 1.0;
    assert!(
        off.abs() <= tolerance,
        "{what}: {got} is {:.2} % off {expected}",
        off * 100.0
    );
}

fn mean(totals: &FleetTotals) -> f64 {
    totals.latency.mean().unwrap().get()
}

/// Mean time at k processor-sharing cores: 1/mu + C(k, a)/(k mu - lambda), with Erlang's C.
fn at_cores(cores: usize, cpu_s: f64, rate: f64) -> f64 {
    let load = rate * cpu_s;
    let (mut term, mut sum) = (1.0, 0.0);
    for n in 0..cores {
        sum += term;
        term *= load / (n + 1) as f64;
    }
    let last = term / (1.0 - load / cores as f64);
    cpu_s + last / (sum + last) / (cores as f64 / cpu_s - rate)
}

/// M/G/1-PS: E[S] / (1 - rho), whatever the distribution.
#[test]
fn the_link_is_an_m_g_1_ps_queue() {
    for bytes in [Shape::Deterministic {}, Shape::Lognormal { scv: 4.0 }] {
        let transfers = RouteGroup {
            bytes,
            ..group("all", 10_000.0, 70.0)
        };
        let totals = run_with(
            &fleet(vec![machine(64, 1e-7, 1e6)], vec![transfers], 10_000.0),
            &Always::default(),
        );
        close("the mean", mean(&totals), 0.010 / (1.0 - 0.7), 0.03);
    }
}

#[test]
fn the_cores_are_an_m_m_k_ps_queue() {
    let scenario = fleet(
        vec![machine(4, 0.040, 1e12)],
        vec![group("all", 10.0, 80.0)],
        10_000.0,
    );
    close(
        "the mean",
        mean(&run_with(&scenario, &Always::default())),
        at_cores(4, 0.040, 80.0),
        0.03,
    );
}

/// What leaves the cores is a Poisson process again (they are quasi-reversible), so the times add up.
#[test]
fn a_request_takes_the_time_of_cores_and_of_link() {
    let scenario = fleet(
        vec![machine(2, 0.015, 1e6)],
        vec![group("all", 6_000.0, 100.0)],
        10_000.0,
    );
    let expected = at_cores(2, 0.015, 100.0) + 0.006 / (1.0 - 0.6);
    let totals = run_with(&scenario, &Always::default());
    close("the mean", mean(&totals), expected, 0.03);
    // 0.75 of the cores, 0.6 of the link.
    let energy = totals.energy();
    close("work", energy.work.get(), 10.0 * 0.75 * 10_000.0, 0.01);
    close("link", energy.link.get(), 2.0 * 0.6 * 10_000.0, 0.01);
    assert_eq!((energy.off, energy.switching), (Joules::ZERO, Joules::ZERO));
    close("idle", energy.idle.get(), 20.0 * 10_000.0, 1e-9);
}

#[test]
fn a_law_s_routes_are_followed_once_sizes_are_known() {
    let machines = vec![machine(4, 0.001, 1e7), machine(4, 0.001, 1e7)];
    let groups = vec![group("small", 1_000.0, 50.0), group("large", 100_000.0, 20.0)];
    let scenario = FleetScenario {
        routing: Routing::ByLaw,
        ..fleet(machines, groups, 200.0)
    };
    // Small to the first, large to both as 1 to 3; nothing is of the class between.
    let law = Always {
        routes: Some(Routes {
            weights: vec![vec![1, 0], vec![0, 0], vec![1, 3]],
            ..Routes::default()
        }),
        servers: None,
    };
    let mut unknown = 0;
    let mut told = 0;
    let totals = run(&scenario, &mut law.clone(), 1, &mut |step| {
        let sizes = step.observation.sizes.as_ref().unwrap();
        assert_eq!((sizes.classes.len(), sizes.backends.len()), (4, 2));
        assert!(sizes.backends.iter().all(|one| one.in_service));
        unknown += sizes.classes[3].arrivals;
        told += sizes.classes.iter().map(|class| class.arrivals).sum::<u64>();
        let at_machines: u64 = sizes
            .classes
            .iter()
            .flat_map(|class| &class.backends)
            .map(|one| one.arrivals)
            .sum();
        assert_eq!(
            at_machines,
            sizes.classes.iter().map(|class| class.arrivals).sum::<u64>()
        );
    })
    .unwrap();
    assert_eq!(told, totals.requests);
    // Each of forty routes is unknown until its first answer.
    assert!((40..120).contains(&unknown), "{unknown}");
    let share = |group: usize, machine: usize| {
        totals.groups[group].machines[machine] as f64 / totals.groups[group].completed as f64
    };
    assert!(share(0, 0) > 0.99, "{}", share(0, 0));
    close("large at the second", share(1, 1), 0.75, 0.03);
    // A law that says nothing, and one that takes the lever back, route by the fewest requests.
    let none = run_with(&scenario, &Always::default());
    let even = none.groups[0].machines[0] as f64 / none.groups[0].completed as f64;
    close("small at the first", even, 0.5, 0.1);
}

#[test]
fn the_same_requests_come_whatever_is_decided_and_a_seed_is_a_run() {
    let machines = || {
        vec![
            of_kind(ServingKind::Atom, StudiedService::Apache),
            of_kind(ServingKind::Arm, StudiedService::Apache),
        ]
    };
    let of = |routing| FleetScenario {
        routing,
        ..fleet(
            machines(),
            vec![group("small", 1_024.0, 500.0), group("large", 102_400.0, 50.0)],
            60.0,
        )
    };
    let by = |routing| run_with(&of(routing), &Always::default());
    let (turns, fewest) = (by(Routing::RoundRobin), by(Routing::LeastConnections));
    assert_eq!(turns.requests, fewest.requests);
    assert_ne!(turns.latency, fewest.latency);
    assert_eq!(by(Routing::RoundRobin).latency, turns.latency);
    assert_eq!(by(Routing::RoundRobin).energy(), turns.energy());
    assert_eq!(turns.completed + turns.in_flight, turns.requests);
}

/// Two of the three machines are switched off at once: each drains, shuts down, and draws what one that is off draws from then on.
#[test]
fn machines_that_are_switched_off_draw_what_their_figures_say() {
    let scenario = fleet(
        vec![machine(2, 0.01, 1e6); 3],
        vec![group("all", 1_000.0, 20.0)],
        600.0,
    );
    let one = Always {
        servers: Some(1.0),
        ..Always::default()
    };
    let (all, few) = (run_with(&scenario, &Always::default()), run_with(&scenario, &one));
    assert_eq!((few.lost, few.refused), (0, 0));
    let server = ServerFigures::default();
    for machine in &few.machines[1..] {
        let shut = server.shutting_down * server.shutdown;
        assert_eq!(machine.energy.switching, shut);
        let off_s = 600.0 - machine.on.get() - server.shutdown.get();
        close("off", machine.energy.off.get(), server.off.get() * off_s, 1e-9);
        assert!(machine.on < Seconds::new(60.0), "{:?}", machine.on);
    }
    assert!(few.energy().total() < all.energy().total());
    // One that comes takes a boot's time and energy.
    let coming = FleetScenario {
        serving: 1,
        ..scenario
    };
    let totals = run_with(&coming, &Always::default());
    for machine in &totals.machines[1..] {
        assert_eq!(machine.energy.switching, server.booting * server.boot);
        assert!(machine.completed > 0);
    }
}

/// A service that four Arms can serve does not need a Xeon that idles beside them: where a saving of placement comes from.
#[test]
fn what_small_machines_can_serve_costs_less_without_the_large_one() {
    let mut machines = vec![of_kind(ServingKind::Arm, StudiedService::Memcached); 4];
    machines.push(of_kind(ServingKind::Xeon, StudiedService::Memcached));
    let groups = vec![group("small", 1_024.0, 4_000.0), group("large", 102_400.0, 100.0)];
    let mut scenario = fleet(machines, groups, 120.0);
    let least = run_with(&scenario, &Always::default());
    scenario.routing = Routing::RoundRobin;
    let turns = run_with(&scenario, &Always::default());
    scenario.routing = Routing::ByLaw;
    let placed = run_with(
        &scenario,
        &Always {
            servers: Some(4.0),
            ..Always::default()
        },
    );
    let slo = Seconds::new(0.25);
    for totals in [&least, &turns, &placed] {
        assert!(totals.latency.percentile(Ratio::new(0.95)).unwrap() < slo);
    }
    let saved =
        1.0 - placed.energy().total().get() / least.energy().total().get().min(turns.energy().total().get());
    assert!(saved > 0.3, "{saved}");
    assert_eq!(placed.completed + placed.in_flight, placed.requests);
}

#[test]
fn what_is_no_fleet_is_refused_by_key() {
    let good = fleet(vec![machine(1, 0.01, 1e6)], vec![group("all", 10.0, 1.0)], 10.0);
    let refused = |change: fn(&mut FleetScenario)| {
        let mut bad = good.clone();
        change(&mut bad);
        run(&bad, &mut Always::default(), 1, &mut |_| {})
            .unwrap_err()
            .to_string()
    };
    for (change, said) in [
        (
            (|one| one.machines.clear()) as fn(&mut FleetScenario),
            "machines: is 0",
        ),
        (|one| one.serving = 2, "serving: is 2"),
        (|one| one.groups.clear(), "groups: is 0"),
        (|one| one.groups[0].mean_bytes = 0.0, "groups.0.mean_bytes: is 0"),
        (|one| one.bounds_bytes = vec![5, 5], "bounds_bytes: must rise"),
        (
            |one| {
                one.groups[0].arrivals = ArrivalProcess::Sessions {
                    users: 1,
                    think_s: 1.0,
                    think: Shape::Exponential {},
                }
            },
            "groups.0.arrivals: is a closed loop",
        ),
        (
            |one| one.machines[0].cost.base.per_request = Seconds::ZERO,
            "machines.0.cost.cpu: is 0",
        ),
    ] {
        let error = refused(change);
        assert!(error.starts_with(said), "{error}");
    }
    let overloaded = FleetScenario {
        groups: vec![group("all", 10.0, 1_000.0)],
        limits: Limits {
            in_flight: 50,
            ..Limits::default()
        },
        ..good
    };
    let error = run(&overloaded, &mut Always::default(), 1, &mut |_| {}).unwrap_err();
    assert!(
        error.to_string().contains("50 requests were in the system"),
        "{error}"
    );
}
