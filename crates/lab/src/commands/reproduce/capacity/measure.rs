//! Runs, and what is kept of them.

use super::plan::{Case, PERIOD_S, Plan};
use headroom_console::Failure;
use headroom_control::capacity::Capacity;
use headroom_control::capacity::offline::{Ramp, RampTuning};
use headroom_control::capacity::utilisation::{UtilisationEstimator, UtilisationStep, UtilisationTuning};
use headroom_control::resize::AlwaysOn;
use headroom_sim::Bare;
use headroom_sim::accept::{AcceptScenario, AcceptStep, run};
use headroom_units::{PerSecond, Ratio};

/// Between two points of a day's curve, seconds.
const CURVE_EVERY_S: f64 = 10.0;

/// A day of a cluster.
#[derive(Clone, Debug)]
pub struct Day {
    /// Energy of all servers, joules.
    pub energy_j: f64,
    /// Requests that were answered.
    pub completed: u64,
    /// Share of the attempts that found the queue full.
    pub drop_ratio: f64,
    /// P99 of the time to the answer, seconds.
    pub p99_s: f64,
    /// Servers that took requests, on average.
    pub serving: f64,
    /// Changes of the number of servers.
    pub changes: u64,
    /// Median over the day of what was known exactly of a server's capacity; `None` where nothing was.
    pub estimate_per_s: Option<f64>,
    /// Seconds, requests accepted a second, servers that take requests.
    pub curve: Vec<(f64, f64, f64)>,
}

/// Runs a day.
///
/// # Errors
/// A run that does not end.
pub fn day(plan: &Plan, case: &Case, seed: u64) -> Result<Day, Failure> {
    let mut resizer = plan.resizer(case)?;
    let mut estimates = Vec::new();
    let (mut changes, mut wanted) = (0, None);
    let mut curve = Vec::new();
    let mut window = (0.0, 0.0, 0.0);
    let totals = run(
        &case.cluster,
        &mut Bare(resizer.as_mut()),
        seed,
        &mut |step: &AcceptStep<'_>| {
            let taking = step.servers.iter().filter(|one| one.state.takes_requests());
            let (mut serving, mut accepts) = (0.0, 0.0);
            for server in taking {
                serving += 1.0;
                accepts += server.queue.accepts;
                if let Capacity::Exact(capacity) = server.capacity {
                    estimates.push(capacity.get());
                }
            }
            changes +=
                u64::from(wanted.is_some_and(|before| Some(before) != step.decision.setting.servers()));
            wanted = step.decision.setting.servers();
            let length_s = case.cluster.step_s;
            window = (
                window.0 + length_s,
                window.1 + accepts,
                window.2 + serving * length_s,
            );
            if window.0 >= CURVE_EVERY_S {
                curve.push((step.at.get(), window.1 / window.0, window.2 / window.0));
                window = (0.0, 0.0, 0.0);
            }
        },
    )?;
    Ok(Day {
        energy_j: totals.energy.get(),
        completed: totals.completed,
        drop_ratio: totals.drops as f64 / totals.attempts.max(1) as f64,
        p99_s: totals
            .latency
            .percentile(Ratio::new(0.99))
            .map_or(f64::NAN, |latency| latency.get()),
        serving: totals.serving_server_s / case.cluster.duration_s,
        changes,
        estimate_per_s: median(&mut estimates),
        curve,
    })
}

/// What a ramp finds, requests a second; `None` where it ends before it finds anything.
///
/// # Errors
/// A run that does not end.
pub fn ramp(scenario: &AcceptScenario, seed: u64) -> Result<Option<f64>, Failure> {
    let mut ramp = Ramp::new(RampTuning::default())?;
    let mut found = Ok(Capacity::Unknown);
    run(scenario, &mut Bare(&mut AlwaysOn), seed, &mut |step| {
        if let (Ok(_), Some(server)) = (&found, step.servers.first()) {
            found = ramp.step(&server.queue);
        }
    })?;
    Ok(match found? {
        Capacity::Exact(capacity) => Some(capacity.get()),
        _ => None,
    })
}

/// What the estimators said of one server under a sinusoid.
#[derive(Clone, Debug, Default)]
pub struct Wave {
    /// Seconds and attempts a second.
    pub arrivals: Vec<(f64, f64)>,
    /// Seconds and the estimate by queue monitoring, its lower bounds included.
    pub by_queue: Vec<(f64, f64)>,
    /// Seconds and the estimate by CPU utilisation.
    pub by_cpu: Vec<(f64, f64)>,
    /// Median estimate by queue monitoring in the seconds of the first overload in which requests were dropped.
    pub overloaded_per_s: Option<f64>,
    /// Its estimate in the middle of the quiet after that.
    pub quiet_per_s: Option<f64>,
    /// By how much it moved in the quiet.
    pub moved_per_s: f64,
    /// Median estimate by CPU utilisation while between a third and two thirds of the capacity were served.
    pub cpu_medium_per_s: Option<f64>,
}

/// Runs a sinusoid.
///
/// # Errors
/// A run that does not end.
pub fn wave(scenario: &AcceptScenario, capacity_per_s: f64, seed: u64) -> Result<Wave, Failure> {
    let by_utilisation = UtilisationEstimator::new(UtilisationTuning::default())?;
    let mut wave = Wave::default();
    let (mut overloaded, mut quiet, mut medium) = (Vec::new(), Vec::new(), Vec::new());
    run(scenario, &mut Bare(&mut AlwaysOn), seed, &mut |step| {
        let (at_s, Some(server)) = (step.at.get(), step.servers.first()) else {
            return;
        };
        wave.arrivals.push((at_s, server.queue.arrival_rate().get()));
        let known = server.capacity.value().map(PerSecond::get);
        wave.by_queue.push((at_s, known.unwrap_or(f64::NAN)));
        let served = server.queue.service_rate();
        let cpu = by_utilisation.observe(&UtilisationStep {
            throughput: Some(served),
            utilisation: Some(server.utilisation),
        });
        let cpu = cpu.capacity.value().map(PerSecond::get);
        wave.by_cpu.push((at_s, cpu.unwrap_or(f64::NAN)));
        if let Some(known) = known {
            if at_s < PERIOD_S && server.queue.drops > 0.0 {
                overloaded.push(known);
            }
            // The fifth of the period around its foot.
            if (at_s - PERIOD_S).abs() < PERIOD_S / 5.0 {
                quiet.push(known);
            }
        }
        if (1.0 / 3.0..2.0 / 3.0).contains(&(served.get() / capacity_per_s)) {
            medium.extend(cpu);
        }
    })?;
    let most = quiet.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = quiet.iter().copied().fold(f64::INFINITY, f64::min);
    wave.moved_per_s = (most - least).max(0.0);
    wave.overloaded_per_s = median(&mut overloaded);
    wave.quiet_per_s = median(&mut quiet);
    wave.cpu_medium_per_s = median(&mut medium);
    Ok(wave)
}

fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
