//! Any world ends, and its accounts add up: [`run`] compares them in each run.

use super::*;
use headroom_physics::Placement;
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
}
