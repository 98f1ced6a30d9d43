//! The figures of a summary: their names, units and decimals, once for every table that shows them.

use crate::offered::LoadResults;
use crate::summary::RunSummary;
use headroom_units::{Cores, Joules, PerSecond, Ratio, Seconds, Watts};

/// One figure of a run.
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) decimals: usize,
    pub(crate) value: fn(&RunSummary) -> Option<f64>,
}

const fn figure(
    name: &'static str,
    unit: &'static str,
    decimals: usize,
    value: fn(&RunSummary) -> Option<f64>,
) -> Figure {
    Figure {
        name,
        unit,
        decimals,
        value,
    }
}

/// What its load's generator counted, where it was given.
fn at_client(run: &RunSummary) -> Option<LoadResults> {
    run.provenance.offered_load.as_ref()?.results
}

/// What energy was used.
#[rustfmt::skip] // one line for each figure
pub(crate) const ENERGY: [Figure; 3] = [
    figure("energy", "J", 1, |run| run.energy_j.value.map(Joules::get)),
    figure("energy per request", "J", 3, |run| run.joules_per_request.map(Joules::get)),
    figure("energy over the bound", "%", 2, |run| run.energy_over_bound.map(Ratio::as_percent)),
];

/// The share of periods over the target; a table names the target.
pub(crate) const OVER: &str = "periods over the target";

/// What was estimated; a table says of what kind it is.
pub(crate) const CAPACITY: &str = "capacity at the end";

/// Whether what came to a run and what it served are connections at an accept queue, where each retry of a SYN counts.
pub(crate) fn of_connections(run: &RunSummary) -> bool {
    let of = run.capacity.as_ref();
    of.is_some_and(|capacity| capacity.unit == "connections")
}

/// What was answered, how fast and on what.
#[rustfmt::skip] // one line for each figure
pub(crate) const SERVICE: [Figure; 28] = [
    figure("latency, mean", "ms", 2, |run| run.latency_ms.mean),
    figure("latency P50", "ms", 2, |run| run.latency_ms.p50),
    figure("latency P95", "ms", 1, |run| run.latency_ms.p95),
    figure("latency P99", "ms", 1, |run| run.latency_ms.p99),
    figure(OVER, "%", 2, |run| run.slo.share_over().map(Ratio::as_percent)),
    figure("requests answered", "", 0, |run| (!of_connections(run)).then_some(run.requests.completed as f64)),
    figure("requests failed", "", 0, |run| (!of_connections(run)).then_some(run.requests.failed as f64)),
    figure("connection attempts, retries included", "", 0, |run| of_connections(run).then_some(run.requests.offered as f64)),
    figure("connections served", "", 0, |run| of_connections(run).then_some(run.requests.completed as f64)),
    figure("SYNs dropped, retries included", "", 0, |run| of_connections(run).then_some(run.requests.failed as f64)),
    figure("cores, mean", "cores", 2, |run| run.cores.mean.map(Cores::get)),
    figure("core-seconds", "core s", 0, |run| run.cores.core_seconds),
    figure("power consumed, mean", "W", 1, |run| run.power_w.consumed_mean.map(Watts::get)),
    figure("power allocated, mean", "W", 1, |run| run.power_w.allocated_mean.map(Watts::get)),
    figure("power ratio", "", 2, |run| run.power_w.ratio.map(Ratio::get)),
    figure("utilisation, mean", "%", 1, |run| run.utilisation_mean.map(Ratio::as_percent)),
    figure("batch interval, mean", "ms", 1, |run| run.batch_interval_mean_s.map(Seconds::as_millis)),
    figure("cache hit rate, mean", "%", 1, |run| run.cache_hit_ratio_mean.map(Ratio::as_percent)),
    figure(CAPACITY, "1/s", 1, |run| run.capacity_per_s.map(PerSecond::get)),
    figure("energy by the model", "J", 1, |run| run.always_on().map(|(consumed, ..)| consumed.get())),
    figure("energy with every server on, by the model", "J", 1, |run| run.energy_always_on_j.map(Joules::get)),
    figure("latency at the client, mean", "ms", 1, |run| at_client(run)?.mean_ms),
    figure("latency P95 at the client", "ms", 1, |run| at_client(run)?.p95_ms),
    figure("failed at the client", "", 0, |run| Some(at_client(run)?.failed as f64)),
    figure("of these not in time", "", 0, |run| Some(at_client(run)?.timeouts as f64)),
    figure("of these another page", "", 0, |run| Some(at_client(run)?.wrong_pages as f64)),
    figure("connects retried by the client", "", 0, |run| Some(at_client(run)?.connects_retried as f64)),
    figure("saving against every server on", "%", 1, |run| run.saving_against_always_on.map(Ratio::as_percent)),
];
