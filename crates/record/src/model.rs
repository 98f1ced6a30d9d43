//! What is recorded: a run's description, its periods, and the reasons of its decisions.

use crate::provenance::Provenance;
use hdrhistogram::Histogram;
use headroom_units::{Cores, Hertz, Joules, Lever, Part, PerSecond, Ratio, Reading, Seconds, Source, Watts};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

/// The number of a run in one recorder file; ascending, never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub i64);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The world that a run's law acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum World {
    /// A real machine and its real levers.
    Live,
    /// Real traffic, emulated hardware.
    Emulated,
    /// The discrete-event simulator.
    Simulated,
}

impl World {
    /// The seed of a run in this world, for people; nothing where nothing in it was random.
    pub(crate) fn seed_text(self, seed: u64) -> Option<String> {
        (self == Self::Simulated || seed != 0).then(|| format!("seed {seed}"))
    }

    /// The word used in the run summary.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Emulated => "emulated",
            Self::Simulated => "simulated",
        }
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The SLO: a percentile of the latency stays at or under a target.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slo {
    /// The percentile, in percent: 95.0 for the P95. Inside (0, 100).
    pub percentile: f64,
    /// The target T.
    pub target: Seconds,
    /// The guard α: a law acts when the percentile passes α T. `None` for a law without one.
    pub guard: Option<Ratio>,
    /// Whether the run is configured without anything that measures latencies: whether it keeps its SLO nobody can tell then.
    #[serde(default)]
    pub is_unmeasured: bool,
}

impl Slo {
    /// Its percentile, where nothing measures latencies.
    pub fn unmeasured(&self) -> Option<Ratio> {
        self.is_unmeasured.then(|| Ratio::from_percent(self.percentile))
    }

    /// The percentile as people write it: `P95`, `P99.9`.
    pub fn name(&self) -> String {
        percentile_name(self.percentile)
    }
}

/// `P95`, `P99.9`: a percentile as people write it.
pub(crate) fn percentile_name(percentile: f64) -> String {
    format!("P{percentile}")
}

/// What is known of a run when it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunMeta {
    /// A name for people, by which the run can be found again; need not be unique.
    pub name: String,
    /// The control law, for instance `slo-power`.
    pub law: String,
    /// The trace that drove the load, or what else did (`live traffic`).
    pub trace: String,
    /// The seed of everything random in the run.
    pub seed: u64,
    /// The world that the law acts on.
    pub world: World,
    /// The nominal length of a period.
    pub period: Seconds,
    /// The SLO; `None` for a run that is held to none.
    pub slo: Option<Slo>,
    /// Where the run expects its watts from; `None` where there is no meter at all. Each period carries the
    /// source of its own reading, which is what sums and reports go by.
    pub power_source: Option<Source>,
    /// Every fallback of this run in plain words, one each ("power is estimated by a model: this machine has no
    /// RAPL"). They stand at the head of the report.
    #[serde(skip)]
    pub notes: Vec<String>,
    /// The configuration as it was in force, as text.
    #[serde(skip)]
    pub config: String,
    /// The version of the program.
    pub version: String,
    /// The name of the machine.
    pub host: String,
    /// When the run started.
    pub started_at: SystemTime,
    /// The least energy with which any schedule that leaves no work waiting could have answered the run's requests; `None` where
    /// nobody knows it, as of every run that was not simulated.
    pub energy_bound: Option<Joules>,
    /// The nodes that the run has, by name; empty where that is this machine alone. A run keeps them: one that cannot be
    /// reached is missing, not absent.
    pub nodes: Vec<String>,
    /// Where its figures come from.
    #[serde(skip)]
    pub provenance: Provenance,
}

/// Latency of the requests that were answered in one period.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
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
}

impl LatencySummary {
    /// The summary of a histogram of microseconds; `None` where nothing was counted.
    pub fn of_micros(histogram: &Histogram<u64>) -> Option<Self> {
        (!histogram.is_empty()).then(|| Self {
            mean: Seconds::from_micros(histogram.mean()),
            p50: micros_at(histogram, 50.0),
            p95: micros_at(histogram, 95.0),
            p99: micros_at(histogram, 99.0),
            p999: micros_at(histogram, 99.9),
            max: Seconds::from_micros(histogram.max() as f64),
        })
    }
}

/// The value of a histogram of microseconds at a percentile given in percent.
pub(crate) fn micros_at(histogram: &Histogram<u64>, percentile: f64) -> Seconds {
    Seconds::from_micros(histogram.value_at_percentile(percentile) as f64)
}

/// One period: what was seen, what was decided, and why.
///
/// A `None` says that the value is not known (a meter did not answer, nothing was answered): never that it is zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PeriodRecord {
    /// The number of the period; strictly ascending within a run.
    pub index: u64,
    /// When the period began, from the start of the run.
    pub at: Seconds,
    /// The length of the period as it really was.
    pub duration: Seconds,
    /// Requests that arrived in the period.
    pub arrivals: u64,
    /// Requests answered in the period.
    pub completions: u64,
    /// Requests that failed in the period, whoever broke them off.
    pub failures: u64,
    /// Of these, the requests whose client went away: they miss no SLO.
    #[serde(default)]
    pub failed_by_client: u64,
    /// Requests being served at the end of the period.
    pub in_flight: u64,
    /// Age of the oldest request being served at the end of the period, where known.
    pub oldest_in_flight: Option<Seconds>,
    /// Latency of the requests answered; `None` where none was.
    pub latency: Option<LatencySummary>,
    /// Latency at the SLO's percentile of the requests that ended, the failed ones being the slowest; `None` where none
    /// ended, or where the percentile lies among the failed ones: then the SLO was missed, by no measured latency.
    pub slo_latency: Option<Seconds>,
    /// The arrival rate that the law expects in the next period, where it forecasts.
    pub forecast: Option<PerSecond>,
    /// Cores allocated to the service during the period; `None` where nothing allocates any.
    pub cores: Option<Cores>,
    /// Power cap in force during the period; `None` where there is none.
    pub cap: Option<Watts>,
    /// Whether the cap stood at its limit for the allocated cores.
    pub cap_at_limit: bool,
    /// Mean power of the period.
    pub power: Option<Reading<Watts>>,
    /// Energy of the period.
    pub energy: Option<Reading<Joules>>,
    /// Busy share of the allocated cores.
    pub utilisation: Option<Ratio>,
    /// Share of the period in which the service was throttled by its quota.
    pub throttled: Option<Ratio>,
    /// Mean core frequency.
    pub frequency: Option<Hertz>,
    /// The highest frequency that the cores might run at; `None` where nothing was limited.
    #[serde(default)]
    pub frequency_limit: Option<Hertz>,
    /// Whether the period's telemetry was lost.
    pub telemetry_lost: bool,
    /// Whether a lever was not in force as commanded, or another one than at the start of the run held the cap.
    #[serde(default)]
    pub levers_lost: bool,
    /// Nodes of the run that could not be reached: they count as having everything on.
    #[serde(default)]
    pub nodes_missing: u64,
    /// What the law was given, whole, so that the period can be replayed.
    pub seen: serde_json::Value,
    /// What the law answered, whole.
    pub decided: serde_json::Value,
    /// Why it was decided so.
    pub reasons: Vec<Reason>,
    /// What is known of the run's parts (cluster, nodes, gateways), [`MAX_PARTS`] of them at most: further ones are not
    /// recorded, and a note of the run says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
}

/// The rules by which a decision says that a signal had a configuration read again, and what came of it: a controller's, and that of the
/// classes of connections of a server on call.
pub const READ_AGAIN: [&str; 2] = ["read-again", "oncall-classes"];

/// Parts that are recorded of one period, at most.
pub const MAX_PARTS: usize = 1_024;

/// Why a decision was taken, as data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// The rule's stable name, by which decisions are counted.
    pub rule: String,
    /// One sentence for people, with its numbers.
    pub text: String,
    /// The numbers, by name with the unit last. JSON has no NaN or infinity: either is written as `null` and read
    /// back as NaN.
    #[serde(deserialize_with = "numbers_or_nan")]
    pub numbers: BTreeMap<String, f64>,
    /// The levers of the law that gave it; empty where it is of none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levers: Vec<Lever>,
}

impl Reason {
    /// A reason of a rule.
    pub fn new(rule: impl Into<String>, text: impl Into<String>, numbers: &[(&str, f64)]) -> Self {
        Self {
            rule: rule.into(),
            text: text.into(),
            numbers: numbers
                .iter()
                .map(|(name, value)| ((*name).to_owned(), *value))
                .collect(),
            levers: Vec::new(),
        }
    }
}

fn numbers_or_nan<'de, D: Deserializer<'de>>(input: D) -> Result<BTreeMap<String, f64>, D::Error> {
    let numbers = BTreeMap::<String, Option<f64>>::deserialize(input)?;
    Ok(numbers
        .into_iter()
        .map(|(name, value)| (name, value.unwrap_or(f64::NAN)))
        .collect())
}

impl PeriodRecord {
    /// Whether it is known that no request came, ended or was being served at its end.
    pub fn is_without_requests(&self) -> bool {
        !self.telemetry_lost
            && self.arrivals + self.completions + self.failures + self.in_flight == 0
            && self.oldest_in_flight.is_none()
    }

    /// The latency to hold against the target: that at the SLO's percentile; where no request ended although some are being served, the
    /// age of the oldest of these. `None` where neither is known.
    pub fn latency_to_judge(&self) -> Option<Seconds> {
        let oldest = self
            .oldest_in_flight
            .filter(|_| !self.telemetry_lost && self.completions + self.failures == 0);
        self.slo_latency.or(oldest)
    }

    /// Whether so many failed that the percentile lies among them: no latency was measured, and the SLO was missed.
    pub fn is_percentile_among_failed(&self) -> bool {
        let failed = self.failures > self.failed_by_client || self.completions == 0 && self.failures > 0;
        self.slo_latency.is_none() && !self.telemetry_lost && failed
    }

    /// The foremost reason of each law, in the order of the laws.
    pub(crate) fn foremost(&self) -> impl Iterator<Item = &Reason> {
        let reasons = self.reasons.iter().enumerate();
        let first = |(at, reason): &(usize, &Reason)| {
            self.reasons[..*at]
                .iter()
                .all(|before| before.levers != reason.levers)
        };
        reasons.filter(first).map(|(_, reason)| reason)
    }

    /// A period with nothing known of it but its number, its place in time and the cores allocated, where there are any.
    pub fn new(index: u64, at: Seconds, duration: Seconds, cores: impl Into<Option<Cores>>) -> Self {
        Self {
            index,
            at,
            duration,
            cores: cores.into(),
            ..Self::default()
        }
    }

    /// The power of the period: as read, else its energy over its length, which is the same mean.
    pub fn mean_power(&self) -> Option<Reading<Watts>> {
        self.power.or_else(|| {
            let energy = self.energy?;
            (self.duration > Seconds::ZERO).then(|| energy.map(|joules| joules / self.duration))
        })
    }

    /// Names the first value that no run can have: a time, core count or reading that is not a finite number, or a
    /// negative length.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        let latencies = self.latency.map(|l| [l.mean, l.p50, l.p95, l.p99, l.p999, l.max]);
        let latencies = latencies
            .into_iter()
            .flatten()
            .map(|latency| ("latency", Some(latency.get())));
        let numbers = [
            ("at", Some(self.at.get())),
            (
                "duration",
                Some(self.duration.get())
                    .filter(|length| *length >= 0.0)
                    .or(Some(f64::NAN)),
            ),
            ("cores", self.cores.map(Cores::get)),
            ("oldest_in_flight", self.oldest_in_flight.map(Seconds::get)),
            ("slo_latency", self.slo_latency.map(Seconds::get)),
            ("forecast", self.forecast.map(PerSecond::get)),
            ("cap", self.cap.map(Watts::get)),
            ("power", self.power.map(|power| power.value.get())),
            ("energy", self.energy.map(|energy| energy.value.get())),
            ("utilisation", self.utilisation.map(Ratio::get)),
            ("throttled", self.throttled.map(Ratio::get)),
            ("frequency", self.frequency.map(Hertz::get)),
            ("frequency_limit", self.frequency_limit.map(Hertz::get)),
        ];
        let mut all = numbers.into_iter().chain(latencies);
        all.find_map(|(name, value)| value.is_some_and(|value| !value.is_finite()).then_some(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_shown_of_what_was_random() {
        assert_eq!(World::Simulated.seed_text(0).as_deref(), Some("seed 0"));
        assert_eq!(World::Live.seed_text(7).as_deref(), Some("seed 7"));
        assert_eq!(World::Live.seed_text(0), None);
    }
}
