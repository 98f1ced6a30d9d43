//! What a law is given: one period of the service and its machine.

use crate::capacity::Capacity;
use crate::placement::SizesObservation;
use crate::plant::Slo;
use crate::resize::PowerState;
use headroom_units::{Hertz, PerSecond, Ratio, Reading, Seconds, Setting, Watts};
use serde::{Deserialize, Serialize};

/// What was observed in one period. What could not be read is absent, never zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Observation {
    /// Number of the period, from 0.
    pub period: u64,
    /// The end of the period, from the start of the run.
    pub at: Seconds,
    /// The time that schedules go by, at the end of the period: UTC since 1970 live, the time since the start of the run in a
    /// simulation.
    pub clock: Seconds,
    /// The length of the period as it really was.
    pub length: Seconds,
    /// What was in force during the period, as read back from the machine; of a lever without a value nothing limits.
    pub in_force: Setting,
    /// Reflexes that fired in the period, each of which raised what was in force before.
    pub reflexes: u32,
    /// The requests; `None` where the period's telemetry was lost.
    pub traffic: Option<Traffic>,
    /// Busy share of the allocated cores; `None` where it could not be read.
    pub utilisation: Option<Ratio>,
    /// Mean power; `None` where no meter answered.
    pub power: Option<Reading<Watts>>,
    /// Mean frequency of the processors; `None` where the machine does not say.
    pub frequency: Option<Reading<Hertz>>,
    /// CPU time that the service used; `None` where it could not be read.
    pub cpu_time: Option<Seconds>,
    /// Nodes that cannot be reached: they may serve on, and what they take is in none of these figures.
    #[serde(skip_serializing_if = "is_zero")]
    pub nodes_missing: u64,
    /// Requests that arrive at the whole cluster, where that is counted otherwise than by [`traffic`](Self::traffic): at the
    /// servers' accept queues.
    pub demand: Option<PerSecond>,
    /// The gateway's cache; `None` where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheObservation>,
    /// The gateway's batches; `None` where there is no batcher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batching: Option<BatchObservation>,
    /// The server on call; `None` where there is none, or nothing is known of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oncall: Option<OncallObservation>,
    /// The requests by the size of their answers; `None` where no gateway tells them apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sizes: Option<SizesObservation>,
    /// The servers of a cluster that is resized, always in the same order.
    pub nodes: Vec<NodeObservation>,
}

/// What a server whose workers are on call did in one period (REEF, Section 3.4).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OncallObservation {
    /// Queries answered.
    pub queries: u64,
    /// Of these such as the server failed: service to nobody, and let through all the same.
    pub failed: u64,
    /// Rounds ended.
    pub rounds: u64,
    /// Workers with a slot, at the end of the period.
    pub running: u64,
    /// Connections with a query and no slot, at the end of the period.
    pub waiting: u64,
    /// The least of these that were seen in the period, where it was sampled more often: while some always wait, the throughput is
    /// the server's and not the demand's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_least: Option<u64>,
    /// The least number of connections that waited for a slot in the period, as a share of those that asked ([`share_of`](Self::share_of));
    /// of several servers the largest of theirs. `None` where there are no connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_share: Option<Ratio>,
    /// For how long the one waits that waits longest, at the end of the period; `None` where none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_waiting: Option<Seconds>,
    /// The same of those alone that no policy has wait, zero where none of them does; `None` where that is not told.
    #[serde(default)]
    pub oldest_in_turn: Option<Seconds>,
    /// Connections at the end of the period.
    pub connections: u64,
    /// As how many connections the queries of the period came, would all ask alike ([`asking`](Self::asking_of)): a pool has many that
    /// do not ask. Of several servers together as many as make the busiest of them as busy as it is. `None` where it is not told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asking: Option<f64>,
    /// Slots that workers gave back, or lost, in the midst of a query.
    pub given_back: u64,
    /// Instructions of the server; `None` where no counter says them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<u64>,
    /// Context switches of the server; `None` where no counter says them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_switches: Option<u64>,
    /// The cores that the server may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<u64>,
    /// The share of its cores' time in idle periods longer than the break-even time (Equation 2 says it of all idle time).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub long_idle: Option<Ratio>,
    /// Its classes of connections, in the order of the configuration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassObservation>,
    /// Each connection. Not recorded: there may be thousands.
    #[serde(skip)]
    pub each: Vec<crate::oncall::policy::Connection>,
}

/// The connections of one class in one period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassObservation {
    /// Its name.
    pub name: String,
    /// Connections.
    pub connections: u64,
    /// Queries answered.
    pub queries: u64,
    /// Median, P95, P99 and P99.9 of the last latencies of its connections; `None` where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<[Seconds; 4]>,
    /// The targets of each connection's P95, P99 and P99.9; `None` where the class has none.
    pub targets: [Option<Seconds>; 3],
    /// Connections that missed an SLO of theirs: by their last queries, or by one that is not answered yet ([`Self::stalled`]).
    pub missed: u64,
    /// Connections without an answer in this period whose query waits for longer than each of their targets.
    pub stalled: u64,
}

impl OncallObservation {
    /// Connections of which some always waited in the period, as far as that is known: at its end, where it was not sampled.
    pub fn always_waiting(&self) -> u64 {
        self.waiting_least.unwrap_or(self.waiting)
    }

    /// So many of these connections as a share of those that ask, where that is known; at most 1, and `None` where there are none.
    pub fn share_of(waiting: u64, connections: u64, asking: Option<f64>) -> Option<Ratio> {
        let all = connections as f64;
        let asking = asking.map_or(all, |asking| all.min(asking.max(1.0)));
        (connections > 0).then(|| Ratio::new((waiting as f64 / asking).min(1.0)))
    }

    /// The effective number of connections that asked, of the queries q of each of them: (Σ q)² / Σ q (q - 1).
    ///
    /// For n connections that ask alike at random this is n whatever the length of the period, since the mean of q (q - 1) of a Poisson
    /// count is the square of its mean; where one asks for all it is 1. It is at most the number of connections with a query, and that
    /// where none had two.
    pub fn asking_of(queries: impl Iterator<Item = u64>) -> f64 {
        let (mut asked, mut sum, mut pairs) = (0.0, 0.0, 0.0);
        for queries in queries.filter(|queries| *queries > 0) {
            let queries = queries as f64;
            asked += 1.0;
            sum += queries;
            pairs += queries * (queries - 1.0);
        }
        match pairs > 0.0 {
            true => (sum * sum / pairs).min(asked),
            false => asked,
        }
    }

    /// Instructions per query, where both are known.
    pub fn instructions_per_query(&self) -> Option<f64> {
        self.per_query(self.instructions)
    }

    /// Context switches per query, where both are known.
    pub fn switches_per_query(&self) -> Option<f64> {
        self.per_query(self.context_switches)
    }

    fn per_query(&self, count: Option<u64>) -> Option<f64> {
        let count = count.filter(|_| self.queries > 0)?;
        Some(count as f64 / self.queries as f64)
    }
}

/// What the second period adds to the one before it.
impl std::ops::Add for OncallObservation {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let both = |one: Option<u64>, two: Option<u64>| Some(one? + two?);
        Self {
            queries: self.queries + other.queries,
            failed: self.failed + other.failed,
            rounds: self.rounds + other.rounds,
            given_back: self.given_back + other.given_back,
            waiting_least: self
                .waiting_least
                .zip(other.waiting_least)
                .map(|(one, two)| one.min(two)),
            waiting_share: self
                .waiting_share
                .zip(other.waiting_share)
                .map(|(one, two)| one.min(two)),
            instructions: both(self.instructions, other.instructions),
            context_switches: both(self.context_switches, other.context_switches),
            ..other
        }
    }
}

/// What a gateway's cache did in one period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CacheObservation {
    /// Requests that were looked for in it.
    pub lookups: u64,
    /// Of these, the ones answered from it, also those that waited for another's fetch of the same.
    pub hits: u64,
}

impl CacheObservation {
    /// h: the share answered from it; `None` where nothing was looked for.
    pub fn hit_ratio(&self) -> Option<Ratio> {
        (self.lookups > 0).then(|| Ratio::new(self.hits as f64 / self.lookups as f64))
    }
}

impl std::ops::Add for CacheObservation {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            lookups: self.lookups + other.lookups,
            hits: self.hits + other.hits,
        }
    }
}

/// The batches that a gateway let go in one period (Cheng, Guo and Zhou, MASCOTS 2013, Section III.B). All counts are 0 where none
/// was, as while the interval is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BatchObservation {
    /// Batches let go.
    pub batches: u64,
    /// Their requests.
    pub requests: u64,
    /// Their groups, each of requests for the same.
    pub groups: u64,
    /// Batches of which the last answer came.
    pub answered: u64,
    /// From the release to the last answer, of these together.
    pub processing: Seconds,
    /// What the batches before them left of the intervals of the batches let go, together.
    pub waiting: Seconds,
    /// Requests that are held at the end of the period: of those in flight, the ones that no server has yet.
    #[serde(skip_serializing_if = "is_zero")]
    pub held: u64,
}

impl BatchObservation {
    /// T_p: from the release of a batch to its last answer, in the mean.
    pub fn mean_processing(&self) -> Option<Seconds> {
        (self.answered > 0).then(|| self.processing / self.answered as f64)
    }

    /// T_w: what the batch before left of a batch's interval, in the mean.
    pub fn mean_waiting(&self) -> Option<Seconds> {
        (self.batches > 0).then(|| self.waiting / self.batches as f64)
    }

    /// Requests for the same in one batch, in the mean.
    pub fn group_size(&self) -> Option<f64> {
        (self.groups > 0).then(|| self.requests as f64 / self.groups as f64)
    }
}

/// What the second period adds to the one before it.
impl std::ops::Add for BatchObservation {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            batches: self.batches + other.batches,
            requests: self.requests + other.requests,
            groups: self.groups + other.groups,
            answered: self.answered + other.answered,
            processing: self.processing + other.processing,
            waiting: self.waiting + other.waiting,
            held: other.held,
        }
    }
}

/// What was observed of one server of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeObservation {
    /// Its power state.
    pub state: PowerState,
    /// Its capacity as estimated online.
    pub capacity: Capacity,
    /// Requests that it answered a second; `None` where the balancer does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<PerSecond>,
}

impl NodeObservation {
    /// A server of which the balancer does not tell what it answered.
    pub const fn new(state: PowerState, capacity: Capacity) -> Self {
        Self {
            state,
            capacity,
            answered: None,
        }
    }
}

/// The requests of one period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Requests that arrived.
    pub arrivals: u64,
    /// Requests answered.
    pub completions: u64,
    /// Requests that failed, whoever broke them off.
    pub failures: u64,
    /// Of these, the requests whose client went away: they miss no SLO.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed_by_client: u64,
    /// Requests being served at the end of the period; `None` where the telemetry does not tell.
    pub in_flight: Option<u64>,
    /// Age of the oldest request being served at the end of the period.
    pub oldest_in_flight: Option<Seconds>,
    /// Latency of the requests that ended; `None` where none did.
    pub latency: Option<Latency>,
}

/// Latency of the requests that ended in one period: that of the answered ones, and those that the service failed as
/// the slowest of all.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The percentile that the SLO speaks of. Where it was missed by failures it is no measured latency, but one over the
    /// target that a law can compute with: [`missed_latency`].
    pub at_slo: Seconds,
    /// So many requests failed that the percentile lies among them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub missed: bool,
    /// The distribution of the requests answered; `None` where the source of telemetry tells one percentile only, or
    /// where none was answered.
    pub distribution: Option<Distribution>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The latency at the SLO's percentile that a law is given where it was missed by failures: twice the target, or the
/// longest of the answered requests where that is longer.
pub fn missed_latency(target: Seconds, longest: Option<Seconds>) -> Seconds {
    (target * 2.0).max(longest.unwrap_or(Seconds::ZERO))
}

/// Mean and percentiles of one period's latencies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
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
}

impl Traffic {
    /// Requests that the service failed: those that count as missing the SLO.
    pub fn failed_by_service(&self) -> u64 {
        self.failures.saturating_sub(self.failed_by_client)
    }

    /// The share of the requests that ended which the service failed; `None` where none ended.
    pub fn failed_share(&self) -> Option<Ratio> {
        let failed = self.failed_by_service();
        let ended = self.completions + failed;
        (ended > 0).then(|| Ratio::new(failed as f64 / ended as f64))
    }

    /// Requests being served, on average over a period of this length by Little's law (rate times mean latency); those at
    /// its end where the mean is not reported; `None` where neither is known.
    pub fn mean_in_flight(&self, length: Seconds) -> Option<f64> {
        let mean = self.latency.and_then(|latency| latency.distribution);
        match mean.filter(|_| length > Seconds::ZERO) {
            Some(distribution) => Some(self.completions as f64 * (distribution.mean / length)),
            None => self.in_flight.map(|in_flight| in_flight as f64),
        }
    }

    /// Requests to reckon with at the end of a period of this length: those in flight; where they are not known, as many as in
    /// the mean; where that is not known either, none is known to wait.
    pub fn left_at_end(&self, length: Seconds) -> f64 {
        let in_flight = self.in_flight.map(|in_flight| in_flight as f64);
        in_flight.or_else(|| self.mean_in_flight(length)).unwrap_or(0.0)
    }

    /// The latency to hold against the target: the SLO's percentile of the requests that ended; where none
    /// ended although some are being served, the age of the oldest of these, since a service that has stopped
    /// answering has no percentile and yet is late; zero where there was nothing to serve.
    pub fn latency_to_judge(&self) -> Seconds {
        match self.latency {
            Some(latency) => latency.at_slo,
            None => self.oldest_in_flight.unwrap_or(Seconds::ZERO),
        }
    }

    /// That latency as the reason of a period over the guard: "P99 180 ms > guard 150 ms"; "P99 missed" where it was missed by failures and
    /// is no measured latency; and where none ended, for how long the oldest waits.
    pub fn late_in_words(&self, slo: Slo, guard: Seconds) -> String {
        let name = slo.name();
        let guard = guard.as_millis();
        match (self.latency, self.oldest_in_flight) {
            (Some(latency), _) if latency.missed => format!("{name} missed"),
            (Some(latency), _) => format!(
                "{name} {:.0} ms > guard {guard:.0} ms",
                latency.at_slo.as_millis()
            ),
            (None, Some(oldest)) => format!(
                "nothing was answered, and the oldest waits for {:.0} ms > guard {guard:.0} ms",
                oldest.as_millis()
            ),
            (None, None) => format!("nothing was answered, of {name} within the guard of {guard:.0} ms"),
        }
    }
}

impl Observation {
    /// Of this traffic's requests that are in flight at the end of the period those that the servers have: what a batcher holds is no work
    /// yet, and in the next period as many others are held in its place.
    pub fn at_work(&self, traffic: &Traffic) -> f64 {
        let held = self.batching.map_or(0, |batching| batching.held);
        (traffic.left_at_end(self.length) - held as f64).max(0.0)
    }

    /// Requests that arrive at the whole cluster: the demand where that is counted, else the arrival rate.
    pub fn demand(&self) -> Option<PerSecond> {
        self.demand.or_else(|| self.arrival_rate())
    }

    /// Arrival rate λ of the period; `None` where telemetry was lost or the period had no length.
    pub fn arrival_rate(&self) -> Option<PerSecond> {
        let traffic = self.traffic.as_ref()?;
        (self.length > Seconds::ZERO).then(|| PerSecond::new(traffic.arrivals as f64 / self.length.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_do_not_ask_are_none_of_those_that_do() {
        let asking = |counts: &[u64]| OncallObservation::asking_of(counts.iter().copied());
        assert_eq!((asking(&[]), asking(&[0, 0, 1, 1, 1])), (0.0, 3.0));
        // One client that waits for its answers, in a pool of 400.
        let mut pool = vec![0; 400];
        pool[7] = 2_890;
        assert_eq!(asking(&pool), 1.0);
        // 64 alike, and two classes of which one asks nine times as often: as 1 / Σ of the squares of their shares.
        assert!((asking(&[1_000; 64]) - 64.0).abs() < 0.1);
        let classes = [vec![90_000; 10], vec![10_000; 10]].concat();
        assert!((asking(&classes) - 1e12 / 8.2e10).abs() < 0.01);
        let share = |waiting, asking| OncallObservation::share_of(waiting, 400, asking).map(Ratio::get);
        assert_eq!(
            (share(1, None), share(1, Some(1.0)), share(1, Some(0.0))),
            (Some(0.0025), Some(1.0), Some(1.0))
        );
        assert_eq!(
            (share(3, Some(2.0)), share(40, Some(4e3))),
            (Some(1.0), Some(0.1))
        );
        assert_eq!(OncallObservation::share_of(0, 0, None), None);
        let one = OncallObservation {
            asking: Some(3.0),
            ..OncallObservation::default()
        };
        assert_eq!((one.clone() + OncallObservation::default()).asking, None);
        assert_eq!((OncallObservation::default() + one).asking, Some(3.0));
    }

    #[test]
    fn a_missed_percentile_is_over_the_target() {
        let target = Seconds::new(0.25);
        assert_eq!(missed_latency(target, None), Seconds::new(0.5));
        assert_eq!(missed_latency(target, Some(Seconds::new(0.8))), Seconds::new(0.8));
    }

    #[test]
    fn what_is_in_flight_and_not_known_is_reckoned_with_by_littles_law_and_is_not_none() {
        let second = Seconds::new(1.0);
        let mut traffic = Traffic {
            completions: 100,
            in_flight: Some(40),
            ..Traffic::default()
        };
        assert_eq!(traffic.left_at_end(second), 40.0);
        assert_eq!(traffic.mean_in_flight(second), Some(40.0));
        traffic.in_flight = None;
        assert_eq!(
            (traffic.mean_in_flight(second), traffic.left_at_end(second)),
            (None, 0.0)
        );
        let of = Seconds::new(0.2);
        traffic.latency = Some(Latency {
            at_slo: of,
            missed: false,
            distribution: Some(Distribution {
                mean: of,
                p50: of,
                p95: of,
                p99: of,
                p999: of,
            }),
        });
        assert_eq!(traffic.left_at_end(second), 20.0);
        let json = serde_json::to_value(&traffic).unwrap();
        assert!(json["in_flight"].is_null(), "{json}");
    }

    #[test]
    fn a_missed_percentile_is_called_no_latency() {
        let slo = Slo::new(Ratio::new(0.99), Seconds::new(0.25)).unwrap();
        let guard = Seconds::new(0.15);
        let words = |missed, at_slo| {
            let traffic = Traffic {
                latency: Some(Latency {
                    at_slo: Seconds::new(at_slo),
                    missed,
                    distribution: None,
                }),
                ..Traffic::default()
            };
            traffic.late_in_words(slo, guard)
        };
        assert_eq!(words(false, 0.18), "P99 180 ms > guard 150 ms");
        assert_eq!(words(true, 0.5), "P99 missed");
        let waiting = Traffic {
            oldest_in_flight: Some(Seconds::new(0.3)),
            ..Traffic::default()
        };
        assert_eq!(
            waiting.late_in_words(slo, guard),
            "nothing was answered, and the oldest waits for 300 ms > guard 150 ms"
        );
        let nothing = Traffic::default().late_in_words(slo, guard);
        assert_eq!(nothing, "nothing was answered, of P99 within the guard of 150 ms");
    }
}
