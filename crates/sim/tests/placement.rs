//! The law of placement in worlds that it was not tuned on, beside least connections under the same requests: the SLO is kept as well, and
//! the routes do not flap. Every run is of a fixed seed, so that what passes once passes always.

use headroom_control::placement::{KindFigures, Placement, PlacementTuning};
use headroom_control::stack::{Part, Stack};
use headroom_control::{Decision, Observation, Plant, Slo};
use headroom_physics::{ServingKind, StudiedService};
use headroom_sim::Controller;
use headroom_sim::scenario::Limits;
use headroom_sim::sizes::fleet::{
    FleetMachine, FleetScenario, FleetStep, FleetTotals, Lost, RouteGroup, Routing, SwitchPlan, run,
};
use headroom_units::{Lever, LeverRange, Ratio, Seconds};
use headroom_workload::arrivals::Spacing;
use headroom_workload::{ArrivalProcess, Shape};

const TARGET_MS: f64 = 20.0;
/// Periods of a second.
const PERIODS: usize = 240;
/// By how many more periods the law may be late than least connections is, as a share of them: what it takes to notice that its figures, or
/// what comes in, are no longer what they were.
const MARGIN: f64 = 0.02;

const FLEET: [ServingKind; 7] = {
    use ServingKind::{Arm, Atom, Xeon};
    [Arm, Arm, Arm, Arm, Xeon, Atom, Atom]
};

fn slo() -> Slo {
    Slo::new(Ratio::new(0.95), Seconds::from_millis(TARGET_MS)).unwrap()
}

fn tuning() -> PlacementTuning {
    let url = |(at, kind): (usize, ServingKind)| (format!("{}-{at}", kind.name()), kind.name().to_owned());
    let figures = |kind: ServingKind| {
        let figures = KindFigures::of(&kind.machine(), &kind.cost(StudiedService::Apache).base);
        (kind.name().to_owned(), figures)
    };
    PlacementTuning {
        machines: FLEET.into_iter().enumerate().map(url).collect(),
        kinds: ServingKind::ALL.into_iter().map(figures).collect(),
        path_ms: 0.0,
        ..PlacementTuning::default()
    }
}

fn group(kb: f64, rates_per_s: &[f64]) -> RouteGroup {
    RouteGroup {
        name: format!("{kb} KB"),
        routes: 50,
        mean_bytes: kb * 1024.0,
        bytes: Shape::Lognormal { scv: 0.05 },
        grow: 1.0,
        arrivals: ArrivalProcess::Series {
            rates_per_s: rates_per_s.to_vec(),
            hold_s: PERIODS as f64 / rates_per_s.len() as f64,
            spacing: Spacing::Poisson,
        },
    }
}

/// 1, 10 and 100 KB at these rates.
fn world(rates: [&[f64]; 3]) -> FleetScenario {
    let groups = [1.0, 10.0, 100.0].into_iter().zip(rates);
    let machine = |kind: ServingKind| FleetMachine {
        machine: kind.machine(),
        cost: kind.cost(StudiedService::Apache),
    };
    FleetScenario {
        machines: FLEET.into_iter().map(machine).collect(),
        serving: FLEET.len(),
        plan: None,
        lost: Vec::new(),
        groups: groups.map(|(kb, rates)| group(kb, rates)).collect(),
        bounds_bytes: vec![4 * 1024, 32 * 1024],
        routing: Routing::ByLaw,
        cpu: Shape::Exponential {},
        period_s: 1.0,
        duration_s: PERIODS as f64,
        slo: slo(),
        power_states: headroom_control::resize::PowerTuning::default(),
        limits: Limits {
            in_flight: 300_000,
            ..Limits::default()
        },
    }
}

/// A quarter of what the fleet bears.
fn moderate() -> FleetScenario {
    world([&[6_000.0], &[1_000.0], &[400.0]])
}

/// The law as it runs, behind its guardian; blind in some periods.
struct Under {
    stack: Stack,
    blind: fn(u64) -> bool,
}

impl Controller for Under {
    fn decide(&mut self, observation: &Observation) -> Decision {
        if (self.blind)(observation.period) {
            let blind = Observation {
                traffic: None,
                sizes: None,
                demand: None,
                ..observation.clone()
            };
            return self.stack.decide(&blind);
        }
        self.stack.decide(observation)
    }
}

struct LeastConnections;

impl Controller for LeastConnections {
    fn decide(&mut self, _: &Observation) -> Decision {
        Decision::default()
    }
}

/// What a run comes to.
struct Run {
    totals: FleetTotals,
    /// Periods late of all requests and of each size.
    late: [u64; 4],
    /// Periods in which routes changed, and in which a law's routes were in force.
    changes: u64,
    placed: u64,
}

impl Run {
    /// What the requests drew, J.
    fn served_j(&self) -> f64 {
        let energy = self.totals.energy();
        (energy.work + energy.link).get()
    }
}

fn run_with(scenario: &FleetScenario, law: &mut dyn Controller) -> Run {
    let (mut late, mut changes, mut placed) = ([0; 4], 0, 0);
    let mut weights: Option<Vec<Vec<u32>>> = None;
    let mut sink = |step: &FleetStep<'_>| {
        let missed = |latency: Option<headroom_control::Latency>| {
            u64::from(latency.is_some_and(|one| one.missed || one.at_slo > slo().target()))
        };
        late[0] += missed(
            step.observation
                .traffic
                .as_ref()
                .and_then(|traffic| traffic.latency),
        );
        let classes = step.observation.sizes.iter().flat_map(|sizes| &sizes.classes);
        for (late, class) in late[1..].iter_mut().zip(classes) {
            *late += missed(class.latency);
        }
        // Bounds follow the load in every period.
        let decided = step.decision.routes.as_ref().map(|routes| routes.weights.clone());
        changes += u64::from(weights != decided);
        placed += u64::from(decided.is_some());
        weights = decided;
    };
    let totals = run(scenario, law, 1, &mut sink).unwrap();
    Run {
        totals,
        late,
        changes,
        placed,
    }
}

/// The law and least connections under the same requests.
fn both(scenario: &FleetScenario, tuning: PlacementTuning, blind: fn(u64) -> bool) -> [Run; 2] {
    let plant = Plant::of_servers(FLEET.len())
        .with_range(Lever::Placement, LeverRange::between(0.0, 1.0))
        .unwrap();
    let law = Placement::new(slo(), &plant, tuning).unwrap();
    let stack = Stack::new(vec![Part::new(Box::new(law))], plant, 5).unwrap();
    let least = FleetScenario {
        routing: Routing::LeastConnections,
        ..scenario.clone()
    };
    [
        run_with(scenario, &mut Under { stack, blind }),
        run_with(&least, &mut LeastConnections),
    ]
}

/// The law keeps the SLO as well as least connections, of all requests and of each size, and its routes change at most so often.
fn as_well(what: &str, scenario: &FleetScenario, tuning: PlacementTuning, changes: u64) -> [Run; 2] {
    as_well_blind(what, scenario, tuning, changes, |_| false)
}

fn as_well_blind(
    what: &str,
    scenario: &FleetScenario,
    tuning: PlacementTuning,
    changes: u64,
    blind: fn(u64) -> bool,
) -> [Run; 2] {
    let [law, least] = both(scenario, tuning, blind);
    eprintln!(
        "{what}: late {:?} (least connections {:?}), {} changes, {} placed, served {:.0} J ({:.0})",
        law.late,
        least.late,
        law.changes,
        law.placed,
        law.served_j(),
        least.served_j()
    );
    for (own, least) in law.late.iter().zip(least.late) {
        let most = least as f64 + MARGIN * PERIODS as f64;
        assert!(*own as f64 <= most, "{what}: {:?} {:?}", law.late, least);
    }
    assert!(law.changes <= changes, "{what}: {} changes", law.changes);
    [law, least]
}

#[test]
fn in_a_world_like_its_figures_it_saves_what_requests_draw() {
    let [law, least] = as_well("as its figures", &moderate(), tuning(), 12);
    assert!(law.served_j() < 0.9 * least.served_j());
    assert!(law.placed > 200, "{}", law.placed);
}

#[test]
fn a_machine_at_half_its_figures_speed() {
    for at in [0, 4, 5] {
        let mut scenario = moderate();
        let cost = &mut scenario.machines[at].cost;
        cost.base.per_request = cost.base.per_request * 2.0;
        cost.base.per_byte = cost.base.per_byte * 2.0;
        let machine = &mut scenario.machines[at].machine;
        machine.link_bytes_per_s /= 2.0;
        as_well(
            &format!("machine {at} at half its speed"),
            &scenario,
            tuning(),
            24,
        );
    }
}

/// Taken for slow cores, the links of the Xeon and of the Atoms made the large answers late in 48 and in 221 periods.
#[test]
fn links_of_a_quarter_of_their_figures_speed() {
    let more_large = || world([&[3_000.0], &[500.0], &[800.0]]);
    for (name, scenario, slow) in [
        ("an Arm", moderate(), &[0][..]),
        ("the Xeon", moderate(), &[4]),
        ("the Xeon and the Atoms", moderate(), &[4, 5, 6]),
        ("an Arm, more large answers", more_large(), &[0]),
        (
            "the Xeon and the Atoms, more large answers",
            more_large(),
            &[4, 5, 6],
        ),
    ] {
        let mut scenario = scenario;
        for at in slow {
            scenario.machines[*at].machine.link_bytes_per_s /= 4.0;
        }
        let [law, least] = both(&scenario, tuning(), |_| false);
        eprintln!(
            "links at a quarter of their speed: {name}: late {:?} (least connections {:?}), {} changes, served {:.0} J ({:.0})",
            law.late,
            least.late,
            law.changes,
            law.served_j(),
            least.served_j()
        );
        // Some periods pass until it shows what is slow.
        assert!(
            law.late.iter().all(|late| (*late as usize) < PERIODS / 30),
            "{name}: {:?}",
            law.late
        );
        assert!(law.served_j() < least.served_j(), "{name}");
    }
}

#[test]
fn a_lost_machine_and_its_return() {
    for machine in [0, 4] {
        let scenario = FleetScenario {
            lost: vec![Lost {
                machine,
                from_s: 80.0,
                until_s: 140.0,
            }],
            ..moderate()
        };
        let [law, least] = as_well(&format!("machine {machine} lost"), &scenario, tuning(), 12);
        assert_eq!(law.totals.refused, 0);
        assert!(law.totals.lost <= least.totals.lost + 100, "{}", law.totals.lost);
        let back = law.totals.machines[machine].on.get();
        assert!((100.0..200.0).contains(&back), "{back}");
    }
}

#[test]
fn figures_that_are_off_by_30_percent() {
    for (speed, watts) in [(0.7, 1.3), (1.3, 0.7)] {
        let mut off = tuning();
        for (name, kind) in &mut off.kinds {
            // One kind one way, the others the other.
            let (speed, watts) = if name == "arm" {
                (speed, watts)
            } else {
                (watts, speed)
            };
            kind.request_us *= speed;
            kind.kilobyte_us *= speed;
            kind.link_bytes_per_s /= speed;
            kind.busy_w *= watts;
            kind.link_w *= watts;
        }
        as_well(&format!("figures off, {speed}"), &moderate(), off, 24);
    }
}

#[test]
fn sizes_that_grow_tenfold() {
    let mut scenario = moderate();
    scenario.groups[1].grow = 10.0;
    scenario.groups.truncate(2);
    as_well("10 KB become 100", &scenario, tuning(), 12);
    let mut scenario = world([&[6_000.0], &[1_000.0], &[400.0]]);
    scenario.groups[0].grow = 10.0;
    as_well("1 KB becomes 10", &scenario, tuning(), 12);
}

#[test]
fn telemetry_that_is_lost() {
    as_well_blind("three periods lost", &moderate(), tuning(), 12, |period| {
        (100..103).contains(&period)
    });
    as_well_blind("thirty periods lost", &moderate(), tuning(), 12, |period| {
        (100..130).contains(&period)
    });
    as_well_blind("every fifth period lost", &moderate(), tuning(), 12, |period| {
        period % 5 == 0
    });
}

#[test]
fn a_surge_of_ten_of_one_size() {
    let surge = |rate: f64| vec![rate, rate, rate * 10.0, rate];
    let (small, medium, large) = (surge(2_000.0), surge(300.0), surge(120.0));
    as_well(
        "a surge of 1 KB",
        &world([&small, &[300.0], &[120.0]]),
        tuning(),
        40,
    );
    as_well(
        "a surge of 10 KB",
        &world([&[2_000.0], &medium, &[120.0]]),
        tuning(),
        40,
    );
    as_well(
        "a surge of 100 KB",
        &world([&[2_000.0], &[300.0], &large]),
        tuning(),
        40,
    );
}

#[test]
fn a_load_that_fills_the_fleet() {
    for factor in [1.5, 2.5, 3.5] {
        let rates = [6_000.0, 1_000.0, 400.0].map(|rate| vec![rate * factor]);
        let scenario = world([&rates[0], &rates[1], &rates[2]]);
        as_well(&format!("{factor} of the load"), &scenario, tuning(), 12);
    }
}

/// The step of an hour: what all small requests on one machine of a kind bear is less than what all of that kind do.
#[test]
fn a_rise_by_half_from_one_second_to_the_next() {
    let rates = [3_400.0, 5_000.0, 6_600.0, 8_300.0];
    as_well(
        "a rise by half",
        &world([&rates, &[400.0], &[600.0]]),
        tuning(),
        16,
    );
}

/// Two machines whose limits hardly admit what comes in: large answers belong on the Atom, and least connections gives the Arm as many.
#[test]
fn machines_that_hardly_suffice_keep_the_slo_where_least_connections_does_not() {
    let mut scenario = world([&[1_250.0], &[1_000.0], &[740.0]]);
    let all: Vec<usize> = (0..FLEET.len()).filter(|at| [0, 5].contains(at)).collect();
    let on = (0..FLEET.len()).map(|at| all.contains(&at)).collect();
    scenario.plan = Some(SwitchPlan {
        hold_s: scenario.duration_s,
        on: vec![on],
        ahead_s: 0.0,
    });
    let [law, least] = as_well("an Arm and an Atom", &scenario, tuning(), 12);
    assert!(least.late[3] as usize > PERIODS / 4, "{:?}", least.late);
    assert!((law.late[3] as usize) < PERIODS / 10, "{:?}", law.late);
}
