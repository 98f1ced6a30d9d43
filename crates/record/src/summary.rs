//! The object in which every run ends.

use crate::capacity::CapacitySummary;
use crate::compare::Comparison;
use crate::model::{RunId, World, percentile_name};
use crate::offered::OfferedLoad;
use crate::provenance::Provenance;
use crate::text::trimmed;
use crate::totals::WARM_UP_PERIODS;
use headroom_units::{CapacityKind, Cores, Joules, PerSecond, Ratio, Seconds, Source, Watts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The summary of a run. Serialised, its keys and their order are a contract; more may follow after
/// `utilisation_mean` or inside an object, none is renamed.
///
/// A value that does not exist is `null`, never 0: the percentile of no request, the energy of a run without a
/// meter, the power ratio of a run without a cap, the share of no period.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSummary {
    /// The control law.
    pub law: String,
    /// The trace that drove the load.
    pub trace: String,
    /// The seed of everything random.
    pub seed: u64,
    /// The world that the law acted on.
    pub world: World,
    /// Number of periods.
    pub periods: u64,
    /// The length of all periods together.
    pub duration_s: Seconds,
    /// Requests.
    pub requests: RequestCounts,
    /// Latency of all answered requests of the run, from the merged histogram: exact to 0.1 %.
    pub latency_ms: LatencyMs,
    /// The SLO and how it was kept.
    pub slo: SloSummary,
    /// Energy and where its watts came from.
    pub energy_j: EnergySummary,
    /// Energy over answered requests; `None` where either is unknown or nothing was answered.
    pub joules_per_request: Option<Joules>,
    /// Power.
    pub power_w: PowerSummary,
    /// Cores.
    pub cores: CoresSummary,
    /// Mean busy share of the allocated cores, weighted by time, over the periods in which it is known.
    pub utilisation_mean: Option<Ratio>,
    /// Energy over what no schedule can go under that leaves no work waiting, less one. Only of simulated runs, where that
    /// bound can be computed, and only where the run is not under it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_over_bound: Option<Ratio>,
    /// The run's nodes by state; `None` where no state of any was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodesSummary>,
    /// The classes of connections by name; empty where there are none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub classes: BTreeMap<String, ClassSummary>,
    /// The capacity of the whole as it was last known; `None` where nothing estimated it.
    #[serde(default)]
    pub capacity_per_s: Option<PerSecond>,
    /// What kind of number that is: `given`, `exact`, `about`, `presumed` or `lower-bound`; `None` where the record does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_kind: Option<String>,
    /// What was said of it at the end, of a run that estimates one: whether it is a lower bound, of what, and how old.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacitySummary>,
    /// How long requests were held at most, the mean over time; `None` where nothing holds any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_interval_mean_s: Option<Seconds>,
    /// The share of requests that the cache answered, the mean over time; `None` where there is no cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_hit_ratio_mean: Option<Ratio>,
    /// Energy that the same work would have needed with every server on, by the model that gives the power of the servers as
    /// they were; over the periods in which both are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_always_on_j: Option<Joules>,
    /// The share of [`energy_always_on_j`](Self::energy_always_on_j) that was saved, by the same model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saving_against_always_on: Option<Ratio>,
    /// The run's number in its recorder file; `None` for a run that was not recorded.
    #[serde(default)]
    pub run: Option<RunId>,
    /// The run's name.
    #[serde(default)]
    pub name: String,
    /// How many decisions each rule gave a reason for.
    #[serde(default)]
    pub decisions: BTreeMap<String, u64>,
    /// Fallbacks of the run, and what is missing from this summary, in plain words.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Periods whose telemetry was lost.
    #[serde(default)]
    pub telemetry_lost_periods: u64,
    /// Periods that the recorder dropped because its disk was too slow: they are in none of the sums.
    #[serde(default)]
    pub dropped_periods: u64,
    /// What decides whether the run can be compared with another.
    #[serde(default)]
    pub conditions: Conditions,
    /// Where its figures come from.
    #[serde(default)]
    pub provenance: Provenance,
    /// The run against the first of those that it stands beside; `None` for that one and for a run alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
}

impl RunSummary {
    /// Takes what a generator says that it sent to the run and what came of it; a doubt whether it did becomes a note.
    pub fn served(&mut self, load: OfferedLoad) {
        self.notes.extend(load.doubt.clone());
        self.provenance = std::mem::take(&mut self.provenance).with_offered_load(load);
    }

    /// How the SLO was kept and what was consumed, in a line: `P99 under 50 ms: over in 1.3 % of 390 judged periods, 7.2 ms over the whole run;
    /// 123.4 J (estimated)`.
    pub fn in_short(&self) -> String {
        let slo = &self.slo;
        let mut kept = match slo.periods_over {
            _ if slo.periods_unmeasured > 0 => slo.unmeasured_text(),
            _ if slo.is_without_requests() => "no requests".to_owned(),
            Some(_) => {
                let (asked, over) = slo.over_of_asked().unwrap_or_default();
                let over = format!("over in {:.1} % of {asked} judged periods", over.as_percent());
                match slo.periods_without_requests {
                    0 => over,
                    none => format!("{over} ({none} more had no requests)"),
                }
            }
            None => format!("no period was judged, the first {WARM_UP_PERIODS} are not"),
        };
        if let Some(latency_ms) = slo.latency_ms {
            kept.push_str(&format!(", {latency_ms:.1} ms over the whole run"));
        }
        let energy = &self.energy_j;
        let sole = energy.value.zip(energy.source);
        let all = energy.by_source.iter().map(|one| (one.value, one.source));
        let all: Vec<String> = sole
            .into_iter()
            .chain(all)
            .map(|(joules, source)| format!("{:.1} J ({source})", joules.get()))
            .collect();
        let energy = match (all.is_empty(), energy.coverage()) {
            (true, _) => "energy unknown".to_owned(),
            (false, None) => all.join(" and "),
            (false, Some(coverage)) => format!("{}, {coverage}", all.join(" and ")),
        };
        format!("{}: {kept}; {energy}", slo.text())
    }

    /// What stands before the capacity, for people: `at least `; nothing where the record does not tell.
    pub(crate) fn capacity_words(&self) -> &'static str {
        let kind = self.capacity_kind.as_deref().and_then(CapacityKind::named);
        kind.map_or("", CapacityKind::words)
    }

    /// By the model, where there is one: the energy consumed, that of every server on, and the share saved.
    pub(crate) fn always_on(&self) -> Option<(Joules, Joules, Ratio)> {
        let (all, saved) = self.energy_always_on_j.zip(self.saving_against_always_on)?;
        Some((all * (1.0 - saved.get()), all, saved))
    }
}

/// The conditions of a run that decide whether its energy can be held against another run's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Conditions {
    /// Periods whose energy is not known.
    pub energy_unknown_periods: u64,
    /// Periods in which a lever was not in force as commanded, or another one than at the start held the cap.
    pub levers_lost_periods: u64,
    /// The nodes that the run has; empty where that is one machine.
    pub nodes: Vec<String>,
    /// Periods in which at least one of them could not be reached.
    pub nodes_missing_periods: u64,
    /// The share of the machine's processors that programs other than the run's own used meanwhile; `None` where nobody
    /// counted.
    pub bystanders: Option<Ratio>,
    /// When the run began, in milliseconds since 1970; `None` where that is no instant of a clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began_ms: Option<i64>,
    /// Requests that arrived in each tenth of the run; empty where they were not read for a comparison.
    #[serde(skip)]
    pub arrivals: Vec<f64>,
}

/// The nodes of a run by state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodesSummary {
    /// Nodes of which a state was recorded.
    pub count: u64,
    /// Seconds that they were in each state, added up over nodes.
    pub state_s: BTreeMap<String, f64>,
    /// How often one went from a state to another, by both: `serving-draining`.
    pub transitions: BTreeMap<String, u64>,
}

/// A class of connections in a run: means over the time in which it had queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassSummary {
    /// The share of the time in which the last queries of one of its connections missed an SLO; `None` where it has none.
    pub missed: Option<Ratio>,
    /// P99 of its connections' last queries.
    pub p99_ms: Option<f64>,
}

/// Requests of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestCounts {
    /// Requests that arrived.
    pub offered: u64,
    /// Requests answered, with a status that is not a failed one.
    pub completed: u64,
    /// Requests that failed: answered with a failed status, not answered, or broken off by whomever.
    pub failed: u64,
}

/// Latency of a run, in milliseconds; `None` where nothing was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyMs {
    /// Mean.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p999: Option<f64>,
}

/// The SLO of a run and how it was kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SloSummary {
    /// The percentile, in percent; `None` for a run that is held to no SLO.
    pub percentile: Option<f64>,
    /// The target T, in milliseconds; likewise.
    pub target_ms: Option<f64>,
    /// Share of the `periods_judged` that were over the target, as [`crate::RunTotals::add`] defines it; `None` where
    /// no period was judged. People are told the share of those with requests: [`Self::over_of_asked`].
    pub periods_over: Option<Ratio>,
    /// Latency of the whole run at the percentile, in milliseconds, failed requests being the slowest; `None` where the
    /// percentile lies among them: the run missed it.
    #[serde(default)]
    pub latency_ms: Option<f64>,
    /// Periods held against the target: all but the first [`crate::WARM_UP_PERIODS`], those without requests among them.
    #[serde(default)]
    pub periods_judged: u64,
    /// Judged periods that count as over only because their latency is unknown.
    #[serde(default)]
    pub periods_unknown: u64,
    /// Periods that are not judged: they had requests, and nothing that the run was configured with measures latencies.
    #[serde(default)]
    pub periods_unmeasured: u64,
    /// Judged periods in which no request came, ended or was being served: none of them is over, and none shows that the SLO was kept.
    #[serde(default)]
    pub periods_without_requests: u64,
}

impl SloSummary {
    /// Whether periods were judged and none of them had a request.
    pub const fn is_without_requests(&self) -> bool {
        self.periods_judged > 0
            && self.periods_without_requests == self.periods_judged
            && self.periods_unmeasured == 0
    }

    /// What is known where nothing measured latencies: `latency unknown in 94 of 94 periods`, of those with requests.
    pub fn unmeasured_text(&self) -> String {
        let share = self.periods_over.map_or(0.0, Ratio::get);
        let over = (share * self.periods_judged as f64).round() as u64;
        let asked = self.periods_judged.saturating_sub(self.periods_without_requests);
        unmeasured_text(over, asked, self.periods_unmeasured)
    }

    /// The share of [`Self::over_of_asked`].
    pub fn share_over(&self) -> Option<Ratio> {
        self.over_of_asked().map(|(_, over)| over)
    }

    /// Judged periods in which something was asked, and the share of them that was over the target; `None` where there are none. A period without
    /// a query keeps no SLO, and hides none that was missed. Nor is it known where latencies were not measured: only those that failed or stood
    /// still are judged then.
    pub fn over_of_asked(&self) -> Option<(u64, Ratio)> {
        if self.periods_unmeasured > 0 {
            return None;
        }
        let asked = self.periods_judged.checked_sub(self.periods_without_requests)?;
        let over = self.periods_over?.get() * self.periods_judged as f64;
        (asked > 0).then(|| (asked, Ratio::new((over / asked as f64).min(1.0))))
    }

    /// The SLO: `P95 under 250 ms`; `no SLO` where there is none.
    pub fn text(&self) -> String {
        match self.percentile.zip(self.target_ms) {
            Some((percentile, target_ms)) => {
                format!("{} under {} ms", percentile_name(percentile), trimmed(target_ms))
            }
            None => "no SLO".to_owned(),
        }
    }

    /// What its missing is called, whose share [`Self::over_of_asked`] is: `judged periods with P95 over 250 ms`.
    pub(crate) fn missing(&self) -> String {
        match self.percentile.zip(self.target_ms) {
            Some((percentile, target_ms)) => {
                format!(
                    "judged periods with {} over {} ms",
                    percentile_name(percentile),
                    trimmed(target_ms)
                )
            }
            None => "judged periods over the target".to_owned(),
        }
    }
}

/// Of so many judged periods with requests those over the target, beside so many that are not judged because nothing measures latencies:
/// `latency unknown in 94 of 94 periods`.
pub fn unmeasured_text(over: u64, asked: u64, unmeasured: u64) -> String {
    let all = asked + unmeasured;
    let unknown = format!("latency unknown in {unmeasured} of {all} periods");
    match over {
        0 => unknown,
        over => format!("{over} failed or stood still, {unknown}"),
    }
}

/// Energy of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EnergySummary {
    /// The energy of the periods in which it is known, where all of it has one source; `None` where nothing metered it, or
    /// where the source changed during the run: then the parts are in `by_source`. It is never scaled up to the whole run.
    pub value: Option<Joules>,
    /// The source of the energy.
    pub source: Option<Source>,
    /// The share of the periods whose energy is known; absent where all are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_share: Option<Ratio>,
    /// The energies of a run whose source changed, side by side; empty otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_source: Vec<SourcedEnergy>,
}

impl EnergySummary {
    /// `29 % of the periods known`; nothing where all are.
    pub(crate) fn coverage(&self) -> Option<String> {
        let share = self.known_share?;
        Some(format!("{:.0} % of the periods known", share.as_percent()))
    }
}

/// The part of a run's energy that has one source.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourcedEnergy {
    /// The source.
    pub source: Source,
    /// The energy.
    pub value: Joules,
}

/// Power of a run; means are weighted by time. `None` where it is unknown, or where the source of power changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PowerSummary {
    /// Mean power consumed.
    pub consumed_mean: Option<Watts>,
    /// Mean power allocated: the cap.
    pub allocated_mean: Option<Watts>,
    /// Power ratio: consumed over allocated, over the periods in which both are known (SLO-Power, Section IV).
    pub ratio: Option<Ratio>,
}

/// Cores of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CoresSummary {
    /// Mean number of allocated cores, weighted by time.
    pub mean: Option<Cores>,
    /// Allocated cores times the seconds they were held; `None` where none were allocated.
    pub core_seconds: Option<f64>,
}
