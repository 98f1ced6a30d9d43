//! A run, and what is kept of it.

use super::plan::{Case, Plan};
use headroom_console::Failure;
use headroom_sim::tiers::{TiersSample, run};
use serde::Serialize;

/// A run's figures, of the time after the training.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Mean response time.
    pub response_ms: f64,
    /// Requests answered a second.
    pub throughput_per_s: f64,
    /// Samples whose mean response time exceeded the SLA, percent.
    pub over_percent: f64,
    /// Mean interval in force.
    pub interval_ms: f64,
    /// Share of the requests answered from memory, percent.
    pub hit_percent: f64,
    /// Busy share of the tiers' cores, percent.
    pub utilisation_percent: f64,
    /// Mean frequency.
    pub ghz: f64,
    /// Mean power of the machine.
    pub power_w: f64,
    /// Energy over the requests answered.
    pub energy_per_request_mj: f64,
    /// Mean power as estimated by the frequency alone.
    pub by_frequency_w: f64,
    /// Sample by sample.
    #[serde(skip)]
    pub samples: Vec<TiersSample>,
}

/// Runs a case.
///
/// # Errors
/// A law that the service cannot have, a run that does not end.
pub fn measure(plan: &Plan, case: &Case, seed: u64) -> Result<Run, Failure> {
    let scenario = {
        let mut scenario = case.scenario.clone();
        if let super::plan::Who::Interval(ms) = case.who {
            scenario.batch.interval_s = f64::from(ms) / 1e3;
        }
        scenario
    };
    let mut law = plan.stack(case)?;
    let totals = run(&scenario, &mut law, seed, &mut |_| {})?;
    let after = |sample: &&TiersSample| sample.at.get() > scenario.warm_up_s * (1.0 + 1e-9);
    let samples: Vec<TiersSample> = totals.samples.iter().filter(after).copied().collect();
    let late = samples.iter().filter(|sample| {
        let mean = sample.counts.mean_response();
        mean.is_none_or(|mean| mean.get() > scenario.target_s)
    });
    let counts = &totals.counts;
    let length_s = counts.length_s;
    let utilised: f64 = totals.tiers.iter().map(|tier| tier.utilisation).sum();
    Ok(Run {
        response_ms: counts.mean_response().map_or(f64::NAN, |mean| mean.as_millis()),
        throughput_per_s: counts.throughput_per_s(),
        over_percent: 100.0 * late.count() as f64 / samples.len() as f64,
        interval_ms: counts.mean_interval_s() * 1e3,
        hit_percent: counts.hit_ratio() * 100.0,
        utilisation_percent: 100.0 * utilised / totals.tiers.len() as f64,
        ghz: counts.mean_hertz() / 1e9,
        power_w: totals.mean_power().get(),
        energy_per_request_mj: totals.energy_per_request().get() * 1e3,
        by_frequency_w: totals.energy_by_frequency.get() / length_s,
        samples,
    })
}
