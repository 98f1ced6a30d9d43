//! The running sums of a run, from which its summary is computed.

mod notes;

use crate::clock::unix_ms;
use crate::histogram::{self, MAX_LATENCY};
use crate::lengths::LongPeriods;
use crate::model::{PeriodRecord, RunMeta, Slo, World, micros_at};
use crate::part_totals::PartTotals;
use crate::summary::{
    Conditions, CoresSummary, EnergySummary, LatencyMs, PowerSummary, RequestCounts, RunSummary, SloSummary,
    SourcedEnergy,
};
use hdrhistogram::Histogram;
use headroom_units::{
    Comparison, Cores, Joules, PerSecond, Ratio, Seconds, Source, Watts, quantile_of_answered,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Periods at the start of a run that are not held against the target: a law is given this long to find its feet.
pub const WARM_UP_PERIODS: u64 = 10;

/// Rules counted by name in one run; the decisions of further ones are counted together as `other rules`.
const MAX_RULES: usize = 256;

/// The name under which decisions beyond [`MAX_RULES`] rules are counted.
const OTHER_RULES: &str = "other rules";

/// A run's sums, added up period by period: what its [`RunSummary`] is computed from.
///
/// A recorder keeps one for each run; a run that is not recorded can keep its own.
#[derive(Clone, Debug)]
pub struct RunTotals {
    target: Option<Seconds>,
    /// The SLO's percentile, where nothing that the run was configured with measures latencies.
    unmeasured: Option<Ratio>,
    /// How long periods are to be; `None` where their lengths are not held against anything.
    usual_period: Option<Seconds>,
    counts: Counts,
    latency: Histogram<u64>,
}

/// How a period stands against the SLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Kept,
    Over,
    /// Nobody can show that the SLO was kept: counted as over, and counted apart as well.
    Unknown,
    /// Nothing was to measure the latency: not judged.
    Unmeasured,
}

/// The sums without the histogram; what the file keeps as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Counts {
    pub(crate) periods: u64,
    pub(crate) last_index: Option<u64>,
    duration_s: f64,
    offered: u64,
    completed: u64,
    failed: u64,
    failed_by_client: u64,
    judged: u64,
    over: u64,
    unknown: u64,
    /// Not judged, since nothing was to measure the latency.
    unmeasured: u64,
    /// Judged periods without a request.
    empty: u64,
    /// What the last period's decision says of a comparison that is under way.
    #[serde(default)]
    comparing: Option<String>,
    telemetry_lost: u64,
    in_flight_before: u64,
    energy_j: BTreeMap<Source, f64>,
    energy_unknown: u64,
    /// Requests answered in the periods whose energy is known.
    completed_metered: u64,
    power: BTreeMap<Source, Weighted>,
    cap: Weighted,
    consumed_under_cap: Weighted,
    cap_where_consumed: Weighted,
    /// Cores times seconds, and the seconds in which they are known.
    cores: Weighted,
    utilisation: Weighted,
    rules: BTreeMap<String, u64>,
    levers_lost: u64,
    nodes_missing: u64,
    parts: PartTotals,
    long: LongPeriods,
}

/// A sum of values, each times the seconds it held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Weighted {
    sum: f64,
    seconds: f64,
}

impl Weighted {
    pub(crate) fn add(&mut self, value: f64, seconds: Seconds) {
        self.sum += value * seconds.get();
        self.seconds += seconds.get();
    }

    pub(crate) fn mean(self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.sum / self.seconds)
    }
}

/// What a share of a few thousand requests is rounded by.
const ROUNDING: f64 = 1e-9;

impl Counts {
    fn judge(&self, period: &PeriodRecord, target: Seconds) -> Verdict {
        if let Some(latency) = period.slo_latency {
            return if latency > target {
                Verdict::Over
            } else {
                Verdict::Kept
            };
        }
        if period.telemetry_lost {
            return Verdict::Unknown;
        }
        if period.is_percentile_among_failed() {
            return Verdict::Over;
        }
        if period.completions > 0 {
            // Requests were answered and their latency is not known, which no telemetry that works leaves open.
            return Verdict::Unknown;
        }
        if let Some(age) = period.oldest_in_flight {
            return if age > target {
                Verdict::Over
            } else {
                Verdict::Kept
            };
        }
        // Requests were being served at the start and at the end, and none ended in between: they are at least as
        // old as the period is long.
        if self.in_flight_before > 0 && period.in_flight > 0 && period.duration > target {
            return Verdict::Over;
        }
        Verdict::Kept
    }

    /// The same of a run in which nothing measures latencies: what was not lost, did not fail and did not stand still may have been late.
    fn judge_unmeasured(&self, period: &PeriodRecord, target: Seconds, percentile: Ratio) -> Verdict {
        let is_unmeasured = period.slo_latency.is_none() && !period.telemetry_lost && !self.is_empty(period);
        let failed = period.failures.saturating_sub(period.failed_by_client) as f64;
        let may_fail = (1.0 - percentile.get()) * (period.completions as f64 + failed);
        match self.judge(period, target) {
            Verdict::Unknown | Verdict::Kept if is_unmeasured => Verdict::Unmeasured,
            // The percentile is not among so few: it was not measured.
            Verdict::Over if is_unmeasured && period.completions > 0 && failed <= may_fail + ROUNDING => {
                Verdict::Unmeasured
            }
            verdict => verdict,
        }
    }

    /// Whether no request came, ended or was being served at its beginning or its end.
    fn is_empty(&self, period: &PeriodRecord) -> bool {
        period.is_without_requests() && self.in_flight_before == 0
    }

    fn add(&mut self, period: &PeriodRecord, target: Option<Seconds>, unmeasured: Option<Ratio>) {
        if let Some(target) = target.filter(|_| self.periods >= WARM_UP_PERIODS) {
            let verdict = match unmeasured {
                Some(percentile) => self.judge_unmeasured(period, target, percentile),
                None => self.judge(period, target),
            };
            self.judged += u64::from(verdict != Verdict::Unmeasured);
            self.over += u64::from(matches!(verdict, Verdict::Over | Verdict::Unknown));
            self.unknown += u64::from(verdict == Verdict::Unknown);
            self.unmeasured += u64::from(verdict == Verdict::Unmeasured);
            self.empty += u64::from(self.is_empty(period));
        }
        self.periods += 1;
        self.last_index = Some(period.index);
        self.duration_s += period.duration.get();
        self.offered += period.arrivals;
        self.completed += period.completions;
        self.failed += period.failures;
        self.failed_by_client += period.failed_by_client;
        self.telemetry_lost += u64::from(period.telemetry_lost);
        self.levers_lost += u64::from(period.levers_lost);
        self.nodes_missing += u64::from(period.nodes_missing > 0);
        self.in_flight_before = period.in_flight;
        match period.energy {
            Some(energy) => {
                *self.energy_j.entry(energy.source).or_default() += energy.value.get();
                self.completed_metered += period.completions;
            }
            None => self.energy_unknown += 1,
        }
        let power = period.mean_power();
        if let Some(power) = power {
            self.power
                .entry(power.source)
                .or_default()
                .add(power.value.get(), period.duration);
        }
        if let Some(cap) = period.cap {
            self.cap.add(cap.get(), period.duration);
            if let Some(power) = power {
                self.consumed_under_cap.add(power.value.get(), period.duration);
                self.cap_where_consumed.add(cap.get(), period.duration);
            }
        }
        if let Some(cores) = period.cores {
            self.cores.add(cores.get(), period.duration);
        }
        self.parts.add(period);
        if let Some(utilisation) = period.utilisation {
            self.utilisation.add(utilisation.get(), period.duration);
        }
        self.comparing = None;
        for reason in &period.reasons {
            self.count_rule(&reason.rule);
            if [Comparison::UNDER_WAY, Comparison::DRAINING].contains(&&*reason.rule) {
                self.comparing = Some(reason.text.to_string());
            }
        }
    }

    fn count_rule(&mut self, rule: &str) {
        if let Some(count) = self.rules.get_mut(rule) {
            *count += 1;
        } else {
            let name = if self.rules.len() < MAX_RULES {
                rule
            } else {
                OTHER_RULES
            };
            *self.rules.entry(name.to_owned()).or_default() += 1;
        }
    }
}

impl RunTotals {
    /// The sums of a run without a period yet, to be held against a latency target where it has one.
    pub fn new(target: impl Into<Option<Seconds>>) -> Self {
        Self::resume(target.into(), Counts::default(), &[])
    }

    /// Sums that go on from stored ones.
    pub(crate) fn resume(target: Option<Seconds>, counts: Counts, buckets: &[(u64, u64)]) -> Self {
        let mut latency = histogram::empty().unwrap_or_else(|error| {
            // Bounds and digits are constants inside the crate's stated range, which the tests construct.
            unreachable!("a histogram of 1 µs to {MAX_LATENCY:?}: {error}")
        });
        histogram::add(&mut latency, buckets);
        Self {
            target,
            unmeasured: None,
            usual_period: None,
            counts,
            latency,
        }
    }

    /// The same, which also counts the periods that last more than twice as long as this one: [`RunSummary::notes`] then say how many did.
    #[must_use]
    pub fn with_usual_period(self, period: Seconds) -> Self {
        Self {
            usual_period: Some(period),
            ..self
        }
    }

    /// The same of a run in which nothing measures latencies, with its SLO's percentile, where it is one: a period with requests whose latency is unknown is not judged then, unless
    /// it counts as over for another reason.
    #[must_use]
    pub fn unmeasured(self, percentile: Option<Ratio>) -> Self {
        Self {
            unmeasured: percentile,
            ..self
        }
    }

    /// Adds a period and the latencies, in microseconds, of the requests that were answered in it.
    ///
    /// The period counts as over the target where its latency at the SLO's percentile exceeds it; and, where no
    /// such latency is known: where the service failed so many requests that the percentile lies among them, or requests
    /// failed and none was answered; where the oldest request being served is
    /// older than the target, or must be (none ended in a period longer than the target); where the period's
    /// telemetry was lost, since an SLO that nobody can show to be kept is not one that was kept. Any other
    /// period, above all one without requests, counts as kept; in a run without anything that measures latencies
    /// ([`Self::unmeasured`]) only one without requests does, and the others are not judged. The first [`WARM_UP_PERIODS`] count as neither.
    pub fn add(&mut self, period: &PeriodRecord, latencies: &Histogram<u64>) {
        self.add_buckets(period, &histogram::buckets(latencies));
    }

    pub(crate) fn add_buckets(&mut self, period: &PeriodRecord, buckets: &[(u64, u64)]) {
        self.add_row(period);
        histogram::add(&mut self.latency, buckets);
    }

    /// Adds a period whose latencies are not at hand: those of the run as a whole are then of the others.
    pub fn add_row(&mut self, period: &PeriodRecord) {
        self.counts.add(period, self.target, self.unmeasured);
        if let Some(usual) = self.usual_period {
            self.counts.long.add(period.duration, usual);
        }
    }

    /// Of the judged periods that had requests, as [`SloSummary::over_of_asked`] has them, those over the target; and how many there are.
    pub const fn over_of_asked(&self) -> (u64, u64) {
        (self.counts.over, self.counts.judged - self.counts.empty)
    }

    /// Periods with requests that are not judged because nothing measures their latency.
    pub const fn periods_unmeasured(&self) -> u64 {
        self.counts.unmeasured
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    pub(crate) fn latency(&self) -> &Histogram<u64> {
        &self.latency
    }

    /// The summary so far.
    pub fn summary(&self, meta: &RunMeta) -> RunSummary {
        let counts = &self.counts;
        let energy = self.energy();
        let always_on = counts.parts.always_on();
        let consumed = sole(&counts.power).and_then(|(_, power)| power.mean());
        let ratio = match (
            counts.power.len(),
            counts.consumed_under_cap.mean(),
            counts.cap_where_consumed.mean(),
        ) {
            (1, Some(consumed), Some(cap)) if cap > 0.0 => Some(consumed / cap),
            _ => None,
        };
        let missed = self.missed();
        let at =
            |percentile| (!self.latency.is_empty()).then(|| micros_at(&self.latency, percentile).as_millis());
        RunSummary {
            law: meta.law.clone(),
            trace: meta.trace.clone(),
            seed: meta.seed,
            world: meta.world,
            periods: counts.periods,
            duration_s: Seconds::new(counts.duration_s),
            requests: RequestCounts {
                offered: counts.offered,
                completed: counts.completed,
                failed: counts.failed,
            },
            latency_ms: LatencyMs {
                mean: (!self.latency.is_empty()).then(|| self.latency.mean() / 1e3),
                p50: at(50.0),
                p95: at(95.0),
                p99: at(99.0),
                p999: at(99.9),
            },
            slo: SloSummary {
                percentile: meta.slo.map(|slo| slo.percentile),
                target_ms: meta.slo.map(|slo| slo.target.as_millis()),
                periods_over: (counts.judged > 0)
                    .then(|| Ratio::new(counts.over as f64 / counts.judged as f64)),
                latency_ms: meta.slo.and_then(|slo| match missed {
                    0 => at(slo.percentile),
                    _ => self.quantile(slo).and_then(|quantile| at(quantile * 100.0)),
                }),
                periods_judged: counts.judged,
                periods_unknown: counts.unknown,
                periods_unmeasured: counts.unmeasured,
                periods_without_requests: counts.empty,
            },
            energy_over_bound: meta
                .energy_bound
                .zip(energy.value)
                // The bound is that of the whole run.
                .filter(|_| energy.known_share.is_none())
                .map(|(bound, energy)| Ratio::new(energy / bound - 1.0))
                .filter(|over| *over >= Ratio::ZERO),
            joules_per_request: energy
                .value
                .filter(|_| counts.completed_metered > 0)
                .map(|joules| Joules::new(joules.get() / counts.completed_metered as f64)),
            energy_j: energy,
            power_w: PowerSummary {
                consumed_mean: consumed.map(Watts::new),
                allocated_mean: counts.cap.mean().map(Watts::new),
                ratio: ratio.map(Ratio::new),
            },
            cores: CoresSummary {
                mean: counts.cores.mean().map(Cores::new),
                core_seconds: (counts.cores.seconds > 0.0).then_some(counts.cores.sum),
            },
            utilisation_mean: counts.utilisation.mean().map(Ratio::new),
            nodes: counts.parts.nodes(),
            classes: counts.parts.classes(),
            capacity_per_s: counts.parts.capacity_per_s.map(PerSecond::new),
            capacity_kind: counts.parts.capacity_kind.clone(),
            capacity: counts.parts.capacity.clone(),
            batch_interval_mean_s: counts.parts.batch_interval_s.mean().map(Seconds::new),
            cache_hit_ratio_mean: counts.parts.cache_hit_ratio.mean().map(Ratio::new),
            energy_always_on_j: always_on.map(|(joules, _)| joules),
            saving_against_always_on: always_on.map(|(_, saved)| saved),
            run: None,
            name: meta.name.clone(),
            decisions: counts.rules.clone(),
            notes: self.notes(meta),
            telemetry_lost_periods: counts.telemetry_lost,
            dropped_periods: 0,
            conditions: Conditions {
                energy_unknown_periods: counts.energy_unknown,
                levers_lost_periods: counts.levers_lost,
                nodes: meta.nodes.clone(),
                nodes_missing_periods: counts.nodes_missing,
                bystanders: None,
                began_ms: Some(unix_ms(meta.started_at)).filter(|_| meta.world == World::Live),
                arrivals: Vec::new(),
            },
            provenance: meta.provenance.clone(),
            comparison: None,
        }
    }

    /// Requests that failed, whose client did not go away.
    fn missed(&self) -> u64 {
        self.counts.failed.saturating_sub(self.counts.failed_by_client)
    }

    /// The quantile of the answered requests at which the SLO's percentile of all lies; `None` where it lies among the failed.
    fn quantile(&self, slo: Slo) -> Option<f64> {
        quantile_of_answered(
            Ratio::from_percent(slo.percentile),
            self.counts.completed,
            self.missed(),
        )
    }

    fn energy(&self) -> EnergySummary {
        let by_source: Vec<SourcedEnergy> = self
            .counts
            .energy_j
            .iter()
            .map(|(&source, &joules)| SourcedEnergy {
                source,
                value: Joules::new(joules),
            })
            .collect();
        let known = self.counts.periods.saturating_sub(self.counts.energy_unknown);
        let known_share =
            (self.counts.energy_unknown > 0).then(|| Ratio::new(known as f64 / self.counts.periods as f64));
        let sole = match by_source.as_slice() {
            [one] => Some(*one),
            _ => None,
        };
        EnergySummary {
            value: sole.map(|one| one.value),
            source: sole.map(|one| one.source),
            known_share,
            by_source: if sole.is_some() { Vec::new() } else { by_source },
        }
    }
}

/// The only entry of a map, where it has exactly one.
fn sole<K, V>(map: &BTreeMap<K, V>) -> Option<(&K, &V)> {
    map.iter().next().filter(|_| map.len() == 1)
}
