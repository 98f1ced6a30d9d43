//! What a run comes to.

use crate::energy::EnergyByCause;
use crate::histogram::LatencyHistogram;
use headroom_control::Reason;
use headroom_units::{Cores, Joules, PerSecond, Ratio, Seconds, Watts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Periods at the start that are not held against the target.
pub const WARM_UP_PERIODS: u64 = 10;
/// Rules counted by name; those beyond are counted together.
const RULES_MAX: usize = 256;
/// Their name.
const OTHER_RULES: &str = "other rules";

/// Latencies of a whole run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunLatency {
    /// Mean.
    pub mean: Seconds,
    /// Median.
    pub p50: Seconds,
    /// 95th percentile.
    pub p95: Seconds,
    /// 99th percentile.
    pub p99: Seconds,
    /// 99.9th percentile.
    pub p999: Seconds,
    /// The slowest.
    pub max: Seconds,
    /// The SLO's percentile.
    pub at_slo: Seconds,
}

/// The totals of a run: every figure of the run summary, as it really was, not as telemetry reported it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Number of periods.
    pub periods: u64,
    /// Simulated time.
    pub duration: Seconds,
    /// Events that were simulated.
    pub events: u64,
    /// Requests that arrived.
    pub offered: u64,
    /// Requests answered.
    pub completed: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests being served at the end.
    pub in_flight: u64,
    /// Latencies; `None` where nothing was answered.
    pub latency: Option<RunLatency>,
    /// The SLO's percentile, as a share.
    pub slo_percentile: Ratio,
    /// The SLO's target.
    pub slo_target: Seconds,
    /// Periods held against the target: all but the first [`WARM_UP_PERIODS`].
    pub periods_judged: u64,
    /// How many of them were over it. A period with no request counts as kept; one in which none was answered although
    /// some were being served is judged by the age of the oldest, and one in which all that ended failed is over.
    pub periods_over: u64,
    /// Periods whose telemetry was lost.
    pub telemetry_lost_periods: u64,
    /// Energy of all nodes.
    pub energy: Joules,
    /// The same by its cause.
    pub energy_by: EnergyByCause,
    /// Mean number of servers that served.
    pub servers_mean: f64,
    /// Mean power.
    pub power_mean: Watts,
    /// Mean cap in force.
    pub cap_mean: Watts,
    /// ∫ cores in force dt, core-seconds.
    pub core_seconds: f64,
    /// Mean cores in force.
    pub cores_mean: Cores,
    /// Busy share of the cores in force.
    pub utilisation_mean: Option<Ratio>,
    /// L: mean number of requests in the system, weighted by time.
    pub in_system_mean: f64,
    /// λ: requests that arrived and were taken by a node, each second.
    pub arrival_rate: PerSecond,
    /// Reflexes that raised something between two decisions.
    pub reflexes: u64,
    /// How many decisions each rule gave a reason for.
    pub decisions: BTreeMap<String, u64>,
}

impl Totals {
    /// Share of the judged periods that were over the target; `None` where none was judged.
    pub fn share_over(&self) -> Option<Ratio> {
        (self.periods_judged > 0).then(|| Ratio::new(self.periods_over as f64 / self.periods_judged as f64))
    }

    /// Power ratio: consumed over allocated (SLO-Power, Section V-B).
    pub fn power_ratio(&self) -> Option<Ratio> {
        (self.cap_mean > Watts::ZERO).then(|| Ratio::new(self.power_mean / self.cap_mean))
    }
}

/// One period's truth, for the sums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeriodTruth {
    pub(crate) length_s: f64,
    pub(crate) arrivals: u64,
    pub(crate) completions: u64,
    pub(crate) failures: u64,
    pub(crate) latency_to_judge: Option<Seconds>,
    pub(crate) energy: EnergyByCause,
    /// Server-seconds in which servers served.
    pub(crate) serving_s: f64,
    pub(crate) cap_w: f64,
    pub(crate) busy_core_s: f64,
    pub(crate) allocated_core_s: f64,
    pub(crate) telemetry_lost: bool,
}

/// The sums while a run goes on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) periods: u64,
    pub(crate) offered: u64,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    over: u64,
    lost: u64,
    pub(crate) reflexes: u64,
    length_s: f64,
    pub(crate) energy: EnergyByCause,
    serving_s: f64,
    cap_ws: f64,
    busy_core_s: f64,
    allocated_core_s: f64,
    decisions: BTreeMap<String, u64>,
    pub(crate) latencies: LatencyHistogram,
}

impl Sums {
    pub(crate) fn add(&mut self, truth: &PeriodTruth, target: Seconds, latencies: &LatencyHistogram) {
        if self.periods >= WARM_UP_PERIODS {
            let over = truth.latency_to_judge.is_some_and(|latency| latency > target);
            self.over += u64::from(over);
        }
        self.periods += 1;
        self.lost += u64::from(truth.telemetry_lost);
        self.offered += truth.arrivals;
        self.completed += truth.completions;
        self.failed += truth.failures;
        self.length_s += truth.length_s;
        self.energy += truth.energy;
        self.serving_s += truth.serving_s;
        self.cap_ws += truth.cap_w * truth.length_s;
        self.busy_core_s += truth.busy_core_s;
        self.allocated_core_s += truth.allocated_core_s;
        self.latencies.add(latencies);
    }

    pub(crate) fn count_rules(&mut self, reasons: &[Reason]) {
        for reason in reasons {
            if let Some(count) = self.decisions.get_mut(reason.rule.as_ref()) {
                *count += 1;
                continue;
            }
            let known = self.decisions.len() < RULES_MAX;
            let name = if known { reason.rule.as_ref() } else { OTHER_RULES };
            *self.decisions.entry(name.to_owned()).or_default() += 1;
        }
    }

    pub(crate) fn totals(self, end: &End) -> Totals {
        let slo_percentile = end.slo_percentile;
        let latency = self.latencies.mean().map(|mean| {
            let [p50, p95, p99, p999, max] = self.latencies.at([0.5, 0.95, 0.99, 0.999, 1.0]);
            RunLatency {
                mean,
                p50,
                p95,
                p99,
                p999,
                max,
                at_slo: self.latencies.at([slo_percentile.get()])[0],
            }
        });
        let (length_s, energy) = (self.length_s, self.energy.total());
        Totals {
            periods: self.periods,
            duration: Seconds::new(length_s),
            events: end.events,
            offered: self.offered,
            completed: self.completed,
            failed: self.failed,
            in_flight: end.in_flight,
            latency,
            slo_percentile,
            slo_target: end.slo_target,
            periods_judged: self.periods.saturating_sub(WARM_UP_PERIODS),
            periods_over: self.over,
            telemetry_lost_periods: self.lost,
            energy,
            energy_by: self.energy,
            servers_mean: self.serving_s / length_s,
            power_mean: Watts::new(energy.get() / length_s),
            cap_mean: Watts::new(self.cap_ws / length_s),
            core_seconds: self.allocated_core_s,
            cores_mean: Cores::new(self.allocated_core_s / length_s),
            utilisation_mean: (self.allocated_core_s > 0.0)
                .then(|| Ratio::new(self.busy_core_s / self.allocated_core_s)),
            in_system_mean: end.job_s / length_s,
            arrival_rate: PerSecond::new(end.taken as f64 / length_s),
            reflexes: self.reflexes,
            decisions: self.decisions,
        }
    }
}

/// What is known only at the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) slo_percentile: Ratio,
    pub(crate) slo_target: Seconds,
    pub(crate) events: u64,
    pub(crate) in_flight: u64,
    pub(crate) job_s: f64,
    pub(crate) taken: u64,
}
