//! The simulator against queueing theory: unit mean service, processor sharing with each request at rate min(1, k/n).
//!
//! Every run is of a fixed seed, so that what passes once passes always. Each figure is from [`REQUESTS`] requests in all,
//! by as many independent seeds as there are; the first 1 % of them meet an emptier server, which is far below the
//! tolerances.

use headroom_control::{Fixed, Guardian};
use headroom_sim::scenario::{NodeGroup, Service};
use headroom_sim::{LatencyHistogram, Scenario, run, run_many};
use headroom_units::Seconds;
use headroom_workload::{ArrivalProcess, Shape};

/// Requests of each figure.
const REQUESTS: f64 = 4e6;
/// Independent seeds among which they are divided.
const SEEDS: [u64; 4] = [1, 2, 3, 4];

fn scenario(cores: f64, rho: f64, size: Shape, requests: f64) -> Scenario {
    let rate_per_s = rho * cores;
    Scenario {
        duration_s: Some(requests / rate_per_s),
        core_step: 0.25,
        service: Service {
            rate_per_core_s: 1.0,
            period_s: requests / rate_per_s / 20.0,
            target_ms: 1e5,
            size,
            ..Service::default()
        },
        nodes: vec![NodeGroup {
            count: 1,
            cores,
            fewest_cores: cores,
            ..NodeGroup::paper()
        }],
        arrivals: ArrivalProcess::Poisson { rate_per_s },
        ..Scenario::paper()
    }
}

/// Latencies of all seeds together, and the mean number in the system over λW.
fn simulate(cores: f64, rho: f64, size: Shape) -> LatencyHistogram {
    let scenario = scenario(cores, rho, size, REQUESTS / SEEDS.len() as f64);
    let plant = scenario.plant().unwrap();
    let each = run_many(&SEEDS, 2, |_, seed| {
        let mut all = LatencyHistogram::new();
        let mut law = Guardian::new(Box::new(Fixed::new(plant)), plant, 5);
        let totals = run(&scenario, &mut law, *seed, &mut |period| {
            all.add(period.latencies)
        })
        .unwrap();
        // Little's law in its usual form: what is left over at the ends is a handful of requests.
        let latency = totals.latency.unwrap();
        let little = totals.arrival_rate.get() * latency.mean.get();
        assert!(
            (totals.in_system_mean / little - 1.0).abs() < 1e-3,
            "{} {little}",
            totals.in_system_mean
        );
        all
    });
    let mut all = LatencyHistogram::new();
    for one in &each {
        all.add(one);
    }
    all
}

fn close(what: &str, got: Seconds, expected: f64, tolerance: f64) {
    let off = got.get() / expected - 1.0;
    assert!(
        off.abs() <= tolerance,
        "{what}: {:.4} is {:.2} % off {expected}",
        got.get(),
        off * 100.0
    );
}

/// The mean latency of processor sharing on so many cores, whatever the distribution of sizes (Kleinrock, *Queueing Systems*
/// I), at 1 request/s per core. For whole cores it is 1 + C / (k - λ), with C = B / (1 - ρ(1 - B)) of Erlang, and B by the
/// recursion B(0) = 1, B(k) = aB(k-1) / (k + aB(k-1)). For c = m + f cores under a CPU quota the station works at speed
/// min(n, c) with n requests: p(n) is aⁿ/n! up to m and falls by ρ from there, so that with p(m) = B / (1 + Bρ/(1 - ρ)) the
/// mean number present is a + p(m) ρ/(1 - ρ) (1/(1 - ρ) - f).
fn exact_mean(cores: f64, rho: f64) -> f64 {
    let (a, whole) = (rho * cores, cores.floor());
    let step = |blocked: f64, k: u32| a * blocked / (f64::from(k) + a * blocked);
    let blocked = (1..=whole as u32).fold(1.0, step);
    let geometric = rho / (1.0 - rho);
    let at_whole = blocked / (1.0 + blocked * geometric);
    let present = a + at_whole * geometric * (1.0 / (1.0 - rho) - (cores - whole));
    present / a
}

#[test]
fn the_mean_agrees_with_the_chain_itself_where_the_published_equation_overestimates_seven_times() {
    // p(n) falls by a / min(n, c) from one number of requests to the next.
    for (cores, rho) in [(0.5, 0.6), (1.5, 0.8), (2.3, 0.9), (7.9, 0.95), (16.0, 0.9)] {
        let a = cores * rho;
        let (mut weight, mut total, mut present) = (1.0, 1.0, 0.0);
        for n in 1..5_000 {
            weight *= a / f64::min(f64::from(n), cores);
            total += weight;
            present += f64::from(n) * weight;
        }
        let chain = present / total / a;
        assert!(
            (exact_mean(cores, rho) / chain - 1.0).abs() < 1e-9,
            "{cores} cores"
        );
    }
    // Equation 1 of the SLO-Power paper: c / (c mu - lambda).
    assert!(16.0 / (16.0 - 14.4) / exact_mean(16.0, 0.9) > 7.0);
}

/// A row of the table of event-simulated oracles.
fn row(cores: usize, rho: f64, size: Shape, [mean, p95, p99]: [f64; 3], p99_tolerance: f64) {
    let name = format!("k {cores}, rho {rho}, {size:?}");
    let all = simulate(cores as f64, rho, size);
    let [got95, got99] = all.at([0.95, 0.99]);
    println!(
        "{name}: mean {:.3}, P95 {:.3}, P99 {:.3}",
        all.mean().unwrap().get(),
        got95.get(),
        got99.get()
    );
    close(
        &format!("{name}: mean against theory"),
        all.mean().unwrap(),
        exact_mean(cores as f64, rho),
        0.01,
    );
    close(
        &format!("{name}: mean against the table"),
        all.mean().unwrap(),
        mean,
        0.015,
    );
    close(&format!("{name}: P95"), got95, p95, 0.02);
    close(&format!("{name}: P99"), got99, p99, p99_tolerance);
}

const LOGNORMAL: Shape = Shape::Lognormal { scv: 4.0 };
const HYPEREXPONENTIAL: Shape = Shape::Hyperexponential { scv: 4.0 };

#[test]
fn one_core_exponential() {
    row(1, 0.5, Shape::Exponential {}, [2.00, 6.86, 12.4], 0.03);
    row(1, 0.8, Shape::Exponential {}, [5.00, 18.8, 37.0], 0.03);
    row(1, 0.9, Shape::Exponential {}, [10.0, 38.7, 78.5], 0.03);
}

#[test]
fn one_core_other_sizes() {
    row(1, 0.8, Shape::Deterministic {}, [5.02, 13.6, 20.8], 0.03);
    row(1, 0.8, LOGNORMAL, [5.02, 19.7, 53.0], 0.03);
    row(1, 0.8, HYPEREXPONENTIAL, [5.02, 19.5, 60.0], 0.03);
}

#[test]
#[expect(
    clippy::approx_constant,
    reason = "6.28 is a measured percentile, not a circle"
)]
fn several_cores() {
    row(4, 0.8, Shape::Exponential {}, [1.74, 5.78, 10.6], 0.03);
    row(8, 0.9, Shape::Exponential {}, [1.88, 6.28, 11.7], 0.03);
    row(8, 0.9, Shape::Deterministic {}, [1.88, 4.14, 6.08], 0.03);
    row(16, 0.9, Shape::Exponential {}, [1.370, 4.31, 7.33], 0.03);
    row(48, 0.9, Shape::Exponential {}, [1.076, 3.25, 5.05], 0.03);
}

/// The mean does not depend on the distribution of sizes, only on its mean.
#[test]
fn the_mean_is_insensitive() {
    let shapes = [
        Shape::Pareto {
            exponent: 1.5,
            range: 1e3,
        },
        Shape::Empirical {
            values: vec![1.0, 10.0],
            weights: vec![9.0, 1.0],
        },
        LOGNORMAL,
        Shape::Deterministic {},
    ];
    for size in shapes {
        for (cores, rho) in [(1.0, 0.7), (16.0, 0.9)] {
            let all = simulate(cores, rho, size.clone());
            close(
                &format!("{size:?} on {cores}"),
                all.mean().unwrap(),
                exact_mean(cores, rho),
                0.01,
            );
        }
    }
}

/// SCV of R in M/M/1-PS: (2 + rho)/(2 - rho).
#[test]
fn the_spread_of_latencies_is_coffmans() {
    for rho in [0.5, 0.8] {
        let all = simulate(1.0, rho, Shape::Exponential {});
        let mean = all.mean().unwrap().get();
        let squares: f64 = all
            .buckets()
            .map(|(us, count)| (us as f64 / 1e6).powi(2) * count as f64)
            .sum();
        let scv = squares / all.count() as f64 / (mean * mean) - 1.0;
        let expected = (2.0 + rho) / (2.0 - rho);
        assert!(
            (scv / expected - 1.0).abs() < 0.03,
            "rho {rho}: {scv} for {expected}"
        );
    }
}

/// A quota of half a core is a core of half the speed: M/M/1-PS with mean service 2. One and a half are between one and two.
#[test]
fn fractions_of_cores_are_as_fast_as_theory_says() {
    let all = simulate(0.5, 0.8, Shape::Exponential {});
    close("half a core", all.mean().unwrap(), 10.0, 0.01);
    let all = simulate(1.5, 0.8, LOGNORMAL);
    close(
        "a core and a half",
        all.mean().unwrap(),
        exact_mean(1.5, 0.8),
        0.01,
    );
}
