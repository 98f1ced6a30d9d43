//! Any world ends, and its accounts add up: [`run`] compares them in each run.

use super::*;
use headroom_control::oncall::areas::{AreaDecision, AreaLaw, CoreArea};
use headroom_control::oncall::policy::Grant;
use headroom_control::{Decision, Observation};
use headroom_physics::Placement;
use headroom_units::{Hertz, Lever, Seconds, Setting};
use proptest::prelude::*;

fn gates() -> impl Strategy<Value = Option<GateFigures>> {
    let gate = (1..6u32, 1..5u32, 0..3u32, 0..2u32, any::<bool>(), any::<bool>());
    proptest::option::of(
        gate.prop_map(
            |(concurrency, tokens, delay, linger, wakes, disk_gives_back)| GateFigures {
                concurrency,
                tokens,
                delay_s: 7e-4 * f64::from(delay),
                linger_s: 3e-4 * f64::from(linger),
                wake_s: if wakes { 5e-6 } else { 0.0 },
                disk_gives_back,
                keeps_tokens: linger == 0 || delay == 1,
                ..GateFigures::default()
            },
        ),
    )
}

fn kernels() -> impl Strategy<Value = KernelFigures> {
    let policies = [
        KernelPolicy::FairPerCore,
        KernelPolicy::FairGlobal,
        KernelPolicy::Sol,
    ];
    let preempt = proptest::option::of(0.0..1e-3);
    (
        prop::sample::select(policies.to_vec()),
        1e-5..3e-3,
        preempt,
        any::<bool>(),
    )
        .prop_map(|(policy, slice_s, preempt_after_s, packed)| KernelFigures {
            policy,
            slice_s: Some(slice_s),
            preempt_after_s,
            placement: if packed {
                Placement::Packed
            } else {
                Placement::Spread
            },
            ..KernelFigures::default()
        })
}

/// Other areas and weights every period, drawn from a number.
struct Restless(u64);

impl Restless {
    fn draw(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

impl AreaLaw for Restless {
    fn name(&self) -> &'static str {
        "restless"
    }

    fn decide(&mut self, observation: &Observation) -> Option<AreaDecision> {
        let oncall = observation.oncall.as_ref()?;
        let count = oncall.cores? as u32;
        let first = 1 + self.draw(u64::from(count)) as u32;
        let areas = [first, count - first];
        let areas = areas
            .into_iter()
            .filter(|cores| *cores > 0)
            .map(|cores| CoreArea {
                cores,
                frequency: (self.draw(2) == 0).then(|| Hertz::new(1.2e9)),
                ..CoreArea::default()
            });
        let mut areas: Vec<CoreArea> = areas.collect();
        for each in &oncall.each {
            let at = self.draw(areas.len() as u64) as usize;
            areas[at].connections.push(each.id);
        }
        let weights = [("all".to_owned(), 1.0 + self.draw(3) as f64)].into();
        Some(AreaDecision {
            areas: if self.draw(4) == 0 { Vec::new() } else { areas },
            weights,
            ..AreaDecision::default()
        })
    }
}

/// Other levers and turns every period.
fn restless(period: &Observation, state: &mut Restless) -> Decision {
    let on_call = state.draw(4) > 0;
    let mut draw = |below| state.draw(below);
    let setting = Setting::default()
        .with(Lever::Concurrency, on_call.then(|| 1.0 + draw(4) as f64))
        .with(Lever::QueryBatch, Some(1.0 + draw(4) as f64))
        .with(Lever::RoundDelay, Some(7e-4 * draw(3) as f64))
        .with(Lever::Frequency, (draw(2) == 0).then_some(1.5e9));
    let each = period.oncall.iter().flat_map(|oncall| &oncall.each);
    let grant = |id: u64| Grant {
        id,
        tokens: draw(4) as u32,
        share: 0.1 + draw(3) as f64,
        again: draw(2) == 0,
        yields: draw(2) == 0,
        retry: Seconds::new(1e-3 * draw(3) as f64),
    };
    Decision {
        grants: each.map(|each| each.id).map(grant).collect(),
        ..Decision::of(setting)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_world_serves_and_its_accounts_add_up(
        gate in gates(),
        kernel in kernels(),
        (cores, connections, open) in (1usize..5, 1u32..30, any::<bool>()),
        (disk, accesses) in (0.0..1.0f64, 1u32..4),
        (lock, rows, queries) in (0.0..1.0f64, 1u32..4, 1u32..4),
        seed in any::<u64>(),
    ) {
        let default = ThreadsScenario::default();
        let scenario = ThreadsScenario {
            duration_s: 1.0,
            warm_up_s: 0.1,
            connections,
            arrivals: match open {
                true => QueryArrivals::Open { rate_per_s: 400.0 },
                false => QueryArrivals::default(),
            },
            disk: DiskFigures { probability: disk, accesses, parallel: 2, ..default.disk },
            locks: LockFigures { probability: lock, rows, queries, ..default.locks },
            kernel,
            gate,
            machine: headroom_physics::MachineFigures::broadwell(cores),
            ..default
        };
        let totals = run(&scenario, &mut |_| None, seed).unwrap();
        prop_assert!(totals.queries > 0);
        prop_assert!(totals.ipq >= 1.0 && totals.busy.get() <= cores as f64 * totals.length_s + 1e-9);
        prop_assert!((0.0..=1.0).contains(&totals.c6_opportunity()));
    }

    /// A gate changes when queries are served, never what they are.
    #[test]
    fn the_same_queries_come_under_every_gate(gate in gates(), kernel in kernels(), seed in any::<u64>()) {
        let mut scenario = plain(2, 10);
        (scenario.duration_s, scenario.warm_up_s) = (2.0, 0.0);
        scenario.arrivals = QueryArrivals::Open { rate_per_s: 20.0 };
        let one = run(&scenario, &mut |_| None, seed).unwrap();
        let gate = gate.map(|gate| GateFigures { wake_s: 0.0, ..gate });
        let kernel = KernelFigures { switch_s: 0.0, ..kernel };
        let two = run(&ThreadsScenario { gate, kernel, ..scenario }, &mut |_| None, seed).unwrap();
        // One or the other may end with a query under way.
        prop_assert!(one.queries.abs_diff(two.queries) <= 2);
        if one.queries == two.queries && one.queries > 0 {
            prop_assert!((one.busy.get() - two.busy.get()).abs() < 0.02);
        }
    }

    /// Whatever is decided, and however often, queries, times and energies add up.
    #[test]
    fn accounts_add_up_whatever_is_decided(
        kernel in kernels(),
        gated in any::<bool>(),
        (cores, connections) in (1usize..5, 2u32..30),
        (disk, lock) in (0.0..1.0f64, 0.0..1.0f64),
        seed in any::<u64>(),
    ) {
        let default = ThreadsScenario::default();
        let heavy = ClassFigures { cpu_weight: 2.0, ..ClassFigures::with_tail("heavy", 1, 0.99, 5.0) };
        let scenario = ThreadsScenario {
            duration_s: 1.0,
            warm_up_s: 0.1,
            period_s: 0.003,
            connections,
            classes: vec![heavy, ClassFigures::best_effort("all", connections - 1)],
            disk: DiskFigures { probability: disk, parallel: 2, ..default.disk },
            locks: LockFigures { probability: lock, rows: 2, queries: 2, ..default.locks },
            kernel,
            gate: gated.then(GateFigures::default),
            machine: headroom_physics::MachineFigures::broadwell(cores),
            ..default
        };
        let mut state = Restless(seed);
        let mut law = |period: &Observation| gated.then(|| restless(period, &mut state));
        let totals = run_areas(&scenario, &mut law, &mut Restless(seed ^ 1), seed).unwrap();
        prop_assert!(totals.busy.get() <= cores as f64 * totals.length_s + 1e-9);
        let queries: u64 = totals.classes.iter().map(|class| class.queries).sum();
        prop_assert_eq!(queries, totals.queries);
    }
}
