//! The world against theory, and the orders that a gate must keep.

mod areas;
mod comparison;
mod mixed;
mod oracles;
mod orders;
mod others;
mod stress;
mod worlds;

use super::*;
use headroom_workload::Shape;

/// CPU work alone: a mean of 1 ms on so many cores, no cost of switching, waking or inflation.
fn plain(cores: usize, connections: u32) -> ThreadsScenario {
    let mut machine = headroom_physics::MachineFigures::broadwell(cores);
    for state in &mut machine.processor.idle_states {
        state.exit_latency = headroom_units::Seconds::ZERO;
    }
    let default = ThreadsScenario::default();
    ThreadsScenario {
        duration_s: 220.0,
        warm_up_s: 20.0,
        connections,
        query: QueryFigures {
            instructions: 1e6,
            instructions_per_s: 1e9,
            inflation: IpqCurve::none(),
            ..default.query
        },
        disk: DiskFigures {
            probability: 0.0,
            ..default.disk
        },
        kernel: KernelFigures {
            switch_s: 0.0,
            ..default.kernel
        },
        machine,
        ..default
    }
}

/// A gate that costs nothing.
fn free(concurrency: u32, tokens: u32) -> GateFigures {
    GateFigures {
        concurrency,
        tokens,
        linger_s: 0.0,
        wake_s: 0.0,
        ..GateFigures::default()
    }
}

fn alone(scenario: &ThreadsScenario) -> ThreadsTotals {
    run(scenario, &mut |_| None, 1).unwrap()
}

fn near(value: f64, expected: f64, tolerance: f64) {
    assert!(
        (value / expected - 1.0).abs() < tolerance,
        "{value} is not {expected} within {tolerance}"
    );
}
