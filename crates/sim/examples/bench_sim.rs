//! How many requests a second are simulated on one core, on an M/M/1 and an M/G/1 processor-sharing server at 80 % load.
//!
//! `bench_sim [REQUESTS] [exponential|lognormal]` prints one line of JSON for each run; without a shape, both. The whole
//! world runs: control periods, telemetry, power and every account that a run is checked by.

use headroom_control::{Fixed, Guardian};
use headroom_sim::scenario::{NodeGroup, Service};
use headroom_sim::{RunError, Scenario, run};
use headroom_units::Seconds;
use headroom_workload::{ArrivalProcess, Shape};
use std::time::Instant;

/// Utilisation.
const RHO: f64 = 0.8;
/// Simulated seconds, that is mean service times, in a control period.
const PERIOD_S: f64 = 1_000.0;

fn scenario(requests: f64, size: Shape) -> Scenario {
    let node = NodeGroup {
        count: 1,
        cores: 1.0,
        fewest_cores: 1.0,
        ..NodeGroup::default()
    };
    Scenario {
        name: "bench".to_owned(),
        duration_s: Some(requests / RHO),
        service: Service {
            period_s: PERIOD_S,
            rate_per_core_s: 1.0,
            size,
            target_ms: 60_000.0,
            ..Service::default()
        },
        nodes: vec![node],
        arrivals: ArrivalProcess::Poisson { rate_per_s: RHO },
        ..Scenario::default()
    }
}

fn bench(requests: f64, name: &str, size: Shape) -> Result<(), RunError> {
    let scenario = scenario(requests, size);
    let plant = scenario.plant()?;
    let mut law = Guardian::new(Box::new(Fixed::new(plant)), plant, 5);
    let begin = Instant::now();
    let totals = run(&scenario, &mut law, 1, &mut |_| {})?;
    let seconds = begin.elapsed().as_secs_f64();
    let latency = totals
        .latency
        .map_or((Seconds::ZERO, Seconds::ZERO), |all| (all.mean, all.p95));
    println!(
        "{{\"simulator\": \"headroom\", \"size\": \"{name}\", \"requests\": {}, \"seconds\": {seconds:.4}, \
         \"requests_per_s\": {:.0}, \"mean\": {:.4}, \"p95\": {:.4}, \"peak_memory_kb\": {}}}",
        totals.completed,
        totals.completed as f64 / seconds,
        latency.0.get(),
        latency.1.get(),
        peak_memory_kb(),
    );
    Ok(())
}

/// The most memory that this process has used, kilobytes; 0 where the system does not say.
fn peak_memory_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or(0)
}

fn main() -> Result<(), RunError> {
    let mut arguments = std::env::args().skip(1);
    let requests: f64 = arguments
        .next()
        .and_then(|count| count.parse().ok())
        .unwrap_or(2e7);
    let shape = arguments.next();
    for (name, size) in [
        ("exponential", Shape::Exponential {}),
        ("lognormal", Shape::Lognormal { scv: 4.0 }),
    ] {
        if shape.as_deref().is_none_or(|only| only == name) {
            bench(requests, name, size)?;
        }
    }
    Ok(())
}
