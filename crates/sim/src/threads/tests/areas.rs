//! Areas of cores and weights against theory.

use super::*;
use headroom_control::Observation;
use headroom_control::oncall::areas::{AreaDecision, AreaLaw, CoreArea};
use headroom_units::Hertz;

/// The same areas from the first period on.
struct Constant(AreaDecision);

impl AreaLaw for Constant {
    fn name(&self) -> &'static str {
        "constant"
    }

    fn decide(&mut self, _: &Observation) -> Option<AreaDecision> {
        Some(self.0.clone())
    }
}

fn with(scenario: &ThreadsScenario, decision: AreaDecision) -> ThreadsTotals {
    run_areas(scenario, &mut |_| None, &mut Constant(decision), 1).unwrap()
}

fn area(cores: u32, connections: std::ops::Range<u64>) -> CoreArea {
    CoreArea {
        name: format!("of {cores}"),
        cores,
        connections: connections.collect(),
        ..CoreArea::default()
    }
}

/// Two classes of 5000 connections with these rates, on four cores.
fn two(rates_per_s: [f64; 2]) -> ThreadsScenario {
    let class = |name: &str, rate_per_s| ClassFigures {
        arrivals: Some(QueryArrivals::Open { rate_per_s }),
        ..ClassFigures::best_effort(name, 5000)
    };
    ThreadsScenario {
        classes: vec![class("a", rates_per_s[0]), class("b", rates_per_s[1])],
        ..plain(4, 10_000)
    }
}

fn mean_ms(class: &ClassTotals) -> f64 {
    class.latency.mean().unwrap().as_millis()
}

/// One core is M/M/1 at rho 0.8, three are M/M/3 at the same: 1 + C(3, 2.4) / (3 - 2.4) with Erlang C = 0.6472. Under each scheduler.
#[test]
fn areas_are_servers_of_their_own() {
    for policy in [
        KernelPolicy::FairPerCore,
        KernelPolicy::FairGlobal,
        KernelPolicy::Sol,
    ] {
        let mut scenario = two([800.0, 2400.0]);
        scenario.kernel.policy = policy;
        scenario.duration_s = 150.0;
        let areas = vec![area(1, 0..5000), area(3, 5000..10_000)];
        let totals = with(
            &scenario,
            AreaDecision {
                areas,
                ..AreaDecision::default()
            },
        );
        near(mean_ms(&totals.classes[0]), 5.0, 0.07);
        near(mean_ms(&totals.classes[1]), 1.0 + 0.6472 / 0.6, 0.05);
    }
}

/// At half of the frequency a core serves half as much: M/M/1 with 2 ms at rho 0.8. The cold core sleeps.
#[test]
fn an_area_has_its_frequency() {
    let mut scenario = two([400.0, 1600.0]);
    scenario.duration_s = 150.0;
    let half = CoreArea {
        frequency: Some(Hertz::new(1.05e9)),
        ..area(1, 0..5000)
    };
    let totals = with(
        &scenario,
        AreaDecision {
            areas: vec![half, area(2, 5000..10_000)],
            ..AreaDecision::default()
        },
    );
    near(mean_ms(&totals.classes[0]), 10.0, 0.08);
    // M/M/2: 1/(1 - rho^2).
    near(mean_ms(&totals.classes[1]), 1.0 / (1.0 - 0.64), 0.05);
}

/// An area with one slot of its own and two cores is one server.
#[test]
fn an_area_has_its_own_limit() {
    let mut scenario = two([800.0, 1600.0]);
    scenario.duration_s = 150.0;
    scenario.gate = Some(free(100, 1));
    let one_slot = CoreArea {
        workers: Some(1),
        ..area(2, 0..5000)
    };
    let totals = with(
        &scenario,
        AreaDecision {
            areas: vec![one_slot, area(2, 5000..10_000)],
            ..AreaDecision::default()
        },
    );
    near(mean_ms(&totals.classes[0]), 5.0, 0.07);
    near(mean_ms(&totals.classes[1]), 1.0 / (1.0 - 0.64), 0.05);
}

/// Threads that always have work share cores by their weights, as scheduled fairly.
#[test]
fn threads_share_a_core_by_weight() {
    for policy in [KernelPolicy::FairPerCore, KernelPolicy::FairGlobal] {
        let mut scenario = plain(1, 8);
        (scenario.duration_s, scenario.warm_up_s) = (60.0, 2.0);
        scenario.kernel.policy = policy;
        // Queries far longer than a slice, and no think time.
        scenario.query.instructions = 5e7;
        scenario.query.shape = Shape::Deterministic {};
        scenario.arrivals = QueryArrivals::Closed {
            think_s: 1e-9,
            think: Shape::Deterministic {},
        };
        scenario.classes = vec![
            ClassFigures {
                cpu_weight: 3.0,
                ..ClassFigures::best_effort("heavy", 4)
            },
            ClassFigures::best_effort("light", 4),
        ];
        let totals = alone(&scenario);
        let [heavy, light] = [0, 1].map(|class: usize| totals.classes[class].queries as f64);
        near(heavy / light, 3.0, 0.1);
        // What a law decides is on top.
        let weights = [("light".to_owned(), 3.0)].into();
        let totals = with(
            &scenario,
            AreaDecision {
                weights,
                ..AreaDecision::default()
            },
        );
        let [heavy, light] = [0, 1].map(|class: usize| totals.classes[class].queries as f64);
        near(heavy / light, 1.0, 0.1);
    }
}

/// What cannot be is refused in words.
#[test]
fn areas_that_cannot_be_are_refused() {
    let scenario = two([100.0, 100.0]);
    for (areas, said) in [
        (
            vec![area(5, 0..10_000)],
            "areas: the areas have 5 cores together, and there are 4",
        ),
        (
            vec![area(1, 0..10_001)],
            "areas: have the connection 10000, which is none",
        ),
        (
            vec![CoreArea {
                workers: Some(1),
                ..area(1, 0..1)
            }],
            "areas: limit the workers at once",
        ),
    ] {
        let decision = AreaDecision {
            areas,
            ..AreaDecision::default()
        };
        let error = run_areas(&scenario, &mut |_| None, &mut Constant(decision), 1).unwrap_err();
        assert!(error.to_string().starts_with(said), "{error}");
    }
}
