//! What many runs are compared by, without a record of each period.

use super::Setting;
use headroom_console::Failure;
use headroom_control::LawNames;
use headroom_record::statistics::{ForecastError, Mean};
use headroom_sim::{EnergyByCause, Outcome, Totals};
use headroom_units::{Cores, Ratio, Seconds};
use serde::Serialize;

/// The figures of one run. Latencies in milliseconds, power in watts, shares of 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Energy of all nodes, joules.
    pub energy_j: f64,
    /// Simulated time, seconds.
    pub duration_s: f64,
    /// Energy by its cause.
    pub energy_by: EnergyByCause,
    /// Server-seconds in which servers served.
    pub on_server_s: f64,
    /// Mean power.
    pub power_w: f64,
    /// Mean power allocated.
    pub allocated_w: f64,
    /// Consumed over allocated, of the run.
    pub power_ratio: f64,
    /// Mean latency of all requests.
    pub latency_mean_ms: f64,
    /// P95 of all requests.
    pub latency_p95_ms: f64,
    /// The slowest request.
    pub latency_max_ms: f64,
    /// Mean over the periods of each period's latency at the SLO's percentile; NaN where only totals are known.
    pub latency_period_ms: f64,
    /// Share of the judged periods over the target.
    pub periods_over: f64,
    /// Mean cores.
    pub cores: f64,
    /// The fewest and the most cores, after the first tenth of the run; NaN where only totals are known.
    pub cores_range: (f64, f64),
    /// Busy share of the cores.
    pub utilisation: f64,
    /// Root mean square error of the forecast of the arrival rate, over its mean and over its range; `None` of laws that
    /// forecast nothing.
    pub forecast_nrmse: Option<(f64, f64)>,
    /// Requests that arrived.
    pub requests: u64,
    /// Of these, the requests that failed, or were not answered at the end.
    pub unanswered: u64,
    /// Age of the oldest request that was in flight at the end, 0 where none was; NaN where only totals are known.
    pub oldest_at_end_ms: f64,
    /// Of those that arrived, the requests that failed.
    pub failed: u64,
    /// Reflexes that raised something between two decisions.
    pub reflexes: u64,
}

impl Figures {
    /// Of totals alone, as of a replayed schedule.
    pub fn of(totals: &Totals) -> Self {
        let share = |ratio: Option<Ratio>| ratio.map_or(0.0, Ratio::get);
        Self {
            energy_j: totals.energy.get(),
            duration_s: totals.duration.get(),
            energy_by: totals.energy_by,
            on_server_s: totals.servers_mean * totals.duration.get(),
            power_w: totals.power_mean.get(),
            allocated_w: totals.cap_mean.get(),
            power_ratio: share(totals.power_ratio()),
            latency_mean_ms: totals.latency.map_or(0.0, |latency| latency.mean.as_millis()),
            latency_p95_ms: totals.latency.map_or(0.0, |latency| latency.p95.as_millis()),
            latency_max_ms: totals.latency.map_or(0.0, |latency| latency.max.as_millis()),
            latency_period_ms: f64::NAN,
            periods_over: share(totals.share_over()),
            cores: totals.cores_mean.get(),
            cores_range: (f64::NAN, f64::NAN),
            utilisation: share(totals.utilisation_mean),
            forecast_nrmse: None,
            requests: totals.offered,
            unanswered: totals.failed + totals.in_flight,
            oldest_at_end_ms: f64::NAN,
            failed: totals.failed,
            reflexes: totals.reflexes,
        }
    }
}

/// Runs a law and keeps its figures.
///
/// # Errors
/// A law that cannot be built for this world, a run that does not end.
pub fn figures(setting: &Setting, laws: impl Into<LawNames>, seed: u64) -> Result<Figures, Failure> {
    let mut guarded = setting.guarded(laws)?;
    let settled = setting.scenario.periods() / 10;
    let mut latency_ms = Mean::default();
    let mut forecast = ForecastError::default();
    let mut range = (Cores::new(f64::INFINITY), Cores::ZERO);
    let mut oldest = None;
    let mut sink = |outcome: &Outcome<'_>| {
        if let Some(latency) = outcome.traffic.latency {
            latency_ms.add(latency.at_slo.as_millis());
        }
        oldest = outcome.traffic.oldest_in_flight;
        // Against the rate as the law was given it, where it was given one.
        let rate = outcome
            .observation
            .arrival_rate()
            .unwrap_or_else(|| outcome.arrival_rate());
        forecast.add(rate, outcome.decision.expected_rate);
        if outcome.observation.period >= settled {
            range = (range.0.min(outcome.cores), range.1.max(outcome.cores));
        }
    };
    let totals = headroom_sim::run(&setting.scenario, &mut guarded, seed, &mut sink)
        .map_err(|error| setting.run_error(error))?;
    Ok(Figures {
        latency_period_ms: latency_ms.value().unwrap_or(f64::NAN),
        cores_range: (range.0.get(), range.1.get()),
        oldest_at_end_ms: oldest.map_or(0.0, Seconds::as_millis),
        forecast_nrmse: forecast
            .over_mean()
            .zip(forecast.over_range())
            .map(|(mean, range)| (mean.get(), range.get())),
        ..Figures::of(&totals)
    })
}
